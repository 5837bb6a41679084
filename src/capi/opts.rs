//! The C functions of the option object.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::flux::error::Result;
use crate::flux::guard::destructor;
use crate::flux::guard::guard;
use crate::flux::guard::guard_ok;

use super::functions::name;
use super::functions::text;
use super::options::Options;
use super::options::refuse;

/// The option object behind a pointer of the caller.
///
/// # Errors
/// `EINVAL` for NULL.
///
/// # Safety
/// `opts` is NULL or came from [`flux_bcast_opts_create`], and is not changed
/// or destroyed for `'a`.
pub(super) unsafe fn borrow<'a>(opts: *const Options) -> Result<&'a Options> {
    // SAFETY: as the caller vouches.
    Ok(unsafe { opts.as_ref() }.ok_or(Errno::EINVAL)?)
}

/// Calls a setter on the option object behind a pointer; 0 or the error.
///
/// # Safety
/// `opts` is NULL or came from [`flux_bcast_opts_create`], and is used by
/// nobody else.
unsafe fn change(opts: *mut Options, set: impl FnOnce(&mut Options) -> Result<()>) -> c_int {
    guard(|| {
        // SAFETY: as the caller vouches.
        let opts = unsafe { opts.as_mut() }.ok_or(Errno::EINVAL)?;
        let done = set(opts);
        opts.note(done).map(|()| 0)
    })
}

/// A descriptor of the caller.
///
/// # Safety
/// An open one is not closed for `'a`.
unsafe fn descriptor<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Errno::EBADF.into());
    }
    // SAFETY: not -1, and the caller vouches for the rest. One that is not
    // open is found out when it is duplicated.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A path or name that the caller must give.
///
/// # Safety
/// `ptr` is NULL or a C string.
unsafe fn needed(ptr: *const c_char) -> Result<RawName> {
    // SAFETY: as the caller vouches.
    unsafe { name(ptr) }.ok_or_else(|| refuse("a path or a name is NULL"))
}

/// See `include/flux-bcast.h`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub extern "C" fn flux_bcast_opts_create() -> *mut Options {
    guard_ok(|| Box::into_raw(Box::default()))
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or came from [`flux_bcast_opts_create`], and is not used
/// afterwards.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_destroy(opts: *mut Options) {
    destructor(|| {
        if !opts.is_null() {
            // SAFETY: as the caller vouches.
            drop(unsafe { Box::from_raw(opts) });
        }
    });
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or an option object, the strings NULL or C strings.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_add_path(
    opts: *mut Options,
    path: *const c_char,
    copy_name: *const c_char,
) -> c_int {
    let set = |opts: &mut Options| {
        // SAFETY: as the caller vouches.
        let path = unsafe { needed(path) }?;
        // SAFETY: as the caller vouches.
        opts.add_path(path, unsafe { name(copy_name) })
    };
    // SAFETY: as the caller vouches.
    unsafe { change(opts, set) }
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or an option object, the name NULL or a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_add_fd(
    opts: *mut Options,
    fd: c_int,
    copy_name: *const c_char,
) -> c_int {
    let set = |opts: &mut Options| {
        // SAFETY: as the caller vouches.
        let name = unsafe { needed(copy_name) }?;
        // SAFETY: nothing closes it during the call.
        opts.add_fd(unsafe { descriptor(fd) }?, name)
    };
    // SAFETY: as the caller vouches.
    unsafe { change(opts, set) }
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or an option object, `data` NULL or `size` readable bytes,
/// the name NULL or a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_add_memory(
    opts: *mut Options,
    data: *const c_void,
    size: usize,
    copy_name: *const c_char,
) -> c_int {
    let set = |opts: &mut Options| {
        // SAFETY: as the caller vouches.
        let name = unsafe { needed(copy_name) }?;
        if size == 0 {
            return opts.add_memory(&[], name);
        }
        if data.is_null() || isize::try_from(size).is_err() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not NULL, not too long, and the caller vouches for the rest.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
        opts.add_memory(data, name)
    };
    // SAFETY: as the caller vouches.
    unsafe { change(opts, set) }
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or an option object, the name NULL or a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_add_stream(
    opts: *mut Options,
    fd: c_int,
    copy_name: *const c_char,
) -> c_int {
    let set = |opts: &mut Options| {
        // SAFETY: as the caller vouches.
        let name = unsafe { needed(copy_name) }?;
        // SAFETY: nothing closes it during the call.
        opts.add_stream(unsafe { descriptor(fd) }?, name)
    };
    // SAFETY: as the caller vouches.
    unsafe { change(opts, set) }
}

/// Defines setters of a C string, which NULL takes back; `$read` says what it is
/// read as, a name in any encoding or a text.
macro_rules! string_setters {
    ($($function:ident($read:ident) => $method:ident;)*) => {$(
        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `opts` is NULL or an option object, the string NULL or a C string.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $function(
            opts: *mut Options,
            value: *const c_char,
        ) -> c_int {
            // SAFETY: as the caller vouches.
            let set = |opts: &mut Options| opts.$method(unsafe { $read(value) });
            // SAFETY: as the caller vouches.
            unsafe { change(opts, set) }
        }
    )*};
}

string_setters! {
    flux_bcast_opts_set_dest(name) => set_dest;
    flux_bcast_opts_set_libs_dir(name) => set_libs_dir;
    flux_bcast_opts_set_exclude_libs(name) => set_exclude_libs;
    flux_bcast_opts_set_ranks(text) => set_ranks;
    flux_bcast_opts_set_hosts(text) => set_hosts;
    flux_bcast_opts_set_exclude_ranks(text) => set_exclude_ranks;
    flux_bcast_opts_set_exclude_hosts(text) => set_exclude_hosts;
}

/// Defines setters of a number.
macro_rules! number_setters {
    ($($function:ident ($type:ty) => $method:ident;)*) => {$(
        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `opts` is NULL or an option object.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $function(opts: *mut Options, value: $type) -> c_int {
            // SAFETY: as the caller vouches.
            unsafe { change(opts, |opts| opts.$method(value)) }
        }
    )*};
}

number_setters! {
    flux_bcast_opts_set_from(i64) => set_from;
    flux_bcast_opts_set_flags(c_int) => set_flags;
    flux_bcast_opts_set_mode(u32) => set_mode;
    flux_bcast_opts_set_fanout(u32) => set_fanout;
    flux_bcast_opts_set_chunk(u32) => set_chunk;
    flux_bcast_opts_set_batch(u32) => set_batch;
    flux_bcast_opts_set_window(u64) => set_window;
    flux_bcast_opts_set_pace(u64) => set_pace;
    flux_bcast_opts_set_timeout(f64) => set_timeout;
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or an option object.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_get_error_text(opts: *const Options) -> *const c_char {
    // SAFETY: as the caller vouches.
    guard(|| unsafe { borrow(opts) }.map(Options::error))
}
