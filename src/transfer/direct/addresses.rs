//! Where shells listen, what addresses they offer, and which of those are tried.

use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::sync::OnceLock;

use crate::bcast::message::Offer;

/// Most addresses that are tried, whatever is offered.
const ADDRESSES: usize = 8;

/// What two processes have in common if they run under one kernel; empty if it
/// does not say.
pub fn kernel() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|id| id.trim().to_owned())
            .unwrap_or_default()
    })
}

/// All addresses of this machine, as far as they can be had.
pub(super) fn own() -> Vec<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.iter().map(if_addrs::Interface::ip).collect()
}

/// Where to listen for somebody who runs under `kernel`: nowhere else than on
/// this machine, if it is this one.
pub(super) fn listen_at(other: &str) -> IpAddr {
    if !other.is_empty() && other == kernel() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

/// The addresses by which others reach what listens at `at`.
pub(super) fn offered(at: IpAddr) -> io::Result<Vec<IpAddr>> {
    if !at.is_unspecified() {
        return Ok(vec![at]);
    }
    let all = if_addrs::get_if_addrs()?;
    let all = all.iter().filter(|one| !one.is_loopback());
    Ok(all
        .map(if_addrs::Interface::ip)
        .filter(IpAddr::is_ipv4)
        .collect())
}

/// The addresses that are to be tried, the first one last. Whoever offers them
/// must not make us knock at any number of doors. What is an address of this
/// machine as well, as those of bridges for containers often are, leads to nobody
/// else; loopback is offered only by those who run here.
pub(super) fn to_try(offer: &Offer, own: &[IpAddr]) -> Vec<SocketAddr> {
    let sensible = |ip: &&IpAddr| {
        !ip.is_unspecified() && !ip.is_multicast() && (ip.is_loopback() || !own.contains(ip))
    };
    let some = offer
        .addresses
        .iter()
        .filter(sensible)
        .take(ADDRESSES)
        .map(|ip| SocketAddr::new(*ip, offer.port));
    let mut some: Vec<_> = some.collect();
    some.reverse();
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bcast::id::TransferId;

    fn offer(addresses: &[&str]) -> Offer {
        Offer {
            port: 4000,
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            secret: TransferId::from_bytes([1; 16]),
        }
    }

    #[test]
    fn few_addresses_are_tried_in_order() {
        let ips: Vec<String> = (0..1000).map(|n| format!("10.0.{}.1", n % 250)).collect();
        let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
        let tried = to_try(&offer(&ips), &[]);
        assert_eq!(tried.len(), ADDRESSES);
        assert_eq!(tried.last(), Some(&"10.0.0.1:4000".parse().unwrap()));
    }

    #[test]
    fn what_leads_to_nobody_else_is_not_tried() {
        let own = ["172.17.0.1".parse().unwrap(), "127.0.0.1".parse().unwrap()];
        let offer = offer(&[
            "172.17.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "10.0.0.1",
            "127.0.0.1",
        ]);
        let tried = to_try(&offer, &own);
        let expected = ["127.0.0.1:4000", "10.0.0.1:4000"].map(|at| at.parse().unwrap());
        assert_eq!(tried, expected);
    }

    #[test]
    fn nothing_but_this_machine_hears_of_its_own_shells() {
        assert_eq!(listen_at(kernel()), IpAddr::from([127, 0, 0, 1]));
        assert!(listen_at("another").is_unspecified());
        assert!(listen_at("").is_unspecified());
        assert_eq!(
            offered([127, 0, 0, 1].into()).unwrap(),
            [IpAddr::from([127, 0, 0, 1])]
        );
    }
}
