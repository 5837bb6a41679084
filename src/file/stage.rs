//! Data on its way: files without a name, or in a hidden directory.
//!
//! A file is best staged without a name (`O_TMPFILE`): whatever happens to the
//! process, nothing is left. Where the file system has no such files, where
//! /proc is missing (which linking them takes), for directories, and for more
//! files than descriptors can be spared for, there is one directory,
//! `.flux-bcast.<transfer>.<rank>`, next to the destination. Its owner holds a
//! lock on it; one that can be locked by somebody else is stale and is removed.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::FlockOperation;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::Timespec;
use rustix::fs::Timestamps;
use rustix::fs::UTIME_NOW;
use rustix::io::Errno;
use rustix::io::retry_on_intr;

use super::at;
use super::error::FileError;
use super::error::On;

/// So many files are staged without a name; each keeps a descriptor.
const UNNAMED: usize = 32;

/// A staging directory this much older than one just made can be stale. (A
/// lock does not reach other hosts on every network file system.)
pub(super) const STALE_SECONDS: i64 = 3600;

/// What names of staging directories begin with.
pub(super) const PREFIX: &str = ".flux-bcast.";

/// How files may be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Without a name if possible.
    Unnamed,
    /// Always in the directory.
    Named,
}

/// A staged file.
#[derive(Debug)]
pub(super) enum Temp {
    /// It has no name; this descriptor is all there is of it.
    Unnamed(OwnedFd),
    /// It has this name in the staging directory.
    Named(PathBuf),
}

/// The staged files of one transfer into one directory.
#[derive(Debug)]
pub(super) struct Stage {
    name: String,
    way: Way,
    unnamed: usize,
    count: usize,
    dir: Option<OwnedFd>,
    stale_seconds: i64,
}

impl Stage {
    /// Nothing is made yet. `owner` is unique to transfer and shell.
    pub(super) fn new(owner: &str, way: Way, stale_seconds: i64) -> Stage {
        Stage {
            name: format!("{PREFIX}{owner}"),
            way,
            unnamed: 0,
            count: 0,
            dir: None,
            stale_seconds,
        }
    }

    /// A new empty file, open for reading and writing. The second value is the
    /// staged file; an unnamed one has its own descriptor of the same file.
    pub(super) fn file(
        &mut self,
        place: BorrowedFd<'_>,
        shown: &Path,
    ) -> Result<(OwnedFd, Temp), FileError> {
        if self.way == Way::Unnamed && self.unnamed < UNNAMED {
            if let Some(fd) = unnamed(place).on("open", shown)? {
                let other = fd.try_clone();
                let other = other.map_err(|error| FileError::new(error, "open", shown))?;
                self.unnamed += 1;
                return Ok((fd, Temp::Unnamed(other)));
            }
            self.way = Way::Named;
        }
        let name = self.next_name();
        let dir = self.dir(place, shown)?;
        let fd = create(dir, &name).on("open", shown)?;
        Ok((fd, Temp::Named(name)))
    }

    /// A new empty directory, and its name in the staging directory.
    pub(super) fn subdir(
        &mut self,
        place: BorrowedFd<'_>,
        shown: &Path,
    ) -> Result<(OwnedFd, PathBuf), FileError> {
        let name = self.next_name();
        let dir = self.dir(place, shown)?;
        rustix::fs::mkdirat(dir, &name, Mode::RWXU).on("mkdir", shown)?;
        let open = || rustix::fs::openat(dir, &name, at::DIR | OFlags::NOFOLLOW, Mode::empty());
        let fd = retry_on_intr(open).on("open", shown)?;
        Ok((fd, name))
    }

    /// A name in the staging directory that nothing has yet.
    pub(super) fn next_name(&mut self) -> PathBuf {
        self.count += 1;
        PathBuf::from(self.count.to_string())
    }

    /// The staging directory, made when first needed.
    pub(super) fn dir(
        &mut self,
        place: BorrowedFd<'_>,
        shown: &Path,
    ) -> Result<BorrowedFd<'_>, FileError> {
        let dir = match self.dir.take() {
            Some(dir) => dir,
            None => {
                let dir = make_locked(place, Path::new(&self.name)).on("mkdir", shown)?;
                reap(place, dir.as_fd(), &self.name, self.stale_seconds);
                dir
            }
        };
        let dir: &OwnedFd = self.dir.insert(dir);
        Ok(dir.as_fd())
    }

    /// The staging directory if there is one.
    pub(super) fn existing_dir(&self) -> Option<BorrowedFd<'_>> {
        self.dir.as_ref().map(AsFd::as_fd)
    }

    /// Shows others that the transfer is alive, where they do not see its lock.
    pub(super) fn touch(&self) {
        if let Some(dir) = &self.dir {
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_NOW,
            };
            let times = Timestamps {
                last_access: now,
                last_modification: now,
            };
            let _ = rustix::fs::futimens(dir, &times);
        }
    }

    /// Removes all that is still staged.
    pub(super) fn clear(&mut self, place: BorrowedFd<'_>) {
        if let Some(dir) = self.dir.take() {
            // The lock is held until all is gone.
            let _ = at::remove_all(place, Path::new(&self.name));
            drop(dir);
        }
    }
}

/// Opens a file that has no name, `None` where that cannot be.
fn unnamed(place: BorrowedFd<'_>) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(place, ".", flags, Mode::RUSR | Mode::WUSR);
    match retry_on_intr(open) {
        Ok(fd) => {
            let linkable = rustix::fs::statat(CWD, at::proc_path(fd.as_fd()), AtFlags::empty());
            Ok(linkable.is_ok().then_some(fd))
        }
        // Kernels and file systems without O_TMPFILE answer with one of these.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS | Errno::INVAL | Errno::NOENT) => {
            Ok(None)
        }
        Err(errno) => Err(errno),
    }
}

/// Creates a new file that only its owner can open.
pub(super) fn create(dir: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags =
        OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR))
}

fn open_for_lock(place: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(place, name, flags, Mode::empty()))
}

/// Makes the staging directory and locks it.
fn make_locked(place: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<OwnedFd> {
    // Between making and locking it somebody else may take it for stale.
    for attempt in 0..100 {
        match rustix::fs::mkdirat(place, name, Mode::RWXU) {
            Err(Errno::EXIST) if attempt > 0 => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            done => done?,
        }
        let dir = match open_for_lock(place, name) {
            Err(Errno::NOENT) => continue,
            done => done?,
        };
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            // No locks here: then nobody else can take it for stale either.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => {}
            Err(Errno::WOULDBLOCK) => continue,
            done => done?,
        }
        if rustix::fs::fstat(&dir)?.st_nlink > 0 {
            return Ok(dir);
        }
    }
    Err(Errno::BUSY)
}

/// Removes staging directories of transfers that are no more. Whatever goes
/// wrong here is not this transfer's affair.
fn reap(place: BorrowedFd<'_>, ours: BorrowedFd<'_>, our_name: &str, stale_seconds: i64) {
    let Ok(our_stat) = rustix::fs::fstat(ours) else {
        return;
    };
    // The time of our own directory is the file system's idea of now.
    let before = our_stat.st_mtime.saturating_sub(stale_seconds);
    for name in at::list(place).unwrap_or_default() {
        let bytes = name.as_bytes();
        if !bytes.starts_with(PREFIX.as_bytes()) || bytes == our_name.as_bytes() {
            continue;
        }
        let name = Path::new(&name);
        let Ok(dir) = open_for_lock(place, name) else {
            continue;
        };
        let stale = rustix::fs::fstat(&dir).is_ok_and(|stat| {
            at::kind_of(&stat) == FileType::Directory
                && stat.st_uid == our_stat.st_uid
                && stat.st_mtime <= before
        });
        let lock = FlockOperation::NonBlockingLockExclusive;
        if stale && rustix::fs::flock(&dir, lock).is_ok() {
            let _ = at::remove_all(place, name);
        }
    }
}
