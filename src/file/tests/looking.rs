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
    let new = Dest {
        unique: true,
        ..Dest::default()
    };
    assert!(!has(&new, "f", 8, &digest));
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

#[test]
fn a_directory_that_was_sent_twice_is_removed_whole() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tempfile::tempdir().unwrap();
    let tree = from.path().join("t");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/first"), "1").unwrap();
    std::fs::write(tree.join("sub/both"), "old").unwrap();
    let mut registry = Registry::default();
    let mut put = |existing| {
        let policy = policy(existing);
        let from = spec(&[&tree]);
        let done = send(from, tmp.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
        registry.add(done);
    };
    put(Existing::Refuse);
    std::fs::remove_file(tree.join("sub/first")).unwrap();
    std::fs::write(tree.join("sub/both"), "newer").unwrap();
    std::fs::create_dir(tree.join("more")).unwrap();
    std::fs::write(tree.join("more/second"), "22").unwrap();
    put(Existing::Replace);
    let listed: Vec<_> = registry.list().collect();
    assert_eq!((listed.len(), listed[0].inner.len()), (1, 5));
    assert_eq!(listed[0].bytes, 1 + 5 + 2);
    for (_, done) in registry.remove_all() {
        done.unwrap();
    }
    assert_names(tmp.path(), &[]);
}

#[test]
fn what_was_there_before_a_directory_was_filled_up_stays() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tempfile::tempdir().unwrap();
    let tree = from.path().join("t");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/f"), "f").unwrap();
    std::fs::create_dir_all(tmp.path().join("t/sub")).unwrap();
    let mut registry = Registry::default();
    for _ in 0..2 {
        let policy = policy(Existing::Replace);
        let from = spec(&[&tree]);
        let done = send(from, tmp.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
        registry.add(done);
    }
    assert_eq!(registry.list().next().unwrap().inner.len(), 1);
    registry.remove_all().remove(0).1.unwrap();
    assert_names(&tmp.path().join("t"), &["sub"]);
    assert_names(&tmp.path().join("t/sub"), &[]);
}

#[test]
fn the_list_is_of_what_is_there_now() {
    let tmp = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    for name in ["changed", "gone", "same"] {
        let policy = Policy::default();
        let from = in_memory(name, b"text");
        let done = send(from, tmp.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
        registry.add(done);
    }
    std::fs::write(tmp.path().join("changed"), "longer text").unwrap();
    std::fs::remove_file(tmp.path().join("gone")).unwrap();
    let digest = Some(*blake3::hash(b"text").as_bytes());
    let listed: Vec<_> = registry
        .list()
        .map(|copy| {
            let name = copy.path.as_path().file_name().unwrap().to_owned();
            (name.into_string().unwrap(), copy.bytes, copy.digest)
        })
        .collect();
    assert_eq!(
        listed,
        [("changed".into(), 11, None), ("same".into(), 4, digest)]
    );
}
