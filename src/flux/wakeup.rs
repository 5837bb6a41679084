//! From worker threads into the reactor: a bounded channel and an eventfd.
//!
//! Flux's objects belong to one thread. A worker gets owned data, does its
//! blocking work, and sends owned results; the reactor takes them a batch at a
//! time, so that a busy worker cannot starve the other watchers.

use std::cell::Cell;
use std::fmt;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use crossbeam_channel as channel;
use rustix::event::EventfdFlags;
use rustix::event::eventfd;

use super::error::Context;
use super::error::Result;
use super::reactor::FdWatcher;
use super::reactor::Interest;
use super::reactor::Reactor;

pub use crossbeam_channel::SendError;
pub use crossbeam_channel::TrySendError;

/// The wake-up call, shared by both sides.
struct Bell {
    fd: OwnedFd,
    /// The descriptor is readable, or is about to be; spares system calls.
    rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        // The swap publishes the event queued before it to whoever clears.
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Fails only if the counter is at its limit: then it is readable.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        self.rung.swap(false, Ordering::AcqRel);
    }
}

/// The worker's end. `Clone` and `Send`.
pub struct WakeSender<T> {
    events: channel::Sender<T>,
    bell: Arc<Bell>,
}

impl<T> WakeSender<T> {
    /// Sends an event; waits while the channel is full.
    ///
    /// # Errors
    /// Gives the event back if the reactor's end is gone.
    pub fn send(&self, event: T) -> std::result::Result<(), SendError<T>> {
        self.events.send(event)?;
        self.bell.ring();
        Ok(())
    }

    /// Sends an event without waiting.
    ///
    /// # Errors
    /// Gives the event back if the channel is full or the reactor's end gone.
    pub fn try_send(&self, event: T) -> std::result::Result<(), TrySendError<T>> {
        self.events.try_send(event)?;
        self.bell.ring();
        Ok(())
    }
}

impl<T> Clone for WakeSender<T> {
    fn clone(&self) -> WakeSender<T> {
        WakeSender {
            events: self.events.clone(),
            bell: Arc::clone(&self.bell),
        }
    }
}

impl<T> fmt::Debug for WakeSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeSender")
            .field("queued", &self.events.len())
            .finish()
    }
}

/// The reactor's end. Once it is dropped, senders fail, also those that wait:
/// drop it before joining a worker.
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<flux_bcast::flux::wakeup::WakeReceiver>();
/// ```
#[derive(Debug)]
#[must_use = "dropping the receiver makes senders fail"]
pub struct WakeReceiver {
    _watcher: FdWatcher,
    open: Rc<Cell<bool>>,
}

impl Drop for WakeReceiver {
    fn drop(&mut self) {
        self.open.set(false);
    }
}

/// Makes a channel of `capacity` events whose events are given to `on_event`
/// in the reactor, at most `batch` of them before other watchers get a turn.
///
/// # Errors
/// EMFILE, ENFILE or ENOMEM.
pub fn wakeup<T: Send + 'static>(
    reactor: Reactor,
    capacity: usize,
    batch: usize,
    mut on_event: impl FnMut(T) + 'static,
) -> Result<(WakeSender<T>, WakeReceiver)> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .context("create wake-up descriptor")?;
    let bell = Arc::new(Bell {
        fd,
        rung: AtomicBool::new(false),
    });
    let (events, queue) = channel::bounded(capacity.max(1));
    let open = Rc::new(Cell::new(true));
    let (ours, theirs) = (Rc::clone(&open), Arc::clone(&bell));
    // The closure owns the queue: the channel ends with the watcher.
    let watcher = FdWatcher::new(reactor, bell.fd.as_fd(), Interest::Read, move |_| {
        theirs.clear();
        for _ in 0..batch.max(1) {
            match queue.try_recv() {
                Ok(event) => on_event(event),
                Err(_) => return,
            }
            if !ours.get() {
                return;
            }
        }
        if !queue.is_empty() {
            theirs.ring();
        }
    })?;
    let receiver = WakeReceiver {
        _watcher: watcher,
        open,
    };
    Ok((WakeSender { events, bell }, receiver))
}
