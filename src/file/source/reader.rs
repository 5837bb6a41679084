//! Reading one file, from one descriptor, and noticing when it changes.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::AtFlags;
use rustix::fs::CWD;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::SeekFrom;
use rustix::fs::Stat;
use rustix::io::retry_on_intr;

use crate::bcast::item::Digest;
use crate::errno::Errno;
use crate::file::MAX_HOLE;
use crate::file::at;
use crate::file::digest::Hasher;
use crate::file::error::FileError;
use crate::file::error::On;

use super::input::From;
use super::input::Top;
use super::input::not_copied;
use super::stream::Stream;
use super::walk::FileFacts;
use super::walk::Found;
use super::walk::State;

/// File systems whose sizes say nothing: proc, sysfs, debugfs, tracefs, cgroup,
/// cgroup2, securityfs.
const UNSIZED: [i64; 7] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x0027_e0eb,
    0x6367_7270,
    0x7363_6673,
];

/// What a reader has next; the bytes of `Data` are in the buffer.
pub(super) enum Piece {
    Data { offset: u64 },
    Hole { offset: u64, len: u64 },
    End { size: u64, digest: Digest },
}

enum Body {
    File { fd: OwnedFd, facts: FileFacts },
    Memory(Vec<u8>),
    Stream(Stream),
}

/// One file that is being read.
pub(super) struct Reader {
    body: Body,
    shown: PathBuf,
    chunk: u64,
    offset: u64,
    /// Up to here the file is known to have no hole.
    data_end: u64,
    hasher: Hasher,
}

/// Opens a regular file without ever waiting (for the writer of a FIFO, say).
pub(super) fn open_regular(
    dir: impl AsFd,
    name: &Path,
    shown: &Path,
    no_follow: bool,
) -> Result<(OwnedFd, FileFacts), FileError> {
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if no_follow {
        flags |= OFlags::NOFOLLOW;
    }
    let open = || rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty());
    let fd = retry_on_intr(open).on("open", shown)?;
    let stat = rustix::fs::fstat(&fd).on("stat", shown)?;
    match at::kind_of(&stat) {
        FileType::RegularFile => {
            let facts = facts(fd.as_fd(), &stat);
            Ok((fd, facts))
        }
        other => Err(not_copied(other, shown)),
    }
}

/// What is known of an open regular file.
pub(super) fn facts(fd: BorrowedFd<'_>, stat: &Stat) -> FileFacts {
    let special = rustix::fs::fstatfs(fd).is_ok_and(|fs| {
        UNSIZED
            .iter()
            .any(|magic| i128::from(*magic) == i128::from(fs.f_type))
    });
    if special {
        return FileFacts::unchecked(None);
    }
    FileFacts {
        size: Some(u64::try_from(stat.st_size).unwrap_or(0)),
        allocated: u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        seek: true,
        state: Some(State::of(stat)),
    }
}

/// As [`facts`] for a file that is only opened later. Only one of size 0 or
/// without blocks can belong to a file system whose sizes say nothing.
pub(super) fn facts_unopened(dir: BorrowedFd<'_>, name: &Path, stat: &Stat) -> FileFacts {
    let plain = FileFacts {
        size: Some(u64::try_from(stat.st_size).unwrap_or(0)),
        allocated: u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        seek: true,
        state: Some(State::of(stat)),
    };
    if stat.st_blocks > 0 {
        return plain;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty())) {
        Ok(fd) => facts(fd.as_fd(), stat),
        Err(_) => plain,
    }
}

impl Reader {
    /// Begins to read an entry.
    pub(super) fn open(
        top: &mut Top,
        found: &Found,
        facts: &FileFacts,
        chunk: u64,
    ) -> Result<Reader, FileError> {
        let shown = found.shown(top);
        let body = match &mut top.from {
            From::File(fd) => match fd.take() {
                Some(fd) => Body::File { fd, facts: *facts },
                None => return Err(FileError::new(Errno::EBADF, "read", &shown)),
            },
            From::Later => open_again(CWD, &shown, &shown, facts)?,
            From::Dir(dir) => {
                // Found::rel was walked from this very directory; if a part of
                // it has since become a link elsewhere, the inode tells.
                open_again(dir.as_fd(), found.rel.as_path(), &shown, facts)?
            }
            From::Memory(bytes) => Body::Memory(std::mem::take(bytes)),
            From::Stream(fd) => match fd.take() {
                Some(fd) => Body::Stream(Stream::new(fd)),
                None => return Err(FileError::new(Errno::EBADF, "read", &shown)),
            },
            From::Set(members) => match members.get(&found.rel) {
                Some(path) => open_again(CWD, path, path, facts)?,
                None => return Err(FileError::new(Errno::ENOENT, "read", &shown)),
            },
            From::Nothing => return Err(FileError::new(Errno::EINVAL, "read", &shown)),
        };
        let reader = Reader {
            body,
            shown,
            chunk,
            offset: 0,
            data_end: 0,
            hasher: Hasher::default(),
        };
        reader.check_unchanged()?;
        Ok(reader)
    }

    /// The next piece, at most `max` bytes of data.
    pub(super) fn next(&mut self, buf: &mut Vec<u8>, max: usize) -> Result<Piece, FileError> {
        let max = (max as u64 / self.chunk).max(1) * self.chunk;
        match &mut self.body {
            Body::Memory(bytes) => {
                let at = usize::try_from(self.offset).unwrap_or(usize::MAX);
                let rest = bytes.get(at..).unwrap_or(&[]);
                let len = rest.len().min(usize::try_from(max).unwrap_or(usize::MAX));
                buf.clear();
                buf.extend_from_slice(&rest[..len]);
            }
            Body::Stream(stream) => {
                resize(buf, max);
                let len = stream.read_full(buf).on("read", &self.shown)?;
                buf.truncate(len);
            }
            Body::File { facts, .. } if facts.size.is_none() => {
                resize(buf, max);
                self.read_unsized(buf)?;
            }
            Body::File { .. } => return self.next_of_file(buf, max),
        }
        self.piece(buf)
    }

    fn piece(&mut self, buf: &[u8]) -> Result<Piece, FileError> {
        if buf.is_empty() {
            return Ok(Piece::End {
                size: self.offset,
                digest: self.hasher.finish(),
            });
        }
        self.hasher.update(buf);
        let offset = self.offset;
        self.offset += buf.len() as u64;
        Ok(Piece::Data { offset })
    }

    fn read_unsized(&mut self, buf: &mut Vec<u8>) -> Result<(), FileError> {
        let Body::File { fd, .. } = &self.body else {
            return Ok(());
        };
        let len = at::read_full(fd.as_fd(), buf, self.offset).on("read", &self.shown)?;
        buf.truncate(len);
        Ok(())
    }

    fn next_of_file(&mut self, buf: &mut Vec<u8>, max: u64) -> Result<Piece, FileError> {
        let Body::File { fd, facts } = &self.body else {
            return Err(FileError::new(Errno::EBADF, "read", &self.shown));
        };
        let size = facts.size.unwrap_or(0);
        if self.offset >= size {
            return self.end_of_file(size);
        }
        if self.offset >= self.data_end {
            let extent = match facts.seek {
                true => next_extent(fd.as_fd(), self.offset, size, self.chunk),
                false => Extent::Data { end: size },
            };
            match extent {
                Extent::Data { end } => self.data_end = end,
                Extent::Hole { end } => {
                    // MAX_HOLE is a multiple of every chunk size in use; one
                    // that it is not a multiple of gets a shorter hole.
                    let longest = (MAX_HOLE / self.chunk).max(1) * self.chunk;
                    let len = (end - self.offset).min(longest);
                    let offset = self.offset;
                    self.hasher.update_zeros(len);
                    self.offset += len;
                    return Ok(Piece::Hole { offset, len });
                }
            }
        }
        let len = (self.data_end - self.offset).min(max);
        resize(buf, len);
        let read = at::read_full(fd.as_fd(), buf, self.offset).on("read", &self.shown)?;
        if read < buf.len() {
            return Err(self.changed("it is shorter than it was"));
        }
        self.piece(buf)
    }

    fn end_of_file(&self, size: u64) -> Result<Piece, FileError> {
        if let Body::File { fd, .. } = &self.body {
            let more = at::read_full(fd.as_fd(), &mut [0], size).on("read", &self.shown)?;
            if more > 0 {
                return Err(self.changed("it is longer than it was"));
            }
        }
        self.check_unchanged()?;
        Ok(Piece::End {
            size,
            digest: self.hasher.finish(),
        })
    }

    fn check_unchanged(&self) -> Result<(), FileError> {
        let Body::File { fd, facts } = &self.body else {
            return Ok(());
        };
        let Some(state) = facts.state else {
            return Ok(());
        };
        let stat = rustix::fs::fstat(fd).on("stat", &self.shown)?;
        if State::of(&stat) == state {
            Ok(())
        } else {
            Err(self.changed("its size or time of modification is not what it was"))
        }
    }

    fn changed(&self, what: &str) -> FileError {
        FileError::new(Errno::ESTALE, "read", &self.shown)
            .with_hint(format!("changed while being read: {what}"))
    }
}

/// Opens a file that was looked at before; that it is the same one is checked
/// by the caller.
fn open_again(
    dir: impl AsFd,
    name: &Path,
    shown: &Path,
    facts: &FileFacts,
) -> Result<Body, FileError> {
    // A FIFO or device put in its place must not even be opened.
    let stat = rustix::fs::statat(dir.as_fd(), name, AtFlags::empty()).on("open", shown)?;
    if at::kind_of(&stat) != FileType::RegularFile {
        return Err(not_copied(at::kind_of(&stat), shown));
    }
    let (fd, _) = open_regular(dir, name, shown, false)?;
    Ok(Body::File { fd, facts: *facts })
}

fn resize(buf: &mut Vec<u8>, len: u64) {
    buf.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
}

enum Extent {
    Data { end: u64 },
    Hole { end: u64 },
}

/// What begins at `offset`, which is below `size`: a hint from the file system,
/// narrowed to whole chunks. Where it has none, everything is data.
fn next_extent(fd: BorrowedFd<'_>, offset: u64, size: u64, chunk: u64) -> Extent {
    let data = match retry_on_intr(|| rustix::fs::seek(fd, SeekFrom::Data(offset))) {
        Ok(at) => at.clamp(offset, size),
        Err(rustix::io::Errno::NXIO) => return Extent::Hole { end: size },
        Err(_) => return Extent::Data { end: size },
    };
    let hole_end = if data == size {
        size
    } else {
        data / chunk * chunk
    };
    if hole_end > offset {
        return Extent::Hole { end: hole_end };
    }
    match retry_on_intr(|| rustix::fs::seek(fd, SeekFrom::Hole(data))) {
        Ok(at) if at > data => Extent::Data {
            end: at.div_ceil(chunk).saturating_mul(chunk).min(size),
        },
        _ => Extent::Data { end: size },
    }
}
