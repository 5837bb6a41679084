//! Arithmetic of a complete k-ary tree over the positions `0..size`.
//!
//! File broadcast and the PMI exchange both lay such a tree over the shells of
//! a job: position 0 is the root, and the children of position `i` are the
//! positions `k*i + 1 ..= k*i + k` that exist. Nothing is stored; every
//! question is answered from the two numbers, so each shell can work out its
//! neighbours without asking anybody.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// The shape of a tree: how many positions, and how many children at most.
///
/// `k = 1` is a chain; `k >= size - 1` is a star around position 0.
///
/// Methods that take a position treat one outside `0..size` as having no
/// relatives; they never panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    k: NonZeroU32,
    size: u32,
}

impl Tree {
    /// A tree of `size` positions with at most `k` children each. A `k` of 0
    /// is taken as 1, since a tree of more than one position needs an edge.
    #[must_use]
    pub fn new(k: u32, size: u32) -> Self {
        let k = NonZeroU32::new(k).unwrap_or(NonZeroU32::MIN);
        Self { k, size }
    }

    /// The largest number of children that a position has.
    #[must_use]
    pub fn k(self) -> u32 {
        self.k.get()
    }

    /// The number of positions.
    #[must_use]
    pub fn size(self) -> u32 {
        self.size
    }

    /// The position above `i`; `None` for the root.
    #[must_use]
    pub fn parent(self, i: u32) -> Option<u32> {
        if i >= self.size {
            return None;
        }
        i.checked_sub(1).map(|below| below / self.k)
    }

    /// The positions directly below `i`; they are consecutive.
    #[must_use]
    pub fn children(self, i: u32) -> Range<u32> {
        if i >= self.size {
            return 0..0;
        }
        let first = self.clamp(u64::from(self.k.get()) * u64::from(i) + 1);
        let end = self.clamp(u64::from(first) + u64::from(self.k.get()));
        first..end
    }

    /// How many edges lie between `i` and the root.
    #[must_use]
    pub fn level(self, i: u32) -> u32 {
        if self.k.get() == 1 {
            return if i < self.size { i } else { 0 };
        }
        let mut level = 0;
        let mut at = i;
        while let Some(up) = self.parent(at) {
            at = up;
            level += 1;
        }
        level
    }

    /// The level of the deepest position; 0 for a tree of at most one.
    #[must_use]
    pub fn depth(self) -> u32 {
        // Levels never decrease with the position.
        self.size.checked_sub(1).map_or(0, |last| self.level(last))
    }

    /// The positions below `i`, `i` itself left out, level by level and in
    /// rising order.
    pub fn descendants(self, i: u32) -> impl Iterator<Item = u32> {
        self.levels(i).skip(1).flatten()
    }

    /// How many positions the subtree of `i` has, `i` included.
    #[must_use]
    pub fn subtree_size(self, i: u32) -> u32 {
        if self.k.get() == 1 {
            return self.size.saturating_sub(i);
        }
        self.levels(i).map(|level| level.end - level.start).sum()
    }

    /// Whether `i` is `top` or lies below it.
    #[must_use]
    pub fn is_within(self, top: u32, i: u32) -> bool {
        i < self.size && self.branch(top, i).is_some()
    }

    /// The neighbour of `from` that is next on the way to `to`; `None` when
    /// there is no way to go (`from == to`, or one of them does not exist).
    #[must_use]
    pub fn next_hop(self, from: u32, to: u32) -> Option<u32> {
        if from == to || from >= self.size || to >= self.size {
            return None;
        }
        match self.branch(from, to) {
            Some(child) => Some(child),
            None => self.parent(from),
        }
    }

    /// The positions passed on the way from `from` to `to`, both ends
    /// included; empty when one of them does not exist.
    pub fn route(self, from: u32, to: u32) -> impl Iterator<Item = u32> {
        let start = (from < self.size && to < self.size).then_some(from);
        std::iter::successors(start, move |&at| self.next_hop(at, to))
    }

    /// If `i` is in the subtree of `top`: the child of `top` that leads to it
    /// (`top` itself when they are the same).
    fn branch(self, top: u32, i: u32) -> Option<u32> {
        if i <= top {
            return (i == top).then_some(top);
        }
        if self.k.get() == 1 {
            return Some(top + 1);
        }
        let mut at = i;
        loop {
            let up = self.parent(at)?;
            if up == top {
                return Some(at);
            }
            if up < top {
                return None;
            }
            at = up;
        }
    }

    /// The subtree of `i` as one range of positions per level.
    fn levels(self, i: u32) -> impl Iterator<Item = Range<u32>> {
        let top = (i < self.size).then(|| i..i + 1);
        std::iter::successors(top, move |level| {
            let first = self.children(level.start).start;
            let end = self.children(level.end - 1).end;
            (first < end).then_some(first..end)
        })
    }

    fn clamp(self, position: u64) -> u32 {
        u32::try_from(position).map_or(self.size, |p| p.min(self.size))
    }
}
