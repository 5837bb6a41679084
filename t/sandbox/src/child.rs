//! Children start with no signal blocked, whatever we watch ourselves; and what
//! the signal is called that ended one.
#![expect(unsafe_code, reason = "runs between fork and exec; strsignal")]

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

/// The text of strsignal(3).
pub fn signal_text(signum: i32) -> String {
    // SAFETY: any number is fine.
    let text = unsafe { libc::strsignal(signum) };
    if text.is_null() {
        return format!("Unknown signal {signum}");
    }
    // SAFETY: a C string that stays valid until the next call in this thread.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
