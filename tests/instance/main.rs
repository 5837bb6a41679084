//! The wrappers of `flux_bcast::flux` on a live Flux instance: they are thin,
//! so only the real host can show that they hold.
//!
//! Run inside an instance, which `cargo test` by itself is not:
//! `flux start -s 2 cargo test --workspace --test instance`.

#![expect(clippy::unwrap_used, reason = "a test program: it fails by panicking")]
#![expect(
    unsafe_code,
    reason = "plays the C caller of the futures that it makes"
)]

mod connection;
mod futures;
mod jobs;
mod promises;
mod wakeups;
mod watchers;

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flux_bcast::ffi::host;
use flux_bcast::flux::handle::Connection;
use flux_bcast::flux::reactor::Reactor;
use flux_bcast::flux::reactor::TimerWatcher;

/// How long anything may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// Connects to the instance.
#[track_caller]
fn connect() -> Connection {
    host::init_client().unwrap();
    Connection::open(None).unwrap()
}

/// Runs the reactor until `done` or the limit.
#[track_caller]
fn run_until(reactor: Reactor, mut done: impl FnMut() -> bool) {
    let expired = Rc::new(Cell::new(false));
    let flag = Rc::clone(&expired);
    let _limit = TimerWatcher::new(reactor, LIMIT, None, move || flag.set(true)).unwrap();
    while !done() {
        assert!(!expired.get(), "nothing happened for {LIMIT:?}");
        reactor.run_once().unwrap();
    }
}

/// A slot that closures can share with the test.
fn shared<T>(value: T) -> Rc<RefCell<T>> {
    Rc::new(RefCell::new(value))
}
