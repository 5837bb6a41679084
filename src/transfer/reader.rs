//! The worker thread that reads the source.

use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use crossbeam_channel as channel;

use super::signed::Sealer;
use super::worker;
use crate::bcast::frame::Frame;
use crate::bcast::id::TransferId;
use crate::bcast::item::Item;
use crate::bcast::name::RawName;
use crate::bcast::pacer::Pacer;
use crate::errno::Errno;
use crate::file::FileError;
use crate::file::Source;
use crate::file::SourceSpec;
use crate::file::Totals;
use crate::flux::error::Result;
use crate::flux::reactor::Reactor;
use crate::flux::wakeup::WakeReceiver;
use crate::flux::wakeup::WakeSender;
use crate::flux::wakeup::wakeup;

/// What the reader says.
#[derive(Debug)]
pub enum SourceEvent {
    /// The sources are open.
    Opened {
        /// How much there is, as far as is known.
        totals: Totals,
        /// Names of the copies.
        names: Vec<RawName>,
    },
    /// The next frame.
    Frame(Frame),
    /// It failed; nothing more comes.
    Failed(FileError),
}

/// How it reads.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Most bytes of data in a frame.
    pub batch: u32,
    /// Most bytes of frames without credit.
    pub window: u64,
    /// Most bytes of frames per second, if there is a limit. They count as they
    /// leave: with their headers, compressed.
    pub pace: Option<u64>,
    /// Compress what gets smaller by it.
    pub compress: bool,
    /// The service whose shells want the data sealed, if they do.
    pub seal: Option<String>,
}

enum Command {
    Go(Flow),
    Credit(u64),
}

impl Command {
    fn take_credit(self, in_flight: &mut u64) {
        if let Self::Credit(bytes) = self {
            *in_flight = in_flight.saturating_sub(bytes);
        }
    }
}

/// Frames that may wait for the reactor: the window bounds them in bytes.
const QUEUE: usize = 64;

/// The reader. Dropping it makes the thread end at its next step.
#[derive(Debug)]
pub struct Reader {
    commands: channel::Sender<Command>,
    _events: WakeReceiver,
}

impl Reader {
    /// Starts the thread, which opens the sources at once and then waits.
    ///
    /// # Errors
    /// The thread or its channel could not be made.
    pub fn start(
        reactor: Reactor,
        spec: SourceSpec,
        transfer: TransferId,
        on_event: impl FnMut(SourceEvent) + 'static,
    ) -> Result<Self> {
        Self::start_with(reactor, || Ok(spec), transfer, on_event)
    }

    /// As [`Reader::start`]; what to read is found out in the thread.
    ///
    /// # Errors
    /// As [`Reader::start`]; those of `spec` come as [`SourceEvent::Failed`].
    pub fn start_with(
        reactor: Reactor,
        spec: impl FnOnce() -> std::result::Result<SourceSpec, FileError> + Send + 'static,
        transfer: TransferId,
        on_event: impl FnMut(SourceEvent) + 'static,
    ) -> Result<Self> {
        let (events, receiver) = wakeup(reactor, QUEUE, QUEUE / 4, on_event)?;
        let (commands, queue) = channel::unbounded();
        let reports = events.clone();
        worker::spawn(
            "bcast-reader",
            move || run(spec, transfer, &queue, &events),
            move |text| {
                let error = FileError::new(Errno::ENOTRECOVERABLE, "read", Path::new("source"));
                let _ = reports.send(SourceEvent::Failed(error.with_hint(text)));
            },
        )?;
        Ok(Self {
            commands,
            _events: receiver,
        })
    }

    /// Lets it read.
    pub fn go(&self, flow: Flow) {
        let _ = self.commands.send(Command::Go(flow));
    }

    /// Gives credit back.
    pub fn credit(&self, bytes: u64) {
        let _ = self.commands.send(Command::Credit(bytes));
    }
}

fn run(
    spec: impl FnOnce() -> std::result::Result<SourceSpec, FileError>,
    transfer: TransferId,
    queue: &channel::Receiver<Command>,
    events: &WakeSender<SourceEvent>,
) {
    let mut source = match spec().and_then(Source::open) {
        Ok(source) => source,
        Err(error) => {
            let _ = events.send(SourceEvent::Failed(error));
            return;
        }
    };
    let opened = SourceEvent::Opened {
        totals: source.totals(),
        names: source.names().cloned().collect(),
    };
    if events.send(opened).is_err() {
        return;
    }
    let Ok(Command::Go(Flow {
        batch,
        window,
        pace,
        compress,
        seal,
    })) = queue.recv()
    else {
        return;
    };
    let batch = usize::try_from(batch).unwrap_or(usize::MAX);
    let mut sealer = seal.map(Sealer::new);
    let mut buffer = Vec::new();
    let mut pacer = pace.map(Pacer::new);
    let began = Instant::now();
    let mut in_flight = 0u64;
    let mut seq = 0u64;
    let mut entry = 0u32;
    loop {
        let item = match source.next(&mut buffer, batch) {
            Ok(Some(item)) => item,
            Ok(None) => return,
            Err(error) => {
                let _ = events.send(SourceEvent::Failed(error));
                return;
            }
        };
        let ends = matches!(item, Item::End { .. });
        let mut frame = Frame::encode(transfer, seq, entry, &item);
        if compress {
            frame = frame.compressed();
        }
        if let Some(sealer) = &mut sealer {
            frame = match sealer.pass(frame) {
                Ok(frame) => frame,
                Err(error) => {
                    let failed = FileError::new(error.errno(), "seal", Path::new("data"));
                    let failed = failed.with_hint(error.to_string());
                    let _ = events.send(SourceEvent::Failed(failed));
                    return;
                }
            };
        }
        seq += 1;
        entry += u32::from(ends);
        while in_flight > 0 && in_flight + frame.cost() > window {
            match queue.recv() {
                Ok(command) => command.take_credit(&mut in_flight),
                Err(_) => return,
            }
        }
        let wait = pacer
            .as_mut()
            .map(|pacer| pacer.pass(began.elapsed(), frame.cost()));
        if !pause(wait.unwrap_or_default(), queue, &mut in_flight) {
            return;
        }
        in_flight += frame.cost();
        if events.send(SourceEvent::Frame(frame)).is_err() {
            return;
        }
    }
}

/// Waits, and takes credit meanwhile; false if the reader is dropped, at once.
fn pause(time: Duration, queue: &channel::Receiver<Command>, in_flight: &mut u64) -> bool {
    if time.is_zero() {
        return true;
    }
    let end = Instant::now() + time;
    loop {
        match queue.recv_deadline(end) {
            Ok(command) => command.take_credit(in_flight),
            Err(channel::RecvTimeoutError::Timeout) => return true,
            Err(channel::RecvTimeoutError::Disconnected) => return false,
        }
    }
}
