//! The shells of the job: who they are and how to reach them.

use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::shell::Shell;
use crate::transfer::driver::Network;
use crate::transfer::edge::Link;

/// Looks shells up when asked, so that a plugin that is not used costs nothing.
#[derive(Debug)]
pub(super) struct Peers {
    shell: Shell,
    handle: Handle,
    service: String,
    size: u32,
}

impl Peers {
    pub(super) fn new(shell: Shell, handle: Handle, service: String, size: u32) -> Self {
        Self {
            shell,
            handle,
            service,
            size,
        }
    }

    /// Number of shells of the job.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// Rank of a shell's broker.
    pub(super) fn broker(&self, rank: u32) -> Result<u32> {
        Ok(self.shell.rank_info(rank)?.broker_rank)
    }

    /// Host names of all shells, in order of rank.
    pub(super) fn hosts(&self) -> Result<Vec<String>> {
        (0..self.size)
            .map(|rank| Ok(self.shell.rank_info(rank)?.name))
            .collect()
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
