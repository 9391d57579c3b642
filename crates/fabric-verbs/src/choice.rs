//! Which adapter, port, GID and partition to use.
//!
//! Each process lists what it has as a table of [`PortOffer`]s, best first. The tables of all processes are exchanged
//! as bytes, and [`choose_together`] finds the network on which everybody has a port; every process computes the same
//! answer from the same tables. A process alone takes the first line of its own.
//!
//! On Ethernet a RoCE v2 GID is preferred to RoCE v1, and a routable address to a link-local one. On InfiniBand a port
//! with a local identifier is used directly inside its subnet.

use crate::ffi::IbvGid;
use crate::ffi::numbers::{GID_TYPE_IB, GID_TYPE_ROCE_V1, GID_TYPE_ROCE_V2};
use std::fmt;

/// Partition of everybody, as a full member.
pub const DEFAULT_PARTITION: u16 = 0xffff;
/// Entries of a GID table that a path can name.
const GID_INDEX_MAX: u32 = u8::MAX as u32;
/// Members with this bit may talk to everybody in the partition, those without only to those with it.
const FULL_MEMBER: u16 = 0x8000;

/// What a port is attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkLayer {
    /// Local identifiers, a subnet manager.
    InfiniBand,
    /// RoCE.
    Ethernet,
}

/// How a GID goes onto the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GidKind {
    /// RoCE in Ethernet frames.
    RoceV1,
    /// RoCE in UDP.
    RoceV2,
    /// InfiniBand.
    InfiniBand,
}

/// Families of addresses that reach each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Family {
    LinkLocal,
    Ipv6,
    Ipv4,
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// The identifier, in network order.
    pub bytes: IbvGid,
    /// How it goes onto the wire.
    pub kind: GidKind,
    /// The network interface behind it, 0 if there is none.
    pub interface: u32,
}

/// A port, as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The adapter's name.
    pub adapter: String,
    /// Number of the port, from 1.
    pub number: u8,
    /// False while it carries no traffic.
    pub active: bool,
    /// What it is attached to; `None` for anything that we do not know.
    pub link_layer: Option<LinkLayer>,
    /// Its local identifier, 0 if it has none.
    pub lid: u16,
    /// Longest packet, as `ibv_mtu` counts: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Valid entries of its GID table.
    pub gids: Vec<Gid>,
    /// Its partition table; 0 is an empty entry.
    pub partitions: Vec<u16>,
}

/// What the user asked for; `None` leaves it to us.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// The adapter's name.
    pub adapter: Option<String>,
    /// The port's number.
    pub port: Option<u8>,
    /// The GID's index.
    pub gid_index: Option<u32>,
    /// The partition, membership bit or not.
    pub partition: Option<u16>,
    /// Longest packet, in bytes, if the port's own is longer.
    pub mtu_bytes: Option<u32>,
}

impl From<&base::config::VerbsChoice> for Wanted {
    fn from(asked: &base::config::VerbsChoice) -> Self {
        Self {
            adapter: asked.device.clone(),
            port: asked.port,
            gid_index: asked.gid_index,
            partition: asked.partition,
            mtu_bytes: asked.mtu_bytes,
        }
    }
}

/// A way for a process to reach others: one line of its table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortOffer {
    /// The adapter's name.
    pub adapter: String,
    /// Number of the port.
    pub port: u8,
    /// What it is attached to.
    pub link_layer: LinkLayer,
    /// Its local identifier.
    pub lid: u16,
    /// Longest packet, as `ibv_mtu` counts.
    pub mtu: u8,
    /// The GID to use.
    pub gid: Gid,
    /// The partition to use.
    pub partition: u16,
    /// Its place in the port's table.
    pub partition_index: u16,
}

/// Why a port is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The adapter's name.
    pub adapter: String,
    /// Number of the port; `None` if no port was looked at.
    pub port: Option<u8>,
    /// One line for the user.
    pub reason: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}: {}", self.adapter, self.reason),
            None => write!(f, "{}: {}", self.adapter, self.reason),
        }
    }
}

/// The lines that `ports` make, best first, and why others make none.
pub fn offers(ports: &[Port], wanted: &Wanted) -> (Vec<PortOffer>, Vec<Rejection>) {
    let (mut offers, mut rejections) = (Vec::new(), Vec::new());
    for port in ports {
        match offers_of(port, wanted) {
            Ok(found) => offers.extend(found),
            Err(reason) => {
                rejections.push(Rejection { adapter: port.adapter.clone(), port: Some(port.number), reason });
            }
        }
    }
    // Stable: among equals the order in which the system lists its adapters decides.
    offers.sort_by_key(|offer| std::cmp::Reverse(offer.rank()));
    (offers, rejections)
}

fn offers_of(port: &Port, wanted: &Wanted) -> Result<Vec<PortOffer>, String> {
    if wanted.adapter.as_ref().is_some_and(|adapter| *adapter != port.adapter)
        || wanted.port.is_some_and(|number| number != port.number)
    {
        return Err("FERROVIA_VERBS_DEVICE asks for another".to_owned());
    }
    if !port.active {
        return Err("the port is not active".to_owned());
    }
    let link_layer = port.link_layer.ok_or("neither InfiniBand nor Ethernet")?;
    if link_layer == LinkLayer::InfiniBand && port.lid == 0 {
        return Err("the subnet manager has given it no local identifier".to_owned());
    }
    let (partition_index, partition) = partition_of(port, wanted)?;
    let gids: Vec<Gid> = match wanted.gid_index {
        Some(index) => port.gids.iter().filter(|gid| gid.index == index).copied().collect(),
        None => port.gids.iter().filter(|gid| gid.bytes != [0; 16]).copied().collect(),
    };
    let gids: Vec<Gid> = gids.into_iter().filter(|gid| gid.index <= GID_INDEX_MAX).collect();
    if gids.is_empty() {
        return Err(match wanted.gid_index {
            Some(index) => format!("no GID at index {index} (FERROVIA_VERBS_GID)"),
            None => "no GID: the network interface has no address".to_owned(),
        });
    }
    let offer = |gid| PortOffer {
        adapter: port.adapter.clone(),
        port: port.number,
        link_layer,
        lid: port.lid,
        mtu: wanted.mtu_bytes.map_or(port.mtu, |bytes| port.mtu.min(mtu_code(bytes))),
        gid,
        partition,
        partition_index,
    };
    Ok(gids.into_iter().map(offer).collect())
}

/// The longest packet that is no longer than this, as `ibv_mtu` counts.
fn mtu_code(bytes: u32) -> u8 {
    (1..=5).rev().find(|code| 128 << code <= bytes).unwrap_or(1)
}

/// The partition asked for, else the default one, else the first of the table.
fn partition_of(port: &Port, wanted: &Wanted) -> Result<(u16, u16), String> {
    let entries = || (0u16..).zip(port.partitions.iter().copied()).filter(|(_, key)| *key != 0);
    let found = match wanted.partition {
        Some(asked) => entries().find(|(_, key)| key & !FULL_MEMBER == asked & !FULL_MEMBER),
        None => entries().find(|(_, key)| *key == DEFAULT_PARTITION).or_else(|| entries().next()),
    };
    found.ok_or_else(|| match wanted.partition {
        Some(asked) => format!("not a member of partition {asked:#06x} (FERROVIA_VERBS_PARTITION)"),
        None => "member of no partition".to_owned(),
    })
}

impl PortOffer {
    fn family(&self) -> Family {
        match self.gid.bytes {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => Family::Ipv4,
            [0xfe, second, ..] if second & 0xc0 == 0x80 => Family::LinkLocal,
            _ => Family::Ipv6,
        }
    }

    /// InfiniBand before Ethernet, RoCE v2 before v1, IPv4 before other addresses, link-local last.
    fn rank(&self) -> (bool, GidKind, Family) {
        (self.link_layer == LinkLayer::InfiniBand, self.gid.kind, self.family())
    }

    /// What two offers must share to reach each other. A subnet's prefix counts on InfiniBand only: on Ethernet,
    /// addresses are routed.
    fn network(&self) -> (LinkLayer, GidKind, Option<Family>, [u8; 8], u16) {
        let (family, prefix) = match self.link_layer {
            LinkLayer::InfiniBand => (None, self.gid.bytes[..8].try_into().expect("8 of 16")),
            LinkLayer::Ethernet => (Some(self.family()), [0; 8]),
        };
        (self.link_layer, self.gid.kind, family, prefix, self.partition & !FULL_MEMBER)
    }

    /// What speaks against taking this port unasked.
    pub fn objection(&self) -> Option<&'static str> {
        match self.link_layer {
            LinkLayer::InfiniBand => None,
            LinkLayer::Ethernet => Some(
                "is on Ethernet, where nothing says that the hosts reach each other over it; FERROVIA_DEVICE=shm+verbs \
                 takes it",
            ),
        }
    }

    fn reaches(&self, other: &Self) -> bool {
        self.network() == other.network() && (self.partition | other.partition) & FULL_MEMBER != 0
    }
}

/// The lines that may be taken unasked, and why the other ports may not. On InfiniBand an equal prefix says that ports
/// reach each other; each such port is tried, once.
pub fn unasked(
    mut offers: Vec<PortOffer>,
    mut trial: impl FnMut(&PortOffer) -> Result<(), String>,
) -> (Vec<PortOffer>, Vec<Rejection>) {
    let mut tried: Vec<(String, u8, bool)> = Vec::new();
    let mut rejections = Vec::new();
    offers.retain(|offer| {
        let is_same = |(adapter, port, _): &&(String, u8, bool)| *adapter == offer.adapter && *port == offer.port;
        if let Some((_, _, is_good)) = tried.iter().find(is_same) {
            return *is_good;
        }
        let outcome = offer.objection().map_or_else(|| trial(offer), |why| Err(why.to_owned()));
        tried.push((offer.adapter.clone(), offer.port, outcome.is_ok()));
        let (adapter, port) = (offer.adapter.clone(), Some(offer.port));
        outcome.map_err(|reason| rejections.push(Rejection { adapter, port, reason })).is_ok()
    });
    (offers, rejections)
}

/// For each process the place in its table of the port to use, so that all reach each other; the best network of the
/// first process that everybody is on. `None` if there is none.
pub fn choose_together(tables: &[Vec<PortOffer>]) -> Option<Vec<usize>> {
    let first = tables.first()?;
    first.iter().enumerate().find_map(|(place, candidate)| {
        let others = tables[1..].iter().map(|table| table.iter().position(|offer| offer.reaches(candidate)));
        let chosen: Vec<usize> = std::iter::once(Some(place)).chain(others).collect::<Option<_>>()?;
        // Limited members of a partition reach full ones only, so every pair is looked at.
        let offer = |rank: usize| &tables[rank][chosen[rank]];
        let limited = (0..chosen.len()).filter(|rank| offer(*rank).partition & FULL_MEMBER == 0).count();
        (limited < 2).then_some(chosen)
    })
}

/// Lines of an exchanged table; more ports than any machine has.
const TABLE_MAX: usize = 64;
const OFFER_BYTES: usize = 32;

/// The bytes to send to the other processes. Names of adapters stay at home.
pub fn table_to_bytes(offers: &[PortOffer]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for offer in offers.iter().take(TABLE_MAX) {
        let link_layer = if offer.link_layer == LinkLayer::InfiniBand { 1 } else { 2 };
        let kind = match offer.gid.kind {
            GidKind::InfiniBand => GID_TYPE_IB,
            GidKind::RoceV1 => GID_TYPE_ROCE_V1,
            GidKind::RoceV2 => GID_TYPE_ROCE_V2,
        };
        bytes.extend_from_slice(&[offer.port, link_layer, offer.mtu, kind as u8]);
        bytes.extend_from_slice(&offer.lid.to_le_bytes());
        bytes.extend_from_slice(&offer.partition.to_le_bytes());
        bytes.extend_from_slice(&offer.partition_index.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&offer.gid.index.to_le_bytes());
        bytes.extend_from_slice(&offer.gid.bytes);
    }
    bytes
}

/// The table that a peer sent; `None` if it is none.
pub fn table_from_bytes(bytes: &[u8]) -> Option<Vec<PortOffer>> {
    if !bytes.len().is_multiple_of(OFFER_BYTES) || bytes.len() / OFFER_BYTES > TABLE_MAX {
        return None;
    }
    bytes.chunks_exact(OFFER_BYTES).map(offer_from_bytes).collect()
}

fn offer_from_bytes(bytes: &[u8]) -> Option<PortOffer> {
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let link_layer = match bytes[1] {
        1 => LinkLayer::InfiniBand,
        2 => LinkLayer::Ethernet,
        _ => return None,
    };
    let gid = Gid {
        index: u32::from_le_bytes(bytes[12..16].try_into().ok()?),
        bytes: bytes[16..32].try_into().ok()?,
        kind: gid_kind(bytes[3].into())?,
        interface: 0,
    };
    if !(1..=5).contains(&bytes[2]) || bytes[10..12] != [0; 2] {
        return None;
    }
    Some(PortOffer {
        adapter: String::new(),
        port: bytes[0],
        link_layer,
        lid: half(4),
        mtu: bytes[2],
        gid,
        partition: half(6),
        partition_index: half(8),
    })
}

/// The library's number of a kind of GID.
pub(crate) fn gid_kind(number: u32) -> Option<GidKind> {
    match number {
        GID_TYPE_IB => Some(GidKind::InfiniBand),
        GID_TYPE_ROCE_V1 => Some(GidKind::RoceV1),
        GID_TYPE_ROCE_V2 => Some(GidKind::RoceV2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gid(index: u32, kind: GidKind, bytes: &[u8]) -> Gid {
        let mut whole = [0; 16];
        whole[16 - bytes.len()..].copy_from_slice(bytes);
        Gid { index, bytes: whole, kind, interface: 3 }
    }

    fn ipv4(index: u32, kind: GidKind, last: u8) -> Gid {
        gid(index, kind, &[0xff, 0xff, 10, 0, 0, last])
    }

    fn link_local(index: u32, kind: GidKind) -> Gid {
        gid(index, kind, &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])
    }

    fn ethernet(adapter: &str, gids: Vec<Gid>) -> Port {
        Port {
            adapter: adapter.into(),
            number: 1,
            active: true,
            link_layer: Some(LinkLayer::Ethernet),
            lid: 0,
            mtu: 3,
            gids,
            partitions: vec![0xffff],
        }
    }

    fn infiniband(adapter: &str, subnet: u8, partitions: Vec<u16>) -> Port {
        let gids = vec![gid(0, GidKind::InfiniBand, &[0xfe, 0x80, 0, 0, 0, 0, 0, subnet, 0, 0, 0, 0, 0, 0, 0, 1])];
        Port { link_layer: Some(LinkLayer::InfiniBand), lid: 7, partitions, ..ethernet(adapter, gids) }
    }

    fn table(ports: &[Port]) -> Vec<PortOffer> {
        offers(ports, &Wanted::default()).0
    }

    #[test]
    fn roce_v2_with_an_ipv4_address_comes_first_and_link_local_last() {
        let gids = vec![
            link_local(0, GidKind::RoceV1),
            link_local(1, GidKind::RoceV2),
            ipv4(2, GidKind::RoceV1, 1),
            ipv4(3, GidKind::RoceV2, 1),
            gid(4, GidKind::RoceV2, &[0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ];
        let order: Vec<u32> = table(&[ethernet("mlx5_0", gids)]).iter().map(|offer| offer.gid.index).collect();
        assert_eq!(order, [3, 4, 1, 2, 0]);
    }

    #[test]
    fn packets_are_as_long_as_wanted_and_never_longer_than_the_port_s() {
        let port = Port { mtu: 4, ..ethernet("rxe0", vec![ipv4(1, GidKind::RoceV2, 1)]) };
        for (wanted, expected) in
            [(None, 4), (Some(256), 1), (Some(1024), 3), (Some(1500), 3), (Some(4096), 4), (Some(1), 1)]
        {
            let (offers, _) = offers(std::slice::from_ref(&port), &Wanted { mtu_bytes: wanted, ..Wanted::default() });
            assert_eq!(offers[0].mtu, expected, "{wanted:?}");
        }
    }

    #[test]
    fn each_rejected_port_says_why() {
        let wanted = |wanted: Wanted, port: Port| {
            let (offers, rejections) = offers(&[port], &wanted);
            assert!(offers.is_empty(), "{offers:?}");
            rejections[0].to_string()
        };
        let good = || ethernet("rxe0", vec![ipv4(1, GidKind::RoceV2, 1)]);
        let check = |text: String, expected: &str| assert!(text.contains(expected), "{text}");
        let none = Wanted::default;
        check(wanted(none(), Port { active: false, ..good() }), "rxe0:1: the port is not active");
        check(wanted(none(), Port { link_layer: None, ..good() }), "neither InfiniBand nor Ethernet");
        check(wanted(none(), Port { gids: vec![], ..good() }), "no GID");
        check(wanted(none(), Port { gids: vec![gid(0, GidKind::RoceV2, &[])], ..good() }), "no GID");
        check(wanted(none(), Port { partitions: vec![0], ..good() }), "no partition");
        check(wanted(none(), Port { lid: 0, ..infiniband("mlx4_0", 0, vec![0xffff]) }), "no local identifier");
        check(wanted(Wanted { adapter: Some("mlx5_0".into()), ..none() }, good()), "asks for another");
        check(wanted(Wanted { port: Some(2), ..none() }, good()), "asks for another");
        check(wanted(Wanted { gid_index: Some(5), ..none() }, good()), "index 5");
        check(wanted(none(), Port { gids: vec![ipv4(256, GidKind::RoceV2, 1)], ..good() }), "no GID");
        check(wanted(Wanted { partition: Some(0x8001), ..none() }, good()), "0x8001");
    }

    #[test]
    fn a_partition_is_found_with_or_without_its_membership_bit() {
        let port = infiniband("mlx5_0", 0, vec![0xffff, 0, 0x8003, 0x0004]);
        for (asked, found) in [(None, (0, 0xffff)), (Some(0x0003), (2, 0x8003)), (Some(0x8004), (3, 0x0004))] {
            assert_eq!(partition_of(&port, &Wanted { partition: asked, ..Wanted::default() }), Ok(found));
        }
    }

    #[test]
    fn all_take_the_best_network_that_everybody_is_on() {
        let both = table(&[infiniband("ib", 0, vec![0xffff]), ethernet("eth", vec![ipv4(3, GidKind::RoceV2, 1)])]);
        let roce = table(&[ethernet("eth", vec![link_local(1, GidKind::RoceV2), ipv4(5, GidKind::RoceV2, 2)])]);
        let elsewhere = table(&[infiniband("ib", 1, vec![0xffff])]);
        assert_eq!(choose_together(&[both.clone(), both.clone()]), Some(vec![0, 0]));
        assert_eq!(choose_together(&[both.clone(), roce.clone(), both.clone()]), Some(vec![1, 0, 1]));
        assert_eq!(choose_together(&[both.clone(), elsewhere.clone()]), None, "another subnet");
        assert_eq!(choose_together(&[both.clone(), roce, elsewhere]), None);
        assert_eq!(choose_together(std::slice::from_ref(&both)), Some(vec![0]));
        assert_eq!(choose_together(&[both, vec![]]), None);
        assert_eq!(choose_together(&[]), None);
    }

    #[test]
    fn unasked_only_ports_on_infiniband_that_work_are_taken() {
        let ports = [
            ethernet("eth", vec![ipv4(3, GidKind::RoceV2, 1), ipv4(2, GidKind::RoceV1, 1)]),
            infiniband("bad", 0, vec![0xffff]),
            infiniband("ib", 0, vec![0xffff]),
            Port { number: 2, ..infiniband("ib", 0, vec![0xffff]) },
        ];
        let mut tried = Vec::new();
        let (left, rejections) = unasked(table(&ports), |offer| {
            tried.push((offer.adapter.clone(), offer.port));
            if offer.adapter == "bad" { Err("no memory may be pinned".to_owned()) } else { Ok(()) }
        });
        let left: Vec<_> = left.iter().map(|offer| (offer.adapter.as_str(), offer.port)).collect();
        assert_eq!(left, [("ib", 1), ("ib", 2)]);
        assert_eq!(tried, [("bad".to_owned(), 1), ("ib".to_owned(), 1), ("ib".to_owned(), 2)]);
        let said: Vec<String> = rejections.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], "bad:1: no memory may be pinned");
        assert!(said[1].starts_with("eth:1: is on Ethernet") && said[1].contains("shm+verbs"), "{said:?}");
    }

    #[test]
    fn limited_members_of_a_partition_reach_full_ones_only() {
        let member = |key| table(&[infiniband("ib", 0, vec![key])]);
        assert_eq!(choose_together(&[member(0x8001), member(0x0001)]), Some(vec![0, 0]));
        assert_eq!(choose_together(&[member(0x0001), member(0x0001)]), None);
        assert_eq!(choose_together(&[member(0x8001), member(0x0001), member(0x0001)]), None);
        assert_eq!(choose_together(&[member(0x8001), member(0x8002)]), None);
    }

    #[test]
    fn tables_survive_the_wire_but_for_names() {
        let mut mine = table(&[
            infiniband("ib", 4, vec![0xffff]),
            ethernet("eth", vec![ipv4(3, GidKind::RoceV2, 1), ipv4(2, GidKind::RoceV1, 1)]),
        ]);
        let bytes = table_to_bytes(&mine);
        mine.iter_mut().for_each(|offer| {
            offer.adapter.clear();
            offer.gid.interface = 0;
        });
        assert_eq!(table_from_bytes(&bytes), Some(mine));
    }

    #[test]
    fn damaged_tables_are_refused_or_mean_what_they_say() {
        let bytes = table_to_bytes(&table(&[ethernet("eth", vec![ipv4(3, GidKind::RoceV2, 1)])]));
        assert_eq!(table_from_bytes(&bytes[1..]), None);
        assert_eq!(table_from_bytes(&bytes.repeat(TABLE_MAX + 1)), None);
        assert_eq!(table_from_bytes(&[]), Some(vec![]));
        for at in 0..bytes.len() {
            for byte in 0..=255u8 {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                if let Some(read) = table_from_bytes(&damaged) {
                    assert_eq!(table_to_bytes(&read), damaged);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_table_or_stand_for_themselves(mut bytes in prop::collection::vec(0..6u8, 0..200)) {
            // What most would be refused for.
            bytes.chunks_exact_mut(OFFER_BYTES).for_each(|offer| offer[10..12].fill(0));
            bytes.truncate(bytes.len() / OFFER_BYTES * OFFER_BYTES + bytes.len() % 2);
            if let Some(read) = table_from_bytes(&bytes) {
                prop_assert_eq!(table_to_bytes(&read), bytes);
            }
        }
    }
}
