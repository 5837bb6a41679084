//! The result of a transfer, as strings and numbers for C.

use std::ffi::CString;

use crate::bcast::report;
use crate::bcast::report::Failure;
use crate::bcast::report::Outcome;
use crate::bcast::report::RankResult;
use crate::client::Summary;
use crate::errno::Errno;

use super::options::c_text;

/// What became of a rank, by the numbers of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankState {
    Done = 0,
    Failed = 1,
    Cancelled = 2,
    Unknown = 3,
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
    pub(super) paths: Vec<CString>,
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
    pub(super) fn new(mut summary: Summary) -> Self {
        summary.results.sort_by_key(|result| result.rank);
        let lines = lines(&summary);
        let ranks: Vec<Rank> = summary
            .results
            .iter()
            .map(|result| rank(result, &summary.hosts))
            .collect();
        let copied = summary
            .results
            .iter()
            .find_map(|result| match &result.outcome {
                Outcome::Done(copies) => Some(copies.iter().map(|copy| copy.bytes).sum()),
                _ => None,
            });
        Self {
            errno: (!summary.is_complete()).then(|| errno(&summary)),
            text: c_text(&lines.join("\n")),
            ranks,
            bytes: copied.unwrap_or(summary.bytes),
            seconds: summary.elapsed.as_secs_f64(),
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
    let mut lines: Vec<String> = report::fold(&summary.results)
        .iter()
        .map(|fold| {
            format!(
                "{}: {}",
                report::who(&fold.ranks, &summary.hosts),
                fold.text
            )
        })
        .collect();
    match &summary.why {
        Some(why) if why.rank.is_none() || lines.is_empty() => lines.insert(0, why.to_string()),
        None if lines.is_empty() => lines.push("the transfer was called off".into()),
        _ => {}
    }
    lines
}

fn rank(result: &RankResult, hosts: &[String]) -> Rank {
    let (state, copies) = match &result.outcome {
        Outcome::Done(copies) => (RankState::Done, copies.as_slice()),
        Outcome::Failed(_) => (RankState::Failed, &[][..]),
        Outcome::Cancelled => (RankState::Cancelled, &[][..]),
        Outcome::Unknown(_) => (RankState::Unknown, &[][..]),
    };
    let failure = result.failure();
    Rank {
        rank: result.rank,
        host: c_text(hosts.get(result.rank as usize).map_or("", String::as_str)),
        state,
        errnum: failure.map_or(0, |failure| Errno::or_eio(failure.errno).raw()),
        text: failure.map_or_else(CString::default, |failure| c_text(&failure.full_text())),
        paths: copies
            .iter()
            .map(|copy| CString::new(copy.path.as_bytes()).unwrap_or_default())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bcast::id::TransferId;
    use crate::bcast::name::RawName;
    use crate::bcast::report::Placed;

    fn summary(results: Vec<RankResult>, why: Option<Failure>) -> Summary {
        Summary {
            transfer: TransferId::from_bytes([1; 16]),
            results,
            why,
            hosts: (0..4).map(|n| format!("n{n}")).collect(),
            names: Vec::new(),
            libs: 0,
            bytes: 10,
            elapsed: Duration::from_millis(1500),
            unchanged: crate::idset::IdSet::default(),
        }
    }

    fn done(rank: u32, paths: &[&[u8]]) -> RankResult {
        let placed = |path: &&[u8]| Placed {
            path: RawName::new(*path),
            bytes: 3,
            micros: 0,
        };
        RankResult {
            rank,
            outcome: Outcome::Done(paths.iter().map(placed).collect()),
        }
    }

    fn failed(rank: u32, errno: i32, text: &str) -> RankResult {
        RankResult {
            rank,
            outcome: Outcome::Failed(Failure::on(rank, errno, text)),
        }
    }

    #[test]
    fn success_has_no_text_and_paths_keep_their_bytes() {
        let results = vec![
            done(2, &[b"/t/\xff", b"/t/b"]),
            done(0, &[b"/s/a", b"/s/b"]),
        ];
        let report = Report::new(summary(results, None));
        assert_eq!((report.errno, report.text.as_bytes()), (None, &b""[..]));
        assert_eq!((report.bytes, report.seconds), (6, 1.5));
        let ranks: Vec<u32> = report.ranks.iter().map(|rank| rank.rank).collect();
        assert_eq!(ranks, [0, 2]);
        let last = &report.ranks[1];
        assert_eq!(last.host.as_bytes(), b"n2");
        assert_eq!((last.state, last.errnum), (RankState::Done, 0));
        assert_eq!(last.paths[0].as_bytes(), b"/t/\xff");
    }

    #[test]
    fn equal_failures_are_one_line_and_the_reason_counts() {
        let why = Failure::on(3, libc::ENOSPC, "write /x: full");
        let results = vec![
            failed(3, libc::ENOSPC, "write /x: full"),
            failed(2, libc::ENOSPC, "write /x: full"),
            failed(1, libc::EEXIST, "open /x: there"),
            RankResult {
                rank: 0,
                outcome: Outcome::Cancelled,
            },
        ];
        let report = Report::new(summary(results, Some(why)));
        assert_eq!(report.errno, Some(Errno::ENOSPC));
        let text = report.text.to_str().unwrap();
        let wanted = "rank 1 (n1): open /x: there\nranks 2-3 (n[2-3]): write /x: full";
        assert_eq!(text, wanted);
        assert_eq!(report.line(), wanted.replace('\n', "; "));
        assert_eq!(report.ranks[0].state, RankState::Cancelled);
        assert_eq!(report.ranks[1].errnum, libc::EEXIST);
        assert_eq!(report.ranks[1].text.as_bytes(), b"open /x: there");
    }

    #[test]
    fn a_failure_of_this_side_comes_first() {
        let why = Failure::client(libc::ENOENT, "read nothing");
        let report = Report::new(summary(Vec::new(), Some(why)));
        assert_eq!(report.errno, Some(Errno::ENOENT));
        assert_eq!(report.text.as_bytes(), b"read nothing");
        assert!(report.ranks.is_empty());
    }

    #[test]
    fn healthy_ranks_do_not_make_a_success() {
        let results = vec![done(0, &[b"/a"]), failed(1, libc::EROFS, "read-only")];
        let report = Report::new(summary(results, None));
        assert_eq!(report.errno, Some(Errno::EROFS));
        assert_eq!(report.ranks[0].state, RankState::Done);
    }
}
