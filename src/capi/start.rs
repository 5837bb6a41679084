//! The C functions that start something and call it off.

use std::ffi::c_char;
use std::ffi::c_int;
use std::rc::Rc;

use crate::bcast::report::Failure;
use crate::client::Target;
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
use super::request::Task;
use super::transfer::Transfer;

/// Begins a task for a job, or for the one that the instance is.
///
/// # Safety
/// `h` is NULL or an open handle of this thread, `opts` NULL or an option
/// object.
unsafe fn begin(
    h: *mut flux_t,
    job: Option<flux_jobid_t>,
    opts: *const Options,
    task: Task,
) -> *mut flux_future_t {
    guard(|| {
        let all = Options::default();
        // SAFETY: as the caller vouches.
        let opts = match unsafe { borrow(opts) } {
            // A list needs none.
            Err(_) if task == Task::List => &all,
            opts => opts?,
        };
        host::init_client().map_err(Error::from)?;
        // SAFETY: as the caller vouches; the view ends with this call.
        let handle = unsafe { Handle::from_raw(h) }?;
        opts.note(start(handle, job.map(JobId), opts, task))
    })
}

fn start(
    handle: Handle,
    job: Option<JobId>,
    opts: &Options,
    task: Task,
) -> Result<*mut flux_future_t> {
    let (job, uri) = match job {
        Some(job) => (job, None),
        None => {
            let attribute = |name| {
                let no_job = || {
                    let text = "this Flux instance is not itself a job";
                    Error::with_text(Errno::ENOENT, text)
                };
                handle.attr_get(name)?.ok_or_else(no_job)
            };
            let job = JobId::parse(&attribute("jobid")?)?;
            (job, Some(attribute("parent-uri")?))
        }
    };
    let target = Target {
        job,
        name: job.f58()?,
        no_wait: false,
    };
    let mut request = Some(opts.request(task, target)?);
    let transfer = Rc::new(Transfer::new());
    let weak = Rc::downgrade(&transfer);
    let own = handle.as_raw();
    let future = promise::promise(Some(handle), move |fulfiller, context| {
        let Some(transfer) = weak.upgrade() else {
            return;
        };
        match request.take() {
            Some(request) => transfer.begin(fulfiller, context, uri.as_deref(), request),
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

/// Defines the functions that begin a task, for a job and for the enclosing one.
macro_rules! starters {
    ($($task:ident: $function:ident, $enclosing:ident;)*) => {$(
        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `h` is NULL or an open handle of this thread, `opts` NULL or an
        /// option object.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $function(
            h: *mut flux_t,
            id: flux_jobid_t,
            opts: *const Options,
        ) -> *mut flux_future_t {
            // SAFETY: as the caller vouches.
            unsafe { begin(h, Some(id), opts, Task::$task) }
        }

        /// See `include/flux-bcast.h`.
        ///
        /// # Safety
        /// `h` is NULL or an open handle of this thread, `opts` NULL or an
        /// option object.
        #[unsafe(no_mangle)]
        #[allow(unreachable_pub, reason = "exported to C by name")]
        pub unsafe extern "C" fn $enclosing(
            h: *mut flux_t,
            opts: *const Options,
        ) -> *mut flux_future_t {
            // SAFETY: as the caller vouches.
            unsafe { begin(h, None, opts, Task::$task) }
        }
    )*};
}

starters! {
    Start: flux_bcast_start, flux_bcast_start_enclosing;
    DryRun: flux_bcast_dry_run, flux_bcast_dry_run_enclosing;
    Gather: flux_bcast_gather, flux_bcast_gather_enclosing;
    List: flux_bcast_list, flux_bcast_list_enclosing;
    Remove: flux_bcast_remove, flux_bcast_remove_enclosing;
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
