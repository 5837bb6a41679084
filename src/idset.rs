//! Sets of ranks in the text form of RFC 22 (`0-3,7`).

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de;

/// Largest set that is accepted from text: larger ones are typing mistakes or
/// attacks, not jobs.
const MAX_LEN: u64 = 1 << 20;

/// An ordered set of unsigned numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdSet(BTreeSet<u32>);

/// Why a text is not an idset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an idset such as 0-3,7: {reason}")]
pub struct IdSetError {
    text: String,
    reason: &'static str,
}

impl IdSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number; tells whether it was new.
    pub fn insert(&mut self, id: u32) -> bool {
        self.0.insert(id)
    }

    /// Removes a number; tells whether it was there.
    pub fn remove(&mut self, id: u32) -> bool {
        self.0.remove(&id)
    }

    /// True if the number is in the set.
    pub fn contains(&self, id: u32) -> bool {
        self.0.contains(&id)
    }

    /// How many numbers it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without any number.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The largest number.
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self(ids.into_iter().collect())
    }
}

impl Extend<u32> for IdSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        self.0.extend(ids);
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while ids.peek().is_some_and(|&next| next == last + 1) {
                last += 1;
                ids.next();
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for IdSet {
    type Err = IdSetError;

    fn from_str(text: &str) -> Result<Self, IdSetError> {
        let fail = |reason| IdSetError {
            text: text.into(),
            reason,
        };
        let inner = match text.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .ok_or_else(|| fail("'[' without ']'"))?,
            None => text,
        };
        let mut set = Self::new();
        if inner.is_empty() {
            return Ok(set);
        }
        for part in inner.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first), number(last)),
                None => (number(part), number(part)),
            };
            let (Some(first), Some(last)) = (first, last) else {
                return Err(fail("numbers, ranges and commas only"));
            };
            if last < first {
                return Err(fail("a range runs backwards"));
            }
            if u64::from(last - first) >= MAX_LEN || set.len() as u64 >= MAX_LEN {
                return Err(fail("too many members"));
            }
            for id in first..=last {
                if !set.insert(id) {
                    return Err(fail("a number occurs twice"));
                }
            }
        }
        Ok(set)
    }
}

/// Parses digits only: no sign, no space, as RFC 22 has it.
fn number(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

impl Serialize for IdSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IdSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn folds_runs() {
        let set: IdSet = [5, 0, 1, 2, 9, 8].into_iter().collect();
        assert_eq!(set.to_string(), "0-2,5,8-9");
        assert_eq!(IdSet::new().to_string(), "");
    }

    #[test]
    fn refuses_what_is_not_an_idset() {
        for text in [
            "a",
            "1-",
            "-1",
            "3-1",
            "1,1",
            "1-3,2",
            "1,,2",
            "+1",
            " 1",
            "[1",
            "0-4294967295",
        ] {
            assert!(text.parse::<IdSet>().is_err(), "{text}");
        }
        assert_eq!("[0-1]".parse::<IdSet>().unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn text_round_trip(ids in proptest::collection::btree_set(0u32..500, 0..60)) {
            let set: IdSet = ids.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<IdSet>().unwrap(), set);
        }
    }
}
