//! Sends files that are on a node of the job: that node's shell is the origin,
//! and tells how it goes.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;
use std::time::Instant;

use super::ClientEvent;
use super::Running;
use super::Summary;
use super::Terms;
use super::finder::Found;
use super::finder::Search;
use super::pulse;
use super::pulse::Pulse;
use super::terms::failure;
use crate::bcast::id::TransferId;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::RankResult;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::file::Totals;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::FutureRef;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::idset::IdSet;
use crate::transfer::ask::From;
use crate::transfer::ask::Told;
use crate::transfer::edge;
use crate::transfer::edge::Link;
use crate::transfer::new_id;

/// What to send from where.
#[derive(Debug)]
pub struct SendFrom {
    /// Job, ranks, flow and time.
    pub terms: Terms,
    /// The shell rank whose node has the sources. Unless the terms name ranks
    /// or hosts, it gets no copies: it has the files.
    pub rank: u32,
    /// The sources, absolute or below that rank's temporary directory.
    pub sources: Vec<RawName>,
    /// Where the copies go.
    pub dest: Dest,
    /// How they are made.
    pub policy: Policy,
    /// Healthy ranks commit although others fail.
    pub partial: bool,
}

/// Such a transfer that goes on. Dropping it calls the transfer off.
pub struct Remote {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    handle: Handle,
    send: Option<SendFrom>,
    transfer: TransferId,
    listener: Rc<dyn Fn(ClientEvent)>,
    started: Instant,
    stall: Duration,
    totals: Totals,
    names: Vec<RawName>,
    hosts: Vec<String>,
    verified: u32,
    search: Option<Search>,
    stream: Option<Pending>,
    /// The shell that sends, until it has told how it ended.
    origin: Option<Link>,
    pulse: Option<Pulse>,
    ended: bool,
    me: Weak<RefCell<Inner>>,
}

impl Remote {
    /// Starts. `listener` is called from the reactor only, never from here.
    ///
    /// # Errors
    /// Those of the connection. All else comes as [`ClientEvent::Ended`].
    pub fn start(
        handle: Handle,
        send: SendFrom,
        listener: impl Fn(ClientEvent) + 'static,
    ) -> Result<Self> {
        let transfer = new_id()?;
        let terms = send.terms.clone();
        // The leader says where the shell of that one rank is.
        let asked = PlanRequest {
            version: VERSION,
            ranks: Some(IdSet::from_iter([send.rank])),
            ..PlanRequest::default()
        };
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                send: Some(send),
                transfer,
                listener: Rc::new(listener),
                started: Instant::now(),
                stall: terms.stall(),
                totals: Totals::default(),
                names: Vec::new(),
                hosts: Vec::new(),
                verified: 0,
                search: None,
                stream: None,
                origin: None,
                pulse: None,
                ended: false,
                me: Weak::clone(me),
            })
        });
        let weak = Rc::downgrade(&inner);
        let found = move |found| {
            if let Some(this) = weak.upgrade() {
                Inner::found(&this, found);
            }
        };
        let weak = Rc::downgrade(&inner);
        let expired = move |why| {
            if let Some(this) = weak.upgrade() {
                Inner::end(&this, Vec::new(), Some(why));
            }
        };
        let search = Search::start(handle, &terms, asked, found, expired)?;
        inner.borrow_mut().search = Some(search);
        Ok(Self { inner })
    }
}

/// [`ClientEvent::Ended`] comes at once when it is called off, and the ranks drop
/// what they have.
impl Running for Remote {
    fn call_off(&self, why: Failure) {
        Inner::fail(&Rc::downgrade(&self.inner), why);
    }

    fn verified(&self) -> u32 {
        self.inner.borrow().verified
    }

    fn transfer_id(&self) -> Option<TransferId> {
        Some(self.inner.borrow().transfer)
    }
}

impl Inner {
    /// Lets go of everything.
    fn quit(&mut self) {
        self.ended = true;
        if let Some(origin) = self.origin.take() {
            let why = Failure::client(libc::ECANCELED, "the client gave up");
            pulse::call_off(&origin, self.transfer, why);
        }
        self.search = None;
        self.stream = None;
        self.pulse = None;
    }

    fn tell(this: &Rc<RefCell<Self>>, event: ClientEvent) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn fail(weak: &Weak<RefCell<Self>>, why: Failure) {
        if let Some(this) = weak.upgrade() {
            Self::end(&this, Vec::new(), Some(why));
        }
    }

    fn end(this: &Rc<RefCell<Self>>, results: Vec<RankResult>, why: Option<Failure>) {
        let summary = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            inner.quit();
            Summary {
                transfer: inner.transfer,
                results,
                why,
                hosts: inner.hosts.clone(),
                names: inner.names.clone(),
                libs: 0,
                bytes: inner.totals.bytes,
                elapsed: inner.started.elapsed(),
                unchanged: IdSet::default(),
            }
        };
        Self::tell(this, ClientEvent::Ended(summary));
    }

    fn found(this: &Rc<RefCell<Self>>, found: Found) {
        match found {
            Found::Waiting => Self::tell(this, ClientEvent::Waiting),
            Found::Ready { plan, service } => {
                let link = Link {
                    handle: this.borrow().handle,
                    service,
                    broker: plan.root_broker,
                };
                this.borrow_mut().hosts = plan.hosts;
                let begun = this.borrow_mut().begin(link);
                if let Err(error) = begun {
                    Self::end(this, Vec::new(), Some(failure(&error)));
                }
            }
            Found::Over(failure) => Self::end(this, Vec::new(), Some(failure)),
        }
    }

    fn begin(&mut self, link: Link) -> Result<()> {
        let Some(send) = self.send.take() else {
            return Ok(());
        };
        let mut plan = send.terms.plan;
        if plan.ranks.is_none() && plan.hosts.is_none() {
            plan.exclude
                .get_or_insert_with(IdSet::default)
                .insert(send.rank);
        }
        let from = From {
            version: VERSION,
            transfer: self.transfer,
            sources: send.sources,
            dest: send.dest,
            policy: send.policy,
            plan,
            tuning: send.terms.tuning,
            partial: send.partial,
        };
        let node = Node::Rank(link.broker);
        let (me, rank) = (Weak::clone(&self.me), send.rank);
        let from = link.payload("from", IdSet::from_iter([rank]), &from)?;
        let stream = self.handle.stream_json(&link.topic("from"), &from, node)?;
        self.stream = Some(stream.then(None, move |future| {
            let Some(this) = me.upgrade() else { return };
            Self::told(&this, rank, future);
        })?);
        self.origin = Some(link.clone());
        let me = Weak::clone(&self.me);
        self.pulse = Some(Pulse::start(
            link,
            self.transfer,
            self.stall,
            move |failure| {
                let rank = Some(rank);
                Self::fail(&me, Failure { rank, ..failure });
            },
        )?);
        Ok(())
    }

    fn told(this: &Rc<RefCell<Self>>, rank: u32, future: FutureRef<'_>) {
        let told = future.get_json::<Told>();
        if matches!(told, Ok(Told::Started { .. } | Told::Progress { .. })) {
            future.reset();
        }
        match told {
            Ok(Told::Started {
                plan,
                names,
                entries,
                bytes,
                exact,
            }) => {
                let totals = Totals {
                    entries,
                    bytes,
                    allocated: bytes,
                    exact,
                };
                {
                    let mut inner = this.borrow_mut();
                    inner.totals = totals;
                    inner.names = names;
                }
                Self::tell(this, ClientEvent::Started { plan, totals });
            }
            Ok(Told::Progress { bytes, ranks }) => {
                this.borrow_mut().verified = ranks;
                Self::tell(this, ClientEvent::Progress(bytes));
            }
            Ok(Told::Ended { results, why }) => {
                this.borrow_mut().origin = None;
                Self::end(this, results, why);
            }
            Err(error) => Self::end(this, Vec::new(), Some(refusal(rank, &error))),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.inner.borrow_mut().quit();
    }
}

fn refusal(rank: u32, error: &Error) -> Failure {
    let (errno, text) = edge::explain(error);
    Failure::on(rank, errno.raw(), text)
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}
