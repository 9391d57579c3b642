//! What an adapter can do, asked of it.

use crate::choice::{GidKind, PortOffer};
use crate::context::PairEntry;
use crate::ffi::numbers::{ATOMIC_NONE, QPT_RC};
use crate::ffi::rdma_cm::RDMA_CM_LIBRARY;
use crate::ffi::{IbvDeviceAttr, IbvQpCap};
use crate::multicast::Way;
use crate::objects::{Adapter, Completions, Domain, ExtendedDomain, Pair, PairParts};
use crate::queues::SendEntry;
use fabric::{Capabilities, DeviceKind, FabricError, Limits, Translation, WriteOrder};
use std::ffi::c_int;
use std::sync::Arc;

/// Entries of a queue that our own bookkeeping takes.
const DEPTH_MAX: u32 = 1 << 16;
/// Queues of a context, far below the 2^24 that our bookkeeping numbers.
const QUEUES_MAX: u32 = 1 << 20;
/// Inline payloads tried, longest first: a work queue entry of common adapters holds so many.
const INLINE_TRIED: [u32; 9] = [1024, 512, 400, 256, 188, 128, 64, 32, 16];
/// A global route header in front of each datagram.
pub(crate) const GLOBAL_ROUTE_HEADER_BYTES: u32 = 40;
/// Reads and atomics under way at once that a connection takes from the adapter's store.
pub(crate) const READS_IN_FLIGHT_MAX: u32 = 16;

/// Whether XRC is the adapter's own.
pub(crate) fn has_own_xrc(adapter: &Arc<Adapter>) -> bool {
    // The capability bit alone does not tell: Soft-RoCE opens no domain, whatever it says.
    ExtendedDomain::new(adapter).is_ok()
}

/// Asks the adapter, and tries what cannot be asked.
pub(crate) fn capabilities(
    adapter: &Arc<Adapter>,
    offer: &PortOffer,
    multicast: bool,
) -> Result<Capabilities, FabricError> {
    let attributes = adapter.attributes()?;
    let port = adapter.port(offer.port)?;
    let kind = match offer.gid.kind {
        GidKind::InfiniBand => "InfiniBand",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
    };
    let description =
        format!("{}:{}, {kind}, GID {} {}", offer.adapter, offer.port, offer.gid.index, shown(&offer.gid.bytes));
    Ok(Capabilities {
        kind: DeviceKind::Verbs,
        description,
        reliable_connections: true,
        xrc: true,
        datagrams: true,
        multicast,
        atomics: attributes.atomic_cap != ATOMIC_NONE,
        completion_descriptor: true,
        multi_queue_receives: false,
        independent_queues: false,
        mapped_memory: false,
        // Regions on demand, which follow the memory map, are never asked for.
        translation: Translation::Pinned,
        asynchronous: Ok(()),
        single_copy: Ok(()),
        // Many adapters put the last bytes down last; the specification does not ask them to.
        write_order: WriteOrder::ByWrite,
        writes_wake: false,
        limits: limits(&attributes, u64::from(port.max_msg_sz), offer, inline_max(adapter)?),
    })
}

/// What stands behind its abilities and why it lacks some: one line each, for people.
pub(crate) fn notes(adapter: &Arc<Adapter>, way_to_groups: Result<Way, &str>) -> Vec<String> {
    let xrc = match has_own_xrc(adapter) {
        true => "XRC is the adapter's own",
        false => "XRC: the adapter has none of its own, an ordinary connection for each queue stands in for it",
    };
    let groups = match way_to_groups {
        Ok(Way::Socket) => None,
        Ok(Way::Subnet(_)) => {
            Some(format!("multicast: groups are joined at the subnet manager through rdma_cm ({RDMA_CM_LIBRARY})"))
        }
        Err(why) => Some(format!("no multicast: {why}")),
    };
    std::iter::once(xrc.to_owned()).chain(groups).collect()
}

fn limits(attributes: &IbvDeviceAttr, message_max_bytes: u64, offer: &PortOffer, inline_max_bytes: u32) -> Limits {
    let queues = |number: c_int| count(number).min(QUEUES_MAX);
    Limits {
        queue_pairs_max: queues(attributes.max_qp),
        completion_queues_max: count(attributes.max_cq),
        shared_receive_queues_max: queues(attributes.max_srq),
        protection_domains_max: count(attributes.max_pd),
        memory_regions_max: count(attributes.max_mr),
        address_handles_max: count(attributes.max_ah),
        send_depth_max: count(attributes.max_qp_wr).min(DEPTH_MAX),
        receive_depth_max: count(attributes.max_qp_wr).min(count(attributes.max_srq_wr)).min(DEPTH_MAX),
        completion_depth_max: count(attributes.max_cqe),
        scatter_gather_max: [attributes.max_sge, attributes.max_sge_rd, attributes.max_srq_sge]
            .into_iter()
            .map(count)
            .filter(|max| *max > 0)
            .min()
            .unwrap_or(1),
        inline_max_bytes,
        message_max_bytes,
        datagram_max_bytes: 128 << offer.mtu,
        datagram_header_bytes: GLOBAL_ROUTE_HEADER_BYTES,
        memory_region_max_bytes: attributes.max_mr_size,
        reads_in_flight_max: count(attributes.max_qp_rd_atom.min(attributes.max_qp_init_rd_atom))
            .min(READS_IN_FLIGHT_MAX),
        multi_queue_max: 0,
        // Our own notes of it and of two queues of 64 requests. What the provider maps and the kernel keeps depends on the
        // adapter; `ferrovia bench fabric memory` counts what is mapped here.
        queue_pair_full_bytes: (size_of::<PairEntry>() + 64 * (size_of::<SendEntry>() + size_of::<u64>())) as u64,
        // Peers have nothing besides their queue pairs.
        peer_full_bytes: 0,
    }
}

fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// No call tells how long an inline payload may be; making a queue pair does.
fn inline_max(adapter: &Arc<Adapter>) -> Result<u32, FabricError> {
    let domain = Arc::new(Domain::new(adapter)?);
    let completions = Arc::new(Completions::new(adapter, 1)?);
    let works = |max_inline_data: u32| {
        let cap = IbvQpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data };
        let parts = PairParts {
            domain: Arc::clone(&domain),
            send: Arc::clone(&completions),
            receive: Arc::clone(&completions),
            shared: None,
            extended: None,
        };
        Pair::new(parts, QPT_RC, cap).is_ok()
    };
    Ok(INLINE_TRIED.into_iter().find(|bytes| works(*bytes)).unwrap_or(0))
}

/// A GID as people write it.
fn shown(gid: &[u8; 16]) -> String {
    let address = std::net::Ipv6Addr::from(*gid);
    match address.to_ipv4_mapped() {
        Some(address) => address.to_string(),
        None => address.to_string(),
    }
}
