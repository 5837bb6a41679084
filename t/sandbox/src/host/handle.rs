//! The handle: a connection to the router on behalf of one process.
//!
//! A clone shares the connection and the queue of received messages, but has a
//! dispatcher and a reactor of its own: so one future can be waited for while
//! the messages of others stay queued.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::errno::Errno;
use crate::host::dispatch::Dispatch;
use crate::host::reactor::{POLLERR, POLLIN, Reactor};
use crate::wire::{self, Message, NODEID_ANY};

/// The connection.
#[derive(Debug)]
struct Link {
    fd: OwnedFd,
    reader: RefCell<wire::Reader>,
    queue: RefCell<VecDeque<Rc<Message>>>,
    next_tag: Cell<u32>,
    failed: Cell<Option<Errno>>,
    userid: Option<u32>,
    rolemask: Option<u32>,
    attrs: RefCell<HashMap<String, CString>>,
}

/// A handle.
#[derive(Debug)]
pub struct Handle {
    link: Rc<Link>,
    /// Whether unmatched messages are to be kept for the original.
    pub is_clone: bool,
    reactor: RefCell<Option<Rc<Reactor>>>,
    dispatch: OnceCell<Rc<Dispatch>>,
    refs: Cell<u32>,
}

impl Handle {
    /// Connects; `None` means `FLUX_URI`.
    ///
    /// # Errors
    /// `ENOENT` or `ECONNREFUSED` when no instance is there; `EINVAL` for an
    /// URI that is none.
    pub fn open(uri: Option<&str>) -> Result<Rc<Self>, Errno> {
        let path = socket_path(uri)?;
        let stream = UnixStream::connect(path)?;
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            match text.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            }
        };
        let link = Link {
            fd: stream.into(),
            reader: RefCell::default(),
            queue: RefCell::default(),
            next_tag: Cell::new(1),
            failed: Cell::new(None),
            userid: number("FLUX_HANDLE_USERID"),
            rolemask: number("FLUX_HANDLE_ROLEMASK"),
            attrs: RefCell::default(),
        };
        Ok(Self::with_link(Rc::new(link), false))
    }

    fn with_link(link: Rc<Link>, is_clone: bool) -> Rc<Self> {
        Rc::new(Self {
            link,
            is_clone,
            reactor: RefCell::new(None),
            dispatch: OnceCell::new(),
            refs: Cell::new(1),
        })
    }

    /// A second handle on the same connection.
    pub fn clone_handle(&self) -> Rc<Self> {
        Self::with_link(Rc::clone(&self.link), true)
    }

    /// Counts a user.
    pub fn incref(&self) {
        self.refs.set(self.refs.get() + 1);
    }

    /// Uncounts a user; after the last one, what is attached is destroyed.
    pub fn decref(&self) {
        let left = self.refs.get().saturating_sub(1);
        self.refs.set(left);
        if left == 0
            && let Some(d) = self.dispatch.get()
        {
            d.shut_down();
        }
    }

    /// The reactor; made when there is none yet.
    pub fn reactor(&self) -> Rc<Reactor> {
        Rc::clone(self.reactor.borrow_mut().get_or_insert_with(Reactor::new))
    }

    /// Sets the reactor.
    ///
    /// # Errors
    /// `EEXIST` when there is one already.
    pub fn set_reactor(&self, r: Rc<Reactor>) -> Result<(), Errno> {
        let mut slot = self.reactor.borrow_mut();
        if slot.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        *slot = Some(r);
        Ok(())
    }

    /// The dispatcher; made on first use.
    pub fn dispatch(self: &Rc<Self>) -> Rc<Dispatch> {
        Rc::clone(self.dispatch.get_or_init(|| Dispatch::new(self)))
    }

    /// The descriptor to wait on.
    pub fn pollfd(&self) -> i32 {
        self.link.fd.as_raw_fd()
    }

    /// Which of `POLLIN` and `POLLERR` hold now.
    pub fn pollevents(&self) -> i32 {
        if self.link.queue.borrow().is_empty() {
            let _ = self.fill(true);
        }
        let mut events = 0;
        if !self.link.queue.borrow().is_empty() {
            events |= POLLIN;
        } else if self.link.failed.get().is_some() {
            events |= POLLERR;
        }
        events
    }

    /// A tag for one RPC; tags are not used again.
    pub fn alloc_tag(&self) -> u32 {
        let tag = self.link.next_tag.get();
        self.link.next_tag.set(tag.checked_add(1).unwrap_or(1));
        tag
    }

    /// Sends a message; waits while the socket is full.
    ///
    /// # Errors
    /// `EPIPE` or `ECONNRESET` when the instance has gone.
    pub fn send(&self, msg: &Message) -> Result<(), Errno> {
        let mut writer = wire::Writer::default();
        if self.link.userid.is_some() || self.link.rolemask.is_some() {
            let mut msg = msg.clone();
            msg.userid = self.link.userid.unwrap_or(msg.userid);
            msg.rolemask = self.link.rolemask.unwrap_or(msg.rolemask);
            writer.push(&msg);
        } else {
            writer.push(msg);
        }
        writer.flush(self.link.fd.as_fd(), false)?;
        Ok(())
    }

    /// Reads once from the socket and queues whole messages.
    fn fill(&self, dontwait: bool) -> Result<(), Errno> {
        if let Some(e) = self.link.failed.get() {
            return Err(e);
        }
        let mut reader = self.link.reader.borrow_mut();
        let result = match reader.fill(self.link.fd.as_fd(), dontwait) {
            Ok(0) => Err(Errno(libc::ECONNRESET)),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(Errno::from(e)),
        };
        let mut queue = self.link.queue.borrow_mut();
        queue.extend(std::iter::from_fn(|| reader.next_message()).map(Rc::new));
        match result {
            Err(e) if e.0 != libc::EAGAIN => {
                self.link.failed.set(Some(e));
                Err(e)
            }
            other => other,
        }
    }

    /// The next message; `None` when none is there and `dontwait`.
    ///
    /// # Errors
    /// `ECONNRESET` when the instance has gone.
    pub fn recv(&self, dontwait: bool) -> Result<Option<Rc<Message>>, Errno> {
        loop {
            if let Some(msg) = self.link.queue.borrow_mut().pop_front() {
                return Ok(Some(msg));
            }
            match self.fill(dontwait) {
                Err(Errno(libc::EAGAIN)) if dontwait => return Ok(None),
                other => other?,
            }
        }
    }

    /// Waits for a message that `matches`; the others stay queued in order.
    ///
    /// # Errors
    /// `ECONNRESET` when the instance has gone.
    pub fn recv_matching(
        &self,
        matches: impl Fn(&Message) -> bool,
    ) -> Result<Rc<Message>, Errno> {
        let mut seen = 0;
        loop {
            let found = {
                let queue = self.link.queue.borrow();
                queue
                    .iter()
                    .skip(seen)
                    .position(|m| matches(m))
                    .map(|at| seen + at)
            };
            if let Some(at) = found
                && let Some(msg) = self.link.queue.borrow_mut().remove(at)
            {
                return Ok(msg);
            }
            seen = self.link.queue.borrow().len();
            self.fill(false)?;
        }
    }

    /// Puts messages back in front, in their order.
    pub fn requeue(&self, messages: impl DoubleEndedIterator<Item = Rc<Message>>) {
        let mut queue = self.link.queue.borrow_mut();
        for msg in messages.rev() {
            queue.push_front(msg);
        }
    }

    /// Calls a service and waits for its answer.
    ///
    /// # Errors
    /// The answer's error number; `ECONNRESET` when the instance has gone.
    pub fn call(&self, topic: &str, request: &serde_json::Value) -> Result<Rc<Message>, Errno> {
        let payload = wire::text_payload(&request.to_string());
        let mut msg = Message::request(wire::name(topic), Some(payload), NODEID_ANY);
        msg.matchtag = self.alloc_tag();
        self.send(&msg)?;
        let answer = self
            .recv_matching(|m| m.kind == wire::Kind::Response && m.matchtag == msg.matchtag)?;
        match answer.word {
            0 => Ok(answer),
            e => Err(Errno(i32::try_from(e).unwrap_or(libc::EPROTO))),
        }
    }

    /// A broker attribute, as a C string that lives as long as the handle.
    ///
    /// # Errors
    /// `ENOENT` when there is no such attribute.
    pub fn attr(&self, name: &str) -> Result<*const std::ffi::c_char, Errno> {
        if let Some(value) = self.link.attrs.borrow().get(name) {
            return Ok(value.as_ptr());
        }
        let answer = self.call("attr.get", &serde_json::json!({ "name": name }))?;
        let json = answer.json();
        let value = json["value"].as_str().ok_or(Errno(libc::EPROTO))?;
        let mut attrs = self.link.attrs.borrow_mut();
        let value = attrs.entry(name.to_owned()).or_insert(wire::name(value));
        // The bytes stay where they are when the map moves the CString.
        Ok(value.as_ptr())
    }

    /// A broker attribute as text.
    ///
    /// # Errors
    /// `ENOENT` when there is no such attribute.
    pub fn attr_string(&self, name: &str) -> Result<String, Errno> {
        self.attr(name)?;
        let attrs = self.link.attrs.borrow();
        let value = attrs.get(name).ok_or(Errno(libc::ENOENT))?;
        Ok(value.to_string_lossy().into_owned())
    }
}

/// The socket that an URI (`None`: that in `FLUX_URI`) names: `local:///path`,
/// `/path`, `./path`.
///
/// # Errors
/// `ENOENT` without an URI, `EINVAL` for what is none.
pub fn socket_path(uri: Option<&str>) -> Result<PathBuf, Errno> {
    let from_env;
    let uri = match uri {
        Some(uri) => uri,
        None => {
            from_env = std::env::var("FLUX_URI").map_err(|_| Errno(libc::ENOENT))?;
            &from_env
        }
    };
    let path = uri.strip_prefix("local://").unwrap_or(uri);
    if path.is_empty() || !path.starts_with(['/', '.']) {
        return Err(Errno(libc::EINVAL));
    }
    Ok(Path::new(path).to_owned())
}
