//! Which `pmiid` belongs to which rank and lane.

use std::collections::HashMap;

/// Ids stay within what C clients read with `int`.
const ID_MAX: i64 = i32::MAX as i64;

/// How ids of ranks are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdPolicy {
    /// The id of lane 0 is the rank itself; some tools read it so.
    #[default]
    Rank,
    /// Each task gets a random number that only it knows.
    Random,
}

/// The ids that one provider accepts.
///
/// On lane `l` the id of a rank is its id on lane 0 plus `size × l`.
#[derive(Clone, Debug)]
pub struct Ids {
    size: u32,
    lanes: u32,
    /// The id on lane 0 of each rank served here.
    first: HashMap<u32, i64>,
    owner: HashMap<i64, (u32, u32)>,
}

impl Ids {
    /// Ids for `ranks` of a job of `size`, `lanes` (at least 1) for each.
    /// `random` gives numbers for [`IdPolicy::Random`].
    pub fn new(
        policy: IdPolicy,
        size: u32,
        lanes: u32,
        ranks: &[u32],
        mut random: impl FnMut() -> u32,
    ) -> Self {
        let lanes = lanes.max(1);
        let mut ids = Self {
            size,
            lanes,
            first: HashMap::new(),
            owner: HashMap::new(),
        };
        for &rank in ranks {
            let first = match policy {
                IdPolicy::Rank => i64::from(rank),
                IdPolicy::Random => ids.free_id(&mut random),
            };
            for lane in 0..lanes {
                ids.owner.insert(ids.on_lane(first, lane), (rank, lane));
            }
            ids.first.insert(rank, first);
        }
        ids
    }

    /// Ids of all ranks that follow from a secret: who has the secret can work
    /// out the id of its rank, and nobody else.
    #[must_use]
    pub fn from_secret(secret: &[u8], size: u32, lanes: u32) -> Self {
        let ranks: Vec<u32> = (0..size).collect();
        let mut stream = blake3::Hasher::new_derive_key("flux-bcast PMI ids 1")
            .update(secret)
            .finalize_xof();
        Self::new(IdPolicy::Random, size, lanes, &ranks, || {
            let mut bytes = [0; 4];
            stream.fill(&mut bytes);
            u32::from_le_bytes(bytes)
        })
    }

    /// The number of lanes of each rank.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The `PMI_ID` of a rank served here.
    #[must_use]
    pub fn id(&self, rank: u32) -> Option<i64> {
        self.first.get(&rank).copied()
    }

    /// The rank and lane of an id, if it is one of ours.
    #[must_use]
    pub fn owner(&self, id: i64) -> Option<(u32, u32)> {
        self.owner.get(&id).copied()
    }

    fn on_lane(&self, first: i64, lane: u32) -> i64 {
        first + i64::from(self.size) * i64::from(lane)
    }

    /// A random id all of whose lanes are unused.
    fn free_id(&self, random: &mut impl FnMut() -> u32) -> i64 {
        let span = i64::from(self.size) * i64::from(self.lanes - 1);
        let room = (ID_MAX - span).max(1);
        loop {
            let id = i64::from(random()) % room;
            let taken = |lane| self.owner.contains_key(&self.on_lane(id, lane));
            if !(0..self.lanes).any(taken) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn lanes_follow_the_rank() {
        let ids = Ids::new(IdPolicy::Rank, 4, 3, &[1, 2], || 0);
        assert_eq!(ids.id(1), Some(1));
        assert_eq!(ids.owner(1), Some((1, 0)));
        assert_eq!(ids.owner(5), Some((1, 1)));
        assert_eq!(ids.owner(10), Some((2, 2)));
        for foreign in [-1, 0, 3, 4, 7, 13, 14] {
            assert_eq!(ids.owner(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_secret_gives_the_same_ids_to_all_who_have_it() {
        let ids = |secret: &[u8]| {
            let ids = Ids::from_secret(secret, 100, 8);
            (0..100)
                .map(|rank| ids.id(rank).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(b"a"), ids(b"a"));
        assert_ne!(ids(b"a"), ids(b"b"));
    }

    #[test]
    fn random_ids_are_distinct_on_all_lanes() {
        // A source that repeats itself forces the search for a free id.
        let mut n = 0;
        let ranks: Vec<u32> = (0..64).collect();
        let ids = Ids::new(IdPolicy::Random, 64, 4, &ranks, || {
            n += 1;
            (n / 3u32).wrapping_mul(613_566_756)
        });
        let all: BTreeSet<(u32, u32)> = ids.owner.values().copied().collect();
        assert_eq!(all.len(), 64 * 4);
        assert!(ids.owner.keys().all(|id| (0..=ID_MAX).contains(id)));
        for rank in ranks {
            let first = ids.id(rank).unwrap();
            assert_eq!(ids.owner(first + 3 * 64), Some((rank, 3)));
        }
    }
}
