//! Makes small copyable views safe: a view of something that has been closed
//! fails instead of touching freed memory.
//!
//! A [`Lease`] is the right to use an object until its [`Lessor`] is dropped.
//! The cells behind it are reused, told apart by a generation number, so that
//! their number is that of the lessors alive at one time.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::error::Error;
use super::error::Result;
use crate::errno::Errno;

/// A generation number, used by one thread at a time.
type Generation = &'static AtomicU64;

/// Cells that no lessor uses; those of a thread that ends go to the next one
/// that needs some.
struct Unused(RefCell<Vec<Generation>>);

impl Drop for Unused {
    fn drop(&mut self) {
        let mut heirs = HEIRS.lock().unwrap_or_else(PoisonError::into_inner);
        heirs.append(self.0.get_mut());
    }
}

static HEIRS: Mutex<Vec<Generation>> = Mutex::new(Vec::new());

thread_local! {
    static UNUSED: Unused = const { Unused(RefCell::new(Vec::new())) };
}

/// A cell for a new lessor.
fn cell() -> Generation {
    let own = UNUSED.try_with(|unused| unused.0.borrow_mut().pop());
    if let Ok(Some(cell)) = own {
        return cell;
    }
    let mut heirs = HEIRS.lock().unwrap_or_else(PoisonError::into_inner);
    heirs.pop().unwrap_or_else(|| Box::leak(Box::default()))
}

/// The right to use an object; checked at every use.
///
/// # Invariants
/// `None` is an object whose lifetime the code that made the view answers for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease(Option<(Generation, u64)>);

impl Lease {
    /// For objects of the host, which outlive all our code (F2).
    pub(crate) const HOST: Lease = Lease(None);

    /// # Errors
    /// ENOTCONN if the object is gone.
    pub(crate) fn check(self) -> Result<()> {
        match self.0 {
            Some((cell, generation)) if cell.load(Relaxed) != generation => Err(
                Error::with_text(Errno::ENOTCONN, "the Flux handle has been closed"),
            ),
            _ => Ok(()),
        }
    }
}

/// Ends its leases when dropped.
#[derive(Debug)]
pub(crate) struct Lessor(Generation, u64);

impl Lessor {
    pub(crate) fn new() -> Lessor {
        let cell = cell();
        Lessor(cell, cell.load(Relaxed))
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease(Some((self.0, self.1)))
    }
}

impl Drop for Lessor {
    fn drop(&mut self) {
        self.0.store(self.1.wrapping_add(1), Relaxed);
        let _ = UNUSED.try_with(|unused| unused.0.borrow_mut().push(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_the_lessor_even_when_the_cell_is_reused() {
        let lessor = Lessor::new();
        let lease = lessor.lease();
        assert!(lease.check().is_ok());
        drop(lessor);
        assert_eq!(lease.check().unwrap_err().errno(), Errno::ENOTCONN);
        let next = Lessor::new();
        assert!(next.lease().check().is_ok());
        assert!(lease.check().is_err());
        assert!(std::ptr::eq(lease.0.unwrap().0, next.0));
    }
}
