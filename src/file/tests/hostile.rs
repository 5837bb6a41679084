//! Streams from a peer that may say anything.

use proptest::prelude::*;

use super::*;
use crate::bcast::item::Digest;
use crate::bcast::item::Entry;
use crate::bcast::item::EntryKind;
use crate::bcast::item::Item;
use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::MAX_DEPTH;
use crate::file::MAX_HOLE;

fn entry(path: &str, kind: EntryKind, target: Option<&str>) -> Item<'static> {
    Item::Entry(Entry {
        path: path.into(),
        kind,
        mode: 0o644,
        size: None,
        mtime: None,
        atime: None,
        target: target.map(RawName::from),
    })
}

fn file(path: &str) -> Item<'static> {
    entry(path, EntryKind::File, None)
}

fn digest(bytes: &[u8]) -> Digest {
    *blake3::hash(bytes).as_bytes()
}

fn end(bytes: &[u8]) -> Item<'static> {
    Item::End {
        size: bytes.len() as u64,
        digest: digest(bytes),
    }
}

fn data(offset: u64, bytes: &[u8]) -> Item<'_> {
    Item::Data { offset, bytes }
}

fn nothing() -> Item<'static> {
    end(b"")
}

fn fin(entries: u32, bytes: u64) -> Item<'static> {
    Item::Fin { entries, bytes }
}

/// Feeds the items to a sink in a fresh directory, and commits if it gets so
/// far. Nothing may be left after a refusal, and nothing outside at all.
fn run(items: Vec<Item<'_>>) -> Result<(), FileError> {
    let mut result = Ok(());
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().join("base");
        std::fs::create_dir(&base).unwrap();
        let replace = policy(Existing::Replace);
        let mut sink = open(&base, &Dest::default(), &replace, way).unwrap();
        result = items.iter().try_for_each(|item| sink.item(item.clone()));
        result = result.and_then(|()| sink.prepare().map(drop));
        result = match result {
            Ok(()) => sink.commit().map(drop),
            Err(error) => {
                assert!(sink.commit().is_err());
                Err(error)
            }
        };
        if result.is_err() {
            assert_names(&base, &[]);
        }
        assert_names(tmp.path(), &["base"]);
    }
    result
}

#[track_caller]
fn refused(errno: Errno, items: Vec<Item<'_>>) {
    let error = run(items).expect_err("it should be refused");
    assert_eq!(error.errno(), errno, "{error}");
}

#[test]
fn a_proper_stream_is_taken() {
    run(vec![
        file("f"),
        data(0, b"ab"),
        data(2, b"c"),
        end(b"abc"),
        fin(1, 3),
    ])
    .unwrap();
    run(vec![fin(0, 0)]).unwrap();
}

#[test]
fn disorder_is_refused() {
    let e = Errno::EPROTO;
    refused(e, vec![data(0, b"a")]);
    refused(e, vec![nothing()]);
    refused(e, vec![file("f"), fin(1, 0)]);
    refused(e, vec![file("f"), nothing()]);
    refused(e, vec![file("f"), file("g")]);
    refused(e, vec![file("f"), data(0, b"")]);
    refused(e, vec![file("f"), data(1, b"a")]);
    refused(e, vec![file("f"), data(0, b"ab"), data(1, b"b")]);
    refused(e, vec![file("f"), data(0, b"ab"), data(3, b"b")]);
    refused(
        e,
        vec![
            file("f"),
            Item::Hole {
                offset: 0,
                len: MAX_HOLE + 1,
            },
        ],
    );
    refused(e, vec![file("f"), nothing(), fin(2, 0)]);
    refused(e, vec![file("f"), nothing(), fin(1, 1)]);
    refused(e, vec![fin(0, 0), fin(0, 0)]);
    refused(e, vec![fin(0, 0), file("f")]);
    refused(e, vec![entry("d", EntryKind::Dir, None), data(0, b"a")]);
    refused(e, vec![entry("d", EntryKind::Dir, Some("x"))]);
    refused(e, vec![entry("l", EntryKind::Symlink, None)]);
    refused(e, vec![entry("l", EntryKind::Symlink, Some(""))]);
    refused(e, vec![entry("l", EntryKind::Symlink, Some("a\0b"))]);
    refused(
        Errno::EFBIG,
        vec![
            file("f"),
            Item::Hole {
                offset: 0,
                len: u64::MAX,
            },
        ],
    );
}

#[test]
fn wrong_lengths_and_digests_are_refused() {
    let e = Errno::EBADMSG;
    refused(e, vec![file("f"), data(0, b"abc"), end(b"abd"), fin(1, 3)]);
    refused(e, vec![file("f"), data(0, b"abc"), end(b"ab"), fin(1, 2)]);
    refused(e, vec![file("f"), end(b"a")]);
    let sized = |size| {
        let Item::Entry(mut entry) = file("f") else {
            unreachable!()
        };
        entry.size = Some(size);
        Item::Entry(entry)
    };
    refused(e, vec![sized(4), data(0, b"abc"), end(b"abc")]);
    refused(Errno::EPROTO, vec![sized(2), data(0, b"abc")]);
    refused(Errno::EFBIG, vec![sized(u64::MAX)]);
    run(vec![sized(3), data(0, b"abc"), end(b"abc"), fin(1, 3)]).unwrap();
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in [
        "",
        ".",
        "..",
        "/",
        "/f",
        "../f",
        "d/../../f",
        "d/..",
        "d//f",
        "d/",
        "./f",
        "d/./f",
        "a\0",
    ] {
        let dir = entry("d", EntryKind::Dir, None);
        refused(Errno::EINVAL, vec![dir, nothing(), file(path)]);
    }
    let deep = vec!["d"; MAX_DEPTH + 1].join("/");
    refused(Errno::ENAMETOOLONG, vec![file(&deep)]);
    refused(Errno::ENAMETOOLONG, vec![file(&"n".repeat(256))]);
    refused(Errno::EPROTO, vec![file("d/f")]);
    refused(Errno::ENOTDIR, vec![file("f"), nothing(), file("f/g")]);
    refused(Errno::EEXIST, vec![file("f"), nothing(), file("f")]);
    refused(Errno::EINVAL, vec![file(".flux-bcast.0.0")]);
    let dir = || entry("d", EntryKind::Dir, None);
    refused(Errno::ENOENT, vec![dir(), nothing(), file("d/no/f")]);
    refused(
        Errno::EEXIST,
        vec![dir(), nothing(), file("d/f"), nothing(), file("d/f")],
    );
}

#[test]
fn links_are_never_written_through() {
    let tmp = tempfile::tempdir().unwrap();
    let out = tmp.path().to_str().unwrap();
    let dir = || entry("d", EntryKind::Dir, None);
    let link = |to| entry("d/l", EntryKind::Symlink, Some(to));
    for to in [out, "/", ".", "../.."] {
        let inside = |item| vec![dir(), nothing(), link(to), nothing(), item];
        refused(Errno::ELOOP, inside(file("d/l/passwd")));
        refused(Errno::ELOOP, inside(entry("d/l/x", EntryKind::Dir, None)));
        refused(
            Errno::ELOOP,
            inside(entry("d/l/x", EntryKind::Symlink, Some("y"))),
        );
        refused(Errno::EEXIST, inside(file("d/l")));
    }
    let top = entry("l", EntryKind::Symlink, Some(out));
    refused(Errno::ENOTDIR, vec![top, nothing(), file("l/passwd")]);
    assert_names(tmp.path(), &[]);
}

#[test]
fn hard_links_lead_only_to_files_of_the_stream() {
    let hard = |path: &str, to: &str| entry(path, EntryKind::Hardlink, Some(to));
    let dir = || entry("d", EntryKind::Dir, None);
    for to in ["/etc/passwd", "../x", "", "d/.."] {
        refused(Errno::EINVAL, vec![hard("h", to)]);
    }
    for to in ["nothing", "d", "d/no", "d/l", "l"] {
        for path in ["h", "d/h"] {
            let items = vec![
                dir(),
                nothing(),
                entry("d/l", EntryKind::Symlink, Some("/etc/passwd")),
                nothing(),
                entry("l", EntryKind::Symlink, Some("/etc/passwd")),
                nothing(),
                hard(path, to),
                nothing(),
                fin(4, 0),
            ];
            let error = run(items).unwrap_err();
            assert!(
                [Errno::EPROTO, Errno::ENOENT].contains(&error.errno()),
                "{to}: {error}"
            );
        }
    }
    let through = entry("d/l", EntryKind::Symlink, Some("/etc"));
    let items = vec![
        dir(),
        nothing(),
        through,
        nothing(),
        hard("h", "d/l/passwd"),
    ];
    refused(Errno::ELOOP, items);
}

#[test]
fn no_set_user_id_bit_travels() {
    let tmp = tempfile::tempdir().unwrap();
    let Item::Entry(mut forged) = file("f") else {
        unreachable!()
    };
    forged.mode = 0o6777;
    let policy = Policy::default();
    let mut sink = open(tmp.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
    for item in [Item::Entry(forged), nothing(), fin(1, 0)] {
        sink.item(item).unwrap();
    }
    sink.prepare().unwrap();
    sink.commit().unwrap();
    let meta = tmp.path().join("f").metadata().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
    assert_eq!(mode & 0o7777, 0o777);
}

fn any_path() -> impl Strategy<Value = RawName> {
    let part = prop_oneof![
        6 => "[ab]",
        1 => Just("..".to_string()),
        1 => Just(String::new()),
        1 => Just("l".to_string()),
    ];
    proptest::collection::vec(part, 1..4)
        .prop_map(|parts| RawName::from(parts.join("/").as_str()))
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let kind = prop_oneof![
        2 => Just(EntryKind::File),
        3 => Just(EntryKind::Dir),
        1 => Just(EntryKind::Symlink),
        1 => Just(EntryKind::Hardlink),
    ];
    let target = prop_oneof![
        1 => Just(None),
        2 => any_path().prop_map(Some),
        1 => Just(Some(RawName::from("/etc/passwd"))),
        1 => Just(Some(RawName::from("../outside"))),
    ];
    (any_path(), kind, target, any::<u32>(), any::<bool>()).prop_map(
        |(path, kind, target, mode, fit)| Entry {
            path,
            kind,
            mode,
            size: None,
            mtime: None,
            atime: None,
            // Half of them as they should be, so that some get far.
            target: match kind {
                EntryKind::File | EntryKind::Dir if fit => None,
                _ => target,
            },
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    /// An entry with data and an end, in good order.
    Whole(Entry, Vec<u8>),
    Entry(Entry),
    Data(u64, Vec<u8>),
    Hole(u64, u64),
    End(u64, Digest),
    Fin(u32, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        12 => (any_entry(), bytes()).prop_map(|(entry, bytes)| Step::Whole(entry, bytes)),
        1 => any_entry().prop_map(Step::Entry),
        1 => (0..30_u64, bytes()).prop_map(|(offset, bytes)| Step::Data(offset, bytes)),
        1 => (0..30_u64, any::<u64>()).prop_map(|(offset, len)| Step::Hole(offset, len)),
        1 => (0..30_u64, any::<Digest>()).prop_map(|(size, digest)| Step::End(size, digest)),
        1 => (0..4_u32, 0..30_u64).prop_map(|(entries, bytes)| Step::Fin(entries, bytes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_stream_stays_where_it_belongs(
        steps in proptest::collection::vec(any_step(), 0..12),
    ) {
        let mut items = Vec::new();
        for step in &steps {
            match step {
                Step::Whole(entry, bytes) => {
                    let is_file = entry.kind == EntryKind::File;
                    items.push(Item::Entry(entry.clone()));
                    if is_file && !bytes.is_empty() {
                        items.push(data(0, bytes));
                    }
                    items.push(end(if is_file { bytes } else { b"" }));
                }
                Step::Entry(entry) => items.push(Item::Entry(entry.clone())),
                Step::Data(offset, bytes) => items.push(data(*offset, bytes)),
                Step::Hole(offset, len) => {
                    items.push(Item::Hole { offset: *offset, len: *len });
                }
                Step::End(size, digest) => {
                    items.push(Item::End { size: *size, digest: *digest });
                }
                Step::Fin(entries, bytes) => items.push(fin(*entries, *bytes)),
            }
        }
        // Refusal or not, `run` checks that nothing is outside.
        let _ = run(items);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_prefix_that_is_accepted_commits(
        steps in proptest::collection::vec((any_entry(), 0..20_usize), 0..12),
    ) {
        // Skips what is refused by trying each entry on the stream so far.
        let mut kept: Vec<Item<'_>> = Vec::new();
        let (mut entries, mut total) = (0, 0);
        for (entry, len) in &steps {
            let len = if entry.kind == EntryKind::File { *len } else { 0 };
            let mut tried = kept.clone();
            tried.push(Item::Entry(entry.clone()));
            if len > 0 {
                tried.push(data(0, &ZEROS[..len]));
            }
            tried.push(end(&ZEROS[..len]));
            let mut whole = tried.clone();
            whole.push(fin(entries + 1, total + len as u64));
            if run(whole).is_ok() {
                kept = tried;
                entries += 1;
                total += len as u64;
            }
        }
        kept.push(fin(entries, total));
        prop_assert!(run(kept).is_ok());
    }
}

static ZEROS: [u8; 20] = [0; 20];
