//! Frames on the wire: what comes out is what went in, or is refused.

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
fn compressed_data_comes_back_and_is_smaller() {
    let bytes = b"the same again, ".repeat(500);
    let item = Item::Data {
        offset: 4096,
        bytes: &bytes,
    };
    let plain = Frame::encode(ID, 3, 1, &item);
    let small = plain.clone().compressed();
    assert!(small.cost() < plain.cost() / 10);
    assert_eq!(small.data_len(), bytes.len() as u64);
    assert!(small.item().is_err(), "it has to be expanded first");
    let got = Frame::decode(small.as_bytes()).unwrap();
    assert_eq!(got.expanded().unwrap().item().unwrap(), item);
    // What does not get smaller, and what is not data, stays as it is.
    for item in samples() {
        let frame = Frame::encode(ID, 0, 0, &item);
        assert_eq!(frame.clone().compressed(), frame);
    }
}

#[test]
fn a_wrong_promise_about_compressed_data_is_found() {
    let bytes = [7; 5000];
    let item = Item::Data {
        offset: 0,
        bytes: &bytes,
    };
    let small = Frame::encode(ID, 0, 0, &item).compressed();
    for span in [1, 4999, 5001, MAX_PAYLOAD as u64] {
        let fields = Fields {
            span,
            ..small.fields()
        };
        let lie = fields.with(&small.as_bytes()[HEADER_LEN..]);
        let got = Frame::decode(lie.as_bytes()).unwrap();
        assert_eq!(got.expanded(), Err(FrameError::Contents), "{span}");
    }
    let fields = Fields {
        span: MAX_PAYLOAD as u64 + 1,
        ..small.fields()
    };
    let lie = fields.with(&small.as_bytes()[HEADER_LEN..]);
    assert_eq!(Frame::decode(lie.as_bytes()), Err(FrameError::Contents));
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

#[test]
fn the_last_frame_takes_a_seal() {
    let fin = Item::Fin {
        entries: 2,
        bytes: 77,
    };
    let plain = Frame::encode(TransferId::from_bytes([3; 16]), 9, 2, &fin);
    assert_eq!(plain.seal(), None);
    let sealed = Frame::decode(plain.clone().sealed("a.b.c").as_bytes()).unwrap();
    assert_eq!(sealed.seal(), Some("a.b.c"));
    assert_eq!(sealed.item().unwrap(), fin);
    assert_eq!((sealed.seq(), sealed.entry()), (9, 2));
    let long = plain.sealed(&"x".repeat(SEAL_MAX + 1));
    assert_eq!(Frame::decode(long.as_bytes()), Err(FrameError::Contents));
}
