//! The event loop, and watchers that call closures from it.
//!
//! A watcher runs from its creation until it is stopped or dropped, and may be
//! dropped inside its own callback. A callback that runs the reactor itself is
//! not called again meanwhile; a descriptor that stays ready would then spin,
//! so run the reactor from plugin handlers, not from watchers.

use std::ffi::c_int;
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use super::error::Context;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::guard::guard_ok;
use super::lease::Lease;
use super::slot::Slot;
use crate::ffi::core::CoreApi;
use crate::ffi::host;
use crate::ffi::types::FLUX_POLLERR;
use crate::ffi::types::FLUX_POLLIN;
use crate::ffi::types::FLUX_POLLOUT;
use crate::ffi::types::FLUX_REACTOR_NOWAIT;
use crate::ffi::types::FLUX_REACTOR_ONCE;
use crate::ffi::types::flux_reactor_t;
use crate::ffi::types::flux_watcher_f;
use crate::ffi::types::flux_watcher_t;

/// A view of an event loop; copies refer to the same one.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::reactor::Reactor>();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reactor {
    raw: NonNull<flux_reactor_t>,
    lease: Lease,
}

impl Reactor {
    /// A view that ends with a lease.
    ///
    /// # Safety
    /// The reactor exists, and belongs to this thread, as long as the lease is
    /// good.
    pub(crate) unsafe fn leased(raw: NonNull<flux_reactor_t>, lease: Lease) -> Reactor {
        Reactor { raw, lease }
    }

    /// The C reactor if it may be used.
    pub(crate) fn live(self) -> Result<*mut flux_reactor_t> {
        self.lease.check()?;
        Ok(self.raw.as_ptr())
    }

    fn run_with(self, flags: u32) -> Result<u32> {
        let (core, r) = (host::core()?, self.live()?);
        // SAFETY: the reactor exists (live).
        let rc = unsafe { core.flux_reactor_run(r, flags as c_int) };
        Ok(check_rc(rc).context("run reactor")?.unsigned_abs())
    }

    /// Runs until stopped or no watcher is left; returns how many are active.
    ///
    /// # Errors
    /// Whatever [`Reactor::stop_error`] was called for.
    pub fn run(self) -> Result<u32> {
        self.run_with(0)
    }

    /// Waits for events, handles them, and returns.
    ///
    /// # Errors
    /// As [`Reactor::run`].
    pub fn run_once(self) -> Result<u32> {
        self.run_with(FLUX_REACTOR_ONCE)
    }

    /// Handles the events that are there, without waiting.
    ///
    /// # Errors
    /// As [`Reactor::run`].
    pub fn run_nowait(self) -> Result<u32> {
        self.run_with(FLUX_REACTOR_NOWAIT)
    }

    /// Makes [`Reactor::run`] return when the current callback has.
    pub fn stop(self) {
        if let (Ok(core), Ok(r)) = (host::core(), self.live()) {
            // SAFETY: the reactor exists (live).
            unsafe { core.flux_reactor_stop(r) };
        }
    }

    /// Makes [`Reactor::run`] fail when the current callback has returned.
    pub fn stop_error(self) {
        if let (Ok(core), Ok(r)) = (host::core(), self.live()) {
            // SAFETY: the reactor exists (live).
            unsafe { core.flux_reactor_stop_error(r) };
        }
    }

    /// Seconds since the epoch when the loop last woke; 0 if the reactor is
    /// gone.
    pub fn now(self) -> f64 {
        match (host::core(), self.live()) {
            // SAFETY: the reactor exists (live).
            (Ok(core), Ok(r)) => unsafe { core.flux_reactor_now(r) },
            _ => 0.0,
        }
    }
}

/// What C's callback gets.
type Events = Slot<dyn FnMut(c_int)>;

/// The owner of a watcher; created running.
///
/// # Invariants
/// C holds `slot`'s address, with a count of its own, as long as `raw` exists.
#[derive(Debug)]
struct Watcher {
    raw: NonNull<flux_watcher_t>,
    slot: Rc<Events>,
    reactor: Reactor,
}

impl Watcher {
    /// `make` gets the reactor, the callback and its argument.
    fn create(
        reactor: Reactor,
        callback: Box<dyn FnMut(c_int)>,
        make: impl FnOnce(
            &CoreApi,
            *mut flux_reactor_t,
            flux_watcher_f,
            *mut c_void,
        ) -> *mut flux_watcher_t,
    ) -> Result<Watcher> {
        let (core, r) = (host::core()?, reactor.live()?);
        let slot: Rc<Events> = Rc::new(Slot::new(callback));
        let arg = Rc::into_raw(Rc::clone(&slot));
        let raw = make(core, r, Some(on_event), arg.cast_mut().cast());
        let raw = check_ptr(raw).inspect_err(|_| {
            // SAFETY: takes back the count that C would have had.
            drop(unsafe { Rc::from_raw(arg) });
        })?;
        // INVARIANT: arg is the count that goes with raw.
        let watcher = Watcher { raw, slot, reactor };
        watcher.start();
        Ok(watcher)
    }

    fn start(&self) {
        if let Ok(core) = host::core() {
            // SAFETY: raw exists as long as self.
            unsafe { core.flux_watcher_start(self.raw.as_ptr()) };
        }
    }

    fn stop(&self) {
        if let Ok(core) = host::core() {
            // SAFETY: raw exists as long as self.
            unsafe { core.flux_watcher_stop(self.raw.as_ptr()) };
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Ok(core) = host::core() {
            // SAFETY: raw is ours, and may be destroyed even inside its own
            // callback and after the reactor's owner is gone (F7).
            unsafe { core.flux_watcher_destroy(self.raw.as_ptr()) };
        }
        self.slot.close();
        // SAFETY: the count that C had; nothing refers to it any more. A
        // running on_event has one of its own.
        drop(unsafe { Rc::from_raw(Rc::as_ptr(&self.slot)) });
    }
}

/// # Safety
/// Called by the host with what [`Watcher::create`] registered.
unsafe extern "C" fn on_event(
    _: *mut flux_reactor_t,
    _: *mut flux_watcher_t,
    events: c_int,
    arg: *mut c_void,
) {
    guard_ok(|| {
        let arg = arg.cast::<Events>().cast_const();
        // SAFETY: arg came from Rc::into_raw and C has a count as long as the
        // watcher exists.
        unsafe { Rc::increment_strong_count(arg) };
        // SAFETY: the count taken above is ours.
        let slot = unsafe { Rc::from_raw(arg) };
        let _ = slot.call(|f| f(events));
    });
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// The descriptor is in error, e.g. closed by the peer.
    pub error: bool,
}

/// What to watch a descriptor for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

/// Calls a closure whenever a descriptor is ready (level-triggered).
#[derive(Debug)]
#[must_use = "dropping a watcher stops it"]
pub struct FdWatcher(Watcher);

impl FdWatcher {
    /// Starts watching. The descriptor must stay open as long as the watcher
    /// exists: let the closure or the owner of the watcher own it.
    ///
    /// # Errors
    /// EINVAL or ENOMEM.
    pub fn new(
        reactor: Reactor,
        fd: BorrowedFd<'_>,
        interest: Interest,
        mut callback: impl FnMut(Ready) + 'static,
    ) -> Result<FdWatcher> {
        let fd = fd.as_raw_fd();
        let events = match interest {
            Interest::Read => FLUX_POLLIN,
            Interest::Write => FLUX_POLLOUT,
            Interest::ReadWrite => FLUX_POLLIN | FLUX_POLLOUT,
        };
        let callback = Box::new(move |events: c_int| {
            let has = |bit: u32| events as u32 & bit != 0;
            callback(Ready {
                readable: has(FLUX_POLLIN),
                writable: has(FLUX_POLLOUT),
                error: has(FLUX_POLLERR),
            });
        });
        // SAFETY: the reactor exists; the callback fits its argument.
        Watcher::create(reactor, callback, |core, r, cb, arg| unsafe {
            core.flux_fd_watcher_create(r, fd, events as c_int, cb, arg)
        })
        .context("watch descriptor")
        .map(FdWatcher)
    }

    /// Pauses.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Continues after [`FdWatcher::stop`].
    pub fn start(&self) {
        self.0.start();
    }
}

/// Calls a closure after a time, once or again and again.
#[derive(Debug)]
#[must_use = "dropping a watcher stops it"]
pub struct TimerWatcher(Watcher);

impl TimerWatcher {
    /// Starts a timer; with `repeat` it fires again every so often. The time
    /// counts from now, however long the current callback has been running.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(
        reactor: Reactor,
        after: Duration,
        repeat: Option<Duration>,
        mut callback: impl FnMut() + 'static,
    ) -> Result<TimerWatcher> {
        let (after, repeat) = (after.as_secs_f64(), period(repeat));
        let callback = Box::new(move |_: c_int| callback());
        Watcher::create(reactor, callback, |core, r, cb, arg| {
            // SAFETY: the reactor exists.
            unsafe { core.flux_reactor_now_update(r) };
            // SAFETY: the reactor exists; the callback fits its argument.
            unsafe { core.flux_timer_watcher_create(r, after, repeat, cb, arg) }
        })
        .context("start timer")
        .map(TimerWatcher)
    }

    /// Starts anew with other times, whether it has fired or not.
    pub fn reset(&self, after: Duration, repeat: Option<Duration>) {
        let watcher = &self.0;
        watcher.stop();
        let (Ok(core), Ok(r)) = (host::core(), watcher.reactor.live()) else {
            return;
        };
        // SAFETY: the reactor exists (live).
        unsafe { core.flux_reactor_now_update(r) };
        let (w, after, repeat) = (watcher.raw.as_ptr(), after.as_secs_f64(), period(repeat));
        // SAFETY: the watcher exists as long as self, and is a timer.
        unsafe { core.flux_timer_watcher_reset(w, after, repeat) };
        watcher.start();
    }

    /// Stops the timer; [`TimerWatcher::reset`] starts it again.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// C's form of a repeat time.
fn period(repeat: Option<Duration>) -> f64 {
    repeat.map_or(0.0, |repeat| repeat.as_secs_f64())
}

/// Calls a closure when a signal arrives. Others may watch the same signal on
/// the same reactor.
#[derive(Debug)]
#[must_use = "dropping a watcher stops it"]
pub struct SignalWatcher(Watcher);

impl SignalWatcher {
    /// Starts watching signal number `signum`.
    ///
    /// # Errors
    /// EINVAL or ENOMEM.
    pub fn new(
        reactor: Reactor,
        signum: i32,
        mut callback: impl FnMut() + 'static,
    ) -> Result<SignalWatcher> {
        let callback = Box::new(move |_: c_int| callback());
        // SAFETY: the reactor exists; the callback fits its argument.
        Watcher::create(reactor, callback, |core, r, cb, arg| unsafe {
            core.flux_signal_watcher_create(r, signum, cb, arg)
        })
        .with_context(|| format!("watch signal {signum}"))
        .map(SignalWatcher)
    }

    /// Pauses.
    pub fn stop(&self) {
        self.0.stop();
    }
}
