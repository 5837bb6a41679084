//! No room, no permission, nothing writable.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::errno::Errno;
use crate::file::check;

/// A small file system of its own.
struct Mount(tempfile::TempDir);

impl Mount {
    /// `None`, saying why, where mounting is not permitted.
    fn tmpfs(options: &str) -> Option<Mount> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "flux-bcast-test"])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Mount(dir)),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                println!("skipped: cannot mount a tmpfs: {}", why.trim());
                None
            }
            Err(error) => {
                println!("skipped: cannot mount a tmpfs: {error}");
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_file_system_is_reported_with_its_numbers() {
    let Some(mount) = Mount::tmpfs("size=1m") else {
        return;
    };
    let base = mount.path();
    for way in WAYS {
        let sink = open(&base, &Dest::default(), &Policy::default(), way).unwrap();
        sink.expect(100_000).unwrap();
        let early = sink.expect(2 << 20).unwrap_err();
        assert_eq!(early.errno(), Errno::ENOSPC);
        assert!(
            early.to_string().contains("2097152 bytes are needed"),
            "{early}"
        );
        drop(sink);
        std::fs::write(base.join("f"), "old").unwrap();
        for existing in [Existing::Replace, Existing::Append, Existing::Truncate] {
            let big = contents(2 << 20);
            let policy = policy(existing);
            let late = send(in_memory("f", &big), &base, &Dest::default(), &policy, way);
            let late = late.unwrap_err();
            assert_eq!(late.errno(), Errno::ENOSPC);
            let text = late.to_string();
            let wanted = format!("write {}/f: No space left on device", base.display());
            assert!(
                text.starts_with(&wanted) && text.contains("bytes are free"),
                "{text}"
            );
            assert_eq!(std::fs::read(base.join("f")).unwrap(), b"old");
            assert_names(&base, &["f"]);
        }
        // Fits once, but not twice as appending takes; what is there stays.
        let policy = policy(Existing::Append);
        let half = contents(600 << 10);
        let late = send(in_memory("f", &half), &base, &Dest::default(), &policy, way);
        assert_eq!(late.unwrap_err().errno(), Errno::ENOSPC);
        assert_eq!(std::fs::read(base.join("f")).unwrap(), b"old");
        assert_names(&base, &["f"]);
    }
}

#[test]
fn a_sparse_file_needs_only_the_room_of_its_data() {
    let Some(mount) = Mount::tmpfs("size=1m") else {
        return;
    };
    let tmp = tempfile::tempdir().unwrap();
    let from = tmp.path().join("f");
    let file = std::fs::File::create(&from).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &contents(10_000), 9 << 20).unwrap();
    let source = Source::open(spec(&[&from])).unwrap();
    let policy = Policy::default();
    let sink = open(&mount.path(), &Dest::default(), &policy, Way::Unnamed).unwrap();
    sink.expect(source.totals().allocated).unwrap();
    drop(sink);
    send(
        spec(&[&from]),
        &mount.path(),
        &Dest::default(),
        &policy,
        Way::Unnamed,
    )
    .unwrap();
    let copy = mount.path().join("f");
    assert!(std::fs::read(copy).unwrap() == std::fs::read(&from).unwrap());
}

#[test]
fn a_read_only_file_system_is_refused_at_the_opening() {
    let Some(mount) = Mount::tmpfs("ro") else {
        return;
    };
    let refused = open(
        &mount.path(),
        &Dest::default(),
        &Policy::default(),
        Way::Unnamed,
    );
    assert_eq!(refused.unwrap_err().errno(), Errno::EROFS);
    let looked = check::inspect(
        &mount.path(),
        &Dest::default(),
        &Policy::default(),
        &[],
        &[],
    );
    assert!(!looked.unwrap().writable);
}

#[test]
fn a_directory_without_permission_is_refused_at_the_opening() {
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere, so this runs as somebody else.
        let name =
            "file::tests::room::a_directory_without_permission_is_refused_at_the_opening";
        let other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env_remove("TMPDIR")
            .current_dir("/")
            .uid(65534)
            .gid(65534)
            .output();
        match other {
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(
                    output.status.success() && text.contains("1 passed"),
                    "{text}"
                );
            }
            Err(error) => println!("skipped: cannot run as another user: {error}"),
        }
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o500)).unwrap();
    let refused = open(
        tmp.path(),
        &Dest::default(),
        &Policy::default(),
        Way::Unnamed,
    );
    let looked = check::inspect(tmp.path(), &Dest::default(), &Policy::default(), &[], &[]);
    std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(refused.unwrap_err().errno(), Errno::EACCES);
    assert!(!looked.unwrap().writable);
    let secret = tmp.path().join("secret");
    std::fs::write(&secret, "x").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o000)).unwrap();
    let error = Source::open(spec(&[&secret])).unwrap_err();
    assert_eq!(
        (error.errno(), error.path().as_path()),
        (Errno::EACCES, secret.as_path())
    );
}
