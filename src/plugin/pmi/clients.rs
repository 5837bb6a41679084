//! The connections of local tasks: accepting, reading, writing, and the
//! watchers of the reactor that call for it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::Inner;
use crate::errno::Errno;
use crate::flux::error::Result;
use crate::flux::reactor::FdWatcher;
use crate::flux::reactor::Interest;
use crate::flux::reactor::TimerWatcher;
use crate::pmi::Action;
use crate::pmi::ConnId;
use crate::sockets::Accepted;
use crate::sockets::Input;
use crate::sockets::Output;
use crate::sockets::admission::BARRED;
use crate::sockets::admission::Refusal;

/// How long no client is accepted when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) listener: Option<FdWatcher>,
    pub(super) pause: Option<TimerWatcher>,
    pub(super) grace: Option<TimerWatcher>,
    pub(super) clients: HashMap<ConnId, Client>,
}

#[derive(Debug)]
pub(super) struct Client {
    readable: FdWatcher,
    /// Exists while something could not be written.
    writable: Option<FdWatcher>,
    /// Ends a connection without a handshake.
    _deadline: TimerWatcher,
}

impl Inner {
    pub(super) fn listen(&self) -> Result<()> {
        let mut accept = self.callback(Inner::accept);
        let sockets = self.sockets.borrow();
        let watcher = FdWatcher::new(
            self.reactor,
            sockets.listener(),
            Interest::Read,
            move |_| accept(),
        )?;
        self.watches.borrow_mut().listener = Some(watcher);
        Ok(())
    }

    fn accept(&self) {
        // A bounded number, so that a flood does not keep the reactor busy.
        for _ in 0..64 {
            let accepted = self.sockets.borrow_mut().accept(|stream, peer| {
                let admitted = self.admission.admit(stream, peer);
                if let Err(reason) = &admitted {
                    self.refused(peer, reason);
                }
                admitted.is_ok()
            });
            match accepted {
                Ok(Accepted::Conn(conn)) => {
                    if let Err(error) = self.watch(conn) {
                        self.log().warn(format_args!("refused a client: {error}"));
                        self.sockets.borrow_mut().close(conn);
                    } else {
                        self.drive(|provider| provider.accepted(conn));
                    }
                }
                Ok(Accepted::Refused) => {}
                Ok(Accepted::Nobody) => return,
                Err(error) => return self.pause(&error),
            }
        }
    }

    /// Stops accepting for a while: the listener would be ready all the time.
    fn pause(&self, error: &std::io::Error) {
        let why = crate::errno::reason(error);
        self.log()
            .warn(format_args!("cannot accept a client: {why}"));
        let mut watches = self.watches.borrow_mut();
        if let Some(listener) = &watches.listener {
            listener.stop();
        }
        let resume = self.callback(|inner| {
            if let Some(listener) = &inner.watches.borrow().listener {
                listener.start();
            }
        });
        watches.pause = TimerWatcher::new(self.reactor, PAUSE, None, resume).ok();
    }

    /// Logs a refusal, but does not let strangers fill the log.
    fn refused(&self, peer: SocketAddr, reason: &Refusal) {
        let Some(last) = self.refusals.borrow_mut().one_more() else {
            return;
        };
        let hint = match reason {
            Refusal::Elsewhere if self.options.is_open() => "; see pmi-port.allow",
            _ => "",
        };
        self.log().warn(format_args!(
            "refused a client from {peer}: {reason}{hint}{last}"
        ));
    }

    /// A client has broken the rules: remembers where it came from.
    pub(super) fn offended(&self, conn: ConnId) {
        let peer = self.sockets.borrow().peer(conn);
        let barred = peer.map(|peer| self.admission.offended(peer.ip()));
        for place in barred.unwrap_or_default() {
            let log = self.log();
            log.warn(format_args!("{place} is barred: {BARRED}"));
        }
    }

    fn watch(&self, conn: ConnId) -> Result<()> {
        let mut read = self.callback(move |inner| inner.read(conn));
        let deadline = self.callback(move |inner| {
            inner.drive(|provider| provider.handshake_over(conn));
        });
        let sockets = self.sockets.borrow();
        let fd = sockets.fd(conn).ok_or(Errno::EBADF)?;
        let client = Client {
            readable: FdWatcher::new(self.reactor, fd, Interest::Read, move |_| read())?,
            writable: None,
            _deadline: TimerWatcher::new(
                self.reactor,
                self.options.handshake_timeout,
                None,
                deadline,
            )?,
        };
        self.watches.borrow_mut().clients.insert(conn, client);
        Ok(())
    }

    fn read(&self, conn: ConnId) {
        let input = self.sockets.borrow_mut().read(conn);
        match input {
            Input::Bytes(bytes) => self.drive(|provider| provider.received(conn, &bytes)),
            Input::Nothing => {}
            Input::End => {
                let actions = self.hang_up(conn);
                self.apply(actions);
            }
        }
    }

    fn write(&self, conn: ConnId) {
        let output = self.sockets.borrow_mut().flush(conn);
        match output {
            Output::Done => {
                if let Some(client) = self.watches.borrow_mut().clients.get_mut(&conn) {
                    client.writable = None;
                    client.readable.start();
                }
            }
            Output::Blocked => {}
            Output::End => {
                let actions = self.hang_up(conn);
                self.apply(actions);
            }
        }
    }

    pub(super) fn hang_up(&self, conn: ConnId) -> Vec<Action> {
        self.forget(conn);
        self.provider.borrow_mut().closed(conn)
    }

    pub(super) fn forget(&self, conn: ConnId) {
        let client = self.watches.borrow_mut().clients.remove(&conn);
        drop(client);
        self.sockets.borrow_mut().close(conn);
    }

    /// Waits until a connection takes more, and reads nothing from it until
    /// then.
    pub(super) fn block(&self, conn: ConnId) {
        let mut write = self.callback(move |inner| inner.write(conn));
        let sockets = self.sockets.borrow();
        let mut watches = self.watches.borrow_mut();
        let (Some(fd), Some(client)) = (sockets.fd(conn), watches.clients.get_mut(&conn))
        else {
            return;
        };
        if client.writable.is_none() {
            client.readable.stop();
            let watcher = FdWatcher::new(self.reactor, fd, Interest::Write, move |_| write());
            client.writable = watcher.ok();
        }
    }
}
