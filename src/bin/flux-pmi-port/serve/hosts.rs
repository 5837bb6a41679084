//! The hosts of `serve`: which rank runs where, and from where clients come.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::net::UdpSocket;
use std::time::Duration;

use flux_bcast::errno::reason;
use flux_bcast::hostlist;
use flux_bcast::sockets::lookup::lookup;
use flux_bcast::sockets::origin;
use flux_bcast::sockets::origin::Network;
use flux_bcast::sockets::origin::Origin;

use crate::output;

/// How long all names together may take to be looked up.
const LOOKUP: Duration = Duration::from_secs(10);

/// The addresses of hosts by their names; a name that is not known has none.
pub(super) type Addresses = BTreeMap<String, Vec<IpAddr>>;

#[derive(Debug)]
pub(super) struct Hosts {
    /// Empty if everything runs here.
    names: Vec<String>,
    /// For each rank the number of its host; equal names are one host.
    nodes: Vec<u32>,
    /// For each rank its place in `names`.
    places: Vec<usize>,
}

impl Hosts {
    /// Lays `size` ranks over the hosts in blocks.
    pub(super) fn new(names: Vec<String>, size: u32) -> Result<Self, String> {
        let size = usize::try_from(size).map_err(|error| error.to_string())?;
        if names.is_empty() {
            return Ok(Self {
                names,
                nodes: vec![0; size],
                places: vec![0; size],
            });
        }
        if names.len() > size {
            return Err(format!(
                "{} hosts for {size} ranks: use fewer hosts",
                names.len()
            ));
        }
        let mut numbers = BTreeMap::new();
        let mut nodes = Vec::with_capacity(size);
        let mut places = Vec::with_capacity(size);
        for rank in 0..size {
            let place = rank * names.len() / size;
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            nodes.push(*numbers.entry(&names[place]).or_insert(next));
            places.push(place);
        }
        Ok(Self {
            nodes,
            places,
            names,
        })
    }

    pub(super) fn size(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// The host of a rank; `None`: this one.
    pub(super) fn name(&self, rank: u32) -> Option<&str> {
        let place = usize::try_from(rank)
            .ok()
            .and_then(|rank| self.places.get(rank))?;
        self.names.get(*place).map(String::as_str)
    }

    pub(super) fn node_of_rank(&self) -> &[u32] {
        &self.nodes
    }

    pub(super) fn text(&self) -> String {
        hostlist::fold(&self.names)
    }

    /// Looks up all hosts, and those that `more` names. Waits a while at most.
    pub(super) fn look_up(&self, more: &[Origin]) -> Result<Addresses, String> {
        let (named, _) = origin::divide(more);
        let names: Vec<String> = self.names.iter().chain(named).cloned().collect();
        lookup(&names, LOOKUP).map_err(|error| format!("look up hosts: {}", reason(&error)))
    }

    /// The address of this machine from which the first host is reached.
    pub(super) fn local_address(&self, known: &Addresses) -> Result<Ipv4Addr, String> {
        let Some(first) = self.names.first() else {
            return Ok(Ipv4Addr::LOCALHOST);
        };
        let hint = "give --bind";
        let mut found = known.get(first).into_iter().flatten().copied();
        let to = found
            .find(IpAddr::is_ipv4)
            .ok_or_else(|| format!("host {first} has no IPv4 address: {hint}"))?;
        // Connecting a datagram socket sends nothing; it only picks a route.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.connect(SocketAddr::new(to, 9)).map(|()| socket))
            .and_then(|socket| socket.local_addr())
            .map_err(|error| format!("no route to {first}: {}: {hint}", reason(&error)))?;
        match socket.ip() {
            IpAddr::V4(addr) => Ok(addr),
            IpAddr::V6(_) => Err(format!("no IPv4 route to {first}: {hint}")),
        }
    }

    /// The hosts and networks that clients may come from.
    pub(super) fn places(&self, known: &Addresses, more: &[Origin]) -> BTreeSet<Network> {
        let (named, mut all) = origin::divide(more);
        let hosts: BTreeSet<&String> = self.names.iter().collect();
        for name in hosts.union(&named) {
            let found = known.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            // Who allows others may mean them for a host that is not known.
            if found.is_empty() && (more.is_empty() || named.contains(name)) {
                output::note(&format!(
                    "host {name} has no address here, so its clients are refused; see --allow"
                ));
            }
            all.extend(found.iter().copied().map(Network::from));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &str, size: u32) -> Hosts {
        Hosts::new(hostlist::expand(list).unwrap(), size).unwrap()
    }

    #[test]
    fn ranks_are_laid_over_hosts_in_blocks() {
        assert_eq!(hosts("a,b", 4).node_of_rank(), [0, 0, 1, 1]);
        assert_eq!(hosts("a,b,c", 4).node_of_rank(), [0, 0, 1, 2]);
        assert_eq!(hosts("", 3).node_of_rank(), [0, 0, 0]);
        assert_eq!(hosts("", 3).name(1), None);
        assert_eq!(hosts("a,b", 4).name(2), Some("b"));
        let repeated = hosts("a,b,a", 3);
        assert_eq!(repeated.node_of_rank(), [0, 1, 0]);
        assert_eq!(repeated.text(), "a,b,a");
        let error = Hosts::new(hostlist::expand("a,b").unwrap(), 1).unwrap_err();
        assert!(error.contains("2 hosts for 1 ranks"), "{error}");
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let there = hosts("127.0.0.2", 1);
        let known = there.look_up(&[]).unwrap();
        assert!(there.local_address(&known).unwrap().is_loopback());
        assert!(
            there
                .places(&known, &[])
                .contains(&IpAddr::from([127, 0, 0, 2]).into())
        );
        let here = hosts("", 1);
        let none = here.look_up(&[]).unwrap();
        assert!(none.is_empty());
        assert!(here.local_address(&none).unwrap().is_loopback());
    }

    #[test]
    fn clients_may_come_from_hosts_and_from_what_is_allowed() {
        let more = ["10.0.0.0/8", "127.0.0.3", "localhost"].map(|text| text.parse().unwrap());
        let hosts = hosts("127.0.0.2,127.0.0.2", 2);
        let known = hosts.look_up(&more).unwrap();
        // Each name once, and no network.
        assert_eq!(
            known.keys().collect::<Vec<_>>(),
            ["127.0.0.2", "localhost"],
            "{known:?}"
        );
        let places = hosts.places(&known, &more);
        let texts: Vec<String> = places.iter().map(Network::to_string).collect();
        for text in ["10.0.0.0/8", "127.0.0.1", "127.0.0.2", "127.0.0.3"] {
            assert!(texts.iter().any(|place| place == text), "{text}: {texts:?}");
        }
    }

    #[test]
    fn what_was_not_found_has_no_address_and_is_not_looked_for_again() {
        let hosts = hosts("localhost,127.0.0.2", 2);
        let known = Addresses::from([
            ("localhost".to_owned(), Vec::new()),
            ("127.0.0.2".to_owned(), vec![IpAddr::from([127, 0, 0, 9])]),
        ]);
        let error = hosts.local_address(&known).unwrap_err();
        assert!(error.contains("localhost has no IPv4 address"), "{error}");
        let places = hosts.places(&known, &[]);
        let texts: Vec<String> = places.iter().map(Network::to_string).collect();
        assert_eq!(texts, ["127.0.0.9"]);
    }
}
