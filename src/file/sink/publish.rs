//! The commit: from staging to the final names. If it fails half-way, it is taken
//! back as far as that can be done: what was created is removed, what was replaced
//! is put back.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::RenameFlags;
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::bcast::spec::Existing;
use crate::file::at;
use crate::file::error::FileError;
use crate::file::error::On;
use crate::file::place::Place;
use crate::file::stage::Stage;
use crate::file::stage::Temp;

use super::Sink;
use super::copy;
use super::copy::Body;
use super::copy::Copy;
use super::inplace;
use super::merge;
use super::record::Committed;
use super::record::Stamp;
use super::same;

/// How a copy came to its place.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The name is new.
    Created,
    /// Another shell of the same transfer was first.
    Shared,
    /// What was there was replaced. It may have this name in the staging directory
    /// now, until all is published.
    Replaced(Option<PathBuf>),
    /// The file that was there was written to.
    Written,
    /// The directory that was there was filled up; these subdirectories had
    /// been there, too.
    Merged(HashSet<RawName>),
}

/// What publishing a copy takes.
struct Publisher<'a> {
    place: &'a Place,
    stage: &'a mut Stage,
    existing: Existing,
    sync: bool,
    /// What is written to is flushed, see [`Sink`].
    flush: bool,
    /// Something may still fail after a copy is published.
    keep_replaced: bool,
}

impl Sink {
    /// Publishes the copies in order.
    pub(super) fn publish(&mut self) -> Result<Vec<Committed>, FileError> {
        let mut publisher = Publisher {
            place: &self.place,
            stage: &mut self.stage,
            existing: self.policy.existing,
            sync: self.policy.sync,
            flush: self.policy.sync || self.flush,
            keep_replaced: self.policy.sync || self.copies.len() > 1,
        };
        let mut done = Vec::new();
        let mut publish = || {
            let mut committed = Vec::with_capacity(self.copies.len());
            for copy in &self.copies {
                let outcome = publisher.one(copy)?;
                let name = Path::new(&copy.name);
                let stat = at::lstat(publisher.place.fd(), name).on("stat", &copy.shown)?;
                committed.push(report(publisher.place, copy, &stat, &outcome));
                done.push((name, stat, outcome));
            }
            if publisher.sync {
                at::sync_dir(publisher.place.fd()).on("sync", &publisher.place.shown)?;
            }
            Ok(committed)
        };
        let result = publish();
        if result.is_err() {
            for (name, stat, outcome) in done.into_iter().rev() {
                retract(
                    &self.place,
                    self.stage.existing_dir(),
                    name,
                    &stat,
                    &outcome,
                );
            }
        }
        result
    }
}

/// Takes back what was done to a name, if it is still what was put there.
fn retract(
    place: &Place,
    stage: Option<BorrowedFd<'_>>,
    name: &Path,
    ours: &Stat,
    outcome: &Outcome,
) {
    if !at::lstat(place.fd(), name).is_ok_and(|there| same_inode(ours, &there)) {
        return;
    }
    // Best effort: there is nobody to tell about a second failure.
    match (outcome, stage) {
        (Outcome::Created, _) => {
            let _ = at::remove_all(place.fd(), name);
        }
        (Outcome::Replaced(Some(old)), Some(stage)) => {
            let _ = rustix::fs::renameat(stage, old, place.fd(), name);
        }
        _ => {}
    }
}

fn same_inode(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn report(place: &Place, copy: &Copy, stat: &Stat, outcome: &Outcome) -> Committed {
    let (kind, inner) = match (&copy.body, outcome) {
        (Body::File(_), _) => (EntryKind::File, Vec::new()),
        (Body::Symlink(..), _) => (EntryKind::Symlink, Vec::new()),
        (Body::Tree(tree), Outcome::Merged(before)) => {
            let new = tree
                .inner
                .iter()
                .filter(|inner| !before.contains(&inner.path));
            (EntryKind::Dir, new.cloned().collect())
        }
        (Body::Tree(tree), _) => (EntryKind::Dir, tree.inner.clone()),
    };
    let is_dir = kind == EntryKind::Dir;
    Committed {
        path: RawName::from(place.real.join(&copy.name)),
        kind,
        bytes: copy.bytes,
        digest: copy.digest,
        stamp: (!is_dir && *outcome != Outcome::Written).then(|| Stamp::of(stat)),
        new_dir: is_dir && matches!(outcome, Outcome::Created | Outcome::Shared),
        inner,
    }
}

impl Publisher<'_> {
    fn one(&mut self, copy: &Copy) -> Result<Outcome, FileError> {
        match &copy.body {
            Body::File(temp) => self.file(copy, temp),
            Body::Symlink(target, times) => {
                let make = |dir: BorrowedFd<'_>, name: &Path| {
                    rustix::fs::symlinkat(target.as_path(), dir, name)?;
                    let Some(times) = times else { return Ok(()) };
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    rustix::fs::utimensat(dir, name, times, flags).inspect_err(|_| {
                        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
                    })
                };
                self.create_or(copy, make, |there| {
                    Ok(same::symlink(self.place, there, &copy.name, target))
                })
            }
            Body::Tree(_) => self.tree(copy),
        }
    }

    /// Creates the name by `make`; if it is taken, does what the policy says.
    fn create_or(
        &mut self,
        copy: &Copy,
        make: impl Fn(BorrowedFd<'_>, &Path) -> rustix::io::Result<()>,
        is_same: impl Fn(&Stat) -> rustix::io::Result<bool>,
    ) -> Result<Outcome, FileError> {
        let name = Path::new(&copy.name);
        let shown = &copy.shown;
        match make(self.place.fd(), name) {
            Ok(()) => return Ok(Outcome::Created),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(FileError::new(errno, "link", shown)),
        }
        let stat = at::lstat(self.place.fd(), name).on("open", shown)?;
        if self.existing != Existing::Replace {
            return match is_same(&stat).on("read", shown)? {
                true => Ok(Outcome::Shared),
                false => Err(copy::exists(&stat, shown)),
            };
        }
        copy::check_replaceable(&stat, shown)?;
        let temp = self.stage.next_name();
        let dir = self.stage.dir(self.place.fd(), shown)?;
        make(dir, &temp).on("link", shown)?;
        if self.keep_replaced && swap(dir, &temp, self.place.fd(), name, shown)? {
            return Ok(Outcome::Replaced(Some(temp)));
        }
        rustix::fs::renameat(dir, &temp, self.place.fd(), name).on("rename", shown)?;
        Ok(Outcome::Replaced(None))
    }

    fn file(&mut self, copy: &Copy, temp: &Temp) -> Result<Outcome, FileError> {
        let shown = &copy.shown;
        if matches!(self.existing, Existing::Append | Existing::Truncate) {
            return self.file_in_place(copy, temp);
        }
        let staged = inplace::open_staged(temp, self.stage.existing_dir()).on("open", shown)?;
        let stage_dir = self
            .stage
            .existing_dir()
            .map(|dir| dir.try_clone_to_owned());
        let stage_dir = stage_dir
            .transpose()
            .map_err(|error| FileError::new(error, "open", shown))?;
        let make = |dir: BorrowedFd<'_>, name: &Path| {
            link(temp, stage_dir.as_ref().map(AsFd::as_fd), dir, name)
        };
        let place = self.place;
        self.create_or(copy, make, |there| {
            same::file(place, there, &copy.name, staged.as_fd(), copy.digest)
        })
    }

    fn file_in_place(&mut self, copy: &Copy, temp: &Temp) -> Result<Outcome, FileError> {
        let (shown, name) = (&copy.shown, Path::new(&copy.name));
        match link(temp, self.stage.existing_dir(), self.place.fd(), name) {
            Ok(()) => return Ok(Outcome::Created),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(FileError::new(errno, "link", shown)),
        }
        let target = copy::open_in_place(self.place, name, shown, self.existing)?;
        let staged = inplace::open_staged(temp, self.stage.existing_dir()).on("open", shown)?;
        let (from, to) = (staged.as_fd(), target.as_fd());
        match self.existing {
            Existing::Append => inplace::append(from, to, self.place, shown)?,
            _ => inplace::overwrite(from, to, self.place, shown)?,
        }
        if self.flush {
            rustix::fs::fsync(&target).on("sync", shown)?;
        }
        Ok(Outcome::Written)
    }

    fn tree(&mut self, copy: &Copy) -> Result<Outcome, FileError> {
        let (shown, name) = (&copy.shown, Path::new(&copy.name));
        let (Body::Tree(tree), Some(stage)) = (&copy.body, self.stage.existing_dir()) else {
            return Err(FileError::new(Errno::INVAL, "rename", shown));
        };
        match at::rename_new(stage, &tree.name, self.place.fd(), name) {
            Ok(()) => {
                tree.finish_root(shown).inspect_err(|_| {
                    let _ = at::remove_all(self.place.fd(), name);
                })?;
                return Ok(Outcome::Created);
            }
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            Err(errno) => return Err(FileError::new(errno, "rename", shown)),
        }
        let stat = at::lstat(self.place.fd(), name).on("open", shown)?;
        if self.existing == Existing::Replace && at::kind_of(&stat) == FileType::Directory {
            // Into a directory without permission to write, nothing can be
            // moved; but another shell of this transfer may have put it there.
            if tree.is_closed() && same::tree(self.place, &copy.name, tree).on("read", shown)? {
                return Ok(Outcome::Shared);
            }
            let before = merge::run(self.place, &copy.name, tree, shown, self.sync)?;
            return Ok(Outcome::Merged(before));
        }
        match same::tree(self.place, &copy.name, tree).on("read", shown)? {
            true => Ok(Outcome::Shared),
            false => Err(copy::exists(&stat, shown)),
        }
    }
}

/// Gives a staged file the name `name` in `dir`, if that is free.
fn link(
    temp: &Temp,
    stage: Option<BorrowedFd<'_>>,
    dir: BorrowedFd<'_>,
    name: &Path,
) -> rustix::io::Result<()> {
    match temp {
        Temp::Unnamed(fd) => {
            let from = at::proc_path(fd.as_fd());
            rustix::fs::linkat(CWD, from, dir, name, AtFlags::SYMLINK_FOLLOW)
        }
        Temp::Named(from) => {
            let stage = stage.ok_or(Errno::NOENT)?;
            match rustix::fs::linkat(stage, from, dir, name, AtFlags::empty()) {
                // File systems without hard links.
                Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                    at::rename_new(stage, from, dir, name)
                }
                done => done,
            }
        }
    }
}

/// Exchanges a staged file and what has its final name. False, and nothing is done,
/// where that cannot be.
fn swap(
    stage: BorrowedFd<'_>,
    temp: &Path,
    dir: BorrowedFd<'_>,
    name: &Path,
    shown: &Path,
) -> Result<bool, FileError> {
    let exchange = || rustix::fs::renameat_with(stage, temp, dir, name, RenameFlags::EXCHANGE);
    match exchange() {
        Ok(()) => {}
        // A file system without it; or what was there is gone meanwhile.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(FileError::new(errno, "rename", shown)),
    }
    // Renaming would have refused a directory, should one have come there.
    let stat = at::lstat(stage, temp).on("rename", shown)?;
    copy::check_replaceable(&stat, shown).inspect_err(|_| {
        let _ = exchange();
    })?;
    Ok(true)
}
