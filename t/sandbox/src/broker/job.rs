//! Jobs: what is known of one, its states, exceptions.

use std::rc::Rc;

use serde_json::Value;

use super::eventlog::{EXEC, Eventlog, INPUT, MAIN, OUTPUT};
use super::router::Reply;
use super::{Broker, alloc, exec};
use crate::fields;
use crate::host::reactor::Watcher;
use crate::wire::{Message, ROLE_OWNER};

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for resources.
    Pending,
    /// Its shells run.
    Running,
    /// Over.
    Inactive,
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) userid: u32,
    pub(super) urgency: i64,
    pub(super) jobspec: Value,
    pub(super) need: alloc::Need,
    pub(super) state: State,
    pub(super) nodes: Vec<alloc::Node>,
    pub(super) r: Value,
    pub(super) run: exec::Run,
    /// A fatal exception has been raised.
    pub(super) failed: bool,
    main: Eventlog,
    exec: Eventlog,
    output: Eventlog,
    input: Eventlog,
    /// Requests that wait for the end, as `flux job wait` sends them.
    pub(super) waiters: Vec<Message>,
    pub(super) timers: Vec<Rc<Watcher>>,
}

impl Job {
    pub(super) fn log(&self, path: &str) -> Option<&Eventlog> {
        Some(match path {
            MAIN => &self.main,
            EXEC => &self.exec,
            OUTPUT => &self.output,
            INPUT => &self.input,
            _ => return None,
        })
    }

    pub(super) fn log_mut(&mut self, path: &str) -> Option<&mut Eventlog> {
        Some(match path {
            MAIN => &mut self.main,
            EXEC => &mut self.exec,
            OUTPUT => &mut self.output,
            INPUT => &mut self.input,
            _ => return None,
        })
    }

    /// Whether the sender may look into the job.
    pub(super) fn may_see(&self, msg: &Message) -> bool {
        msg.rolemask & ROLE_OWNER != 0 || msg.userid == self.userid
    }

    /// An attribute below `attributes.system`.
    pub(super) fn system(&self, pointer: &str) -> &Value {
        self.jobspec
            .pointer(&format!("/attributes/system{pointer}"))
            .unwrap_or(&Value::Null)
    }
}

/// Makes job ids: milliseconds since the start, then a sequence.
#[derive(Debug)]
pub(super) struct IdSource {
    start: std::time::Instant,
    last: u64,
}

impl IdSource {
    /// Bits below the time.
    const SHIFT: u32 = 24;

    pub(super) fn new() -> Self {
        Self {
            start: std::time::Instant::now(),
            last: 0,
        }
    }

    fn next_id(&mut self) -> u64 {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(0) + 1;
        self.last = (ms << Self::SHIFT).max(self.last + 1);
        self.last
    }
}

impl Broker {
    /// Accepts a job: `{"jobspec":…, "urgency":N}`.
    pub(super) fn submit(&mut self, msg: &Message) -> Reply {
        let request = msg.json();
        let jobspec = request["jobspec"].clone();
        let need = match alloc::Need::of(&jobspec) {
            Ok(need) => need,
            Err(text) => return Reply::Failed(libc::EINVAL, Some(text)),
        };
        let urgency = request["urgency"].as_i64().unwrap_or(16);
        let id = self.ids.next_id();
        let job = Job {
            userid: msg.userid,
            urgency,
            jobspec,
            need,
            state: State::Pending,
            nodes: Vec::new(),
            r: Value::Null,
            run: exec::Run::default(),
            failed: false,
            main: Eventlog::default(),
            exec: Eventlog::default(),
            output: Eventlog::default(),
            input: Eventlog::default(),
            waiters: Vec::new(),
            timers: Vec::new(),
        };
        self.jobs.insert(id, job);
        self.job_order.push(id);
        self.post(
            id,
            MAIN,
            "submit",
            Some(fields! {
                "userid": msg.userid, "urgency": urgency, "flags": 0, "version": 1,
            }),
        );
        self.post(id, MAIN, "validate", None);
        self.post(id, MAIN, "depend", None);
        // The urgency is the priority, but 31 is more than any.
        let priority = if urgency == 31 {
            4_294_967_295
        } else {
            urgency
        };
        self.post(id, MAIN, "priority", Some(fields! { "priority": priority }));
        self.schedule_soon();
        Reply::Done(Some(serde_json::json!({ "id": id })))
    }

    /// Schedules after the answer to a submission is on its way.
    fn schedule_soon(&mut self) {
        let timer = self.after(0.0, Self::schedule);
        // One-shot; it stops itself and nothing refers to it afterwards.
        drop(timer);
    }

    /// Raises an exception as `job-manager.raise` does.
    pub(super) fn raise_request(&mut self, msg: &Message) -> Reply {
        let request = msg.json();
        let Some(id) = request["id"].as_u64() else {
            return Reply::Failed(libc::EPROTO, None);
        };
        let Some(job) = self.jobs.get(&id) else {
            return Reply::Failed(libc::ENOENT, Some("unknown job id".to_owned()));
        };
        if !job.may_see(msg) {
            return Reply::Failed(
                libc::EPERM,
                Some("guests can only raise exceptions on their own jobs".to_owned()),
            );
        }
        if job.state == State::Inactive {
            return Reply::Failed(libc::ENOENT, Some("job is inactive".to_owned()));
        }
        let kind = request["type"].as_str().unwrap_or("cancel").to_owned();
        let severity = request["severity"].as_i64().unwrap_or(0);
        let note = request["note"].as_str().unwrap_or("").to_owned();
        let mut context = fields! {
            "type": kind, "severity": severity, "note": note, "userid": msg.userid,
        };
        let status = request["wait_status"]
            .as_i64()
            .and_then(|n| i32::try_from(n).ok());
        if let Some(status) = status.filter(|s| *s >= 0) {
            context.0.push(("wait_status".to_owned(), status.into()));
            if let Some(job) = self.jobs.get_mut(&id)
                && severity == 0
                && !job.failed
            {
                job.run.blame(status);
            }
        }
        self.exception(id, severity, context);
        Reply::Done(None)
    }

    /// Records an exception; a fatal one ends the job.
    pub(super) fn exception(&mut self, id: u64, severity: i64, context: fields::Fields) {
        self.post(id, MAIN, "exception", Some(context));
        if severity != 0 {
            return;
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.failed = true;
        match job.state {
            State::Pending => {
                self.retire(id);
                self.schedule();
            }
            State::Running => self.cancel_run(id, libc::SIGTERM),
            State::Inactive => {}
        }
    }

    /// Everything is done: the job is over.
    pub(super) fn retire(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state = State::Inactive;
            for t in job.timers.drain(..) {
                t.stop();
            }
        }
        self.post(id, MAIN, "clean", None);
        for path in [MAIN, EXEC, OUTPUT, INPUT] {
            self.close_log(id, path);
        }
        let waiters = self
            .jobs
            .get_mut(&id)
            .map(|j| std::mem::take(&mut j.waiters))
            .unwrap_or_default();
        for w in waiters {
            let reply = self.job_result(id);
            self.reply(&w, reply);
        }
    }

    /// `{"failed":…, "status":N}` of a job that is over.
    pub(super) fn job_result(&self, id: u64) -> Reply {
        match self.jobs.get(&id) {
            None => Reply::Failed(libc::ENOENT, None),
            Some(j) => Reply::Done(Some(serde_json::json!({
                "failed": j.failed,
                "status": j.run.status,
            }))),
        }
    }

    /// Whether any job is not over.
    pub fn is_busy(&self) -> bool {
        self.jobs.values().any(|j| j.state != State::Inactive)
    }

    /// Cancels all jobs: the instance is going away.
    pub fn cancel_all(&mut self) {
        self.stopping = true;
        let active: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, j)| j.state != State::Inactive)
            .map(|(id, _)| *id)
            .collect();
        for id in active {
            let uid = self.uid;
            let context = fields! {
                "type": "cancel", "severity": 0, "note": "", "userid": uid,
            };
            self.exception(id, 0, context);
        }
    }
}
