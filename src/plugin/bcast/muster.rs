//! Waits until every shell of the job answers.
//!
//! Flux before 0.59 has no `shell.post-init`, and its first later topic,
//! `task.init`, is too late: the shell's own input plugin is at work by then
//! and cannot bear that the reactor runs before the tasks do. So there the job's
//! files are sent in `shell.init`, before the shells have met in their barrier,
//! and the leader must find out by itself when all of them are listening: a
//! request to a shell that is not there yet fails at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::Bcast;
use super::peers::Peers;
use crate::bcast::id::TransferId;
use crate::bcast::message::Ctl;
use crate::bcast::message::Order;
use crate::errno::Errno;
use crate::flux::error::Result;
use crate::flux::future::Pending;
use crate::flux::handle::Node;
use crate::flux::reactor::TimerWatcher;
use crate::transfer::driver::Network;

/// How often an absent shell is asked.
const EVERY: Duration = Duration::from_millis(50);

/// The first Flux version whose shell has `shell.post-init`.
const POST_INIT: (u32, u32) = (0, 59);

/// The shells that have not answered yet.
pub(super) struct Muster {
    state: Rc<RefCell<State>>,
    _retry: TimerWatcher,
}

#[derive(Default)]
struct State {
    /// Asked, and not yet answered.
    asked: BTreeMap<u32, Pending>,
    /// To be asked again.
    absent: Vec<u32>,
}

impl Muster {
    /// Asks every shell but this one, the leader.
    pub(super) fn start(bcast: &Bcast) -> Result<Self> {
        let state = Rc::new(RefCell::new(State {
            absent: (1..bcast.peers.size()).collect(),
            ..State::default()
        }));
        let (asking, peers) = (Rc::clone(&state), Rc::clone(&bcast.peers));
        let reactor = bcast.handle.reactor()?;
        let retry = TimerWatcher::new(reactor, Duration::ZERO, Some(EVERY), move || {
            let absent = std::mem::take(&mut asking.borrow_mut().absent);
            for rank in absent {
                ask(&asking, &peers, rank);
            }
        })?;
        Ok(Self {
            state,
            _retry: retry,
        })
    }

    /// True when all have answered.
    pub(super) fn is_complete(&self) -> bool {
        let state = self.state.borrow();
        state.asked.is_empty() && state.absent.is_empty()
    }
}

fn ask(state: &Rc<RefCell<State>>, peers: &Rc<Peers>, rank: u32) {
    let answered = Rc::clone(state);
    // Nobody knows this transfer; that answer is as good as any other.
    let ping = Ctl {
        transfer: TransferId::from_bytes([0; 16]),
        order: Order::Ping,
    };
    let asked = peers
        .link(rank)
        .ok_or(Errno::EHOSTUNREACH.into())
        .and_then(|link| {
            let node = Node::Rank(link.broker);
            let future = link.handle.rpc_json(&link.topic("ctl"), &ping, node)?;
            future.then(None, move |future| {
                let absent = future
                    .get()
                    .is_err_and(|error| error.errno() == Errno::ENOSYS);
                let mut state = answered.borrow_mut();
                let over = state.asked.remove(&rank);
                if absent {
                    state.absent.push(rank);
                }
                drop(state);
                drop(over);
            })
        });
    let mut state = state.borrow_mut();
    match asked {
        Ok(pending) => {
            state.asked.insert(rank, pending);
        }
        Err(_) => state.absent.push(rank),
    }
}

/// True for a Flux (`0.58.0-12-g…`) whose shell lacks `shell.post-init`. What
/// cannot be read is taken for a newer one.
pub(super) fn is_needed(version: Option<&str>) -> bool {
    let mut numbers = version
        .unwrap_or_default()
        .split(['.', '-'])
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < POST_INIT,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (version, needed) in [
            (Some("0.58.0"), true),
            (Some("0.9.0-3-gabc"), true),
            (Some("0.59.0"), false),
            (Some("0.88.0-59-g4a5e79f56"), false),
            (Some("1.0.0"), false),
            (Some("unknown"), false),
            (None, false),
        ] {
            assert_eq!(is_needed(version), needed, "{version:?}");
        }
    }
}
