//! Ranks that will enter no more barriers while others may wait for them.
//!
//! A rank that exits early is no error by itself: a job may run programs that
//! never use PMI. It becomes one when a barrier waits for the rank, because
//! nothing else would ever end that wait.

use std::collections::{BTreeMap, BTreeSet};

/// # Invariants
///
/// At most one grace period is asked for at a time.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    gone: BTreeMap<u32, Gone>,
    grace: bool,
}

#[derive(Debug)]
struct Gone {
    /// The lanes that were left.
    lanes: BTreeSet<u32>,
    /// All of them were, for ever.
    exited: bool,
    text: String,
}

impl Gone {
    fn awaited(&self, rank: u32, waits: &impl Fn(u32, Option<u32>) -> bool) -> bool {
        (self.exited && waits(rank, None))
            || self.lanes.iter().any(|&lane| waits(rank, Some(lane)))
    }
}

impl Presence {
    /// A rank has left a lane (`None`: all, for ever).
    pub(crate) fn leave(&mut self, rank: u32, lane: Option<u32>, text: String) {
        // The exit of a task says more than the end of its connection, but
        // the first reason is the one that explains.
        let gone = self.gone.entry(rank).or_insert(Gone {
            lanes: BTreeSet::new(),
            exited: false,
            text,
        });
        gone.exited |= lane.is_none();
        gone.lanes.extend(lane);
    }

    /// The rank connected again on a lane. An exited one cannot.
    pub(crate) fn come_back(&mut self, rank: u32, lane: u32) {
        if let Some(gone) = self.gone.get_mut(&rank) {
            gone.lanes.remove(&lane);
            if gone.lanes.is_empty() && !gone.exited {
                self.gone.remove(&rank);
            }
        }
    }

    /// Whether to start a grace period; `waits` tells if a barrier of a lane
    /// waits for a rank.
    pub(crate) fn wants_grace(&mut self, waits: impl Fn(u32, Option<u32>) -> bool) -> bool {
        let mut all = self.gone.iter();
        let start = !self.grace && all.any(|(rank, gone)| gone.awaited(*rank, &waits));
        self.grace |= start;
        start
    }

    /// The grace period is over: what to tell if a barrier still waits.
    pub(crate) fn verdict(
        &mut self,
        waits: impl Fn(u32, Option<u32>) -> bool,
    ) -> Option<(u32, String)> {
        self.grace = false;
        self.gone
            .iter()
            .find(|(rank, gone)| gone.awaited(**rank, &waits))
            .map(|(rank, gone)| (*rank, gone.text.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_matters_only_while_a_barrier_waits() {
        let mut presence = Presence::default();
        presence.leave(3, None, "exited".into());
        assert!(!presence.wants_grace(|_, _| false));
        assert!(presence.wants_grace(|_, _| true));
        assert!(!presence.wants_grace(|_, _| true), "one period at a time");
        assert_eq!(presence.verdict(|_, _| false), None);
        assert!(presence.wants_grace(|_, _| true));
        assert_eq!(presence.verdict(|_, _| true), Some((3, "exited".into())));
    }

    #[test]
    fn a_rank_may_come_back_unless_it_exited() {
        let mut presence = Presence::default();
        presence.leave(3, Some(1), "closed".into());
        assert!(!presence.wants_grace(|_, lane| lane == Some(0)));
        presence.come_back(3, 1);
        assert!(!presence.wants_grace(|_, _| true));
        presence.leave(3, Some(0), "closed".into());
        presence.leave(3, None, "exited".into());
        presence.come_back(3, 0);
        assert_eq!(presence.verdict(|_, _| true), Some((3, "closed".into())));
    }

    #[test]
    fn lanes_are_left_one_by_one() {
        let mut presence = Presence::default();
        for lane in [1, 0] {
            presence.leave(3, Some(lane), "closed".into());
        }
        let closed = Some((3, "closed".into()));
        assert_eq!(presence.verdict(|_, lane| lane == Some(0)), closed);
        presence.come_back(3, 1);
        assert_eq!(presence.verdict(|_, lane| lane == Some(1)), None);
        assert_eq!(presence.verdict(|_, lane| lane == Some(0)), closed);
    }
}
