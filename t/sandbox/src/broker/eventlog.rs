//! Event logs of jobs, and who watches them.

use std::ffi::CString;

use serde_json::json;

use super::{Broker, now};
use crate::fields::{Event, Fields};
use crate::wire::{self, Message};

/// The main log.
pub(super) const MAIN: &str = "eventlog";
/// What the shells and their supervisor report.
pub(super) const EXEC: &str = "guest.exec.eventlog";
/// What the tasks print.
pub(super) const OUTPUT: &str = "guest.output";
/// What the tasks read.
pub(super) const INPUT: &str = "guest.input";

/// One log: lines of JSON.
#[derive(Debug, Default)]
pub(super) struct Eventlog {
    pub(super) lines: Vec<String>,
    /// Nothing more will come.
    pub(super) closed: bool,
}

/// One who wants each entry of a log.
#[derive(Debug)]
pub(super) struct Watch {
    request: Message,
    uuid: Option<CString>,
    job: u64,
    path: String,
    next: usize,
}

impl Broker {
    /// Appends an event and tells the watchers.
    pub(super) fn post(&mut self, id: u64, path: &str, name: &str, context: Option<Fields>) {
        let event = Event {
            timestamp: now(),
            name: name.to_owned(),
            context,
        };
        self.post_line(id, path, event.line());
    }

    /// Appends a line that is made already.
    pub(super) fn post_line(&mut self, id: u64, path: &str, line: String) {
        if let Some(log) = self.jobs.get_mut(&id).and_then(|j| j.log_mut(path)) {
            log.lines.push(line);
        }
        self.tell(id, path);
    }

    /// Ends a log.
    pub(super) fn close_log(&mut self, id: u64, path: &str) {
        if let Some(log) = self.jobs.get_mut(&id).and_then(|j| j.log_mut(path)) {
            log.closed = true;
        }
        self.tell(id, path);
    }

    /// Starts a watch.
    pub(super) fn add_watch(&mut self, request: Message, job: u64, path: &str) {
        self.watches.push(Watch {
            uuid: request.routes.last().cloned(),
            request,
            job,
            path: path.to_owned(),
            next: 0,
        });
        self.tell(job, path);
    }

    /// Sends what the watchers of a log have not seen.
    fn tell(&mut self, id: u64, path: &str) {
        let Some(log) = self.jobs.get(&id).and_then(|j| j.log(path)) else {
            return;
        };
        let mut out = Vec::new();
        for w in &mut self.watches {
            if w.job != id || w.path != path {
                continue;
            }
            for line in &log.lines[w.next.min(log.lines.len())..] {
                let payload = json!({ "event": line }).to_string();
                out.push(w.request.response(0, Some(wire::text_payload(&payload))));
            }
            w.next = log.lines.len();
            if log.closed {
                out.push(w.request.response(libc::ENODATA.unsigned_abs(), None));
            }
        }
        if log.closed {
            self.watches.retain(|w| w.job != id || w.path != path);
        }
        for msg in out {
            self.respond(msg);
        }
    }

    /// Ends the watch with this tag of this client.
    pub(super) fn cancel_watch(&mut self, uuid: Option<&CString>, matchtag: u32) {
        let mut out = Vec::new();
        self.watches.retain(|w| {
            let hit = w.uuid.as_ref() == uuid && w.request.matchtag == matchtag;
            if hit {
                out.push(w.request.response(libc::ENODATA.unsigned_abs(), None));
            }
            !hit
        });
        for msg in out {
            self.respond(msg);
        }
    }

    /// Ends all watches of a client that is gone.
    pub(super) fn forget_watches(&mut self, uuid: &CString) {
        self.watches.retain(|w| w.uuid.as_ref() != Some(uuid));
    }
}
