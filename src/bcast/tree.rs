//! The tree of one transfer: which shell feeds which.
//!
//! A tree is drawn once, by the leader, over the target ranks alone, and sent
//! along with the opening request; each shell gets its own subtree and needs no
//! other knowledge. Flux's brokers have a tree of their own (the overlay), and
//! messages between two shells pass the common ancestor of their brokers. So the
//! best tree follows the overlay, see [`Tree::following`].

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

use serde::Deserialize;
use serde::Serialize;

use crate::kary;

/// Most ranks of one transfer: a bound for what a message may ask.
pub const MAX_RANKS: usize = 1 << 20;

/// A rooted tree of shell ranks in preorder: a subtree is one run of positions.
///
/// # Invariants
///
/// At least one rank; no rank twice; `parents[0] == 0`, and `parents[i] < i` is
/// on the path from the root to `i - 1` for every other `i` (preorder).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Tree {
    ranks: Vec<u32>,
    parents: Vec<u32>,
}

/// Why a message's tree is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tree in the request is not a tree of ranks")]
pub struct TreeError;

impl Tree {
    /// A k-ary tree over `ranks` in their order; the first one is the root.
    /// `None` without ranks.
    pub fn kary(ranks: &[u32], k: u32) -> Option<Self> {
        let size = u32::try_from(ranks.len()).ok()?;
        let shape = kary::Tree::new(k.max(1), size);
        Self::build(ranks, |i| shape.children(i).collect())
    }

    /// A tree in which every rank is fed by the nearest rank above it in the
    /// overlay, with at most `k` children each.
    ///
    /// `brokers` gives the broker of each target rank, `parents` each broker's
    /// parent in the overlay. Siblings beyond `k` are fed by their elder
    /// siblings, as in a k-ary tree. Ranks without an ancestor among the targets
    /// count as children of the first rank.
    pub fn following(
        ranks: &[u32],
        k: u32,
        brokers: &BTreeMap<u32, u32>,
        parents: &BTreeMap<u32, u32>,
    ) -> Option<Self> {
        let k = k.max(1) as usize;
        let position: BTreeMap<u32, usize> = ranks
            .iter()
            .enumerate()
            .filter_map(|(i, rank)| Some((*brokers.get(rank)?, i)))
            .collect();
        let top = topmost(ranks, brokers, parents)?;
        let mut children = vec![Vec::new(); ranks.len()];
        for (i, rank) in ranks.iter().enumerate() {
            if i == top {
                continue;
            }
            let above = brokers
                .get(rank)
                .and_then(|&broker| ancestor(broker, parents, |b| position.get(&b).copied()));
            children[above.unwrap_or(top)].push(i);
        }
        // A broker that two shells share, or a topology that changes while it
        // is read, could make a loop: then the ranks are not all reached.
        let mut fed: Vec<Vec<u32>> = vec![Vec::new(); ranks.len()];
        for (parent, kids) in children.iter().enumerate() {
            for (nth, &kid) in kids.iter().enumerate() {
                let feeder = if nth < k { parent } else { kids[nth / k - 1] };
                fed[feeder].push(u32::try_from(kid).ok()?);
            }
        }
        let mut order = vec![top];
        order.extend((0..ranks.len()).filter(|&i| i != top));
        let place: BTreeMap<usize, u32> = order
            .iter()
            .enumerate()
            .map(|(at, &i)| (i, at as u32))
            .collect();
        let ordered: Vec<u32> = order.iter().map(|&i| ranks[i]).collect();
        Self::build(&ordered, |at| {
            fed[order[at as usize]]
                .iter()
                .map(|&kid| place[&(kid as usize)])
                .collect()
        })
    }

    /// Lays out a tree in preorder; `None` unless every rank is reached once.
    fn build(ranks: &[u32], children: impl Fn(u32) -> Vec<u32>) -> Option<Self> {
        let mut tree = Self {
            ranks: Vec::new(),
            parents: Vec::new(),
        };
        let mut stack = vec![(0u32, 0u32)];
        while let Some((at, parent)) = stack.pop() {
            if tree.ranks.len() >= ranks.len() {
                return None;
            }
            let here = u32::try_from(tree.ranks.len()).ok()?;
            tree.ranks.push(*ranks.get(at as usize)?);
            tree.parents.push(parent);
            stack.extend(children(at).into_iter().rev().map(|child| (child, here)));
        }
        (tree.ranks.len() == ranks.len()).then_some(tree)
    }

    /// The rank at the root.
    pub fn root(&self) -> u32 {
        self.ranks.first().copied().unwrap_or_default()
    }

    /// All ranks, the root first.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// How many ranks.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// The subtrees of the root's children.
    pub fn children(&self) -> Vec<Self> {
        let mut starts: Vec<usize> =
            (1..self.size()).filter(|&i| self.parents[i] == 0).collect();
        starts.push(self.size());
        starts
            .windows(2)
            .map(|run| self.subtree(run[0], run[1]))
            .collect()
    }

    fn subtree(&self, start: usize, end: usize) -> Self {
        let base = u32::try_from(start).unwrap_or(u32::MAX);
        let parents = self.parents[start..end]
            .iter()
            .map(|p| p.saturating_sub(base))
            .collect();
        Self {
            ranks: self.ranks[start..end].to_vec(),
            parents,
        }
    }

    /// Most children of any rank: decides how a window is shared.
    pub fn fanout(&self) -> usize {
        let mut counts = vec![0usize; self.size()];
        for &parent in self.parents.iter().skip(1) {
            counts[parent as usize] += 1;
        }
        counts.into_iter().max().unwrap_or(0)
    }

    /// Edges between the root and the farthest rank.
    pub fn depth(&self) -> usize {
        let mut depths = vec![0usize; self.size()];
        for i in 1..self.size() {
            depths[i] = depths[self.parents[i] as usize] + 1;
        }
        depths.into_iter().max().unwrap_or(0)
    }
}

/// The nearest broker above `broker` for which `found` has an answer.
fn ancestor<T>(
    broker: u32,
    parents: &BTreeMap<u32, u32>,
    found: impl Fn(u32) -> Option<T>,
) -> Option<T> {
    let mut seen = BTreeSet::new();
    let mut at = broker;
    while seen.insert(at) {
        at = *parents.get(&at)?;
        if let Some(answer) = found(at) {
            return Some(answer);
        }
    }
    None
}

/// Position of the rank whose broker is highest in the overlay, the first such.
fn topmost(
    ranks: &[u32],
    brokers: &BTreeMap<u32, u32>,
    parents: &BTreeMap<u32, u32>,
) -> Option<usize> {
    let level = |rank: &u32| {
        let mut seen = BTreeSet::new();
        let mut at = brokers.get(rank).copied();
        while let Some(broker) = at
            && seen.insert(broker)
        {
            at = parents.get(&broker).copied();
        }
        seen.len()
    };
    (0..ranks.len()).min_by_key(|&i| level(&ranks[i]))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    ranks: Vec<u32>,
    parents: Vec<u32>,
}

impl From<Tree> for Form {
    fn from(tree: Tree) -> Self {
        Self {
            ranks: tree.ranks,
            parents: tree.parents,
        }
    }
}

impl TryFrom<Form> for Tree {
    type Error = TreeError;

    fn try_from(form: Form) -> Result<Self, TreeError> {
        let size = form.ranks.len();
        let distinct: BTreeSet<u32> = form.ranks.iter().copied().collect();
        if size == 0
            || size > MAX_RANKS
            || form.parents.len() != size
            || form.parents[0] != 0
            || distinct.len() != size
        {
            return Err(TreeError);
        }
        let mut path = VecDeque::from([0u32]);
        for (i, &parent) in form.parents.iter().enumerate().skip(1) {
            while path.back().is_some_and(|&at| at > parent) {
                path.pop_back();
            }
            if path.back() != Some(&parent) {
                return Err(TreeError);
            }
            path.push_back(u32::try_from(i).map_err(|_| TreeError)?);
        }
        Ok(Self {
            ranks: form.ranks,
            parents: form.parents,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reached(tree: &Tree) -> Vec<u32> {
        let mut all = vec![tree.root()];
        for child in tree.children() {
            all.extend(reached(&child));
        }
        all
    }

    /// The overlay of `size` brokers in a k-ary shape.
    fn overlay(size: u32, k: u32) -> BTreeMap<u32, u32> {
        let shape = kary::Tree::new(k, size);
        (0..size)
            .filter_map(|i| Some((i, shape.parent(i)?)))
            .collect()
    }

    #[test]
    fn deep_trees_survive_json() {
        let ranks: Vec<u32> = (0..5000).collect();
        let tree = Tree::kary(&ranks, 1).unwrap();
        assert_eq!(tree.depth(), 4999);
        let json = serde_json::to_string(&tree).unwrap();
        assert_eq!(serde_json::from_str::<Tree>(&json).unwrap(), tree);
    }

    #[test]
    fn requests_that_hold_no_tree_are_refused() {
        for json in [
            r#"{"ranks":[],"parents":[]}"#,
            r#"{"ranks":[1],"parents":[1]}"#,
            r#"{"ranks":[1,1],"parents":[0,0]}"#,
            r#"{"ranks":[1,2],"parents":[0]}"#,
            r#"{"ranks":[1,2,3],"parents":[0,2,0]}"#,
            r#"{"ranks":[1,2,3,4],"parents":[0,0,0,1]}"#,
        ] {
            assert!(serde_json::from_str::<Tree>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn follows_the_overlay() {
        // Brokers 0…6 in a binary tree; the job runs on 1, 3, 4 and 5.
        let brokers = BTreeMap::from([(0, 1), (1, 3), (2, 4), (3, 5)]);
        let tree = Tree::following(&[0, 1, 2, 3], 8, &brokers, &overlay(7, 2)).unwrap();
        assert_eq!(tree.root(), 0);
        let mut kids: Vec<u32> = tree.children().iter().map(Tree::root).collect();
        kids.sort_unstable();
        // 3 and 4 are below 1; 5 has no ancestor in the job.
        assert_eq!(kids, [1, 2, 3]);
    }

    #[test]
    fn the_highest_broker_is_the_root() {
        // Rank 0 runs on a leaf, rank 1 on its parent.
        let brokers = BTreeMap::from([(0, 3), (1, 1)]);
        let tree = Tree::following(&[0, 1], 2, &brokers, &overlay(7, 2)).unwrap();
        assert_eq!(tree.ranks(), [1, 0]);
    }

    proptest! {
        #[test]
        fn kary_reaches_each_rank_once(size in 1u32..200, k in 1u32..40) {
            let ranks: Vec<u32> = (0..size).map(|i| i * 3).collect();
            let tree = Tree::kary(&ranks, k).unwrap();
            let mut all = reached(&tree);
            all.sort_unstable();
            prop_assert_eq!(all, ranks);
            prop_assert!(tree.fanout() <= k as usize);
        }

        #[test]
        fn following_reaches_each_rank_once(
            brokers in proptest::collection::btree_set(0u32..100, 1..60),
            k in 1u32..20,
            overlay_k in 1u32..40,
        ) {
            let brokers: BTreeMap<u32, u32> = (0..).zip(brokers).collect();
            let ranks: Vec<u32> = brokers.keys().copied().collect();
            let tree = Tree::following(&ranks, k, &brokers, &overlay(100, overlay_k)).unwrap();
            let mut all = reached(&tree);
            all.sort_unstable();
            prop_assert_eq!(all, ranks);
            let json = serde_json::to_string(&tree).unwrap();
            prop_assert_eq!(serde_json::from_str::<Tree>(&json).unwrap(), tree);
        }
    }
}
