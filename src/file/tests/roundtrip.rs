//! What goes in comes out: sizes, modes, times, origins, trees.

use std::os::unix::fs::PermissionsExt;

use crate::bcast::item::Item;
use crate::bcast::name::RawName;

use super::*;

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

#[test]
fn offsets_and_lengths_are_whole_chunks() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    let file = std::fs::File::create(&path).unwrap();
    // Data that neither begins nor ends at a chunk, holes between.
    for offset in [5_000, 300_000, 1_000_001] {
        std::os::unix::fs::FileExt::write_all_at(&file, &contents(20_000), offset).unwrap();
    }
    file.set_len(2_000_003).unwrap();
    let wanted = std::fs::read(&path).unwrap();
    for (chunk, max) in [
        (4096, 4096),
        (4096, 100_000),
        (1, 5),
        (1000, 120 << 10),
        (65536, 1),
    ] {
        let mut source = Source::open(SourceSpec {
            chunk,
            ..spec(&[&path])
        })
        .unwrap();
        let chunk = u64::from(chunk);
        let longest = (max as u64 / chunk).max(1) * chunk;
        let (mut buf, mut read) = (Vec::new(), Vec::new());
        while let Some(item) = source.next(&mut buf, max).unwrap() {
            let (offset, len) = match item {
                Item::Data { offset, bytes } => {
                    assert!(bytes.len() as u64 <= longest);
                    read.extend_from_slice(bytes);
                    (offset, bytes.len() as u64)
                }
                Item::Hole { offset, len } => {
                    read.resize(read.len() + usize::try_from(len).unwrap(), 0);
                    (offset, len)
                }
                Item::End { size, digest } => {
                    assert_eq!(size, wanted.len() as u64);
                    assert_eq!(digest, *blake3::hash(&wanted).as_bytes());
                    continue;
                }
                _ => continue,
            };
            assert_eq!(offset % chunk, 0);
            assert_eq!(offset + len, read.len() as u64);
            assert!(len > 0 && (len % chunk == 0 || offset + len == wanted.len() as u64));
        }
        assert!(read == wanted, "chunk {chunk}, max {max}");
    }
}

#[test]
fn mode_and_times_follow_the_policy() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tmp.path().join("from");
    std::fs::write(&from, "x").unwrap();
    std::fs::set_permissions(&from, PermissionsExt::from_mode(0o4755)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    let file = std::fs::File::options().write(true).open(&from).unwrap();
    file.set_modified(old).unwrap();
    for way in WAYS {
        for (mode, times) in [(None, false), (None, true), (Some(0o604), true)] {
            let base = tempfile::tempdir().unwrap();
            let policy = Policy {
                mode,
                times,
                sync: true,
                ..Policy::default()
            };
            send(spec(&[&from]), base.path(), &Dest::default(), &policy, way).unwrap();
            let meta = base.path().join("from").metadata().unwrap();
            assert_eq!(meta.permissions().mode() & 0o7777, mode.unwrap_or(0o755));
            assert_eq!(meta.modified().unwrap() == old, times);
        }
    }
}

#[test]
fn a_large_sparse_file_stays_sparse() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tmp.path().join("from");
    let size = 5 << 30;
    let file = std::fs::File::create(&from).unwrap();
    file.set_len(size).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"middle", 3 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", size - 3).unwrap();
    let source = Source::open(spec(&[&from])).unwrap();
    let totals = source.totals();
    assert_eq!((totals.bytes, totals.exact), (size, true));
    assert!(totals.allocated < 1 << 20, "{totals:?}");
    let base = tempfile::tempdir().unwrap();
    let policy = Policy::default();
    send(
        spec(&[&from]),
        base.path(),
        &Dest::default(),
        &policy,
        Way::Unnamed,
    )
    .unwrap();
    let copy = std::fs::File::open(base.path().join("from")).unwrap();
    let meta = copy.metadata().unwrap();
    assert_eq!(meta.len(), size);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&meta);
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
    let mut buf = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut buf, 3 << 30).unwrap();
    assert_eq!(&buf, b"middle");
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut buf, size - 6).unwrap();
    assert_eq!(&buf, b"\0\0\0end");
}
