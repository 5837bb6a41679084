//! What the owner of a job signs where the brokers belong to somebody else.
//!
//! There, a broker could say that any message comes from any user; so shells do
//! what is asked for only if the request itself is signed, see
//! [`crate::flux::security`]. A signed request names the service of the job, so
//! that it is good for no other job; the method; the ranks; the time, because it
//! is good for a short time only; and a random number, because each rank obeys
//! it only once.
//!
//! A transfer needs two signatures: one for its terms when it is opened, and,
//! when all data has been sent, the *seal* over a digest of everything that was
//! sent. Until then the data is in files without a name. The digest is that of
//! the bytes of all frames before the last one, in their order; every rank
//! computes it for itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;

use super::frame::Frame;
use super::id::TransferId;
use super::message::Open;
use super::message::VERSION;
use super::name::RawName;
use super::spec::Dest;
use super::spec::Policy;
use crate::idset::IdSet;

/// Seconds for which a request may be on its way, and by which clocks may
/// differ.
pub const LIFETIME: u64 = 300;

/// Most requests that a rank remembers having obeyed. More within
/// [`LIFETIME`] are refused.
const MEMORY: usize = 1 << 16;

/// A request as it is signed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warrant {
    /// Version of the protocol.
    pub version: u32,
    /// The service of the job's shells, `<uid>-shell-<jobid>`.
    pub service: String,
    /// The method of the service.
    pub method: String,
    /// Who is asked.
    pub ranks: IdSet,
    /// When it was signed, in seconds since 1970.
    pub time: u64,
    /// A random number.
    pub nonce: TransferId,
    /// The request.
    pub ask: Value,
}

/// Why a warrant is no good; one line for people.
pub type Refusal = String;

impl Warrant {
    /// Checks that it is meant for this rank, method and time.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(
        &self,
        service: &str,
        method: &str,
        rank: u32,
        now: u64,
    ) -> Result<(), Refusal> {
        let version = self.version;
        if version != VERSION {
            let text =
                format!("the sender speaks protocol {version}, this shell speaks {VERSION}");
            return Err(text);
        }
        if self.service != service || self.method != method || !self.ranks.contains(rank) {
            return Err(format!(
                "the signature is for {} of {}, rank {}",
                self.method, self.service, self.ranks
            ));
        }
        if now.abs_diff(self.time) > LIFETIME {
            return Err(format!(
                "the signature is from another time (off by {} s, at most {LIFETIME} are allowed)",
                now.abs_diff(self.time)
            ));
        }
        Ok(())
    }
}

/// The warrants that a rank has obeyed.
#[derive(Clone, Debug, Default)]
pub struct Obeyed {
    nonces: BTreeMap<TransferId, u64>,
}

impl Obeyed {
    /// Notes a warrant that has been checked.
    ///
    /// # Errors
    /// It was obeyed before, or there are too many to remember.
    pub fn note(&mut self, warrant: &Warrant, now: u64) -> Result<(), Refusal> {
        if self.nonces.contains_key(&warrant.nonce) {
            return Err("the request was sent before".into());
        }
        // Older ones are refused for their time.
        self.nonces
            .retain(|_, time| now.abs_diff(*time) <= LIFETIME);
        if self.nonces.len() >= MEMORY {
            return Err(format!(
                "more than {MEMORY} signed requests in {LIFETIME} s"
            ));
        }
        self.nonces.insert(warrant.nonce, warrant.time);
        Ok(())
    }
}

/// What of [`Open`] is signed: all that says what is written where, and what is
/// looked for before. How the data comes is for the shells that feed each other to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The transfer's id.
    pub transfer: TransferId,
    /// Where the copy goes.
    pub dest: Dest,
    /// How it is made.
    pub policy: Policy,
    /// Healthy ranks commit although others fail.
    pub partial: bool,
    /// Bytes of data to come: the answer tells whether they fit.
    pub total: Option<u64>,
    /// Names of the copies: the answer tells whether they exist.
    pub names: Vec<RawName>,
}

impl Terms {
    /// Those of an opening request.
    pub fn of(open: &Open) -> Self {
        Self {
            transfer: open.transfer,
            dest: open.dest.clone(),
            policy: open.policy.clone(),
            partial: open.partial,
            total: open.total,
            names: open.names.clone(),
        }
    }
}

/// What is signed when all data has been sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// The service of the job's shells.
    pub service: String,
    /// The transfer's id.
    pub transfer: TransferId,
    /// Digest of the bytes of all frames before the last one, in hexadecimal
    /// digits.
    pub digest: String,
}

/// Computes the digest of a stream.
#[derive(Clone, Debug, Default)]
pub struct Running(blake3::Hasher);

impl Running {
    /// Takes the next frame.
    pub fn update(&mut self, frame: &Frame) {
        self.0.update(frame.as_bytes());
    }

    /// The BLAKE3 digest of all so far, in hexadecimal digits.
    pub fn digest(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warrant() -> Warrant {
        Warrant {
            version: VERSION,
            service: "1-shell-f1".into(),
            method: "open".into(),
            ranks: [1, 2].into_iter().collect(),
            time: 1000,
            nonce: TransferId::from_bytes([7; 16]),
            ask: Value::Null,
        }
    }

    #[test]
    fn good_for_one_job_method_rank_and_time() {
        let check = |service, method, rank, now| warrant().check(service, method, rank, now);
        assert_eq!(check("1-shell-f1", "open", 2, 1000 + LIFETIME), Ok(()));
        assert_eq!(check("1-shell-f1", "open", 1, 1000 - LIFETIME), Ok(()));
        for (service, method, rank, now) in [
            ("1-shell-f2", "open", 1, 1000),
            ("1-shell-f1", "remove", 1, 1000),
            ("1-shell-f1", "open", 0, 1000),
            ("1-shell-f1", "open", 1, 1001 + LIFETIME),
            ("1-shell-f1", "open", 1, 999 - LIFETIME),
        ] {
            assert!(
                check(service, method, rank, now).is_err(),
                "{service} {method} {rank} {now}"
            );
        }
        let other = Warrant {
            version: VERSION + 1,
            ..warrant()
        };
        assert!(other.check("1-shell-f1", "open", 1, 1000).is_err());
    }

    /// Unsigned, they would tell somebody else what is on the node.
    #[test]
    fn what_is_looked_for_belongs_to_the_terms() {
        let open: Open = serde_json::from_value(serde_json::json!({
            "version": VERSION,
            "transfer": TransferId::from_bytes([1; 16]),
            "tree": {"ranks": [0], "parents": [0]},
            "dest": {}, "policy": {}, "tuning": {}, "partial": false,
        }))
        .unwrap();
        let terms = Terms::of(&open);
        let other = Open {
            names: vec!["x".into()],
            ..open.clone()
        };
        assert_ne!(Terms::of(&other), terms);
        let other = Open {
            total: Some(1),
            ..open
        };
        assert_ne!(Terms::of(&other), terms);
    }

    /// A large file may take longer than a signature is good for: time is asked for
    /// when a transfer is opened, not when it ends.
    #[test]
    fn a_seal_has_no_time() {
        let seal = Seal {
            service: "1-shell-f1".into(),
            transfer: TransferId::from_bytes([1; 16]),
            digest: Running::default().digest(),
        };
        let signed = serde_json::to_value(&seal).unwrap();
        let fields: Vec<_> = signed.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["digest", "service", "transfer"]);
        let mut dated = signed;
        dated["time"] = 1000.into();
        assert!(serde_json::from_value::<Seal>(dated).is_err());
    }

    #[test]
    fn obeyed_once_and_forgotten_when_out_of_date() {
        let mut obeyed = Obeyed::default();
        assert_eq!(obeyed.note(&warrant(), 1000), Ok(()));
        assert!(obeyed.note(&warrant(), 1000 + LIFETIME).is_err());
        let next = Warrant {
            nonce: TransferId::from_bytes([8; 16]),
            time: 2000,
            ..warrant()
        };
        assert_eq!(obeyed.note(&next, 2000), Ok(()));
        assert_eq!(obeyed.nonces.len(), 1);
    }

    #[test]
    fn no_end_of_memory() {
        let mut obeyed = Obeyed::default();
        let numbered = |n: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_le_bytes());
            Warrant {
                nonce: TransferId::from_bytes(id),
                ..warrant()
            }
        };
        let most = u32::try_from(MEMORY).unwrap();
        for n in 0..most {
            // Filled without the search for what is out of date, which is slow.
            obeyed.nonces.insert(numbered(n).nonce, 1000);
        }
        assert!(obeyed.note(&numbered(most), 1000).is_err());
        assert_eq!(obeyed.note(&numbered(most), 1001 + LIFETIME), Ok(()));
    }
}
