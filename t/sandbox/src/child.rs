//! Children start with no signal blocked, whatever we watch ourselves.
#![expect(unsafe_code, reason = "runs between fork and exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets the program that `command` starts get all signals.
pub fn unblock_signals(command: &mut Command) {
    // SAFETY: the closure only makes calls that are safe after fork.
    unsafe {
        command.pre_exec(|| {
            reset_mask();
            Ok(())
        });
    }
}

/// Unblocks all signals of this thread.
pub fn reset_mask() {
    // SAFETY: the set is initialized before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
