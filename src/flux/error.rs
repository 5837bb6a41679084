//! The error of the Flux layer: an error number, what was being done, and the
//! peer's own words if it sent any.
//!
//! The C status of a call is read here and nowhere else ([`check_rc`],
//! [`check_ptr`]), directly after the call, before anything can change errno.

use std::borrow::Cow;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr::NonNull;

use crate::errno::Errno;
use crate::ffi::host::HostError;

/// Result of the Flux layer.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation. One pointer wide, so a `Result` stays small.
///
/// Prints on one line, outermost context first:
/// `send chunk 7: rank 3: No space left on device`.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    errno: Errno,
    /// Replaces the text of the number, e.g. what a service answered.
    text: Option<String>,
    /// Innermost first.
    context: Vec<Cow<'static, str>>,
}

impl Error {
    /// An error that is fully said by its number.
    pub fn new(errno: Errno) -> Error {
        Error(Box::new(Inner {
            errno,
            text: None,
            context: Vec::new(),
        }))
    }

    /// An error with a text of its own in place of that of the number.
    pub fn with_text(errno: Errno, text: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            errno,
            text: Some(text.into()),
            context: Vec::new(),
        }))
    }

    /// Says what was being done.
    #[must_use]
    pub fn context(mut self, what: impl Into<Cow<'static, str>>) -> Error {
        self.0.context.push(what.into());
        self
    }

    /// The error number.
    pub fn errno(&self) -> Errno {
        self.0.errno
    }

    /// The text in place of the number's, if there is one.
    pub fn text(&self) -> Option<&str> {
        self.0.text.as_deref()
    }

    /// True for the regular end of a stream of responses or events (ENODATA).
    pub fn is_end_of_stream(&self) -> bool {
        self.0.errno == Errno::ENODATA
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for what in self.0.context.iter().rev() {
            write!(f, "{what}: ")?;
        }
        match &self.0.text {
            Some(text) => f.write_str(text),
            None => write!(f, "{}", self.0.errno),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        error.errno()
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        Error::new(errno)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        let errno = Errno::from(&error);
        match error.raw_os_error() {
            Some(_) => Error::new(errno),
            None => Error::with_text(errno, error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Error {
        Error::new(errno.into())
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::with_text(Errno::EPROTO, error.to_string())
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Error {
        Error::with_text(Errno::ENOSYS, error.to_string())
    }
}

/// Adds context to a failed [`Result`] of any error that converts.
pub trait Context<T> {
    /// Says what was being done.
    ///
    /// # Errors
    /// Those of `self`.
    fn context(self, what: impl Into<Cow<'static, str>>) -> Result<T>;

    /// As [`Context::context`], with a text made only on failure.
    ///
    /// # Errors
    /// Those of `self`.
    fn with_context<S: Into<Cow<'static, str>>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl Into<Cow<'static, str>>) -> Result<T> {
        self.map_err(|error| error.into().context(what))
    }

    fn with_context<S: Into<Cow<'static, str>>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }
}

/// The status of a C call: negative is failure, with the reason in errno.
///
/// # Errors
/// errno as the call left it.
pub(crate) fn check_rc(rc: c_int) -> Result<c_int> {
    if rc < 0 {
        return Err(Error::new(Errno::last()));
    }
    Ok(rc)
}

/// The pointer of a C call: NULL is failure, with the reason in errno.
///
/// # Errors
/// errno as the call left it.
pub(crate) fn check_ptr<T>(ptr: *const T) -> Result<NonNull<T>> {
    match NonNull::new(ptr.cast_mut()) {
        Some(ptr) => Ok(ptr),
        None => Err(Error::new(Errno::last())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_chain_on_one_line() {
        let error: Result<()> = Err(Errno::ENOSPC)
            .context("write /tmp/x")
            .with_context(|| format!("rank {}", 3));
        let error = error.unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 3: write /tmp/x: No space left on device"
        );
        assert_eq!(error.errno(), Errno::ENOSPC);
    }

    #[test]
    fn a_text_replaces_that_of_the_number() {
        let error = Error::with_text(Errno::EPERM, "owner only").context("open");
        assert_eq!(error.to_string(), "open: owner only");
        assert_eq!(error.text(), Some("owner only"));
        assert_eq!(error.errno(), Errno::EPERM);
    }

    #[test]
    fn the_c_status_decides() {
        assert_eq!(check_rc(3).unwrap(), 3);
        std::fs::File::open("/nonexistent").unwrap_err();
        assert_eq!(check_rc(-1).unwrap_err().errno(), Errno::ENOENT);
        std::fs::File::open("/nonexistent").unwrap_err();
        let null: *const u8 = std::ptr::null();
        let rc = 1_u8;
        assert_eq!(check_ptr(null).unwrap_err().errno(), Errno::ENOENT);
        assert!(check_ptr(&raw const rc).is_ok());
    }

    #[test]
    fn io_errors_without_a_number_keep_their_text() {
        let error = Error::from(io::Error::new(io::ErrorKind::InvalidData, "no header"));
        assert_eq!(error.errno(), Errno::EPROTO);
        assert_eq!(error.to_string(), "no header");
    }

    #[test]
    fn is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
