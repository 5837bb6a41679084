//! File broadcast and PMI_PORT for running Flux jobs.
//!
//! One shared library with three faces: Flux's job shell loads it as a plugin
//! ([`flux_plugin_init`](plugin)), C programs link it to send files to a job,
//! and the commands are built on it.
//!
//! # Layers
//!
//! Each may use what is below it, never the other way.
//!
//! * `capi`: the functions of `include/flux-bcast.h`;
//! * `plugin`, [`client`]: what happens in a job shell, and in whoever sends;
//! * [`transfer`]: joins the state machines to Flux, files and time;
//! * [`bcast`], [`pmi`], [`kary`]: the domain, as state machines without I/O;
//!   [`file`](mod@file): reading and writing files, on worker threads;
//! * [`flux`]: safe wrappers of Flux's C interface;
//! * [`ffi`]: that interface, resolved at run time.
//!
//! # Threads and panics
//!
//! Everything but [`file`](mod@file) and the look-ups of [`sockets`] belongs to the
//! thread of the reactor; the types of [`flux`] are not `Send`. No panic crosses into
//! C, see [`flux::guard`].

pub mod bcast;
#[expect(unsafe_code, reason = "exported to C")]
mod capi;
pub mod client;
pub mod elf;
pub mod errno;
pub mod ffi;
pub mod file;
#[expect(unsafe_code, reason = "wraps C")]
pub mod flux;
pub mod hostlist;
pub mod idset;
pub mod kary;
pub mod meant;
pub mod plugin;
pub mod pmi;
pub mod sockets;
pub mod transfer;
pub mod units;
