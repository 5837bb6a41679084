//! Rust values behind C's `void *`.
//!
//! One concrete `T` per pointer; the C side either gets [`free_boxed`] as its
//! destructor or only borrows what a Rust owner keeps alive.

use std::ffi::c_void;

use super::guard;

/// Gives a box to C. Take it back with [`from_foreign`] or let
/// [`free_boxed`] run; C's `aux_set` does neither when it fails (F4).
pub(crate) fn into_foreign<T: 'static>(value: Box<T>) -> *mut c_void {
    Box::into_raw(value).cast()
}

/// Looks at a value that C holds for us.
///
/// # Safety
/// `ptr` came from [`into_foreign`] (or points to a `T` that lives for `'a`),
/// with the same `T`, and is not freed within `'a`.
pub(crate) unsafe fn borrow<'a, T: 'static>(ptr: *const c_void) -> &'a T {
    // SAFETY: the caller vouches for type and lifetime.
    unsafe { &*ptr.cast::<T>() }
}

/// Takes a box back from C.
///
/// # Safety
/// `ptr` came from [`into_foreign`] with the same `T`, and C will not use it
/// again.
pub(crate) unsafe fn from_foreign<T: 'static>(ptr: *mut c_void) -> Box<T> {
    // SAFETY: the caller vouches for origin and type.
    unsafe { Box::from_raw(ptr.cast::<T>()) }
}

/// C's destructor for a value given by [`into_foreign`]. A panic in the
/// value's `Drop` stops here.
///
/// # Safety
/// `ptr` is NULL or came from [`into_foreign`] with the same `T`, once.
pub(crate) unsafe extern "C" fn free_boxed<T: 'static>(ptr: *mut c_void) {
    guard::destructor(|| {
        if !ptr.is_null() {
            // SAFETY: as the caller vouches.
            drop(unsafe { from_foreign::<T>(ptr) });
        }
    });
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    struct Counted(Rc<Cell<u32>>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn is_dropped_exactly_once() {
        let count = Rc::new(Cell::new(0));
        let ptr = into_foreign(Box::new(Counted(Rc::clone(&count))));
        // SAFETY: ours, same type, alive.
        let seen = unsafe { borrow::<Counted>(ptr) };
        assert_eq!(seen.0.get(), 0);
        // SAFETY: ours, same type, once.
        unsafe { free_boxed::<Counted>(ptr) };
        assert_eq!(count.get(), 1);
        // SAFETY: NULL is allowed.
        unsafe { free_boxed::<Counted>(std::ptr::null_mut()) };
        assert_eq!(count.get(), 1);
    }
}
