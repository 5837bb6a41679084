//! Reading what is to be copied, as the items of a transfer.
//!
//! Opening a source walks everything once, so that what cannot be copied is
//! known, with the totals, before anything is sent. Memory grows with the
//! number of entries (some 200 bytes and the path each), not with their size.
//!
//! What travels is kind, contents, permission bits, times of modification and
//! access, and which names are one file. Owners, access control lists and
//! extended attributes stay behind: the copies belong to whoever writes them.

mod input;
mod reader;
mod stream;
mod walk;

use std::collections::HashSet;

use crate::bcast::item::Entry;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Item;
use crate::bcast::name::RawName;
use crate::errno::Errno;

use super::digest::Hasher;
use super::error::FileError;

pub use input::Follow;
pub use input::Input;
pub use input::Origin;

use input::Top;
use reader::Piece;
use reader::Reader;
use walk::Found;
use walk::What;

/// What to read.
#[derive(Debug, Default)]
pub struct SourceSpec {
    /// The sources, in the order in which they are sent.
    pub inputs: Vec<Input>,
    /// Directories are copied with everything in them; else they are refused.
    pub recursive: bool,
    /// Which symbolic links are followed rather than copied.
    pub follow: Follow,
    /// Bytes per chunk: offsets and lengths of `Data` are multiples of it, but
    /// for the end of an entry. 0 is taken as 4096.
    pub chunk: u32,
}

/// How much there is to read, as far as it is known beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many entries.
    pub entries: u32,
    /// Sum of the sizes; what has no size beforehand counts as 0.
    pub bytes: u64,
    /// As `bytes`, but of a sparse file only what takes up space.
    pub allocated: u64,
    /// Every size is known.
    pub exact: bool,
}

/// A source that is being read; see [`crate::bcast::item`] for the order of
/// its items.
pub struct Source {
    tops: Vec<Top>,
    found: Vec<Found>,
    chunk: u64,
    totals: Totals,
    /// Index in `found` of the entry that is next or being read.
    next: usize,
    /// The entry has begun; a reader for what carries data.
    current: Option<Option<Reader>>,
    sent_bytes: u64,
    done: bool,
}

impl Source {
    /// Looks at all inputs and opens the first ones.
    ///
    /// # Errors
    /// `EISDIR` for a directory without `recursive`, `EINVAL` for what is no
    /// regular file, directory or link (or has no name), `EEXIST` for two
    /// inputs of one name, `ENAMETOOLONG` for too deep a directory, `ELOOP` for
    /// a directory that contains itself by followed links, and whatever the
    /// system says.
    pub fn open(spec: SourceSpec) -> Result<Source, FileError> {
        let chunk = u64::from(if spec.chunk == 0 { 4096 } else { spec.chunk });
        let keep_open = spec.inputs.len() <= input::KEEP_OPEN;
        let mut tops = Vec::new();
        let mut found = Vec::new();
        let mut names = HashSet::new();
        for (index, input) in spec.inputs.into_iter().enumerate() {
            let (top, first) = input::look(input, index, spec.follow, keep_open)?;
            if !names.insert(top.name.clone()) {
                let error = FileError::new(Errno::EEXIST, "send", &top.shown);
                let name = &top.name;
                return Err(error.with_hint(format!("another source is called {name}, too")));
            }
            if matches!(first.what, What::Dir) && !spec.recursive {
                let error = FileError::new(Errno::EISDIR, "read", &top.shown);
                return Err(error.with_hint("directories are copied only on request"));
            }
            tops.push(top);
            found.push(first);
        }
        let found = walk::expand(&tops, found, spec.follow)?;
        let totals = totals(&found)?;
        Ok(Source {
            tops,
            found,
            chunk,
            totals,
            next: 0,
            current: None,
            sent_bytes: 0,
            done: false,
        })
    }

    /// How much there is to read.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The names of the copies, one for each input, in order.
    pub fn names(&self) -> impl Iterator<Item = &RawName> {
        self.tops.iter().map(|top| &top.name)
    }

    /// Those of them that are directories.
    pub fn dirs(&self) -> impl Iterator<Item = &RawName> {
        let dirs = self
            .tops
            .iter()
            .filter(|top| matches!(top.from, input::From::Dir(_)));
        dirs.map(|top| &top.name)
    }

    /// The next item; `None` after `Fin`.
    ///
    /// `Data` has at most `max` bytes (rounded down to whole chunks, at least
    /// one) and borrows `buf`, which is resized as needed and meant to be passed
    /// again. Blocks while an input stream has nothing to say. After an error
    /// the source is of no further use.
    ///
    /// # Errors
    /// `ESTALE` if a file was changed while being read, else what read(2) says.
    pub fn next<'b>(
        &mut self,
        buf: &'b mut Vec<u8>,
        max: usize,
    ) -> Result<Option<Item<'b>>, FileError> {
        if self.done {
            return Ok(None);
        }
        let Some(found) = self.found.get(self.next) else {
            self.done = true;
            return Ok(Some(Item::Fin {
                entries: self.totals.entries,
                bytes: self.sent_bytes,
            }));
        };
        let Some(current) = &mut self.current else {
            let top = &mut self.tops[found.top];
            let reader = match &found.what {
                What::File(file) => Some(Reader::open(top, found, file, self.chunk)?),
                _ => None,
            };
            self.current = Some(reader);
            return Ok(Some(Item::Entry(entry(&self.tops, &self.found, found))));
        };
        let piece = match current {
            Some(reader) => reader.next(buf, max)?,
            None => Piece::End {
                size: 0,
                digest: Hasher::default().finish(),
            },
        };
        Ok(Some(match piece {
            Piece::Data { offset } => Item::Data { offset, bytes: buf },
            Piece::Hole { offset, len } => Item::Hole { offset, len },
            Piece::End { size, digest } => {
                self.current = None;
                self.next += 1;
                self.sent_bytes += size;
                Item::End { size, digest }
            }
        }))
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("tops", &self.tops)
            .field("totals", &self.totals)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

fn totals(found: &[Found]) -> Result<Totals, FileError> {
    let mut totals = Totals {
        exact: true,
        ..Totals::default()
    };
    for found in found {
        if let What::File(file) = &found.what {
            totals.exact &= file.size.is_some();
            let size = file.size.unwrap_or(0);
            totals.bytes = totals.bytes.saturating_add(size);
            totals.allocated = totals.allocated.saturating_add(size.min(file.allocated));
        }
    }
    totals.entries = u32::try_from(found.len())
        .map_err(|_| FileError::new(Errno::EOVERFLOW, "send", "everything".as_ref()))?;
    Ok(totals)
}

fn entry(tops: &[Top], all: &[Found], found: &Found) -> Entry {
    let (kind, size, target) = match &found.what {
        What::File(file) => (EntryKind::File, file.size, None),
        What::Dir => (EntryKind::Dir, None, None),
        What::Symlink(target) => (EntryKind::Symlink, None, Some(target.clone())),
        What::Hardlink(index) => {
            let target = &all[*index];
            let path = target.sent_path(&tops[target.top]);
            (EntryKind::Hardlink, None, Some(path))
        }
    };
    Entry {
        path: found.sent_path(&tops[found.top]),
        kind,
        mode: found.mode,
        size,
        mtime: found.mtime,
        atime: found.atime,
        target,
    }
}
