//! Makes small copyable views safe: a view of something that has been closed
//! fails instead of touching freed memory.
//!
//! A [`Lease`] is the right to use an object until its [`Lessor`] is dropped.
//! The cells behind it are reused, told apart by a generation number, so that
//! their number is that of the leases alive at one time.

use std::cell::Cell;
use std::cell::RefCell;

use super::error::Error;
use super::error::Result;
use crate::errno::Errno;

thread_local! {
    static UNUSED: RefCell<Vec<&'static Cell<u64>>> = const { RefCell::new(Vec::new()) };
}

/// The right to use an object; checked at every use.
///
/// # Invariants
/// `None` is an object whose lifetime the code that made the view answers for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease(Option<(&'static Cell<u64>, u64)>);

impl Lease {
    /// For objects of the host, which outlive all our code (F2).
    pub(crate) const HOST: Lease = Lease(None);

    /// # Errors
    /// ENOTCONN if the object is gone.
    pub(crate) fn check(self) -> Result<()> {
        match self.0 {
            Some((cell, generation)) if cell.get() != generation => Err(Error::with_text(
                Errno::ENOTCONN,
                "the Flux handle has been closed",
            )),
            _ => Ok(()),
        }
    }
}

/// Ends its leases when dropped.
#[derive(Debug)]
pub(crate) struct Lessor(&'static Cell<u64>, u64);

impl Lessor {
    pub(crate) fn new() -> Lessor {
        let reused = UNUSED.try_with(|unused| unused.borrow_mut().pop());
        let cell = match reused {
            Ok(Some(cell)) => cell,
            _ => Box::leak(Box::new(Cell::new(0))),
        };
        Lessor(cell, cell.get())
    }

    pub(crate) fn lease(&self) -> Lease {
        Lease(Some((self.0, self.1)))
    }
}

impl Drop for Lessor {
    fn drop(&mut self) {
        self.0.set(self.0.get().wrapping_add(1));
        let _ = UNUSED.try_with(|unused| unused.borrow_mut().push(self.0));
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
