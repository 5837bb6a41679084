//! `-o bcast=…`: files that are in place before any task starts.
//!
//! Every shell stays in here, running the reactor, until the leader releases
//! it: a shell that has left waits in a blocking barrier and would answer
//! nobody. The leader reads the files, is the origin of the transfer, and ends
//! the job if it fails. A job that is being ended meanwhile (cancelled, out of
//! time) is told by SIGTERM or SIGALRM, to which the shell itself does not
//! react before its tasks run; so that is done here.

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use serde::Deserialize;
use serde::Serialize;

use super::Bcast;
use super::options::Options;
use super::plan;
use super::service::Transfer;
use crate::bcast::id::TransferId;
use crate::bcast::message::Open;
use crate::bcast::message::Plan;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::relay::Input;
use crate::bcast::report;
use crate::bcast::report::Failure;
use crate::bcast::report::Placed;
use crate::bcast::report::RankResult;
use crate::errno::Errno;
use crate::file;
use crate::flux::error::Context;
use crate::flux::error::Result;
use crate::flux::handle::Node;
use crate::flux::message::Request;
use crate::flux::reactor::SignalWatcher;
use crate::transfer::driver::Driver;
use crate::transfer::driver::DriverEvent;
use crate::transfer::driver::Setup;
use crate::transfer::reader::Reader;
use crate::transfer::reader::SourceEvent;

/// Exit code of a job whose files could not be put in place.
const EXIT: u8 = 1;

/// What the leader tells every shell at the end.
#[derive(Debug, Serialize, Deserialize)]
struct Release {
    transfer: TransferId,
}

/// How far the job's start has come in this shell.
#[derive(Debug, Default)]
pub(super) struct Start {
    running: bool,
    released: bool,
    /// Copies made here while the start is running, by transfer.
    placed: BTreeMap<TransferId, Vec<Placed>>,
    env: Option<(String, RawName)>,
    several: bool,
    name: String,
}

impl Start {
    /// The variable for the tasks, once the copies are in place.
    pub(super) fn env(&self) -> Option<(&str, &RawName)> {
        self.env.as_ref().map(|(name, path)| (name.as_str(), path))
    }

    /// Notes the copies of a transfer.
    pub(super) fn placed(&mut self, transfer: TransferId, placed: &[Placed]) {
        if self.running {
            self.placed.insert(transfer, placed.to_vec());
        }
    }

    fn release(&mut self, transfer: TransferId) {
        let first = self.placed.get(&transfer).and_then(|placed| placed.first());
        let path = first.map(|first| &first.path).map(|path| {
            if !self.several {
                return path.clone();
            }
            RawName::from(path.as_path().parent().unwrap_or(Path::new("/")))
        });
        self.env = path.map(|path| (self.name.clone(), path));
        self.released = true;
    }
}

/// How the leader's part ended.
enum Verdict {
    Good(TransferId),
    Bad(Vec<String>),
}

type Slot = Rc<RefCell<Option<Verdict>>>;

impl Bcast {
    /// Carries `-o bcast` out, once.
    pub(super) fn start_job(self: &Rc<Self>) -> Result<()> {
        let Some(options) = self.options.take() else {
            return Ok(());
        };
        {
            let mut start = self.start.borrow_mut();
            start.running = true;
            start.several = options.sources.len() > 1;
            start.name.clone_from(&options.env);
        }
        let reactor = self.handle.reactor()?;
        let told_to_end = Rc::new(Cell::new(false));
        let mut signals = Vec::new();
        for signal in [libc::SIGTERM, libc::SIGALRM] {
            let flag = Rc::clone(&told_to_end);
            signals.push(SignalWatcher::new(reactor, signal, move || flag.set(true))?);
        }
        let verdict = Slot::default();
        let mut reader = None;
        if self.info.rank == 0 {
            reader = Some(self.lead(&options, &verdict)?);
        }
        while !self.start.borrow().released {
            if told_to_end.get() {
                self.leave("the job is being ended");
                // The reason is known already; exit without another message,
                // but by exit(3), so that the shell removes what it has made.
                std::process::exit(i32::from(EXIT));
            }
            match verdict.take() {
                Some(Verdict::Good(transfer)) => self.release_all(transfer)?,
                Some(Verdict::Bad(reasons)) => self.give_up(&reasons),
                None => {
                    reactor.run_once()?;
                }
            }
        }
        drop(reader);
        let mut start = self.start.borrow_mut();
        start.running = false;
        start.placed.clear();
        if let Some((name, path)) = start.env() {
            // The job's environment is JSON and cannot hold every name; that of
            // a task can, and is what counts (see `task_init`).
            match self.shell.setenv(name, path.as_os_str()) {
                Err(error) if error.errno() != Errno::EILSEQ => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// `bcast.release`: the leader lets this shell start its tasks.
    pub(super) fn serve_release(self: &Rc<Self>, request: Request) {
        match request.json::<Release>() {
            Ok(Release { transfer }) => {
                self.start.borrow_mut().release(transfer);
                if !request.is_noresponse() {
                    let _ = request.respond();
                }
            }
            Err(error) => {
                let _ = request.fail_with(&error);
            }
        }
    }

    fn release_all(&self, transfer: TransferId) -> Result<()> {
        self.start.borrow_mut().release(transfer);
        let topic = format!("{}.bcast.release", self.info.service);
        for rank in 1..self.peers.size() {
            let node = Node::Rank(self.peers.broker(rank)?);
            self.handle.send_json(&topic, &Release { transfer }, node)?;
        }
        Ok(())
    }

    /// Ends the job.
    fn give_up(&self, reasons: &[String]) -> ! {
        self.leave("the job's files could not be put in place");
        let (last, others) = match reasons.split_last() {
            Some((last, others)) => (last.as_str(), others),
            None => ("file broadcast: failed", reasons),
        };
        for reason in others {
            self.shell.log().error(format_args!("{reason}"));
        }
        self.shell.log().fatal(EXIT, format_args!("{last}"))
    }

    /// A shell is lost: whoever feeds it need not wait for it.
    pub(super) fn note_lost(&self, rank: u32) {
        let drivers: Vec<_> = self
            .transfers
            .borrow()
            .values()
            .map(|transfer| Rc::clone(transfer.driver()))
            .collect();
        for driver in drivers {
            Driver::lost(
                &driver,
                rank,
                "its shell is lost (killed, or its node failed)",
            );
        }
    }

    /// The leader's part: reads the files and starts the transfer.
    fn lead(
        self: &Rc<Self>,
        options: &Options,
        verdict: &Slot,
    ) -> Result<Rc<RefCell<Option<Reader>>>> {
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
            .context("choose a transfer id")?;
        let transfer = TransferId::from_bytes(id);
        let spec = file::SourceSpec {
            inputs: options
                .sources
                .iter()
                .map(|source| file::Input::path(source.as_path()))
                .collect(),
            recursive: true,
            follow: file::Follow::default(),
            chunk: options.tuning.chunk,
        };
        let holder = Rc::new(RefCell::new(None));
        let (this, slot, opts, held) = (
            Rc::clone(self),
            Rc::clone(verdict),
            options.clone(),
            Rc::clone(&holder),
        );
        let driver: Rc<RefCell<Option<Rc<RefCell<Driver>>>>> = Rc::default();
        let reader =
            Reader::start(
                self.handle.reactor()?,
                spec,
                transfer,
                move |event| match event {
                    SourceEvent::Opened { totals, names } => {
                        let (this, slot, opts) =
                            (Rc::clone(&this), Rc::clone(&slot), opts.clone());
                        let (held, driver) = (Rc::clone(&held), Rc::clone(&driver));
                        let total = totals.exact.then_some(totals.allocated);
                        let mut names = Some(names);
                        let leader = Rc::clone(&this);
                        this.with_overlay(move |overlay| {
                            let planned = plan::plan(&opts.plan, &leader.peers, overlay);
                            let started = planned.and_then(|plan| {
                                let reader = held.borrow_mut().take();
                                let promised = (total, names.take().unwrap_or_default());
                                leader.originate(&opts, plan, transfer, promised, reader, &slot)
                            });
                            match started {
                                Ok(started) => *driver.borrow_mut() = started,
                                Err(error) => {
                                    slot.replace(Some(Verdict::Bad(vec![format!(
                                        "bcast: {error}"
                                    )])));
                                }
                            }
                        });
                    }
                    SourceEvent::Frame(frame) => {
                        if let Some(driver) = &*driver.borrow() {
                            Driver::feed(driver, Input::Frame(frame));
                        }
                    }
                    SourceEvent::Failed(error) => {
                        let running = driver.borrow().clone();
                        match running {
                            Some(driver) => {
                                let why =
                                    Failure::client(error.errno().raw(), error.to_string());
                                Driver::feed(&driver, Input::Abort(why));
                            }
                            None => {
                                slot.replace(Some(Verdict::Bad(vec![format!(
                                    "bcast: {error}"
                                )])));
                            }
                        }
                    }
                },
            )?;
        holder.replace(Some(reader));
        Ok(holder)
    }

    fn originate(
        self: &Rc<Self>,
        options: &Options,
        plan: Plan,
        transfer: TransferId,
        (total, names): (Option<u64>, Vec<RawName>),
        reader: Option<Reader>,
        verdict: &Slot,
    ) -> Result<Option<Rc<RefCell<Driver>>>> {
        let Some(reader) = reader else {
            return Ok(None);
        };
        let mut dest = options.dest.clone();
        dest.directory = dest.directory || options.sources.len() > 1;
        let open = Open {
            version: VERSION,
            transfer,
            tree: plan.tree,
            dest,
            policy: options.policy.clone(),
            tuning: options.tuning.clone(),
            partial: options.partial,
            total,
            names,
        };
        let here = open.tree.root() == self.info.rank;
        let place = if here { Some(self.place(&open)?) } else { None };
        let children = if here {
            open.tree.children()
        } else {
            vec![open.tree.clone()]
        };
        let (this, slot, hosts) = (Rc::downgrade(self), Rc::clone(verdict), plan.hosts);
        let partial = options.partial;
        let setup = Setup {
            open,
            handle: self.handle,
            network: self.peers.clone(),
            place,
            listener: Rc::new(move |event| {
                let Some(this) = this.upgrade() else { return };
                match event {
                    DriverEvent::Placed(placed) => {
                        this.start.borrow_mut().placed(transfer, &placed);
                    }
                    DriverEvent::Ended { results, why } => {
                        let reasons = reasons(&results, why.as_ref(), &hosts);
                        let good = reasons.is_empty() || (partial && why.is_none());
                        let verdict = if good {
                            Verdict::Good(transfer)
                        } else {
                            Verdict::Bad(reasons)
                        };
                        slot.replace(Some(verdict));
                    }
                    DriverEvent::Finished => {
                        let over = this.transfers.borrow_mut().remove(&transfer);
                        drop(over);
                    }
                    DriverEvent::Progress(_) => {}
                }
            }),
        };
        let driver = Driver::origin(setup, children, reader, options.timeout)?;
        self.transfers
            .borrow_mut()
            .insert(transfer, Transfer::own(Rc::clone(&driver)));
        Ok(Some(driver))
    }
}

/// The failures in the user's words, one line for equal ones.
fn reasons(results: &[RankResult], why: Option<&Failure>, hosts: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = report::fold(results)
        .into_iter()
        .map(|fold| {
            format!(
                "file broadcast: {}: {}",
                report::who(&fold.ranks, hosts),
                fold.text
            )
        })
        .collect();
    if let Some(why) = why.filter(|why| why.rank.is_none() || lines.is_empty()) {
        lines.push(format!("file broadcast: {}", why.text));
    }
    if lines.is_empty()
        && results
            .iter()
            .any(|r| !matches!(r.outcome, report::Outcome::Done(_)))
    {
        lines.push(format!("file broadcast: {}", Errno::ECANCELED));
    }
    lines
}
