//! One process: its machine, its sink, and what its driver keeps.

use std::collections::VecDeque;

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::message::Up;
use flux_bcast::bcast::origin::Origin;
use flux_bcast::bcast::relay::Input;
use flux_bcast::bcast::relay::Millis;
use flux_bcast::bcast::relay::Output;
use flux_bcast::bcast::relay::Relay;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::RankResult;
use flux_bcast::bcast::tree::Tree;

use super::protocol::Protocol;
use super::sink::Sink;

/// One end of an edge: the process that feeds, and the number of the child there.
pub(crate) type Feeder = (usize, usize);

/// A request from a parent, or from somebody who wants to become one.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Open {
        tree: Tree,
        resume: Option<u64>,
        heir: bool,
    },
    Data(Payload),
    Ping,
    Commit,
    Abort(Failure),
    /// The parent's process is gone.
    Disconnect,
}

/// A data message.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Whole(Frame),
    /// A second copy, which nobody waits for an answer to.
    Echo(Frame),
    /// Not a frame any more, once of this cost.
    Damaged(u64),
}

/// What comes back from a child.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Says(Up),
    Credit(u64),
    Alive,
    Refused(i32, &'static str),
}

/// Something that happens to a process.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Request(Feeder, Request),
    Answer(usize, Answer),
    /// The sink's work in progress is done.
    Sink,
    /// The source has the next frame.
    Read,
    Tick,
    /// SIGCONT.
    Continue,
}

#[derive(Debug)]
pub(crate) enum Machine {
    Origin(Box<Origin>),
    Relay(Box<Relay>),
}

impl Machine {
    pub(crate) fn handle(&mut self, now: Millis, input: Input, out: &mut Vec<Output>) {
        match self {
            Self::Origin(origin) => origin.handle(now, input, out),
            Self::Relay(relay) => relay.handle(now, input, out),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Self::Origin(origin) => origin.is_finished(),
            Self::Relay(relay) => relay.is_finished(),
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            Self::Origin(origin) => origin.held_bytes(),
            Self::Relay(relay) => relay.held_bytes(),
        }
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        match self {
            Self::Origin(origin) => origin.kept_bytes(),
            Self::Relay(relay) => relay.kept_bytes(),
        }
    }

    pub(crate) fn results(&self) -> Vec<RankResult> {
        match self {
            Self::Origin(_) => Vec::new(),
            Self::Relay(relay) => relay.results().to_vec(),
        }
    }
}

/// How a process fares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Life {
    Up,
    /// Stopped; for good, if without an end.
    Hung {
        for_good: bool,
    },
    /// It said good-bye; requests fail at once.
    Left,
    /// Killed; requests fail from then on, and are lost before.
    Dead(Millis),
}

/// A child as its parent's driver sees it.
#[derive(Debug)]
pub(crate) struct Fed {
    pub(crate) node: usize,
    pub(crate) tree: Tree,
    /// Bytes sent and not used up; counted until nobody cares for this child.
    pub(crate) in_flight: u64,
    pub(crate) given_up: bool,
    pub(crate) opened: bool,
    /// Its parent was lost.
    pub(crate) adopted: bool,
    /// When the last message on each lane is there.
    pub(crate) lanes: [Millis; 4],
}

impl Fed {
    pub(crate) fn new(node: usize, tree: Tree) -> Self {
        Self {
            node,
            tree,
            in_flight: 0,
            given_up: false,
            opened: false,
            adopted: false,
            lanes: [0; 4],
        }
    }
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) rank: Option<u32>,
    /// The ranks it answers for.
    pub(crate) ranks: Vec<u32>,
    /// Who is to feed it, as the tree was drawn; none for the origin.
    pub(crate) drawn: Option<Feeder>,
    /// Who feeds it.
    pub(crate) parent: Option<Feeder>,
    /// Who offers to.
    pub(crate) suitor: Option<Feeder>,
    pub(crate) children: Vec<Fed>,
    pub(crate) machine: Option<Machine>,
    pub(crate) protocol: Protocol,
    pub(crate) sink: Option<Sink>,
    pub(crate) life: Life,
    /// What came while it was stopped.
    pub(crate) backlog: VecDeque<Event>,
    /// Costs of data messages not answered, and who waits.
    pub(crate) unanswered: VecDeque<(u64, Option<Feeder>)>,
    /// Data messages sent to this node.
    pub(crate) sent_to: u64,
    /// A message that the next one overtakes.
    pub(crate) overtaken: Option<Payload>,
    /// Its parent got its final answer.
    pub(crate) answered: bool,
    /// Anything but its sink went wrong here at some time.
    pub(crate) struck: bool,
    /// It was killed or stopped for good, and nothing else.
    pub(crate) lost: bool,
}

impl Node {
    pub(crate) fn new(
        rank: Option<u32>,
        parent: Option<Feeder>,
        children: Vec<Fed>,
        sink: Option<Sink>,
    ) -> Self {
        let below = children.iter().flat_map(|fed| fed.tree.ranks());
        Self {
            rank,
            ranks: rank.iter().chain(below).copied().collect(),
            drawn: parent,
            parent,
            suitor: None,
            protocol: Protocol::new(parent.is_none(), children.len()),
            children,
            machine: None,
            sink,
            life: Life::Up,
            backlog: VecDeque::new(),
            unanswered: VecDeque::new(),
            sent_to: 0,
            overtaken: None,
            answered: false,
            struck: false,
            lost: false,
        }
    }

    /// It has a transfer to work on.
    pub(crate) fn is_busy(&self) -> bool {
        self.machine
            .as_ref()
            .is_some_and(|machine| !machine.is_finished())
    }

    /// It will never do anything again, or never in good order.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.life, Life::Dead(_) | Life::Hung { for_good: true })
    }
}
