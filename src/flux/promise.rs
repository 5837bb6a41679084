//! Futures that Rust code fulfils, for callers in C.
//!
//! The C caller owns the future and may destroy it at any time; all state of
//! ours is attached to it and ends with it. The way to fulfil it, a
//! [`Fulfiller`], is empty from then on.

use std::any::Any;
use std::any::TypeId;
use std::cell::Cell;
use std::cell::RefCell;
use std::ffi::CStr;
use std::ffi::c_void;
use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;

use super::cstr;
use super::error::Context as _;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::future;
use super::future::Future;
use super::guard;
use super::guard::guard_ok;
use super::handle::Handle;
use super::lease::Lessor;
use super::reactor::Reactor;
use super::slot::Slot;
use super::userdata;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_future_t;

/// Key of our state in a future; its presence tells our futures from others.
const KEY: &CStr = c"flux-bcast::promise";

/// Where the work of a future is to be done: its reactor and handle, which
/// differ between a blocking and a reactive caller. Good until the future is
/// destroyed; then their use fails with ENOTCONN.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The connection, if the future has one.
    pub handle: Option<Handle>,
    /// The reactor that runs while the caller waits.
    pub reactor: Reactor,
}

type Init = dyn FnMut(&Fulfiller, Context);

/// What is attached to a future of ours.
struct Attached {
    /// Emptied first: what happens from then on finds no future.
    target: Rc<Cell<Option<NonNull<flux_future_t>>>>,
    lessor: Option<Lessor>,
    init: Slot<Init>,
    state: RefCell<Option<Box<dyn Any>>>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.target.set(None);
        self.init.close();
        // The state may use the handle to take its leave; the future keeps
        // handle and reactors until we return (F5).
        drop(self.state.take());
        drop(self.lessor.take());
    }
}

/// A result given to C, with its type for the accessors.
#[repr(C)]
struct Tagged<T> {
    tag: TypeId,
    value: T,
}

/// Fulfils a future, as often as it has results. Does nothing once the future
/// is gone. Neither `Send` nor `Sync`.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::promise::Fulfiller>();
/// ```
#[derive(Clone, Debug)]
pub struct Fulfiller(Rc<Cell<Option<NonNull<flux_future_t>>>>);

impl Fulfiller {
    /// True as long as the future exists.
    pub fn is_wanted(&self) -> bool {
        self.0.get().is_some()
    }

    /// True if there is a result that has not been reset.
    pub fn has_result(&self) -> bool {
        let (Ok(core), Some(raw)) = (host::core(), self.0.get()) else {
            return false;
        };
        // SAFETY: the future exists.
        unsafe { core.flux_future_is_ready(raw.as_ptr()) }
    }

    /// Adds a result; it waits in line if an earlier one has not been reset.
    /// [`result`] reads it.
    pub fn fulfill<T: 'static>(&self, value: T) {
        let (Ok(core), Some(raw)) = (host::core(), self.0.get()) else {
            return;
        };
        let value = userdata::into_foreign(Box::new(Tagged {
            tag: TypeId::of::<T>(),
            value,
        }));
        let free = Some(userdata::free_boxed::<Tagged<T>> as _);
        // SAFETY: the future exists; it takes the value in any case.
        unsafe { core.flux_future_fulfill(raw.as_ptr(), value, free) };
    }

    /// Adds a result that is an error; more results may follow.
    pub fn fulfill_error(&self, error: &Error) {
        let (Ok(core), Some(raw)) = (host::core(), self.0.get()) else {
            return;
        };
        let text = cstr::text_cstring(&error.to_string());
        let errnum = error.errno().raw();
        // SAFETY: the future exists; the text is copied.
        unsafe { core.flux_future_fulfill_error(raw.as_ptr(), errnum, text.as_ptr()) };
    }

    /// Ends the future with an error that takes precedence over all results.
    pub fn fatal_error(&self, error: &Error) {
        let (Ok(core), Some(raw)) = (host::core(), self.0.get()) else {
            return;
        };
        let text = cstr::text_cstring(&error.to_string());
        let errnum = error.errno().raw();
        // SAFETY: the future exists; the text is copied.
        unsafe { core.flux_future_fatal_error(raw.as_ptr(), errnum, text.as_ptr()) };
    }

    /// Keeps a value until the future is destroyed, in place of an earlier
    /// one. [`state`] reads it. Without a future it is dropped.
    ///
    /// Pendings and watchers of a [`Context`] belong here: then they end
    /// before the reactor that they use.
    pub fn attach(&self, state: impl Any) {
        let Some(raw) = self.0.get() else {
            return;
        };
        // SAFETY: the future exists.
        if let Some(attached) = unsafe { attached(raw.as_ptr()) } {
            let old = attached.state.borrow_mut().replace(Box::new(state));
            drop(old);
        }
    }
}

/// Makes a future for a C caller.
///
/// `init` is called when somebody starts waiting: with the context of a
/// blocking caller in `flux_future_get(3)`, with that of the reactor in
/// `flux_future_then(3)`; with both, if a caller does both. It starts the work
/// and lets the fulfiller be called then or later.
///
/// # Errors
/// ENOMEM.
pub fn promise(
    handle: Option<Handle>,
    init: impl FnMut(&Fulfiller, Context) + 'static,
) -> Result<Future> {
    let core = host::core()?;
    let h = handle.map(Handle::live).transpose()?;
    let target = Rc::new(Cell::new(None));
    let arg = userdata::into_foreign(Box::new(Attached {
        target: Rc::clone(&target),
        lessor: Some(Lessor::new()),
        init: Slot::new(Box::new(init)),
        state: RefCell::default(),
    }));
    // SAFETY: arg fits on_init and lives until the future is destroyed.
    let made = check_ptr(unsafe { core.flux_future_create(Some(on_init), arg) });
    let take_back = || {
        // SAFETY: C has no destructor for it yet.
        drop(unsafe { userdata::from_foreign::<Attached>(arg) });
    };
    let raw = made.inspect_err(|_| take_back()).context("create future")?;
    // SAFETY: a new future that nobody else owns.
    let future = unsafe { Future::from_raw(raw) };
    let free = Some(userdata::free_boxed::<Attached> as _);
    // SAFETY: the future exists; free fits arg.
    let rc = unsafe { core.flux_future_aux_set(raw.as_ptr(), KEY.as_ptr(), arg, free) };
    // A future that nobody waits for never calls on_init (F5).
    check_rc(rc)
        .inspect_err(|_| take_back())
        .context("create future")?;
    target.set(Some(raw));
    if let Some(h) = h {
        // SAFETY: the future and the handle (live) exist; it takes a reference.
        unsafe { core.flux_future_set_flux(raw.as_ptr(), h) };
    }
    Ok(future)
}

/// The way to fulfil a future of ours, and to attach a state to it before
/// anybody waits.
///
/// # Errors
/// EINVAL if the future was not made by [`promise`].
pub fn fulfiller(future: &Future) -> Result<Fulfiller> {
    // SAFETY: the future exists as long as the borrow.
    let attached = unsafe { attached(future.as_raw()) }.ok_or(Errno::EINVAL)?;
    Ok(Fulfiller(Rc::clone(&attached.target)))
}

/// # Safety
/// Called by the host with what [`promise`] registered.
unsafe extern "C" fn on_init(f: *mut flux_future_t, arg: *mut c_void) {
    guard_ok(|| {
        // SAFETY: lives as long as the future that calls us.
        let attached = unsafe { userdata::borrow::<Attached>(arg) };
        let fulfiller = Fulfiller(Rc::clone(&attached.target));
        match context(f, attached) {
            Ok(context) => {
                // A second context while the first runs init is ignored.
                let _ = attached.init.call(|init| init(&fulfiller, context));
            }
            Err(error) => fulfiller.fatal_error(&error),
        }
    });
    if guard::is_poisoned() {
        // Whoever waits must not wait for ever.
        guard::destructor(|| {
            if let Some(raw) = NonNull::new(f) {
                let error = Error::with_text(Errno::ENOTRECOVERABLE, "internal error");
                Fulfiller(Rc::new(Cell::new(Some(raw)))).fatal_error(&error);
            }
        });
    }
}

fn context(f: *mut flux_future_t, attached: &Attached) -> Result<Context> {
    let core = host::core()?;
    let lessor = attached.lessor.as_ref().ok_or(Errno::ECANCELED)?;
    // SAFETY: the future calls us.
    let reactor = check_ptr(unsafe { core.flux_future_get_reactor(f) })
        .context("the future has no reactor")?;
    // SAFETY: the future keeps both contexts' reactors; the lease ends first.
    let reactor = unsafe { Reactor::leased(reactor, lessor.lease()) };
    // SAFETY: the future calls us.
    let handle = NonNull::new(unsafe { core.flux_future_get_flux(f) });
    // SAFETY: as for the reactor.
    let handle = handle.map(|h| unsafe { Handle::leased(h, lessor.lease()) });
    Ok(Context { handle, reactor })
}

/// Our state in a future; `None` for a future of somebody else.
///
/// # Safety
/// `f` is NULL or a future that exists for `'a`.
unsafe fn attached<'a>(f: *mut flux_future_t) -> Option<&'a Attached> {
    let core = host::core().ok()?;
    if f.is_null() {
        return None;
    }
    // SAFETY: the future exists.
    let found = unsafe { core.flux_future_aux_get(f, KEY.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: only promise() uses KEY.
    Some(unsafe { userdata::borrow::<Attached>(found) })
}

/// Calls `f` with the state that [`Fulfiller::attach`] left in a future.
///
/// # Errors
/// EINVAL if the future is NULL, not ours, or has no state of that type.
///
/// # Safety
/// `f` is NULL or a future that exists; it is not destroyed by `read`.
pub unsafe fn state<T: 'static, R>(
    f: *mut flux_future_t,
    read: impl FnOnce(&mut T) -> R,
) -> Result<R> {
    // SAFETY: as the caller vouches.
    let attached = unsafe { attached(f) }.ok_or(Errno::EINVAL)?;
    let mut state = attached.state.try_borrow_mut().map_err(|_| Errno::EBUSY)?;
    let state = state.as_mut().and_then(|state| state.downcast_mut::<T>());
    Ok(read(state.ok_or(Errno::EINVAL)?))
}

/// True if the future was made by [`promise`].
///
/// # Safety
/// `f` is NULL or a future that exists.
pub unsafe fn is_ours(f: *mut flux_future_t) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { attached(f) }.is_some()
}

/// True if a future has a result that has not been reset.
///
/// # Safety
/// `f` is NULL or a future that exists.
pub unsafe fn is_ready(f: *mut flux_future_t) -> bool {
    // SAFETY: as the caller vouches.
    host::core().is_ok_and(|core| unsafe { core.flux_future_is_ready(f) })
}

/// True if the result of a future is an error.
///
/// # Safety
/// `f` is NULL or a future that exists.
pub unsafe fn has_error(f: *mut flux_future_t) -> bool {
    // SAFETY: as the caller vouches.
    host::core().is_ok_and(|core| unsafe { core.flux_future_has_error(f) })
}

/// The result of a future of ours; waits for it.
///
/// # Errors
/// The error that is the result; EINVAL if the future is NULL, not ours, or
/// the result is of another type.
///
/// # Safety
/// `f` is NULL or a future that exists, and is neither reset nor destroyed,
/// for `'a`.
pub unsafe fn result<'a, T: 'static>(f: *mut flux_future_t) -> Result<&'a T> {
    let core = host::core()?;
    // SAFETY: as the caller vouches.
    if !unsafe { is_ours(f) } {
        return Err(Error::with_text(
            Errno::EINVAL,
            "not a future of flux-bcast",
        ));
    }
    let mut value: *const c_void = ptr::null();
    // SAFETY: the future exists; a place for the result.
    let rc = unsafe { core.flux_future_get(f, &raw mut value) };
    if let Err(error) = check_rc(rc) {
        return Err(match NonNull::new(f) {
            Some(f) => future::with_text(f, error),
            None => error,
        });
    }
    if value.is_null() {
        return Err(Error::new(Errno::EINVAL));
    }
    // SAFETY: all results of our futures are Tagged, whose tag comes first.
    if unsafe { *value.cast::<TypeId>() } != TypeId::of::<T>() {
        return Err(Error::new(Errno::EINVAL));
    }
    // SAFETY: the tag says so; the result lives until reset or destroyed.
    Ok(unsafe { &(*value.cast::<Tagged<T>>()).value })
}
