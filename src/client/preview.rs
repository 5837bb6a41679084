//! What a transfer would find: the sources are looked at and every rank is asked,
//! but nothing is sent.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::sync::mpsc;

use super::Running;
use super::Send;
use super::Terms;
use super::load::Load;
use super::query::Answers;
use super::query::Query;
use super::query::QueryEvent;
use super::query::Question;
use super::terms::failure;
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
}

impl Preview {
    /// Why the transfer would fail on a rank, by what it has answered.
    pub fn objection(&self, rank: u32) -> Option<Failure> {
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
    asking: Option<Query<Inspection>>,
    bytes: u64,
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
            checksum: false,
        };
        let inner = Rc::new_cyclic(|me| {
            RefCell::new(Inner {
                handle,
                terms: send.terms,
                policy: send.policy,
                listener: Rc::new(listener),
                looking: None,
                asking: None,
                bytes: 0,
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
    let mut notes = Vec::new();
    if let Ok(loaded) = told.try_recv() {
        dest = loaded.dest;
        notes = loaded.added.notes;
    }
    let names: Vec<RawName> = source.names().cloned().collect();
    dest.directory = dest.directory || names.len() > 1;
    Ok(Seen {
        names,
        dirs: source.dirs().cloned().collect(),
        dest,
        bytes: source.totals().allocated,
        notes,
    })
}

impl Inner {
    fn tell(this: &Rc<RefCell<Self>>, event: PreviewEvent) {
        let listener = Rc::clone(&this.borrow().listener);
        listener(event);
    }

    fn seen(this: &Rc<RefCell<Self>>, seen: std::result::Result<Seen, FileError>) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let why = Failure::client(error.errno().raw(), error.to_string());
                return Self::nothing(this, why);
            }
        };
        if !seen.notes.is_empty() {
            Self::tell(this, PreviewEvent::Notes(seen.notes));
        }
        let asking = {
            let mut inner = this.borrow_mut();
            // The listener may have called it off.
            if inner.ended {
                return;
            }
            inner.bytes = seen.bytes;
            inner.ask(seen.dest, seen.names, seen.dirs)
        };
        match asking {
            Ok(asking) => this.borrow_mut().asking = Some(asking),
            Err(error) => Self::nothing(this, failure(&error)),
        }
    }

    fn ask(
        &self,
        dest: Dest,
        names: Vec<RawName>,
        dirs: Vec<RawName>,
    ) -> Result<Query<Inspection>> {
        let question = Question::inspect(dest, self.policy.clone(), names, dirs)?;
        let me = Weak::clone(&self.me);
        Query::start(self.handle, &self.terms, question, move |event| {
            let Some(this) = me.upgrade() else { return };
            match event {
                QueryEvent::Waiting => Self::tell(&this, PreviewEvent::Waiting),
                QueryEvent::Answered(answers) => Self::end(&this, answers),
            }
        })
    }

    /// The end before anybody was asked, or was heard to the end.
    fn nothing(this: &Rc<RefCell<Self>>, why: Failure) {
        let answers = Answers {
            ranks: std::collections::BTreeMap::new(),
            why: Some(why),
            hosts: Vec::new(),
        };
        Self::end(this, answers);
    }

    fn end(this: &Rc<RefCell<Self>>, answers: Answers<Inspection>) {
        let bytes = {
            let mut inner = this.borrow_mut();
            if std::mem::replace(&mut inner.ended, true) {
                return;
            }
            inner.bytes
        };
        Self::tell(this, PreviewEvent::Ended(Preview { answers, bytes }));
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
        let preview = Preview {
            answers: Answers {
                ranks: [(1, Ok(full)), (2, Err(silent.clone()))].into(),
                why: None,
                hosts: vec![],
            },
            bytes: 2,
        };
        assert_eq!(preview.objection(0), None);
        assert_eq!(preview.objection(1).unwrap().errno, libc::ENOSPC);
        assert_eq!(preview.objection(2), Some(silent));
    }
}
