//! Threads for blocking work, which leave signals to the reactor's thread.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::thread::JoinHandle;

use crate::flux::error::Result;
use crate::flux::guard::panic_message;
use crate::flux::thread;

/// Runs `body` in a new thread. Should it panic, `failed` is called with the
/// message there: whoever waits for the worker must hear of its end.
///
/// # Errors
/// EAGAIN if no thread can be had.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
    failed: impl FnOnce(String) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let thread = thread::spawn(name, move || {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            failed(format!(
                "internal error: {}",
                panic_message(payload.as_ref())
            ));
        }
    })?;
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_panic_is_reported() {
        let (sender, receiver) = channel();
        spawn(
            "test",
            || panic!("oh no"),
            move |text| sender.send(text).unwrap(),
        )
        .unwrap();
        assert_eq!(receiver.recv().unwrap(), "internal error: oh no");
    }
}
