//! The result of what was asked for, as strings and numbers for C.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Duration;

use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::bcast::report;
use crate::bcast::report::Failure;
use crate::bcast::report::Outcome;
use crate::bcast::report::Placed;
use crate::bcast::report::RankResult;
use crate::client::Summary;
use crate::client::preview::Preview;
use crate::client::query::Answers;
use crate::errno::Errno;
use crate::file::Found;
use crate::transfer::ask;
use crate::transfer::ask::Listing;
use crate::transfer::ask::Removed;

use super::options::c_text;

/// What became of a rank, by the numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankState {
    Done = 0,
    Failed = 1,
    Cancelled = 2,
    Unknown = 3,
}

/// What a copy is, by the numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File = 0,
    Dir = 1,
    Symlink = 2,
}

/// What a list says of a copy.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) kind: Kind,
    /// Empty for what is no regular file.
    pub(super) digest: CString,
    pub(super) entries: i64,
}

/// One copy, or what has been one.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) path: CString,
    /// `None` if nothing is there.
    pub(super) bytes: Option<u64>,
    pub(super) listed: Option<Listed>,
}

/// One target rank.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) host: CString,
    pub(super) state: RankState,
    /// 0 if nothing failed.
    pub(super) errnum: i32,
    pub(super) text: CString,
    pub(super) copies: Vec<Copy>,
    pub(super) seconds: f64,
    /// It had the files, and got nothing.
    pub(super) unchanged: bool,
    /// Bytes that are free there, if that was asked.
    pub(super) free: Option<u64>,
    /// Directories of shared objects, separated by colons.
    pub(super) library_path: CString,
}

/// See the module's documentation. Never changed once it is made: C holds
/// pointers into it.
#[derive(Debug)]
pub(super) struct Report {
    /// `None` for success.
    pub(super) errno: Option<Errno>,
    /// One line for each distinct failure; empty for success.
    pub(super) text: CString,
    pub(super) ranks: Vec<Rank>,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

impl Report {
    /// Of files that were sent to ranks.
    pub(super) fn sent(mut summary: Summary) -> Self {
        summary.results.sort_by_key(|result| result.rank);
        let lines = lines(&summary);
        let ranks: Vec<Rank> = summary
            .results
            .iter()
            .map(|result| rank(result, &summary))
            .collect();
        let first = ranks.iter().find(|rank| rank.state == RankState::Done);
        Self {
            errno: (!summary.is_complete()).then(|| errno(&summary)),
            text: c_text(&lines.join("\n")),
            bytes: first.map_or(summary.bytes, Rank::bytes),
            seconds: summary.elapsed.as_secs_f64(),
            ranks,
        }
    }

    /// Of files that were fetched: each rank's are different ones.
    pub(super) fn gathered(summary: Summary) -> Self {
        let report = Self::sent(summary);
        Self {
            bytes: report.ranks.iter().map(Rank::bytes).sum(),
            ..report
        }
    }

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

    /// The result of what has not become a transfer.
    pub(super) fn without_transfer(why: &Failure) -> Self {
        Self {
            errno: Some(Errno::or_eio(why.errno)),
            text: c_text(&why.full_text()),
            ranks: Vec::new(),
            bytes: 0,
            seconds: 0.0,
        }
    }

    /// The text as a line for an error of a future.
    pub(super) fn line(&self) -> String {
        self.text.to_string_lossy().replace('\n', "; ")
    }
}

impl Rank {
    /// Of all its copies.
    pub(super) fn bytes(&self) -> u64 {
        self.copies.iter().filter_map(|copy| copy.bytes).sum()
    }
}

/// Why it is not a success: what called it off, or what failed first.
fn errno(summary: &Summary) -> Errno {
    let failure = summary
        .why
        .as_ref()
        .or_else(|| summary.results.iter().find_map(RankResult::failure));
    // Without a failure some rank gave up for no reason that is known.
    failure.map_or(Errno::ECANCELED, |failure| Errno::or_eio(failure.errno))
}

fn lines(summary: &Summary) -> Vec<String> {
    if summary.is_complete() {
        return Vec::new();
    }
    let mut lines = folded(&summary.results, &summary.hosts);
    match &summary.why {
        Some(why) if why.rank.is_none() || lines.is_empty() => lines.insert(0, why.to_string()),
        None if lines.is_empty() => lines.push("the transfer was called off".into()),
        _ => {}
    }
    lines
}

/// Failures of ranks, equal ones in one line.
fn folded(results: &[RankResult], hosts: &[String]) -> Vec<String> {
    report::fold(results)
        .iter()
        .map(|fold| format!("{}: {}", report::who(&fold.ranks, hosts), fold.text))
        .collect()
}

fn rank(result: &RankResult, summary: &Summary) -> Rank {
    let (state, copies) = match &result.outcome {
        Outcome::Done(copies) => (RankState::Done, copies.as_slice()),
        Outcome::Failed(_) => (RankState::Failed, &[][..]),
        Outcome::Cancelled => (RankState::Cancelled, &[][..]),
        Outcome::Unknown(_) => (RankState::Unknown, &[][..]),
    };
    let failure = result.failure();
    let micros = copies.iter().map(|copy| copy.micros).max();
    let libs = copies.len().saturating_sub(summary.libs);
    let libs: Vec<&[u8]> = copies[libs..]
        .iter()
        .map(|copy| copy.path.as_bytes())
        .collect();
    Rank {
        rank: result.rank,
        host: host(result.rank, &summary.hosts),
        state,
        errnum: failure.map_or(0, |failure| Errno::or_eio(failure.errno).raw()),
        text: failure.map_or_else(CString::default, |failure| c_text(&failure.full_text())),
        copies: copies.iter().map(placed).collect(),
        seconds: micros.unwrap_or(0) as f64 / 1e6,
        unchanged: summary.unchanged.contains(result.rank),
        free: None,
        library_path: c_name(&RawName::new(libs.join(&b':'))),
    }
}

fn copy_to_be(found: &Found) -> Copy {
    Copy {
        path: c_name(&found.path),
        bytes: found.exists.then_some(found.size),
        listed: None,
    }
}

fn placed(copy: &Placed) -> Copy {
    Copy {
        path: c_name(&copy.path),
        bytes: Some(copy.bytes),
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

fn host(rank: u32, hosts: &[String]) -> CString {
    c_text(hosts.get(rank as usize).map_or("", String::as_str))
}

/// A path for C; there is no NUL in one.
fn c_name(name: &RawName) -> CString {
    CString::new(name.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
