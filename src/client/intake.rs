//! Takes in the files of one rank.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::rc::Weak;
use std::time::Duration;

use super::pulse;
use super::pulse::Pulse;
use crate::bcast::frame::Frame;
use crate::bcast::frame::HEADER_LEN;
use crate::bcast::frame::Kind;
use crate::bcast::id::TransferId;
use crate::bcast::relay::SinkEvent;
use crate::bcast::report::Failure;
use crate::bcast::report::Placed;
use crate::errno::Errno;
use crate::flux::error::Result;
use crate::flux::future::FutureRef;
use crate::flux::future::Pending;
use crate::flux::handle::Node;
use crate::idset::IdSet;
use crate::transfer::ask::Credit;
use crate::transfer::ask::Fetch;
use crate::transfer::edge;
use crate::transfer::edge::Link;
use crate::transfer::writer::Place;
use crate::transfer::writer::Writer;

/// How long a writer that is stopped is waited for.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the owner of an intake hears.
#[derive(Debug)]
pub(super) enum IntakeEvent {
    /// So many bytes are written.
    Progress(u64),
    /// All is written and verified.
    Done(Vec<Placed>),
    /// It failed, and nothing is left of it.
    Failed(Failure),
}

/// See the module's documentation.
pub(super) struct Intake {
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    link: Link,
    transfer: TransferId,
    rank: u32,
    listener: Rc<dyn Fn(IntakeEvent)>,
    /// Cost and data of the frames that are being written.
    writing: VecDeque<(u64, u64)>,
    next_seq: u64,
    written: u64,
    fin: bool,
    writer: Option<Writer>,
    stream: Option<Pending>,
    pulse: Option<Pulse>,
    /// Nothing more will come, or is wanted.
    over: bool,
}

impl Intake {
    /// Asks the shell, and writes what comes to `place`. `listener` is called
    /// from the reactor only, and may drop the intake.
    ///
    /// # Errors
    /// Those of the connection; the writer's thread could not be made.
    pub(super) fn start(
        link: Link,
        fetch: Fetch,
        place: Place,
        stall: Duration,
        listener: impl Fn(IntakeEvent) + 'static,
    ) -> Result<Self> {
        let reactor = link.handle.reactor()?;
        let (transfer, rank) = (fetch.transfer, place.rank);
        let inner = Rc::new(RefCell::new(Inner {
            link: link.clone(),
            transfer,
            rank,
            listener: Rc::new(listener),
            writing: VecDeque::new(),
            next_seq: 0,
            written: 0,
            fin: false,
            writer: None,
            stream: None,
            pulse: None,
            over: false,
        }));
        // One frame more than the window may be on its way.
        let most = fetch.window / HEADER_LEN as u64 + 1;
        let capacity = usize::try_from(most).unwrap_or(usize::MAX);
        let weak = Rc::downgrade(&inner);
        let writer = Writer::start(reactor, place, capacity, move |event| {
            if let Some(this) = weak.upgrade() {
                Inner::writer_says(&this, event);
            }
        })?;
        let weak = Rc::downgrade(&inner);
        let node = Node::Rank(link.broker);
        let fetch = link.payload("fetch", IdSet::from_iter([rank]), &fetch)?;
        let stream = link
            .handle
            .stream_json(&link.topic("fetch"), &fetch, node)?
            .then(None, move |future| {
                if let Some(this) = weak.upgrade() {
                    Inner::comes(&this, future);
                }
            })?;
        let weak = Rc::downgrade(&inner);
        let pulse = Pulse::start(link, transfer, stall, move |failure| {
            let rank = Some(rank);
            Inner::fail(&weak, Failure { rank, ..failure });
        })?;
        {
            let mut this = inner.borrow_mut();
            this.writer = Some(writer);
            this.stream = Some(stream);
            this.pulse = Some(pulse);
        }
        Ok(Self { inner })
    }

    /// Drops everything that is not verified, and waits until nothing is left
    /// of it.
    pub(super) fn stop(self) {
        let writer = {
            let mut inner = self.inner.borrow_mut();
            if !inner.over {
                let why = Failure::client(libc::ECANCELED, "the client gave up");
                pulse::call_off(&inner.link, inner.transfer, why);
            }
            inner.stream = None;
            inner.pulse = None;
            inner.writer.take()
        };
        let Some(writer) = writer else { return };
        writer.abort();
        let Some(thread) = writer.leave() else { return };
        let deadline = std::time::Instant::now() + FAREWELL;
        while !thread.is_finished() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Inner {
    fn fail(weak: &Weak<RefCell<Self>>, failure: Failure) {
        let Some(this) = weak.upgrade() else { return };
        let listener = {
            let mut inner = this.borrow_mut();
            inner.stream = None;
            inner.pulse = None;
            Rc::clone(&inner.listener)
        };
        listener(IntakeEvent::Failed(failure));
    }

    fn comes(this: &Rc<RefCell<Self>>, future: FutureRef<'_>) {
        let weak = Rc::downgrade(this);
        let rank = this.borrow().rank;
        let frame = match future.get_raw() {
            Ok(bytes) => Frame::decode(bytes),
            // The regular end, after `Fin`.
            Err(error) if error.is_end_of_stream() && this.borrow().fin => return,
            Err(error) => {
                let (errno, text) = match error.is_end_of_stream() {
                    true => (Errno::EPROTO, "it ended in the middle".into()),
                    false => edge::explain(&error),
                };
                return Self::fail(&weak, Failure::on(rank, errno.raw(), text));
            }
        };
        future.reset();
        let taken = match frame {
            Ok(frame) => this.borrow_mut().take(frame),
            Err(error) => Err(error.to_string()),
        };
        if let Err(text) = taken {
            Self::fail(&weak, Failure::on(rank, libc::EPROTO, text));
        }
    }

    fn take(&mut self, frame: Frame) -> std::result::Result<(), String> {
        if frame.transfer() != self.transfer || frame.seq() != self.next_seq || self.fin {
            return Err("a data message came out of order".into());
        }
        self.next_seq += 1;
        self.fin = frame.kind() == Kind::Fin;
        self.writing.push_back((frame.cost(), frame.data_len()));
        let queued = self.writer.as_ref().is_some_and(|writer| {
            writer.frame(frame) && (!self.fin || (writer.prepare() && writer.commit()))
        });
        if queued {
            Ok(())
        } else {
            Err("it sent more than it was granted".into())
        }
    }

    fn writer_says(this: &Rc<RefCell<Self>>, event: SinkEvent) {
        let (listener, event) = {
            let mut inner = this.borrow_mut();
            let event = match event {
                SinkEvent::Wrote => {
                    let (cost, bytes) = inner.writing.pop_front().unwrap_or_default();
                    inner.written += bytes;
                    inner.grant(cost);
                    IntakeEvent::Progress(inner.written)
                }
                SinkEvent::Committed(placed) => {
                    inner.over = true;
                    IntakeEvent::Done(placed)
                }
                SinkEvent::Failed(failure) => IntakeEvent::Failed(Failure {
                    text: format!("on this side: {}", failure.text),
                    ..failure
                }),
                SinkEvent::Opened | SinkEvent::Prepared | SinkEvent::Aborted => return,
            };
            (Rc::clone(&inner.listener), event)
        };
        listener(event);
    }

    fn grant(&self, bytes: u64) {
        let credit = Credit {
            transfer: self.transfer,
            bytes,
        };
        // That a shell is lost is noticed elsewhere.
        let (topic, node) = (self.link.topic("credit"), Node::Rank(self.link.broker));
        let _ = self.link.handle.send_json(&topic, &credit, node);
    }
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake")
            .field("rank", &self.inner.borrow().rank)
            .finish_non_exhaustive()
    }
}
