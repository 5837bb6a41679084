//! What the user sees.

use std::io::Write;

use super::plain::plain;

/// Prints an error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-pmi-port: ERROR: {}", plain(text));
}

/// Prints something worth knowing.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "flux-pmi-port: {}", plain(text));
}

/// Prints a line of the result.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
