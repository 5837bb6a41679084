//! What an entry of the stream becomes in the staging area.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::Timespec;
use rustix::fs::Timestamps;

use crate::bcast::item::Entry;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Time;
use crate::bcast::name::RawName;
use crate::bcast::spec::Existing;
use crate::errno::Errno;
use crate::file::at;
use crate::file::claim::Claim;
use crate::file::error::FileError;
use crate::file::error::On;
use crate::file::stage;
use crate::file::stage::Temp;

use super::Sink;
use super::Writing;
use super::copy;
use super::copy::Body;
use super::copy::Copy;
use super::record::Stamp;
use super::tree::DirMeta;
use super::tree::Tree;

impl Sink {
    /// Makes what an entry needs before its data come.
    pub(super) fn begin(&mut self, entry: &Entry) -> Result<Writing, FileError> {
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
            mode: self.mode(entry),
            times: self.times(entry),
        };
        if writing.rel.as_os_str().is_empty() {
            self.begin_copy(top, entry, &mut writing)?;
        } else {
            self.begin_inner(&top, entry, &mut writing)?;
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
        let claim = self.claim(&name, &shown)?;
        copy::check_existing(&self.place, &name, entry.kind, &self.policy)?;
        let place = self.place.dir.as_fd();
        let target = entry.target.clone().unwrap_or_default();
        let (mut bytes, mut digest) = (0, None);
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
                // No data of its own comes.
                let stat = at::lstat(dir.as_fd(), &name).on("stat", &shown)?;
                bytes = u64::try_from(stat.st_size).unwrap_or(0);
                let other = self.by_name.get(&target).copied();
                digest = other.and_then(|index| self.copies.get(index)?.digest);
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
            bytes,
            digest,
            _claim: claim,
        });
        Ok(())
    }

    /// Claims a name, unless whoever publishes last may win it.
    fn claim(&self, name: &OsStr, shown: &Path) -> Result<Option<Claim>, FileError> {
        if self.policy.existing == Existing::Replace {
            return Ok(None);
        }
        let stat = rustix::fs::fstat(&self.place.dir).on("stat", &self.place.shown)?;
        let directory = (stat.st_dev, stat.st_ino);
        Claim::take(directory, name, &self.transfer, shown).map(Some)
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
        dir: BorrowedFd<'_>,
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
}

fn timespec(time: Time) -> Timespec {
    // Out of range it would mean "now" or "leave", or be refused.
    Timespec {
        tv_sec: time.sec,
        tv_nsec: i64::from(time.nsec.min(999_999_999)),
    }
}
