//! The network interface through which rdma_cm joins groups on a port of InfiniBand: IP over InfiniBand.
//!
//! rdma_cm asks for a group with the service level, flow label and traffic class that the interface's own broadcast group
//! has, and with its partition; an identifier bound to the bare GID (`AF_IB`) has no such group, and the kernel refuses it.

use crate::choice::PortOffer;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::path::Path;

/// `ARPHRD_INFINIBAND`, the type of such an interface.
const HARDWARE_INFINIBAND: &str = "32";
/// Of a hardware address: four bytes of flags and queue pair number, then the GID.
const ADDRESS_BYTES: usize = 20;
/// Where the broadcast address has the partition.
const PARTITION_AT: usize = 8;
/// Membership is not part of a partition's name.
const PARTITION_MASK: u16 = 0x7fff;

/// An interface of IP over InfiniBand.
struct Interface {
    index: u32,
    gid: [u8; 16],
    partition: u16,
    up: bool,
}

/// The address to join from, or why there is none.
pub(super) fn address(offer: &PortOffer) -> Result<SocketAddrV6, &'static str> {
    chosen(offer, &interfaces(Path::new("/sys/class/net")))
}

fn chosen(offer: &PortOffer, interfaces: &[Interface]) -> Result<SocketAddrV6, &'static str> {
    let fits = |interface: &&Interface| {
        interface.gid == offer.gid.bytes && (interface.partition ^ offer.partition) & PARTITION_MASK == 0
    };
    let mut fitting = interfaces.iter().filter(fits).peekable();
    if fitting.peek().is_none() {
        return Err(
            "groups are joined through IP over InfiniBand, and no interface of it is on this port and partition",
        );
    }
    let up = fitting.find(|interface| interface.up);
    let interface = up.ok_or("groups are joined through IP over InfiniBand, whose interface on this port is down")?;
    Ok(SocketAddrV6::new(link_local(interface.gid), 0, 0, interface.index))
}

/// The address that every such interface has (RFC 4391, section 8).
fn link_local(gid: [u8; 16]) -> Ipv6Addr {
    let mut address = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    address[8..].copy_from_slice(&gid[8..]);
    address[8] |= 2;
    address.into()
}

/// All of them that the kernel lists in `folder`.
fn interfaces(folder: &Path) -> Vec<Interface> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| interface(&entry.ok()?.path())).collect()
}

fn interface(folder: &Path) -> Option<Interface> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    if read("type")? != HARDWARE_INFINIBAND {
        return None;
    }
    let (address, broadcast) = (hardware_address(&read("address")?)?, hardware_address(&read("broadcast")?)?);
    Some(Interface {
        index: read("ifindex")?.parse().ok()?,
        gid: address[ADDRESS_BYTES - 16..].try_into().expect("16 of 20"),
        partition: u16::from_be_bytes([broadcast[PARTITION_AT], broadcast[PARTITION_AT + 1]]),
        up: read("operstate")? == "up",
    })
}

/// Bytes in hexadecimal between colons.
fn hardware_address(text: &str) -> Option<[u8; ADDRESS_BYTES]> {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Gid, GidKind, LinkLayer};

    const ADDRESS: &str = "80:00:02:08:fe:80:00:00:00:00:00:00:f4:52:14:03:00:7b:cb:a1";
    const GID: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xf4, 0x52, 0x14, 3, 0, 0x7b, 0xcb, 0xa1];
    const BROADCAST: &str = "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff";
    const OF_PARTITION_3: &str = "00:ff:ff:ff:ff:12:40:1b:80:03:00:00:00:00:00:00:ff:ff:ff:ff";

    fn offer(gid: [u8; 16], partition: u16) -> PortOffer {
        PortOffer {
            adapter: "mlx5_0".into(),
            port: 1,
            link_layer: LinkLayer::InfiniBand,
            lid: 7,
            mtu: 5,
            gid: Gid { index: 0, bytes: gid, kind: GidKind::InfiniBand, interface: 0 },
            partition,
            partition_index: 0,
        }
    }

    fn listed(lines: &[[&str; 6]]) -> Vec<Interface> {
        let folder = tempfile::tempdir().unwrap();
        for [name, values @ ..] in lines {
            let own = folder.path().join(name);
            std::fs::create_dir(&own).unwrap();
            for (file, value) in ["type", "ifindex", "operstate", "address", "broadcast"].iter().zip(values) {
                std::fs::write(own.join(file), format!("{value}\n")).unwrap();
            }
        }
        interfaces(folder.path())
    }

    #[test]
    fn the_interface_is_that_of_the_port_and_the_partition() {
        let found = listed(&[
            ["eth0", "1", "2", "up", "52:54:00:77:00:01", "ff:ff:ff:ff:ff:ff"],
            ["ib0", "32", "4", "up", ADDRESS, BROADCAST],
            ["ib0.8003", "32", "5", "up", ADDRESS, OF_PARTITION_3],
            ["ib1", "32", "6", "down", &ADDRESS.replace("cb:a1", "cb:a2"), BROADCAST],
        ]);
        for (partition, index) in [(0xffff, 4), (0x7fff, 4), (0x8003, 5), (0x0003, 5)] {
            let address = chosen(&offer(GID, partition), &found).unwrap();
            assert_eq!(address.to_string(), format!("[fe80::f652:1403:7b:cba1%{index}]:0"));
        }
        let mut second = GID;
        second[15] = 0xa2;
        assert!(chosen(&offer(second, 0xffff), &found).is_err_and(|why| why.contains("is down")));
        for (gid, partition) in [(GID, 0x8004), (second, 0x8003), ([7; 16], 0xffff)] {
            assert!(chosen(&offer(gid, partition), &found).is_err_and(|why| why.contains("no interface")));
        }
    }

    #[test]
    fn what_is_no_interface_of_infiniband_is_passed_over() {
        for damaged in [
            ["ib0", "32", "4", "up", "80:00:02:08", BROADCAST],
            ["ib0", "32", "4", "up", ADDRESS, "no address"],
            ["ib0", "32", "-4", "up", ADDRESS, BROADCAST],
            ["ib0", "1", "4", "up", ADDRESS, BROADCAST],
        ] {
            assert!(listed(&[damaged]).is_empty(), "{damaged:?}");
        }
        assert!(interfaces(Path::new("/no/such/folder")).is_empty());
    }
}
