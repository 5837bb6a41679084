//! Writing the copies: staged, verified, then put in place at one go.
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

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::Timespec;
use rustix::fs::Timestamps;

use crate::bcast::item::Digest;
use crate::bcast::item::Entry;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Item;
use crate::bcast::item::Time;
use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
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
use super::stage::Temp;
use super::stage::Way;

pub use record::Committed;
pub use record::Inner;
pub use record::Prepared;
pub use record::Stamp;

use copy::Body;
use copy::Copy;
use order::Order;
use tree::DirMeta;
use tree::Tree;

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
    place: Place,
    stage: Stage,
    policy: Policy,
    order: Order,
    copies: Vec<Copy>,
    by_name: HashMap<RawName, usize>,
    current: Option<Writing>,
    phase: Phase,
    untouched: u64,
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
        space::check_writable(sink.place.fd(), &sink.place.shown)?;
        if let Some(name) = &sink.place.name {
            // The name is known before any entry is: fail before any is sent.
            copy::check_name(name, &sink.place.shown)?;
            copy::check_existing(&sink.place, name, EntryKind::File, &sink.policy)?;
        }
        Ok(sink)
    }

    /// Fails with `ENOSPC`, telling the numbers, if `bytes` more do not fit:
    /// [`super::Totals::allocated`] of the source, as far as it is known.
    pub fn expect(&self, bytes: u64) -> Result<(), FileError> {
        space::check(self.place.fd(), &self.place.shown, bytes)
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
                let writing = self.begin(entry)?;
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

    fn begin(&mut self, entry: Entry) -> Result<Writing, FileError> {
        let path = entry.path.as_path();
        let mut parts = path.components();
        let top = parts.next().map(|part| part.as_os_str());
        let top = top.unwrap_or_default();
        let rel = parts.as_path().to_path_buf();
        let top = RawName::from(Path::new(top));
        let mut writing = Writing {
            copy: 0,
            rel,
            shown: PathBuf::new(),
            kind: entry.kind,
            fd: None,
            on_disk: 0,
            mode: self.mode(&entry),
            times: self.times(&entry),
        };
        if writing.rel.as_os_str().is_empty() {
            self.begin_copy(top, &entry, &mut writing)?;
        } else {
            self.begin_inner(&top, &entry, &mut writing)?;
        }
        Ok(writing)
    }

    fn mode(&self, entry: &Entry) -> Mode {
        let mode = match (entry.kind, self.policy.mode) {
            (EntryKind::File, Some(mode)) => mode,
            _ => entry.mode,
        };
        Mode::from_raw_mode(mode & 0o777)
    }

    fn times(&self, entry: &Entry) -> Option<Timestamps> {
        let mtime = entry.mtime.filter(|_| self.policy.times)?;
        Some(Timestamps {
            last_access: timespec(entry.atime.unwrap_or(mtime)),
            last_modification: timespec(mtime),
        })
    }

    /// A source begins.
    fn begin_copy(
        &mut self,
        top: RawName,
        entry: &Entry,
        writing: &mut Writing,
    ) -> Result<(), FileError> {
        let name = match &self.place.name {
            Some(name) if self.copies.is_empty() => name.clone(),
            Some(name) => {
                let path = self.place.shown.join(name);
                return Err(FileError::new(Errno::ENOTDIR, "open", &path)
                    .with_hint("several sources need a directory as destination"));
            }
            None => top.as_os_str().to_os_string(),
        };
        let shown = self.place.shown.join(&name);
        copy::check_name(&name, &self.place.shown)?;
        if self.by_name.contains_key(&top) {
            let error = FileError::new(Errno::EEXIST, "receive", &shown);
            return Err(error.with_hint("it was sent twice"));
        }
        copy::check_existing(&self.place, &name, entry.kind, &self.policy)?;
        let place = self.place.dir.as_fd();
        let target = entry.target.clone().unwrap_or_default();
        let body = match entry.kind {
            EntryKind::File => {
                let (fd, temp) = self.stage.file(place, &shown)?;
                writing.fd = Some(fd);
                Body::File(temp)
            }
            EntryKind::Symlink => Body::Symlink(target, writing.times.clone()),
            EntryKind::Dir => {
                let (root, name) = self.stage.subdir(place, &shown)?;
                let meta = DirMeta {
                    rel: RawName::default(),
                    mode: writing.mode,
                    times: writing.times.clone(),
                };
                Body::Tree(Tree::new(root, name, meta))
            }
            EntryKind::Hardlink => {
                let name = self.stage.next_name();
                let dir = self.stage.dir(place, &shown)?;
                let dir = dir.try_clone_to_owned();
                let dir = dir.map_err(|error| FileError::new(error, "link", &shown))?;
                self.link_staged(&target, dir.as_fd(), &name, &shown)?;
                Body::File(Temp::Named(name))
            }
        };
        writing.copy = self.copies.len();
        writing.shown.clone_from(&shown);
        self.by_name.insert(top, self.copies.len());
        self.copies.push(Copy {
            name,
            shown,
            body,
            bytes: 0,
            digest: None,
        });
        Ok(())
    }

    /// An entry below a copied directory begins.
    fn begin_inner(
        &mut self,
        top: &RawName,
        entry: &Entry,
        writing: &mut Writing,
    ) -> Result<(), FileError> {
        let index = self.by_name.get(top).copied();
        let copy = index.and_then(|index| self.copies.get_mut(index));
        let (Some(index), Some(copy)) = (index, copy) else {
            return Err(
                FileError::new(Errno::EPROTO, "receive", entry.path.as_path())
                    .with_hint("its directory was not sent"),
            );
        };
        writing.copy = index;
        writing.shown = copy.shown.join(&writing.rel);
        let shown = &writing.shown;
        let Body::Tree(tree) = &mut copy.body else {
            return Err(FileError::new(Errno::ENOTDIR, "receive", shown));
        };
        let target = entry.target.clone().unwrap_or_default();
        match entry.kind {
            EntryKind::File => {
                let (dir, name) = tree.parent(&writing.rel, shown)?;
                writing.fd = Some(stage::create(dir, Path::new(name)).on("open", shown)?);
            }
            EntryKind::Dir => {
                tree.mkdir(&writing.rel, writing.mode, writing.times.clone(), shown)?;
            }
            EntryKind::Symlink => {
                tree.symlink(&writing.rel, &target, writing.times.as_ref(), shown)?;
            }
            EntryKind::Hardlink => {
                let (dir, name) = tree.parent(&writing.rel, shown)?;
                let dir = dir.try_clone_to_owned();
                let dir = dir.map_err(|error| FileError::new(error, "link", shown))?;
                self.link_staged(&target, dir.as_fd(), Path::new(name), shown)?;
                let stat = at::lstat(dir.as_fd(), Path::new(name)).on("stat", shown)?;
                if let Some(Body::Tree(tree)) =
                    self.copies.get_mut(index).map(|copy| &mut copy.body)
                {
                    tree.note(&writing.rel, EntryKind::Hardlink, Some(Stamp::of(&stat)));
                }
            }
        }
        Ok(())
    }

    /// Gives the regular file that came earlier as `target` another name in the
    /// staging directory or a tree.
    fn link_staged(
        &mut self,
        target: &RawName,
        dir: std::os::fd::BorrowedFd<'_>,
        name: &Path,
        shown: &Path,
    ) -> Result<(), FileError> {
        let unknown = || {
            FileError::new(Errno::EPROTO, "link", shown)
                .with_hint(format!("no file {target} was sent before"))
        };
        let mut parts = target.as_path().components();
        let top = parts
            .next()
            .map(|part| RawName::from(Path::new(part.as_os_str())));
        let index = top.and_then(|top| self.by_name.get(&top).copied());
        let stage_dir = self.stage.existing_dir();
        let copy = index.and_then(|index| self.copies.get_mut(index));
        let rel = parts.as_path();
        let whole = rel.as_os_str().is_empty();
        match copy.map(|copy| &mut copy.body) {
            Some(Body::File(Temp::Unnamed(fd))) if whole => {
                let from = at::proc_path(fd.as_fd());
                rustix::fs::linkat(CWD, from, dir, name, AtFlags::SYMLINK_FOLLOW)
                    .on("link", shown)
            }
            Some(Body::File(Temp::Named(from))) if whole => {
                let from_dir = stage_dir.ok_or_else(unknown)?;
                rustix::fs::linkat(from_dir, &*from, dir, name, AtFlags::empty())
                    .on("link", shown)
            }
            Some(Body::Tree(tree)) if !whole => {
                let (from_dir, from) = tree.parent(rel, shown)?;
                let stat = at::lstat_opt(from_dir, Path::new(from)).on("link", shown)?;
                if !stat.is_some_and(|stat| at::kind_of(&stat) == FileType::RegularFile) {
                    return Err(unknown());
                }
                rustix::fs::linkat(from_dir, from, dir, name, AtFlags::empty())
                    .on("link", shown)
            }
            _ => Err(unknown()),
        }
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
            if self.policy.sync {
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
        self.place.keep(self.policy.sync)?;
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

fn timespec(time: Time) -> Timespec {
    // Out of range it would mean "now" or "leave", or be refused.
    Timespec {
        tv_sec: time.sec,
        tv_nsec: i64::from(time.nsec.min(999_999_999)),
    }
}
