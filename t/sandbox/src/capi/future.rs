//! `flux_future_*`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::rc::Rc;

use super::{borrow, fail, give, status, take, text};
use crate::errno::Errno;
use crate::host::aux::Free;
use crate::host::future::{Future, Init};
use crate::host::handle::Handle;
use crate::host::outcome::Value;
use crate::host::reactor::Reactor;

/// A function that gets a future: init or continuation.
pub type Callback = unsafe extern "C" fn(f: *const Future, arg: *mut c_void);

fn call(cb: Callback, f: &Rc<Future>, arg: *mut c_void) {
    // SAFETY: the user gave the function and its argument for this future,
    // which lives while it runs.
    unsafe { cb(Rc::as_ptr(f), arg) }
}

crate::export! {
    fn flux_future_create(cb: Option<Callback>, arg: *mut c_void) -> *const Future {
        let init = cb.map(|cb| -> Init { Box::new(move |f| call(cb, f, arg)) });
        give(Future::new(init))
    }

    fn flux_future_destroy(f: *const Future) {
        let saved = crate::errno::get();
        if let Some(f) = take(f) {
            f.destroy();
        }
        crate::errno::set(saved);
    }

    fn flux_future_then(
        f: *const Future,
        timeout: f64,
        cb: Option<Callback>,
        arg: *mut c_void,
    ) -> c_int {
        let (Some(f), Some(cb)) = (borrow(f), cb) else {
            return fail(libc::EINVAL, -1);
        };
        status(f.then(timeout, Rc::new(move |f| call(cb, f, arg))))
    }

    fn flux_future_wait_for(f: *const Future, timeout: f64) -> c_int {
        match borrow(f) {
            Some(f) => status(f.wait_for(timeout)),
            None => fail(libc::EINVAL, -1),
        }
    }

    fn flux_future_is_ready(f: *const Future) -> bool {
        borrow(f).is_some_and(|f| f.is_ready())
    }

    fn flux_future_reset(f: *const Future) {
        if let Some(f) = borrow(f) {
            f.reset();
        }
    }

    fn flux_future_get(f: *const Future, result: *mut *const c_void) -> c_int {
        let Some(f) = borrow(f) else {
            return fail(libc::EINVAL, -1);
        };
        match f.get() {
            Ok((value, _)) => {
                if !result.is_null() {
                    *result = value;
                }
                0
            }
            Err(e) => fail(e.0, -1),
        }
    }

    fn flux_future_fulfill(f: *const Future, result: *mut c_void, free_fn: Option<Free>) {
        if let Some(f) = borrow(f) {
            f.fulfill(Value::from_c(result, free_fn));
        }
    }

    fn flux_future_fulfill_error(f: *const Future, errnum: c_int, errstr: *const c_char) {
        if let Some(f) = borrow(f) {
            f.fulfill_error(Errno(errnum), text(errstr).as_deref());
        }
    }

    fn flux_future_fatal_error(f: *const Future, errnum: c_int, errstr: *const c_char) {
        if let Some(f) = borrow(f) {
            f.fatal_error(Errno(errnum), text(errstr).as_deref());
        }
    }

    fn flux_future_has_error(f: *const Future) -> bool {
        borrow(f).is_some_and(|f| f.has_error())
    }

    fn flux_future_error_string(f: *const Future) -> *const c_char {
        borrow(f)
            .and_then(|f| f.error_text())
            .unwrap_or(std::ptr::null())
    }

    fn flux_future_aux_get(f: *const Future, name: *const c_char) -> *mut c_void {
        let Some(f) = borrow(f).filter(|_| !name.is_null()) else {
            return fail(libc::EINVAL, std::ptr::null_mut());
        };
        f.aux
            .get(CStr::from_ptr(name).to_bytes())
            .unwrap_or_else(|e| fail(e.0, std::ptr::null_mut()))
    }

    fn flux_future_aux_set(
        f: *const Future,
        name: *const c_char,
        aux: *mut c_void,
        destroy: Option<Free>,
    ) -> c_int {
        let Some(f) = borrow(f) else {
            return fail(libc::EINVAL, -1);
        };
        let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes());
        status(f.aux.set(name, aux, destroy))
    }

    fn flux_future_set_flux(f: *const Future, h: *const Handle) {
        if let Some(f) = borrow(f) {
            f.set_flux(borrow(h));
        }
    }

    fn flux_future_get_flux(f: *const Future) -> *const Handle {
        let Some(f) = borrow(f) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        match f.flux() {
            // The future keeps it: the pointer lives as long as that.
            Ok(h) => Rc::as_ptr(&h),
            Err(e) => fail(e.0, std::ptr::null()),
        }
    }

    fn flux_future_get_reactor(f: *const Future) -> *const Reactor {
        let Some(f) = borrow(f) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        match f.reactor() {
            Ok(r) => Rc::as_ptr(&r),
            Err(e) => fail(e.0, std::ptr::null()),
        }
    }
}
