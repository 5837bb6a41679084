//! Sends files to a running job: the engine under the C functions and the
//! command.
//!
//! It works on the caller's reactor and never blocks: the job's eventlog tells
//! where its shells are, the leader shell plans the tree, and a
//! [`Driver`] does the rest. The eventlog is watched to the end, because a
//! request to a shell that leaves in the wrong moment is answered by nobody.

mod job;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;
use std::time::Instant;

use self::job::JobNews;
use self::job::JobWatcher;
use self::job::Shells;
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
use crate::errno::Errno;
use crate::file::SourceSpec;
use crate::file::Totals;
use crate::flux::error::Context;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::flux::job::JobId;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::driver::Driver;
use crate::transfer::driver::DriverEvent;
use crate::transfer::driver::Network;
use crate::transfer::driver::Setup;
use crate::transfer::edge;
use crate::transfer::edge::Link;
use crate::transfer::reader::Reader;
use crate::transfer::reader::SourceEvent;

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
    job_name: String,
    listener: Rc<dyn Fn(ClientEvent)>,
    started: Instant,
    totals: Totals,
    names: Vec<RawName>,
    hosts: Vec<String>,
    reader: Option<Reader>,
    watcher: Option<JobWatcher>,
    shells: Option<Shells>,
    planning: Option<Pending>,
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
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .context("choose a transfer id")?;
        let transfer = TransferId::from_bytes(id);
        let reactor = handle.reactor()?;
        let timeout = send.timeout;
        let job_name = send.job_name.clone();
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                send: Some(send),
                transfer,
                job_name,
                listener: Rc::new(listener),
                started: Instant::now(),
                totals: Totals::default(),
                names: Vec::new(),
                hosts: Vec::new(),
                reader: None,
                watcher: None,
                shells: None,
                planning: None,
                driver: None,
                timer: None,
                ended: false,
                me: Weak::clone(me),
            })
        });
        {
            let mut this = inner.borrow_mut();
            let spec = match &mut this.send {
                Some(send) => std::mem::take(&mut send.source),
                None => SourceSpec::default(),
            };
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
        self.watcher = None;
        self.planning = None;
        self.timer = None;
        self.driver.take()
    }

    fn tell(this: &Rc<RefCell<Self>>, event: ClientEvent) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn end(this: &Rc<RefCell<Self>>, results: Vec<RankResult>, why: Option<Failure>) {
        let summary = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            // The driver stays: it may be the one who is calling.
            inner.ended = true;
            inner.watcher = None;
            inner.planning = None;
            inner.timer = None;
            Summary {
                transfer: inner.transfer,
                results,
                why,
                hosts: inner.hosts.clone(),
                names: inner.names.clone(),
                bytes: inner.totals.bytes,
                elapsed: inner.started.elapsed(),
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
                let (handle, job) = {
                    let mut inner = this.borrow_mut();
                    inner.totals = totals;
                    inner.names = names;
                    let Some(send) = &inner.send else { return };
                    (inner.handle, send.job)
                };
                let weak = Weak::clone(weak);
                let job_name = this.borrow().job_name.clone();
                let watched = JobWatcher::start(handle, job, job_name, {
                    let weak = weak.clone();
                    move |news| Self::job_says(&weak, news)
                });
                match watched {
                    Ok(watcher) => this.borrow_mut().watcher = Some(watcher),
                    Err(error) => Self::fail(&weak, &error),
                }
            }
            SourceEvent::Frame(frame) => {
                let driver = this.borrow().driver.clone();
                if let Some(driver) = driver {
                    Driver::feed(&driver, Input::Frame(frame));
                }
            }
            SourceEvent::Failed(error) => {
                Self::call_off(
                    weak,
                    Failure::client(error.errno().raw(), error.to_string()),
                );
            }
        }
    }

    fn job_says(weak: &Weak<RefCell<Self>>, news: JobNews) {
        let Some(this) = weak.upgrade() else { return };
        match news {
            JobNews::Pending => Self::tell(&this, ClientEvent::Waiting),
            JobNews::Ready(shells) => {
                let planned = this.borrow_mut().ask_plan(shells);
                if let Err(error) = planned {
                    Self::fail(weak, &error);
                }
            }
            JobNews::Over(failure) => Self::call_off(weak, failure),
        }
    }

    fn ask_plan(&mut self, shells: Shells) -> Result<()> {
        let Some(send) = &self.send else {
            return Ok(());
        };
        let weak = self.me.clone();
        let topic = format!("{}.bcast.plan", shells.service);
        let stall = Duration::from_secs_f64(send.tuning.stall);
        let future =
            self.handle
                .rpc_json(&topic, &send.plan, Node::Rank(shells.leader_broker))?;
        self.shells = Some(shells);
        self.planning = Some(future.then(Some(stall), move |future| {
            let Some(this) = weak.upgrade() else { return };
            match future.get_json::<Plan>() {
                Ok(plan) => Self::begin(&this, plan),
                Err(error) => Self::plan_failed(&this, &error),
            }
        })?);
        Ok(())
    }

    fn plan_failed(this: &Rc<RefCell<Self>>, error: &Error) {
        let (errno, text) = edge::explain(error);
        let name = this.borrow().job_name.clone();
        let text = match errno {
            Errno::ENOSYS => format!(
                "job {name} does not have the flux-bcast plugin in its shells; submit it with \
                 -o userrc=FILE where FILE loads it, or have it installed for all jobs"
            ),
            Errno::ESHUTDOWN => {
                // The job is ending; its eventlog says how, and is watched.
                let patient = match &this.borrow().watcher {
                    Some(watcher) => watcher.expect_end(),
                    None => false,
                };
                if patient {
                    return;
                }
                format!("job {name} has no running shells")
            }
            Errno::ETIMEDOUT => format!("the leader shell of job {name} gives no answer"),
            _ => text,
        };
        Self::end(this, Vec::new(), Some(Failure::client(errno.raw(), text)));
    }

    fn begin(this: &Rc<RefCell<Self>>, plan: Plan) {
        let started = this.borrow_mut().originate(&plan);
        match started {
            Ok(driver) => {
                let totals = this.borrow().totals;
                this.borrow_mut().driver = driver;
                Self::tell(this, ClientEvent::Started { plan, totals });
            }
            Err(error) => Self::fail(&Rc::downgrade(this), &error),
        }
    }

    fn originate(&mut self, plan: &Plan) -> Result<Option<Rc<RefCell<Driver>>>> {
        if plan.version != VERSION {
            let text = format!("the job's plugin speaks protocol {}", plan.version);
            return Err(Error::with_text(Errno::EPROTO, text));
        }
        let (Some(send), Some(reader), Some(shells)) =
            (self.send.take(), self.reader.take(), self.shells.as_ref())
        else {
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
                    service: shells.service.clone(),
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
