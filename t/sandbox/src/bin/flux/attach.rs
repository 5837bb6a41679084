//! Following a job: its events, what its tasks print, its exit code.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;

use flux_sandbox::base64;
use flux_sandbox::capi::job::event_watch;
use flux_sandbox::errno::Errno;
use flux_sandbox::fields::Event;
use flux_sandbox::host::future::Future;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::host::reactor::{Kind, Watcher};
use flux_sandbox::jobid;
use serde_json::json;

use crate::fail::{Fail, Outcome, complain};
use crate::stdin;
use crate::watch::{call, next_event, status_code, status_text};

/// What to show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attach {
    pub(crate) label_io: bool,
    pub(crate) quiet: bool,
    pub(crate) show_events: bool,
    pub(crate) show_exec: bool,
    /// Neither read stdin nor catch signals.
    pub(crate) read_only: bool,
    /// Read this instead of stdin.
    pub(crate) input: Option<String>,
    /// The job as the user spelled it.
    pub(crate) name: Option<String>,
}

struct Session {
    h: Rc<Handle>,
    id: u64,
    name: String,
    options: Attach,
    zero: Cell<f64>,
    code: Cell<i32>,
    fatal: Cell<bool>,
    /// Event logs that are still being read.
    open: Cell<u32>,
    output_started: Cell<bool>,
    failure: RefCell<Option<Fail>>,
    last_interrupt: Cell<f64>,
    watchers: RefCell<Vec<Rc<Watcher>>>,
}

/// Labels of log levels.
const LEVELS: [&str; 8] = [
    ": FATAL", ": FATAL", ": FATAL", ": ERROR", ":  WARN", "", ": DEBUG", ": TRACE",
];

/// Seconds in which a second Ctrl-C means it.
const INTERRUPT_WINDOW: f64 = 2.0;

/// Follows a job until all its logs end; the exit code of the job.
pub(crate) fn attach(h: &Rc<Handle>, id: u64, options: &Attach) -> Outcome {
    let name = options.name.clone();
    let s = Rc::new(Session {
        h: Rc::clone(h),
        id,
        name: name.unwrap_or_else(|| jobid::f58(id)),
        options: options.clone(),
        zero: Cell::new(0.0),
        code: Cell::new(1),
        fatal: Cell::new(false),
        open: Cell::new(0),
        output_started: Cell::new(false),
        failure: RefCell::new(None),
        last_interrupt: Cell::new(f64::NEG_INFINITY),
        watchers: RefCell::default(),
    });
    s.follow("eventlog", Session::main_event);
    if !options.read_only {
        s.catch_signals();
    }
    if let Err(e) = h.reactor().run(0) {
        return Err(Fail::new(format!("flux-job: flux_reactor_run: {e}")));
    }
    if let Some(fail) = s.failure.take() {
        return Err(fail);
    }
    if s.fatal.get() && s.code.get() == 0 {
        s.code.set(1);
    }
    Ok(s.code.get())
}

impl Session {
    fn follow(self: &Rc<Self>, path: &str, handle: fn(&Rc<Self>, &Event)) {
        let f = match event_watch(&self.h, self.id, path, 0) {
            Ok(f) => f,
            Err(e) => return self.fail(&format!("flux_job_event_watch: {e}")),
        };
        self.open.set(self.open.get() + 1);
        let s = Rc::clone(self);
        let started = f.then(
            -1.0,
            Rc::new(move |f: &Rc<Future>| match next_event(f) {
                Ok(Some(event)) => {
                    handle(&s, &event);
                    f.reset();
                }
                Ok(None) => {
                    f.destroy();
                    s.one_closed();
                }
                Err(e) => {
                    f.destroy();
                    s.watch_failed(e);
                    s.one_closed();
                }
            }),
        );
        if let Err(e) = started {
            self.fail(&format!("flux_future_then: {e}"));
        }
        // The continuation destroys it.
        std::mem::forget(f);
    }

    fn watch_failed(&self, e: Errno) {
        match e.0 {
            libc::ENOENT => {
                let text = format!("Failed to attach to {}: No such job", self.name);
                self.fail(&text);
            }
            libc::EPERM => {
                let text = format!("Failed to attach to {}: that is not your job", self.name);
                self.fail(&text);
            }
            _ => self.fail(&format!("flux_job_event_watch_get: {e}")),
        }
    }

    fn fail(&self, text: &str) {
        *self.failure.borrow_mut() = Some(Fail::new(format!("flux-job: {text}")));
    }

    fn one_closed(&self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            for w in self.watchers.borrow().iter() {
                w.stop();
            }
            self.h.reactor().stop();
        }
    }

    fn since_start(&self, event: &Event) -> f64 {
        event.timestamp - self.zero.get()
    }

    fn show(&self, log: &str, event: &Event) {
        let context = event
            .context
            .as_ref()
            .map(|c| format!(" {c}"))
            .unwrap_or_default();
        let at = self.since_start(event);
        complain(&format!("{at:.3}s: {log}.{}{context}", event.name));
    }

    fn main_event(self: &Rc<Self>, event: &Event) {
        if self.zero.get() == 0.0 {
            self.zero.set(event.timestamp);
        }
        match event.name.as_str() {
            "submit" => self.follow("guest.exec.eventlog", Self::exec_event),
            "exception" => {
                let severity = event.get("severity").as_i64().unwrap_or(0);
                complain(&format!(
                    "{:.3}s: job.exception {} type={} severity={severity} {}",
                    self.since_start(event),
                    self.name,
                    event.get("type").as_str().unwrap_or(""),
                    event.get("note").as_str().unwrap_or("")
                ));
                self.fatal.set(severity == 0);
            }
            "finish" => {
                let status = event.get("status").as_i64().unwrap_or(0);
                let status = i32::try_from(status).unwrap_or(0);
                self.code.set(status_code(status));
                if let Some(text) = status_text(status) {
                    complain(&format!("flux-job: {text}"));
                }
            }
            _ => {}
        }
        if self.options.show_events && event.name != "exception" {
            self.show("job", event);
        }
    }

    fn exec_event(self: &Rc<Self>, event: &Event) {
        match event.name.as_str() {
            "shell.init" | "complete" => {
                if !self.output_started.replace(true) {
                    self.follow("guest.output", Self::output_event);
                }
                if event.name == "shell.init" && !self.options.read_only {
                    let w = stdin::forward(&self.h, self.id, self.options.input.as_deref());
                    self.watchers.borrow_mut().extend(w);
                }
            }
            "log" => {
                let mut err = std::io::stderr();
                if !self.options.quiet {
                    let word = |key: &str| event.get(key).as_str().unwrap_or("").to_owned();
                    let _ = write!(
                        err,
                        "{:.3}s: {}[{}]: {}: ",
                        self.since_start(event),
                        word("component"),
                        word("rank"),
                        word("stream")
                    );
                }
                let data = event.get("data").as_str().unwrap_or("");
                let _ = err.write_all(data.as_bytes());
            }
            _ => {}
        }
        if self.options.show_exec && event.name != "log" {
            self.show("exec", event);
        }
    }

    fn output_event(self: &Rc<Self>, event: &Event) {
        match event.name.as_str() {
            "data" => self.print_data(event),
            "log" if !self.options.quiet => self.print_log(event),
            "redirect" if !self.options.quiet => {
                let path = event.get("path").as_str().unwrap_or("");
                complain(&format!(
                    "{}: {} redirected to {path}",
                    event.get("rank").as_str().unwrap_or("?"),
                    event.get("stream").as_str().unwrap_or("?")
                ));
            }
            _ => {}
        }
    }

    fn print_data(&self, event: &Event) {
        let Some(data) = event.get("data").as_str() else {
            return;
        };
        let data = if event.get("encoding") == "base64" {
            base64::decode(data).unwrap_or_default()
        } else {
            data.as_bytes().to_vec()
        };
        let mut line = Vec::new();
        if self.options.label_io {
            line.extend(event.get("rank").as_str().unwrap_or("?").as_bytes());
            line.extend(b": ");
        }
        line.extend(data);
        let _ = if event.get("stream") == "stdout" {
            let mut out = std::io::stdout();
            out.write_all(&line).and_then(|()| out.flush())
        } else {
            std::io::stderr().write_all(&line)
        };
    }

    fn print_log(&self, event: &Event) {
        let level = event.get("level").as_u64().unwrap_or(0);
        let label = LEVELS[usize::try_from(level).unwrap_or(0).min(LEVELS.len() - 1)];
        let rank = event
            .get("rank")
            .as_i64()
            .map(|r| format!("[{r}]"))
            .unwrap_or_default();
        let component = event
            .get("component")
            .as_str()
            .map(|c| format!(": {c}"))
            .unwrap_or_default();
        complain(&format!(
            "{:.3}s: flux-shell{rank}{label}{component}: {}",
            self.since_start(event),
            event.get("message").as_str().unwrap_or("")
        ));
    }

    fn catch_signals(self: &Rc<Self>) {
        let r = self.h.reactor();
        let forwarded = [
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGALRM,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ];
        for signum in forwarded.into_iter().chain([libc::SIGINT]) {
            let s = Rc::clone(self);
            let w = Watcher::new(
                &r,
                Kind::Signal(signum),
                Box::new(move |_, _| {
                    if signum == libc::SIGINT {
                        s.interrupted();
                    } else {
                        let request = json!({ "id": s.id, "signum": signum });
                        let _ = call(&s.h, "job-manager.kill", &request);
                    }
                }),
            );
            w.start();
            self.watchers.borrow_mut().push(w);
        }
    }

    /// The first Ctrl-C warns, a second one soon after cancels.
    fn interrupted(&self) {
        let r = self.h.reactor();
        if r.now() - self.last_interrupt.replace(r.now()) <= INTERRUPT_WINDOW {
            let request = json!({
                "id": self.id, "type": "cancel", "severity": 0, "note": "interrupted by ctrl-C",
            });
            let _ = call(&self.h, "job-manager.raise", &request);
        } else {
            complain("flux-job: one more ctrl-C within 2s to cancel or ctrl-Z to detach");
        }
    }
}
