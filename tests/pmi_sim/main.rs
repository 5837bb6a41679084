//! Many shells, ranks and lanes in one process, with every message delayed at
//! random by a seeded scheduler: no barrier may end early, and what is put
//! before it must be read after it, byte for byte, on every rank.
//!
//! A failing seed is printed; `PMI_SIM_SEED=n` runs just that one.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod plan;
mod shells;
mod sim;

use plan::{Plan, plan};
use sim::Sim;

fn run(seed: u64, plan: Plan) {
    let text = format!("{plan:?}");
    let outcome = std::panic::catch_unwind(move || Sim::new(plan).run());
    assert!(outcome.is_ok(), "failed: PMI_SIM_SEED={seed} {text}");
}

#[test]
fn random_jobs() {
    if let Ok(seed) = std::env::var("PMI_SIM_SEED") {
        let seed = seed.parse().unwrap();
        return run(seed, plan(seed));
    }
    let seeds = std::env::var("PMI_SIM_SEEDS").map_or(120, |n| n.parse().unwrap());
    for seed in 0..seeds {
        run(seed, plan(seed));
    }
}

#[test]
fn two_lanes_in_opposite_order_for_thousands_of_rounds() {
    let plan = Plan {
        seed: 7,
        shells: vec![2, 2],
        cyclic: false,
        lanes: 2,
        k: 2,
        batch: 4096,
        rounds: 2000,
        value: 40,
        groups: false,
        opposite: 100,
    };
    Sim::new(plan).run();
}
