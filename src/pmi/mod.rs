//! A PMI-1 provider (simple PMI, wire versions 1.1 and 1.2) for clients that
//! connect over TCP with `PMI_PORT` and `PMI_ID`.
//!
//! Everything here is a state machine without I/O and without a clock: bytes,
//! deadlines and the exits of tasks go in, [`Action`]s come out. The job-shell
//! plugin, the stand-alone server and the simulator drive the same code.
//!
//! ```text
//!  bytes ─▶ lines ─▶ wire ─▶ session ┐                 ┌ names   (on shell 0)
//!                                    ├ server ─ provider
//!                     kvs, barrier ──┘                 └ exchange ─▶ other shells
//! ```
//!
//! - A **connection** is one TCP stream. It belongs to a rank and a lane once
//!   its first line, `cmd=initack pmiid=N`, has been accepted.
//! - A **lane** keeps independent clients of one rank apart (a library and an
//!   interposer, two threads): `pmiid = id of the rank + size × lane`. Each
//!   lane has its own key space and its own barriers.
//! - A **round** is the exchange behind one barrier: new keys are gathered up
//!   a k-ary tree over the shells, the merged dictionary goes back down.
//!
//! Replies keep to what every known client accepts: `rc=` on each of them, the
//! value last, no blanks in messages, lines of at most 1023 bytes.

#![forbid(unsafe_code)]

mod barrier;
pub mod client;
mod exchange;
mod ids;
mod kvs;
mod lines;
pub mod mapping;
mod names;
mod peer;
mod presence;
mod provider;
mod reply;
mod server;
mod session;
mod wire;

pub use exchange::BATCH_BYTES;
pub use ids::IdPolicy;
pub use ids::Ids;
pub use lines::LINE_MAX;
pub use lines::Lines;
pub use provider::Action;
pub use provider::Config;
pub use provider::Level;
pub use provider::Provider;
pub use server::ConnId;
pub use wire::KEY_MAX;
pub use wire::NAME_MAX;
pub use wire::VALUE_MAX;

/// What one provider may be made to hold; beyond it a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that have not yet said who they are, besides one for each rank.
    pub strangers: usize,
    /// Connections of one rank on one lane; the oldest superseded one goes.
    pub per_rank: usize,
    /// Keys in the key space of one lane.
    pub keys: usize,
    /// Bytes of keys and values in the key space of one lane.
    pub bytes: usize,
    /// Published names of the whole job.
    pub names: usize,
    /// Warnings about connections; later ones are only counted.
    pub warnings: u32,
}

impl Limits {
    /// Limits that leave a job of `size` ranks ample room.
    #[must_use]
    pub fn for_size(size: u32) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        Self {
            strangers: 128,
            per_rank: 16,
            keys: size.max(512).saturating_mul(512),
            bytes: size.max(512).saturating_mul(128 * 1024),
            names: 4096,
            warnings: 32,
        }
    }
}
