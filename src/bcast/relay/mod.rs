//! The relay: takes a transfer from upstream, writes it here, passes it to the
//! subtree, answers for all of them.
//!
//! One machine serves every place in the tree: a shell in the middle (a local
//! sink and children), a leaf (no children), a client (no sink, one child). It
//! does no I/O and reads no clock: it is given [`Input`]s with the time and
//! returns [`Output`]s. Whoever drives it must carry them out in order.
//!
//! ```text
//!  Streaming ──fin, all verified or failed──▶ Prepared ──commit──▶ Committing ─┐
//!      │                                         │                            ▼
//!      └──────────────── abort, upstream lost ───┴──▶ Aborting ──────────▶ Finished
//! ```
//!
//! Memory: frames are held until the sink has written them and every live child
//! was sent them, and only then acknowledged upstream; so what is held is
//! bounded by the window granted. A child that failed no longer holds anything
//! back.

mod child;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use self::child::Child;
use super::frame::Frame;
use super::frame::Kind;
use super::message::Up;
use super::report::Failure;
use super::report::Outcome;
use super::report::Placed;
use super::report::RankResult;
use super::tree::Tree;

/// Milliseconds on the driver's clock; only differences matter.
pub type Millis = u64;

/// What a relay is.
#[derive(Clone, Debug)]
pub struct Config {
    /// Shell rank of the sink here; none: no copy is made here.
    pub local: Option<u32>,
    /// Subtrees to feed.
    pub children: Vec<Tree>,
    /// Bytes in flight towards the children altogether, and what upstream is
    /// granted.
    pub window: u64,
    /// A peer that gives no sign of life for so long counts as lost.
    pub stall: Duration,
    /// False where upstream is the driver itself and cannot be lost.
    pub watch_upstream: bool,
}

/// What happens to a relay.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The next frame from upstream.
    Frame(Frame),
    /// Upstream sent something that cannot be used: the stream is broken.
    Broken(Failure),
    /// Upstream orders to publish.
    Commit,
    /// Upstream calls the transfer off.
    Abort(Failure),
    /// Upstream gave a sign of life.
    UpstreamAlive,
    /// Upstream is gone; nobody waits for an answer.
    UpstreamLost,
    /// A message from child number `child`.
    Child {
        /// Index into [`Config::children`].
        child: usize,
        /// What it says.
        up: Up,
    },
    /// A child has used up a frame of this cost.
    Credit {
        /// Index into [`Config::children`].
        child: usize,
        /// [`Frame::cost`] of the frame.
        bytes: u64,
    },
    /// A child gave a sign of life.
    ChildAlive {
        /// Index into [`Config::children`].
        child: usize,
    },
    /// A child cannot be reached or does not follow the protocol.
    ChildLost {
        /// Index into [`Config::children`].
        child: usize,
        /// errno(3) value.
        errno: i32,
        /// One line for people.
        text: String,
    },
    /// News from the sink.
    Sink(SinkEvent),
    /// This process is about to leave: answer now.
    Shutdown(Failure),
    /// Time has passed. Needed about once in [`Relay::TICK`].
    Tick,
}

/// What a sink says.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkEvent {
    /// The destination is open.
    Opened,
    /// The oldest frame not yet reported is written.
    Wrote,
    /// All is verified and ready to be published.
    Prepared,
    /// The copies are in place.
    Committed(Vec<Placed>),
    /// Everything is dropped.
    Aborted,
    /// It failed and dropped everything.
    Failed(Failure),
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open the transfer on a child.
    OpenChild(usize),
    /// Send a frame to a child.
    SendFrame {
        /// Index into [`Config::children`].
        child: usize,
        /// The frame.
        frame: Frame,
    },
    /// Order a child to publish.
    CommitChild(usize),
    /// Call the transfer off at a child.
    AbortChild {
        /// Index into [`Config::children`].
        child: usize,
        /// Why.
        why: Failure,
    },
    /// Ask a child for a sign of life.
    PingChild(usize),
    /// Open the destination.
    SinkOpen,
    /// Write a frame; answer with [`SinkEvent::Wrote`].
    SinkFrame(Frame),
    /// Verify; answer with [`SinkEvent::Prepared`].
    SinkPrepare,
    /// Publish; answer with [`SinkEvent::Committed`].
    SinkCommit,
    /// Drop everything; answer with [`SinkEvent::Aborted`].
    SinkAbort,
    /// Tell upstream.
    Up(Up),
    /// The oldest unacknowledged frame from upstream, of this cost, is used up.
    Ack {
        /// [`Frame::cost`] of the frame.
        bytes: u64,
    },
    /// Nothing more will come; the relay can be dropped.
    Finished,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Streaming,
    Prepared,
    Committing,
    Aborting,
    Finished,
}

#[derive(Clone, Debug, PartialEq)]
enum Local {
    /// No sink here.
    None,
    /// Opening or writing.
    Writing,
    /// Verified.
    Prepared,
    /// Told to publish, or to drop everything; waiting for the answer.
    Ending,
    /// The end.
    Over(Outcome),
}

/// A frame held for whoever still needs it.
#[derive(Debug)]
struct Held {
    frame: Frame,
    written: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Relay {
    rank: Option<u32>,
    window: u64,
    stall: Millis,
    ping: Millis,
    watch_upstream: bool,
    phase: Phase,
    /// Nobody upstream listens any more.
    orphan: bool,
    local: Local,
    children: Vec<Child>,
    held: VecDeque<Held>,
    /// Number of the first frame in `held`.
    held_from: u64,
    /// Number of the frame expected next.
    next_seq: u64,
    fin: bool,
    ready_sent: bool,
    written_frames: u64,
    written_bytes: u64,
    progress_sent: u64,
    progress_at: Millis,
    upstream_heard: Millis,
}

impl Relay {
    /// How often [`Input::Tick`] is wanted.
    pub const TICK: Duration = Duration::from_millis(250);

    /// An idle edge is asked for a sign of life so often, or four times in the
    /// time after which a peer counts as lost, if that is shorter.
    const PING: Millis = 1000;

    /// A shorter time to count as lost could not be told from a late tick.
    const SHORTEST_STALL: Millis = 1000;

    /// Starts: opens the sink and the children.
    pub fn new(config: Config, now: Millis, out: &mut Vec<Output>) -> Self {
        let stall = u64::try_from(config.stall.as_millis())
            .unwrap_or(u64::MAX)
            .max(Self::SHORTEST_STALL);
        let ping = Self::PING.min(stall / 4);
        let children: Vec<Child> = config
            .children
            .into_iter()
            .map(|tree| Child::new(tree, now, now + ping))
            .collect();
        out.extend((0..children.len()).map(Output::OpenChild));
        let local = match config.local {
            Some(_) => {
                out.push(Output::SinkOpen);
                Local::Writing
            }
            None => Local::None,
        };
        let mut relay = Self {
            rank: config.local,
            window: config.window,
            stall,
            ping,
            watch_upstream: config.watch_upstream,
            phase: Phase::Streaming,
            orphan: false,
            local,
            children,
            held: VecDeque::new(),
            held_from: 0,
            next_seq: 0,
            fin: false,
            ready_sent: false,
            written_frames: 0,
            written_bytes: 0,
            progress_sent: 0,
            progress_at: now,
            upstream_heard: now,
        };
        if relay.local == Local::None {
            relay.ready(out);
        }
        relay
    }

    /// True once [`Output::Finished`] was returned.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Bytes of the frames held in memory.
    pub fn held_bytes(&self) -> u64 {
        self.held.iter().map(|held| held.frame.cost()).sum()
    }

    /// Takes one input; what is to be done is appended to `out`.
    pub fn handle(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        if self.phase == Phase::Finished {
            return;
        }
        match input {
            Input::Frame(frame) => {
                self.upstream_heard = now;
                self.take(frame, out);
            }
            Input::Broken(why) => self.broken(why, out),
            Input::Commit => {
                self.upstream_heard = now;
                self.commit(out);
            }
            Input::Abort(why) => self.abort(&why, out),
            Input::UpstreamAlive => self.upstream_heard = now,
            Input::UpstreamLost => self.upstream_lost(out),
            Input::Child { child, up } => {
                if let Some(peer) = self.children.get_mut(child) {
                    peer.heard = now;
                    self.child_says(child, up, out);
                }
            }
            Input::Credit { child, bytes } => {
                if let Some(peer) = self.children.get_mut(child) {
                    peer.heard = now;
                    peer.in_flight = peer.in_flight.saturating_sub(bytes);
                }
            }
            Input::ChildAlive { child } => {
                if let Some(peer) = self.children.get_mut(child) {
                    peer.heard = now;
                    peer.ping_due = now + self.ping;
                }
            }
            Input::ChildLost { child, errno, text } => {
                self.child_lost(child, errno, &text, out);
            }
            Input::Sink(event) => self.sink_says(event, out),
            Input::Shutdown(why) => {
                self.shutdown(why, out);
                return;
            }
            Input::Tick => self.tick(now, out),
        }
        self.pump(now, out);
        self.advance(out);
    }

    /// A frame from upstream, which must be the next one.
    fn take(&mut self, frame: Frame, out: &mut Vec<Output>) {
        if self.phase != Phase::Streaming {
            // Late data of a transfer that is called off: free the sender.
            out.push(Output::Ack {
                bytes: frame.cost(),
            });
            return;
        }
        if self.fin || frame.seq() != self.next_seq {
            let text = if self.fin {
                "data after the end of the stream".to_owned()
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
        self.held.push_back(Held {
            frame,
            written: !writes,
        });
    }

    /// Sends what the windows allow, then lets go of what nobody needs.
    fn pump(&mut self, now: Millis, out: &mut Vec<Output>) {
        if self.phase == Phase::Streaming {
            let share = self.share();
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
                    child.in_flight += cost;
                    child.next_seq += 1;
                    child.ping_due = now + self.ping;
                    out.push(Output::SendFrame {
                        child: at,
                        frame: held.frame.clone(),
                    });
                }
            }
        }
        while let Some(first) = self.held.front() {
            let sent = |child: &Child| !child.wants_data() || child.next_seq > self.held_from;
            let written = first.written || self.local != Local::Writing;
            if self.phase == Phase::Streaming && !(written && self.children.iter().all(sent)) {
                break;
            }
            let bytes = first.frame.cost();
            out.push(Output::Ack { bytes });
            self.held.pop_front();
            self.held_from += 1;
        }
    }

    /// Bytes that may be on their way to each child that takes data.
    fn share(&self) -> u64 {
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

    /// Moves to the next phase when everybody is there.
    fn advance(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Streaming && self.all_prepared() {
            self.phase = Phase::Prepared;
            self.up(Up::Prepared, out);
        }
        let ending = matches!(self.phase, Phase::Committing | Phase::Aborting);
        // A subtree without anybody to wait for ends by itself only when it was
        // told to: upstream decides, also about a transfer that failed here.
        if ending && self.all_over() {
            self.finish(out);
        }
    }

    fn all_prepared(&self) -> bool {
        let here = !matches!(self.local, Local::Writing | Local::Ending);
        // Where nobody is left, the rest of the stream need not be waited for.
        here && self.children.iter().all(Child::is_settled) && (self.fin || self.all_over())
    }

    fn is_over_here(&self) -> bool {
        matches!(self.local, Local::Over(_))
    }

    fn all_over(&self) -> bool {
        matches!(self.local, Local::None | Local::Over(_))
            && self.children.iter().all(|child| !child.is_live())
    }

    fn finish(&mut self, out: &mut Vec<Output>) {
        let mut results = Vec::new();
        if let (Some(rank), Local::Over(outcome)) = (self.rank, &self.local) {
            results.push(RankResult {
                rank,
                outcome: outcome.clone(),
            });
        }
        for child in &mut self.children {
            results.append(&mut child.take_results());
        }
        self.phase = Phase::Finished;
        self.drop_held(out);
        self.up(Up::Done(results), out);
        out.push(Output::Finished);
    }

    fn drop_held(&mut self, out: &mut Vec<Output>) {
        self.held_from += self.held.len() as u64;
        for held in self.held.drain(..) {
            out.push(Output::Ack {
                bytes: held.frame.cost(),
            });
        }
    }

    fn up(&self, up: Up, out: &mut Vec<Output>) {
        if !self.orphan {
            out.push(Output::Up(up));
        }
    }

    fn ready(&mut self, out: &mut Vec<Output>) {
        if !self.ready_sent {
            self.ready_sent = true;
            self.up(
                Up::Ready {
                    window: self.window,
                },
                out,
            );
        }
    }

    /// The stream cannot be trusted any more: nobody here or below can finish.
    fn broken(&mut self, why: Failure, out: &mut Vec<Output>) {
        if self.phase != Phase::Streaming {
            return;
        }
        if matches!(self.local, Local::Writing | Local::Prepared) {
            out.push(Output::SinkAbort);
            self.local = Local::Over(Outcome::Failed(why.clone()));
        }
        for at in 0..self.children.len() {
            if self.children[at].is_live() {
                out.push(Output::AbortChild {
                    child: at,
                    why: why.clone(),
                });
            }
            self.children[at].fail_all(&why);
        }
        self.drop_held(out);
        self.up(Up::Failure(why), out);
    }

    fn commit(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Prepared => {}
            Phase::Streaming => {
                let why = Failure {
                    rank: self.rank,
                    errno: libc::EPROTO,
                    text: "told to commit before the data was complete".into(),
                };
                self.broken(why, out);
                return;
            }
            Phase::Committing | Phase::Aborting | Phase::Finished => return,
        }
        self.phase = Phase::Committing;
        if self.local == Local::Prepared {
            self.local = Local::Ending;
            out.push(Output::SinkCommit);
        }
        for (at, child) in self.children.iter_mut().enumerate() {
            if child.commit() {
                out.push(Output::CommitChild(at));
            }
        }
    }

    fn abort(&mut self, why: &Failure, out: &mut Vec<Output>) {
        if !matches!(self.phase, Phase::Streaming | Phase::Prepared) {
            return;
        }
        self.phase = Phase::Aborting;
        if matches!(self.local, Local::Writing | Local::Prepared) {
            self.local = Local::Ending;
            out.push(Output::SinkAbort);
        }
        for (at, child) in self.children.iter().enumerate() {
            if child.is_live() {
                out.push(Output::AbortChild {
                    child: at,
                    why: why.clone(),
                });
            }
        }
        self.drop_held(out);
    }

    fn upstream_lost(&mut self, out: &mut Vec<Output>) {
        self.orphan = true;
        self.abort(
            &Failure {
                rank: self.rank,
                errno: libc::ECONNRESET,
                text: "the sender is gone".into(),
            },
            out,
        );
    }

    /// The process leaves: nothing can be waited for.
    fn shutdown(&mut self, why: Failure, out: &mut Vec<Output>) {
        let told = self.phase == Phase::Committing;
        match self.local {
            Local::Writing | Local::Prepared => out.push(Output::SinkAbort),
            Local::None | Local::Ending | Local::Over(_) => {}
        }
        if self.rank.is_some() && !self.is_over_here() {
            self.local = Local::Over(if told && self.local == Local::Ending {
                Outcome::Unknown(why.clone())
            } else {
                Outcome::Failed(why.clone())
            });
        }
        for at in 0..self.children.len() {
            if self.children[at].is_live() {
                out.push(Output::AbortChild {
                    child: at,
                    why: why.clone(),
                });
                self.children[at].fail_all(&why);
            }
        }
        self.finish(out);
    }

    fn child_says(&mut self, at: usize, up: Up, out: &mut Vec<Output>) {
        let child = &mut self.children[at];
        if !child.is_live() {
            return;
        }
        match up {
            Up::Ready { window } => child.ready(window),
            Up::Progress { bytes } => child.progress = bytes,
            Up::Failure(failure) => {
                child.note(&failure);
                self.up(Up::Failure(failure), out);
            }
            Up::Prepared => child.prepared(),
            Up::Done(results) => {
                let early = matches!(self.phase, Phase::Streaming | Phase::Prepared);
                if let Some(failure) = child.done(results, early)
                    && early
                {
                    self.up(Up::Failure(failure), out);
                }
            }
        }
    }

    fn child_lost(&mut self, at: usize, errno: i32, text: &str, out: &mut Vec<Output>) {
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
        child.lost(&why, self.phase == Phase::Committing);
        self.up(Up::Failure(why), out);
    }

    fn sink_says(&mut self, event: SinkEvent, out: &mut Vec<Output>) {
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
            SinkEvent::Aborted => self.local = Local::Over(Outcome::Cancelled),
            SinkEvent::Failed(failure) => {
                self.local = Local::Over(Outcome::Failed(failure.clone()));
                // A rank that cannot write still feeds its subtree.
                self.ready(out);
                self.up(Up::Failure(failure), out);
            }
        }
    }

    fn tick(&mut self, now: Millis, out: &mut Vec<Output>) {
        if self.watch_upstream
            && !self.orphan
            && now.saturating_sub(self.upstream_heard) > self.stall
        {
            self.upstream_lost(out);
        }
        for at in 0..self.children.len() {
            let child = &mut self.children[at];
            if !child.is_live() {
                continue;
            }
            if now.saturating_sub(child.heard) > self.stall {
                let text = format!("no sign of life for {} s", self.stall / 1000);
                self.child_lost(at, libc::ETIMEDOUT, &text, out);
            } else if now >= child.ping_due {
                child.ping_due = now + self.ping;
                out.push(Output::PingChild(at));
            }
        }
        self.report_progress(now, out);
    }

    /// Tells how far the slowest healthy rank here and below has come.
    fn report_progress(&mut self, now: Millis, out: &mut Vec<Output>) {
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
        if due && slowest > self.progress_sent {
            self.progress_sent = slowest;
            self.progress_at = now;
            self.up(Up::Progress { bytes: slowest }, out);
        }
    }
}
