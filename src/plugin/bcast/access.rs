//! Who may use the service.
//!
//! Writing chosen bytes to a chosen path as the job's user is as good as
//! running code as that user. So every request is checked, not only the first:
//! the owner of the job may use it, nobody else. In an instance of another user
//! (a system instance) the word of the brokers is not enough for that: what
//! touches files must be signed as well.

use std::cell::RefCell;

use rustix::process::Pid;
use serde::de::DeserializeOwned;

use super::ask::check_version;
use crate::bcast::message::Open;
use crate::bcast::warrant::Obeyed;
use crate::bcast::warrant::Terms;
use crate::bcast::warrant::Warrant;
use crate::errno::Errno;
use crate::flux::error::Context;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::message::Request;
use crate::flux::shell::ShellInfo;
use crate::transfer::signed;
use crate::transfer::signed::Envelope;

/// The rule for one shell.
#[derive(Debug)]
pub(super) struct Access {
    uid: u32,
    rank: u32,
    service: String,
    /// The instance belongs to somebody else.
    guest: bool,
    obeyed: RefCell<Obeyed>,
}

impl Access {
    /// The rule for a shell of this process's user.
    pub(super) fn new(info: &ShellInfo) -> Self {
        let uid = rustix::process::getuid().as_raw();
        Self {
            uid,
            rank: info.rank,
            service: info.service.clone(),
            // What the broker says of its owner is the owner's word.
            guest: info.instance_owner.is_some_and(|owner| owner != uid)
                || is_out_of_reach(rustix::process::getppid()),
            obeyed: RefCell::default(),
        }
    }

    /// Checks the sender of a request.
    ///
    /// # Errors
    /// EPERM, with the reason.
    pub(super) fn check(&self, request: &Request) -> Result<()> {
        if request.userid()? != self.uid {
            return Err(Error::with_text(
                Errno::EPERM,
                "only the owner of the job may broadcast to it",
            ));
        }
        Ok(())
    }

    /// What data must be sealed for, if it must.
    pub(super) fn seal(&self) -> Option<String> {
        self.guest.then(|| self.service.clone())
    }

    /// What a request asks for; in an instance of another user, signed.
    ///
    /// # Errors
    /// EPERM: not signed by the owner of the job, for this; EPROTO: it cannot be
    /// read.
    pub(super) fn asked<T: DeserializeOwned>(
        &self,
        request: &Request,
        method: &str,
    ) -> Result<T> {
        if !self.guest {
            return request.json();
        }
        check_version(request)?;
        let Envelope { signature, .. } = request.json().map_err(|_| unsigned())?;
        let warrant = self.obey(&signature, method)?;
        serde_json::from_value(warrant.ask).context("what was signed")
    }

    /// An opening request; in an instance of another user, its terms are signed.
    ///
    /// # Errors
    /// As [`Access::asked`].
    pub(super) fn opening(&self, request: &Request) -> Result<Open> {
        check_version(request)?;
        let open: Open = request.json()?;
        if self.guest {
            let signature = open.warrant.as_deref().ok_or_else(unsigned)?;
            let warrant = self.obey(signature, "open")?;
            let terms: Terms =
                serde_json::from_value(warrant.ask).context("what was signed")?;
            if terms != Terms::of(&open) {
                return Err(Error::with_text(
                    Errno::EPERM,
                    "the terms of the transfer are not those that were signed",
                ));
            }
        }
        Ok(open)
    }

    /// This shell does itself what it has signed: nobody is to have it done here
    /// again.
    ///
    /// # Errors
    /// As [`Access::asked`].
    pub(super) fn obey_own(&self, signature: &str) -> Result<()> {
        self.obey(signature, "open").map(drop)
    }

    fn obey(&self, signature: &str, method: &str) -> Result<Warrant> {
        let warrant = signed::verify_warrant(signature, &self.service, method, self.rank)?;
        self.obeyed
            .borrow_mut()
            .note(&warrant, signed::now())
            .map_err(|text| Error::with_text(Errno::EPERM, text))?;
        Ok(warrant)
    }
}

/// True for a process of another user, as far as the kernel says: one that must
/// not be signalled. In an instance of another user the process that started the
/// shell is such a one.
fn is_out_of_reach(process: Option<Pid>) -> bool {
    process.is_some_and(|process| {
        rustix::process::test_kill_process(process) == Err(rustix::io::Errno::PERM)
    })
}

fn unsigned() -> Error {
    Error::with_text(
        Errno::EPERM,
        "this job runs in an instance of another user, so requests must be signed",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_this_user_are_in_reach() {
        assert!(!is_out_of_reach(None));
        assert!(!is_out_of_reach(Some(rustix::process::getpid())));
        // The first process is somebody else's for all but root.
        if !rustix::process::geteuid().is_root() {
            assert!(is_out_of_reach(Pid::from_raw(1)));
        }
    }
}
