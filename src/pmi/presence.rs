//! Ranks that will enter no more barriers while others may wait for them.
//!
//! A rank that exits early is no error by itself: a job may run programs that
//! never use PMI. It becomes one when a barrier waits for the rank, because
//! nothing else would ever end that wait.

use std::collections::BTreeMap;

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
    /// The lane that was left; `None`: all, for ever.
    lane: Option<u32>,
    text: String,
}

impl Presence {
    pub(crate) fn leave(&mut self, rank: u32, lane: Option<u32>, text: String) {
        // The exit of a task says more than the end of its connection, but
        // the first reason is the one that explains.
        let gone = self.gone.entry(rank).or_insert(Gone { lane, text });
        if lane.is_none() {
            gone.lane = None;
        }
    }

    /// The rank connected again. An exited one cannot.
    pub(crate) fn come_back(&mut self, rank: u32) -> bool {
        let may = self.gone.get(&rank).is_some_and(|gone| gone.lane.is_some());
        if may {
            self.gone.remove(&rank);
        }
        may
    }

    /// Whether to start a grace period; `waits` tells if a barrier of a lane
    /// waits for a rank.
    pub(crate) fn wants_grace(&mut self, waits: impl Fn(u32, Option<u32>) -> bool) -> bool {
        let start = !self.grace && self.gone.iter().any(|(rank, gone)| waits(*rank, gone.lane));
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
            .find(|(rank, gone)| waits(**rank, gone.lane))
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
        assert!(presence.come_back(3));
        assert!(!presence.wants_grace(|_, _| true));
        presence.leave(3, Some(0), "closed".into());
        presence.leave(3, None, "exited".into());
        assert!(!presence.come_back(3));
        assert_eq!(presence.verdict(|_, _| true), Some((3, "closed".into())));
    }
}
