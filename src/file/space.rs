//! Room in a directory: permission to write there, and free bytes.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::Access;
use rustix::fs::AtFlags;

use crate::errno::Errno;

use super::error::FileError;
use super::error::On;

/// Fails unless this process may create files in `dir` (`EACCES`, `EROFS`).
pub(super) fn check_writable(dir: BorrowedFd<'_>, shown: &Path) -> Result<(), FileError> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    let done = match rustix::fs::accessat(dir, ".", wanted, AtFlags::EACCESS) {
        // Before Linux 5.8 there is no check for the effective user; in a
        // shell it is the real one as well.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
            rustix::fs::accessat(dir, ".", wanted, AtFlags::empty())
        }
        done => done,
    };
    done.on("open", shown)
}

/// Bytes that this process can still write in the file system of `dir`.
pub(super) fn free(dir: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let stat = rustix::fs::fstatvfs(dir)?;
    let blocks = if rustix::process::geteuid().is_root() {
        stat.f_bfree
    } else {
        stat.f_bavail
    };
    let size = if stat.f_frsize == 0 {
        stat.f_bsize
    } else {
        stat.f_frsize
    };
    // A tmpfs without a limit tells of no blocks at all.
    if stat.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(blocks.saturating_mul(size))
}

/// Fails with `ENOSPC` if `bytes` do not fit. Nothing is reserved: allocating
/// beforehand would fill the holes of sparse files.
pub(super) fn check(dir: BorrowedFd<'_>, shown: &Path, bytes: u64) -> Result<(), FileError> {
    let free = free(dir).on("statvfs", shown)?;
    if bytes <= free {
        return Ok(());
    }
    Err(FileError::new(Errno::ENOSPC, "write", shown)
        .with_hint(format!("{bytes} bytes are needed, {free} are free")))
}

/// Adds to an `ENOSPC` how much room there is.
pub(super) fn explain(error: FileError, dir: BorrowedFd<'_>) -> FileError {
    match free(dir) {
        Ok(free) if error.errno() == Errno::ENOSPC => {
            error.with_hint(format!("{free} bytes are free"))
        }
        _ => error,
    }
}

/// File systems of which write(2) may succeed though the server will refuse the
/// data (`ENOSPC`, `EDQUOT`, `EIO`): NFS, SMB in its three spellings, FUSE,
/// Lustre, Ceph.
const DEFERRING: [i64; 7] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0bd0_0bd0,
    0x00c3_6400,
];

/// Whether an error of write may show only when the file is flushed. (It would
/// also show at close(2), whose result cannot be had without unsafe code.)
pub(super) fn defers_errors(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(dir).is_ok_and(|fs| {
        // The type of f_type differs between machines; all of them hold these.
        let magic = i128::from(fs.f_type) & 0xffff_ffff;
        DEFERRING.iter().any(|known| i128::from(*known) == magic)
    })
}
