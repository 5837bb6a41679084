//! Who waits where: the barriers of one lane on one shell.

use super::server::ConnId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which ranks a barrier joins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Group {
    /// All ranks of the job.
    World,
    /// All ranks of the node of that number.
    Node(u32),
    /// The ranks listed, under the text that lists them.
    List(Vec<u8>),
}

/// Barriers with different keys never touch each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) group: Group,
    pub(crate) tag: i64,
}

impl Key {
    /// The barrier of PMI 1.1.
    pub(crate) const fn plain() -> Self {
        Self {
            group: Group::World,
            tag: 0,
        }
    }

    /// Whether the barrier waits for `rank`, which is on `node`, of a job of `size`.
    pub(crate) fn involves(&self, rank: u32, size: u32, node: Option<u32>) -> bool {
        match &self.group {
            Group::World => true,
            Group::Node(number) => node == Some(*number),
            Group::List(list) => members(list, size).is_some_and(|ranks| ranks.contains(&rank)),
        }
    }

    /// Reads `GROUP:TAG` as PMI 1.2 clients send it, here one on `node`.
    pub(crate) fn parse(text: &[u8], node: u32) -> Option<Self> {
        let colon = text.iter().rposition(|&b| b == b':')?;
        let tag = std::str::from_utf8(&text[colon + 1..]).ok()?.parse().ok()?;
        let group = match &text[..colon] {
            b"WORLD" => Group::World,
            b"NODE" => Group::Node(node),
            list => Group::List(list.to_vec()),
        };
        Some(Self { group, tag })
    }
}

/// The ranks of a list such as `1,5,9`; `None` if it is no such list or names
/// a rank that is not below `size`.
pub(crate) fn members(list: &[u8], size: u32) -> Option<BTreeSet<u32>> {
    let text = std::str::from_utf8(list).ok()?;
    text.split(',')
        .map(|word| word.parse().ok().filter(|&rank| rank < size))
        .collect()
}

/// One barrier. A rank counts once, however many connections it enters with;
/// what it enters beyond that belongs to the next round.
#[derive(Debug)]
pub(crate) struct Barrier {
    /// How many local ranks must enter.
    need: usize,
    waiting: BTreeMap<u32, VecDeque<Option<ConnId>>>,
    running: bool,
    pub(crate) epoch: u64,
}

/// The longest queue of one rank at one barrier.
const QUEUE_MAX: usize = 16;

impl Barrier {
    pub(crate) fn new(need: usize) -> Self {
        Self {
            need,
            waiting: BTreeMap::new(),
            running: false,
            epoch: 0,
        }
    }

    /// Notes that `rank` entered by `conn`; false if it queues too often.
    pub(crate) fn enter(&mut self, rank: u32, conn: ConnId) -> bool {
        let queue = self.waiting.entry(rank).or_default();
        if queue.len() >= QUEUE_MAX {
            return false;
        }
        queue.push_back(Some(conn));
        true
    }

    /// True once for each round: all local ranks have entered.
    pub(crate) fn start(&mut self) -> bool {
        let ready = !self.running && self.waiting.len() == self.need;
        self.running |= ready;
        ready
    }

    /// The round is over: whom to tell.
    pub(crate) fn finish(&mut self) -> Vec<ConnId> {
        self.running = false;
        self.epoch += 1;
        let told = self
            .waiting
            .values_mut()
            .filter_map(VecDeque::pop_front)
            .flatten()
            .collect();
        self.waiting.retain(|_, queue| !queue.is_empty());
        told
    }

    /// `conn` is gone. Its entry is withdrawn unless the round has started;
    /// then it still counts, and nobody is told.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        for queue in self.waiting.values_mut() {
            for (place, slot) in queue.iter_mut().enumerate() {
                if *slot == Some(conn) && self.running && place == 0 {
                    *slot = None;
                }
            }
            queue.retain(|slot| *slot != Some(conn));
        }
        self.waiting.retain(|_, queue| !queue.is_empty());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many local ranks wait, and for how many.
    pub(crate) fn tally(&self) -> (usize, usize) {
        (self.waiting.len(), self.need)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);
    const C: ConnId = ConnId(3);

    #[test]
    fn keys_are_read() {
        let key = |group, tag| Some(Key { group, tag });
        let parse = |text: &[u8]| Key::parse(text, 5);
        assert_eq!(parse(b"WORLD:0"), key(Group::World, 0));
        assert_eq!(parse(b"NODE:351521743"), key(Group::Node(5), 351_521_743));
        assert_eq!(parse(b"0,2:7"), key(Group::List(b"0,2".to_vec()), 7));
        assert_eq!(parse(b"WORLD"), None);
        assert_eq!(parse(b"WORLD:x"), None);
        assert_eq!(members(b"0,2,2", 3), Some(BTreeSet::from([0, 2])));
        assert_eq!(members(b"0,3", 3), None);
        assert_eq!(members(b"", 3), None);
        assert_eq!(members(b"0-2", 3), None);
    }

    #[test]
    fn a_barrier_involves_its_ranks() {
        let key = |text: &[u8]| Key::parse(text, 5).unwrap();
        assert!(key(b"WORLD:0").involves(2, 3, None));
        assert!(key(b"0,2:0").involves(2, 3, None));
        assert!(!key(b"0,2:0").involves(1, 3, Some(5)));
        assert!(key(b"NODE:0").involves(1, 3, Some(5)));
        assert!(!key(b"NODE:0").involves(1, 3, Some(0)));
        assert!(!key(b"NODE:0").involves(1, 3, None));
    }

    #[test]
    fn ranks_count_not_messages() {
        let mut barrier = Barrier::new(2);
        assert!(barrier.enter(0, A));
        assert!(barrier.enter(0, B));
        assert!(!barrier.start());
        assert!(barrier.enter(1, C));
        assert!(barrier.start());
        assert!(!barrier.start(), "once per round");
        assert_eq!(barrier.finish(), [A, C]);
        assert!(!barrier.is_idle(), "B waits for the next round");
        assert!(barrier.enter(1, C));
        assert!(barrier.start());
        assert_eq!(barrier.finish(), [B, C]);
        assert!(barrier.is_idle());
    }

    #[test]
    fn a_lost_connection_withdraws_only_before_the_start() {
        let mut barrier = Barrier::new(2);
        barrier.enter(0, A);
        barrier.forget(A);
        assert!(barrier.is_idle());
        barrier.enter(0, A);
        barrier.enter(1, B);
        assert!(barrier.start());
        barrier.forget(A);
        assert_eq!(barrier.finish(), [B]);
        assert!(barrier.is_idle());
    }

    #[test]
    fn a_queue_is_bounded() {
        let mut barrier = Barrier::new(2);
        let entered = (0..100).filter(|_| barrier.enter(0, A)).count();
        assert_eq!(entered, QUEUE_MAX);
    }
}
