//! Tasks: the user's processes.
#![expect(unsafe_code, reason = "runs plugin code between fork and exec")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::rc::Rc;

use flux_sandbox::errno::Errno;
use flux_sandbox::wire;
use serde_json::{Value, json};

use crate::shell::Shell;
use crate::{log, output};

/// Command line and environment of a task; a `flux_cmd_t` to C.
#[derive(Debug)]
pub(crate) struct Cmd {
    argv: RefCell<Vec<String>>,
    env: RefCell<BTreeMap<String, CString>>,
}

impl Cmd {
    /// Sets a variable.
    pub(crate) fn setenv(&self, name: &str, value: &(impl AsRef<[u8]> + ?Sized)) {
        self.env
            .borrow_mut()
            .insert(name.to_owned(), wire::name(value));
    }

    /// Whether a variable is set.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.env.borrow().contains_key(name)
    }

    /// Removes a variable.
    pub(crate) fn unsetenv(&self, name: &str) {
        self.env.borrow_mut().remove(name);
    }

    /// The program.
    pub(crate) fn program(&self) -> String {
        self.argv.borrow().first().cloned().unwrap_or_default()
    }

    /// Passes each argument with a tag through `render`.
    pub(crate) fn render_argv(&self, render: impl Fn(&str) -> String) {
        for arg in self.argv.borrow_mut().iter_mut() {
            if arg.contains("{{") {
                *arg = render(arg);
            }
        }
    }
}

/// One task; a `flux_shell_task_t` to C.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) index: u32,
    pub(crate) rank: u32,
    pub(crate) cmd: Cmd,
    pub(crate) pid: Cell<Option<i32>>,
    /// Wait status, once it has ended.
    pub(crate) status: Cell<Option<i32>>,
    /// Exit code, with 128 + signal for one that was killed.
    pub(crate) rc: Cell<i32>,
    pub(crate) open_streams: Cell<u32>,
    pub(crate) stdin: RefCell<Option<OwnedFd>>,
    /// More descriptors that the task gets, under their numbers here.
    pub(crate) extra: RefCell<Vec<OwnedFd>>,
    completed: Cell<bool>,
}

impl Task {
    /// A task that is not started.
    pub(crate) fn new(
        index: u32,
        rank: u32,
        command: &[String],
        env: BTreeMap<String, CString>,
    ) -> Rc<Self> {
        Rc::new(Self {
            index,
            rank,
            cmd: Cmd {
                argv: RefCell::new(command.to_vec()),
                env: RefCell::new(env),
            },
            pid: Cell::new(None),
            status: Cell::new(None),
            rc: Cell::new(0),
            open_streams: Cell::new(0),
            stdin: RefCell::new(None),
            extra: RefCell::default(),
            completed: Cell::new(false),
        })
    }

    /// Sends a signal to its process group, if it runs.
    pub(crate) fn kill(&self, signum: i32) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if self.status.get().is_none()
            && let Some(pid) = self.pid.get().and_then(Pid::from_raw)
            && let Some(signal) = Signal::from_named_raw(signum)
        {
            let _ = kill_process_group(pid, signal);
        }
    }

    /// The object of `flux_shell_task_get_info`.
    pub(crate) fn to_json(&self) -> Value {
        let state = match (self.pid.get(), self.status.get()) {
            (None, _) => "Init",
            (Some(_), None) => "Running",
            (Some(_), Some(_)) => "Exited",
        };
        let mut o = json!({ "localid": self.index, "rank": self.rank, "state": state });
        if let Some(pid) = self.pid.get() {
            o["pid"] = pid.into();
        }
        if let Some(status) = self.status.get() {
            let signaled = if libc::WIFSIGNALED(status) {
                libc::WTERMSIG(status)
            } else {
                0
            };
            o["wait_status"] = status.into();
            o["signaled"] = signaled.into();
            o["exitcode"] = exit_code(status).into();
        }
        o
    }
}

/// Exit code of a wait status, 128 + signal for one that was killed.
pub(crate) fn exit_code(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    }
}

/// Starts a task in a process group of its own, with sockets as standard
/// streams.
pub(crate) fn start(shell: &Rc<Shell>, task: &Rc<Task>) -> Result<(), Errno> {
    let (stdin, stdin_end) = UnixStream::pair()?;
    let (stdout, stdout_end) = UnixStream::pair()?;
    let (stderr, stderr_end) = UnixStream::pair()?;
    let program = task.cmd.program();
    let mut command = Command::new(&program);
    command
        .args(task.cmd.argv.borrow().iter().skip(1))
        .env_clear()
        .envs(
            task.cmd
                .env
                .borrow()
                .iter()
                .map(|(k, v)| (k.as_str(), OsStr::from_bytes(v.as_bytes()))),
        )
        .stdin(OwnedFd::from(stdin_end))
        .stdout(OwnedFd::from(stdout_end))
        .stderr(OwnedFd::from(stderr_end))
        .process_group(0);
    let extra: Vec<i32> = task.extra.borrow().iter().map(AsRawFd::as_raw_fd).collect();
    let in_child = Rc::clone(shell);
    let prepare = SendBox(Box::new(move || {
        for fd in &extra {
            // SAFETY: changes a flag of a descriptor of this process.
            unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) };
        }
        flux_sandbox::child::reset_mask();
        let _ = in_child.call(c"task.exec", None);
    }));
    // SAFETY: this runs in the child of a fork. As in Flux, plugins that handle
    // "task.exec" know that; the shell itself only copies descriptors.
    unsafe {
        command.pre_exec(move || {
            prepare.call();
            Ok(())
        });
    }
    let child = command.spawn()?;
    task.extra.take();
    task.pid.set(Some(i32::try_from(child.id()).unwrap_or(0)));
    *task.stdin.borrow_mut() = Some(stdin.into());
    task.open_streams.set(2);
    output::watch(shell, task, "stdout", stdout.into());
    output::watch(shell, task, "stderr", stderr.into());
    crate::input::task_started(shell, task);
    Ok(())
}

/// A closure that is called in the forked child, which has one thread only.
struct SendBox(Box<dyn Fn()>);

// SAFETY: `pre_exec` asks for Send and Sync, but calls the closure in the child
// that the calling thread forks, and nowhere else.
unsafe impl Send for SendBox {}
// SAFETY: as above.
unsafe impl Sync for SendBox {}

impl SendBox {
    fn call(&self) {
        (self.0)();
    }
}

/// Takes the status of children that have ended.
pub(crate) fn reap(shell: &Rc<Shell>) {
    use rustix::process::{Pid, WaitOptions, waitpid};
    let tasks: Vec<_> = shell.tasks.borrow().iter().flatten().cloned().collect();
    for task in tasks {
        if task.status.get().is_some() {
            continue;
        }
        let Some(pid) = task.pid.get().and_then(Pid::from_raw) else {
            continue;
        };
        if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
            task.status.set(Some(status.as_raw()));
            complete_if_done(shell, &task);
        }
    }
}

/// Once a task has ended and all its output is read, tells everybody.
pub(crate) fn complete_if_done(shell: &Rc<Shell>, task: &Rc<Task>) {
    let Some(status) = task.status.get() else {
        return;
    };
    if task.open_streams.get() > 0 || task.completed.replace(true) {
        return;
    }
    task.rc.set(exit_code(status));
    log::debug(&format!(
        "task {} complete status={}",
        task.rank,
        task.rc.get()
    ));
    *shell.current.borrow_mut() = Some(Rc::clone(task));
    crate::doom::task_exited(shell, task);
    if shell.call(c"task.exit", None).is_err() {
        log::error("task.exit plugin(s) failed");
    }
    *shell.current.borrow_mut() = None;
    let _ = shell.remove_ref(&format!("task{}", task.rank));
    let exited = shell.tasks_exited.get() + 1;
    shell.tasks_exited.set(exited);
    if exited == shell.tasks.borrow().as_ref().map_or(0, Vec::len) {
        crate::builtin::finish(shell);
        if shell.call(c"shell.finish", None).is_err() {
            log::error("shell.finish");
        }
    }
}
