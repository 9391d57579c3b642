//! Multicast groups over RoCE.
//!
//! A RoCE v2 datagram to a group is an IP multicast packet, which a host takes only if some socket of its own joined the
//! IP group; so attaching a queue pair joins it too. On a port with an IPv4 address the group must be an IPv4 one:
//! groups that are not are mapped to 239/8 by a hash of their 16 bytes, on every host alike.
//!
//! On InfiniBand the subnet manager must be asked, which needs rdma_cm; there groups are not supported.

use crate::choice::{LinkLayer, PortOffer};
use crate::context::VerbsContext;
use crate::ffi::{IbvAhAttr, IbvGid};
use fabric::{FabricError, MulticastGroup, QueuePair, Transport};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketType};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// The memberships of a context.
pub(crate) struct Groups {
    interface: u32,
    ipv4: bool,
    /// Per group, a socket that is its member, and how many queue pairs need it.
    members: HashMap<IbvGid, (OwnedFd, u32)>,
}

impl Groups {
    pub(crate) fn new(offer: &PortOffer) -> Self {
        let ipv4 = Ipv6Addr::from(offer.gid.bytes).to_ipv4_mapped().is_some();
        Self { interface: offer.gid.interface, ipv4, members: HashMap::new() }
    }

    fn join(&mut self, group: IbvGid) -> Result<(), FabricError> {
        if let Some((_, count)) = self.members.get_mut(&group) {
            *count += 1;
            return Ok(());
        }
        let refused = |error: rustix::io::Errno| FabricError::System {
            operation: "joining a multicast group",
            reason: error.to_string(),
        };
        let address = Ipv6Addr::from(group);
        let socket = match address.to_ipv4_mapped() {
            Some(address) => {
                let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(refused)?;
                let any = Ipv4Addr::UNSPECIFIED;
                let interface = self.interface;
                sockopt::set_ip_add_membership_with_ifindex(&socket, &address, &any, interface).map_err(refused)?;
                socket
            }
            None => {
                let socket = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).map_err(refused)?;
                sockopt::set_ipv6_add_membership(&socket, &address, self.interface).map_err(refused)?;
                socket
            }
        };
        self.members.insert(group, (socket, 1));
        Ok(())
    }

    fn leave(&mut self, group: IbvGid) {
        if let Some((_, count)) = self.members.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                // The socket's membership ends with it.
                self.members.remove(&group);
            }
        }
    }
}

impl VerbsContext {
    pub(crate) fn join_group(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        let gid = self.group_gid(group)?;
        let entry = self.pair(qp)?;
        if entry.attributes.transport != Transport::UnreliableDatagram {
            let reason = "only datagram queue pairs join groups";
            return Err(FabricError::InvalidRequest { operation: "attach_multicast", reason });
        }
        if entry.groups.contains(&group) {
            return Ok(());
        }
        entry.pair.attach(&gid, 0)?;
        if let Err(error) = self.groups.join(gid) {
            // Without the membership nothing would arrive.
            let _ = self.pair(qp)?.pair.detach(&gid, 0);
            return Err(error);
        }
        self.pairs.get_mut(qp.0).expect("looked up above").groups.push(group);
        Ok(())
    }

    pub(crate) fn leave_group(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        let gid = self.group_gid(group)?;
        let entry = self.pairs.get_mut(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        let place = entry.groups.iter().position(|member| *member == group);
        let place = place.ok_or(FabricError::NoSuch("membership of the multicast group"))?;
        entry.groups.swap_remove(place);
        let detached = entry.pair.detach(&gid, 0);
        self.groups.leave(gid);
        detached
    }

    /// Ends all memberships of a pair that goes.
    pub(crate) fn leave_all_groups(&mut self, qp: QueuePair) {
        let groups = self.pairs.get(qp.0).map(|entry| entry.groups.clone()).unwrap_or_default();
        for group in groups {
            // The pair goes in any case.
            let _ = self.leave_group(qp, group);
        }
    }

    pub(crate) fn route_to_group(&self, group: MulticastGroup) -> Result<IbvAhAttr, FabricError> {
        let gid = self.group_gid(group)?;
        Ok(IbvAhAttr { grh: self.global_route(gid), is_global: 1, port_num: self.offer.port, ..IbvAhAttr::default() })
    }

    /// The group as it goes onto this port's wire.
    fn group_gid(&self, group: MulticastGroup) -> Result<IbvGid, FabricError> {
        if self.offer.link_layer != LinkLayer::Ethernet || !self.capabilities.multicast {
            let reason = "on InfiniBand, joining a group needs the subnet manager";
            return Err(FabricError::Unsupported { operation: "multicast", reason });
        }
        on_the_wire(group, self.groups.ipv4)
            .ok_or(FabricError::InvalidRequest { operation: "multicast", reason: "not a multicast group" })
    }
}

/// `None` if it is the address of no group.
fn on_the_wire(group: MulticastGroup, ipv4: bool) -> Option<IbvGid> {
    let address = Ipv6Addr::from(group.0);
    match address.to_ipv4_mapped() {
        Some(address) if address.is_multicast() && ipv4 => Some(group.0),
        None if address.is_multicast() && !ipv4 => Some(group.0),
        None if address.is_multicast() => {
            // FNV-1a, folded to the 24 bits that 239/8 leaves.
            let hash =
                group.0.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            let [high, a, b, c] = hash.to_be_bytes();
            Some(Ipv4Addr::new(239, a ^ high, b, c).to_ipv6_mapped().octets())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_become_addresses_of_the_ports_own_family() {
        let own = |address: &str| MulticastGroup(address.parse::<Ipv6Addr>().unwrap().octets());
        let (wide, other) = (own("ff0e::1"), own("ff0e::2"));
        assert_eq!(on_the_wire(wide, false), Some(wide.0));
        let mapped = Ipv6Addr::from(on_the_wire(wide, true).unwrap()).to_ipv4_mapped().unwrap();
        assert!(mapped.octets()[0] == 239 && mapped.is_multicast());
        assert_ne!(on_the_wire(wide, true), on_the_wire(other, true));
        let mapped = own("::ffff:239.1.2.3");
        assert_eq!((on_the_wire(mapped, true), on_the_wire(mapped, false)), (Some(mapped.0), None));
        assert_eq!(on_the_wire(own("::ffff:10.0.0.1"), true), None);
        assert_eq!(on_the_wire(own("fe80::1"), false), None);
    }
}
