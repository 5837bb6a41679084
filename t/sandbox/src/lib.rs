//! Embedded provider: stands in for Flux on a machine that has none, for
//! try-out and tests. Real processes, the real plugin, real files; no scheduler
//! and no second Flux.
//!
//! - [`wire`], [`jobid`], [`idset`], [`hostlist`], [`fsd`], [`mod@fields`]: formats.
//! - [`host`]: what is behind Flux's handles (reactor, future, handle, plugin).
//! - [`capi`]: libflux-core's functions of `include/flux_abi.h`, for C.
//! - [`broker`]: the router and its jobs; one process plays all ranks.
//! - `src/bin/flux`: the `flux` command; `src/bin/flux-shell`: the job shell.
//!
//! # Faults on demand
//! What real Flux cannot do at will; read from the environment of `flux start`:
//! - `FLUX_SANDBOX_DELAY=SECONDS`: every message between processes is held for
//!   that long (order is kept).
//! - `FLUX_SANDBOX_QUEUE_LIMIT=BYTES`: a process that does not read is cut off
//!   when so much waits for it (0: never).
//! - `FLUX_SANDBOX_OWNER=UID`: the instance belongs to that user, so that all
//!   others are its guests.
//! - `FLUX_SANDBOX_CORES=N`: cores per rank (default: those of the machine).
//! - `FLUX_SANDBOX_NO_NODE_TAGS=1`: shells do not know `{{node.id}}` and the like,
//!   as before Flux 0.70.
//!
//! `FLUX_HANDLE_USERID` and `FLUX_HANDLE_ROLEMASK` give the messages of a
//! process another sender, as in Flux.

pub mod base64;
pub mod broker;
pub mod capi;
pub mod child;
pub mod errno;
pub mod fields;
pub mod fsd;
pub mod host;
pub mod hostlist;
pub mod idset;
pub mod jobid;
pub mod wire;
