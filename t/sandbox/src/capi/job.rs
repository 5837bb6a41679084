//! `flux_job_*`.

use std::ffi::{c_char, c_int};
use std::rc::Rc;

use super::rpc::response;
use super::{borrow, fail, give, text};
use crate::errno::Errno;
use crate::host::future::Future;
use crate::host::handle::Handle;
use crate::host::rpc;
use crate::jobid::{self, Form};
use crate::wire::{self, NODEID_ANY};

/// Watches an eventlog of a job.
///
/// # Errors
/// As [`rpc::start`].
pub fn event_watch(
    h: &Rc<Handle>,
    id: u64,
    path: &str,
    flags: i32,
) -> Result<Rc<Future>, Errno> {
    let request = serde_json::json!({ "id": id, "path": path, "flags": flags });
    rpc::start_json(
        h,
        "job-info.eventlog-watch",
        &request,
        NODEID_ANY,
        rpc::STREAMING,
    )
}

/// The event that a watch has ready; the C string lives until its reset.
fn event(f: *const Future) -> Result<*const c_char, Errno> {
    /// Where the decoded text is kept.
    const KEY: &[u8] = b"sandbox::event";
    unsafe extern "C" fn free(text: *mut std::ffi::c_void) {
        // SAFETY: set below, from a malloc'd string.
        unsafe { libc::free(text) }
    }
    let msg = response(f)?;
    let json = msg.json();
    let entry = json["event"].as_str().ok_or(Errno(libc::EPROTO))?;
    // SAFETY: `response` has just used it.
    let f = unsafe { borrow(f) }.ok_or(Errno(libc::EINVAL))?;
    if let Ok(old) = f.aux.get(KEY) {
        let old = old.cast_const().cast();
        // SAFETY: set below and not freed since. Asked again for the same
        // event, the caller may still use the first answer.
        if unsafe { text(old) }.as_deref() == Some(entry) {
            return Ok(old);
        }
    }
    f.aux
        .set(Some(KEY), super::malloc_string(entry).cast(), Some(free))?;
    f.aux.get(KEY).map(|p| p.cast_const().cast())
}

crate::export! {
    fn flux_job_id_parse(s: *const c_char, id: *mut u64) -> c_int {
        let Some(s) = text(s).filter(|_| !id.is_null()) else {
            return fail(libc::EINVAL, -1);
        };
        match jobid::parse(&s) {
            Some(n) => {
                *id = n;
                0
            }
            None => fail(libc::EINVAL, -1),
        }
    }

    fn flux_job_id_encode(
        id: u64,
        type_: *const c_char,
        buf: *mut c_char,
        bufsz: usize,
    ) -> c_int {
        if buf.is_null() {
            return fail(libc::EINVAL, -1);
        }
        let form = match text(type_) {
            None => Form::Dec,
            Some(name) => match Form::named(&name) {
                Some(form) => form,
                None => return fail(libc::EPROTO, -1),
            },
        };
        let out = wire::name(&jobid::encode(id, form));
        let bytes = out.as_bytes_with_nul();
        if bytes.len() > bufsz {
            return fail(libc::EOVERFLOW, -1);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len());
        0
    }

    fn flux_job_event_watch(
        h: *const Handle,
        id: u64,
        path: *const c_char,
        flags: c_int,
    ) -> *const Future {
        let (Some(h), Some(path)) = (borrow(h), text(path)) else {
            return fail(libc::EINVAL, std::ptr::null());
        };
        match event_watch(&h, id, &path, flags) {
            Ok(f) => give(f),
            Err(e) => fail(e.0, std::ptr::null()),
        }
    }

    fn flux_job_event_watch_get(f: *const Future, event_out: *mut *const c_char) -> c_int {
        match event(f) {
            Ok(p) => {
                if !event_out.is_null() {
                    *event_out = p;
                }
                0
            }
            Err(e) => fail(e.0, -1),
        }
    }

    fn flux_job_event_watch_cancel(f: *const Future) -> c_int {
        let Some(f) = borrow(f) else {
            return fail(libc::EINVAL, -1);
        };
        let sent = f.flux().and_then(|h| {
            let (tag, _, _) = f.rpc.get().ok_or(Errno(libc::EINVAL))?;
            let request = serde_json::json!({ "matchtag": tag });
            rpc::start_json(
                &h,
                "job-info.eventlog-watch-cancel",
                &request,
                NODEID_ANY,
                rpc::NORESPONSE,
            )
        });
        match sent {
            Ok(cancel) => {
                cancel.destroy();
                0
            }
            Err(e) => fail(e.0, -1),
        }
    }
}
