//! Calls to the instance, and event logs read one event after the other.

use std::rc::Rc;

use flux_sandbox::capi::job::event_watch;
use flux_sandbox::child::signal_text;
use flux_sandbox::errno::Errno;
use flux_sandbox::fields::Event;
use flux_sandbox::host::future::Future;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::rpc;
use flux_sandbox::wire::NODEID_ANY;
use serde_json::{Value, json};

use crate::fail::Fail;

/// Calls a service; on failure the error number and its text.
pub(crate) fn call(
    h: &Rc<Handle>,
    topic: &str,
    request: &Value,
) -> Result<Value, (Errno, String)> {
    let f = rpc::start_json(h, topic, request, NODEID_ANY, 0).map_err(|e| (e, e.text()))?;
    let result = match rpc::get(&f) {
        Ok(Some(msg)) => Ok(msg.json()),
        Ok(None) => Ok(Value::Null),
        Err(e) => Err((e, f.error_string(e))),
    };
    f.destroy();
    result
}

/// The event that an event watch has brought; `None` at the end.
pub(crate) fn next_event(f: &Rc<Future>) -> Result<Option<Event>, Errno> {
    match rpc::get(f) {
        Ok(msg) => {
            let json = msg.map(|m| m.json()).unwrap_or_default();
            let line = json["event"].as_str().unwrap_or("");
            Event::parse(line).map(Some).ok_or(Errno(libc::EPROTO))
        }
        Err(Errno(libc::ENODATA)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// An event log, being read.
pub(crate) struct Log {
    future: Rc<Future>,
    started: bool,
}

impl Log {
    /// Starts to watch.
    pub(crate) fn open(h: &Rc<Handle>, id: u64, path: &str) -> Result<Self, Errno> {
        let future = event_watch(h, id, path, 0)?;
        Ok(Self {
            future,
            started: false,
        })
    }

    /// The next event; `None` at the end. Waits at most `timeout` seconds when
    /// that is not negative.
    pub(crate) fn next(&mut self, timeout: f64) -> Result<Option<Event>, Errno> {
        if std::mem::replace(&mut self.started, true) {
            self.future.reset();
        }
        self.future.wait_for(timeout)?;
        next_event(&self.future)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.future.destroy();
    }
}

/// Waits for an event.
pub(crate) fn until(
    h: &Rc<Handle>,
    id: u64,
    path: &str,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Option<Event>, Fail> {
    let fail = |e: Errno| Fail::new(format!("flux-job: flux_job_event_watch_get: {e}"));
    let mut log = Log::open(h, id, path).map_err(fail)?;
    while let Some(event) = log.next(-1.0).map_err(fail)? {
        if wanted(&event) {
            return Ok(Some(event));
        }
    }
    Ok(None)
}

/// How a job has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    failed: bool,
}

impl Ended {
    /// The exit code: that of the tasks, or 1 for a job that never ran.
    pub(crate) fn exit_code(self) -> i32 {
        match status_code(self.status) {
            0 if self.failed => 1,
            code => code,
        }
    }
}

/// Waits for the end of a job.
pub(crate) fn result(h: &Rc<Handle>, id: u64) -> Result<Ended, Fail> {
    let answer = call(h, "job-manager.wait", &json!({ "id": id })).map_err(|(e, text)| {
        let id = flux_sandbox::jobid::f58(id);
        let text = if e.0 == libc::ENOENT {
            "No such job".to_owned()
        } else {
            text
        };
        Fail::new(format!("flux-job: {id}: {text}"))
    })?;
    let status = answer["status"].as_i64().unwrap_or(0);
    Ok(Ended {
        status: i32::try_from(status).unwrap_or(0),
        failed: answer["failed"] == true,
    })
}

/// Exit code of a wait status.
pub(crate) fn status_code(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    }
}

/// What to tell about a wait status; nothing for success.
pub(crate) fn status_text(status: i32) -> Option<String> {
    let code = status_code(status);
    if libc::WIFSIGNALED(status) {
        Some(format!("job shell {}", signal_text(code - 128)))
    } else if code > 128 {
        Some(format!("task(s) {}", signal_text(code - 128)))
    } else if code > 0 {
        Some(format!("task(s) exited with exit code {code}"))
    } else {
        None
    }
}
