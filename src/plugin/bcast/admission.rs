//! How much goes on in a shell at once.
//!
//! Every transfer takes a thread, a few descriptors and up to its window of
//! memory. A script that starts thousands of them at once must get a clear
//! refusal, not a shell without descriptors that can no longer serve its tasks.

use super::Bcast;
use super::service::Transfer;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::units::show_size;

/// Most transfers that are open at once.
const TRANSFERS: usize = 64;

/// Most questions that are answered at once: a thread each.
const ERRANDS: usize = 64;

/// Bytes of all windows together.
const WINDOWS: u64 = 512 << 20;

impl Bcast {
    /// Checks that there is room for one more transfer, to or from this shell.
    ///
    /// # Errors
    /// EAGAIN, with the limit.
    pub(super) fn admit_transfer(&self, window: u64) -> Result<()> {
        let mut windows: Vec<u64> = self
            .transfers
            .borrow()
            .values()
            .map(Transfer::window)
            .collect();
        windows.extend(
            self.sendings
                .borrow()
                .values()
                .map(|sending| sending.window()),
        );
        windows.extend(self.fetches.borrow().windows());
        check_transfers(&windows, window)
    }

    /// Checks that there is room for one more question.
    ///
    /// # Errors
    /// EAGAIN, with the limit.
    pub(super) fn admit_errand(&self) -> Result<()> {
        if self.errands.borrow().len() < ERRANDS {
            return Ok(());
        }
        busy(format!("{ERRANDS} questions are being answered"))
    }
}

fn check_transfers(open: &[u64], window: u64) -> Result<()> {
    if open.len() >= TRANSFERS {
        return busy(format!("{TRANSFERS} transfers are open"));
    }
    let all = open
        .iter()
        .fold(window, |sum, one| sum.saturating_add(*one));
    if all > WINDOWS {
        return busy(format!(
            "the open transfers have windows of {} of at most {}",
            show_size(all - window),
            show_size(WINDOWS)
        ));
    }
    Ok(())
}

fn busy(what: String) -> Result<()> {
    let text = format!("the shell is busy: {what}; try again later");
    Err(Error::with_text(Errno::EAGAIN, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many() {
        assert!(check_transfers(&[1; TRANSFERS - 1], 1).is_ok());
        let error = check_transfers(&[1; TRANSFERS], 1).unwrap_err();
        assert_eq!(error.errno(), Errno::EAGAIN);
        assert!(
            error.to_string().contains("64 transfers are open"),
            "{error}"
        );
        assert!(check_transfers(&[WINDOWS - 1], 1).is_ok());
        assert!(check_transfers(&[WINDOWS], 1).is_err());
        assert!(check_transfers(&[u64::MAX], 1).is_err());
    }
}
