//! Runs one transfer in one process.
//!
//! The driver feeds its state machine with what happens and carries out what
//! it orders. It is the same for a shell (upstream is a request's stream) and
//! for the one who starts a transfer (upstream is a reader of files).

mod clock;
mod upstream;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use self::clock::Clock;
use self::upstream::Arrived;
use self::upstream::Upstream;
use super::direct;
use super::edge::Edge;
use super::edge::EdgeEvent;
use super::edge::Link;
use super::edge::RpcEdge;
use super::reader::Flow;
use super::reader::Reader;
use super::writer::Place;
use super::writer::Writer;
use crate::bcast::frame::HEADER_LEN;
use crate::bcast::message::Open;
use crate::bcast::message::Order;
use crate::bcast::origin::Origin;
use crate::bcast::relay::Config;
use crate::bcast::relay::Input;
use crate::bcast::relay::Millis;
use crate::bcast::relay::Output;
use crate::bcast::relay::Relay;
use crate::bcast::relay::SinkEvent;
use crate::bcast::report::Failure;
use crate::bcast::report::Placed;
use crate::bcast::report::RankResult;
use crate::bcast::tree::Tree;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::message::Request;
use crate::flux::message::Stream;
use crate::flux::reactor::Reactor;
use crate::flux::reactor::TimerWatcher;

/// What the owner of a driver hears.
#[derive(Debug)]
pub enum DriverEvent {
    /// The slowest healthy rank has this many bytes of data.
    Progress(u64),
    /// The copies of this process are in place.
    Placed(Vec<Placed>),
    /// Only for whoever started it: every rank's outcome, and why the transfer
    /// was called off, if it was.
    Ended {
        /// Every rank's outcome.
        results: Vec<RankResult>,
        /// Why it was called off.
        why: Option<Failure>,
    },
    /// Whoever made the offer to go on is the one that feeds us now.
    Accepted,
    /// The offer is refused.
    Declined,
    /// Nothing more comes; the driver can be dropped.
    Finished,
}

/// Where the owner is told.
pub type Listener = Rc<dyn Fn(DriverEvent)>;

/// How to reach the shells.
pub trait Network {
    /// The link to a shell rank; `None` if the job has no such rank.
    fn link(&self, rank: u32) -> Option<Link>;
}

enum Machine {
    Relay(Relay),
    Origin(Origin),
}

/// See the module's documentation.
pub struct Driver {
    machine: Machine,
    open: Open,
    children: Vec<Tree>,
    edges: Vec<Option<Box<dyn Edge>>>,
    network: Rc<dyn Network>,
    reactor: Reactor,
    place: Option<Place>,
    writer: Option<Writer>,
    upstream: Upstream,
    /// Who offers to take the place of upstream.
    suitor: Option<Stream>,
    listener: Listener,
    inputs: VecDeque<Input>,
    events: Vec<DriverEvent>,
    busy: bool,
    verified: u32,
    clock: Clock,
    _ticker: Option<TimerWatcher>,
    me: Weak<RefCell<Driver>>,
}

/// What a driver needs to start.
pub struct Setup {
    /// The opening request.
    pub open: Open,
    /// Our connection.
    pub handle: Handle,
    /// How to reach the shells.
    pub network: Rc<dyn Network>,
    /// The copy to be made in this process, if any.
    pub place: Option<Place>,
    /// Where the owner is told.
    pub listener: Listener,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// Starts what a shell does for the one that feeds it.
    ///
    /// # Errors
    /// The reactor or a timer could not be had; the request is answered then.
    pub fn relay(setup: Setup, request: Request) -> Result<Rc<RefCell<Self>>> {
        let stream = request.into_stream()?;
        let (kernel, reactor) = (setup.open.kernel.clone(), setup.handle.reactor()?);
        let children = setup.open.tree.children();
        // It is heard from the reactor only, so when there is a driver.
        let driver: Rc<RefCell<Weak<RefCell<Self>>>> = Rc::default();
        let inlet = match kernel.filter(|_| setup.open.tuning.direct) {
            Some(kernel) => Self::listen(reactor, &kernel, &stream, Rc::clone(&driver)),
            None => None,
        };
        let started = Self::start(
            setup,
            children,
            Upstream::Remote {
                stream: Some(stream),
                frames: VecDeque::new(),
                inlet,
            },
            |config, now, out| Machine::Relay(Relay::new(config, now, out)),
        )?;
        driver.replace(Rc::downgrade(&started));
        Ok(started)
    }

    /// Starts a transfer: the shells of `children` are fed from `reader`, which
    /// is let go. With [`Setup::place`] a copy is made here as well.
    ///
    /// # Errors
    /// The reactor or a timer could not be had.
    pub fn origin(
        setup: Setup,
        children: Vec<Tree>,
        reader: Reader,
        timeout: Option<Duration>,
    ) -> Result<Rc<RefCell<Self>>> {
        let partial = setup.open.partial;
        let targets = setup.open.tree.size();
        let tuning = &setup.open.tuning;
        let seal = match setup.open.warrant {
            Some(_) => setup.network.link(setup.open.tree.root()),
            None => None,
        };
        reader.go(Flow {
            batch: tuning.batch_for(&setup.open.tree),
            window: tuning.window,
            pace: tuning.pace,
            compress: tuning.compress,
            seal: seal.map(|link| link.service),
        });
        Self::start(
            setup,
            children,
            Upstream::Reader(Some(reader)),
            |config, now, out| {
                Machine::Origin(Origin::new(config, targets, partial, timeout, now, out))
            },
        )
    }

    fn start(
        setup: Setup,
        children: Vec<Tree>,
        upstream: Upstream,
        machine: impl FnOnce(Config, Millis, &mut Vec<Output>) -> Machine,
    ) -> Result<Rc<RefCell<Self>>> {
        let reactor = setup.handle.reactor()?;
        let config = Config {
            local: setup.place.as_ref().map(|place| place.rank),
            children: children.clone(),
            window: setup.open.tuning.window,
            stall: Duration::from_secs_f64(setup.open.tuning.stall),
            watch_upstream: matches!(upstream, Upstream::Remote { .. }),
            partial: setup.open.partial,
            heir: setup.open.heir,
        };
        let mut out = Vec::new();
        let machine = machine(config, 0, &mut out);
        let driver = Rc::new_cyclic(|me: &Weak<RefCell<Self>>| {
            RefCell::new(Self {
                machine,
                open: setup.open,
                edges: children.iter().map(|_| None).collect(),
                children,
                network: setup.network,
                reactor,
                place: setup.place,
                writer: None,
                upstream,
                suitor: None,
                listener: setup.listener,
                inputs: VecDeque::new(),
                events: Vec::new(),
                busy: false,
                verified: 0,
                clock: Clock::new(Instant::now()),
                _ticker: None,
                me: me.clone(),
            })
        });
        let weak = Rc::downgrade(&driver);
        let ticker = TimerWatcher::new(reactor, Relay::TICK, Some(Relay::TICK), move || {
            Self::feed_weak(&weak, Input::Tick);
        })?;
        {
            let mut this = driver.borrow_mut();
            this._ticker = Some(ticker);
            for output in out {
                this.carry_out(output);
            }
        }
        Self::run(&driver);
        Ok(driver)
    }

    /// Tells the machine what happened and carries out what follows.
    pub fn feed(this: &Rc<RefCell<Self>>, input: Input) {
        // While the machine runs, nothing calls back into it: Flux delivers
        // everything from the reactor. Were it otherwise, order is kept.
        match this.try_borrow_mut() {
            Ok(mut driver) => driver.inputs.push_back(input),
            Err(_) => return,
        }
        Self::run(this);
    }

    fn feed_weak(this: &Weak<RefCell<Self>>, input: Input) {
        if let Some(driver) = this.upgrade() {
            Self::feed(&driver, input);
        }
    }

    fn run(this: &Rc<RefCell<Self>>) {
        let (events, listener) = {
            let mut driver = this.borrow_mut();
            driver.process();
            (
                std::mem::take(&mut driver.events),
                Rc::clone(&driver.listener),
            )
        };
        for event in events {
            listener(event);
        }
    }

    /// A frame from the one that feeds us; answered when it is used up.
    pub fn frame(this: &Rc<RefCell<Self>>, request: Request, input: Input) {
        if let Ok(mut driver) = this.try_borrow_mut()
            && let Upstream::Remote { frames, .. } = &mut driver.upstream
        {
            frames.push_back(Arrived::Request(request));
        }
        Self::feed(this, input);
    }

    /// What became of all ranks here and below, when nothing more comes.
    pub fn results(&self) -> &[RankResult] {
        match &self.machine {
            Machine::Relay(relay) => relay.results(),
            Machine::Origin(_) => &[],
        }
    }

    /// A shell is known to be lost: if it is fed from here, it is given up.
    pub fn lost(this: &Rc<RefCell<Self>>, rank: u32, text: &str) {
        let child = this
            .borrow()
            .children
            .iter()
            .position(|tree| tree.root() == rank);
        if let Some(child) = child {
            let (errno, text) = (Errno::ESHUTDOWN.raw(), text.to_owned());
            Self::feed(this, Input::ChildLost { child, errno, text });
        }
    }

    /// How many ranks have everything, verified, as last reported to whoever
    /// started the transfer.
    pub fn verified(&self) -> u32 {
        self.verified
    }

    /// True when nothing more will come.
    pub fn is_finished(&self) -> bool {
        match &self.machine {
            Machine::Relay(relay) => relay.is_finished(),
            Machine::Origin(origin) => origin.is_finished(),
        }
    }

    fn process(&mut self) {
        if self.busy {
            return;
        }
        self.busy = true;
        let mut out = Vec::new();
        while let Some(input) = self.inputs.pop_front() {
            let now = self.clock.look(Instant::now());
            if let Input::Sink(SinkEvent::Committed(placed)) = &input {
                self.events.push(DriverEvent::Placed(placed.clone()));
            }
            match &mut self.machine {
                Machine::Relay(relay) => relay.handle(now, input, &mut out),
                Machine::Origin(origin) => origin.handle(now, input, &mut out),
            }
            for output in std::mem::take(&mut out) {
                self.carry_out(output);
            }
        }
        self.busy = false;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::OpenChild(child) => self.open_child(child, None),
            Output::AdoptChild { child, tree, first } => {
                self.children.push(tree);
                self.edges.push(None);
                self.open_child(child, Some(first));
            }
            Output::SendFrame { child, frame } => {
                self.with_edge(child, |edge| edge.send(&frame));
            }
            Output::CommitChild(child) => {
                self.with_edge(child, |edge| edge.order(Order::Commit));
            }
            Output::AbortChild { child, why } => {
                self.with_edge(child, |edge| edge.order(Order::Abort(why)));
            }
            Output::PingChild(child) => self.with_edge(child, |edge| edge.order(Order::Ping)),
            Output::SinkOpen => self.sink_open(),
            Output::SinkFrame(frame) => self.sink(|writer| writer.frame(frame)),
            Output::SinkPrepare => self.sink(Writer::prepare),
            Output::SinkCommit => self.sink(Writer::commit),
            Output::SinkAbort => self.sink(Writer::abort),
            Output::Up(up) => self.up(up),
            Output::Ack { bytes } => self.ack(bytes),
            Output::Accept => self.accept(),
            Output::Decline => self.decline(),
            Output::Finished => self.finished(),
        }
    }

    fn open_child(&mut self, child: usize, resume: Option<u64>) {
        let Some(tree) = self.children.get(child).cloned() else {
            return;
        };
        let rank = tree.root();
        let weak = self.me.clone();
        let report = Rc::new(move |event| {
            Self::feed_weak(
                &weak,
                match event {
                    EdgeEvent::Up(up) => Input::Child { child, up },
                    EdgeEvent::Credit(bytes) => Input::Credit { child, bytes },
                    EdgeEvent::Alive => Input::ChildAlive { child },
                    EdgeEvent::Lost { errno, text } => Input::ChildLost {
                        child,
                        errno: errno.raw(),
                        text,
                    },
                },
            );
        });
        let direct = self.open.tuning.direct;
        let open = Open {
            tree,
            resume,
            // Whoever feeds us goes on in our place.
            heir: self.open.partial && matches!(self.upstream, Upstream::Remote { .. }),
            kernel: direct.then(|| direct::kernel().to_owned()),
            ..self.open.clone()
        };
        let edge = match self.network.link(rank) {
            Some(link) => RpcEdge::open(link, &open, report),
            // A client knows the leader alone.
            None if resume.is_some() => {
                let text = "cut off: the rank that feeds it is lost";
                Err(Error::with_text(Errno::EHOSTUNREACH, text))
            }
            None => Err(Errno::EHOSTUNREACH.into()),
        };
        match edge {
            Ok(edge) => self.edges[child] = Some(Box::new(edge)),
            Err(error) => self.inputs.push_back(Input::ChildLost {
                child,
                errno: error.errno().raw(),
                text: error.to_string(),
            }),
        }
    }

    fn with_edge(&mut self, child: usize, act: impl FnOnce(&mut dyn Edge) -> Result<()>) {
        let Some(edge) = self.edges.get_mut(child).and_then(Option::as_mut) else {
            return;
        };
        if let Err(error) = act(edge.as_mut()) {
            self.inputs.push_back(Input::ChildLost {
                child,
                errno: error.errno().raw(),
                text: error.to_string(),
            });
        }
    }

    fn sink_open(&mut self) {
        let Some(place) = self.place.clone() else {
            return;
        };
        let rank = place.rank;
        // More frames than the window holds cannot be waiting.
        let most = self.open.tuning.window / HEADER_LEN as u64;
        let capacity = usize::try_from(most).unwrap_or(usize::MAX);
        let weak = self.me.clone();
        let started = Writer::start(self.reactor, place, capacity, move |event| {
            Self::feed_weak(&weak, Input::Sink(event));
        });
        match started {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => {
                let failure = Failure::on(rank, error.errno().raw(), error.to_string());
                self.inputs
                    .push_back(Input::Sink(SinkEvent::Failed(failure)));
            }
        }
    }

    fn sink(&mut self, act: impl FnOnce(&Writer) -> bool) {
        let Some(writer) = &self.writer else { return };
        if !act(writer) {
            let rank = self.place.as_ref().map_or(0, |place| place.rank);
            let text = "the writer does not follow: more data than was granted";
            let failure = Failure::on(rank, Errno::ENOBUFS.raw(), text);
            self.inputs
                .push_back(Input::Sink(SinkEvent::Failed(failure)));
        }
    }

    /// Takes the writer away, to wait for the end of its thread.
    pub fn leave(&mut self) -> Option<JoinHandle<()>> {
        self.writer.take().and_then(Writer::leave)
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("transfer", &self.open.transfer)
            .finish_non_exhaustive()
    }
}
