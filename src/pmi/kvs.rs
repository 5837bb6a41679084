//! The key space of one lane on one shell: what is new here, and what an
//! exchange has made common to all shells.

use super::wire::{KEY_MAX, VALUE_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Keys with this prefix stay on their shell.
const LOCAL: &[u8] = b"local::";

/// A key and its value.
pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// Why a put is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutError {
    KeyLength,
    ValueLength,
    Full,
}

/// How far a put had come when something happened; see [`Kvs::snapshot`].
pub(crate) type Generation = u64;

#[derive(Debug)]
struct Fresh {
    value: Vec<u8>,
    rank: u32,
    generation: Generation,
}

/// # Invariants
///
/// A key put here stays in `fresh` until a round of *all* shells that carried
/// it has ended. So every round that starts meanwhile carries it too, and no
/// barrier can overtake the keys that were put before it.
#[derive(Debug)]
pub(crate) struct Kvs {
    locals: BTreeMap<Vec<u8>, Vec<u8>>,
    fresh: BTreeMap<Vec<u8>, Fresh>,
    common: BTreeMap<Vec<u8>, Vec<u8>>,
    generation: Generation,
    bytes: usize,
    max_keys: usize,
    max_bytes: usize,
}

impl Kvs {
    pub(crate) fn new(max_keys: usize, max_bytes: usize) -> Self {
        Self {
            locals: BTreeMap::new(),
            fresh: BTreeMap::new(),
            common: BTreeMap::new(),
            generation: 0,
            bytes: 0,
            max_keys,
            max_bytes,
        }
    }

    /// Stores a value; a second put of a key replaces the first.
    pub(crate) fn put(
        &mut self,
        rank: u32,
        key: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<(), PutError> {
        if key.is_empty() || key.len() > KEY_MAX {
            return Err(PutError::KeyLength);
        }
        if value.len() > VALUE_MAX {
            return Err(PutError::ValueLength);
        }
        let size = key.len() + value.len();
        let keys = self.locals.len() + self.fresh.len() + self.common.len();
        if keys >= self.max_keys || self.bytes + size > self.max_bytes {
            return Err(PutError::Full);
        }
        self.bytes += size;
        let name = key.len();
        let replaced = if key.starts_with(LOCAL) {
            self.locals.insert(key, value)
        } else {
            let generation = self.generation;
            let fresh = Fresh {
                value,
                rank,
                generation,
            };
            self.fresh.insert(key, fresh).map(|old| old.value)
        };
        if let Some(old) = replaced {
            self.bytes -= name + old.len();
        }
        Ok(())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.locals
            .get(key)
            .or_else(|| self.fresh.get(key).map(|fresh| &fresh.value))
            .or_else(|| self.common.get(key))
            .map(Vec::as_slice)
    }

    /// The `index`-th key of all that an exchange may carry, in their order.
    pub(crate) fn by_index(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let only_common = self
            .common
            .iter()
            .filter(|(key, _)| !self.fresh.contains_key(*key))
            .map(|(key, value)| (key.as_slice(), value.as_slice()));
        let fresh = self
            .fresh
            .iter()
            .map(|(key, f)| (key.as_slice(), f.value.as_slice()));
        only_common.chain(fresh).nth(index)
    }

    /// What a round must carry: the keys of `ranks` (`None`: all) that are not
    /// yet common, and the generation to give to [`Kvs::settle`].
    pub(crate) fn snapshot(
        &mut self,
        ranks: Option<&BTreeSet<u32>>,
    ) -> (Vec<Entry>, Generation) {
        let generation = self.generation;
        self.generation += 1;
        let entries = self
            .fresh
            .iter()
            .filter(|(_, fresh)| ranks.is_none_or(|set| set.contains(&fresh.rank)))
            .map(|(key, fresh)| (key.clone(), fresh.value.clone()))
            .collect();
        (entries, generation)
    }

    /// Takes in the dictionary of a round.
    pub(crate) fn absorb(&mut self, entries: Vec<Entry>) {
        for (key, value) in entries {
            self.bytes += key.len() + value.len();
            let name = key.len();
            if let Some(old) = self.common.insert(key, value) {
                self.bytes -= name + old.len();
            }
        }
    }

    /// A round of all shells that carried everything up to `generation` has
    /// ended: those keys need not be carried again.
    pub(crate) fn settle(&mut self, generation: Generation) {
        let settled: Vec<Vec<u8>> = self
            .fresh
            .iter()
            .filter(|(_, fresh)| fresh.generation <= generation)
            .map(|(key, _)| key.clone())
            .collect();
        for key in settled {
            if let Some(fresh) = self.fresh.remove(&key) {
                self.bytes -= key.len() + fresh.value.len();
            }
        }
    }

    /// Bytes of keys and values held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kvs() -> Kvs {
        Kvs::new(1000, 100_000)
    }

    fn put(kvs: &mut Kvs, rank: u32, key: &str, value: &str) {
        kvs.put(rank, key.into(), value.into()).unwrap();
    }

    #[test]
    fn boundary_lengths() {
        let mut kvs = kvs();
        assert_eq!(
            kvs.put(0, vec![b'k'; KEY_MAX], vec![b'v'; VALUE_MAX]),
            Ok(())
        );
        assert_eq!(
            kvs.put(0, vec![b'k'; KEY_MAX + 1], vec![]),
            Err(PutError::KeyLength)
        );
        assert_eq!(kvs.put(0, vec![], vec![]), Err(PutError::KeyLength));
        let long = vec![b'v'; VALUE_MAX + 1];
        assert_eq!(kvs.put(0, b"k".to_vec(), long), Err(PutError::ValueLength));
        assert_eq!(kvs.get(&[b'k'; KEY_MAX]), Some(&[b'v'; VALUE_MAX][..]));
    }

    #[test]
    fn local_keys_are_never_carried() {
        let mut kvs = kvs();
        put(&mut kvs, 0, "local::a", "1");
        put(&mut kvs, 0, "a", "2");
        assert_eq!(kvs.get(b"local::a"), Some(&b"1"[..]));
        assert_eq!(kvs.snapshot(None).0, [(b"a".to_vec(), b"2".to_vec())]);
    }

    #[test]
    fn the_last_put_wins() {
        let mut kvs = kvs();
        put(&mut kvs, 0, "a", "old");
        put(&mut kvs, 1, "a", "new");
        assert_eq!(kvs.get(b"a"), Some(&b"new"[..]));
        let (entries, generation) = kvs.snapshot(None);
        put(&mut kvs, 0, "a", "newer");
        kvs.absorb(entries);
        kvs.settle(generation);
        assert_eq!(
            kvs.get(b"a"),
            Some(&b"newer"[..]),
            "put while the round ran"
        );
        assert_eq!(kvs.snapshot(None).0, [(b"a".to_vec(), b"newer".to_vec())]);
    }

    #[test]
    fn a_key_is_carried_until_a_round_that_had_it_ends() {
        let mut kvs = kvs();
        put(&mut kvs, 0, "a", "1");
        let (first, generation) = kvs.snapshot(None);
        let (second, _) = kvs.snapshot(None);
        assert_eq!(first, second, "the second may end before the first");
        kvs.absorb(first);
        kvs.settle(generation);
        assert!(kvs.snapshot(None).0.is_empty());
        assert_eq!(kvs.get(b"a"), Some(&b"1"[..]));
    }

    #[test]
    fn a_group_carries_the_keys_of_its_ranks() {
        let mut kvs = kvs();
        put(&mut kvs, 0, "a", "1");
        put(&mut kvs, 1, "b", "2");
        let group = BTreeSet::from([1]);
        assert_eq!(
            kvs.snapshot(Some(&group)).0,
            [(b"b".to_vec(), b"2".to_vec())]
        );
        assert_eq!(kvs.snapshot(None).0.len(), 2);
    }

    #[test]
    fn limits_hold_and_bytes_are_accounted() {
        let mut kvs = Kvs::new(3, 20);
        put(&mut kvs, 0, "a", "123456789");
        assert_eq!(
            kvs.put(0, b"b".to_vec(), b"1234567890".to_vec()),
            Err(PutError::Full)
        );
        put(&mut kvs, 0, "b", "1");
        put(&mut kvs, 0, "local::c", "");
        assert_eq!(kvs.put(0, b"d".to_vec(), vec![]), Err(PutError::Full));
        let (entries, generation) = kvs.snapshot(None);
        kvs.absorb(entries);
        kvs.settle(generation);
        assert_eq!(kvs.bytes(), 10 + 2 + 8);
    }

    #[test]
    fn enumeration_lists_every_key_once() {
        let mut kvs = kvs();
        put(&mut kvs, 0, "a", "1");
        put(&mut kvs, 0, "b", "2");
        let (entries, generation) = kvs.snapshot(None);
        kvs.absorb(entries);
        kvs.settle(generation);
        put(&mut kvs, 0, "b", "3");
        put(&mut kvs, 0, "c", "4");
        let all: Vec<_> = (0..).map_while(|i| kvs.by_index(i)).collect();
        assert_eq!(all, [(&b"a"[..], &b"1"[..]), (b"b", b"3"), (b"c", b"4")]);
    }
}
