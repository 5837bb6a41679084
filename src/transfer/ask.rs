//! What else a client may ask of shells, besides sending them files.
//!
//! Methods of the shell's service; all are JSON, but for the frames of a fetch:
//!
//! | method          | request     | answer                                      |
//! |-----------------|-------------|---------------------------------------------|
//! | `bcast.inspect` | [`Inspect`] | [`Inspection`]                              |
//! | `bcast.has`     | [`Has`]     | [`Had`]                                     |
//! | `bcast.list`    | an object   | [`Listing`]                                 |
//! | `bcast.remove`  | [`Remove`]  | [`Removed`]                                 |
//! | `bcast.from`    | [`From`]    | stream of [`Told`], ends after `Told::Ended`|
//! | `bcast.fetch`   | [`Fetch`]   | stream of frames, ends after `Fin`          |
//! | `bcast.credit`  | [`Credit`]  | none                                        |

use serde::Deserialize;
use serde::Serialize;

use crate::bcast::id::TransferId;
use crate::bcast::message::Plan;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::Tuning;
use crate::bcast::name::RawName;
use crate::bcast::report::Failure;
use crate::bcast::report::RankResult;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::errno::Errno;
use crate::file::Committed;
use crate::file::Inspection;
use crate::units::show_size;

/// What would a transfer find?
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// Version of the protocol.
    pub version: u32,
    /// Where the copies would go.
    pub dest: Dest,
    /// How they would be made.
    pub policy: Policy,
    /// Their names.
    pub names: Vec<RawName>,
    /// Those of them that are directories.
    #[serde(default)]
    pub dirs: Vec<RawName>,
}

/// Why a transfer of `bytes` would fail where this was found; errno(3) value
/// and one line for people.
pub fn objection(found: &Inspection, bytes: u64) -> Option<(i32, String)> {
    for copy in &found.copies {
        if let Some((errno, text)) = &copy.refused {
            return Some((errno.raw(), text.clone()));
        }
    }
    if !found.writable {
        let text = format!("{}: {}", found.directory, Errno::EACCES);
        return Some((libc::EACCES, text));
    }
    if found.free < bytes {
        let text = format!(
            "{}: {} ({} are free, {} are needed)",
            found.directory,
            Errno::ENOSPC,
            show_size(found.free),
            show_size(bytes)
        );
        return Some((libc::ENOSPC, text));
    }
    None
}

/// Are copies there already that have these contents?
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Has {
    /// Version of the protocol.
    pub version: u32,
    /// Where the copies would go.
    pub dest: Dest,
    /// The copies.
    pub files: Vec<Known>,
}

/// A regular file by its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Name of the copy.
    pub name: RawName,
    /// Size in bytes.
    pub size: u64,
    /// BLAKE3 digest of its contents.
    pub digest: [u8; 32],
}

/// The answer to [`Has`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Had {
    /// Where the copies are, in the order of the question; none if one of them
    /// is missing or different.
    pub paths: Option<Vec<RawName>>,
}

/// What the service has put on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    /// In the order of their paths.
    pub copies: Vec<Listed>,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Absolute path.
    pub path: RawName,
    /// `file`, `dir` or `symlink`.
    pub kind: crate::bcast::item::EntryKind,
    /// Size in bytes; for a directory, of all files in it.
    pub bytes: u64,
    /// BLAKE3 digest in hexadecimal digits, for a regular file that holds what was
    /// sent and nothing else.
    pub digest: Option<String>,
    /// How many files, directories and links there are in a directory.
    pub entries: u64,
}

impl std::convert::From<&Committed> for Listed {
    fn from(copy: &Committed) -> Self {
        Self {
            path: copy.path.clone(),
            kind: copy.kind,
            bytes: copy.bytes,
            digest: copy.digest.as_ref().map(|digest| hex(digest)),
            entries: copy.inner.len() as u64,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Remove what the service has put on a node: what is named, or all of it.
/// An empty request must not be taken for the latter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Remove {
    /// Just these, absolute or below the job's temporary directory.
    pub paths: Vec<RawName>,
    /// Everything.
    pub all: bool,
}

/// The answer to [`Remove`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removed {
    /// What is gone.
    pub gone: Vec<RawName>,
    /// What could not be removed.
    pub failed: Vec<Failure>,
}

/// Send files that are on your node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct From {
    /// Version of the protocol.
    pub version: u32,
    /// The transfer's id, chosen by the client.
    pub transfer: TransferId,
    /// The sources, absolute or below the job's temporary directory.
    pub sources: Vec<RawName>,
    /// Where the copies go.
    pub dest: Dest,
    /// How they are made.
    pub policy: Policy,
    /// Which ranks get them.
    pub plan: PlanRequest,
    /// How they are fed.
    pub tuning: Tuning,
    /// Healthy ranks commit although others fail.
    pub partial: bool,
}

/// What the shell that sends tells the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// Data begins to flow.
    Started {
        /// Who takes part.
        plan: Plan,
        /// Names of the copies.
        names: Vec<RawName>,
        /// How many entries there are.
        entries: u32,
        /// Bytes of the sources.
        bytes: u64,
        /// The bytes are known exactly.
        exact: bool,
    },
    /// How far it is.
    Progress {
        /// Bytes that the slowest healthy rank has.
        bytes: u64,
        /// Ranks that have everything, verified.
        #[serde(default)]
        ranks: u32,
    },
    /// The end.
    Ended {
        /// Every rank's outcome; empty if it did not come to a transfer.
        results: Vec<RankResult>,
        /// Why it was called off or never began.
        why: Option<Failure>,
    },
}

/// Read files on your node and send them to me.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    /// Version of the protocol.
    pub version: u32,
    /// The transfer's id, chosen by the client for this rank.
    pub transfer: TransferId,
    /// The sources, absolute or below the job's temporary directory.
    pub sources: Vec<RawName>,
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Most bytes of data in a frame.
    pub batch: u32,
    /// Bytes of frames that may be on their way.
    pub window: u64,
    /// Bytes of frames per second; none: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<u64>,
    /// Seconds without a sign of life (credit, a ping) after which the client
    /// counts as gone.
    pub stall: f64,
}

/// So much of a fetch is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credit {
    /// The transfer's id.
    pub transfer: TransferId,
    /// Bytes of frames.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Found;

    #[test]
    fn what_would_fail() {
        let good = Inspection {
            directory: "/d".into(),
            make: false,
            writable: true,
            free: 100,
            copies: vec![],
        };
        assert_eq!(objection(&good, 100), None);
        let (errno, text) = objection(&good, 101).unwrap();
        assert_eq!(errno, libc::ENOSPC);
        assert!(text.starts_with("/d: "), "{text}");
        let closed = Inspection {
            writable: false,
            ..good.clone()
        };
        assert_eq!(objection(&closed, 1).unwrap().0, libc::EACCES);
        let taken = Inspection {
            copies: vec![Found {
                path: "/d/f".into(),
                exists: true,
                size: 3,
                refused: Some((Errno::EEXIST, "/d/f: there".into())),
            }],
            ..good
        };
        assert_eq!(
            objection(&taken, 1),
            Some((libc::EEXIST, "/d/f: there".into()))
        );
    }
}
