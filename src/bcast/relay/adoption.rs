//! What becomes of the children of a lost child.
//!
//! In a partial transfer the one that fed the lost child goes on in its place.
//! It **offers** that to each orphan; the orphan says how far it has come, and
//! is a child like any other from then on.
//!
//! The orphan has noticed itself that its parent is lost, or will: until then the
//! offer is kept, and it is declined if the parent is well after all. So nobody
//! is taken away from a parent that lives. An orphan without an offer waits for
//! one as long as its grandparent may need to notice the loss, and then gives up.
//!
//! An orphan may be behind what its parent had acknowledged: by what was on its
//! way, a window at most. So in a partial transfer a relay keeps so much of what
//! a child with children has acknowledged. An orphan that needs older frames,
//! which takes the loss of two that feed each other at nearly the same time,
//! cannot be helped.

use std::collections::VecDeque;

use super::super::message::Up;
use super::super::report::Failure;
use super::super::report::Outcome;
use super::Held;
use super::Local;
use super::Millis;
use super::Output;
use super::Phase;
use super::Relay;
use super::child::Child;

/// An offer to take the place of upstream.
#[derive(Debug)]
pub(super) struct Suit {
    heir: bool,
    made: Millis,
    /// It comes with the order to call the transfer off.
    abort: Option<Failure>,
}

/// The part of the one that goes on.
impl Relay {
    /// Tells whether the children of a child that is lost like this are to be
    /// looked after. One that another has taken over is not lost.
    pub(super) fn leaves_orphans(&self, errno: i32) -> bool {
        self.partial && !matches!(errno, libc::EPERM | libc::EBUSY)
    }

    pub(super) fn adopt(&mut self, orphans: Vec<Child>, out: &mut Vec<Output>) {
        // Nobody is to begin at the beginning when the data is over.
        let first = match self.phase {
            Phase::Streaming => self.held_from,
            _ => u64::MAX,
        };
        for mut orphan in orphans {
            let child = self.children.len();
            orphan.heard = self.now;
            orphan.ping_due = self.now + self.ping;
            out.push(Output::AdoptChild {
                child,
                tree: orphan.tree().clone(),
                first,
            });
            if let Some(why) = &self.why {
                // Nor longer than the others.
                orphan.heard = self.called_off;
                let why = why.clone();
                out.push(Output::AbortChild { child, why });
            }
            self.children.push(orphan);
        }
    }

    pub(super) fn child_resumes(&mut self, at: usize, seq: u64, out: &mut Vec<Output>) {
        let child = &mut self.children[at];
        if !child.is_offered() {
            return;
        }
        // With the end of the data everything was dropped, but is not needed.
        let whole = self.fin && seq == self.next_seq;
        let reachable = self.phase == Phase::Streaming && seq >= self.held_from;
        if seq > self.next_seq || !(whole || reachable) {
            self.too_late(at, out);
            return;
        }
        child.resumes(seq);
        let (held, from) = (&self.held, self.held_from);
        let cost = |seq: u64| cost_at(held, from, seq);
        child.set_floor(from, self.window, cost);
    }

    pub(super) fn child_ready(&mut self, at: usize, window: u64, out: &mut Vec<Output>) {
        let child = &mut self.children[at];
        // It had not heard of the transfer, and begins at the beginning.
        let anew = child.is_offered();
        if anew && (self.held_from > 0 || self.phase != Phase::Streaming) {
            self.too_late(at, out);
            return;
        }
        child.ready(window);
    }

    fn too_late(&mut self, at: usize, out: &mut Vec<Output>) {
        let child = &mut self.children[at];
        let text = "cut off: it is too far behind for another to go on in place of the \
                    rank that fed it";
        let why = Failure::on(child.rank(), libc::EHOSTUNREACH, text);
        out.push(Output::AbortChild {
            child: at,
            why: why.clone(),
        });
        child.fail_all(&why);
        self.up(Up::Failure(why), out);
    }

    pub(super) fn credited(&mut self, at: usize) {
        let (held, from) = (&self.held, self.held_from);
        let cost = |seq: u64| cost_at(held, from, seq);
        if let Some(child) = self.children.get_mut(at) {
            child.credit(self.window, cost);
        }
    }

    /// Lets go of what nobody can need any more.
    pub(super) fn trim(&mut self) {
        let needed = if self.partial && self.phase == Phase::Streaming {
            self.children.iter().filter_map(Child::floor).min()
        } else {
            None
        };
        let floor = needed.map_or(self.acked, |needed| needed.min(self.acked));
        while self.held_from < floor
            && let Some(held) = self.held.pop_front()
        {
            self.kept_bytes -= held.frame.cost();
            self.held_from += 1;
        }
    }
}

fn cost_at(held: &VecDeque<Held>, from: u64, seq: u64) -> u64 {
    let at = seq
        .checked_sub(from)
        .and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| held.get(at))
        .map_or(0, |held| held.frame.cost())
}

/// The part of the orphan.
impl Relay {
    /// How much longer than the stall time, twice, somebody may need: to notice
    /// the loss of a parent, then that of the orphan that was to take its place.
    const SLACK: Millis = 2000;

    /// Upstream is lost. Tells whether there is hope.
    pub(super) fn wait_for_heir(&mut self, out: &mut Vec<Output>) -> bool {
        let hope = self.heir || self.suit.is_some();
        let open = matches!(self.phase, Phase::Streaming | Phase::Prepared);
        if self.orphan || !hope || !open {
            return self.waiting_since.is_some();
        }
        self.orphan = true;
        self.waiting_since = Some(self.now);
        self.accept(out);
        true
    }

    pub(super) fn has_waited_enough(&self) -> bool {
        let most = 2 * self.stall + Self::SLACK;
        self.waiting_since
            .is_some_and(|since| self.now.saturating_sub(since) > most)
    }

    pub(super) fn offered(&mut self, heir: bool, out: &mut Vec<Output>) {
        self.suit = Some(Suit {
            heir,
            made: self.now,
            abort: None,
        });
        if self.waiting_since.is_some() {
            self.accept(out);
        }
    }

    /// Who made the offer calls the transfer off, which counts when upstream is
    /// lost indeed.
    pub(super) fn offer_aborted(&mut self, why: Failure) {
        if let Some(suit) = &mut self.suit {
            suit.abort = Some(why);
        }
    }

    fn accept(&mut self, out: &mut Vec<Output>) {
        let open = matches!(self.phase, Phase::Streaming | Phase::Prepared);
        let Some(suit) = self.suit.take_if(|_| open) else {
            return;
        };
        self.heir = suit.heir;
        self.orphan = false;
        self.waiting_since = None;
        self.upstream_heard = self.now;
        out.push(Output::Accept);
        if let Some(why) = suit.abort {
            self.abort(&why, out);
            return;
        }
        if self.phase == Phase::Streaming {
            self.up(Up::Resume { seq: self.next_seq }, out);
            self.ready_from = self.next_seq;
        }
        self.repeat(out);
    }

    /// Upstream gave a sign of life.
    pub(super) fn hear_upstream(&mut self, out: &mut Vec<Output>) {
        self.upstream_heard = self.now;
        if self.waiting_since.take().is_some() {
            // It was slow, not lost, and has missed what was not said.
            self.orphan = false;
            self.repeat(out);
        }
        // Messages of a lost parent may arrive late, but not so late. At the end
        // there is nothing to decline: who made the offer gets the results.
        let (stall, now) = (self.stall, self.now);
        let open = matches!(self.phase, Phase::Streaming | Phase::Prepared);
        let late = |suit: &mut Suit| open && now.saturating_sub(suit.made) > stall;
        if self.suit.take_if(late).is_some() {
            out.push(Output::Decline);
        }
    }

    /// Says once more all that upstream needs to know.
    fn repeat(&mut self, out: &mut Vec<Output>) {
        let here = match &self.local {
            Local::Over(Outcome::Failed(failure)) | Local::Dropping(failure) => {
                Some(failure.clone())
            }
            _ => None,
        };
        let below = self.children.iter().flat_map(Child::known_failures);
        let failures: Vec<Failure> = here.into_iter().chain(below).collect();
        for failure in failures {
            self.up(Up::Failure(failure), out);
        }
        self.progress_sent = (0, 0);
        if self.phase == Phase::Prepared {
            self.up(Up::Prepared, out);
        } else {
            self.ready_sent = false;
            self.tell_ready(out);
        }
    }
}
