//! The watcher of a handle: readable when a message is queued or arriving.

use std::rc::Rc;

use crate::host::handle::Handle;
use crate::host::reactor::{Kind, POLLERR, POLLIN, Watcher};

/// Four plain watchers that act as one. A queued message keeps the loop from
/// waiting, because the socket does not show it.
#[derive(Debug)]
pub struct HandleWatcher {
    prepare: Rc<Watcher>,
    check: Rc<Watcher>,
    idle: Rc<Watcher>,
    fd: Rc<Watcher>,
}

impl HandleWatcher {
    /// Not started; calls `callback` with `POLLIN` or `POLLERR`.
    pub fn new(h: &Rc<Handle>, callback: impl Fn(i32) + 'static) -> Rc<Self> {
        let r = h.reactor();
        let fd = Watcher::new(&r, Kind::Fd(h.pollfd(), POLLIN), Box::new(|_, _| ()));
        let idle = Watcher::new(&r, Kind::Idle, Box::new(|_, _| ()));
        let prepare = {
            let (h, fd, idle) = (Rc::downgrade(h), Rc::clone(&fd), Rc::clone(&idle));
            Watcher::new(
                &r,
                Kind::Prepare,
                Box::new(move |_, _| {
                    let ready = h.upgrade().is_none_or(|h| h.pollevents() != 0);
                    if ready { idle.start() } else { fd.start() }
                }),
            )
        };
        let check = {
            let (h, fd, idle) = (Rc::downgrade(h), Rc::clone(&fd), Rc::clone(&idle));
            Watcher::new(
                &r,
                Kind::Check,
                Box::new(move |_, _| {
                    fd.stop();
                    idle.stop();
                    let events = h.upgrade().map_or(POLLERR, |h| h.pollevents());
                    if events != 0 {
                        callback(events);
                    }
                }),
            )
        };
        Rc::new(Self {
            prepare,
            check,
            idle,
            fd,
        })
    }

    /// Starts it.
    pub fn start(&self) {
        self.prepare.start();
        self.check.start();
    }

    /// Stops it.
    pub fn stop(&self) {
        for w in [&self.prepare, &self.check, &self.idle, &self.fd] {
            w.stop();
        }
    }
}
