//! Strings to and from C: a NUL inside is refused, bytes that are not UTF-8
//! survive where they may occur, and what C allocated C's `free` releases.

use std::borrow::Cow;
use std::ffi::CStr;
use std::ffi::CString;
use std::ffi::OsString;
use std::ffi::c_char;
use std::os::unix::ffi::OsStringExt;
use std::ptr::NonNull;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Context;
use super::error::Error;
use super::error::Result;
use crate::errno::Errno;

/// Topics and names are short; up to this length no memory is allocated.
const INLINE: usize = 256;

/// Calls `f` with the bytes as a C string.
///
/// # Errors
/// EINVAL if there is a NUL in them; else those of `f`.
pub(crate) fn with_cstr<T>(
    bytes: impl AsRef<[u8]>,
    f: impl FnOnce(&CStr) -> Result<T>,
) -> Result<T> {
    let bytes = bytes.as_ref();
    if bytes.len() >= INLINE {
        return f(&cstring(bytes)?);
    }
    let mut buffer = [0_u8; INLINE];
    if let Some(head) = buffer.get_mut(..bytes.len()) {
        head.copy_from_slice(bytes);
    }
    let with_nul = buffer.get(..=bytes.len()).unwrap_or_default();
    f(CStr::from_bytes_with_nul(with_nul).map_err(|_| interior_nul(bytes))?)
}

/// An owned C string.
///
/// # Errors
/// EINVAL if there is a NUL in the bytes.
pub(crate) fn cstring(bytes: impl AsRef<[u8]>) -> Result<CString> {
    let bytes = bytes.as_ref();
    CString::new(bytes).map_err(|_| interior_nul(bytes))
}

/// For text meant for people only: a NUL is shown as "\0" instead of refused.
pub(crate) fn text_cstring(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// A value as JSON text for C.
///
/// # Errors
/// EPROTO if the value has no JSON form.
pub(crate) fn json_cstring(value: &impl Serialize) -> Result<CString> {
    // JSON escapes control characters, so there can be no NUL.
    cstring(serde_json::to_vec(value).context("encode JSON")?)
}

fn interior_nul(bytes: &[u8]) -> Error {
    let shown = String::from_utf8_lossy(bytes).escape_debug().to_string();
    Error::with_text(Errno::EINVAL, format!("\"{shown}\" contains a NUL byte"))
}

/// The bytes of a borrowed C string; `None` for NULL.
///
/// # Safety
/// `ptr` is NULL or a C string that lives, unchanged, for `'a`.
pub(crate) unsafe fn borrow<'a>(ptr: *const c_char) -> Option<&'a CStr> {
    if ptr.is_null() {
        return None;
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    Some(unsafe { CStr::from_ptr(ptr) })
}

/// At most `limit` bytes of a C string as text, for messages; what is no UTF-8
/// is replaced.
pub(crate) fn bounded_lossy(text: &CStr, limit: usize) -> Cow<'_, str> {
    let bytes = text.to_bytes();
    String::from_utf8_lossy(bytes.get(..limit).unwrap_or(bytes))
}

/// A string that the host allocated and we own.
#[derive(Debug)]
pub(crate) struct MallocString(NonNull<c_char>);

impl MallocString {
    /// Takes ownership; `None` for NULL.
    ///
    /// # Safety
    /// `ptr` is NULL or a C string from `malloc` that nobody else frees.
    pub(crate) unsafe fn from_raw(ptr: *mut c_char) -> Option<MallocString> {
        NonNull::new(ptr).map(MallocString)
    }

    pub(crate) fn as_cstr(&self) -> &CStr {
        // SAFETY: from_raw's caller vouched for it, and only Drop frees it.
        unsafe { CStr::from_ptr(self.0.as_ptr()) }
    }

    pub(crate) fn to_os_string(&self) -> OsString {
        OsString::from_vec(self.as_cstr().to_bytes().to_vec())
    }

    /// Reads the string as JSON.
    ///
    /// # Errors
    /// EPROTO if it is not what `T` expects.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_slice(self.as_cstr().to_bytes())?)
    }
}

impl Drop for MallocString {
    fn drop(&mut self) {
        // SAFETY: allocated by malloc and owned by us alone.
        unsafe { libc::free(self.0.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_inside_is_refused_by_name() {
        for length in [3, INLINE + 3] {
            let mut text = "a".repeat(length);
            text.push('\0');
            text.push('b');
            let error = with_cstr(&text, |_| Ok(())).unwrap_err();
            assert_eq!(error.errno(), Errno::EINVAL);
            assert!(
                error.to_string().ends_with("a\\0b\" contains a NUL byte"),
                "{error}"
            );
        }
        assert_eq!(text_cstring("a\0b").as_c_str(), c"a\\0b");
    }

    #[test]
    fn every_length_around_the_inline_limit() {
        for length in [0, 1, INLINE - 1, INLINE, INLINE + 1] {
            let text = "x".repeat(length);
            let seen = with_cstr(&text, |c| Ok(c.to_bytes().to_vec())).unwrap();
            assert_eq!(seen, text.as_bytes());
        }
    }

    #[test]
    fn malloced_strings_keep_their_bytes() {
        // SAFETY: strdup of a C string.
        let ptr = unsafe { libc::strdup(c"/tmp/\xff\xc6\x92".as_ptr()) };
        // SAFETY: from malloc, ours.
        let owned = unsafe { MallocString::from_raw(ptr) }.unwrap();
        assert_eq!(owned.to_os_string().into_vec(), b"/tmp/\xff\xc6\x92");
        // SAFETY: NULL is allowed.
        assert!(unsafe { MallocString::from_raw(std::ptr::null_mut()) }.is_none());
    }

    #[test]
    fn lossy_reads_are_bounded() {
        assert_eq!(bounded_lossy(c"abcdef", 3), "abc");
        assert_eq!(bounded_lossy(c"a\xff", 10), "a\u{fffd}");
    }

    #[test]
    fn json_round_trip() {
        let text = json_cstring(&serde_json::json!({"a": "x\0y"})).unwrap();
        assert_eq!(text.as_c_str(), c"{\"a\":\"x\\u0000y\"}");
    }
}
