//! The end of a connection where data arrives.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::io::Read;
use std::io::Write;
use std::net::TcpListener;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::rc::Weak;

use super::Frames;
use super::proof::By;
use super::proof::Exchange;
use super::proof::NONCE_LEN;
use super::proof::PROOF_LEN;
use crate::bcast::frame::Frame;
use crate::bcast::id::TransferId;
use crate::bcast::message::Offer;
use crate::flux::error::Result;
use crate::flux::reactor::FdWatcher;
use crate::flux::reactor::Interest;
use crate::flux::reactor::Reactor;
use crate::transfer::new_id;

/// Most that may be connected without having proved that they know the secret.
/// One more, and the oldest has to go: if it was the right one, it notices that
/// before it sends anything.
const STRANGERS: usize = 8;

/// Bytes of credit that may wait for somebody who does not take them. Nothing
/// more is read from him then.
const CREDIT_MAX: usize = 64 << 10;

/// What arrives.
#[derive(Debug)]
pub enum InletEvent {
    /// A frame.
    Frame(Frame),
    /// Something that is none; nothing more comes.
    Broken(String),
}

/// See the module's documentation. Dropping it closes the connection.
pub struct Inlet {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    reactor: Reactor,
    secret: TransferId,
    listener: Option<(TcpListener, FdWatcher)>,
    strangers: Vec<Stranger>,
    number: u64,
    sender: Option<Sender>,
    report: Rc<dyn Fn(InletEvent)>,
}

/// A connection that has proved nothing.
struct Stranger {
    number: u64,
    // Watched until it is dropped, so the watcher goes first.
    _watcher: FdWatcher,
    stream: TcpStream,
    exchange: Exchange,
    /// A random number, then a proof.
    said: Vec<u8>,
}

/// The one that has.
struct Sender {
    readable: FdWatcher,
    /// Runs while credit could not be written.
    writable: FdWatcher,
    stream: TcpStream,
    frames: Frames,
    credit: Vec<u8>,
    /// So much credit waits that nothing is read.
    full: bool,
    /// Nothing more is to be read.
    ended: bool,
}

impl Inlet {
    /// Listens for somebody who runs under `kernel`, and is to be told the
    /// offer. `report` is called from the reactor only.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn open(
        reactor: Reactor,
        kernel: &str,
        report: impl Fn(InletEvent) + 'static,
    ) -> Result<(Self, Offer)> {
        let at = super::addresses::listen_at(kernel);
        let listener = TcpListener::bind((at, 0))?;
        listener.set_nonblocking(true)?;
        let offer = Offer {
            port: listener.local_addr()?.port(),
            addresses: super::addresses::offered(at)?,
            secret: new_id()?,
        };
        let inner = Rc::new(RefCell::new(Inner {
            reactor,
            secret: offer.secret,
            listener: None,
            strangers: Vec::new(),
            number: 0,
            sender: None,
            report: Rc::new(report),
        }));
        let weak = Rc::downgrade(&inner);
        let watcher = FdWatcher::new(reactor, listener.as_fd(), Interest::Read, move |_| {
            Inner::accept(&weak);
        })?;
        inner.borrow_mut().listener = Some((listener, watcher));
        Ok((Self { inner }, offer))
    }

    /// A frame of this cost is used up.
    pub fn credit(&self, cost: u64) {
        if let Some(sender) = &mut self.inner.borrow_mut().sender {
            sender.credit.extend_from_slice(&cost.to_le_bytes());
            sender.flush();
        }
    }
}

impl Inner {
    fn accept(weak: &Weak<RefCell<Self>>) {
        let Some(this) = weak.upgrade() else { return };
        let mut inner = this.borrow_mut();
        let accepted = inner
            .listener
            .as_ref()
            .map(|(listener, _)| listener.accept());
        let stream = match accepted {
            Some(Ok((stream, _))) => stream,
            // Whoever is gone again is none.
            Some(Err(error)) if is_later(&error) || is_gone(&error) => return,
            // Out of descriptors, say. This would be called again and again;
            // whoever waits to be let in hears that it will not be.
            Some(Err(_)) | None => return inner.listener = None,
        };
        // The other end's proof is bound to this address.
        let Ok(at) = stream.local_addr() else { return };
        let Ok(second) = new_id() else { return };
        let mut exchange = Exchange::new(inner.secret, at);
        exchange.second = *second.as_bytes();
        inner.number += 1;
        let number = inner.number;
        let weak = Weak::clone(weak);
        let watched = stream
            .set_nonblocking(true)
            .map_err(Into::into)
            .and_then(|()| {
                FdWatcher::new(inner.reactor, stream.as_fd(), Interest::Read, move |_| {
                    Self::listen_to(&weak, number);
                })
            });
        // A connection that cannot be served is closed.
        let Ok(watcher) = watched else { return };
        if inner.strangers.len() >= STRANGERS {
            inner.strangers.remove(0);
        }
        inner.strangers.push(Stranger {
            number,
            _watcher: watcher,
            stream,
            exchange,
            said: Vec::new(),
        });
    }

    /// Reads the proof.
    fn listen_to(weak: &Weak<RefCell<Self>>, number: u64) {
        let Some(this) = weak.upgrade() else { return };
        let mut inner = this.borrow_mut();
        let Some(at) = inner.strangers.iter().position(|s| s.number == number) else {
            return;
        };
        match inner.strangers[at].hear() {
            Ok(false) => return,
            Ok(true) => {}
            Err(_) => {
                inner.strangers.remove(at);
                return;
            }
        }
        let stranger = inner.strangers.remove(at);
        let Stranger {
            _watcher: watcher,
            stream,
            ..
        } = stranger;
        drop(watcher);
        // A failure here leaves the sender to its own: its connection ends.
        if let Ok(sender) = Sender::new(inner.reactor, weak, stream) {
            inner.sender = Some(sender);
        }
        inner.listener = None;
        inner.strangers.clear();
    }

    fn read(weak: &Weak<RefCell<Self>>) {
        let Some(this) = weak.upgrade() else { return };
        let (report, events) = {
            let mut inner = this.borrow_mut();
            let report = Rc::clone(&inner.report);
            let Some(sender) = &mut inner.sender else {
                return;
            };
            (report, sender.read())
        };
        // Not to those who take the next one from somebody else by then.
        let weak = Rc::downgrade(&this);
        drop(this);
        for event in events {
            if weak.strong_count() > 0 {
                report(event);
            }
        }
    }

    fn write(weak: &Weak<RefCell<Self>>) {
        if let Some(this) = weak.upgrade()
            && let Some(sender) = &mut this.borrow_mut().sender
        {
            sender.flush();
        }
    }
}

impl Stranger {
    /// Reads some of what it says. True once that proves that it knows the secret.
    ///
    /// # Errors
    /// It is gone, or does not know it.
    fn hear(&mut self) -> io::Result<bool> {
        let mut bytes = [0; NONCE_LEN + PROOF_LEN];
        let known = self.said.len();
        // Its number is answered before its proof can be there.
        let end = if known < NONCE_LEN {
            NONCE_LEN
        } else {
            bytes.len()
        };
        match self.stream.read(&mut bytes[known..end]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => self.said.extend_from_slice(&bytes[known..known + len]),
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.said.len() < end {
            return Ok(false);
        }
        if end == NONCE_LEN {
            self.exchange.first.copy_from_slice(&self.said);
            let proof = self.exchange.proof(By::Listening);
            // A new connection has room for that.
            self.stream
                .write_all(&[&self.exchange.second[..], &proof[..]].concat())?;
            return Ok(false);
        }
        let proof = &self.said[NONCE_LEN..];
        match self.exchange.is_proved(By::Connecting, proof) {
            true => Ok(true),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl Sender {
    fn new(reactor: Reactor, inner: &Weak<RefCell<Inner>>, stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        let weak = Weak::clone(inner);
        let readable = FdWatcher::new(reactor, stream.as_fd(), Interest::Read, move |_| {
            Inner::read(&weak);
        })?;
        let weak = Weak::clone(inner);
        let writable = FdWatcher::new(reactor, stream.as_fd(), Interest::Write, move |_| {
            Inner::write(&weak);
        })?;
        writable.stop();
        Ok(Self {
            readable,
            writable,
            stream,
            frames: Frames::default(),
            credit: Vec::new(),
            full: false,
            ended: false,
        })
    }

    fn read(&mut self) -> Vec<InletEvent> {
        let mut events = Vec::new();
        // A frame is often as long as the receive window. Without this the rest
        // of it waits for a delayed acknowledgement, 40 ms each time; it has to
        // be said again and again, see tcp(7). A failure costs time only.
        let _ = rustix::net::sockopt::set_tcp_quickack(&self.stream, true);
        match self.stream.read(self.frames.room()) {
            // If that was too early, the sender's end is noticed by Flux, or the
            // sender notices.
            Ok(0) => self.end(),
            Ok(len) => self.frames.fill(len),
            Err(error) if is_later(&error) => {}
            Err(_) => self.end(),
        }
        loop {
            let broken = match self.frames.next() {
                Ok(None) => break,
                Ok(Some(bytes)) => match Frame::decode(bytes) {
                    Ok(frame) => {
                        events.push(InletEvent::Frame(frame));
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Err(text) => text.to_owned(),
            };
            self.end();
            events.push(InletEvent::Broken(broken));
            break;
        }
        events
    }

    fn end(&mut self) {
        self.ended = true;
        self.readable.stop();
    }

    fn flush(&mut self) {
        while !self.credit.is_empty() {
            match self.stream.write(&self.credit) {
                Ok(len) => drop(self.credit.drain(..len)),
                Err(error) if is_later(&error) => {
                    if self.credit.len() > CREDIT_MAX {
                        self.full = true;
                        self.readable.stop();
                    }
                    return self.writable.start();
                }
                // The sender notices.
                Err(_) => self.credit.clear(),
            }
        }
        self.writable.stop();
        if std::mem::take(&mut self.full) && !self.ended {
            self.readable.start();
        }
    }
}

/// Who wanted to be let in is no longer there, see accept(2).
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENOPROTOOPT
                | libc::ENONET
                | libc::EOPNOTSUPP
        )
    )
}

pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").finish_non_exhaustive()
    }
}
