//! Where a job is in its life, from its eventlogs (RFC 21).

use std::cell::Cell;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::job::JobEvent;
use crate::flux::job::JobEvents;
use crate::flux::job::JobId;
use crate::flux::job::JobWatch;
use crate::flux::reactor::TimerWatcher;

/// A job whose eventlog shows no start for so long is waiting for resources.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the eventlog may lag behind the shells.
const LAG: Duration = Duration::from_secs(5);

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
    _guest: JobWatch,
    _pending: TimerWatcher,
    late: RefCell<Option<TimerWatcher>>,
}

struct State {
    name: String,
    started: Cell<bool>,
    over: Cell<bool>,
    exception: RefCell<Option<String>>,
    tell: Box<dyn Fn(JobNews)>,
}

impl JobWatcher {
    /// Starts to watch; `tell` is called from the reactor.
    pub(super) fn start(
        handle: Handle,
        job: JobId,
        name: String,
        tell: impl Fn(JobNews) + 'static,
    ) -> Result<Self> {
        let state = Rc::new(State {
            name,
            started: Cell::new(false),
            over: Cell::new(false),
            exception: RefCell::default(),
            tell: Box::new(tell),
        });
        let main = Rc::clone(&state);
        let main = JobEvents::watch(handle, job, "eventlog", false)?
            .then(move |event| main.main(event))?;
        let guest = Rc::clone(&state);
        let guest = JobEvents::watch(handle, job, "guest.exec.eventlog", false)?
            .then(move |event| guest.guest(event))?;
        let waiting = Rc::clone(&state);
        let pending = TimerWatcher::new(handle.reactor()?, PATIENCE, None, move || {
            if !waiting.started.get() && !waiting.over.get() {
                (waiting.tell)(JobNews::Pending);
            }
        })?;
        Ok(Self {
            state,
            handle,
            _main: main,
            _guest: guest,
            _pending: pending,
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
                state.end(Errno::ESHUTDOWN, "has no running shells");
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

impl State {
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
        if event.name != "shell.init" || self.over.get() {
            return;
        }
        let service = event.context.get("service").and_then(|s| s.as_str());
        let leader = event.context.get("leader-rank").and_then(|r| r.as_u64());
        match (
            service,
            leader.and_then(|leader| u32::try_from(leader).ok()),
        ) {
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

impl fmt::Debug for JobWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWatcher")
            .field("job", &self.state.name)
            .finish_non_exhaustive()
    }
}
