//! The loop of `serve`: waits for clients and for the commands to end.

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::io::BufRead;
use std::io::BufReader;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ChildStdin;
use std::process::ExitStatus;
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use crossbeam_channel::Receiver;
use crossbeam_channel::Sender;
use flux_bcast::errno::Errno;
use flux_bcast::errno::reason;
use flux_bcast::pmi::Action;
use flux_bcast::pmi::ConnId;
use flux_bcast::pmi::Level;
use flux_bcast::pmi::Provider;
use flux_bcast::sockets::Accepted;
use flux_bcast::sockets::Input;
use flux_bcast::sockets::Output;
use flux_bcast::sockets::Sockets;
use flux_bcast::sockets::admission::Admission;
use flux_bcast::sockets::admission::BARRED;
use flux_bcast::sockets::admission::Refusal;
use flux_bcast::sockets::admission::Refusals;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::process::Pid;
use rustix::process::PidfdFlags;
use rustix::process::Signal;
use rustix::process::pidfd_open;
use rustix::process::pidfd_send_signal;

use super::launch::Prepared;
use crate::Failed;
use crate::args::Serve;
use crate::output;

/// How long a barrier may wait for a rank that has left.
const GRACE: Duration = Duration::from_secs(3);

/// How long no client is accepted when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(200);

/// When commands are ended that take no notice of the end of their input, by the
/// first signal and then by the second. What runs on a host is given less.
const STUBBORN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(15)];

/// The longest line that is kept together, in bytes.
const LINE: u64 = 64 * 1024;

/// What is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Handshake(ConnId),
    Grace,
    Accept,
    /// Commands that still run are ended.
    End,
    Terminate,
    Kill,
}

/// A command has ended.
type Ended = (usize, std::io::Result<ExitStatus>);

#[derive(Debug)]
struct Running {
    rank: Option<u32>,
    /// Closing it ends the command.
    input: Option<ChildStdin>,
    /// What signals are sent to; a number could be another process's by then.
    process: Option<OwnedFd>,
    done: bool,
}

pub(super) struct Server<'a> {
    args: &'a Serve,
    provider: Provider,
    sockets: Sockets,
    admission: Admission,
    children: Vec<Running>,
    ended: (Sender<Ended>, Receiver<Ended>),
    /// A byte wakes the loop: a command has ended.
    wake: (PipeReader, Arc<PipeWriter>),
    copiers: Vec<JoinHandle<()>>,
    due: BTreeSet<(Instant, Due)>,
    accepting: bool,
    refusals: Refusals,
    ending: bool,
    worst: u8,
    /// The status of an abort; 0 without one.
    aborted: u8,
}

impl<'a> Server<'a> {
    pub(super) fn new(
        args: &'a Serve,
        provider: Provider,
        sockets: Sockets,
        admission: Admission,
    ) -> Result<Self, Failed> {
        let (reader, writer) = std::io::pipe()
            .map_err(|error| Failed::Error(format!("pipe: {}", reason(&error))))?;
        Ok(Self {
            args,
            provider,
            sockets,
            admission,
            children: Vec::new(),
            ended: crossbeam_channel::unbounded(),
            wake: (reader, Arc::new(writer)),
            copiers: Vec::new(),
            due: BTreeSet::new(),
            accepting: true,
            refusals: Refusals::default(),
            ending: false,
            worst: 0,
            aborted: 0,
        })
    }

    /// Starts a command; `rank` if it is just one.
    pub(super) fn start(
        &mut self,
        prepared: Prepared,
        rank: Option<u32>,
    ) -> Result<(), Failed> {
        let Prepared { mut command, input } = prepared;
        if self.args.label {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let name = command.get_program().to_string_lossy().into_owned();
        // The rsh command, unless it is a shell here.
        let hint = if name == super::launch::SHELL {
            ""
        } else {
            " (see --rsh-command)"
        };
        let fail = |error: std::io::Error| {
            Failed::Error(format!("start {name}: {}{hint}", reason(&error)))
        };
        let mut child = command.spawn().map_err(fail)?;
        let mut stdin = child.stdin.take();
        if let Some(pipe) = &mut stdin {
            // A short line always fits an empty pipe. A command that is gone
            // already is reported by its status.
            let _ = pipe.write_all(input.as_bytes());
        }
        let label = rank.map_or_else(|| "script".to_owned(), |rank| rank.to_string());
        if let Some(out) = child.stdout.take() {
            self.copiers
                .push(copy(label.clone(), out, std::io::stdout()));
        }
        if let Some(err) = child.stderr.take() {
            self.copiers.push(copy(label, err, std::io::stderr()));
        }
        let number = self.children.len();
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.children.push(Running {
            rank,
            input: stdin,
            process: process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok()),
            done: false,
        });
        let sender = self.ended.0.clone();
        let wake = Arc::clone(&self.wake.1);
        std::thread::spawn(move || {
            let status = child.wait();
            let _ = sender.send((number, status));
            let _ = (&*wake).write_all(b"x");
        });
        Ok(())
    }

    /// Serves until all commands have ended.
    pub(super) fn run(mut self) -> Result<(), Failed> {
        while self.children.iter().any(|child| !child.done) {
            self.turn()
                .map_err(|error| Failed::Error(format!("poll: {}", Errno::from(error))))?;
        }
        for copier in self.copiers.drain(..) {
            let _ = copier.join();
        }
        match self.aborted.max(self.worst) {
            0 => Ok(()),
            status => Err(Failed::Status(status)),
        }
    }

    /// Waits for something to happen, and handles it.
    fn turn(&mut self) -> rustix::io::Result<()> {
        let conns: Vec<ConnId> = self.sockets.ids().collect();
        let ready: Vec<PollFlags> = {
            let mut fds = vec![
                PollFd::new(&self.wake.0, PollFlags::IN),
                PollFd::from_borrowed_fd(
                    self.sockets.listener(),
                    if self.accepting {
                        PollFlags::IN
                    } else {
                        PollFlags::empty()
                    },
                ),
            ];
            for &conn in &conns {
                let blocked = self.sockets.is_blocked(conn);
                let events = if blocked {
                    PollFlags::OUT
                } else {
                    PollFlags::IN
                };
                if let Some(fd) = self.sockets.fd(conn) {
                    fds.push(PollFd::from_borrowed_fd(fd, events));
                }
            }
            let timeout = self.due.first().map(|(at, _)| {
                let left = at.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            match rustix::event::poll(&mut fds, timeout.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(error),
            }
            fds.iter().map(PollFd::revents).collect()
        };
        let mut ready = ready.into_iter();
        if ready.next().is_some_and(|events| !events.is_empty()) {
            self.reap();
        }
        if ready.next().is_some_and(|events| !events.is_empty()) {
            self.accept();
        }
        for (conn, events) in conns.into_iter().zip(ready) {
            if !events.is_empty() {
                self.serve(conn);
            }
        }
        self.expire();
        Ok(())
    }

    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(&(at, due)) = self.due.first() {
            if at > now {
                break;
            }
            self.due.remove(&(at, due));
            match due {
                Due::Handshake(conn) => self.drive(|provider| provider.handshake_over(conn)),
                Due::Grace => self.drive(Provider::grace_over),
                Due::Accept => self.accepting = true,
                Due::End => self.end(),
                Due::Terminate => self.signal(Signal::TERM),
                Due::Kill => self.signal(Signal::KILL),
            }
        }
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.due.insert((Instant::now() + after, due));
    }

    fn accept(&mut self) {
        for _ in 0..64 {
            let (admission, refusals) = (&self.admission, &mut self.refusals);
            let accepted = self.sockets.accept(|stream, peer| {
                let admitted = admission.admit(stream, peer);
                if let Err(reason) = &admitted
                    && let Some(last) = refusals.one_more()
                {
                    let hint = match reason {
                        Refusal::Elsewhere => "; see --allow",
                        _ => "",
                    };
                    output::note(&format!(
                        "refused a client from {peer}: {reason}{hint}{last}"
                    ));
                }
                admitted.is_ok()
            });
            match accepted {
                Ok(Accepted::Conn(conn)) => {
                    self.later(self.args.handshake_timeout, Due::Handshake(conn));
                    self.drive(|provider| provider.accepted(conn));
                }
                Ok(Accepted::Refused) => {}
                Ok(Accepted::Nobody) => return,
                Err(error) => {
                    output::note(&format!("cannot accept a client: {}", reason(&error)));
                    self.accepting = false;
                    return self.later(PAUSE, Due::Accept);
                }
            }
        }
    }

    fn serve(&mut self, conn: ConnId) {
        if self.sockets.is_blocked(conn) {
            if self.sockets.flush(conn) == Output::End {
                self.hang_up(conn);
            }
            return;
        }
        match self.sockets.read(conn) {
            Input::Bytes(bytes) => self.drive(|provider| provider.received(conn, &bytes)),
            Input::Nothing => {}
            Input::End => self.hang_up(conn),
        }
    }

    fn hang_up(&mut self, conn: ConnId) {
        self.sockets.close(conn);
        self.drive(|provider| provider.closed(conn));
    }

    fn drive(&mut self, event: impl FnOnce(&mut Provider) -> Vec<Action>) {
        let mut queue = VecDeque::from(event(&mut self.provider));
        while let Some(action) = queue.pop_front() {
            match action {
                Action::Send(conn, bytes) => {
                    if self.sockets.send(conn, &bytes) == Output::End {
                        self.sockets.close(conn);
                        queue.extend(self.provider.closed(conn));
                    }
                }
                Action::Offence(conn) => {
                    let peer = self.sockets.peer(conn).map(|peer| peer.ip());
                    let barred = peer.map(|peer| self.admission.offended(peer));
                    for place in barred.unwrap_or_default() {
                        output::note(&format!("{place} is barred: {BARRED}"));
                    }
                }
                Action::Close(conn) => self.sockets.close(conn),
                // There is no other server.
                Action::Peer { .. } => {}
                Action::Grace => self.later(GRACE, Due::Grace),
                Action::Abort { code, text, .. } => {
                    output::error(&text);
                    self.aborted = match u8::try_from(code & 0xFF) {
                        Ok(0) | Err(_) => 1,
                        Ok(code) => code,
                    };
                    self.end();
                }
                Action::Log(Level::Warning, text) => output::note(&text),
                Action::Log(Level::Debug, text) => {
                    if self.args.verbose {
                        output::note(&text);
                    }
                }
            }
        }
    }

    /// Ends all commands; their input tells them.
    fn end(&mut self) {
        if self.ending {
            return;
        }
        self.ending = true;
        for child in &mut self.children {
            child.input = None;
        }
        let [terminate, kill] = STUBBORN;
        self.later(terminate, Due::Terminate);
        self.later(kill, Due::Kill);
    }

    fn signal(&self, signal: Signal) {
        for process in self
            .children
            .iter()
            .filter_map(|child| child.process.as_ref())
        {
            // It may have ended just now.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Takes note of commands that have ended.
    fn reap(&mut self) {
        let mut bytes = [0; 64];
        let _ = self.wake.0.read(&mut bytes);
        let ended: Vec<Ended> = self.ended.1.try_iter().collect();
        for (number, status) in ended {
            let Some(child) = self.children.get_mut(number) else {
                continue;
            };
            child.done = true;
            child.input = None;
            child.process = None;
            let rank = child.rank;
            let who =
                rank.map_or_else(|| "the script".to_owned(), |rank| format!("rank {rank}"));
            let code = match &status {
                Ok(status) => code(*status),
                Err(error) => {
                    output::error(&format!("wait for {who}: {}", reason(error)));
                    1
                }
            };
            if code != 0 && !self.ending {
                output::note(&format!("{who}: exit status {code}"));
                self.later(self.args.exit_timeout, Due::End);
            }
            if !self.ending {
                self.worst = self.worst.max(code);
            }
            if let Some(rank) = rank {
                self.drive(|provider| provider.task_exited(rank));
            }
        }
        if self.ending && self.worst == 0 {
            self.worst = 1;
        }
    }
}

/// The exit status as a shell tells it.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(127));
    u8::try_from(code).unwrap_or(255)
}

/// Copies output line by line, so that lines of ranks do not mix; each ends, so
/// that the next one starts with its label.
fn copy(
    label: String,
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = format!("{label}: ").into_bytes();
        let start = line.len();
        while matches!(from.by_ref().take(LINE).read_until(b'\n', &mut line), Ok(n) if n > 0) {
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            if to.write_all(&line).and_then(|()| to.flush()).is_err() {
                break;
            }
            line.truncate(start);
        }
    })
}
