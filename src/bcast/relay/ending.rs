//! How a transfer ends: published, called off, broken, or left in the lurch.

use super::super::message::Up;
use super::super::report::Failure;
use super::super::report::Outcome;
use super::super::report::RankResult;
use super::Local;
use super::Output;
use super::Phase;
use super::Relay;
use super::child::Child;

impl Relay {
    /// Moves to the next phase when everybody is there.
    pub(super) fn advance(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Streaming && self.all_prepared() {
            self.phase = Phase::Prepared;
            self.up(Up::Prepared, out);
        }
        let ending = matches!(self.phase, Phase::Committing | Phase::Aborting);
        // A subtree without anybody to wait for ends by itself only when it was
        // told to: upstream decides, also about a transfer that failed here.
        if ending && self.all_over() {
            self.finish(out);
        }
    }

    pub(super) fn all_prepared(&self) -> bool {
        let here = matches!(self.local, Local::None | Local::Prepared | Local::Over(_));
        // Where nobody is left, the rest of the stream need not be waited for.
        here && self.children.iter().all(Child::is_settled) && (self.fin || self.all_over())
    }

    pub(super) fn is_over_here(&self) -> bool {
        matches!(self.local, Local::Over(_))
    }

    pub(super) fn all_over(&self) -> bool {
        matches!(self.local, Local::None | Local::Over(_))
            && self.children.iter().all(|child| !child.is_live())
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Output>) {
        let mut results = Vec::new();
        if let (Some(rank), Local::Over(outcome)) = (self.rank, &self.local) {
            results.push(RankResult {
                rank,
                outcome: outcome.clone(),
            });
        }
        for child in &mut self.children {
            results.append(&mut child.take_results());
        }
        self.phase = Phase::Finished;
        self.drop_held(out);
        self.results.clone_from(&results);
        self.up(Up::Done(results), out);
        out.push(Output::Finished);
    }

    /// The stream cannot be trusted any more: nobody here or below can finish.
    pub(super) fn broken(&mut self, why: Failure, out: &mut Vec<Output>) {
        if self.phase != Phase::Streaming {
            return;
        }
        if matches!(self.local, Local::Writing | Local::Prepared) {
            out.push(Output::SinkAbort);
            self.local = Local::Dropping(why.clone());
        }
        self.abort_children(&why, out);
        for child in &mut self.children {
            child.fail_all(&why);
        }
        self.drop_held(out);
        self.up(Up::Failure(why), out);
    }

    pub(super) fn commit(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Prepared => {}
            Phase::Streaming => {
                let why = Failure {
                    rank: self.rank,
                    errno: libc::EPROTO,
                    text: "told to commit before the data was complete".into(),
                    tmpdir: None,
                };
                self.broken(why, out);
                return;
            }
            Phase::Committing | Phase::Aborting | Phase::Finished => return,
        }
        self.phase = Phase::Committing;
        if self.local == Local::Prepared {
            self.local = Local::Ending;
            out.push(Output::SinkCommit);
        }
        for (at, child) in self.children.iter_mut().enumerate() {
            if child.commit() {
                out.push(Output::CommitChild(at));
            }
        }
    }

    pub(super) fn abort(&mut self, why: &Failure, out: &mut Vec<Output>) {
        if !matches!(self.phase, Phase::Streaming | Phase::Prepared) {
            return;
        }
        self.phase = Phase::Aborting;
        self.called_off = self.now;
        self.why = Some(why.clone());
        if matches!(self.local, Local::Writing | Local::Prepared) {
            self.local = Local::Ending;
            out.push(Output::SinkAbort);
        }
        self.abort_children(why, out);
        self.drop_held(out);
    }

    pub(super) fn upstream_lost(&mut self, out: &mut Vec<Output>) {
        if !self.wait_for_heir(out) {
            self.left_alone(out);
        }
    }

    /// Nobody upstream will ever ask.
    pub(super) fn left_alone(&mut self, out: &mut Vec<Output>) {
        self.orphan = true;
        self.waiting_since = None;
        self.abort(
            &Failure {
                rank: self.rank,
                errno: libc::ECONNRESET,
                text: "the sender is gone".into(),
                tmpdir: None,
            },
            out,
        );
    }

    /// The process leaves: nothing can be waited for.
    pub(super) fn shutdown(&mut self, why: Failure, out: &mut Vec<Output>) {
        let told = self.phase == Phase::Committing;
        match self.local {
            Local::Writing | Local::Prepared => out.push(Output::SinkAbort),
            Local::None | Local::Ending | Local::Dropping(_) | Local::Over(_) => {}
        }
        if self.rank.is_some() && !self.is_over_here() {
            self.local = Local::Over(if told && self.local == Local::Ending {
                Outcome::Unknown(why.clone())
            } else {
                Outcome::Failed(why.clone())
            });
        }
        self.abort_children(&why, out);
        for child in &mut self.children {
            child.fail_all(&why);
        }
        self.finish(out);
    }

    /// Tells every child that may still listen.
    fn abort_children(&self, why: &Failure, out: &mut Vec<Output>) {
        for (at, child) in self.children.iter().enumerate() {
            if child.is_live() {
                out.push(Output::AbortChild {
                    child: at,
                    why: why.clone(),
                });
            }
        }
    }
}
