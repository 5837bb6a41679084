//! Signatures (RFC 42): who asked for something, proved by other means than the
//! word of the brokers that carried it.

use std::ffi::CStr;
use std::ffi::c_char;
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::ptr::NonNull;
use std::slice;

use super::cstr;
use super::error::Error;
use super::error::Result;
use crate::errno::Errno;
use crate::ffi::security::SecurityApi;
use crate::ffi::security::flux_security_t;
use crate::ffi::signing;

/// Signs as the user of this process, and verifies. For one thread.
///
/// May wait for a service of this node, such as munged.
pub struct Signer {
    api: &'static SecurityApi,
    raw: NonNull<flux_security_t>,
}

/// What somebody signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The text.
    pub text: String,
    /// Who signed it.
    pub uid: u32,
}

impl Signer {
    /// Loads flux-security and reads the site's configuration of it.
    ///
    /// # Errors
    /// ENOSYS without the library; else what it says of its configuration.
    pub fn new() -> Result<Self> {
        let api = signing::security().map_err(|reason| {
            Error::with_text(Errno::ENOSYS, format!("flux-security: {reason}"))
        })?;
        // SAFETY: no precondition.
        let raw = unsafe { api.flux_security_create(0) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::new(Errno::last()).context("start flux-security"))?;
        let signer = Self { api, raw };
        // SAFETY: the context exists; NULL means the site's own files.
        let rc = unsafe { api.flux_security_configure(raw.as_ptr(), ptr::null()) };
        signer.check(rc == 0, "configure flux-security")?;
        Ok(signer)
    }

    /// Signs a text. What comes back is printable, and can be verified anywhere
    /// in the cluster.
    ///
    /// # Errors
    /// What the library says, such as that munged does not answer.
    pub fn sign(&self, text: &str) -> Result<String> {
        let len = c_int::try_from(text.len()).map_err(|_| Error::new(Errno::EFBIG))?;
        // SAFETY: the context exists; the payload is read, not kept; NULL means
        // the configured mechanism.
        let signed = unsafe {
            self.api.flux_sign_wrap(
                self.raw.as_ptr(),
                text.as_ptr().cast(),
                len,
                ptr::null(),
                0,
            )
        };
        self.check(!signed.is_null(), "sign")?;
        // SAFETY: a C string that stays until the next call; it is copied.
        Ok(unsafe { CStr::from_ptr(signed) }
            .to_string_lossy()
            .into_owned())
    }

    /// Verifies what [`Signer::sign`] returned somewhere.
    ///
    /// # Errors
    /// What the library says: forged, too old, signed by a mechanism that the
    /// site does not allow…
    pub fn verify(&self, signed: &str) -> Result<Signed> {
        let mut payload = ptr::null();
        let (mut len, mut uid) = (0, -1);
        let input = cstr::cstring(signed)?;
        let input: *const c_char = input.as_ptr();
        // SAFETY: the context exists, the input is a C string, the results are
        // ours to be written.
        let rc = unsafe {
            self.api.flux_sign_unwrap(
                self.raw.as_ptr(),
                input,
                &raw mut payload,
                &raw mut len,
                &raw mut uid,
                0,
            )
        };
        self.check(rc == 0, "verify a signature")?;
        let bytes = match usize::try_from(len) {
            Ok(len) if len > 0 && !payload.is_null() => {
                // SAFETY: the library's buffer of that length stays until the
                // next call; it is copied below.
                unsafe { slice::from_raw_parts(payload.cast::<u8>(), len) }
            }
            _ => &[],
        };
        let broken = |what: &str| Error::with_text(Errno::EPROTO, what);
        Ok(Signed {
            text: String::from_utf8(bytes.to_vec())
                .map_err(|_| broken("what was signed is no text"))?,
            uid: u32::try_from(uid).map_err(|_| broken("who signed is no user"))?,
        })
    }

    fn check(&self, good: bool, what: &'static str) -> Result<()> {
        if good {
            return Ok(());
        }
        // SAFETY: the context exists; the text is a C string or NULL, and is
        // copied.
        let (errnum, text) = unsafe {
            let text = self.api.flux_security_last_error(self.raw.as_ptr());
            let errnum = self.api.flux_security_last_errnum(self.raw.as_ptr());
            let text = (!text.is_null()).then(|| CStr::from_ptr(text));
            (errnum, text.map(|text| text.to_string_lossy().into_owned()))
        };
        let errno = Errno::new(errnum).unwrap_or(Errno::EINVAL);
        Err(match text {
            Some(text) => Error::with_text(errno, text),
            None => Error::new(errno),
        }
        .context(what))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // SAFETY: made in new(), destroyed once.
        unsafe { self.api.flux_security_destroy(self.raw.as_ptr()) };
    }
}
