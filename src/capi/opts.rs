//! The C functions of the option object.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use crate::errno::Errno;
use crate::flux::guard::destructor;
use crate::flux::guard::guard;
use crate::flux::guard::guard_ok;

use super::functions::name;
use super::functions::text;
use super::options::Options;

/// The option object behind a pointer of the caller.
///
/// # Errors
/// `EINVAL` for NULL.
///
/// # Safety
/// `opts` is NULL or came from [`flux_bcast_opts_create`], and is not changed
/// or destroyed for `'a`.
pub(super) unsafe fn borrow<'a>(opts: *const Options) -> Result<&'a Options, Errno> {
    // SAFETY: as the caller vouches.
    unsafe { opts.as_ref() }.ok_or(Errno::EINVAL)
}

/// Calls a setter on the option object behind a pointer; 0 or the error.
///
/// # Safety
/// `opts` is NULL or came from [`flux_bcast_opts_create`], and is used by
/// nobody else.
unsafe fn change(
    opts: *mut Options,
    set: impl FnOnce(&mut Options) -> Result<(), Errno>,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller vouches.
        let opts = unsafe { opts.as_mut() }.ok_or(Errno::EINVAL)?;
        set(opts).map(|()| 0)
    })
}

/// A descriptor of the caller.
///
/// # Safety
/// An open one is not closed for `'a`.
unsafe fn descriptor<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: not -1, and the caller vouches for the rest. One that is not
    // open is found out when it is duplicated.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
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
        let path = unsafe { name(path) }.ok_or(Errno::EINVAL)?;
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
        let name = unsafe { name(copy_name) }.ok_or(Errno::EINVAL)?;
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
        let name = unsafe { name(copy_name) }.ok_or(Errno::EINVAL)?;
        if size == 0 {
            return opts.add_memory(&[], name);
        }
        if data.is_null() || isize::try_from(size).is_err() {
            return Err(Errno::EINVAL);
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
        let name = unsafe { name(copy_name) }.ok_or(Errno::EINVAL)?;
        // SAFETY: nothing closes it during the call.
        opts.add_stream(unsafe { descriptor(fd) }?, name)
    };
    // SAFETY: as the caller vouches.
    unsafe { change(opts, set) }
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `opts` is NULL or an option object, the path NULL or a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_opts_set_dest(
    opts: *mut Options,
    path: *const c_char,
) -> c_int {
    // SAFETY: as the caller vouches.
    let set = |opts: &mut Options| opts.set_dest(unsafe { name(path) });
    // SAFETY: as the caller vouches.
    unsafe { change(opts, set) }
}

/// Defines setters of a text, which NULL takes back.
macro_rules! text_setters {
    ($($function:ident => $method:ident;)*) => {$(
        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `opts` is NULL or an option object, the text NULL or a C string.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $function(
            opts: *mut Options,
            value: *const c_char,
        ) -> c_int {
            // SAFETY: as the caller vouches.
            let set = |opts: &mut Options| opts.$method(unsafe { text(value) }.as_deref());
            // SAFETY: as the caller vouches.
            unsafe { change(opts, set) }
        }
    )*};
}

text_setters! {
    flux_bcast_opts_set_ranks => set_ranks;
    flux_bcast_opts_set_hosts => set_hosts;
    flux_bcast_opts_set_exclude_ranks => set_exclude_ranks;
    flux_bcast_opts_set_exclude_hosts => set_exclude_hosts;
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
    flux_bcast_opts_set_flags(c_int) => set_flags;
    flux_bcast_opts_set_mode(u32) => set_mode;
    flux_bcast_opts_set_fanout(u32) => set_fanout;
    flux_bcast_opts_set_chunk(u32) => set_chunk;
    flux_bcast_opts_set_batch(u32) => set_batch;
    flux_bcast_opts_set_window(u64) => set_window;
    flux_bcast_opts_set_timeout(f64) => set_timeout;
}
