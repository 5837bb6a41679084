//! What a transfer consists of: a stream of items, in order.
//!
//! A source produces the items and a sink consumes them; everything between
//! the two passes them on as frames (see `frame`) without looking inside. A
//! stream is
//!
//! ```text
//! { Entry { Data | Hole } End }  Fin
//! ```
//!
//! Every entry is followed by its `End`, also one that carries no data. A
//! stream without `Fin` is not complete, whatever the reason.

use serde::Deserialize;
use serde::Serialize;

use super::name::RawName;

/// Bytes of a BLAKE3 digest.
pub const DIGEST_LEN: usize = 32;

/// A BLAKE3 digest.
pub type Digest = [u8; DIGEST_LEN];

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file; its contents follow as `Data` and `Hole`.
    File,
    /// A directory; no data.
    Dir,
    /// A symbolic link to `target`; no data.
    Symlink,
    /// Another name for the earlier entry `target` (a path as in
    /// [`Entry::path`]); no data.
    Hardlink,
}

/// Seconds and nanoseconds since the epoch, as in `struct timespec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// Whole seconds, negative before the epoch.
    pub sec: i64,
    /// Nanoseconds, 0…999 999 999.
    pub nsec: u32,
}

/// One file, directory or link of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Path relative to the directory that holds the copy: one or more
    /// components joined by `/`, none of them empty, `.` or `..`, no leading or
    /// trailing `/`. The first component is the name of the source, unless the
    /// caller gives the copy another name.
    pub path: RawName,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits of the source, masked with 0o777: set-user-id,
    /// set-group-id and sticky bits never travel.
    pub mode: u32,
    /// Size in bytes when the source knows it beforehand (standard input does
    /// not). A promise: a different length at the `End` is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time of last modification of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    /// Time of last access of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atime: Option<Time>,
    /// What a link points to; absent for files and directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<RawName>,
}

/// One element of the stream. `'a` borrows the bytes of `Data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The next entry begins.
    Entry(Entry),
    /// Bytes of the current entry at `offset`. Offsets only grow and leave no
    /// gap that a `Hole` does not fill.
    Data {
        /// First byte's offset in the file.
        offset: u64,
        /// The bytes, never empty.
        bytes: &'a [u8],
    },
    /// `len` bytes of the current entry at `offset` are zero.
    Hole {
        /// First byte's offset in the file.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// The current entry is complete.
    End {
        /// Its length in bytes (0 for what carries no data).
        size: u64,
        /// BLAKE3 digest of its contents, holes read as zeros.
        digest: Digest,
    },
    /// The stream is complete.
    Fin {
        /// How many entries it had.
        entries: u32,
        /// Sum of their sizes.
        bytes: u64,
    },
}
