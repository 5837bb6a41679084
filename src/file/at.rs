//! Directory-relative system calls that never leave the directory.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use rustix::fs::AtFlags;
use rustix::fs::Dir;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::RenameFlags;
use rustix::fs::ResolveFlags;
use rustix::fs::Stat;
use rustix::io::Errno;
use rustix::io::Result;
use rustix::io::retry_on_intr;

/// A handle on a directory for the *at calls; it needs no read permission.
pub(super) const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whether symbolic links may be followed on the way to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// As long as they stay below the root.
    Beneath,
    /// Never: one on the way is `ELOOP`.
    Refuse,
}

/// Set once openat2 turned out to be missing or forbidden (Linux before 5.6,
/// or a container's filter).
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens the directory `path` below `root`. A path that leaves `root`, by `..`
/// or by a symbolic link, is `EXDEV`. An empty path is `root` itself.
pub(super) fn open_dir_beneath(
    root: BorrowedFd<'_>,
    path: &Path,
    links: Links,
) -> Result<OwnedFd> {
    if path.as_os_str().is_empty() {
        return retry_on_intr(|| rustix::fs::openat(root, ".", DIR, Mode::empty()));
    }
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        match openat2(root, path, links) {
            Err(Errno::NOSYS | Errno::PERM) => NO_OPENAT2.store(true, Ordering::Relaxed),
            done => return done,
        }
    }
    walk_dir_beneath(root, path)
}

fn openat2(root: BorrowedFd<'_>, path: &Path, links: Links) -> Result<OwnedFd> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    // The kernel answers EAGAIN when something was renamed while it looked.
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root, path, DIR, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if tries < 100 => tries += 1,
            done => return done,
        }
    }
}

/// As [`open_dir_beneath`] without openat2; symbolic links are not followed at
/// all, so this one is stricter.
fn walk_dir_beneath(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let mut dir = retry_on_intr(|| rustix::fs::openat(root, ".", DIR, Mode::empty()))?;
    for component in path.components() {
        let name = match component {
            Component::CurDir => continue,
            Component::Normal(name) => name,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::XDEV);
            }
        };
        let flags = DIR | OFlags::NOFOLLOW;
        dir = match retry_on_intr(|| rustix::fs::openat(&dir, name, flags, Mode::empty())) {
            Err(Errno::NOTDIR) if is_symlink(dir.as_fd(), Path::new(name)) => {
                return Err(Errno::LOOP);
            }
            done => done?,
        };
    }
    Ok(dir)
}

fn is_symlink(dir: BorrowedFd<'_>, name: &Path) -> bool {
    matches!(lstat(dir, name), Ok(stat) if kind_of(&stat) == FileType::Symlink)
}

/// What kind of file a stat tells of.
pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Stats `name` in `dir`, a symbolic link itself.
pub(super) fn lstat(dir: BorrowedFd<'_>, name: &Path) -> Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// As [`lstat`], `None` if there is no such name.
pub(super) fn lstat_opt(dir: BorrowedFd<'_>, name: &Path) -> Result<Option<Stat>> {
    match lstat(dir, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The path under which the kernel knows an open file, for error messages and
/// reports; `None` where /proc is not mounted.
pub(super) fn real_path(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    let target = rustix::fs::readlink(proc_path(fd), Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

/// The magic link to an open file.
pub(super) fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// The names in a directory, without `.` and `..`, in the kernel's order.
pub(super) fn list(dir: BorrowedFd<'_>) -> Result<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = retry_on_intr(|| rustix::fs::openat(dir, ".", flags, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in Dir::new(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<()> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::pwrite(fd, bytes, offset))?;
        if written == 0 {
            return Err(Errno::IO);
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Reads at `offset` until `buf` is full or the file ends; returns how much.
pub(super) fn read_full(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        let at = offset + filled as u64;
        let read = retry_on_intr(|| rustix::io::pread(fd, &mut buf[filled..], at))?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    Ok(filled)
}

/// Removes `name` from `dir`, with everything below it if it is a directory.
/// Symbolic links are removed, not followed. A missing name is no error.
pub(super) fn remove_all(dir: BorrowedFd<'_>, name: &Path) -> Result<()> {
    match retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::empty())) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()));
    let below = match open() {
        Err(Errno::ACCESS) => {
            // A copied directory may lack permissions for its owner, too.
            rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())?;
            open()?
        }
        done => done?,
    };
    rustix::fs::fchmod(&below, Mode::RWXU)?;
    for inner in list(below.as_fd())? {
        remove_all(below.as_fd(), Path::new(&inner))?;
    }
    drop(below);
    match retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Moves to a name that is free.
///
/// # Errors
/// `EOPNOTSUPP` for a file where the file system cannot do that at one go.
pub(crate) fn rename_new(
    from_dir: BorrowedFd<'_>,
    from: &Path,
    dir: BorrowedFd<'_>,
    name: &Path,
) -> Result<()> {
    match rustix::fs::renameat_with(from_dir, from, dir, name, RenameFlags::NOREPLACE) {
        // Many network file systems cannot, NFS for one.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        done => return done,
    }
    // A directory can at worst replace an empty one that was made just now; a file
    // is not moved at all.
    if kind_of(&lstat(from_dir, from)?) != FileType::Directory {
        return Err(Errno::OPNOTSUPP);
    }
    if lstat_opt(dir, name)?.is_some() {
        return Err(Errno::EXIST);
    }
    rustix::fs::renameat(from_dir, from, dir, name)
}

/// Syncs a directory to disk.
pub(crate) fn sync_dir(dir: BorrowedFd<'_>) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = retry_on_intr(|| rustix::fs::openat(dir, ".", flags, Mode::empty()))?;
    match retry_on_intr(|| rustix::fs::fsync(&dir)) {
        // Some file systems cannot sync directories.
        Err(Errno::INVAL) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_opening_stay_beneath() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().join("base");
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::create_dir(tmp.path().join("out")).unwrap();
        std::os::unix::fs::symlink("../out", base.join("up")).unwrap();
        std::os::unix::fs::symlink("/", base.join("abs")).unwrap();
        std::os::unix::fs::symlink("a", base.join("in")).unwrap();
        let root = std::fs::File::open(&base).unwrap();
        let by_kernel = |path: &str| openat2(root.as_fd(), Path::new(path), Links::Beneath);
        let by_walk = |path: &str| walk_dir_beneath(root.as_fd(), Path::new(path));
        for path in ["..", "a/../../out", "/", "up", "abs", "up/x", "abs/tmp"] {
            assert!(by_kernel(path).is_err(), "openat2 {path}");
            assert!(by_walk(path).is_err(), "walk {path}");
        }
        for path in ["a", "a/b", "./a", "a/./b/"] {
            assert!(by_kernel(path).is_ok(), "openat2 {path}");
            assert!(by_walk(path).is_ok(), "walk {path}");
        }
        assert!(by_kernel("in/b").is_ok());
        assert_eq!(by_walk("in/b").unwrap_err(), Errno::LOOP);
        let refuse = openat2(root.as_fd(), Path::new("in/b"), Links::Refuse);
        assert_eq!(refuse.unwrap_err(), Errno::LOOP);
    }

    #[test]
    fn remove_all_does_not_follow_links_and_clears_closed_directories() {
        let tmp = tempfile::tempdir().unwrap();
        let keep = tmp.path().join("keep");
        std::fs::create_dir(&keep).unwrap();
        std::fs::write(keep.join("file"), "x").unwrap();
        let tree = tmp.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::os::unix::fs::symlink(&keep, tree.join("a/link")).unwrap();
        rustix::fs::chmod(tree.join("a"), Mode::empty()).unwrap();
        let root = std::fs::File::open(tmp.path()).unwrap();
        remove_all(root.as_fd(), Path::new("tree")).unwrap();
        assert!(!tree.exists());
        assert!(keep.join("file").exists());
        remove_all(root.as_fd(), Path::new("tree")).unwrap();
    }
}
