//! How a command fails: with a line to the user and an exit code.

use std::io::Write;

/// A failure.
#[derive(Debug)]
pub(crate) struct Fail {
    text: String,
    code: i32,
}

impl Fail {
    /// `text` is the whole line, with the name of the command in front.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            code: 1,
        }
    }

    /// With another exit code.
    pub(crate) fn with_code(text: impl Into<String>, code: i32) -> Self {
        Self {
            text: text.into(),
            code,
        }
    }

    /// Tells the user; the exit code.
    pub(crate) fn report(&self) -> i32 {
        complain(&self.text);
        self.code
    }
}

/// A command's exit code, or how it failed.
pub(crate) type Outcome = Result<i32, Fail>;

/// Writes a line to stderr.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a line to stdout.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
