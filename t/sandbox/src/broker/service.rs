//! The services of the brokers themselves.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::eventlog::{EXEC, INPUT, MAIN, OUTPUT};
use super::job::State;
use super::process::Owner;
use super::router::Reply;
use super::{Broker, overlay};
use crate::wire::{Message, ROLE_OWNER};

/// A method of a broker service.
type Method = fn(&mut Broker, u32, &Message) -> Reply;

/// Topics and what they do.
const METHODS: &[(&str, Method)] = &[
    ("attr.get", Broker::attr_get),
    ("broker.ping", Broker::ping),
    ("overlay.topology", Broker::topology),
    ("job-ingest.submit", |b, _, m| b.submit(m)),
    ("job-manager.raise", |b, _, m| b.raise_request(m)),
    ("job-manager.kill", Broker::kill),
    ("job-manager.wait", Broker::wait_job),
    ("job-exec.shell-barrier", |b, _, m| b.enter_barrier(m)),
    ("job-info.lookup", Broker::lookup),
    ("job-info.eventlog-watch", Broker::watch),
    ("job-info.eventlog-watch-cancel", Broker::watch_cancel),
    ("job-info.disconnect", |_, _, _| Reply::Later),
    ("job-list.list", Broker::list),
    ("sandbox.append", Broker::append),
    ("sandbox.exec", Broker::exec_command),
];

impl Broker {
    /// Whether a broker service has this name.
    pub(super) fn serves(service: &str) -> bool {
        METHODS
            .iter()
            .any(|(topic, _)| topic.split('.').next() == Some(service))
    }

    /// Serves a request at `rank`.
    pub(super) fn serve(&mut self, rank: u32, msg: &Message) -> Reply {
        let topic = msg.topic_str();
        match METHODS.iter().find(|(t, _)| *t == topic) {
            Some((_, method)) => method(self, rank, msg),
            None => Reply::Failed(
                libc::ENOSYS,
                Some(format!("Unknown service method '{topic}'")),
            ),
        }
    }

    /// What came comes back, with who sent it on which way.
    fn ping(&mut self, rank: u32, msg: &Message) -> Reply {
        let Value::Object(mut answer) = msg.json() else {
            return Reply::Failed(libc::EPROTO, None);
        };
        let mut route: Vec<_> = msg.routes.iter().map(|r| r.to_string_lossy()).collect();
        let rank = rank.to_string();
        route.push(rank.into());
        answer.insert("route".to_owned(), json!(route.join("!")));
        answer.insert("userid".to_owned(), json!(msg.userid));
        answer.insert("rolemask".to_owned(), json!(msg.rolemask));
        Reply::Done(Some(Value::Object(answer)))
    }

    fn attr_get(&mut self, rank: u32, msg: &Message) -> Reply {
        let request = msg.json();
        let Some(name) = request["name"].as_str() else {
            return Reply::Failed(libc::EPROTO, None);
        };
        let parent = self.config.parent.as_ref();
        let value = match name {
            "rank" => rank.to_string(),
            "size" => self.config.size.to_string(),
            "rundir" => self.config.rundir.display().to_string(),
            "local-uri" => self.uri(rank),
            "security.owner" => self.uid.to_string(),
            "instance-level" => parent.map_or(0, |p| p.level + 1).to_string(),
            "jobid-path" => parent.map_or("/", |p| &p.jobid_path).to_owned(),
            "hostlist" => self.config.hosts.join(","),
            "broker.pid" => std::process::id().to_string(),
            "parent-uri" if parent.is_some() => parent.map_or("", |p| &p.uri).to_owned(),
            "jobid" if parent.is_some() => parent.map_or("", |p| &p.jobid).to_owned(),
            "tbon.topo" if !self.config.attrs.contains_key(name) => "kary:32".to_owned(),
            _ => match self.config.attrs.get(name) {
                Some(value) => value.clone(),
                None => return Reply::Failed(libc::ENOENT, None),
            },
        };
        Reply::Done(Some(json!({ "value": value, "flags": 1 })))
    }

    fn topology(&mut self, _rank: u32, msg: &Message) -> Reply {
        let request = msg.json();
        let rank = request["rank"].as_u64().and_then(|r| u32::try_from(r).ok());
        let Some(rank) = rank else {
            return Reply::Failed(libc::EPROTO, None);
        };
        if rank >= self.config.size {
            return Reply::Failed(libc::ENOENT, Some("No such rank in subtree".to_owned()));
        }
        let fanout = overlay::fanout_of(self.config.attrs.get("tbon.topo"));
        Reply::Done(Some(overlay::topology(rank, self.config.size, fanout)))
    }

    fn kill(&mut self, _rank: u32, msg: &Message) -> Reply {
        let request = msg.json();
        let id = request["id"].as_u64().unwrap_or(0);
        let signum = request["signum"].as_i64().unwrap_or(15);
        let Some(job) = self.jobs.get(&id) else {
            return Reply::Failed(libc::ENOENT, Some("unknown job id".to_owned()));
        };
        if !job.may_see(msg) {
            return Reply::Failed(libc::EPERM, None);
        }
        let refusal = match job.state {
            State::Running => None,
            State::Pending => Some("job is not running"),
            State::Inactive => Some("job is inactive"),
        };
        if let Some(text) = refusal {
            return Reply::Failed(libc::EINVAL, Some(text.to_owned()));
        }
        self.kill_tasks(id, i32::try_from(signum).unwrap_or(15));
        Reply::Done(None)
    }

    fn wait_job(&mut self, _rank: u32, msg: &Message) -> Reply {
        let id = msg.json()["id"].as_u64().unwrap_or(0);
        match self.jobs.get_mut(&id) {
            None => Reply::Failed(libc::ENOENT, None),
            Some(j) if j.state == State::Inactive => self.job_result(id),
            Some(j) => {
                j.waiters.push(msg.clone());
                Reply::Later
            }
        }
    }

    /// `{"id":…, "keys":[…]}` gives the values of those keys.
    fn lookup(&mut self, _rank: u32, msg: &Message) -> Reply {
        let request = msg.json();
        let id = request["id"].as_u64().unwrap_or(0);
        let Some(job) = self.jobs.get(&id) else {
            return Reply::Failed(libc::ENOENT, None);
        };
        if !job.may_see(msg) {
            return Reply::Failed(libc::EPERM, None);
        }
        let mut out = serde_json::Map::new();
        for key in request["keys"].as_array().into_iter().flatten() {
            let Some(key) = key.as_str() else { continue };
            let value = match key {
                "jobspec" => Some(job.jobspec.clone()),
                "R" if !job.r.is_null() => Some(job.r.clone()),
                "shells" => Some(layout(job)),
                _ => job
                    .log(key)
                    .filter(|log| !log.lines.is_empty())
                    .map(|log| Value::from(log.lines.concat())),
            };
            match value {
                Some(v) => out.insert(key.to_owned(), v),
                None => return Reply::Failed(libc::ENOENT, None),
            };
        }
        Reply::Done(Some(Value::Object(out)))
    }

    fn watch(&mut self, _rank: u32, msg: &Message) -> Reply {
        let request = msg.json();
        let (Some(id), Some(path)) = (request["id"].as_u64(), request["path"].as_str()) else {
            return Reply::Failed(libc::EPROTO, None);
        };
        let Some(job) = self.jobs.get(&id) else {
            return Reply::Failed(libc::ENOENT, None);
        };
        if !job.may_see(msg) {
            return Reply::Failed(libc::EPERM, None);
        }
        if job.log(path).is_none() {
            return Reply::Failed(libc::ENOENT, None);
        }
        self.add_watch(msg.clone(), id, path);
        Reply::Later
    }

    fn watch_cancel(&mut self, _rank: u32, msg: &Message) -> Reply {
        let tag = msg.json()["matchtag"].as_u64().unwrap_or(0);
        self.cancel_watch(msg.routes.last(), u32::try_from(tag).unwrap_or(0));
        Reply::Later
    }

    fn list(&mut self, _rank: u32, _msg: &Message) -> Reply {
        let jobs: Vec<Value> = self
            .job_order
            .iter()
            .filter_map(|id| {
                let job = self.jobs.get(id)?;
                Some(json!({
                    "id": id,
                    "userid": job.userid,
                    "state": format!("{:?}", job.state),
                    "failed": job.failed,
                    "nnodes": job.nodes.len(),
                    "ntasks": job.need.tasks,
                    "command": job.jobspec["tasks"][0]["command"],
                    "name": job.system("/job/name"),
                }))
            })
            .collect();
        Reply::Done(Some(json!({ "jobs": jobs })))
    }

    /// Shells write their part of the event logs; owner of the job only.
    fn append(&mut self, _rank: u32, msg: &Message) -> Reply {
        let request = msg.json();
        let (Some(id), Some(path), Some(line)) = (
            request["id"].as_u64(),
            request["path"].as_str(),
            request["line"].as_str(),
        ) else {
            return Reply::Failed(libc::EPROTO, None);
        };
        let Some(job) = self.jobs.get(&id) else {
            return Reply::Failed(libc::ENOENT, None);
        };
        if !job.may_see(msg) || path == MAIN || ![EXEC, OUTPUT, INPUT].contains(&path) {
            return Reply::Failed(libc::EPERM, None);
        }
        self.post_line(id, path, line.to_owned());
        Reply::Done(None)
    }

    /// Runs a command on one rank: `{"rank":…, "command":[…], "env":{…}}`.
    fn exec_command(&mut self, rank: u32, msg: &Message) -> Reply {
        if msg.rolemask & ROLE_OWNER == 0 {
            return Reply::Failed(libc::EPERM, None);
        }
        let request = msg.json();
        let strings = |v: &Value| -> Vec<String> {
            let all = v.as_array().into_iter().flatten();
            all.filter_map(|s| s.as_str().map(str::to_owned)).collect()
        };
        let argv: Vec<OsString> = strings(&request["command"])
            .into_iter()
            .map(OsString::from)
            .collect();
        let cwd = request["cwd"].as_str();
        let mut env = vec![("FLUX_URI".to_owned(), self.uri(rank))];
        for (k, v) in request["env"].as_object().into_iter().flatten() {
            env.push((k.clone(), v.as_str().unwrap_or("").to_owned()));
        }
        let owner = Owner::Command {
            request: Box::new(msg.clone()),
        };
        match self.spawn(owner, rank, &argv, &env, cwd) {
            Ok(_) => Reply::Later,
            Err(e) => {
                let e = crate::errno::Errno::from(e);
                let program = argv
                    .first()
                    .map(|p| p.to_string_lossy())
                    .unwrap_or_default();
                let text = format!("{program}: error launching process: {e}");
                Reply::Failed(e.0, Some(text))
            }
        }
    }
}

/// Which tasks run where, for the shells.
fn layout(job: &super::job::Job) -> Value {
    let nodes = job.nodes.iter().map(|n| {
        json!({
            "rank": n.rank,
            "tasks": n.tasks,
            "cores": crate::idset::format(n.cores.iter().copied()),
            "ncores": n.cores.len(),
        })
    });
    Value::Array(nodes.collect())
}
