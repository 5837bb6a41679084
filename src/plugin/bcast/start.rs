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
use super::muster::Muster;
use super::options::Options;
use super::origin::Outgoing;
use super::origin::SendEvent;
use super::origin::Sending;
use crate::bcast::id::TransferId;
use crate::bcast::name::RawName;
use crate::bcast::report;
use crate::bcast::report::Failure;
use crate::bcast::report::Placed;
use crate::bcast::report::RankResult;
use crate::elf;
use crate::errno::Errno;
use crate::file;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Node;
use crate::flux::message::Request;
use crate::flux::reactor::SignalWatcher;
use crate::transfer::driver::Driver;
use crate::transfer::new_id;

/// Exit code of a job whose files could not be put in place.
const EXIT: u8 = 1;

/// Environment variable that gets the directories of shared objects.
const LIBS_ENV: &str = "FLUX_BCAST_LIBS";

/// What the leader tells every shell at the end; and what that shell asks the
/// leader before it believes it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Release {
    transfer: TransferId,
}

/// How far the job's start has come in this shell.
#[derive(Debug, Default)]
pub(super) struct Start {
    running: bool,
    released: Option<TransferId>,
    /// On the leader: the shells that have not confirmed their release yet. On
    /// the others: questions to the leader, by number.
    pending: BTreeMap<u32, Pending>,
    questions: u32,
    /// Copies made here while the start is running, by transfer.
    placed: BTreeMap<TransferId, Vec<Placed>>,
    /// Variables for the tasks.
    env: Vec<(String, RawName)>,
    /// How many sources the job names; what was sent besides are directories of
    /// shared objects.
    sources: usize,
    name: String,
}

impl Start {
    /// The variables for the tasks, once the copies are in place.
    pub(super) fn env(&self) -> impl Iterator<Item = (&str, &RawName)> {
        self.env.iter().map(|(name, path)| (name.as_str(), path))
    }

    /// Notes the copies of a transfer.
    pub(super) fn placed(&mut self, transfer: TransferId, placed: &[Placed]) {
        if self.running {
            self.placed.insert(transfer, placed.to_vec());
        }
    }

    fn release(&mut self, transfer: TransferId) {
        let placed = self.placed.get(&transfer).map_or(&[][..], Vec::as_slice);
        self.env = variables(placed, self.sources, &self.name);
        self.released = Some(transfer);
    }
}

/// What the tasks are told: the path of the copy, or the directory of several,
/// and the directories of shared objects as a search path.
fn variables(placed: &[Placed], sources: usize, name: &str) -> Vec<(String, RawName)> {
    let mut variables = Vec::new();
    let (copies, libs) = placed.split_at(sources.min(placed.len()));
    if let Some(first) = copies.first() {
        let path = first.path.as_path();
        let path = if sources > 1 {
            path.parent().unwrap_or(Path::new("/"))
        } else {
            path
        };
        variables.push((name.to_owned(), RawName::from(path)));
    }
    if !libs.is_empty() {
        let dirs: Vec<&[u8]> = libs.iter().map(|dir| dir.path.as_bytes()).collect();
        variables.push((LIBS_ENV.to_owned(), RawName::new(dirs.join(&b':'))));
    }
    variables
}

/// How the leader's part ended.
enum Verdict {
    /// The job starts; with the failures of ranks that may fail.
    Good(TransferId, Vec<String>),
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
            start.sources = options.sources.len();
            start.name.clone_from(&options.env);
        }
        let reactor = self.handle.reactor()?;
        let told_to_end = Rc::new(Cell::new(false));
        let mut signals = Vec::new();
        for signal in [libc::SIGTERM, libc::SIGALRM] {
            let flag = Rc::clone(&told_to_end);
            signals.push(SignalWatcher::new(reactor, signal, move || flag.set(true))?);
        }
        let wait = || -> Result<()> {
            if told_to_end.get() {
                self.leave("the job is being ended");
                // The reason is known already; exit without another message,
                // but by exit(3), so that the shell removes what it has made.
                std::process::exit(i32::from(EXIT));
            }
            reactor.run_once().map(drop)
        };
        let verdict = Slot::default();
        let mut leading = None;
        if self.info.rank == 0 {
            if self.early {
                let muster = Muster::start(self)?;
                while !muster.is_complete() {
                    wait()?;
                }
            }
            leading = Some(self.lead(&options, &verdict)?);
        }
        while self.start.borrow().released.is_none() {
            match verdict.take() {
                Some(Verdict::Good(transfer, reasons)) => {
                    for reason in reasons {
                        self.shell.log().warn(format_args!("{reason}"));
                    }
                    self.release_all(transfer, &wait)?;
                }
                Some(Verdict::Bad(reasons)) => self.give_up(&reasons),
                None => wait()?,
            }
        }
        drop(leading);
        let mut start = self.start.borrow_mut();
        start.running = false;
        start.placed.clear();
        start.pending.clear();
        for (name, path) in start.env() {
            // The job's environment is JSON and cannot hold every name; that of
            // a task can, and is what counts (see `task_init`).
            match self.shell.setenv(name, path.as_os_str()) {
                Err(error) if error.errno() != Errno::EILSEQ => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// `bcast.release`: the leader lets this shell start its tasks. A shell that
    /// leaves too early answers nobody, and others may say this as well; so the
    /// leader is asked back, for whom nobody else can answer.
    pub(super) fn serve_release(self: &Rc<Self>, request: Request) {
        let served = match request.json::<Release>() {
            Ok(release) if self.info.rank == 0 && self.has_released(release) => {
                return drop(request.respond());
            }
            Ok(release) if self.awaits_release() => self.confirm(release, request),
            Ok(_) => {
                let text = "this shell does not wait for a release";
                request.fail(Errno::EPROTO, Some(text))
            }
            Err(error) => request.fail_with(&error),
        };
        if let Err(error) = served {
            self.shell.log().debug(format_args!("release: {error}"));
        }
    }

    /// The leader has let the others go.
    fn has_released(&self, release: Release) -> bool {
        self.start.borrow().released == Some(release.transfer)
    }

    /// The leader releases itself; were it released by somebody else, nobody
    /// would release the others. Another shell may be told before it waits.
    fn awaits_release(&self) -> bool {
        let ahead = self.options.borrow().is_some() || self.start.borrow().running;
        self.info.rank != 0 && ahead
    }

    /// Asks the leader whether it has released this shell.
    fn confirm(self: &Rc<Self>, release: Release, request: Request) -> Result<()> {
        let topic = format!("{}.bcast.release", self.info.service);
        let leader = Node::Rank(self.peers.broker(0)?);
        let number = {
            let mut start = self.start.borrow_mut();
            start.questions = start.questions.wrapping_add(1);
            start.questions
        };
        let (this, mut request) = (Rc::downgrade(self), Some(request));
        let asked = self.handle.rpc_json(&topic, &release, leader)?;
        let question = asked.then(None, move |answer| {
            let (Some(this), Some(request)) = (this.upgrade(), request.take()) else {
                return;
            };
            let over = this.start.borrow_mut().pending.remove(&number);
            if answer.get().is_ok() {
                this.start.borrow_mut().release(release.transfer);
                let _ = request.respond();
            } else {
                let text = "the leader has not released this shell";
                let _ = request.fail(Errno::EPERM, Some(text));
            }
            drop(over);
        })?;
        self.start.borrow_mut().pending.insert(number, question);
        Ok(())
    }

    /// Lets all shells go. The leader stays, to be asked, until each has
    /// confirmed it or is gone.
    fn release_all(
        self: &Rc<Self>,
        transfer: TransferId,
        wait: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.start.borrow_mut().release(transfer);
        let topic = format!("{}.bcast.release", self.info.service);
        for rank in 1..self.peers.size() {
            let node = Node::Rank(self.peers.broker(rank)?);
            let told = self.handle.rpc_json(&topic, &Release { transfer }, node)?;
            let this = Rc::downgrade(self);
            let told = told.then(None, move |_| {
                if let Some(this) = this.upgrade() {
                    let over = this.start.borrow_mut().pending.remove(&rank);
                    drop(over);
                }
            })?;
            self.start.borrow_mut().pending.insert(rank, told);
        }
        while !self.start.borrow().pending.is_empty() {
            wait()?;
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
        let over = match self.info.rank {
            0 => self.start.borrow_mut().pending.remove(&rank),
            _ => None,
        };
        drop(over);
        let mut drivers: Vec<_> = self.origins.borrow().values().cloned().collect();
        drivers.extend(
            self.transfers
                .borrow()
                .values()
                .map(|transfer| Rc::clone(transfer.driver())),
        );
        for driver in drivers {
            Driver::lost(
                &driver,
                rank,
                "its shell is lost (killed, or its node failed)",
            );
        }
    }

    /// The leader's part: reads the files and starts the transfer.
    fn lead(self: &Rc<Self>, options: &Options, verdict: &Slot) -> Result<Outgoing> {
        let transfer = new_id()?;
        let mut sending = Sending {
            transfer,
            dest: options.dest.clone(),
            policy: options.policy.clone(),
            plan: options.plan.clone(),
            tuning: options.tuning.clone(),
            partial: options.partial,
            timeout: options.timeout,
        };
        let (sources, chunk) = (options.sources.clone(), options.tuning.chunk);
        let mut inputs: Vec<file::Input> = sources
            .iter()
            .map(|source| file::Input::path(source.as_path()))
            .collect();
        if let Some(libs) = &options.libs {
            // The job's environment, not that of its shell.
            let path = self.shell.getenv("LD_LIBRARY_PATH")?.unwrap_or_default();
            let search = elf::Search::with_path(&path);
            // A few small reads before anything else goes on here.
            let added = elf::add_libs(&mut inputs, &mut sending.dest, libs, &search)
                .map_err(|text| Error::with_text(Errno::EINVAL, text))?;
            for note in added.notes {
                self.shell
                    .log()
                    .warn(format_args!("file broadcast: {note}"));
            }
        }
        let spec = move || {
            Ok(file::SourceSpec {
                inputs,
                recursive: true,
                follow: file::Follow::default(),
                chunk,
            })
        };
        let (slot, partial) = (Rc::clone(verdict), options.partial);
        let hosts = RefCell::new(Vec::new());
        Outgoing::start(self, sending, spec, move |event| match event {
            SendEvent::Started { plan, .. } => {
                hosts.replace(plan.hosts);
            }
            SendEvent::Progress { .. } => {}
            SendEvent::Ended { results, why } => {
                let reasons = reasons(&results, why.as_ref(), &hosts.borrow());
                let good = reasons.is_empty() || (partial && why.is_none());
                slot.replace(Some(if good {
                    Verdict::Good(transfer, reasons)
                } else {
                    Verdict::Bad(reasons)
                }));
            }
        })
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
                fold.advice("bcast.force")
            )
        })
        .collect();
    if let Some(why) = why.filter(|why| why.rank.is_none() || lines.is_empty()) {
        lines.push(format!("file broadcast: {}", why.full_text()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_tasks() {
        let placed = |paths: &[&str]| -> Vec<Placed> {
            let one = |path: &&str| Placed {
                path: RawName::from(*path),
                bytes: 0,
                micros: 0,
            };
            paths.iter().map(one).collect()
        };
        let var = |name: &str, path: &str| (name.to_owned(), RawName::from(path));
        assert_eq!(variables(&placed(&["/t/a"]), 1, "V"), [var("V", "/t/a")]);
        assert_eq!(
            variables(&placed(&["/t/a", "/t/b"]), 2, "V"),
            [var("V", "/t")]
        );
        assert_eq!(
            variables(&placed(&["/t/a", "/t/a_libs"]), 1, "V"),
            [var("V", "/t/a"), var(LIBS_ENV, "/t/a_libs")]
        );
        assert_eq!(
            variables(&placed(&["/t/a", "/t/b", "/t/a_libs", "/t/b_libs"]), 2, "V"),
            [var("V", "/t"), var(LIBS_ENV, "/t/a_libs:/t/b_libs")]
        );
        assert_eq!(variables(&[], 1, "V"), []);
    }
}
