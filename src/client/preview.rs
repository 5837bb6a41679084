//! What a transfer would find: the sources are looked at and every rank is asked,
//! but nothing is sent. If the transfer would leave out ranks that have the files
//! already, each is asked for their digests as well, after all else is known.

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::sync::mpsc;

use super::Running;
use super::Send;
use super::Terms;
use super::finder::Found;
use super::finder::Search;
use super::load::Load;
use super::query::Answers;
use super::query::Query;
use super::query::QueryEvent;
use super::query::Question;
use super::skip;
use super::terms::failure;
use crate::bcast::message::Plan;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::file::FileError;
use crate::file::Inspection;
use crate::file::Source;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::wakeup::WakeReceiver;
use crate::transfer::ask;
use crate::transfer::ask::Had;
use crate::transfer::ask::Known;
use crate::transfer::worker;

/// What the caller hears.
#[derive(Debug)]
pub enum PreviewEvent {
    /// Something about the sources that is worth knowing, one line each.
    Notes(Vec<String>),
    /// The job has not started; it is being waited for.
    Waiting,
    /// The end; nothing more comes.
    Ended(Preview),
}

/// What a transfer would find.
#[derive(Debug)]
pub struct Preview {
    /// What each rank says.
    pub answers: Answers<Inspection>,
    /// Bytes of data for each rank, as far as known.
    pub bytes: u64,
    /// The ranks that have the files already and would get nothing, and where
    /// they have them; empty unless that was to be found out.
    pub unchanged: BTreeMap<u32, Vec<RawName>>,
}

impl Preview {
    /// Why the transfer would fail on a rank, by what it has answered.
    pub fn objection(&self, rank: u32) -> Option<Failure> {
        // Nothing is done there that could fail.
        if self.unchanged.contains_key(&rank) {
            return None;
        }
        match self.answers.ranks.get(&rank)? {
            Ok(found) => {
                let (errno, text) = ask::objection(found, self.bytes)?;
                Some(Failure::on(rank, errno, text))
            }
            Err(failure) => Some(failure.clone()),
        }
    }
}

/// A look that is being taken. Dropping it gives it up.
pub struct Previewing {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    handle: Handle,
    terms: Terms,
    policy: Policy,
    listener: Rc<dyn Fn(PreviewEvent)>,
    looking: Option<WakeReceiver>,
    /// What was seen; until the ranks are asked.
    seen: Option<Seen>,
    search: Option<Search>,
    asking: Option<Query<Inspection>>,
    comparing: Option<Query<Had>>,
    bytes: u64,
    /// The job or the time is over.
    over: bool,
    ended: bool,
    me: Weak<RefCell<Inner>>,
}

/// What there is to send.
struct Seen {
    names: Vec<RawName>,
    dirs: Vec<RawName>,
    dest: Dest,
    bytes: u64,
    notes: Vec<String>,
    /// What the ranks are to compare, if they are.
    files: Option<Vec<Known>>,
}

impl Previewing {
    /// Looks at what `send` says. `listener` is called from the reactor only,
    /// never from here.
    ///
    /// # Errors
    /// Those of the connection; the thread could not be made. All else comes as
    /// [`PreviewEvent::Ended`].
    pub fn start(
        handle: Handle,
        send: Send,
        listener: impl Fn(PreviewEvent) + 'static,
    ) -> Result<Self> {
        let load = Load {
            source: send.source,
            dest: send.dest,
            libs: send.libs,
            checksum: send.checksum,
        };
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                terms: send.terms,
                policy: send.policy,
                listener: Rc::new(listener),
                looking: None,
                seen: None,
                search: None,
                asking: None,
                comparing: None,
                bytes: 0,
                over: false,
                ended: false,
                me: Weak::clone(me),
            })
        });
        let weak = Rc::downgrade(&inner);
        let looking = worker::aside(
            handle,
            "bcast-look",
            "source",
            || look(load),
            move |seen| {
                if let Some(this) = weak.upgrade() {
                    Inner::seen(&this, seen);
                }
            },
        )?;
        inner.borrow_mut().looking = Some(looking);
        Ok(Self { inner })
    }
}

/// [`PreviewEvent::Ended`] comes at once when it is called off.
impl Running for Previewing {
    fn call_off(&self, why: Failure) {
        Inner::nothing(&self.inner, why);
    }
}

fn look(load: Load) -> std::result::Result<Seen, FileError> {
    let (tell, told) = mpsc::channel();
    let mut dest = load.dest.clone();
    let source = Source::open(load.run(&tell)?)?;
    let (mut notes, mut again) = (Vec::new(), None);
    if let Ok(loaded) = told.try_recv() {
        dest = loaded.dest;
        notes = loaded.added.notes;
        again = loaded.again;
    }
    let files = match again {
        Some(inputs) => skip::digests(inputs)?,
        None => None,
    };
    let names: Vec<RawName> = source.names().cloned().collect();
    dest.directory = dest.directory || names.len() > 1;
    Ok(Seen {
        names,
        dirs: source.dirs().cloned().collect(),
        dest,
        bytes: source.totals().allocated,
        notes,
        files,
    })
}

/// What is known of a comparison that has not begun: what would become of a rank
/// that may have the files cannot be told.
fn failures_of(mut answers: Answers<Inspection>) -> Answers<Inspection> {
    answers.ranks.retain(|_, answer| answer.is_err());
    answers
}

impl Inner {
    fn tell(this: &Rc<RefCell<Self>>, event: PreviewEvent) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn seen(this: &Rc<RefCell<Self>>, seen: std::result::Result<Seen, FileError>) {
        let mut seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let why = Failure::client(error.errno().raw(), error.to_string());
                return Self::nothing(this, why);
            }
        };
        let notes = std::mem::take(&mut seen.notes);
        if !notes.is_empty() {
            Self::tell(this, PreviewEvent::Notes(notes));
        }
        let search = {
            let mut inner = this.borrow_mut();
            // The listener may have called it off.
            if inner.ended {
                return;
            }
            inner.bytes = seen.bytes;
            inner.seen = Some(seen);
            inner.search()
        };
        match search {
            Ok(search) => this.borrow_mut().search = Some(search),
            Err(error) => Self::nothing(this, failure(&error)),
        }
    }

    /// Looks for the job.
    fn search(&self) -> Result<Search> {
        let me = Weak::clone(&self.me);
        let found = move |found| {
            let Some(this) = me.upgrade() else { return };
            match found {
                Found::Waiting => Self::tell(&this, PreviewEvent::Waiting),
                Found::Ready { plan, service } => Self::found(&this, plan, service),
                Found::Over(why) => Self::broken_off(&this, why, Running::call_off),
            }
        };
        let me = Weak::clone(&self.me);
        let expired = move |why| {
            if let Some(this) = me.upgrade() {
                Self::broken_off(&this, why, Query::expire);
            }
        };
        let plan = self.terms.plan.clone();
        Search::start(self.handle, &self.terms, plan, found, expired)
    }

    /// Asks all ranks of the plan what they would find.
    fn found(this: &Rc<RefCell<Self>>, plan: Plan, service: String) {
        let Some(seen) = this.borrow_mut().seen.take() else {
            return;
        };
        let (handle, policy, patience) = {
            let inner = this.borrow();
            (inner.handle, inner.policy.clone(), inner.terms.stall())
        };
        let dest = seen.dest.clone();
        let question = match Question::inspect(dest, policy, seen.names, seen.dirs) {
            Ok(question) => question,
            Err(error) => return Self::nothing(this, failure(&error)),
        };
        let me = Rc::downgrade(this);
        let about = Cell::new(Some((plan.clone(), service.clone(), seen.dest, seen.files)));
        let query = Query::of_plan(handle, &plan, service, question, patience, move |event| {
            let (Some(this), QueryEvent::Answered(answers)) = (me.upgrade(), event) else {
                return;
            };
            let Some((plan, service, dest, Some(files))) = about.take() else {
                return Self::end(&this, answers, BTreeMap::new());
            };
            if this.borrow().over {
                return Self::end(&this, failures_of(answers), BTreeMap::new());
            }
            Self::compare(&this, &plan, service, dest, files, answers);
        });
        this.borrow_mut().asking = Some(query);
    }

    /// Asks them whether they have the files.
    fn compare(
        this: &Rc<RefCell<Self>>,
        plan: &Plan,
        service: String,
        dest: Dest,
        files: Vec<Known>,
        answers: Answers<Inspection>,
    ) {
        let (handle, patience) = {
            let inner = this.borrow();
            (inner.handle, skip::patience(inner.terms.stall(), &files))
        };
        let question = match Question::has(dest, files) {
            Ok(question) => question,
            Err(error) => return Self::nothing(this, failure(&error)),
        };
        let me = Rc::downgrade(this);
        let answers = Cell::new(Some(answers));
        let query = Query::of_plan(handle, plan, service, question, patience, move |event| {
            let (Some(this), QueryEvent::Answered(had)) = (me.upgrade(), event) else {
                return;
            };
            match (had.why, answers.take()) {
                (None, Some(answers)) => Self::end(&this, answers, skip::having(had.ranks)),
                (Some(why), _) => Self::nothing(&this, why),
                (None, None) => {}
            }
        });
        this.borrow_mut().comparing = Some(query);
    }

    /// The job or the time is over: `how` ends the question that all else
    /// follows from, if it is that far and no further.
    fn broken_off(
        this: &Rc<RefCell<Self>>,
        why: Failure,
        how: fn(&Query<Inspection>, Failure),
    ) {
        let (asking, comparing) = {
            let mut inner = this.borrow_mut();
            inner.over = true;
            (inner.asking.take(), inner.comparing.is_some())
        };
        match asking {
            Some(asking) if !comparing => how(&asking, why),
            _ => Self::nothing(this, why),
        }
    }

    /// The end before anybody was asked, or was heard to the end.
    fn nothing(this: &Rc<RefCell<Self>>, why: Failure) {
        let answers = Answers {
            ranks: BTreeMap::new(),
            why: Some(why),
            hosts: Vec::new(),
        };
        Self::end(this, answers, BTreeMap::new());
    }

    fn end(
        this: &Rc<RefCell<Self>>,
        answers: Answers<Inspection>,
        unchanged: BTreeMap<u32, Vec<RawName>>,
    ) {
        let bytes = {
            let mut inner = this.borrow_mut();
            if std::mem::replace(&mut inner.ended, true) {
                return;
            }
            inner.bytes
        };
        Self::tell(
            this,
            PreviewEvent::Ended(Preview {
                answers,
                bytes,
                unchanged,
            }),
        );
    }
}

impl fmt::Debug for Previewing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Previewing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_without_an_answer_would_fail() {
        let silent = Failure::on(2, libc::ETIMEDOUT, "gave no answer in time");
        let full = Inspection {
            directory: "/d".into(),
            make: false,
            writable: true,
            free: 1,
            copies: vec![],
        };
        let mut preview = Preview {
            answers: Answers {
                ranks: [(1, Ok(full)), (2, Err(silent.clone()))].into(),
                why: None,
                hosts: vec![],
            },
            bytes: 2,
            unchanged: BTreeMap::new(),
        };
        assert_eq!(preview.objection(0), None);
        assert_eq!(preview.objection(1).unwrap().errno, libc::ENOSPC);
        assert_eq!(preview.objection(2), Some(silent));
        // What is left out does not fail.
        preview.unchanged = [(1, vec!["/d/f".into()])].into();
        assert_eq!(preview.objection(1), None);
        assert!(preview.objection(2).is_some());
    }
}
