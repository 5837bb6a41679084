//! The plugin that Flux's job shell loads.
//!
//! `entry` is where C comes in. `bcast` serves broadcasts on every shell and
//! carries out `-o bcast=…` before the tasks start. `pmi` serves PMI to the tasks
//! with `-o pmi=port`; `upmi` is its client, for brokers.

pub(crate) mod bcast;
mod brokers;
#[expect(unsafe_code, reason = "called by C")]
mod entry;
mod hosts;
pub(crate) mod pmi;
mod upmi;

pub use entry::load;
