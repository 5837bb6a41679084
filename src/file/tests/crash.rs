//! Processes that die in mid-transfer, and what a later one finds of them.

use std::io::Read;
use std::io::Write;
use std::process::Command;
use std::process::Stdio;

use super::*;
use crate::bcast::item::Item;
use crate::errno::Errno;

const BASE: &str = "FLUX_BCAST_TEST_CRASH_BASE";
const NAMED: &str = "FLUX_BCAST_TEST_CRASH_NAMED";

/// Not a test by itself: the other end of [`die_in_the_middle`].
#[test]
fn child_that_never_finishes() {
    let Some(base) = std::env::var_os(BASE) else {
        return;
    };
    let way = WAYS[usize::from(std::env::var_os(NAMED).is_some())];
    let bytes = contents(1 << 20);
    let mut source = Source::open(in_memory("f", &bytes)).unwrap();
    let mut sink = open(Path::new(&base), &Dest::default(), &Policy::default(), way).unwrap();
    let mut buf = Vec::new();
    for _ in 0..20 {
        let item = source.next(&mut buf, 4096).unwrap().unwrap();
        assert!(!matches!(item, Item::Fin { .. }));
        sink.item(item).unwrap();
    }
    std::io::stdout().write_all(b"READY\n").unwrap();
    std::io::stdout().flush().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// Has a child write half of a file, and kills it.
fn die_in_the_middle(base: &Path, way: Way) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "file::tests::crash::child_that_never_finishes",
            "--nocapture",
        ])
        .env(BASE, base)
        .stdout(Stdio::piped());
    if way == Way::Named {
        command.env(NAMED, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut seen = String::new();
    let mut byte = [0];
    let stdout = child.stdout.as_mut().unwrap();
    while !seen.ends_with("READY\n") {
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "child ended: {seen}");
        seen.push(char::from(byte[0]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_process_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    die_in_the_middle(tmp.path(), Way::Unnamed);
    assert_names(tmp.path(), &[]);
}

#[test]
fn what_a_killed_process_had_to_leave_is_removed_by_the_next() {
    let tmp = tempfile::tempdir().unwrap();
    die_in_the_middle(tmp.path(), Way::Named);
    let left = names(tmp.path());
    assert_eq!(left, [format!(".flux-bcast.{ID}.0")]);
    // One that is alive, and something of the same name that is no directory.
    let live = Context {
        transfer: "aa".to_string(),
        rank: 1,
    };
    let policy = Policy::default();
    let dest = Dest::default();
    let mut alive =
        Sink::open_with(tmp.path(), &dest, &policy, &live, (Way::Named, 0)).unwrap();
    let mut source = Source::open(in_memory("g", b"x")).unwrap();
    let mut buf = Vec::new();
    let first = source.next(&mut buf, 4096).unwrap().unwrap();
    std::fs::write(tmp.path().join(".flux-bcast.file"), "").unwrap();
    // Recent ones stay, in case their owner is on another host.
    let other = |id: &str, stale_seconds| {
        let context = Context {
            transfer: id.to_string(),
            rank: 2,
        };
        let options = (Way::Named, stale_seconds);
        let mut sink = Sink::open_with(tmp.path(), &dest, &policy, &context, options).unwrap();
        let mut source = Source::open(in_memory(id, b"x")).unwrap();
        feed(&mut source, &mut sink, 4096).unwrap();
        sink.prepare().unwrap();
        sink.commit().unwrap();
    };
    other("bb", STALE_SECONDS);
    assert!(names(tmp.path()).contains(&left[0]));
    alive.item(first).unwrap();
    assert_names(tmp.path(), &[".flux-bcast.aa.1", ".flux-bcast.file", "bb"]);
    other("cc", 0);
    assert_names(
        tmp.path(),
        &[".flux-bcast.aa.1", ".flux-bcast.file", "bb", "cc"],
    );
    feed(&mut source, &mut alive, 4096).unwrap();
    alive.prepare().unwrap();
    alive.commit().unwrap();
    assert_names(tmp.path(), &[".flux-bcast.file", "bb", "cc", "g"]);
}

#[test]
fn every_error_leaves_nothing() {
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        let mut source = Source::open(in_memory("f", &contents(20_000))).unwrap();
        let mut sink = open(tmp.path(), &Dest::default(), &Policy::default(), way).unwrap();
        let mut buf = Vec::new();
        for _ in 0..3 {
            let item = source.next(&mut buf, 4096).unwrap().unwrap();
            sink.item(item).unwrap();
        }
        // Prepared too early, committed unprepared: refused, and gone.
        assert_eq!(sink.prepare().unwrap_err().errno(), Errno::EPROTO);
        assert_eq!(sink.commit().unwrap_err().errno(), Errno::EPROTO);
        assert_names(tmp.path(), &[]);
    }
}
