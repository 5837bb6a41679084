//! What the C functions tell of each kind of result.

use super::*;
use crate::bcast::id::TransferId;

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
    let report = Report::sent(summary(results, None));
    assert_eq!((report.errno, report.text.as_bytes()), (None, &b""[..]));
    assert_eq!((report.bytes, report.seconds), (6, 1.5));
    let ranks: Vec<u32> = report.ranks.iter().map(|rank| rank.rank).collect();
    assert_eq!(ranks, [0, 2]);
    let last = &report.ranks[1];
    assert_eq!(last.host.as_bytes(), b"n2");
    assert_eq!((last.state, last.errnum), (RankState::Done, 0));
    assert_eq!(last.copies[0].path.as_bytes(), b"/t/\xff");
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
    let report = Report::sent(summary(results, Some(why)));
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
    let report = Report::sent(summary(Vec::new(), Some(why)));
    assert_eq!(report.errno, Some(Errno::ENOENT));
    assert_eq!(report.text.as_bytes(), b"read nothing");
    assert!(report.ranks.is_empty());
}

#[test]
fn healthy_ranks_do_not_make_a_success() {
    let results = vec![done(0, &[b"/a"]), failed(1, libc::EROFS, "read-only")];
    let report = Report::sent(summary(results, None));
    assert_eq!(report.errno, Some(Errno::EROFS));
    assert_eq!(report.ranks[0].state, RankState::Done);
}

#[test]
fn the_last_copies_are_the_library_path() {
    let summary = Summary {
        libs: 2,
        unchanged: crate::idset::IdSet::from_iter([1]),
        ..summary(
            vec![done(0, &[b"/p", b"/a\xff", b"/b"]), done(1, &[])],
            None,
        )
    };
    let report = Report::sent(summary);
    assert_eq!(report.ranks[0].library_path.as_bytes(), b"/a\xff:/b");
    assert_eq!(report.ranks[1].library_path.as_bytes(), b"");
    let unchanged: Vec<bool> = report.ranks.iter().map(|rank| rank.unchanged).collect();
    assert_eq!(unchanged, [false, true]);
}

#[test]
fn what_is_gathered_adds_up() {
    let results = vec![done(0, &[b"/a"]), done(1, &[b"/b", b"/c"])];
    assert_eq!(Report::gathered(summary(results, None)).bytes, 9);
}

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
