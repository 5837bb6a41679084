//! File broadcast: the domain, without Flux and without I/O.
//!
//! A transfer is a stream of [`item`]s, packed into [`frame`]s, that flows down
//! a [`tree`] of shells. Each shell runs a [`relay`]; whoever starts a transfer
//! runs an [`origin`], which decides whether all commit or none.

#![forbid(unsafe_code)]

pub mod frame;
pub mod id;
pub mod item;
pub mod message;
pub mod name;
pub mod origin;
pub mod pacer;
pub mod relay;
pub mod report;
pub mod spec;
pub mod tree;
pub mod warrant;
