//! Jobs seen from outside: ids in all their forms, and the events of a job.

use std::cell::Cell;
use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use super::cstr;
use super::error::Context;
use super::error::Error;
use super::error::Result;
use super::error::check_ptr;
use super::error::check_rc;
use super::future;
use super::future::Future;
use super::future::Pending;
use super::handle::Handle;
use super::sigpipe::shielded;
use crate::errno::Errno;
use crate::ffi::host;
use crate::ffi::types::FLUX_JOB_EVENT_WATCH_WAITCREATE;
use crate::ffi::types::flux_future_t;

/// Longer than any encoding of an id.
const ENCODED: usize = 128;

/// A job's id. In JSON an integer; `Display` prints the integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JobId {
    /// Reads an id in any form that Flux knows: F58 (`ƒ…` or `f…`), decimal,
    /// hexadecimal, KVS path, words.
    ///
    /// # Errors
    /// EINVAL, with a text that names the input.
    pub fn parse(text: &str) -> Result<JobId> {
        let core = host::core()?;
        let mut id = 0;
        cstr::with_cstr(text, |ctext| {
            // SAFETY: a C string and a place for the result.
            check_rc(unsafe { core.flux_job_id_parse(ctext.as_ptr(), &raw mut id) })
        })
        .map_err(|error| Error::with_text(error.errno(), format!("\"{text}\" is no job id")))?;
        Ok(JobId(id))
    }

    /// The id in another form: "f58", "f58plain", "dec", "hex", "dothex",
    /// "kvs", "words".
    ///
    /// # Errors
    /// EPROTO for an unknown form.
    pub fn encode(self, form: &str) -> Result<String> {
        let core = host::core()?;
        let mut buffer = [0 as c_char; ENCODED];
        cstr::with_cstr(form, |form| {
            // SAFETY: a C string, and a buffer of that size.
            check_rc(unsafe {
                core.flux_job_id_encode(
                    self.0,
                    form.as_ptr(),
                    buffer.as_mut_ptr(),
                    buffer.len(),
                )
            })
        })
        .with_context(|| format!("encode job id as {form}"))?;
        // SAFETY: the call has filled in a C string that lives in buffer.
        let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
        text.to_str()
            .map(str::to_owned)
            .map_err(|_| Errno::EPROTO.into())
    }

    /// The usual short form (`ƒ…`, or `f…` in an ASCII locale).
    ///
    /// # Errors
    /// None in practice.
    pub fn f58(self) -> Result<String> {
        self.encode("f58")
    }
}

/// One event of a job's eventlog (RFC 18).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct JobEvent {
    /// Seconds since the epoch.
    pub timestamp: f64,
    /// What happened.
    pub name: String,
    /// Details, depending on the event; null if there are none.
    #[serde(default)]
    pub context: Value,
}

/// The events of one of a job's eventlogs, from the first one on. Dropping it
/// tells the server to stop.
///
/// Flux (seen on 0.88, once in a hundred under load) may never answer a watch
/// of the shell's eventlog if the job ends while the watch begins. Whoever
/// must not hang watches the main eventlog too, or uses a timeout.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct JobEvents {
    /// `None` at the end of the eventlog.
    future: Option<Future>,
}

impl JobEvents {
    /// Watches eventlog `path`: "eventlog" is the main one,
    /// "guest.exec.eventlog" the shell's. The latter may not exist yet; then
    /// the watch waits for it (or for the end of the job) if `wait` is set.
    ///
    /// # Errors
    /// Those of the connection. ENOENT for no such job comes with the events.
    pub fn watch(handle: Handle, id: JobId, path: &str, wait: bool) -> Result<JobEvents> {
        let (core, h) = (host::core()?, handle.live()?);
        let flags = if wait {
            FLUX_JOB_EVENT_WATCH_WAITCREATE
        } else {
            0
        };
        cstr::with_cstr(path, |path| {
            // SAFETY: an open handle (live) and a C string.
            let send =
                || unsafe { core.flux_job_event_watch(h, id.0, path.as_ptr(), flags as c_int) };
            let raw = shielded(|| check_ptr(send())).context("watch job events")?;
            // SAFETY: a new future that nobody else owns.
            let future = Some(unsafe { Future::from_raw(raw) });
            Ok(JobEvents { future })
        })
    }

    /// Waits for the next event; `None` at the end of the eventlog. `timeout`
    /// `None` waits for ever. Other callbacks do not run meanwhile.
    ///
    /// # Errors
    /// ETIMEDOUT, then the watch goes on; ENOENT if there is no such job or
    /// eventlog; EPERM for another user's job. After the latter the watch is
    /// at its end.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<JobEvent>> {
        let Some(future) = &mut self.future else {
            return Ok(None);
        };
        future.wait(timeout)?;
        // SAFETY: the future is ours and ready.
        let event = unsafe { event(future.as_raw()) };
        if matches!(event, Ok(Some(_))) {
            future.reset();
        } else {
            self.future = None;
        }
        event
    }

    /// Calls `on_event` in the reactor for each event, and once more with
    /// `None` or an error at the end. It may drop the [`JobWatch`].
    ///
    /// # Errors
    /// ENODATA if the end has been seen already; ENOMEM.
    pub fn then(
        mut self,
        mut on_event: impl FnMut(Result<Option<JobEvent>>) + 'static,
    ) -> Result<JobWatch> {
        let future = self.future.take().ok_or(Errno::ENODATA)?;
        let ended = Rc::new(Cell::new(false));
        let end = Rc::clone(&ended);
        let pending = future.then(None, move |f| {
            // SAFETY: the future of this continuation, which is ready.
            let event = unsafe { event(f.as_raw()) };
            if matches!(event, Ok(Some(_))) {
                f.reset();
            } else {
                end.set(true);
            }
            on_event(event);
        })?;
        Ok(JobWatch { pending, ended })
    }
}

impl Drop for JobEvents {
    fn drop(&mut self) {
        if let Some(future) = &self.future {
            // SAFETY: the future of an event watch, which we own.
            unsafe { cancel(future.as_raw()) };
        }
    }
}

/// A watch that runs in the reactor. Dropping it, also from inside its
/// callback, ends it and tells the server to stop.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct JobWatch {
    pending: Pending,
    ended: Rc<Cell<bool>>,
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        if !self.ended.get() {
            // SAFETY: the future of an event watch, which we own.
            unsafe { cancel(self.pending.as_raw()) };
        }
    }
}

/// The event that an event watch has got; `None` at the end.
///
/// # Safety
/// `raw` is the future of an event watch.
unsafe fn event(raw: *mut flux_future_t) -> Result<Option<JobEvent>> {
    let core = host::core()?;
    let mut text = ptr::null();
    // SAFETY: the future exists; a place for the result.
    let rc = unsafe { core.flux_job_event_watch_get(raw, &raw mut text) };
    if let Err(error) = check_rc(rc) {
        if error.is_end_of_stream() {
            return Ok(None);
        }
        let error = match NonNull::new(raw) {
            Some(raw) => future::with_text(raw, error),
            None => error,
        };
        return Err(error.context("job events"));
    }
    // SAFETY: the text lives until the future is reset.
    let text = unsafe { cstr::borrow(text) }.unwrap_or_default();
    serde_json::from_slice(text.to_bytes())
        .context("malformed job event")
        .map(Some)
}

/// Tells the server that nobody listens any more; best effort.
///
/// # Safety
/// `raw` is the future of an event watch.
unsafe fn cancel(raw: *mut flux_future_t) {
    if let Ok(core) = host::core() {
        // SAFETY: the future exists, and it keeps its handle open (F5).
        let _ = shielded(|| unsafe { core.flux_job_event_watch_cancel(raw) });
    }
}
