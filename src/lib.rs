//! File broadcast and PMI_PORT for running Flux jobs.

pub mod ffi;
