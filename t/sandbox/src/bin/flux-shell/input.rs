//! What tasks read: the job's input log, written by whoever is attached.

use std::io::Write;
use std::rc::Rc;

use flux_sandbox::capi::job::event_watch;
use flux_sandbox::errno::Errno;
use flux_sandbox::fields::Event;
use flux_sandbox::host::future::Future;
use flux_sandbox::host::rpc;
use flux_sandbox::{base64, idset};

use crate::shell::Shell;
use crate::task::Task;

/// Starts watching when the first task is there.
pub(crate) fn task_started(shell: &Rc<Shell>, task: &Rc<Task>) {
    if task.index != 0 {
        return;
    }
    let Ok(f) = event_watch(&shell.handle, shell.info.id, "guest.input", 0) else {
        return;
    };
    let weak = Rc::downgrade(shell);
    // The future lives until its stream ends, or the process.
    let _ = f.then(
        -1.0,
        Rc::new(move |f| match (weak.upgrade(), next(f)) {
            (Some(shell), Ok(event)) => {
                feed(&shell, &event);
                f.reset();
            }
            _ => f.destroy(),
        }),
    );
    std::mem::forget(f);
}

fn next(f: &Rc<Future>) -> Result<Event, Errno> {
    let msg = rpc::get(f)?.ok_or(Errno(libc::EPROTO))?;
    let json = msg.json();
    let line = json["event"].as_str().unwrap_or("");
    Event::parse(line).ok_or(Errno(libc::EPROTO))
}

fn feed(shell: &Shell, event: &Event) {
    if event.name != "data" {
        return;
    }
    let ranks = match event.get("rank").as_str() {
        None | Some("all") => None,
        Some(ids) => idset::parse(ids),
    };
    let data = event.get("data").as_str().unwrap_or("");
    let data = if event.get("encoding") == "base64" {
        base64::decode(data).unwrap_or_default()
    } else {
        data.as_bytes().to_vec()
    };
    for task in shell.tasks.borrow().iter().flatten() {
        if ranks.as_ref().is_some_and(|r| !r.contains(&task.rank)) {
            continue;
        }
        let mut stdin = task.stdin.borrow_mut();
        if let Some(fd) = &*stdin
            && let Ok(fd) = fd.try_clone()
        {
            // A task that has ended, or does not read, is its own fault.
            let _ = std::fs::File::from(fd).write_all(&data);
        }
        if event.get("eof") == true {
            *stdin = None;
        }
    }
}
