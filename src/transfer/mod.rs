//! Carries transfers out: joins the state machines of [`crate::bcast`] to Flux
//! messages, files and time.
//!
//! A [`driver::Driver`] runs one transfer in one process, be it a shell or a
//! client. It talks to the shells it feeds through [`edge::Edge`]s, and to the
//! disk through worker threads ([`writer`], [`reader`]), so that neither a slow
//! disk nor a slow peer ever blocks the reactor.

#![forbid(unsafe_code)]

pub mod ask;
pub mod direct;
pub mod driver;
pub mod edge;
pub mod reader;
pub mod signed;
pub(crate) mod told;
pub(crate) mod worker;
pub mod writer;

use crate::bcast::id::TransferId;
use crate::flux::error::Context;
use crate::flux::error::Result;

/// A random id for a new transfer.
///
/// # Errors
/// The system has no random numbers to give.
pub(crate) fn new_id() -> Result<TransferId> {
    let mut id = [0; 16];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .context("choose a transfer id")?;
    Ok(TransferId::from_bytes(id))
}
