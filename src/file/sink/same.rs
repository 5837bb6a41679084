//! Whether what is at a name already is the very copy that was to go there.
//!
//! Asked only when the name was free at the opening and taken at the commit;
//! see the module above for why that is sound.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::Stat;
use rustix::io::Result;
use rustix::io::retry_on_intr;

use crate::bcast::item::Digest;
use crate::bcast::name::RawName;
use crate::file::at;
use crate::file::digest::Hasher;
use crate::file::place::Place;

use super::tree::Tree;

/// Whether `name` is a regular file like the staged one.
pub(super) fn file(
    place: &Place,
    there: &Stat,
    name: &OsStr,
    staged: BorrowedFd<'_>,
    digest: Option<Digest>,
) -> Result<bool> {
    let ours = rustix::fs::fstat(staged)?;
    if !alike(&ours, there) || at::kind_of(there) != FileType::RegularFile {
        return Ok(false);
    }
    if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) {
        return Ok(true);
    }
    let existing = open(place.fd(), Path::new(name))?;
    match digest {
        Some(digest) => Ok(digest_of(existing.as_fd())? == digest),
        None => same_contents(staged, existing.as_fd()),
    }
}

/// Whether `name` is a symbolic link to `target`.
pub(super) fn symlink(place: &Place, there: &Stat, name: &OsStr, target: &RawName) -> bool {
    at::kind_of(there) == FileType::Symlink
        && there.st_uid == rustix::process::geteuid().as_raw()
        && rustix::fs::readlinkat(place.fd(), name, Vec::new())
            .is_ok_and(|link| link.as_bytes() == target.as_bytes())
}

/// Whether `name` is a directory with just what is in the staged one.
pub(super) fn tree(place: &Place, name: &OsStr, tree: &Tree) -> Result<bool> {
    let mut there = at::lstat(place.fd(), Path::new(name))?;
    let mut ours = rustix::fs::fstat(&tree.root)?;
    // Its owner's permissions are taken away only once it is in its place.
    ours.st_mode |= 0o700;
    there.st_mode |= 0o700;
    if !alike(&ours, &there) || at::kind_of(&there) != FileType::Directory {
        return Ok(false);
    }
    let there = open_dir(place.fd(), Path::new(name))?;
    same_dir(tree.root.as_fd(), there.as_fd())
}

fn same_dir(ours: BorrowedFd<'_>, there: BorrowedFd<'_>) -> Result<bool> {
    let sorted = |dir| -> Result<_> {
        let mut names = at::list(dir)?;
        names.sort_unstable();
        Ok(names)
    };
    let names = sorted(ours)?;
    if names != sorted(there)? {
        return Ok(false);
    }
    for name in names {
        let name = Path::new(&name);
        let (a, b) = (at::lstat(ours, name)?, at::lstat(there, name)?);
        if !alike(&a, &b) {
            return Ok(false);
        }
        let same = match at::kind_of(&a) {
            FileType::Directory => same_dir(
                open_dir(ours, name)?.as_fd(),
                open_dir(there, name)?.as_fd(),
            )?,
            FileType::Symlink => {
                rustix::fs::readlinkat(ours, name, Vec::new())?
                    == rustix::fs::readlinkat(there, name, Vec::new())?
            }
            FileType::RegularFile => {
                same_contents(open(ours, name)?.as_fd(), open(there, name)?.as_fd())?
            }
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Same kind, owner and mode, and size where that means something.
fn alike(ours: &Stat, there: &Stat) -> bool {
    let sized = at::kind_of(ours) == FileType::RegularFile;
    ours.st_mode == there.st_mode
        && ours.st_uid == there.st_uid
        && (!sized || ours.st_size == there.st_size)
}

fn open(dir: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

fn open_dir(dir: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))
}

/// The digest of an open file.
pub(in crate::file) fn digest_of(fd: BorrowedFd<'_>) -> Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buf = vec![0; 128 << 10];
    let mut offset = 0;
    loop {
        let len = at::read_full(fd, &mut buf, offset)?;
        if len == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buf[..len]);
        offset += len as u64;
    }
}

fn same_contents(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> Result<bool> {
    let (mut buf_a, mut buf_b) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut offset = 0;
    loop {
        let len = at::read_full(a, &mut buf_a, offset)?;
        if at::read_full(b, &mut buf_b, offset)? != len || buf_a[..len] != buf_b[..len] {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
        offset += len as u64;
    }
}
