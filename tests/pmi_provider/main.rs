//! One provider with clients that speak exact bytes: the wire of PMI 1.1 and
//! 1.2 as clients see it, and what a bad client costs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fuzz;
mod host;
mod ranks;
mod script;
mod wire;
