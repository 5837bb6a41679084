//! Worker threads beside a reactor: they must not take its signals.
//!
//! A reactor watches signals by blocking them in its own thread (F8). A signal
//! sent to the process goes to any thread that does not block it, and there its
//! default action ends the process.

use std::io;
use std::mem::MaybeUninit;
use std::thread::Builder;
use std::thread::JoinHandle;

/// Starts a thread with all signals blocked.
///
/// # Errors
/// EAGAIN if there are too many threads.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    signals_blocked(|| Builder::new().name(name.to_owned()).spawn(body))
}

/// Calls `f` with all signals blocked in this thread; threads that it starts
/// inherit that and keep it.
pub fn signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    // SAFETY: fills in a signal set that we own; cannot fail.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let restore = Restore(swap_mask(all.as_ptr()));
    let value = f();
    drop(restore);
    value
}

/// Puts a thread's signal mask back, also when `f` panics.
struct Restore(libc::sigset_t);

impl Drop for Restore {
    fn drop(&mut self) {
        swap_mask(&raw const self.0);
    }
}

/// Sets the signal mask of this thread and returns the old one.
fn swap_mask(mask: *const libc::sigset_t) -> libc::sigset_t {
    let mut old = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both sets are ours (or `mask` is NULL, a query); the call fails
    // only for an unknown first argument.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, old.as_mut_ptr()) };
    // SAFETY: zeroed, then filled in; any bytes are a signal set.
    unsafe { old.assume_init() }
}

/// True if this thread blocks a signal.
#[cfg(test)]
fn blocks(signum: i32) -> bool {
    let mask = swap_mask(std::ptr::null());
    // SAFETY: a signal set that we own.
    unsafe { libc::sigismember(&raw const mask, signum) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_blocks_signals_and_we_do_not() {
        let worker = spawn("test", || (blocks(libc::SIGTERM), blocks(libc::SIGALRM)));
        assert_eq!(worker.unwrap().join().unwrap(), (true, true));
        assert!(!blocks(libc::SIGTERM));
    }

    #[test]
    fn the_mask_comes_back_after_a_panic() {
        let outcome = std::panic::catch_unwind(|| signals_blocked(|| panic!("x")));
        assert!(outcome.is_err());
        assert!(!blocks(libc::SIGTERM));
    }
}
