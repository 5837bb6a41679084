//! `flux_open` and what belongs to a handle.

use std::ffi::{c_char, c_int};
use std::rc::Rc;

use super::{borrow, fail, give, status, take, text};
use crate::errno::Errno;
use crate::host::handle::Handle;
use crate::host::reactor::Reactor;

/// A number attribute.
fn number(h: &Handle, name: &str, out: *mut u32) -> i32 {
    let value = h
        .attr_string(name)
        .and_then(|s| s.parse::<u32>().map_err(|_| Errno(libc::EPROTO)));
    match value {
        Ok(n) if !out.is_null() => {
            // SAFETY: the caller of the exported function gives a valid place.
            unsafe { *out = n };
            0
        }
        Ok(_) => fail(libc::EINVAL, -1),
        Err(e) => fail(e.0, -1),
    }
}

crate::export! {
    fn flux_open(uri: *const c_char, _flags: c_int) -> *const Handle {
        match Handle::open(text(uri).as_deref()) {
            Ok(h) => give(h),
            Err(e) => fail(e.0, std::ptr::null()),
        }
    }

    fn flux_close(h: *const Handle) {
        let saved = crate::errno::get();
        if let Some(h) = take(h) {
            h.decref();
        }
        crate::errno::set(saved);
    }

    fn flux_attr_get(h: *const Handle, name: *const c_char) -> *const c_char {
        let (Some(h), Some(name)) = (borrow(h), text(name)) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        h.attr(&name).unwrap_or_else(|e| fail(e.0, std::ptr::null()))
    }

    fn flux_get_rank(h: *const Handle, rank: *mut u32) -> c_int {
        match borrow(h) {
            Some(h) => number(&h, "rank", rank),
            None => fail(libc::EINVAL, -1),
        }
    }

    fn flux_get_size(h: *const Handle, size: *mut u32) -> c_int {
        match borrow(h) {
            Some(h) => number(&h, "size", size),
            None => fail(libc::EINVAL, -1),
        }
    }

    fn flux_get_reactor(h: *const Handle) -> *const Reactor {
        match borrow(h) {
            // The handle keeps its reactor: the pointer lives as long as it.
            Some(h) => Rc::as_ptr(&h.reactor()),
            None => fail(libc::EINVAL, std::ptr::null()),
        }
    }

    fn flux_set_reactor(h: *const Handle, r: *const Reactor) -> c_int {
        let (Some(h), Some(r)) = (borrow(h), borrow(r)) else {
            return fail(libc::EINVAL, -1);
        };
        status(h.set_reactor(r))
    }
}
