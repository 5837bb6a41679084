//! Broadcast: frames, JSON messages and the relay that they reach.
#![no_main]

#[path = "../../../tests/bcast_wire/harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|input: &[u8]| harness::survive(input));
