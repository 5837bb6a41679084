//! Values that a user attaches to an object, with destructors.
#![expect(unsafe_code, reason = "calls destructors given by C")]

use std::cell::RefCell;
use std::ffi::c_void;

use crate::errno::Errno;

/// Destructor of an attached value.
pub type Free = unsafe extern "C" fn(*mut c_void);

struct Item {
    key: Option<Vec<u8>>,
    value: *mut c_void,
    free: Option<Free>,
}

impl Item {
    fn destroy(self) {
        if let Some(free) = self.free
            && !self.value.is_null()
        {
            // SAFETY: the user gave this destructor for this very value, and
            // the item is consumed, so it runs once.
            unsafe { free(self.value) };
        }
    }
}

/// The list: named items first, the newest in front, then nameless ones in
/// order; destruction goes from front to back.
#[derive(Default)]
pub struct Aux(RefCell<Vec<Item>>);

impl std::fmt::Debug for Aux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Aux({})", self.0.borrow().len())
    }
}

impl Aux {
    /// Attaches `value`; a NULL value removes what `key` had.
    ///
    /// # Errors
    /// `EINVAL` for the combinations that Flux refuses.
    pub fn set(
        &self,
        key: Option<&[u8]>,
        value: *mut c_void,
        free: Option<Free>,
    ) -> Result<(), Errno> {
        let no_value = value.is_null();
        if (key.is_none() && (no_value || free.is_none())) || (no_value && free.is_some()) {
            return Err(Errno(libc::EINVAL));
        }
        let old = key.and_then(|k| {
            let mut items = self.0.borrow_mut();
            let at = items.iter().position(|i| i.key.as_deref() == Some(k))?;
            Some(items.remove(at))
        });
        if let Some(old) = old {
            old.destroy();
        }
        if no_value {
            return Ok(());
        }
        let item = Item {
            key: key.map(<[u8]>::to_vec),
            value,
            free,
        };
        let mut items = self.0.borrow_mut();
        if item.key.is_some() {
            items.insert(0, item);
        } else {
            items.push(item);
        }
        Ok(())
    }

    /// What is attached under `key`.
    ///
    /// # Errors
    /// `ENOENT` when there is nothing.
    pub fn get(&self, key: &[u8]) -> Result<*mut c_void, Errno> {
        self.0
            .borrow()
            .iter()
            .find(|i| i.key.as_deref() == Some(key))
            .map(|i| i.value)
            .ok_or(Errno(libc::ENOENT))
    }

    /// Runs all destructors; one that attaches more is served too.
    pub fn destroy(&self) {
        loop {
            let mut items = self.0.borrow_mut();
            if items.is_empty() {
                return;
            }
            let item = items.remove(0);
            drop(items);
            item.destroy();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local!(static FREED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });

    unsafe extern "C" fn note(value: *mut c_void) {
        FREED.with_borrow_mut(|v| v.push(value as usize));
    }

    fn value(n: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(n)
    }

    #[test]
    fn replaced_and_destroyed_in_order() {
        let aux = Aux::default();
        aux.set(Some(b"a"), value(1), Some(note)).unwrap();
        aux.set(None, value(2), Some(note)).unwrap();
        aux.set(Some(b"b"), value(3), Some(note)).unwrap();
        aux.set(Some(b"a"), value(4), Some(note)).unwrap();
        assert_eq!(FREED.with_borrow(Clone::clone), [1]);
        assert_eq!(aux.get(b"a"), Ok(value(4)));
        assert_eq!(aux.get(b"z"), Err(Errno(libc::ENOENT)));
        assert!(aux.set(None, value(1), None).is_err());
        aux.destroy();
        assert_eq!(FREED.with_borrow(Clone::clone), [1, 4, 3, 2]);
    }
}
