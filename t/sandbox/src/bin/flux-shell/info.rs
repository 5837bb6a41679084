//! What a shell knows about its job and its place in it.

use flux_sandbox::errno::Errno;
use flux_sandbox::fields;
use flux_sandbox::fields::Fields;
use flux_sandbox::host::handle::Handle;
use flux_sandbox::hostlist;
use flux_sandbox::idset;
use flux_sandbox::jobid::{self, Form};
use serde_json::{Value, json};

/// One node of the job.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) broker_rank: u32,
    pub(crate) ntasks: u32,
    pub(crate) first_task: u32,
    pub(crate) cores: String,
    pub(crate) ncores: u64,
}

/// The job as this shell sees it.
#[derive(Debug)]
pub(crate) struct Info {
    pub(crate) id: u64,
    /// Rank of this shell.
    pub(crate) rank: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ntasks: u32,
    /// This shell's host.
    pub(crate) hostname: String,
    hosts: Vec<String>,
    pub(crate) uid: u32,
    pub(crate) owner: u32,
    pub(crate) verbose: i64,
    pub(crate) jobspec: Value,
    r: Value,
}

impl Info {
    /// Asks the broker.
    pub(crate) fn fetch(h: &Handle, id: u64) -> Result<Self, Errno> {
        let keys = json!({ "id": id, "keys": ["jobspec", "R", "shells"] });
        let answer = h.call("job-info.lookup", &keys)?.json();
        let broker_rank = number(h, "rank")?;
        let owner = number(h, "security.owner")?;
        let word = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let mut nodes = Vec::new();
        let mut next = 0;
        for n in answer["shells"].as_array().into_iter().flatten() {
            let ntasks = word(&n["tasks"]);
            nodes.push(Node {
                broker_rank: word(&n["rank"]),
                ntasks,
                first_task: next,
                cores: n["cores"].as_str().unwrap_or("").to_owned(),
                ncores: n["ncores"].as_u64().unwrap_or(0),
            });
            next += ntasks;
        }
        let rank = nodes
            .iter()
            .position(|n| n.broker_rank == broker_rank)
            .ok_or(Errno(libc::ENOENT))?;
        let nodelist = answer["R"].pointer("/execution/nodelist/0");
        let hosts = nodelist.and_then(|list| hostlist::expand(list.as_str()?));
        let hosts = hosts.ok_or(Errno(libc::EPROTO))?;
        let jobspec = answer["jobspec"].clone();
        let verbose = jobspec
            .pointer("/attributes/system/shell/options/verbose")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        Ok(Self {
            id,
            rank,
            ntasks: next,
            nodes,
            hostname: hosts.get(rank).cloned().ok_or(Errno(libc::EPROTO))?,
            hosts,
            uid: rustix::process::getuid().as_raw(),
            owner,
            verbose: verbose.clamp(0, 2),
            r: answer["R"].clone(),
            jobspec,
        })
    }

    /// This shell's node.
    pub(crate) fn node(&self) -> &Node {
        &self.nodes[self.rank]
    }

    /// The name of the service of all shells.
    pub(crate) fn service(&self) -> String {
        format!(
            "{}-shell-{}",
            self.uid,
            jobid::encode(self.id, Form::F58Plain)
        )
    }

    /// The command of the tasks.
    pub(crate) fn command(&self) -> Vec<String> {
        let words = self.jobspec["tasks"][0]["command"].as_array();
        let words = words.into_iter().flatten();
        words
            .filter_map(|w| w.as_str().map(str::to_owned))
            .collect()
    }

    /// Last part of the command's path.
    pub(crate) fn program(&self) -> String {
        let command = self.command();
        let path = command.first().map_or("unknown", String::as_str);
        path.rsplit('/').next().unwrap_or(path).to_owned()
    }

    /// An attribute below `attributes.system`.
    pub(crate) fn system(&self, pointer: &str) -> &Value {
        self.jobspec
            .pointer(&format!("/attributes/system{pointer}"))
            .unwrap_or(&Value::Null)
    }

    /// The object of `flux_shell_get_info`, its keys in the order of Flux.
    pub(crate) fn to_json(&self) -> String {
        let all = fields! {
            "jobid": self.id,
            "rank": self.rank,
            "instance_owner": self.owner,
            "size": self.nodes.len(),
            "ntasks": self.ntasks,
            "service": self.service(),
            "jobspec": self.jobspec,
            "R": self.r,
            "options": json!({ "verbose": self.verbose }),
        };
        all.to_string()
    }

    /// The object of `flux_shell_get_rank_info`.
    pub(crate) fn rank_to_json(&self, rank: usize) -> Option<Fields> {
        let n = self.nodes.get(rank)?;
        Some(fields! {
            "id": rank,
            "name": self.hosts.get(rank)?,
            "broker_rank": n.broker_rank,
            "ntasks": n.ntasks,
            "taskids": idset::format(n.first_task..n.first_task + n.ntasks),
            "resources": json!({ "ncores": n.ncores, "cores": n.cores }),
        })
    }

    /// The layout of tasks, as event logs have it: runs of nodes with as many
    /// tasks each.
    pub(crate) fn taskmap(&self) -> Value {
        let mut runs: Vec<[u64; 4]> = Vec::new();
        for (rank, n) in (0..).zip(&self.nodes) {
            let ntasks = u64::from(n.ntasks);
            match runs.last_mut() {
                Some(run) if run[2] == ntasks => run[1] += 1,
                _ => runs.push([rank, 1, ntasks, 1]),
            }
        }
        json!({ "version": 1, "map": runs })
    }
}

fn number(h: &Handle, name: &str) -> Result<u32, Errno> {
    h.attr_string(name)?
        .parse()
        .map_err(|_| Errno(libc::EPROTO))
}
