//! Who may connect: processes of this user on this machine, and whoever comes
//! from a host or a network that was named. The latter prove nothing by that: they
//! must know an id that is secret, too, and have few guesses: ids have only 31 bits.
//!
//! Here is what has an address of this machine. A process in a network name space
//! of its own (a container on a bridge) has none: it comes from elsewhere, wherever
//! it runs, for nothing tells from here whose it is.

use super::origin::Network;
use super::owner;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

/// How many clients from one address of another host may misbehave before it is
/// barred.
pub const OFFENCES: u32 = 100;

/// How many of them may misbehave in a network before it is barred as a whole: who
/// has many of its addresses would have as many times the guesses. One address
/// alone cannot bar the others.
pub const NETWORK_OFFENCES: u32 = 10 * OFFENCES;

/// How many refusals are told.
const REFUSALS: u32 = 32;

/// What barring is for, in a warning.
pub const BARRED: &str = "too many clients from there gave a wrong id or broke the protocol";

/// Counts refusals, of which only so many are told: strangers must not fill a log.
#[derive(Debug, Default)]
pub struct Refusals(u32);

impl Refusals {
    /// Counts one. `None` if it is not to be told; else what is said at its end.
    pub fn one_more(&mut self) -> Option<&'static str> {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..REFUSALS => Some(""),
            REFUSALS => Some("; later ones are not told"),
            _ => None,
        }
    }
}

/// Decides about clients by where they come from.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The uid that clients on this machine must belong to, if that is checked.
    uid: Option<u32>,
    /// Addresses of this machine besides the loopback ones, as last seen.
    own: RefCell<BTreeSet<IpAddr>>,
    /// Addresses of other hosts whose clients are welcome.
    hosts: BTreeSet<IpAddr>,
    /// Networks whose clients are welcome, besides.
    networks: Vec<Network>,
    /// Clients from a host or a network that had to be closed.
    offences: RefCell<BTreeMap<Network, u32>>,
}

/// Why a client is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It runs on this machine, as somebody else.
    #[error("it belongs to uid {0}")]
    Stranger(u32),
    /// It seems to run on this machine, but nobody knows as whom.
    #[error(transparent)]
    Unknown(#[from] owner::Unknown),
    /// It comes from a host that nobody named.
    #[error("it comes from no host of ours")]
    Elsewhere,
    /// Too many clients from there have misbehaved.
    #[error("its host is barred")]
    Barred,
    /// Too many clients from the whole network have misbehaved.
    #[error("its network is barred")]
    NetworkBarred,
    /// Nobody knows whether it runs on this machine.
    #[error("the addresses of this machine cannot be listed: {}", crate::errno::reason(.0))]
    Unlisted(#[source] io::Error),
    /// The connection is gone.
    #[error("{}", crate::errno::reason(.0))]
    Gone(#[from] io::Error),
}

impl Admission {
    /// Admits clients on this machine, only those of this process's effective
    /// user if `check`, and those from the hosts and networks in `places`.
    ///
    /// # Errors
    ///
    /// The addresses of this machine cannot be listed. They are needed only if
    /// there are `places`, which may have this machine in them too.
    pub fn new(check: bool, places: BTreeSet<Network>) -> io::Result<Self> {
        let own = if places.is_empty() {
            BTreeSet::new()
        } else {
            own()?
        };
        let (hosts, networks) = places.into_iter().partition(|place| place.is_host());
        let hosts: Vec<Network> = hosts;
        Ok(Self {
            uid: check.then(|| rustix::process::geteuid().as_raw()),
            own: RefCell::new(own),
            hosts: hosts.into_iter().map(Network::first).collect(),
            networks,
            offences: RefCell::default(),
        })
    }

    /// A client at this address had to be closed: it gave a wrong id, or broke
    /// the protocol otherwise. Returns what is barred from now on; this machine
    /// never is, nor is a connection that is open.
    pub fn offended(&self, peer: IpAddr) -> Vec<Network> {
        let mut barred = Vec::new();
        if self.is_here(peer) || !self.welcomes(peer) {
            return barred;
        }
        let mut offences = self.offences.borrow_mut();
        let mut count = |place: Network| {
            let count = offences.entry(place).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let of_host = count(peer.into());
        if of_host == OFFENCES {
            barred.push(peer.into());
        }
        // A named host is let in without the network; and what it still has open
        // when it is barred does not count for others.
        if !self.hosts.contains(&peer) && of_host <= OFFENCES {
            let all = self.networks_of(peer);
            barred.extend(all.filter(|network| count(*network) == NETWORK_OFFENCES));
        }
        barred
    }

    fn is_here(&self, peer: IpAddr) -> bool {
        peer.is_loopback() || self.own.borrow().contains(&peer)
    }

    /// Its clients are admitted, unless it is this machine or barred.
    fn welcomes(&self, peer: IpAddr) -> bool {
        self.hosts.contains(&peer) || self.networks_of(peer).next().is_some()
    }

    fn networks_of(&self, peer: IpAddr) -> impl Iterator<Item = Network> {
        let networks = self.networks.iter().copied();
        networks.filter(move |network| network.contains(peer))
    }

    /// Whether the client at the other end of `stream` may stay.
    ///
    /// # Errors
    ///
    /// The reason to close the connection.
    pub fn admit(&self, stream: &TcpStream, peer: SocketAddr) -> Result<(), Refusal> {
        let here = stream.local_addr()?;
        let near = peer.ip() == here.ip() || self.is_here(peer.ip());
        if !near && self.welcomes(peer.ip()) {
            // A bridge may be as young as its first container, and its address is
            // in the network that is welcome.
            let own = own().map_err(Refusal::Unlisted)?;
            self.own.replace(own);
        }
        self.decide(peer.ip(), here.ip(), || owner::uid(peer, here))
    }

    /// A client on this machine is never judged by its address alone, whichever
    /// address of this machine it uses.
    fn decide(
        &self,
        peer: IpAddr,
        here: IpAddr,
        owner: impl FnOnce() -> Result<u32, owner::Unknown>,
    ) -> Result<(), Refusal> {
        if peer == here || self.is_here(peer) {
            let Some(wanted) = self.uid else {
                return Ok(());
            };
            return match owner()? {
                uid if uid == wanted => Ok(()),
                uid => Err(Refusal::Stranger(uid)),
            };
        }
        if !self.welcomes(peer) {
            return Err(Refusal::Elsewhere);
        }
        let offences = self.offences.borrow();
        let reached = |place, most| offences.get(&place).is_some_and(|count| *count >= most);
        if reached(peer.into(), OFFENCES) {
            return Err(Refusal::Barred);
        }
        let mut networks = self.networks_of(peer);
        if !self.hosts.contains(&peer)
            && networks.all(|network| reached(network, NETWORK_OFFENCES))
        {
            return Err(Refusal::NetworkBarred);
        }
        Ok(())
    }
}

/// All addresses of this machine.
fn own() -> io::Result<BTreeSet<IpAddr>> {
    let all = if_addrs::get_if_addrs()?;
    Ok(all.iter().map(if_addrs::Interface::ip).collect())
}

#[cfg(test)]
mod tests {
    use super::super::origin::Origin;
    use super::*;
    use std::net::Ipv4Addr;
    use std::net::TcpListener;

    const ME: u32 = 1000;
    const HERE: [u8; 4] = [192, 0, 2, 10];

    /// Ours are 192.0.2.10 and .11, the named hosts .1, .2 and, once more, .11.
    fn admission(check: bool) -> Admission {
        let set = |last: &[u8]| last.iter().map(|n| IpAddr::from([192, 0, 2, *n])).collect();
        Admission {
            uid: check.then_some(ME),
            own: RefCell::new(set(&[10, 11])),
            hosts: set(&[1, 2, 11]),
            networks: Vec::new(),
            offences: RefCell::default(),
        }
    }

    fn networks<const N: usize>(texts: [&str; N]) -> Vec<Network> {
        let parse = |text: &str| match text.parse() {
            Ok(Origin::Network(network)) => network,
            other => panic!("{text}: {other:?}"),
        };
        texts.map(parse).to_vec()
    }

    fn decide(check: bool, peer: [u8; 4], owner: Option<u32>) -> Result<(), Refusal> {
        admission(check).decide(peer.into(), HERE.into(), || {
            owner.ok_or(owner::Unknown::Nobody)
        })
    }

    #[test]
    fn from_elsewhere_only_named_hosts_are_admitted() {
        for check in [true, false] {
            for last in [1, 2] {
                decide(check, [192, 0, 2, last], None).unwrap();
            }
            for peer in [[192, 0, 2, 3], [198, 51, 100, 1], [0, 0, 0, 0]] {
                // Whatever the kernel says about such a socket.
                for owner in [None, Some(ME)] {
                    let refused = decide(check, peer, owner).unwrap_err();
                    assert!(matches!(refused, Refusal::Elsewhere), "{peer:?}: {refused}");
                }
            }
        }
    }

    #[test]
    fn here_the_owner_counts_and_no_address_replaces_it() {
        for peer in [[127, 0, 0, 1], [127, 9, 9, 9], HERE, [192, 0, 2, 11]] {
            decide(true, peer, Some(ME)).unwrap();
            assert!(matches!(
                decide(true, peer, Some(ME + 1)).unwrap_err(),
                Refusal::Stranger(uid) if uid == ME + 1
            ));
            // Root is another user as well, and unknown is nobody.
            assert!(decide(true, peer, Some(0)).is_err());
            assert!(matches!(
                decide(true, peer, None).unwrap_err(),
                Refusal::Unknown(owner::Unknown::Nobody)
            ));
            decide(false, peer, None).unwrap();
        }
    }

    #[test]
    fn a_host_that_guesses_is_barred_and_no_other() {
        let admission = admission(true);
        let ask = |peer: [u8; 4]| admission.decide(peer.into(), HERE.into(), || Ok(ME));
        for nth in 1..=OFFENCES {
            ask([192, 0, 2, 1]).unwrap();
            let barred = admission.offended([192, 0, 2, 1].into());
            assert_eq!(
                barred,
                &networks(["192.0.2.1"])[..usize::from(nth == OFFENCES)]
            );
        }
        assert!(matches!(ask([192, 0, 2, 1]), Err(Refusal::Barred)));
        assert!(
            admission.offended([192, 0, 2, 1].into()).is_empty(),
            "told once"
        );
        ask([192, 0, 2, 2]).unwrap();
        // This machine, named or not, and strangers are not counted.
        for peer in [[127, 0, 0, 1], HERE, [192, 0, 2, 11], [192, 0, 2, 3]] {
            for _ in 0..=OFFENCES {
                assert!(admission.offended(peer.into()).is_empty());
            }
        }
        for peer in [[127, 0, 0, 1], HERE, [192, 0, 2, 11]] {
            ask(peer).unwrap();
        }
        assert_eq!(admission.offences.borrow().len(), 1);
    }

    /// Ours are in the network that is welcome, as a bridge is.
    fn with_networks<const N: usize>(texts: [&str; N]) -> Admission {
        Admission {
            networks: networks(texts),
            ..admission(true)
        }
    }

    #[test]
    fn from_elsewhere_all_of_a_network_are_admitted_and_here_the_owner_counts() {
        let admission = with_networks(["192.0.2.8/29", "198.51.100.0/24"]);
        let ask = |peer: [u8; 4], owner: Option<u32>| {
            admission.decide(peer.into(), HERE.into(), || {
                owner.ok_or(owner::Unknown::Nobody)
            })
        };
        for last in [1, 2, 8, 9, 15] {
            ask([192, 0, 2, last], None).unwrap();
        }
        ask([198, 51, 100, 255], None).unwrap();
        for peer in [[192, 0, 2, 7], [192, 0, 2, 16], [198, 51, 101, 0]] {
            let refused = ask(peer, Some(ME)).unwrap_err();
            assert!(matches!(refused, Refusal::Elsewhere), "{peer:?}: {refused}");
        }
        for peer in [HERE, [192, 0, 2, 11], [127, 0, 0, 1]] {
            ask(peer, Some(ME)).unwrap();
            let refused = ask(peer, Some(ME + 1)).unwrap_err();
            assert!(
                matches!(refused, Refusal::Stranger(_)),
                "{peer:?}: {refused}"
            );
            assert!(ask(peer, None).is_err(), "{peer:?}");
        }
    }

    #[test]
    fn a_network_is_barred_by_many_of_it_and_by_no_one_alone() {
        let admission = with_networks(["198.51.100.0/24", "203.0.113.0/24"]);
        let ask = |peer: [u8; 4]| admission.decide(peer.into(), HERE.into(), || Ok(ME));
        let offend = |last: u8| admission.offended([198, 51, 100, last].into());
        // What one has still open does not count for the others.
        for nth in 1..=2 * NETWORK_OFFENCES {
            let barred = offend(0);
            let want = &networks(["198.51.100.0"])[..usize::from(nth == OFFENCES)];
            assert_eq!(barred, want, "{nth}");
        }
        assert!(matches!(ask([198, 51, 100, 0]), Err(Refusal::Barred)));
        // Nor does a named host, which needs no network.
        for _ in 0..2 * NETWORK_OFFENCES {
            admission.offended([192, 0, 2, 1].into());
        }
        // Each stays below what bars itself; the last offence bars all.
        let each = OFFENCES - 1;
        let left = NETWORK_OFFENCES - OFFENCES;
        for nth in 0..left {
            let last = u8::try_from(1 + nth / each).unwrap();
            ask([198, 51, 100, last]).unwrap();
            let want = &networks(["198.51.100.0/24"])[..usize::from(nth + 1 == left)];
            assert_eq!(offend(last), want, "{nth}");
        }
        for last in [1, 200] {
            assert!(matches!(
                ask([198, 51, 100, last]),
                Err(Refusal::NetworkBarred)
            ));
        }
        ask([203, 0, 113, 1]).unwrap();
        ask([192, 0, 2, 2]).unwrap();
        ask(HERE).unwrap();
    }

    #[test]
    fn what_is_named_otherwise_stays_when_a_network_is_barred() {
        let mut admission = with_networks(["198.51.100.0/24", "198.51.0.0/16"]);
        admission.hosts.insert([198, 51, 100, 1].into());
        let network = networks(["198.51.100.0/24"])[0];
        admission
            .offences
            .get_mut()
            .insert(network, NETWORK_OFFENCES);
        let ask = |peer: [u8; 4]| admission.decide(peer.into(), HERE.into(), || Ok(ME));
        ask([198, 51, 100, 2]).unwrap();
        let other = networks(["198.51.0.0/16"])[0];
        admission
            .offences
            .borrow_mut()
            .insert(other, NETWORK_OFFENCES);
        ask([198, 51, 100, 1]).unwrap();
        for peer in [[198, 51, 100, 2], [198, 51, 7, 7]] {
            assert!(matches!(ask(peer), Err(Refusal::NetworkBarred)));
        }
    }

    #[test]
    fn without_hosts_nobody_from_elsewhere_is_admitted() {
        let alone = Admission::new(false, BTreeSet::new()).unwrap();
        let ask = |peer: [u8; 4]| {
            alone.decide(peer.into(), HERE.into(), || Err(owner::Unknown::Nobody))
        };
        ask([127, 0, 0, 1]).unwrap();
        ask(HERE).unwrap();
        assert!(ask([192, 0, 2, 1]).is_err());
    }

    #[test]
    fn a_real_client_of_this_user_is_admitted() {
        let places = networks(["192.0.2.1", "198.51.100.0/24"]);
        let admission = Admission::new(true, places.into_iter().collect()).unwrap();
        assert!(admission.own.borrow().iter().any(IpAddr::is_loopback));
        assert_eq!(admission.hosts.len(), 1);
        assert_eq!(admission.networks, networks(["198.51.100.0/24"]));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        admission.admit(&server, peer).unwrap();
        let strict = Admission {
            uid: Some(u32::MAX),
            ..admission
        };
        let refused = strict.admit(&server, peer).unwrap_err().to_string();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(refused, format!("it belongs to uid {me}"));
        drop(client);
    }
}
