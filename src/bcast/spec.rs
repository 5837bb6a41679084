//! What a caller asks for: where the copies go and what may happen there.
//!
//! These are the parts of the opening request that every rank needs to act on
//! its own; they are JSON on the wire.

use serde::Deserialize;
use serde::Serialize;

use super::name::RawName;

/// What to do about an existing file, after open(2) and the design's rule that
/// nothing half-written is ever seen under its final name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Existing {
    /// Create only: an existing destination is `EEXIST`. Checked when the
    /// transfer opens and again, atomically, when it commits.
    #[default]
    Refuse,
    /// Replace an existing regular file atomically (rename over it). Anything
    /// else that exists (directory, device, …) is refused.
    Replace,
    /// Append to an existing file, or create it. Not atomic.
    Append,
    /// Overwrite in place, keeping the inode. Not atomic.
    Truncate,
}

/// Where the copy goes on each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dest {
    /// The path as the caller gave it: absolute, or relative to the job's
    /// temporary directory, which it cannot leave; `None` is that directory
    /// itself. Ending in `/` it names a directory that the sources go into,
    /// else it is the name of the copy itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<RawName>,
    /// The path names a directory even without the trailing `/`.
    pub directory: bool,
    /// Make missing parent directories (mode 0777 less umask).
    pub mkdir: bool,
    /// The service makes a new directory of its own in the job's temporary
    /// directory, the same name on every rank, and the sources go into it.
    pub unique: bool,
}

/// How the copies are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// What to do about an existing file.
    pub existing: Existing,
    /// Permission bits of regular files instead of the source's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Keep the source's modification and access times.
    pub times: bool,
    /// fsync(2) files and their directory before the commit.
    pub sync: bool,
}
