//! Transfers that begin in this shell: what `-o bcast` asks for, and what a
//! client wants sent from this node.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use super::Bcast;
use super::plan;
use super::plan::Overlay;
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
use crate::file::FileError;
use crate::file::SourceSpec;
use crate::file::Totals;
use crate::flux::error::Result;
use crate::transfer::driver::Driver;
use crate::transfer::driver::DriverEvent;
use crate::transfer::driver::Network;
use crate::transfer::driver::Setup;
use crate::transfer::reader::Reader;
use crate::transfer::reader::SourceEvent;

/// What to do with what is read.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub(super) transfer: TransferId,
    pub(super) dest: Dest,
    pub(super) policy: Policy,
    pub(super) plan: PlanRequest,
    pub(super) tuning: Tuning,
    pub(super) partial: bool,
    pub(super) timeout: Option<Duration>,
}

/// What becomes of it.
#[derive(Debug)]
pub(super) enum SendEvent {
    /// Data begins to flow.
    Started {
        plan: Plan,
        names: Vec<RawName>,
        totals: Totals,
    },
    /// The slowest healthy rank has so many bytes, so many ranks have all.
    Progress { bytes: u64, ranks: u32 },
    /// The end; nothing more comes.
    Ended {
        results: Vec<RankResult>,
        why: Option<Failure>,
    },
}

/// A transfer that begins here. Dropping it lets it go on by itself; it is
/// stopped by [`Outgoing::abort`] and when the shell leaves.
pub(super) struct Outgoing {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    bcast: Weak<Bcast>,
    sending: Sending,
    listener: Rc<dyn Fn(SendEvent)>,
    reader: Option<Reader>,
    driver: Option<Rc<RefCell<Driver>>>,
    names: Vec<RawName>,
    totals: Totals,
    ended: bool,
}

impl Outgoing {
    /// Starts. `spec` is called in the thread that reads; `listener` from the
    /// reactor.
    ///
    /// # Errors
    /// The thread or its channel could not be made.
    pub(super) fn start(
        bcast: &Rc<Bcast>,
        sending: Sending,
        spec: impl FnOnce() -> std::result::Result<SourceSpec, FileError> + Send + 'static,
        listener: impl Fn(SendEvent) + 'static,
    ) -> Result<Self> {
        let transfer = sending.transfer;
        let inner = Rc::new(RefCell::new(Inner {
            bcast: Rc::downgrade(bcast),
            sending,
            listener: Rc::new(listener),
            reader: None,
            driver: None,
            names: Vec::new(),
            totals: Totals::default(),
            ended: false,
        }));
        let weak = Rc::downgrade(&inner);
        let reader =
            Reader::start_with(bcast.handle.reactor()?, spec, transfer, move |event| {
                if let Some(this) = weak.upgrade() {
                    Inner::source_says(&this, event);
                }
            })?;
        inner.borrow_mut().reader = Some(reader);
        Ok(Self { inner })
    }

    /// Calls it off.
    pub(super) fn abort(&self, why: Failure) {
        Inner::call_off(&self.inner, why);
    }
}

impl Inner {
    fn tell(this: &Rc<RefCell<Self>>, event: SendEvent) {
        let listener = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            inner.ended = matches!(event, SendEvent::Ended { .. });
            Rc::clone(&inner.listener)
        };
        listener(event);
    }

    fn call_off(this: &Rc<RefCell<Self>>, why: Failure) {
        let driver = this.borrow().driver.clone();
        match driver {
            Some(driver) => Driver::feed(&driver, Input::Abort(why)),
            None => {
                let (results, why) = (Vec::new(), Some(why));
                Self::tell(this, SendEvent::Ended { results, why });
            }
        }
    }

    fn source_says(this: &Rc<RefCell<Self>>, event: SourceEvent) {
        match event {
            SourceEvent::Opened { totals, names } => {
                let bcast = {
                    let mut inner = this.borrow_mut();
                    inner.totals = totals;
                    inner.names = names;
                    inner.bcast.upgrade()
                };
                let this = Rc::clone(this);
                if let Some(bcast) = bcast {
                    let leader = Rc::clone(&bcast);
                    bcast.with_overlay(move |overlay| {
                        Self::opened(&this, &leader, overlay);
                    });
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
                    this,
                    Failure::client(error.errno().raw(), error.to_string()),
                );
            }
        }
    }

    fn opened(this: &Rc<RefCell<Self>>, bcast: &Rc<Bcast>, overlay: Option<&Overlay>) {
        if this.borrow().ended {
            return;
        }
        let planned = plan::plan(&this.borrow().sending.plan, &bcast.peers, overlay);
        let started = planned.and_then(|plan| {
            let driver = Self::originate(this, bcast, &plan)?;
            Ok((plan, driver))
        });
        match started {
            Ok((plan, driver)) => {
                this.borrow_mut().driver = driver;
                let (names, totals) = {
                    let inner = this.borrow();
                    (inner.names.clone(), inner.totals)
                };
                Self::tell(
                    this,
                    SendEvent::Started {
                        plan,
                        names,
                        totals,
                    },
                );
            }
            Err(error) => {
                let why = Failure::client(error.errno().raw(), error.to_string());
                Self::call_off(this, why);
            }
        }
    }

    fn originate(
        this: &Rc<RefCell<Self>>,
        bcast: &Rc<Bcast>,
        plan: &Plan,
    ) -> Result<Option<Rc<RefCell<Driver>>>> {
        let (reader, sending, names, total) = {
            let mut inner = this.borrow_mut();
            let total = inner.totals.exact.then_some(inner.totals.allocated);
            let names = inner.names.clone();
            (inner.reader.take(), inner.sending.clone(), names, total)
        };
        let Some(reader) = reader else {
            return Ok(None);
        };
        let mut dest = sending.dest;
        dest.directory = dest.directory || names.len() > 1;
        let mut open = Open {
            version: VERSION,
            transfer: sending.transfer,
            tree: plan.tree.clone(),
            dest,
            policy: sending.policy,
            tuning: sending.tuning,
            partial: sending.partial,
            total,
            names,
            warrant: None,
            resume: None,
            heir: false,
            kernel: None,
        };
        if let Some(link) = bcast.peers.link(open.tree.root()) {
            link.sign_terms(&mut open)?;
        }
        let here = open.tree.root() == bcast.info.rank;
        if let (true, Some(signed)) = (here, &open.warrant) {
            bcast.access.obey_own(signed)?;
        }
        let place = if here {
            Some(bcast.place(&open)?)
        } else {
            None
        };
        let children = if here {
            open.tree.children()
        } else {
            vec![open.tree.clone()]
        };
        let setup = Setup {
            open,
            handle: bcast.handle,
            network: bcast.peers.clone(),
            place,
            listener: Self::listener(this, sending.transfer),
        };
        let driver = Driver::origin(setup, children, reader, sending.timeout)?;
        let held = Rc::clone(&driver);
        bcast.origins.borrow_mut().insert(sending.transfer, held);
        Ok(Some(driver))
    }

    fn listener(this: &Rc<RefCell<Self>>, transfer: TransferId) -> Rc<dyn Fn(DriverEvent)> {
        // The driver keeps its owner: nobody else has to.
        let (this, bcast) = (Rc::clone(this), Weak::clone(&this.borrow().bcast));
        Rc::new(move |event| match event {
            DriverEvent::Placed(placed) => {
                if let Some(bcast) = bcast.upgrade() {
                    bcast.start.borrow_mut().placed(transfer, &placed);
                }
            }
            DriverEvent::Progress(bytes) => {
                let driver = this.borrow().driver.clone();
                let ranks = driver.map_or(0, |driver| driver.borrow().verified());
                Self::tell(&this, SendEvent::Progress { bytes, ranks });
            }
            DriverEvent::Ended { results, why } => {
                Self::tell(&this, SendEvent::Ended { results, why });
            }
            DriverEvent::Finished => {
                this.borrow_mut().driver = None;
                if let Some(bcast) = bcast.upgrade() {
                    let over = bcast.origins.borrow_mut().remove(&transfer);
                    drop(over);
                }
            }
            DriverEvent::Accepted | DriverEvent::Declined => {}
        })
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("sending", &self.inner.borrow().sending)
            .finish_non_exhaustive()
    }
}
