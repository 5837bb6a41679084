//! A made-up set of files as a stream of frames, and what a right copy is.

use flux_bcast::bcast::frame::Frame;
use flux_bcast::bcast::id::TransferId;
use flux_bcast::bcast::item::DIGEST_LEN;
use flux_bcast::bcast::item::Digest;
use flux_bcast::bcast::item::Entry;
use flux_bcast::bcast::item::EntryKind;
use flux_bcast::bcast::item::Item;
use flux_bcast::bcast::name::RawName;

use super::rng::Rng;

pub(crate) const ID: TransferId = TransferId::from_bytes([0x5a; 16]);

/// What a sink has of the stream: two are equal only if every byte is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) entries: u32,
    pub(crate) bytes: u64,
    pub(crate) sum: Sum,
}

/// A running sum that depends on every byte and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Zeros need not be walked through one by one.
    pub(crate) fn add_zeros(&mut self, len: u64) {
        self.add(b"hole");
        self.add(&len.to_le_bytes());
    }

    /// In the place of the real digest, which relays never look at.
    pub(crate) fn digest(self) -> Digest {
        let mut digest = [0; DIGEST_LEN];
        digest[..8].copy_from_slice(&self.0.to_le_bytes());
        digest
    }
}

/// The frames of `entries` files of about `each` data messages of `batch` bytes.
pub(crate) fn frames(rng: &mut Rng, entries: u32, each: u64, batch: u64) -> Vec<Frame> {
    let mut out = Vec::new();
    let mut total = 0;
    let push = |out: &mut Vec<Frame>, entry: u32, item: &Item<'_>| {
        let frame = Frame::encode(ID, out.len() as u64, entry, item);
        out.push(frame);
    };
    for entry in 0..entries {
        let meta = Entry {
            path: RawName::new(format!("f{entry}")),
            kind: EntryKind::File,
            mode: 0o644,
            size: None,
            mtime: None,
            atime: None,
            target: None,
        };
        push(&mut out, entry, &Item::Entry(meta));
        let mut sum = Sum::default();
        let mut offset = 0;
        for nth in 0..each {
            if rng.percent(5) {
                let len = rng.within(1, 1 << 20);
                push(&mut out, entry, &Item::Hole { offset, len });
                sum.add_zeros(len);
                offset += len;
                continue;
            }
            // The last message of a file is rarely full.
            let len = if nth + 1 == each {
                rng.within(1, batch)
            } else {
                batch
            };
            let mut word = rng.next();
            let bytes: Vec<u8> = (0..len)
                .map(|_| {
                    word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    word.to_be_bytes()[0]
                })
                .collect();
            sum.add(&bytes);
            let item = Item::Data {
                offset,
                bytes: &bytes,
            };
            push(&mut out, entry, &item);
            offset += len;
        }
        let end = Item::End {
            size: offset,
            digest: sum.digest(),
        };
        push(&mut out, entry, &end);
        total += offset;
    }
    let fin = Item::Fin {
        entries,
        bytes: total,
    };
    push(&mut out, entries, &fin);
    out
}
