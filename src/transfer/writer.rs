//! The worker thread that writes this rank's copy.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel as channel;

use super::signed::Sealer;
use super::told::told;
use super::worker;
use crate::bcast::frame::Frame;
use crate::bcast::frame::FrameError;
use crate::bcast::id::TransferId;
use crate::bcast::name::RawName;
use crate::bcast::relay::SinkEvent;
use crate::bcast::report::Failure;
use crate::bcast::report::Placed;
use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;
use crate::errno::Errno;
use crate::file;
use crate::flux::error::Result;
use crate::flux::reactor::Reactor;
use crate::flux::wakeup::WakeReceiver;
use crate::flux::wakeup::WakeSender;
use crate::flux::wakeup::wakeup;

/// Where and how the copy is made.
#[derive(Clone, Debug)]
pub struct Place {
    /// The job's temporary directory on this rank.
    pub base: PathBuf,
    /// It is `FLUX_JOB_TMPDIR`, and errors call it so.
    pub is_tmpdir: bool,
    /// Where the copy goes, or why that cannot be said here.
    pub dest: std::result::Result<Dest, Failure>,
    /// How it is made.
    pub policy: Policy,
    /// The transfer.
    pub transfer: TransferId,
    /// This shell's rank.
    pub rank: u32,
    /// Bytes to come, when known.
    pub total: Option<u64>,
    /// Names of the copies, as far as known.
    pub names: Vec<RawName>,
    /// Where the copies are remembered once they are published.
    pub registry: Option<SharedRegistry>,
    /// The service for which the data must be sealed, if it must.
    pub seal: Option<String>,
}

/// A registry that writers and the reactor's thread use.
#[derive(Clone, Debug, Default)]
pub struct SharedRegistry(Arc<Mutex<file::Registry>>);

impl SharedRegistry {
    /// Uses it. Whoever holds it may wait for a disk: not for the reactor's
    /// thread.
    pub fn with<T>(&self, f: impl FnOnce(&mut file::Registry) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

enum Command {
    Frame(Frame),
    Prepare,
    Commit,
    Abort,
}

/// Events drained per wake-up of the reactor.
const BATCH: usize = 16;

/// Events that may wait for the reactor; the thread waits with the next one.
const EVENTS: usize = 1024;

/// The writer. Dropping it makes the thread drop everything it has not
/// published and end; that is not waited for, see [`Writer::leave`].
#[derive(Debug)]
pub struct Writer {
    commands: Option<channel::Sender<Command>>,
    capacity: usize,
    cancel: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _events: WakeReceiver,
}

impl Writer {
    /// Starts the thread, which opens the destination at once. `capacity`
    /// bounds the frames that wait to be written.
    ///
    /// # Errors
    /// The thread or its channel could not be made.
    pub fn start(
        reactor: Reactor,
        place: Place,
        capacity: usize,
        on_event: impl FnMut(SinkEvent) + 'static,
    ) -> Result<Self> {
        let (events, receiver) = wakeup(reactor, EVENTS, BATCH, on_event)?;
        // A bounded channel has room for all from the start: for millions of small
        // messages, if the window is large, of which there are few in most cases.
        let (commands, queue) = channel::unbounded();
        let cancel = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancel);
        let (rank, reports) = (place.rank, events.clone());
        let thread = worker::spawn(
            "bcast-writer",
            move || run(&place, &queue, &events, &flag),
            move |text| {
                let failure = Failure::on(rank, Errno::ENOTRECOVERABLE.raw(), text);
                let _ = reports.send(SinkEvent::Failed(failure));
            },
        )?;
        Ok(Self {
            commands: Some(commands),
            capacity: capacity.saturating_add(8),
            cancel,
            thread: Some(thread),
            _events: receiver,
        })
    }

    /// Queues a frame. False if the queue is full: the peer has sent more than
    /// it was granted.
    pub fn frame(&self, frame: Frame) -> bool {
        self.push(Command::Frame(frame))
    }

    /// Queues the verification.
    pub fn prepare(&self) -> bool {
        self.push(Command::Prepare)
    }

    /// Queues the publication.
    pub fn commit(&self) -> bool {
        self.push(Command::Commit)
    }

    /// Drops everything, and what is queued first.
    pub fn abort(&self) -> bool {
        self.cancel.store(true, Ordering::Relaxed);
        self.push(Command::Abort)
    }

    fn push(&self, command: Command) -> bool {
        let Some(commands) = &self.commands else {
            return true;
        };
        if commands.len() >= self.capacity {
            return false;
        }
        // A thread that has ended has failed, and its word of that is on its
        // way: a complaint of ours must not overtake it.
        let _ = commands.send(command);
        true
    }

    /// Tells the thread to end, and gives it away to be waited for.
    pub fn leave(mut self) -> Option<JoinHandle<()>> {
        self.thread.take()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After a commit was queued this must not stop it half-way: the flag
        // only skips frames.
        self.cancel.store(true, Ordering::Relaxed);
        self.commands = None;
    }
}

fn run(
    place: &Place,
    queue: &channel::Receiver<Command>,
    events: &WakeSender<SinkEvent>,
    cancel: &AtomicBool,
) {
    let start = Instant::now();
    let fail = |error: &file::FileError| {
        let failure = Failure::on(place.rank, error.errno().raw(), error.to_string());
        SinkEvent::Failed(if place.is_tmpdir {
            told(&place.base, failure)
        } else {
            failure
        })
    };
    let dest = match &place.dest {
        Ok(dest) => dest,
        Err(failure) => {
            let _ = events.send(SinkEvent::Failed(failure.clone()));
            return;
        }
    };
    let context = file::Context {
        transfer: place.transfer.to_string(),
        rank: place.rank,
    };
    let opened =
        file::Sink::open(&place.base, dest, &place.policy, &context).and_then(|sink| {
            place.total.map_or(Ok(()), |total| sink.expect(total))?;
            sink.expect_names(&place.names)?;
            Ok(sink)
        });
    let mut sink = match opened {
        Ok(sink) => sink,
        Err(error) => {
            let _ = events.send(fail(&error));
            return;
        }
    };
    if events.send(SinkEvent::Opened).is_err() {
        return;
    }
    let mut sealer = place.seal.clone().map(Sealer::new);
    while let Ok(command) = queue.recv() {
        let event = match command {
            // The data has a gap from here on: an abort follows.
            Command::Frame(_) | Command::Prepare if cancel.load(Ordering::Relaxed) => continue,
            Command::Frame(frame) => {
                match sealer
                    .as_mut()
                    .map_or(Ok(()), |sealer| sealer.check(&frame))
                {
                    Ok(()) => write(&mut sink, &frame, place.rank).unwrap_or_else(|e| fail(&e)),
                    Err(error) => {
                        let (errno, text) = (error.errno().raw(), error.to_string());
                        SinkEvent::Failed(Failure::on(place.rank, errno, text))
                    }
                }
            }
            Command::Prepare => match sink.prepare() {
                Ok(_) => SinkEvent::Prepared,
                Err(error) => fail(&error),
            },
            Command::Commit => {
                let event = match sink.commit() {
                    Ok(copies) => {
                        let placed = placed(&copies, start);
                        if let Some(registry) = &place.registry {
                            registry.with(|registry| registry.add(copies));
                        }
                        SinkEvent::Committed(placed)
                    }
                    Err(error) => fail(&error),
                };
                let _ = events.send(event);
                return;
            }
            Command::Abort => {
                sink.abort();
                let _ = events.send(SinkEvent::Aborted);
                return;
            }
        };
        if matches!(event, SinkEvent::Failed(_)) {
            // The failure is told once nothing is left behind.
            sink.abort();
            let _ = events.send(event);
            return;
        }
        if events.send(event).is_err() {
            return;
        }
    }
}

fn placed(copies: &[file::Committed], start: Instant) -> Vec<Placed> {
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let one = |copy: &file::Committed| Placed {
        path: copy.path.clone(),
        bytes: copy.bytes,
        micros,
    };
    copies.iter().map(one).collect()
}

/// Writes a frame.
fn write(
    sink: &mut file::Sink,
    frame: &Frame,
    rank: u32,
) -> std::result::Result<SinkEvent, file::FileError> {
    let damaged = |error: FrameError| {
        let failure = Failure::on(rank, Errno::EPROTO.raw(), error.to_string());
        Ok(SinkEvent::Failed(failure))
    };
    let plain = match frame.expanded() {
        Ok(plain) => plain,
        Err(error) => return damaged(error),
    };
    match plain.item() {
        Ok(item) => sink.item(item).map(|()| SinkEvent::Wrote),
        Err(error) => damaged(error),
    }
}
