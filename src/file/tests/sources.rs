//! What can and cannot be a source, and what happens when it changes.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::*;
use crate::bcast::item::Item;
use crate::bcast::name::RawName;
use crate::errno::Errno;

fn refused(spec: SourceSpec) -> FileError {
    Source::open(spec).expect_err("it should be refused")
}

#[test]
fn a_fifo_is_refused_without_waiting() {
    let tmp = tempfile::tempdir().unwrap();
    let fifo = tmp.path().join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    let error = refused(spec(&[&fifo]));
    assert_eq!(error.errno(), Errno::EINVAL);
    assert!(error.to_string().contains("a FIFO"), "{error}");
    let inside = refused(spec(&[tmp.path()]));
    assert_eq!(inside.path().as_path(), fifo);
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let tmp = tempfile::tempdir().unwrap();
    let socket = tmp.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [Path::new("/dev/null"), Path::new("/dev/zero"), &socket] {
        let error = refused(spec(&[path]));
        assert_eq!(error.errno(), Errno::EINVAL, "{error}");
        assert_eq!(error.path().as_path(), path);
    }
    for path in ["", "/nonexistent/file"] {
        assert_eq!(refused(spec(&[Path::new(path)])).errno(), Errno::ENOENT);
    }
    assert_eq!(refused(spec(&[Path::new("/")])).errno(), Errno::EINVAL);
    let flat = SourceSpec {
        recursive: false,
        ..spec(&[tmp.path()])
    };
    let error = refused(flat);
    assert_eq!(error.errno(), Errno::EISDIR);
    assert!(error.hint().is_some());
    let write_only = std::fs::File::create(tmp.path().join("w")).unwrap();
    let origin = Origin::Fd(write_only.into());
    let error = refused(SourceSpec {
        inputs: vec![Input::new(origin, Some("w".into()))],
        ..SourceSpec::default()
    });
    assert_eq!(error.errno(), Errno::EBADF);
}

#[test]
fn names_must_be_names_and_differ() {
    let tmp = tempfile::tempdir().unwrap();
    for dir in ["a", "b"] {
        std::fs::create_dir(tmp.path().join(dir)).unwrap();
        std::fs::write(tmp.path().join(dir).join("f"), "").unwrap();
    }
    let (a, b) = (tmp.path().join("a/f"), tmp.path().join("b/f"));
    let error = refused(spec(&[&a, &b]));
    assert_eq!(
        (error.errno(), error.path().as_path()),
        (Errno::EEXIST, b.as_path())
    );
    for name in ["", ".", "..", "x/y", "/x", "x\0"] {
        let mut spec = spec(&[&a]);
        spec.inputs[0].name = Some(name.into());
        assert_eq!(refused(spec).errno(), Errno::EINVAL, "{name:?}");
    }
    let renamed = |name: &str| {
        let mut spec = spec(&[&a, &b]);
        spec.inputs[1].name = Some(name.into());
        Source::open(spec)
            .unwrap()
            .names()
            .last()
            .unwrap()
            .to_string()
    };
    assert_eq!(renamed("g"), "g");
    // The name of a directory given as `dir/.` is the directory's own.
    let source = Source::open(spec(&[&tmp.path().join("a/.")])).unwrap();
    assert_eq!(source.names().next().unwrap().to_string(), "a");
    let source = Source::open(spec(&[&tmp.path().join("a/../b/..")])).unwrap();
    let own = tmp.path().canonicalize().unwrap();
    assert_eq!(
        source.names().next().unwrap().as_os_str(),
        own.file_name().unwrap()
    );
}

#[test]
fn memory_needs_a_name() {
    let spec = SourceSpec {
        inputs: vec![Input::new(Origin::Memory(Vec::new()), None)],
        ..SourceSpec::default()
    };
    assert_eq!(refused(spec).errno(), Errno::EINVAL);
}

/// Reads until the first data, lets `change` happen, reads on.
fn changed(path: &Path, change: impl FnOnce()) -> Result<u64, FileError> {
    let mut source = Source::open(spec(&[path])).unwrap();
    let mut buf = Vec::new();
    let mut change = Some(change);
    let mut bytes = 0;
    while let Some(item) = source.next(&mut buf, 4096)? {
        match item {
            Item::Data { .. } => {
                if let Some(change) = change.take() {
                    change();
                }
            }
            Item::Fin { bytes: all, .. } => bytes = all,
            _ => {}
        }
    }
    Ok(bytes)
}

#[test]
fn a_change_while_being_read_is_noticed() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    let fresh = || std::fs::write(&path, contents(20_000)).unwrap();
    let file = || std::fs::File::options().write(true).open(&path).unwrap();
    let touch = || {
        let file = file();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        file.set_modified(later).unwrap();
    };
    let append = || {
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.write_all(b"more").unwrap();
    };
    let changes: [(&str, &dyn Fn()); 4] = [
        ("shorter", &|| file().set_len(8192).unwrap()),
        ("longer", &append),
        ("touched", &touch),
        ("emptied", &|| file().set_len(0).unwrap()),
    ];
    for (what, change) in changes {
        fresh();
        let error = changed(&path, change).expect_err(what);
        assert_eq!(error.errno(), Errno::ESTALE, "{what}");
        assert!(
            error.to_string().contains("changed while being read"),
            "{error}"
        );
    }
    // Being unlinked or linked, or replaced under its name, is no change.
    fresh();
    let others = || {
        std::fs::hard_link(&path, tmp.path().join("g")).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "other").unwrap();
    };
    assert_eq!(changed(&path, others).unwrap(), 20_000);
}

#[test]
fn a_file_in_a_directory_must_be_the_one_that_was_found() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("f"), "one").unwrap();
    std::fs::write(tmp.path().join("g"), "two").unwrap();
    let mut source = Source::open(spec(&[&dir])).unwrap();
    std::fs::remove_file(dir.join("f")).unwrap();
    std::os::unix::fs::symlink("../g", dir.join("f")).unwrap();
    let mut buf = Vec::new();
    let error = loop {
        match source.next(&mut buf, 4096) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the change went unnoticed"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), Errno::ESTALE);
}

#[test]
fn files_whose_size_says_nothing_are_read_to_their_end() {
    for path in ["/proc/version", "/proc/self/status"] {
        let base = tempfile::tempdir().unwrap();
        let spec = spec(&[Path::new(path)]);
        assert!(
            !Source::open(SourceSpec {
                inputs: vec![Input::path(path)],
                ..SourceSpec::default()
            })
            .unwrap()
            .totals()
            .exact
        );
        let policy = Policy::default();
        send(spec, base.path(), &dest("copy"), &policy, Way::Unnamed).unwrap();
        assert!(base.path().join("copy").metadata().unwrap().len() > 10);
    }
    // One whose size is larger than what it has to say, where there is one.
    let sysfs = PathBuf::from("/sys/kernel/mm/transparent_hugepage/enabled");
    if sysfs.exists() {
        let base = tempfile::tempdir().unwrap();
        let policy = Policy::default();
        send(
            spec(&[&sysfs]),
            base.path(),
            &dest("copy"),
            &policy,
            Way::Unnamed,
        )
        .unwrap();
        let copy = std::fs::read(base.path().join("copy")).unwrap();
        assert_eq!(copy, std::fs::read(&sysfs).unwrap());
    }
}

#[test]
fn a_pipe_is_read_until_its_writer_is_done() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let fd = OwnedFd::from(reader);
    rustix::io::ioctl_fionbio(&fd, true).unwrap();
    let wanted = contents(100_000);
    let spec = SourceSpec {
        inputs: vec![Input::new(Origin::Stream(fd), Some("f".into()))],
        ..SourceSpec::default()
    };
    let base = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in wanted.chunks(777) {
                writer.write_all(piece).unwrap();
            }
            drop(writer);
        });
        let policy = Policy::default();
        send(spec, base.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
    });
    assert_eq!(std::fs::read(base.path().join("f")).unwrap(), wanted);
}

#[test]
fn the_offset_of_a_descriptor_stays() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    std::fs::write(&path, contents(50_000)).unwrap();
    let mut file = std::fs::File::open(&path).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(7)).unwrap();
    let shared = file.try_clone().unwrap();
    let spec = SourceSpec {
        inputs: vec![Input::new(Origin::Fd(shared.into()), Some("f".into()))],
        ..SourceSpec::default()
    };
    let base = tempfile::tempdir().unwrap();
    let policy = Policy::default();
    send(spec, base.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
    assert_eq!(
        std::fs::read(base.path().join("f")).unwrap(),
        contents(50_000)
    );
    assert_eq!(std::io::Seek::stream_position(&mut file).unwrap(), 7);
}

#[test]
fn a_set_is_a_directory_of_files_from_anywhere() {
    let tmp = tempfile::tempdir().unwrap();
    let (a, b) = (tmp.path().join("a"), tmp.path().join("b"));
    std::fs::create_dir(&b).unwrap();
    std::fs::write(&a, "one").unwrap();
    std::fs::write(b.join("c"), "two").unwrap();
    std::os::unix::fs::symlink("c", b.join("link")).unwrap();
    let set = |members: Vec<(RawName, PathBuf)>| SourceSpec {
        inputs: vec![Input::new(Origin::Set(members), Some("set".into()))],
        recursive: true,
        ..SourceSpec::default()
    };
    let members = vec![("z".into(), a.clone()), ("y".into(), b.join("link"))];
    let mut source = Source::open(set(members)).unwrap();
    assert_eq!((source.totals().entries, source.totals().bytes), (3, 6));
    let (mut buffer, mut seen) = (Vec::new(), Vec::new());
    while let Some(item) = source.next(&mut buffer, 4096).unwrap() {
        match item {
            Item::Entry(entry) => seen.push(entry.path.to_string()),
            Item::Data { bytes, .. } => seen.push(String::from_utf8_lossy(bytes).into()),
            _ => {}
        }
    }
    assert_eq!(seen, ["set", "set/y", "two", "set/z", "one"]);
    let gone = refused(set(vec![("x".into(), tmp.path().join("none"))]));
    assert_eq!(gone.errno(), Errno::ENOENT);
    assert_eq!(refused(set(vec![("x".into(), b)])).errno(), Errno::EINVAL);
    assert_eq!(refused(set(vec![("x/y".into(), a)])).errno(), Errno::EINVAL);
}
