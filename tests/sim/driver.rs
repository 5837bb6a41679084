//! What a driver does between its machine, the network and the disk.

use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::relay::Config;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Millis;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::Relay;
use flux_bcast::bcast::relay::SinkEvent;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::bcast::tree::Tree;

use super::node::Answer;
use super::node::Event;
use super::node::Fed;
use super::node::Feeder;
use super::node::Machine;
use super::node::Payload;
use super::node::Request;
use super::promises::Check;
use super::promises::Promises;
use super::sink::Op;
use super::sink::Sink;
use super::world::TICK;
use super::world::World;

impl World<'_> {
    /// An event at a process that runs.
    pub(crate) fn live(&mut self, node: usize, event: Event) -> Check {
        match event {
            Event::Request(from, request) => self.request(node, from, request),
            Event::Answer(child, answer) => {
                if matches!(answer, Answer::Says(Up::Done(_))) {
                    // Even if it lies: nothing more is sent there.
                    self.nodes[node].children[child].given_up = true;
                }
                let input = match answer {
                    Answer::Says(up) => Input::Child { child, up },
                    Answer::Credit(bytes) => Input::Credit { child, bytes },
                    Answer::Alive => Input::ChildAlive { child },
                    Answer::Refused(errno, text) => Input::ChildLost {
                        child,
                        errno,
                        text: text.into(),
                    },
                };
                self.feed(node, input)
            }
            Event::Sink => {
                let done = self.nodes[node]
                    .sink
                    .as_mut()
                    .and_then(|sink| sink.complete());
                if let Some(event) = done {
                    self.witness(node, &event)?;
                    self.feed(node, Input::Sink(event))?;
                }
                self.work(node);
                Ok(())
            }
            Event::Read => {
                self.reading = false;
                let frame = self.plan.frames[self.next_frame].clone();
                self.next_frame += 1;
                self.source_in_flight += frame.cost();
                self.feed(node, Input::Frame(frame))?;
                self.read_on();
                Ok(())
            }
            Event::Tick => {
                self.feed(node, Input::Tick)?;
                if self.nodes[node].is_busy() {
                    self.after(TICK, node, Event::Tick);
                }
                Ok(())
            }
            Event::Continue => Ok(()),
        }
    }

    fn open(&mut self, node: usize, from: Feeder, request: Request) -> Check {
        let Request::Open { tree, resume, heir } = request else {
            return Ok(());
        };
        let here = &mut self.nodes[node];
        match (&here.machine, resume) {
            (None, None | Some(0)) => {
                here.parent = Some(from);
                here.protocol.heir = heir;
                let mut out = Vec::new();
                let config = Config {
                    heir,
                    ..self.config(node, tree.children())
                };
                let relay = Relay::new(config, self.now, &mut out);
                self.nodes[node].machine = Some(Machine::Relay(Box::new(relay)));
                self.after(TICK, node, Event::Tick);
                return self.act(node, out);
            }
            (Some(machine), Some(_)) if machine.is_finished() => {
                let results = machine.results();
                self.claim(node, &results)?;
                self.answer_to(from, Answer::Says(Up::Done(results)));
            }
            (Some(_), Some(_)) => {
                if let Some(old) = here.suitor.replace(from) {
                    self.answer_to(old, Answer::Refused(libc::EPERM, "another came"));
                }
                return self.feed(node, Input::Offer { heir });
            }
            (Some(_), None) => {
                self.answer_to(from, Answer::Refused(libc::EEXIST, "it is open"));
            }
            (None, Some(_)) => {
                self.answer_to(from, Answer::Refused(libc::ESTALE, "no such transfer"));
            }
        }
        Ok(())
    }

    /// From the one that offers to feed this process, or from a stranger.
    fn foreign(&mut self, node: usize, from: Feeder, request: Request) -> Check {
        let suitor = self.nodes[node].suitor == Some(from);
        match request {
            Request::Disconnect if suitor => {
                self.nodes[node].suitor = None;
                self.feed(node, Input::OfferGone)
            }
            Request::Abort(why) if suitor => {
                self.answer_to(from, Answer::Alive);
                self.feed(node, Input::OfferAborted(why))
            }
            Request::Ping if suitor => {
                self.answer_to(from, Answer::Alive);
                Ok(())
            }
            Request::Abort(_) => {
                self.answer_to(from, Answer::Alive);
                Ok(())
            }
            Request::Disconnect | Request::Data(Payload::Echo(_)) => Ok(()),
            _ => {
                self.answer_to(from, Answer::Refused(libc::EPERM, "another feeds it"));
                Ok(())
            }
        }
    }

    fn request(&mut self, node: usize, from: Feeder, request: Request) -> Check {
        if matches!(request, Request::Open { .. }) {
            return self.open(node, from, request);
        }
        if !self.nodes[node].is_busy() {
            self.refuse(Event::Request(from, request), 0);
            return Ok(());
        }
        if self.nodes[node].parent != Some(from) {
            return self.foreign(node, from, request);
        }
        match request {
            Request::Open { .. } => Ok(()),
            Request::Data(Payload::Damaged(cost)) => {
                self.used_up(from, cost);
                let why = Failure {
                    rank: self.nodes[node].rank,
                    errno: libc::EPROTO,
                    text: "damaged message".into(),
                    tmpdir: None,
                };
                self.feed(node, Input::Broken(why))?;
                self.answer(node, Answer::Refused(libc::EPROTO, "damaged message"));
                Ok(())
            }
            Request::Data(Payload::Whole(frame)) => {
                let waits = (frame.cost(), Some(from));
                self.nodes[node].unanswered.push_back(waits);
                self.feed(node, Input::Frame(frame))
            }
            Request::Data(Payload::Echo(frame)) => {
                self.nodes[node].unanswered.push_back((frame.cost(), None));
                self.feed(node, Input::Frame(frame))
            }
            Request::Ping => {
                self.answer(node, Answer::Alive);
                self.feed(node, Input::UpstreamAlive)
            }
            Request::Commit => {
                self.answer(node, Answer::Alive);
                self.feed(node, Input::Commit)
            }
            Request::Abort(why) => {
                self.answer(node, Answer::Alive);
                self.feed(node, Input::Abort(why))
            }
            Request::Disconnect => self.feed(node, Input::UpstreamLost),
        }
    }

    /// Does what a machine asks for.
    pub(crate) fn act(&mut self, node: usize, out: Vec<Output>) -> Check {
        for output in out {
            self.note_output(node, &output);
            let judged = self.nodes[node].protocol.output(&output);
            self.blame(node, judged)?;
            match output {
                Output::OpenChild(at) => {
                    let fed = &mut self.nodes[node].children[at];
                    fed.opened = true;
                    let tree = fed.tree.clone();
                    self.send_open(node, at, tree, None);
                }
                Output::AdoptChild { child, tree, first } => {
                    let place = self.nodes.iter().position(|n| n.rank == Some(tree.root()));
                    let mut fed = Fed::new(place.unwrap_or(node), tree.clone());
                    fed.opened = true;
                    fed.adopted = true;
                    self.nodes[node].children.push(fed);
                    self.send_open(node, child, tree, Some(first));
                }
                Output::Accept => {
                    let here = &mut self.nodes[node];
                    let suitor = here.suitor.take();
                    if let Some(old) = std::mem::replace(&mut here.parent, suitor) {
                        let taken = Answer::Refused(libc::EPERM, "another feeds it");
                        self.answer_to(old, taken);
                    }
                }
                Output::Decline => {
                    if let Some(suitor) = self.nodes[node].suitor.take() {
                        self.answer_to(suitor, Answer::Refused(libc::EBUSY, "it is fed"));
                    }
                }
                Output::SendFrame { child, frame } => {
                    self.nodes[node].children[child].in_flight += frame.cost();
                    self.check_in_flight(node)?;
                    self.send_data(node, child, frame);
                }
                Output::CommitChild(at) => {
                    self.decided(node)?;
                    self.send(node, at, Request::Commit);
                }
                Output::AbortChild { child, why } => {
                    self.nodes[node].children[child].given_up = true;
                    self.send(node, child, Request::Abort(why));
                }
                Output::PingChild(at) => self.send(node, at, Request::Ping),
                Output::SinkOpen => self.order(node, Op::Open),
                Output::SinkFrame(frame) => self.order(node, Op::Write(frame)),
                Output::SinkPrepare => self.order(node, Op::Prepare),
                Output::SinkCommit => {
                    self.decided(node)?;
                    self.order(node, Op::Commit);
                }
                Output::SinkAbort => self.order(node, Op::Abort),
                Output::Up(up) => self.up(node, up)?,
                Output::Ack { bytes } => self.ack(node, bytes)?,
                Output::Finished => self.finished(node)?,
            }
        }
        Ok(())
    }

    fn send_open(&mut self, node: usize, child: usize, tree: Tree, resume: Option<u64>) {
        let heir = self.plan.partial && node != 0;
        self.send(node, child, Request::Open { tree, resume, heir });
    }

    fn claim(&mut self, node: usize, results: &[RankResult]) -> Check {
        // One that was given up may not know that another has taken its place.
        let heard = |(parent, nth): Feeder| !self.nodes[parent].children[nth].given_up;
        if self.plan.partial && !self.nodes[node].parent.is_none_or(heard) {
            return Ok(());
        }
        let ranks = self.nodes[node].ranks.clone();
        let judged = self.promises.claim(&ranks, results);
        self.blame(node, judged)
    }

    fn up(&mut self, node: usize, up: Up) -> Check {
        if let Up::Done(results) = &up {
            self.claim(node, results)?;
            self.nodes[node].answered = true;
            if node == 0 {
                self.result = Some(results.clone());
            }
        }
        let up = self.distort(node, up);
        self.answer(node, Answer::Says(up));
        Ok(())
    }

    fn ack(&mut self, node: usize, bytes: u64) -> Check {
        if node == 0 {
            self.source_in_flight = self.source_in_flight.saturating_sub(bytes);
            self.read_on();
            return Ok(());
        }
        match self.nodes[node].unanswered.pop_front() {
            Some((cost, waits)) if cost == bytes => {
                if let Some(from) = waits {
                    self.used_up(from, cost);
                    self.answer_to(from, Answer::Credit(cost));
                }
                Ok(())
            }
            other => {
                let text = format!("acknowledges {bytes} bytes, but {other:?} is next");
                self.blame(node, Err(text))
            }
        }
    }

    /// Bytes on this edge are no more.
    fn used_up(&mut self, (feeder, nth): Feeder, cost: u64) {
        let fed = &mut self.nodes[feeder].children[nth];
        fed.in_flight = fed.in_flight.saturating_sub(cost);
    }

    fn finished(&mut self, node: usize) -> Check {
        let here = &self.nodes[node];
        let bytes = |machine: &Machine| machine.held_bytes() + machine.kept_bytes();
        let held = here.machine.as_ref().map_or(0, bytes);
        if held != 0 || !here.unanswered.is_empty() {
            let left = here.unanswered.len();
            let text = format!("finished with {held} bytes held, {left} requests unanswered");
            return self.blame(node, Err(text));
        }
        if let Some(suitor) = self.nodes[node].suitor.take() {
            let machine = self.nodes[node].machine.as_ref();
            let results = machine.map_or(Vec::new(), Machine::results);
            self.claim(node, &results)?;
            self.answer_to(suitor, Answer::Says(Up::Done(results)));
        }
        let here = &self.nodes[node];
        if node == 0 {
            self.origin_end.get_or_insert(self.now);
        } else if !here.answered && self.plan.orphan_tells {
            self.answer(node, Answer::Refused(libc::ECONNRESET, "gave up"));
        }
        Ok(())
    }

    fn order(&mut self, node: usize, op: Op) {
        if let Some(sink) = &mut self.nodes[node].sink {
            sink.order(op);
        }
        self.work(node);
    }

    /// The sink takes up its next work, if it has any.
    fn work(&mut self, node: usize) {
        if self.nodes[node]
            .sink
            .as_mut()
            .is_some_and(|sink| sink.begin())
        {
            let latency = self.rng.upto(self.plan.disk);
            self.after(latency, node, Event::Sink);
        }
    }

    /// The origin gave its first order to publish.
    fn decided(&mut self, node: usize) -> Check {
        if node == 0 && !self.promises.is_decided() {
            self.decided_at = Some(self.steps);
            let judged = self.promises.decide();
            return self.blame(node, judged);
        }
        Ok(())
    }

    /// What the sink did becomes known to the judge.
    fn witness(&mut self, node: usize, event: &SinkEvent) -> Check {
        let here = &self.nodes[node];
        let (Some(rank), Some(sink)) = (here.rank, &here.sink) else {
            return Ok(());
        };
        match event {
            SinkEvent::Prepared => {
                self.promises.verify(rank);
                self.verified_at.get_or_insert(self.steps);
            }
            SinkEvent::Failed(_) => self.promises.fail(rank),
            SinkEvent::Committed(_) => {
                let right = sink.file.as_ref() == Some(&self.right);
                let judged = self.promises.publish(rank, right);
                return self.blame(node, judged);
            }
            SinkEvent::Opened | SinkEvent::Wrote | SinkEvent::Aborted => {}
        }
        Ok(())
    }

    fn check_in_flight(&self, node: usize) -> Check {
        let each: Vec<u64> = self.nodes[node]
            .children
            .iter()
            .filter(|fed| fed.opened && !fed.given_up && !self.nodes[fed.node].answered)
            .map(|fed| fed.in_flight)
            .collect();
        let judged = Promises::in_flight(&each, self.plan.window, self.plan.largest());
        self.blame(node, judged)
    }

    /// After each step.
    pub(crate) fn check(&self, node: usize) -> Check {
        let here = &self.nodes[node];
        if let Some(machine) = &here.machine {
            let (window, largest) = (self.plan.window, self.plan.largest());
            let judged = Promises::held(machine.held_bytes(), window, largest);
            self.blame(node, judged)?;
            // What was on its way to a child, and to its children.
            let judged = Promises::held(machine.kept_bytes(), 2 * window, 2 * largest);
            self.blame(node, judged)?;
            let queued = here.sink.as_ref().map_or(0, Sink::queued);
            let judged = Promises::held(queued, window, largest);
            self.blame(node, judged)?;
        }
        if here.is_busy() && !here.is_gone() && self.now > self.bound(node) {
            let text = format!("still busy, should have ended by {} ms", self.bound(node));
            return self.blame(node, Err(text));
        }
        Ok(())
    }

    /// When `node` must have finished.
    fn bound(&self, node: usize) -> Millis {
        let plan = self.plan;
        let grace = 2000 + 2 * TICK + self.hung_for;
        if node == 0
            && let Some(at) = self.called_off
        {
            return at + grace;
        }
        let depth = plan.tree.depth() as Millis + 2;
        let hop = 2 * plan.delay + plan.disk + 5;
        let patience = if plan.partial { 12 } else { 3 };
        let slack = patience * plan.stall + 4 * depth * hop + 5000 + self.hung_for;
        if let Some(end) = self.origin_end {
            return end + slack;
        }
        let all = (plan.frames.len() as Millis + depth) * hop * 3 + slack + 30_000;
        let slack = if node == 0 { 0 } else { slack };
        match plan.timeout {
            // A message lost for good is found by the time limit alone.
            Some(timeout) if plan.damage.is_some() => timeout + grace + slack,
            Some(timeout) => (timeout + grace).min(all) + slack,
            None => all + slack,
        }
    }
}
