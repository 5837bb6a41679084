//! The C functions about progress and result, and what all C functions need to
//! read their arguments.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::ffi::types::flux_future_t;
use crate::flux::cstr;
use crate::flux::guard;
use crate::flux::guard::guard;
use crate::flux::promise;

use super::report::Copy;
use super::report::Listed;
use super::report::Rank;
use super::report::Report;
use super::transfer::Final;
use super::transfer::Transfer;

/// Total of a transfer whose size is not known.
const SIZE_UNKNOWN: u64 = u64::MAX;

/// A path or name of the caller; `None` for NULL.
///
/// # Safety
/// `ptr` is NULL or a C string.
pub(super) unsafe fn name(ptr: *const c_char) -> Option<RawName> {
    // SAFETY: as the caller vouches.
    unsafe { cstr::borrow(ptr) }.map(|name| RawName::new(name.to_bytes()))
}

/// A text of the caller; `None` for NULL.
///
/// # Safety
/// `ptr` is NULL or a C string.
pub(super) unsafe fn text(ptr: *const c_char) -> Option<String> {
    // SAFETY: as the caller vouches.
    unsafe { cstr::borrow(ptr) }.map(|text| text.to_string_lossy().into_owned())
}

/// The transfer of a future; strings in it live as long as the future.
///
/// # Errors
/// `EINVAL` if it is no future of ours.
///
/// # Safety
/// `f` is NULL or a future.
pub(super) unsafe fn transfer(f: *mut flux_future_t) -> Result<Rc<Transfer>, Errno> {
    // SAFETY: as the caller vouches.
    unsafe { promise::state(f, |transfer: &mut Rc<Transfer>| Rc::clone(transfer)) }
        .map_err(Errno::from)
}

/// Reads something of the result.
///
/// # Safety
/// `f` is NULL or a future.
unsafe fn of_report<T>(
    f: *mut flux_future_t,
    read: impl FnOnce(&Report) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: as the caller vouches.
    let transfer = unsafe { transfer(f) }?;
    read(transfer.report().ok_or(Errno::EAGAIN)?)
}

/// Reads something of one target rank.
///
/// # Safety
/// `f` is NULL or a future.
unsafe fn of_rank<T>(
    f: *mut flux_future_t,
    index: c_int,
    read: impl FnOnce(&Rank) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: as the caller vouches.
    unsafe { of_report(f, |report| read(item(&report.ranks, index)?)) }
}

fn item<T>(items: &[T], index: c_int) -> Result<&T, Errno> {
    let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
    items.get(index).ok_or(Errno::EINVAL)
}

fn number(value: u64) -> Result<i64, Errno> {
    i64::try_from(value).map_err(|_| Errno::EOVERFLOW)
}

fn count(items: usize) -> Result<c_int, Errno> {
    c_int::try_from(items).map_err(|_| Errno::EOVERFLOW)
}

/// Stores a value where the caller wants it.
///
/// # Safety
/// `place` is NULL or may be written to.
unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not NULL, and the caller vouches for the rest.
        unsafe { ptr::write(place, value) };
    }
}

/// See `include/flux-bcast.h`.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub extern "C" fn flux_bcast_version_string() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_is_final(f: *mut flux_future_t) -> bool {
    // After a panic nothing more comes.
    guard::is_poisoned()
        || guard(|| {
            // SAFETY: as the caller vouches.
            let transfer = unsafe { transfer(f) }?;
            // SAFETY: as the caller vouches.
            if !unsafe { promise::is_ready(f) } {
                return Ok(false);
            }
            // SAFETY: as the caller vouches.
            if unsafe { promise::has_error(f) } {
                return Ok(transfer.is_over());
            }
            // SAFETY: as the caller vouches; ready, so this does not wait.
            let value = unsafe { promise::result::<Final>(f) };
            Ok::<_, Errno>(value.is_ok())
        })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_state(f: *mut flux_future_t) -> c_int {
    // SAFETY: as the caller vouches.
    guard(|| unsafe { transfer(f) }.map(|transfer| transfer.state() as c_int))
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future, the places are NULL or may be written to.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_progress(
    f: *mut flux_future_t,
    done: *mut u64,
    total: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller vouches.
        let progress = unsafe { transfer(f) }?.progress();
        // SAFETY: as the caller vouches.
        unsafe { put(done, progress.0) };
        // SAFETY: as the caller vouches.
        unsafe { put(total, progress.1.unwrap_or(SIZE_UNKNOWN)) };
        Ok::<_, Errno>(0)
    })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_transfer_id(f: *mut flux_future_t) -> *const c_char {
    guard(|| {
        // SAFETY: as the caller vouches.
        let transfer = unsafe { transfer(f) }?;
        let id = transfer.id().ok_or(Errno::EAGAIN)?;
        Ok::<_, Errno>(id.as_ptr())
    })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_notes(f: *mut flux_future_t) -> *const c_char {
    // SAFETY: as the caller vouches; the notes live as long as the future.
    guard(|| unsafe { transfer(f) }.map(|transfer| transfer.notes().as_ptr()))
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_errnum(f: *mut flux_future_t) -> c_int {
    let read = |report: &Report| Ok(report.errno.map_or(0, Errno::raw));
    // SAFETY: as the caller vouches.
    guard(|| unsafe { of_report(f, read) })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_error_text(f: *mut flux_future_t) -> *const c_char {
    // SAFETY: as the caller vouches.
    guard(|| unsafe { of_report(f, |report| Ok(report.text.as_ptr())) })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future, the places are NULL or may be written to.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_stats(
    f: *mut flux_future_t,
    bytes: *mut u64,
    seconds: *mut f64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller vouches.
        let stats = unsafe { of_report(f, |report| Ok((report.bytes, report.seconds))) }?;
        // SAFETY: as the caller vouches.
        unsafe { put(bytes, stats.0) };
        // SAFETY: as the caller vouches.
        unsafe { put(seconds, stats.1) };
        Ok::<_, Errno>(0)
    })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_rank_count(f: *mut flux_future_t) -> c_int {
    guard(|| {
        // SAFETY: as the caller vouches.
        let transfer = unsafe { transfer(f) }?;
        count(transfer.targets().ok_or(Errno::EAGAIN)?)
    })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_rank(f: *mut flux_future_t, index: c_int) -> i64 {
    // SAFETY: as the caller vouches.
    guard(|| unsafe { of_rank(f, index, |rank| Ok(i64::from(rank.rank))) })
}

/// Defines functions that read one thing of a target rank.
macro_rules! rank_getters {
    ($($function:ident -> $type:ty = $read:expr;)*) => {$(
        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `f` is NULL or a future.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $function(f: *mut flux_future_t, index: c_int) -> $type {
            let read: fn(&Rank) -> Result<$type, Errno> = $read;
            // SAFETY: as the caller vouches.
            guard(|| unsafe { of_rank(f, index, read) })
        }
    )*};
}

rank_getters! {
    flux_bcast_get_rank_host -> *const c_char = |rank| Ok(rank.host.as_ptr());
    flux_bcast_get_rank_state -> c_int = |rank| Ok(rank.state as c_int);
    flux_bcast_get_rank_errnum -> c_int = |rank| Ok(rank.errnum);
    flux_bcast_get_rank_error_text -> *const c_char = |rank| Ok(rank.text.as_ptr());
    flux_bcast_get_rank_unchanged -> c_int = |rank| Ok(rank.unchanged.into());
    flux_bcast_get_rank_free -> i64 = |rank| number(rank.free.ok_or(Errno::EINVAL)?);
    flux_bcast_get_rank_library_path -> *const c_char = |rank| Ok(rank.library_path.as_ptr());
    flux_bcast_get_rank_path_count -> c_int = |rank| count(rank.copies.len());
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future, the places are NULL or may be written to.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_get_rank_stats(
    f: *mut flux_future_t,
    index: c_int,
    bytes: *mut u64,
    seconds: *mut f64,
) -> c_int {
    guard(|| {
        let read = |rank: &Rank| Ok((rank.bytes(), rank.seconds));
        // SAFETY: as the caller vouches.
        let stats = unsafe { of_rank(f, index, read) }?;
        // SAFETY: as the caller vouches.
        unsafe { put(bytes, stats.0) };
        // SAFETY: as the caller vouches.
        unsafe { put(seconds, stats.1) };
        Ok::<_, Errno>(0)
    })
}

/// Defines functions that read one thing of a copy.
macro_rules! copy_getters {
    ($($function:ident -> $type:ty = $read:expr;)*) => {$(
        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `f` is NULL or a future.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $function(
            f: *mut flux_future_t,
            index: c_int,
            source: c_int,
        ) -> $type {
            let read: fn(&Copy) -> Result<$type, Errno> = $read;
            let of_copy = |rank: &Rank| read(item(&rank.copies, source)?);
            // SAFETY: as the caller vouches.
            guard(|| unsafe { of_rank(f, index, of_copy) })
        }
    )*};
}

copy_getters! {
    flux_bcast_get_rank_path -> *const c_char = |copy| Ok(copy.path.as_ptr());
    flux_bcast_get_rank_path_size -> i64 = |copy| {
        number(copy.bytes.ok_or(Errno::ENOENT)?)
    };
    flux_bcast_get_rank_path_kind -> c_int = |copy| Ok(listed(copy)?.kind as c_int);
    flux_bcast_get_rank_path_entries -> i64 = |copy| Ok(listed(copy)?.entries);
    flux_bcast_get_rank_path_digest -> *const c_char = |copy| Ok(listed(copy)?.digest.as_ptr());
}

/// Only a list knows so much of a copy.
fn listed(copy: &Copy) -> Result<&Listed, Errno> {
    copy.listed.as_ref().ok_or(Errno::EINVAL)
}
