//! Error numbers as a type of their own, so that a length, a return code or a
//! "no error" zero can never be taken for one.
//!
//! Every layer uses this type; it knows nothing of Flux and has no `unsafe`.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::num::NonZeroI32;

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de;

/// A C error number, never zero.
///
/// `Display` gives the text of `strerror(3)` ("No space left on device"),
/// [`Errno::name`] the symbol ("ENOSPC"). On the wire it is the bare integer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(NonZeroI32);

/// Defines the named constants and the table behind [`Errno::name`].
macro_rules! errnos {
    ($($name:ident)*) => {
        #[expect(missing_docs, reason = "each is the C macro of the same name")]
        impl Errno {
            $(pub const $name: Errno = Errno::of(libc::$name);)*
        }

        /// Symbols by number; synonyms (EAGAIN, EWOULDBLOCK) appear once.
        const NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name))),*];
    };
}

errnos! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBADMSG EBUSY
    ECANCELED ECHILD ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDESTADDRREQ EDOM EDQUOT
    EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EIDRM EILSEQ EINPROGRESS EINTR EINVAL EIO
    EISCONN EISDIR EKEYEXPIRED EKEYREJECTED ELIBACC ELIBBAD ELOOP EMEDIUMTYPE EMFILE EMLINK
    EMSGSIZE ENAMETOOLONG ENETDOWN ENETRESET ENETUNREACH ENFILE ENOBUFS ENODATA ENODEV ENOENT
    ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENOPROTOOPT ENOSPC ENOSYS ENOTBLK
    ENOTCONN ENOTDIR ENOTEMPTY ENOTRECOVERABLE ENOTSOCK ENOTSUP ENOTTY ENXIO EOVERFLOW
    EOWNERDEAD EPERM EPIPE EPROTO EPROTONOSUPPORT EPROTOTYPE ERANGE EREMOTEIO EROFS ESHUTDOWN
    ESPIPE ESRCH ESTALE ETIME ETIMEDOUT ETXTBSY EUCLEAN EUSERS EXDEV
}

impl Errno {
    /// A constant; a zero does not compile.
    const fn of(number: i32) -> Errno {
        match NonZeroI32::new(number) {
            Some(number) => Errno(number),
            None => unreachable!(),
        }
    }

    /// The error with this number; `None` for zero and negative numbers.
    pub const fn new(number: i32) -> Option<Errno> {
        match NonZeroI32::new(number) {
            Some(number) if number.get() > 0 => Some(Errno(number)),
            _ => None,
        }
    }

    /// As [`Errno::new`], with `EIO` for what is no error number: for values
    /// that come from elsewhere (the network, a C library).
    pub const fn or_eio(number: i32) -> Errno {
        match Errno::new(number) {
            Some(errno) => errno,
            None => Errno::EIO,
        }
    }

    /// The `errno` of this thread. Call it first thing after the failed call:
    /// anything else may overwrite the value. `EIO` if it is not set.
    pub fn last() -> Errno {
        Errno::or_eio(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The number, as C has it.
    pub const fn raw(self) -> i32 {
        self.0.get()
    }

    /// The symbol, such as "ENOSPC"; "E?" for a number without a name here.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(number, _)| *number == self.raw())
            .map_or("E?", |(_, name)| name)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The standard library appends its own note to the text of strerror.
        let text = io::Error::from_raw_os_error(self.raw()).to_string();
        f.write_str(text.split(" (os error").next().unwrap_or(&text))
    }
}

/// What went wrong: the text of `strerror(3)` alone, without the standard
/// library's note, or the words of whoever made the error.
pub fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::or_eio(number).to_string(),
        None => error.to_string(),
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.raw())
    }
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno::or_eio(errno.raw_os_error())
    }
}

impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Errno {
        if let Some(number) = error.raw_os_error() {
            return Errno::or_eio(number);
        }
        match error.kind() {
            io::ErrorKind::NotFound => Errno::ENOENT,
            io::ErrorKind::PermissionDenied => Errno::EACCES,
            io::ErrorKind::ConnectionRefused => Errno::ECONNREFUSED,
            io::ErrorKind::ConnectionReset => Errno::ECONNRESET,
            io::ErrorKind::BrokenPipe => Errno::EPIPE,
            io::ErrorKind::AlreadyExists => Errno::EEXIST,
            io::ErrorKind::WouldBlock => Errno::EAGAIN,
            io::ErrorKind::InvalidInput => Errno::EINVAL,
            io::ErrorKind::InvalidData => Errno::EPROTO,
            io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
            io::ErrorKind::Interrupted => Errno::EINTR,
            io::ErrorKind::Unsupported => Errno::ENOTSUP,
            io::ErrorKind::OutOfMemory => Errno::ENOMEM,
            io::ErrorKind::StorageFull => Errno::ENOSPC,
            _ => Errno::EIO,
        }
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno::from(&error)
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw())
    }
}

impl Serialize for Errno {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i32(self.raw())
    }
}

impl<'de> Deserialize<'de> for Errno {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Errno, D::Error> {
        let number = i32::deserialize(deserializer)?;
        Errno::new(number)
            .ok_or_else(|| de::Error::custom(format_args!("{number} is no error number")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_negative_numbers_are_no_errors() {
        assert_eq!(Errno::new(0), None);
        assert_eq!(Errno::new(-libc::ENOENT), None);
        assert_eq!(Errno::or_eio(0), Errno::EIO);
        assert_eq!(Errno::new(libc::ENOENT), Some(Errno::ENOENT));
    }

    #[test]
    fn text_is_that_of_strerror() {
        assert_eq!(Errno::ENOSPC.to_string(), "No space left on device");
        assert_eq!(format!("{:?}", Errno::ENOSPC), "ENOSPC(28)");
        assert_eq!(Errno::ENOSPC.name(), "ENOSPC");
        assert_eq!(Errno::or_eio(100_000).name(), "E?");
    }

    #[test]
    fn io_errors_keep_their_number() {
        let real = std::fs::File::open("/nonexistent/file").unwrap_err();
        assert_eq!(Errno::from(&real), Errno::ENOENT);
        let made = io::Error::new(io::ErrorKind::StorageFull, "made");
        assert_eq!(Errno::from(made), Errno::ENOSPC);
        assert_eq!(
            io::Error::from(Errno::EXDEV).raw_os_error(),
            Some(libc::EXDEV)
        );
        assert_eq!(Errno::from(rustix::io::Errno::ROFS), Errno::EROFS);
    }

    #[test]
    fn last_reads_the_number_of_this_thread() {
        std::fs::File::open("/nonexistent/file").unwrap_err();
        assert_eq!(Errno::last(), Errno::ENOENT);
    }

    #[test]
    fn travels_as_an_integer() {
        assert_eq!(serde_json::to_string(&Errno::ENOSPC).unwrap(), "28");
        assert_eq!(serde_json::from_str::<Errno>("28").unwrap(), Errno::ENOSPC);
        assert!(serde_json::from_str::<Errno>("0").is_err());
        assert!(serde_json::from_str::<Errno>("-2").is_err());
    }
}
