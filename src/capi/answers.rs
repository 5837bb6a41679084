//! The result of a question to every rank (a list, a removal, a dry run), as
//! strings and numbers for C.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Duration;

use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::Outcome;
use crate::bcast::report::RankResult;
use crate::client::preview::Preview;
use crate::client::query::Answers;
use crate::errno::Errno;
use crate::file::Found;
use crate::transfer::ask;
use crate::transfer::ask::Listing;
use crate::transfer::ask::Removed;

use super::options::c_text;
use super::report::Copy;
use super::report::Kind;
use super::report::Listed;
use super::report::Rank;
use super::report::RankState;
use super::report::Report;
use super::report::c_name;
use super::report::folded;
use super::report::host;

impl Report {
    /// What a transfer would find.
    pub(super) fn previewed(preview: Preview, elapsed: Duration) -> Self {
        let ranks = preview.answers.ranks.iter();
        let free: BTreeMap<u32, u64> = ranks
            .filter_map(|(rank, answer)| Some((*rank, answer.as_ref().ok()?.free)))
            .collect();
        let ranks = preview.answers.ranks.keys();
        let objections: BTreeMap<u32, Failure> = ranks
            .filter_map(|rank| Some((*rank, preview.objection(*rank)?)))
            .collect();
        let mut report = Self::answered(preview.answers, elapsed, |rank, found| {
            (
                found.copies.iter().map(copy_to_be).collect(),
                objections.get(&rank).cloned().into_iter().collect(),
            )
        });
        for rank in &mut report.ranks {
            rank.free = free.get(&rank.rank).copied();
        }
        Self {
            bytes: preview.bytes,
            ..report
        }
    }

    /// What the service has put on nodes.
    pub(super) fn listed(answers: Answers<Listing>, elapsed: Duration) -> Self {
        Self::answered(answers, elapsed, |_, listing| {
            (listing.copies.iter().map(listed).collect(), Vec::new())
        })
    }

    /// What was removed of that.
    pub(super) fn removed(answers: Answers<Removed>, elapsed: Duration) -> Self {
        let gone = |path: &RawName| Copy {
            path: c_name(path),
            bytes: None,
            listed: None,
        };
        Self::answered(answers, elapsed, |_, removed| {
            (
                removed.gone.iter().map(gone).collect(),
                removed.failed.clone(),
            )
        })
    }

    fn answered<T>(
        answers: Answers<T>,
        elapsed: Duration,
        read: impl Fn(u32, &T) -> (Vec<Copy>, Vec<Failure>),
    ) -> Self {
        let (mut ranks, mut failed) = (Vec::new(), Vec::new());
        for (&rank, answer) in &answers.ranks {
            let (copies, failures) = match answer {
                Ok(answer) => read(rank, answer),
                Err(failure) => (Vec::new(), vec![failure.clone()]),
            };
            let text: Vec<String> = failures.iter().map(Failure::full_text).collect();
            ranks.push(Rank {
                rank,
                host: host(rank, &answers.hosts),
                state: match failures.first() {
                    None => RankState::Done,
                    Some(_) => RankState::Failed,
                },
                errnum: failures
                    .first()
                    .map_or(0, |failure| Errno::or_eio(failure.errno).raw()),
                text: c_text(&text.join("\n")),
                copies,
                seconds: 0.0,
                unchanged: false,
                free: None,
                library_path: CString::default(),
            });
            failed.extend(failures.into_iter().map(|failure| RankResult {
                rank,
                outcome: Outcome::Failed(failure),
            }));
        }
        let mut lines = folded(&failed, &answers.hosts);
        if let Some(why) = &answers.why {
            lines.insert(0, why.to_string());
        }
        let first = answers
            .why
            .as_ref()
            .or_else(|| failed.iter().find_map(RankResult::failure));
        Self {
            errno: first.map(|failure| Errno::or_eio(failure.errno)),
            text: c_text(&lines.join("\n")),
            bytes: ranks.iter().map(Rank::bytes).sum(),
            seconds: elapsed.as_secs_f64(),
            ranks,
        }
    }
}

fn copy_to_be(found: &Found) -> Copy {
    Copy {
        path: c_name(&found.path),
        bytes: found.exists.then_some(found.size),
        listed: None,
    }
}

fn listed(copy: &ask::Listed) -> Copy {
    Copy {
        path: c_name(&copy.path),
        bytes: Some(copy.bytes),
        listed: Some(Listed {
            kind: match copy.kind {
                EntryKind::File | EntryKind::Hardlink => Kind::File,
                EntryKind::Dir => Kind::Dir,
                EntryKind::Symlink => Kind::Symlink,
            },
            digest: c_text(copy.digest.as_deref().unwrap_or_default()),
            entries: i64::try_from(copy.entries).unwrap_or(i64::MAX),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_can_fail_in_part() {
        let removed = Removed {
            gone: vec!["/x".into()],
            failed: vec![
                Failure::on(1, libc::ENOENT, "/y: none"),
                Failure::on(1, libc::EBUSY, "/z: changed"),
            ],
        };
        let none = Removed {
            gone: vec![],
            failed: vec![],
        };
        let answers = Answers {
            ranks: [(0, Ok(none)), (1, Ok(removed))].into(),
            why: None,
            hosts: vec!["n0".into(), "n1".into()],
        };
        let report = Report::removed(answers, Duration::from_secs(1));
        assert_eq!(report.errno, Some(Errno::ENOENT));
        assert_eq!(report.ranks[0].state, RankState::Done);
        let rank = &report.ranks[1];
        assert_eq!((rank.state, rank.errnum), (RankState::Failed, libc::ENOENT));
        assert_eq!(rank.text.as_bytes(), b"/y: none\n/z: changed");
        assert_eq!(rank.copies[0].path.as_bytes(), b"/x");
        let text = report.text.to_str().unwrap();
        assert_eq!(text, "rank 1 (n1): /y: none\nrank 1 (n1): /z: changed");
    }

    #[test]
    fn a_list_without_answers_says_why() {
        let answers = Answers {
            ranks: BTreeMap::new(),
            why: Some(Failure::client(libc::ENOENT, "no job")),
            hosts: vec![],
        };
        let report = Report::listed(answers, Duration::ZERO);
        assert_eq!(report.errno, Some(Errno::ENOENT));
        assert_eq!(report.text.as_bytes(), b"no job");
        assert!(report.ranks.is_empty());
    }
}
