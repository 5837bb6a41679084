//! What a caller hears of a transfer, whichever way the files go.

use std::time::Duration;

use crate::bcast::id::TransferId;
use crate::bcast::message::Plan;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::Outcome;
use crate::bcast::report::RankResult;
use crate::file::Totals;
use crate::idset::IdSet;

/// What the caller hears.
#[derive(Debug)]
pub enum ClientEvent {
    /// The job has not started yet; the transfer begins when it does.
    Waiting,
    /// Something about the sources that is worth knowing, one line each.
    Notes(Vec<String>),
    /// Data begins to flow.
    Started {
        /// Who takes part.
        plan: Plan,
        /// How much there is to send.
        totals: Totals,
    },
    /// The slowest healthy rank has this many bytes; or, where files are
    /// fetched, so many have come from all ranks.
    Progress(u64),
    /// The end; nothing more comes.
    Ended(Summary),
}

/// How it ended.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The transfer's id.
    pub transfer: TransferId,
    /// Every target rank's outcome; empty if it did not come to a transfer.
    pub results: Vec<RankResult>,
    /// Why it was called off or never began.
    pub why: Option<Failure>,
    /// Host names of all ranks of the job, if known.
    pub hosts: Vec<String>,
    /// Names of the copies.
    pub names: Vec<RawName>,
    /// How many of the copies, the last ones, are directories of shared objects
    /// that were added to the sources.
    pub libs: usize,
    /// Bytes of the sources, as far as known beforehand; or, where files are
    /// fetched, of all that were.
    pub bytes: u64,
    /// From the start to the last rank's answer.
    pub elapsed: Duration,
    /// Ranks that were left out because they had the files already.
    pub unchanged: IdSet,
}

impl Summary {
    /// True if every target rank has the copies.
    pub fn is_complete(&self) -> bool {
        let done = |result: &RankResult| matches!(result.outcome, Outcome::Done(_));
        self.why.is_none() && !self.results.is_empty() && self.results.iter().all(done)
    }
}
