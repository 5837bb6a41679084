//! Sending into a connection that is gone must fail, not end the process.
//!
//! libflux writes to the broker's socket with write(2), so a client whose
//! broker has died gets SIGPIPE. What the caller's program does about that
//! signal is none of our business; that our calls raise none is.

use std::mem::MaybeUninit;

/// Calls `f`, which reads errno itself; a SIGPIPE that it causes is dropped.
pub(super) fn shielded<T>(f: impl FnOnce() -> T) -> T {
    let mut pipe = MaybeUninit::uninit();
    // SAFETY: makes an empty signal set of memory that is ours.
    unsafe { libc::sigemptyset(pipe.as_mut_ptr()) };
    // SAFETY: adds to the set made above.
    unsafe { libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: made above.
    let pipe: libc::sigset_t = unsafe { pipe.assume_init() };
    let mut old = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are ours; the call fails only for an unknown first
    // argument.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, old.as_mut_ptr()) };
    // SAFETY: zeroed, then filled in; any bytes are a signal set.
    let old = unsafe { old.assume_init() };
    let shield = Shield { pipe, old };
    let value = f();
    drop(shield);
    value
}

/// Puts the signal mask back, also when the call panics.
struct Shield {
    pipe: libc::sigset_t,
    old: libc::sigset_t,
}

impl Drop for Shield {
    fn drop(&mut self) {
        // SAFETY: a set that we own.
        if unsafe { libc::sigismember(&raw const self.old, libc::SIGPIPE) } == 1 {
            // It was blocked before; a pending one may be somebody else's.
            return;
        }
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a set and a time that we own; what is taken is not wanted.
        while unsafe {
            libc::sigtimedwait(&raw const self.pipe, std::ptr::null_mut(), &raw const now)
        } > 0
        {}
        // SAFETY: a set that we own; the old mask is not wanted.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.old, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_to_nobody() -> i32 {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        drop(reader);
        // A child that another test has just forked has the reader until it executes.
        loop {
            if let Err(error) = rustix::io::write(&writer, b"x") {
                return error.raw_os_error();
            }
        }
    }

    #[test]
    fn a_broken_pipe_is_an_error_and_nothing_else() {
        // Rust's start-up ignores the signal, which would hide everything.
        // SAFETY: the default action, for a test that must not see it.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(shielded(write_to_nobody), libc::EPIPE);
        assert_eq!(shielded(write_to_nobody), libc::EPIPE);
        // SAFETY: what it was.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
