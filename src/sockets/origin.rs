//! Where clients may come from, as a user writes it: an address, a network, or
//! the name of a host. A job's option and `serve` read it alike.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The addresses that agree with the first one in its first bits.
///
/// # Invariants
///
/// `bits` is at most the length of an address, and `first` has no bit after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

impl From<IpAddr> for Network {
    fn from(first: IpAddr) -> Self {
        // INVARIANT: all bits count, so none comes after them.
        let bits = length(first);
        Self { first, bits }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            self.first.fmt(f)
        } else {
            write!(f, "{}/{}", self.first, self.bits)
        }
    }
}

impl Network {
    /// The lowest address, which of a host is the only one.
    #[must_use]
    pub fn first(self) -> IpAddr {
        self.first
    }

    /// It is one address.
    #[must_use]
    pub fn is_host(self) -> bool {
        self.bits == length(self.first)
    }

    /// Whether `addr` is in it. No IPv4 address is in an IPv6 network.
    #[must_use]
    pub fn contains(self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.first.is_ipv4() && head(addr, self.bits) == self.first
    }

    fn parse(addr: &str, bits: &str) -> Result<Self, String> {
        let given: IpAddr = addr
            .parse()
            .map_err(|_| format!("'{addr}' is not a numeric address"))?;
        let most = length(given);
        let bits = Some(bits)
            // A number may have a sign for the library.
            .filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|bits| bits.parse().ok())
            .filter(|bits| *bits <= most)
            .ok_or_else(|| {
                format!("'{addr}/{bits}' needs a number of bits from 0 to {most}")
            })?;
        // INVARIANT: at most the length, and the rest is cut off.
        let network = Self {
            first: head(given, bits),
            bits,
        };
        if network.first != given {
            // Either of the two may be the wrong one.
            return Err(format!(
                "'{addr}/{bits}' has bits after the first {bits}: use {}/{bits} or {addr}",
                network.first
            ));
        }
        Ok(network)
    }
}

/// How many bits an address has.
fn length(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

/// An address without what comes after its first `bits`.
fn head(addr: IpAddr, bits: u8) -> IpAddr {
    let rest = u32::from(length(addr).saturating_sub(bits));
    match addr {
        // All bits cannot be shifted out.
        IpAddr::V4(addr) => {
            let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
            Ipv4Addr::from_bits(addr.to_bits() & mask).into()
        }
        IpAddr::V6(addr) => {
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            Ipv6Addr::from_bits(addr.to_bits() & mask).into()
        }
    }
}

/// One place that clients may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An address or a network.
    Network(Network),
    /// A host, whose addresses are to be looked up.
    Name(String),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((addr, bits)) = text.split_once('/') {
            return Network::parse(addr, bits).map(Self::Network);
        }
        if let Ok(addr) = text.parse::<IpAddr>() {
            return Ok(Self::Network(addr.into()));
        }
        if is_name(text) {
            return Ok(Self::Name(text.to_owned()));
        }
        Err(format!(
            "'{text}' is neither ADDRESS, ADDRESS/BITS nor the name of a host"
        ))
    }
}

/// What can be a name and nothing else. A resolver takes `172.17` for an address,
/// and so it does a misspelt one: none of those may let in other hosts than meant.
fn is_name(text: &str) -> bool {
    let mut last = "";
    for label in text.strip_suffix('.').unwrap_or(text).split('.') {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if label.is_empty() || label.starts_with('-') || !label.bytes().all(inner) {
            return false;
        }
        last = label;
    }
    let number = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    number.is_none() && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Takes names and networks apart.
#[must_use]
pub fn divide(origins: &[Origin]) -> (BTreeSet<&String>, BTreeSet<Network>) {
    let mut names = BTreeSet::new();
    let mut networks = BTreeSet::new();
    for origin in origins {
        match origin {
            Origin::Name(name) => names.insert(name),
            Origin::Network(network) => networks.insert(*network),
        };
    }
    (names, networks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        match text.parse() {
            Ok(Origin::Network(network)) => network,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn error(text: &str) -> String {
        text.parse::<Origin>().expect_err(text)
    }

    #[test]
    fn a_network_has_what_agrees_in_its_first_bits() {
        for (text, within, without) in [
            (
                "172.17.0.0/16",
                &["172.17.0.0", "172.17.0.1", "172.17.255.255"][..],
                &["172.16.255.255", "172.18.0.0", "0.0.0.0", "::", "::ac11:1"][..],
            ),
            (
                "10.128.0.0/9",
                &["10.128.0.0", "10.255.255.255"],
                &["10.127.255.255", "11.128.0.0"],
            ),
            (
                "192.0.2.8/31",
                &["192.0.2.8", "192.0.2.9"],
                &["192.0.2.7", "192.0.2.10"],
            ),
            (
                "192.0.2.8/32",
                &["192.0.2.8"],
                &["192.0.2.9", "192.0.2.7", "::ffff:192.0.2.8"],
            ),
            ("192.0.2.8", &["192.0.2.8"], &["192.0.2.9", "8.2.0.192"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::", "::1"]),
            (
                "2001:db8:80::/41",
                &["2001:db8:80::", "2001:db8:ff:ffff::1"],
                &["2001:db8:7f::1", "2001:db8:100::", "32.1.13.184"],
            ),
            ("2001:db8::1/128", &["2001:db8::1"], &["2001:db8::"]),
            ("2001:db8::1", &["2001:db8::1"], &["2001:db8::2"]),
            ("::/0", &["::", "ffff::1"], &["0.0.0.0", "127.0.0.1"]),
        ] {
            let network = network(text);
            for addr in within {
                assert!(network.contains(addr.parse().unwrap()), "{addr} in {text}");
            }
            for addr in without {
                assert!(!network.contains(addr.parse().unwrap()), "{addr} in {text}");
            }
        }
    }

    #[test]
    fn a_network_is_written_as_it_is_read() {
        for text in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "192.0.2.1",
            "::/0",
            "fd00::/8",
            "::1",
        ] {
            assert_eq!(network(text).to_string(), text);
        }
        for (text, plain) in [("192.0.2.1/32", "192.0.2.1"), ("fd00::1/128", "fd00::1")] {
            assert_eq!(network(text), network(plain));
            assert!(network(text).is_host());
        }
        assert!(!network("192.0.2.0/31").is_host());
        // The length of the other kind of address.
        assert!(!network("2001:db8::/32").is_host());
    }

    #[test]
    fn bits_must_be_a_number_that_fits() {
        for text in [
            "10.0.0.0/33",
            "10.0.0.0/256",
            "10.0.0.0/4294967304",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
            "10.0.0.0/8/8",
            "10.0.0.0/x",
            "10.0.0.0/255.0.0.0",
        ] {
            let want = format!("'{text}' needs a number of bits from 0 to 32");
            assert_eq!(error(text), want);
        }
        assert!(error("fd00::/129").ends_with("needs a number of bits from 0 to 128"));
        for (text, addr) in [
            ("/8", ""),
            ("10.0.0/8", "10.0.0"),
            ("node1/24", "node1"),
            ("10.0.0.256/8", "10.0.0.256"),
        ] {
            assert_eq!(error(text), format!("'{addr}' is not a numeric address"));
        }
    }

    #[test]
    fn bits_that_do_not_count_are_refused() {
        for (text, want) in [
            ("172.17.0.1/16", "use 172.17.0.0/16 or 172.17.0.1"),
            ("10.0.0.1/0", "use 0.0.0.0/0 or 10.0.0.1"),
            ("192.0.2.9/31", "use 192.0.2.8/31 or 192.0.2.9"),
            ("fd00::1/64", "use fd00::/64 or fd00::1"),
        ] {
            let error = error(text);
            assert!(error.starts_with(&format!("'{text}' has bits ")), "{error}");
            assert!(error.ends_with(want), "{error}");
        }
    }

    #[test]
    fn names_are_no_addresses_that_a_resolver_makes_up() {
        for name in [
            "a",
            "node-1",
            "n_1.example",
            "3n",
            "foo.example.",
            "10.in",
            "0x1.a",
        ] {
            assert_eq!(name.parse(), Ok(Origin::Name(name.to_owned())));
        }
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "-a",
            "a,b",
            "a b",
            "10",
            "172.17",
            "10.0.0.256",
            "10.0.0.1.",
            "0xac110001",
            "172.0X11",
            "fe80::1%lo",
            "[::1]",
            "10.0.0.1:80",
            "::g",
            "foo[1-2]",
            "n\u{e9}",
        ] {
            let want =
                format!("'{text}' is neither ADDRESS, ADDRESS/BITS nor the name of a host");
            assert_eq!(error(text), want);
        }
    }

    #[test]
    fn each_is_taken_once() {
        let texts = ["b", "10.0.0.1", "a", "10.0.0.1/32", "b", "10.0.0.0/8"];
        let all: Vec<Origin> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let (names, networks) = divide(&all);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let networks: Vec<String> = networks.iter().map(Network::to_string).collect();
        assert_eq!(networks, ["10.0.0.0/8", "10.0.0.1"]);
    }
}
