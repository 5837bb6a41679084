//! The C functions that start a transfer and call it off.

use std::ffi::c_char;
use std::ffi::c_int;
use std::rc::Rc;

use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::flux_future_t;
use crate::ffi::types::flux_jobid_t;
use crate::ffi::types::flux_t;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::guard::guard;
use crate::flux::handle::Handle;
use crate::flux::job::JobId;
use crate::flux::promise;

use super::functions::text;
use super::functions::transfer;
use super::options::Options;
use super::opts::borrow;
use super::transfer::Transfer;

/// The job to send to.
struct Target {
    job: JobId,
    /// Instance that runs it, if it is not that of the caller's handle.
    uri: Option<String>,
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `h` is NULL or an open handle of this thread, `opts` NULL or an option
/// object.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_start(
    h: *mut flux_t,
    id: flux_jobid_t,
    opts: *const Options,
) -> *mut flux_future_t {
    guard(|| {
        // SAFETY: as the caller vouches.
        let opts = unsafe { borrow(opts) }?;
        host::init_client().map_err(Error::from)?;
        // SAFETY: as the caller vouches; the view ends with this call.
        let handle = unsafe { Handle::from_raw(h) }?;
        let target = Target {
            job: JobId(id),
            uri: None,
        };
        start(handle, target, opts)
    })
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `h` is NULL or an open handle of this thread, `opts` NULL or an option
/// object.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_start_enclosing(
    h: *mut flux_t,
    opts: *const Options,
) -> *mut flux_future_t {
    guard(|| {
        // SAFETY: as the caller vouches.
        let opts = unsafe { borrow(opts) }?;
        host::init_client().map_err(Error::from)?;
        // SAFETY: as the caller vouches; the view ends with this call.
        let handle = unsafe { Handle::from_raw(h) }?;
        let attribute = |name| handle.attr_get(name)?.ok_or(Error::new(Errno::ENOENT));
        let target = Target {
            job: JobId::parse(&attribute("jobid")?)?,
            uri: Some(attribute("parent-uri")?),
        };
        start(handle, target, opts)
    })
}

fn start(handle: Handle, target: Target, opts: &Options) -> Result<*mut flux_future_t> {
    let name = target.job.f58()?;
    let mut send = Some(opts.send(target.job, name)?);
    let transfer = Rc::new(Transfer::new(opts.nowait()));
    let weak = Rc::downgrade(&transfer);
    let own = handle.as_raw();
    let future = promise::promise(Some(handle), move |fulfiller, context| {
        let Some(transfer) = weak.upgrade() else {
            return;
        };
        match send.take() {
            Some(send) => transfer.begin(fulfiller, context, target.uri.as_deref(), send),
            // A blocking caller has a handle of its own; it gets EDEADLK, for
            // nothing runs in its reactor.
            None if context.handle.is_some_and(|handle| handle.as_raw() == own) => {
                transfer.refuse(fulfiller);
            }
            None => {}
        }
    })?;
    promise::fulfiller(&future)?.attach(transfer);
    Ok(future.into_raw().as_ptr())
}

/// See `include/flux-bcast.h`.
///
/// # Safety
/// `f` is NULL or a future, `reason` NULL or a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to C by name")]
pub unsafe extern "C" fn flux_bcast_cancel(
    f: *mut flux_future_t,
    reason: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller vouches.
        let transfer = unsafe { transfer(f) }?;
        // SAFETY: as the caller vouches.
        let reason = unsafe { text(reason) }.unwrap_or("cancelled".into());
        transfer.cancel(Failure::client(libc::ECANCELED, reason));
        Ok::<_, Errno>(0)
    })
}
