//! Data messages: a fixed binary header and raw bytes.
//!
//! A frame carries one item of the stream. Relays look at the header only and
//! pass the very bytes on. All numbers are little-endian:
//!
//! | at | size | field    | meaning                                              |
//! |----|------|----------|------------------------------------------------------|
//! | 0  | 4    | magic    | `FBC1`                                               |
//! | 4  | 1    | kind     | 1 entry, 2 data, 3 hole, 4 end, 5 fin                |
//! | 5  | 1    | flags    | 1: the data is compressed (LZ4 block); else 0        |
//! | 6  | 2    | reserved | 0                                                    |
//! | 8  | 16   | transfer | random id of the transfer                            |
//! | 24 | 8    | seq      | number of the frame in its stream, from 0            |
//! | 32 | 8    | offset   | data, hole: byte offset in the entry; end, fin: size |
//! | 40 | 8    | span     | data, hole: length in the file; fin: no. of entries  |
//! | 48 | 4    | entry    | number of the entry, from 0                          |
//! | 52 | 4    | length   | bytes that follow the header                         |
//! | 56 | 4    | check    | CRC-32 of the bytes that follow                      |
//! | 60 | 4    | check    | CRC-32 of the header's first 60 bytes                |
//!
//! What follows the header: an entry's metadata as JSON, a data frame's bytes,
//! an end frame's digest, a fin frame's seal where there is one (see
//! `warrant`), else nothing. The checksums find a damaged message at
//! the hop where it happened; the digest proves the file.

use std::borrow::Cow;
use std::sync::Arc;

use super::id::TransferId;
use super::item::DIGEST_LEN;
use super::item::Entry;
use super::item::Item;

/// Bytes of the header.
pub const HEADER_LEN: usize = 64;

/// Most bytes that may follow a header: the largest batch and room to spare.
pub const MAX_PAYLOAD: usize = 8 << 20;

/// Most bytes of a seal.
const SEAL_MAX: usize = 64 << 10;

const MAGIC: [u8; 4] = *b"FBC1";

/// Flag of compressed data.
const COMPRESSED: u8 = 1;

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
        let fields = Fields {
            kind,
            flags: 0,
            transfer,
            seq,
            offset,
            span,
            entry,
        };
        fields.with(payload)
    }

    /// The same frame with its data compressed, if it is data and gets smaller.
    #[must_use]
    pub fn compressed(self) -> Self {
        if self.kind != Kind::Data || self.is_compressed() {
            return self;
        }
        let payload = lz4_flex::block::compress(&self.bytes[HEADER_LEN..]);
        if HEADER_LEN + payload.len() >= self.bytes.len() {
            return self;
        }
        let fields = Fields {
            flags: COMPRESSED,
            ..self.fields()
        };
        fields.with(&payload)
    }

    /// The same frame with its data as it is in the file.
    ///
    /// # Errors
    /// [`FrameError::Contents`] for what is not compressed data of the length
    /// that the header promises.
    pub fn expanded(&self) -> Result<Cow<'_, Self>, FrameError> {
        if !self.is_compressed() {
            return Ok(Cow::Borrowed(self));
        }
        let fields = Fields {
            flags: 0,
            ..self.fields()
        };
        // Bounded by decode(); a wrong promise fails here.
        let len = usize::try_from(fields.span).map_err(|_| FrameError::Contents)?;
        let mut data = vec![0; len];
        match lz4_flex::block::decompress_into(&self.bytes[HEADER_LEN..], &mut data) {
            Ok(written) if written == len => Ok(Cow::Owned(fields.with(&data))),
            _ => Err(FrameError::Contents),
        }
    }

    /// The last frame of a stream with a seal on it.
    #[must_use]
    pub fn sealed(self, seal: &str) -> Self {
        self.fields().with(seal.as_bytes())
    }

    /// The seal of the last frame of a stream.
    pub fn seal(&self) -> Option<&str> {
        let payload = &self.bytes[HEADER_LEN..];
        if self.kind != Kind::Fin || payload.is_empty() {
            return None;
        }
        std::str::from_utf8(payload).ok()
    }

    fn is_compressed(&self) -> bool {
        self.bytes[5] == COMPRESSED
    }

    fn fields(&self) -> Fields {
        Fields {
            kind: self.kind,
            flags: self.bytes[5],
            transfer: self.transfer,
            seq: self.seq,
            offset: read_u64(&self.bytes, 32),
            span: read_u64(&self.bytes, 40),
            entry: self.entry(),
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
        let flags = header[5];
        if flags > COMPRESSED || (flags != 0 && kind != Kind::Data) || header[6..8] != [0; 2] {
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
            Kind::Data if flags == COMPRESSED => {
                !payload.is_empty() && (1..=MAX_PAYLOAD as u64).contains(&span)
            }
            Kind::Data => !payload.is_empty() && span == payload.len() as u64,
            Kind::Hole => payload.is_empty() && span > 0,
            Kind::End => payload.len() == DIGEST_LEN && span == 0,
            Kind::Fin => payload.len() <= SEAL_MAX && u32::try_from(span).is_ok(),
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
    /// [`FrameError::Contents`] when an entry's metadata cannot be read, or for
    /// compressed data, see [`Frame::expanded`].
    pub fn item(&self) -> Result<Item<'_>, FrameError> {
        let (header, payload) = self.bytes.split_at(HEADER_LEN);
        let offset = read_u64(header, 32);
        let span = read_u64(header, 40);
        Ok(match self.kind {
            Kind::Entry => Item::Entry(
                serde_json::from_slice::<Entry>(payload).map_err(|_| FrameError::Contents)?,
            ),
            Kind::Data if self.is_compressed() => return Err(FrameError::Contents),
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

/// The header's fields but those that follow from the payload.
struct Fields {
    kind: Kind,
    flags: u8,
    transfer: TransferId,
    seq: u64,
    offset: u64,
    span: u64,
    entry: u32,
}

impl Fields {
    /// The frame with these fields and that payload.
    fn with(&self, payload: &[u8]) -> Frame {
        let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[self.kind as u8, self.flags, 0, 0]);
        bytes.extend_from_slice(self.transfer.as_bytes());
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.span.to_le_bytes());
        bytes.extend_from_slice(&self.entry.to_le_bytes());
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend_from_slice(payload);
        Frame {
            kind: self.kind,
            transfer: self.transfer,
            seq: self.seq,
            bytes: bytes.into(),
        }
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
mod tests;
