//! Which of this host's addresses a process listens at, and which of a peer's it dials first.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use fabric::FabricError;
use if_addrs::{IfAddr, get_if_addrs};

use super::address::SOCKETS_MAX;

/// One address of one interface that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// How many of its bits name the network.
    pub prefix_bits: u8,
}

impl Interface {
    /// All of this host, in the system's order.
    ///
    /// # Errors
    /// [`FabricError::System`] if the system does not tell.
    pub fn all() -> Result<Vec<Self>, FabricError> {
        let operation = "listing this host's interfaces";
        let all = get_if_addrs().map_err(|why| FabricError::System { operation, reason: why.to_string() })?;
        Ok(worth_listing(all.into_iter().map(|one| {
            let prefix_bits = match &one.addr {
                IfAddr::V4(four) => four.prefixlen,
                IfAddr::V6(six) => six.prefixlen,
            };
            let is_up = one.is_loopback() || one.is_oper_up();
            (Self { address: one.ip(), name: one.name, prefix_bits }, is_up)
        })))
    }

    /// True if `address` is on its network.
    fn has(&self, address: IpAddr) -> bool {
        same_network(self.address, address, self.prefix_bits)
    }

    /// True if peers can dial it without knowing more than the address. Who dials one that holds on a single wire
    /// needs to know by which interface.
    fn is_usable(&self) -> bool {
        match self.address {
            IpAddr::V4(four) => !four.is_link_local() && !four.is_unspecified(),
            IpAddr::V6(six) => !is_link_local(six) && !six.is_unspecified(),
        }
    }
}

/// Those that are up. Where no wire is, all with an address: the system takes a moment to tell of a wire just plugged in.
fn worth_listing(all: impl Iterator<Item = (Interface, bool)>) -> Vec<Interface> {
    let (up, down): (Vec<_>, Vec<_>) = all.partition(|(_, is_up)| *is_up);
    let has_wire = up.iter().any(|(one, _)| !one.address.is_loopback());
    up.into_iter().chain(down.into_iter().filter(|_| !has_wire)).map(|(one, _)| one).collect()
}

/// Where to listen, with port 0 for any: the addresses of `all` that `wanted` asks for.
///
/// `wanted` is `auto` or a list separated by commas: names of interfaces, addresses and networks such as 10.0.0.0/8, and
/// the same behind a `^` for what is not to be used. Without a wish (`auto`, or `^` alone) it is every address that peers
/// can dial, and the loopback addresses only where there are no others.
///
/// # Errors
/// [`FabricError::System`] if nothing of what is wanted is there, or a network is not understood; it names what there is.
pub fn listening_addresses(wanted: &str, all: &[Interface]) -> Result<Vec<SocketAddr>, FabricError> {
    let mut included = Vec::new();
    let mut excluded = Vec::new();
    for item in wanted.split(',').map(str::trim).filter(|item| !item.is_empty() && *item != "auto") {
        match item.strip_prefix('^') {
            Some(item) => excluded.push(Wish::parse(item)?),
            None => included.push(Wish::parse(item)?),
        }
    }
    let chosen = |loopback: bool| -> Vec<SocketAddr> {
        all.iter()
            .filter(|one| one.is_usable() && !excluded.iter().any(|wish| wish.is_met_by(one)))
            .filter(|one| match included.is_empty() {
                true => one.address.is_loopback() == loopback,
                false => included.iter().any(|wish| wish.is_met_by(one)),
            })
            .map(|one| SocketAddr::new(one.address, 0))
            .take(SOCKETS_MAX)
            .collect()
    };
    let addresses = Some(chosen(false)).filter(|found| !found.is_empty()).unwrap_or_else(|| chosen(true));
    if addresses.is_empty() {
        let reason = format!("no address of this host is {wanted:?}; it has{}", listed(all));
        return Err(FabricError::System { operation: "choosing interfaces", reason });
    }
    Ok(addresses)
}

/// Puts the addresses of a peer in the order in which a host with these interfaces dials them: those on a network of
/// its own, then those a router may know the way to, then those of a family it has no address of.
pub(super) fn order(sockets: &mut [SocketAddr], own: &[Interface]) {
    sockets.sort_by_key(|socket| {
        let address = socket.ip();
        let of_family = |one: &&Interface| one.address.is_ipv4() == address.is_ipv4() && one.is_usable();
        if own.iter().any(|one| one.has(address)) {
            0
        } else if own.iter().filter(of_family).any(|one| !one.address.is_loopback()) {
            1
        } else {
            2
        }
    });
}

/// Something an interface can be named by.
enum Wish {
    Name(String),
    Network(IpAddr, u8),
}

impl Wish {
    fn parse(item: &str) -> Result<Self, FabricError> {
        let (address, bits) = item.split_once('/').map_or((item, None), |(address, bits)| (address, Some(bits)));
        match (address.parse::<IpAddr>(), bits) {
            (Ok(address), None) => Ok(Self::Network(address, width(address))),
            (Ok(address), Some(bits)) => match bits.parse().ok().filter(|bits| *bits <= width(address)) {
                Some(bits) => Ok(Self::Network(address, bits)),
                None => Err(not_understood(item)),
            },
            (Err(_), None) => Ok(Self::Name(item.to_owned())),
            (Err(_), Some(_)) => Err(not_understood(item)),
        }
    }

    fn is_met_by(&self, one: &Interface) -> bool {
        match self {
            Self::Name(name) => one.name == *name,
            Self::Network(network, bits) => same_network(*network, one.address, *bits),
        }
    }
}

fn not_understood(item: &str) -> FabricError {
    let reason = format!("{item:?} is no network, such as 10.0.0.0/8 or fd00::/8");
    FabricError::System { operation: "choosing interfaces", reason }
}

fn listed(all: &[Interface]) -> String {
    all.iter().fold(String::new(), |mut text, one| {
        // Writing to a string cannot fail.
        let _ = write!(text, " {} {}/{}", one.name, one.address, one.prefix_bits);
        text
    })
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn same_network(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let value = |address| match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    one.is_ipv4() == other.is_ipv4() && (value(one) ^ value(other)) & mask == 0
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        [
            ("lo", "127.0.0.1", 8),
            ("lo", "::1", 128),
            ("eth0", "192.0.2.2", 24),
            ("eth0", "fd00::2", 64),
            ("eth0", "fe80::fc", 64),
            ("docker0", "172.17.0.1", 16),
            ("wifi0", "169.254.3.4", 16),
        ]
        .map(|(name, address, prefix_bits)| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            prefix_bits,
        })
        .to_vec()
    }

    fn chosen(wanted: &str) -> Vec<String> {
        let all = listening_addresses(wanted, &host()).unwrap();
        all.iter().map(|one| one.ip().to_string()).collect()
    }

    #[test]
    fn a_wire_that_is_not_up_yet_is_listed_where_no_other_is() {
        let listed = |up: &[&str]| {
            let all = host().into_iter().map(|one| {
                let is_up = up.contains(&one.name.as_str());
                (one, is_up)
            });
            let names: Vec<String> = worth_listing(all).into_iter().map(|one| one.name).collect();
            names.into_iter().filter(|name| name != "lo").collect::<Vec<_>>()
        };
        assert_eq!(listed(&["lo", "eth0"]), ["eth0"; 3]);
        assert_eq!(listed(&["lo"]), ["eth0", "eth0", "eth0", "docker0", "wifi0"]);
    }

    #[test]
    fn what_is_wanted_is_chosen() {
        for (wanted, expected) in [
            ("auto", &["192.0.2.2", "fd00::2", "172.17.0.1"][..]),
            ("", &["192.0.2.2", "fd00::2", "172.17.0.1"]),
            ("^docker0", &["192.0.2.2", "fd00::2"]),
            ("^docker0,^fd00::/8", &["192.0.2.2"]),
            ("^eth0,^docker0", &["127.0.0.1", "::1"]),
            ("eth0", &["192.0.2.2", "fd00::2"]),
            ("eth0,^fd00::2", &["192.0.2.2"]),
            ("lo", &["127.0.0.1", "::1"]),
            ("127.0.0.1, docker0", &["127.0.0.1", "172.17.0.1"]),
            ("172.16.0.0/12,ib0", &["172.17.0.1"]),
            ("0.0.0.0/0", &["127.0.0.1", "192.0.2.2", "172.17.0.1"]),
        ] {
            assert_eq!(chosen(wanted), expected, "{wanted:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        for wanted in ["ib0", "10.0.0.0/8", "wifi0", "^0.0.0.0/0,^::/0"] {
            let error = listening_addresses(wanted, &host()).unwrap_err().to_string();
            assert!(error.contains(&format!("{wanted:?}")) && error.contains("eth0 192.0.2.2/24"), "{error}");
        }
        for wanted in ["10.0.0.0/33", "fd00::/129", "eth0/24", "10.0.0.0/"] {
            let error = listening_addresses(wanted, &host()).unwrap_err().to_string();
            assert!(error.contains("is no network"), "{error}");
        }
    }

    #[test]
    fn a_peer_is_dialled_where_it_is_near() {
        let mut sockets: Vec<SocketAddr> =
            ["8.8.8.8:1", "172.17.9.9:2", "[fd01::1]:3", "[fd00::9]:4"].map(|one| one.parse().unwrap()).to_vec();
        let ports = |sockets: &[SocketAddr]| sockets.iter().map(SocketAddr::port).collect::<Vec<_>>();
        order(&mut sockets, &host());
        assert_eq!(ports(&sockets), [2, 4, 1, 3]);
        let four: Vec<Interface> = host().into_iter().filter(|one| one.address.is_ipv4()).collect();
        order(&mut sockets, &four);
        assert_eq!(ports(&sockets), [2, 1, 4, 3], "no address of the family");
    }

    #[test]
    fn this_host_has_a_loopback() {
        let all = Interface::all().unwrap();
        assert!(all.iter().any(|one| one.address.is_loopback()), "{all:?}");
        assert!(!listening_addresses("auto", &all).unwrap().is_empty());
    }
}
