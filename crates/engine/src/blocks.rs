//! Data that does not lie in one piece, over verbs. Paper: datatypes §4.2, §5, §7
//!
//! ```text
//!   bc-spup, rwg-up                             multi-w                            p-rrs
//!   S ── request ─────────────────▶ R           S ── request ───────────▶ R        S ── request (packed) ─▶ R
//!   S ◀─ clear-segment (address) ── R  some     S ◀─ clear-blocks ─────── R          ◀─ RDMA reads, each
//!   S ── RDMA write, number ──────▶ R  unpacks     (layout, regions)                    scattered ──────── R
//!   S ◀─ clear-segment, the next ── R           S ── a write for each     R        S ◀── finished ──────── R
//!        …                                           block, last with number ▶
//! ```
//! A segment is either packed by the sender (*bc-spup*) or gathered from where the data lies (*rwg-up*). The receiver lets a
//! few segments of its pool be written at once and each again as soon as it is unpacked, so a message holds a few segments
//! however long it is. Where the receiver's memory is in one piece nothing need be unpacked: the sender packs or gathers
//! straight into it (*clear-write*). A message that finds the pool empty goes through the channel.
//!
//! What is written where it belongs needs the receiver's layout at the sender: it goes along once per peer and version, see
//! [`protocol::blocks`]. A sender that has forgotten it sends the message through the channel and is told again next time.

use std::sync::Arc;

use base::SlabKey;
use base::config::{DatatypeScheme, Medium, Rendezvous};
use datatype::{Group, Grouping, Layout, RecvBuf, SendBuf};
use fabric::{Access, Lkey, LocalMemory, RemoteMemory, Translation};
use protocol::blocks::{REGIONS_MAX, RemoteBlocks, RemoteRegion};
use protocol::registration::{Registration, group_gaps};
use protocol::schemes::{PortFacts, Side};
use protocol::wire::{self, Message};
use protocol::{RendezvousOffer, SourceLayout};
use smallvec::SmallVec;

use crate::core::Core;
use crate::port::{Port, SegmentUse};
use crate::request::{Completion, Envelope, Incoming, IncomingWay, Outcome, PeerId, Request, State};
use crate::scattered::{Held, with_packed_form};
use crate::streams::Stream;
use crate::transfer::{Direction, Far, FarBlocks, Near};

/// Marks a number that comes with a write as that of a segment.
pub(crate) const SEGMENT: u32 = 1 << 31;
/// Segments of one message that may be written at once.
const SEGMENTS_OPEN_MAX: u64 = 4;

/// Registered memory around the blocks of a buffer, in order of address.
pub(crate) struct BlockRegions(Vec<Registration>);

impl BlockRegions {
    /// The key for `len_bytes` bytes at `address`.
    pub(crate) fn key_of(&self, address: u64, len_bytes: u64) -> Option<Lkey> {
        let after = self.0.partition_point(|held| held.region.address <= address);
        let region = self.0.get(after.checked_sub(1)?)?.region;
        (address - region.address + len_bytes <= region.len_bytes).then_some(region.lkey)
    }

    /// The regions as a peer gets to know them.
    fn remote(&self) -> Vec<RemoteRegion> {
        let region = |held: &Registration| RemoteRegion {
            address: held.region.address,
            len_bytes: held.region.len_bytes,
            rkey: held.region.rkey,
        };
        self.0.iter().map(region).collect()
    }

    pub(crate) fn release(&self, port: &mut Port) {
        self.0.iter().for_each(|held| port.release(*held));
    }
}

/// Registers groups of blocks: as few as the device lets us, as the paper's optimistic way wants it.
fn register_groups<R>(
    port: &mut Port,
    access: Access,
    is_target: bool,
    mut groups: impl FnMut(Grouping) -> Option<Vec<Group<R>>>,
    whole: impl Fn(R) -> LocalMemory,
) -> Option<BlockRegions> {
    group_gaps(port.translation()).iter().find_map(|gap_max_bytes| {
        let grouping = Grouping { gap_max_bytes: *gap_max_bytes, groups_max: REGIONS_MAX };
        let memory = |group: Group<R>| {
            let Group { address, len_bytes, range } = group;
            range.map_or(LocalMemory::Span { address, len_bytes, is_target }, &whole)
        };
        let memories = groups(grouping)?.into_iter().map(memory);
        Some(BlockRegions(port.register_all(memories, access).ok()?))
    })
}

impl Core {
    /// What is offered of a buffer that goes over the port and does not lie in one piece.
    pub(crate) fn offer_blocks(buf: &SendBuf) -> SourceLayout {
        SourceLayout::Scattered { block_count: Self::block_count(buf) }
    }

    /// Blocks of a buffer that does not lie in one piece.
    pub(crate) fn block_count(buf: &SendBuf) -> u64 {
        // Elements of which the first is not whole have short blocks, as far as anybody knows.
        buf.scattered().map_or(buf.len_bytes().div_ceil(8), |data| data.block_count())
    }

    /// A long message over the port, of which one side at least is scattered, has met its receive.
    pub(crate) fn start_blocks(&mut self, receive: SlabKey, incoming: Incoming, offer: RendezvousOffer) {
        let facts = self.port_facts(&incoming.buf, offer);
        let Some(scheme) = facts.scheme(self.datatypes.scheme) else {
            return self.begin(receive, incoming, Some(DatatypeScheme::BcSpup));
        };
        let packed = scheme == DatatypeScheme::BcSpup && offer.layout != SourceLayout::InOnePiece;
        let refused = match scheme {
            DatatypeScheme::Generic => self.begin_packed_form(receive, incoming, offer.memory),
            DatatypeScheme::PRrs => self.begin_scattered_reads(receive, incoming, offer.memory),
            _ if facts.target.block_count == 1 => self.begin_writes(receive, incoming, packed),
            DatatypeScheme::MultiW | DatatypeScheme::Direct => self.begin_block_writes(receive, incoming),
            _ => self.begin_segments(receive, incoming, packed),
        };
        match refused {
            None => *self.stats.schemes.of(scheme) += 1,
            Some(incoming) => self.begin(receive, incoming, Some(DatatypeScheme::BcSpup)),
        }
    }

    fn port_facts(&self, buf: &RecvBuf, offer: RendezvousOffer) -> PortFacts {
        let target = match buf.scattered() {
            Some(data) => Side { block_count: data.block_count(), is_reachable: true },
            None => Side { block_count: 1, is_reachable: buf.as_contiguous().is_some() },
        };
        // Elements of which the first is not whole can be unpacked into, and that is all.
        let target = if target.is_reachable { target } else { Side { block_count: u64::MAX, ..target } };
        let block_count = match offer.layout {
            SourceLayout::InOnePiece => 1,
            SourceLayout::Scattered { block_count } => block_count,
            SourceLayout::Described(_) => offer.len_bytes,
        };
        PortFacts {
            len_bytes: offer.len_bytes,
            source: Side { block_count, is_reachable: offer.memory.is_some() },
            target,
            is_long: offer.len_bytes >= self.thresholds.cross_memory_min_bytes
                && self.thresholds.rendezvous != Rendezvous::Staged,
            by_adapter: self.moves_by_adapter(),
            medium: self.port.as_ref().map_or(Medium::Memory, |port| port.medium()),
        }
    }

    /// True if an adapter moves what goes over the port.
    pub(crate) fn moves_by_adapter(&self) -> bool {
        self.port.as_ref().is_some_and(|port| port.translation() == Translation::Pinned)
    }

    /// The request is a receive that goes its way.
    fn set_incoming(&mut self, receive: SlabKey, incoming: Incoming) {
        if let Some(request) = self.requests.get_mut(receive) {
            request.state = State::Incoming(Box::new(incoming));
        }
    }

    /// The packed form comes as one long message into memory of our own.
    fn begin_packed_form(
        &mut self,
        receive: SlabKey,
        incoming: Incoming,
        remote: Option<RemoteMemory>,
    ) -> Option<Incoming> {
        let Envelope { peer, len_bytes, .. } = incoming.envelope;
        let mut incoming = if incoming.buf.as_contiguous().is_some() {
            incoming
        } else {
            let Some(form) = self.packed_form(len_bytes) else { return Some(incoming) };
            with_packed_form(incoming, form)
        };
        let range = incoming.buf.range().and_then(|range| range.part(0, len_bytes as usize));
        match self.start_rdma(peer, receive, incoming.send, range, remote) {
            Some(way) => self.set_incoming(receive, Incoming { way, ..incoming }),
            None => self.begin(receive, incoming, None),
        }
        None
    }

    /// P-RRS: what lies in one piece there is read and scattered here.
    fn begin_scattered_reads(
        &mut self,
        receive: SlabKey,
        mut incoming: Incoming,
        remote: Option<RemoteMemory>,
    ) -> Option<Incoming> {
        let Envelope { peer, len_bytes, .. } = incoming.envelope;
        let regions = remote.and_then(|_| self.register_target(&mut incoming.buf, len_bytes, Access::LOCAL));
        let (Some(remote), Some(regions)) = (remote, regions) else { return Some(incoming) };
        let regions = Arc::new(regions);
        let way = IncomingWay::GetBlocks { held: Arc::clone(&regions) };
        self.set_incoming(receive, Incoming { way, ..incoming });
        self.start_transfer(peer, receive, Near::Blocks(regions), Far::Flat(remote), 0..len_bytes, Direction::Get);
        None
    }

    /// The sender packs or gathers straight into memory in one piece.
    fn begin_writes(&mut self, receive: SlabKey, mut incoming: Incoming, packed: bool) -> Option<Incoming> {
        let Envelope { peer, len_bytes, .. } = incoming.envelope;
        let range = incoming.buf.range().and_then(|range| range.part(0, len_bytes as usize));
        let way = range.and_then(|range| self.ask_for_writes(peer, receive, incoming.send, range, packed));
        let Some(way) = way else { return Some(incoming) };
        self.set_incoming(receive, Incoming { way, ..incoming });
        None
    }

    /// Multi-W: the sender writes each block where it belongs.
    fn begin_block_writes(&mut self, receive: SlabKey, mut incoming: Incoming) -> Option<Incoming> {
        let Envelope { peer, len_bytes, .. } = incoming.envelope;
        let Some(shown) = incoming.buf.scattered().and_then(|data| self.port_layouts.show(data.datatype)) else {
            return Some(incoming);
        };
        let Some(held) = self.register_target(&mut incoming.buf, len_bytes, Access::REMOTE_WRITE) else {
            return Some(incoming);
        };
        let way = IncomingWay::PutBlocks { held: Arc::new(held), shown };
        let incoming = Incoming { way, ..incoming };
        let payload_max = self.port.as_ref().map_or(0, |port| port.payload_max_bytes());
        if self.describe_blocks(&incoming).is_none_or(|blocks| blocks.len_bytes() > payload_max) {
            if let (IncomingWay::PutBlocks { held, .. }, Some(port)) = (&incoming.way, &mut self.port) {
                held.release(port);
            }
            return Some(Incoming { way: IncomingWay::Staged { received: 0 }, ..incoming });
        }
        self.set_incoming(receive, incoming);
        if !self.push_clear_blocks(peer, receive, false) {
            if let Some(Some(peer)) = self.peers.get_mut(peer as usize) {
                peer.link.queue_clear(receive.to_bits());
            }
            self.list_crowded(peer);
        }
        None
    }

    /// Where the blocks of a receive are to be written.
    fn describe_blocks<'a>(&self, incoming: &'a Incoming) -> Option<RemoteBlocks<'a>> {
        let IncomingWay::PutBlocks { held, shown } = &incoming.way else { return None };
        let data = incoming.buf.scattered()?;
        let (origin, count, regions) = (data.origin as u64, data.count, held.remote());
        let layout = if self.port_layouts.is_known(shown, incoming.envelope.peer) { &[] } else { &*shown.wire };
        Some(RemoteBlocks { origin, count, index: shown.index, version: shown.version, regions, layout })
    }

    /// Tells the sender where the blocks of a receive are to be written; `first` if that stands at the head of the queue.
    /// True if it is told, or need not be.
    pub(crate) fn push_clear_blocks(&mut self, to: PeerId, receive: SlabKey, first: bool) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return true };
        if !first && !peer.link.is_clear() {
            return false;
        }
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get(receive) else { return true };
        let Some(blocks) = self.describe_blocks(incoming) else { return true };
        let (index, version) = (blocks.index, blocks.version);
        let record = wire::clear_blocks(incoming.send, receive.to_bits());
        let mut payload = vec![0; blocks.len_bytes()];
        blocks.write(&mut payload);
        let Some(port) = &mut self.port else { return true };
        let pushed = port.push(to, record, payload.len(), |space| space.copy_from_slice(&payload));
        if pushed {
            self.port_layouts.told(index, version, to);
        }
        pushed
    }

    /// BC-SPUP and RWG-UP: segments are written and unpacked. Refused while there is no segment at all.
    fn begin_segments(&mut self, receive: SlabKey, incoming: Incoming, packed: bool) -> Option<Incoming> {
        let Envelope { peer, len_bytes, .. } = incoming.envelope;
        let Some(segment_bytes) = self.port.as_ref().map(|port| port.segment_bytes(len_bytes)) else {
            return Some(incoming);
        };
        let at_end = !self.datatypes.segment_unpack;
        let needed = len_bytes.div_ceil(segment_bytes.into());
        let wanted = if at_end { needed } else { needed.min(SEGMENTS_OPEN_MAX) };
        let mut coming = Segments { segment_bytes, packed, at_end, cleared: 0, received: 0, arrived: Vec::new() };
        let opened = (0..wanted).map_while(|_| self.open_segment(receive, len_bytes, &mut coming));
        let opened: SmallVec<[OpenSegment; SEGMENTS_OPEN_MAX as usize]> = opened.collect();
        // What is unpacked at the end needs room for all of it.
        if opened.is_empty() || at_end && (opened.len() as u64) < wanted {
            self.stats.packed_refused += 1;
            if let Some(port) = &mut self.port {
                port.unpacking.close_all_of(receive);
            }
            return Some(incoming);
        }
        let send = incoming.send;
        self.set_incoming(receive, Incoming { way: IncomingWay::Segments(Box::new(coming)), ..incoming });
        opened.into_iter().for_each(|segment| self.clear_segment(peer, send, packed, segment));
        None
    }

    /// Makes room for the next bytes of a message.
    fn open_segment(&mut self, receive: SlabKey, total: u64, coming: &mut Segments) -> Option<OpenSegment> {
        let (offset, left) = (coming.cleared, total - coming.cleared);
        let len_bytes = u64::from(coming.segment_bytes).min(left) as u32;
        let (target, number) = self.port.as_mut()?.open_segment(SegmentUse { receive, offset, len_bytes })?;
        coming.cleared += u64::from(len_bytes);
        Some(OpenSegment { target, number, len_bytes })
    }

    fn clear_segment(&mut self, peer: PeerId, send: u64, packed: bool, segment: OpenSegment) {
        let OpenSegment { target, number, len_bytes } = segment;
        let number = number | SEGMENT;
        self.send_control(peer, Message::ClearSegment { send, number, target, len_bytes, packed });
    }

    /// A peer has written the segment of this number.
    pub(crate) fn arrive_segment(&mut self, peer: PeerId, number: u32) {
        let Some(used) = self.port.as_ref().and_then(|port| port.unpacking.use_of(number)) else {
            return self.refuse();
        };
        let receive = used.receive;
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(receive) else {
            return self.refuse();
        };
        let Incoming { buf, way: IncomingWay::Segments(coming), envelope, send, .. } = &mut **incoming else {
            return self.refuse();
        };
        if envelope.peer != peer || coming.arrived.contains(&number) {
            return self.refuse();
        }
        let (envelope, send, packed) = (*envelope, *send, coming.packed);
        coming.received += u64::from(used.len_bytes);
        coming.arrived.push(number);
        let is_whole = coming.received == envelope.len_bytes;
        if let Some(port) = self.port.as_mut().filter(|_| is_whole || !coming.at_end) {
            for number in coming.arrived.drain(..) {
                let offset = port.unpacking.use_of(number).map_or(0, |used| used.offset);
                port.unpacking.close(number, |bytes| {
                    buf.unpack_at(offset, bytes);
                });
                self.stats.segments_unpacked += 1;
            }
        }
        if is_whole {
            self.stats.put_received += 1;
            return self.complete(receive, Completion { envelope, outcome: Outcome::Done });
        }
        if coming.cleared < envelope.len_bytes {
            let mut coming = std::mem::take(coming);
            let opened = self.open_segment(receive, envelope.len_bytes, &mut coming);
            if let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(receive) {
                incoming.way = IncomingWay::Segments(coming);
            }
            if let Some(segment) = opened {
                self.clear_segment(peer, send, packed, segment);
            }
        }
    }

    /// The sender of a message whose blocks it should write does not know where they belong: it comes through the channel.
    pub(crate) fn stage_blocks(&mut self, receive: SlabKey) {
        self.release_incoming(receive);
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(receive) else { return };
        if let IncomingWay::PutBlocks { shown, .. } = &incoming.way {
            self.port_layouts.forget(shown, incoming.envelope.peer);
            self.stats.layouts_forgotten += 1;
        }
        incoming.way = IncomingWay::Staged { received: 0 };
    }

    /// Registers the blocks of a receive.
    fn register_target(&mut self, buf: &mut RecvBuf, len_bytes: u64, access: Access) -> Option<BlockRegions> {
        let port = self.port.as_mut()?;
        let groups = |grouping| buf.groups(len_bytes, grouping);
        let regions = register_groups(port, access, true, groups, LocalMemory::Target)?;
        self.stats.block_regions += regions.0.len() as u64;
        Some(regions)
    }

    /// Where a send's data is taken from: where it lies, or packed if that is wanted or cannot be registered.
    fn near_of(&mut self, key: SlabKey, packed: bool) -> Near {
        let (Some(Request { state: State::Outgoing(send), .. }), Some(port)) =
            (self.requests.get_mut(key), &mut self.port)
        else {
            return Near::Packed;
        };
        if packed {
            return Near::Packed;
        }
        if let Some(blocks) = &send.blocks {
            return Near::Blocks(Arc::clone(blocks));
        }
        if let Some(range) = send.buf.range()
            && send.region.is_none()
        {
            send.region = port.register(LocalMemory::Source(range), Access::LOCAL).ok().map(Held::Posted);
        }
        if let Some(Held::Posted(held)) = send.region {
            return Near::Flat(held.region);
        }
        let (buf, len_bytes) = (&send.buf, send.envelope.len_bytes);
        let groups = |grouping| buf.groups(len_bytes, grouping);
        let Some(regions) = register_groups(port, Access::LOCAL, false, groups, LocalMemory::Source) else {
            return Near::Packed;
        };
        self.stats.block_regions += regions.0.len() as u64;
        let regions = Arc::new(regions);
        send.blocks = Some(Arc::clone(&regions));
        Near::Blocks(regions)
    }

    /// Takes `len_bytes` more bytes of a send, or all, for transfers that its receiver has asked for; where they begin and
    /// end. `None` if that makes no sense.
    fn clear_bytes(&mut self, peer: PeerId, key: SlabKey, len_bytes: Option<u32>) -> Option<std::ops::Range<u64>> {
        self.outgoing_to(peer, key)?;
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(key) else { return None };
        let (start, total) = (send.cleared, send.envelope.len_bytes);
        let end = match len_bytes {
            Some(len_bytes) => start.checked_add(len_bytes.into())?,
            None if start == 0 => total,
            None => return None,
        };
        if end == start || end > total {
            return None;
        }
        send.cleared = end;
        Some(start..end)
    }

    /// The receiver wants a message, or its next `len_bytes` bytes, written into memory in one piece.
    pub(crate) fn arrive_clear_write(
        &mut self,
        peer: PeerId,
        send: u64,
        number: u32,
        target: RemoteMemory,
        (len_bytes, packed): (Option<u32>, bool),
    ) {
        let key = SlabKey::from_bits(send);
        let Some(range) = self.clear_bytes(peer, key, len_bytes) else { return self.refuse() };
        let near = self.near_of(key, packed);
        self.start_transfer(peer, key, near, Far::Flat(target), range, Direction::Put(number));
    }

    /// The receiver wants each block of a message written where it belongs.
    pub(crate) fn arrive_clear_blocks(&mut self, peer: PeerId, send: u64, receive: u64, payload: &[u8]) {
        let key = SlabKey::from_bits(send);
        let Some(blocks) = RemoteBlocks::parse(payload) else { return self.refuse() };
        let Some(range) = self.clear_bytes(peer, key, None) else { return self.refuse() };
        let layout = self.port_layouts.learn(peer, blocks.index, blocks.version, blocks.layout);
        let holds = |layout: &Arc<Layout>| layout.size().checked_mul(blocks.count) >= Some(range.end);
        let Some(layout) = layout.filter(holds) else {
            let (to, end) = (peer, range.end);
            let stream = Stream::of(to, key, receive, 0..end);
            return self.streams.push(stream);
        };
        let near = self.near_of(key, false);
        let RemoteBlocks { origin, count, regions, .. } = blocks;
        let far = Far::Blocks(Box::new(FarBlocks { layout, origin, count, regions }));
        let number = SlabKey::from_bits(receive).index();
        self.start_transfer(peer, key, near, far, range, Direction::Put(number));
    }
}

/// A message that comes in segments.
#[derive(Default)]
pub(crate) struct Segments {
    segment_bytes: u32,
    /// The sender packs.
    packed: bool,
    /// All is unpacked when all has come.
    at_end: bool,
    /// Bytes that there was room for, and bytes that have come.
    cleared: u64,
    received: u64,
    /// Segments that have come and are not unpacked.
    arrived: Vec<u32>,
}

/// A segment that a peer may write.
struct OpenSegment {
    target: RemoteMemory,
    number: u32,
    len_bytes: u32,
}
