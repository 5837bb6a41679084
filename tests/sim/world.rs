//! The run: virtual time, a queue of events, faults, and checks at every step.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::time::Duration;

use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::origin::Origin;
use flux_bcast::bcast::relay::Config;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Millis;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::Relay;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::bcast::tree::Tree;

use super::node::Event;
use super::node::Fed;
use super::node::Life;
use super::node::Machine;
use super::node::Node;
use super::promises::Check;
use super::promises::Promises;
use super::rng::Rng;
use super::scenario::Scenario;
use super::sink::Sink;
use super::sink::right_copy;
use super::source::Content;

pub(crate) const TICK: Millis = Relay::TICK.as_millis() as Millis;

/// An event in the queue: when, in which order among equals, where, what.
type Queued = (Millis, u64, usize, usize);

pub(crate) struct World<'a> {
    pub(crate) plan: &'a Scenario,
    pub(crate) rng: Rng,
    pub(crate) now: Millis,
    pub(crate) steps: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) promises: Promises,
    pub(crate) right: Content,
    pub(crate) trace: bool,
    queue: BinaryHeap<Reverse<Queued>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    serial: u64,
    /// Frames that the source has yet to give, and bytes it gave that are not
    /// used up.
    pub(crate) next_frame: usize,
    pub(crate) source_in_flight: u64,
    pub(crate) reading: bool,
    pub(crate) result: Option<Vec<RankResult>>,
    /// When the origin finished or was lost.
    pub(crate) origin_end: Option<Millis>,
    pub(crate) called_off: Option<Millis>,
    pub(crate) verified_at: Option<u64>,
    pub(crate) decided_at: Option<u64>,
    pub(crate) pending: Vec<usize>,
    /// What the faults that struck add to any bound.
    pub(crate) hung_for: Millis,
    pub(crate) cancelled: bool,
    pub(crate) damaged: bool,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Scenario, trace: bool) -> Self {
        let world = Self {
            plan,
            rng: Rng::new(plan.seed.wrapping_mul(3)),
            now: 0,
            steps: 0,
            nodes: build(plan),
            promises: Promises::new(plan.tree.ranks(), plan.partial),
            right: right_copy(&plan.frames),
            trace,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            serial: 0,
            next_frame: 0,
            source_in_flight: 0,
            reading: false,
            result: None,
            origin_end: None,
            called_off: None,
            verified_at: None,
            decided_at: None,
            pending: (0..plan.faults.len()).collect(),
            hung_for: 0,
            cancelled: false,
            damaged: false,
        };
        world.note(|| format!("{plan:#?}"));
        world
    }

    /// Runs until nothing is left to happen, then looks at what is left behind.
    pub(crate) fn run(&mut self) -> Check {
        let mut out = Vec::new();
        let trees = self.nodes[0].children.iter();
        let origin = Origin::new(
            self.config(0, trees.map(|fed| fed.tree.clone()).collect()),
            self.plan.tree.size(),
            self.plan.partial,
            self.plan.timeout.map(Duration::from_millis),
            self.now,
            &mut out,
        );
        self.nodes[0].machine = Some(Machine::Origin(Box::new(origin)));
        self.after(TICK, 0, Event::Tick);
        self.act(0, out)?;
        self.read_on();
        while let Some(Reverse((at, _, node, slot))) = self.queue.pop() {
            self.now = at;
            self.steps += 1;
            self.strike()?;
            if let Some(event) = self.events[slot].take() {
                self.free.push(slot);
                self.happen(node, event)?;
                self.check(node)?;
            }
        }
        self.check_end()
    }

    pub(crate) fn config(&self, node: usize, children: Vec<Tree>) -> Config {
        Config {
            local: self.nodes[node].rank,
            children,
            window: self.plan.window,
            stall: Duration::from_millis(self.plan.stall),
            watch_upstream: true,
            partial: self.plan.partial,
            heir: false,
        }
    }

    /// Something will happen to `node`, so many milliseconds from now.
    pub(crate) fn after(&mut self, delay: Millis, node: usize, event: Event) {
        self.at(self.now + delay, node, event);
    }

    pub(crate) fn at(&mut self, at: Millis, node: usize, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[slot] = Some(event);
        self.serial += 1;
        self.queue.push(Reverse((at, self.serial, node, slot)));
    }

    /// What is on its way from `node` to those that it feeds does not arrive.
    pub(crate) fn forget_sent_by(&mut self, node: usize) {
        for event in &mut self.events {
            if matches!(event, Some(Event::Request((from, _), _)) if *from == node) {
                *event = None;
            }
        }
    }

    /// Something happens to `node`, if it can.
    fn happen(&mut self, node: usize, event: Event) -> Check {
        match self.nodes[node].life {
            Life::Up => self.live(node, event),
            Life::Hung { .. } => {
                if matches!(event, Event::Continue) {
                    return self.resume(node);
                }
                self.nodes[node].backlog.push_back(event);
                Ok(())
            }
            Life::Left => match event {
                // Its last words to the disk.
                Event::Sink => self.live(node, event),
                event => {
                    self.refuse(event, 0);
                    Ok(())
                }
            },
            Life::Dead(known_at) => {
                self.refuse(event, known_at);
                Ok(())
            }
        }
    }

    fn resume(&mut self, node: usize) -> Check {
        self.note(|| format!("node {node} goes on"));
        self.nodes[node].life = Life::Up;
        let mut backlog = std::mem::take(&mut self.nodes[node].backlog);
        // Timers and messages that are both due come in no certain order.
        if self.rng.percent(50) {
            let tick = backlog
                .iter()
                .position(|event| matches!(event, Event::Tick));
            if let Some(tick) = tick.and_then(|at| backlog.remove(at)) {
                backlog.push_front(tick);
            }
        }
        for event in backlog {
            self.happen(node, event)?;
        }
        Ok(())
    }

    /// Gives a machine an input and does what it asks for.
    pub(crate) fn feed(&mut self, node: usize, input: Input) -> Check {
        let here = &mut self.nodes[node];
        let Some(machine) = &mut here.machine else {
            return Ok(());
        };
        if self.trace && input != Input::Tick {
            eprintln!("{:>8} #{} node {node} <- {input:?}", self.now, self.steps);
        }
        let mut out = Vec::new();
        let bad_news = matches!(
            input,
            Input::Child {
                up: Up::Failure(_),
                ..
            }
        );
        here.protocol.input(&input);
        machine.handle(self.now, input, &mut out);
        if let Machine::Origin(origin) = machine {
            if origin.why().is_some() {
                self.called_off.get_or_insert(self.now);
            } else if bad_news && !self.plan.partial && !self.promises.is_decided() {
                return self.blame(node, Err("a failure does not end the transfer".into()));
            }
        }
        self.act(node, out)
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:>8} #{} {}", self.now, self.steps, text());
        }
    }

    /// The source reads on when it may.
    pub(crate) fn read_on(&mut self) {
        if self.reading || self.nodes[0].machine.is_none() || !self.nodes[0].is_busy() {
            return;
        }
        let Some(frame) = self.plan.frames.get(self.next_frame) else {
            return;
        };
        let sum = self.source_in_flight + frame.cost();
        if self.source_in_flight == 0 || sum <= self.plan.window {
            self.reading = true;
            let delay = self.rng.upto(self.plan.disk.min(5));
            self.after(delay, 0, Event::Read);
        }
    }

    pub(crate) fn blame<T>(&self, node: usize, found: Result<T, String>) -> Result<T, String> {
        found.map_err(|text| {
            let rank = self.nodes[node].rank;
            let who = rank.map_or_else(|| "client".to_owned(), |rank| format!("rank {rank}"));
            format!("at {} ms, step {}, {who}: {text}", self.now, self.steps)
        })
    }

    /// Tells a trace what a machine asks for.
    pub(crate) fn note_output(&self, node: usize, output: &Output) {
        if self.trace {
            eprintln!("{:>8} #{} node {node} -> {output:?}", self.now, self.steps);
        }
    }
}

/// The processes of a tree, numbered in preorder, after the client if any.
fn build(plan: &Scenario) -> Vec<Node> {
    let places: BTreeMap<u32, usize> = (0..plan.tree.size())
        .map(|at| (plan.tree.ranks()[at], plan.node(at)))
        .collect();
    let fed = |trees: Vec<Tree>| -> Vec<Fed> {
        trees
            .into_iter()
            .map(|tree| Fed::new(places[&tree.root()], tree))
            .collect()
    };
    let sink = |rank| Sink::new(rank, plan.troubles.get(&rank).copied(), plan.chatty_sinks);
    let mut nodes = Vec::new();
    let mut todo = Vec::new();
    if plan.leader {
        todo.push((plan.tree.clone(), None));
    } else {
        nodes.push(Node::new(None, None, fed(vec![plan.tree.clone()]), None));
        todo.push((plan.tree.clone(), Some((0, 0))));
    }
    while let Some((tree, parent)) = todo.pop() {
        let children = fed(tree.children());
        let below: Vec<_> = children
            .iter()
            .enumerate()
            .map(|(nth, fed)| (fed.tree.clone(), Some((nodes.len(), nth))))
            .collect();
        todo.extend(below.into_iter().rev());
        let rank = tree.root();
        nodes.push(Node::new(Some(rank), parent, children, Some(sink(rank))));
    }
    nodes
}
