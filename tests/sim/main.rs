//! The simulator: whole transfers in one process, on virtual time, with faults
//! that follow from a seed, and the promises of a broadcast checked after every
//! step.
//!
//! ```text
//! SIM_FIRST=17 SIM_SEEDS=1 SIM_TRACE=1 cargo test --test sim
//! ```
//!
//! runs the seed 17 alone and tells every event; `SIM_SEEDS=1000000` runs many.

#![cfg(test)]

mod driver;
mod faults;
mod network;
mod node;
mod promises;
mod protocol;
mod rng;
mod scenario;
mod sink;
mod source;
mod tally;
mod violations;
mod world;

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;

use self::scenario::Scenario;
use self::tally::Ending;
use self::tally::Tally;
use self::world::World;

/// Runs so many seeds unless told otherwise.
const SEEDS: u64 = 2000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What went wrong with a seed, or how it ended.
fn run(seed: u64, trace: bool) -> Result<Ending, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let plan = Scenario::new(seed);
        let mut world = World::new(&plan, trace);
        world.run().map(|()| world.ending())
    }));
    ran.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

#[test]
fn promises_hold_whatever_happens() {
    let first = number("SIM_FIRST").unwrap_or(0);
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    let trace = number("SIM_TRACE").is_some();
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for seed in first..first.saturating_add(count) {
        match run(seed, trace) {
            Ok(ending) => tally.add(&ending),
            Err(text) => failures.push(format!(
                "{text}\n  SIM_FIRST={seed} SIM_SEEDS=1 SIM_TRACE=1 cargo test --test sim"
            )),
        }
        if failures.len() >= 10 {
            break;
        }
    }
    println!("seeds from {first}: {tally:?}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if count >= 2000 {
        tally.check();
    }
}
