//! Writing into a file that exists: append, and overwrite with its inode kept.
//!
//! Neither is atomic. Both begin only when all data is staged and verified, so
//! what can still fail is the disk.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::io::retry_on_intr;

use crate::file::at;
use crate::file::error::FileError;
use crate::file::error::On;
use crate::file::place::Place;
use crate::file::space;
use crate::file::stage::Temp;

const STEP: usize = 128 << 10;

/// A staged file, open for reading.
pub(super) fn open_staged(
    temp: &Temp,
    stage: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<OwnedFd> {
    match temp {
        Temp::Unnamed(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 0),
        Temp::Named(name) => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let stage = stage.ok_or(Errno::NOENT)?;
            retry_on_intr(|| rustix::fs::openat(stage, name, flags, Mode::empty()))
        }
    }
}

/// Appends all of `from` to `to`, which is open with `O_APPEND`: what others
/// append meanwhile is not overwritten. A failure takes back what was appended
/// if nobody else has appended since.
pub(super) fn append(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    place: &Place,
    shown: &Path,
) -> Result<(), FileError> {
    let before = size(to, shown)?;
    space::check(place.fd(), shown, size(from, shown)?)?;
    let mut appended = 0;
    append_all(from, to, &mut appended).map_err(|errno| {
        if size(to, shown).is_ok_and(|now| now == before + appended) {
            let _ = rustix::fs::ftruncate(to, before);
        }
        space::explain(FileError::new(errno, "write", shown), place.fd())
    })
}

fn append_all(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    appended: &mut u64,
) -> rustix::io::Result<()> {
    let mut buf = vec![0; STEP];
    let mut offset = 0;
    loop {
        let len = at::read_full(from, &mut buf, offset)?;
        if len == 0 {
            return Ok(());
        }
        let mut rest = &buf[..len];
        while !rest.is_empty() {
            let written = retry_on_intr(|| rustix::io::write(to, rest))?;
            *appended += written as u64;
            rest = &rest[written..];
        }
        offset += len as u64;
    }
}

/// Makes the contents of `to` those of `from`; holes stay holes.
pub(super) fn overwrite(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    place: &Place,
    shown: &Path,
) -> Result<(), FileError> {
    let failed = |errno| space::explain(FileError::new(errno, "write", shown), place.fd());
    let size = size(from, shown)?;
    rustix::fs::ftruncate(to, 0).on("truncate", shown)?;
    let mut buf = vec![0; STEP];
    let mut offset = 0;
    while offset < size {
        // Only a hint, as everywhere: without it all is data.
        offset = match rustix::fs::seek(from, SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            Err(Errno::NXIO) => break,
            Err(_) => offset,
        };
        let len = at::read_full(from, &mut buf, offset).on("read", shown)?;
        if len == 0 {
            break;
        }
        at::write_all(to, &buf[..len], offset).map_err(failed)?;
        offset += len as u64;
    }
    rustix::fs::ftruncate(to, size).map_err(failed)
}

fn size(fd: BorrowedFd<'_>, shown: &Path) -> Result<u64, FileError> {
    let stat = rustix::fs::fstat(fd.as_fd()).on("stat", shown)?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}
