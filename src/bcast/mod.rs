//! File broadcast: the domain, without Flux and without I/O.

#![forbid(unsafe_code)]

pub mod item;
pub mod name;
pub mod spec;
