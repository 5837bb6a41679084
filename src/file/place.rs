//! Where a copy goes: the directory, opened, and the name in it.
//!
//! A relative destination is resolved below the job's temporary directory and
//! cannot leave it, neither by `..` nor by a symbolic link; an absolute one is
//! taken as given. Everything after this is done relative to the opened
//! directory, so a path that changes meanwhile changes nothing.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::io::retry_on_intr;

use crate::bcast::name::RawName;
use crate::bcast::spec::Dest;
use crate::errno::Errno;

use super::at;
use super::at::Links;
use super::error::FileError;
use super::error::On;

/// An opened destination.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory that the copies go into.
    pub(super) dir: OwnedFd,
    /// Its path as asked for, made absolute; for errors.
    pub(super) shown: PathBuf,
    /// Its path as the kernel knows it; for reports.
    pub(super) real: PathBuf,
    /// Name of the single copy; `None` if the copies keep their names.
    pub(super) name: Option<OsString>,
    /// Directories that were made on the way, outermost first.
    made: Vec<Made>,
}

/// A directory that was made for this transfer.
#[derive(Debug)]
struct Made {
    parent: OwnedFd,
    name: OsString,
    inode: (u64, u64),
}

/// What to do about a missing directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Refuse,
}

/// Whose a directory is that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// One that somebody else has just made will do as well (mode 0777 less
    /// umask).
    Anybody,
    /// It must be new, and is the owner's alone.
    Ours,
}

/// How a destination reads before anything is looked up.
struct Wanted {
    /// Path of the directory: relative to the base, or absolute.
    dir: PathBuf,
    /// Name of the copy.
    name: Option<OsString>,
}

impl Place {
    /// Finds the destination; with `Missing::Make` makes its directories.
    /// `transfer` names the directory that `Dest::unique` asks for.
    ///
    /// # Errors
    /// `EPERM` for a relative path that leads out of `base`, `ENOENT` naming
    /// the first missing directory, `EISDIR` for a name that is a directory,
    /// `EINVAL` for a path that can be none.
    pub(super) fn find(
        base: &Path,
        dest: &Dest,
        transfer: &str,
        missing: Missing,
    ) -> Result<Place, FileError> {
        let wanted = read(base, dest)?;
        let absolute = wanted.dir.is_absolute();
        let root_path = if absolute { Path::new("/") } else { base };
        let open = || rustix::fs::openat(CWD, root_path, at::DIR, Mode::empty());
        let root = retry_on_intr(open).map_err(|errno| {
            let error = FileError::new(errno, "open", root_path);
            if absolute {
                return error;
            }
            error.with_hint("relative destinations are below this directory")
        })?;
        let mut finder = Finder {
            root,
            root_path: root_path.to_path_buf(),
            beneath: !absolute,
            made: Vec::new(),
        };
        match finder.finish(&wanted, dest, transfer, missing) {
            Ok((dir, shown)) => Ok(Place {
                real: at::real_path(dir.as_fd()).unwrap_or_else(|| shown.clone()),
                dir,
                shown,
                name: wanted.name,
                made: finder.made,
            }),
            Err(error) => {
                unmake(&mut finder.made);
                Err(error)
            }
        }
    }

    /// The directory, for *at calls.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Removes the directories that were made, if nothing is in them.
    pub(super) fn unmake(&mut self) {
        unmake(&mut self.made);
    }

    /// Syncs to disk that directories were made.
    pub(super) fn sync_made(&self) -> Result<(), FileError> {
        for made in &self.made {
            at::sync_dir(made.parent.as_fd()).on("sync", &self.shown)?;
        }
        Ok(())
    }

    /// The directories that were made stay.
    pub(super) fn keep(&mut self) {
        self.made.clear();
    }
}

fn unmake(made: &mut Vec<Made>) {
    while let Some(dir) = made.pop() {
        let name = Path::new(&dir.name);
        let ours = at::lstat(dir.parent.as_fd(), name)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == dir.inode);
        if ours {
            // Fails, as it should, if somebody has put something there.
            let _ = rustix::fs::unlinkat(&dir.parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Splits a destination into directory and name, without looking anything up.
fn read(base: &Path, dest: &Dest) -> Result<Wanted, FileError> {
    let invalid = |path: &Path, why: &'static str| {
        Err(FileError::new(Errno::EINVAL, "open", path).with_hint(why))
    };
    let Some(path) = &dest.path else {
        return Ok(Wanted {
            dir: PathBuf::new(),
            name: None,
        });
    };
    let bytes = path.as_bytes();
    let path = path.as_path();
    if bytes.is_empty() {
        return Err(FileError::new(Errno::ENOENT, "open", path).with_hint("an empty path"));
    }
    if bytes.contains(&0) {
        return invalid(path, "a path cannot contain NUL");
    }
    if dest.unique {
        return invalid(path, "a unique directory is chosen by the service");
    }
    if !path.is_absolute() && path.components().any(|part| part == Component::ParentDir) {
        return Err(escape(&base.join(path)));
    }
    // `a/.` and `a/..` can only be directories.
    let last = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(b"");
    if dest.directory || last.is_empty() || last == b"." || last == b".." {
        return Ok(Wanted {
            dir: path.to_path_buf(),
            name: None,
        });
    }
    let dir = path.parent().unwrap_or(Path::new(""));
    Ok(Wanted {
        dir: dir.to_path_buf(),
        name: Some(OsStr::from_bytes(last).to_os_string()),
    })
}

fn escape(path: &Path) -> FileError {
    FileError::new(Errno::EPERM, "open", path)
        .with_hint("a relative destination cannot lead out of the job's temporary directory")
}

struct Finder {
    root: OwnedFd,
    root_path: PathBuf,
    /// The root cannot be left.
    beneath: bool,
    made: Vec<Made>,
}

impl Finder {
    fn finish(
        &mut self,
        wanted: &Wanted,
        dest: &Dest,
        transfer: &str,
        missing: Missing,
    ) -> Result<(OwnedFd, PathBuf), FileError> {
        let missing_dirs = if dest.mkdir { missing } else { Missing::Refuse };
        let (mut dir, mut shown) = self.directory(&wanted.dir, missing_dirs)?;
        if dest.unique && missing == Missing::Make {
            let name = format!("bcast-{transfer}");
            shown.push(&name);
            dir = self.make(dir, Path::new(&name), &shown, Sharing::Ours)?;
        }
        if let Some(name) = &wanted.name {
            let path = shown.join(name);
            let stat = at::lstat_opt(dir.as_fd(), Path::new(name)).on("open", &path)?;
            if stat.is_some_and(|stat| at::kind_of(&stat) == FileType::Directory) {
                return Err(FileError::new(Errno::EISDIR, "open", &path)
                    .with_hint("end the destination with / to put the copies into it"));
            }
        }
        Ok((dir, shown))
    }

    /// Opens the directory, making what is missing if that was asked for.
    fn directory(
        &mut self,
        wanted: &Path,
        missing: Missing,
    ) -> Result<(OwnedFd, PathBuf), FileError> {
        let whole = self.root_path.join(wanted);
        match self.open(wanted) {
            Ok(dir) => return Ok((dir, whole)),
            Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(self.error(errno, &whole)),
        }
        // Step by step, each step from the root, so that links on the way are
        // judged as in one go.
        let mut so_far = PathBuf::new();
        let mut dir = self.open(&so_far).on("open", &self.root_path)?;
        for part in wanted.components() {
            so_far.push(part);
            let shown = self.root_path.join(&so_far);
            dir = match (self.open(&so_far), part) {
                (Ok(next), _) => next,
                (Err(rustix::io::Errno::NOENT), Component::Normal(name)) => {
                    if missing == Missing::Refuse {
                        return Err(FileError::new(Errno::ENOENT, "open", &shown).with_hint(
                            format!(
                                "directory {} does not exist; --mkdir (or bcast.mkdir) makes it",
                                RawName::from(wanted)
                            ),
                        ));
                    }
                    self.make(dir, Path::new(name), &shown, Sharing::Anybody)?
                }
                (Err(errno), _) => return Err(self.error(errno, &shown)),
            };
        }
        Ok((dir, whole))
    }

    fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        if self.beneath {
            return at::open_dir_beneath(self.root.as_fd(), path, Links::Beneath);
        }
        let path = if path.as_os_str().is_empty() {
            Path::new("/")
        } else {
            path
        };
        retry_on_intr(|| rustix::fs::openat(CWD, path, at::DIR, Mode::empty()))
    }

    fn error(&self, errno: rustix::io::Errno, path: &Path) -> FileError {
        if self.beneath && errno == rustix::io::Errno::XDEV {
            return escape(path);
        }
        FileError::new(errno, "open", path)
    }

    /// Makes one directory and opens it.
    fn make(
        &mut self,
        parent: OwnedFd,
        name: &Path,
        shown: &Path,
        sharing: Sharing,
    ) -> Result<OwnedFd, FileError> {
        let mode = match sharing {
            Sharing::Anybody => Mode::from_raw_mode(0o777),
            Sharing::Ours => Mode::RWXU,
        };
        let made = rustix::fs::mkdirat(&parent, name, mode);
        match made {
            Err(rustix::io::Errno::EXIST) if sharing == Sharing::Anybody => {}
            done => done.on("mkdir", shown)?,
        }
        let dir =
            at::open_dir_beneath(parent.as_fd(), name, Links::Refuse).on("open", shown)?;
        if made.is_ok() {
            let stat = rustix::fs::fstat(&dir).on("stat", shown)?;
            self.made.push(Made {
                parent,
                name: name.as_os_str().to_os_string(),
                inode: (stat.st_dev, stat.st_ino),
            });
        }
        Ok(dir)
    }
}
