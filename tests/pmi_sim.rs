//! Many shells, ranks and lanes in one process, with every message delayed at
//! random by a seeded scheduler: no barrier may end early, and what is put
//! before it must be read after it, byte for byte, on every rank.
//!
//! A failing seed is printed; `PMI_SIM_SEED=n` runs just that one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use flux_bcast::pmi::{Action, Config, ConnId, IdPolicy, Ids, Limits, Provider};
use std::collections::{BTreeMap, VecDeque};

/// xorshift64*: small, seeded, good enough to shuffle with.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    /// Ranks of each shell.
    shells: Vec<u32>,
    cyclic: bool,
    lanes: u32,
    k: u32,
    batch: usize,
    rounds: usize,
    value: usize,
    groups: bool,
    /// In percent: how often ranks of odd number start with their last lane.
    opposite: usize,
}

impl Plan {
    fn ranks(&self) -> usize {
        self.shells.iter().map(|&n| n as usize).sum()
    }

    fn shell_of_rank(&self) -> Vec<u32> {
        if !self.cyclic {
            return (0u32..)
                .zip(&self.shells)
                .flat_map(|(shell, &n)| (0..n).map(move |_| shell))
                .collect();
        }
        let mut left = self.shells.clone();
        let mut order = Vec::new();
        while order.len() < self.ranks() {
            for (shell, n) in (0u32..).zip(&mut left) {
                if *n > 0 {
                    *n -= 1;
                    order.push(shell);
                }
            }
        }
        order
    }

    /// The value of a rank in a round: random, but known to the checker.
    fn value(&self, lane: u32, round: usize, rank: usize) -> Vec<u8> {
        let mut rng = Rng(self.seed
            ^ (u64::from(lane) << 48)
            ^ ((round as u64) << 24)
            ^ (rank as u64 + 1));
        rng.next();
        let n = 1 + rng.below(self.value);
        (0..n)
            .map(|_| b"0123456789ABCDEFabcdef+/=,.{}[]\" :"[rng.below(34)])
            .collect()
    }

    /// The ranks of the group barrier of a round; same on all ranks.
    fn group(&self, lane: u32, round: usize) -> Vec<usize> {
        let mut rng = Rng(self
            .seed
            .wrapping_add(1 + round as u64 * 64 + u64::from(lane)));
        rng.next();
        (0..self.ranks()).filter(|_| rng.below(2) == 0).collect()
    }
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Hello,
    Put,
    Group,
    CheckGroup(usize),
    World,
    Check(usize),
    Bye,
}

struct Client {
    rank: usize,
    lane: u32,
    shell: usize,
    round: usize,
    step: Step,
    input: Vec<u8>,
    /// Lines of the reply still to come.
    owed: usize,
}

struct Sim {
    plan: Plan,
    rng: Rng,
    providers: Vec<Provider>,
    clients: Vec<Client>,
    up: Vec<VecDeque<u8>>,
    down: Vec<VecDeque<u8>>,
    links: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    /// How many ranks have entered the world barrier of (lane, round).
    entered: BTreeMap<(u32, usize), usize>,
    largest: usize,
    aborts: Vec<String>,
}

impl Sim {
    fn new(plan: Plan) -> Self {
        let map = plan.shell_of_rank();
        let size = u32::try_from(map.len()).unwrap();
        let mut clients = Vec::new();
        for (rank, &shell) in map.iter().enumerate() {
            for lane in 0..plan.lanes {
                clients.push(Client {
                    rank,
                    lane,
                    shell: shell as usize,
                    round: 0,
                    step: Step::Hello,
                    input: Vec::new(),
                    owed: 0,
                });
            }
        }
        let providers = (0u32..)
            .zip(&plan.shells)
            .map(|(shell, _)| {
                let local: Vec<u32> = (0..size).filter(|&r| map[r as usize] == shell).collect();
                Provider::new(Config {
                    shell,
                    shell_of_rank: map.clone(),
                    k: plan.k,
                    batch: plan.batch,
                    kvsname: b"sim".to_vec(),
                    presets: Vec::new(),
                    ids: Ids::new(IdPolicy::Rank, size, plan.lanes, &local, || 0),
                    groups: plan.groups,
                    limits: Limits::for_size(size),
                })
            })
            .collect();
        let n = clients.len();
        Self {
            rng: Rng(plan.seed | 1),
            plan,
            providers,
            clients,
            up: vec![VecDeque::new(); n],
            down: vec![VecDeque::new(); n],
            links: BTreeMap::new(),
            entered: BTreeMap::new(),
            largest: 0,
            aborts: Vec::new(),
        }
    }

    fn apply(&mut self, shell: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(conn, bytes) => self.down[conn.0 as usize].extend(bytes),
                Action::Peer { to, bytes } => {
                    self.largest = self.largest.max(bytes.len());
                    self.links
                        .entry((shell as u32, to))
                        .or_default()
                        .push_back(bytes);
                }
                Action::Abort { text, .. } => self.aborts.push(text),
                Action::Close(conn) => panic!("closed {conn:?}"),
                Action::Log(_, text) => panic!("log: {text}"),
                Action::Grace => panic!("nobody left"),
            }
        }
    }

    fn say(&mut self, c: usize, line: &[u8]) {
        self.up[c].extend(line);
        self.up[c].push_back(b'\n');
        self.clients[c].owed = 1;
    }

    /// Sends the request of the step a client is at.
    fn act(&mut self, c: usize) {
        let Client {
            rank,
            lane,
            round,
            step,
            ..
        } = self.clients[c];
        let n = self.plan.ranks();
        match step {
            Step::Hello => {
                let id = rank + n * lane as usize;
                let hello =
                    format!("cmd=initack pmiid={id}\ncmd=init pmi_version=1 pmi_subversion=1");
                self.say(c, hello.as_bytes());
                self.clients[c].owed = 5;
            }
            Step::Put => {
                let mut line =
                    format!("cmd=put kvsname=sim key=r{rank}-{round} value=").into_bytes();
                line.extend(self.plan.value(lane, round, rank));
                self.say(c, &line);
            }
            Step::Group => {
                let members = self.plan.group(lane, round);
                let list: Vec<String> = members.iter().map(usize::to_string).collect();
                self.say(
                    c,
                    format!("cmd=barrier_in group={}:{round}", list.join(",")).as_bytes(),
                );
            }
            Step::World => {
                *self.entered.entry((lane, round)).or_default() += 1;
                let tag = round % 3;
                let group = if self.plan.groups {
                    format!(" group=WORLD:{tag}")
                } else {
                    String::new()
                };
                self.say(c, format!("cmd=barrier_in{group}").as_bytes());
            }
            Step::Check(of) | Step::CheckGroup(of) => {
                self.say(
                    c,
                    format!("cmd=get kvsname=sim key=r{of}-{round}").as_bytes(),
                );
            }
            Step::Bye => self.say(c, b"cmd=finalize"),
        }
    }

    /// A whole reply line has come.
    fn hear(&mut self, c: usize, line: &[u8]) {
        let Client {
            rank,
            lane,
            round,
            step,
            ..
        } = self.clients[c];
        self.clients[c].owed -= 1;
        if self.clients[c].owed > 0 {
            return;
        }
        let n = self.plan.ranks();
        let want: Vec<u8> = match step {
            Step::Hello if self.plan.groups => {
                b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2".into()
            }
            Step::Hello => b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1".into(),
            Step::Put => b"cmd=put_result rc=0".into(),
            Step::Group => format!("cmd=barrier_out rc=0 tag={round}").into_bytes(),
            Step::World if self.plan.groups => {
                format!("cmd=barrier_out rc=0 tag={}", round % 3).into_bytes()
            }
            Step::World => b"cmd=barrier_out rc=0".into(),
            Step::Check(of) | Step::CheckGroup(of) => [
                b"cmd=get_result rc=0 value=",
                &self.plan.value(lane, round, of)[..],
            ]
            .concat(),
            Step::Bye => b"cmd=finalize_ack rc=0".into(),
        };
        assert_eq!(
            line.escape_ascii().to_string(),
            want.escape_ascii().to_string(),
            "rank {rank} lane {lane} round {round} {step:?}"
        );
        if step == Step::World {
            assert_eq!(self.entered[&(lane, round)], n, "a barrier ended early");
        }
        let members = self.plan.group(lane, round);
        let after = |of: usize| members.iter().copied().find(|&m| m >= of);
        let next = match step {
            Step::Hello => Step::Put,
            Step::Put if self.plan.groups && members.contains(&rank) => Step::Group,
            Step::Put => Step::World,
            Step::Group => Step::CheckGroup(members[0]),
            Step::CheckGroup(of) => after(of + 1).map_or(Step::World, Step::CheckGroup),
            Step::World => Step::Check(0),
            Step::Check(of) if of + 1 < n => Step::Check(of + 1),
            Step::Check(_) => {
                self.clients[c].round += 1;
                if round + 1 < self.plan.rounds {
                    Step::Put
                } else {
                    Step::Bye
                }
            }
            Step::Bye => return,
        };
        self.clients[c].step = next;
        self.act(c);
    }

    fn run(&mut self) {
        for c in 0..self.clients.len() {
            let shell = self.clients[c].shell;
            let actions = self.providers[shell].accepted(ConnId(c as u64));
            self.apply(shell, actions);
        }
        // Ranks of odd number may start with their last lane, even ones with
        // their first: the order that mixes up barriers without lanes.
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        if self.rng.below(100) < self.plan.opposite {
            let lanes = self.plan.lanes;
            order.sort_by_key(|&c| {
                let client = &self.clients[c];
                if client.rank.is_multiple_of(2) {
                    client.lane
                } else {
                    lanes - 1 - client.lane
                }
            });
        }
        for c in order {
            self.act(c);
        }
        while self.step() {}
        for client in &self.clients {
            assert_eq!(
                (client.step, client.owed),
                (Step::Bye, 0),
                "rank {} hangs",
                client.rank
            );
        }
        assert!(self.aborts.is_empty(), "{:?}", self.aborts);
        // A part holds at most a batch, or one entry that is larger.
        assert!(self.largest <= self.plan.batch + 1200 + 6 * self.plan.ranks());
    }

    /// Delivers something that is under way; false if nothing is.
    fn step(&mut self) -> bool {
        let n = self.clients.len();
        let links: Vec<(u32, u32)> = self
            .links
            .iter()
            .filter(|(_, q)| !q.is_empty())
            .map(|(l, _)| *l)
            .collect();
        let busy: Vec<usize> = (0..2 * n)
            .filter(|&i| {
                !if i < n {
                    &self.up[i]
                } else {
                    &self.down[i - n]
                }
                .is_empty()
            })
            .collect();
        if links.is_empty() && busy.is_empty() {
            return false;
        }
        let pick = self.rng.below(links.len() + busy.len());
        if let Some(&(from, to)) = links.get(pick) {
            let bytes = self
                .links
                .get_mut(&(from, to))
                .unwrap()
                .pop_front()
                .unwrap();
            let actions = self.providers[to as usize].peer(&bytes);
            self.apply(to as usize, actions);
            return true;
        }
        let at = busy[pick - links.len()];
        if at < n {
            let len = 1 + self.rng.below(self.up[at].len());
            let bytes: Vec<u8> = self.up[at].drain(..len).collect();
            let shell = self.clients[at].shell;
            let actions = self.providers[shell].received(ConnId(at as u64), &bytes);
            self.apply(shell, actions);
        } else {
            let c = at - n;
            let len = 1 + self.rng.below(self.down[c].len());
            let bytes: Vec<u8> = self.down[c].drain(..len).collect();
            self.clients[c].input.extend(bytes);
            while let Some(end) = self.clients[c].input.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.clients[c].input.drain(..=end).collect();
                self.hear(c, &line[..end]);
            }
        }
        true
    }
}

fn plan(seed: u64) -> Plan {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    rng.next();
    let shells = 1 + rng.below(9);
    Plan {
        seed: rng.next(),
        shells: (0..shells).map(|_| 1 + rng.below(3) as u32).collect(),
        cyclic: rng.below(2) == 0,
        lanes: 1 + rng.below(3) as u32,
        k: [1, 2, 3, 16][rng.below(4)],
        batch: [64, 500, 4096, 96 * 1024][rng.below(4)],
        rounds: 1 + rng.below(8),
        value: [1, 30, 300, 1000][rng.below(4)],
        groups: rng.below(3) == 0,
        opposite: 50,
    }
}

fn run(seed: u64, plan: Plan) {
    let text = format!("{plan:?}");
    let outcome = std::panic::catch_unwind(move || Sim::new(plan).run());
    assert!(outcome.is_ok(), "failed: PMI_SIM_SEED={seed} {text}");
}

#[test]
fn random_jobs() {
    if let Ok(seed) = std::env::var("PMI_SIM_SEED") {
        let seed = seed.parse().unwrap();
        return run(seed, plan(seed));
    }
    let seeds = std::env::var("PMI_SIM_SEEDS").map_or(120, |n| n.parse().unwrap());
    for seed in 0..seeds {
        run(seed, plan(seed));
    }
}

#[test]
fn two_lanes_in_opposite_order_for_thousands_of_rounds() {
    let plan = Plan {
        seed: 7,
        shells: vec![2, 2],
        cyclic: false,
        lanes: 2,
        k: 2,
        batch: 4096,
        rounds: 2000,
        value: 40,
        groups: false,
        opposite: 100,
    };
    Sim::new(plan).run();
}

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
