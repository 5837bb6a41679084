//! PMI: the wire parser, the sessions and the provider behind them.
#![no_main]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../tests/pmi_provider/host.rs"]
mod host;
#[path = "../../../tests/pmi_provider/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|input: &[u8]| script::survive(input));
