//! File broadcast and PMI_PORT for running Flux jobs.

pub mod bcast;
pub mod errno;
pub mod ffi;
pub mod file;
#[expect(unsafe_code, reason = "wraps C")]
pub mod flux;
pub mod hostlist;
pub mod idset;
pub mod kary;
pub mod pmi;
pub mod sockets;
