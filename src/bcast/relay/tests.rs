use super::super::id::TransferId;
use super::super::item::Item;
use super::super::report::RankResult;
use super::*;

const ID: TransferId = TransferId::from_bytes([1; 16]);

pub(super) fn data(seq: u64) -> Frame {
    Frame::encode(
        ID,
        seq,
        0,
        &Item::Data {
            offset: seq * 100,
            bytes: &[7; 100],
        },
    )
}

pub(super) fn fin(seq: u64) -> Frame {
    Frame::encode(
        ID,
        seq,
        0,
        &Item::Fin {
            entries: 0,
            bytes: 0,
        },
    )
}

/// A relay on rank 0 that feeds the given ranks, with what it did so far.
pub(super) struct Bench {
    pub(super) relay: Relay,
    pub(super) out: Vec<Output>,
    pub(super) now: Millis,
}

impl Bench {
    pub(super) fn new(children: &[u32], window: u64) -> Self {
        let children = children
            .iter()
            .map(|&rank| Tree::kary(&[rank], 1).unwrap())
            .collect::<Vec<_>>();
        let config = Config {
            local: Some(0),
            children,
            window,
            stall: Duration::from_secs(30),
            watch_upstream: true,
            partial: false,
            heir: false,
        };
        Self::with(config)
    }

    pub(super) fn with(config: Config) -> Self {
        let mut out = Vec::new();
        let relay = Relay::new(config, 0, &mut out);
        Self { relay, out, now: 0 }
    }

    pub(super) fn feed(&mut self, input: Input) -> Vec<Output> {
        self.out.clear();
        self.relay.handle(self.now, input, &mut self.out);
        self.out.clone()
    }

    pub(super) fn child(&mut self, child: usize, up: Up) -> Vec<Output> {
        self.feed(Input::Child { child, up })
    }

    pub(super) fn sink(&mut self, event: SinkEvent) -> Vec<Output> {
        self.feed(Input::Sink(event))
    }
}

pub(super) fn sends(out: &[Output]) -> usize {
    out.iter()
        .filter(|o| matches!(o, Output::SendFrame { .. }))
        .count()
}

pub(super) fn acks(out: &[Output]) -> usize {
    out.iter()
        .filter(|o| matches!(o, Output::Ack { .. }))
        .count()
}

#[test]
fn acknowledges_when_written_and_passed_on() {
    let mut bench = Bench::new(&[1], 10_000);
    bench.sink(SinkEvent::Opened);
    assert_eq!(acks(&bench.feed(Input::Frame(data(0)))), 0);
    assert_eq!(
        acks(&bench.sink(SinkEvent::Wrote)),
        0,
        "the child is not ready"
    );
    let out = bench.child(0, Up::Ready { window: 10_000 });
    assert_eq!((sends(&out), acks(&out)), (1, 1));
    assert_eq!(bench.relay.held_bytes(), 0);
}

#[test]
fn never_exceeds_the_window_but_always_moves() {
    let mut bench = Bench::new(&[1], 300);
    bench.child(0, Up::Ready { window: 300 });
    // Each message costs 164 bytes: one fits, and a second would exceed it.
    assert_eq!(sends(&bench.feed(Input::Frame(data(0)))), 1);
    assert_eq!(sends(&bench.feed(Input::Frame(data(1)))), 0);
    assert_eq!(
        sends(&bench.feed(Input::Credit {
            child: 0,
            bytes: 164
        })),
        1
    );

    let mut tiny = Bench::new(&[1], 1);
    tiny.child(0, Up::Ready { window: 1 });
    assert_eq!(
        sends(&tiny.feed(Input::Frame(data(0)))),
        1,
        "one message is always allowed"
    );
    assert_eq!(sends(&tiny.feed(Input::Frame(data(1)))), 0);
}

#[test]
fn a_lost_child_holds_nothing_back() {
    let mut bench = Bench::new(&[1, 2], 10_000);
    bench.sink(SinkEvent::Opened);
    bench.child(0, Up::Ready { window: 10_000 });
    bench.feed(Input::Frame(data(0)));
    assert_eq!(
        acks(&bench.sink(SinkEvent::Wrote)),
        0,
        "child 1 has not answered"
    );
    let lost = Input::ChildLost {
        child: 1,
        errno: libc::ENOSYS,
        text: "gone".into(),
    };
    let out = bench.feed(lost);
    assert_eq!(acks(&out), 1);
    assert!(out.contains(&Output::Up(Up::Failure(Failure::on(
        2,
        libc::ENOSYS,
        "gone"
    )))));
}

#[test]
fn a_gap_a_repetition_and_data_after_the_end_break_the_stream() {
    for (frames, text) in [
        (vec![data(0), data(2)], "data message 2 came instead of 1"),
        (vec![data(0), data(0)], "data message 0 came instead of 1"),
        (vec![fin(0), data(1)], "data after the end of the stream"),
    ] {
        let mut bench = Bench::new(&[1], 10_000);
        bench.sink(SinkEvent::Opened);
        let mut out = Vec::new();
        for frame in frames {
            out = bench.feed(Input::Frame(frame));
        }
        let why = Failure::on(0, libc::EPROTO, text);
        assert!(
            out.contains(&Output::Up(Up::Failure(why.clone()))),
            "{out:?}"
        );
        assert!(out.contains(&Output::SinkAbort));
        assert!(out.contains(&Output::AbortChild { child: 0, why }));
    }
}

#[test]
fn commits_only_when_told_and_only_when_all_are_prepared() {
    let mut bench = Bench::new(&[1], 10_000);
    bench.sink(SinkEvent::Opened);
    bench.child(0, Up::Ready { window: 10_000 });
    let out = bench.feed(Input::Frame(fin(0)));
    assert!(out.contains(&Output::SinkPrepare));
    bench.sink(SinkEvent::Wrote);
    assert!(
        !bench
            .sink(SinkEvent::Prepared)
            .contains(&Output::Up(Up::Prepared))
    );
    assert!(
        bench
            .child(0, Up::Prepared)
            .contains(&Output::Up(Up::Prepared))
    );
    let out = bench.feed(Input::Commit);
    assert!(out.contains(&Output::SinkCommit) && out.contains(&Output::CommitChild(0)));
    bench.sink(SinkEvent::Committed(vec![]));
    let one = RankResult {
        rank: 1,
        outcome: Outcome::Done(vec![]),
    };
    let out = bench.child(0, Up::Done(vec![one.clone()]));
    let here = RankResult {
        rank: 0,
        outcome: Outcome::Done(vec![]),
    };
    assert_eq!(
        out,
        [Output::Up(Up::Done(vec![here, one])), Output::Finished]
    );
}

#[test]
fn a_commit_before_the_data_is_complete_is_refused() {
    let mut bench = Bench::new(&[], 10_000);
    bench.sink(SinkEvent::Opened);
    bench.feed(Input::Frame(data(0)));
    let out = bench.feed(Input::Commit);
    assert!(out.contains(&Output::SinkAbort) && !out.contains(&Output::SinkCommit));
}

#[test]
fn a_silent_child_is_given_up_and_a_silent_upstream_too() {
    let mut bench = Bench::new(&[1], 10_000);
    bench.sink(SinkEvent::Opened);
    bench.now = 1500;
    assert!(bench.feed(Input::Tick).contains(&Output::PingChild(0)));
    bench.now = 30_001;
    let out = bench.feed(Input::Tick);
    assert!(out.contains(&Output::SinkAbort), "nobody upstream: {out:?}");
    assert!(
        out.iter()
            .any(|o| matches!(o, Output::AbortChild { child: 0, .. }))
    );
    // Nobody upstream is told anything.
    assert!(!out.iter().any(|o| matches!(o, Output::Up(_))));
    assert_eq!(bench.sink(SinkEvent::Aborted), [Output::Finished]);
}

#[test]
fn a_leaving_process_answers_for_everybody_at_once() {
    let mut bench = Bench::new(&[1], 10_000);
    bench.sink(SinkEvent::Opened);
    let why = Failure::on(0, libc::ESHUTDOWN, "the job is ending");
    let out = bench.feed(Input::Shutdown(why.clone()));
    let failed = |rank| RankResult {
        rank,
        outcome: Outcome::Failed(why.clone()),
    };
    assert!(
        out.contains(&Output::Up(Up::Done(vec![failed(0), failed(1)]))),
        "{out:?}"
    );
    assert!(bench.relay.is_finished());
}

/// The costs that are acknowledged, in order.
fn acked(out: &[Output]) -> Vec<u64> {
    let cost = |output: &Output| match output {
        Output::Ack { bytes } => Some(*bytes),
        _ => None,
    };
    out.iter().filter_map(cost).collect()
}

#[test]
fn more_data_than_the_window_breaks_the_stream() {
    let mut bench = Bench::new(&[1], 300);
    bench.sink(SinkEvent::Opened);
    for seq in 0..2 {
        assert_eq!(acks(&bench.feed(Input::Frame(data(seq)))), 0);
    }
    let out = bench.feed(Input::Frame(data(2)));
    assert_eq!(acked(&out), [164, 164, 164]);
    assert_eq!(bench.relay.held_bytes(), 0);
    let told = out.iter().any(|out| {
        matches!(out, Output::Up(Up::Failure(why))
            if why.errno == libc::EPROTO && why.text.contains("more data"))
    });
    assert!(told && out.contains(&Output::SinkAbort), "{out:?}");
}

#[test]
fn what_is_held_is_acknowledged_before_what_breaks_the_stream() {
    let mut bench = Bench::new(&[1], 10_000);
    bench.sink(SinkEvent::Opened);
    bench.feed(Input::Frame(data(0)));
    bench.feed(Input::Frame(data(1)));
    let out = bench.feed(Input::Frame(fin(9)));
    assert_eq!(acked(&out), [164, 164, 64]);
    assert_eq!(bench.relay.held_bytes(), 0);
}

#[test]
fn a_stream_that_breaks_after_the_local_copy_is_verified_drops_the_copy() {
    for last in [Input::Frame(fin(0)), Input::Commit] {
        let mut bench = Bench::new(&[1], 10_000);
        bench.sink(SinkEvent::Opened);
        bench.feed(Input::Frame(fin(0)));
        bench.sink(SinkEvent::Wrote);
        bench.sink(SinkEvent::Prepared);
        let out = bench.feed(last);
        assert!(out.contains(&Output::SinkAbort), "{out:?}");
    }
}

#[test]
fn a_short_stall_time_leaves_time_for_signs_of_life() {
    let mut out = Vec::new();
    let config = Config {
        local: None,
        children: vec![Tree::kary(&[1], 1).unwrap()],
        window: 1000,
        stall: Duration::from_millis(100),
        watch_upstream: true,
        partial: false,
        heir: false,
    };
    let mut relay = Relay::new(config, 0, &mut out);
    for now in [250, 500, 750, 1000] {
        out.clear();
        relay.handle(now, Input::Tick, &mut out);
        assert_eq!(out, [Output::PingChild(0)], "at {now} ms");
    }
}

#[test]
fn bytes_on_their_way_to_a_child_that_failed_early_count_against_the_window() {
    let mut bench = Bench::new(&[1, 2], 400);
    bench.child(0, Up::Ready { window: 400 });
    bench.feed(Input::Frame(data(0)));
    bench.feed(Input::Frame(data(1)));
    bench.child(0, Up::Prepared);
    // 164 bytes are with the first child; two more messages would make 492.
    assert_eq!(sends(&bench.child(1, Up::Ready { window: 400 })), 1);
    let credit = Input::Credit {
        child: 0,
        bytes: 164,
    };
    assert_eq!(sends(&bench.feed(credit)), 1);
}

#[test]
fn a_rank_that_was_lost_in_the_commit_stays_unknown_when_its_parent_is_lost_too() {
    let mut out = Vec::new();
    let config = Config {
        local: None,
        children: vec![Tree::kary(&[1, 2], 1).unwrap()],
        window: 1000,
        stall: Duration::from_secs(30),
        watch_upstream: true,
        partial: false,
        heir: false,
    };
    let mut relay = Relay::new(config, 0, &mut out);
    let lost = Failure::on(2, libc::ENOSYS, "gone");
    for input in [
        Input::Frame(fin(0)),
        Input::Child {
            child: 0,
            up: Up::Prepared,
        },
        Input::Commit,
        Input::Child {
            child: 0,
            up: Up::Failure(lost),
        },
        Input::ChildLost {
            child: 0,
            errno: libc::ENOSYS,
            text: "gone".into(),
        },
    ] {
        out.clear();
        relay.handle(0, input, &mut out);
    }
    let done = out.iter().find_map(|output| match output {
        Output::Up(Up::Done(results)) => Some(results),
        _ => None,
    });
    let unknown = |result: &RankResult| matches!(result.outcome, Outcome::Unknown(_));
    assert!(done.unwrap().iter().all(unknown), "{out:?}");
}

#[test]
fn a_broken_stream_is_answered_for_when_the_sink_has_cleaned_up() {
    let mut bench = Bench::new(&[], 10_000);
    bench.sink(SinkEvent::Opened);
    assert!(
        bench
            .feed(Input::Frame(data(5)))
            .contains(&Output::SinkAbort)
    );
    let why = Failure::client(libc::ECANCELED, "enough");
    assert_eq!(bench.feed(Input::Abort(why)), []);
    let out = bench.sink(SinkEvent::Aborted);
    let [Output::Up(Up::Done(results)), Output::Finished] = &out[..] else {
        panic!("{out:?}");
    };
    let failure = results[0].failure().unwrap();
    assert_eq!(failure.text, "data message 5 came instead of 0");
}

#[test]
fn data_without_credit_does_not_put_off_the_question_for_a_sign_of_life() {
    let mut bench = Bench::new(&[1], 1 << 20);
    bench.child(0, Up::Ready { window: 1 << 20 });
    let mut asked = 0;
    for seq in 0..8 {
        bench.now += 500;
        assert_eq!(sends(&bench.feed(Input::Frame(data(seq)))), 1);
        let out = bench.feed(Input::Tick);
        asked += usize::from(out.contains(&Output::PingChild(0)));
    }
    assert_eq!(asked, 4);
}

#[test]
fn a_rank_that_failed_cannot_turn_out_to_be_well() {
    let mut bench = Bench::new(&[1], 10_000);
    bench.sink(SinkEvent::Opened);
    let failure = Failure::on(1, libc::ENOSPC, "full");
    bench.child(0, Up::Failure(failure.clone()));
    bench.feed(Input::Abort(failure.clone()));
    bench.sink(SinkEvent::Aborted);
    let well = RankResult {
        rank: 1,
        outcome: Outcome::Cancelled,
    };
    let out = bench.child(0, Up::Done(vec![well]));
    let [Output::Up(Up::Done(results)), Output::Finished] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(results[1].outcome, Outcome::Failed(failure));
}

#[test]
fn progress_counts_the_ranks_that_are_done() {
    let mut bench = Bench::new(&[1, 2], 1000);
    bench.feed(Input::Sink(SinkEvent::Opened));
    for child in 0..2 {
        let up = Up::Ready { window: 1000 };
        bench.feed(Input::Child { child, up });
    }
    bench.feed(Input::Frame(data(0)));
    bench.feed(Input::Frame(fin(1)));
    for event in [SinkEvent::Wrote, SinkEvent::Wrote, SinkEvent::Prepared] {
        bench.feed(Input::Sink(event));
    }
    let up = Up::Prepared;
    bench.feed(Input::Child { child: 0, up });
    let (bytes, ranks) = (100, 0);
    let up = Up::Progress { bytes, ranks };
    bench.feed(Input::Child { child: 1, up });
    bench.now = 1000;
    let told = Output::Up(Up::Progress {
        bytes: 100,
        ranks: 2,
    });
    assert!(bench.feed(Input::Tick).contains(&told));
    bench.now = 2000;
    assert!(!bench.feed(Input::Tick).contains(&told), "said twice");
}

#[test]
fn a_child_that_is_silent_when_called_off_is_named_and_not_waited_for() {
    let mut bench = Bench::new(&[1, 2], 10_000);
    bench.sink(SinkEvent::Opened);
    bench.child(0, Up::Ready { window: 10_000 });
    bench.now = 5000;
    bench.feed(Input::Abort(Failure::client(libc::ECANCELED, "enough")));
    bench.sink(SinkEvent::Aborted);
    bench.now = 5400;
    // One is busy with cleaning up, but there; the other says nothing.
    bench.feed(Input::ChildAlive { child: 0 });
    bench.now = 5999;
    assert!(
        !bench
            .feed(Input::Tick)
            .iter()
            .any(|o| matches!(o, Output::Up(_)))
    );
    bench.now = 6000;
    let out = bench.feed(Input::Tick);
    let silent = Failure::on(2, libc::ETIMEDOUT, "no sign of life");
    assert!(out.contains(&Output::Up(Up::Failure(silent))), "{out:?}");
    assert!(!bench.relay.is_finished(), "the other one is waited for");
    let one = RankResult {
        rank: 1,
        outcome: Outcome::Cancelled,
    };
    let out = bench.child(0, Up::Done(vec![one]));
    assert!(out.contains(&Output::Finished));
}
