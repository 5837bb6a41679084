//! Looking without touching, and removing just what was put there.

use super::*;
use crate::bcast::name::RawName;
use crate::errno::Errno;
use crate::file::Registry;
use crate::file::already_has;
use crate::file::inspect;

#[test]
fn inspection_tells_what_an_opening_would_find() {
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().canonicalize().unwrap();
    std::fs::write(base.join("old"), "12345").unwrap();
    let names_of = [RawName::from("old"), RawName::from("new")];
    let policy_ = Policy::default();
    let found = inspect(&base, &Dest::default(), &policy_, &names_of, &[]).unwrap();
    assert_eq!(found.directory.as_path(), base);
    assert!(found.writable && !found.make && found.free > 0);
    assert!(found.copies[0].exists && found.copies[0].size == 5);
    assert_eq!(found.copies[0].refused.as_ref().unwrap().0, Errno::EEXIST);
    assert!(!found.copies[1].exists && found.copies[1].refused.is_none());
    assert_eq!(found.copies[1].path.as_path(), base.join("new"));
    let replace = policy(Existing::Replace);
    let found = inspect(&base, &Dest::default(), &replace, &names_of, &[]).unwrap();
    assert!(found.copies[0].exists && found.copies[0].refused.is_none());
    let mkdir = |path| Dest {
        mkdir: true,
        ..dest(path)
    };
    for (path, directory, copy) in [
        ("a/b/c", "a/b", "a/b/c"),
        ("a/b/", "a/b", "a/b/old"),
        ("a/", "a", "a/old"),
    ] {
        let found = inspect(&base, &mkdir(path), &policy_, &names_of[..1], &[]).unwrap();
        assert!(found.make && found.writable, "{path}");
        assert_eq!(found.directory.as_path(), base.join(directory));
        assert_eq!(found.copies[0].path.as_path(), base.join(copy));
    }
    let missing = inspect(&base, &dest("a/b/c"), &policy_, &[], &[]).unwrap_err();
    assert_eq!(missing.errno(), Errno::ENOENT);
    let escape = inspect(&base, &mkdir("../a/b"), &policy_, &[], &[]).unwrap_err();
    assert_eq!(escape.errno(), Errno::EPERM);
    let in_the_way = inspect(&base, &mkdir("old/b/c"), &policy_, &[], &[]).unwrap_err();
    assert_eq!(in_the_way.errno(), Errno::ENOTDIR);
    assert_names(&base, &["old"]);
}

#[test]
fn a_copy_that_is_there_already_is_recognized() {
    let tmp = tempfile::tempdir().unwrap();
    std::fs::write(tmp.path().join("f"), "contents").unwrap();
    std::fs::create_dir(tmp.path().join("dir")).unwrap();
    std::os::unix::fs::symlink("f", tmp.path().join("link")).unwrap();
    let digest = *blake3::hash(b"contents").as_bytes();
    let has = |dest: &Dest, name: &str, size, digest| {
        already_has(tmp.path(), dest, &name.into(), size, digest).unwrap()
    };
    let here = Dest::default();
    assert!(has(&here, "f", 8, &digest));
    assert!(has(&dest("f"), "other", 8, &digest));
    assert!(!has(&here, "f", 7, &digest));
    assert!(!has(&here, "f", 8, &[0; 32]));
    assert!(!has(&here, "missing", 8, &digest));
    assert!(!has(&here, "dir", 8, &digest));
    assert!(!has(&here, "link", 8, &digest));
    assert!(!has(&dest("no/such/dir"), "f", 8, &digest));
}

#[test]
fn only_what_was_put_there_is_removed() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tempfile::tempdir().unwrap();
    let tree = from.path().join("t");
    std::fs::create_dir_all(tree.join("sub/deep")).unwrap();
    std::fs::write(tree.join("sub/f"), "f").unwrap();
    std::fs::hard_link(tree.join("sub/f"), tree.join("sub/g")).unwrap();
    std::os::unix::fs::symlink("/etc", tree.join("link")).unwrap();
    std::fs::write(tmp.path().join("grown"), "old").unwrap();
    let mut registry = Registry::default();
    let mut put = |spec, existing| {
        let policy = policy(existing);
        let done = send(spec, tmp.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
        registry.add(done);
    };
    put(in_memory("a", b"a"), Existing::Refuse);
    put(in_memory("b", b"b"), Existing::Refuse);
    put(in_memory("b", b"bb"), Existing::Replace);
    put(in_memory("changed", b"c"), Existing::Refuse);
    put(in_memory("gone", b"d"), Existing::Refuse);
    put(in_memory("grown", b"+"), Existing::Append);
    put(spec(&[&tree]), Existing::Refuse);
    assert_eq!(registry.list().count(), 6);
    std::fs::write(tmp.path().join("changed"), "something else").unwrap();
    std::fs::remove_file(tmp.path().join("gone")).unwrap();
    std::fs::write(tmp.path().join("t/theirs"), "").unwrap();
    let path = |name: &str| RawName::from(tmp.path().canonicalize().unwrap().join(name));
    let unknown = registry.remove(&path("nothing")).unwrap_err();
    assert_eq!(unknown.errno(), Errno::ENOENT);
    registry.remove(&path("a")).unwrap();
    let results: Vec<_> = registry
        .remove_all()
        .into_iter()
        .map(|(path, done)| (path, done.err().map(|error| error.errno())))
        .collect();
    assert_eq!(
        results,
        [
            (path("t"), Some(Errno::ENOTEMPTY)),
            (path("grown"), Some(Errno::EPERM)),
            (path("gone"), None),
            (path("changed"), Some(Errno::ESTALE)),
            (path("b"), None),
        ]
    );
    assert_names(tmp.path(), &["changed", "grown", "t"]);
    assert_names(&tmp.path().join("t"), &["theirs"]);
    std::fs::remove_file(tmp.path().join("t/theirs")).unwrap();
    registry.remove(&path("t")).unwrap();
    assert!(!tmp.path().join("t").exists());
    assert_eq!(registry.list().count(), 2);
}
