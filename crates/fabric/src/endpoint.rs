//! How to reach a queue pair: what peers exchange before they connect.
//!
//! ```text
//!   magic "FE" | version | device kind | queue pair number:4, little endian | address, up to 512 bytes
//! ```
//! The address is the device's own business (a GID and path for an adapter, sockets for TCP, a place in a segment for
//! shared memory). What a peer sent is parsed here, and its address by the device, before anything is believed.

use std::fmt;
use std::str::FromStr;

use crate::{FabricError, QpNumber};

const MAGIC: [u8; 2] = *b"FE";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 8;

/// Whose addresses an endpoint carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DeviceKind {
    /// Inside one process.
    Loopback = 1,
    /// Shared memory of one host.
    Shm = 2,
    /// Sockets.
    Tcp = 3,
    /// The simulator.
    Sim = 4,
    /// Adapters reached through rdma-core.
    Verbs = 5,
}

impl DeviceKind {
    /// The name users know: `shm`, `tcp` …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Sim => "sim",
            Self::Verbs => "verbs",
        }
    }

    const fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Loopback,
            2 => Self::Shm,
            3 => Self::Tcp,
            4 => Self::Sim,
            5 => Self::Verbs,
            _ => return None,
        })
    }
}

/// Where a queue pair is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    kind: DeviceKind,
    qp: QpNumber,
    address: Box<[u8]>,
}

impl Endpoint {
    /// Longest address, in bytes.
    pub const ADDRESS_MAX_BYTES: usize = 512;

    /// The queue pair `qp` behind `address`.
    ///
    /// # Panics
    /// If the address is longer than [`Endpoint::ADDRESS_MAX_BYTES`]: it is the device's own.
    pub fn new(kind: DeviceKind, qp: QpNumber, address: &[u8]) -> Self {
        assert!(address.len() <= Self::ADDRESS_MAX_BYTES, "a device knows how long its addresses are");
        Self { kind, qp, address: address.into() }
    }

    /// Whose address it is.
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// The queue pair's number there.
    pub fn qp(&self) -> QpNumber {
        self.qp
    }

    /// The address, to be parsed by a device of this kind.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// The address, if it is one for devices of `kind`.
    ///
    /// # Errors
    /// [`FabricError::BadEndpoint`] if it is for others.
    pub fn address_for(&self, kind: DeviceKind) -> Result<&[u8], FabricError> {
        if self.kind == kind { Ok(&self.address) } else { Err(FabricError::BadEndpoint("it is for another device")) }
    }

    /// The bytes to send to a peer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.address.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.kind as u8]);
        bytes.extend_from_slice(&self.qp.0.to_le_bytes());
        bytes.extend_from_slice(&self.address);
        bytes
    }

    /// What a peer sent.
    ///
    /// # Errors
    /// [`FabricError::BadEndpoint`] if it is not an endpoint of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, FabricError> {
        let refuse = |why| Err(FabricError::BadEndpoint(why));
        let Some((header, address)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return refuse("too short") };
        if header[..2] != MAGIC {
            return refuse("it does not begin as one");
        }
        if header[2] != VERSION {
            return refuse("another version");
        }
        let Some(kind) = DeviceKind::parse(header[3]) else { return refuse("an unknown device") };
        if address.len() > Self::ADDRESS_MAX_BYTES {
            return refuse("the address is too long");
        }
        let qp = QpNumber(u32::from_le_bytes([header[4], header[5], header[6], header[7]]));
        Ok(Self { kind, qp, address: address.into() })
    }
}

/// Hexadecimal, for process managers that carry text.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Endpoint {
    type Err = FabricError;

    fn from_str(text: &str) -> Result<Self, FabricError> {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let bytes: Option<Vec<u8>> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| match *pair {
                [high, low] => Some(digit(high)? << 4 | digit(low)?),
                _ => None,
            })
            .collect();
        Self::parse(&bytes.ok_or(FabricError::BadEndpoint("not hexadecimal"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_again(qp: u32, address in prop::collection::vec(any::<u8>(), 0..=512)) {
            let endpoint = Endpoint::new(DeviceKind::Tcp, QpNumber(qp), &address);
            prop_assert_eq!(&Endpoint::parse(&endpoint.to_bytes()).unwrap(), &endpoint);
            prop_assert_eq!(&endpoint.to_string().parse::<Endpoint>().unwrap(), &endpoint);
        }

        #[test]
        fn any_bytes_are_refused_or_stand_for_themselves(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(endpoint) = Endpoint::parse(&bytes) {
                prop_assert_eq!(endpoint.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_damage_to_an_endpoint_is_survived(at in 0usize..12, byte: u8) {
            let mut bytes = Endpoint::new(DeviceKind::Shm, QpNumber(7), b"abcd").to_bytes();
            bytes[at] = byte;
            if let Ok(endpoint) = Endpoint::parse(&bytes) {
                prop_assert_eq!(endpoint.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_text_is_survived(text: String) {
            let _ = text.parse::<Endpoint>();
        }
    }

    #[test]
    fn another_device_does_not_get_the_address() {
        let endpoint = Endpoint::new(DeviceKind::Tcp, QpNumber(1), b"x");
        assert_eq!(endpoint.address_for(DeviceKind::Tcp), Ok(&b"x"[..]));
        assert!(endpoint.address_for(DeviceKind::Verbs).is_err());
    }
}
