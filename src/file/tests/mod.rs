//! Tests of sources and sinks together, on real file systems.

mod roundtrip;

use std::path::Path;

use crate::bcast::spec::Dest;
use crate::bcast::spec::Policy;

use super::Committed;
use super::Context;
use super::FileError;
use super::Input;
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
