//! The list of everything below the sources: one sorted walk.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::Stat;
use rustix::io::retry_on_intr;

use crate::bcast::item::Time;
use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::MAX_DEPTH;
use crate::file::at;
use crate::file::error::FileError;
use crate::file::error::On;

use super::input::Follow;
use super::input::From;
use super::input::Top;
use super::input::not_copied;
use super::input::open_dir;
use super::reader;

/// One entry to be.
#[derive(Debug)]
pub(super) struct Found {
    /// Which source it belongs to.
    pub(super) top: usize,
    /// Path below the source, empty for the source itself.
    pub(super) rel: RawName,
    /// What it is.
    pub(super) what: What,
    /// Permission bits.
    pub(super) mode: u32,
    /// Time of last modification, for what has one.
    pub(super) mtime: Option<Time>,
    /// Time of last access, for what has one.
    pub(super) atime: Option<Time>,
    /// Device and inode, and whether there are other links to it.
    inode: (u64, u64, bool),
}

/// What an entry is, with what reading it takes.
#[derive(Debug)]
pub(super) enum What {
    /// A regular file, a stream or bytes in memory.
    File(FileFacts),
    /// A directory.
    Dir,
    /// A symbolic link to this.
    Symlink(RawName),
    /// Another name of the entry with this index.
    Hardlink(usize),
}

/// What is known of a file before it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileFacts {
    /// Its size; `None` if only reading tells.
    pub(super) size: Option<u64>,
    /// Bytes that it takes up on disk.
    pub(super) allocated: u64,
    /// Whether its holes may be looked for.
    pub(super) seek: bool,
    /// What must be the same after reading as before.
    pub(super) state: Option<State>,
}

/// What tells that a file is still the one that was looked at. The time of the
/// last status change is left out: making a link to a file does not change
/// what is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    dev: u64,
    ino: u64,
    size: i64,
    mtime: Time,
}

impl State {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: stat.st_size,
            mtime: mtime(stat),
        }
    }
}

impl FileFacts {
    /// Of what cannot be changed by others.
    pub(super) fn unchecked(size: Option<u64>) -> Self {
        Self {
            size,
            allocated: size.unwrap_or(0),
            seek: false,
            state: None,
        }
    }
}

impl Found {
    pub(super) fn new(top: usize, rel: &OsStr, stat: &Stat) -> Self {
        Self {
            top,
            rel: RawName::new(rel.as_bytes()),
            what: What::Dir,
            mode: stat.st_mode & 0o777,
            mtime: Some(mtime(stat)),
            atime: Some(Time {
                sec: stat.st_atime,
                nsec: u32::try_from(stat.st_atime_nsec).unwrap_or(0),
            }),
            inode: (stat.st_dev, stat.st_ino, stat.st_nlink > 1),
        }
    }

    /// A source that is no file of its own.
    pub(super) fn plain(top: usize, facts: FileFacts, mode: u32) -> Self {
        Self {
            top,
            rel: RawName::default(),
            what: What::File(facts),
            mode,
            mtime: None,
            atime: None,
            inode: (0, 0, false),
        }
    }

    /// The path of the entry as it is sent.
    pub(super) fn sent_path(&self, top: &Top) -> RawName {
        RawName::from(join(top.name.as_path(), self.rel.as_path()))
    }

    /// The path as the caller would say it, for errors.
    pub(super) fn shown(&self, top: &Top) -> PathBuf {
        join(&top.shown, self.rel.as_path())
    }
}

fn join(top: &Path, rel: &Path) -> PathBuf {
    if rel.as_os_str().is_empty() {
        top.to_path_buf()
    } else {
        top.join(rel)
    }
}

fn mtime(stat: &Stat) -> Time {
    Time {
        sec: stat.st_mtime,
        nsec: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    }
}

/// Puts behind each directory among `firsts` what it contains, depth first, in
/// the order of the names' bytes, and recognizes files met before by their
/// inode.
pub(super) fn expand(
    tops: &[Top],
    firsts: Vec<Found>,
    follow: Follow,
) -> Result<Vec<Found>, FileError> {
    let mut walk = Walk {
        follow,
        found: Vec::with_capacity(firsts.len()),
        seen: HashMap::new(),
    };
    for first in firsts {
        let top = &tops[first.top];
        let root = first.top;
        let inode = (first.inode.0, first.inode.1);
        let is_dir = matches!(first.what, What::Dir);
        walk.push(first);
        match &top.from {
            From::Dir(dir) => walk.descend(top, root, dir.as_fd(), inode)?,
            From::Later if is_dir => {
                let dir = open_dir(&top.shown)?;
                walk.descend(top, root, dir.as_fd(), inode)?;
            }
            From::Set(members) => walk.members(root, members)?,
            _ => {}
        }
    }
    Ok(walk.found)
}

struct Walk {
    follow: Follow,
    found: Vec<Found>,
    /// Index in `found` of files with several links, by device and inode.
    seen: HashMap<(u64, u64), usize>,
}

/// A directory that is being gone through.
struct Level {
    dir: OwnedFd,
    rel: PathBuf,
    inode: (u64, u64),
    /// Names still to do, the next one last.
    names: Vec<OsString>,
}

impl Walk {
    fn push(&mut self, mut found: Found) {
        let (dev, ino, linked) = found.inode;
        if linked && matches!(&found.what, What::File(_)) {
            let index = self.found.len();
            let first = *self.seen.entry((dev, ino)).or_insert(index);
            if first != index {
                found.what = What::Hardlink(first);
            }
        }
        self.found.push(found);
    }

    /// The files of a directory that exists nowhere.
    fn members(
        &mut self,
        index: usize,
        members: &BTreeMap<RawName, PathBuf>,
    ) -> Result<(), FileError> {
        for (name, path) in members {
            let stat = rustix::fs::statat(CWD, path, AtFlags::empty()).on("open", path)?;
            if at::kind_of(&stat) != FileType::RegularFile {
                return Err(not_copied(at::kind_of(&stat), path));
            }
            let mut found = Found::new(index, name.as_os_str(), &stat);
            found.what = What::File(reader::facts_unopened(CWD, path, &stat));
            self.push(found);
        }
        Ok(())
    }

    fn descend(
        &mut self,
        top: &Top,
        index: usize,
        root: BorrowedFd<'_>,
        inode: (u64, u64),
    ) -> Result<(), FileError> {
        let dir = root.try_clone_to_owned();
        let dir = dir.map_err(|error| FileError::new(error, "open", &top.shown))?;
        let mut levels = vec![open_level(top, dir, PathBuf::new(), inode)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.names.pop() else {
                levels.pop();
                continue;
            };
            let rel = level.rel.join(&name);
            let dir = level.dir.as_fd();
            let (found, below) = self.look(top, index, dir, Path::new(&name), &rel)?;
            let inode = (found.inode.0, found.inode.1);
            self.push(found);
            let Some(below) = below else { continue };
            let shown = || join(&top.shown, &rel);
            if levels.iter().any(|level| level.inode == inode) {
                return Err(FileError::new(Errno::ELOOP, "read", &shown()));
            }
            if levels.len() >= MAX_DEPTH - 1 {
                let error = FileError::new(Errno::ENAMETOOLONG, "read", &shown());
                return Err(error.with_hint("too many nested directories"));
            }
            levels.push(open_level(top, below, rel, inode)?);
        }
        Ok(())
    }

    /// What `name` is; with a handle on it if it is a directory.
    fn look(
        &self,
        top: &Top,
        index: usize,
        dir: BorrowedFd<'_>,
        name: &Path,
        rel: &Path,
    ) -> Result<(Found, Option<OwnedFd>), FileError> {
        let shown = join(&top.shown, rel);
        let follow = self.follow == Follow::Always;
        let (at_flags, open_flags) = if follow {
            (AtFlags::empty(), at::DIR)
        } else {
            (AtFlags::SYMLINK_NOFOLLOW, at::DIR | OFlags::NOFOLLOW)
        };
        let stat = rustix::fs::statat(dir, name, at_flags).on("open", &shown)?;
        let mut found = Found::new(index, rel.as_os_str(), &stat);
        let mut below = None;
        found.what = match at::kind_of(&stat) {
            FileType::RegularFile => What::File(reader::facts_unopened(dir, name, &stat)),
            FileType::Directory => {
                let open = || rustix::fs::openat(dir, name, open_flags, Mode::empty());
                below = Some(retry_on_intr(open).on("open", &shown)?);
                What::Dir
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new());
                What::Symlink(RawName::new(target.on("readlink", &shown)?.into_bytes()))
            }
            other => return Err(not_copied(other, &shown)),
        };
        Ok((found, below))
    }
}

fn open_level(
    top: &Top,
    dir: OwnedFd,
    rel: PathBuf,
    inode: (u64, u64),
) -> Result<Level, FileError> {
    let mut names = at::list(dir.as_fd()).on("read", &join(&top.shown, &rel))?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(Level {
        dir,
        rel,
        inode,
        names,
    })
}
