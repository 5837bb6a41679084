//! The TCP side of a PMI provider: one listener, its connections and what is
//! still to be written to them. Nothing here waits; whoever owns the loop (the
//! shell's reactor, the stand-alone server) calls in when a descriptor is ready.

#![forbid(unsafe_code)]

pub mod admission;
pub mod dial;
pub mod lookup;
pub mod origin;
pub mod owner;

use crate::pmi::ConnId;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// How many connections may wait to be accepted: all tasks of a large node
/// connect at the same moment, and clients do not try again.
const BACKLOG: i32 = 4096;

/// How many bytes one read takes.
const READ_BYTES: usize = 8192;

/// The descriptors of one provider.
#[derive(Debug)]
pub struct Sockets {
    listener: TcpListener,
    conns: HashMap<ConnId, Conn>,
    next: u64,
}

#[derive(Debug)]
struct Conn {
    stream: TcpStream,
    peer: SocketAddr,
    unsent: Vec<u8>,
}

/// What became of the next client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It has a connection.
    Conn(ConnId),
    /// It is closed again. Each look at a client costs something, so whoever is
    /// refused must not be looked at for as long as more of them come.
    Refused,
    /// There is none.
    Nobody,
}

/// What a connection had to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// It is closed or broken: [`Sockets::close`] it.
    End,
}

/// How far a write got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Everything is written.
    Done,
    /// Call [`Sockets::flush`] when the descriptor is writable. Until then
    /// read nothing more from it, or a peer that never reads fills memory.
    Blocked,
    /// It is broken: [`Sockets::close`] it.
    End,
}

impl Sockets {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// Those of `bind(2)` and `listen(2)`.
    pub fn listen(addr: SocketAddrV4) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if addr.port() != 0 {
            sockopt::set_socket_reuseaddr(&fd, true)?;
        }
        rustix::net::bind(&fd, &addr)?;
        rustix::net::listen(&fd, BACKLOG)?;
        Ok(Self {
            listener: TcpListener::from(fd),
            conns: HashMap::new(),
            next: 0,
        })
    }

    /// The address that is listened on.
    ///
    /// # Errors
    ///
    /// Those of `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The descriptor that is readable when a client waits.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The descriptor of a connection.
    pub fn fd(&self, conn: ConnId) -> Option<BorrowedFd<'_>> {
        self.conns.get(&conn).map(|conn| conn.stream.as_fd())
    }

    /// Where a connection comes from; known also when it is broken.
    pub fn peer(&self, conn: ConnId) -> Option<SocketAddr> {
        self.conns.get(&conn).map(|conn| conn.peer)
    }

    /// Takes the next client that waits, if `admit` does.
    ///
    /// # Errors
    ///
    /// Those of `accept(2)` that last, such as EMFILE: stop listening for a
    /// while then.
    pub fn accept(
        &mut self,
        mut admit: impl FnMut(&TcpStream, SocketAddr) -> bool,
    ) -> io::Result<Accepted> {
        let (stream, peer) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(Accepted::Nobody),
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {
                    return Ok(Accepted::Refused);
                }
                _ => return Err(error),
            },
        };
        if !admit(&stream, peer) {
            return Ok(Accepted::Refused);
        }
        // Replies are small and waited for.
        let ready = stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true));
        if ready.is_err() {
            return Ok(Accepted::Refused);
        }
        let id = ConnId(self.next);
        self.next += 1;
        self.conns.insert(
            id,
            Conn {
                stream,
                peer,
                unsent: Vec::new(),
            },
        );
        Ok(Accepted::Conn(id))
    }

    /// Reads what a connection has sent, up to a fixed amount.
    pub fn read(&mut self, id: ConnId) -> Input {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Input::End;
        };
        let mut buf = vec![0; READ_BYTES];
        match conn.stream.read(&mut buf) {
            Ok(0) => {}
            Ok(n) => {
                buf.truncate(n);
                return Input::Bytes(buf);
            }
            Err(error) if retry(&error) => return Input::Nothing,
            Err(_) => {}
        }
        Input::End
    }

    /// Writes to a connection, or remembers what does not go out at once.
    pub fn send(&mut self, id: ConnId, bytes: &[u8]) -> Output {
        match self.conns.get_mut(&id) {
            Some(conn) => conn.unsent.extend_from_slice(bytes),
            None => return Output::End,
        }
        self.flush(id)
    }

    /// Goes on writing.
    pub fn flush(&mut self, id: ConnId) -> Output {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Output::End;
        };
        while !conn.unsent.is_empty() {
            match conn.stream.write(&conn.unsent) {
                Ok(n) if n > 0 => {
                    conn.unsent.drain(..n);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if retry(&error) => return Output::Blocked,
                Ok(_) | Err(_) => return Output::End,
            }
        }
        Output::Done
    }

    /// Whether something is still to be written.
    pub fn is_blocked(&self, id: ConnId) -> bool {
        self.conns
            .get(&id)
            .is_some_and(|conn| !conn.unsent.is_empty())
    }

    /// Closes a connection. Stop watching its descriptor first.
    pub fn close(&mut self, id: ConnId) {
        self.conns.remove(&id);
    }

    /// The connections that are open.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> {
        self.conns.keys().copied()
    }
}

fn retry(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    fn listen() -> (Sockets, SocketAddr) {
        let sockets = Sockets::listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let addr = sockets.local_addr().unwrap();
        (sockets, addr)
    }

    /// Repeats until there is an answer other than "not yet".
    fn until<T>(mut poll: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(value) = poll() {
                return value;
            }
            assert!(Instant::now() < end, "timed out");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next client that is admitted, when it comes.
    fn client(sockets: &mut Sockets, admit: impl Fn(SocketAddr) -> bool) -> ConnId {
        until(|| match sockets.accept(|_, peer| admit(peer)).unwrap() {
            Accepted::Conn(id) => Some(id),
            Accepted::Refused | Accepted::Nobody => None,
        })
    }

    #[test]
    fn bytes_go_both_ways_and_the_end_is_seen() {
        let (mut sockets, addr) = listen();
        assert_eq!(sockets.accept(|_, _| true).unwrap(), Accepted::Nobody);
        let mut stream = TcpStream::connect(addr).unwrap();
        let id = client(&mut sockets, |_| true);
        assert_eq!(sockets.read(id), Input::Nothing);
        stream.write_all(b"hello").unwrap();
        let input = until(|| Some(sockets.read(id)).filter(|input| *input != Input::Nothing));
        assert_eq!(input, Input::Bytes(b"hello".to_vec()));
        assert_eq!(sockets.peer(id), stream.local_addr().ok());
        assert_eq!(sockets.send(id, b"world"), Output::Done);
        let mut buf = [0; 5];
        stream.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, b"world");
        drop(stream);
        until(|| Some(sockets.read(id)).filter(|input| *input == Input::End));
        sockets.close(id);
        assert_eq!(sockets.send(id, b"x"), Output::End);
        assert_eq!(sockets.ids().count(), 0);
    }

    #[test]
    fn who_is_not_admitted_is_closed() {
        let (mut sockets, addr) = listen();
        let mut refused = TcpStream::connect(addr).unwrap();
        let _kept = TcpStream::connect(addr).unwrap();
        let first = refused.local_addr().unwrap();
        // The kernel may hand them out in either order.
        let (mut kept, mut closed) = (0, 0);
        until(|| {
            match sockets.accept(|_, peer| peer != first).unwrap() {
                Accepted::Conn(_) => kept += 1,
                Accepted::Refused => closed += 1,
                Accepted::Nobody => {}
            }
            ((kept, closed) == (1, 1)).then_some(())
        });
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
        assert_eq!(sockets.ids().count(), 1);
    }

    #[test]
    fn who_is_not_admitted_gets_one_look() {
        let (mut sockets, addr) = listen();
        let mut flood = vec![TcpStream::connect(addr).unwrap()];
        let mut looks = 0;
        until(|| {
            let _ = sockets.accept(|_, _| {
                looks += 1;
                // There is always another one, however fast they are refused.
                flood.push(TcpStream::connect(addr).unwrap());
                assert!(looks < 100, "whoever calls this has other work");
                false
            });
            (looks > 0).then_some(())
        });
        assert_eq!(looks, 1);
    }

    #[test]
    fn a_peer_that_does_not_read_blocks_only_its_own_output() {
        let (mut sockets, addr) = listen();
        let mut stream = TcpStream::connect(addr).unwrap();
        let id = client(&mut sockets, |_| true);
        let block = vec![b'x'; 1 << 20];
        let mut sent = 0;
        while sockets.send(id, &block) == Output::Done {
            sent += block.len();
        }
        sent += block.len();
        assert!(sockets.is_blocked(id));
        let reader = std::thread::spawn(move || {
            let mut got = 0;
            let mut buf = vec![0; 1 << 16];
            while got < sent {
                got += stream.read(&mut buf).unwrap();
            }
            got
        });
        until(|| (sockets.flush(id) == Output::Done).then_some(()));
        assert_eq!(reader.join().unwrap(), sent);
    }

    #[test]
    fn hundreds_may_connect_at_once() {
        let (mut sockets, addr) = listen();
        // Nobody accepts meanwhile, so all wait in the backlog.
        let clients: Vec<TcpStream> = (0..400)
            .map(|_| TcpStream::connect(addr).unwrap())
            .collect();
        // The last ones may be connected for the client only, as yet.
        for _ in &clients {
            client(&mut sockets, |_| true);
        }
        assert_eq!(sockets.ids().count(), clients.len());
    }
}
