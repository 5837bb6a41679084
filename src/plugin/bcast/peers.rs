//! The shells of the job: who they are and how to reach them.

use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::shell::Shell;
use crate::flux::shell::ShellInfo;
use crate::plugin::brokers::Brokers;
use crate::plugin::hosts::Hosts;
use crate::transfer::driver::Network;
use crate::transfer::edge::Link;

/// Looks shells up when asked, so that a plugin that is not used costs nothing.
#[derive(Debug)]
pub(super) struct Peers {
    brokers: Brokers,
    hosts: Hosts,
    handle: Handle,
    service: String,
    size: u32,
}

impl Peers {
    pub(super) fn new(shell: Shell, handle: Handle, info: &ShellInfo) -> Self {
        Self {
            brokers: Brokers::new(shell, info),
            hosts: Hosts::new(shell, info),
            handle,
            service: info.service.clone(),
            size: info.size,
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
        self.hosts.all()
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
