//! What happens to a file that is there already.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use super::*;
use crate::errno::Errno;

fn put(base: &Path, bytes: &[u8], existing: Existing, way: Way) -> Result<(), FileError> {
    let policy = policy(existing);
    send(in_memory("f", bytes), base, &Dest::default(), &policy, way).map(drop)
}

#[test]
fn each_policy_does_what_it_says() {
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        let copy = tmp.path().join("f");
        let read = || std::fs::read(&copy).unwrap();
        let inode = || copy.metadata().unwrap().ino();
        for existing in [Existing::Append, Existing::Truncate, Existing::Refuse] {
            put(tmp.path(), b"made", existing, way).unwrap();
            assert_eq!(read(), b"made", "{existing:?} makes a new file");
            std::fs::remove_file(&copy).unwrap();
        }
        put(tmp.path(), b"first", Existing::Replace, way).unwrap();
        let refused = put(tmp.path(), b"no", Existing::Refuse, way).unwrap_err();
        assert_eq!(refused.errno(), Errno::EEXIST);
        assert_eq!(read(), b"first");
        let before = std::fs::File::open(&copy)
            .unwrap()
            .metadata()
            .unwrap()
            .ino();
        put(tmp.path(), b"+second", Existing::Append, way).unwrap();
        assert_eq!(read(), b"first+second");
        assert_eq!(inode(), before);
        put(tmp.path(), b"third", Existing::Truncate, way).unwrap();
        assert_eq!(read(), b"third");
        assert_eq!(inode(), before);
        let held = std::fs::File::open(&copy).unwrap();
        put(tmp.path(), b"fourth", Existing::Replace, way).unwrap();
        assert_eq!(read(), b"fourth");
        assert_ne!(inode(), held.metadata().unwrap().ino());
        assert_names(tmp.path(), &["f"]);
    }
}

#[test]
fn an_aborted_transfer_changes_nothing() {
    let existing = [Existing::Replace, Existing::Append, Existing::Truncate];
    for way in WAYS {
        for existing in existing {
            let tmp = tempfile::tempdir().unwrap();
            std::fs::write(tmp.path().join("f"), "old").unwrap();
            let mut source = Source::open(in_memory("f", b"new")).unwrap();
            let policy = policy(existing);
            let mut sink = open(tmp.path(), &Dest::default(), &policy, way).unwrap();
            feed(&mut source, &mut sink, 4096).unwrap();
            sink.prepare().unwrap();
            assert_eq!(std::fs::read(tmp.path().join("f")).unwrap(), b"old");
            drop(sink);
            assert_eq!(std::fs::read(tmp.path().join("f")).unwrap(), b"old");
            assert_names(tmp.path(), &["f"]);
        }
    }
}

#[test]
fn a_commit_that_fails_half_way_is_taken_back() {
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path();
        std::fs::write(base.join("a"), "old").unwrap();
        std::os::unix::fs::symlink("nowhere", base.join("b")).unwrap();
        let before = base.join("a").metadata().unwrap().ino();
        let mut three = in_memory("a", b"new");
        three.inputs.extend(in_memory("b", b"new").inputs);
        three.inputs.extend(in_memory("c", b"new").inputs);
        three.inputs.extend(in_memory("d", b"new").inputs);
        let mut source = Source::open(three).unwrap();
        let policy = policy(Existing::Replace);
        let mut sink = open(base, &Dest::default(), &policy, way).unwrap();
        feed(&mut source, &mut sink, 4096).unwrap();
        sink.prepare().unwrap();
        std::fs::create_dir(base.join("d")).unwrap();
        let refused = sink.commit().unwrap_err();
        assert_eq!(refused.errno(), Errno::EISDIR);
        assert_eq!(std::fs::read(base.join("a")).unwrap(), b"old");
        assert_eq!(base.join("a").metadata().unwrap().ino(), before);
        assert_eq!(base.join("b").read_link().unwrap(), Path::new("nowhere"));
        assert_names(base, &["a", "b", "d"]);
    }
}

#[test]
fn what_is_replaced_is_gone_after_the_commit() {
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("a"), "old").unwrap();
        let mut two = in_memory("a", b"new");
        two.inputs.extend(in_memory("b", b"new").inputs);
        send(
            two,
            tmp.path(),
            &Dest::default(),
            &policy(Existing::Replace),
            way,
        )
        .unwrap();
        assert_eq!(std::fs::read(tmp.path().join("a")).unwrap(), b"new");
        assert_names(tmp.path(), &["a", "b"]);
    }
}

#[test]
fn a_name_taken_during_the_transfer_is_refused_at_the_commit() {
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        let mut two = in_memory("a", b"a");
        two.inputs.extend(in_memory("b", b"b").inputs);
        let mut source = Source::open(two).unwrap();
        let policy = Policy::default();
        let mut sink = open(tmp.path(), &Dest::default(), &policy, way).unwrap();
        feed(&mut source, &mut sink, 4096).unwrap();
        sink.prepare().unwrap();
        std::fs::write(tmp.path().join("b"), "c").unwrap();
        assert_eq!(sink.commit().unwrap_err().errno(), Errno::EEXIST);
        // The first of the two was there for a moment, and is gone again.
        assert_names(tmp.path(), &["b"]);
        assert_eq!(std::fs::read(tmp.path().join("b")).unwrap(), b"c");
    }
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one() {
    let tmp = tempfile::tempdir().unwrap();
    let copy = tmp.path().join("f");
    let len = 200_000;
    std::fs::write(&copy, vec![0; len]).unwrap();
    let done = AtomicBool::new(false);
    // The file is replaced once the reader is at work.
    let (begun, wait) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut begun = Some(begun);
            while !done.load(Ordering::Relaxed) {
                let bytes = std::fs::read(&copy).expect("always there");
                assert_eq!(bytes.len(), len);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture");
                if let Some(begun) = begun.take() {
                    begun.send(()).unwrap();
                }
            }
        });
        wait.recv().unwrap();
        let all = (1..60_u8).try_for_each(|round| {
            let way = WAYS[usize::from(round) % 2];
            put(tmp.path(), &vec![round; len], Existing::Replace, way).map(drop)
        });
        // The scope waits for the reader, whatever happens here.
        done.store(true, Ordering::Relaxed);
        all.unwrap();
        reader.join().unwrap();
    });
    assert_names(tmp.path(), &["f"]);
}

#[test]
fn only_files_and_links_are_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let copy = tmp.path().join("f");
    let all = [
        Existing::Refuse,
        Existing::Replace,
        Existing::Append,
        Existing::Truncate,
    ];
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &copy,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for existing in all {
        let refused = put(tmp.path(), b"x", existing, Way::Unnamed).unwrap_err();
        assert_eq!(refused.errno(), Errno::EEXIST, "{existing:?}");
    }
    std::fs::remove_file(&copy).unwrap();
    std::fs::create_dir(&copy).unwrap();
    for existing in all {
        let refused = put(tmp.path(), b"x", existing, Way::Unnamed)
            .unwrap_err()
            .errno();
        assert!(
            [Errno::EEXIST, Errno::EISDIR].contains(&refused),
            "{existing:?}"
        );
    }
    for existing in [Existing::Replace, Existing::Truncate] {
        let policy = policy(existing);
        let refused = send(
            in_memory("f", b"x"),
            tmp.path(),
            &dest("/dev/null"),
            &policy,
            Way::Unnamed,
        );
        assert_eq!(refused.unwrap_err().errno(), Errno::EEXIST);
    }
}

#[test]
fn a_running_program_is_replaced_but_not_written_to() {
    let tmp = tempfile::tempdir().unwrap();
    let copy = tmp.path().join("f");
    // By another process: a descriptor of ours that is open for writing could get into
    // a child of another test, and then nobody may execute the file.
    let copied = std::process::Command::new("cp")
        .arg("/bin/sleep")
        .arg(&copy)
        .status();
    assert!(copied.unwrap().success());
    let mut child = std::process::Command::new(&copy).arg("60").spawn().unwrap();
    let appended = put(tmp.path(), b"x", Existing::Append, Way::Unnamed);
    let replaced = put(tmp.path(), b"x", Existing::Replace, Way::Unnamed);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(appended.unwrap_err().errno(), Errno::ETXTBSY);
    replaced.unwrap();
}

#[test]
fn holes_are_zeros_whatever_the_policy() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tmp.path().join("f");
    let file = std::fs::File::create(&from).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    let sparse = std::fs::read(&from).unwrap();
    for way in WAYS {
        for existing in [Existing::Append, Existing::Truncate, Existing::Replace] {
            let base = tempfile::tempdir().unwrap();
            let copy = base.path().join("f");
            let old = vec![b'x'; 2 << 20];
            std::fs::write(&copy, &old).unwrap();
            let policy = policy(existing);
            send(spec(&[&from]), base.path(), &Dest::default(), &policy, way).unwrap();
            let mut wanted = if existing == Existing::Append {
                old
            } else {
                Vec::new()
            };
            wanted.extend_from_slice(&sparse);
            assert!(
                std::fs::read(&copy).unwrap() == wanted,
                "{way:?} {existing:?}"
            );
        }
    }
}
