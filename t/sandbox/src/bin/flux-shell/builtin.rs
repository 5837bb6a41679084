//! What Flux's built-in plugins do, before those that the user loads.

use std::rc::Rc;
use std::sync::Mutex;

use flux_sandbox::host::plugin::Args;
use flux_sandbox::host::reactor::Watcher;
use flux_sandbox::jobid;
use flux_sandbox::wire::{self, FLAG_NORESPONSE, Message};
use serde_json::json;

use crate::shell::Shell;
use crate::task::Task;
use crate::{doom, log, output, pmi, signals};

/// The job's directory, removed when the process that made it exits.
static TMPDIR: Mutex<Option<(u32, String)>> = Mutex::new(None);

/// Reference that a leader holds for each shell that has tasks left.
const OTHERS: &str = "other-shells";
/// Reference that a leader of others holds for itself.
const LEADER: &str = "leader";
/// Seconds that a leader stays after the last of the others.
const LINGER: f64 = 0.05;

/// The part of `shell.init`.
pub(crate) fn init(shell: &Rc<Shell>) -> Result<(), ()> {
    make_tmpdir(shell);
    pmi::init(shell)?;
    output::init(shell)?;
    signals::init(shell);
    doom::init(shell)?;
    if shell.is_leader() {
        serve_exceptions(shell)?;
        await_others(shell)?;
    }
    Ok(())
}

/// The part of `task.init`.
pub(crate) fn task_init(shell: &Rc<Shell>, task: &Rc<Task>) -> Result<(), ()> {
    pmi::task_init(shell, task)
}

/// The part of `shell.finish`.
pub(crate) fn finish(shell: &Rc<Shell>) {
    if shell.is_leader() {
        all_complete(shell);
        return;
    }
    let payload = json!({ "shell_rank": shell.info.rank }).to_string();
    let leader = shell.info.nodes[0].broker_rank;
    let topic = wire::name(&format!("{}.tasks-complete", shell.service()));
    let mut msg = Message::request(topic, Some(wire::text_payload(&payload)), leader);
    msg.flags |= FLAG_NORESPONSE;
    let _ = shell.handle.send(&msg);
}

/// The leader stays until all shells have told that their tasks are done, or
/// are lost.
fn await_others(shell: &Rc<Shell>) -> Result<(), ()> {
    if shell.info.nodes.len() > 1 {
        shell.add_ref(LEADER);
    }
    for rank in 1..shell.info.nodes.len() {
        shell.add_ref(&format!("{OTHERS}{rank}"));
    }
    let served = shell.serve("tasks-complete", |shell, msg| {
        if let Some(rank) = msg.json()["shell_rank"].as_u64() {
            other_is_done(shell, rank);
        }
    });
    served.map_err(|_| ())
}

fn other_is_done(shell: &Rc<Shell>, rank: u64) {
    let _ = shell.remove_ref(&format!("{OTHERS}{rank}"));
    all_complete(shell);
}

/// Once the tasks of all shells are done, tells the plugins of the leader.
fn all_complete(shell: &Rc<Shell>) {
    let left = shell.refs.borrow().keys().any(|k| k.starts_with(OTHERS));
    let own = shell.tasks.borrow().as_ref().map_or(0, Vec::len);
    if !left && shell.tasks_exited.get() == own {
        doom::tasks_complete();
        let _ = shell.call(c"shell.tasks-complete", None);
        linger(shell);
    }
}

/// As in Flux, where the leader has output to write, it leaves after the others.
fn linger(shell: &Rc<Shell>) {
    let weak = Rc::downgrade(shell);
    let timer = Watcher::timer(
        &shell.reactor,
        LINGER,
        0.0,
        Box::new(move |_, _| {
            if let Some(shell) = weak.upgrade() {
                let _ = shell.remove_ref(LEADER);
            }
        }),
    );
    timer.start();
}

/// The supervisor tells the leader which shell is gone.
fn serve_exceptions(shell: &Rc<Shell>) -> Result<(), ()> {
    let served = shell.serve("exception", |shell, msg| {
        let request = msg.json();
        let text = request["message"].as_str().unwrap_or("");
        if !text.is_empty() {
            log::warn_in("exception", text);
        }
        if request["type"] == "lost-shell" {
            let rank = request["shell_rank"].as_u64().unwrap_or(0);
            let args = Args::new(json!({
                "shell_rank": rank,
                "severity": request["severity"],
            }));
            doom::shell_lost(shell, rank);
            let _ = shell.call(c"shell.lost", Some(&args));
            other_is_done(shell, rank);
        }
        if !msg.has(FLAG_NORESPONSE) {
            let _ = shell.handle.send(&msg.response(0, None));
        }
    });
    served.map_err(|_| ())
}

fn make_tmpdir(shell: &Rc<Shell>) {
    let name = format!("jobtmp-{}-{}", shell.info.rank, jobid::f58(shell.info.id));
    let rundir = shell.handle.attr_string("rundir").unwrap_or_default();
    let tmp = shell.getenv("TMPDIR").unwrap_or_else(|| "/tmp".to_owned());
    let made = [rundir, tmp].into_iter().find_map(|parent| {
        let path = format!("{parent}/{name}");
        use std::os::unix::fs::DirBuilderExt;
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Some(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Some(path),
            Err(_) => None,
        }
    });
    let Some(path) = made else {
        log::die(1, Some("tmpdir"), "error creating FLUX_JOB_TMPDIR");
    };
    if let Ok(mut slot) = TMPDIR.lock() {
        *slot = Some((std::process::id(), path.clone()));
    }
    remove_tmpdir_at_exit();
    shell.setenv("FLUX_JOB_TMPDIR", &path);
}

#[expect(unsafe_code, reason = "plugins end the process with exit(3)")]
fn remove_tmpdir_at_exit() {
    extern "C" fn remove() {
        if let Ok(mut slot) = TMPDIR.lock()
            && let Some((pid, path)) = slot.take()
            // A forked child that failed to exec must not clean up.
            && pid == std::process::id()
        {
            let _ = std::fs::remove_dir_all(path);
        }
    }
    // SAFETY: the handler is a plain function that needs nothing of ours that
    // could be gone at exit.
    unsafe { libc::atexit(remove) };
}
