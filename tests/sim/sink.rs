//! The model of a sink: keeps what it was given and notices what a real one
//! notices. It trusts its relay: told to publish, it publishes whatever it has,
//! so that a relay's mistake becomes a wrong file.

use std::collections::VecDeque;

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::item::Item;
use flux_bcast::bcast::name::RawName;
use flux_bcast::bcast::relay::SinkEvent;
use flux_bcast::bcast::report::Failure;
use flux_bcast::bcast::report::Placed;

use super::source::Content;
use super::source::Sum;

/// What a sink is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Open,
    Write(Frame),
    Prepare,
    Commit,
    Abort,
}

/// Where a sink is to fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trouble {
    Open,
    Write(u64),
    Prepare,
    Commit,
}

impl Trouble {
    pub(crate) fn errno(self) -> i32 {
        match self {
            Self::Open => libc::EACCES,
            Self::Write(_) => libc::ENOSPC,
            Self::Prepare => libc::EIO,
            Self::Commit => libc::EEXIST,
        }
    }
}

#[derive(Debug, Default)]
struct Temp {
    content: Content,
    /// Number, length and sum of the file being written.
    current: Option<(u32, u64, Sum)>,
    fin: bool,
}

#[derive(Debug)]
pub(crate) struct Sink {
    rank: u32,
    trouble: Option<Trouble>,
    queue: VecDeque<Op>,
    pub(crate) busy: bool,
    temp: Option<Temp>,
    /// The copy in place; none: what was there before.
    pub(crate) file: Option<Content>,
    written: u64,
    over: bool,
    /// Answers an abort even after it failed.
    chatty: bool,
}

impl Sink {
    pub(crate) fn new(rank: u32, trouble: Option<Trouble>, chatty: bool) -> Self {
        Self {
            rank,
            trouble,
            queue: VecDeque::new(),
            busy: false,
            temp: None,
            file: None,
            written: 0,
            over: false,
            chatty,
        }
    }

    pub(crate) fn has_temp(&self) -> bool {
        self.temp.is_some()
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// Bytes of the messages that wait to be written.
    pub(crate) fn queued(&self) -> u64 {
        let cost = |op: &Op| match op {
            Op::Write(frame) => frame.cost(),
            _ => 0,
        };
        self.queue.iter().map(cost).sum()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.busy && self.queue.is_empty()
    }

    /// Takes an order; an abort overtakes what is not begun.
    pub(crate) fn order(&mut self, op: Op) {
        if op == Op::Abort {
            self.queue.truncate(usize::from(self.busy));
        }
        if !self.over || (op == Op::Abort && self.chatty) {
            self.queue.push_back(op);
        }
    }

    /// Tells whether there is work to begin.
    pub(crate) fn begin(&mut self) -> bool {
        if self.busy || self.queue.is_empty() {
            return false;
        }
        self.busy = true;
        true
    }

    /// Completes the work begun.
    pub(crate) fn complete(&mut self) -> Option<SinkEvent> {
        self.busy = false;
        let op = self.queue.pop_front()?;
        let done = match op {
            Op::Open => self.open(),
            Op::Write(frame) => self.write(&frame),
            Op::Prepare => self.prepare(),
            Op::Commit => self.commit(),
            Op::Abort => {
                self.temp = None;
                self.over = true;
                Ok(SinkEvent::Aborted)
            }
        };
        Some(done.unwrap_or_else(|(errno, text)| {
            self.temp = None;
            self.over = true;
            self.queue.clear();
            SinkEvent::Failed(Failure::on(self.rank, errno, text))
        }))
    }

    fn fails(&self, at: Trouble) -> Result<(), (i32, &'static str)> {
        if self.trouble == Some(at) {
            return Err((at.errno(), "the disk says no"));
        }
        Ok(())
    }

    fn open(&mut self) -> Result<SinkEvent, (i32, &'static str)> {
        self.fails(Trouble::Open)?;
        self.temp = Some(Temp::default());
        Ok(SinkEvent::Opened)
    }

    fn write(&mut self, frame: &Frame) -> Result<SinkEvent, (i32, &'static str)> {
        self.fails(Trouble::Write(self.written))?;
        self.written += 1;
        let temp = self.temp.as_mut().ok_or((libc::EBADF, "not open"))?;
        let damaged = (libc::EBADMSG, "the data is damaged");
        if temp.fin {
            return Err((libc::EPROTO, "data after the end"));
        }
        match frame.item().map_err(|_| damaged)? {
            Item::Entry(_) => {
                if temp.current.is_some() || frame.entry() != temp.content.entries {
                    return Err((libc::EPROTO, "an entry out of place"));
                }
                temp.current = Some((frame.entry(), 0, Sum::default()));
            }
            Item::Data { offset, bytes } => {
                let (_, len, sum) = temp.current.as_mut().ok_or(damaged)?;
                if offset != *len {
                    return Err((libc::EPROTO, "data out of place"));
                }
                sum.add(bytes);
                *len += bytes.len() as u64;
            }
            Item::Hole { offset, len: hole } => {
                let (_, len, sum) = temp.current.as_mut().ok_or(damaged)?;
                if offset != *len {
                    return Err((libc::EPROTO, "a hole out of place"));
                }
                sum.add_zeros(hole);
                *len += hole;
            }
            Item::End { size, digest } => {
                let (_, len, sum) = temp.current.take().ok_or(damaged)?;
                if size != len || digest != sum.digest() {
                    return Err(damaged);
                }
                temp.content.entries += 1;
                temp.content.bytes += len;
                temp.content.sum.add(&digest);
            }
            Item::Fin { entries, bytes } => {
                let whole = temp.content.entries == entries && temp.content.bytes == bytes;
                if temp.current.is_some() || !whole {
                    return Err((libc::EPROTO, "the stream is cut short"));
                }
                temp.fin = true;
            }
        }
        Ok(SinkEvent::Wrote)
    }

    fn prepare(&mut self) -> Result<SinkEvent, (i32, &'static str)> {
        self.fails(Trouble::Prepare)?;
        match &self.temp {
            Some(temp) if temp.fin => Ok(SinkEvent::Prepared),
            _ => Err((libc::EPROTO, "the stream is not complete")),
        }
    }

    fn commit(&mut self) -> Result<SinkEvent, (i32, &'static str)> {
        self.fails(Trouble::Commit)?;
        let temp = self.temp.take().unwrap_or_default();
        self.over = true;
        let bytes = temp.content.bytes;
        self.file = Some(temp.content);
        Ok(SinkEvent::Committed(vec![Placed {
            path: RawName::new("/tmp/copy"),
            bytes,
            micros: 0,
        }]))
    }
}

/// The content that a right copy of `frames` has.
pub(crate) fn right_copy(frames: &[Frame]) -> Content {
    let mut sink = Sink::new(0, None, false);
    sink.order(Op::Open);
    for frame in frames {
        sink.order(Op::Write(frame.clone()));
    }
    sink.order(Op::Prepare);
    sink.order(Op::Commit);
    while sink.begin() {
        sink.complete();
    }
    sink.file.unwrap()
}
