//! Several shells of one transfer with the same destination.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::errno::Errno;

/// Sinks of one transfer for eight ranks, fed and prepared.
fn eight(from: &Path, base: &Path, policy: &Policy, way: Way) -> Vec<Sink> {
    let sinks = (0..8).map(|rank| {
        let context = Context { rank, ..context() };
        Sink::open_with(
            base,
            &Dest::default(),
            policy,
            &context,
            (way, STALE_SECONDS),
        )
        .unwrap()
    });
    let mut sinks: Vec<_> = sinks.collect();
    for sink in &mut sinks {
        feed(&mut Source::open(spec(&[from])).unwrap(), sink, 4096).unwrap();
        sink.prepare().unwrap();
    }
    sinks
}

fn commit_all(sinks: Vec<Sink>) -> Vec<Result<Vec<Committed>, FileError>> {
    std::thread::scope(|scope| {
        let commits: Vec<_> = sinks
            .into_iter()
            .map(|sink| scope.spawn(|| sink.commit()))
            .collect();
        commits
            .into_iter()
            .map(|commit| commit.join().unwrap())
            .collect()
    })
}

#[test]
fn all_succeed_and_the_file_is_whole() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    let tree = tmp.path().join("t");
    std::fs::write(&file, contents(100_000)).unwrap();
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    std::fs::write(tree.join("a/f"), contents(5000)).unwrap();
    std::fs::hard_link(tree.join("a/f"), tree.join("a/g")).unwrap();
    std::os::unix::fs::symlink("a", tree.join("link")).unwrap();
    std::fs::set_permissions(&tree, PermissionsExt::from_mode(0o555)).unwrap();
    let link = tmp.path().join("link");
    std::os::unix::fs::symlink("anywhere", &link).unwrap();
    for way in WAYS {
        for existing in [Existing::Refuse, Existing::Replace] {
            for from in [&file, &tree] {
                let base = tempfile::tempdir().unwrap();
                let sinks = eight(from, base.path(), &policy(existing), way);
                for done in commit_all(sinks) {
                    assert_eq!(done.unwrap().len(), 1, "{way:?} {existing:?}");
                }
                let name = from.file_name().unwrap().to_str().unwrap();
                assert_names(base.path(), &[name]);
                if from == &file {
                    assert_eq!(
                        std::fs::read(base.path().join(name)).unwrap(),
                        contents(100_000)
                    );
                } else {
                    let copy = base.path().join(name).join("a/g");
                    assert_eq!(std::fs::read(copy).unwrap(), contents(5000));
                }
            }
        }
    }
}

#[test]
fn what_differs_in_anything_is_not_taken_for_a_copy() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    std::fs::write(&file, "contents").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    for (bytes, mode, same) in [
        ("contents", 0o644, true),
        ("content!", 0o644, false),
        ("content", 0o644, false),
        ("contents", 0o600, false),
    ] {
        let base = tempfile::tempdir().unwrap();
        let mut sinks = eight(&file, base.path(), &Policy::default(), Way::Unnamed);
        let there = base.path().join("f");
        std::fs::write(&there, bytes).unwrap();
        std::fs::set_permissions(&there, PermissionsExt::from_mode(mode)).unwrap();
        let done = sinks.remove(0).commit();
        assert_eq!(done.is_ok(), same, "{bytes} {mode:o}");
        assert_eq!(std::fs::read(&there).unwrap(), bytes.as_bytes());
    }
    let tree = tmp.path().join("t");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), "contents").unwrap();
    let base = tempfile::tempdir().unwrap();
    let mut sinks = eight(&tree, base.path(), &Policy::default(), Way::Unnamed);
    sinks.remove(0).commit().unwrap();
    std::fs::write(base.path().join("t/more"), "").unwrap();
    let refused = sinks.remove(0).commit().unwrap_err();
    assert_eq!(refused.errno(), Errno::EEXIST);
    std::fs::remove_file(base.path().join("t/more")).unwrap();
    sinks.remove(0).commit().unwrap();
}

#[test]
fn all_fill_up_a_directory_that_is_there() {
    let tmp = tempfile::tempdir().unwrap();
    let tree = tmp.path().join("t");
    for dir in ["a/b/c", "d/e", "f"] {
        std::fs::create_dir_all(tree.join(dir)).unwrap();
        for n in 0..20 {
            std::fs::write(tree.join(dir).join(format!("{n}")), contents(100 + n)).unwrap();
        }
    }
    for round in 0..10 {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("t")).unwrap();
        let policy = policy(Existing::Replace);
        for done in commit_all(eight(&tree, base.path(), &policy, Way::Unnamed)) {
            done.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        for dir in ["a/b/c", "d/e", "f"] {
            for n in 0..20 {
                let copy = base.path().join("t").join(dir).join(format!("{n}"));
                assert_eq!(std::fs::read(copy).unwrap(), contents(100 + n));
            }
        }
        assert_names(base.path(), &["t"]);
    }
}
