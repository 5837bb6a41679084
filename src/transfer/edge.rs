//! The link to one shell that this process feeds.
//!
//! Everything above sees an [`Edge`]: frames and orders go down, events come
//! up. How they travel is known here only, so another transport can take the
//! place of the RPCs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use super::direct::outlet::Outlet;
use super::direct::outlet::OutletEvent;
use crate::bcast::frame::Frame;
use crate::bcast::id::TransferId;
use crate::bcast::message::Ctl;
use crate::bcast::message::Greeting;
use crate::bcast::message::Offer;
use crate::bcast::message::Open;
use crate::bcast::message::Order;
use crate::bcast::message::Up;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::future::FutureRef;
use crate::flux::future::Pending;
use crate::flux::handle::Handle;
use crate::flux::handle::Node;
use crate::flux::reactor::TimerWatcher;

/// What comes from a fed shell.
#[derive(Debug)]
pub enum EdgeEvent {
    /// A message.
    Up(Up),
    /// A frame of this cost is used up.
    Credit(u64),
    /// A sign of life.
    Alive,
    /// The shell cannot be reached, or refuses; nothing more will come.
    Lost {
        /// What the error was.
        errno: Errno,
        /// One line for people.
        text: String,
    },
}

/// A link to a fed shell. Dropping it closes the link without a word.
pub trait Edge: fmt::Debug {
    /// Sends a frame; its credit comes back as [`EdgeEvent::Credit`].
    ///
    /// # Errors
    /// The frame could not even be queued.
    fn send(&mut self, frame: &Frame) -> Result<()>;

    /// Gives an order; an answer is a sign of life.
    ///
    /// # Errors
    /// The order could not even be queued.
    fn order(&mut self, order: Order) -> Result<()>;
}

/// A connection that breaks while Flux can still reach the peer has broken by
/// itself. So long is waited for news by Flux, which know more.
const NEWS: Duration = Duration::from_secs(2);

/// Where an edge reports.
pub type Sink = Rc<dyn Fn(EdgeEvent)>;

/// An edge of Flux RPCs: one streaming RPC that lives as long as the transfer,
/// and an RPC for each frame, whose answer is the credit. So a peer that dies
/// is noticed by both sides: the fed shell hears of our death because the
/// stream is open (RFC 6 disconnect), we of its death because a new request to
/// a dead shell fails at once.
///
/// Frames may take another way, see [`super::direct`].
pub struct RpcEdge {
    link: Link,
    transfer: TransferId,
    /// The stream, alive as long as the edge.
    _open: Pending,
    state: Rc<RefCell<State>>,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Link {
    /// Our connection.
    pub handle: Handle,
    /// The shell's service, `<uid>-shell-<jobid>`.
    pub service: String,
    /// Rank of its broker.
    pub broker: u32,
}

impl Link {
    /// Topic of a method.
    pub fn topic(&self, method: &str) -> String {
        format!("{}.bcast.{method}", self.service)
    }
}

struct State {
    /// Frames on their way, oldest first: answers come in order.
    frames: VecDeque<Pending>,
    /// Orders on their way, oldest first. Each is waited for: over a slow way
    /// the next one is given before this one's answer, a sign of life, is there.
    orders: VecDeque<Pending>,
    report: Sink,
    open: bool,
    /// Where frames go while there is one.
    outlet: Option<Outlet>,
    /// Its connection broke.
    broken: Option<TimerWatcher>,
}

impl State {
    fn report(this: &Weak<RefCell<State>>, event: EdgeEvent) {
        let Some(state) = this.upgrade() else { return };
        let report = {
            let mut state = state.borrow_mut();
            if !state.open {
                return;
            }
            if matches!(event, EdgeEvent::Lost { .. }) {
                state.open = false;
            }
            state.report.clone()
        };
        report(event);
    }
}

impl State {
    /// Sends a frame the way that frames go.
    fn send(this: &Rc<RefCell<Self>>, link: &Link, frame: &Frame) -> Result<()> {
        if let Some(outlet) = &this.borrow().outlet {
            // If the connection broke, that is reported, or about to be.
            outlet.send(frame.clone());
            return Ok(());
        }
        Self::send_rpc(this, link, frame)
    }

    fn send_rpc(this: &Rc<RefCell<Self>>, link: &Link, frame: &Frame) -> Result<()> {
        let cost = frame.cost();
        let node = Node::Rank(link.broker);
        let future = link
            .handle
            .rpc_raw(&link.topic("data"), frame.as_bytes(), node)?;
        let weak = Rc::downgrade(this);
        let pending = future.then(None, move |future| {
            let event = match future.get() {
                Ok(()) => EdgeEvent::Credit(cost),
                Err(error) => lost(&error),
            };
            // The answered request is the oldest one; it may be dropped here,
            // inside its own continuation.
            if let Some(state) = weak.upgrade() {
                drop(state.borrow_mut().frames.pop_front());
            }
            Self::report(&weak, event);
        })?;
        this.borrow_mut().frames.push_back(pending);
        Ok(())
    }

    /// The peer takes frames by TCP.
    fn connect(weak: &Weak<RefCell<Self>>, link: &Link, offer: &Offer, stall: Duration) {
        // Without a reactor there is no other way than the one there is.
        let (Some(this), Ok(reactor)) = (weak.upgrade(), link.handle.reactor()) else {
            return;
        };
        let (weak, link) = (Weak::clone(weak), link.clone());
        let outlet = Outlet::open(reactor, offer, stall, move |event| match event {
            OutletEvent::Credit(cost) => Self::report(&weak, EdgeEvent::Credit(cost)),
            OutletEvent::Unreachable(frames) => Self::disconnect(&weak, &link, &frames),
            OutletEvent::Broken(errno) => Self::broke(&weak, &link, errno),
        });
        this.borrow_mut().outlet = Some(outlet);
    }

    fn disconnect(weak: &Weak<RefCell<Self>>, link: &Link, frames: &[Frame]) {
        let Some(this) = weak.upgrade() else { return };
        let outlet = this.borrow_mut().outlet.take();
        drop(outlet);
        for frame in frames {
            if let Err(error) = Self::send_rpc(&this, link, frame) {
                let (errno, text) = (error.errno(), error.to_string());
                return Self::report(weak, EdgeEvent::Lost { errno, text });
            }
        }
    }

    fn broke(weak: &Weak<RefCell<Self>>, link: &Link, errno: Errno) {
        let Some(this) = weak.upgrade() else { return };
        let weak = Weak::clone(weak);
        let lost = move || {
            let text = format!("the connection to it broke: {errno}");
            Self::report(&weak, EdgeEvent::Lost { errno, text });
        };
        let timer = link
            .handle
            .reactor()
            .and_then(|reactor| TimerWatcher::new(reactor, NEWS, None, lost.clone()));
        match timer {
            Ok(timer) => this.borrow_mut().broken = Some(timer),
            Err(_) => lost(),
        }
    }
}

impl RpcEdge {
    /// Opens the transfer on the shell at the other end.
    ///
    /// # Errors
    /// The request could not be sent.
    pub fn open(link: Link, open: &Open, report: Sink) -> Result<Self> {
        let state = Rc::new(RefCell::new(State {
            frames: VecDeque::new(),
            orders: VecDeque::new(),
            report,
            open: true,
            outlet: None,
            broken: None,
        }));
        let stream =
            link.handle
                .stream_json(&link.topic("open"), open, Node::Rank(link.broker))?;
        let weak = Rc::downgrade(&state);
        let (way, transfer) = (link.clone(), open.transfer);
        let mut greets = open.kernel.is_some();
        let stall = Duration::from_secs_f64(open.tuning.stall);
        let pending = stream.then(None, move |future| {
            // The first answer, if at all.
            if std::mem::take(&mut greets)
                && let Ok(Greeting { direct }) = future.get_json()
            {
                future.reset();
                return State::connect(&weak, &way, &direct, stall);
            }
            let event = stream_event(&future);
            if !matches!(event, EdgeEvent::Lost { .. }) {
                future.reset();
            }
            State::report(&weak, event);
        })?;
        Ok(Self {
            link,
            transfer,
            _open: pending,
            state,
        })
    }
}

/// Reads one answer of the stream.
fn stream_event(future: &FutureRef<'_>) -> EdgeEvent {
    match future.get_json::<Up>() {
        Ok(up) => EdgeEvent::Up(up),
        Err(error) if error.is_end_of_stream() => EdgeEvent::Lost {
            errno: Errno::EPROTO,
            text: "it ended the transfer without an answer".into(),
        },
        Err(error) => lost(&error),
    }
}

/// Says what a failed request to a shell means.
pub fn lost(error: &Error) -> EdgeEvent {
    let (errno, text) = explain(error);
    EdgeEvent::Lost { errno, text }
}

/// What a failed request to a shell means, in the user's words.
pub fn explain(error: &Error) -> (Errno, String) {
    let said = error.text().unwrap_or_default();
    match error.errno() {
        Errno::ENOSYS if said.contains("nknown service method") => {
            (Errno::ENOSYS, "its shell has no flux-bcast plugin".into())
        }
        Errno::ENOSYS => (
            Errno::ESHUTDOWN,
            "its shell is gone (exited or killed)".into(),
        ),
        Errno::EHOSTUNREACH => (Errno::EHOSTUNREACH, "its broker cannot be reached".into()),
        errno => (errno, error.to_string()),
    }
}

impl Edge for RpcEdge {
    fn send(&mut self, frame: &Frame) -> Result<()> {
        State::send(&self.state, &self.link, frame)
    }

    fn order(&mut self, order: Order) -> Result<()> {
        let ctl = Ctl {
            transfer: self.transfer,
            order,
        };
        let node = Node::Rank(self.link.broker);
        let future = self
            .link
            .handle
            .rpc_json(&self.link.topic("ctl"), &ctl, node)?;
        let weak = Rc::downgrade(&self.state);
        let pending = future.then(None, move |future| {
            let event = match future.get() {
                Ok(()) => EdgeEvent::Alive,
                Err(error) => lost(&error),
            };
            // As with frames.
            if let Some(state) = weak.upgrade() {
                drop(state.borrow_mut().orders.pop_front());
            }
            State::report(&weak, event);
        })?;
        self.state.borrow_mut().orders.push_back(pending);
        Ok(())
    }
}

impl fmt::Debug for RpcEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcEdge")
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
