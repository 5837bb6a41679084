//! `flux_reactor_*` and the watchers.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use super::{borrow, fail, give, take};
use crate::host::reactor::{self, Kind, Reactor, Watcher};

/// A watcher's function.
pub type Callback = unsafe extern "C" fn(
    r: *const Reactor,
    w: *const Watcher,
    revents: c_int,
    arg: *mut c_void,
);

fn callback(cb: Option<Callback>, arg: *mut c_void) -> reactor::Callback {
    Box::new(move |w, revents| {
        if let Some(cb) = cb {
            // SAFETY: the user gave the function and its argument; the reactor
            // and the watcher live while it runs.
            unsafe { cb(Rc::as_ptr(w.reactor()), Rc::as_ptr(w), revents, arg) }
        }
    })
}

crate::export! {
    fn flux_reactor_run(r: *const Reactor, flags: c_int) -> c_int {
        let Some(r) = borrow(r) else {
            return fail(libc::EINVAL, -1);
        };
        r.run(flags).unwrap_or_else(|e| fail(e.0, -1))
    }

    fn flux_reactor_stop(r: *const Reactor) {
        if let Some(r) = borrow(r) {
            r.stop();
        }
    }

    fn flux_reactor_stop_error(r: *const Reactor) {
        if let Some(r) = borrow(r) {
            r.stop_error();
        }
    }

    fn flux_reactor_now(r: *const Reactor) -> f64 {
        borrow(r).map_or(0.0, |r| r.now())
    }

    fn flux_reactor_now_update(r: *const Reactor) {
        if let Some(r) = borrow(r) {
            r.update();
        }
    }

    fn flux_watcher_start(w: *const Watcher) {
        if let Some(w) = borrow(w) {
            w.start();
        }
    }

    fn flux_watcher_stop(w: *const Watcher) {
        if let Some(w) = borrow(w) {
            w.stop();
        }
    }

    fn flux_watcher_destroy(w: *const Watcher) {
        if let Some(w) = take(w) {
            w.stop();
        }
    }

    fn flux_fd_watcher_create(
        r: *const Reactor,
        fd: c_int,
        events: c_int,
        cb: Option<Callback>,
        arg: *mut c_void,
    ) -> *const Watcher {
        match borrow(r) {
            Some(r) => give(Watcher::new(&r, Kind::Fd(fd, events), callback(cb, arg))),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_timer_watcher_create(
        r: *const Reactor,
        after: f64,
        repeat: f64,
        cb: Option<Callback>,
        arg: *mut c_void,
    ) -> *const Watcher {
        match borrow(r).filter(|_| after >= 0.0 && repeat >= 0.0) {
            Some(r) => give(Watcher::timer(&r, after, repeat, callback(cb, arg))),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_timer_watcher_reset(w: *const Watcher, after: f64, repeat: f64) {
        if let Some(w) = borrow(w)
            && w.kind == Kind::Timer
        {
            w.set_timer(after, repeat);
        }
    }

    fn flux_signal_watcher_create(
        r: *const Reactor,
        signum: c_int,
        cb: Option<Callback>,
        arg: *mut c_void,
    ) -> *const Watcher {
        match borrow(r) {
            Some(r) => give(Watcher::new(&r, Kind::Signal(signum), callback(cb, arg))),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_signal_watcher_get_signum(w: *const Watcher) -> c_int {
        match borrow(w).map(|w| w.kind) {
            Some(Kind::Signal(signum)) => signum,
            _ => fail(libc::EINVAL, -1),
        }
    }
}
