//! Signs requests and verifies those of others, where that is needed: in an
//! instance that belongs to another user, see [`crate::bcast::warrant`].
//!
//! Each thread that signs has a context of flux-security of its own, made when
//! it is first needed.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use super::edge::Link;
use super::new_id;
use crate::bcast::frame::Frame;
use crate::bcast::frame::Kind;
use crate::bcast::id::TransferId;
use crate::bcast::message::Open;
use crate::bcast::message::VERSION;
use crate::bcast::warrant::Running;
use crate::bcast::warrant::Seal;
use crate::bcast::warrant::Terms;
use crate::bcast::warrant::Warrant;
use crate::errno::Errno;
use crate::flux::error::Context;
use crate::flux::error::Error;
use crate::flux::error::Result;
use crate::flux::handle::Handle;
use crate::flux::security::Signer;
use crate::idset::IdSet;

/// A request that carries a signed one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the protocol.
    pub version: u32,
    /// A signed [`Warrant`].
    pub signature: String,
}

thread_local! {
    static SIGNER: OnceCell<Rc<Signer>> = const { OnceCell::new() };
}

fn signer() -> Result<Rc<Signer>> {
    SIGNER.with(|cell| {
        if let Some(signer) = cell.get() {
            return Ok(Rc::clone(signer));
        }
        // A failure is not kept: munged, say, may be there next time.
        let signer = Rc::new(Signer::new()?);
        Ok(Rc::clone(cell.get_or_init(|| signer)))
    })
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// True if what this process asks of shells has to be signed: the instance
/// belongs to another user.
///
/// # Errors
/// The instance does not say whose it is.
pub fn is_needed(handle: Handle) -> Result<bool> {
    let owner = handle.attr_get("security.owner")?;
    let owner = owner.and_then(|owner| owner.parse::<u32>().ok());
    Ok(owner.is_some_and(|owner| owner != rustix::process::getuid().as_raw()))
}

impl Link {
    /// The payload of a request to `ranks`: the request itself, or signed where
    /// that is needed.
    ///
    /// # Errors
    /// It has to be signed and cannot be.
    pub fn payload(&self, method: &str, ranks: IdSet, ask: &impl Serialize) -> Result<Value> {
        let ask = serde_json::to_value(ask).context("encode a request")?;
        if !is_needed(self.handle)? {
            return Ok(ask);
        }
        let signature = sign(&self.service, method, ranks, new_id()?, ask)?;
        let envelope = Envelope {
            version: VERSION,
            signature,
        };
        serde_json::to_value(envelope).context("encode a request")
    }

    /// Signs the terms of a transfer where that is needed.
    ///
    /// # Errors
    /// They have to be signed and cannot be.
    pub fn sign_terms(&self, open: &mut Open) -> Result<()> {
        if is_needed(self.handle)? {
            let ranks = open.tree.ranks().iter().copied().collect();
            let terms = serde_json::to_value(Terms::of(open)).context("encode terms")?;
            let signed = sign(&self.service, "open", ranks, open.transfer, terms)?;
            open.warrant = Some(signed);
        }
        Ok(())
    }
}

fn sign(
    service: &str,
    method: &str,
    ranks: IdSet,
    nonce: TransferId,
    ask: Value,
) -> Result<String> {
    let warrant = Warrant {
        version: VERSION,
        service: service.to_owned(),
        method: method.to_owned(),
        ranks,
        time: now(),
        nonce,
        ask,
    };
    sign_text(&warrant)
}

fn sign_text(what: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(what).context("encode a request")?;
    signer()
        .and_then(|signer| signer.sign(&text))
        .context("this job runs in an instance of another user, so requests must be signed")
}

/// Verifies that this process's user signed `signed`; what it says.
///
/// # Errors
/// EPERM for another user's signature; else why it is no good.
fn verify<T: serde::de::DeserializeOwned>(signed: &str) -> Result<T> {
    let signed = signer()?.verify(signed)?;
    if signed.uid != rustix::process::getuid().as_raw() {
        return Err(Error::with_text(
            Errno::EPERM,
            "only the owner of the job may sign requests to it",
        ));
    }
    serde_json::from_str(&signed.text).context("what was signed")
}

/// Verifies a signed request.
///
/// # Errors
/// EPERM or EPROTO, with the reason.
pub fn verify_warrant(signed: &str, service: &str, method: &str, rank: u32) -> Result<Warrant> {
    let warrant: Warrant = verify(signed)?;
    warrant
        .check(service, method, rank, now())
        .map_err(|text| Error::with_text(Errno::EPERM, text))?;
    Ok(warrant)
}

/// Puts the seal on the last frame of a stream while it is made.
#[derive(Debug)]
pub struct Sealer {
    service: String,
    running: Running,
}

impl Sealer {
    /// For a transfer to the shells of this service.
    pub fn new(service: String) -> Self {
        Self {
            service,
            running: Running::default(),
        }
    }

    /// Takes the next frame, and returns it as it is to be sent.
    ///
    /// # Errors
    /// The seal cannot be signed.
    pub fn pass(&mut self, frame: Frame) -> Result<Frame> {
        if frame.kind() != Kind::Fin {
            self.running.update(&frame);
            return Ok(frame);
        }
        let seal = self.expected(frame.transfer());
        Ok(frame.sealed(&sign_text(&seal)?))
    }

    /// Takes the next frame that came. The last one must have the seal.
    ///
    /// # Errors
    /// EPERM: nobody who may has signed this data.
    pub fn check(&mut self, frame: &Frame) -> Result<()> {
        if frame.kind() != Kind::Fin {
            self.running.update(frame);
            return Ok(());
        }
        let refused = |text| Error::with_text(Errno::EPERM, text);
        let signed = frame
            .seal()
            .ok_or_else(|| refused("the data has no signature"))?;
        let seal: Seal = verify(signed)?;
        if seal != self.expected(frame.transfer()) {
            return Err(refused("the data is not what was signed"));
        }
        Ok(())
    }

    fn expected(&self, transfer: TransferId) -> Seal {
        Seal {
            service: self.service.clone(),
            transfer,
            digest: self.running.digest(),
        }
    }
}
