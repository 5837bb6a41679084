//! Replacing into a directory that exists.
//!
//! What the sources do not have stays, as users of cp expect: exchanging the
//! directory for the new one would delete files that nobody asked to delete.
//! Each file is replaced atomically, and a subdirectory that is new appears
//! complete; the whole is not atomic. Conflicts of kind (a directory where a
//! file is to go, or the other way round) are found before anything is changed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;

use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::at;
use crate::file::at::Links;
use crate::file::error::FileError;
use crate::file::error::On;
use crate::file::place::Place;

use super::copy;
use super::tree::Tree;

/// Looks for conflicts, changing nothing. No directory there, no conflict.
pub(super) fn check(
    place: &Place,
    name: &OsStr,
    tree: &Tree,
    shown: &Path,
) -> Result<(), FileError> {
    let Ok(root) = open_root(place, name) else {
        return Ok(());
    };
    each(root.as_fd(), tree, shown, &mut |_, _, _| Ok(Moved::Whole))
}

/// Moves everything staged into the directory that is there; with `sync` the names
/// are on disk then. Returns the subdirectories that were there, too.
pub(super) fn run(
    place: &Place,
    name: &OsStr,
    tree: &Tree,
    shown: &Path,
    sync: bool,
) -> Result<HashSet<RawName>, FileError> {
    let mut entered = HashSet::new();
    let root = open_root(place, name).on("open", shown)?;
    each(root.as_fd(), tree, shown, &mut |step, name, shown| {
        let (from, to) = match step {
            Step::Enter { parent, rel } => {
                entered.insert(rel.clone());
                // Taking things out of it needs permissions that it may lack.
                chmod_dir(parent, name, Mode::RWXU).on("chmod", shown)?;
                return Ok(Moved::Whole);
            }
            Step::Move { from, to } => (from, to),
        };
        // Nor can a directory be moved to another parent without them.
        let stat = at::lstat(from, name).on("rename", shown)?;
        let closed = at::kind_of(&stat) == FileType::Directory && stat.st_mode & 0o700 != 0o700;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        if closed {
            chmod_dir(from, name, mode | Mode::RWXU).on("chmod", shown)?;
        }
        match rustix::fs::renameat(from, name, to, name) {
            // Another shell of this transfer has just put the directory there.
            Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => {
                return Ok(Moved::Meanwhile);
            }
            done => done.on("rename", shown)?,
        }
        if closed {
            chmod_dir(to, name, mode).on("chmod", shown)?;
        }
        Ok(Moved::Whole)
    })?;
    if sync {
        for rel in entered.iter().chain([&RawName::default()]) {
            let dir = at::open_dir_beneath(root.as_fd(), rel.as_path(), Links::Refuse);
            let dir = dir.on("open", shown)?;
            at::sync_dir(dir.as_fd()).on("sync", shown)?;
        }
    }
    Ok(entered)
}

fn open_root(place: &Place, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = at::DIR | OFlags::NOFOLLOW;
    retry_on_intr(|| rustix::fs::openat(place.fd(), name, flags, Mode::empty()))
}

fn chmod_dir(dir: BorrowedFd<'_>, name: &Path, mode: Mode) -> rustix::io::Result<()> {
    let flags = at::DIR | OFlags::NOFOLLOW;
    let fd = retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    // fchmod does not take an O_PATH handle; "." in it is the same directory.
    rustix::fs::chmodat(&fd, ".", mode, rustix::fs::AtFlags::empty())
}

/// What is to be done with a name.
enum Step<'a> {
    /// It is a directory at both ends; what is in it comes next.
    Enter {
        parent: BorrowedFd<'a>,
        rel: &'a RawName,
    },
    /// It goes from one directory to the other.
    Move {
        from: BorrowedFd<'a>,
        to: BorrowedFd<'a>,
    },
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// It is done.
    Whole,
    /// A directory has come to be at the other end, too.
    Meanwhile,
}

/// Does a step; gets the name, and the path for errors.
type Act<'a> = &'a mut dyn FnMut(Step<'_>, &Path, &Path) -> Result<Moved, FileError>;

/// Goes through the tree in order. What is in a directory that is not there
/// yet moves with it.
fn each(
    root: BorrowedFd<'_>,
    tree: &Tree,
    shown: &Path,
    act: Act<'_>,
) -> Result<(), FileError> {
    let mut moved: Option<&Path> = None;
    for inner in &tree.inner {
        let rel = inner.path.as_path();
        if moved.is_some_and(|moved| rel.starts_with(moved)) {
            continue;
        }
        let shown = shown.join(rel);
        let (Some(parent), Some(name)) = (rel.parent(), rel.file_name()) else {
            continue;
        };
        let name = Path::new(name);
        let to = at::open_dir_beneath(root, parent, Links::Refuse).on("open", &shown)?;
        let there = at::lstat_opt(to.as_fd(), name).on("open", &shown)?;
        let from = at::open_dir_beneath(tree.root.as_fd(), parent, Links::Refuse);
        let from = from.on("open", &shown)?;
        let is_dir = inner.kind == EntryKind::Dir;
        match there.map(|stat| (at::kind_of(&stat), stat)) {
            None => {}
            Some((FileType::Directory, _)) if is_dir => {
                let parent = from.as_fd();
                let rel = &inner.path;
                act(Step::Enter { parent, rel }, name, &shown)?;
                continue;
            }
            Some(_) if is_dir => {
                return Err(FileError::new(Errno::ENOTDIR, "open", &shown)
                    .with_hint("it is in the way of a directory"));
            }
            Some((_, stat)) => copy::check_replaceable(&stat, &shown)?,
        }
        let (from, to) = (from.as_fd(), to.as_fd());
        let done = act(Step::Move { from, to }, name, &shown)?;
        match done {
            Moved::Whole if is_dir => moved = Some(rel),
            Moved::Whole => {}
            Moved::Meanwhile => {
                let rel = &inner.path;
                act(Step::Enter { parent: from, rel }, name, &shown)?;
            }
        }
    }
    Ok(())
}
