//! The functions of `include/flux-bcast.h`, for C programs that link this
//! library.
//!
//! The header is the contract: what the functions promise is written there.
//! Here is only how. [`options`], [`request`] and [`report`] are plain Rust: what
//! the caller has said, what that asks of a [`crate::client`], and what came of
//! it. [`transfer`] turns the events of the client into fulfilments of a future.
//! The rest are the C functions, each of which is one call of
//! [`crate::flux::guard`].
//!
//! Who owns what:
//!
//! - an option object is a box that the caller holds by pointer;
//! - a future is the caller's; attached to it is the one count of its
//!   [`transfer::Transfer`], which owns the client (and, for the enclosing job,
//!   the connection), so that all ends with the future;
//! - strings for the caller are made once, with the result, and live in the
//!   transfer.

mod functions;
mod options;
mod opts;
mod report;
mod request;
mod start;
mod transfer;
