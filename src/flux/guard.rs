//! The wall between C and Rust: no panic crosses it, and after a panic no
//! further callback runs.
//!
//! Every `extern "C"` body of this library is one call of [`guard`] (or, for
//! destructors, [`destructor`]). A panic becomes the failure value of the C
//! function with errno ENOTRECOVERABLE. The state that the panic left behind
//! cannot be trusted, so this thread is *poisoned*: later callbacks fail at
//! once. The plugin hears of it once, through [`on_panic`], and fails the job.
//!
//! All of this is per thread, because all state behind Flux callbacks is: no
//! Flux object here is `Send`.

use std::any::Any;
use std::cell::Cell;
use std::cell::RefCell;
use std::ffi::c_int;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::Once;

use crate::errno::Errno;

/// What a C function returns to say that it failed.
pub trait FailValue {
    /// The value.
    fn fail_value() -> Self;
}

impl FailValue for () {
    fn fail_value() {}
}

impl FailValue for c_int {
    fn fail_value() -> c_int {
        -1
    }
}

impl FailValue for i64 {
    fn fail_value() -> i64 {
        -1
    }
}

impl FailValue for bool {
    fn fail_value() -> bool {
        false
    }
}

impl<T> FailValue for *mut T {
    fn fail_value() -> *mut T {
        ptr::null_mut()
    }
}

impl<T> FailValue for *const T {
    fn fail_value() -> *const T {
        ptr::null()
    }
}

/// What is known of a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PanicReport {
    /// The panic's message.
    pub message: String,
    /// File and line, if [`install_panic_hook`] was called.
    pub location: Option<String>,
}

impl fmt::Display for PanicReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "internal error: {}", self.message)?;
        match &self.location {
            Some(location) => write!(f, " (at {location})"),
            None => Ok(()),
        }
    }
}

/// Called once, after the first panic on this thread.
type PanicCallback = Box<dyn FnOnce(&PanicReport)>;

thread_local! {
    static POISONED: Cell<bool> = const { Cell::new(false) };
    static LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
    static CALLBACK: RefCell<Option<PanicCallback>> = const { RefCell::new(None) };
}

/// Makes panics record their place instead of printing it, for this copy of
/// the Rust library: for the plugin, whose copy is its own. Cheap when called
/// again.
pub fn install_panic_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let printing = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string);
            // A thread that is ending has no storage any more.
            let _ = LOCATION.try_with(|slot| slot.replace(location));
            // The unit tests of this library share one process, and the hook: a test
            // that fails has to say why.
            if cfg!(test) {
                printing(info);
            }
        }));
    });
}

/// Sets what is told of the first panic of this thread, replacing an earlier
/// callback. It runs when the panic has been caught; a panic of its own is
/// ignored.
pub fn on_panic(callback: impl FnOnce(&PanicReport) + 'static) {
    CALLBACK.set(Some(Box::new(callback)));
}

/// True if a callback on this thread has panicked.
pub fn is_poisoned() -> bool {
    POISONED.get()
}

/// Runs the body of a C function: `Err` and panic become the failure value,
/// and errno is set last, when everything of the body has been dropped.
pub fn guard<T: FailValue, E: Into<Errno>>(body: impl FnOnce() -> Result<T, E>) -> T {
    let outcome = if is_poisoned() {
        Err(Errno::ENOTRECOVERABLE)
    } else {
        match catch_unwind(AssertUnwindSafe(|| body().map_err(Into::into))) {
            Ok(outcome) => outcome,
            Err(payload) => {
                poison(payload);
                Err(Errno::ENOTRECOVERABLE)
            }
        }
    };
    match outcome {
        Ok(value) => value,
        Err(errno) => {
            set_errno(errno);
            T::fail_value()
        }
    }
}

/// Runs the body of a C function that cannot fail. It leaves errno alone: a
/// reactor that stops with an error returns after callbacks that happen to be
/// due as well, and its caller reads the errno of the first.
pub fn guard_ok<T: FailValue>(body: impl FnOnce() -> T) -> T {
    let saved = errno_now();
    guard(|| {
        let value = body();
        // SAFETY: the address of this thread's errno is always writable.
        unsafe { *libc::__errno_location() = saved };
        Ok::<T, Errno>(value)
    })
}

/// Runs the body of a destructor: also after a panic, for what it releases
/// (files, threads) must be released all the same. Leaves errno alone.
pub fn destructor(body: impl FnOnce()) {
    let saved = Errno::new(errno_now());
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        poison(payload);
    }
    if let Some(errno) = saved {
        set_errno(errno);
    }
}

/// Sets errno for the C caller. Must be the last thing that is done.
pub fn set_errno(errno: Errno) {
    // SAFETY: the address of this thread's errno is always writable.
    unsafe { *libc::__errno_location() = errno.raw() };
}

fn errno_now() -> i32 {
    // SAFETY: the address of this thread's errno is always readable.
    unsafe { *libc::__errno_location() }
}

/// The text of a panic's payload.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => "panic without a text".to_owned(),
    }
}

fn poison(payload: Box<dyn Any + Send>) {
    let first = !POISONED.replace(true);
    let report = PanicReport {
        message: panic_message(&*payload),
        location: LOCATION.take(),
    };
    // A payload's Drop may panic too; then it is leaked.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
    if !first {
        return;
    }
    super::shell::release_completion_refs();
    if let Some(callback) = CALLBACK.take() {
        let _ = catch_unwind(AssertUnwindSafe(|| callback(&report))).map_err(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// Each test runs on a thread of its own, hence unpoisoned.
    fn fresh(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn values_and_errors_pass() {
        fresh(|| {
            assert_eq!(guard(|| Ok::<c_int, Errno>(7)), 7);
            assert_eq!(guard(|| Err::<c_int, Errno>(Errno::ENOSPC)), -1);
            assert_eq!(Errno::last(), Errno::ENOSPC);
            assert!(guard(|| Err::<*mut u8, Errno>(Errno::EPERM)).is_null());
            assert_eq!(Errno::last(), Errno::EPERM);
            assert!(!is_poisoned());
        });
    }

    #[test]
    fn what_cannot_fail_leaves_errno_alone() {
        fresh(|| {
            set_errno(Errno::ETIMEDOUT);
            guard_ok(|| drop(std::fs::File::open("/nonexistent")));
            assert_eq!(Errno::last(), Errno::ETIMEDOUT);
        });
    }

    #[test]
    fn errno_is_set_after_the_drops() {
        struct Noisy;
        impl Drop for Noisy {
            fn drop(&mut self) {
                std::fs::File::open("/nonexistent").unwrap_err();
            }
        }
        fresh(|| {
            let rc: c_int = guard(|| {
                let _noisy = Noisy;
                Err(Errno::EXDEV)
            });
            assert_eq!((rc, Errno::last()), (-1, Errno::EXDEV));
        });
    }

    #[test]
    fn after_a_panic_nothing_runs_and_it_is_told_once() {
        fresh(|| {
            install_panic_hook();
            let told = Rc::new(RefCell::new(Vec::new()));
            let sink = Rc::clone(&told);
            on_panic(move |report| sink.borrow_mut().push(report.clone()));
            let rc: c_int = guard_ok(|| panic!("broken {}", 1));
            assert_eq!((rc, Errno::last()), (-1, Errno::ENOTRECOVERABLE));
            let ran = Cell::new(false);
            let rc: c_int = guard_ok(|| {
                ran.set(true);
                0
            });
            assert_eq!((rc, ran.get()), (-1, false));
            assert_eq!(Errno::last(), Errno::ENOTRECOVERABLE);
            destructor(|| panic!("again"));
            let told = told.borrow();
            assert_eq!(told.len(), 1);
            assert_eq!(told[0].message, "broken 1");
            let location = told[0].location.clone().unwrap();
            assert!(location.contains("guard.rs"), "{location}");
            let text = told[0].to_string();
            assert!(text.starts_with("internal error: broken 1 (at "), "{text}");
        });
    }

    #[test]
    fn destructors_run_even_then_and_keep_errno() {
        fresh(|| {
            install_panic_hook();
            guard_ok(|| -> () { panic!("x") });
            assert!(is_poisoned());
            set_errno(Errno::EBUSY);
            let ran = Cell::new(false);
            destructor(|| {
                ran.set(true);
                std::fs::File::open("/nonexistent").unwrap_err();
            });
            assert!(ran.get());
            assert_eq!(Errno::last(), Errno::EBUSY);
        });
    }

    #[test]
    fn a_panic_in_the_callback_or_payload_stays_inside() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in drop");
            }
        }
        fresh(|| {
            install_panic_hook();
            on_panic(|_| panic!("in callback"));
            let rc: c_int = guard_ok(|| std::panic::panic_any(Bomb));
            assert_eq!(rc, -1);
        });
    }
}
