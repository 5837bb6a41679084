//! Futures: a result that comes later, perhaps several in a row.
//!
//! A future is waited for in one of two ways. *then*: a continuation runs on
//! the reactor of the user. *now*: a private reactor (and a clone of the handle)
//! runs until the result is there, and nothing else is served meanwhile. What
//! fulfils the future is set up once for each way, by its init function.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::rc::{Rc, Weak};

use crate::errno::Errno;
use crate::host::aux::Aux;
use crate::host::dispatch::MsgHandler;
use crate::host::handle::Handle;
use crate::host::outcome::{Failure, Value};
use crate::host::reactor::{Kind, Reactor, Watcher};
use crate::wire::Message;

/// Sets up what fulfils a future, in the context that is current.
pub type Init = Box<dyn Fn(&Rc<Future>)>;
/// Runs when a result is there.
pub type Continuation = Rc<dyn Fn(&Rc<Future>)>;

type Outcome = Result<Value, Failure>;

struct Now {
    reactor: Rc<Reactor>,
    handle: Option<Rc<Handle>>,
    timer: Option<Rc<Watcher>>,
    init_called: bool,
    running: bool,
}

struct Then {
    check: Rc<Watcher>,
    idle: Rc<Watcher>,
    timer: Option<Rc<Watcher>>,
    timeout: f64,
    init_called: bool,
    continuation: Continuation,
}

/// A future.
pub struct Future {
    reactor: RefCell<Option<Rc<Reactor>>>,
    handle: RefCell<Option<Rc<Handle>>>,
    /// What users attached.
    pub aux: Aux,
    result: RefCell<Option<Outcome>>,
    fatal: RefCell<Option<Failure>>,
    queue: RefCell<VecDeque<Outcome>>,
    init: Option<Init>,
    now: RefCell<Option<Now>>,
    then: RefCell<Option<Then>>,
    handlers: RefCell<Vec<Rc<MsgHandler>>>,
    /// The RPC's tag, flags and destination, when this is an RPC.
    pub rpc: Cell<Option<(u32, i32, u32)>>,
    destroyed: Cell<bool>,
}

impl std::fmt::Debug for Future {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Future(ready {})", self.is_ready())
    }
}

impl Future {
    /// A future; `init` is called when it is first waited for in each way.
    pub fn new(init: Option<Init>) -> Rc<Self> {
        Rc::new(Self {
            reactor: RefCell::new(None),
            handle: RefCell::new(None),
            aux: Aux::default(),
            result: RefCell::new(None),
            fatal: RefCell::new(None),
            queue: RefCell::default(),
            init,
            now: RefCell::new(None),
            then: RefCell::new(None),
            handlers: RefCell::default(),
            rpc: Cell::new(None),
            destroyed: Cell::new(false),
        })
    }

    /// Ends it: destructors run now, continuations never again.
    pub fn destroy(self: &Rc<Self>) {
        if self.destroyed.replace(true) {
            return;
        }
        self.aux.destroy();
        for mh in self.handlers.take() {
            mh.destroy();
        }
        self.result.take();
        let now = self.now.take();
        if let Some(now) = now {
            if let Some(t) = &now.timer {
                t.stop();
            }
            if let Some(h) = &now.handle {
                h.decref();
            }
        }
        let then = self.then.take();
        if let Some(then) = then {
            then.check.stop();
            then.idle.stop();
            if let Some(t) = &then.timer {
                t.stop();
            }
        }
        self.queue.take();
        let handle = self.handle.take();
        if let Some(h) = handle {
            h.decref();
        }
    }

    /// Whether a result or a fatal error is there.
    pub fn is_ready(&self) -> bool {
        self.result.borrow().is_some() || self.fatal.borrow().is_some()
    }

    /// Whether what is there is an error.
    pub fn has_error(&self) -> bool {
        self.fatal.borrow().is_some() || matches!(&*self.result.borrow(), Some(Err(_)))
    }

    /// Text of the error; valid until the next reset.
    pub fn error_text(&self) -> Option<*const std::ffi::c_char> {
        if let Some(f) = &*self.fatal.borrow() {
            return Some(f.text.as_ptr());
        }
        match &*self.result.borrow() {
            Some(Err(f)) => Some(f.text.as_ptr()),
            _ => None,
        }
    }

    /// Text of the error, or that of `fallback`.
    pub fn error_string(&self, fallback: Errno) -> String {
        if let Some(f) = &*self.fatal.borrow() {
            return f.text.to_string_lossy().into_owned();
        }
        match &*self.result.borrow() {
            Some(Err(f)) => f.text.to_string_lossy().into_owned(),
            _ => fallback.text(),
        }
    }

    /// Sets the handle; the reactor too, if none is set.
    pub fn set_flux(&self, h: Option<Rc<Handle>>) {
        if let Some(h) = &h {
            h.incref();
            self.reactor.borrow_mut().get_or_insert_with(|| h.reactor());
        }
        let old = self.handle.replace(h);
        if let Some(old) = old {
            old.decref();
        }
    }

    /// The handle of the current context.
    ///
    /// # Errors
    /// `EINVAL` when none was set.
    pub fn flux(&self) -> Result<Rc<Handle>, Errno> {
        let handle = self.handle.borrow().clone().ok_or(Errno(libc::EINVAL))?;
        if let Some(now) = &mut *self.now.borrow_mut()
            && now.running
        {
            if now.handle.is_none() {
                let clone = handle.clone_handle();
                clone.set_reactor(Rc::clone(&now.reactor))?;
                now.handle = Some(clone);
            }
            return now.handle.clone().ok_or(Errno(libc::EINVAL));
        }
        Ok(handle)
    }

    /// The reactor of the current context.
    ///
    /// # Errors
    /// `EINVAL` when none was set.
    pub fn reactor(&self) -> Result<Rc<Reactor>, Errno> {
        if let Some(now) = &*self.now.borrow()
            && now.running
        {
            return Ok(Rc::clone(&now.reactor));
        }
        self.reactor.borrow().clone().ok_or(Errno(libc::EINVAL))
    }

    /// Keeps a message handler until the future is destroyed.
    pub fn keep_handler(&self, mh: Rc<MsgHandler>) {
        self.handlers.borrow_mut().push(mh);
    }

    fn fulfilled(&self) {
        if let Some(now) = &*self.now.borrow() {
            if let Some(t) = &now.timer {
                t.stop();
            }
            now.reactor.stop();
        }
        if let Some(then) = &*self.then.borrow() {
            then.idle.start();
            then.check.start();
        }
    }

    /// Gives it a result; one that comes too early waits for the next reset.
    pub fn fulfill(&self, value: Value) {
        self.settle(Ok(value));
    }

    /// Gives it an error.
    pub fn fulfill_error(&self, errno: Errno, text: Option<&str>) {
        self.settle(Err(Failure::new(errno, text)));
    }

    fn settle(&self, outcome: Outcome) {
        if self.destroyed.get() || self.fatal.borrow().is_some() {
            return;
        }
        if self.result.borrow().is_some() {
            self.queue.borrow_mut().push_back(outcome);
        } else {
            *self.result.borrow_mut() = Some(outcome);
        }
        self.fulfilled();
    }

    /// Gives it an error that no reset clears; the first one stays.
    pub fn fatal_error(&self, errno: Errno, text: Option<&str>) {
        if self.destroyed.get() {
            return;
        }
        self.fatal
            .borrow_mut()
            .get_or_insert_with(|| Failure::new(errno, text));
        self.fulfilled();
    }

    /// Forgets the result; takes the next one, if it is there.
    pub fn reset(self: &Rc<Self>) {
        let old = self.result.take();
        drop(old);
        let timeout = self.then.borrow().as_ref().map(|then| {
            then.idle.stop();
            then.check.stop();
            then.timeout
        });
        if let Some(timeout) = timeout {
            self.set_then_timeout(timeout);
        }
        let next = self.queue.borrow_mut().pop_front();
        if let Some(next) = next {
            *self.result.borrow_mut() = Some(next);
            self.fulfilled();
        }
    }

    /// Waits until it is ready, at most `timeout` seconds when not negative.
    ///
    /// # Errors
    /// `ETIMEDOUT`; `EDEADLK` when nothing can fulfil it; what stopped the
    /// private reactor.
    pub fn wait_for(self: &Rc<Self>, timeout: f64) -> Result<(), Errno> {
        if self.is_ready() {
            return Ok(());
        }
        if timeout == 0.0 {
            return Err(Errno(libc::ETIMEDOUT));
        }
        let (reactor, call_init) = {
            let mut slot = self.now.borrow_mut();
            let now = slot.get_or_insert_with(|| Now {
                reactor: Reactor::new(),
                handle: None,
                timer: None,
                init_called: false,
                running: false,
            });
            now.running = true;
            let r = Rc::clone(&now.reactor);
            r.update();
            if timeout < 0.0 {
                if let Some(t) = &now.timer {
                    t.stop();
                }
            } else {
                let timer = now.timer.get_or_insert_with(|| {
                    Watcher::timer(
                        &r,
                        timeout,
                        0.0,
                        Box::new(|w, _| {
                            crate::errno::set(Errno(libc::ETIMEDOUT));
                            w.reactor().stop_error();
                        }),
                    )
                });
                timer.stop();
                timer.set_timer(timeout, 0.0);
                timer.start();
            }
            (r, !std::mem::replace(&mut now.init_called, true))
        };
        if call_init && let Some(init) = &self.init {
            init(self);
        }
        let mut outcome = Ok(0);
        if !self.is_ready() {
            outcome = reactor.run(0);
        }
        let clone = self.now.borrow_mut().as_mut().and_then(|now| {
            // As in Flux, a failed run leaves the context current.
            now.running = outcome.is_err();
            now.handle.clone()
        });
        if let Some(h) = clone {
            h.dispatch().requeue();
        }
        outcome?;
        if self.is_ready() {
            Ok(())
        } else {
            Err(Errno(libc::EDEADLK))
        }
    }

    /// Waits and takes the result: the C value, and the message if it is one.
    ///
    /// # Errors
    /// The error that fulfilled it, or why waiting failed.
    pub fn get(self: &Rc<Self>) -> Result<(*mut c_void, Option<Rc<Message>>), Errno> {
        self.wait_for(-1.0)?;
        if let Some(f) = &*self.fatal.borrow() {
            return Err(f.errno);
        }
        match &*self.result.borrow() {
            Some(Ok(v)) => Ok((v.ptr, v.message.clone())),
            Some(Err(f)) => Err(f.errno),
            None => Err(Errno(libc::EDEADLK)),
        }
    }

    /// Sets the continuation; it replaces the one before. With a timeout in
    /// seconds that is not negative, `ETIMEDOUT` fulfils it in the end.
    ///
    /// # Errors
    /// `EINVAL` when the future has no reactor.
    pub fn then(
        self: &Rc<Self>,
        timeout: f64,
        continuation: Continuation,
    ) -> Result<(), Errno> {
        let r = self.reactor.borrow().clone().ok_or(Errno(libc::EINVAL))?;
        {
            let mut slot = self.then.borrow_mut();
            match &mut *slot {
                Some(then) => then.continuation = continuation,
                None => *slot = Some(self.then_context(&r, continuation)),
            }
        }
        if self.is_ready()
            && let Some(then) = &*self.then.borrow()
        {
            then.idle.start();
            then.check.start();
        }
        self.set_then_timeout(timeout);
        let call_init = self
            .then
            .borrow_mut()
            .as_mut()
            .is_some_and(|then| !std::mem::replace(&mut then.init_called, true));
        if call_init && let Some(init) = &self.init {
            init(self);
        }
        Ok(())
    }

    fn then_context(self: &Rc<Self>, r: &Rc<Reactor>, continuation: Continuation) -> Then {
        let weak = Rc::downgrade(self);
        Then {
            check: Watcher::new(r, Kind::Check, Box::new(move |_, _| continue_from(&weak))),
            idle: Watcher::new(r, Kind::Idle, Box::new(|_, _| ())),
            timer: None,
            timeout: -1.0,
            init_called: false,
            continuation,
        }
    }

    fn set_then_timeout(self: &Rc<Self>, timeout: f64) {
        let mut slot = self.then.borrow_mut();
        let Some(then) = &mut *slot else { return };
        then.timeout = timeout;
        if timeout < 0.0 {
            if let Some(t) = &then.timer {
                t.stop();
            }
            return;
        }
        let weak = Rc::downgrade(self);
        let timer = then.timer.get_or_insert_with(|| {
            Watcher::timer(
                then.check.reactor(),
                0.0,
                timeout,
                Box::new(move |_, _| {
                    if let Some(f) = weak.upgrade() {
                        f.fulfill_error(Errno(libc::ETIMEDOUT), None);
                    }
                }),
            )
        });
        timer.set_timer(0.0, timeout);
        timer.again();
    }
}

fn continue_from(weak: &Weak<Future>) {
    // This reference keeps the memory while the continuation destroys us.
    let Some(f) = weak.upgrade() else { return };
    let continuation = f.then.borrow().as_ref().map(|then| {
        if let Some(t) = &then.timer {
            t.stop();
        }
        then.idle.stop();
        then.check.stop();
        Rc::clone(&then.continuation)
    });
    if let Some(continuation) = continuation {
        continuation(&f);
    }
}
