//! Makes new keys common to all shells: gather up the tree, dictionary down.
//!
//! A shell sends to its parent once its own ranks have entered and all its
//! children have reported, so a round passes each edge once in each direction,
//! in messages of bounded size. Rounds do not wait for each other.

use super::kvs::Entry;
use super::peer::{Message, Part, Round, entry_size};
use crate::kary::Tree;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Default size of one message, in bytes; below it the cost per message
/// rules, above it messages of others would wait.
pub const BATCH_BYTES: usize = 96 * 1024;

/// What the machine wants done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send {
        to: u32,
        message: Message,
    },
    /// The round is over; these are the keys of all.
    Done {
        round: Round,
        entries: Vec<Entry>,
    },
}

/// A message that does not fit the state of its round. Links keep order, so
/// this is a defect or a foreign sender.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected part {number} of a key exchange from shell {from}")]
pub(crate) struct OutOfOrder {
    from: u32,
    number: u32,
}

#[derive(Debug)]
pub(crate) struct Exchange {
    me: u32,
    k: u32,
    batch: usize,
    open: HashMap<Round, Open>,
}

/// A round that has not ended here.
#[derive(Debug, Default)]
struct Open {
    /// Known once our own ranks have entered.
    place: Option<Place>,
    children: BTreeMap<u32, Link>,
    above: Link,
    entries: Vec<Entry>,
    sent_up: bool,
}

/// How much of a neighbour's dictionary has come.
#[derive(Debug, Default)]
struct Link {
    parts: u32,
    done: bool,
}

impl Link {
    fn advance(&mut self, from: u32, part: &Part) -> Result<(), OutOfOrder> {
        if self.done || part.number != self.parts {
            return Err(OutOfOrder {
                from,
                number: part.number,
            });
        }
        self.parts += 1;
        self.done = part.last;
        Ok(())
    }
}

/// Our neighbours among the shells that take part.
#[derive(Debug)]
struct Place {
    parent: Option<u32>,
    children: Vec<u32>,
}

impl Place {
    /// `None` if `me` does not take part.
    fn new(me: u32, k: u32, shells: &[u32]) -> Option<Self> {
        let at = u32::try_from(shells.binary_search(&me).ok()?).ok()?;
        let tree = Tree::new(k, u32::try_from(shells.len()).ok()?);
        let shell = |position: u32| shells.get(usize::try_from(position).ok()?).copied();
        Some(Self {
            parent: tree.parent(at).and_then(shell),
            children: tree.children(at).filter_map(shell).collect(),
        })
    }
}

impl Exchange {
    pub(crate) fn new(me: u32, k: u32, batch: usize) -> Self {
        Self {
            me,
            k,
            batch,
            open: HashMap::new(),
        }
    }

    /// True while a round on `lane` (`None`: any) is known to have started that
    /// `rank` of a job of `size` must enter.
    pub(crate) fn waits_for(&self, rank: u32, size: u32, lane: Option<u32>) -> bool {
        self.open.keys().any(|round| {
            // No round of one node comes here.
            lane.is_none_or(|lane| lane == round.lane) && round.key.involves(rank, size, None)
        })
    }

    /// All ranks of this shell have entered. `shells` are those that take
    /// part, ascending, this one among them.
    pub(crate) fn begin(
        &mut self,
        round: Round,
        shells: &Rc<[u32]>,
        entries: Vec<Entry>,
        steps: &mut Vec<Step>,
    ) {
        let open = self.open.entry(round.clone()).or_default();
        open.place = Place::new(self.me, self.k, shells);
        open.entries.extend(entries);
        self.advance(&round, steps);
    }

    /// A part from the child `from`.
    pub(crate) fn up(
        &mut self,
        from: u32,
        part: Part,
        steps: &mut Vec<Step>,
    ) -> Result<(), OutOfOrder> {
        let open = self.open.entry(part.round.clone()).or_default();
        open.children
            .entry(from)
            .or_default()
            .advance(from, &part)?;
        open.entries.extend(part.entries);
        if part.last {
            self.advance(&part.round, steps);
        }
        Ok(())
    }

    /// A part from the parent: passed on at once, complete or not.
    pub(crate) fn down(
        &mut self,
        from: u32,
        part: Part,
        steps: &mut Vec<Step>,
    ) -> Result<(), OutOfOrder> {
        let fault = OutOfOrder {
            from,
            number: part.number,
        };
        let Some(open) = self.open.get_mut(&part.round).filter(|open| open.sent_up) else {
            return Err(fault);
        };
        let Some(place) = open.place.as_ref().filter(|p| p.parent == Some(from)) else {
            return Err(fault);
        };
        open.above.advance(from, &part)?;
        for &to in &place.children {
            steps.push(Step::Send {
                to,
                message: Message::Down(part.clone()),
            });
        }
        open.entries.extend(part.entries);
        if part.last {
            self.end(part.round, steps);
        }
        Ok(())
    }

    /// Sends up, or turns round at the top, when everything below is there.
    fn advance(&mut self, round: &Round, steps: &mut Vec<Step>) {
        let Some(open) = self.open.get_mut(round) else {
            return;
        };
        let Some(place) = &open.place else { return };
        let done = |child| open.children.get(child).is_some_and(|link| link.done);
        if open.sent_up || !place.children.iter().all(done) {
            return;
        }
        match place.parent {
            Some(to) => {
                // The parent returns these with the rest.
                let entries = std::mem::take(&mut open.entries);
                open.sent_up = true;
                for part in parts(round, entries, self.batch) {
                    steps.push(Step::Send {
                        to,
                        message: Message::Up(part),
                    });
                }
            }
            None => {
                for part in parts(round, open.entries.clone(), self.batch) {
                    for &to in &place.children {
                        steps.push(Step::Send {
                            to,
                            message: Message::Down(part.clone()),
                        });
                    }
                }
                self.end(round.clone(), steps);
            }
        }
    }

    fn end(&mut self, round: Round, steps: &mut Vec<Step>) {
        if let Some(open) = self.open.remove(&round) {
            steps.push(Step::Done {
                round,
                entries: open.entries,
            });
        }
    }
}

/// Cuts a dictionary into messages; an empty one still makes one.
fn parts(round: &Round, entries: Vec<Entry>, batch: usize) -> Vec<Part> {
    let mut groups: Vec<Vec<Entry>> = vec![Vec::new()];
    let mut room = batch;
    for entry in entries {
        let size = entry_size(&entry);
        if let Some(group) = groups.last_mut()
            && (size <= room || group.is_empty())
        {
            room = room.saturating_sub(size);
            group.push(entry);
            continue;
        }
        room = batch.saturating_sub(size);
        groups.push(vec![entry]);
    }
    let count = groups.len();
    groups
        .into_iter()
        .zip(0u32..)
        .enumerate()
        .map(|(i, (entries, number))| Part {
            round: round.clone(),
            number,
            last: i + 1 == count,
            entries,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::barrier::Key;
    use super::*;
    use proptest::prelude::*;

    fn round() -> Round {
        Round {
            lane: 0,
            key: Key::plain(),
            epoch: 0,
        }
    }

    fn entry(name: &str) -> Entry {
        (name.into(), b"value".to_vec())
    }

    #[test]
    fn one_shell_is_done_at_once() {
        let mut exchange = Exchange::new(0, 2, 100);
        let mut steps = Vec::new();
        exchange.begin(round(), &Rc::from([0]), vec![entry("a")], &mut steps);
        assert_eq!(
            steps,
            [Step::Done {
                round: round(),
                entries: vec![entry("a")]
            }]
        );
        assert!(!exchange.waits_for(0, 1, None));
    }

    #[test]
    fn a_shell_waits_for_its_own_ranks_and_its_children() {
        let shells: Rc<[u32]> = Rc::from([0, 1, 2]);
        let mut exchange = Exchange::new(0, 2, 100);
        let mut steps = Vec::new();
        let part = |name| Part {
            round: round(),
            number: 0,
            last: true,
            entries: vec![entry(name)],
        };
        exchange.up(1, part("b"), &mut steps).unwrap();
        exchange.begin(round(), &shells, vec![entry("a")], &mut steps);
        assert!(steps.is_empty());
        assert!(exchange.waits_for(2, 3, Some(0)) && !exchange.waits_for(2, 3, Some(1)));
        exchange.up(2, part("c"), &mut steps).unwrap();
        assert_eq!(steps.len(), 3, "two children and the end");
        assert!(matches!(&steps[2], Step::Done { entries, .. } if entries.len() == 3));
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let mut exchange = Exchange::new(0, 2, 100);
        let mut steps = Vec::new();
        let part = |number, last| Part {
            round: round(),
            number,
            last,
            entries: vec![],
        };
        assert!(exchange.up(1, part(1, false), &mut steps).is_err());
        exchange.up(1, part(0, true), &mut steps).unwrap();
        assert!(exchange.up(1, part(1, true), &mut steps).is_err());
        assert!(
            exchange.down(1, part(0, true), &mut steps).is_err(),
            "not asked for"
        );
    }

    proptest! {
        #[test]
        fn parts_are_bounded_and_lose_nothing(
            sizes in prop::collection::vec(0usize..300, 0..60),
            batch in 1usize..1000,
        ) {
            let entries: Vec<Entry> =
                sizes.iter().enumerate().map(|(i, &n)| (vec![b'k'; i % 9], vec![b'v'; n])).collect();
            let cut = parts(&round(), entries.clone(), batch);
            for (i, part) in cut.iter().enumerate() {
                prop_assert_eq!(part.number as usize, i);
                prop_assert_eq!(part.last, i + 1 == cut.len());
                let bytes: usize = part.entries.iter().map(entry_size).sum();
                prop_assert!(bytes <= batch || part.entries.len() == 1);
            }
            let joined: Vec<Entry> = cut.into_iter().flat_map(|p| p.entries).collect();
            prop_assert_eq!(joined, entries);
        }
    }
}
