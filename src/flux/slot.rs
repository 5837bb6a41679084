//! Where a callback's closure lives: it may be called again while it runs, and
//! may drop its own owner; neither may free or alias a running closure.

use std::cell::Cell;
use std::cell::RefCell;
use std::fmt;

/// Holds one closure, takes it out while it runs, and puts it back unless the
/// slot has been closed meanwhile.
pub(crate) struct Slot<F: ?Sized> {
    closure: RefCell<Option<Box<F>>>,
    open: Cell<bool>,
    running: Cell<bool>,
}

impl<F: ?Sized> Slot<F> {
    pub(crate) fn new(closure: Box<F>) -> Slot<F> {
        Slot {
            closure: RefCell::new(Some(closure)),
            open: Cell::new(true),
            running: Cell::new(false),
        }
    }

    /// Calls `f` with the closure. `None` if it is running already or closed.
    pub(crate) fn call<T>(&self, f: impl FnOnce(&mut F) -> T) -> Option<T> {
        let mut closure = self.closure.take()?;
        self.running.set(true);
        let value = f(&mut closure);
        self.running.set(false);
        if self.is_open() {
            self.closure.replace(Some(closure));
        }
        Some(value)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// True while [`Slot::call`] runs the closure.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Drops the closure, now or when it returns; later calls do nothing.
    pub(crate) fn close(&self) {
        self.open.set(false);
        let closure = self.closure.take();
        drop(closure);
    }
}

impl<F: ?Sized> fmt::Debug for Slot<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("open", &self.open.get())
            .field("running", &self.running.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    type Call = Slot<dyn FnMut() -> u32>;

    #[test]
    fn a_second_entry_is_refused_while_running() {
        let inner: Rc<RefCell<Option<Rc<Call>>>> = Rc::default();
        let seen = Rc::new(Cell::new(None));
        let (itself, result) = (Rc::clone(&inner), Rc::clone(&seen));
        let slot: Rc<Call> = Rc::new(Slot::new(Box::new(move || {
            let slot = itself.borrow().clone().unwrap();
            result.set(Some((slot.call(|f| f()), slot.is_running())));
            1
        })));
        inner.replace(Some(Rc::clone(&slot)));
        assert_eq!(slot.call(|f| f()), Some(1));
        assert_eq!(seen.get(), Some((None, true)));
        assert!(!slot.is_running());
        inner.take();
    }

    #[test]
    fn closing_from_inside_waits_for_the_return() {
        let alive = Rc::new(());
        let inner: Rc<RefCell<Option<Rc<Call>>>> = Rc::default();
        let (itself, kept) = (Rc::clone(&inner), Rc::clone(&alive));
        let slot: Rc<Call> = Rc::new(Slot::new(Box::new(move || {
            if let Some(slot) = itself.take() {
                slot.close();
            }
            u32::try_from(Rc::strong_count(&kept)).unwrap()
        })));
        inner.replace(Some(Rc::clone(&slot)));
        assert_eq!(slot.call(|f| f()), Some(2));
        assert_eq!(Rc::strong_count(&alive), 1);
        assert_eq!(slot.call(|f| f()), None);
    }
}
