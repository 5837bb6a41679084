//! The data: in from upstream, to the sink and the children, and away again.

use super::super::frame::Frame;
use super::super::frame::Kind;
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

impl Relay {
    /// A frame from upstream, which must be the next one.
    pub(super) fn take(&mut self, frame: Frame, out: &mut Vec<Output>) {
        if self.phase != Phase::Streaming || matches!(self.local, Local::Dropping(_)) {
            // Late data of a transfer that is called off or broken: free the sender.
            out.push(Output::Ack {
                bytes: frame.cost(),
            });
            return;
        }
        // A message may reach over the edge of the window, none may begin beyond.
        let room = self.held_bytes < self.window;
        if self.fin || frame.seq() != self.next_seq || !room {
            let text = if self.fin {
                "data after the end of the stream".to_owned()
            } else if frame.seq() == self.next_seq {
                format!("more data came than the {} bytes granted", self.window)
            } else {
                format!(
                    "data message {} came instead of {}",
                    frame.seq(),
                    self.next_seq
                )
            };
            let why = Failure {
                rank: self.rank,
                errno: libc::EPROTO,
                text,
                tmpdir: None,
            };
            self.broken(why, out);
            out.push(Output::Ack {
                bytes: frame.cost(),
            });
            return;
        }
        self.next_seq += 1;
        self.fin = frame.kind() == Kind::Fin;
        let writes = self.local == Local::Writing;
        if writes {
            out.push(Output::SinkFrame(frame.clone()));
            if self.fin {
                out.push(Output::SinkPrepare);
            }
        }
        self.held_bytes += frame.cost();
        self.held.push_back(Held {
            frame,
            written: !writes,
        });
    }

    /// Sends what the windows allow, then lets go of what nobody needs.
    pub(super) fn pump(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Streaming {
            let share = self.share();
            let live = self.children.iter().filter(|child| child.is_live());
            let mut total: u64 = live.clone().map(|child| child.in_flight).sum();
            let crowded = live.clone().any(|child| child.under_way() > 1);
            for (at, child) in self.children.iter_mut().enumerate() {
                while let Some(window) = child.streaming()
                    && let Some(next) = child.next_seq.checked_sub(self.held_from)
                    && let Some(held) =
                        usize::try_from(next).ok().and_then(|i| self.held.get(i))
                {
                    let cost = held.frame.cost();
                    // One message is always allowed, else a window smaller than
                    // a message would stop the stream for ever.
                    if child.in_flight > 0 && child.in_flight + cost > window.min(share) {
                        break;
                    }
                    // One that came later takes its share when the others, which
                    // had more, have used that up.
                    if (child.in_flight > 0 || crowded) && total + cost > self.window {
                        break;
                    }
                    total += cost;
                    child.in_flight += cost;
                    child.next_seq += 1;
                    out.push(Output::SendFrame {
                        child: at,
                        frame: held.frame.clone(),
                    });
                }
            }
        }
        while let Some(first) = self.held_at(self.acked) {
            let sent = |child: &Child| !child.wants_data() || child.next_seq > self.acked;
            let written = first.written || self.local != Local::Writing;
            if self.phase == Phase::Streaming && !(written && self.children.iter().all(sent)) {
                break;
            }
            let bytes = first.frame.cost();
            out.push(Output::Ack { bytes });
            self.acked += 1;
            self.held_bytes -= bytes;
            self.kept_bytes += bytes;
        }
        self.trim();
        self.tell_ready(out);
    }

    pub(super) fn held_at(&self, seq: u64) -> Option<&Held> {
        let at = seq.checked_sub(self.held_from)?;
        self.held.get(usize::try_from(at).ok()?)
    }

    /// Bytes that may be on their way to each child that takes data.
    pub(super) fn share(&self) -> u64 {
        let fed = self
            .children
            .iter()
            .filter(|child| child.wants_data())
            .count();
        // What is still on its way to those that failed early counts too.
        let late: u64 = self
            .children
            .iter()
            .filter(|child| child.is_live() && !child.wants_data())
            .map(|child| child.in_flight)
            .sum();
        self.window.saturating_sub(late) / fed.max(1) as u64
    }

    pub(super) fn drop_held(&mut self, out: &mut Vec<Output>) {
        for (seq, held) in (self.held_from..).zip(self.held.drain(..)) {
            if seq >= self.acked {
                out.push(Output::Ack {
                    bytes: held.frame.cost(),
                });
            }
            self.held_from = seq + 1;
        }
        self.acked = self.held_from;
        self.held_bytes = 0;
        self.kept_bytes = 0;
    }

    /// Tells how far the slowest healthy rank here and below has come.
    pub(super) fn report_progress(&mut self, now: Millis, out: &mut Vec<Output>) {
        let below = self
            .children
            .iter()
            .filter(|c| c.wants_data())
            .map(|c| c.progress)
            .min();
        let here = (self.local == Local::Writing).then_some(self.written_bytes);
        let slowest = match (here, below) {
            (Some(here), Some(below)) => here.min(below),
            (Some(bytes), None) | (None, Some(bytes)) => bytes,
            (None, None) => return,
        };
        let due = now.saturating_sub(self.progress_at) >= u64::from(Self::TICK.subsec_millis());
        let ranks = self.verified();
        let (bytes, known) = self.progress_sent;
        if due && (slowest > bytes || ranks > known) {
            self.progress_sent = (slowest, ranks);
            self.progress_at = now;
            let bytes = slowest;
            self.up(Up::Progress { bytes, ranks }, out);
        }
    }

    /// How many ranks, here and below, have verified everything.
    fn verified(&self) -> u32 {
        let here = match &self.local {
            Local::Prepared | Local::Over(Outcome::Done(_)) => 1,
            _ => 0,
        };
        here + self.children.iter().map(Child::verified).sum::<u32>()
    }
}
