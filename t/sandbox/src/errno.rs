//! Error numbers, and the C library's errno.

/// An error number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The text of strerror(3).
    pub fn text(self) -> String {
        let text = std::io::Error::from_raw_os_error(self.0).to_string();
        // std appends " (os error N)".
        match text.rfind(" (os error ") {
            Some(at) => text[..at].to_owned(),
            None => text,
        }
    }
}

impl From<std::io::Error> for Errno {
    fn from(e: std::io::Error) -> Self {
        Self(e.raw_os_error().unwrap_or(libc::EPROTO))
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

/// Sets errno(3).
#[expect(unsafe_code, reason = "errno has no safe interface")]
pub fn set(e: Errno) {
    // SAFETY: the location is this thread's own and always valid.
    unsafe { *libc::__errno_location() = e.0 };
}

/// Reads errno(3).
pub fn get() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
