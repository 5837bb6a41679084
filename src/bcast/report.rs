//! How a transfer ended, rank by rank.

use std::fmt;

use serde::Deserialize;
use serde::Serialize;

use super::name::RawName;
use crate::hostlist;
use crate::idset::IdSet;

/// Something that went wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Shell rank it happened on; none for the client's own side (its source,
    /// its timeout, the user's interrupt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// errno(3) value.
    pub errno: i32,
    /// One line for people: what failed, with the path where there is one.
    pub text: String,
    /// What [`TMPDIR`] in the text stands for on that rank. It is another path
    /// on every rank, and the same error should read the same everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tmpdir: Option<RawName>,
}

/// Stands for the job's temporary directory in the text of a failure.
pub const TMPDIR: &str = "$FLUX_JOB_TMPDIR";

impl Failure {
    /// A failure on a shell rank.
    pub fn on(rank: u32, errno: i32, text: impl Into<String>) -> Self {
        Self {
            rank: Some(rank),
            errno,
            text: text.into(),
            tmpdir: None,
        }
    }

    /// A failure on the client's side.
    pub fn client(errno: i32, text: impl Into<String>) -> Self {
        Self {
            rank: None,
            errno,
            text: text.into(),
            tmpdir: None,
        }
    }

    /// The text with the rank's own paths.
    pub fn full_text(&self) -> String {
        match &self.tmpdir {
            Some(dir) => self.text.replace(TMPDIR, &dir.to_string()),
            None => self.text.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank}: {}", self.full_text()),
            None => f.write_str(&self.full_text()),
        }
    }
}

/// One copy that is now in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Absolute path on that rank.
    pub path: RawName,
    /// Its size in bytes (of all files below, for a directory).
    pub bytes: u64,
    /// Microseconds from the opening of the transfer on that rank to the
    /// publication of its copies.
    #[serde(default)]
    pub micros: u64,
}

/// What became of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It has the copies, one for each source.
    Done(Vec<Placed>),
    /// It failed; nothing is changed there, but for what was written in place and
    /// directories that were there and are filled up in part.
    Failed(Failure),
    /// It was well and gave up because the transfer was called off; nothing is
    /// changed there.
    Cancelled,
    /// It was told to commit and then was lost: it may or may not have the copy.
    Unknown(Failure),
}

/// One rank's outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankResult {
    /// Shell rank.
    pub rank: u32,
    /// What became of it.
    pub outcome: Outcome,
}

impl RankResult {
    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.outcome {
            Outcome::Failed(failure) | Outcome::Unknown(failure) => Some(failure),
            Outcome::Done(_) | Outcome::Cancelled => None,
        }
    }
}

/// Equal failures of several ranks, folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The ranks.
    pub ranks: IdSet,
    /// errno(3) value.
    pub errno: i32,
    /// One line for people: with a rank's own paths if it is the only one.
    pub text: String,
}

impl Fold {
    /// The text; where a file is in the way, also what `force` does, as the
    /// caller's users call that option.
    pub fn advice(&self, force: &str) -> String {
        // What ends in a parenthesis says more already.
        if self.errno == libc::EEXIST && !self.text.ends_with(')') {
            return format!("{} ({force} replaces it)", self.text);
        }
        self.text.clone()
    }
}

/// Folds the failures of `results` by errno and text, in order of the lowest
/// rank of each group.
pub fn fold(results: &[RankResult]) -> Vec<Fold> {
    let mut folds: Vec<Fold> = Vec::new();
    let mut full = Vec::new();
    let mut sorted: Vec<&RankResult> = results.iter().collect();
    sorted.sort_by_key(|result| result.rank);
    for result in sorted {
        let Some(failure) = result.failure() else {
            continue;
        };
        let known = folds
            .iter_mut()
            .find(|f| f.errno == failure.errno && f.text == failure.text);
        match known {
            Some(fold) => {
                fold.ranks.insert(result.rank);
            }
            None => {
                full.push(failure.full_text());
                folds.push(Fold {
                    ranks: IdSet::from_iter([result.rank]),
                    errno: failure.errno,
                    text: failure.text.clone(),
                });
            }
        }
    }
    for (fold, full) in folds.iter_mut().zip(full) {
        if fold.ranks.len() == 1 {
            fold.text = full;
        }
    }
    folds
}

/// Names ranks with their hosts: `rank 3 (host4)`, `ranks 1-2 (host[2-3])`.
/// `hosts` are the host names of all ranks of the job.
pub fn who(ranks: &IdSet, hosts: &[String]) -> String {
    let names: Vec<&str> = ranks
        .iter()
        .filter_map(|rank| hosts.get(rank as usize))
        .map(String::as_str)
        .collect();
    let mut distinct = names.clone();
    distinct.dedup();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    if distinct.is_empty() {
        format!("{word} {ranks}")
    } else {
        format!("{word} {ranks} ({})", hostlist::fold(&distinct))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_failures_fold_by_rank() {
        let failed = |rank, text: &str| RankResult {
            rank,
            outcome: Outcome::Failed(Failure::on(rank, libc::ENOSPC, text)),
        };
        let done = RankResult {
            rank: 1,
            outcome: Outcome::Done(vec![]),
        };
        let folds = fold(&[
            failed(3, "a"),
            failed(2, "a"),
            done,
            failed(0, "b"),
            failed(4, "a"),
        ]);
        let lines: Vec<String> = folds
            .iter()
            .map(|f| format!("{} {}", f.ranks, f.text))
            .collect();
        assert_eq!(lines, ["0 b", "2-4 a"]);
    }

    #[test]
    fn advice_is_for_what_is_in_the_way_and_not_explained() {
        let fold = |errno, text: &str| Fold {
            ranks: IdSet::from_iter([0]),
            errno,
            text: text.to_owned(),
        };
        for (errno, text, says) in [
            (
                libc::EEXIST,
                "open /f: there",
                "open /f: there (--force replaces it)",
            ),
            (libc::EEXIST, "open /f: there (why)", "open /f: there (why)"),
            (libc::ENOENT, "open /f: gone", "open /f: gone"),
        ] {
            assert_eq!(fold(errno, text).advice("--force"), says);
        }
    }

    #[test]
    fn paths_are_a_ranks_own_where_it_is_alone() {
        let failed = |rank, text: &str| RankResult {
            rank,
            outcome: Outcome::Failed(Failure {
                tmpdir: Some(format!("/tmp/{rank}").as_str().into()),
                ..Failure::on(rank, libc::EEXIST, format!("open {TMPDIR}/{text}: bad"))
            }),
        };
        let folds = fold(&[failed(0, "f"), failed(1, "f"), failed(2, "g")]);
        let texts: Vec<&str> = folds.iter().map(|f| f.text.as_str()).collect();
        assert_eq!(
            texts,
            ["open $FLUX_JOB_TMPDIR/f: bad", "open /tmp/2/g: bad"]
        );
    }
}
