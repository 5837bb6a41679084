//! Which connections stand for which rank of a lane.

use super::{ConnId, Standing};
use std::collections::HashMap;

/// # Invariants
///
/// `conns` are those that are open, in the order in which they came. The last one
/// is current.
#[derive(Debug, Default)]
struct Member {
    conns: Vec<ConnId>,
    finalized: bool,
}

/// The members of one lane.
#[derive(Debug, Default)]
pub(super) struct Members(HashMap<u32, Member>);

impl Members {
    /// A connection said that it is `rank`. It supersedes earlier ones, which
    /// libraries leave open and idle. Returns one to close if there are more
    /// than `max`, and whether the rank was known before.
    pub(super) fn add(
        &mut self,
        rank: u32,
        conn: ConnId,
        max: usize,
    ) -> (Option<ConnId>, bool) {
        let known = self.0.contains_key(&rank);
        let member = self.0.entry(rank).or_default();
        member.conns.push(conn);
        member.finalized = false;
        let surplus = (member.conns.len() > max.max(1)).then(|| member.conns[0]);
        (surplus, known)
    }

    /// Removes a connection; true if the rank has no other and did not finalize.
    pub(super) fn remove(&mut self, rank: u32, conn: ConnId) -> bool {
        let Some(member) = self.0.get_mut(&rank) else {
            return false;
        };
        member.conns.retain(|&other| other != conn);
        member.conns.is_empty() && !member.finalized
    }

    pub(super) fn finalize(&mut self, rank: u32, conn: ConnId) {
        if let Some(member) = self.0.get_mut(&rank) {
            member.finalized |= member.conns.last() == Some(&conn);
        }
    }

    pub(super) fn standing(&self, rank: u32) -> Standing {
        match self.0.get(&rank) {
            None => Standing::Never,
            Some(member) if member.finalized => Standing::Finalized,
            Some(_) => Standing::Connected,
        }
    }
}
