//! Tests of sources and sinks together, on real file systems.

mod crash;
mod destination;
mod existing;
mod hostile;
mod looking;
mod memory;
mod room;
mod roundtrip;
mod shared;
mod sources;
mod trees;

use std::path::Path;

use crate::bcast::spec::Dest;
use crate::bcast::spec::Existing;
use crate::bcast::spec::Policy;

use super::Committed;
use super::Context;
use super::FileError;
use super::Input;
use super::Origin;
use super::Sink;
use super::Source;
use super::SourceSpec;
use super::stage::STALE_SECONDS;
use super::stage::Way;

/// Both ways of staging, for tests of what must not depend on it.
const WAYS: [Way; 2] = [Way::Unnamed, Way::Named];

const ID: &str = "0123456789abcdef";

fn context() -> Context {
    Context {
        transfer: ID.to_string(),
        rank: 0,
    }
}

fn dest(path: &str) -> Dest {
    Dest {
        path: Some(path.into()),
        ..Dest::default()
    }
}

fn spec(paths: &[&Path]) -> SourceSpec {
    SourceSpec {
        inputs: paths.iter().map(|path| Input::path(*path)).collect(),
        recursive: true,
        ..SourceSpec::default()
    }
}

fn open(base: &Path, dest: &Dest, policy: &Policy, way: Way) -> Result<Sink, FileError> {
    Sink::open_with(base, dest, policy, &context(), (way, STALE_SECONDS))
}

/// Feeds a source to a sink, up to its end.
fn feed(source: &mut Source, sink: &mut Sink, max: usize) -> Result<(), FileError> {
    let mut buf = Vec::new();
    while let Some(item) = source.next(&mut buf, max)? {
        sink.item(item)?;
    }
    Ok(())
}

/// A whole transfer.
fn send(
    spec: SourceSpec,
    base: &Path,
    dest: &Dest,
    policy: &Policy,
    way: Way,
) -> Result<Vec<Committed>, FileError> {
    let mut source = Source::open(spec)?;
    let mut sink = open(base, dest, policy, way)?;
    feed(&mut source, &mut sink, 120 << 10)?;
    sink.prepare()?;
    sink.commit()
}

/// The names in a directory, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Bytes that do not repeat within a chunk or a page.
fn contents(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[0]
        })
        .collect()
}

/// A source of some bytes with a name.
fn in_memory(name: &str, bytes: &[u8]) -> SourceSpec {
    let origin = Origin::Memory(bytes.to_vec());
    SourceSpec {
        inputs: vec![Input::new(origin, Some(name.into()))],
        ..SourceSpec::default()
    }
}

/// What must be in `dir`: an error names the difference.
fn assert_names(dir: &Path, wanted: &[&str]) {
    assert_eq!(names(dir), wanted, "in {}", dir.display());
}

fn policy(existing: Existing) -> Policy {
    Policy {
        existing,
        ..Policy::default()
    }
}
