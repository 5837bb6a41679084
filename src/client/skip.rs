//! Leaves out the ranks that have the files already.
//!
//! The sources are read once more before anything is sent, for their digests.
//! Only regular files can be recognized: anything else among the sources is
//! sent to everybody, and so are the files that come with it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::Inner;
use super::query::Query;
use super::query::QueryEvent;
use super::query::Question;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Item;
use crate::bcast::message::Plan;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::VERSION;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::Outcome;
use crate::bcast::report::Placed;
use crate::bcast::report::RankResult;
use crate::file;
use crate::file::FileError;
use crate::file::Source;
use crate::file::SourceSpec;
use crate::flux::wakeup::WakeReceiver;
use crate::idset::IdSet;
use crate::transfer::ask::Had;
use crate::transfer::ask::Known;
use crate::transfer::worker;

/// A slow disk reads so many bytes in a second, for the time that ranks have to
/// compute a digest.
const SLOW: u64 = 20 << 20;

/// Bytes read at once.
const BATCH: usize = 1 << 20;

/// How far the comparison has come.
#[derive(Debug, Default)]
pub(super) struct Skip {
    /// The thread that reads.
    reading: Option<WakeReceiver>,
    /// What the sources are; none if they cannot be compared.
    pub(super) files: Option<Vec<Known>>,
    asking: Option<Query<Had>>,
    /// Ranks that have the files, and where; once they were asked.
    had: Option<BTreeMap<u32, Vec<RawName>>>,
}

impl Skip {
    /// The ranks that are left out.
    pub(super) fn unchanged(&self) -> IdSet {
        self.had.iter().flatten().map(|(rank, _)| *rank).collect()
    }

    /// Their results.
    pub(super) fn results(&self) -> Vec<RankResult> {
        let files = self.files.as_deref().unwrap_or_default();
        let had = self.had.iter().flatten();
        had.map(|(rank, paths)| {
            let placed = paths.iter().zip(files).map(|(path, file)| Placed {
                path: path.clone(),
                bytes: file.size,
                micros: 0,
            });
            RankResult {
                rank: *rank,
                outcome: Outcome::Done(placed.collect()),
            }
        })
        .collect()
    }
}

pub(super) type Digests = std::result::Result<Option<Vec<Known>>, FileError>;

/// Reads the sources; none if one of them is no regular file.
pub(super) fn digests(inputs: Vec<file::Input>) -> Digests {
    let mut source = Source::open(SourceSpec {
        inputs,
        recursive: true,
        ..SourceSpec::default()
    })?;
    let (mut buffer, mut files) = (Vec::new(), Vec::new());
    let mut name = RawName::default();
    while let Some(item) = source.next(&mut buffer, BATCH)? {
        match item {
            Item::Entry(entry) if entry.kind == EntryKind::File => name = entry.path,
            Item::Entry(_) => return Ok(None),
            Item::End { size, digest } => files.push(Known {
                name: std::mem::take(&mut name),
                size,
                digest,
            }),
            Item::Data { .. } | Item::Hole { .. } | Item::Fin { .. } => {}
        }
    }
    Ok(Some(files))
}

/// How long a rank may take to say whether it has the files.
pub(super) fn patience(stall: Duration, files: &[Known]) -> Duration {
    let bytes: u64 = files.iter().map(|file| file.size).sum();
    stall + Duration::from_secs(bytes / SLOW)
}

/// The ranks that have the files, and where. Whoever cannot say gets them.
pub(super) fn having(
    answers: BTreeMap<u32, std::result::Result<Had, Failure>>,
) -> BTreeMap<u32, Vec<RawName>> {
    let had = answers.into_iter();
    had.filter_map(|(rank, answer)| Some((rank, answer.ok()?.paths?)))
        .collect()
}

impl Inner {
    /// The sources are open: find out what they are, before the job is looked
    /// for.
    pub(super) fn compare(this: &Rc<RefCell<Self>>, again: Option<Vec<file::Input>>) {
        let Some(inputs) = again else {
            return Self::find(this);
        };
        let weak = Rc::downgrade(this);
        let handle = this.borrow().handle;
        let work = move || digests(inputs);
        let reading = worker::aside(handle, "bcast-digest", "source", work, move |digests| {
            let Some(this) = weak.upgrade() else { return };
            match digests {
                Ok(files) => {
                    this.borrow_mut().skip.files = files;
                    Self::find(&this);
                }
                Err(error) => {
                    let why = Failure::client(error.errno().raw(), error.to_string());
                    Self::call_off(&weak, why);
                }
            }
        });
        match reading {
            Ok(reading) => this.borrow_mut().skip.reading = Some(reading),
            Err(error) => Self::fail(&Rc::downgrade(this), &error),
        }
    }

    /// The ranks are known: ask them, unless that was done. True if the plan is
    /// to be carried out as it is.
    pub(super) fn asked(this: &Rc<RefCell<Self>>, plan: &Plan, service: &str) -> bool {
        let (question, patience) = {
            let inner = this.borrow();
            let files = match (&inner.skip.files, &inner.skip.had, &inner.send) {
                (Some(files), None, Some(_)) => files.clone(),
                _ => return true,
            };
            let (mut dest, stall) = match &inner.send {
                Some(send) => (send.dest.clone(), send.terms.stall()),
                None => return true,
            };
            dest.directory = dest.directory || files.len() > 1;
            let patience = patience(stall, &files);
            (Question::has(dest, files), patience)
        };
        let question = match question {
            Ok(question) => question,
            Err(error) => {
                Self::fail(&Rc::downgrade(this), &error);
                return false;
            }
        };
        let handle = this.borrow().handle;
        let (weak, whole) = (Rc::downgrade(this), plan.clone());
        let query = Query::of_plan(handle, plan, service.to_owned(), question, patience, {
            move |event| {
                let Some(this) = weak.upgrade() else { return };
                if let QueryEvent::Answered(answers) = event {
                    this.borrow_mut().skip.had = Some(having(answers.ranks));
                    Self::ask_for_the_rest(&this, &whole);
                }
            }
        });
        this.borrow_mut().skip.asking = Some(query);
        false
    }

    fn ask_for_the_rest(this: &Rc<RefCell<Self>>, whole: &Plan) {
        let unchanged = this.borrow().skip.unchanged();
        let ranks = whole.tree.ranks().iter().copied();
        let rest: IdSet = ranks.filter(|rank| !unchanged.contains(*rank)).collect();
        this.borrow_mut().hosts.clone_from(&whole.hosts);
        if rest.is_empty() {
            return Self::end(this, Vec::new(), None);
        }
        let asked = {
            let inner = this.borrow();
            let request = PlanRequest {
                version: VERSION,
                ranks: Some(rest),
                k: inner.send.as_ref().and_then(|send| send.terms.plan.k),
                ..PlanRequest::default()
            };
            inner
                .finder
                .as_ref()
                .map(|finder| finder.ask_again(request))
        };
        if let Some(Err(error)) = asked {
            Self::fail(&Rc::downgrade(this), &error);
        }
    }

    /// What is being sent must be what was compared.
    pub(super) fn check_sent(&self, item: &Item<'_>, entry: usize) -> bool {
        match (item, &self.skip.files) {
            (Item::End { digest, .. }, Some(files)) => {
                files.get(entry).is_some_and(|file| file.digest == *digest)
            }
            _ => true,
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Origin;

    #[test]
    fn only_regular_files_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "text").unwrap();
        let file = || file::Input::new(Origin::Path(dir.path().join("a")), Some("b".into()));
        let memory = file::Input::new(Origin::Memory(b"text".to_vec()), Some("m".into()));
        let files = digests(vec![file(), memory]).unwrap().unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!((files[0].name.clone(), files[0].size), ("b".into(), 4));
        assert_eq!(files[0].digest, *blake3::hash(b"text").as_bytes());
        assert_eq!(files[0].digest, files[1].digest);
        let both = vec![file(), file::Input::path(dir.path())];
        assert_eq!(digests(both).unwrap(), None);
    }
}
