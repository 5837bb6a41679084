//! On which broker each shell of the job runs.

use std::cell::OnceCell;

use serde_json::Value;

use crate::flux::error::Result;
use crate::flux::shell::Shell;
use crate::flux::shell::ShellInfo;
use crate::idset::IdSet;

/// Looks shells up when asked, so that a plugin that is not used costs nothing.
#[derive(Debug)]
pub(super) struct Brokers {
    shell: Shell,
    /// The sets of broker ranks in the job's resource set (RFC 20).
    sets: Vec<String>,
    listed: OnceCell<Vec<u32>>,
}

impl Brokers {
    pub(super) fn new(shell: Shell, info: &ShellInfo) -> Self {
        Self {
            shell,
            sets: sets(&info.resources),
            listed: OnceCell::new(),
        }
    }

    /// Rank of a shell's broker.
    pub(super) fn of(&self, rank: u32) -> Result<u32> {
        let told = self.shell.rank_info(rank)?.broker_rank;
        if told != rank {
            return Ok(told);
        }
        // Flux 0.58 says the shell's own rank, whatever its broker is.
        let listed = self.listed.get_or_init(|| listed(&self.sets));
        let at = usize::try_from(rank).ok();
        Ok(at.and_then(|at| listed.get(at).copied()).unwrap_or(told))
    }
}

fn sets(resources: &Value) -> Vec<String> {
    let entries = resources.pointer("/execution/R_lite");
    let entries = entries.and_then(Value::as_array).into_iter().flatten();
    entries
        .filter_map(|entry| entry["rank"].as_str().map(str::to_owned))
        .collect()
}

/// The brokers in order, as shells are numbered.
fn listed(sets: &[String]) -> Vec<u32> {
    let sets = sets.iter().filter_map(|set| set.parse::<IdSet>().ok());
    let mut ranks: Vec<u32> = sets
        .flat_map(|set| set.iter().collect::<Vec<_>>())
        .collect();
    ranks.sort_unstable();
    ranks
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shells_are_numbered_in_the_order_of_their_brokers() {
        let resources = json!({"execution": {"R_lite": [
            {"rank": "5", "children": {"core": "0-3"}},
            {"rank": "1,3", "children": {"core": "0"}},
        ]}});
        assert_eq!(listed(&sets(&resources)), [1, 3, 5]);
        for odd in [json!(null), json!({"execution": {"R_lite": [{"rank": 1}]}})] {
            assert_eq!(listed(&sets(&odd)), [0; 0], "{odd}");
        }
    }
}
