//! Running a job: one shell per node, their barrier, how they are stopped.

use std::ffi::OsString;

use super::Broker;
use super::eventlog::{EXEC, MAIN};
use super::process::{Owner, signal_group};
use super::router::Reply;
use crate::child::signal_text;
use crate::fields;
use crate::idset;
use crate::jobid::{self, Form};
use crate::wire::{self, Kind, Message, NODEID_ANY};

/// How many times longer it takes until shells are killed than until tasks are.
const SHELL_KILL_FACTOR: f64 = 5.0;
/// Longest pause between kills of shells.
const MAX_KILL_TIMEOUT: f64 = 300.0;

/// One shell.
#[derive(Debug)]
pub(super) struct Shell {
    pid: i32,
    status: Option<i32>,
}

/// How a job runs.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) shells: Vec<Shell>,
    /// The largest wait status.
    pub(super) status: i32,
    entered: Vec<Message>,
    first_barrier_done: bool,
    terminated_before_barrier: bool,
    exits: usize,
    killing: bool,
    /// What the first fatal exception says that the job's status is.
    blamed: Option<i32>,
}

impl Run {
    /// The task with this wait status is why the job fails.
    pub(super) fn blame(&mut self, status: i32) {
        let code = if libc::WIFSIGNALED(status) {
            128 + libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        };
        self.blamed = Some(code << 8);
    }
}

impl Broker {
    /// Starts the shells of a job that has its resources.
    pub(super) fn launch(&mut self, id: u64) {
        self.post(id, EXEC, "init", None);
        self.post(id, EXEC, "starting", None);
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let ranks: Vec<u32> = job.nodes.iter().map(|n| n.rank).collect();
        let duration = job.system("/duration").as_f64().unwrap_or(0.0);
        let argv: [OsString; 2] = [self.config.shell.clone().into(), id.to_string().into()];
        for (index, rank) in ranks.into_iter().enumerate() {
            let env = [
                ("FLUX_URI".to_owned(), self.uri(rank)),
                ("FLUX_KVS_NAMESPACE".to_owned(), format!("job-{id}")),
            ];
            let pid = match self.spawn(Owner::Shell { job: id, index }, rank, &argv, &env, None)
            {
                Ok(pid) => pid,
                Err(e) => {
                    let note = format!(
                        "job shell exec error on broker {} (rank {rank}): {e}",
                        self.host(rank)
                    );
                    self.fail_run(id, &note);
                    0
                }
            };
            if let Some(job) = self.jobs.get_mut(&id) {
                let status = (pid == 0).then_some(127 << 8);
                job.run.shells.push(Shell { pid, status });
            }
        }
        self.post(id, MAIN, "start", None);
        if duration > 0.0 {
            let timer = self.after(duration, move |b| b.time_is_up(id));
            if let Some(job) = self.jobs.get_mut(&id) {
                job.timers.push(timer);
            }
        }
        self.complete_if_done(id);
    }

    fn time_is_up(&mut self, id: u64) {
        let uid = self.uid;
        let context = fields! {
            "type": "timeout",
            "severity": 0,
            "note": "resource allocation expired",
            "userid": uid,
        };
        self.post(id, MAIN, "exception", Some(context));
        if let Some(job) = self.jobs.get_mut(&id) {
            job.failed = true;
        }
        self.cancel_run(id, libc::SIGALRM);
    }

    /// Raises an exception about the run itself.
    fn fail_run(&mut self, id: u64, note: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.failed {
            self.cancel_run(id, libc::SIGTERM);
            return;
        }
        let uid = self.uid;
        let context = fields! {
            "type": "exec", "severity": 0, "userid": uid, "note": note,
        };
        self.exception(id, 0, context);
    }

    /// Signals the shells; what does not heed is killed later.
    pub(super) fn cancel_run(&mut self, id: u64, signum: i32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let again = std::mem::replace(&mut job.run.killing, true);
        self.signal_shells(id, signum);
        if again {
            return;
        }
        self.kill_tasks_later(id);
        let timeout = self.config.knobs.kill_timeout;
        self.kill_shells_later(id, timeout * SHELL_KILL_FACTOR, timeout);
    }

    fn kill_tasks_later(&mut self, id: u64) {
        let timer = self.after(self.config.knobs.kill_timeout, move |b| {
            b.kill_tasks(id, libc::SIGKILL);
            b.kill_tasks_later(id);
        });
        self.keep_timer(id, timer);
    }

    fn kill_shells_later(&mut self, id: u64, after: f64, step: f64) {
        let timer = self.after(after, move |b| {
            b.signal_shells(id, libc::SIGKILL);
            let step = (step * 2.0).min(MAX_KILL_TIMEOUT);
            b.kill_shells_later(id, step, step);
        });
        self.keep_timer(id, timer);
    }

    fn keep_timer(&mut self, id: u64, timer: std::rc::Rc<crate::host::reactor::Watcher>) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.timers.retain(|t| t.is_active());
            job.timers.push(timer);
        }
    }

    fn signal_shells(&self, id: u64, signum: i32) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        for shell in job.run.shells.iter().filter(|s| s.status.is_none()) {
            signal_group(shell.pid, signum);
        }
    }

    /// Tells the shells to signal their tasks.
    pub(super) fn kill_tasks(&mut self, id: u64, signum: i32) {
        let topic = wire::name(&format!("shell-{id}.kill"));
        let payload = serde_json::json!({ "signum": signum }).to_string();
        let mut event = Message::request(topic, Some(wire::text_payload(&payload)), NODEID_ANY);
        event.kind = Kind::Event;
        event.userid = self.uid;
        event.rolemask = wire::ROLE_OWNER;
        self.publish(&event);
    }

    /// A shell waits for the others.
    pub(super) fn enter_barrier(&mut self, msg: &Message) -> Reply {
        let request = msg.json();
        let id = request["id"].as_u64().unwrap_or(0);
        let Some(job) = self.jobs.get_mut(&id) else {
            return Reply::Failed(libc::ENOENT, None);
        };
        if job.run.exits > 0 {
            self.answer_barrier(msg, libc::EIO);
            return Reply::Later;
        }
        job.run.entered.push(msg.clone());
        if job.run.entered.len() == job.nodes.len() {
            job.run.first_barrier_done = true;
            self.release_barrier(id, 0);
        }
        Reply::Later
    }

    fn release_barrier(&mut self, id: u64, errnum: i32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for msg in std::mem::take(&mut job.run.entered) {
            self.answer_barrier(&msg, errnum);
        }
    }

    /// Shells ask without wanting an answer (so that none is tracked), and are
    /// answered all the same.
    fn answer_barrier(&mut self, msg: &Message, errnum: i32) {
        self.respond(msg.response(errnum.unsigned_abs(), None));
    }

    /// A shell has ended.
    pub(super) fn shell_exited(&mut self, id: u64, index: usize, status: i32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if let Some(shell) = job.run.shells.get_mut(index) {
            shell.status = Some(status);
        }
        job.run.status = job.run.status.max(status);
        let total = job.nodes.len();
        let rank = job.nodes.get(index).map_or(0, |n| n.rank);
        if index == 0 {
            let active: Vec<u32> = job
                .nodes
                .iter()
                .zip(&job.run.shells)
                .filter(|(_, s)| s.status.is_none())
                .map(|(n, _)| n.rank)
                .collect();
            let mut context = fields! { "rank": rank, "wait_status": status };
            if !active.is_empty() {
                let ids = idset::format(active).into();
                context.0.push(("active_ranks".to_owned(), ids));
            }
            self.post(id, EXEC, "shell-exit", Some(context));
        }
        if total > 1 {
            self.one_of_many_exited(id, index, rank, status);
        }
        self.complete_if_done(id);
    }

    fn one_of_many_exited(&mut self, id: u64, index: usize, rank: u32, status: i32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.run.exits += 1;
        if !job.run.first_barrier_done && (!job.failed || job.run.terminated_before_barrier) {
            job.run.terminated_before_barrier = true;
            let host = self.host(rank).to_owned();
            self.fail_run(
                id,
                &format!("{host} (rank {rank}) terminated before first barrier"),
            );
        }
        self.release_barrier(id, libc::EIO);
        if libc::WIFSIGNALED(status) {
            let text = format!(
                "shell rank {index} (on {}): {}",
                self.host(rank),
                signal_text(libc::WTERMSIG(status))
            );
            if index == 0 {
                self.fail_run(id, &text);
            } else {
                self.report_lost_shell(id, index, &text);
            }
        }
    }

    /// Tells the leader that a shell is gone, beside a warning to the user.
    fn report_lost_shell(&mut self, id: u64, index: usize, text: &str) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let service = service_name(job.userid, id);
        let leader = job.nodes.first().map_or(0, |n| n.rank);
        let payload = serde_json::json!({
            "type": "lost-shell",
            "severity": 0,
            "shell_rank": index,
            "message": text,
        });
        let topic = wire::name(&format!("{service}.exception"));
        let mut msg = Message::request(
            topic,
            Some(wire::text_payload(&payload.to_string())),
            leader,
        );
        msg.flags = wire::FLAG_NORESPONSE;
        msg.userid = self.uid;
        msg.rolemask = wire::ROLE_OWNER;
        self.route_request(msg, leader);
    }

    fn complete_if_done(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let all = job.run.shells.len() == job.nodes.len()
            && job.run.shells.iter().all(|s| s.status.is_some());
        if !all || job.state != super::job::State::Running {
            return;
        }
        if job.failed {
            let own = if job.run.status == 0 {
                1 << 8
            } else {
                job.run.status
            };
            job.run.status = job.run.blamed.unwrap_or(own);
        }
        let status = job.run.status;
        self.post(id, EXEC, "complete", Some(fields! { "status": status }));
        self.post(id, EXEC, "done", None);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.failed |= status != 0;
        }
        self.post(id, MAIN, "finish", Some(fields! { "status": status }));
        self.post(
            id,
            MAIN,
            "release",
            Some(fields! { "ranks": "all", "final": true }),
        );
        self.release(id);
        self.post(id, MAIN, "free", None);
        self.retire(id);
        self.schedule();
    }
}

/// Name of the service of a job's shells.
pub(super) fn service_name(userid: u32, id: u64) -> String {
    format!("{userid}-shell-{}", jobid::encode(id, Form::F58Plain))
}
