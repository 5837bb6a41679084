//! What happens in one run, drawn from its seed before it begins.

use std::collections::BTreeMap;

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::relay::Millis;
use flux_bcast::bcast::tree::Tree;

use super::rng::Rng;
use super::sink::Trouble;
use super::source;

/// When a fault strikes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// At this step of the run.
    Step(u64),
    /// So many steps after the first rank has verified everything.
    Verified(u64),
    /// So many steps after the decision to publish.
    Decided(u64),
}

/// What strikes. Nodes are numbered as in [`Scenario::node`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// kill -9.
    Kill(usize),
    /// SIGSTOP, with SIGCONT after so many milliseconds, or never.
    Hang(usize, Option<Millis>),
    /// The process leaves in good order.
    Shutdown(usize),
    /// The job ends: all shells leave.
    JobEnd,
    /// The user gives up.
    Cancel,
}

/// What a broken hop does to a data message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Damage {
    /// A bit changes.
    Flip,
    /// The bytes change and the checksums with them.
    Rewrite,
    /// It comes twice.
    Duplicate,
    /// It never comes.
    Drop,
    /// The next one overtakes it.
    Swap,
    /// The end of the stream comes in its place.
    Truncate,
}

/// What a shell that does not keep to the protocol answers at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lie {
    /// Nothing about one of its ranks.
    Omit,
    /// Something about a rank that is not its own.
    Foreign,
    /// Two things about a rank.
    Twice,
    /// The end before the end: all is well, and called off.
    Early,
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) tree: Tree,
    /// The origin is the root's shell itself, not a client outside.
    pub(crate) leader: bool,
    pub(crate) partial: bool,
    pub(crate) window: u64,
    pub(crate) frames: Vec<Frame>,
    pub(crate) stall: Millis,
    pub(crate) timeout: Option<Millis>,
    pub(crate) delay: Millis,
    pub(crate) disk: Millis,
    /// Data and control travel apart, in order each.
    pub(crate) split: bool,
    /// An orphan ends its answer stream, so that its parent hears at once.
    pub(crate) orphan_tells: bool,
    pub(crate) chatty_sinks: bool,
    /// The children of a process that dies are not told.
    pub(crate) silent_death: bool,
    /// What a process that dies has sent last is lost with it.
    pub(crate) last_words_lost: bool,
    /// The first shell is told of every shell that dies.
    pub(crate) death_notice: bool,
    pub(crate) troubles: BTreeMap<u32, Trouble>,
    pub(crate) faults: Vec<(When, Fault)>,
    /// Node fed, number of the message on that edge, what becomes of it.
    pub(crate) damage: Option<(usize, u64, Damage)>,
    /// A shell that lies to the one that feeds it.
    pub(crate) lie: Option<(usize, Lie)>,
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let size = match rng.upto(99) {
            // Few, as they take long, but some in any run of the test.
            _ if seed % 500 == 250 => 1000,
            0..60 => rng.within(1, 8),
            60..90 => rng.within(5, 30),
            _ => rng.scale(30, 120),
        };
        let big = size > 120;
        let tree = tree(&mut rng, u32::try_from(size).unwrap(), big);
        // Thousands of relays for hours would not be worth the wait.
        let slow = tree.depth() < 20;
        let delay = if slow {
            rng.pick(&[0, 1, 20, 20, 200, 2000])
        } else {
            rng.pick(&[0, 1, 10])
        };
        let disk = if slow {
            rng.pick(&[0, 1, 1, 30, 1000])
        } else {
            1
        };
        let batch = rng.pick(&[1, 16, 100, 100, 400]);
        let entries = rng.pick(&[0, 1, 1, 1, 2, 5]);
        // Nor would many messages be, where each takes seconds.
        let most = match delay + disk {
            _ if big => 4,
            500.. => 12,
            _ => (2500 / size).min(300),
        };
        let each = if rng.percent(15) {
            0
        } else {
            rng.scale(1, most.max(1))
        };
        let frames = source::frames(&mut rng, entries, each / u64::from(entries.max(1)), batch);
        let window = match rng.upto(5) {
            0 => 1,
            1 => batch + 64,
            2 => 1 << 40,
            _ => (batch + 200) * rng.scale(1, 64),
        };
        let mut plan = Self {
            seed,
            leader: rng.percent(30),
            partial: rng.percent(40),
            window,
            frames,
            stall: if slow {
                rng.pick(&[1000, 3000, 30_000])
            } else {
                3000
            },
            timeout: rng.percent(15).then(|| rng.scale(1, 60_000)),
            delay,
            disk,
            split: rng.percent(25),
            orphan_tells: rng.percent(50),
            chatty_sinks: rng.percent(50),
            silent_death: rng.percent(30),
            last_words_lost: rng.percent(50),
            death_notice: rng.percent(50),
            troubles: BTreeMap::new(),
            faults: Vec::new(),
            damage: None,
            lie: None,
            tree,
        };
        if rng.percent(20) && plan.tree.size() > 2 {
            plan.draw_losses(&mut rng);
        } else {
            plan.draw_faults(&mut rng);
        }
        plan
    }

    /// Shells are lost in a partial transfer, no two of which feed each other;
    /// nothing else goes wrong, but for the disks. All others get their copy.
    fn draw_losses(&mut self, rng: &mut Rng) {
        self.partial = true;
        self.timeout = None;
        self.delay = self.delay.min(200);
        self.stall = self.stall.max(3000);
        let above = above(&self.tree);
        let nodes = self.nodes();
        let steps = nodes as u64 * (self.frames.len() as u64 * 5 + 20);
        let mut lost = Vec::new();
        for _ in 0..rng.scale(1, nodes as u64) {
            let chosen = rng.index(self.tree.size());
            let feeds = above.contains(&Some(chosen));
            let near = |&at: &usize| above[at] == Some(chosen) || above[chosen] == Some(at);
            let source = self.node(chosen) == 0;
            if source || lost.contains(&chosen) || lost.iter().any(near) {
                continue;
            }
            if !feeds && rng.percent(80) {
                continue;
            }
            lost.push(chosen);
            let when = match rng.upto(4) {
                0 => When::Verified(rng.scale(1, nodes as u64 * 6)),
                1 => When::Decided(rng.scale(1, nodes as u64 * 6)),
                2 => When::Step(rng.within(0, nodes as u64 * 3)),
                _ => When::Step(rng.within(0, steps)),
            };
            let node = self.node(chosen);
            let fault = if rng.percent(75) {
                Fault::Kill(node)
            } else {
                Fault::Hang(node, None)
            };
            self.faults.push((when, fault));
        }
        if rng.percent(25) {
            let rank = self.tree.ranks()[rng.index(self.tree.size())];
            let nth = rng.upto(self.frames.len() as u64);
            let trouble = rng.pick(&[Trouble::Open, Trouble::Prepare, Trouble::Write(nth)]);
            self.troubles.insert(rank, trouble);
        }
    }

    fn draw_faults(&mut self, rng: &mut Rng) {
        let nodes = self.nodes();
        let count = match rng.upto(99) {
            0..30 => 0,
            30..65 => 1,
            65..85 => rng.within(2, 3),
            _ => rng.scale(1, nodes as u64),
        };
        // A guess at the length of a run, so that faults strike all along it.
        let steps = nodes as u64 * (self.frames.len() as u64 * 5 + 20);
        for _ in 0..count {
            let chosen = rng.index(nodes);
            if rng.percent(35) {
                let trouble = match rng.upto(4) {
                    0 => Trouble::Open,
                    1 => Trouble::Prepare,
                    2 => Trouble::Commit,
                    _ => Trouble::Write(rng.upto(self.frames.len() as u64)),
                };
                let rank = self.tree.ranks()[rng.index(self.tree.size())];
                self.troubles.insert(rank, trouble);
                continue;
            }
            let when = match rng.upto(3) {
                0 => When::Verified(rng.scale(1, nodes as u64 * 6)),
                1 => When::Decided(rng.scale(1, nodes as u64 * 6)),
                _ => When::Step(rng.within(0, steps)),
            };
            let fault = match rng.upto(19) {
                0..8 => Fault::Kill(chosen),
                8..10 => Fault::Hang(chosen, None),
                10..14 => Fault::Hang(chosen, Some(rng.scale(1, 2 * self.stall))),
                14..16 => Fault::Shutdown(chosen),
                16 => Fault::JobEnd,
                17 => Fault::Kill(0),
                _ => Fault::Cancel,
            };
            self.faults.push((when, fault));
            // Losses one above the other, while the copies are published.
            if let (When::Decided(step), Fault::Kill(node)) = (when, fault)
                && rng.percent(50)
            {
                let later = When::Decided(step + rng.scale(1, nodes as u64 * 20));
                self.faults.push((later, Fault::Kill(rng.index(node + 1))));
            }
        }
        if rng.percent(3) && nodes > 1 {
            let liar = rng.within(1, nodes as u64 - 1) as usize;
            self.lie = Some((
                liar,
                rng.pick(&[Lie::Omit, Lie::Foreign, Lie::Twice, Lie::Early]),
            ));
        }
        if rng.percent(8) && nodes > 1 {
            let how = rng.pick(&[
                Damage::Flip,
                Damage::Rewrite,
                Damage::Duplicate,
                Damage::Drop,
                Damage::Swap,
                Damage::Truncate,
            ]);
            let last = self.frames.len() as u64 - 1;
            let nth = if rng.percent(30) {
                last
            } else {
                rng.upto(last)
            };
            self.damage = Some((rng.within(1, nodes as u64 - 1) as usize, nth, how));
            // Flux loses nothing; where it did, only the time limit would help.
            self.timeout.get_or_insert(3000 + 10 * self.delay);
        }
    }

    /// The number of processes: the ranks, and the client if there is one.
    pub(crate) fn nodes(&self) -> usize {
        self.tree.size() + usize::from(!self.leader)
    }

    /// The process on the rank at this position of the tree.
    pub(crate) fn node(&self, position: usize) -> usize {
        position + usize::from(!self.leader)
    }

    /// Cost of the largest message.
    pub(crate) fn largest(&self) -> u64 {
        self.frames.iter().map(Frame::cost).max().unwrap_or(0)
    }

    /// No peer that is well can seem lost: a sign of life is asked for every
    /// second (or quarter of the stall time), one tick late and noticed with
    /// another, and the question and the answer travel.
    pub(crate) fn calm(&self) -> bool {
        self.stall > 2 * self.delay + (self.stall / 4).min(1000) + 500
    }
}

/// For each position in a tree, that of its parent.
fn above(tree: &Tree) -> Vec<Option<usize>> {
    let mut above = vec![None; tree.size()];
    let mut todo = vec![(tree.clone(), 0)];
    while let Some((tree, at)) = todo.pop() {
        let mut next = at + 1;
        for child in tree.children() {
            above[next] = Some(at);
            let size = child.size();
            todo.push((child, next));
            next += size;
        }
    }
    above
}

fn tree(rng: &mut Rng, size: u32, big: bool) -> Tree {
    // Ranks need not be the first ones, nor without gaps.
    let step = rng.pick(&[1, 1, 3]);
    let first = rng.pick(&[0, 0, 7]);
    let ranks: Vec<u32> = (0..size).map(|i| first + i * step).collect();
    let k = match rng.upto(5) {
        0 if !big => 1,
        1 => 3,
        2 => 16,
        3 => size,
        _ => 2,
    };
    if rng.percent(60) {
        return Tree::kary(&ranks, k).unwrap();
    }
    // An overlay with more brokers than ranks, in any order of depth.
    let brokers: BTreeMap<u32, u32> = ranks
        .iter()
        .map(|&rank| (rank, rank * 2 + u32::from(rng.percent(50))))
        .collect();
    let last = brokers.values().copied().max().unwrap_or(0);
    let width = u32::try_from(rng.scale(1, 32)).unwrap();
    let width = if big { width.max(2) } else { width };
    let parents: BTreeMap<u32, u32> = (1..=last).map(|b| (b, (b - 1) / width)).collect();
    Tree::following(&ranks, k, &brokers, &parents).unwrap()
}
