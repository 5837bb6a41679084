//! Fetches files from the nodes of a job: each rank's into a directory of its
//! own.
//!
//! The same promises as the other way round: what comes is written to a place
//! that nobody sees, verified by its digest, and appears under its name when it
//! is complete; by default no rank's files appear unless all ranks' do. Some
//! ranks send at once, each within a window, so memory is bounded whatever the
//! number and size of the files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Instant;

use super::ClientEvent;
use super::Running;
use super::Summary;
use super::Terms;
use super::finder::Found;
use super::finder::Search;
use super::intake::Intake;
use super::intake::IntakeEvent;
use super::shelf::Shelf;
use super::template;
use crate::bcast::id::TransferId;
use crate::bcast::message::Plan;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::Outcome;
use crate::bcast::report::Placed;
use crate::bcast::report::RankResult;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Existing;
use crate::bcast::spec::Policy;
use crate::file::Totals;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::idset::IdSet;
use crate::transfer::ask::Fetch;
use crate::transfer::edge::Link;
use crate::transfer::new_id;
use crate::transfer::signed;
use crate::transfer::writer::Place;

/// So many ranks send at once, unless the caller says otherwise.
pub const AT_ONCE: u32 = 16;

/// What to fetch, and where it goes.
#[derive(Debug)]
pub struct Gather {
    /// Job, ranks that send, flow and time; window and pace are shared by those
    /// who send at once.
    pub terms: Terms,
    /// The sources, absolute or below each rank's temporary directory.
    pub sources: Vec<RawName>,
    /// Directory that gets a directory for each rank, `DIR/RANK`; or, with tags
    /// `{{rank}}` and `{{host}}`, each rank's directory.
    pub dir: RawName,
    /// Make missing parents of that directory.
    pub mkdir: bool,
    /// How the copies are made: `Refuse` or `Replace`, mode, times, sync.
    pub policy: Policy,
    /// So many ranks send at once, at least 1.
    pub at_once: u32,
    /// Files of healthy ranks appear although others fail.
    pub partial: bool,
}

/// Such a transfer that goes on. Dropping it calls it off.
pub struct Gathering {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    handle: Handle,
    gather: Gather,
    transfer: TransferId,
    listener: Rc<dyn Fn(ClientEvent)>,
    started: Instant,
    plan: Option<Plan>,
    service: String,
    shelf: Option<Shelf>,
    /// Ranks still to be asked, the next one last.
    todo: Vec<u32>,
    intakes: BTreeMap<u32, Intake>,
    /// What is on the shelf, by rank.
    fetched: BTreeMap<u32, Vec<Placed>>,
    failed: BTreeMap<u32, Failure>,
    /// Bytes taken by ranks that are done, and by those that are not.
    bytes: u64,
    coming: BTreeMap<u32, u64>,
    search: Option<Search>,
    ended: bool,
    me: Weak<RefCell<Inner>>,
}

impl Gathering {
    /// Starts. `listener` is called from the reactor only, never from here.
    ///
    /// # Errors
    /// Those of the connection. All else comes as [`ClientEvent::Ended`].
    pub fn start(
        handle: Handle,
        gather: Gather,
        listener: impl Fn(ClientEvent) + 'static,
    ) -> Result<Self> {
        let transfer = new_id()?;
        let terms = gather.terms.clone();
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                gather,
                transfer,
                listener: Rc::new(listener),
                started: Instant::now(),
                plan: None,
                service: String::new(),
                shelf: None,
                todo: Vec::new(),
                intakes: BTreeMap::new(),
                fetched: BTreeMap::new(),
                failed: BTreeMap::new(),
                bytes: 0,
                coming: BTreeMap::new(),
                search: None,
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
                Inner::end(&this, Some(why));
            }
        };
        let search = Search::start(handle, &terms, terms.plan.clone(), found, expired)?;
        inner.borrow_mut().search = Some(search);
        Ok(Self { inner })
    }
}

/// [`ClientEvent::Ended`] comes at once when it is called off.
impl Running for Gathering {
    fn call_off(&self, why: Failure) {
        Inner::end(&self.inner, Some(why));
    }

    fn verified(&self) -> u32 {
        u32::try_from(self.inner.borrow().fetched.len()).unwrap_or(u32::MAX)
    }

    fn transfer_id(&self) -> Option<TransferId> {
        Some(self.inner.borrow().transfer)
    }
}

impl Inner {
    fn tell(this: &Rc<RefCell<Self>>, event: ClientEvent) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn found(this: &Rc<RefCell<Self>>, found: Found) {
        match found {
            Found::Waiting => Self::tell(this, ClientEvent::Waiting),
            Found::Ready { plan, service } => {
                let begun = this.borrow_mut().begin(&plan, service);
                match begun {
                    Ok(()) => {
                        let totals = Totals::default();
                        Self::tell(this, ClientEvent::Started { plan, totals });
                        Self::go_on(this);
                    }
                    Err(failure) => Self::end(this, Some(failure)),
                }
            }
            Found::Over(failure) => Self::end(this, Some(failure)),
        }
    }

    fn begin(&mut self, plan: &Plan, service: String) -> std::result::Result<(), Failure> {
        let dir = self.gather.dir.as_path();
        template::check(dir, plan.tree.ranks(), &plan.hosts)
            .map_err(|text| Failure::client(libc::EINVAL, text))?;
        let id = self.transfer.to_string();
        let shelf = Shelf::make(template::fixed(dir), &id, self.gather.mkdir)
            .map_err(|error| Failure::client(error.errno.raw(), error.text))?;
        self.shelf = Some(shelf);
        self.todo = plan.tree.ranks().to_vec();
        self.todo.sort_unstable_by(|a, b| b.cmp(a));
        self.service = service;
        self.plan = Some(plan.clone());
        Ok(())
    }

    fn go_on(this: &Rc<RefCell<Self>>) {
        let over = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            let give_up = !inner.gather.partial && !inner.failed.is_empty();
            while !give_up
                && inner.intakes.len() < inner.gather.at_once.max(1) as usize
                && let Some(rank) = inner.todo.pop()
            {
                match inner.ask(rank) {
                    Ok(intake) => {
                        inner.intakes.insert(rank, intake);
                    }
                    Err(failure) => {
                        inner.failed.insert(rank, failure);
                    }
                }
            }
            give_up || inner.intakes.is_empty()
        };
        if over {
            Self::end(this, None);
        }
    }

    /// How many ranks send at once, at most.
    fn senders(&self) -> u64 {
        let ranks = self.plan.as_ref().map_or(1, |plan| plan.tree.size());
        u64::from(self.gather.at_once).min(ranks as u64).max(1)
    }

    fn ask(&self, rank: u32) -> std::result::Result<Intake, Failure> {
        let failure = |error: crate::flux::error::Error| {
            Failure::on(rank, error.errno().raw(), error.to_string())
        };
        let broker = self.plan.as_ref().and_then(|plan| {
            let broker = plan.brokers.get(rank as usize)?;
            Some(*broker)
        });
        let (Some(broker), Some(shelf)) = (broker, &self.shelf) else {
            return Err(Failure::on(
                rank,
                libc::EHOSTUNREACH,
                "its broker is not known",
            ));
        };
        let transfer = new_id().map_err(failure)?;
        let tuning = &self.gather.terms.tuning;
        let share = tuning.shared_by(self.senders());
        let fetch = Fetch {
            version: VERSION,
            transfer,
            sources: self.gather.sources.clone(),
            chunk: tuning.chunk,
            batch: share.batch_within(share.window),
            window: share.window,
            pace: share.pace,
            stall: tuning.stall,
        };
        let link = Link {
            handle: self.handle,
            service: self.service.clone(),
            broker,
        };
        let seal = signed::is_needed(self.handle).map_err(failure)?;
        let place = Place {
            base: shelf.dir().to_path_buf(),
            is_tmpdir: false,
            dest: Ok(Dest {
                path: Some(RawName::from(format!("{rank}/").as_str())),
                mkdir: true,
                ..Dest::default()
            }),
            policy: Policy {
                existing: Existing::Refuse,
                ..self.gather.policy.clone()
            },
            transfer,
            rank,
            total: None,
            names: Vec::new(),
            registry: None,
            seal: seal.then(|| self.service.clone()),
        };
        let stall = self.gather.terms.stall();
        let me = Weak::clone(&self.me);
        Intake::start(link, fetch, place, stall, move |event| {
            if let Some(this) = me.upgrade() {
                Self::intake_says(&this, rank, event);
            }
        })
        .map_err(failure)
    }

    fn intake_says(this: &Rc<RefCell<Self>>, rank: u32, event: IntakeEvent) {
        let over = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            match event {
                IntakeEvent::Progress(bytes) => {
                    inner.coming.insert(rank, bytes);
                    None
                }
                IntakeEvent::Done(placed) => {
                    inner.coming.remove(&rank);
                    inner.bytes += placed.iter().map(|placed| placed.bytes).sum::<u64>();
                    inner.fetched.insert(rank, placed);
                    inner.intakes.remove(&rank)
                }
                IntakeEvent::Failed(failure) => {
                    inner.coming.remove(&rank);
                    inner.failed.insert(rank, failure);
                    inner.intakes.remove(&rank)
                }
            }
        };
        match over {
            Some(over) => {
                // One that is complete has nothing left to stop.
                over.stop();
                Self::go_on(this);
            }
            None => {
                let bytes = this.borrow().taken();
                Self::tell(this, ClientEvent::Progress(bytes));
            }
        }
    }

    fn taken(&self) -> u64 {
        self.bytes + self.coming.values().sum::<u64>()
    }

    /// The end, good or bad: what is on the shelf is published, or is removed
    /// with it.
    fn end(this: &Rc<RefCell<Self>>, why: Option<Failure>) {
        let (summary, intakes) = {
            let mut inner = this.borrow_mut();
            if inner.ended {
                return;
            }
            inner.ended = true;
            inner.search = None;
            // Their writers end before the shelf goes.
            let intakes = std::mem::take(&mut inner.intakes);
            (inner.conclude(why), intakes)
        };
        for intake in intakes.into_values() {
            intake.stop();
        }
        // Removes what is left on it.
        let shelf = this.borrow_mut().shelf.take();
        drop(shelf);
        Self::tell(this, ClientEvent::Ended(summary));
    }

    fn conclude(&mut self, why: Option<Failure>) -> Summary {
        let mut done = BTreeMap::new();
        let refused = why.is_some() || (!self.gather.partial && !self.failed.is_empty());
        if !refused {
            // All at once, so that a failure takes everything back; or each for
            // itself.
            let fetched: Vec<u32> = self.fetched.keys().copied().collect();
            let lot = match self.gather.partial {
                true => 1,
                false => fetched.len().max(1),
            };
            for ranks in fetched.chunks(lot) {
                match self.publish(ranks) {
                    Ok(published) => done.extend(published),
                    Err(failure) => {
                        if let Some(rank) = failure.rank {
                            self.failed.insert(rank, failure);
                        }
                    }
                }
            }
        }
        let (ranks, hosts) = match &self.plan {
            Some(plan) => (plan.tree.ranks().to_vec(), plan.hosts.clone()),
            None => (Vec::new(), Vec::new()),
        };
        let mut results: Vec<RankResult> = ranks
            .into_iter()
            .map(|rank| RankResult {
                rank,
                outcome: match (done.remove(&rank), self.failed.get(&rank)) {
                    (Some(placed), _) => Outcome::Done(placed),
                    (None, Some(failure)) => Outcome::Failed(failure.clone()),
                    (None, None) => Outcome::Cancelled,
                },
            })
            .collect();
        results.sort_unstable_by_key(|result| result.rank);
        Summary {
            transfer: self.transfer,
            results,
            why,
            hosts,
            names: Vec::new(),
            libs: 0,
            bytes: self.bytes,
            elapsed: self.started.elapsed(),
            unchanged: IdSet::default(),
        }
    }

    /// Gives what was fetched its names.
    fn publish(
        &self,
        ranks: &[u32],
    ) -> std::result::Result<BTreeMap<u32, Vec<Placed>>, Failure> {
        let (Some(shelf), Some(plan)) = (&self.shelf, &self.plan) else {
            return Ok(BTreeMap::new());
        };
        let dir = self.gather.dir.as_path();
        let ranks: Vec<(u32, PathBuf)> = ranks
            .iter()
            .map(|&rank| (rank, template::render(dir, rank, &plan.hosts)))
            .collect();
        let replace = self.gather.policy.existing == Existing::Replace;
        let published = shelf
            .publish(&ranks, replace, self.gather.policy.sync)
            .map_err(|(rank, error)| Failure::on(rank, error.errno.raw(), error.text))?;
        let mut done = BTreeMap::new();
        for (rank, paths) in published {
            // In the order of the sources.
            let fetched = self.fetched.get(&rank).map_or(&[][..], Vec::as_slice);
            let placed = fetched.iter().filter_map(|copy| {
                let name = copy.path.as_path().file_name();
                let path = paths.iter().find(|path| path.file_name() == name)?;
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                Some(Placed {
                    path: RawName::from(path),
                    ..copy.clone()
                })
            });
            done.insert(rank, placed.collect());
        }
        Ok(done)
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Their writers end before the shelf goes.
        for intake in std::mem::take(&mut self.intakes).into_values() {
            intake.stop();
        }
    }
}
