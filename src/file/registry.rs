//! What this process has put on the node, so that just that can be removed.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::Mode;
use rustix::io::retry_on_intr;

use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::errno::Errno;

use super::at;
use super::at::Links;
use super::error::FileError;
use super::error::On;
use super::sink::Committed;
use super::sink::Stamp;

/// The copies that were committed, by path; a later one takes the place of an
/// earlier one with the same path, and a directory that was filled up has what came
/// with both.
#[derive(Debug, Default)]
pub struct Registry {
    copies: BTreeMap<RawName, Committed>,
}

impl Registry {
    /// Remembers what a sink has committed.
    pub fn add(&mut self, copies: impl IntoIterator<Item = Committed>) {
        for mut copy in copies {
            if copy.kind == EntryKind::File && copy.stamp.is_none() {
                self.written(&mut copy);
            }
            if copy.kind == EntryKind::Dir && !copy.new_dir {
                self.filled(&mut copy);
            }
            self.copies.insert(copy.path.clone(), copy);
        }
    }

    /// A file that was there and was written to: if it was there because it was
    /// put there, it can be removed as ever. What is in it by now is more than
    /// what was sent, perhaps.
    fn written(&self, copy: &mut Committed) {
        let path = copy.path.as_path();
        let Ok(there) = rustix::fs::lstat(path) else {
            return;
        };
        let now = Stamp::of(&there);
        if now.size != copy.bytes {
            (copy.bytes, copy.digest) = (now.size, None);
        }
        let before = self.copies.get(&copy.path).and_then(|copy| copy.stamp);
        copy.stamp = before
            .filter(|before| (before.dev, before.ino) == (now.dev, now.ino))
            .map(|_| now);
    }

    /// A directory that was there and was filled up: if it was there because it was
    /// put there, it is all that was put there.
    fn filled(&mut self, copy: &mut Committed) {
        let known = self.copies.remove(&copy.path);
        let Some(before) = known.filter(|before| before.kind == EntryKind::Dir) else {
            return;
        };
        let new: HashSet<&RawName> = copy.inner.iter().map(|inner| &inner.path).collect();
        let mut inner = before.inner;
        inner.retain(|inner| !new.contains(&inner.path));
        let files = inner.iter().filter(|inner| inner.kind == EntryKind::File);
        let bytes = files.filter_map(|inner| Some(inner.stamp?.size)).sum();
        copy.bytes = copy.bytes.saturating_add(bytes);
        // What is new may be in a directory that is not.
        inner.append(&mut copy.inner);
        copy.inner = inner;
        copy.new_dir = before.new_dir;
    }

    /// All copies that are there, as they are now, sorted by path.
    pub fn list(&self) -> impl Iterator<Item = Committed> {
        self.copies.values().filter_map(as_it_is)
    }

    /// Removes one copy and forgets it, unless it was changed.
    ///
    /// # Errors
    /// `ENOENT` if there is no copy with this path on record, `ESTALE` if what
    /// is there is not what was put there, `EPERM` for a file that was there
    /// before and only written to, `ENOTEMPTY` for a directory that has come to
    /// contain other things (what was put there is gone, then); else what
    /// unlink(2) says. What is gone already is no error.
    pub fn remove(&mut self, path: &RawName) -> Result<(), FileError> {
        let Some(copy) = self.copies.get(path) else {
            return Err(FileError::new(Errno::ENOENT, "remove", path.as_path())
                .with_hint("nothing was put there"));
        };
        remove(copy)?;
        self.copies.remove(path);
        Ok(())
    }

    /// Removes all copies, the latest path first, and tells what came of each.
    pub fn remove_all(&mut self) -> Vec<(RawName, Result<(), FileError>)> {
        let paths: Vec<_> = self.copies.keys().rev().cloned().collect();
        let removed = paths.into_iter().map(|path| {
            let done = self.remove(&path);
            (path, done)
        });
        removed.collect()
    }
}

/// A file that was changed has another size, and holds who knows what.
fn as_it_is(copy: &Committed) -> Option<Committed> {
    let there = match rustix::fs::lstat(copy.path.as_path()) {
        Ok(there) => Stamp::of(&there),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return None,
        Err(_) => return Some(copy.clone()),
    };
    let same = match copy.stamp {
        Some(stamp) => stamp == there,
        None => copy.bytes == there.size,
    };
    let mut copy = copy.clone();
    if copy.kind == EntryKind::File && !same {
        (copy.bytes, copy.digest) = (there.size, None);
    }
    Some(copy)
}

fn remove(copy: &Committed) -> Result<(), FileError> {
    let path = copy.path.as_path();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(FileError::new(Errno::EINVAL, "remove", path));
    };
    let root = retry_on_intr(|| rustix::fs::openat(CWD, "/", at::DIR, Mode::empty()));
    let root = root.on("open", Path::new("/"))?;
    // The path was without links when it was reported.
    let below = parent.strip_prefix("/").unwrap_or(parent);
    let dir = match at::open_dir_beneath(root.as_fd(), below, Links::Refuse) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        done => done.on("open", parent)?,
    };
    let name = Path::new(name);
    match copy.kind {
        EntryKind::Dir => remove_dir(dir.as_fd(), name, copy),
        _ => remove_file(dir.as_fd(), name, path, copy.stamp.as_ref()),
    }
}

fn remove_file(
    dir: BorrowedFd<'_>,
    name: &Path,
    shown: &Path,
    stamp: Option<&Stamp>,
) -> Result<(), FileError> {
    let Some(stamp) = stamp else {
        return Err(FileError::new(Errno::EPERM, "remove", shown)
            .with_hint("it was there before, and was only written to"));
    };
    let Some(there) = at::lstat_opt(dir, name).on("stat", shown)? else {
        return Ok(());
    };
    if Stamp::of(&there) != *stamp {
        return Err(FileError::new(Errno::ESTALE, "remove", shown)
            .with_hint("it is not what was put there, or was changed since"));
    }
    unlink(dir, name, AtFlags::empty()).on("remove", shown)
}

fn remove_dir(parent: BorrowedFd<'_>, name: &Path, copy: &Committed) -> Result<(), FileError> {
    let path = copy.path.as_path();
    let root = match at::open_dir_beneath(parent, name, Links::Refuse) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        done => done.on("open", path)?,
    };
    let mut failed = None;
    for inner in copy.inner.iter().rev() {
        let rel = inner.path.as_path();
        if let Err(error) = remove_inner(root.as_fd(), rel, inner.stamp.as_ref(), path) {
            failed.get_or_insert(error);
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if copy.new_dir {
        unlink(parent, name, AtFlags::REMOVEDIR).on("remove", path)?;
    }
    Ok(())
}

fn remove_inner(
    root: BorrowedFd<'_>,
    rel: &Path,
    stamp: Option<&Stamp>,
    shown: &Path,
) -> Result<(), FileError> {
    let shown = shown.join(rel);
    let (Some(parent), Some(name)) = (rel.parent(), rel.file_name()) else {
        return Ok(());
    };
    let dir = match at::open_dir_beneath(root, parent, Links::Refuse) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        done => done.on("open", &shown)?,
    };
    let name = Path::new(name);
    match stamp {
        Some(_) => remove_file(dir.as_fd(), name, &shown, stamp),
        None => unlink(dir.as_fd(), name, AtFlags::REMOVEDIR).on("remove", &shown),
    }
}

fn unlink(dir: BorrowedFd<'_>, name: &Path, flags: AtFlags) -> rustix::io::Result<()> {
    match retry_on_intr(|| rustix::fs::unlinkat(dir, name, flags)) {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        done => done,
    }
}
