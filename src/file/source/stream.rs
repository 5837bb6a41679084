//! Reading what can only be read once, from front to back: pipes, terminals.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::io::Errno;

/// A descriptor that is read to its end of file.
pub(super) struct Stream {
    fd: OwnedFd,
    /// A terminal would take up input again after its first end of file.
    ended: bool,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { fd, ended: false }
    }

    /// Reads until `buf` is full or the stream ends; waits as long as it takes.
    /// Returns how many bytes there were.
    pub(super) fn read_full(&mut self, buf: &mut [u8]) -> rustix::io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() && !self.ended {
            match rustix::io::read(&self.fd, &mut buf[filled..]) {
                Ok(0) => self.ended = true,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait()?,
                Err(errno) => return Err(errno),
            }
        }
        Ok(filled)
    }

    /// Whoever gave us the descriptor may have made it non-blocking.
    fn wait(&self) -> rustix::io::Result<()> {
        let mut fds = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
