//! Faults strike, and what must hold when all is over.

use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;

use super::node::Answer;
use super::node::Event;
use super::node::Life;
use super::node::Machine;
use super::node::Node;
use super::node::Request;
use super::promises::Check;
use super::scenario::Fault;
use super::scenario::Lie;
use super::scenario::When;
use super::sink::Sink;
use super::sink::Trouble;
use super::world::World;

impl World<'_> {
    /// Lets those faults strike whose time has come.
    pub(crate) fn strike(&mut self) -> Check {
        let mut at = 0;
        while let Some(&index) = self.pending.get(at) {
            let (when, fault) = self.plan.faults[index];
            let due = match when {
                When::Step(step) => Some(step),
                When::Verified(more) => self.verified_at.map(|step| step + more),
                When::Decided(more) => self.decided_at.map(|step| step + more),
            };
            if due.is_some_and(|step| self.steps >= step) {
                self.pending.swap_remove(at);
                self.note(|| format!("FAULT {fault:?}"));
                self.fault(fault)?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn fault(&mut self, fault: Fault) -> Check {
        match fault {
            Fault::Kill(node) => self.kill(node),
            Fault::Hang(node, time) => self.hang(node, time),
            Fault::Shutdown(node) => return self.shut_down(node),
            Fault::JobEnd => {
                let first = usize::from(!self.plan.leader);
                for node in first..self.nodes.len() {
                    self.shut_down(node)?;
                }
            }
            Fault::Cancel => {
                if self.nodes[0].life == Life::Up && self.nodes[0].is_busy() {
                    self.cancelled = true;
                    let why = Failure::client(libc::ECANCELED, "the user gave up");
                    return self.feed(0, Input::Abort(why));
                }
            }
        }
        Ok(())
    }

    fn kill(&mut self, node: usize) {
        if matches!(self.nodes[node].life, Life::Dead(_) | Life::Left) {
            return;
        }
        // The broker needs a moment to notice.
        let known_at = self.now + 1 + self.rng.upto(self.plan.delay);
        self.nodes[node].lost = !self.nodes[node].struck;
        self.nodes[node].life = Life::Dead(known_at);
        self.nodes[node].struck = true;
        self.nodes[node].backlog.clear();
        if node == 0 {
            self.origin_end.get_or_insert(self.now);
        }
        if self.plan.last_words_lost {
            self.forget_sent_by(node);
        }
        if !self.plan.silent_death {
            self.disconnect(node);
        }
        // Flux tells the first shell of the job of every other one that is lost.
        let first = self.plan.node(0);
        let mut fed = self.nodes[first].children.iter();
        let fed = fed.rposition(|fed| fed.node == node);
        if self.plan.death_notice
            && let Some(nth) = fed
        {
            let lost = Answer::Refused(libc::ESHUTDOWN, "its shell is lost");
            self.at(known_at, first, Event::Answer(nth, lost));
        }
    }

    fn hang(&mut self, node: usize, time: Option<u64>) {
        if self.nodes[node].life != Life::Up {
            return;
        }
        self.nodes[node].life = Life::Hung {
            for_good: time.is_none(),
        };
        self.nodes[node].lost = time.is_none() && !self.nodes[node].struck;
        self.nodes[node].struck = true;
        match time {
            Some(time) => {
                self.hung_for += time;
                self.after(time, node, Event::Continue);
            }
            None if node == 0 => {
                self.origin_end.get_or_insert(self.now);
            }
            None => {}
        }
    }

    fn shut_down(&mut self, node: usize) -> Check {
        if self.nodes[node].life != Life::Up {
            return Ok(());
        }
        self.nodes[node].struck = true;
        let why = Failure {
            rank: self.nodes[node].rank,
            errno: libc::ESHUTDOWN,
            text: "the job is ending".into(),
            tmpdir: None,
        };
        self.feed(node, Input::Shutdown(why))?;
        if self.nodes[node].is_busy() {
            return self.blame(node, Err("does not leave when told to".into()));
        }
        self.nodes[node].life = Life::Left;
        self.disconnect(node);
        Ok(())
    }

    /// What a lying shell says instead.
    pub(crate) fn distort(&mut self, node: usize, up: Up) -> Up {
        let Some((liar, lie)) = self.plan.lie else {
            return up;
        };
        if liar != node {
            return up;
        }
        let foreign = |rank| RankResult {
            rank,
            outcome: Outcome::Cancelled,
        };
        match (lie, up) {
            (Lie::Early, Up::Progress { .. }) => {
                self.damaged = true;
                let ranks = self.nodes[node].ranks.iter();
                Up::Done(ranks.copied().map(foreign).collect())
            }
            (Lie::Early, up) => up,
            (_, Up::Done(mut results)) => {
                self.damaged = true;
                match lie {
                    Lie::Omit => {
                        results.pop();
                    }
                    Lie::Twice => results.extend(results.first().cloned()),
                    Lie::Foreign | Lie::Early => results.push(foreign(1_000_000)),
                }
                Up::Done(results)
            }
            (_, up) => up,
        }
    }

    /// Its requests end with it, as the children hear.
    fn disconnect(&mut self, node: usize) {
        for at in 0..self.nodes[node].children.len() {
            if self.nodes[node].children[at].opened {
                self.send(node, at, Request::Disconnect);
            }
        }
    }

    /// When nothing happens any more.
    pub(crate) fn check_end(&self) -> Check {
        for (at, node) in self.nodes.iter().enumerate() {
            if node.is_gone() {
                continue;
            }
            if node.is_busy() {
                return self.blame(at, Err("never finished".into()));
            }
            if let Some(sink) = &node.sink
                && (sink.has_temp() || !sink.is_idle())
            {
                return self.blame(at, Err("left a temporary file behind".into()));
            }
        }
        if !self.nodes[0].is_gone() && self.result.is_none() {
            return self.blame(0, Err("no result".into()));
        }
        self.check_reasons()?;
        self.check_healthy()
    }

    /// What the user is told agrees with itself: whoever is reported to have
    /// failed is not well in the end, and nobody gives up without a reason.
    fn check_reasons(&self) -> Check {
        let (Some(results), Some(Machine::Origin(origin))) =
            (&self.result, &self.nodes[0].machine)
        else {
            return Ok(());
        };
        for RankResult { rank, outcome } in results {
            let well = matches!(outcome, Outcome::Done(_) | Outcome::Cancelled);
            let news = origin.failures().iter().find(|f| f.rank == Some(*rank));
            // One that is lost may have taken those for lost that it fed.
            let adopted = self
                .nodes
                .iter()
                .flat_map(|node| &node.children)
                .any(|fed| fed.adopted && fed.tree.root() == *rank);
            if well
                && !adopted
                && let Some(news) = news
            {
                let text = format!("rank {rank} ends with {outcome:?} after {news:?}");
                return self.blame(0, Err(text));
            }
            if *outcome == Outcome::Cancelled && origin.why().is_none() {
                let text = format!("rank {rank} gave up without a reason");
                return self.blame(0, Err(text));
            }
        }
        Ok(())
    }

    /// Ranks that nothing happened to, fed by such ranks, have their copy.
    fn check_healthy(&self) -> Check {
        let disturbed = self.cancelled || self.damaged || self.plan.timeout.is_some();
        if disturbed || !self.plan.calm() || self.nodes[0].struck {
            return Ok(());
        }
        let trouble = |sink: &Sink| sink.trouble();
        let failing: Vec<Trouble> = self
            .nodes
            .iter()
            .filter_map(|node| node.sink.as_ref().and_then(trouble))
            .collect();
        let struck = self.nodes.iter().any(|node| node.struck);
        if !self.plan.partial && (struck || failing.iter().any(|t| *t != Trouble::Commit)) {
            return Ok(());
        }
        let results = self.result.iter().flatten();
        let done: Vec<u32> = results
            .filter(|result| matches!(result.outcome, Outcome::Done(_)))
            .map(|result| result.rank)
            .collect();
        let mut fed_well = vec![true; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            // Parents come before their children. Should a parent be lost, the
            // one above goes on in its place.
            let above = |node: &Node| node.drawn.map(|(above, _)| above);
            let fed = match above(node) {
                None => true,
                Some(parent) if self.plan.partial && self.nodes[parent].lost => {
                    above(&self.nodes[parent]).is_some_and(|above| fed_well[above])
                }
                Some(parent) => fed_well[parent],
            };
            fed_well[at] = !node.struck && fed;
            let Some(rank) = node.rank else { continue };
            let healthy =
                fed_well[at] && node.sink.as_ref().is_some_and(|s| s.trouble().is_none());
            if healthy && !done.contains(&rank) {
                return self.blame(at, Err("nothing is wrong here, but it has no copy".into()));
            }
        }
        Ok(())
    }
}
