//! Carries transfers out: joins the state machines of [`crate::bcast`] to Flux
//! messages, files and time.
//!
//! A [`driver::Driver`] runs one transfer in one process, be it a shell or a
//! client. It talks to the shells it feeds through [`edge::Edge`]s, and to the
//! disk through worker threads ([`writer`], [`reader`]), so that neither a slow
//! disk nor a slow peer ever blocks the reactor.

pub mod ask;
pub mod driver;
pub mod edge;
pub mod reader;
pub(crate) mod told;
pub(crate) mod worker;
pub mod writer;
