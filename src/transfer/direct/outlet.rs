//! The end of a connection that sends data.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use rustix::net::AddressFamily;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

use super::CREDIT_LEN;
use super::TURN;
use super::Unpaid;
use super::addresses;
use super::addresses::to_try;
use super::inlet::is_later;
use super::proof::ANSWER_LEN;
use super::proof::By;
use super::proof::Exchange;
use super::proof::NONCE_LEN;
use crate::bcast::frame::Frame;
use crate::bcast::id::TransferId;
use crate::bcast::message::Offer;
use crate::errno::Errno;
use crate::flux::error::Result;
use crate::flux::reactor::FdWatcher;
use crate::flux::reactor::Interest;
use crate::flux::reactor::Reactor;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::new_id;

/// How long an address is tried, proofs included.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the owner hears.
#[derive(Debug)]
pub enum OutletEvent {
    /// A frame of this cost is used up.
    Credit(u64),
    /// No connection came about: these frames have to go another way, as all
    /// that follow. Nothing more comes.
    Unreachable(Vec<Frame>),
    /// The connection broke; nothing more comes.
    Broken(Errno),
}

/// See the module's documentation. Dropping it closes the connection.
pub struct Outlet {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    reactor: Reactor,
    /// Addresses not yet tried, the next one last.
    addresses: Vec<SocketAddr>,
    secret: TransferId,
    /// A connection that is silent for so long while there is something to send
    /// has broken.
    stall: Duration,
    state: State,
    /// What is still to be sent, oldest first.
    frames: VecDeque<Frame>,
    /// Bytes of the oldest that are sent.
    sent: usize,
    report: Rc<dyn Fn(OutletEvent)>,
    me: Weak<RefCell<Inner>>,
}

enum State {
    /// Between addresses.
    Untried,
    /// No address could even be tried; the owner is about to hear it.
    Unreachable {
        _timer: TimerWatcher,
    },
    /// An address is tried. The watcher goes before the descriptor.
    Connecting {
        _writable: FdWatcher,
        _timer: TimerWatcher,
        fd: OwnedFd,
        at: SocketAddr,
    },
    /// Who listens has to prove that it knows the secret.
    Greeting {
        _readable: FdWatcher,
        _timer: TimerWatcher,
        stream: TcpStream,
        exchange: Exchange,
        /// What it said.
        said: Vec<u8>,
    },
    Connected(Connected),
    Broken,
}

struct Connected {
    _readable: FdWatcher,
    /// Runs while there is something to write.
    writable: FdWatcher,
    stream: TcpStream,
    unpaid: Unpaid,
}

impl Outlet {
    /// Connects. A connection without a sign of life for `stall`, while there is
    /// something to send, counts as broken. `report` is called from the reactor
    /// only.
    pub fn open(
        reactor: Reactor,
        offer: &Offer,
        stall: Duration,
        report: impl Fn(OutletEvent) + 'static,
    ) -> Self {
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                reactor,
                addresses: to_try(offer, &addresses::own()),
                secret: offer.secret,
                stall,
                state: State::Untried,
                frames: VecDeque::new(),
                sent: 0,
                report: Rc::new(report),
                me: Weak::clone(me),
            })
        });
        {
            let mut this = inner.borrow_mut();
            if !this.try_next() {
                let weak = Weak::clone(&this.me);
                let timer = TimerWatcher::new(reactor, Duration::ZERO, None, move || {
                    Inner::give_up(&weak);
                });
                // Without timers nothing else works either.
                this.state =
                    timer.map_or(State::Broken, |_timer| State::Unreachable { _timer });
            }
        }
        Self { inner }
    }

    /// Sends a frame, or keeps it until it can be sent. Drops it once the
    /// connection has broken.
    pub fn send(&self, frame: Frame) {
        let mut inner = self.inner.borrow_mut();
        if matches!(inner.state, State::Broken) {
            return;
        }
        inner.frames.push_back(frame);
        if let State::Connected(connected) = &inner.state {
            connected.writable.start();
        }
    }
}

impl Inner {
    /// Tries the next address. True while there is one.
    fn try_next(&mut self) -> bool {
        self.state = State::Untried;
        while let Some(address) = self.addresses.pop() {
            if let Ok(state) = self.connect(address) {
                self.state = state;
                return true;
            }
        }
        false
    }

    fn connect(&self, address: SocketAddr) -> Result<State> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&fd, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let weak = Weak::clone(&self.me);
        let writable = FdWatcher::new(self.reactor, fd.as_fd(), Interest::Write, move |_| {
            Self::tried(&weak, true);
        })?;
        let weak = Weak::clone(&self.me);
        let timer = TimerWatcher::new(self.reactor, PATIENCE, None, move || {
            Self::tried(&weak, false);
        })?;
        Ok(State::Connecting {
            _writable: writable,
            _timer: timer,
            fd,
            at: address,
        })
    }

    /// An address was tried, or for too long.
    fn tried(weak: &Weak<RefCell<Self>>, in_time: bool) {
        let Some(this) = weak.upgrade() else { return };
        {
            let mut inner = this.borrow_mut();
            let fine = match &inner.state {
                State::Connecting { fd, .. } => {
                    matches!(rustix::net::sockopt::socket_error(fd), Ok(Ok(())))
                }
                State::Greeting { .. } => false,
                _ => return,
            };
            if (in_time && fine && inner.greet()) || inner.try_next() {
                return;
            }
        }
        Self::give_up(weak);
    }

    fn give_up(weak: &Weak<RefCell<Self>>) {
        let Some(this) = weak.upgrade() else { return };
        let (report, frames) = {
            let mut inner = this.borrow_mut();
            let frames = inner.frames.drain(..).collect();
            (Rc::clone(&inner.report), frames)
        };
        report(OutletEvent::Unreachable(frames));
    }

    /// Begins the proofs. False if the connection is no good.
    fn greet(&mut self) -> bool {
        let state = std::mem::replace(&mut self.state, State::Untried);
        let State::Connecting { fd, at, _timer, .. } = state else {
            return false;
        };
        let mut stream = TcpStream::from(fd);
        let mut exchange = Exchange::new(self.secret, at);
        let Ok(first) = new_id() else { return false };
        exchange.first = *first.as_bytes();
        // A new connection has room for that.
        if stream.write_all(&exchange.first).is_err() {
            return false;
        }
        let weak = Weak::clone(&self.me);
        let readable =
            FdWatcher::new(self.reactor, stream.as_fd(), Interest::Read, move |_| {
                Self::answered(&weak);
            });
        let Ok(_readable) = readable else {
            return false;
        };
        self.state = State::Greeting {
            _readable,
            _timer,
            stream,
            exchange,
            said: Vec::new(),
        };
        true
    }

    /// Whoever listens at an address said something.
    fn answered(weak: &Weak<RefCell<Self>>) {
        let Some(this) = weak.upgrade() else { return };
        {
            let mut inner = this.borrow_mut();
            match inner.hear() {
                Ok(false) => return,
                Ok(true) if inner.connected() => return,
                Ok(true) | Err(_) => {}
            }
            // It was somebody else, or there is no room for one more.
            if inner.try_next() {
                return;
            }
        }
        Self::give_up(weak);
    }

    /// Reads the proof. True once it is there.
    fn hear(&mut self) -> io::Result<bool> {
        let State::Greeting {
            stream,
            exchange,
            said,
            ..
        } = &mut self.state
        else {
            return Ok(false);
        };
        let mut bytes = [0; ANSWER_LEN];
        match stream.read(&mut bytes[said.len()..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                let known = said.len();
                said.extend_from_slice(&bytes[known..known + len]);
            }
            Err(error) if is_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        let Some((second, proof)) = said.split_at_checked(NONCE_LEN) else {
            return Ok(false);
        };
        if said.len() < ANSWER_LEN {
            return Ok(false);
        }
        exchange.second.copy_from_slice(second);
        match exchange.is_proved(By::Listening, proof) {
            true => Ok(true),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Ends the proofs. False if the connection is no good.
    fn connected(&mut self) -> bool {
        let state = std::mem::replace(&mut self.state, State::Untried);
        let State::Greeting {
            _readable,
            mut stream,
            exchange,
            ..
        } = state
        else {
            return false;
        };
        drop(_readable);
        if stream.write_all(&exchange.proof(By::Connecting)).is_err() {
            return false;
        }
        let connected = self.watch(stream);
        let fine = connected.is_ok();
        if let Ok(connected) = connected {
            self.state = State::Connected(connected);
        }
        fine
    }

    fn watch(&self, stream: TcpStream) -> Result<Connected> {
        stream.set_nodelay(true)?;
        // Flux may still reach a shell when data does not.
        let stall = u32::try_from(self.stall.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(&stream, stall)?;
        let weak = Weak::clone(&self.me);
        let readable =
            FdWatcher::new(self.reactor, stream.as_fd(), Interest::Read, move |_| {
                Self::read(&weak);
            })?;
        let weak = Weak::clone(&self.me);
        let writable =
            FdWatcher::new(self.reactor, stream.as_fd(), Interest::Write, move |_| {
                Self::write(&weak);
            })?;
        Ok(Connected {
            _readable: readable,
            writable,
            stream,
            unpaid: Unpaid::default(),
        })
    }

    fn break_off(this: &Rc<RefCell<Self>>, error: &io::Error) {
        let report = {
            let mut inner = this.borrow_mut();
            inner.state = State::Broken;
            inner.frames.clear();
            Rc::clone(&inner.report)
        };
        report(OutletEvent::Broken(Errno::from(error)));
    }

    fn read(weak: &Weak<RefCell<Self>>) {
        let Some(this) = weak.upgrade() else { return };
        let mut bytes = [0; 512 * CREDIT_LEN];
        let read = match &mut this.borrow_mut().state {
            State::Connected(connected) => connected.stream.read(&mut bytes),
            _ => return,
        };
        match read {
            Ok(0) => {
                let error = io::Error::from_raw_os_error(libc::ECONNRESET);
                Self::break_off(&this, &error);
            }
            Ok(len) => {
                let (report, credits) = {
                    let mut inner = this.borrow_mut();
                    let credits = match &mut inner.state {
                        State::Connected(connected) => connected.unpaid.take(&bytes[..len]),
                        _ => return,
                    };
                    (Rc::clone(&inner.report), credits)
                };
                let Ok(credits) = credits else {
                    let error = io::Error::from_raw_os_error(libc::EPROTO);
                    return Self::break_off(&this, &error);
                };
                for cost in credits {
                    report(OutletEvent::Credit(cost));
                }
            }
            Err(error) if is_later(&error) => {}
            Err(error) => Self::break_off(&this, &error),
        }
    }

    fn write(weak: &Weak<RefCell<Self>>) {
        let Some(this) = weak.upgrade() else { return };
        let written = this.borrow_mut().send_some();
        if let Err(error) = written {
            Self::break_off(&this, &error);
        }
    }

    fn send_some(&mut self) -> io::Result<()> {
        let State::Connected(connected) = &mut self.state else {
            return Ok(());
        };
        let mut turn = TURN;
        while let Some(frame) = self.frames.front() {
            let rest = &frame.as_bytes()[self.sent..];
            match connected.stream.write(rest) {
                Ok(len) => {
                    self.sent += len;
                    if self.sent == frame.as_bytes().len() {
                        self.sent = 0;
                        connected.unpaid.sent(frame.cost());
                        self.frames.pop_front();
                    }
                    turn = turn.saturating_sub(len);
                    if turn == 0 {
                        return Ok(());
                    }
                }
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        connected.writable.stop();
        Ok(())
    }
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").finish_non_exhaustive()
    }
}
