//! The tree of brokers: k-ary, in rank order.

use serde_json::{Value, json};

/// Children per broker when nothing is said.
const DEFAULT_FANOUT: u32 = 32;

/// Fan-out of `kary:K` or `binomial`-less short form `K`.
pub(super) fn fanout(topo: &str) -> Option<u32> {
    match topo.strip_prefix("kary:") {
        Some(k) => k.parse().ok(),
        None => topo.parse().ok(),
    }
}

/// Fan-out of an instance with these attributes.
pub(super) fn fanout_of(topo: Option<&String>) -> u32 {
    topo.and_then(|t| fanout(t)).unwrap_or(DEFAULT_FANOUT)
}

/// The broker above `rank`.
pub(super) fn parent(rank: u32, fanout: u32) -> Option<u32> {
    match (rank, fanout) {
        (0, _) => None,
        // Flat: every broker is below rank 0.
        (_, 0) => Some(0),
        (r, k) => Some((r - 1) / k),
    }
}

/// The brokers directly below `rank`.
pub(super) fn children(rank: u32, size: u32, fanout: u32) -> Vec<u32> {
    (1..size)
        .filter(|r| parent(*r, fanout) == Some(rank))
        .collect()
}

/// The answer to `overlay.topology`.
pub(super) fn topology(rank: u32, size: u32, fanout: u32) -> Value {
    fn count(node: &Value) -> u64 {
        node["size"].as_u64().unwrap_or(0)
    }
    let below: Vec<Value> = children(rank, size, fanout)
        .into_iter()
        .map(|r| topology(r, size, fanout))
        .collect();
    let total: u64 = 1 + below.iter().map(count).sum::<u64>();
    json!({ "rank": rank, "size": total, "children": below })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_tree() {
        assert_eq!(fanout("kary:2"), Some(2));
        assert_eq!(children(1, 6, 2), [3, 4]);
        let top = topology(0, 6, 2);
        assert_eq!(top["size"], 6);
        assert_eq!(top["children"][0]["children"][1]["rank"], 4);
        assert_eq!(parent(5, 0), Some(0));
    }
}
