//! What children, the sink and the clock have to say.

use super::super::message::Up;
use super::super::report::Failure;
use super::super::report::Outcome;
use super::Local;
use super::Millis;
use super::Output;
use super::Phase;
use super::Relay;
use super::SinkEvent;

impl Relay {
    pub(super) fn child_says(&mut self, at: usize, up: Up, out: &mut Vec<Output>) {
        let child = &mut self.children[at];
        if !child.is_live() {
            return;
        }
        match up {
            Up::Ready { window } => self.child_ready(at, window, out),
            Up::Resume { seq } => self.child_resumes(at, seq, out),
            Up::Progress { bytes, ranks } => {
                child.progress = bytes;
                // It cannot speak for more than there are.
                let most = u32::try_from(child.tree().size()).unwrap_or(u32::MAX);
                child.ranks = ranks.min(most);
            }
            Up::Failure(failure) => {
                // One that was adopted says once more what its parent had passed on.
                if !child.knows(&failure) {
                    child.note(&failure);
                    self.up(Up::Failure(failure), out);
                }
            }
            Up::Prepared => {
                child.prepared();
                // An adopted one may come when the order was given already.
                if self.phase == Phase::Committing && child.commit() {
                    out.push(Output::CommitChild(at));
                }
            }
            Up::Done(results) => {
                let early = matches!(self.phase, Phase::Streaming | Phase::Prepared);
                let called_off = self.phase == Phase::Aborting;
                if let Some(failure) = child.done(results, early, called_off)
                    && early
                {
                    self.up(Up::Failure(failure), out);
                }
            }
        }
    }

    pub(super) fn child_lost(
        &mut self,
        at: usize,
        errno: i32,
        text: &str,
        out: &mut Vec<Output>,
    ) {
        let Some(child) = self.children.get_mut(at) else {
            return;
        };
        if !child.is_live() {
            return;
        }
        // It may be alive and just not reachable in time: tell it, unheard.
        let why = Failure::on(child.rank(), errno, text);
        out.push(Output::AbortChild {
            child: at,
            why: why.clone(),
        });
        if self.leaves_orphans(errno) {
            let orphans = self.children[at].lost_alone(&why);
            self.up(Up::Failure(why), out);
            self.adopt(orphans, out);
        } else {
            self.children[at].lost(&why);
            self.up(Up::Failure(why), out);
        }
    }

    pub(super) fn sink_says(&mut self, event: SinkEvent, out: &mut Vec<Output>) {
        if let SinkEvent::Wrote = event {
            let at = self.written_frames.checked_sub(self.held_from);
            self.written_frames += 1;
            let held = at
                .and_then(|i| usize::try_from(i).ok())
                .and_then(|i| self.held.get_mut(i));
            if let Some(held) = held {
                held.written = true;
                self.written_bytes += held.frame.data_len();
            }
            return;
        }
        if self.is_over_here() {
            return;
        }
        match event {
            SinkEvent::Wrote => {}
            SinkEvent::Opened => self.ready(out),
            SinkEvent::Prepared => {
                if self.local == Local::Writing {
                    self.local = Local::Prepared;
                }
            }
            SinkEvent::Committed(placed) => self.local = Local::Over(Outcome::Done(placed)),
            SinkEvent::Aborted => {
                self.local = Local::Over(match &self.local {
                    Local::Dropping(why) => Outcome::Failed(why.clone()),
                    _ => Outcome::Cancelled,
                });
            }
            SinkEvent::Failed(failure) => {
                self.local = Local::Over(Outcome::Failed(failure.clone()));
                // A rank that cannot write still feeds its subtree.
                self.ready(out);
                self.up(Up::Failure(failure), out);
            }
        }
    }

    pub(super) fn tick(&mut self, now: Millis, out: &mut Vec<Output>) {
        if self.watch_upstream
            && !self.orphan
            && now.saturating_sub(self.upstream_heard) > self.stall
        {
            self.upstream_lost(out);
        }
        if self.has_waited_enough() {
            self.left_alone(out);
        }
        for at in 0..self.children.len() {
            let child = &mut self.children[at];
            if !child.is_live() {
                continue;
            }
            let silent = self.phase == Phase::Aborting
                && child.heard <= self.called_off
                && now.saturating_sub(self.called_off) >= Self::LAST_WORD;
            if now.saturating_sub(child.heard) > self.stall {
                let text = format!("no sign of life for {} s", self.stall / 1000);
                self.child_lost(at, libc::ETIMEDOUT, &text, out);
            } else if silent {
                self.child_lost(at, libc::ETIMEDOUT, "no sign of life", out);
            } else if now >= child.ping_due {
                child.ping_due = now + self.ping;
                out.push(Output::PingChild(at));
            }
        }
        self.report_progress(now, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Input;
    use super::super::SinkEvent;
    use super::super::tests::Bench;
    use super::super::tests::data;
    use super::*;

    #[test]
    fn a_child_speaks_for_no_more_ranks_than_there_are() {
        let mut bench = Bench::new(&[1, 2], 1000);
        bench.sink(SinkEvent::Opened);
        for child in 0..2 {
            bench.child(child, Up::Ready { window: u64::MAX });
            let ranks = u32::MAX;
            bench.child(child, Up::Progress { bytes: 1, ranks });
        }
        bench.feed(Input::Frame(data(0)));
        bench.sink(SinkEvent::Wrote);
        bench.now = 1000;
        let told = Output::Up(Up::Progress { bytes: 1, ranks: 2 });
        let out = bench.feed(Input::Tick);
        assert!(out.contains(&told), "{out:?}");
    }
}
