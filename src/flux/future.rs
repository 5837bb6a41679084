//! Results that come later: responses, job events, anything that fulfils a
//! `flux_future_t`.
//!
//! A [`Future`] may be waited for; [`Future::then`] turns it into a
//! [`Pending`], whose continuation runs in the reactor, once per result. The
//! two are different types because data borrowed from a future must not be
//! reset away by a continuation.

use std::cell::Cell;
use std::ffi::CStr;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::cstr;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_rc;
use super::guard::guard_ok;
use super::slot::Slot;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_future_t;

/// What runs for each result.
type Continuation = dyn FnMut(FutureRef<'_>);

/// A future and the sole right to destroy it.
///
/// Dropping it gives up interest in the result; the peer is not told.
#[derive(Debug)]
#[must_use = "dropping a future discards its result"]
pub struct Future(NonNull<flux_future_t>);

impl Future {
    /// Takes ownership of a future.
    ///
    /// # Safety
    /// The caller owned it, and it belongs to this thread.
    pub unsafe fn from_raw(raw: NonNull<flux_future_t>) -> Future {
        Future(raw)
    }

    /// The C future; the `Future` keeps owning it.
    pub fn as_raw(&self) -> *mut flux_future_t {
        self.0.as_ptr()
    }

    /// Gives the future away, e.g. to a C caller.
    pub fn into_raw(self) -> NonNull<flux_future_t> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    fn view(&self) -> FutureRef<'_> {
        FutureRef {
            raw: self.0,
            owner: PhantomData,
        }
    }

    /// Waits until there is a result; `None` waits for ever. Only messages of
    /// this future are handled meanwhile, no other callback runs.
    ///
    /// # Errors
    /// ETIMEDOUT; EDEADLK if nothing can fulfil the future. Not the error that
    /// is the result.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let core = host::core()?;
        // SAFETY: we own the future.
        let rc = unsafe { core.flux_future_wait_for(self.as_raw(), seconds(timeout)) };
        check_rc(rc).map(drop)
    }

    /// True if the get functions will not wait.
    pub fn is_ready(&self) -> bool {
        self.view().is_ready()
    }

    /// As [`FutureRef::get`]; waits for the result.
    ///
    /// # Errors
    /// As [`FutureRef::get`].
    pub fn get(&self) -> Result<()> {
        self.view().get()
    }

    /// As [`FutureRef::get_raw`]; waits for the result.
    ///
    /// # Errors
    /// As [`FutureRef::get_raw`].
    pub fn get_raw(&self) -> Result<&[u8]> {
        // SAFETY: the payload lives until reset or drop, which borrow rules
        // keep away.
        unsafe { payload(self.0) }
    }

    /// As [`FutureRef::get_json`]; waits for the result.
    ///
    /// # Errors
    /// As [`FutureRef::get_json`].
    pub fn get_json<T: DeserializeOwned>(&self) -> Result<T> {
        self.view().get_json()
    }

    /// Forgets the result, so that the next one may come.
    pub fn reset(&mut self) {
        self.view().reset();
    }

    /// Calls `continuation` in the reactor for every result. To get the next
    /// one it must [`FutureRef::reset`]; it may drop the [`Pending`]. After
    /// `timeout` without a result the result is ETIMEDOUT.
    ///
    /// # Errors
    /// EINVAL if the future has no reactor; ENOMEM.
    pub fn then(
        self,
        timeout: Option<Duration>,
        continuation: impl FnMut(FutureRef<'_>) + 'static,
    ) -> Result<Pending> {
        let core = host::core()?;
        let continued = Rc::new(Continued {
            raw: self.into_raw(),
            slot: Slot::new(Box::new(continuation) as Box<Continuation>),
            missed: Cell::new(false),
        });
        let raw = continued.raw.as_ptr();
        let arg = Rc::into_raw(continued);
        // SAFETY: arg came from into_raw just now.
        let pending = Pending(unsafe { Rc::from_raw(arg) });
        // SAFETY: we own the future. Continued, to which arg points, destroys
        // it in its Drop, so C cannot use arg afterwards (F5).
        let rc = unsafe {
            core.flux_future_then(
                raw,
                seconds(timeout),
                Some(on_result),
                arg.cast_mut().cast::<c_void>(),
            )
        };
        check_rc(rc).context("watch future")?;
        Ok(pending)
    }
}

impl Drop for Future {
    fn drop(&mut self) {
        destroy(self.0);
    }
}

fn destroy(raw: NonNull<flux_future_t>) {
    if let Ok(core) = host::core() {
        // SAFETY: called only by the owner's Drop.
        unsafe { core.flux_future_destroy(raw.as_ptr()) };
    }
}

/// A future with a continuation. Dropping it, also from inside the
/// continuation, ends both.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::future::Pending>();
/// ```
///
/// A continuation may outlive the scope that made it, so it cannot borrow:
///
/// ```compile_fail
/// # use flux_bcast::flux::future::Future;
/// fn count(future: Future) {
///     let mut n = 0;
///     let pending = future.then(None, |f| n += 1);
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it cancels the continuation"]
pub struct Pending(Rc<Continued>);

/// # Invariants
/// C holds a pointer to this, without a count, as long as `raw` exists; `raw`
/// is destroyed by our Drop and nothing else.
struct Continued {
    raw: NonNull<flux_future_t>,
    slot: Slot<Continuation>,
    /// A result came while the continuation was running.
    missed: Cell<bool>,
}

impl fmt::Debug for Continued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Continued").field(&self.raw).finish()
    }
}

impl Pending {
    /// The C future; the `Pending` keeps owning it.
    pub fn as_raw(&self) -> *mut flux_future_t {
        self.0.raw.as_ptr()
    }

    /// True if there is a result that has not been reset.
    pub fn is_ready(&self) -> bool {
        view(self.0.raw).is_ready()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // While the continuation runs, its caller keeps Continued alive.
        self.0.slot.close();
    }
}

impl Drop for Continued {
    fn drop(&mut self) {
        destroy(self.raw);
    }
}

impl Continued {
    fn run(&self) {
        loop {
            self.missed.set(false);
            if self.slot.call(|f| f(view(self.raw))).is_none() {
                // The outer call will look at it.
                self.missed.set(self.slot.is_running());
                return;
            }
            if !(self.slot.is_open() && self.missed.get() && view(self.raw).is_ready()) {
                return;
            }
        }
    }
}

/// For the time of a callback.
fn view<'a>(raw: NonNull<flux_future_t>) -> FutureRef<'a> {
    FutureRef {
        raw,
        owner: PhantomData,
    }
}

/// # Safety
/// Called by the host with what [`Future::then`] registered.
unsafe extern "C" fn on_result(_: *mut flux_future_t, arg: *mut c_void) {
    guard_ok(|| {
        let arg = arg.cast::<Continued>().cast_const();
        // SAFETY: arg came from Rc::into_raw, and Continued exists as long as
        // the future that calls us.
        unsafe { Rc::increment_strong_count(arg) };
        // SAFETY: the count taken above is ours; with it the future outlives
        // the continuation, even if that drops the Pending.
        let continued = unsafe { Rc::from_raw(arg) };
        continued.run();
    });
}

/// A future inside its continuation.
#[derive(Debug)]
pub struct FutureRef<'a> {
    raw: NonNull<flux_future_t>,
    owner: PhantomData<&'a Future>,
}

impl FutureRef<'_> {
    /// True if there is a result.
    pub fn is_ready(&self) -> bool {
        // SAFETY: the owner outlives this view.
        host::core().is_ok_and(|core| unsafe { core.flux_future_is_ready(self.raw.as_ptr()) })
    }

    /// Whether the result is success.
    ///
    /// # Errors
    /// The error that is the result, with the peer's text; ENODATA at the end
    /// of a stream; ETIMEDOUT.
    pub fn get(&self) -> Result<()> {
        let core = host::core()?;
        // SAFETY: the owner outlives this view; no result is wanted.
        let rc = unsafe { core.flux_future_get(self.raw.as_ptr(), ptr::null_mut()) };
        check_rc(rc)
            .map(drop)
            .map_err(|error| with_text(self.raw, error))
    }

    /// The raw payload of a response, not copied; empty if there is none.
    ///
    /// # Errors
    /// As [`FutureRef::get`].
    pub fn get_raw(&self) -> Result<&[u8]> {
        // SAFETY: the payload lives until reset, which consumes self.
        unsafe { payload(self.raw) }
    }

    /// The text payload of a response; `None` if there is none.
    ///
    /// # Errors
    /// As [`FutureRef::get`]; EPROTO if the payload is no string.
    pub fn get_text(&self) -> Result<Option<&CStr>> {
        let core = host::core()?;
        let mut text = ptr::null();
        // SAFETY: the owner outlives this view.
        let rc = unsafe { core.flux_rpc_get(self.raw.as_ptr(), &raw mut text) };
        check_rc(rc).map_err(|error| with_text(self.raw, error))?;
        // SAFETY: the payload lives until reset, which consumes self.
        Ok(unsafe { cstr::borrow(text) })
    }

    /// The JSON payload of a response.
    ///
    /// # Errors
    /// As [`FutureRef::get`]; EPROTO if it is not what `T` expects.
    pub fn get_json<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.get_text()?.ok_or_else(|| {
            Error::with_text(Errno::EPROTO, "the response has no JSON payload")
        })?;
        serde_json::from_slice(text.to_bytes()).context("malformed response")
    }

    /// Forgets the result, so that the next one may come.
    pub fn reset(self) {
        if let Ok(core) = host::core() {
            // SAFETY: the owner outlives this view.
            unsafe { core.flux_future_reset(self.raw.as_ptr()) };
        }
    }

    /// The C future, for functions of C that read a result.
    pub(crate) fn as_raw(&self) -> *mut flux_future_t {
        self.raw.as_ptr()
    }
}

/// The raw payload of a response.
///
/// # Safety
/// The future exists, and is not reset, for `'a`.
unsafe fn payload<'a>(raw: NonNull<flux_future_t>) -> Result<&'a [u8]> {
    let core = host::core()?;
    // Zero beforehand: Flux 0.58 has an int there, and fills in half of the length.
    let (mut data, mut len) = (ptr::null(), 0);
    // SAFETY: the future exists, as the caller vouches.
    let rc = unsafe { core.flux_rpc_get_raw(raw.as_ptr(), &raw mut data, &raw mut len) };
    check_rc(rc).map_err(|error| with_text(raw, error))?;
    if data.is_null() || len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the future keeps the payload, unchanged, until reset or
    // destroyed (F6).
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// Adds the text that came with an error result.
pub(crate) fn with_text(raw: NonNull<flux_future_t>, error: Error) -> Error {
    let Ok(core) = host::core() else {
        return error;
    };
    // SAFETY: the callers' future exists.
    let text = unsafe { core.flux_future_error_string(raw.as_ptr()) };
    // SAFETY: NULL, or a text that lives until the future is reset.
    match unsafe { cstr::borrow(text) } {
        Some(text) => Error::with_text(error.errno(), cstr::bounded_lossy(text, 4096)),
        None => error,
    }
}

/// C's form of a timeout.
fn seconds(timeout: Option<Duration>) -> f64 {
    timeout.map_or(-1.0, |timeout| timeout.as_secs_f64())
}
