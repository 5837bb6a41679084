//! Files at both ends of a transfer: reading the sources, writing the copies.
//!
//! Everything here blocks, so it runs on worker threads, never on a reactor.
//! It knows neither Flux nor the network: a [`Source`] turns files into the
//! items of [`crate::bcast::item`], a [`Sink`] turns items back into files.
//!
//! # What a sink promises
//!
//! Nothing appears under a final name before [`Sink::commit`], and what appears
//! then is complete and verified. Until then the data has no name at all
//! (`O_TMPFILE`), or lives in one hidden directory next to its destination,
//! `.flux-bcast.<transfer>.<rank>`, which is locked while its owner lives, so
//! that a later transfer can tell a stale one and remove it. Items come from
//! another process and are not trusted: whatever the stream says, nothing is
//! created outside the destination.

#![forbid(unsafe_code)]

pub(crate) mod at;
mod check;
mod claim;
mod digest;
mod error;
mod place;
mod registry;
mod sink;
mod source;
mod space;
mod stage;
#[cfg(test)]
mod tests;

pub use check::Found;
pub use check::Inspection;
pub use check::already_has;
pub use check::inspect;
pub use error::FileError;
pub use registry::Registry;
pub use sink::Committed;
pub use sink::Context;
pub use sink::Inner;
pub use sink::Prepared;
pub use sink::Sink;
pub use sink::Stamp;
pub use source::Follow;
pub use source::Input;
pub use source::Origin;
pub use source::Source;
pub use source::SourceSpec;
pub use source::Totals;

/// Longest `Hole` in one item, in bytes. Hashing zeros takes time, and the
/// owner of a worker can only stop it between two items.
pub const MAX_HOLE: u64 = 256 << 20;

/// Most components of an entry's path: both ends hold one descriptor for each
/// while they go through a directory.
pub const MAX_DEPTH: usize = 256;
