//! What the provider must know of its job, as the shell tells it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::rand::GetRandomFlags;

use super::options::Options;
use crate::errno::Errno;
use crate::flux::error::Context;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::shell::Shell;
use crate::flux::thread::signals_blocked;
use crate::hostlist;
use crate::idset::IdSet;
use crate::plugin::brokers::Brokers;
use crate::plugin::hosts::Hosts;
use crate::pmi::BATCH_BYTES;
use crate::pmi::Config;
use crate::pmi::Ids;
use crate::pmi::Limits;
use crate::pmi::mapping;
use crate::sockets::lookup::lookup;
use crate::sockets::origin;
use crate::sockets::origin::Network;
use crate::sockets::origin::Origin;

/// How long the start of a job may wait for names of hosts to be looked up.
const LOOKUP: Duration = Duration::from_secs(10);

/// The shells of the job and who runs where.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) service: String,
    /// By shell rank.
    pub(super) brokers: Vec<u32>,
    /// By shell rank; for messages.
    pub(super) hosts: Vec<String>,
    /// By rank.
    pub(super) shell_of_rank: Vec<u32>,
    pub(super) shell_rank: u32,
    kvsname: String,
}

impl Job {
    pub(super) fn read(shell: Shell) -> Result<Self> {
        let info = shell.info()?;
        let brokers = Brokers::new(shell, &info);
        let hosts = Hosts::new(shell, &info);
        let mut job = Self {
            brokers: Vec::new(),
            hosts: Vec::new(),
            shell_of_rank: vec![u32::MAX; usize::try_from(info.ntasks).unwrap_or(0)],
            shell_rank: info.rank,
            // Brokers take the name of the key space for their job id.
            kvsname: info.jobid.f58()?,
            service: info.service,
        };
        let mut next = 0;
        for number in 0..info.size {
            let rank = shell.rank_info(number)?;
            let ranks = if rank.taskids.is_empty() {
                // An older shell: it only knows consecutive ranks.
                (next..next + rank.ntasks).collect()
            } else {
                let set: IdSet = rank.taskids.parse().map_err(|error| {
                    Error::with_text(Errno::EPROTO, format!("tasks of shell {number}: {error}"))
                })?;
                set.iter().collect::<Vec<u32>>()
            };
            next += rank.ntasks;
            for task in ranks {
                let place = usize::try_from(task)
                    .ok()
                    .and_then(|t| job.shell_of_rank.get_mut(t));
                if let Some(place) = place {
                    *place = number;
                }
            }
            job.brokers.push(brokers.of(number)?);
            job.hosts.push(rank.name);
        }
        hosts.complete(&mut job.hosts);
        if job.shell_of_rank.contains(&u32::MAX) {
            return Err(Error::with_text(Errno::EPROTO, "a task is on no shell"));
        }
        Ok(job)
    }

    /// How the provider of this shell is to be set up.
    pub(super) fn config(&self, shell: Shell, options: &Options) -> Result<Config> {
        let size = u32::try_from(self.shell_of_rank.len()).unwrap_or(u32::MAX);
        let local: Vec<u32> = (0..size)
            .zip(&self.shell_of_rank)
            .filter(|(_, on)| **on == self.shell_rank)
            .map(|(rank, _)| rank)
            .collect();
        let mut failed = None;
        let ids = Ids::new(options.ids(), size, options.lanes, &local, || {
            random().unwrap_or_else(|error| {
                // Any number, so that the search ends; it is not used.
                let count = failed.as_ref().map_or(0, |(count, _)| count + 1);
                failed = Some((count, error));
                count
            })
        });
        if let Some((_, error)) = failed {
            return Err(error.context("get random ids"));
        }
        Ok(Config {
            shell: self.shell_rank,
            shell_of_rank: self.shell_of_rank.clone(),
            node_of_rank: self.shell_of_rank.clone(),
            k: options.k,
            batch: BATCH_BYTES,
            kvsname: self.kvsname.clone().into_bytes(),
            presets: self.presets(shell, options)?,
            ids,
            groups: options.pmi12,
            limits: Limits::for_size(size),
        })
    }

    /// Where clients may come from: the addresses of the job's hosts, and what the
    /// user allows. Waits a while for names to be looked up.
    pub(super) fn places(&self, shell: Shell, allow: &[Origin]) -> Result<BTreeSet<Network>> {
        let (names, mut places) = origin::divide(allow);
        let names: Vec<String> = self.hosts.iter().chain(names).cloned().collect();
        let found =
            signals_blocked(|| lookup(&names, LOOKUP)).context("pmi-port: look up hosts")?;
        let own = usize::try_from(self.shell_rank)
            .ok()
            .and_then(|rank| self.hosts.get(rank));
        let unknown: Vec<&String> = found
            .iter()
            .filter(|(name, addrs)| !addrs.iter().any(IpAddr::is_ipv4) && Some(*name) != own)
            .map(|(name, _)| name)
            .collect();
        if !unknown.is_empty() {
            shell.log_as(super::COMPONENT).warn(format_args!(
                "{} cannot be resolved here within {LOOKUP:?}: clients from there are refused",
                hostlist::fold(&unknown)
            ));
        }
        places.extend(found.into_values().flatten().map(Network::from));
        Ok(places)
    }

    /// The keys that the shell's own provider has too.
    fn presets(&self, shell: Shell, options: &Options) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut presets = Vec::new();
        let mut preset = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                presets.push((key.as_bytes().to_vec(), value.into_bytes()));
            }
        };
        if !options.nomap {
            let mapping = mapping::process_mapping(&self.shell_of_rank);
            if mapping.is_none() && self.shell_rank == 0 {
                shell.log_as(super::COMPONENT).warn(format_args!(
                    "PMI_process_mapping is too long for PMI clients and left out"
                ));
            }
            preset("PMI_process_mapping", mapping);
            preset("flux.taskmap", mapping::taskmap(&self.shell_of_rank));
        }
        let handle = shell.handle()?;
        let level = handle.attr_get("instance-level")?;
        let level = level.and_then(|level| level.parse::<u32>().ok());
        preset(
            "flux.instance-level",
            level.map(|level| (level + 1).to_string()),
        );
        preset(
            "flux.tbon-interface-hint",
            handle.attr_get("tbon.interface-hint")?,
        );
        Ok(presets)
    }

    /// A rank and its host, for messages.
    pub(super) fn host_of(&self, rank: u32) -> &str {
        usize::try_from(rank)
            .ok()
            .and_then(|rank| self.shell_of_rank.get(rank))
            .and_then(|shell| self.hosts.get(usize::try_from(*shell).ok()?))
            .map_or("?", String::as_str)
    }
}

fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    let n =
        rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()).context("getrandom")?;
    if n == bytes.len() {
        Ok(u32::from_ne_bytes(bytes))
    } else {
        Err(Errno::EIO.into())
    }
}

/// The value of `PMI_PORT` for local tasks. Clients read a numeric IPv4
/// address and do not resolve names well.
pub(super) fn port(addr: SocketAddr) -> String {
    let ip = if addr.ip().is_unspecified() {
        IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)
    } else {
        addr.ip()
    };
    format!("{ip}:{}", addr.port())
}
