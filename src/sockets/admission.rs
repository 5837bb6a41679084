//! Who may connect: processes of this user on this machine, and whoever comes
//! from a host that was named. The latter prove nothing by that: they must know
//! an id that is secret, too, and have few guesses: ids have only 31 bits.

use super::owner;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

/// How many clients from one address of another host may misbehave before it is
/// barred.
pub const OFFENCES: u32 = 100;

/// What that is for, in a warning.
pub const BARRED: &str = "too many clients from there gave a wrong id or broke the protocol";

/// Decides about clients by where they come from.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The uid that clients on this machine must belong to, if that is checked.
    uid: Option<u32>,
    /// Addresses of this machine besides the loopback ones.
    own: BTreeSet<IpAddr>,
    /// Addresses of other hosts whose clients are welcome.
    hosts: BTreeSet<IpAddr>,
    /// Clients from there that had to be closed.
    offences: RefCell<BTreeMap<IpAddr, u32>>,
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
    /// The connection is gone.
    #[error("{}", crate::errno::reason(.0))]
    Gone(#[from] io::Error),
}

impl Admission {
    /// Admits clients on this machine, only those of this process's effective
    /// user if `check`, and those from the addresses in `hosts`.
    ///
    /// # Errors
    ///
    /// The addresses of this machine cannot be listed. They are needed only if
    /// there are `hosts`, which may be this machine too.
    pub fn new(check: bool, hosts: BTreeSet<IpAddr>) -> io::Result<Self> {
        let own = if hosts.is_empty() {
            BTreeSet::new()
        } else {
            let all = if_addrs::get_if_addrs()?;
            all.iter().map(if_addrs::Interface::ip).collect()
        };
        Ok(Self {
            uid: check.then(|| rustix::process::geteuid().as_raw()),
            own,
            hosts,
            offences: RefCell::default(),
        })
    }

    /// A client at this address had to be closed: it gave a wrong id, or broke
    /// the protocol otherwise. True if its host is barred from now on; this
    /// machine never is, nor is a connection that is open.
    pub fn offended(&self, peer: IpAddr) -> bool {
        if self.is_here(peer) || !self.hosts.contains(&peer) {
            return false;
        }
        let mut offences = self.offences.borrow_mut();
        let count = offences.entry(peer).or_default();
        *count = count.saturating_add(1);
        *count == OFFENCES
    }

    fn is_here(&self, peer: IpAddr) -> bool {
        peer.is_loopback() || self.own.contains(&peer)
    }

    /// Whether the client at the other end of `stream` may stay.
    ///
    /// # Errors
    ///
    /// The reason to close the connection.
    pub fn admit(&self, stream: &TcpStream, peer: SocketAddr) -> Result<(), Refusal> {
        let here = stream.local_addr()?;
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
        if !self.hosts.contains(&peer) {
            return Err(Refusal::Elsewhere);
        }
        match self.offences.borrow().get(&peer) {
            Some(&count) if count >= OFFENCES => Err(Refusal::Barred),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
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
            own: set(&[10, 11]),
            hosts: set(&[1, 2, 11]),
            offences: RefCell::default(),
        }
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
            assert_eq!(admission.offended([192, 0, 2, 1].into()), nth == OFFENCES);
        }
        assert!(matches!(ask([192, 0, 2, 1]), Err(Refusal::Barred)));
        assert!(!admission.offended([192, 0, 2, 1].into()), "told once");
        ask([192, 0, 2, 2]).unwrap();
        // This machine, named or not, and strangers are not counted.
        for peer in [[127, 0, 0, 1], HERE, [192, 0, 2, 11], [192, 0, 2, 3]] {
            for _ in 0..=OFFENCES {
                assert!(!admission.offended(peer.into()));
            }
        }
        for peer in [[127, 0, 0, 1], HERE, [192, 0, 2, 11]] {
            ask(peer).unwrap();
        }
        assert_eq!(admission.offences.borrow().len(), 1);
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
        let hosts = BTreeSet::from([IpAddr::from([192, 0, 2, 1])]);
        let admission = Admission::new(true, hosts).unwrap();
        assert!(admission.own.iter().any(IpAddr::is_loopback));
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
