//! How the runs ended, so that a simulation in which nothing ever goes wrong, or
//! nothing ever goes well, does not pass for a good one.

use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;

use super::world::World;

/// How one run ended.
#[derive(Debug)]
pub(crate) struct Ending {
    steps: u64,
    done: usize,
    failed: usize,
    cancelled: usize,
    unknown: usize,
    /// There was nobody left to name a result.
    mute: bool,
    struck: bool,
    decided: bool,
    /// Somebody has the copy whose parent was lost.
    adopted: bool,
    large: bool,
}

impl World<'_> {
    pub(crate) fn ending(&self) -> Ending {
        let results = self.result.as_deref().unwrap_or_default();
        let count = |pick: fn(&Outcome) -> bool| {
            results
                .iter()
                .filter(|result| pick(&result.outcome))
                .count()
        };
        Ending {
            steps: self.steps,
            done: count(|outcome| matches!(outcome, Outcome::Done(_))),
            failed: count(|outcome| matches!(outcome, Outcome::Failed(_))),
            cancelled: count(|outcome| matches!(outcome, Outcome::Cancelled)),
            unknown: count(|outcome| matches!(outcome, Outcome::Unknown(_))),
            mute: self.result.is_none(),
            struck: self.damaged || self.nodes.iter().any(|node| node.struck),
            adopted: self
                .nodes
                .iter()
                .flat_map(|node| &node.children)
                .any(|fed| {
                    let done = |result: &RankResult| {
                        result.rank == fed.tree.root()
                            && matches!(result.outcome, Outcome::Done(_))
                    };
                    fed.adopted && results.iter().any(done)
                }),
            decided: self.promises.is_decided(),
            large: self.plan.tree.size() >= 1000,
        }
    }
}

/// Numbers of runs, except for the steps.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    runs: u64,
    steps: u64,
    all_done: u64,
    none_done: u64,
    /// Some ranks have the copy and others do not, or may not.
    some_done: u64,
    unknown: u64,
    cancelled: u64,
    mute: u64,
    /// A process or a hop was struck, and the copies were published.
    struck_and_decided: u64,
    struck_and_undecided: u64,
    adopted: u64,
    large: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, ending: &Ending) {
        let without = ending.failed + ending.cancelled + ending.unknown;
        let count = |yes: bool| u64::from(yes);
        self.runs += 1;
        self.steps += ending.steps;
        self.all_done += count(!ending.mute && without == 0);
        self.none_done += count(!ending.mute && ending.done == 0);
        self.some_done += count(ending.done > 0 && without > 0);
        self.unknown += count(ending.unknown > 0);
        self.cancelled += count(ending.cancelled > 0);
        self.mute += count(ending.mute);
        self.struck_and_decided += count(ending.struck && ending.decided);
        self.struck_and_undecided += count(ending.struck && !ending.decided);
        self.adopted += count(ending.adopted);
        self.large += count(ending.large);
    }

    /// Every kind of ending must have been met.
    pub(crate) fn check(&self) {
        for (name, met, percent) in [
            ("all done", self.all_done, 30),
            ("none done", self.none_done, 15),
            ("some done", self.some_done, 5),
            ("unknown", self.unknown, 1),
            ("cancelled", self.cancelled, 10),
            ("mute", self.mute, 1),
            ("struck and decided", self.struck_and_decided, 5),
            ("struck and undecided", self.struck_and_undecided, 5),
            ("adopted", self.adopted, 5),
        ] {
            assert!(
                met * 100 >= self.runs * percent,
                "{name}: {met} of {}",
                self.runs
            );
        }
        assert!(self.large > 0, "no run of 1,000 ranks");
    }
}
