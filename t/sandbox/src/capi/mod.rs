//! The functions of `include/flux_abi.h` that libflux-core has, exported to C.
//!
//! To add one: declare it in `include/flux_abi.h`, define it here in the file of
//! its subject with `export!` (in `src/bin/flux-shell/capi.rs` when it is one
//! of the shell; in `csrc/variadic.c` when it is variadic), and nothing else:
//! both libraries export every such function.
#![expect(unsafe_code, reason = "the C boundary")]
#![allow(
    clippy::macro_metavars_in_unsafe,
    reason = "what `export!` is given is the body of an unsafe function"
)]

use std::ffi::{CStr, CString, c_char};
use std::rc::Rc;

use crate::errno::{self, Errno};

pub mod future;
pub mod handle;
pub mod job;
pub mod message;
pub mod plugin;
pub mod reactor;
pub mod rpc;

/// Defines exported C functions. The body may use what C passed in.
#[macro_export]
macro_rules! export {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        #[doc = concat!("See `", stringify!($name), "(3)` of Flux.")]
        ///
        /// # Safety
        /// Pointers are NULL where the manual allows it, else from this library
        /// (or valid for what the manual says), and used on one thread.
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some bodies need none")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            // SAFETY: by the contract above, which C callers of Flux keep to.
            unsafe { $body }
        }
    )*};
}

/// Counts a reference to the object behind a C pointer.
///
/// # Safety
/// `p` is NULL or came from [`give`] and has not been taken back.
pub unsafe fn borrow<T>(p: *const T) -> Option<Rc<T>> {
    if p.is_null() {
        return None;
    }
    // SAFETY: by the contract, an Rc owned by C is behind `p`.
    unsafe {
        Rc::increment_strong_count(p);
        Some(Rc::from_raw(p))
    }
}

/// Gives an object to C.
pub fn give<T>(object: Rc<T>) -> *const T {
    Rc::into_raw(object)
}

/// Takes back what C had.
///
/// # Safety
/// As [`borrow`]; C does not use `p` again.
pub unsafe fn take<T>(p: *const T) -> Option<Rc<T>> {
    if p.is_null() {
        return None;
    }
    // SAFETY: by the contract, C gives up its reference.
    Some(unsafe { Rc::from_raw(p) })
}

/// A C string as text; bytes that are no UTF-8 are replaced.
///
/// # Safety
/// `s` is NULL or a C string.
pub unsafe fn text(s: *const c_char) -> Option<String> {
    if s.is_null() {
        return None;
    }
    // SAFETY: by the contract.
    Some(unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned())
}

/// A C string with any bytes, where Flux takes them as they are.
///
/// # Safety
/// As [`text`].
pub unsafe fn bytes(s: *const c_char) -> Option<CString> {
    if s.is_null() {
        return None;
    }
    // SAFETY: by the contract.
    Some(unsafe { CStr::from_ptr(s) }.to_owned())
}

/// 0, or -1 with errno(3) set.
pub fn status(result: Result<(), Errno>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(e) => fail(e.0, -1),
    }
}

/// `value` with errno(3) set.
pub fn fail<T>(errnum: i32, value: T) -> T {
    errno::set(Errno(errnum));
    value
}

/// A malloc'd copy of `text`, as C frees strings with free(3).
pub fn malloc_string(text: &(impl AsRef<[u8]> + ?Sized)) -> *mut c_char {
    let c = crate::wire::name(text);
    // SAFETY: a C string; strdup copies it.
    unsafe { libc::strdup(c.as_ptr()) }
}
