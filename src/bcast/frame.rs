//! Data messages: a fixed binary header and raw bytes.
//!
//! A frame carries one item of the stream. Relays look at the header only and
//! pass the very bytes on. All numbers are little-endian:
//!
//! | at | size | field    | meaning                                              |
//! |----|------|----------|------------------------------------------------------|
//! | 0  | 4    | magic    | `FBC1`                                               |
//! | 4  | 1    | kind     | 1 entry, 2 data, 3 hole, 4 end, 5 fin                |
//! | 5  | 1    | flags    | 0; other values are refused                          |
//! | 6  | 2    | reserved | 0                                                    |
//! | 8  | 16   | transfer | random id of the transfer                            |
//! | 24 | 8    | seq      | number of the frame in its stream, from 0            |
//! | 32 | 8    | offset   | data, hole: byte offset in the entry; end, fin: size |
//! | 40 | 8    | span     | data, hole: length in bytes; fin: number of entries  |
//! | 48 | 4    | entry    | number of the entry, from 0                          |
//! | 52 | 4    | length   | bytes that follow the header                         |
//! | 56 | 4    | check    | CRC-32 of the bytes that follow                      |
//! | 60 | 4    | check    | CRC-32 of the header's first 60 bytes                |
//!
//! What follows the header: an entry's metadata as JSON, a data frame's bytes,
//! an end frame's digest, else nothing. The checksums find a damaged message at
//! the hop where it happened; the digest proves the file.

use std::sync::Arc;

use super::id::TransferId;
use super::item::DIGEST_LEN;
use super::item::Entry;
use super::item::Item;

/// Bytes of the header.
pub const HEADER_LEN: usize = 64;

/// Most bytes that may follow a header: the largest batch and room to spare.
pub const MAX_PAYLOAD: usize = 8 << 20;

const MAGIC: [u8; 4] = *b"FBC1";

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Metadata of the next entry.
    Entry = 1,
    /// Bytes of the current entry.
    Data = 2,
    /// A run of zeros in the current entry.
    Hole = 3,
    /// The current entry is complete.
    End = 4,
    /// The stream is complete.
    Fin = 5,
}

/// Why a message is not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than a header, or not as long as the header says.
    #[error("damaged message: wrong length")]
    Length,
    /// Not a frame of this protocol.
    #[error("not a data message of this protocol")]
    Magic,
    /// A kind or flag this version does not know.
    #[error("data message of an unknown kind")]
    Kind,
    /// A checksum does not match.
    #[error("damaged message: checksum mismatch")]
    Checksum,
    /// Fields that contradict each other, or bytes that mean nothing.
    #[error("data message with impossible contents")]
    Contents,
}

/// One message of a stream, header included. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    kind: Kind,
    transfer: TransferId,
    seq: u64,
    bytes: Arc<[u8]>,
}

impl Frame {
    /// Encodes `item` as number `seq` of a stream; `entry` is the number of the
    /// entry it belongs to.
    pub fn encode(transfer: TransferId, seq: u64, entry: u32, item: &Item<'_>) -> Self {
        let (kind, offset, span) = match *item {
            Item::Entry(_) => (Kind::Entry, 0, 0),
            Item::Data { offset, bytes } => (Kind::Data, offset, bytes.len() as u64),
            Item::Hole { offset, len } => (Kind::Hole, offset, len),
            Item::End { size, .. } => (Kind::End, size, 0),
            Item::Fin { entries, bytes } => (Kind::Fin, bytes, u64::from(entries)),
        };
        let json;
        let payload: &[u8] = match item {
            Item::Entry(meta) => {
                // An entry has no map with non-string keys and no failing field.
                json = serde_json::to_vec(meta).unwrap_or_default();
                &json
            }
            Item::Data { bytes, .. } => bytes,
            Item::End { digest, .. } => digest,
            Item::Hole { .. } | Item::Fin { .. } => &[],
        };
        let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.push(kind as u8);
        bytes.extend_from_slice(&[0; 3]);
        bytes.extend_from_slice(transfer.as_bytes());
        bytes.extend_from_slice(&seq.to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&span.to_le_bytes());
        bytes.extend_from_slice(&entry.to_le_bytes());
        bytes.extend_from_slice(
            &u32::try_from(payload.len())
                .unwrap_or(u32::MAX)
                .to_le_bytes(),
        );
        bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend_from_slice(payload);
        Self {
            kind,
            transfer,
            seq,
            bytes: bytes.into(),
        }
    }

    /// Checks a message as it came from the network and takes a copy of it.
    ///
    /// # Errors
    ///
    /// Any way in which the bytes are not a frame; nothing is kept then.
    pub fn decode(message: &[u8]) -> Result<Self, FrameError> {
        let (header, payload) = message
            .split_at_checked(HEADER_LEN)
            .ok_or(FrameError::Length)?;
        if header[..4] != MAGIC {
            return Err(FrameError::Magic);
        }
        if crc32fast::hash(&header[..60]) != read_u32(header, 60) {
            return Err(FrameError::Checksum);
        }
        if payload.len() > MAX_PAYLOAD || read_u32(header, 52) as usize != payload.len() {
            return Err(FrameError::Length);
        }
        if crc32fast::hash(payload) != read_u32(header, 56) {
            return Err(FrameError::Checksum);
        }
        let kind = match header[4] {
            1 => Kind::Entry,
            2 => Kind::Data,
            3 => Kind::Hole,
            4 => Kind::End,
            5 => Kind::Fin,
            _ => return Err(FrameError::Kind),
        };
        if header[5..8] != [0; 3] {
            return Err(FrameError::Kind);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&header[8..24]);
        let frame = Self {
            kind,
            transfer: TransferId::from_bytes(id),
            seq: read_u64(header, 24),
            bytes: message.into(),
        };
        let span = read_u64(header, 40);
        let offset = read_u64(header, 32);
        let fits = match kind {
            Kind::Data => !payload.is_empty() && span == payload.len() as u64,
            Kind::Hole => payload.is_empty() && span > 0,
            Kind::End => payload.len() == DIGEST_LEN && span == 0,
            Kind::Fin => payload.is_empty() && u32::try_from(span).is_ok(),
            Kind::Entry => !payload.is_empty(),
        };
        // An offset that no file can have would overflow in every consumer.
        let largest = i64::MAX as u64;
        if !fits || offset > largest || span > largest - offset {
            return Err(FrameError::Contents);
        }
        Ok(frame)
    }

    /// What it carries.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The transfer it belongs to.
    pub fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// Its number in the stream.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Number of the entry it belongs to.
    pub fn entry(&self) -> u32 {
        read_u32(&self.bytes, 48)
    }

    /// The whole message.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it counts against a window, in bytes: all of it.
    pub fn cost(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Bytes of file data that it stands for.
    pub fn data_len(&self) -> u64 {
        match self.kind {
            Kind::Data | Kind::Hole => read_u64(&self.bytes, 40),
            Kind::Entry | Kind::End | Kind::Fin => 0,
        }
    }

    /// The item inside.
    ///
    /// # Errors
    ///
    /// [`FrameError::Contents`] when an entry's metadata cannot be read.
    pub fn item(&self) -> Result<Item<'_>, FrameError> {
        let (header, payload) = self.bytes.split_at(HEADER_LEN);
        let offset = read_u64(header, 32);
        let span = read_u64(header, 40);
        Ok(match self.kind {
            Kind::Entry => Item::Entry(
                serde_json::from_slice::<Entry>(payload).map_err(|_| FrameError::Contents)?,
            ),
            Kind::Data => Item::Data {
                offset,
                bytes: payload,
            },
            Kind::Hole => Item::Hole { offset, len: span },
            Kind::End => {
                let digest = payload.try_into().map_err(|_| FrameError::Contents)?;
                Item::End {
                    size: offset,
                    digest,
                }
            }
            Kind::Fin => Item::Fin {
                entries: u32::try_from(span).map_err(|_| FrameError::Contents)?,
                bytes: offset,
            },
        })
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}#{} of {}", self.kind, self.seq, self.transfer)
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::item::EntryKind;
    use super::super::name::RawName;
    use super::*;
    use proptest::prelude::*;

    const ID: TransferId = TransferId::from_bytes([7; 16]);

    fn samples() -> Vec<Item<'static>> {
        vec![
            Item::Entry(Entry {
                path: RawName::new(&b"d/\xfff"[..]),
                kind: EntryKind::File,
                mode: 0o755,
                size: Some(10),
                mtime: None,
                atime: None,
                target: None,
            }),
            Item::Data {
                offset: 4096,
                bytes: b"some bytes",
            },
            Item::Hole {
                offset: 0,
                len: 1 << 40,
            },
            Item::End {
                size: 10,
                digest: [9; DIGEST_LEN],
            },
            Item::Fin {
                entries: 3,
                bytes: 10,
            },
        ]
    }

    #[test]
    fn every_item_survives_the_wire() {
        for (seq, item) in samples().into_iter().enumerate() {
            let sent = Frame::encode(ID, seq as u64, 2, &item);
            let got = Frame::decode(sent.as_bytes()).unwrap();
            assert_eq!(got, sent);
            assert_eq!(
                (got.seq(), got.entry(), got.transfer()),
                (seq as u64, 2, ID)
            );
            assert_eq!(got.item().unwrap(), item);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for item in samples() {
            let sent = Frame::encode(ID, 1, 0, &item);
            for bit in 0..sent.as_bytes().len() * 8 {
                let mut bytes = sent.as_bytes().to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Frame::decode(&bytes).is_err(), "bit {bit} of {sent:?}");
            }
        }
    }

    #[test]
    fn offsets_beyond_any_file_are_refused() {
        let item = Item::Hole {
            offset: i64::MAX as u64,
            len: 1,
        };
        let frame = Frame::encode(ID, 0, 0, &item);
        assert_eq!(Frame::decode(frame.as_bytes()), Err(FrameError::Contents));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Frame::decode(&bytes);
        }
    }
}
