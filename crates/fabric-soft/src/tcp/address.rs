//! Where a process listens, as its endpoints carry it.
//!
//! ```text
//!   version:1 count:1 identity:16, then count times   4 | port:2 | address:4
//!                                                or   6 | port:2 | address:16 scope:4      little endian
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use fabric::{Endpoint, FabricError};

const VERSION: u8 = 1;
/// Sockets of one process, at most.
pub(super) const SOCKETS_MAX: usize = 16;

/// Which process, whatever its addresses: drawn at random.
pub(super) type Identity = [u8; 16];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) identity: Identity,
    pub(super) sockets: Vec<SocketAddr>,
}

const _: () = assert!(18 + SOCKETS_MAX * 23 <= Endpoint::ADDRESS_MAX_BYTES);

impl Address {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.sockets.len() as u8];
        bytes.extend_from_slice(&self.identity);
        for socket in &self.sockets {
            let port = socket.port().to_le_bytes();
            match socket {
                SocketAddr::V4(four) => {
                    bytes.extend_from_slice(&[4, port[0], port[1]]);
                    bytes.extend_from_slice(&four.ip().octets());
                }
                SocketAddr::V6(six) => {
                    bytes.extend_from_slice(&[6, port[0], port[1]]);
                    bytes.extend_from_slice(&six.ip().octets());
                    bytes.extend_from_slice(&six.scope_id().to_le_bytes());
                }
            }
        }
        bytes
    }

    /// What another process sent.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, FabricError> {
        Self::understand(bytes).ok_or(FabricError::BadEndpoint("not the address of a tcp device"))
    }

    fn understand(bytes: &[u8]) -> Option<Self> {
        let ([version, count], rest) = bytes.split_first_chunk::<2>()?;
        let (identity, mut rest) = rest.split_first_chunk::<16>()?;
        let count = usize::from(*count);
        if *version != VERSION || count == 0 || count > SOCKETS_MAX {
            return None;
        }
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            let ([family, low, high], behind) = rest.split_first_chunk::<3>()?;
            let port = u16::from_le_bytes([*low, *high]);
            let socket = match family {
                4 => {
                    let (octets, behind) = behind.split_first_chunk::<4>()?;
                    rest = behind;
                    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(*octets)), port)
                }
                6 => {
                    let (octets, behind) = behind.split_first_chunk::<16>()?;
                    let (scope, behind) = behind.split_first_chunk::<4>()?;
                    rest = behind;
                    SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(*octets), port, 0, u32::from_le_bytes(*scope)))
                }
                _ => return None,
            };
            if port == 0 || socket.ip().is_unspecified() || socket.ip().is_multicast() {
                return None;
            }
            sockets.push(socket);
        }
        rest.is_empty().then_some(Self { identity: *identity, sockets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_families_are_read_again() {
        let sockets = vec!["10.1.2.3:4000".parse().unwrap(), "[fe80::1%3]:5000".parse().unwrap()];
        let address = Address { identity: [9; 16], sockets };
        assert_eq!(Address::parse(&address.to_bytes()).unwrap(), address);
        for cut in 0..address.to_bytes().len() {
            assert!(Address::parse(&address.to_bytes()[..cut]).is_err(), "cut at {cut}");
        }
        let nowhere = Address { identity: [9; 16], sockets: vec!["0.0.0.0:1".parse().unwrap()] };
        assert!(Address::parse(&nowhere.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_stand_for_themselves(
            count in 0u8..4, families in prop::collection::vec(3u8..8, 4), noise in prop::collection::vec(any::<u8>(), 120),
            len in 0usize..120,
        ) {
            let mut bytes = noise;
            bytes[0] = VERSION;
            bytes[1] = count;
            let mut at = 18;
            for family in families {
                bytes[at] = family;
                at += if family == 4 { 7 } else { 23 };
            }
            let exact = bytes[..at.min(bytes.len())].to_vec();
            for bytes in [&exact[..], &bytes[..len]] {
                if let Ok(address) = Address::parse(bytes) {
                    prop_assert_eq!(&address.to_bytes()[..], bytes);
                }
            }
        }
    }
}
