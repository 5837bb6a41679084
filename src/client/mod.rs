//! Sends files to a running job: the engine under the C functions and the
//! command.
//!
//! It works on the caller's reactor and never blocks: the job's eventlog tells
//! where its shells are, the leader shell plans the tree, and a
//! [`Driver`] does the rest. The eventlog is watched to the end, because a
//! request to a shell that leaves in the wrong moment is answered by nobody.

mod finder;
pub mod gather;
mod intake;
mod job;
mod pulse;
pub mod query;
pub mod remote;
mod shelf;
mod skip;
mod template;

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;
use std::time::Instant;

use self::finder::Finder;
use self::finder::Found;
use self::skip::Skip;
use crate::bcast::frame::Frame;
use crate::bcast::frame::Kind;
use crate::bcast::id::TransferId;
use crate::bcast::message::Open;
use crate::bcast::message::Plan;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::Tuning;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::relay::Input;
use crate::bcast::report::Failure;
use crate::bcast::report::RankResult;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::file::SourceSpec;
use crate::file::Totals;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::job::JobId;
use crate::flux::reactor::TimerWatcher;
use crate::idset::IdSet;
use crate::transfer::driver::Driver;
use crate::transfer::driver::DriverEvent;
use crate::transfer::driver::Network;
use crate::transfer::driver::Setup;
use crate::transfer::edge::Link;
use crate::transfer::new_id;
use crate::transfer::reader::Reader;
use crate::transfer::reader::SourceEvent;

/// The job that a client turns to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The job.
    pub job: JobId,
    /// How the user calls it, for messages.
    pub name: String,
    /// A job that has not started is not waited for: EAGAIN.
    pub no_wait: bool,
}

/// What to send, where to, and how.
#[derive(Debug)]
pub struct Send {
    /// The job.
    pub job: JobId,
    /// How the user calls the job, for messages.
    pub job_name: String,
    /// The sources.
    pub source: SourceSpec,
    /// Where the copies go.
    pub dest: Dest,
    /// How they are made.
    pub policy: Policy,
    /// Which ranks get them.
    pub plan: PlanRequest,
    /// How they are fed.
    pub tuning: Tuning,
    /// Healthy ranks commit although others fail.
    pub partial: bool,
    /// A job that has not started is not waited for: EAGAIN.
    pub no_wait: bool,
    /// Ranks that have the files already get nothing: where every source is a
    /// regular file given by its path, and every copy is a regular file of the
    /// same size and digest.
    pub checksum: bool,
    /// Time limit for everything.
    pub timeout: Option<Duration>,
}

/// What the caller hears.
#[derive(Debug)]
pub enum ClientEvent {
    /// The job has not started yet; the transfer begins when it does.
    Waiting,
    /// Data begins to flow.
    Started {
        /// Who takes part.
        plan: Plan,
        /// How much there is to send.
        totals: Totals,
    },
    /// The slowest healthy rank has this many bytes.
    Progress(u64),
    /// The end; nothing more comes.
    Ended(Summary),
}

/// How it ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The transfer's id.
    pub transfer: TransferId,
    /// Every target rank's outcome; empty if it did not come to a transfer.
    pub results: Vec<RankResult>,
    /// Why it was called off or never began.
    pub why: Option<Failure>,
    /// Host names of all ranks of the job, if known.
    pub hosts: Vec<String>,
    /// Names of the copies.
    pub names: Vec<RawName>,
    /// Bytes of the sources, as far as known beforehand.
    pub bytes: u64,
    /// From the start to the last rank's answer.
    pub elapsed: Duration,
    /// Ranks that were left out because they had the files already.
    pub unchanged: IdSet,
}

impl Summary {
    /// True if every target rank has the copies.
    pub fn is_complete(&self) -> bool {
        self.why.is_none()
            && !self.results.is_empty()
            && self
                .results
                .iter()
                .all(|result| matches!(result.outcome, crate::bcast::report::Outcome::Done(_)))
    }
}

/// A transfer that goes on. Dropping it calls the transfer off.
pub struct Client {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    handle: Handle,
    send: Option<Send>,
    transfer: TransferId,
    listener: Rc<dyn Fn(ClientEvent)>,
    started: Instant,
    totals: Totals,
    names: Vec<RawName>,
    hosts: Vec<String>,
    reader: Option<Reader>,
    finder: Option<Finder>,
    /// Sources that are to be compared with what the ranks have.
    rereadable: Option<Vec<(PathBuf, Option<RawName>)>>,
    skip: Skip,
    /// Number of the entry that is being sent.
    entry: usize,
    driver: Option<Rc<RefCell<Driver>>>,
    timer: Option<TimerWatcher>,
    ended: bool,
    me: Weak<RefCell<Inner>>,
}

impl Client {
    /// Starts. `listener` is called from the reactor only, never from here.
    ///
    /// # Errors
    /// The reactor's watchers or the worker thread could not be made. All else
    /// comes as [`ClientEvent::Ended`].
    pub fn start(
        handle: Handle,
        send: Send,
        listener: impl Fn(ClientEvent) + 'static,
    ) -> Result<Self> {
        let transfer = new_id()?;
        let reactor = handle.reactor()?;
        let timeout = send.timeout;
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                send: Some(send),
                transfer,
                listener: Rc::new(listener),
                started: Instant::now(),
                totals: Totals::default(),
                names: Vec::new(),
                hosts: Vec::new(),
                reader: None,
                finder: None,
                rereadable: None,
                skip: Skip::default(),
                entry: 0,
                driver: None,
                timer: None,
                ended: false,
                me: Weak::clone(me),
            })
        });
        {
            let mut this = inner.borrow_mut();
            let (spec, checksum) = match &mut this.send {
                Some(send) => (std::mem::take(&mut send.source), send.checksum),
                None => (SourceSpec::default(), false),
            };
            if checksum {
                this.rereadable = skip::rereadable(&spec);
            }
            let weak = Rc::downgrade(&inner);
            this.reader = Some(Reader::start(reactor, spec, transfer, move |event| {
                Inner::source_says(&weak, event);
            })?);
            if let Some(timeout) = timeout {
                let weak = Rc::downgrade(&inner);
                this.timer = Some(TimerWatcher::new(reactor, timeout, None, move || {
                    let text =
                        format!("the time limit of {} s has expired", timeout.as_secs_f64());
                    Inner::call_off(&weak, Failure::client(libc::ETIMEDOUT, text));
                })?);
            }
        }
        Ok(Self { inner })
    }

    /// Calls the transfer off; [`ClientEvent::Ended`] follows, soon if the
    /// ranks answer, else after a grace period.
    pub fn cancel(&self, text: &str) {
        self.call_off(Failure::client(libc::ECANCELED, text));
    }

    /// As [`Client::cancel`], for a reason of any kind.
    pub fn call_off(&self, why: Failure) {
        Inner::call_off(&Rc::downgrade(&self.inner), why);
    }

    /// The transfer's id.
    pub fn transfer_id(&self) -> TransferId {
        self.inner.borrow().transfer
    }

    /// How many ranks have everything, verified.
    pub fn verified(&self) -> u32 {
        let driver = self.inner.borrow().driver.clone();
        driver.map_or(0, |driver| driver.borrow().verified())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let driver = self.inner.borrow_mut().quit();
        if let Some(driver) = driver {
            let why = Failure::client(libc::ECANCELED, "the client gave up");
            Driver::feed(&driver, Input::Abort(why));
        }
    }
}

impl Inner {
    /// Lets go of everything; returns the driver.
    fn quit(&mut self) -> Option<Rc<RefCell<Driver>>> {
        self.ended = true;
        self.reader = None;
        self.finder = None;
        self.timer = None;
        self.driver.take()
    }

    fn tell(this: &Rc<RefCell<Self>>, event: ClientEvent) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn end(this: &Rc<RefCell<Self>>, mut results: Vec<RankResult>, why: Option<Failure>) {
        let summary = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            results.extend(inner.skip.results());
            results.sort_unstable_by_key(|result| result.rank);
            // The driver stays: it may be the one who is calling.
            inner.ended = true;
            inner.finder = None;
            inner.timer = None;
            Summary {
                transfer: inner.transfer,
                results,
                why,
                hosts: inner.hosts.clone(),
                names: inner.names.clone(),
                bytes: inner.totals.bytes,
                elapsed: inner.started.elapsed(),
                unchanged: inner.skip.unchanged(),
            }
        };
        Self::tell(this, ClientEvent::Ended(summary));
    }

    fn fail(this: &Weak<RefCell<Self>>, error: &Error) {
        Self::call_off(
            this,
            Failure::client(error.errno().raw(), error.to_string()),
        );
    }

    /// Stops a transfer that runs, or ends before there is one.
    fn call_off(this: &Weak<RefCell<Self>>, why: Failure) {
        let Some(this) = this.upgrade() else { return };
        let driver = this.borrow().driver.clone();
        match driver {
            Some(driver) => Driver::feed(&driver, Input::Abort(why)),
            None => Self::end(&this, Vec::new(), Some(why)),
        }
    }

    fn source_says(weak: &Weak<RefCell<Self>>, event: SourceEvent) {
        let Some(this) = weak.upgrade() else { return };
        match event {
            SourceEvent::Opened { totals, names } => {
                {
                    let mut inner = this.borrow_mut();
                    inner.totals = totals;
                    inner.names = names;
                }
                Self::compare(&this);
            }
            SourceEvent::Frame(frame) => Self::frame(&this, frame),
            SourceEvent::Failed(error) => {
                Self::call_off(
                    weak,
                    Failure::client(error.errno().raw(), error.to_string()),
                );
            }
        }
    }

    fn frame(this: &Rc<RefCell<Self>>, frame: Frame) {
        let driver = this.borrow().driver.clone();
        let Some(driver) = driver else { return };
        let same = {
            let mut inner = this.borrow_mut();
            match frame.item() {
                Ok(item) if frame.kind() == Kind::End => {
                    let same = inner.check_sent(&item, inner.entry);
                    inner.entry += 1;
                    same
                }
                _ => true,
            }
        };
        Driver::feed(
            &driver,
            if same {
                Input::Frame(frame)
            } else {
                let text = "a source was changed while it was compared and sent";
                Input::Abort(Failure::client(libc::ESTALE, text))
            },
        );
    }

    /// Looks for the job.
    fn find(this: &Rc<RefCell<Self>>) {
        let found = {
            let inner = this.borrow();
            let Some(send) = &inner.send else { return };
            let target = Target {
                job: send.job,
                name: send.job_name.clone(),
                no_wait: send.no_wait,
            };
            let stall = Duration::from_secs_f64(send.tuning.stall);
            let me = Weak::clone(&inner.me);
            let tell = move |found| Inner::found(&me, found);
            Finder::start(inner.handle, &target, send.plan.clone(), stall, tell)
        };
        match found {
            Ok(finder) => this.borrow_mut().finder = Some(finder),
            Err(error) => Self::fail(&Rc::downgrade(this), &error),
        }
    }

    fn found(weak: &Weak<RefCell<Self>>, found: Found) {
        let Some(this) = weak.upgrade() else { return };
        match found {
            Found::Waiting => Self::tell(&this, ClientEvent::Waiting),
            Found::Ready { plan, service } => {
                if Self::asked(&this, &plan, &service) {
                    Self::begin(&this, plan, &service);
                }
            }
            Found::Over(failure) => Self::call_off(weak, failure),
        }
    }

    fn begin(this: &Rc<RefCell<Self>>, plan: Plan, service: &str) {
        let started = this.borrow_mut().originate(&plan, service);
        match started {
            Ok(driver) => {
                let totals = this.borrow().totals;
                this.borrow_mut().driver = driver;
                Self::tell(this, ClientEvent::Started { plan, totals });
            }
            Err(error) => Self::fail(&Rc::downgrade(this), &error),
        }
    }

    fn originate(&mut self, plan: &Plan, service: &str) -> Result<Option<Rc<RefCell<Driver>>>> {
        let (Some(send), Some(reader)) = (self.send.take(), self.reader.take()) else {
            return Ok(None);
        };
        self.hosts.clone_from(&plan.hosts);
        let mut dest = send.dest;
        dest.directory = dest.directory || self.names.len() > 1;
        let open = Open {
            version: VERSION,
            transfer: self.transfer,
            tree: plan.tree.clone(),
            dest,
            policy: send.policy,
            tuning: send.tuning,
            partial: send.partial,
            total: self.totals.exact.then_some(self.totals.allocated),
            names: self.names.clone(),
        };
        let weak = self.me.clone();
        let setup = Setup {
            open,
            handle: self.handle,
            network: Rc::new(Root {
                rank: plan.tree.root(),
                link: Link {
                    handle: self.handle,
                    service: service.to_owned(),
                    broker: plan.root_broker,
                },
            }),
            place: None,
            listener: Rc::new(move |event| {
                let Some(this) = weak.upgrade() else { return };
                match event {
                    DriverEvent::Progress(bytes) => {
                        Self::tell(&this, ClientEvent::Progress(bytes));
                    }
                    DriverEvent::Ended { results, why } => Self::end(&this, results, why),
                    DriverEvent::Placed(_) | DriverEvent::Finished => {}
                }
            }),
        };
        Driver::origin(setup, vec![plan.tree.clone()], reader, None).map(Some)
    }
}

/// All that a client needs to reach: the root of the tree.
struct Root {
    rank: u32,
    link: Link,
}

impl Network for Root {
    fn link(&self, rank: u32) -> Option<Link> {
        (rank == self.rank).then(|| self.link.clone())
    }
}
