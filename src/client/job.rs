//! Where a job is in its life, from its eventlogs (RFC 21).

use std::cell::Cell;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;

use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::flux::job::JobEvent;
use crate::flux::job::JobEvents;
use crate::flux::job::JobId;
use crate::flux::job::JobWatch;
use crate::flux::reactor::TimerWatcher;

/// A job whose eventlog shows no start for so long is waiting for resources.
const PATIENCE: Duration = Duration::from_secs(1);

/// A watch of the shells' eventlog that shows nothing of a job that runs is
/// begun anew after so long: some Flux versions leave one without an answer when
/// the job moves its eventlog at that moment (seen on 0.88).
const REWATCH: Duration = Duration::from_secs(3);

/// How long the eventlog may lag behind the shells.
const LAG: Duration = Duration::from_secs(5);

/// What is said then. Before 0.61 Flux lets a job go on whose first shell was killed.
const NO_LEADER: &str = "has no first shell (rank 0): it was killed, or has left";

/// The main eventlog as it is now (`job-info.lookup`).
#[derive(Deserialize)]
struct Snapshot {
    eventlog: String,
}

/// What to do about a job that has not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfPending {
    /// Wait until it starts.
    Wait,
    /// Give up at once.
    GiveUp,
}

/// Where a job's shells are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shells {
    /// Their service.
    pub(super) service: String,
    /// Rank of the leader's broker.
    pub(super) leader_broker: u32,
}

/// What the eventlogs say.
#[derive(Debug)]
pub(super) enum JobNews {
    /// It has not started.
    Pending,
    /// Its shells are there.
    Ready(Shells),
    /// It is over, or there is no such job; why a transfer cannot be.
    Over(Failure),
}

/// Watches the eventlogs of one job.
pub(super) struct JobWatcher {
    state: Rc<State>,
    handle: Handle,
    _main: JobWatch,
    _rewatch: TimerWatcher,
    _pending: TimerWatcher,
    _snapshot: Option<Pending>,
    late: RefCell<Option<TimerWatcher>>,
}

struct State {
    name: String,
    job: JobId,
    started: Cell<bool>,
    ready: Cell<bool>,
    over: Cell<bool>,
    exception: RefCell<Option<String>>,
    tell: Box<dyn Fn(JobNews)>,
}

impl JobWatcher {
    /// Starts to watch; `tell` is called from the reactor.
    ///
    /// Whether a job is pending cannot be seen from a watch of its eventlog: the
    /// watch does not say where history ends and waiting begins. So whoever does
    /// not want to wait asks for the eventlog as it is. Where that is not
    /// answered, a job that has not started after a second is pending.
    pub(super) fn start(
        handle: Handle,
        job: JobId,
        name: String,
        if_pending: IfPending,
        tell: impl Fn(JobNews) + 'static,
    ) -> Result<Self> {
        let state = Rc::new(State {
            name,
            job,
            started: Cell::new(false),
            ready: Cell::new(false),
            over: Cell::new(false),
            exception: RefCell::default(),
            tell: Box::new(tell),
        });
        let main = Rc::clone(&state);
        let main = JobEvents::watch(handle, job, "eventlog", false)?
            .then(move |event| main.main(event))?;
        let mut guest = watch_shells(handle, job, &state)?;
        let running = Rc::clone(&state);
        let rewatch =
            TimerWatcher::new(handle.reactor()?, REWATCH, Some(REWATCH), move || {
                if running.started.get()
                    && !running.ready.get()
                    && !running.over.get()
                    && let Ok(another) = watch_shells(handle, job, &running)
                {
                    guest = another;
                }
                // The timer owns the watch.
                let _ = &guest;
            })?;
        let waiting = Rc::clone(&state);
        let pending =
            TimerWatcher::new(
                handle.reactor()?,
                PATIENCE,
                None,
                move || match if_pending {
                    IfPending::Wait if waiting.is_waiting() => (waiting.tell)(JobNews::Pending),
                    IfPending::Wait => {}
                    IfPending::GiveUp => waiting.pending(),
                },
            )?;
        let snapshot = match if_pending {
            IfPending::Wait => None,
            IfPending::GiveUp => Some(look(handle, job, Rc::clone(&state))?),
        };
        Ok(Self {
            state,
            handle,
            _main: main,
            _rewatch: rewatch,
            _pending: pending,
            _snapshot: snapshot,
            late: RefCell::default(),
        })
    }

    /// The shells do not answer any more: the end of the job is to be expected
    /// in the eventlog, and is reported in any case. True if it is still to come.
    pub(super) fn expect_end(&self) -> bool {
        if self.state.over.get() {
            return false;
        }
        let state = Rc::clone(&self.state);
        let timer = self.handle.reactor().and_then(|reactor| {
            TimerWatcher::new(reactor, LAG, None, move || {
                state.end(Errno::ESHUTDOWN, NO_LEADER);
            })
        });
        match timer {
            Ok(timer) => {
                self.late.replace(Some(timer));
                true
            }
            Err(_) => false,
        }
    }
}

/// Watches the eventlog that the shells write.
fn watch_shells(handle: Handle, job: JobId, state: &Rc<State>) -> Result<JobWatch> {
    let state = Rc::clone(state);
    JobEvents::watch(handle, job, "guest.exec.eventlog", false)?
        .then(move |event| state.guest(event))
}

/// Asks for the eventlog as it is.
fn look(handle: Handle, job: JobId, state: Rc<State>) -> Result<Pending> {
    let request = serde_json::json!({"id": job.0, "keys": ["eventlog"], "flags": 0});
    handle
        .rpc_json("job-info.lookup", &request, Node::Any)?
        .then(None, move |future| {
            if let Ok(Snapshot { eventlog }) = future.get_json()
                && !has_started(&eventlog)
            {
                state.pending();
            }
        })
}

/// Whether an eventlog (RFC 18: one JSON object a line) shows a job that runs,
/// or one that is over.
fn has_started(eventlog: &str) -> bool {
    eventlog
        .lines()
        .filter_map(|line| serde_json::from_str::<JobEvent>(line).ok())
        .any(|event| matches!(event.name.as_str(), "start" | "finish" | "clean"))
}

impl State {
    fn is_waiting(&self) -> bool {
        !self.started.get() && !self.over.get()
    }

    fn pending(&self) {
        if self.is_waiting() {
            self.end(
                Errno::EAGAIN,
                "is pending: it has not started, and waiting for it was not wanted",
            );
        }
    }

    fn end(&self, errno: Errno, what: &str) {
        if !self.over.replace(true) {
            let text = format!("job {} {what}", self.name);
            (self.tell)(JobNews::Over(Failure::client(errno.raw(), text)));
        }
    }

    fn main(&self, event: Result<Option<JobEvent>>) {
        match event {
            Ok(Some(event)) => self.main_event(&event),
            Ok(None) => self.end(Errno::ESHUTDOWN, "has ended"),
            Err(error) => self.broken(&error),
        }
    }

    fn main_event(&self, event: &JobEvent) {
        match event.name.as_str() {
            "start" => self.started.set(true),
            "exception" => {
                let severity = event.context.get("severity").and_then(|s| s.as_i64());
                if severity == Some(0) {
                    let text = |key| event.context.get(key).and_then(|v| v.as_str());
                    let kind = text("type").unwrap_or("exception");
                    let note = text("note").unwrap_or_default();
                    let shown = if note.is_empty() {
                        kind.into()
                    } else {
                        format!("{kind}: {note}")
                    };
                    self.exception.borrow_mut().get_or_insert(shown);
                }
            }
            "finish" | "clean" => {
                let exception = self.exception.borrow().clone();
                match exception {
                    Some(text) => self.end(Errno::ESHUTDOWN, &format!("has ended ({text})")),
                    None => self.end(Errno::ESHUTDOWN, "has ended"),
                }
            }
            _ => {}
        }
    }

    fn broken(&self, error: &Error) {
        match error.errno() {
            Errno::ENOENT => self.end(Errno::ENOENT, "does not exist"),
            Errno::EPERM => self.end(Errno::EPERM, "belongs to another user"),
            errno => self.end(errno, &format!("cannot be watched: {error}")),
        }
    }

    fn guest(&self, event: Result<Option<JobEvent>>) {
        // The main eventlog says everything about errors and the end.
        let Ok(Some(event)) = event else { return };
        if event.name != "shell.init" || self.over.get() || self.ready.replace(true) {
            return;
        }
        let service = event.context.get("service").and_then(|s| s.as_str());
        let leader = event.context.get("leader-rank").and_then(|r| r.as_u64());
        match (
            service,
            leader.and_then(|leader| u32::try_from(leader).ok()),
        ) {
            // What is signed is signed for a service. Whoever keeps the eventlog
            // must not choose another job of the user's.
            (Some(service), Some(_)) if !is_service_of(service, self.job) => {
                self.end(Errno::EPROTO, "has the shells of another job, it is said");
            }
            (Some(service), Some(leader_broker)) => {
                let service = service.to_owned();
                (self.tell)(JobNews::Ready(Shells {
                    service,
                    leader_broker,
                }));
            }
            _ => self.end(Errno::EPROTO, "has an unknown kind of shell.init event"),
        }
    }
}

/// True for `<uid>-shell-<jobid>` of this job.
fn is_service_of(service: &str, job: JobId) -> bool {
    service
        .rsplit_once("-shell-")
        .is_some_and(|(_, id)| JobId::parse(id).is_ok_and(|id| id == job))
}

impl fmt::Debug for JobWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWatcher")
            .field("job", &self.state.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::has_started;

    #[test]
    fn a_job_has_started_or_not() {
        let line = |name: &str| format!("{{\"timestamp\":1.5,\"name\":\"{name}\"}}\n");
        let log = |names: &[&str]| names.iter().map(|name| line(name)).collect::<String>();
        assert!(!has_started(""));
        assert!(!has_started(&log(&[
            "submit", "validate", "depend", "priority"
        ])));
        // Resources are there, but a prolog may still take its time.
        assert!(!has_started(&log(&[
            "submit", "depend", "priority", "alloc"
        ])));
        assert!(has_started(&log(&["submit", "alloc", "start"])));
        assert!(has_started(&log(&["submit", "exception", "clean"])));
    }
}
