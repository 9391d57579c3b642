//! How two processes prove to each other that they belong to one job.
//!
//! Each proof is HMAC-SHA-256 with the job's secret over a word for its role, both identities, both nonces and the lane
//! that the connection is for; the dialler's covers its address too. A proof is therefore good for one connection, in one direction.

use std::fmt;

use fabric::{Endpoint, FabricError};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::address::{Address, Identity};
use super::peer::LANES_MAX;

const MAGIC: [u8; 8] = *b"FRVTCP\x00\x03";
/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = 73;
/// Bytes of a challenge.
pub(super) const CHALLENGE_BYTES: usize = 72;
/// Bytes of a proof.
pub(super) const PROOF_BYTES: usize = 32 + 2 + Endpoint::ADDRESS_MAX_BYTES;

pub(super) type Nonce = [u8; 32];

/// What the processes of a job know, and nobody else.
#[derive(Clone)]
pub struct JobSecret([u8; 32]);

impl JobSecret {
    /// The secret in these bytes, which were drawn at random.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A secret drawn now, for a job whose processes are all in this one.
    ///
    /// # Errors
    /// [`FabricError::System`] if the system gives no random bytes.
    pub fn random() -> Result<Self, FabricError> {
        let mut bytes = [0; 32];
        // Up to 256 bytes come whole.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|why| FabricError::System { operation: "drawing a secret", reason: why.to_string() })?;
        Ok(Self(bytes))
    }
}

/// A secret is not shown.
impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSecret(…)")
    }
}

/// What both sides know of a greeting.
#[derive(Clone, Copy)]
pub(super) struct Meeting {
    pub(super) dialler: Identity,
    pub(super) acceptor: Identity,
    pub(super) dialler_nonce: Nonce,
    pub(super) acceptor_nonce: Nonce,
    /// Which lane between them the connection is for.
    pub(super) lane: u8,
}

impl Meeting {
    /// The first bytes of a dialler.
    pub(super) fn hello(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.dialler);
        bytes[24..40].copy_from_slice(&self.acceptor);
        bytes[40..72].copy_from_slice(&self.dialler_nonce);
        bytes[72] = self.lane;
        bytes
    }

    /// The meeting a hello begins, if it is one and is meant for `own`.
    pub(super) fn of_hello(bytes: &[u8; HELLO_BYTES], own: Identity, acceptor_nonce: Nonce) -> Option<Self> {
        let dialler: Identity = bytes[8..24].try_into().ok()?;
        let lane = bytes[72];
        let is_for_us = bytes[..8] == MAGIC && bytes[24..40] == own && dialler != own;
        let dialler_nonce = bytes[40..72].try_into().ok()?;
        let meeting = Self { dialler, acceptor: own, dialler_nonce, acceptor_nonce, lane };
        (is_for_us && usize::from(lane) < LANES_MAX).then_some(meeting)
    }

    /// The acceptor's answer.
    pub(super) fn challenge(&self, secret: &JobSecret) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..40].copy_from_slice(&self.acceptor_nonce);
        bytes[40..].copy_from_slice(&self.mac(secret, b"accepted", &[]).finalize().into_bytes());
        bytes
    }

    /// Takes the acceptor's nonce over; true if it knows the secret.
    pub(super) fn believe_challenge(&mut self, bytes: &[u8; CHALLENGE_BYTES], secret: &JobSecret) -> bool {
        self.acceptor_nonce.copy_from_slice(&bytes[8..40]);
        bytes[..8] == MAGIC && self.mac(secret, b"accepted", &[]).verify_slice(&bytes[40..]).is_ok()
    }

    /// The dialler's proof, and where it listens.
    pub(super) fn proof(&self, secret: &JobSecret, address: &Address) -> [u8; PROOF_BYTES] {
        let mut bytes = [0; PROOF_BYTES];
        let address = address.to_bytes();
        bytes[32..34].copy_from_slice(&(address.len() as u16).to_le_bytes());
        bytes[34..34 + address.len()].copy_from_slice(&address);
        let mac = self.mac(secret, b"dialling", &bytes[32..]).finalize().into_bytes();
        bytes[..32].copy_from_slice(&mac);
        bytes
    }

    /// Where the dialler listens, if it knows the secret.
    pub(super) fn believe_proof(&self, bytes: &[u8; PROOF_BYTES], secret: &JobSecret) -> Option<Address> {
        self.mac(secret, b"dialling", &bytes[32..]).verify_slice(&bytes[..32]).ok()?;
        let len = usize::from(u16::from_le_bytes([bytes[32], bytes[33]]));
        let address = Address::parse(bytes[34..].get(..len)?).ok()?;
        (address.identity == self.dialler).then_some(address)
    }

    fn mac(&self, secret: &JobSecret, role: &[u8; 8], behind: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("a key may have any length");
        let (lane, nonces) = ([self.lane], [&self.dialler_nonce[..], &self.acceptor_nonce]);
        for part in [&role[..], &self.dialler, &self.acceptor, nonces[0], nonces[1], &lane, behind] {
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialler() -> Meeting {
        Meeting { dialler: [1; 16], acceptor: [2; 16], dialler_nonce: [3; 32], acceptor_nonce: [0; 32], lane: 3 }
    }

    #[test]
    fn who_knows_the_secret_is_believed_and_every_changed_bit_is_not() {
        let secret = JobSecret::new([7; 32]);
        let address = Address { identity: [1; 16], sockets: vec!["127.0.0.1:80".parse().unwrap()] };
        let mut ours = dialler();
        let theirs = Meeting::of_hello(&ours.hello(), [2; 16], [4; 32]).unwrap();
        let challenge = theirs.challenge(&secret);
        assert!(dialler().believe_challenge(&challenge, &secret));
        assert!(!dialler().believe_challenge(&challenge, &JobSecret::new([8; 32])));
        for bit in 0..challenge.len() * 8 {
            let mut changed = challenge;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!dialler().believe_challenge(&changed, &secret), "bit {bit} of the challenge");
        }
        assert!(ours.believe_challenge(&challenge, &secret));
        let proof = ours.proof(&secret, &address);
        assert_eq!(theirs.believe_proof(&proof, &secret), Some(address.clone()));
        for bit in 0..proof.len() * 8 {
            let mut changed = proof;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(theirs.believe_proof(&changed, &secret), None, "bit {bit} of the proof");
        }
        let again = Meeting::of_hello(&ours.hello(), [2; 16], [5; 32]).unwrap();
        assert_eq!(again.believe_proof(&proof, &secret), None, "a proof is good for one connection");
        let elsewhere = Meeting { lane: 4, ..theirs };
        assert_eq!(elsewhere.believe_proof(&proof, &secret), None, "and for one lane");
        let other = Address { identity: [9; 16], ..address };
        assert_eq!(theirs.believe_proof(&ours.proof(&secret, &other), &secret), None, "another's address");
    }

    #[test]
    fn a_hello_for_somebody_else_or_from_oneself_is_none() {
        let hello = dialler().hello();
        assert!(Meeting::of_hello(&hello, [3; 16], [0; 32]).is_none());
        assert!(Meeting::of_hello(&Meeting { dialler: [2; 16], ..dialler() }.hello(), [2; 16], [0; 32]).is_none());
        for at in [7, 72] {
            let mut wrong = hello;
            wrong[at] |= 0x80;
            assert!(Meeting::of_hello(&wrong, [2; 16], [0; 32]).is_none(), "another version, or a lane past the limit");
        }
    }
}
