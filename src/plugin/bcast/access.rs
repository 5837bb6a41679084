//! Who may use the service.
//!
//! Writing chosen bytes to a chosen path as the job's user is as good as
//! running code as that user. So every request is checked, not only the first:
//! the owner of the job may use it, nobody else.

use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::message::Request;

/// The rule for one shell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    uid: u32,
    /// The instance belongs to somebody else.
    guest: bool,
}

impl Access {
    /// The rule for a shell of this process's user, in an instance of `owner`.
    pub(super) fn new(owner: Option<u32>) -> Self {
        let uid = rustix::process::getuid().as_raw();
        Self {
            uid,
            guest: owner.is_some_and(|owner| owner != uid),
        }
    }

    /// Checks the sender of a request.
    ///
    /// # Errors
    /// EPERM, with the reason.
    pub(super) fn check(&self, request: &Request) -> Result<()> {
        // The brokers of somebody else's instance could put any user into a
        // message; without a signature (RFC 42) it proves nothing.
        if self.guest {
            return Err(Error::with_text(
                Errno::EPERM,
                "this job runs in an instance of another user, where requests would have to \
                 be signed, and signatures are not supported",
            ));
        }
        if request.userid()? != self.uid {
            return Err(Error::with_text(
                Errno::EPERM,
                "only the owner of the job may broadcast to it",
            ));
        }
        Ok(())
    }
}
