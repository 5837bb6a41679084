//! Both ends of a connection prove that they know the secret, without saying it.
//!
//! An address may lead to somebody else than the shell that offered it: the same
//! private address is in use on many machines. Whoever listens there must neither
//! learn the secret, nor be taken for the shell, nor be able to pass on what he is
//! told; so the proofs are bound to the address that was connected to, as each
//! end knows it. They do not help against somebody on the way between the two,
//! who can change what comes later: where that is to be feared, data belongs with
//! the brokers.
//!
//! ```text
//! who connects: 16 random bytes
//! who listens:  16 random bytes, 32 bytes of proof
//! who connects: 32 bytes of proof, frames
//! ```

use std::net::SocketAddr;

use crate::bcast::id::TransferId;

/// Bytes of a random number.
pub(super) const NONCE_LEN: usize = 16;

/// Bytes of a proof.
pub(super) const PROOF_LEN: usize = blake3::OUT_LEN;

/// Bytes with which who listens answers.
pub(super) const ANSWER_LEN: usize = NONCE_LEN + PROOF_LEN;

/// Whose proof it is: one is no good for the other.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    Connecting,
    Listening,
}

/// What one end knows of the exchange.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    key: [u8; blake3::KEY_LEN],
    /// Of who connects.
    pub(super) first: [u8; NONCE_LEN],
    /// Of who listens.
    pub(super) second: [u8; NONCE_LEN],
    /// Where the one connected to the other.
    pub(super) at: SocketAddr,
}

impl Exchange {
    pub(super) fn new(secret: TransferId, at: SocketAddr) -> Self {
        Self {
            key: blake3::derive_key("flux-bcast direct connection", secret.as_bytes()),
            first: [0; NONCE_LEN],
            second: [0; NONCE_LEN],
            at,
        }
    }

    pub(super) fn proof(&self, by: By) -> [u8; PROOF_LEN] {
        *self.hash(by).as_bytes()
    }

    /// Takes as long for a bad proof as for a good one.
    pub(super) fn is_proved(&self, by: By, said: &[u8]) -> bool {
        <[u8; PROOF_LEN]>::try_from(said).is_ok_and(|said| self.hash(by) == said)
    }

    fn hash(&self, by: By) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(match by {
            By::Connecting => b"c",
            By::Listening => b"l",
        });
        hasher.update(&self.first).update(&self.second);
        hasher.update(self.at.to_string().as_bytes());
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange() -> Exchange {
        let at = SocketAddr::from(([10, 0, 0, 1], 4000));
        let mut exchange = Exchange::new(TransferId::from_bytes([1; 16]), at);
        exchange.first = [2; NONCE_LEN];
        exchange.second = [3; NONCE_LEN];
        exchange
    }

    #[test]
    fn a_proof_is_good_for_its_end_exchange_and_address_only() {
        let proof = exchange().proof(By::Listening);
        assert!(exchange().is_proved(By::Listening, &proof));
        assert!(!exchange().is_proved(By::Connecting, &proof));
        assert!(!exchange().is_proved(By::Listening, &proof[1..]));
        let mut others = vec![exchange(); 4];
        others[0].key = Exchange::new(TransferId::from_bytes([9; 16]), exchange().at).key;
        others[1].first[0] = 9;
        others[2].second[0] = 9;
        // Passed on by somebody who listens at another address.
        others[3].at = SocketAddr::from(([172, 17, 0, 1], 4000));
        for other in others {
            assert!(!other.is_proved(By::Listening, &proof), "{other:?}");
        }
    }

    #[test]
    fn nothing_that_is_said_is_the_secret() {
        let said = [
            exchange().proof(By::Listening),
            exchange().proof(By::Connecting),
        ]
        .concat();
        assert!(!said.windows(4).any(|some| some == [1; 4]));
    }
}
