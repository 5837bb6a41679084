//! On which host each shell of the job runs.

use crate::flux::error::Result;
use crate::flux::shell::Shell;
use crate::flux::shell::ShellInfo;
use crate::hostlist;

/// Looks shells up when asked, so that a plugin that is not used costs nothing.
#[derive(Debug)]
pub(super) struct Hosts {
    shell: Shell,
    size: u32,
    /// The host lists in the job's resource set (RFC 20).
    lists: Vec<String>,
}

impl Hosts {
    pub(super) fn new(shell: Shell, info: &ShellInfo) -> Self {
        let lists = info.resources.pointer("/execution/nodelist");
        Self {
            shell,
            size: info.size,
            lists: lists
                .and_then(|lists| serde_json::from_value(lists.clone()).ok())
                .unwrap_or_default(),
        }
    }

    /// The names of all, in order of rank.
    pub(super) fn all(&self) -> Result<Vec<String>> {
        let mut hosts = Vec::new();
        for rank in 0..self.size {
            hosts.push(self.shell.rank_info(rank)?.name);
        }
        self.complete(&mut hosts);
        Ok(hosts)
    }

    /// Fills in the names of all that the shell did not tell: an older one does not
    /// tell them one by one.
    pub(super) fn complete(&self, hosts: &mut [String]) {
        if hosts.iter().any(String::is_empty) {
            let named = self
                .lists
                .iter()
                .filter_map(|list| hostlist::expand(list).ok());
            for (host, name) in hosts.iter_mut().zip(named.flatten()) {
                *host = name;
            }
        }
    }
}
