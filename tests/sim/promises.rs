//! The promises of a broadcast, checked against what truly happened.
//!
//! Knows nothing of relays or of the simulation: it is told facts, in order, and
//! says which one breaks a promise.

use std::collections::BTreeSet;

use flux_bcast::bcast::report::Outcome;
use flux_bcast::bcast::report::RankResult;

/// What is wrong, in one line.
pub(crate) type Check = Result<(), String>;

#[derive(Debug)]
pub(crate) struct Promises {
    targets: Vec<u32>,
    partial: bool,
    verified: BTreeSet<u32>,
    failed: BTreeSet<u32>,
    published: BTreeSet<u32>,
    /// Somebody was told that these have no new file.
    absent: BTreeSet<u32>,
    decided: bool,
}

impl Promises {
    pub(crate) fn new(targets: &[u32], partial: bool) -> Self {
        Self {
            targets: targets.to_vec(),
            partial,
            verified: BTreeSet::new(),
            failed: BTreeSet::new(),
            published: BTreeSet::new(),
            absent: BTreeSet::new(),
            decided: false,
        }
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.decided
    }

    /// The sink of `rank` has the whole stream and it is right.
    pub(crate) fn verify(&mut self, rank: u32) {
        self.verified.insert(rank);
    }

    /// The sink of `rank` failed.
    pub(crate) fn fail(&mut self, rank: u32) {
        self.failed.insert(rank);
    }

    /// The origin orders to publish.
    pub(crate) fn decide(&mut self) -> Check {
        self.decided = true;
        self.all_verified("the decision to publish")
    }

    /// A copy appears under its final name on `rank`.
    pub(crate) fn publish(&mut self, rank: u32, right: bool) -> Check {
        if !right {
            return Err(format!("rank {rank} has published a wrong file"));
        }
        if !self.decided {
            return Err(format!("rank {rank} has published before the decision"));
        }
        if !self.verified.contains(&rank) {
            return Err(format!("rank {rank} has published what it did not verify"));
        }
        if !self.published.insert(rank) {
            return Err(format!("rank {rank} has published twice"));
        }
        if self.absent.contains(&rank) {
            return Err(format!("rank {rank} was said to have no file, and now has"));
        }
        self.all_verified("a rank has published")
    }

    fn all_verified(&self, event: &str) -> Check {
        let missing = self
            .targets
            .iter()
            .find(|rank| !self.verified.contains(rank));
        match missing {
            Some(rank) if !self.partial => Err(format!(
                "{event}, but rank {rank} has not verified its copy"
            )),
            _ => Ok(()),
        }
    }

    /// Somebody answers for `ranks`.
    pub(crate) fn claim(&mut self, ranks: &[u32], results: &[RankResult]) -> Check {
        let mut expected = ranks.to_vec();
        expected.sort_unstable();
        let mut named: Vec<u32> = results.iter().map(|result| result.rank).collect();
        named.sort_unstable();
        if named != expected {
            return Err(format!(
                "answers for ranks {named:?} instead of {expected:?}"
            ));
        }
        for RankResult { rank, outcome } in results {
            let there = self.published.contains(rank);
            match outcome {
                Outcome::Done(_) if !there => {
                    return Err(format!("rank {rank} is said to be done and has no file"));
                }
                Outcome::Failed(_) | Outcome::Cancelled if there => {
                    return Err(format!("rank {rank} has the file: {outcome:?}"));
                }
                Outcome::Cancelled if self.failed.contains(rank) => {
                    return Err(format!("rank {rank} failed and is said to be well"));
                }
                Outcome::Unknown(_) if !self.decided => {
                    return Err(format!("rank {rank} cannot have the file: {outcome:?}"));
                }
                Outcome::Failed(_) | Outcome::Cancelled => {
                    self.absent.insert(*rank);
                }
                Outcome::Done(_) | Outcome::Unknown(_) => {}
            }
        }
        Ok(())
    }

    /// Bytes held by a relay that granted `window`.
    pub(crate) fn held(bytes: u64, window: u64, largest: u64) -> Check {
        if bytes > window.saturating_add(largest) {
            return Err(format!("holds {bytes} bytes, having granted {window}"));
        }
        Ok(())
    }

    /// Bytes on their way to each of the children together.
    pub(crate) fn in_flight(each: &[u64], window: u64, largest: u64) -> Check {
        let sum: u64 = each.iter().sum();
        let least = largest * each.len() as u64;
        if sum > window.max(least) {
            return Err(format!("{sum} bytes in flight, window {window}"));
        }
        if let Some(most) = each.iter().find(|&&bytes| bytes > window.max(largest)) {
            return Err(format!("{most} bytes in flight to one, window {window}"));
        }
        Ok(())
    }
}
