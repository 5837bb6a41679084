//! The rules of an item stream, checked before anything is done with an item.
//!
//! The stream comes from another process: what it says is refused unless it is
//! exactly what [`crate::bcast::item`] allows.

use std::path::PathBuf;

use crate::bcast::item::Digest;
use crate::bcast::item::Entry;
use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::MAX_DEPTH;
use crate::file::MAX_HOLE;
use crate::file::digest::Hasher;
use crate::file::error::FileError;

/// Largest offset of a file: an `off_t`.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Where a stream is.
pub(super) struct Order {
    state: State,
    entries: u32,
    bytes: u64,
}

enum State {
    /// Between two entries.
    Between,
    /// In an entry.
    In(Box<Open>),
    /// After `Fin`.
    Finished,
}

struct Open {
    path: RawName,
    kind: EntryKind,
    size: Option<u64>,
    offset: u64,
    hasher: Hasher,
}

impl Order {
    pub(super) fn new() -> Order {
        Order {
            state: State::Between,
            entries: 0,
            bytes: 0,
        }
    }

    /// `Fin` has been seen.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// Entries so far.
    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes in the entries so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An entry begins.
    pub(super) fn begin(&mut self, entry: &Entry) -> Result<(), FileError> {
        match &self.state {
            State::Between => {}
            State::In(open) => return Err(bad(&open.path, "it has no end")),
            State::Finished => return Err(bad(&entry.path, "it comes after the end")),
        }
        check_path(&entry.path)?;
        let carries_data = entry.kind == EntryKind::File;
        if !carries_data && entry.size.unwrap_or(0) != 0 {
            return Err(bad(&entry.path, "it cannot have a size"));
        }
        if entry.size.is_some_and(|size| size > MAX_OFFSET) {
            return Err(FileError::new(
                Errno::EFBIG,
                "receive",
                entry.path.as_path(),
            ));
        }
        match (&entry.target, entry.kind) {
            (None, EntryKind::File | EntryKind::Dir) => {}
            (Some(target), EntryKind::Symlink) => {
                if target.is_empty() || target.as_bytes().contains(&0) {
                    return Err(bad(&entry.path, "it has a bad target"));
                }
            }
            (Some(target), EntryKind::Hardlink) => check_path(target)?,
            (None, _) => return Err(bad(&entry.path, "it has no target")),
            (Some(_), _) => return Err(bad(&entry.path, "it cannot have a target")),
        }
        self.entries = self
            .entries
            .checked_add(1)
            .ok_or_else(|| bad(&entry.path, "there are too many entries"))?;
        self.state = State::In(Box::new(Open {
            path: entry.path.clone(),
            kind: entry.kind,
            size: entry.size,
            offset: 0,
            hasher: Hasher::default(),
        }));
        Ok(())
    }

    /// `bytes` come at `offset`.
    pub(super) fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let open = self.advance(offset, bytes.len() as u64)?;
        open.hasher.update(bytes);
        Ok(())
    }

    /// `len` zeros come at `offset`.
    pub(super) fn hole(&mut self, offset: u64, len: u64) -> Result<(), FileError> {
        let open = self.advance(offset, len)?;
        if len > MAX_HOLE {
            return Err(bad(&open.path, "a hole is too long"));
        }
        open.hasher.update_zeros(len);
        Ok(())
    }

    fn advance(&mut self, offset: u64, len: u64) -> Result<&mut Open, FileError> {
        let State::In(open) = &mut self.state else {
            return Err(bad_stream("data belong to no entry"));
        };
        if open.kind != EntryKind::File {
            return Err(bad(&open.path, "data where there can be none"));
        }
        if len == 0 {
            return Err(bad(&open.path, "empty data"));
        }
        if offset != open.offset {
            let wanted = open.offset;
            let why = format!("offset {offset} where {wanted} was due");
            return Err(bad(&open.path, why));
        }
        let end = offset.checked_add(len).filter(|end| *end <= MAX_OFFSET);
        let Some(end) = end else {
            return Err(FileError::new(Errno::EFBIG, "receive", open.path.as_path()));
        };
        if open.size.is_some_and(|size| end > size) {
            return Err(bad(&open.path, "more data than announced"));
        }
        open.offset = end;
        Ok(open)
    }

    /// The entry ends; its length and digest must be these.
    pub(super) fn end(&mut self, size: u64, digest: &Digest) -> Result<(), FileError> {
        let State::In(open) = &self.state else {
            return Err(bad_stream("an end belongs to no entry"));
        };
        let announced = open.size.unwrap_or(size);
        if size != open.offset || announced != open.offset {
            let offset = open.offset;
            let error = FileError::new(Errno::EBADMSG, "verify", open.path.as_path());
            return Err(error.with_hint(format!(
                "{offset} bytes came, {size} of {announced} were sent"
            )));
        }
        if open.hasher.finish() != *digest {
            return Err(
                FileError::new(Errno::EBADMSG, "verify", open.path.as_path())
                    .with_hint("the contents are not what was sent: the digest differs"),
            );
        }
        self.bytes = self
            .bytes
            .checked_add(size)
            .ok_or_else(|| bad(&open.path, "too much data"))?;
        self.state = State::Between;
        Ok(())
    }

    /// The stream ends after so many entries and bytes.
    pub(super) fn finish(&mut self, entries: u32, bytes: u64) -> Result<(), FileError> {
        match &self.state {
            State::Between => {}
            State::In(open) => return Err(bad(&open.path, "it has no end")),
            State::Finished => return Err(bad_stream("it ends twice")),
        }
        if (entries, bytes) != (self.entries, self.bytes) {
            let (came, came_bytes) = (self.entries, self.bytes);
            let error = bad_stream(format!(
                "{came} entries with {came_bytes} bytes came, {entries} with {bytes} were sent"
            ));
            return Err(error);
        }
        self.state = State::Finished;
        Ok(())
    }
}

/// A path must be as in [`Entry::path`]; nothing else may ever be opened.
fn check_path(path: &RawName) -> Result<(), FileError> {
    let bytes = path.as_bytes();
    let parts = || bytes.split(|byte| *byte == b'/');
    if bytes.contains(&0)
        || parts().any(|part| part.is_empty() || part == b"." || part == b"..")
    {
        return Err(FileError::new(Errno::EINVAL, "receive", path.as_path())
            .with_hint("such a path is never sent"));
    }
    if parts().count() > MAX_DEPTH {
        return Err(FileError::new(
            Errno::ENAMETOOLONG,
            "receive",
            path.as_path(),
        ));
    }
    Ok(())
}

fn bad(path: &RawName, why: impl Into<String>) -> FileError {
    FileError::new(Errno::EPROTO, "receive", path.as_path()).with_hint(why.into())
}

fn bad_stream(why: impl Into<String>) -> FileError {
    FileError::new(Errno::EPROTO, "receive", &PathBuf::from("the transfer"))
        .with_hint(why.into())
}
