//! The simulated job: providers, clients and everything under way between them.

use std::collections::{BTreeMap, VecDeque};

use flux_bcast::pmi::{Action, Config, ConnId, IdPolicy, Ids, Limits, Provider};

use crate::plan::{Plan, Rng};

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

pub(crate) struct Sim {
    plan: Plan,
    rng: Rng,
    pub(crate) providers: Vec<Provider>,
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
    pub(crate) fn new(plan: Plan) -> Self {
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
                    node_of_rank: map.clone(),
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
                Action::Offence(conn) => panic!("{conn:?} broke a rule"),
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

    pub(crate) fn run(&mut self) {
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
