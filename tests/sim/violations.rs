//! The judges themselves: each must find the violation it is there for, and
//! find nothing in a history without one.

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::item::Item;
use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::SinkEvent;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::bcast::tree::Tree;

use super::promises::Check;
use super::promises::Promises;
use super::protocol::Protocol;
use super::source::ID;

fn done() -> Outcome {
    Outcome::Done(vec![])
}

fn failed() -> Outcome {
    Outcome::Failed(Failure::on(0, libc::EIO, "no"))
}

fn unknown() -> Outcome {
    Outcome::Unknown(Failure::on(0, libc::EIO, "no"))
}

fn results(outcomes: &[(u32, Outcome)]) -> Vec<RankResult> {
    outcomes
        .iter()
        .map(|(rank, outcome)| RankResult {
            rank: *rank,
            outcome: outcome.clone(),
        })
        .collect()
}

/// Two ranks, both verified and told to publish.
fn decided() -> Promises {
    let mut judge = Promises::new(&[0, 1], false);
    judge.verify(0);
    judge.verify(1);
    judge.decide().unwrap();
    judge
}

fn finds(found: Check, part: &str) {
    let text = found.expect_err(part);
    assert!(text.contains(part), "'{text}' does not say '{part}'");
}

#[test]
fn a_good_history_is_good() {
    let mut judge = decided();
    judge.publish(1, true).unwrap();
    judge.claim(&[1], &results(&[(1, done())])).unwrap();
    judge
        .claim(&[0, 1], &results(&[(1, done()), (0, unknown())]))
        .unwrap();
    judge.publish(0, true).unwrap();
}

#[test]
fn wrong_files_and_wrong_times_are_found() {
    finds(decided().publish(0, false), "a wrong file");
    let mut early = Promises::new(&[0], false);
    early.verify(0);
    finds(early.publish(0, true), "before the decision");
    let mut partial = Promises::new(&[0, 1], true);
    partial.verify(1);
    partial.decide().unwrap();
    finds(partial.publish(0, true), "did not verify");
    let mut twice = decided();
    twice.publish(0, true).unwrap();
    finds(twice.publish(0, true), "twice");
}

#[test]
fn all_or_nothing_is_watched_unless_partial() {
    let mut judge = Promises::new(&[0, 1], false);
    judge.verify(0);
    finds(judge.decide(), "rank 1 has not verified");
    let mut partial = Promises::new(&[0, 1], true);
    partial.verify(0);
    partial.decide().unwrap();
    partial.publish(0, true).unwrap();
}

#[test]
fn untrue_answers_are_found() {
    for (outcomes, text) in [
        (vec![(0, done())], "instead of"),
        (vec![(0, unknown()), (0, unknown())], "instead of"),
        (
            vec![(0, unknown()), (1, unknown()), (2, unknown())],
            "instead of",
        ),
        (vec![(0, done()), (1, done())], "has no file"),
        (vec![(0, failed()), (1, failed())], "has the file"),
        (vec![(0, failed()), (1, Outcome::Cancelled)], "has the file"),
    ] {
        let mut judge = decided();
        judge.publish(1, true).unwrap();
        finds(judge.claim(&[0, 1], &results(&outcomes)), text);
    }
    let mut undecided = Promises::new(&[0], false);
    finds(
        undecided.claim(&[0], &results(&[(0, unknown())])),
        "cannot have",
    );
    undecided.fail(0);
    let well = results(&[(0, Outcome::Cancelled)]);
    finds(undecided.claim(&[0], &well), "said to be well");
}

#[test]
fn an_answer_must_stay_true() {
    let mut judge = decided();
    judge.claim(&[0], &results(&[(0, failed())])).unwrap();
    finds(judge.publish(0, true), "said to have no file");
}

#[test]
fn memory_beyond_the_window_is_found() {
    Promises::held(300, 200, 100).unwrap();
    finds(Promises::held(301, 200, 100), "holds 301");
    Promises::in_flight(&[100, 100], 1, 100).unwrap();
    Promises::in_flight(&[50, 150], 200, 100).unwrap();
    finds(
        Promises::in_flight(&[150, 150], 200, 100),
        "300 bytes in flight",
    );
    finds(
        Promises::in_flight(&[150, 10], 120, 100),
        "150 bytes in flight to one",
    );
}

fn fin(seq: u64) -> Frame {
    let item = Item::Fin {
        entries: 0,
        bytes: 0,
    };
    Frame::encode(ID, seq, 0, &item)
}

/// Feeds a history to the judge of one relay with one child; the last output is
/// the one in question.
fn relay(inputs: &[Input], outputs: &[Output]) -> Check {
    let mut judge = Protocol::new(false, 1);
    for input in inputs {
        judge.input(input);
    }
    let (last, before) = outputs.split_last().unwrap();
    for output in before {
        judge.output(output).unwrap();
    }
    judge.output(last)
}

#[test]
fn orders_out_of_turn_are_found() {
    let child = |up| Input::Child { child: 0, up };
    let ready = || child(Up::Ready { window: 1 });
    let send = |seq| Output::SendFrame {
        child: 0,
        frame: fin(seq),
    };
    let abort = || Output::AbortChild {
        child: 0,
        why: Failure::client(libc::EIO, "no"),
    };
    let open = || Output::OpenChild(0);
    let prepared = || Input::Sink(SinkEvent::Prepared);

    relay(&[ready()], &[open(), send(0)]).unwrap();
    finds(relay(&[ready()], &[send(0)]), "not opened");
    finds(relay(&[], &[open(), send(0)]), "not the time to send");
    finds(relay(&[ready()], &[open(), send(1)]), "out of order");
    finds(
        relay(&[ready()], &[open(), send(0), send(1)]),
        "not the time",
    );
    finds(
        relay(&[ready()], &[open(), abort(), send(0)]),
        "not the time",
    );

    let all = [Input::Commit, child(Up::Prepared), prepared()];
    let commit = Output::CommitChild(0);
    relay(&all, &[open(), commit.clone()]).unwrap();
    finds(relay(&all[1..], &[open(), commit.clone()]), "not the time");
    finds(relay(&all[..1], &[open(), commit.clone()]), "not the time");
    finds(relay(&all, &[open(), abort(), commit]), "not the time");

    relay(&all, &[Output::SinkOpen, Output::SinkCommit]).unwrap();
    finds(relay(&all[..2], &[Output::SinkCommit]), "not the time");
    finds(relay(&all[1..], &[Output::SinkCommit]), "not the time");
    let torn = [Output::SinkOpen, Output::SinkAbort, Output::SinkCommit];
    finds(relay(&all, &torn), "not the time");
    let late = [
        Output::SinkOpen,
        Output::SinkAbort,
        Output::SinkFrame(fin(0)),
    ];
    finds(relay(&[], &late), "not the time");
    finds(
        relay(&[], &[Output::SinkOpen, Output::SinkPrepare]),
        "prepare",
    );

    let answer = || Output::Up(Up::Done(vec![]));
    finds(relay(&[], &[Output::Finished, open()]), "follows the end");
    finds(relay(&[], &[open(), Output::Finished]), "left alone");
    let opened = [Output::SinkOpen, Output::Finished];
    finds(relay(&[], &opened), "still at work");
    relay(&[Input::Sink(SinkEvent::Aborted)], &opened).unwrap();
    relay(&[child(Up::Done(vec![]))], &[open(), Output::Finished]).unwrap();
    relay(&[], &[open(), abort(), Output::Finished]).unwrap();
    finds(relay(&[], &[answer(), open()]), "follows the answer");
    finds(relay(&[Input::UpstreamLost], &[answer()]), "nobody listens");
}

#[test]
fn orphans_handed_over_out_of_turn_are_found() {
    let adopt = |child| Output::AdoptChild {
        child,
        tree: Tree::kary(&[5], 1).unwrap(),
        first: 3,
    };
    let child = |up| Input::Child { child: 1, up };
    let taken = [child(Up::Resume { seq: 3 }), child(Up::Ready { window: 1 })];
    let send = |seq| Output::SendFrame {
        child: 1,
        frame: fin(seq),
    };
    relay(&taken, &[adopt(1)]).unwrap();
    finds(relay(&[], &[adopt(0)]), "not the next number");
    finds(relay(&taken, &[send(3)]), "no such child");
    finds(relay(&[], &[adopt(1), send(3)]), "not the time to send");

    let lost = [Input::Offer { heir: false }, Input::UpstreamLost];
    let answer = || Output::Up(Up::Done(vec![]));
    relay(&lost, &[Output::Accept, answer()]).unwrap();
    finds(relay(&lost[..1], &[Output::Accept]), "not lost");
    finds(relay(&lost[1..], &[Output::Accept]), "nobody made an offer");
    relay(&lost[..1], &[Output::Decline]).unwrap();
    finds(relay(&[], &[Output::Decline]), "nobody made an offer");
    finds(
        relay(&lost, &[Output::Decline, Output::Accept]),
        "nobody made an offer",
    );
}
