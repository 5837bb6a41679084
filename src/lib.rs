//! File broadcast and PMI_PORT for running Flux jobs.

pub mod bcast;
pub mod errno;
pub mod ffi;
pub mod file;
pub mod hostlist;
pub mod idset;
pub mod kary;
pub mod pmi;
