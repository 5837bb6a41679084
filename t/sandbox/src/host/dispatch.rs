//! Which handler gets a message.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use crate::errno::Errno;
use crate::host::handle::Handle;
use crate::host::reactor::{POLLERR, POLLIN};
use crate::host::watch::HandleWatcher;
use crate::wire::{FLAG_NORESPONSE, Kind, Message, ROLE_OWNER};

/// What a handler does.
pub type Callback = Box<dyn Fn(&Rc<Handle>, &Rc<MsgHandler>, &Rc<Message>)>;

/// Which messages a handler takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The responses of one RPC.
    Response(u32),
    /// Requests of one topic.
    Request(String),
    /// Events of one topic.
    Event(String),
}

/// One handler, active from its creation until `stop`.
pub struct MsgHandler {
    matches: Match,
    rolemask: u32,
    callback: Callback,
    running: Cell<bool>,
    dispatch: Weak<Dispatch>,
}

impl std::fmt::Debug for MsgHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MsgHandler({:?})", self.matches)
    }
}

impl MsgHandler {
    /// Gets no more messages.
    pub fn stop(self: &Rc<Self>) {
        if self.running.replace(false)
            && let Some(d) = self.dispatch.upgrade()
        {
            d.running_changed(-1);
        }
    }

    /// Stops, and is forgotten.
    pub fn destroy(self: &Rc<Self>) {
        self.stop();
        if let Some(d) = self.dispatch.upgrade() {
            d.remove(self);
        }
    }
}

/// The dispatcher of one handle.
#[derive(Debug)]
pub struct Dispatch {
    handle: Weak<Handle>,
    watcher: RefCell<Option<Rc<HandleWatcher>>>,
    responses: RefCell<HashMap<u32, Rc<MsgHandler>>>,
    /// The newest handler of a topic is the one that is used.
    requests: RefCell<HashMap<String, Vec<Rc<MsgHandler>>>>,
    events: RefCell<Vec<Rc<MsgHandler>>>,
    unmatched: RefCell<Vec<Rc<Message>>>,
    running: Cell<i32>,
}

impl Dispatch {
    pub(crate) fn new(h: &Rc<Handle>) -> Rc<Self> {
        let d = Rc::new(Self {
            handle: Rc::downgrade(h),
            watcher: RefCell::new(None),
            responses: RefCell::default(),
            requests: RefCell::default(),
            events: RefCell::default(),
            unmatched: RefCell::default(),
            running: Cell::new(0),
        });
        let weak = Rc::downgrade(&d);
        let watcher = HandleWatcher::new(h, move |revents| {
            if let Some(d) = weak.upgrade() {
                d.receive(revents);
            }
        });
        *d.watcher.borrow_mut() = Some(watcher);
        d
    }

    /// Adds a handler. `rolemask` are the roles allowed beside the owner.
    ///
    /// # Errors
    /// `EEXIST` when the matchtag has a handler already.
    pub fn add(
        self: &Rc<Self>,
        matches: Match,
        rolemask: u32,
        callback: Callback,
    ) -> Result<Rc<MsgHandler>, Errno> {
        let mh = Rc::new(MsgHandler {
            matches,
            rolemask: rolemask | ROLE_OWNER,
            callback,
            running: Cell::new(true),
            dispatch: Rc::downgrade(self),
        });
        match &mh.matches {
            Match::Response(tag) => {
                let mut map = self.responses.borrow_mut();
                if map.contains_key(tag) {
                    return Err(Errno(libc::EEXIST));
                }
                map.insert(*tag, Rc::clone(&mh));
            }
            Match::Request(topic) => {
                let mut map = self.requests.borrow_mut();
                map.entry(topic.clone()).or_default().push(Rc::clone(&mh));
            }
            Match::Event(_) => self.events.borrow_mut().push(Rc::clone(&mh)),
        }
        self.running_changed(1);
        Ok(mh)
    }

    fn remove(&self, mh: &Rc<MsgHandler>) {
        match &mh.matches {
            Match::Response(tag) => {
                self.responses.borrow_mut().remove(tag);
            }
            Match::Request(topic) => {
                let mut map = self.requests.borrow_mut();
                if let Some(stack) = map.get_mut(topic) {
                    stack.retain(|x| !Rc::ptr_eq(x, mh));
                    if stack.is_empty() {
                        map.remove(topic);
                    }
                }
            }
            Match::Event(_) => self.events.borrow_mut().retain(|x| !Rc::ptr_eq(x, mh)),
        }
    }

    fn running_changed(&self, by: i32) {
        let n = self.running.get() + by;
        self.running.set(n);
        if let Some(w) = &*self.watcher.borrow() {
            match (n, by) {
                (0, _) => w.stop(),
                (1, 1) => w.start(),
                _ => {}
            }
        }
    }

    /// Stops for good: the handle is being closed.
    pub(crate) fn shut_down(&self) {
        let watcher = self.watcher.borrow_mut().take();
        if let Some(w) = watcher {
            w.stop();
        }
        self.responses.take();
        self.requests.take();
        self.events.take();
    }

    /// Gives back to the connection what a clone did not use.
    pub fn requeue(&self) {
        let kept = self.unmatched.take();
        if let Some(h) = self.handle.upgrade() {
            h.requeue(kept.into_iter());
        }
    }

    fn receive(&self, revents: i32) {
        let Some(h) = self.handle.upgrade() else {
            return;
        };
        if revents & POLLIN == 0 {
            if revents & POLLERR != 0 {
                crate::errno::set(Errno(libc::ECONNRESET));
                h.reactor().stop_error();
            }
            return;
        }
        match h.recv(true) {
            Ok(Some(msg)) => self.deliver(&h, msg),
            Ok(None) => {}
            Err(e) => {
                crate::errno::set(e);
                h.reactor().stop_error();
            }
        }
    }

    fn deliver(&self, h: &Rc<Handle>, msg: Rc<Message>) {
        let found = match msg.kind {
            Kind::Response => self.responses.borrow().get(&msg.matchtag).cloned(),
            Kind::Request => self
                .requests
                .borrow()
                .get(msg.topic_str())
                .and_then(|stack| stack.last().cloned()),
            Kind::Event => {
                self.deliver_event(h, &msg);
                return;
            }
        };
        if let Some(mh) = found
            && mh.running.get()
        {
            call(h, &mh, &msg);
        } else if h.is_clone {
            self.unmatched.borrow_mut().push(msg);
        } else if msg.kind == Kind::Request {
            let text = format!("Unknown service method '{}'", msg.topic_str());
            respond_error(h, &msg, libc::ENOSYS, Some(&text));
        }
    }

    fn deliver_event(&self, h: &Rc<Handle>, msg: &Rc<Message>) {
        if h.is_clone {
            self.unmatched.borrow_mut().push(Rc::clone(msg));
            return;
        }
        let topic = msg.topic_str();
        let found: Vec<_> = self
            .events
            .borrow()
            .iter()
            .filter(|mh| mh.matches == Match::Event(topic.to_owned()))
            .cloned()
            .collect();
        for mh in found {
            if mh.running.get() {
                call(h, &mh, msg);
            }
        }
    }
}

fn call(h: &Rc<Handle>, mh: &Rc<MsgHandler>, msg: &Rc<Message>) {
    if msg.kind == Kind::Request && msg.rolemask & mh.rolemask == 0 {
        let text = if mh.rolemask == ROLE_OWNER {
            "Request requires owner credentials"
        } else {
            "Request rejected due to insufficient privilege"
        };
        respond_error(h, msg, libc::EPERM, Some(text));
        return;
    }
    (mh.callback)(h, mh, msg);
}

/// Answers with an error; nothing is sent to who wants no answer.
pub fn respond_error(h: &Handle, request: &Message, errnum: i32, text: Option<&str>) {
    if request.has(FLAG_NORESPONSE) {
        return;
    }
    let payload = text.map(crate::wire::text_payload);
    let errnum = u32::try_from(errnum).unwrap_or(0);
    let _ = h.send(&request.response(errnum, payload));
}
