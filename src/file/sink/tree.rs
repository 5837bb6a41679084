//! A directory in the making, in the staging directory.
//!
//! Every path is opened below the tree's own root without following any
//! symbolic link, so a link that came as an entry leads nowhere while the tree
//! is written.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::Timestamps;
use rustix::io::retry_on_intr;

use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::at;
use crate::file::at::Links;
use crate::file::error::FileError;
use crate::file::error::On;

use super::record::Inner;
use super::record::Stamp;

/// A staged directory.
#[derive(Debug)]
pub(super) struct Tree {
    /// The directory itself.
    pub(super) root: OwnedFd,
    /// Its name in the staging directory.
    pub(super) name: PathBuf,
    /// What was put into it, in order.
    pub(super) inner: Vec<Inner>,
    /// What directories get at the end, the root (an empty path) first: until
    /// then they stay writable.
    pub(super) dirs: Vec<DirMeta>,
    /// The directory of the last entry; most entries share it with the next.
    cache: Option<(PathBuf, OwnedFd)>,
}

/// Mode and times of a directory.
#[derive(Debug)]
pub(super) struct DirMeta {
    pub(super) rel: RawName,
    pub(super) mode: Mode,
    pub(super) times: Option<Timestamps>,
}

impl Tree {
    pub(super) fn new(root: OwnedFd, name: PathBuf, meta: DirMeta) -> Tree {
        Tree {
            root,
            name,
            inner: Vec::new(),
            dirs: vec![meta],
            cache: None,
        }
    }

    /// Some directory in it does not let its owner write.
    pub(super) fn is_closed(&self) -> bool {
        self.dirs.iter().any(|dir| !dir.mode.contains(Mode::WUSR))
    }

    /// The directory that holds `rel`, and its name there.
    pub(super) fn parent<'a>(
        &mut self,
        rel: &'a Path,
        shown: &Path,
    ) -> Result<(BorrowedFd<'_>, &'a OsStr), FileError> {
        let (dir, name) = match (rel.parent(), rel.file_name()) {
            (Some(dir), Some(name)) => (dir, name),
            _ => return Err(FileError::new(Errno::EINVAL, "open", shown)),
        };
        let fd = match self.cache.take() {
            Some((cached, fd)) if cached == dir => fd,
            _ => {
                at::open_dir_beneath(self.root.as_fd(), dir, Links::Refuse).on("open", shown)?
            }
        };
        let cached: &(PathBuf, OwnedFd) = self.cache.insert((dir.to_path_buf(), fd));
        Ok((cached.1.as_fd(), name))
    }

    /// Makes a directory; its mode and times come with [`Tree::finish`].
    pub(super) fn mkdir(
        &mut self,
        rel: &Path,
        mode: Mode,
        times: Option<Timestamps>,
        shown: &Path,
    ) -> Result<(), FileError> {
        let (dir, name) = self.parent(rel, shown)?;
        rustix::fs::mkdirat(dir, name, Mode::RWXU).on("mkdir", shown)?;
        self.dirs.push(DirMeta {
            rel: RawName::from(rel),
            mode,
            times,
        });
        self.note(rel, EntryKind::Dir, None);
        Ok(())
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(
        &mut self,
        rel: &Path,
        target: &RawName,
        times: Option<&Timestamps>,
        shown: &Path,
    ) -> Result<(), FileError> {
        let (dir, name) = self.parent(rel, shown)?;
        rustix::fs::symlinkat(target.as_path(), dir, name).on("symlink", shown)?;
        if let Some(times) = times {
            rustix::fs::utimensat(dir, name, times, AtFlags::SYMLINK_NOFOLLOW)
                .on("utimensat", shown)?;
        }
        let stat = at::lstat(dir, Path::new(name)).on("stat", shown)?;
        self.note(rel, EntryKind::Symlink, Some(Stamp::of(&stat)));
        Ok(())
    }

    /// Remembers what was put at `rel`.
    pub(super) fn note(&mut self, rel: &Path, kind: EntryKind, stamp: Option<Stamp>) {
        self.inner.push(Inner {
            path: RawName::from(rel),
            kind,
            stamp,
        });
    }

    /// Gives the directories their modes and times, the deepest first. The
    /// root keeps the owner's permissions, which moving it takes, until
    /// [`Tree::finish_root`].
    pub(super) fn finish(&mut self, sync: bool, shown: &Path) -> Result<(), FileError> {
        self.cache = None;
        for (index, meta) in self.dirs.iter().enumerate().rev() {
            let path = shown.join(meta.rel.as_path());
            let rel = meta.rel.as_path();
            let dir = at::open_dir_beneath(self.root.as_fd(), rel, Links::Refuse);
            let dir = readable(dir.on("open", &path)?.as_fd()).on("open", &path)?;
            let mode = if index == 0 {
                meta.mode | Mode::RWXU
            } else {
                meta.mode
            };
            finish_dir(dir.as_fd(), mode, meta.times.as_ref(), &path)?;
            if sync {
                rustix::fs::fsync(&dir).on("sync", &path)?;
            }
        }
        Ok(())
    }

    /// Gives the root its mode and times, once it is in its place.
    pub(super) fn finish_root(&self, shown: &Path) -> Result<(), FileError> {
        let Some(meta) = self.dirs.first() else {
            return Ok(());
        };
        let dir = readable(self.root.as_fd()).on("open", shown)?;
        finish_dir(dir.as_fd(), meta.mode, meta.times.as_ref(), shown)
    }
}

/// A handle on a directory that fchmod takes.
fn readable(dir: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, ".", flags, Mode::empty()))
}

pub(super) fn finish_dir(
    dir: BorrowedFd<'_>,
    mode: Mode,
    times: Option<&Timestamps>,
    shown: &Path,
) -> Result<(), FileError> {
    if let Some(times) = times {
        rustix::fs::futimens(dir, times).on("utimensat", shown)?;
    }
    rustix::fs::fchmod(dir, mode).on("chmod", shown)
}
