//! What a sink reports of the copies it has made.

use rustix::fs::Stat;
use serde::Deserialize;
use serde::Serialize;

use crate::bcast::item::Digest;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Time;
use crate::bcast::name::RawName;

/// What tells a file from any other, and from itself after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of last modification.
    pub mtime: Time,
}

impl Stamp {
    pub(in crate::file) fn of(stat: &Stat) -> Stamp {
        Stamp {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: Time {
                sec: stat.st_mtime,
                nsec: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
        }
    }
}

/// One file, directory or link below a copied directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inner {
    /// Path below the copied directory.
    pub path: RawName,
    /// What it is.
    pub kind: EntryKind,
    /// What it was when it was committed; `None` for directories, which change
    /// with what is in them.
    pub stamp: Option<Stamp>,
}

/// A copy that is in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// Absolute path, through symbolic links as the kernel resolved them.
    pub path: RawName,
    /// What it is.
    pub kind: EntryKind,
    /// Size in bytes; for a directory, of all files in it.
    pub bytes: u64,
    /// Digest of what was sent, for a regular file.
    pub digest: Option<Digest>,
    /// What it was right after the commit; `None` for a directory, and for a
    /// file that was appended to or overwritten in place, which is not ours.
    pub stamp: Option<Stamp>,
    /// A directory that was not there before.
    pub new_dir: bool,
    /// What was put into it, for a directory; directories that were there
    /// before are left out.
    pub inner: Vec<Inner>,
}

/// A transfer that is complete and verified, but not yet in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// How many entries.
    pub entries: u32,
    /// Sum of their sizes.
    pub bytes: u64,
}
