//! One top-level copy, and what may be at its place already.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::Stat;
use rustix::fs::Timestamps;
use rustix::io::retry_on_intr;

use crate::bcast::item::Digest;
use crate::bcast::item::EntryKind;
use crate::bcast::name::RawName;
use crate::bcast::spec::Existing;
use crate::bcast::spec::Policy;
use crate::errno::Errno;
use crate::file::at;
use crate::file::claim::Claim;
use crate::file::error::FileError;
use crate::file::error::On;
use crate::file::place::Place;
use crate::file::stage;
use crate::file::stage::Temp;

use super::tree::Tree;

/// A staged copy.
#[derive(Debug)]
pub(super) struct Copy {
    /// Its name in the destination directory.
    pub(super) name: OsString,
    /// Its path, for errors.
    pub(super) shown: PathBuf,
    pub(super) body: Body,
    pub(super) bytes: u64,
    pub(super) digest: Option<Digest>,
    /// Held until it is published or given up.
    pub(super) _claim: Option<Claim>,
}

/// What is staged of it.
#[derive(Debug)]
pub(super) enum Body {
    File(Temp),
    /// Nothing: a link is made in one step.
    Symlink(RawName, Option<Timestamps>),
    Tree(Tree),
}

/// Refuses names that would be taken for staging directories.
pub(super) fn check_name(name: &OsStr, dir: &Path) -> Result<(), FileError> {
    if name.as_bytes().starts_with(stage::PREFIX.as_bytes()) {
        let error = FileError::new(Errno::EINVAL, "open", &dir.join(name));
        return Err(error.with_hint("the name is reserved for copies in the making"));
    }
    Ok(())
}

/// Refuses what may not be replaced by an entry of this kind. What is there
/// can change until the commit, which asks again.
pub(in crate::file) fn check_existing(
    place: &Place,
    name: &OsStr,
    kind: EntryKind,
    policy: &Policy,
) -> Result<(), FileError> {
    let shown = place.shown.join(name);
    let name = Path::new(name);
    let Some(stat) = at::lstat_opt(place.fd(), name).on("open", &shown)? else {
        return Ok(());
    };
    match (policy.existing, kind) {
        (Existing::Refuse, _) => Err(exists(&stat, &shown)),
        (Existing::Replace, EntryKind::Dir) => match at::kind_of(&stat) {
            FileType::Directory => Ok(()),
            _ => Err(FileError::new(Errno::ENOTDIR, "open", &shown)
                .with_hint("it is in the way of a directory")),
        },
        (Existing::Replace, _) => check_replaceable(&stat, &shown),
        (Existing::Append | Existing::Truncate, EntryKind::File) => {
            open_in_place(place, name, &shown, policy.existing).map(drop)
        }
        (Existing::Append | Existing::Truncate, _) => Err(exists(&stat, &shown)),
    }
}

/// The refusal of what is there.
pub(super) fn exists(stat: &Stat, shown: &Path) -> FileError {
    match at::kind_of(stat) {
        FileType::Directory => FileError::new(Errno::EEXIST, "open", shown).with_hint(
            "a directory of this name is there; --force puts the files of another into it",
        ),
        _ => FileError::new(Errno::EEXIST, "open", shown),
    }
}

/// Only regular files and symbolic links can be replaced by a file or link.
pub(super) fn check_replaceable(stat: &Stat, shown: &Path) -> Result<(), FileError> {
    match at::kind_of(stat) {
        FileType::RegularFile | FileType::Symlink => Ok(()),
        FileType::Directory => Err(FileError::new(Errno::EISDIR, "open", shown)),
        _ => Err(FileError::new(Errno::EEXIST, "open", shown)
            .with_hint("it is neither a regular file nor a link, and is not replaced")),
    }
}

/// Opens an existing regular file to be written in place, without changing it.
pub(super) fn open_in_place(
    place: &Place,
    name: &Path,
    shown: &Path,
    existing: Existing,
) -> Result<OwnedFd, FileError> {
    let stat = at::lstat(place.fd(), name).on("open", shown)?;
    match at::kind_of(&stat) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(FileError::new(Errno::EISDIR, "open", shown)),
        FileType::Symlink => {
            return Err(
                FileError::new(Errno::ELOOP, "open", shown).with_hint("links are not followed")
            );
        }
        _ => {
            return Err(
                FileError::new(Errno::EEXIST, "open", shown).with_hint("it is no regular file")
            );
        }
    }
    // Never waits should a FIFO take the file's place.
    let mut flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if existing == Existing::Append {
        flags |= OFlags::APPEND;
    }
    let open = || rustix::fs::openat(place.fd(), name, flags, Mode::empty());
    let fd = retry_on_intr(open).on("open", shown)?;
    let stat = rustix::fs::fstat(fd.as_fd()).on("stat", shown)?;
    if at::kind_of(&stat) != FileType::RegularFile {
        return Err(
            FileError::new(Errno::EEXIST, "open", shown).with_hint("it is no regular file")
        );
    }
    Ok(fd)
}
