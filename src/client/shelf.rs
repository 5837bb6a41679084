//! Where gathered files wait until all are there: a hidden directory next to
//! their destinations, one directory in it for each rank.
//!
//! Publishing is renaming, which cannot run out of space. If it fails half-way
//! it is taken back.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::RenameFlags;
use rustix::fs::linkat;
use rustix::fs::renameat;
use rustix::fs::renameat_with;

use crate::errno::Errno;
use crate::file::at;

/// See the module's documentation. Dropping it removes what was not published.
#[derive(Debug)]
pub(super) struct Shelf {
    dir: PathBuf,
    /// Directories that were made to have it there.
    made: Vec<Step>,
}

/// What goes wrong: the path, the number, and what the number does not say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShelfError {
    pub(super) errno: Errno,
    pub(super) text: String,
}

impl ShelfError {
    fn new(path: &Path, op: &str, error: &io::Error, hint: &str) -> Self {
        let errno = Errno::from(error);
        Self::with(path, op, errno, hint)
    }

    fn with(path: &Path, op: &str, errno: Errno, hint: &str) -> Self {
        let path = crate::bcast::name::RawName::from(path);
        let hint = if hint.is_empty() {
            String::new()
        } else {
            format!(" ({hint})")
        };
        Self {
            errno,
            text: format!("{op} {path}: {errno}{hint}"),
        }
    }
}

type Result<T> = std::result::Result<T, ShelfError>;

/// Paths by rank.
pub(super) type Published = Vec<(u32, Vec<PathBuf>)>;

/// How a name got what it has now.
#[derive(Debug)]
enum Step {
    /// It was free.
    Moved { from: PathBuf, to: PathBuf },
    /// It had a file, which is now on the shelf.
    Swapped { from: PathBuf, to: PathBuf },
    /// The same, where names cannot be exchanged.
    Replaced { old: PathBuf, to: PathBuf },
    /// A directory was made.
    Made(PathBuf),
}

impl Step {
    /// The name.
    fn to(&self) -> &Path {
        match self {
            Self::Moved { to, .. } | Self::Swapped { to, .. } | Self::Replaced { to, .. } => to,
            Self::Made(dir) => dir,
        }
    }
}

impl Shelf {
    /// Makes it in `parent`, which is made if only itself is missing, or with
    /// all its parents.
    pub(super) fn make(parent: &Path, id: &str, parents: bool) -> Result<Self> {
        let mut made = Vec::new();
        if parents {
            make_dirs(parent, &mut made)?;
        } else {
            match fs::create_dir(parent) {
                Ok(()) => made.push(Step::Made(parent.to_path_buf())),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let hint = match error.kind() {
                        io::ErrorKind::NotFound => "--mkdir makes its parents",
                        _ => "",
                    };
                    return Err(ShelfError::new(parent, "mkdir", &error, hint));
                }
            }
        }
        let dir = parent.join(format!(".flux-gather.{id}"));
        // What the user has named is at fault, not a name that nobody sees.
        fs::create_dir(&dir)
            .map_err(|error| ShelfError::new(parent, "make a directory in", &error, ""))?;
        Ok(Self { dir, made })
    }

    /// The directory of all.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Moves what is there for each rank into that rank's directory, which is
    /// made if it is missing; all of it or, on failure, nothing. With `sync` the
    /// names are on disk then. Returns the paths by rank.
    ///
    /// # Errors
    /// The rank, and what failed.
    pub(super) fn publish(
        &self,
        ranks: &[(u32, PathBuf)],
        replace: bool,
        sync: bool,
    ) -> std::result::Result<Published, (u32, ShelfError)> {
        let mut steps = Vec::new();
        let mut published = Vec::new();
        if let (true, Some((rank, _))) = (sync, ranks.first()) {
            sync_names(&self.made).map_err(|error| (*rank, error))?;
        }
        for (rank, to) in ranks {
            let before = steps.len();
            let done = self.publish_rank(*rank, to, replace, &mut steps);
            let done = done.and_then(|paths| {
                let changed = steps.get(before..).unwrap_or_default();
                if sync {
                    sync_names(changed)?
                }
                Ok(paths)
            });
            match done {
                Ok(paths) => published.push((*rank, paths)),
                Err(error) => {
                    take_back(steps);
                    return Err((*rank, error));
                }
            }
        }
        Ok(published)
    }

    fn publish_rank(
        &self,
        rank: u32,
        to: &Path,
        replace: bool,
        steps: &mut Vec<Step>,
    ) -> Result<Vec<PathBuf>> {
        make_dirs(to, steps)?;
        let from = self.dir.join(rank.to_string());
        let mut paths = Vec::new();
        for name in names(&from)? {
            let (from, to) = (from.join(&name), to.join(&name));
            let spare = self.dir.join(format!("old.{rank}.{}", steps.len()));
            steps.push(move_one(from, to.clone(), replace, spare)?);
            paths.push(to);
        }
        Ok(paths)
    }
}

fn names(dir: &Path) -> Result<Vec<OsString>> {
    let fail = |error: &io::Error| ShelfError::new(dir, "read", error, "");
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| fail(&error))? {
        names.push(entry.map_err(|error| fail(&error))?.file_name());
    }
    names.sort();
    Ok(names)
}

fn make_dirs(dir: &Path, steps: &mut Vec<Step>) -> Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => {
            steps.push(Step::Made(dir.to_path_buf()));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = dir
                .parent()
                .ok_or_else(|| ShelfError::new(dir, "mkdir", &error, ""))?;
            make_dirs(parent, steps)?;
            make_dirs(dir, steps)
        }
        Err(error) => Err(ShelfError::new(dir, "mkdir", &error, "")),
    }
}

/// Moves to a name, which must be free, or may have a file that is replaced; where the
/// two cannot be exchanged, that is kept at `spare`.
fn move_one(from: PathBuf, to: PathBuf, replace: bool, spare: PathBuf) -> Result<Step> {
    let fail = |errno: rustix::io::Errno| ShelfError::with(&to, "rename", errno.into(), "");
    match move_new(&from, &to) {
        Ok(()) => return Ok(Step::Moved { from, to }),
        Err(rustix::io::Errno::EXIST) if replace => {}
        Err(errno) => return Err(fail(errno)),
    }
    if is_dir(&to) || is_dir(&from) {
        let hint = "a directory is not replaced, nor by one";
        return Err(ShelfError::with(&to, "rename", Errno::EEXIST, hint));
    }
    match renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE) {
        Ok(()) => return Ok(Step::Swapped { from, to }),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
        Err(errno) => return Err(fail(errno)),
    }
    linkat(CWD, &to, CWD, &spare, AtFlags::empty()).map_err(fail)?;
    renameat(CWD, &from, CWD, &to).map_err(fail)?;
    Ok(Step::Replaced { old: spare, to })
}

/// Moves to a name that is free.
fn move_new(from: &Path, to: &Path) -> rustix::io::Result<()> {
    match at::rename_new(CWD, from, CWD, to) {
        Err(rustix::io::Errno::OPNOTSUPP) => {}
        done => return done,
    }
    linkat(CWD, from, CWD, to, AtFlags::empty())?;
    // The other name goes with the shelf at the latest.
    let _ = fs::remove_file(from);
    Ok(())
}

fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

/// Flushes the directories that have got names.
fn sync_names(steps: &[Step]) -> Result<()> {
    let dirs: BTreeSet<&Path> = steps.iter().filter_map(|step| step.to().parent()).collect();
    for dir in dirs {
        let here = dir.as_os_str().is_empty().then_some(Path::new("."));
        let opened = fs::File::open(here.unwrap_or(dir));
        let opened = opened.map_err(|error| ShelfError::new(dir, "sync", &error, ""))?;
        at::sync_dir(opened.as_fd())
            .map_err(|errno| ShelfError::with(dir, "sync", errno.into(), ""))?;
    }
    Ok(())
}

fn take_back(steps: Vec<Step>) {
    for step in steps.into_iter().rev() {
        // Best effort: what cannot be moved back stays, complete.
        let _ = match step {
            Step::Moved { from, to } => fs::rename(to, from),
            Step::Swapped { from, to } => {
                renameat_with(CWD, to, CWD, from, RenameFlags::EXCHANGE).map_err(Into::into)
            }
            Step::Replaced { old, to } => fs::rename(old, to),
            Step::Made(dir) => fs::remove_dir(dir),
        };
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(top: &Path, files: &[(u32, &str, &str)]) -> Shelf {
        let shelf = Shelf::make(&top.join("out"), "id", false).unwrap();
        for (rank, name, text) in files {
            let dir = shelf.dir().join(rank.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(name), text).unwrap();
        }
        shelf
    }

    fn ranks(top: &Path) -> Vec<(u32, PathBuf)> {
        (0..2)
            .map(|rank| (rank, top.join("out").join(rank.to_string())))
            .collect()
    }

    fn read(top: &Path, path: &str) -> Option<String> {
        fs::read_to_string(top.join("out").join(path)).ok()
    }

    #[test]
    fn all_appear_and_the_shelf_goes() {
        let top = tempfile::tempdir().unwrap();
        let shelf = shelf(top.path(), &[(0, "f", "a"), (1, "f", "b")]);
        let published = shelf.publish(&ranks(top.path()), false, false).unwrap();
        assert_eq!(published[1].1, [top.path().join("out/1/f")]);
        drop(shelf);
        assert_eq!(read(top.path(), "0/f").as_deref(), Some("a"));
        assert_eq!(read(top.path(), "1/f").as_deref(), Some("b"));
        assert_eq!(fs::read_dir(top.path().join("out")).unwrap().count(), 2);
    }

    #[test]
    fn a_taken_name_takes_everything_back() {
        let top = tempfile::tempdir().unwrap();
        let shelf = shelf(top.path(), &[(0, "f", "a"), (1, "f", "b")]);
        fs::create_dir(top.path().join("out/1")).unwrap();
        fs::write(top.path().join("out/1/f"), "old").unwrap();
        let (rank, error) = shelf.publish(&ranks(top.path()), false, false).unwrap_err();
        assert_eq!((rank, error.errno), (1, Errno::EEXIST));
        assert!(!top.path().join("out/0").exists());
        assert_eq!(read(top.path(), "1/f").as_deref(), Some("old"));
    }

    #[test]
    fn replacing_is_taken_back_too() {
        let top = tempfile::tempdir().unwrap();
        let shelf = shelf(top.path(), &[(0, "f", "a"), (1, "f", "b")]);
        for rank in ["0", "1"] {
            fs::create_dir(top.path().join("out").join(rank)).unwrap();
        }
        fs::write(top.path().join("out/0/f"), "old").unwrap();
        fs::create_dir(top.path().join("out/1/f")).unwrap();
        assert_eq!(
            shelf.publish(&ranks(top.path()), true, true).unwrap_err().0,
            1
        );
        assert_eq!(read(top.path(), "0/f").as_deref(), Some("old"));
        fs::remove_dir(top.path().join("out/1/f")).unwrap();
        shelf.publish(&ranks(top.path()), true, true).unwrap();
        assert_eq!(read(top.path(), "0/f").as_deref(), Some("a"));
    }
}
