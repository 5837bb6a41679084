//! Which cores of which ranks a job gets: first come, first served.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::eventlog::MAIN;
use super::job::State;
use super::{Broker, now};
use crate::{fields, idset};

/// What a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Nodes, when it says so.
    pub(super) nodes: Option<u32>,
    /// Slots, on each node or in all.
    pub(super) slots: u32,
    /// Cores per slot.
    pub(super) cores: u32,
    /// Whole nodes.
    pub(super) exclusive: bool,
    /// Tasks in all.
    pub(super) tasks: u32,
}

/// What a job got on one rank.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) rank: u32,
    pub(super) cores: BTreeSet<u32>,
    /// Tasks that run there.
    pub(super) tasks: u32,
}

impl Need {
    /// Reads a version 1 jobspec.
    pub(super) fn of(jobspec: &Value) -> Result<Self, String> {
        let word = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let top = &jobspec["resources"][0];
        let is_node = top["type"] == "node";
        let slot = if is_node { &top["with"][0] } else { top };
        let (Some(slots), Some(cores)) =
            (word(&slot["count"]), word(&slot["with"][0]["count"]))
        else {
            return Err("jobspec: resources: no slot with cores".to_owned());
        };
        let nodes = if is_node { word(&top["count"]) } else { None };
        let per = jobspec
            .pointer("/attributes/system/shell/options/per-resource")
            .filter(|p| p["type"] == "node");
        let per = per.and_then(|p| word(&p["count"]));
        let count = &jobspec["tasks"][0]["count"];
        let all_slots = nodes.unwrap_or(1) * slots;
        let tasks = match (word(&count["total"]), word(&count["per_slot"])) {
            // As many on each node as asked for, whatever cores it has.
            _ if per.is_some() => per.unwrap_or(1) * nodes.unwrap_or(1),
            (Some(total), _) => total,
            (None, Some(per_slot)) => all_slots * per_slot,
            (None, None) => return Err("jobspec: tasks: no count".to_owned()),
        };
        if slots == 0 || tasks == 0 {
            return Err("jobspec: counts must be positive".to_owned());
        }
        Ok(Self {
            nodes,
            slots,
            cores,
            exclusive: top["exclusive"] == true,
            tasks,
        })
    }

    /// Why this can never be had from `size` ranks of `cores` cores.
    pub(super) fn impossible(&self, size: u32, cores: u32) -> Option<String> {
        let per_node = self.slots * self.cores;
        let text = match self.nodes {
            Some(n) if n > size && self.exclusive => {
                format!("need {n} exclusive node(s), only {size} eligible")
            }
            Some(n) if n > size || per_node > cores => {
                let fit = if per_node > cores { 0 } else { size };
                format!("need {n} node(s) with {per_node} cores each, only {fit} eligible")
            }
            None if self.slots > size * (cores / self.cores.max(1)) => {
                let fit = size * (cores / self.cores.max(1));
                format!(
                    "need {} slot(s) of {} core(s), only {fit} such slot(s) available \
                     (total cores: {})",
                    self.slots,
                    self.cores,
                    size * cores
                )
            }
            _ => return None,
        };
        Some(format!("unsatisfiable request: {text}"))
    }

    /// Takes what is needed from `free`, or leaves it alone.
    pub(super) fn allot(
        &self,
        free: &mut [BTreeSet<u32>],
        cores_per_rank: u32,
    ) -> Option<Vec<Node>> {
        let mut got = Vec::new();
        let mut left = self.slots;
        for (rank, cores) in (0..).zip(free.iter()) {
            let have = u32::try_from(cores.len()).unwrap_or(0);
            let take = match self.nodes {
                Some(n) if got.len() >= n as usize => 0,
                Some(_) if self.exclusive => {
                    if have == cores_per_rank {
                        have
                    } else {
                        0
                    }
                }
                Some(_) if have < self.slots * self.cores => 0,
                Some(_) => self.slots * self.cores,
                None => {
                    let fit = (have / self.cores.max(1)).min(left);
                    left -= fit;
                    fit * self.cores
                }
            };
            if take > 0 {
                got.push(Node {
                    rank,
                    cores: cores.iter().copied().take(take as usize).collect(),
                    tasks: 0,
                });
            }
        }
        let enough = match self.nodes {
            Some(n) => got.len() == n as usize,
            None => left == 0,
        };
        if !enough {
            return None;
        }
        for node in &got {
            if let Some(cores) = free.get_mut(node.rank as usize) {
                cores.retain(|c| !node.cores.contains(c));
            }
        }
        self.spread_tasks(&mut got);
        Some(got)
    }

    /// Blocks of tasks: as many per node as it has slots for, evenly.
    fn spread_tasks(&self, nodes: &mut [Node]) {
        let mut left = self.tasks;
        if self.nodes.is_none() {
            for node in nodes.iter_mut() {
                let slots = u32::try_from(node.cores.len()).unwrap_or(0) / self.cores.max(1);
                node.tasks = slots.min(left);
                left -= node.tasks;
            }
        }
        let count = u32::try_from(nodes.len()).unwrap_or(1).max(1);
        let (each, more) = (left / count, left % count);
        for (n, node) in (0..).zip(nodes.iter_mut()) {
            node.tasks += each + u32::from(n < more);
        }
    }
}

impl Broker {
    /// Starts the jobs that wait, in order, as far as resources go.
    pub(super) fn schedule(&mut self) {
        for id in self.job_order.clone() {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            if job.state != State::Pending || job.urgency == 0 {
                continue;
            }
            let cores = self.config.knobs.cores;
            if let Some(note) = job.need.impossible(self.config.size, cores) {
                let uid = self.uid;
                let context = fields! {
                    "type": "alloc", "severity": 0, "note": note, "userid": uid,
                };
                self.exception(id, 0, context);
                return;
            }
            let need = job.need.clone();
            let Some(nodes) = need.allot(&mut self.free, cores) else {
                return;
            };
            let r = self.resource_set(&nodes, need.tasks);
            let summary = resource_summary(&nodes);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.nodes = nodes;
                job.r = r;
                job.state = State::Running;
            }
            let annotations = json!({ "sched": { "resource_summary": summary } });
            self.post(
                id,
                MAIN,
                "alloc",
                Some(fields! { "annotations": annotations }),
            );
            self.launch(id);
        }
    }

    /// Gives back what a job had.
    pub(super) fn release(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for node in &job.nodes {
            if let Some(cores) = self.free.get_mut(node.rank as usize) {
                cores.extend(&node.cores);
            }
        }
    }

    fn resource_set(&self, nodes: &[Node], slots: u32) -> Value {
        let hosts: Vec<&str> = nodes.iter().map(|n| self.host(n.rank)).collect();
        let lite: Vec<Value> = groups(nodes)
            .into_iter()
            .map(|(ranks, cores)| json!({ "rank": ranks, "children": { "core": cores } }))
            .collect();
        json!({
            "version": 1,
            "execution": {
                "R_lite": lite,
                "starttime": now(),
                "expiration": 0.0,
                "nslots": slots,
                "nodelist": [hosts.join(",")],
            },
        })
    }
}

/// Ranks with the same cores together.
fn groups(nodes: &[Node]) -> Vec<(String, String)> {
    let mut out: Vec<(Vec<u32>, String)> = Vec::new();
    for node in nodes {
        let cores = idset::format(node.cores.iter().copied());
        match out.last_mut() {
            Some((ranks, c)) if *c == cores => ranks.push(node.rank),
            _ => out.push((vec![node.rank], cores)),
        }
    }
    out.into_iter()
        .map(|(ranks, cores)| (idset::format(ranks), cores))
        .collect()
}

fn resource_summary(nodes: &[Node]) -> String {
    let part = |name: &str, ids: &str| {
        if ids.contains([',', '-']) {
            format!("{name}[{ids}]")
        } else {
            format!("{name}{ids}")
        }
    };
    let parts: Vec<String> = groups(nodes)
        .iter()
        .map(|(ranks, cores)| format!("{}/{}", part("rank", ranks), part("core", cores)))
        .collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(nodes: Option<u32>, slots: u32, tasks: u32) -> Need {
        Need {
            nodes,
            slots,
            cores: 1,
            exclusive: false,
            tasks,
        }
    }

    #[test]
    fn tasks_fill_nodes_in_blocks() {
        let mut free: Vec<BTreeSet<u32>> = vec![(0..2).collect(); 4];
        let got = need(None, 3, 3).allot(&mut free, 2).unwrap();
        assert_eq!(
            got.iter().map(|n| (n.rank, n.tasks)).collect::<Vec<_>>(),
            [(0, 2), (1, 1)]
        );
        assert_eq!(free[0].len() + free[1].len(), 1);
        let got = need(Some(2), 2, 3).allot(&mut free, 2).unwrap();
        assert_eq!(
            got.iter().map(|n| (n.rank, n.tasks)).collect::<Vec<_>>(),
            [(2, 2), (3, 1)]
        );
        assert!(need(Some(1), 2, 2).allot(&mut free, 2).is_none());
        assert_eq!(free[1].len(), 1);
    }

    #[test]
    fn refusals_say_why() {
        let text = need(None, 99, 99).impossible(4, 2).unwrap();
        assert!(
            text.ends_with("only 8 such slot(s) available (total cores: 8)"),
            "{text}"
        );
        let text = need(Some(1), 3, 3).impossible(4, 2).unwrap();
        assert!(text.ends_with("need 1 node(s) with 3 cores each, only 0 eligible"));
        assert_eq!(need(Some(4), 2, 8).impossible(4, 2), None);
    }

    #[test]
    fn summaries() {
        let nodes: Vec<Node> = (0..2)
            .map(|rank| Node {
                rank,
                cores: [0].into(),
                tasks: 1,
            })
            .collect();
        assert_eq!(resource_summary(&nodes), "rank[0-1]/core0");
    }
}
