//! Data over TCP, straight from shell to shell, instead of through the brokers.
//!
//! Only data and its credit travel here; the opening, orders, signs of life and
//! reports stay with Flux, so everything that is decided is decided there. What
//! is fed offers a port and a secret over the stream of the opening request (an
//! [`Offer`](crate::bcast::message::Offer)); who feeds it connects, both prove
//! that they know the secret (see `proof`), and it sends frames as they are.
//! Back come numbers of 8 bytes, little-endian: the cost of each frame that is
//! used up, in order.
//!
//! Where no connection comes about, frames go by RPC as ever: nothing was sent
//! yet, so nothing can be lost or arrive twice.
//!
//! Neither end trusts the other with its memory: who is fed takes no more than
//! its window (the relay sees to that) and reads nothing more while credit is not
//! taken from it; who feeds counts credit only for what it has sent (`Unpaid`).

mod addresses;
pub mod inlet;
pub mod outlet;
mod proof;

use std::collections::VecDeque;

pub use self::addresses::kernel;
use crate::bcast::frame::HEADER_LEN;

/// Bytes of a credit.
const CREDIT_LEN: usize = 8;

/// Bytes written before others have their turn.
const TURN: usize = 1 << 20;

/// Least room for a read.
const ROOM: usize = 256 << 10;

/// The costs of what was sent and is not yet credited, oldest first.
#[derive(Debug, Default)]
struct Unpaid {
    costs: VecDeque<u64>,
    /// Bytes of credit that came and make no number yet.
    rest: Vec<u8>,
}

impl Unpaid {
    /// So much was sent.
    fn sent(&mut self, cost: u64) {
        self.costs.push_back(cost);
    }

    /// The credits in what has come.
    ///
    /// # Errors
    /// It is not the credit that is due next. Were it counted, more and more
    /// frames would wait here for somebody who takes none.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<u64>, &'static str> {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / CREDIT_LEN * CREDIT_LEN;
        let rest = self.rest.split_off(whole);
        let whole = std::mem::replace(&mut self.rest, rest);
        let mut credits = Vec::with_capacity(whole.len() / CREDIT_LEN);
        for eight in whole.chunks_exact(CREDIT_LEN) {
            let mut number = [0; CREDIT_LEN];
            number.copy_from_slice(eight);
            let cost = u64::from_le_bytes(number);
            if self.costs.pop_front() != Some(cost) {
                return Err("credit that is not due");
            }
            credits.push(cost);
        }
        Ok(credits)
    }
}

/// Cuts frames out of a stream of bytes.
#[derive(Debug, Default)]
struct Frames {
    /// Initialized once: what is not filled is left as it is.
    bytes: Vec<u8>,
    /// What is filled and not yet used.
    filled: std::ops::Range<usize>,
}

impl Frames {
    /// Free room after what is there, at least [`ROOM`] bytes.
    fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.filled.end < ROOM {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            if self.bytes.len() - self.filled.end < ROOM {
                // Twice as much, so that this is seldom.
                self.bytes.resize(2 * (self.filled.end + ROOM), 0);
            }
        }
        &mut self.bytes[self.filled.end..]
    }

    /// So much of the room was filled.
    fn fill(&mut self, len: usize) {
        self.filled.end += len;
    }

    /// The next whole message; none if it is not complete.
    ///
    /// # Errors
    /// It would be longer than any frame.
    fn next(&mut self) -> Result<Option<&[u8]>, &'static str> {
        let rest = &self.bytes[self.filled.clone()];
        let Some(header) = rest.get(..HEADER_LEN) else {
            return Ok(None);
        };
        let mut length = [0; 4];
        length.copy_from_slice(&header[52..56]);
        let length = u32::from_le_bytes(length) as usize;
        if length > crate::bcast::frame::MAX_PAYLOAD {
            return Err("a message longer than any frame");
        }
        let Some(frame) = rest.get(..HEADER_LEN + length) else {
            return Ok(None);
        };
        self.filled.start += frame.len();
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bcast::frame::Frame;
    use crate::bcast::id::TransferId;
    use crate::bcast::item::Item;

    fn frame(len: usize) -> Frame {
        let bytes = vec![5; len];
        let item = Item::Data {
            offset: 0,
            bytes: &bytes,
        };
        Frame::encode(TransferId::from_bytes([1; 16]), 0, 0, &item)
    }

    #[test]
    fn frames_come_whole_however_they_were_cut() {
        let sent: Vec<u8> = [1, 4096, 3]
            .iter()
            .flat_map(|len| frame(*len).as_bytes().to_vec())
            .collect();
        for step in [1, 63, 64, 65, 4000, sent.len()] {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for part in sent.chunks(step) {
                frames.room()[..part.len()].copy_from_slice(part);
                frames.fill(part.len());
                while let Some(one) = frames.next().unwrap() {
                    got.push(Frame::decode(one).unwrap());
                }
            }
            assert_eq!(got, [frame(1), frame(4096), frame(3)], "{step}");
        }
    }

    #[test]
    fn many_frames_take_no_more_room_than_few() {
        let mut frames = Frames::default();
        for _ in 0..1000 {
            let one = frame(100_000);
            let len = one.as_bytes().len();
            // The beginning of the next one stays.
            frames.room()[..len].copy_from_slice(one.as_bytes());
            frames.fill(len - 1);
            assert_eq!(frames.next(), Ok(None));
            frames.fill(1);
            assert!(frames.next().unwrap().is_some());
        }
        assert!(
            frames.bytes.len() <= 2 * (ROOM + 100_064),
            "{}",
            frames.bytes.len()
        );
    }

    #[test]
    fn endless_messages_are_refused() {
        let mut frames = Frames::default();
        frames.room()[..HEADER_LEN].fill(0xff);
        frames.fill(HEADER_LEN);
        assert!(frames.next().is_err());
    }

    #[test]
    fn credit_is_taken_for_what_was_sent_only() {
        let mut unpaid = Unpaid::default();
        assert!(unpaid.take(&64_u64.to_le_bytes()).is_err());
        let mut unpaid = Unpaid::default();
        unpaid.sent(64);
        unpaid.sent(4160);
        let both = [64_u64.to_le_bytes(), 4160_u64.to_le_bytes()].concat();
        assert_eq!(unpaid.take(&both[..11]), Ok(vec![64]));
        assert_eq!(unpaid.take(&both[11..]), Ok(vec![4160]));
        // Nothing is credited twice, in another order, or in other amounts.
        assert!(unpaid.take(&both[..8]).is_err());
        for said in [u64::MAX, 0, 63, 65, 4160] {
            let mut unpaid = Unpaid::default();
            unpaid.sent(64);
            unpaid.sent(4160);
            assert!(unpaid.take(&said.to_le_bytes()).is_err(), "{said}");
        }
    }
}
