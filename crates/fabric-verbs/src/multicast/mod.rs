//! Multicast groups.
//!
//! A queue pair that is attached to a group takes what arrives for it; the port must be a member besides, or nothing
//! arrives. How it becomes one depends on the wire:
//! - A RoCE v2 datagram to a group is an IP multicast packet, which a host takes only if some socket of its own joined the
//!   IP group ([`sockets`]). On a port with an IPv4 address the group must be an IPv4 one: groups that are not are mapped
//!   to 239/8 by a hash of their 16 bytes, on every host alike.
//! - On InfiniBand the subnet manager makes ports members and tells the group's identifiers; rdma_cm asks it ([`subnet`])
//!   for the IPv4 or IPv6 group, which every host maps alike: what is left of the group are the last 28 or 80 bits, beside
//!   them stands the partition. Who sends is a member as well. How long the group's packets may be is not told.
//!
//! rdma_cm would serve RoCE too, where the kernel answers in the subnet manager's stead. But it takes IPv4 groups alone
//! there, and its device file is one thing more that must be there; so only tests join so.
//!
//! The key of a datagram is the caller's, everywhere: groups of InfiniBand have one that rdma_cm gives them, but what a
//! datagram carries is compared with the key of the queue pair that it meets, and by nobody else.

mod ipoib;
#[cfg(test)]
mod scripted;
mod sockets;
mod subnet;

use crate::choice::{LinkLayer, PortOffer};
use crate::connect::global_route;
use crate::context::VerbsContext;
use crate::ffi::IbvAhAttr;
use crate::ffi::rdma_cm::RDMA_CM_DEVICE;
use fabric::{AsynchronousEvent, FabricError, MulticastGroup, QueuePair, Transport};
use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

/// How a port becomes a member of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A socket joins the IP group.
    Socket,
    /// rdma_cm joins from this address of the port.
    Subnet(SocketAddr),
}

impl Way {
    /// The way that a port has, or why it has none.
    pub(crate) fn of(port: &PortOffer, groups_max: c_int) -> Result<Self, &'static str> {
        if groups_max <= 0 {
            return Err("the adapter has no groups");
        }
        match port.link_layer {
            LinkLayer::Ethernet => Ok(Self::Socket),
            LinkLayer::InfiniBand if !Path::new(RDMA_CM_DEVICE).exists() => {
                Err("groups are joined by rdma_cm, whose /dev/infiniband/rdma_cm is missing (kernel module rdma_ucm)")
            }
            LinkLayer::InfiniBand => Ok(Self::Subnet(ipoib::address(port)?.into())),
        }
    }

    /// rdma_cm, on Ethernet as well.
    pub(crate) fn by_rdma_cm(self, port: &PortOffer) -> Self {
        match (self, Ipv6Addr::from(port.gid.bytes)) {
            (Self::Subnet(address), _) => Self::Subnet(address),
            (Self::Socket, address) => match address.to_ipv4_mapped() {
                Some(address) => Self::Subnet((address, 0).into()),
                None => Self::Subnet(std::net::SocketAddrV6::new(address, 0, 0, port.gid.interface).into()),
            },
        }
    }
}

/// What a member of a group wants of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Role {
    /// What is sent to it.
    Member,
    /// To send to it.
    Sender,
}

/// A group as a port reaches it, for as long as this lives.
pub(crate) struct Membership {
    /// For address handles; queue pairs are attached to its destination and local identifier.
    pub(crate) route: IbvAhAttr,
    held: Held,
}

/// What makes the port a member.
enum Held {
    /// Nothing: on Ethernet everybody sends to groups.
    Nothing,
    Socket {
        _socket: OwnedFd,
    },
    Subnet(subnet::Joined),
}

impl Membership {
    fn new(way: Way, port: &PortOffer, group: MulticastGroup, role: Role) -> Result<Self, FabricError> {
        let address = on_the_wire(group, Families::of(port, way))
            .ok_or(FabricError::InvalidRequest { operation: "multicast", reason: "not a multicast group" })?;
        let held = match (way, role) {
            (Way::Subnet(from), _) => {
                let (joined, route) = subnet::Joined::new(port, from, address, role)?;
                return Ok(Self { route, held: Held::Subnet(joined) });
            }
            (Way::Socket, Role::Member) => Held::Socket { _socket: sockets::join(address, port.gid.interface)? },
            (Way::Socket, Role::Sender) => Held::Nothing,
        };
        let group = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let grh = global_route(port, group.octets());
        let route = IbvAhAttr { grh, is_global: 1, port_num: port.port, ..IbvAhAttr::default() };
        Ok(Self { route, held })
    }

    fn is_lost(&self) -> bool {
        matches!(&self.held, Held::Subnet(joined) if joined.is_lost())
    }
}

/// The memberships of a context, shared by all that need one.
pub(crate) struct Groups {
    way: Result<Way, &'static str>,
    members: HashMap<(MulticastGroup, Role), Weak<Membership>>,
}

impl Groups {
    pub(crate) fn new(way: Result<Way, &'static str>) -> Self {
        Self { way, members: HashMap::new() }
    }

    fn join(&mut self, port: &PortOffer, group: MulticastGroup, role: Role) -> Result<Arc<Membership>, FabricError> {
        let way = self.way.map_err(|reason| FabricError::Unsupported { operation: "multicast", reason })?;
        // Members may send.
        let found = [Role::Member, role].into_iter().find_map(|role| self.members.get(&(group, role))?.upgrade());
        if let Some(membership) = found {
            return Ok(membership);
        }
        self.members.retain(|_, membership| membership.strong_count() > 0);
        let membership = Arc::new(Membership::new(way, port, group, role)?);
        self.members.insert((group, role), Arc::downgrade(&membership));
        Ok(membership)
    }

    /// Groups whose membership has ended by itself since this was asked last.
    fn take_lost(&mut self) -> Vec<MulticastGroup> {
        let mut lost = Vec::new();
        self.members.retain(|(group, _), membership| {
            let is_lost = membership.upgrade().is_some_and(|membership| membership.is_lost());
            if is_lost && !lost.contains(group) {
                lost.push(*group);
            }
            !is_lost
        });
        lost
    }
}

impl VerbsContext {
    pub(crate) fn join_group(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        let entry = self.pairs.get_mut(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        if entry.attributes.transport != Transport::UnreliableDatagram {
            let reason = "only datagram queue pairs join groups";
            return Err(FabricError::InvalidRequest { operation: "attach_multicast", reason });
        }
        if entry.groups.iter().any(|(member, _)| *member == group) {
            return Ok(());
        }
        let membership = self.groups.join(&self.offer, group, Role::Member)?;
        entry.pair.attach(&membership.route)?;
        entry.groups.push((group, membership));
        Ok(())
    }

    pub(crate) fn leave_group(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        let entry = self.pairs.get_mut(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        let place = entry.groups.iter().position(|(member, _)| *member == group);
        let place = place.ok_or(FabricError::NoSuch("membership of the multicast group"))?;
        let (_, membership) = entry.groups.swap_remove(place);
        entry.pair.detach(&membership.route)
    }

    /// The way to a group, good for as long as the membership is held.
    pub(crate) fn route_to_group(&mut self, group: MulticastGroup) -> Result<Arc<Membership>, FabricError> {
        self.groups.join(&self.offer, group, Role::Sender)
    }

    /// Tells of groups that have to be joined again.
    pub(crate) fn note_lost_groups(&mut self) {
        for group in self.groups.take_lost() {
            self.note(AsynchronousEvent::GroupLost(group));
        }
    }
}

/// A failure to join, said in words.
fn not_joined(reason: String) -> FabricError {
    FabricError::System { operation: "joining a multicast group", reason }
}

/// Addresses that the groups of a port may have.
#[derive(Clone, Copy)]
struct Families {
    ipv4: bool,
    ipv6: bool,
}

impl Families {
    fn of(port: &PortOffer, way: Way) -> Self {
        let ipv4 = Ipv6Addr::from(port.gid.bytes).to_ipv4_mapped().is_some();
        match (port.link_layer, way) {
            (LinkLayer::InfiniBand, _) => Self { ipv4: true, ipv6: true },
            (LinkLayer::Ethernet, Way::Subnet(_)) => Self { ipv4: true, ipv6: false },
            (LinkLayer::Ethernet, Way::Socket) => Self { ipv4, ipv6: !ipv4 },
        }
    }
}

/// The IP group that stands for a group; `None` if it is the address of none.
fn on_the_wire(group: MulticastGroup, families: Families) -> Option<IpAddr> {
    let address = Ipv6Addr::from(group.0);
    match address.to_ipv4_mapped() {
        Some(address) => (address.is_multicast() && families.ipv4).then_some(address.into()),
        None if !address.is_multicast() => None,
        None if families.ipv6 => Some(address.into()),
        None => {
            // FNV-1a, folded to the 24 bits that 239/8 leaves.
            let hash =
                group.0.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
            let [high, a, b, c] = hash.to_be_bytes();
            Some(Ipv4Addr::new(239, a ^ high, b, c).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{Gid, GidKind};

    const IPV4: Families = Families { ipv4: true, ipv6: false };
    const IPV6: Families = Families { ipv4: false, ipv6: true };
    const BOTH: Families = Families { ipv4: true, ipv6: true };

    fn group(address: &str) -> MulticastGroup {
        MulticastGroup(address.parse::<Ipv6Addr>().unwrap().octets())
    }

    fn port(link_layer: LinkLayer, gid: &str) -> PortOffer {
        let gid = Gid { index: 0, bytes: group(gid).0, kind: GidKind::RoceV2, interface: 3 };
        let (partition, partition_index) = (0xffff, 0);
        PortOffer { adapter: "none".into(), port: 1, link_layer, lid: 7, mtu: 5, gid, partition, partition_index }
    }

    #[test]
    fn groups_become_addresses_of_the_ports_own_family() {
        let wide = group("ff0e::1");
        assert_eq!(on_the_wire(wide, IPV6), Some("ff0e::1".parse().unwrap()));
        assert_eq!(on_the_wire(wide, BOTH), Some("ff0e::1".parse().unwrap()));
        // Every host must find the same, so that this is written down.
        assert_eq!(on_the_wire(wide, IPV4), Some("239.97.142.83".parse().unwrap()));
        assert_ne!(on_the_wire(wide, IPV4), on_the_wire(group("ff0e::2"), IPV4));
        let mapped = group("::ffff:239.1.2.3");
        assert_eq!(on_the_wire(mapped, IPV4), Some("239.1.2.3".parse().unwrap()));
        assert_eq!(on_the_wire(mapped, BOTH), Some("239.1.2.3".parse().unwrap()));
        assert_eq!(on_the_wire(mapped, IPV6), None);
        for none in ["::ffff:10.0.0.1", "fe80::1"] {
            assert_eq!([IPV4, IPV6, BOTH].map(|families| on_the_wire(group(none), families)), [None; 3], "{none}");
        }
    }

    #[test]
    fn ports_have_a_way_to_groups_or_say_why_not() {
        let ethernet = port(LinkLayer::Ethernet, "::ffff:10.0.0.1");
        assert_eq!(Way::of(&ethernet, 8192), Ok(Way::Socket));
        for (port, groups_max, why) in [
            (&ethernet, 0, "no groups"),
            (&port(LinkLayer::InfiniBand, "fe80::1"), 0, "no groups"),
            // There is no such port here, with or without the device file.
            (&port(LinkLayer::InfiniBand, "fe80::1"), 8192, "groups are joined "),
        ] {
            assert!(Way::of(port, groups_max).is_err_and(|reason| reason.contains(why)), "{port:?}");
        }
    }

    #[test]
    fn rdma_cm_joins_from_the_ports_own_address() {
        for (gid, address) in [("::ffff:10.0.0.1", "10.0.0.1:0"), ("fe80::7", "[fe80::7%3]:0")] {
            let port = port(LinkLayer::Ethernet, gid);
            let way = Way::Socket.by_rdma_cm(&port);
            assert_eq!(way, Way::Subnet(address.parse().unwrap()));
            assert_eq!(way.by_rdma_cm(&port), way);
        }
    }

    #[test]
    fn a_port_without_groups_says_why_when_one_is_joined() {
        let refused =
            Groups::new(Err("it has none")).join(&port(LinkLayer::Ethernet, "fe80::7"), group("ff0e::1"), Role::Member);
        let expected = FabricError::Unsupported { operation: "multicast", reason: "it has none" };
        assert_eq!(refused.map(drop), Err(expected));
    }

    #[test]
    fn senders_share_one_way_to_a_group() {
        let (port, mut groups) = (port(LinkLayer::Ethernet, "::ffff:10.0.0.1"), Groups::new(Ok(Way::Socket)));
        let mut join = |address: &str| groups.join(&port, group(address), Role::Sender).unwrap();
        let [first, second, other] = ["ff0e::1", "ff0e::1", "ff0e::2"].map(&mut join);
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        assert_eq!(first.route.grh.dgid.0, group("::ffff:239.97.142.83").0);
        assert_eq!(groups.take_lost(), []);
        drop((first, second));
        groups.join(&port, group("ff0e::3"), Role::Sender).unwrap();
        assert_eq!(groups.members.len(), 2, "what nobody holds is forgotten");
    }
}
