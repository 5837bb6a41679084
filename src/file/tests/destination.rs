//! Where copies go, and where they never go.

use std::os::unix::fs::symlink;

use super::*;
use crate::errno::Errno;

/// A transfer of a small file `f` to `dest`.
fn put(base: &Path, dest: &Dest) -> Result<Vec<Committed>, FileError> {
    let policy = Policy::default();
    send(in_memory("f", b"x"), base, dest, &policy, Way::Unnamed)
}

fn errno(base: &Path, dest: &Dest) -> Errno {
    put(base, dest).unwrap_err().errno()
}

#[test]
fn the_destination_names_a_directory_or_the_copy() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().canonicalize().unwrap();
    std::fs::create_dir(base.join("d")).unwrap();
    let inside = Dest {
        directory: true,
        ..dest("d")
    };
    let absolute = format!("{}/abs", base.display());
    for (dest, copy) in [
        (Dest::default(), "f"),
        (dest("d/"), "d/f"),
        (dest("./g"), "g"),
        (dest("d/h"), "d/h"),
        (dest(&absolute), "abs"),
    ] {
        let done = put(&base, &dest).unwrap();
        assert_eq!(done[0].path.as_path(), base.join(copy));
        assert_eq!(std::fs::read(base.join(copy)).unwrap(), b"x");
    }
    // There already, so the name was the same one.
    assert_eq!(errno(&base, &inside), Errno::EEXIST);
    assert_eq!(errno(&base, &dest("d/.")), Errno::EEXIST);
    let refused = put(&base, &dest("d")).unwrap_err();
    assert_eq!(refused.errno(), Errno::EISDIR);
    assert!(
        refused.to_string().contains("end the destination with /"),
        "{refused}"
    );
    assert_eq!(errno(&base, &dest("g/x")), Errno::ENOTDIR);
    assert_eq!(errno(&base, &dest("")), Errno::ENOENT);
    assert_eq!(errno(&base, &dest(&"n".repeat(256))), Errno::ENAMETOOLONG);
    assert_eq!(errno(&base, &dest(".flux-bcast.x")), Errno::EINVAL);
    assert_eq!(
        errno(Path::new("/nonexistent/base"), &dest("x")),
        Errno::ENOENT
    );
}

#[test]
fn a_relative_destination_cannot_leave_its_directory() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("base");
    let out = tmp.path().join("out");
    std::fs::create_dir_all(base.join("a")).unwrap();
    std::fs::create_dir(&out).unwrap();
    symlink(&out, base.join("abs")).unwrap();
    symlink("../out", base.join("up")).unwrap();
    symlink("../../out", base.join("a/up")).unwrap();
    symlink("a", base.join("in")).unwrap();
    for path in [
        "../out/x",
        "../x",
        "a/../../out/x",
        "..",
        "a/..",
        "abs/x",
        "abs/",
        "up/x",
        "a/up/x",
        "abs/new/x",
        "up/new/x",
    ] {
        for mkdir in [false, true] {
            let dest = Dest {
                mkdir,
                ..dest(path)
            };
            let refused = put(&base, &dest).unwrap_err();
            assert_eq!(refused.errno(), Errno::EPERM, "{path}: {refused}");
        }
    }
    put(&base, &dest("in/x")).unwrap();
    assert_names(&out, &[]);
    assert_names(tmp.path(), &["base", "out"]);
    assert_names(&base.join("a"), &["up", "x"]);
}

#[test]
fn the_copy_never_goes_through_a_link_of_its_own_name() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let victim = tmp.path().join("victim");
    std::fs::write(&victim, "old").unwrap();
    symlink(&victim, base.join("link")).unwrap();
    for existing in [Existing::Refuse, Existing::Append, Existing::Truncate] {
        let policy = policy(existing);
        let refused = send(
            in_memory("f", b"x"),
            &base,
            &dest("link"),
            &policy,
            Way::Unnamed,
        );
        let refused = refused.unwrap_err().errno();
        assert!(
            [Errno::EEXIST, Errno::ELOOP].contains(&refused),
            "{refused:?}"
        );
    }
    let replace = policy(Existing::Replace);
    send(
        in_memory("f", b"x"),
        &base,
        &dest("link"),
        &replace,
        Way::Unnamed,
    )
    .unwrap();
    assert!(!base.join("link").symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read(&victim).unwrap(), b"old");
}

#[test]
fn directories_are_made_on_request_and_removed_on_abort() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path();
    std::fs::create_dir(base.join("a")).unwrap();
    let refused = put(base, &dest("a/b/c/f")).unwrap_err();
    assert_eq!(refused.errno(), Errno::ENOENT);
    assert_eq!(refused.path().as_path(), base.join("a/b"));
    let mkdir = Dest {
        mkdir: true,
        ..dest("a/b/c/f")
    };
    let sink = open(base, &mkdir, &Policy::default(), Way::Unnamed).unwrap();
    assert!(base.join("a/b/c").is_dir());
    sink.abort();
    assert_names(&base.join("a"), &[]);
    put(base, &mkdir).unwrap();
    assert_eq!(std::fs::read(base.join("a/b/c/f")).unwrap(), b"x");
    // What others put into a directory that was made stays.
    let other = Dest {
        mkdir: true,
        ..dest("new/dir/")
    };
    let sink = open(base, &other, &Policy::default(), Way::Named).unwrap();
    std::fs::write(base.join("new/theirs"), "").unwrap();
    drop(sink);
    assert_names(&base.join("new"), &["theirs"]);
    let absolute = Dest {
        mkdir: true,
        ..dest(&format!("{}/x/y/f", base.display()))
    };
    put(Path::new("/nonexistent"), &absolute).unwrap();
    assert!(base.join("x/y/f").is_file());
}

#[test]
fn a_unique_directory_is_the_same_for_every_rank_of_a_transfer() {
    let tmp = tempfile::tempdir().unwrap();
    let unique = Dest {
        unique: true,
        ..Dest::default()
    };
    let sink = open(tmp.path(), &unique, &Policy::default(), Way::Unnamed).unwrap();
    let name = format!("bcast-{ID}");
    assert_names(tmp.path(), &[&name]);
    drop(sink);
    assert_names(tmp.path(), &[]);
    let done = put(tmp.path(), &unique).unwrap();
    let copy = tmp.path().canonicalize().unwrap().join(&name).join("f");
    assert_eq!(done[0].path.as_path(), copy);
    // Somebody else's is not used.
    assert_eq!(errno(tmp.path(), &unique), Errno::EEXIST);
}

#[test]
fn several_sources_need_a_directory() {
    let tmp = tempfile::tempdir().unwrap();
    let two = || {
        let mut two = in_memory("a", b"a");
        two.inputs.extend(in_memory("b", b"b").inputs);
        two
    };
    let policy = Policy::default();
    let refused = send(two(), tmp.path(), &dest("x"), &policy, Way::Unnamed);
    assert_eq!(refused.unwrap_err().errno(), Errno::ENOTDIR);
    assert_names(tmp.path(), &[]);
    send(two(), tmp.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
    assert_names(tmp.path(), &["a", "b"]);
}

#[test]
fn nothing_is_told_of_names_elsewhere() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("base");
    std::fs::create_dir(&base).unwrap();
    std::fs::write(tmp.path().join("secret"), b"x").unwrap();
    std::fs::write(base.join("there"), b"x").unwrap();
    let to = Dest::default();
    let sink = open(&base, &to, &Policy::default(), Way::Unnamed).unwrap();
    let told = |name: &str| {
        sink.expect_names(&[name.into()])
            .map_err(|error| error.errno())
    };
    assert_eq!(told("free"), Ok(()));
    assert_eq!(told("there"), Err(Errno::EEXIST));
    for name in [
        "../secret",
        "../nothing",
        "/etc/passwd",
        "..",
        ".",
        "",
        "there/",
    ] {
        assert_eq!(told(name), Err(Errno::EINVAL), "{name}");
    }
}
