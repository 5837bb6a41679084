//! Messages of a broadcast that hold any bytes at all: no panic, bounded memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        harness::survive(&bytes);
    }
}

/// The corpus of the fuzzer, see `t/fuzz`.
#[test]
fn corpus_of_messages() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bcast-corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        harness::survive(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 10, "the corpus is there");
}
