//! Sends files to a running job: the engine under the C functions and the
//! command.
//!
//! It works on the caller's reactor and never blocks: the job's eventlog tells
//! where its shells are, the leader shell plans the tree, and a
//! [`Driver`] does the rest. The eventlog is watched to the end, because a
//! request to a shell that leaves in the wrong moment is answered by nobody.

#![forbid(unsafe_code)]

mod event;
mod finder;
pub mod gather;
mod intake;
mod job;
mod load;
pub mod preview;
mod pulse;
pub mod query;
pub mod remote;
mod shelf;
mod skip;
mod template;
mod terms;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::sync::mpsc;
use std::time::Instant;

pub use self::event::ClientEvent;
pub use self::event::Summary;
pub use self::terms::Running;
pub use self::terms::Target;
pub use self::terms::Terms;

use self::finder::Finder;
use self::finder::Found;
use self::load::Load;
use self::load::Loaded;
use self::skip::Skip;
use self::terms::failure;
use crate::bcast::frame::Frame;
use crate::bcast::frame::Kind;
use crate::bcast::id::TransferId;
use crate::bcast::message::Open;
use crate::bcast::message::Plan;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::relay::Input;
use crate::bcast::report::Failure;
use crate::bcast::report::RankResult;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::elf::Libs;
use crate::file;
use crate::file::SourceSpec;
use crate::file::Totals;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::driver::Driver;
use crate::transfer::driver::DriverEvent;
use crate::transfer::driver::Network;
use crate::transfer::driver::Setup;
use crate::transfer::edge::Link;
use crate::transfer::new_id;
use crate::transfer::reader::Reader;
use crate::transfer::reader::SourceEvent;

/// What to send, where to, and how.
#[derive(Debug)]
pub struct Send {
    /// Job, ranks, flow and time.
    pub terms: Terms,
    /// The sources.
    pub source: SourceSpec,
    /// Where the copies go.
    pub dest: Dest,
    /// How they are made.
    pub policy: Policy,
    /// Healthy ranks commit although others fail.
    pub partial: bool,
    /// Ranks that have the files already get nothing: where every source is a
    /// regular file and no stream, and every copy is a regular file of the same
    /// size and digest.
    pub checksum: bool,
    /// The shared objects of programs among the sources are sent, too.
    pub libs: Option<Libs>,
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
    /// What the reader's thread finds out first.
    loading: mpsc::Receiver<Loaded>,
    libs: usize,
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
        let mut send = send;
        let load = Load {
            source: std::mem::take(&mut send.source),
            dest: send.dest.clone(),
            libs: send.libs.take(),
            checksum: send.checksum,
        };
        let terms = send.terms.clone();
        let (tell, loading) = mpsc::channel();
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
                loading,
                libs: 0,
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
            let spec = move || load.run(&tell);
            let weak = Rc::downgrade(&inner);
            let reader = Reader::start_with(reactor, spec, transfer, move |event| {
                Inner::source_says(&weak, event);
            });
            this.reader = Some(reader?);
            let weak = Rc::downgrade(&inner);
            this.timer = terms.limit(reactor, move |why| {
                if let Some(this) = weak.upgrade() {
                    let why = finder::explain(&this.borrow().finder, why);
                    Inner::call_off(&weak, why);
                }
            })?;
        }
        Ok(Self { inner })
    }
}

impl Running for Client {
    fn call_off(&self, why: Failure) {
        Inner::call_off(&Rc::downgrade(&self.inner), why);
    }

    fn verified(&self) -> u32 {
        let driver = self.inner.borrow().driver.clone();
        driver.map_or(0, |driver| driver.borrow().verified())
    }

    fn transfer_id(&self) -> Option<TransferId> {
        Some(self.inner.borrow().transfer)
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
                libs: inner.libs,
                bytes: inner.totals.bytes,
                elapsed: inner.started.elapsed(),
                unchanged: inner.skip.unchanged(),
            }
        };
        Self::tell(this, ClientEvent::Ended(summary));
    }

    fn fail(this: &Weak<RefCell<Self>>, error: &Error) {
        Self::call_off(this, failure(error));
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
                let again = Self::loaded(&this);
                Self::compare(&this, again);
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

    /// Takes what the reader's thread has found out; returns the sources for a
    /// comparison.
    fn loaded(this: &Rc<RefCell<Self>>) -> Option<Vec<file::Input>> {
        let loaded = this.borrow().loading.try_recv().ok()?;
        {
            let mut inner = this.borrow_mut();
            inner.libs = loaded.added.directories;
            if let Some(send) = &mut inner.send {
                send.dest = loaded.dest;
            }
        }
        if !loaded.added.notes.is_empty() {
            Self::tell(this, ClientEvent::Notes(loaded.added.notes));
        }
        loaded.again
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
            let me = Weak::clone(&inner.me);
            let tell = move |found| Inner::found(&me, found);
            Finder::start(inner.handle, &send.terms, send.terms.plan.clone(), tell)
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
        let link = Link {
            handle: self.handle,
            service: service.to_owned(),
            broker: plan.root_broker,
        };
        let mut open = Open {
            version: VERSION,
            transfer: self.transfer,
            tree: plan.tree.clone(),
            dest,
            policy: send.policy,
            tuning: send.terms.tuning,
            partial: send.partial,
            total: self.totals.exact.then_some(self.totals.allocated),
            names: self.names.clone(),
            warrant: None,
            resume: None,
            heir: false,
            kernel: None,
        };
        link.sign_terms(&mut open)?;
        let weak = self.me.clone();
        let setup = Setup {
            open,
            handle: self.handle,
            network: Rc::new(Root {
                rank: plan.tree.root(),
                link,
            }),
            place: None,
            listener: Rc::new(move |event| {
                let Some(this) = weak.upgrade() else { return };
                match event {
                    DriverEvent::Progress(bytes) => {
                        Self::tell(&this, ClientEvent::Progress(bytes));
                    }
                    DriverEvent::Ended { results, why } => Self::end(&this, results, why),
                    DriverEvent::Placed(_)
                    | DriverEvent::Accepted
                    | DriverEvent::Declined
                    | DriverEvent::Finished => {}
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
