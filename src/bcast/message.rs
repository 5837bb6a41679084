//! Control messages: JSON, small, with one version number at the opening.
//!
//! The client speaks to the first shell exactly as a shell speaks to the ones
//! it feeds. Methods of the shell's service (`<uid>-shell-<jobid>`), all of them:
//!
//! | method             | request         | answer                                     |
//! |--------------------|-----------------|--------------------------------------------|
//! | `bcast.plan`       | [`PlanRequest`] | [`Plan`]                                   |
//! | `bcast.open`       | [`Open`]        | stream of [`Up`], ends after [`Up::Done`]  |
//! | `bcast.data`       | a frame         | empty, when the frame is used up: credit   |
//! | `bcast.ctl`        | [`Ctl`]         | empty                                      |
//! | `bcast.release`    | a [`TransferId`]| empty: the start of the job goes on        |
//! | `bcast.inspect`    | [`Inspect`]     | [`Inspection`]                             |
//! | `bcast.has`        | [`Has`]         | [`Had`]                                    |
//! | `bcast.list`       | an object       | [`Listing`]                                |
//! | `bcast.remove`     | [`Remove`]      | [`Removed`]                                |
//! | `bcast.from`       | [`From`]        | stream of [`Told`], ends after its `Ended` |
//! | `bcast.fetch`      | [`Fetch`]       | stream of frames, ends after `Fin`         |
//! | `bcast.credit`     | [`Credit`]      | none                                       |
//! | `bcast.disconnect` | empty           | none; brokers send it for a sender that died |
//!
//! Frames are those of [`super::frame`]. In an instance of another user, what a
//! client asks with `inspect`, `has`, `list`, `remove`, `from` and `fetch` is in a
//! signed envelope, see [`super::warrant`].
//!
//! [`Inspect`]: crate::transfer::ask::Inspect
//! [`Inspection`]: crate::file::Inspection
//! [`Has`]: crate::transfer::ask::Has
//! [`Had`]: crate::transfer::ask::Had
//! [`Listing`]: crate::transfer::ask::Listing
//! [`Remove`]: crate::transfer::ask::Remove
//! [`Removed`]: crate::transfer::ask::Removed
//! [`From`]: crate::transfer::ask::From
//! [`Told`]: crate::transfer::ask::Told
//! [`Fetch`]: crate::transfer::ask::Fetch
//! [`Credit`]: crate::transfer::ask::Credit

use std::net::IpAddr;

use serde::Deserialize;
use serde::Serialize;

use super::id::TransferId;
use super::name::RawName;
use super::pacer::Pacer;
use super::report::Failure;
use super::report::RankResult;
use super::spec::Dest;
use super::spec::Policy;
use super::tree::Tree;
use crate::idset::IdSet;

/// Version of the protocol. A shell refuses any other one, by name.
pub const VERSION: u32 = 1;

/// Bytes of a chunk: the unit of offsets.
pub const CHUNK: u32 = 4096;

/// Largest chunk that may be asked for.
pub const CHUNK_MAX: u32 = 1 << 20;

/// Most bytes of file data in one message. Below, the brokers' cost per message
/// rules; above 128 KiB, page faults do (measured).
pub const BATCH: u32 = 120 * 1024;

/// Bytes in flight from one sending shell, shared by the shells it feeds. Up to
/// about 0.85 MiB other users of the brokers notice little (measured).
pub const WINDOW: u64 = 7 * BATCH as u64;

/// Largest window that may be asked for: a shell holds so much of a transfer in
/// memory, and its messages as well.
pub const WINDOW_MAX: u64 = 256 << 20;

/// Largest pace that may be asked for, in bytes per second: no limit that anybody
/// could reach.
pub const PACE_MAX: u64 = 1 << 40;

/// Seconds that a peer may be silent at most.
pub const STALL_MAX: f64 = 86_400.;

/// Most children of a shell unless the caller says otherwise.
pub const FANOUT: u32 = 16;

/// How a tree is to be drawn and fed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// Arity of the tree; none: follow the overlay, at most [`FANOUT`] wide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Most bytes of data in a message, a multiple of the chunk.
    pub batch: u32,
    /// Bytes in flight from one shell.
    pub window: u64,
    /// Bytes per second that whoever reads the data sends at most; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<u64>,
    /// Seconds without a sign of life after which a peer counts as lost.
    pub stall: f64,
    /// Compress the data where it is read, once; each rank expands its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compress: bool,
    /// Data goes by TCP from shell to shell, where that is possible.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            k: None,
            chunk: CHUNK,
            batch: BATCH,
            window: WINDOW,
            pace: None,
            stall: 30.,
            compress: false,
            direct: false,
        }
    }
}

impl Tuning {
    /// Checks the limits.
    ///
    /// # Errors
    ///
    /// One line that names the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if self.k == Some(0) {
            return Err("k must be at least 1".into());
        }
        if self.chunk == 0 || self.chunk > CHUNK_MAX {
            return Err(format!(
                "chunk {} is not within 1 and {CHUNK_MAX} bytes",
                self.chunk
            ));
        }
        if self.batch < self.chunk || self.batch as usize > super::frame::MAX_PAYLOAD {
            return Err(format!(
                "batch {} is not within one chunk ({}) and {} bytes",
                self.batch,
                self.chunk,
                super::frame::MAX_PAYLOAD
            ));
        }
        if self.window == 0 || self.window > WINDOW_MAX {
            return Err(format!(
                "window {} is not within 1 and {WINDOW_MAX} bytes",
                self.window
            ));
        }
        if let Some(pace) = self.pace.filter(|pace| !(1..=PACE_MAX).contains(pace)) {
            return Err(format!(
                "pace {pace} is not within 1 and {PACE_MAX} bytes per second"
            ));
        }
        // Not a number is within no range.
        if !(0.1..=STALL_MAX).contains(&self.stall) {
            return Err(format!("stall must be within 0.1 and {STALL_MAX} s"));
        }
        Ok(())
    }

    /// Bytes of data that a message of a transfer over `tree` carries at most:
    /// so many that the widest shell can feed all its children at once within
    /// the window, but not fewer than 16 KiB (or what the caller asked for).
    pub fn batch_for(&self, tree: &Tree) -> u32 {
        self.batch_within(self.window / (tree.fanout().max(1) as u64))
    }

    /// The same where a share of the window is known. A slow pace makes messages
    /// smaller, so that they come evenly, but not smaller than a chunk.
    pub fn batch_within(&self, share: u64) -> u32 {
        let floor = self.batch.min(16 * 1024);
        let most = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let batch = most(share).clamp(floor, self.batch);
        let even = self.pace.map_or(u32::MAX, |pace| most(Pacer::share(pace)));
        (batch.min(even) / self.chunk).max(1) * self.chunk
    }

    /// This for each of `count` senders, which share window and pace.
    pub fn shared_by(&self, count: u64) -> Self {
        let share = |all: u64| (all / count.max(1)).max(1);
        Self {
            window: share(self.window),
            pace: self.pace.map(share),
            ..self.clone()
        }
    }
}

/// Asks the leader who would take part and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// [`VERSION`].
    pub version: u32,
    /// The wanted ranks; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<IdSet>,
    /// Wanted hosts (RFC 29 host list); with ranks, only what both name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Ranks to leave out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<IdSet>,
    /// Hosts to leave out (RFC 29 host list).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_hosts: Option<String>,
    /// Arity of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
}

impl PlanRequest {
    /// Checks that a plan has no rank that was not asked for: where requests are
    /// signed, those who carry them must not choose for whom. Which rank is on
    /// which host only they know.
    ///
    /// # Errors
    /// One line that names the rank.
    pub fn check(&self, plan: &Plan) -> Result<(), String> {
        let unasked = |rank: &&u32| {
            let wanted = self
                .ranks
                .as_ref()
                .is_none_or(|ranks| ranks.contains(**rank));
            let excluded = self
                .exclude
                .as_ref()
                .is_some_and(|ranks| ranks.contains(**rank));
            !wanted || excluded
        };
        match plan.tree.ranks().iter().find(unasked) {
            Some(rank) => Err(format!("the job planned for rank {rank}, unasked")),
            None => Ok(()),
        }
    }
}

/// Who takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`] of the shell.
    pub version: u32,
    /// The tree over the target ranks.
    pub tree: Tree,
    /// Broker rank of the tree's root.
    pub root_broker: u32,
    /// Broker ranks of shell ranks 0… of the whole job.
    #[serde(default)]
    pub brokers: Vec<u32>,
    /// Host names of shell ranks 0… of the whole job.
    pub hosts: Vec<String>,
}

/// Opens a transfer on a shell and all below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// [`VERSION`].
    pub version: u32,
    /// The transfer's id.
    pub transfer: TransferId,
    /// The subtree that starts at the receiver.
    pub tree: Tree,
    /// Where the copy goes.
    pub dest: Dest,
    /// How it is made.
    pub policy: Policy,
    /// How it is fed.
    pub tuning: Tuning,
    /// Healthy ranks commit although others fail.
    pub partial: bool,
    /// Bytes of data to come, when the source knows: for the check of free
    /// space and for progress, not for correctness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Names of the copies, so that one that exists is found before any data
    /// comes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<RawName>,
    /// The signed terms, see [`super::warrant`], in an instance of another user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warrant: Option<String>,
    /// Whoever fed the receiver is lost, and the sender offers to go on in its
    /// place: it still has the frame of this number and all later ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<u64>,
    /// Should the sender be lost, somebody will make that offer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heir: bool,
    /// For [`Tuning::direct`]: the kernel that the sender of this request runs
    /// under, empty if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// What a shell says first where it takes data by TCP, before any [`Up`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Greeting {
    /// How it is reached.
    pub direct: Offer,
}

/// Where a shell takes data by TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// The port.
    pub port: u16,
    /// The addresses, in the order in which they are best tried.
    pub addresses: Vec<IpAddr>,
    /// What both ends have to prove that they know.
    pub secret: TransferId,
}

/// What a shell tells the one that feeds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Up {
    /// Data may come: so many bytes before the first credit returns.
    Ready {
        /// Window in bytes.
        window: u64,
    },
    /// The offer to go on is accepted; how far it has come. What was said to the
    /// lost one follows once more.
    Resume {
        /// Number of the frame expected next.
        seq: u64,
    },
    /// Every healthy rank below has taken this much.
    Progress {
        /// Bytes of file data.
        bytes: u64,
        /// Ranks that have everything, verified.
        #[serde(default)]
        ranks: u32,
    },
    /// A rank below, or this one, failed. More may follow.
    Failure(Failure),
    /// Every rank below has either verified the data or failed.
    Prepared,
    /// The end of the transfer here and below: every rank's outcome.
    Done(Vec<RankResult>),
}

/// What a shell is told besides data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ctl {
    /// The transfer's id.
    pub transfer: TransferId,
    /// The order.
    pub order: Order,
}

/// Orders from upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Sign of life.
    Ping,
    /// Publish the verified data.
    Commit,
    /// Drop everything.
    Abort(Failure),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_only_ranks_that_were_asked_for() {
        let plan = Plan {
            version: VERSION,
            tree: Tree::kary(&[1, 2, 3], 2).unwrap(),
            root_broker: 0,
            brokers: Vec::new(),
            hosts: Vec::new(),
        };
        let set = |ids: &[u32]| Some(ids.iter().copied().collect::<IdSet>());
        let check = |ranks, exclude| {
            let request = PlanRequest {
                ranks,
                exclude,
                ..PlanRequest::default()
            };
            request.check(&plan)
        };
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(set(&[1, 2, 3, 4]), set(&[4])), Ok(()));
        assert!(check(set(&[1, 2]), None).is_err());
        assert!(check(None, set(&[3])).is_err());
        assert!(check(set(&[]), None).is_err());
    }

    #[test]
    fn tuning_beyond_its_limits_is_refused_by_name() {
        let with = |change: fn(&mut Tuning)| {
            let mut tuning = Tuning::default();
            change(&mut tuning);
            tuning.check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert_eq!(with(|t| t.window = WINDOW_MAX), Ok(()));
        assert_eq!(with(|t| t.pace = Some(PACE_MAX)), Ok(()));
        assert_eq!(with(|t| t.stall = STALL_MAX), Ok(()));
        for (name, refused) in [
            ("k", with(|t| t.k = Some(0))),
            ("chunk", with(|t| t.chunk = 0)),
            ("chunk", with(|t| t.chunk = CHUNK_MAX + 1)),
            ("batch", with(|t| t.batch = u32::MAX)),
            ("window", with(|t| t.window = 0)),
            ("window", with(|t| t.window = WINDOW_MAX + 1)),
            ("pace", with(|t| t.pace = Some(0))),
            ("pace", with(|t| t.pace = Some(PACE_MAX + 1))),
            ("stall", with(|t| t.stall = 0.)),
            ("stall", with(|t| t.stall = STALL_MAX + 1.)),
            ("stall", with(|t| t.stall = 1e300)),
            ("stall", with(|t| t.stall = f64::NAN)),
        ] {
            assert!(refused.unwrap_err().starts_with(name), "{name}");
        }
    }

    #[test]
    fn a_slow_pace_makes_messages_smaller() {
        let batch = |pace, chunk| {
            let tuning = Tuning {
                pace,
                chunk,
                ..Tuning::default()
            };
            tuning.batch_for(&Tree::kary(&[0, 1, 2], 2).unwrap())
        };
        assert_eq!(batch(None, CHUNK), BATCH);
        assert_eq!(batch(Some(PACE_MAX), CHUNK), BATCH);
        assert_eq!(batch(Some(200_000), CHUNK), 4 * CHUNK);
        assert_eq!(batch(Some(200_000), 512), 39 * 512);
        assert_eq!(batch(Some(1), CHUNK), CHUNK);
    }

    #[test]
    fn senders_share_window_and_pace() {
        let tuning = Tuning {
            pace: Some(1000),
            ..Tuning::default()
        };
        let share = tuning.shared_by(7);
        assert_eq!((share.window, share.pace), (WINDOW / 7, Some(142)));
        assert_eq!(share.batch, tuning.batch);
        assert_eq!(tuning.shared_by(1001).pace, Some(1));
        assert_eq!(Tuning::default().shared_by(2).pace, None);
    }
}
