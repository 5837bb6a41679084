//! What a driver does between its machine, the network and the disk.

use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Millis;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::Relay;
use flux_bcast::bcast::relay::SinkEvent;
use flux_bcast::bcast::report::Failure;

use super::node::Answer;
use super::node::Event;
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
            Event::Request(request) => self.request(node, request),
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

    fn request(&mut self, node: usize, request: Request) -> Check {
        if let Request::Open(tree) = request {
            let mut out = Vec::new();
            let config = self.config(node, tree.children());
            let relay = Relay::new(config, self.now, &mut out);
            self.nodes[node].machine = Some(Machine::Relay(Box::new(relay)));
            self.after(TICK, node, Event::Tick);
            return self.act(node, out);
        }
        if !self.nodes[node].is_busy() {
            self.refuse(node, Event::Request(request), 0);
            return Ok(());
        }
        match request {
            Request::Open(_) => Ok(()),
            Request::Data(Payload::Damaged(cost)) => {
                self.used_up(node, cost);
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
                self.nodes[node].unanswered.push_back((frame.cost(), true));
                self.feed(node, Input::Frame(frame))
            }
            Request::Data(Payload::Echo(frame)) => {
                self.nodes[node].unanswered.push_back((frame.cost(), false));
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
                    self.send(node, at, Request::Open(tree));
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

    fn up(&mut self, node: usize, up: Up) -> Check {
        if let Up::Done(results) = &up {
            let ranks = self.ranks_below(node);
            let judged = self.promises.claim(&ranks, results);
            self.blame(node, judged)?;
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
                self.used_up(node, if waits { cost } else { 0 });
                if waits {
                    self.answer(node, Answer::Credit(cost));
                }
                Ok(())
            }
            other => {
                let text = format!("acknowledges {bytes} bytes, but {other:?} is next");
                self.blame(node, Err(text))
            }
        }
    }

    /// Bytes on the way to `node` are no more.
    fn used_up(&mut self, node: usize, cost: u64) {
        if let Some((parent, nth)) = self.nodes[node].parent {
            let fed = &mut self.nodes[parent].children[nth];
            fed.in_flight = fed.in_flight.saturating_sub(cost);
        }
    }

    fn finished(&mut self, node: usize) -> Check {
        let here = &self.nodes[node];
        let held = here.machine.as_ref().map_or(0, Machine::held_bytes);
        if held != 0 || !here.unanswered.is_empty() {
            let left = here.unanswered.len();
            let text = format!("finished with {held} bytes held, {left} requests unanswered");
            return self.blame(node, Err(text));
        }
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
        let slack = 3 * plan.stall + 4 * depth * hop + 5000 + self.hung_for;
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
