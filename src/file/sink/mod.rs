//! Writing the copies: staged, verified, then put in place at one go.
//!
//! Data is always staged in the directory that it goes into, so that putting it
//! in place is a matter of names. That takes permission to write the directory
//! even for appending to a file in it, or overwriting one.
//!
//! # Several shells with one destination
//!
//! Shells on one host, or on one shared file system, may have the same
//! absolute destination. Each stages its own data, so the last rename wins with
//! `Existing::Replace`, and all contents are the same. With `Existing::Refuse`
//! only one can create the name. The others, on `EEXIST` at their commit,
//! compare what is there with what they hold: same kind, owner, mode, size and
//! contents (and for a directory the same of everything in it, nothing more or
//! less) is success. This is sound: each found the name free when it opened,
//! before any could commit, so what is there now was put there during the
//! transfer; nothing was replaced, and the caller has just what was asked for
//! at the path. What it is not is mutual exclusion between two different
//! transfers of equal contents at the same moment: both succeed.

mod copy;
mod entry;
mod inplace;
mod merge;
mod order;
mod publish;
mod record;
mod same;
mod tree;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::fs::Timestamps;

use crate::bcast::item::Digest;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Item;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Existing;
use crate::bcast::spec::Policy;
use crate::errno::Errno;

use super::at;
use super::error::FileError;
use super::error::On;
use super::place::Missing;
use super::place::Place;
use super::space;
use super::stage;
use super::stage::Stage;
use super::stage::Way;

pub use record::Committed;
pub use record::Inner;
pub use record::Prepared;
pub use record::Stamp;

pub(super) use copy::check_existing;
pub(super) use same::digest_of;

use copy::Body;
use copy::Copy;
use order::Order;

/// A staging directory shows that it is in use after so many bytes.
const TOUCH_BYTES: u64 = 64 << 20;

/// Who is writing.
#[derive(Clone, Debug)]
pub struct Context {
    /// The transfer's id in hexadecimal.
    pub transfer: String,
    /// This shell's rank.
    pub rank: u32,
}

/// A destination that is being written. Dropping it without a commit removes
/// all it has made.
pub struct Sink {
    transfer: String,
    place: Place,
    stage: Stage,
    policy: Policy,
    order: Order,
    copies: Vec<Copy>,
    by_name: HashMap<RawName, usize>,
    current: Option<Writing>,
    phase: Phase,
    untouched: u64,
    /// Files are flushed even if the caller does not care for a crash.
    flush: bool,
}

/// How far a sink has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Receiving,
    Prepared,
    Failed,
}

/// The entry that is being written.
struct Writing {
    /// Index of the top-level copy.
    copy: usize,
    /// Path below it.
    rel: PathBuf,
    /// Path as reported in errors.
    shown: PathBuf,
    kind: EntryKind,
    /// For a regular file.
    fd: Option<OwnedFd>,
    /// The file reaches up to here on disk; less than its length after a hole.
    on_disk: u64,
    mode: Mode,
    times: Option<Timestamps>,
}

impl Sink {
    /// Opens the destination; `base` is the job's temporary directory on this
    /// node. With `dest.mkdir` or `dest.unique` makes directories, which are
    /// removed again unless the transfer is committed.
    ///
    /// # Errors
    /// `EPERM` for a destination that leads out of `base`, `ENOENT` naming the
    /// missing directory, `EISDIR`, `EEXIST` after `policy.existing`, `EACCES`
    /// or `EROFS` for a directory that cannot be written, and whatever the
    /// system says.
    pub fn open(
        base: &Path,
        dest: &Dest,
        policy: &Policy,
        context: &Context,
    ) -> Result<Sink, FileError> {
        let options = (Way::Unnamed, stage::STALE_SECONDS);
        Sink::open_with(base, dest, policy, context, options)
    }

    pub(super) fn open_with(
        base: &Path,
        dest: &Dest,
        policy: &Policy,
        context: &Context,
        (way, stale_seconds): (Way, i64),
    ) -> Result<Sink, FileError> {
        // It becomes a part of file names; it is the caller's, but cheap to check.
        let hex = |byte: u8| byte.is_ascii_hexdigit();
        let id = &context.transfer;
        if id.is_empty() || id.len() > 64 || !id.bytes().all(hex) {
            return Err(
                FileError::new(Errno::EINVAL, "open", base).with_hint("bad transfer id")
            );
        }
        let place = Place::find(base, dest, id, Missing::Make)?;
        let owner = format!("{id}.{}", context.rank);
        let sink = Sink {
            transfer: id.clone(),
            flush: space::defers_errors(place.fd()),
            place,
            stage: Stage::new(&owner, way, stale_seconds),
            policy: policy.clone(),
            order: Order::new(),
            copies: Vec::new(),
            by_name: HashMap::new(),
            current: None,
            phase: Phase::Receiving,
            untouched: 0,
        };
        if let Some(name) = &sink.place.name {
            // The name is known before any entry is: fail before any is sent.
            copy::check_name(name, &sink.place.shown)?;
            copy::check_existing(&sink.place, name, EntryKind::File, &sink.policy)?;
        }
        space::check_writable(sink.place.fd(), &sink.place.shown)?;
        Ok(sink)
    }

    /// Fails with `ENOSPC`, telling the numbers, if `bytes` more do not fit:
    /// [`super::Totals::allocated`] of the source, as far as it is known.
    pub fn expect(&self, bytes: u64) -> Result<(), FileError> {
        space::check(self.place.fd(), &self.place.shown, bytes)
    }

    /// Fails with `EEXIST` if one of these copies, named as their sources, is
    /// there already and is not to be replaced: each entry is checked when it
    /// comes, but to know it before the first spares a transfer.
    pub fn expect_names(&self, names: &[RawName]) -> Result<(), FileError> {
        if self.policy.existing != Existing::Refuse || self.place.name.is_some() {
            return Ok(());
        }
        for name in names {
            let name = name.as_os_str();
            // What is elsewhere is none of the asker's business.
            if Path::new(name).file_name() != Some(name) {
                let error = FileError::new(Errno::EINVAL, "open", &self.place.shown);
                return Err(error.with_hint("a copy's name with a directory in it"));
            }
            copy::check_existing(&self.place, name, EntryKind::File, &self.policy)?;
        }
        Ok(())
    }

    /// The directory that the copies go into, as the kernel knows it.
    pub fn directory(&self) -> &Path {
        &self.place.real
    }

    /// Takes the next item. After an error the sink only waits to be dropped.
    ///
    /// # Errors
    /// `EPROTO` or `EINVAL` for an item that cannot come here, `EBADMSG` for a
    /// wrong length or digest, those of [`Sink::open`] for a top-level entry
    /// that cannot be put in its place, and whatever the system says.
    pub fn item(&mut self, item: Item<'_>) -> Result<(), FileError> {
        if self.phase != Phase::Receiving {
            return Err(self.misused("it takes no more items"));
        }
        let done = self.take(item);
        if done.is_err() {
            self.phase = Phase::Failed;
        }
        done
    }

    fn take(&mut self, item: Item<'_>) -> Result<(), FileError> {
        match item {
            Item::Entry(entry) => {
                self.order.begin(&entry)?;
                let writing = self.begin(&entry)?;
                self.current = Some(writing);
                Ok(())
            }
            Item::Data { offset, bytes } => {
                self.order.data(offset, bytes)?;
                self.write(offset, bytes)
            }
            Item::Hole { offset, len } => self.order.hole(offset, len),
            Item::End { size, digest } => {
                self.order.end(size, &digest)?;
                self.end(size, digest)
            }
            Item::Fin { entries, bytes } => self.order.finish(entries, bytes),
        }
    }

    fn misused(&self, why: &'static str) -> FileError {
        FileError::new(Errno::EPROTO, "receive", &self.place.shown).with_hint(why)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let Some(writing) = &mut self.current else {
            return Err(self.misused("data belong to no entry"));
        };
        let Some(fd) = &writing.fd else {
            return Err(self.misused("data where there can be none"));
        };
        at::write_all(fd.as_fd(), bytes, offset).map_err(|errno| {
            let error = FileError::new(errno, "write", &writing.shown);
            space::explain(error, self.place.dir.as_fd())
        })?;
        writing.on_disk = offset + bytes.len() as u64;
        self.untouched += bytes.len() as u64;
        if self.untouched >= TOUCH_BYTES {
            self.untouched = 0;
            self.stage.touch();
        }
        Ok(())
    }

    fn end(&mut self, size: u64, digest: Digest) -> Result<(), FileError> {
        let Some(writing) = self.current.take() else {
            return Err(self.misused("an end belongs to no entry"));
        };
        let shown = &writing.shown;
        let mut stamp = None;
        if let Some(fd) = &writing.fd {
            if writing.on_disk < size {
                rustix::fs::ftruncate(fd, size).on("truncate", shown)?;
            }
            if let Some(times) = &writing.times {
                rustix::fs::futimens(fd, times).on("utimensat", shown)?;
            }
            rustix::fs::fchmod(fd, writing.mode).on("chmod", shown)?;
            if self.policy.sync || self.flush {
                rustix::fs::fsync(fd).on("sync", shown)?;
            }
            stamp = Some(Stamp::of(&rustix::fs::fstat(fd).on("stat", shown)?));
        }
        let Some(copy) = self.copies.get_mut(writing.copy) else {
            return Err(self.misused("an end belongs to no copy"));
        };
        copy.bytes = copy.bytes.saturating_add(size);
        if writing.kind == EntryKind::File {
            match &mut copy.body {
                Body::Tree(tree) => tree.note(&writing.rel, EntryKind::File, stamp),
                Body::File(_) | Body::Symlink(..) => copy.digest = Some(digest),
            }
        }
        Ok(())
    }

    /// Makes all ready to be put in place, after `Fin`. Nothing can be seen yet.
    ///
    /// # Errors
    /// `EPROTO` before `Fin`; those of [`Sink::item`].
    pub fn prepare(&mut self) -> Result<Prepared, FileError> {
        if self.phase != Phase::Receiving || !self.order.is_finished() {
            return Err(self.misused("it is not complete"));
        }
        let done = self.finish_copies();
        self.phase = match done {
            Ok(()) => Phase::Prepared,
            Err(_) => Phase::Failed,
        };
        done.map(|()| Prepared {
            entries: self.order.entries(),
            bytes: self.order.bytes(),
        })
    }

    fn finish_copies(&mut self) -> Result<(), FileError> {
        for copy in &mut self.copies {
            if let Body::Tree(tree) = &mut copy.body {
                merge::check(&self.place, &copy.name, tree, &copy.shown)?;
                tree.finish(self.policy.sync, &copy.shown)?;
            }
        }
        if self.policy.sync {
            self.place.sync_made()?;
        }
        Ok(())
    }

    /// Puts the copies in their places, and reports one for each source.
    ///
    /// If one of several fails, those already created are removed again; what
    /// was replaced, appended to or overwritten cannot be undone.
    ///
    /// # Errors
    /// `EPROTO` before [`Sink::prepare`]; those of [`Sink::open`].
    pub fn commit(mut self) -> Result<Vec<Committed>, FileError> {
        if self.phase != Phase::Prepared {
            return Err(self.misused("it is not prepared"));
        }
        self.phase = Phase::Failed;
        let committed = self.publish()?;
        self.stage.clear(self.place.dir.as_fd());
        self.place.keep();
        Ok(committed)
    }

    /// Removes all that was made; as dropping the sink does.
    pub fn abort(self) {
        drop(self);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.current = None;
        self.copies.clear();
        self.stage.clear(self.place.dir.as_fd());
        self.place.unmake();
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink")
            .field("place", &self.place)
            .field("copies", &self.copies)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
