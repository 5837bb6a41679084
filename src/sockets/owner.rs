//! Whose process is at the other end of a local TCP connection.
//!
//! TCP has no peer credentials, but the kernel knows the owner of every socket
//! of this network name space, and the other end of a local connection is one
//! of them. A socket without an inode (its process has closed it) reports uid
//! 0, which means "unknown" and never "root".

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// Sizes of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const QUERY: usize = 56;
const ANSWER: usize = 72;

/// Why the owner is not known.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// Only IPv4 is served.
    #[error("not an IPv4 connection")]
    Family,
    /// No process has the socket, or it is on another host or in another
    /// network name space.
    #[error("no local process owns the other end")]
    Nobody,
    /// The kernel could not be asked.
    #[error("cannot ask the kernel for the owner: {}", crate::errno::reason(.0))]
    Io(#[from] io::Error),
}

/// The uid that owns the socket with local address `peer` that is connected to
/// our address `here`.
///
/// # Errors
///
/// [`Unknown`] must be taken for a refusal.
pub fn uid(peer: SocketAddr, here: SocketAddr) -> Result<u32, Unknown> {
    let (SocketAddr::V4(peer), SocketAddr::V4(here)) = (peer, here) else {
        return Err(Unknown::Family);
    };
    static HAS_LOOKUP: AtomicBool = AtomicBool::new(false);
    choose(by_netlink(peer, here), &HAS_LOOKUP, || by_proc(peer, here))
}

/// What the look-up says, or else the table. A kernel that has no look-up for TCP
/// gives the same answer (ENOENT) as one that finds no such socket, so the first is
/// believed only once it has found one.
fn choose(
    looked_up: Result<u32, Unknown>,
    has_lookup: &AtomicBool,
    table: impl FnOnce() -> Result<u32, Unknown>,
) -> Result<u32, Unknown> {
    match looked_up {
        Err(Unknown::Io(_)) => table(),
        Err(Unknown::Nobody) if !has_lookup.load(Relaxed) => table(),
        Ok(uid) => {
            has_lookup.store(true, Relaxed);
            Ok(uid)
        }
        unknown => unknown,
    }
}

/// One exact look-up; its cost does not grow with the number of sockets.
fn by_netlink(peer: SocketAddrV4, here: SocketAddrV4) -> Result<u32, Unknown> {
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        flags,
        Some(netlink::SOCK_DIAG),
    )
    .map_err(io::Error::from)?;
    let to = netlink::SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&fd, &query(peer, here), SendFlags::empty(), &to)
        .map_err(io::Error::from)?;
    let mut buf = [0_u8; 4096];
    let (n, _) =
        rustix::net::recv(&fd, &mut buf[..], RecvFlags::empty()).map_err(io::Error::from)?;
    read_answer(buf.get(..n).unwrap_or(&[]))
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn query(peer: SocketAddrV4, here: SocketAddrV4) -> Vec<u8> {
    let mut q = Vec::with_capacity(HEADER + QUERY);
    let total = u32::try_from(HEADER + QUERY).unwrap_or(0);
    q.extend(total.to_ne_bytes());
    q.extend(BY_FAMILY.to_ne_bytes());
    q.extend(REQUEST.to_ne_bytes());
    q.extend([0; 8]); // sequence, port
    q.extend([AF_INET, IPPROTO_TCP, 0, 0]);
    q.extend(u32::MAX.to_ne_bytes()); // any state
    q.extend(peer.port().to_be_bytes());
    q.extend(here.port().to_be_bytes());
    q.extend(peer.ip().octets());
    q.extend([0; 12]);
    q.extend(here.ip().octets());
    q.extend([0; 12]);
    q.extend([0; 4]); // any interface
    q.extend([0xFF; 8]); // no cookie
    q
}

const AF_INET: u8 = 2;
const IPPROTO_TCP: u8 = 6;

/// `struct inet_diag_msg` or an error number.
fn read_answer(answer: &[u8]) -> Result<u32, Unknown> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = answer
        .get(4..6)
        .and_then(|b| b.try_into().ok())
        .map(u16::from_ne_bytes);
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?))
    };
    match kind {
        Some(BY_FAMILY) => {
            // uid and inode are its last two words.
            let end = HEADER + ANSWER;
            let (uid, inode) = (word(end - 8), word(end - 4));
            match (uid, inode) {
                (Some(uid), Some(inode)) if inode != 0 => Ok(uid),
                (Some(_), Some(_)) => Err(Unknown::Nobody),
                _ => Err(short().into()),
            }
        }
        Some(ERROR) => {
            let code = word(HEADER).ok_or_else(short)?.cast_signed();
            if code == -rustix::io::Errno::NOENT.raw_os_error() {
                return Err(Unknown::Nobody);
            }
            Err(io::Error::from_raw_os_error(code.saturating_neg()).into())
        }
        _ => Err(short().into()),
    }
}

/// For kernels without the look-up: reads the table of all sockets.
fn by_proc(peer: SocketAddrV4, here: SocketAddrV4) -> Result<u32, Unknown> {
    find(&std::fs::read_to_string("/proc/net/tcp")?, peer, here)
}

fn find(table: &str, peer: SocketAddrV4, here: SocketAddrV4) -> Result<u32, Unknown> {
    let (local, remote) = (hex(peer), hex(here));
    for line in table.lines().skip(1) {
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next() != Some(&*local) || words.next() != Some(&*remote) {
            continue;
        }
        // After the addresses: state, queues, timer, retransmits, uid,
        // timeout, inode.
        let rest: Vec<&str> = words.collect();
        let number = |at: usize| rest.get(at).and_then(|word| word.parse::<u32>().ok());
        if let (Some(uid), Some(inode)) = (number(4), number(6))
            && inode != 0
        {
            return Ok(uid);
        }
    }
    Err(Unknown::Nobody)
}

/// An address as the kernel's table has it.
fn hex(addr: SocketAddrV4) -> String {
    format!(
        "{:08X}:{:04X}",
        u32::from_ne_bytes(addr.ip().octets()),
        addr.port()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    fn v4(addr: SocketAddr) -> SocketAddrV4 {
        match addr {
            SocketAddr::V4(addr) => addr,
            SocketAddr::V6(_) => panic!("IPv6"),
        }
    }

    #[test]
    fn the_owner_of_a_local_client_is_known() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let here = server.local_addr().unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(uid(peer, here).unwrap(), me);
        assert_eq!(by_proc(v4(peer), v4(here)).unwrap(), me);
        match by_netlink(v4(peer), v4(here)) {
            Ok(uid) => assert_eq!(uid, me),
            Err(Unknown::Io(error)) => eprintln!("this kernel has no look-up: {error}"),
            Err(error) => panic!("{error}"),
        }
        drop(client);
        // Its half-closed socket has no owner any more.
        let gone = (0..30_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            matches!(uid(peer, here), Err(Unknown::Nobody))
        });
        assert!(gone);
    }

    #[test]
    fn a_kernel_without_the_look_up_is_asked_otherwise() {
        let has_lookup = AtomicBool::new(false);
        let none = || Err(Unknown::Nobody);
        assert_eq!(choose(none(), &has_lookup, || Ok(7)).unwrap(), 7);
        let failed = || Err(io::Error::from_raw_os_error(libc::EPERM).into());
        assert_eq!(choose(failed(), &has_lookup, || Ok(7)).unwrap(), 7);
        let never = || panic!("the table is long");
        assert_eq!(choose(Ok(8), &has_lookup, never).unwrap(), 8);
        let nobody = choose(none(), &has_lookup, never);
        assert!(matches!(nobody, Err(Unknown::Nobody)));
    }

    #[test]
    fn an_unconnected_address_has_no_owner() {
        let nobody = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 1);
        let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        assert!(matches!(
            uid(nobody.into(), here.into()),
            Err(Unknown::Nobody)
        ));
    }

    #[test]
    fn the_table_is_read_by_column() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0\n\
             1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1234        0 77 1 0 20 4 30 10 -1\n\
             2: 0100007F:C351 0100007F:1F90 05 00000000:00000000 03:00000000 00000000     0        0 0 3 0\n";
        let here = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0x1F90);
        let peer = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        assert_eq!(find(table, peer(0xC350), here).unwrap(), 1234);
        assert!(matches!(
            find(table, peer(0xC351), here),
            Err(Unknown::Nobody)
        ));
        assert!(matches!(
            find(table, peer(0xC352), here),
            Err(Unknown::Nobody)
        ));
    }
}
