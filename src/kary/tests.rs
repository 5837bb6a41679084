//! Properties of the tree that both users rely on.

use super::Tree;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Shapes with the two extremes (chain, star) well represented.
fn shape() -> impl Strategy<Value = Tree> {
    (1u32..600)
        .prop_flat_map(|n| {
            let k = prop_oneof![Just(1), 2u32..9, Just(n), Just(n + 7), Just(u32::MAX)];
            (k, Just(n))
        })
        .prop_map(|(k, n)| Tree::new(k, n))
}

/// Positions reached from the root by following children only.
fn walk(tree: Tree) -> Vec<u32> {
    let mut seen = vec![0];
    let mut next = 0;
    while let Some(&at) = seen.get(next) {
        seen.extend(tree.children(at));
        next += 1;
    }
    seen
}

#[test]
fn a_binary_tree_of_seven() {
    let tree = Tree::new(2, 7);
    assert_eq!(tree.children(0), 1..3);
    assert_eq!(tree.children(2), 5..7);
    assert!(tree.children(3).is_empty());
    assert_eq!(tree.parent(6), Some(2));
    assert_eq!(tree.level(6), 2);
    assert_eq!(tree.depth(), 2);
    assert_eq!(tree.subtree_size(1), 3);
    assert_eq!(tree.descendants(0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(tree.descendants(1).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(tree.route(3, 6).collect::<Vec<_>>(), [3, 1, 0, 2, 6]);
    assert_eq!(tree.next_hop(0, 6), Some(2));
    assert_eq!(tree.next_hop(5, 6), Some(2));
}

#[test]
fn a_chain_and_a_star() {
    let chain = Tree::new(1, 4);
    assert_eq!(chain.children(1), 2..3);
    assert_eq!(chain.depth(), 3);
    assert_eq!(chain.route(3, 1).collect::<Vec<_>>(), [3, 2, 1]);
    let star = Tree::new(100, 4);
    assert_eq!(star.children(0), 1..4);
    assert_eq!(star.depth(), 1);
    assert_eq!(star.route(3, 1).collect::<Vec<_>>(), [3, 0, 1]);
}

#[test]
fn no_position_at_all_and_just_one() {
    let none = Tree::new(2, 0);
    assert!(none.children(0).is_empty());
    assert_eq!(none.parent(0), None);
    assert_eq!(none.depth(), 0);
    assert_eq!(none.subtree_size(0), 0);
    assert_eq!(none.descendants(0).count(), 0);
    let one = Tree::new(2, 1);
    assert!(one.children(0).is_empty());
    assert_eq!(one.subtree_size(0), 1);
    assert_eq!(one.route(0, 0).collect::<Vec<_>>(), [0]);
}

#[test]
fn zero_children_means_a_chain() {
    assert_eq!(Tree::new(0, 5), Tree::new(1, 5));
}

#[test]
fn the_largest_tree_does_not_overflow() {
    for k in [1, 2, 3, u32::MAX] {
        let tree = Tree::new(k, u32::MAX);
        let last = u32::MAX - 1;
        assert!(tree.children(last).is_empty());
        assert!(tree.is_within(0, last));
        assert_eq!(tree.subtree_size(0), u32::MAX);
        assert_eq!(tree.parent(u32::MAX), None);
        assert!(tree.next_hop(last, 0).is_some());
    }
}

proptest! {
    #[test]
    fn each_position_is_reached_once(tree in shape()) {
        let seen = walk(tree);
        let all: Vec<u32> = (0..tree.size()).collect();
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, all);
    }

    #[test]
    fn parent_and_children_agree(tree in shape()) {
        for i in 0..tree.size() {
            for child in tree.children(i) {
                prop_assert_eq!(tree.parent(child), Some(i));
                prop_assert_eq!(tree.level(child), tree.level(i) + 1);
            }
            prop_assert!(tree.children(i).len() <= tree.k() as usize);
            prop_assert!(tree.level(i) <= tree.depth());
        }
    }

    #[test]
    fn subtrees_partition_their_top(tree in shape(), at in any::<prop::sample::Index>()) {
        let top = u32::try_from(at.index(tree.size() as usize)).unwrap();
        let below: BTreeSet<u32> = tree.descendants(top).collect();
        prop_assert_eq!(below.len(), tree.descendants(top).count());
        prop_assert_eq!(below.len() as u32 + 1, tree.subtree_size(top));
        let by_child: u32 = tree.children(top).map(|c| tree.subtree_size(c)).sum();
        prop_assert_eq!(by_child + 1, tree.subtree_size(top));
        for i in 0..tree.size() {
            prop_assert_eq!(tree.is_within(top, i), i == top || below.contains(&i));
        }
    }

    #[test]
    fn a_route_walks_edges_and_arrives(
        tree in shape(),
        a in any::<prop::sample::Index>(),
        b in any::<prop::sample::Index>(),
    ) {
        let n = tree.size() as usize;
        let (from, to) = (a.index(n) as u32, b.index(n) as u32);
        let route: Vec<u32> = tree.route(from, to).collect();
        prop_assert_eq!(route.first(), Some(&from));
        prop_assert_eq!(route.last(), Some(&to));
        for pair in route.windows(2) {
            let adjacent = tree.parent(pair[0]) == Some(pair[1])
                || tree.parent(pair[1]) == Some(pair[0]);
            prop_assert!(adjacent, "{:?} is no edge", pair);
        }
        let distinct: BTreeSet<_> = route.iter().collect();
        prop_assert_eq!(distinct.len(), route.len());
    }

    #[test]
    fn positions_outside_have_no_relatives(tree in shape(), beyond in 0u32..1000) {
        let i = tree.size() + beyond;
        prop_assert_eq!(tree.parent(i), None);
        prop_assert!(tree.children(i).is_empty());
        prop_assert_eq!(tree.subtree_size(i), 0);
        prop_assert_eq!(tree.next_hop(0, i), None);
        prop_assert_eq!(tree.route(i, 0).count(), 0);
        prop_assert!(!tree.is_within(0, i));
    }
}
