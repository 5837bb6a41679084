//! When one task or shell ends early, the others get some time, then the job
//! ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flux_sandbox::fields::Fields;
use flux_sandbox::fsd;
use flux_sandbox::host::reactor::Watcher;
use flux_sandbox::wire::{self, FLAG_NORESPONSE, Message};
use serde_json::Value;

use crate::log;
use crate::shell::Shell;
use crate::task::{Task, exit_code};

const COMPONENT: &str = "task-exit";
/// Seconds that the others get.
const DEFAULT_TIMEOUT: f64 = 30.0;

/// Who ended first.
#[derive(Clone, Debug)]
struct First {
    /// Task rank, or shell rank of a shell that is lost.
    rank: u64,
    code: i32,
    status: Option<i32>,
    lost_shell: bool,
}

#[derive(Default)]
struct Doom {
    done: Cell<bool>,
    timeout: Cell<Option<f64>>,
    exit_on_error: Cell<bool>,
    timer: RefCell<Option<Rc<Watcher>>>,
    first: RefCell<Option<First>>,
}

thread_local!(static DOOM: Doom = Doom::default());

/// Reads the options; on the leader, listens to the other shells.
pub(crate) fn init(shell: &Rc<Shell>) -> Result<(), ()> {
    let timeout = match shell.option("exit-timeout") {
        None => Some(DEFAULT_TIMEOUT),
        Some(Value::String(s)) if s.eq_ignore_ascii_case("none") => None,
        Some(value) => {
            let seconds = match &value {
                Value::String(s) => fsd::parse(s),
                other => other.as_f64().filter(|n| *n >= 0.0),
            };
            match seconds {
                Some(s) => Some(s).filter(|s| s.is_finite()),
                None => {
                    let text = "exit-timeout is not a valid Flux Standard Duration";
                    log::error_in(COMPONENT, text);
                    return Err(());
                }
            }
        }
    };
    DOOM.with(|d| {
        d.timeout.set(timeout);
        d.exit_on_error.set(shell.option("exit-on-error").is_some());
    });
    if shell.is_leader() {
        let served = shell.serve("doom", |shell, msg| {
            if !DOOM.with(|d| d.done.replace(true)) {
                first_exit(shell, msg.text().unwrap_or("{}"));
            }
        });
        served.map_err(|_| ())?;
    }
    Ok(())
}

/// A task of this shell has ended.
pub(crate) fn task_exited(shell: &Rc<Shell>, task: &Rc<Task>) {
    if DOOM.with(|d| d.done.replace(true)) {
        return;
    }
    let info = in_order(&task.to_json());
    if shell.is_leader() {
        first_exit(shell, &info);
        return;
    }
    let topic = wire::name(&format!("{}.doom", shell.service()));
    let leader = shell.info.nodes[0].broker_rank;
    let mut msg = Message::request(topic, Some(wire::text_payload(&info)), leader);
    msg.flags |= FLAG_NORESPONSE;
    let _ = shell.handle.send(&msg);
}

/// A task's description with its keys in the order of Flux.
fn in_order(info: &Value) -> String {
    const KEYS: [&str; 7] = [
        "localid",
        "rank",
        "state",
        "pid",
        "wait_status",
        "signaled",
        "exitcode",
    ];
    let known = KEYS.iter().filter(|k| !info[**k].is_null());
    Fields(known.map(|k| ((*k).to_owned(), info[*k].clone())).collect()).to_string()
}

fn first_exit(shell: &Rc<Shell>, info: &str) {
    let info = Fields::parse(info).unwrap_or_default();
    shell.post_later("guest.exec.eventlog", "shell.task-exit", info.clone());
    let status = info
        .get("wait_status")
        .as_i64()
        .and_then(|n| i32::try_from(n).ok());
    check(
        shell,
        First {
            rank: info.get("rank").as_u64().unwrap_or(0),
            code: status.map_or(1, exit_code),
            status,
            lost_shell: false,
        },
    );
}

/// A shell is gone.
pub(crate) fn shell_lost(shell: &Rc<Shell>, rank: u64) {
    check(
        shell,
        First {
            rank,
            code: 1,
            status: None,
            lost_shell: true,
        },
    );
}

/// The tasks of all shells are done: nobody is waited for any more.
pub(crate) fn tasks_complete() {
    DOOM.with(|d| {
        if let Some(t) = &*d.timer.borrow() {
            t.stop();
        }
    });
}

fn check(shell: &Rc<Shell>, first: First) {
    let fatal = DOOM.with(|d| {
        let fatal = d.exit_on_error.get() && first.code != 0;
        *d.first.borrow_mut() = Some(first.clone());
        fatal
    });
    if fatal {
        let text = describe(shell, &first, "failed");
        fail(shell, &first, &format!("{text} and exit-on-error is set"));
    }
    let Some(timeout) = DOOM.with(|d| d.timeout.get()) else {
        return;
    };
    let weak = Rc::downgrade(shell);
    let timer = Watcher::timer(
        &shell.reactor,
        timeout,
        0.0,
        Box::new(move |_, _| {
            let first = DOOM.with(|d| d.first.borrow().clone());
            if let (Some(shell), Some(first)) = (weak.upgrade(), first) {
                let text = describe(&shell, &first, "exited");
                let limit = fsd::format(timeout);
                let text = format!("{text} and exit-timeout={limit} has expired");
                fail(&shell, &first, &text);
            }
        }),
    );
    DOOM.with(|d| {
        let mut slot = d.timer.borrow_mut();
        if slot.as_ref().is_none_or(|t| !t.is_active()) {
            timer.start();
            *slot = Some(timer);
        }
    });
}

fn describe(shell: &Shell, first: &First, verb: &str) -> String {
    let what = if first.lost_shell { "shell" } else { "task" };
    let how = match first.status {
        None => String::new(),
        Some(s) if libc::WIFSIGNALED(s) => {
            format!(" (Signal {})", libc::WTERMSIG(s))
        }
        Some(s) => format!(" (Exit {})", libc::WEXITSTATUS(s)),
    };
    format!(
        "{}: {what} rank {} on host {} {verb}{how}",
        shell.info.program(),
        first.rank,
        shell.info.hostname
    )
}

fn fail(shell: &Rc<Shell>, first: &First, text: &str) -> ! {
    shell.raise("exec", 0, first.status.unwrap_or(-1), text);
    log::die(first.code, Some(COMPONENT), text)
}
