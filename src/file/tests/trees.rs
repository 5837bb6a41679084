//! Directories: whatever tree goes in comes out.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::errno::Errno;
use crate::file::Follow;
use crate::file::MAX_DEPTH;

#[derive(Clone, Debug)]
enum Node {
    File {
        len: usize,
        at: u64,
        mode: u32,
    },
    Dir {
        mode: u32,
        nodes: BTreeMap<OsString, Node>,
    },
    Symlink(String),
    /// Another name for a file met before, if there is one.
    Again,
}

fn node() -> impl Strategy<Value = Node> {
    let file = (0..10_000_usize, 0..100_000_u64, 0..0o1000_u32).prop_map(|(len, at, mode)| {
        let at = if at.is_multiple_of(3) { at } else { 0 };
        let mode = mode | 0o400;
        Node::File { len, at, mode }
    });
    let link = prop_oneof![Just("/etc"), Just("../x"), Just("nowhere"), Just(".")];
    let leaf = prop_oneof![
        4 => file,
        1 => link.prop_map(|to| Node::Symlink(to.to_string())),
        2 => Just(Node::Again),
    ];
    leaf.prop_recursive(4, 24, 6, dir)
}

fn dir(inner: impl Strategy<Value = Node>) -> impl Strategy<Value = Node> {
    let nodes = proptest::collection::btree_map("[a-c \n\u{e9}]{1,3}", inner, 0..6);
    (0..0o1000_u32, nodes).prop_map(|(mode, nodes)| Node::Dir {
        mode: mode | 0o500,
        nodes: nodes
            .into_iter()
            .map(|(name, node)| (raw(&name), node))
            .collect(),
    })
}

/// A name that is not UTF-8 for one with an accent.
fn raw(name: &str) -> OsString {
    let bytes = name.chars().map(|c| u8::try_from(u32::from(c)).unwrap());
    OsString::from_vec(bytes.collect())
}

fn build(path: &Path, node: &Node, files: &mut Vec<PathBuf>) {
    match node {
        Node::File { len, at, mode } => {
            let file = std::fs::File::create(path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &contents(*len), *at).unwrap();
            file.set_len(*at * 2 + *len as u64).unwrap();
            file.set_permissions(PermissionsExt::from_mode(*mode))
                .unwrap();
            files.push(path.to_path_buf());
        }
        Node::Dir { mode, nodes } => {
            std::fs::create_dir(path).unwrap();
            for (name, node) in nodes {
                build(&path.join(name), node, files);
            }
            std::fs::set_permissions(path, PermissionsExt::from_mode(*mode)).unwrap();
        }
        Node::Symlink(to) => symlink(to, path).unwrap(),
        Node::Again => {
            if let Some(file) = files.last() {
                std::fs::hard_link(file, path).unwrap();
            }
        }
    }
}

/// All that must be equal: kind with mode and size, times but those of links,
/// contents, and the first name of the same inode.
type Facts = (u32, u64, Option<(i64, i64)>, Vec<u8>, PathBuf);

fn snapshot(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut facts = BTreeMap::new();
    let mut inodes = HashMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(rel) = todo.pop() {
        let path = if rel.as_os_str().is_empty() {
            root.into()
        } else {
            root.join(&rel)
        };
        let meta = path.symlink_metadata().unwrap();
        let mut bytes = Vec::new();
        if meta.is_dir() {
            let names = std::fs::read_dir(&path).unwrap();
            let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
            names.sort_by(|a, b| b.cmp(a));
            todo.extend(names.into_iter().map(|name| rel.join(name)));
        } else if meta.is_symlink() {
            let to = std::fs::read_link(&path).unwrap();
            bytes = to.into_os_string().into_encoded_bytes();
        } else {
            bytes = std::fs::read(&path).unwrap();
        }
        let first = inodes
            .entry(meta.ino())
            .or_insert_with(|| rel.clone())
            .clone();
        let size = if meta.is_dir() { 0 } else { meta.len() };
        let times = (!meta.is_symlink()).then(|| (meta.mtime(), meta.mtime_nsec()));
        facts.insert(rel, (meta.mode(), size, times, bytes, first));
    }
    facts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_tree_comes_out_equal(tree in dir(node()), named in any::<bool>()) {
        let tmp = tempfile::tempdir().unwrap();
        let from = tmp.path().join("tree");
        build(&from, &tree, &mut Vec::new());
        let base = tempfile::tempdir().unwrap();
        let policy = Policy { times: true, ..Policy::default() };
        let way = if named { Way::Named } else { Way::Unnamed };
        let done = send(spec(&[&from]), base.path(), &Dest::default(), &policy, way).unwrap();
        let copy = base.path().join("tree");
        let (wanted, got) = (snapshot(&from), snapshot(&copy));
        prop_assert_eq!(done[0].inner.len() + 1, wanted.len());
        prop_assert_eq!(wanted, got);
        assert_names(base.path(), &["tree"]);
        let _ = std::fs::set_permissions(&from, PermissionsExt::from_mode(0o700));
        let _ = std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o700));
    }
}

#[test]
fn hard_links_are_found_across_sources() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let (a, b) = (tmp.path().join("a"), tmp.path().join("b"));
    std::fs::write(&a, "shared").unwrap();
    std::fs::hard_link(&a, &b).unwrap();
    std::fs::hard_link(&a, dir.join("inside")).unwrap();
    for way in WAYS {
        for order in [[&a, &dir, &b], [&dir, &b, &a], [&b, &a, &dir]] {
            let base = tempfile::tempdir().unwrap();
            let paths: Vec<_> = order.iter().map(|path| path.as_path()).collect();
            let policy = policy(Existing::Replace);
            // Twice, so that the second time all are replaced.
            for _ in 0..2 {
                send(spec(&paths), base.path(), &Dest::default(), &policy, way).unwrap();
                let inode = |name| base.path().join(name).metadata().unwrap().ino();
                assert_eq!(inode("a"), inode("b"), "{way:?} {order:?}");
                assert_eq!(inode("a"), inode("dir/inside"), "{way:?} {order:?}");
                assert_names(base.path(), &["a", "b", "dir"]);
            }
        }
    }
}

#[test]
fn links_are_followed_as_asked() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(tmp.path().join("file"), "contents").unwrap();
    let named = tmp.path().join("named");
    symlink("file", &named).unwrap();
    symlink("../file", dir.join("inside")).unwrap();
    for (follow, named_link, inside_link) in [
        (Follow::Never, true, true),
        (Follow::Named, false, true),
        (Follow::Always, false, false),
    ] {
        let base = tempfile::tempdir().unwrap();
        let spec = SourceSpec {
            follow,
            ..spec(&[&named, &dir])
        };
        send(
            spec,
            base.path(),
            &Dest::default(),
            &Policy::default(),
            Way::Unnamed,
        )
        .unwrap();
        let is_link = |name| {
            base.path()
                .join(name)
                .symlink_metadata()
                .unwrap()
                .is_symlink()
        };
        assert_eq!(is_link("named"), named_link, "{follow:?}");
        assert_eq!(is_link("dir/inside"), inside_link, "{follow:?}");
        if !inside_link {
            let copy = std::fs::read(base.path().join("dir/inside")).unwrap();
            assert_eq!(copy, b"contents");
        }
    }
}

#[test]
fn a_directory_that_contains_itself_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("dir");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    symlink("..", dir.join("sub/up")).unwrap();
    let spec = SourceSpec {
        follow: Follow::Always,
        ..spec(&[&dir])
    };
    assert_eq!(Source::open(spec).unwrap_err().errno(), Errno::ELOOP);
}

#[test]
fn more_sources_than_descriptors_can_be_spared_for() {
    let tmp = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..100)
        .map(|n| tmp.path().join(format!("f{n:03}")))
        .collect();
    for (n, path) in paths.iter().enumerate() {
        std::fs::write(path, contents(n)).unwrap();
    }
    let base = tempfile::tempdir().unwrap();
    let refs: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
    let policy = Policy::default();
    send(
        spec(&refs),
        base.path(),
        &Dest::default(),
        &policy,
        Way::Unnamed,
    )
    .unwrap();
    for (n, name) in names(base.path()).iter().enumerate() {
        assert_eq!(std::fs::read(base.path().join(name)).unwrap(), contents(n));
    }
    assert_eq!(names(base.path()).len(), 100);
}

#[test]
fn replacing_a_directory_keeps_what_the_source_does_not_have() {
    let tmp = tempfile::tempdir().unwrap();
    let from = tmp.path().join("d");
    std::fs::create_dir_all(from.join("old/new/deep")).unwrap();
    for name in ["one", "old/two", "old/new/deep/three"] {
        std::fs::write(from.join(name), "new").unwrap();
    }
    std::fs::set_permissions(from.join("old/new"), PermissionsExt::from_mode(0o500)).unwrap();
    let base = tempfile::tempdir().unwrap();
    let there = base.path().join("d");
    std::fs::create_dir_all(there.join("old")).unwrap();
    for name in ["one", "theirs", "old/theirs"] {
        std::fs::write(there.join(name), "old").unwrap();
    }
    let dest = Dest::default();
    let refused = send(
        spec(&[&from]),
        base.path(),
        &dest,
        &Policy::default(),
        Way::Unnamed,
    );
    assert_eq!(refused.unwrap_err().errno(), Errno::EEXIST);
    assert_eq!(std::fs::read(there.join("one")).unwrap(), b"old");
    let replace = policy(Existing::Replace);
    let done = send(spec(&[&from]), base.path(), &dest, &replace, Way::Unnamed).unwrap();
    for name in ["one", "old/two", "old/new/deep/three"] {
        assert_eq!(std::fs::read(there.join(name)).unwrap(), b"new", "{name}");
    }
    for name in ["theirs", "old/theirs"] {
        assert_eq!(std::fs::read(there.join(name)).unwrap(), b"old", "{name}");
    }
    let mode = there.join("old/new").metadata().unwrap().mode() & 0o777;
    assert_eq!(mode, 0o500);
    assert!(!done[0].new_dir);
    let inner: Vec<_> = done[0]
        .inner
        .iter()
        .map(|inner| inner.path.to_string())
        .collect();
    assert!(!inner.contains(&"old".to_string()) && inner.contains(&"old/new".to_string()));
    assert_names(base.path(), &["d"]);
    // A conflict of kinds is found before anything is changed.
    std::fs::remove_file(there.join("old/two")).unwrap();
    std::fs::create_dir(there.join("old/two")).unwrap();
    std::fs::write(there.join("one"), "old").unwrap();
    let refused = send(spec(&[&from]), base.path(), &dest, &replace, Way::Unnamed);
    assert_eq!(refused.unwrap_err().errno(), Errno::EISDIR);
    assert_eq!(std::fs::read(there.join("one")).unwrap(), b"old");
}

#[test]
fn directories_nest_up_to_a_limit() {
    for (depth, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join(vec!["d"; depth - 1].join("/"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("f"), "deep").unwrap();
        let base = tempfile::tempdir().unwrap();
        let from = tmp.path().join("d");
        let policy = Policy::default();
        for way in WAYS {
            let done = send(spec(&[&from]), base.path(), &Dest::default(), &policy, way);
            match done {
                Ok(_) => {
                    assert!(fits);
                    std::fs::remove_dir_all(base.path().join("d")).unwrap();
                }
                Err(error) => {
                    assert!(!fits, "{error}");
                    assert_eq!(error.errno(), Errno::ENAMETOOLONG);
                }
            }
            assert_names(base.path(), &[]);
        }
    }
}

#[test]
fn more_directories_than_descriptors_can_be_spared_for() {
    let tmp = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..80)
        .map(|n| tmp.path().join(format!("d{n:02}")))
        .collect();
    for path in &paths {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("f"), path.as_os_str().as_encoded_bytes()).unwrap();
    }
    let base = tempfile::tempdir().unwrap();
    let refs: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
    let policy = Policy::default();
    send(
        spec(&refs),
        base.path(),
        &Dest::default(),
        &policy,
        Way::Unnamed,
    )
    .unwrap();
    for path in &paths {
        let copy = base.path().join(path.file_name().unwrap()).join("f");
        assert_eq!(
            std::fs::read(copy).unwrap(),
            path.as_os_str().as_encoded_bytes()
        );
    }
}

#[test]
fn a_copy_that_is_a_link_to_another_has_its_size_and_digest() {
    let from = tempfile::tempdir().unwrap();
    let path = |name: &str| from.path().join(name);
    std::fs::write(path("a"), "text").unwrap();
    std::fs::hard_link(path("a"), path("b")).unwrap();
    let digest = Some(*blake3::hash(b"text").as_bytes());
    for way in WAYS {
        let tmp = tempfile::tempdir().unwrap();
        let both = spec(&[&path("a"), &path("b")]);
        let policy = Policy::default();
        let done = send(both, tmp.path(), &Dest::default(), &policy, way).unwrap();
        for copy in &done {
            assert_eq!(
                (copy.bytes, copy.digest),
                (4, digest),
                "{way:?} {}",
                copy.path
            );
        }
    }
}
