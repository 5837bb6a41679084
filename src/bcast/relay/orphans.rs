//! Tests of what becomes of the children of a lost child.

use super::super::report::RankResult;
use super::tests::*;
use super::*;

const WINDOW: u64 = 1000;

/// Rank 0 feeds 1, which feeds 2 and 3.
fn config(partial: bool) -> Config {
    let ranks = [1, 2, 3];
    Config {
        local: Some(0),
        children: vec![Tree::kary(&ranks, 2).unwrap()],
        window: WINDOW,
        stall: Duration::from_secs(30),
        watch_upstream: true,
        partial,
        heir: true,
    }
}

/// The one that feeds, with its sink open and its child ready.
fn feeder(partial: bool) -> Bench {
    let mut bench = Bench::with(config(partial));
    bench.sink(SinkEvent::Opened);
    bench.child(0, Up::Ready { window: WINDOW });
    bench
}

/// One that is fed and feeds nobody, with its sink open.
fn leaf(heir: bool) -> Bench {
    let mut bench = Bench::with(Config {
        children: Vec::new(),
        heir,
        ..config(true)
    });
    bench.sink(SinkEvent::Opened);
    bench
}

fn lost(child: usize, errno: i32) -> Input {
    Input::ChildLost {
        child,
        errno,
        text: "gone".into(),
    }
}

fn offer() -> Input {
    Input::Offer { heir: true }
}

/// The frame numbers offered to orphans.
fn offers(out: &[Output]) -> Vec<(usize, u32, u64)> {
    out.iter()
        .filter_map(|output| match output {
            Output::AdoptChild { child, tree, first } => Some((*child, tree.root(), *first)),
            _ => None,
        })
        .collect()
}

/// What is sent to a child.
fn sent(out: &[Output], to: usize) -> Vec<u64> {
    out.iter()
        .filter_map(|output| match output {
            Output::SendFrame { child, frame } if *child == to => Some(frame.seq()),
            _ => None,
        })
        .collect()
}

/// Frames come, are written, sent and used up by child 0.
fn stream(bench: &mut Bench, frames: std::ops::Range<u64>) {
    for seq in frames {
        bench.feed(Input::Frame(data(seq)));
        bench.sink(SinkEvent::Wrote);
        let (child, bytes) = (0, data(seq).cost());
        bench.feed(Input::Credit { child, bytes });
    }
}

fn results(out: &[Output]) -> Vec<RankResult> {
    let done = out.iter().find_map(|output| match output {
        Output::Up(Up::Done(results)) => Some(results.clone()),
        _ => None,
    });
    done.unwrap()
}

#[test]
fn the_orphans_of_a_lost_child_go_on_where_they_are() {
    let mut bench = feeder(true);
    stream(&mut bench, 0..20);
    let out = bench.feed(lost(0, libc::ENOSYS));
    // Messages of 164 bytes: a window of those used up is kept.
    assert_eq!(offers(&out), [(1, 2, 14), (2, 3, 14)]);
    bench.child(1, Up::Resume { seq: 15 });
    bench.child(2, Up::Resume { seq: 20 });
    let out = bench.child(1, Up::Ready { window: WINDOW });
    assert_eq!(sent(&out, 1), [15, 16, 17]);
    bench.child(2, Up::Ready { window: WINDOW });
    let out = bench.feed(Input::Frame(fin(20)));
    assert_eq!(sent(&out, 2), [20]);
}

#[test]
fn nothing_is_acknowledged_before_the_orphans_have_it() {
    let mut bench = feeder(true);
    stream(&mut bench, 0..2);
    bench.feed(lost(0, libc::ENOSYS));
    bench.feed(Input::Frame(data(2)));
    assert_eq!(acks(&bench.sink(SinkEvent::Wrote)), 0);
    let mut acknowledged = 0;
    for child in 1..3 {
        bench.child(child, Up::Resume { seq: 2 });
        acknowledged += acks(&bench.child(child, Up::Ready { window: WINDOW }));
    }
    assert_eq!(acknowledged, 1);
    // Leaves need nothing older.
    assert_eq!(bench.relay.kept_bytes(), 0);
}

#[test]
fn only_the_lost_rank_is_lost() {
    let mut bench = feeder(true);
    bench.feed(Input::Frame(fin(0)));
    for event in [SinkEvent::Wrote, SinkEvent::Prepared] {
        bench.sink(event);
    }
    bench.feed(lost(0, libc::ENOSYS));
    bench.child(1, Up::Prepared);
    let out = bench.child(2, Up::Prepared);
    assert!(out.contains(&Output::Up(Up::Prepared)), "{out:?}");
    let out = bench.feed(Input::Commit);
    assert!(out.contains(&Output::CommitChild(1)) && out.contains(&Output::CommitChild(2)));
    bench.sink(SinkEvent::Committed(vec![]));
    let done = |rank| RankResult {
        rank,
        outcome: Outcome::Done(vec![]),
    };
    bench.child(1, Up::Done(vec![done(2)]));
    let out = bench.child(2, Up::Done(vec![done(3)]));
    let failed = RankResult {
        rank: 1,
        outcome: Outcome::Failed(Failure::on(1, libc::ENOSYS, "gone")),
    };
    assert_eq!(results(&out), [done(0), failed, done(2), done(3)]);
}

#[test]
fn an_orphan_that_turns_up_after_the_order_to_publish_gets_it() {
    let mut bench = feeder(true);
    bench.feed(Input::Frame(fin(0)));
    for event in [SinkEvent::Wrote, SinkEvent::Prepared] {
        bench.sink(event);
    }
    bench.child(0, Up::Prepared);
    bench.feed(Input::Commit);
    bench.feed(lost(0, libc::ENOSYS));
    let out = bench.child(1, Up::Prepared);
    assert!(out.contains(&Output::CommitChild(1)), "{out:?}");
    // The lost one may have told the other.
    bench.feed(lost(2, libc::ENOSYS));
    bench.sink(SinkEvent::Committed(vec![]));
    let out = bench.child(1, Up::Done(vec![]));
    let unknown = |result: &&RankResult| matches!(result.outcome, Outcome::Unknown(_));
    let ranks = results(&out);
    let ranks: Vec<u32> = ranks.iter().filter(unknown).map(|r| r.rank).collect();
    assert_eq!(ranks, [1, 2, 3]);
}

#[test]
fn an_orphan_that_is_too_far_behind_is_cut_off() {
    let mut bench = feeder(true);
    stream(&mut bench, 0..20);
    bench.feed(lost(0, libc::ENOSYS));
    let out = bench.child(1, Up::Resume { seq: 13 });
    assert!(
        out.iter()
            .any(|o| matches!(o, Output::AbortChild { child: 1, .. })),
        "{out:?}"
    );
    let told = |output: &Output| {
        matches!(output, Output::Up(Up::Failure(why))
            if why.rank == Some(2) && why.text.contains("too far behind"))
    };
    assert!(out.iter().any(told), "{out:?}");
}

#[test]
fn one_that_never_heard_of_the_transfer_begins_at_the_beginning_if_it_can() {
    for (frames, well) in [(0..2, true), (0..20, false)] {
        let mut bench = feeder(true);
        stream(&mut bench, frames);
        bench.feed(lost(0, libc::ENOSYS));
        let out = bench.child(1, Up::Ready { window: WINDOW });
        assert_eq!(sent(&out, 1).first() == Some(&0), well, "{out:?}");
    }
}

#[test]
fn orphans_are_left_alone_where_all_fail_together_or_another_has_them() {
    for (partial, errno) in [
        (false, libc::ENOSYS),
        (true, libc::EPERM),
        (true, libc::EBUSY),
    ] {
        let mut bench = feeder(partial);
        assert_eq!(offers(&bench.feed(lost(0, errno))), []);
    }
}

#[test]
fn orphans_of_a_transfer_that_is_called_off_are_told_so() {
    let mut bench = feeder(true);
    let why = Failure::client(libc::ECANCELED, "enough");
    bench.feed(Input::Abort(why.clone()));
    let out = bench.feed(lost(0, libc::ENOSYS));
    assert_eq!(offers(&out), [(1, 2, u64::MAX), (2, 3, u64::MAX)]);
    assert!(out.contains(&Output::AbortChild { child: 1, why }));
}

#[test]
fn what_failed_below_a_lost_child_is_not_forgotten() {
    let mut bench = feeder(true);
    let full = Failure::on(3, libc::ENOSPC, "full");
    let told = Output::Up(Up::Failure(full.clone()));
    assert!(bench.child(0, Up::Failure(full.clone())).contains(&told));
    bench.feed(lost(0, libc::ENOSYS));
    // The orphan says it again.
    assert!(!bench.child(2, Up::Failure(full.clone())).contains(&told));
    bench.child(2, Up::Prepared);
    bench.feed(lost(2, libc::ENOSYS));
    let why = Failure::on(0, libc::ESHUTDOWN, "the job is ending");
    let out = bench.feed(Input::Shutdown(why));
    assert_eq!(results(&out)[3].outcome, Outcome::Failed(full));
}

#[test]
fn an_orphan_accepts_when_its_parent_is_lost_and_says_everything_again() {
    let mut bench = feeder(true);
    let full = Failure::on(2, libc::ENOSPC, "full");
    bench.child(0, Up::Failure(full.clone()));
    bench.feed(Input::Frame(data(0)));
    assert_eq!(bench.feed(offer()), []);
    let out = bench.feed(Input::UpstreamLost);
    assert_eq!(
        out,
        [
            Output::Accept,
            Output::Up(Up::Resume { seq: 1 }),
            Output::Up(Up::Failure(full)),
        ]
    );
    // What the lost one has sent still fills the window.
    let ready = Output::Up(Up::Ready { window: WINDOW });
    assert!(bench.sink(SinkEvent::Wrote).contains(&ready));
}

#[test]
fn an_orphan_that_has_all_asks_for_nothing() {
    let mut bench = leaf(true);
    bench.feed(Input::Frame(fin(0)));
    for event in [SinkEvent::Wrote, SinkEvent::Prepared] {
        bench.sink(event);
    }
    assert_eq!(bench.feed(Input::UpstreamLost), []);
    let out = bench.feed(offer());
    assert_eq!(out, [Output::Accept, Output::Up(Up::Prepared)]);
    let out = bench.feed(Input::Commit);
    assert!(out.contains(&Output::SinkCommit));
}

#[test]
fn an_orphan_waits_for_long_enough_and_not_for_ever() {
    for heir in [true, false] {
        let mut bench = leaf(heir);
        let out = bench.feed(Input::UpstreamLost);
        assert_eq!(out.contains(&Output::SinkAbort), !heir);
    }
    let mut bench = leaf(true);
    bench.feed(Input::UpstreamLost);
    bench.now = 61_000;
    assert_eq!(bench.feed(Input::Tick), []);
    bench.now = 62_001;
    assert_eq!(bench.feed(Input::Tick), [Output::SinkAbort]);
    assert_eq!(bench.sink(SinkEvent::Aborted), [Output::Finished]);
    assert_eq!(bench.relay.results()[0].outcome, Outcome::Cancelled);
}

#[test]
fn an_offer_is_declined_when_the_parent_is_well_after_all() {
    let mut bench = leaf(true);
    bench.feed(offer());
    // That may have been on its way when the parent died.
    bench.now = 29_000;
    assert_eq!(bench.feed(Input::UpstreamAlive), []);
    bench.now = 31_000;
    assert_eq!(bench.feed(Input::UpstreamAlive), [Output::Decline]);
    assert_eq!(bench.feed(Input::UpstreamLost), []);
}

#[test]
fn a_parent_that_was_only_slow_hears_what_it_missed() {
    let mut bench = leaf(true);
    bench.feed(Input::Frame(fin(0)));
    bench.sink(SinkEvent::Wrote);
    bench.now = 30_001;
    bench.feed(Input::Tick);
    assert_eq!(bench.sink(SinkEvent::Prepared), [], "nobody listens");
    let out = bench.feed(Input::UpstreamAlive);
    assert_eq!(out, [Output::Up(Up::Prepared)]);
}

#[test]
fn a_call_off_by_the_one_that_offers_counts_when_the_parent_is_lost() {
    let mut bench = leaf(true);
    let why = Failure::client(libc::ECANCELED, "enough");
    bench.feed(offer());
    assert_eq!(bench.feed(Input::OfferAborted(why)), []);
    let out = bench.feed(Input::UpstreamLost);
    assert_eq!(out, [Output::Accept, Output::SinkAbort]);
    let out = bench.sink(SinkEvent::Aborted);
    assert_eq!(results(&out)[0].outcome, Outcome::Cancelled);
}

#[test]
fn an_offer_dies_with_the_one_that_made_it() {
    let mut bench = leaf(true);
    bench.feed(offer());
    bench.feed(Input::OfferGone);
    assert_eq!(bench.feed(Input::UpstreamLost), []);
}

#[test]
fn an_orphan_that_lies_harms_nobody_else() {
    let mut bench = feeder(true);
    stream(&mut bench, 0..5);
    // Nobody asked that one: it was sent everything.
    let out = bench.child(0, Up::Resume { seq: 0 });
    assert_eq!(sent(&out, 0), [0; 0]);
    bench.feed(lost(0, libc::ENOSYS));
    let out = bench.child(1, Up::Resume { seq: u64::MAX });
    assert!(
        out.iter()
            .any(|o| matches!(o, Output::AbortChild { child: 1, .. })),
        "{out:?}"
    );
    bench.child(2, Up::Resume { seq: 4 });
    let out = bench.child(2, Up::Ready { window: u64::MAX });
    assert_eq!(sent(&out, 2), [4]);
    // Once is enough.
    bench.child(2, Up::Resume { seq: 0 });
    let out = bench.child(2, Up::Ready { window: u64::MAX });
    assert_eq!(sent(&out, 2), [0; 0]);
}

#[test]
fn offers_over_and_over_take_nobody_from_a_parent_that_lives() {
    let mut bench = leaf(true);
    for n in 0..1000 {
        bench.now += 10;
        bench.feed(Input::UpstreamAlive);
        let out = bench.feed(offer());
        assert!(!out.contains(&Output::Accept), "{out:?}");
        let why = Failure::client(libc::ECANCELED, "enough");
        bench.feed(Input::OfferAborted(why));
        bench.feed(Input::Frame(data(n)));
        bench.sink(SinkEvent::Wrote);
    }
    assert!(!bench.relay.is_finished());
    assert_eq!((bench.relay.held_bytes(), bench.relay.kept_bytes()), (0, 0));
}
