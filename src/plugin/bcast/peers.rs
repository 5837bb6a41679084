//! The shells of the job: who they are and how to reach them.

use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::shell::Shell;
use crate::flux::shell::ShellInfo;
use crate::hostlist;
use crate::plugin::brokers::Brokers;
use crate::transfer::driver::Network;
use crate::transfer::edge::Link;

/// Looks shells up when asked, so that a plugin that is not used costs nothing.
#[derive(Debug)]
pub(super) struct Peers {
    shell: Shell,
    brokers: Brokers,
    handle: Handle,
    service: String,
    size: u32,
    /// The job's host lists, from its resource set (RFC 20).
    nodelist: Vec<String>,
}

impl Peers {
    pub(super) fn new(shell: Shell, handle: Handle, info: &ShellInfo) -> Self {
        let lists = info.resources.pointer("/execution/nodelist");
        Self {
            shell,
            brokers: Brokers::new(shell, info),
            handle,
            service: info.service.clone(),
            size: info.size,
            nodelist: lists
                .and_then(|lists| serde_json::from_value(lists.clone()).ok())
                .unwrap_or_default(),
        }
    }

    /// Number of shells of the job.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Rank of a shell's broker.
    pub(super) fn broker(&self, rank: u32) -> Result<u32> {
        self.brokers.of(rank)
    }

    /// Host names of all shells, in order of rank.
    pub(super) fn hosts(&self) -> Result<Vec<String>> {
        let mut hosts = Vec::new();
        for rank in 0..self.size {
            hosts.push(self.shell.rank_info(rank)?.name);
        }
        // An older shell does not tell them one by one.
        if hosts.iter().any(String::is_empty) {
            let named = self
                .nodelist
                .iter()
                .filter_map(|list| hostlist::expand(list).ok());
            for (host, name) in hosts.iter_mut().zip(named.flatten()) {
                *host = name;
            }
        }
        Ok(hosts)
    }
}

impl Network for Peers {
    fn link(&self, rank: u32) -> Option<Link> {
        let broker = self.broker(rank).ok()?;
        Some(Link {
            handle: self.handle,
            service: self.service.clone(),
            broker,
        })
    }
}
