//! The shell's log, and the ways to fail the job with a reason.
//!
//! The host's functions take printf formats; ours is always the literal "%s".
//! They are reached through the [`Shell`] only, because the shell's log belongs
//! to its reactor thread.

use std::ffi::CStr;
use std::ffi::c_int;
use std::fmt;
use std::panic::Location;

use super::cstr;
use super::shell::Shell;
use crate::ffi::host;
use crate::ffi::types::FLUX_SHELL_DEBUG;
use crate::ffi::types::FLUX_SHELL_ERROR;
use crate::ffi::types::FLUX_SHELL_NOTICE;
use crate::ffi::types::FLUX_SHELL_TRACE;
use crate::ffi::types::FLUX_SHELL_WARN;

/// How much a log message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is odd.
    Warn,
    /// The user wants to know.
    Notice,
    /// Shown with `-o verbose`.
    Debug,
    /// Shown with `-o verbose=2`.
    Trace,
}

impl Level {
    fn number(self) -> c_int {
        let level = match self {
            Level::Error => FLUX_SHELL_ERROR,
            Level::Warn => FLUX_SHELL_WARN,
            Level::Notice => FLUX_SHELL_NOTICE,
            Level::Debug => FLUX_SHELL_DEBUG,
            Level::Trace => FLUX_SHELL_TRACE,
        };
        level as c_int
    }
}

/// Writes to the shell's log under the name of one component.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    component: &'static CStr,
    /// Proof that there is a shell and that this is its thread.
    _shell: Shell,
}

impl Log {
    pub(crate) fn new(shell: Shell, component: &'static CStr) -> Log {
        Log {
            component,
            _shell: shell,
        }
    }

    /// Logs a message. The host cuts it off at 4 KiB.
    #[track_caller]
    pub fn write(self, level: Level, text: fmt::Arguments<'_>) {
        let Ok(api) = host::shell() else {
            return;
        };
        let place = Location::caller();
        let file = cstr::text_cstring(place.file());
        let line = c_int::try_from(place.line()).unwrap_or(c_int::MAX);
        let text = cstr::text_cstring(&text.to_string());
        // SAFETY: C strings, and a format that takes one of them.
        unsafe {
            (api.flux_shell_log)(
                self.component.as_ptr(),
                level.number(),
                file.as_ptr(),
                line,
                c"%s".as_ptr(),
                text.as_ptr(),
            );
        }
    }

    /// Logs at level error.
    #[track_caller]
    pub fn error(self, text: fmt::Arguments<'_>) {
        self.write(Level::Error, text);
    }

    /// Logs at level warning.
    #[track_caller]
    pub fn warn(self, text: fmt::Arguments<'_>) {
        self.write(Level::Warn, text);
    }

    /// Logs at level notice.
    #[track_caller]
    pub fn notice(self, text: fmt::Arguments<'_>) {
        self.write(Level::Notice, text);
    }

    /// Logs at level debug.
    #[track_caller]
    pub fn debug(self, text: fmt::Arguments<'_>) {
        self.write(Level::Debug, text);
    }

    /// Logs at level trace.
    #[track_caller]
    pub fn trace(self, text: fmt::Arguments<'_>) {
        self.write(Level::Trace, text);
    }

    /// Fails the job: logs the text, kills the tasks, raises the job exception
    /// with the text, and exits this shell with `exit_code`. No destructor of
    /// ours runs: remove temporary files before.
    #[track_caller]
    pub fn fatal(self, exit_code: u8, text: fmt::Arguments<'_>) -> ! {
        let place = Location::caller();
        let file = cstr::text_cstring(place.file());
        let line = c_int::try_from(place.line()).unwrap_or(c_int::MAX);
        let text = cstr::text_cstring(&text.to_string());
        if let Ok(api) = host::shell() {
            // SAFETY: C strings, and a format that takes one of them.
            unsafe {
                (api.flux_shell_fatal)(
                    self.component.as_ptr(),
                    file.as_ptr(),
                    line,
                    0,
                    c_int::from(exit_code),
                    c"%s".as_ptr(),
                    text.as_ptr(),
                );
            }
        }
        // A host whose function returns must not go on either.
        std::process::exit(i32::from(exit_code));
    }
}

/// Raises a job exception; severity 0 ends the job.
pub(crate) fn raise(kind: &CStr, severity: u8, text: &str) {
    let Ok(api) = host::shell() else {
        return;
    };
    let text = cstr::text_cstring(text);
    // SAFETY: C strings, and a format that takes one of them.
    unsafe {
        (api.flux_shell_raise)(
            kind.as_ptr(),
            c_int::from(severity),
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}

/// Ends the job with the wait status of a program, where the host can.
pub(crate) fn raise_exit_status(wait_status: i32, text: &str) {
    let raise_status =
        host::optional().and_then(|api| api.flux_shell_raise_exit_status.as_ref().ok());
    match raise_status {
        Some(raise_status) => {
            let text = cstr::text_cstring(text);
            // SAFETY: a C string, and a format that takes it.
            unsafe { raise_status(wait_status, c"%s".as_ptr(), text.as_ptr()) };
        }
        None => raise(c"exec", 0, text),
    }
}
