//! The objects behind Flux's handles, as reference-counted Rust values.
//!
//! Everything here belongs to one thread, as in Flux. C holds a counted pointer
//! to each object ([`crate::capi`]); what C destroys is *torn down* at once
//! (callbacks of the user run then), while its memory lives until the callback
//! that is running inside it has returned.

pub mod aux;
pub mod dispatch;
pub mod future;
pub mod handle;
pub mod outcome;
pub mod plugin;
pub mod reactor;
pub mod rpc;
pub mod watch;
