//! Peak memory does not grow with the size of a file.

use std::process::Command;

use super::*;

const FROM: &str = "FLUX_BCAST_TEST_MEMORY_FROM";

/// Not a test by itself: copies a file and prints the peak of its memory.
#[test]
fn child_that_copies() {
    let Some(from) = std::env::var_os(FROM) else {
        return;
    };
    let base = tempfile::tempdir().unwrap();
    let policy = Policy::default();
    let from = Path::new(&from);
    send(
        spec(&[from]),
        base.path(),
        &Dest::default(),
        &policy,
        Way::Unnamed,
    )
    .unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    println!("\n{peak}");
}

fn peak_kib(len: usize) -> u64 {
    let tmp = tempfile::tempdir().unwrap();
    let from = tmp.path().join("f");
    std::fs::write(&from, vec![7; len]).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "file::tests::memory::child_that_copies",
            "--nocapture",
        ])
        .env(FROM, &from)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect(&text);
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn peak_memory_does_not_grow_with_the_file() {
    let (small, large) = (peak_kib(1 << 20), peak_kib(64 << 20));
    assert!(
        large < small + 2048,
        "{small} KiB for 1 MiB, {large} KiB for 64 MiB"
    );
}
