//! The things a caller can name as a source, and the first look at each.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::retry_on_intr;

use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::at;
use crate::file::error::FileError;
use crate::file::error::On;

use super::reader;
use super::walk::FileFacts;
use super::walk::Found;
use super::walk::What;

/// Up to so many inputs are opened at once, so that an unreadable one is
/// reported before anything is sent; more would use up the descriptors.
pub(super) const KEEP_OPEN: usize = 64;

/// Which symbolic links are followed rather than copied as links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None.
    Never,
    /// Those named by the caller, not those inside a directory.
    #[default]
    Named,
    /// All.
    Always,
}

/// Where the contents of a source come from.
#[derive(Debug)]
pub enum Origin {
    /// A file, directory or symbolic link.
    Path(PathBuf),
    /// An open file. A regular one is read from its start to its end whatever
    /// its offset, which stays as it is.
    Fd(OwnedFd),
    /// These bytes.
    Memory(Vec<u8>),
    /// Whatever can be read from here until end of file, from the current
    /// offset on: a pipe, standard input.
    Stream(OwnedFd),
    /// A directory (mode 0755) that exists nowhere: these regular files, by
    /// their names in it.
    Set(Vec<(RawName, PathBuf)>),
}

/// One source.
#[derive(Debug)]
pub struct Input {
    /// Where the contents come from.
    pub origin: Origin,
    /// Name of the copy; `None` takes the last component of the path. Needed
    /// for everything but paths.
    pub name: Option<RawName>,
    /// Permission bits for what has none of its own (memory, streams).
    pub mode: u32,
}

impl Input {
    /// The file at `path` under its own name.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::new(Origin::Path(path.into()), None)
    }

    /// Any origin with the name of the copy; mode 0644 where it has none.
    pub fn new(origin: Origin, name: Option<RawName>) -> Self {
        Self {
            origin,
            name,
            mode: 0o644,
        }
    }

    /// One that reads the same; `None` for what can be read only once, or if
    /// there is no descriptor left for it.
    pub fn again(&self) -> Option<Self> {
        let origin = match &self.origin {
            Origin::Path(path) => Origin::Path(path.clone()),
            Origin::Fd(fd) => Origin::Fd(fd.try_clone().ok()?),
            Origin::Memory(data) => Origin::Memory(data.clone()),
            Origin::Set(files) => Origin::Set(files.clone()),
            Origin::Stream(_) => return None,
        };
        Some(Self {
            origin,
            name: self.name.clone(),
            mode: self.mode,
        })
    }
}

/// A source as it is kept while reading.
#[derive(Debug)]
pub(super) struct Top {
    /// Name of the copy.
    pub(super) name: RawName,
    /// The path as the caller gave it, or a word for what has none; for errors.
    pub(super) shown: PathBuf,
    /// What is read.
    pub(super) from: From,
}

/// What a source is read from.
#[derive(Debug)]
pub(super) enum From {
    /// A directory.
    Dir(OwnedFd),
    /// A regular file; taken when its turn comes.
    File(Option<OwnedFd>),
    /// A path that is opened when its turn comes.
    Later,
    /// Bytes; taken when their turn comes.
    Memory(Vec<u8>),
    /// A stream; taken when its turn comes.
    Stream(Option<OwnedFd>),
    /// Files by their names in a directory to be.
    Set(BTreeMap<RawName, PathBuf>),
    /// Nothing to read.
    Nothing,
}

/// Finds out what an input is; the `index` is its place among the inputs.
pub(super) fn look(
    input: Input,
    index: usize,
    follow: Follow,
    keep_open: bool,
) -> Result<(Top, Found), FileError> {
    let mode = input.mode & 0o777;
    let (shown, default_name) = match &input.origin {
        Origin::Path(path) => (path.clone(), last_component(path)),
        Origin::Fd(fd) => (
            at::real_path(fd.as_fd()).unwrap_or_else(|| PathBuf::from("open file")),
            None,
        ),
        Origin::Memory(_) => (PathBuf::from("memory"), None),
        Origin::Stream(_) => (PathBuf::from("standard input"), None),
        Origin::Set(_) => (PathBuf::from("set of files"), None),
    };
    let Some(name) = input.name.or(default_name) else {
        if let Origin::Path(path) = &input.origin {
            // That there is nothing is worth more than that it has no name.
            rustix::fs::statat(CWD, path, AtFlags::empty()).on("open", &shown)?;
        }
        let error = FileError::new(Errno::EINVAL, "send", &shown);
        return Err(error.with_hint("the copy needs a name"));
    };
    check_name(&name, &shown)?;
    let (from, found) = match input.origin {
        Origin::Path(path) => look_at_path(&path, index, follow, keep_open)?,
        Origin::Fd(fd) => look_at_fd(fd, &shown, index, mode)?,
        Origin::Memory(bytes) => {
            let facts = FileFacts::unchecked(Some(bytes.len() as u64));
            (From::Memory(bytes), Found::plain(index, facts, mode))
        }
        Origin::Stream(fd) => {
            if at::kind_of(&rustix::fs::fstat(&fd).on("stat", &shown)?) == FileType::Directory {
                return Err(FileError::new(Errno::EISDIR, "read", &shown));
            }
            let facts = FileFacts::unchecked(None);
            (From::Stream(Some(fd)), Found::plain(index, facts, mode))
        }
        Origin::Set(members) => {
            let mut found = Found::plain(index, FileFacts::unchecked(None), 0o755);
            found.what = What::Dir;
            for (name, path) in &members {
                check_name(name, path)?;
            }
            (From::Set(members.into_iter().collect()), found)
        }
    };
    Ok((Top { name, shown, from }, found))
}

/// The name a path gives to its copy. `dir/.`, `..` and `/` have none of
/// their own: the first two are asked of the system, the last needs a name.
fn last_component(path: &Path) -> Option<RawName> {
    let name = |path: &Path| path.file_name().map(|name| RawName::new(name.as_bytes()));
    name(path).or_else(|| name(&std::fs::canonicalize(path).ok()?))
}

fn check_name(name: &RawName, shown: &Path) -> Result<(), FileError> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        let error = FileError::new(Errno::EINVAL, "send", shown);
        return Err(error.with_hint(format!("\"{name}\" cannot be the name of a copy")));
    }
    if bytes.contains(&0) {
        return Err(FileError::new(Errno::EINVAL, "send", shown).with_hint("NUL in a name"));
    }
    Ok(())
}

fn look_at_path(
    path: &Path,
    index: usize,
    follow: Follow,
    keep_open: bool,
) -> Result<(From, Found), FileError> {
    if path.as_os_str().is_empty() {
        return Err(FileError::new(Errno::ENOENT, "open", path));
    }
    let flags = match follow {
        Follow::Never => AtFlags::SYMLINK_NOFOLLOW,
        Follow::Named | Follow::Always => AtFlags::empty(),
    };
    let stat = rustix::fs::statat(CWD, path, flags).on("open", path)?;
    let mut found = Found::new(index, OsStr::new(""), &stat);
    let from = match at::kind_of(&stat) {
        FileType::RegularFile => {
            // Opened even if it is closed again: an unreadable file is better
            // reported now than after gigabytes of others.
            let (fd, facts) = reader::open_regular(CWD, path, path, follow == Follow::Never)?;
            found.what = What::File(facts);
            if keep_open {
                From::File(Some(fd))
            } else {
                From::Later
            }
        }
        FileType::Directory => {
            found.what = What::Dir;
            if keep_open {
                From::Dir(open_dir(path)?)
            } else {
                From::Later
            }
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(CWD, path, Vec::new()).on("readlink", path)?;
            found.what = What::Symlink(RawName::new(target.into_bytes()));
            From::Nothing
        }
        other => return Err(not_copied(other, path)),
    };
    Ok((from, found))
}

/// A handle on a directory that the caller named.
pub(super) fn open_dir(path: &Path) -> Result<OwnedFd, FileError> {
    let open = || rustix::fs::openat(CWD, path, at::DIR, Mode::empty());
    retry_on_intr(open).on("open", path)
}

fn look_at_fd(
    fd: OwnedFd,
    shown: &Path,
    index: usize,
    mode: u32,
) -> Result<(From, Found), FileError> {
    let stat = rustix::fs::fstat(&fd).on("stat", shown)?;
    let flags = rustix::fs::fcntl_getfl(&fd).on("open", shown)?;
    if flags & OFlags::ACCMODE == OFlags::WRONLY || flags.contains(OFlags::PATH) {
        let error = FileError::new(Errno::EBADF, "read", shown);
        return Err(error.with_hint("it is not open for reading"));
    }
    match at::kind_of(&stat) {
        FileType::RegularFile => {
            let mut found = Found::new(index, OsStr::new(""), &stat);
            // The caller shares the offset, which seeking for holes would move.
            found.what = What::File(FileFacts {
                seek: false,
                ..reader::facts(fd.as_fd(), &stat)
            });
            Ok((From::File(Some(fd)), found))
        }
        FileType::Fifo | FileType::Socket => {
            let facts = FileFacts::unchecked(None);
            let found = Found::plain(index, facts, mode);
            Ok((From::Stream(Some(fd)), found))
        }
        FileType::Directory => Err(FileError::new(Errno::EISDIR, "read", shown)),
        other => Err(not_copied(other, shown)),
    }
}

/// The refusal of a file that is neither regular nor a directory or link.
pub(super) fn not_copied(kind: FileType, path: &Path) -> FileError {
    let kind = match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no regular file",
    };
    FileError::new(Errno::EINVAL, "read", path)
        .with_hint(format!("it is {kind}, which is not copied"))
}
