//! Network addresses of VIs: a host and a discriminator, which tells endpoints of a host apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::hello::take;
use crate::nic::LIMITS;

/// Ports in which endpoints are looked for, below those that systems give out by themselves.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Ports that a discriminator may have on a host, one behind the other in this order: programs that use some of them are in
/// nobody's way.
const PORTS_TRIED: usize = 8;

/// Where a VI is to be found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetAddress {
    host: IpAddr,
    discriminator: Vec<u8>,
}

impl NetAddress {
    /// An endpoint of a host; `None` if the discriminator is longer than one may be.
    pub fn new(host: IpAddr, discriminator: &[u8]) -> Option<Self> {
        let fits = discriminator.len() <= LIMITS.discriminator_max_bytes;
        fits.then(|| Self { host, discriminator: discriminator.to_vec() })
    }

    /// The address by which this host is found by itself, which is where segments can be shared.
    pub fn local_host() -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    /// Its host.
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// Its discriminator.
    pub fn discriminator(&self) -> &[u8] {
        &self.discriminator
    }

    /// The ports at which it may be listened to, in the order in which they are tried. There is no port in the interface, and
    /// no process that would know one, so they follow from the discriminator.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        // FNV-1a, the same in every process.
        let number = self
            .discriminator
            .iter()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        let (first, step) = (number >> 32, 1 + (number & 0xFFF));
        let count = u64::from(PORTS.end - PORTS.start);
        (0..PORTS_TRIED as u64).map(move |at| PORTS.start + ((first + at * step) % count) as u16)
    }

    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        match self.host {
            IpAddr::V4(host) => {
                to.push(4);
                to.extend(host.octets());
            }
            IpAddr::V6(host) => {
                to.push(16);
                to.extend(host.octets());
            }
        }
        to.push(self.discriminator.len() as u8);
        to.extend(&self.discriminator);
    }

    pub(crate) fn parse(rest: &mut &[u8]) -> Option<Self> {
        let host = match take::<1>(rest)? {
            [4] => Ipv4Addr::from(take::<4>(rest)?).into(),
            [16] => Ipv6Addr::from(take::<16>(rest)?).into(),
            _ => return None,
        };
        let [len] = take(rest)?;
        let (discriminator, behind) = rest.split_at_checked(len.into())?;
        *rest = behind;
        Self::new(host, discriminator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_from_the_discriminator_and_differ() {
        let of = |text: &str| -> Vec<u16> {
            NetAddress::new(NetAddress::local_host(), text.as_bytes()).unwrap().ports().collect()
        };
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        let mut ports = of("server");
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), PORTS_TRIED);
        assert!(NetAddress::new(NetAddress::local_host(), &[0; 33]).is_none());
    }
}
