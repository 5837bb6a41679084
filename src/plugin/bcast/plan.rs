//! Who takes part in a transfer, and which tree feeds them: the leader's work.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Deserialize;

use super::peers::Peers;
use crate::bcast::message::FANOUT;
use crate::bcast::message::Plan;
use crate::bcast::message::PlanRequest;
use crate::bcast::message::VERSION;
use crate::bcast::tree::Tree;
use crate::errno::Errno;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::hostlist;
use crate::idset::IdSet;

/// Each broker's parent in the overlay network.
pub(super) type Overlay = BTreeMap<u32, u32>;

/// The answer of `overlay.topology`.
#[derive(Debug, Deserialize)]
pub(super) struct Topology {
    rank: u32,
    #[serde(default)]
    children: Vec<Topology>,
}

impl Topology {
    /// As a map from child to parent.
    pub(super) fn parents(&self) -> Overlay {
        let mut parents = Overlay::new();
        let mut stack = vec![self];
        while let Some(broker) = stack.pop() {
            for child in &broker.children {
                parents.insert(child.rank, broker.rank);
                stack.push(child);
            }
        }
        parents
    }
}

/// Draws the tree that a request asks for. Without `overlay` (it could not be
/// asked) the tree is a plain k-ary one.
///
/// # Errors
/// EPROTO for another version; EINVAL for ranks and hosts that the job does not
/// have, or if none is left.
pub(super) fn plan(
    request: &PlanRequest,
    peers: &Peers,
    overlay: Option<&Overlay>,
) -> Result<Plan> {
    if request.version != VERSION {
        let text = format!(
            "the client speaks protocol {}, the plugin in this job speaks {VERSION}",
            request.version
        );
        return Err(Error::with_text(Errno::EPROTO, text));
    }
    let hosts = peers.hosts()?;
    let ranks = targets(request, &hosts)?;
    let k = request.k.unwrap_or(FANOUT);
    let mut brokers = BTreeMap::new();
    for &rank in &ranks {
        brokers.insert(rank, peers.broker(rank)?);
    }
    let tree = match (request.k, overlay) {
        (None, Some(overlay)) => Tree::following(&ranks, k, &brokers, overlay),
        _ => None,
    };
    let tree = tree
        .or_else(|| Tree::kary(&ranks, k))
        .ok_or_else(|| invalid("no rank of the job is left to send to".into()))?;
    let root_broker = peers.broker(tree.root())?;
    let all: Result<Vec<u32>> = (0..peers.size()).map(|rank| peers.broker(rank)).collect();
    Ok(Plan {
        version: VERSION,
        tree,
        root_broker,
        brokers: all?,
        hosts,
    })
}

fn invalid(text: String) -> Error {
    Error::with_text(Errno::EINVAL, text)
}

/// The target ranks in ascending order.
fn targets(request: &PlanRequest, hosts: &[String]) -> Result<Vec<u32>> {
    let size = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    for set in [&request.ranks, &request.exclude].into_iter().flatten() {
        let strangers: IdSet = set.iter().filter(|rank| *rank >= size).collect();
        if !strangers.is_empty() {
            let (what, are) = match strangers.len() {
                1 => ("rank", "is"),
                _ => ("ranks", "are"),
            };
            return Err(invalid(format!(
                "{what} {strangers} {are} not in the job, which has ranks 0-{}",
                size.saturating_sub(1)
            )));
        }
    }
    let wanted = match &request.hosts {
        Some(list) => Some(on_hosts(list, hosts)?),
        None => None,
    };
    let unwanted = match &request.exclude_hosts {
        Some(list) => on_hosts(list, hosts)?,
        None => BTreeSet::new(),
    };
    let ranks: Vec<u32> = (0..size)
        .filter(|rank| request.ranks.as_ref().is_none_or(|set| set.contains(*rank)))
        .filter(|rank| wanted.as_ref().is_none_or(|set| set.contains(rank)))
        .filter(|rank| {
            !request
                .exclude
                .as_ref()
                .is_some_and(|set| set.contains(*rank))
        })
        .filter(|rank| !unwanted.contains(rank))
        .collect();
    if ranks.is_empty() {
        return Err(invalid("no rank of the job is left to send to".into()));
    }
    Ok(ranks)
}

/// The ranks on the hosts of a host list; each host must be in the job.
fn on_hosts(list: &str, hosts: &[String]) -> Result<BTreeSet<u32>> {
    // A name that comes a million times is looked up once.
    let names: BTreeSet<String> = hostlist::expand(list)
        .map_err(|error| invalid(error.to_string()))?
        .into_iter()
        .collect();
    let mut ranks = BTreeSet::new();
    for name in names {
        let before = ranks.len();
        ranks.extend(
            (0..)
                .zip(hosts)
                .filter(|(_, host)| **host == name)
                .map(|(rank, _)| rank),
        );
        if ranks.len() == before && !hosts.contains(&name) {
            return Err(invalid(format!("host {name} is not in the job")));
        }
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Vec<String> {
        ["n1", "n2", "n3", "n3"].map(String::from).to_vec()
    }

    fn request() -> PlanRequest {
        PlanRequest {
            version: VERSION,
            ..PlanRequest::default()
        }
    }

    #[test]
    fn targets_by_rank_and_host() {
        let all = targets(&request(), &hosts()).unwrap();
        assert_eq!(all, [0, 1, 2, 3]);
        let some = PlanRequest {
            ranks: Some("1-2".parse().unwrap()),
            ..request()
        };
        assert_eq!(targets(&some, &hosts()).unwrap(), [1, 2]);
        let named = PlanRequest {
            hosts: Some("n[1,3]".into()),
            ..request()
        };
        assert_eq!(targets(&named, &hosts()).unwrap(), [0, 2, 3]);
        let but = PlanRequest {
            exclude: Some("0".parse().unwrap()),
            exclude_hosts: Some("n3".into()),
            ..request()
        };
        assert_eq!(targets(&but, &hosts()).unwrap(), [1]);
    }

    #[test]
    fn strangers_are_refused_by_name() {
        for (request, says) in [
            (
                PlanRequest {
                    ranks: Some("9".parse().unwrap()),
                    ..request()
                },
                "rank 9",
            ),
            (
                PlanRequest {
                    exclude: Some("4".parse().unwrap()),
                    ..request()
                },
                "rank 4",
            ),
            (
                PlanRequest {
                    hosts: Some("n4".into()),
                    ..request()
                },
                "host n4",
            ),
            (
                PlanRequest {
                    exclude: Some("0-3".parse().unwrap()),
                    ..request()
                },
                "no rank",
            ),
        ] {
            let error = targets(&request, &hosts()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn topology_as_parents() {
        let json = r#"{"rank":0,"size":4,"children":[
            {"rank":1,"children":[{"rank":3,"children":[]}]},{"rank":2}]}"#;
        let topology: Topology = serde_json::from_str(json).unwrap();
        assert_eq!(topology.parents(), Overlay::from([(1, 0), (2, 0), (3, 1)]));
    }
}
