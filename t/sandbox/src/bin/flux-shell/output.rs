//! What tasks print: line by line into the job's output log.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use flux_sandbox::errno::Errno;
use flux_sandbox::fields;
use flux_sandbox::host::reactor::{Kind, POLLIN, Watcher};
use flux_sandbox::idset;

use serde_json::json;

use crate::shell::Shell;
use crate::task::{self, Task};
use crate::{log, render};

/// The job's output log.
const PATH: &str = "guest.output";
/// A line that grows beyond this is passed on in pieces.
const MAX_LINE: usize = 64 * 1024;

/// Where the two streams go instead, if the job says so.
struct Files {
    stdout: Option<String>,
    stderr: Option<String>,
}

thread_local!(static FILES: RefCell<Files> = const {
    RefCell::new(Files { stdout: None, stderr: None })
});

/// Reads where output goes. The leader makes files empty and says where they
/// are; without one of its own, stderr goes where stdout does.
pub(crate) fn init(shell: &Rc<Shell>) -> Result<(), ()> {
    let option = shell.option("output").unwrap_or_default();
    let path = |stream: &str| {
        let it = &option[stream];
        let path = it["path"].as_str().filter(|_| it["type"] == "file")?;
        Some(render::render_text(shell, path))
    };
    let stdout = path("stdout");
    let stderr = path("stderr").or_else(|| stdout.clone());
    if shell.is_leader() {
        write_header(shell);
        let all = idset::format_brackets(0..shell.info.ntasks);
        for (stream, path) in [("stdout", &stdout), ("stderr", &stderr)] {
            let Some(path) = path else { continue };
            if let Err(e) = File::create(path) {
                let e = Errno::from(e);
                log::error_in(
                    "output",
                    &format!("error opening output file '{path}': {e}"),
                );
                return Err(());
            }
            let context = fields! { "stream": stream, "rank": all, "path": path };
            shell.post_later(PATH, "redirect", context);
        }
    }
    FILES.with_borrow_mut(|f| *f = Files { stdout, stderr });
    Ok(())
}

/// The leader says what the log holds.
fn write_header(shell: &Shell) {
    let context = fields! {
        "version": 1,
        "encoding": json!({"stdout": "UTF-8", "stderr": "UTF-8"}),
        "count": json!({"stdout": shell.info.ntasks, "stderr": shell.info.ntasks}),
        "options": json!({}),
    };
    shell.post_later(PATH, "header", context);
}

/// Passes on one stream of a task.
pub(crate) fn watch(shell: &Rc<Shell>, task: &Rc<Task>, stream: &'static str, fd: OwnedFd) {
    let raw = fd.as_raw_fd();
    let file = RefCell::new(File::from(fd));
    let pending = RefCell::new(Vec::new());
    let weak = (Rc::downgrade(shell), Rc::downgrade(task));
    let watcher = Watcher::new(
        &shell.reactor,
        Kind::Fd(raw, POLLIN),
        Box::new(move |w, _| {
            let (Some(shell), Some(task)) = (weak.0.upgrade(), weak.1.upgrade()) else {
                w.stop();
                return;
            };
            let mut buf = vec![0; MAX_LINE];
            let n = file.borrow_mut().read(&mut buf).unwrap_or(0);
            let mut pending = pending.borrow_mut();
            pending.extend_from_slice(&buf[..n]);
            while let Some(end) = pending.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                post(&shell, &task, stream, &line, false);
            }
            if n == 0 || pending.len() >= MAX_LINE {
                let rest = std::mem::take(&mut *pending);
                if !rest.is_empty() {
                    post(&shell, &task, stream, &rest, false);
                }
            }
            if n == 0 {
                w.stop();
                post(&shell, &task, stream, b"", true);
                task.open_streams.set(task.open_streams.get() - 1);
                task::complete_if_done(&shell, &task);
            }
        }),
    );
    watcher.start();
}

/// With stderr in a file, log messages go there too. False when it is not.
pub(crate) fn log_to_file(rank: usize, label: &str, text: &str) -> bool {
    let path = FILES.try_with(|f| f.borrow().stderr.clone()).ok().flatten();
    let Some(path) = path else { return false };
    let line = format!("flux-shell[{rank}]: {label}: {text}\n");
    OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut f| f.write_all(line.as_bytes()))
        .is_ok()
}

fn post(shell: &Shell, task: &Task, stream: &str, data: &[u8], eof: bool) {
    let file = FILES.with_borrow(|f| match stream {
        "stdout" => f.stdout.clone(),
        _ => f.stderr.clone(),
    });
    if let Some(path) = file {
        // One write each: the shells of a job share the file.
        let written = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut f| f.write_all(data));
        if let Err(e) = written {
            log::error_in("output", &format!("{path}: {}", Errno::from(e)));
        }
        if !eof {
            return;
        }
    }
    let rank = task.rank.to_string();
    let mut context = fields! { "stream": stream, "rank": rank };
    context.push_data(data, eof);
    shell.post_later(PATH, "data", context);
}
