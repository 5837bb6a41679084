//! Whether a shell that is working for us is still there.
//!
//! A pending request to a shell that dies is never answered, but a new one
//! fails at once (or, if the shell hangs, is not answered either). So a shell is
//! asked for a sign of life every second.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::bcast::id::TransferId;
use crate::bcast::message::Ctl;
use crate::bcast::message::Order;
use crate::bcast::report::Failure;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Node;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::edge;
use crate::transfer::edge::Link;

const PERIOD: Duration = Duration::from_secs(1);

/// See the module's documentation. Dropping it ends the questions.
pub(super) struct Pulse {
    _ticker: TimerWatcher,
    asked: Rc<RefCell<Option<Pending>>>,
}

impl Pulse {
    /// Starts to ask `link`; `on_lost` is called, from the reactor, if it is
    /// gone or gives no answer for `stall`.
    ///
    /// # Errors
    /// Those of the connection.
    pub(super) fn start(
        link: Link,
        transfer: TransferId,
        stall: Duration,
        on_lost: impl Fn(Failure) + 'static,
    ) -> Result<Self> {
        let asked: Rc<RefCell<Option<Pending>>> = Rc::default();
        let on_lost: Rc<dyn Fn(Failure)> = Rc::new(on_lost);
        let slot = Rc::clone(&asked);
        let reactor = link.handle.reactor()?;
        let ticker = TimerWatcher::new(reactor, PERIOD, Some(PERIOD), move || {
            if slot.borrow().is_some() {
                return;
            }
            match ask(&link, transfer, stall, &slot, &on_lost) {
                Ok(pending) => {
                    slot.replace(Some(pending));
                }
                Err(error) => on_lost(failure(&error, stall)),
            }
        })?;
        Ok(Self {
            _ticker: ticker,
            asked,
        })
    }
}

fn ask(
    link: &Link,
    transfer: TransferId,
    stall: Duration,
    slot: &Rc<RefCell<Option<Pending>>>,
    on_lost: &Rc<dyn Fn(Failure)>,
) -> Result<Pending> {
    let order = Order::Ping;
    let ctl = Ctl { transfer, order };
    let (slot, on_lost) = (Rc::downgrade(slot), Rc::clone(on_lost));
    link.handle
        .rpc_json(&link.topic("ctl"), &ctl, Node::Rank(link.broker))?
        .then(Some(stall), move |future| {
            // No slot: nobody wants to know any more.
            let Some(slot) = slot.upgrade() else { return };
            drop(slot.borrow_mut().take());
            if let Err(error) = future.get() {
                let (errno, _) = edge::explain(&error);
                // Any other refusal is a sign of life.
                if matches!(
                    errno,
                    Errno::ESHUTDOWN | Errno::EHOSTUNREACH | Errno::ETIMEDOUT
                ) {
                    on_lost(failure(&error, stall));
                }
            }
        })
}

fn failure(error: &Error, stall: Duration) -> Failure {
    match edge::explain(error) {
        (Errno::ETIMEDOUT, _) => {
            let text = format!("no sign of life for {} s", stall.as_secs_f64());
            Failure::client(libc::ETIMEDOUT, text)
        }
        (errno, text) => Failure::client(errno.raw(), text),
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        drop(self.asked.borrow_mut().take());
    }
}

/// Tells a shell that what it does for us is called off; best effort.
pub(super) fn call_off(link: &Link, transfer: TransferId, why: Failure) {
    let order = Order::Abort(why);
    let ctl = Ctl { transfer, order };
    let node = Node::Rank(link.broker);
    let _ = link.handle.send_json(&link.topic("ctl"), &ctl, node);
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").finish_non_exhaustive()
    }
}
