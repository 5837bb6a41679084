//! Any bytes at all: no panic, bounded memory, and still there afterwards.
//!
//! The corpus is replayed here; `t/fuzz` adds to it what it finds.

use flux_bcast::pmi::LINE_MAX;
use proptest::prelude::*;

use crate::host::Job;
use crate::script;

/// Bytes that often look like the protocol.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "cmd=",
        "mcmd=",
        "initack",
        "pmiid=",
        "init",
        "put",
        "get",
        "getbyidx",
        "barrier_in",
        "spawn",
        "endcmd",
        "\n",
        "\n",
        " ",
        "=",
        "key=",
        "value=",
        "kvsname=K",
        "0",
        "1",
        "7",
        "-1",
        "99999999999",
        "group=",
        "WORLD:1",
        "0,1:3",
        "publish_name",
        "service=",
        "port=",
        "lookup_name",
        "finalize",
        "totspawns=",
        "spawnssofar=",
        "pmi_version=",
        "\0",
        "\u{192}",
        "cmd=initack pmiid=0\n",
        "cmd=initack pmiid=1\n",
        "cmd=barrier_in\n",
        "idx=",
    ]);
    let piece = prop_oneof![
        8 => words.prop_map(|w| w.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..30),
        1 => (1usize..9000).prop_map(|n| vec![b'x'; n]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Feeds streams to two connections in pieces and checks what must always
/// hold, whatever the bytes are.
fn survive(streams: &[Vec<u8>; 2], piece: usize, groups: bool) {
    let mut job = Job::of(2);
    job.groups = groups;
    job.limits.bytes = 50_000;
    let mut host = job.start();
    host.accept(0);
    host.accept(1);
    let mut replies = 0;
    let mut lines = 0;
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    for start in (0..longest).step_by(piece) {
        for (conn, stream) in (0..).zip(streams) {
            let Some(rest) = stream.get(start..) else {
                continue;
            };
            let bytes = &rest[..rest.len().min(piece)];
            lines += bytes.iter().filter(|&&b| b == b'\n').count();
            host.bytes(conn, bytes);
            // Two lanes of keys, and what waits behind a reply on each of two
            // connections.
            assert!(host.provider.held() <= 2 * 50_000 + 2 * 4 * LINE_MAX);
        }
    }
    for bytes in host.sent.values() {
        assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            assert!(line.starts_with(b"cmd="));
            assert!(
                line.len() <= 1023 || line.starts_with(b"cmd=get"),
                "{}",
                line.len()
            );
            replies += 1;
        }
    }
    assert!(
        replies <= lines + 3 * 2,
        "at most one reply each, four to a handshake"
    );
    assert_eq!(host.peers, 0, "there is no other shell");
    assert!(host.warnings.len() <= 33);
    // Still alive for a client that behaves.
    host.join(7, 0);
    assert_eq!(host.ask(7, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_leave_the_provider_alive(
        a in noise(),
        b in noise(),
        piece in prop::sample::select(vec![1usize, 7, 100, 4096, 16384]),
        groups in any::<bool>(),
    ) {
        survive(&[a, b], piece, groups);
    }
}

#[test]
fn corpus_of_byte_streams() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pmi-corpus");
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() >= 10, "the corpus is there");
    for name in names {
        let bytes = std::fs::read(&name).unwrap();
        script::survive(&bytes);
        for piece in [1, 13, 4096] {
            for groups in [false, true] {
                survive(&[bytes.clone(), bytes.clone()], piece, groups);
                survive(
                    &[
                        [b"cmd=initack pmiid=0\n", &bytes[..]].concat(),
                        bytes.clone(),
                    ],
                    piece,
                    groups,
                );
            }
        }
    }
}
