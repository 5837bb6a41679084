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
//!
//! In a partial transfer a child that is lost leaves its own children behind:
//! see [`adoption`].

mod adoption;
mod child;
mod ending;
mod flow;
mod news;
#[cfg(test)]
mod orphans;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use self::adoption::Suit;
use self::child::Child;
use super::frame::Frame;
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
    /// Ranks may fail without the others: the children of a lost child are taken
    /// over.
    pub partial: bool,
    /// Should upstream be lost, somebody else will offer to take its place.
    pub heir: bool,
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
    /// Somebody offers to take the place of upstream, which it says is lost.
    Offer {
        /// Should that one be lost too, there is another.
        heir: bool,
    },
    /// Whoever made the offer calls the transfer off.
    OfferAborted(Failure),
    /// Whoever made the offer is gone.
    OfferGone,
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
    /// Offer to go on to somebody whose parent is lost. It is a child from now on.
    AdoptChild {
        /// Its number, the next one after those there are.
        child: usize,
        /// The ranks it answers for.
        tree: Tree,
        /// Number of the oldest frame that is still there.
        first: u64,
    },
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
    /// From now on upstream is whoever made the offer.
    Accept,
    /// The offer is refused: upstream is well.
    Decline,
    /// Nothing more will come; the relay can be dropped. Who made an offer that
    /// was not answered gets [`Relay::results`].
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
    /// Told to drop everything because of this failure; waiting for the answer.
    Dropping(Failure),
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
    /// When upstream was lost, while somebody may take its place.
    waiting_since: Option<Millis>,
    suit: Option<Suit>,
    partial: bool,
    heir: bool,
    local: Local,
    children: Vec<Child>,
    /// Frames not yet acknowledged, and before them those that were and that the
    /// children of a child may yet need.
    held: VecDeque<Held>,
    /// Cost of the frames not yet acknowledged; over the window by one at most.
    held_bytes: u64,
    /// Cost of the others.
    kept_bytes: u64,
    /// Number of the first frame in `held`.
    held_from: u64,
    /// Number of the first frame not yet acknowledged.
    acked: u64,
    /// Number of the frame expected next.
    next_seq: u64,
    fin: bool,
    /// The sink is open, or never will be.
    opened: bool,
    ready_sent: bool,
    /// Data may come once all frames before this one are used up.
    ready_from: u64,
    written_frames: u64,
    written_bytes: u64,
    progress_sent: (u64, u32),
    progress_at: Millis,
    upstream_heard: Millis,
    /// Time of the latest input.
    now: Millis,
    /// When the children were told that the transfer is called off.
    called_off: Millis,
    /// Why.
    why: Option<Failure>,
    /// The answer, once there is one.
    results: Vec<RankResult>,
}

impl Relay {
    /// How often [`Input::Tick`] is wanted.
    pub const TICK: Duration = Duration::from_millis(250);

    /// A child is asked for a sign of life so often, or four times in the time
    /// after which a peer counts as lost, if that is shorter. Data does not take
    /// the place of it: a slow disk may leave it without an answer for long.
    const PING: Millis = 1000;

    /// A child that says nothing for so long after it was told that the transfer
    /// is called off is not waited for: whoever is upstream waits little longer,
    /// and wants to know who it is that is silent.
    const LAST_WORD: Millis = 1000;

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
            waiting_since: None,
            suit: None,
            partial: config.partial,
            heir: config.heir,
            local,
            children,
            held: VecDeque::new(),
            held_bytes: 0,
            kept_bytes: 0,
            held_from: 0,
            acked: 0,
            next_seq: 0,
            fin: false,
            opened: false,
            ready_sent: false,
            ready_from: 0,
            written_frames: 0,
            written_bytes: 0,
            progress_sent: (0, 0),
            progress_at: now,
            upstream_heard: now,
            now,
            called_off: now,
            why: None,
            results: Vec::new(),
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

    /// Bytes of the frames that are held because they are not used up.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes of the frames that are kept for the children of children.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// What became of all ranks here and below, once it is finished.
    pub fn results(&self) -> &[RankResult] {
        &self.results
    }

    /// Takes one input; what is to be done is appended to `out`.
    pub fn handle(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        self.now = now;
        if self.phase == Phase::Finished {
            return;
        }
        match input {
            Input::Frame(frame) => {
                self.hear_upstream(out);
                self.take(frame, out);
            }
            Input::Broken(why) => self.broken(why, out),
            Input::Commit => {
                self.hear_upstream(out);
                self.commit(out);
            }
            Input::Abort(why) => self.abort(&why, out),
            Input::UpstreamAlive => self.hear_upstream(out),
            Input::UpstreamLost => self.upstream_lost(out),
            Input::Offer { heir } => self.offered(heir, out),
            Input::OfferAborted(why) => self.offer_aborted(why),
            Input::OfferGone => self.suit = None,
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
                    self.credited(child);
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
        self.pump(out);
        self.advance(out);
    }

    fn up(&self, up: Up, out: &mut Vec<Output>) {
        if !self.orphan {
            out.push(Output::Up(up));
        }
    }

    fn ready(&mut self, out: &mut Vec<Output>) {
        self.opened = true;
        self.tell_ready(out);
    }

    /// Grants the window, unless what came from the one before still fills it.
    fn tell_ready(&mut self, out: &mut Vec<Output>) {
        if self.opened && !self.ready_sent && self.acked >= self.ready_from {
            self.ready_sent = true;
            self.up(
                Up::Ready {
                    window: self.window,
                },
                out,
            );
        }
    }
}
