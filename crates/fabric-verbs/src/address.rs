//! What an [`Endpoint`](fabric::Endpoint) of this device carries: the way to a port, and what its owner can take.
//!
//! ```text
//!   version | link layer | mtu | reads in flight | flags:2 | lid:2 | partition:2 | reserved:2 | sequence number:4 | gid:16
//!   memory queue:4
//! ```
//! Numbers are little endian, the GID is in network order.

use crate::choice::LinkLayer;
use crate::ffi::IbvGid;
use fabric::FabricError;

const VERSION: u8 = 1;
const BYTES: usize = 36;
/// Packet sequence numbers have 24 bits.
pub(crate) const SEQUENCE_NUMBER_MAX: u32 = 0xff_ffff;
/// And so have those of shared receive queues.
const QUEUE_NUMBER_MAX: u32 = 0xff_ffff;
const FLAG_SUBSTITUTE: u16 = 1;

/// The address in an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) link_layer: LinkLayer,
    /// Longest packet of the port, as `ibv_mtu` counts.
    pub(crate) mtu: u8,
    /// Reads and atomics that the queue pair answers at once.
    pub(crate) reads_in_flight: u8,
    /// The queue pair is the control connection of a substitute for XRC; see [`crate::substitute`].
    pub(crate) substitute: bool,
    pub(crate) lid: u16,
    pub(crate) partition: u16,
    /// The first packet sequence number its owner sends.
    pub(crate) sequence_number: u32,
    pub(crate) gid: IbvGid,
    /// The shared receive queue that reads, writes and atomics name if this is an adapter's own XRC target, else 0.
    pub(crate) memory_queue: u32,
}

impl Address {
    pub(crate) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1] = if self.link_layer == LinkLayer::InfiniBand { 1 } else { 2 };
        bytes[2] = self.mtu;
        bytes[3] = self.reads_in_flight;
        bytes[4..6].copy_from_slice(&(if self.substitute { FLAG_SUBSTITUTE } else { 0 }).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.lid.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.partition.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sequence_number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.gid);
        bytes[32..].copy_from_slice(&self.memory_queue.to_le_bytes());
        bytes
    }

    /// What a peer sent.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, FabricError> {
        let refuse = |why| Err(FabricError::BadEndpoint(why));
        let Ok(bytes) = <&[u8; BYTES]>::try_from(bytes) else { return refuse("not as long as an adapter's address") };
        if bytes[0] != VERSION {
            return refuse("an adapter's address of another version");
        }
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let link_layer = match bytes[1] {
            1 => LinkLayer::InfiniBand,
            2 => LinkLayer::Ethernet,
            _ => return refuse("an unknown link layer"),
        };
        if !(1..=5).contains(&bytes[2]) {
            return refuse("an unknown packet length");
        }
        if half(4) & !FLAG_SUBSTITUTE != 0 || half(10) != 0 {
            return refuse("reserved bits are set");
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (sequence_number, memory_queue) = (word(12), word(32));
        if sequence_number > SEQUENCE_NUMBER_MAX {
            return refuse("a sequence number of more than 24 bits");
        }
        if memory_queue > QUEUE_NUMBER_MAX {
            return refuse("a queue number of more than 24 bits");
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..32]);
        Ok(Self {
            link_layer,
            mtu: bytes[2],
            reads_in_flight: bytes[3],
            substitute: half(4) & FLAG_SUBSTITUTE != 0,
            lid: half(6),
            partition: half(8),
            sequence_number,
            gid,
            memory_queue,
        })
    }
}

/// A packet sequence number to start with, so that packets of an earlier connection are not taken for new ones.
pub(crate) fn sequence_number() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library's hasher keys are random for each value.
    let random = std::hash::RandomState::new().build_hasher().finish();
    random as u32 & SEQUENCE_NUMBER_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> Address {
        Address {
            link_layer: LinkLayer::Ethernet,
            mtu: 4,
            reads_in_flight: 16,
            substitute: true,
            lid: 0x0102,
            partition: 0xffff,
            sequence_number: 0xab_cdef,
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1],
            memory_queue: 0x01_0203,
        }
    }

    #[test]
    fn an_address_survives_the_wire() {
        assert_eq!(Address::parse(&address().to_bytes()), Ok(address()));
    }

    #[test]
    fn damaged_addresses_are_refused_or_mean_what_they_say() {
        let bytes = address().to_bytes();
        assert!(Address::parse(&bytes[1..]).is_err() && Address::parse(&[]).is_err());
        for at in 0..BYTES {
            for byte in 0..=255 {
                let mut damaged = bytes;
                damaged[at] = byte;
                if let Ok(read) = Address::parse(&damaged) {
                    assert_eq!(read.to_bytes(), damaged);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_stand_for_themselves(
            // Mostly zeros, which reserved bytes must be.
            mut bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], BYTES),
            layer in 0..4u8,
            mtu in 0..8u8,
        ) {
            (bytes[0], bytes[1], bytes[2]) = (VERSION, layer, mtu);
            if let Ok(read) = Address::parse(&bytes) {
                prop_assert_eq!(read.to_bytes().to_vec(), bytes);
            }
        }
    }
}
