//! What goes in comes out: sizes, modes, times, origins, trees.

use std::os::unix::fs::PermissionsExt;

use crate::bcast::name::RawName;

use super::*;
use crate::file::Origin;

/// Bytes that do not repeat within a chunk or a page.
fn contents(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        })
        .collect()
}

#[test]
fn every_size_around_the_chunk_comes_out_equal() {
    let tmp = tempfile::tempdir().unwrap();
    for way in WAYS {
        for len in [0, 1, 4095, 4096, 4097, 8192, (1 << 20) + 3] {
            let from = tmp.path().join("from");
            let wanted = contents(len);
            std::fs::write(&from, &wanted).unwrap();
            std::fs::set_permissions(&from, PermissionsExt::from_mode(0o751)).unwrap();
            let base = tempfile::tempdir().unwrap();
            let done = send(
                spec(&[&from]),
                base.path(),
                &Dest::default(),
                &Policy::default(),
                way,
            )
            .unwrap();
            let copy = base.path().join("from");
            assert_eq!(std::fs::read(&copy).unwrap(), wanted, "{way:?} {len}");
            assert_eq!(
                copy.metadata().unwrap().permissions().mode() & 0o7777,
                0o751
            );
            let real = base.path().canonicalize().unwrap().join("from");
            assert_eq!(done[0].path, RawName::from(real));
            assert_eq!(done[0].bytes, len as u64);
            assert_eq!(names(base.path()), ["from"]);
        }
    }
}

#[test]
fn memory_descriptors_and_streams_are_sources_too() {
    let tmp = tempfile::tempdir().unwrap();
    let wanted = contents(300_001);
    let file = tmp.path().join("file");
    std::fs::write(&file, &wanted).unwrap();
    let opened = std::fs::File::open(&file).unwrap();
    let streamed = std::fs::File::open(&file).unwrap();
    let input = |origin, name: &str| Input::new(origin, Some(name.into()));
    let spec = SourceSpec {
        inputs: vec![
            input(Origin::Memory(wanted.clone()), "memory"),
            input(Origin::Fd(opened.into()), "fd"),
            input(Origin::Stream(streamed.into()), "stream"),
        ],
        ..SourceSpec::default()
    };
    let base = tempfile::tempdir().unwrap();
    let policy = Policy::default();
    send(spec, base.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
    for name in ["memory", "fd", "stream"] {
        assert_eq!(
            std::fs::read(base.path().join(name)).unwrap(),
            wanted,
            "{name}"
        );
    }
}
