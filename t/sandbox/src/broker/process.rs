//! Child processes of the instance: shells, commands of `flux exec`, and the
//! initial program.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::rc::Rc;

use serde_json::json;

use super::Broker;
use crate::host::reactor::{Kind, POLLIN, Watcher};
use crate::wire::{self, Message};

/// Bytes taken from a pipe at once.
const READ_SIZE: usize = 64 * 1024;

/// Whose child it is.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// A shell of a job, by its index.
    Shell { job: u64, index: usize },
    /// A command that a client asked for.
    Command { request: Box<Message> },
}

/// A running child.
#[derive(Debug)]
pub(super) struct Process {
    owner: Owner,
    rank: u32,
    pipes: Vec<Rc<Watcher>>,
    status: Option<i32>,
}

impl Broker {
    /// Starts `argv` on a rank, with its output coming to us.
    pub(super) fn spawn(
        &mut self,
        owner: Owner,
        rank: u32,
        argv: &[OsString],
        env: &[(String, String)],
        cwd: Option<&str>,
    ) -> io::Result<i32> {
        let Some((program, args)) = argv.split_first() else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .envs(env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(cwd) = cwd {
            command.current_dir(cwd);
        }
        crate::child::unblock_signals(&mut command);
        let mut child = command.spawn()?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        let mut pipes = Vec::new();
        if let Some(out) = child.stdout.take() {
            pipes.push(self.watch_pipe(pid, "stdout", out.into()));
        }
        if let Some(err) = child.stderr.take() {
            pipes.push(self.watch_pipe(pid, "stderr", err.into()));
        }
        self.processes.insert(
            pid,
            Process {
                owner,
                rank,
                pipes,
                status: None,
            },
        );
        Ok(pid)
    }

    fn watch_pipe(&self, pid: i32, stream: &'static str, fd: OwnedFd) -> Rc<Watcher> {
        let me = self.me.clone();
        let raw = fd.as_raw_fd();
        let file = std::cell::RefCell::new(std::fs::File::from(fd));
        let watcher = Watcher::new(
            &self.reactor,
            Kind::Fd(raw, POLLIN),
            Box::new(move |w, _| {
                let mut buf = vec![0; READ_SIZE];
                let n = file.borrow_mut().read(&mut buf).unwrap_or(0);
                buf.truncate(n);
                if n == 0 {
                    w.stop();
                }
                if let Some(b) = me.upgrade() {
                    b.borrow_mut().process_output(pid, stream, &buf);
                }
            }),
        );
        watcher.start();
        watcher
    }

    fn process_output(&mut self, pid: i32, stream: &str, data: &[u8]) {
        let Some(p) = self.processes.get(&pid) else {
            return;
        };
        if data.is_empty() {
            self.finish_if_done(pid);
            return;
        }
        let text = String::from_utf8_lossy(data).into_owned();
        let rank = p.rank;
        match p.owner.clone() {
            Owner::Shell { job, .. } => {
                let context = crate::fields! {
                    "component": "flux-shell",
                    "stream": stream,
                    "rank": rank.to_string(),
                    "data": text,
                };
                self.post(job, super::eventlog::EXEC, "log", Some(context));
            }
            Owner::Command { request } => {
                let out = json!({ "rank": rank, "stream": stream, "data": text });
                let payload = wire::text_payload(&out.to_string());
                self.respond(request.response(0, Some(payload)));
            }
        }
    }

    /// Reaps children whenever one ends.
    pub(super) fn watch_children(&mut self) {
        let me = self.me.clone();
        let w = Watcher::new(
            &self.reactor,
            Kind::Signal(libc::SIGCHLD),
            Box::new(move |_, _| {
                if let Some(b) = me.upgrade() {
                    b.borrow_mut().reap();
                }
            }),
        );
        w.start();
    }

    fn reap(&mut self) {
        use rustix::process::{WaitOptions, wait};
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            let status = status.as_raw();
            if let Some((initial, slot)) = &mut self.initial_program
                && *initial == pid
            {
                *slot = Some(status);
                self.reactor.stop();
            } else if let Some(p) = self.processes.get_mut(&pid) {
                p.status = Some(status);
                self.finish_if_done(pid);
            }
        }
    }

    /// Once a child has ended and all that it wrote is read, tells its owner.
    /// Pipes may stay open in its own children; those do not hold it back long.
    fn finish_if_done(&mut self, pid: i32) {
        let Some(p) = self.processes.get(&pid) else {
            return;
        };
        let Some(status) = p.status else { return };
        if p.pipes.iter().any(|w| w.is_active()) && !Self::at_end(p) {
            return;
        }
        // What it sent before it ended comes first.
        self.drain_process(pid);
        let Some(p) = self.processes.remove(&pid) else {
            return;
        };
        for w in &p.pipes {
            w.stop();
        }
        match p.owner {
            Owner::Shell { job, index } => self.shell_exited(job, index, status),
            Owner::Command { request } => {
                let out = json!({ "rank": p.rank, "status": status });
                let payload = wire::text_payload(&out.to_string());
                self.respond(request.response(0, Some(payload)));
                self.respond(request.response(libc::ENODATA.unsigned_abs(), None));
            }
        }
    }

    /// Whether a dead shell's pipes are held open by its orphans only: tasks
    /// have sockets of their own, so whatever is readable has been its own.
    fn at_end(p: &Process) -> bool {
        matches!(p.owner, Owner::Shell { .. })
            && p.pipes
                .iter()
                .filter(|w| w.is_active())
                .all(|w| match w.kind {
                    Kind::Fd(fd, _) => !readable(fd),
                    _ => true,
                })
    }

    /// Tells the broker about the program whose end is the end of all.
    pub fn set_initial_program(&mut self, pid: i32) {
        self.initial_program = Some((pid, None));
    }

    /// Wait status of the initial program, once it has ended.
    pub fn initial_status(&self) -> Option<i32> {
        self.initial_program.and_then(|(_, status)| status)
    }
}

#[expect(unsafe_code, reason = "poll(2) on a number that a watcher owns")]
fn readable(fd: i32) -> bool {
    let mut p = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&raw mut p, 1, 0) > 0 && p.revents & libc::POLLIN != 0 }
}

/// Sends a signal to a process group.
pub(super) fn signal_group(pid: i32, signum: i32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signum)) {
        let _ = kill_process_group(pid, signal);
    }
}
