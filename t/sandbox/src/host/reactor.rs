//! The reactor: watchers of descriptors, time, signals, and of the loop itself.
//!
//! It keeps to the order of libev, which Flux's reactor is: prepare watchers,
//! poll(2), timers, idle, check; within one turn the events found last are
//! delivered first. Time is that of the last poll, not of the call.

#![expect(
    unsafe_code,
    reason = "poll(2) on descriptors of the user, and signalfd(2)"
)]

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use crate::errno::Errno;

/// Readable.
pub const POLLIN: i32 = 1;
/// Writable.
pub const POLLOUT: i32 = 2;
/// Failed.
pub const POLLERR: i32 = 4;

/// Do not wait for events.
pub const NOWAIT: i32 = 1;
/// Wait for events once.
pub const ONCE: i32 = 2;

/// Longest wait; libev wakes up as rarely.
const MAX_WAIT: f64 = 59.743;

/// What a watcher waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A descriptor, with the `POLL*` bits of interest.
    Fd(i32, i32),
    /// A time.
    Timer,
    /// A signal.
    Signal(i32),
    /// Each turn, before waiting.
    Prepare,
    /// Each turn, after waiting.
    Check,
    /// Keeps the loop from waiting.
    Idle,
}

/// What a watcher does; the number is the `POLL*` bits.
pub type Callback = Box<dyn Fn(&Rc<Watcher>, i32)>;

/// One watcher.
pub struct Watcher {
    reactor: Rc<Reactor>,
    /// What it waits for.
    pub kind: Kind,
    callback: Callback,
    active: Cell<bool>,
    pending: Cell<bool>,
    after: Cell<f64>,
    repeat: Cell<f64>,
    at: Cell<f64>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watcher({:?}, active {})", self.kind, self.active.get())
    }
}

impl Watcher {
    /// A watcher, not started.
    pub fn new(reactor: &Rc<Reactor>, kind: Kind, callback: Callback) -> Rc<Self> {
        Rc::new(Self {
            reactor: Rc::clone(reactor),
            kind,
            callback,
            active: Cell::new(false),
            pending: Cell::new(false),
            after: Cell::new(0.0),
            repeat: Cell::new(0.0),
            at: Cell::new(0.0),
        })
    }

    /// A timer, not started. Seconds.
    pub fn timer(
        reactor: &Rc<Reactor>,
        after: f64,
        repeat: f64,
        callback: Callback,
    ) -> Rc<Self> {
        let w = Self::new(reactor, Kind::Timer, callback);
        w.set_timer(after, repeat);
        w
    }

    /// The reactor it belongs to.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// Whether it is started.
    pub fn is_active(&self) -> bool {
        self.active.get()
    }

    /// New times of a timer, from its next start on.
    pub fn set_timer(&self, after: f64, repeat: f64) {
        self.after.set(after);
        self.repeat.set(repeat);
    }

    /// Starts it; no effect when it is started.
    pub fn start(self: &Rc<Self>) {
        if self.active.replace(true) {
            return;
        }
        if self.kind == Kind::Timer {
            self.at.set(self.reactor.mono.get() + self.after.get());
        }
        self.reactor.active.borrow_mut().push(Rc::clone(self));
        if let Kind::Signal(signum) = self.kind {
            self.reactor.watch_signal(signum);
        }
    }

    /// Stops it; an event already found is not delivered.
    pub fn stop(self: &Rc<Self>) {
        self.pending.set(false);
        if !self.active.replace(false) {
            return;
        }
        let mut active = self.reactor.active.borrow_mut();
        active.retain(|w| !Rc::ptr_eq(w, self));
        if let Kind::Signal(signum) = self.kind {
            let last = !active.iter().any(|w| w.kind == self.kind);
            drop(active);
            if last {
                self.reactor.unwatch_signal(signum);
            }
        }
    }

    /// Restarts a repeating timer from now; stops one that does not repeat.
    pub fn again(self: &Rc<Self>) {
        self.pending.set(false);
        if self.repeat.get() > 0.0 {
            self.start();
            self.at.set(self.reactor.mono.get() + self.repeat.get());
        } else {
            self.stop();
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Break {
    No,
    All,
}

/// A reactor.
pub struct Reactor {
    active: RefCell<Vec<Rc<Watcher>>>,
    pending: RefCell<Vec<(Rc<Watcher>, i32)>>,
    failed: Cell<bool>,
    stop: Cell<Break>,
    wall: Cell<f64>,
    mono: Cell<f64>,
    signals: RefCell<Option<SignalFd>>,
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reactor({} active)", self.active.borrow().len())
    }
}

impl Reactor {
    /// A reactor with no watchers.
    pub fn new() -> Rc<Self> {
        let r = Rc::new(Self {
            active: RefCell::default(),
            pending: RefCell::default(),
            failed: Cell::new(false),
            stop: Cell::new(Break::No),
            wall: Cell::new(0.0),
            mono: Cell::new(0.0),
            signals: RefCell::new(None),
        });
        r.update();
        r
    }

    /// Seconds since 1970 at the last turn.
    pub fn now(&self) -> f64 {
        self.wall.get()
    }

    /// Reads the clocks.
    pub fn update(&self) {
        self.wall.set(wall());
        self.mono.set(mono());
    }

    /// Ends the innermost run, and those around it on this reactor.
    pub fn stop(&self) {
        self.failed.set(false);
        self.stop.set(Break::All);
    }

    /// The same, and `run` fails.
    pub fn stop_error(&self) {
        self.failed.set(true);
        self.stop.set(Break::All);
    }

    /// Runs until stopped or nothing is active; returns the number of active
    /// watchers.
    ///
    /// # Errors
    /// `EINVAL` for unknown flags; the errno(3) of who called `stop_error`.
    pub fn run(&self, flags: i32) -> Result<i32, Errno> {
        if flags & !(NOWAIT | ONCE) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        self.failed.set(false);
        self.stop.set(Break::No);
        loop {
            self.queue_kind(Kind::Prepare);
            self.deliver();
            if self.stop.get() == Break::All {
                break;
            }
            self.turn(flags & NOWAIT != 0);
            self.deliver();
            if self.stop.get() == Break::All || flags != 0 || self.active.borrow().is_empty() {
                break;
            }
        }
        if self.failed.get() {
            return Err(crate::errno::get());
        }
        Ok(i32::try_from(self.active.borrow().len()).unwrap_or(i32::MAX))
    }

    fn queue(&self, w: &Rc<Watcher>, revents: i32) {
        if !w.pending.replace(true) {
            self.pending.borrow_mut().push((Rc::clone(w), revents));
        }
    }

    fn queue_kind(&self, kind: Kind) {
        let found: Vec<_> = self
            .active
            .borrow()
            .iter()
            .filter(|w| w.kind == kind)
            .cloned()
            .collect();
        for w in found {
            self.queue(&w, 0);
        }
    }

    fn deliver(&self) {
        loop {
            let next = self.pending.borrow_mut().pop();
            let Some((w, revents)) = next else { return };
            if w.pending.replace(false) {
                (w.callback)(&w, revents);
            }
        }
    }

    /// Waits, and queues what has happened.
    fn turn(&self, nowait: bool) {
        let mut fds: Vec<libc::pollfd> = Vec::new();
        let mut owners: Vec<Option<Rc<Watcher>>> = Vec::new();
        let mut idle = false;
        let mut first: Option<f64> = None;
        for w in self.active.borrow().iter() {
            match w.kind {
                Kind::Fd(fd, events) => {
                    let mut wanted = 0;
                    if events & POLLIN != 0 {
                        wanted |= libc::POLLIN;
                    }
                    if events & POLLOUT != 0 {
                        wanted |= libc::POLLOUT;
                    }
                    fds.push(libc::pollfd {
                        fd,
                        events: wanted,
                        revents: 0,
                    });
                    owners.push(Some(Rc::clone(w)));
                }
                Kind::Timer => first = Some(first.map_or(w.at.get(), |f| f.min(w.at.get()))),
                Kind::Idle => idle = true,
                Kind::Signal(_) | Kind::Prepare | Kind::Check => {}
            }
        }
        if let Some(s) = &*self.signals.borrow() {
            fds.push(libc::pollfd {
                fd: s.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            });
            owners.push(None);
        }
        self.update();
        let wait = if nowait || idle || self.active.borrow().is_empty() {
            0.0
        } else {
            first.map_or(MAX_WAIT, |at| (at - self.mono.get()).clamp(0.0, MAX_WAIT))
        };
        poll(&mut fds, wait);
        self.update();
        for (p, owner) in fds.iter().zip(&owners) {
            if p.revents == 0 {
                continue;
            }
            match owner {
                Some(w) => self.queue_fd(w, p.revents),
                None => self.queue_signals(),
            }
        }
        self.queue_timers();
        self.queue_kind(Kind::Idle);
        self.queue_kind(Kind::Check);
    }

    fn queue_fd(&self, w: &Rc<Watcher>, got: i16) {
        let Kind::Fd(_, wanted) = w.kind else { return };
        // libev reports hang-up and error as both readable and writable.
        let bad = got & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        let mut revents = 0;
        if bad || got & libc::POLLIN != 0 {
            revents |= POLLIN;
        }
        if bad || got & libc::POLLOUT != 0 {
            revents |= POLLOUT;
        }
        revents &= wanted;
        if got & libc::POLLNVAL != 0 {
            revents |= POLLERR;
        }
        if revents != 0 {
            self.queue(w, revents);
        }
    }

    fn queue_timers(&self) {
        let now = self.mono.get();
        let mut due: Vec<_> = self
            .active
            .borrow()
            .iter()
            .filter(|w| w.kind == Kind::Timer && w.at.get() <= now)
            .cloned()
            .collect();
        due.sort_by(|a, b| a.at.get().total_cmp(&b.at.get()));
        for w in due.iter().rev() {
            if w.repeat.get() > 0.0 {
                w.at.set((w.at.get() + w.repeat.get()).max(now));
            } else {
                w.stop();
            }
            self.queue(w, 0);
        }
    }

    fn watch_signal(&self, signum: i32) {
        let mut signals = self.signals.borrow_mut();
        if signals.is_none() {
            *signals = SignalFd::new();
        }
        if let Some(s) = &mut *signals {
            s.change(signum, true);
        }
    }

    fn unwatch_signal(&self, signum: i32) {
        if let Some(s) = &mut *self.signals.borrow_mut() {
            s.change(signum, false);
        }
    }

    fn queue_signals(&self) {
        let got = match &*self.signals.borrow() {
            Some(s) => s.read(),
            None => Vec::new(),
        };
        for signum in got {
            self.queue_kind(Kind::Signal(signum));
        }
    }
}

/// Seconds since 1970. The standard library's clocks, because rustix's do not
/// run under valgrind.
fn wall() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Seconds since some time in this process.
fn mono() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

fn poll(fds: &mut [libc::pollfd], seconds: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "at most a minute")]
    let ms = (seconds * 1000.0).ceil() as i32;
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: the array is valid for `count` entries. Descriptors of the user
    // may be closed meanwhile; then the kernel says POLLNVAL.
    unsafe { libc::poll(fds.as_mut_ptr(), count, ms) };
}

/// Signals as readable events; while watched they are blocked in this thread.
struct SignalFd {
    fd: OwnedFd,
    set: libc::sigset_t,
}

impl SignalFd {
    fn new() -> Option<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: a zeroed sigset_t is a valid place for sigemptyset, which
        // initializes it before signalfd reads it; the new descriptor is ours.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
            (fd >= 0).then(|| Self {
                fd: OwnedFd::from_raw_fd(fd),
                set,
            })
        }
    }

    fn change(&mut self, signum: i32, watch: bool) {
        // SAFETY: both sets are initialized; an invalid number makes sigaddset
        // fail and changes nothing.
        unsafe {
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut one);
            libc::sigaddset(&raw mut one, signum);
            let how = if watch {
                libc::sigaddset(&raw mut self.set, signum);
                libc::SIG_BLOCK
            } else {
                libc::sigdelset(&raw mut self.set, signum);
                libc::SIG_UNBLOCK
            };
            libc::signalfd(self.fd.as_raw_fd(), &raw const self.set, 0);
            libc::pthread_sigmask(how, &raw const one, std::ptr::null_mut());
        }
    }

    fn read(&self) -> Vec<i32> {
        let mut got = Vec::new();
        let mut buf = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the descriptor is owned by `self` and open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd.as_raw_fd()) };
        while rustix::io::read(fd, &mut buf).is_ok_and(|n| n == buf.len()) {
            let signum = u32::from_ne_bytes([buf[0], buf[1], buf[2], buf[3]]);
            got.push(i32::try_from(signum).unwrap_or(0));
        }
        got
    }
}
