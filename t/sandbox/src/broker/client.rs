//! One connected process.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use super::Broker;
use crate::host::reactor::{Kind, POLLIN, POLLOUT, Watcher};
use crate::wire::{self, Message, ROLE_LOCAL, ROLE_OWNER, ROLE_USER};

pub(super) type ClientId = u64;

/// Messages handled in one go before others get a turn.
const BURST: usize = 64;

/// A connection and what it has asked for.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) rank: u32,
    pub(super) uuid: CString,
    pub(super) pid: i32,
    pub(super) userid: u32,
    pub(super) rolemask: u32,
    stream: UnixStream,
    reader: wire::Reader,
    writer: wire::Writer,
    readable: Rc<Watcher>,
    writable: Rc<Watcher>,
    pub(super) subscriptions: BTreeSet<String>,
    /// Messages to send when it goes, one per service and destination.
    pub(super) farewells: Vec<(CString, u32, u8, Message)>,
}

impl Broker {
    pub(super) fn accept(&mut self, rank: u32) {
        let Some((listener, _)) = self.listeners.get(rank as usize) else {
            return;
        };
        let listener = Rc::clone(listener);
        while let Ok((stream, _)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.add_client(rank, stream);
            }
        }
    }

    fn add_client(&mut self, rank: u32, stream: UnixStream) {
        let Ok(cred) = rustix::net::sockopt::socket_peercred(&stream) else {
            return;
        };
        let id = self.next_client;
        self.next_client += 1;
        let uuid = new_uuid(id);
        let owner = cred.uid.as_raw() == self.uid;
        let role = if owner { ROLE_OWNER } else { ROLE_USER };
        let fd = stream.as_raw_fd();
        let watch = |events: i32| {
            let me = self.me.clone();
            Watcher::new(
                &self.reactor,
                Kind::Fd(fd, events),
                Box::new(move |_, revents| {
                    if let Some(b) = me.upgrade() {
                        b.borrow_mut().client_ready(id, revents);
                    }
                }),
            )
        };
        let client = Client {
            rank,
            pid: cred.pid.as_raw_nonzero().get(),
            userid: cred.uid.as_raw(),
            rolemask: role | ROLE_LOCAL,
            stream,
            reader: wire::Reader::default(),
            writer: wire::Writer::default(),
            readable: watch(POLLIN),
            writable: watch(POLLOUT),
            subscriptions: BTreeSet::new(),
            farewells: Vec::new(),
            uuid: uuid.clone(),
        };
        client.readable.start();
        self.by_uuid.insert(uuid, id);
        self.clients.insert(id, client);
    }

    fn client_ready(&mut self, id: ClientId, revents: i32) {
        if revents & POLLOUT != 0 {
            self.flush(id);
        }
        if revents & POLLIN != 0 {
            self.read_client(id);
        }
    }

    fn read_client(&mut self, id: ClientId) {
        let mut gone = false;
        let mut messages = Vec::new();
        if let Some(c) = self.clients.get_mut(&id) {
            while messages.len() < BURST {
                match c.reader.fill(c.stream.as_fd(), true) {
                    Ok(0) => gone = true,
                    Ok(_) => {
                        messages.extend(std::iter::from_fn(|| c.reader.next_message()));
                        continue;
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => gone = true,
                }
                break;
            }
        }
        for msg in messages {
            self.receive(id, msg);
        }
        if gone {
            self.drop_client(id);
        }
    }

    /// Queues a message to a client and sends what the socket takes.
    pub(super) fn send_to(&mut self, id: ClientId, msg: &Message) {
        let Some(c) = self.clients.get_mut(&id) else {
            return;
        };
        c.writer.push(msg);
        let over =
            self.config.knobs.queue_limit > 0 && c.writer.len() > self.config.knobs.queue_limit;
        self.flush(id);
        if over {
            self.drop_client(id);
        }
    }

    fn flush(&mut self, id: ClientId) {
        let Some(c) = self.clients.get_mut(&id) else {
            return;
        };
        match c.writer.flush(c.stream.as_fd(), true) {
            Ok(true) => c.writable.stop(),
            Ok(false) => c.writable.start(),
            // The reading side notices the end, after what it has yet to say.
            Err(_) => c.writable.stop(),
        }
    }

    /// Reads what a process wrote before it ended; true when it is gone.
    pub(super) fn drain_process(&mut self, pid: i32) -> bool {
        let ids: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, c)| c.pid == pid)
            .map(|(id, _)| *id)
            .collect();
        for id in &ids {
            self.read_client(*id);
        }
        ids.iter().all(|id| !self.clients.contains_key(id))
    }

    pub(super) fn drop_client(&mut self, id: ClientId) {
        let Some(c) = self.clients.remove(&id) else {
            return;
        };
        c.readable.stop();
        c.writable.stop();
        self.by_uuid.remove(&c.uuid);
        for (_, _, _, msg) in c.farewells {
            self.route_request(msg, c.rank);
        }
        self.services.retain(|_, owner| *owner != id);
        self.forget_watches(&c.uuid);
    }
}

/// A name for a client that no other has.
fn new_uuid(id: ClientId) -> CString {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
        .unwrap_or_else(|_| format!("00000000-0000-4000-8000-{id:012x}"));
    wire::name(text.trim())
}
