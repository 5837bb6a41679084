//! What a relay knows of one child and all ranks below it.

use std::collections::BTreeMap;

use super::super::report::Failure;
use super::super::report::Outcome;
use super::super::report::RankResult;
use super::super::tree::Tree;
use super::Millis;

#[derive(Debug, PartialEq)]
enum State {
    /// Was offered to go on, its parent being lost; no answer yet.
    Offered,
    /// Told to open; no answer yet.
    Opening,
    /// Takes data, so many bytes at once.
    Streaming(u64),
    /// All below are verified or failed.
    Prepared,
    /// Told to publish.
    Committing,
    /// The end: outcomes of all below.
    Over(Vec<RankResult>),
}

#[derive(Debug)]
pub(super) struct Child {
    tree: Tree,
    state: State,
    /// Failures reported so far.
    failures: Vec<Failure>,
    /// It was told to publish, or its parent was before it was lost.
    told: bool,
    /// Number of the oldest frame not yet credited.
    credited: u64,
    /// Number of the oldest frame that its children may not have yet.
    floor: u64,
    /// Cost of the frames from that one on that are credited.
    behind: u64,
    /// Number of the frame to send next.
    pub(super) next_seq: u64,
    /// Cost of the frames sent and not yet credited.
    pub(super) in_flight: u64,
    /// When it last gave a sign of life.
    pub(super) heard: Millis,
    /// When it is to be asked for one.
    pub(super) ping_due: Millis,
    /// Bytes that the slowest healthy rank below has taken.
    pub(super) progress: u64,
    /// Ranks below that have verified everything, as last reported.
    pub(super) ranks: u32,
}

impl Child {
    pub(super) fn new(tree: Tree, now: Millis, ping_due: Millis) -> Self {
        Self {
            tree,
            state: State::Opening,
            failures: Vec::new(),
            told: false,
            credited: 0,
            floor: 0,
            behind: 0,
            next_seq: 0,
            in_flight: 0,
            heard: now,
            ping_due,
            progress: 0,
            ranks: 0,
        }
    }

    pub(super) fn rank(&self) -> u32 {
        self.tree.root()
    }

    /// Still expected to say something.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Over(_))
    }

    /// Somebody below is still taking data.
    pub(super) fn wants_data(&self) -> bool {
        matches!(
            self.state,
            State::Offered | State::Opening | State::Streaming(_)
        )
    }

    /// Everybody below is verified or failed.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, State::Prepared | State::Over(_))
    }

    /// How many ranks below have verified everything.
    pub(super) fn verified(&self) -> u32 {
        let count = match &self.state {
            State::Offered | State::Opening | State::Streaming(_) => return self.ranks,
            State::Prepared | State::Committing => {
                self.tree.size().saturating_sub(self.failures.len())
            }
            State::Over(results) => results
                .iter()
                .filter(|result| matches!(result.outcome, Outcome::Done(_)))
                .count(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The window it granted, while data may be sent.
    pub(super) fn streaming(&self) -> Option<u64> {
        match self.state {
            State::Streaming(window) => Some(window),
            _ => None,
        }
    }

    pub(super) fn ready(&mut self, window: u64) {
        if matches!(self.state, State::Offered | State::Opening) {
            self.state = State::Streaming(window);
        }
    }

    pub(super) fn prepared(&mut self) {
        if self.wants_data() {
            self.state = State::Prepared;
        }
    }

    /// Takes the order to publish; tells whether to pass it on.
    pub(super) fn commit(&mut self) -> bool {
        if self.state == State::Prepared {
            self.state = State::Committing;
            self.told = true;
            return true;
        }
        false
    }

    /// Takes a failure that is certain to have changed nothing on its rank: not
    /// one of a rank that was told to publish and then lost.
    pub(super) fn note(&mut self, failure: &Failure) {
        if !self.told && self.failures.len() < self.tree.size() {
            self.failures.push(failure.clone());
        }
    }

    /// Takes the outcomes of all below; `early` when nobody told it to end,
    /// `called_off` when it was told to drop everything. Ranks that it forgot, or
    /// that are not its own, are put right. Returns a failure not known before, if
    /// any.
    pub(super) fn done(
        &mut self,
        results: Vec<RankResult>,
        early: bool,
        called_off: bool,
    ) -> Option<Failure> {
        let committing = self.told;
        let mut told: BTreeMap<u32, Outcome> = results
            .into_iter()
            .map(|result| (result.rank, result.outcome))
            .collect();
        let kept: Vec<RankResult> = self
            .tree
            .ranks()
            .iter()
            .map(|&rank| {
                let known = self.failures.iter().find(|f| f.rank == Some(rank));
                let outcome = match (told.remove(&rank), known) {
                    // It contradicts what was said of that rank before.
                    (Some(Outcome::Done(_)), Some(known)) => Outcome::Unknown(known.clone()),
                    (Some(Outcome::Cancelled), Some(known)) => Outcome::Failed(known.clone()),
                    (Some(Outcome::Done(_) | Outcome::Cancelled), None) if early => {
                        let text = "it ended the transfer unasked";
                        Outcome::Failed(Failure::on(rank, libc::EPROTO, text))
                    }
                    (Some(Outcome::Cancelled), None) if !called_off => {
                        let text = "it gave up, cut off from those that feed it";
                        Outcome::Failed(Failure::on(rank, libc::ECONNRESET, text))
                    }
                    (Some(outcome), _) => outcome,
                    (None, _) => {
                        let why = Failure::on(rank, libc::EPROTO, "it gave no answer");
                        if committing {
                            Outcome::Unknown(why)
                        } else {
                            Outcome::Failed(why)
                        }
                    }
                };
                RankResult { rank, outcome }
            })
            .collect();
        let news = kept
            .iter()
            .filter_map(RankResult::failure)
            .find(|failure| !self.failures.contains(failure))
            .cloned();
        self.state = State::Over(kept);
        news
    }

    /// The child is lost: `why` for itself, and what follows for the others.
    pub(super) fn lost(&mut self, why: &Failure) {
        let committing = self.told;
        let cut_off = format!("cut off: rank {}, which feeds it, has failed", self.rank());
        let results = self
            .tree
            .ranks()
            .iter()
            .map(|&rank| {
                let known = self.failures.iter().find(|f| f.rank == Some(rank));
                let failure = match known {
                    Some(failure) => failure.clone(),
                    None if rank == self.rank() => why.clone(),
                    None => Failure::on(rank, libc::EHOSTUNREACH, cut_off.clone()),
                };
                let outcome = if committing && known.is_none() {
                    Outcome::Unknown(failure)
                } else {
                    Outcome::Failed(failure)
                };
                RankResult { rank, outcome }
            })
            .collect();
        self.state = State::Over(results);
    }

    /// Everybody below fails for the same reason, unless known better.
    pub(super) fn fail_all(&mut self, why: &Failure) {
        if !self.is_live() {
            return;
        }
        let committing = self.told;
        let results = self
            .tree
            .ranks()
            .iter()
            .map(|&rank| {
                let known = self.failures.iter().find(|f| f.rank == Some(rank)).cloned();
                let outcome = match known {
                    Some(failure) => Outcome::Failed(failure),
                    None if committing => Outcome::Unknown(why.clone()),
                    None => Outcome::Failed(why.clone()),
                };
                RankResult { rank, outcome }
            })
            .collect();
        self.state = State::Over(results);
    }

    /// The child is lost, and nobody else: those that it fed, as children of their
    /// own, with what is known of them.
    pub(super) fn lost_alone(&mut self, why: &Failure) -> Vec<Self> {
        let orphans = self
            .tree
            .children()
            .into_iter()
            .map(|tree| Self {
                state: State::Offered,
                failures: self.failures_in(tree.ranks()),
                told: self.told,
                // It came at least as far as the slowest below the lost one.
                progress: self.progress,
                tree,
                credited: 0,
                floor: 0,
                behind: 0,
                next_seq: 0,
                in_flight: 0,
                heard: 0,
                ping_due: 0,
                ranks: 0,
            })
            .collect();
        let mine = self.failures_in(&[self.rank()]);
        if let Some(tree) = Tree::kary(&[self.rank()], 1) {
            self.tree = tree;
        }
        self.failures = mine;
        self.lost(why);
        orphans
    }

    fn failures_in(&self, ranks: &[u32]) -> Vec<Failure> {
        let here = |failure: &&Failure| failure.rank.is_some_and(|rank| ranks.contains(&rank));
        self.failures.iter().filter(here).cloned().collect()
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn is_offered(&self) -> bool {
        self.state == State::Offered
    }

    /// The offer is accepted: it takes data from this frame on, as soon as it
    /// is ready.
    pub(super) fn resumes(&mut self, seq: u64) {
        self.state = State::Opening;
        self.next_seq = seq;
        self.credited = seq;
    }

    pub(super) fn knows(&self, failure: &Failure) -> bool {
        self.failures.contains(failure)
    }

    /// Failures here and below, as far as known.
    pub(super) fn known_failures(&self) -> Vec<Failure> {
        match &self.state {
            State::Over(results) => results
                .iter()
                .filter_map(RankResult::failure)
                .cloned()
                .collect(),
            _ => self.failures.clone(),
        }
    }

    /// How many frames are sent and not yet credited.
    pub(super) fn under_way(&self) -> u64 {
        self.next_seq.saturating_sub(self.credited)
    }

    /// The oldest frame that it needs yet, or that its children may need from
    /// somebody else.
    pub(super) fn floor(&self) -> Option<u64> {
        match self.state {
            State::Offered => Some(0),
            State::Opening | State::Streaming(_) if self.tree.size() > 1 => Some(self.floor),
            State::Opening | State::Streaming(_) => Some(self.next_seq),
            State::Prepared | State::Committing | State::Over(_) => None,
        }
    }

    /// Its oldest frame is credited; `cost` tells the cost of any frame that is
    /// still there.
    pub(super) fn credit(&mut self, window: u64, cost: impl Fn(u64) -> u64) {
        if self.credited >= self.next_seq {
            return;
        }
        self.behind += cost(self.credited);
        self.credited += 1;
        self.raise_floor(window, cost);
    }

    /// What a child has used up is sent to its own children, and no more than a
    /// window of that, or a single frame, can be on its way to them.
    fn raise_floor(&mut self, window: u64, cost: impl Fn(u64) -> u64) {
        while self.behind > window && self.floor + 1 < self.credited {
            self.behind = self.behind.saturating_sub(cost(self.floor));
            self.floor += 1;
        }
    }

    /// Its children may be behind it by all that is there from frame `from` on.
    pub(super) fn set_floor(&mut self, from: u64, window: u64, cost: impl Fn(u64) -> u64) {
        self.floor = from.min(self.credited);
        self.behind = (self.floor..self.credited).map(&cost).sum();
        self.raise_floor(window, cost);
    }

    pub(super) fn take_results(&mut self) -> Vec<RankResult> {
        match &mut self.state {
            State::Over(results) => std::mem::take(results),
            _ => Vec::new(),
        }
    }
}
