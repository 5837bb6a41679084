//! Threads for blocking work, which leave signals to the reactor's thread.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::path::Path;
use std::thread::JoinHandle;

use crate::errno::Errno;
use crate::file::FileError;
use crate::flux::error::Result;
use crate::flux::guard::panic_message;
use crate::flux::handle::Handle;
use crate::flux::thread;
use crate::flux::wakeup::WakeReceiver;
use crate::flux::wakeup::wakeup;

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

/// Does something with files in a thread of its own, and gives what comes of it
/// to `done`, on the reactor. Should it panic, the error is about `what`.
///
/// # Errors
/// The thread or its channel could not be made.
pub(crate) fn aside<T: Send + 'static>(
    handle: Handle,
    name: &str,
    what: &'static str,
    work: impl FnOnce() -> std::result::Result<T, FileError> + Send + 'static,
    done: impl FnMut(std::result::Result<T, FileError>) + 'static,
) -> Result<WakeReceiver> {
    let (sender, receiver) = wakeup(handle.reactor()?, 1, 1, done)?;
    let reports = sender.clone();
    spawn(
        name,
        move || {
            let _ = sender.send(work());
        },
        move |text| {
            let errno = Errno::ENOTRECOVERABLE;
            let error = FileError::new(errno, "read", Path::new(what));
            let _ = reports.send(Err(error.with_hint(text)));
        },
    )?;
    Ok(receiver)
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
