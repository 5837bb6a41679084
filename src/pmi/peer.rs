//! What providers of one job say to each other, as bytes.
//!
//! | part   | bytes | meaning                                             |
//! |--------|-------|-----------------------------------------------------|
//! | magic  | 2     | `PX`                                                |
//! | format | 1     | 1                                                   |
//! | kind   | 1     | see `Message`                                       |
//! | from   | 4     | shell rank of the sender                            |
//! | body   | rest  | numbers little-endian; byte strings with u32 length |

use super::barrier::{Group, Key};
use super::kvs::Entry;
use super::names::{NameError, NameOp};

const MAGIC: &[u8; 3] = b"PX\x01";

/// One barrier of one lane, once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Round {
    pub(crate) lane: u32,
    pub(crate) key: Key,
    pub(crate) epoch: u64,
}

/// A piece of the dictionary of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) round: Round,
    pub(crate) number: u32,
    pub(crate) last: bool,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// From a child: keys of its subtree.
    Up(Part),
    /// From the parent: keys of all.
    Down(Part),
    /// To shell 0, which keeps the published names.
    Ask { token: u64, op: NameOp },
    Answer {
        token: u64,
        result: Result<Vec<u8>, NameError>,
    },
    /// To shell 0: a rank will enter no more barriers (of one lane, or any).
    Gone {
        rank: u32,
        lane: Option<u32>,
        text: String,
    },
    /// To shell 0: it is there again, on that lane.
    Back { rank: u32, lane: u32 },
}

/// The bytes are no message of this format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message between shells")]
pub(crate) struct Malformed;

pub(crate) fn encode(from: u32, message: &Message) -> Vec<u8> {
    let kind = match message {
        Message::Up(_) => 1,
        Message::Down(_) => 2,
        Message::Ask { .. } => 3,
        Message::Answer { .. } => 4,
        Message::Gone { .. } => 5,
        Message::Back { .. } => 6,
    };
    let mut w = Writer(MAGIC.to_vec());
    w.u8(kind);
    w.u32(from);
    match message {
        Message::Up(part) | Message::Down(part) => w.part(part),
        Message::Ask { token, op } => {
            w.u64(*token);
            match op {
                NameOp::Publish { service, port } => {
                    w.u8(0);
                    w.bytes(service);
                    w.bytes(port);
                }
                NameOp::Lookup { service } => {
                    w.u8(1);
                    w.bytes(service);
                }
                NameOp::Unpublish { service } => {
                    w.u8(2);
                    w.bytes(service);
                }
            }
        }
        Message::Answer { token, result } => {
            w.u64(*token);
            match result {
                Ok(port) => {
                    w.u8(0);
                    w.bytes(port);
                }
                Err(error) => w.u8(error.code()),
            }
        }
        Message::Gone { rank, lane, text } => {
            w.u32(*rank);
            w.u32(lane.map_or(u32::MAX, |lane| lane));
            w.bytes(text.as_bytes());
        }
        Message::Back { rank, lane } => {
            w.u32(*rank);
            w.u32(*lane);
        }
    }
    w.0
}

/// The sender and its message.
pub(crate) fn decode(bytes: &[u8]) -> Result<(u32, Message), Malformed> {
    let mut r = Reader(bytes);
    if r.take(MAGIC.len())? != MAGIC {
        return Err(Malformed);
    }
    let kind = r.u8()?;
    let from = r.u32()?;
    let message = match kind {
        1 => Message::Up(r.part()?),
        2 => Message::Down(r.part()?),
        3 => {
            let token = r.u64()?;
            let op = match r.u8()? {
                0 => NameOp::Publish {
                    service: r.bytes()?,
                    port: r.bytes()?,
                },
                1 => NameOp::Lookup {
                    service: r.bytes()?,
                },
                2 => NameOp::Unpublish {
                    service: r.bytes()?,
                },
                _ => return Err(Malformed),
            };
            Message::Ask { token, op }
        }
        4 => {
            let token = r.u64()?;
            let result = match r.u8()? {
                0 => Ok(r.bytes()?),
                code => Err(NameError::from_code(code).ok_or(Malformed)?),
            };
            Message::Answer { token, result }
        }
        5 => {
            let rank = r.u32()?;
            let lane = Some(r.u32()?).filter(|&lane| lane != u32::MAX);
            let text = String::from_utf8(r.bytes()?).map_err(|_| Malformed)?;
            Message::Gone { rank, lane, text }
        }
        6 => Message::Back {
            rank: r.u32()?,
            lane: r.u32()?,
        },
        _ => return Err(Malformed),
    };
    if r.0.is_empty() {
        Ok((from, message))
    } else {
        Err(Malformed)
    }
}

/// What an entry adds to a message, in bytes.
pub(crate) fn entry_size((key, value): &Entry) -> usize {
    8 + key.len() + value.len()
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // Nothing that is sent comes near 4 GiB: lines and batches are bounded.
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }

    fn part(&mut self, part: &Part) {
        self.u32(part.round.lane);
        self.u64(part.round.epoch);
        self.u64(part.round.key.tag.cast_unsigned());
        match &part.round.key.group {
            Group::World => self.u8(0),
            Group::Node(node) => {
                self.u8(1);
                self.u32(*node);
            }
            Group::List(list) => {
                self.u8(2);
                self.bytes(list);
            }
        }
        self.u32(part.number);
        self.u8(u8::from(part.last));
        for (key, value) in &part.entries {
            self.bytes(key);
            self.bytes(value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Malformed> {
        let n = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        Ok(self.take(n)?.to_vec())
    }

    fn part(&mut self) -> Result<Part, Malformed> {
        let lane = self.u32()?;
        let epoch = self.u64()?;
        let tag = self.u64()?.cast_signed();
        let group = match self.u8()? {
            0 => Group::World,
            1 => Group::Node(self.u32()?),
            2 => Group::List(self.bytes()?),
            _ => return Err(Malformed),
        };
        let number = self.u32()?;
        let last = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        let mut entries = Vec::new();
        while !self.0.is_empty() {
            entries.push((self.bytes()?, self.bytes()?));
        }
        let round = Round {
            lane,
            key: Key { group, tag },
            epoch,
        };
        Ok(Part {
            round,
            number,
            last,
            entries,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    fn part() -> impl Strategy<Value = Part> {
        let group = prop_oneof![
            Just(Group::World),
            any::<u32>().prop_map(Group::Node),
            bytes().prop_map(Group::List),
        ];
        let entries = prop::collection::vec((bytes(), bytes()), 0..5);
        (
            any::<u32>(),
            group,
            any::<i64>(),
            any::<u64>(),
            any::<u32>(),
            any::<bool>(),
            entries,
        )
            .prop_map(|(lane, group, tag, epoch, number, last, entries)| Part {
                round: Round {
                    lane,
                    key: Key { group, tag },
                    epoch,
                },
                number,
                last,
                entries,
            })
    }

    fn message() -> impl Strategy<Value = Message> {
        let op = prop_oneof![
            (bytes(), bytes()).prop_map(|(service, port)| NameOp::Publish { service, port }),
            bytes().prop_map(|service| NameOp::Lookup { service }),
            bytes().prop_map(|service| NameOp::Unpublish { service }),
        ];
        let result = prop_oneof![
            bytes().prop_map(Ok),
            prop::sample::select(&NameError::ALL[..]).prop_map(Err),
        ];
        prop_oneof![
            part().prop_map(Message::Up),
            part().prop_map(Message::Down),
            (any::<u64>(), op).prop_map(|(token, op)| Message::Ask { token, op }),
            (any::<u64>(), result)
                .prop_map(|(token, result)| Message::Answer { token, result }),
            (any::<u32>(), prop::option::of(0u32..9), "[ -~]{0,20}")
                .prop_map(|(rank, lane, text)| Message::Gone { rank, lane, text }),
            any::<(u32, u32)>().prop_map(|(rank, lane)| Message::Back { rank, lane }),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_the_wire(from in any::<u32>(), message in message()) {
            let bytes = encode(from, &message);
            prop_assert_eq!(decode(&bytes), Ok((from, message.clone())));
            // Cut inside an entry or a field it is refused, never misread.
            for cut in 0..bytes.len() {
                if let Ok((_, got)) = decode(&bytes[..cut]) {
                    let shorter = match (got, &message) {
                        (Message::Up(a), Message::Up(b)) | (Message::Down(a), Message::Down(b)) =>
                            a.round == b.round && b.entries.starts_with(&a.entries),
                        _ => false,
                    };
                    prop_assert!(shorter);
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let _ = decode(&[&MAGIC[..], &bytes].concat());
        }
    }
}
