//! The origin: starts a transfer and decides how it ends.
//!
//! It is a [`Relay`] whose upstream is the source itself, and the one place
//! where the decision is taken that all ranks wait for: publish or drop. It is
//! driven like a relay, with [`Input::Frame`] for what was read from the source
//! and [`Input::Abort`] for everything that calls the transfer off (the source
//! failed, the user gave up). Of [`Output::Up`] only progress and the final
//! [`Up::Done`] come out.

use std::time::Duration;

use super::message::Up;
use super::relay::Config;
use super::relay::Input;
use super::relay::Millis;
use super::relay::Output;
use super::relay::Relay;
use super::report::Failure;

/// What became of a transfer as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Open,
    Commit,
    Abort(Failure),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Origin {
    relay: Relay,
    partial: bool,
    targets: usize,
    failures: Vec<Failure>,
    verdict: Verdict,
    deadline: Option<Millis>,
    /// When to stop waiting for answers.
    last_call: Option<Millis>,
}

impl Origin {
    /// How long the ranks have to answer after the transfer was called off.
    pub const GRACE: Duration = Duration::from_secs(2);

    /// Starts a transfer to `targets` ranks.
    ///
    /// With `partial`, healthy ranks commit although others fail. After
    /// `timeout` the transfer is called off.
    pub fn new(
        config: Config,
        targets: usize,
        partial: bool,
        timeout: Option<Duration>,
        now: Millis,
        out: &mut Vec<Output>,
    ) -> Self {
        let start = out.len();
        let relay = Relay::new(
            Config {
                watch_upstream: false,
                partial,
                heir: false,
                ..config
            },
            now,
            out,
        );
        let mut origin = Self {
            relay,
            partial,
            targets,
            failures: Vec::new(),
            verdict: Verdict::Open,
            deadline: timeout.map(|timeout| now.saturating_add(millis(timeout))),
            last_call: None,
        };
        let first = out.split_off(start);
        origin.decide(now, first, out);
        origin
    }

    /// Why the transfer was called off, if it was.
    pub fn why(&self) -> Option<&Failure> {
        match &self.verdict {
            Verdict::Abort(why) => Some(why),
            Verdict::Open | Verdict::Commit => None,
        }
    }

    /// Failures in the order in which they were noticed.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// True once [`Output::Finished`] was returned.
    pub fn is_finished(&self) -> bool {
        self.relay.is_finished()
    }

    /// Bytes of the frames held in memory.
    pub fn held_bytes(&self) -> u64 {
        self.relay.held_bytes()
    }

    /// Bytes of the frames that are kept for the children of children.
    pub fn kept_bytes(&self) -> u64 {
        self.relay.kept_bytes()
    }

    /// Takes one input; what is to be done is appended to `out`.
    pub fn handle(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Abort(why) => self.call_off(now, why, out),
            Input::Tick => {
                if self.deadline.is_some_and(|deadline| now >= deadline) {
                    self.deadline = None;
                    let why = Failure::client(libc::ETIMEDOUT, "the time limit has expired");
                    // Also where the decision to publish is taken already, and
                    // no later than a call-off has set it.
                    self.last_call
                        .get_or_insert(now.saturating_add(millis(Self::GRACE)));
                    self.call_off(now, why, out);
                }
                if self.last_call.is_some_and(|last| now >= last) {
                    let why = Failure::client(libc::ETIMEDOUT, "gave no answer in time");
                    self.feed(now, Input::Shutdown(why), out);
                } else {
                    self.feed(now, Input::Tick, out);
                }
            }
            other => self.feed(now, other, out),
        }
    }

    fn feed(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        let mut outputs = Vec::new();
        self.relay.handle(now, input, &mut outputs);
        self.decide(now, outputs, out);
    }

    /// Passes on what is to be done, then acts upon what the ranks report: what
    /// follows from a report must come after everything that came with it.
    fn decide(&mut self, now: Millis, outputs: Vec<Output>, out: &mut Vec<Output>) {
        let mut reports = Vec::new();
        for output in outputs {
            match output {
                Output::Up(report @ (Up::Failure(_) | Up::Prepared)) => reports.push(report),
                Output::Up(Up::Ready { .. }) => {}
                other => out.push(other),
            }
        }
        for report in reports {
            match report {
                Up::Failure(failure) => {
                    self.failures.push(failure.clone());
                    if !self.partial {
                        self.call_off(now, failure, out);
                    }
                }
                Up::Prepared => self.prepared(now, out),
                Up::Ready { .. } | Up::Resume { .. } | Up::Progress { .. } | Up::Done(_) => {}
            }
        }
    }

    fn prepared(&mut self, now: Millis, out: &mut Vec<Output>) {
        if self.verdict != Verdict::Open {
            return;
        }
        let mut failed: Vec<_> = self.failures.iter().map(|failure| failure.rank).collect();
        failed.sort_unstable();
        failed.dedup();
        match self.failures.first() {
            Some(first) if !self.partial || failed.len() >= self.targets => {
                self.call_off(now, first.clone(), out);
            }
            _ => {
                self.verdict = Verdict::Commit;
                self.feed(now, Input::Commit, out);
            }
        }
    }

    fn call_off(&mut self, now: Millis, why: Failure, out: &mut Vec<Output>) {
        if self.verdict == Verdict::Open {
            self.verdict = Verdict::Abort(why.clone());
            self.last_call
                .get_or_insert(now.saturating_add(millis(Self::GRACE)));
            self.feed(now, Input::Abort(why), out);
        }
    }
}

fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::frame::Frame;
    use super::super::id::TransferId;
    use super::super::item::Item;
    use super::super::tree::Tree;
    use super::*;

    /// A client that feeds each of `ranks` itself.
    fn client(ranks: &[u32], timeout: Option<Duration>, out: &mut Vec<Output>) -> Origin {
        let config = Config {
            local: None,
            children: ranks
                .iter()
                .map(|&rank| Tree::kary(&[rank], 1).unwrap())
                .collect(),
            window: 200,
            stall: Duration::from_secs(30),
            watch_upstream: true,
            partial: false,
            heir: false,
        };
        Origin::new(config, ranks.len(), false, timeout, 0, out)
    }

    /// A message of 64 bytes.
    fn hole(seq: u64) -> Frame {
        let item = Item::Hole {
            offset: seq,
            len: 1,
        };
        Frame::encode(TransferId::from_bytes([1; 16]), seq, 0, &item)
    }

    fn lost(child: usize) -> Input {
        Input::ChildLost {
            child,
            errno: libc::ENOSYS,
            text: "gone".into(),
        }
    }

    #[test]
    fn nothing_follows_the_end() {
        let mut out = Vec::new();
        let mut origin = client(&[0], None, &mut out);
        origin.handle(0, Input::Frame(hole(0)), &mut out);
        out.clear();
        origin.handle(1, lost(0), &mut out);
        assert!(origin.is_finished());
        assert!(out.contains(&Output::Ack { bytes: 64 }), "{out:?}");
        assert_eq!(out.last(), Some(&Output::Finished));
    }

    #[test]
    fn no_data_follows_the_call_off() {
        let mut out = Vec::new();
        let mut origin = client(&[0, 1], None, &mut out);
        let ready = Input::Child {
            child: 1,
            up: Up::Ready { window: 200 },
        };
        origin.handle(0, ready, &mut out);
        origin.handle(0, Input::Frame(hole(0)), &mut out);
        origin.handle(0, Input::Frame(hole(1)), &mut out);
        out.clear();
        // The second message did not fit into half of the window.
        origin.handle(1, lost(0), &mut out);
        let aborted = out
            .iter()
            .position(|o| matches!(o, Output::AbortChild { child: 1, .. }));
        let sent = out
            .iter()
            .rposition(|o| matches!(o, Output::SendFrame { child: 1, .. }));
        assert!(
            aborted.is_some() && sent.is_some() && sent < aborted,
            "{out:?}"
        );
    }

    #[test]
    fn the_time_limit_does_not_prolong_the_wait_after_a_call_off() {
        let mut out = Vec::new();
        let mut origin = client(&[0], Some(Duration::from_secs(10)), &mut out);
        let why = Failure::client(libc::ECANCELED, "enough");
        origin.handle(9000, Input::Abort(why), &mut out);
        // It is there, but not done yet.
        origin.handle(9500, Input::ChildAlive { child: 0 }, &mut out);
        origin.handle(10_000, Input::Tick, &mut out);
        assert!(!origin.is_finished());
        origin.handle(11_000, Input::Tick, &mut out);
        assert!(origin.is_finished());
    }
}
