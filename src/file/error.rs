//! What went wrong with a file: the number, what was being done, and to what.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use crate::bcast::name::RawName;
use crate::errno::Errno;

/// An error about one path; prints as
/// `write /tmp/copy: No space left on device (4096 bytes are free)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    errno: Errno,
    op: &'static str,
    path: RawName,
    hint: Option<Cow<'static, str>>,
}

impl FileError {
    /// An error while doing `op` ("open", "write", …) to `path`.
    pub fn new(errno: impl Into<Errno>, op: &'static str, path: &Path) -> Self {
        Self {
            errno: errno.into(),
            op,
            path: RawName::from(path),
            hint: None,
        }
    }

    /// Adds what the number alone does not say.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error number.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// What was being done, one word.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The path it was done to.
    pub fn path(&self) -> &RawName {
        &self.path
    }

    /// What the number alone does not say, if anything.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.op, self.path, self.errno)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}

/// Gives a bare system error the operation and the path.
pub(super) trait On<T> {
    /// `op` was being done to `path`.
    fn on(self, op: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> On<T> for rustix::io::Result<T> {
    fn on(self, op: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|errno| FileError::new(errno, op, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_operation_path_text_and_hint() {
        let error = FileError::new(Errno::ENOSPC, "write", Path::new("/a\nb"));
        assert_eq!(error.to_string(), "write /a\\nb: No space left on device");
        assert_eq!(
            error.with_hint("0 bytes are free").to_string(),
            "write /a\\nb: No space left on device (0 bytes are free)"
        );
    }
}
