//! A few shells, message by message.

use std::collections::VecDeque;

use flux_bcast::pmi::{Action, ConnId, Provider};

use crate::plan::{Plan, plan};
use crate::sim::Sim;

#[test]
fn a_lost_shell_ends_a_waiting_job() {
    let plan = Plan {
        shells: vec![1, 1],
        rounds: 1,
        groups: false,
        ..plan(3)
    };
    let mut sim = Sim::new(plan);
    let actions = sim.providers[0].shell_lost(1);
    assert!(actions.is_empty(), "nobody waits yet");
    let mut abort = None;
    let provider = &mut sim.providers[0];
    let mut actions = provider.accepted(ConnId(0));
    actions.extend(provider.received(ConnId(0), b"cmd=initack pmiid=0\ncmd=barrier_in\n"));
    for action in actions {
        if let Action::Abort { text, .. } = action {
            abort = Some(text);
        }
    }
    assert_eq!(
        abort.as_deref(),
        Some("shell 1 was lost while ranks wait in a barrier")
    );
}

#[test]
fn a_rank_that_dies_on_another_shell_is_named_by_the_leader() {
    let plan = Plan {
        shells: vec![1, 1, 1],
        lanes: 1,
        rounds: 1,
        groups: false,
        ..plan(3)
    };
    let mut sim = Sim::new(plan);
    sim.providers[0].accepted(ConnId(0));
    let actions =
        sim.providers[0].received(ConnId(0), b"cmd=initack pmiid=0\ncmd=barrier_in\n");
    assert!(!actions.contains(&Action::Grace));
    let mut grace = false;
    for action in sim.providers[2].task_exited(2) {
        if let Action::Peer { to: 0, bytes } = action {
            grace |= sim.providers[0].peer(&bytes).contains(&Action::Grace);
        }
    }
    assert!(grace);
    let [Action::Abort { rank, text, .. }] = &sim.providers[0].grace_over()[..] else {
        panic!("the job goes on");
    };
    assert_eq!(*rank, Some(2));
    assert!(
        text.starts_with("rank 2 exited before it used PMI"),
        "{text}"
    );
}

#[test]
fn names_are_known_to_all_shells() {
    let plan = Plan {
        shells: vec![1, 1],
        lanes: 1,
        rounds: 1,
        groups: false,
        ..plan(3)
    };
    let mut sim = Sim::new(plan);
    for shell in [0, 1] {
        sim.providers[shell].accepted(ConnId(shell as u64));
    }
    let mut ask = |shell: usize, line: &str| -> String {
        let mut queue: VecDeque<(usize, Action)> = sim.providers[shell]
            .received(ConnId(shell as u64), line.as_bytes())
            .into_iter()
            .map(|a| (shell, a))
            .collect();
        let mut said = Vec::new();
        while let Some((at, action)) = queue.pop_front() {
            match action {
                Action::Send(_, bytes) => said.extend(bytes),
                Action::Peer { to, bytes } => {
                    assert_ne!(at, to as usize);
                    let more = sim.providers[to as usize].peer(&bytes);
                    queue.extend(more.into_iter().map(|a| (to as usize, a)));
                }
                other => panic!("{other:?}"),
            }
        }
        String::from_utf8(said).unwrap()
    };
    for shell in [0, 1] {
        let reply = ask(shell, &format!("cmd=initack pmiid={shell}\n"));
        assert!(
            reply.starts_with("cmd=initack\ncmd=set size=2\n"),
            "{reply}"
        );
    }
    assert_eq!(
        ask(1, "cmd=publish_name service=s port=p\n"),
        "cmd=publish_result rc=0\n"
    );
    assert_eq!(
        ask(0, "cmd=lookup_name service=s\n"),
        "cmd=lookup_result rc=0 port=p\n"
    );
    assert_eq!(
        ask(0, "cmd=unpublish_name service=s\n"),
        "cmd=unpublish_result rc=0\n"
    );
    assert_eq!(
        ask(1, "cmd=lookup_name service=s\n"),
        "cmd=lookup_result rc=1 msg=service_not_found\n"
    );
    // What follows a request to another shell waits for its answer.
    assert_eq!(
        ask(1, "cmd=lookup_name service=s\ncmd=get_appnum\n"),
        "cmd=lookup_result rc=1 msg=service_not_found\ncmd=appnum rc=0 appnum=0\n"
    );
}

/// Two shells with one rank each that may have several barriers under way.
struct Pair([Provider; 2]);

impl Pair {
    fn new() -> Self {
        let plan = Plan {
            shells: vec![1, 1],
            lanes: 1,
            rounds: 1,
            groups: true,
            ..plan(3)
        };
        let sim = Sim::new(plan);
        let mut pair = Self(sim.providers.try_into().unwrap());
        for rank in [0, 1] {
            pair.0[rank].accepted(ConnId(0));
            let hello = format!("cmd=initack pmiid={rank}");
            pair.say(rank, &hello);
            pair.say(rank, "cmd=init pmi_version=1 pmi_subversion=1");
        }
        pair
    }

    /// Sends a line of a rank; returns what it hears and what goes to the
    /// other shell.
    fn say(&mut self, rank: usize, line: &str) -> (String, Vec<Vec<u8>>) {
        Self::sort(self.0[rank].received(ConnId(0), format!("{line}\n").as_bytes()))
    }

    fn deliver(&mut self, to: usize, messages: Vec<Vec<u8>>) -> (String, Vec<Vec<u8>>) {
        let actions = messages
            .iter()
            .flat_map(|bytes| self.0[to].peer(bytes))
            .collect();
        Self::sort(actions)
    }

    fn sort(actions: Vec<Action>) -> (String, Vec<Vec<u8>>) {
        let mut said = Vec::new();
        let mut messages = Vec::new();
        for action in actions {
            match action {
                Action::Send(_, bytes) => said.extend(bytes),
                Action::Peer { bytes, .. } => messages.push(bytes),
                other => panic!("{other:?}"),
            }
        }
        (String::from_utf8(said).unwrap(), messages)
    }
}

#[test]
fn a_key_put_while_a_round_is_under_way_is_in_the_next_one() {
    let mut pair = Pair::new();
    let (_, up) = pair.say(1, "cmd=barrier_in group=WORLD:1");
    pair.say(1, "cmd=put kvsname=k key=late value=1");
    pair.say(0, "cmd=barrier_in group=WORLD:1");
    let (out, down) = pair.deliver(0, up);
    assert_eq!(out, "cmd=barrier_out rc=0 tag=1\n");
    pair.deliver(1, down);
    let (got, _) = pair.say(0, "cmd=get kvsname=k key=late");
    assert_eq!(
        got, "cmd=get_result rc=4 msg=key_not_found\n",
        "not yet common"
    );

    let (_, up) = pair.say(1, "cmd=barrier_in group=WORLD:2");
    pair.say(0, "cmd=barrier_in group=WORLD:2");
    pair.deliver(0, up);
    let (got, _) = pair.say(0, "cmd=get kvsname=k key=late");
    assert_eq!(got, "cmd=get_result rc=0 value=1\n");
}

#[test]
fn a_barrier_that_overtakes_another_carries_its_keys_too() {
    let mut pair = Pair::new();
    pair.say(1, "cmd=put kvsname=k key=early value=1");
    let (_, first) = pair.say(1, "cmd=barrier_in group=WORLD:1");
    let (_, second) = pair.say(1, "cmd=barrier_in group=WORLD:2");
    pair.deliver(0, first);
    // Rank 0 enters the second one first.
    pair.say(0, "cmd=barrier_in group=WORLD:2");
    let (out, _) = pair.deliver(0, second);
    assert_eq!(out, "cmd=barrier_out rc=0 tag=2\n");
    let (got, _) = pair.say(0, "cmd=get kvsname=k key=early");
    assert_eq!(got, "cmd=get_result rc=0 value=1\n");
}

#[test]
fn a_tag_may_be_used_again_by_one_shell_before_another() {
    // Shell 0 is the parent. Whichever it is, one rank asks for two rounds at once.
    for hasty in [0, 1] {
        let mut pair = Pair::new();
        let enter = "cmd=barrier_in group=WORLD:9";
        let out = "cmd=barrier_out rc=0 tag=9\n";
        let mut up = Vec::new();
        for rank in [1, 0] {
            let (_, messages) = pair.say(rank, enter);
            up.extend(messages);
            if rank == hasty {
                assert_eq!(pair.say(rank, enter), (String::new(), Vec::new()));
            }
        }
        let (said, down) = pair.deliver(0, up);
        assert_eq!(said, out);
        let (said, up) = pair.deliver(1, down);
        assert_eq!(said, out);
        let (_, late) = pair.say(1 - hasty, enter);
        let up = if hasty == 1 { up } else { late };
        let (said, down) = pair.deliver(0, up);
        assert_eq!(said, out, "rank {hasty} was hasty");
        assert_eq!(pair.deliver(1, down).0, out);
    }
}

#[test]
fn a_group_is_told_of_each_rank_that_is_gone() {
    let plan = Plan {
        shells: vec![1, 2],
        cyclic: false,
        lanes: 1,
        rounds: 1,
        groups: true,
        ..plan(3)
    };
    let mut sim = Sim::new(plan);
    sim.providers[0].accepted(ConnId(0));
    let hello = b"cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\n";
    sim.providers[0].received(ConnId(0), hello);
    for rank in [1, 2] {
        for action in sim.providers[1].task_exited(rank) {
            if let Action::Peer { to: 0, bytes } = action {
                sim.providers[0].peer(&bytes);
            }
        }
    }
    let actions = sim.providers[0].received(ConnId(0), b"cmd=barrier_in group=0,2:1\n");
    assert!(actions.contains(&Action::Grace));
    let [Action::Abort { rank: Some(2), .. }] = &sim.providers[0].grace_over()[..] else {
        panic!("the job goes on");
    };
}
