//! Long messages by RDMA: the receiver reads (RGET), or the sender writes and tells with the last piece (RPUT).
//!
//! ```text
//!   RGET                                       RPUT (Paper: mpich2-ib §2.4.1, both handshakes merged)
//!   S ── request (address, key) ──▶ R          S ── request ───────────────────────▶ R
//!       ◀─────── RDMA reads ──────             S ◀── clear-write (address, key) ──── R
//!   S ◀── finished ──────────────── R          S ── RDMA writes, last with number ─▶ R
//! ```
//! The parameters travel with the requests, so any number of messages is under way at once. A message goes in pieces, so
//! that others are not kept waiting behind it; of each, a few are posted. The number that comes with the last write is the
//! place of the receive's request; it consumes a posted buffer and costs a credit, as a record does.
//!
//! Either side of a transfer may lie in one piece or in blocks ([`Near`], [`Far`]): a request of the device gathers or
//! scatters many blocks here, and there is one for each block there. `crate::blocks` says when that is done.

use std::ops::Range;
use std::sync::Arc;

use base::SlabKey;
use base::config::Rendezvous;
use base::memory::WriteRange;
use datatype::{Layout, Segment, SendBuf};
use fabric::{Access, LocalMemory, MemoryRegion, Operation, RemoteMemory, ScatterGather, WcStatus, WorkCompletion};
use protocol::blocks::{RemoteBlocks, RemoteRegion};
use protocol::registration::Registration;
use protocol::rendezvous::RdmaPlan;
use protocol::wire::Message;
use smallvec::{SmallVec, smallvec};

use crate::blocks::BlockRegions;
use crate::core::Core;
use crate::port::{Port, Posted, Work};
use crate::request::{Completion, Fault, IncomingWay, Outcome, PeerId, Request, State};
use crate::scattered::Held;

/// Bytes posted at once.
const BATCH_BYTES: u64 = 1 << 20;
/// Operations posted at once.
const BATCH_MAX: usize = 32;
/// Batches of one message under way at once.
const BATCHES_MAX: usize = 8;
/// Blocks looked up at a time.
const SEGMENTS: usize = 64;

/// Bytes of a long message that this side moves.
pub(crate) struct Transfer {
    pub(crate) peer: PeerId,
    /// The send's request, or the receive's.
    request: SlabKey,
    near: Near,
    far: Far,
    /// Bytes of the message: up to where they are posted, and where this transfer begins and ends.
    next: u64,
    range: Range<u64>,
    direction: Direction,
    /// Batches posted and not complete.
    batches: SmallVec<[Batch; BATCHES_MAX]>,
    /// Operations posted before the next batch whose ends nobody tells of.
    untold: u32,
    failed: bool,
}

/// Operations of which the last one's completion tells.
struct Batch {
    operations: u32,
    packed: Option<Packed>,
}

/// Where the bytes of a transfer lie in this process.
pub(crate) enum Near {
    /// In a region that holds the whole message.
    Flat(MemoryRegion),
    /// In the blocks of the request's buffer.
    Blocks(Arc<BlockRegions>),
    /// In the request's buffer, from which they are packed into segments.
    Packed,
}

/// Where they lie there.
pub(crate) enum Far {
    /// In one piece that begins with the first byte of the transfer.
    Flat(RemoteMemory),
    /// In the blocks of elements.
    Blocks(Box<FarBlocks>),
}

/// Elements of a datatype in a peer's memory.
pub(crate) struct FarBlocks {
    pub(crate) layout: Arc<Layout>,
    pub(crate) origin: u64,
    pub(crate) count: u64,
    pub(crate) regions: Vec<RemoteRegion>,
}

/// A packed segment on its way.
enum Packed {
    /// Of the pool.
    Segment(u32),
    /// Memory made for it. Paper: datatypes §4.3.3
    Own { held: Registration, _bytes: SendBuf },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Get,
    /// With the number that the receiver wants to be told.
    Put(u32),
}

/// What became of the next operations of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Posted,
    /// The port has no room for its peer.
    NoRoom,
    /// There is nothing to post, or something else is in the way.
    Rests,
}

/// Operations put together for the device.
#[derive(Default)]
struct Plan {
    operations: SmallVec<[(Operation, Range<usize>); 1]>,
    entries: SmallVec<[ScatterGather; 1]>,
    /// By operation: where in the message it ends.
    ends: SmallVec<[u64; 1]>,
}

impl Far {
    /// Where the byte `at` of the message lies, of a transfer that begins with `first`, and how many behind it at most
    /// `most` lie there in one piece; `None` if the peer has not let us write there.
    fn piece(&self, first: u64, at: u64, most: u64) -> Option<(RemoteMemory, u64)> {
        match self {
            Far::Flat(memory) => {
                let address = memory.address.wrapping_add(at - first);
                Some((RemoteMemory { address, rkey: memory.rkey }, most))
            }
            Far::Blocks(blocks) => {
                let mut segment = [Segment::default()];
                let FarBlocks { layout, origin, count, regions } = &**blocks;
                if layout.segments_at(*origin, *count, at, most, &mut segment) == 0 {
                    return None;
                }
                let [Segment { address, len_bytes }] = segment;
                let rkey = RemoteBlocks::key_of(regions, address as u64, len_bytes)?;
                Some((RemoteMemory { address: address as u64, rkey }, len_bytes))
            }
        }
    }
}

impl Transfer {
    /// True if what is posted next over `port` may be the end, of which the peer is told.
    fn may_end(&self, port: &Port) -> bool {
        let most = if matches!(self.near, Near::Packed) { port.segment_max_bytes() } else { BATCH_BYTES };
        matches!(self.direction, Direction::Put(_)) && self.range.end - self.next <= most
    }
}

impl Core {
    /// Registers the memory of a long send over verbs, if it is to be read or written by RDMA.
    pub(crate) fn register_posted(&mut self, to: PeerId, buf: &SendBuf) -> Option<Held> {
        let range = buf.range()?;
        let staged = self.thresholds.rendezvous == Rendezvous::Staged;
        if staged || (range.len_bytes() as u64) < self.thresholds.cross_memory_min_bytes {
            return None;
        }
        // Out of regions: the message goes through the channel.
        let held = self.register_for(to, LocalMemory::Source(range), Access::REMOTE_READ)?;
        Some(Held::Posted(held))
    }

    /// Registers memory of a long message to or from a peer.
    fn register_for(&mut self, peer: PeerId, memory: LocalMemory, access: Access) -> Option<Registration> {
        let port = self.port.as_mut()?;
        let found = port.registrations_found();
        let held = port.register(memory, access).ok();
        let found = port.registrations_found() - found;
        self.count_for(peer, |traffic| traffic.registrations_found += found);
        held
    }

    /// How the receive `receive` takes a message of a peer over verbs, if by RDMA.
    pub(crate) fn start_rdma(
        &mut self,
        peer: PeerId,
        receive: SlabKey,
        send: u64,
        range: Option<WriteRange>,
        remote: Option<RemoteMemory>,
    ) -> Option<IncomingWay> {
        let (range, remote) = (range?, remote?);
        let prefers_reads = self.port.as_ref()?.prefers_reads();
        let len_bytes = range.len_bytes() as u64;
        match self.thresholds.plan_rdma(len_bytes, prefers_reads) {
            RdmaPlan::Staged => None,
            RdmaPlan::Put => self.ask_for_writes(peer, receive, send, range, false),
            RdmaPlan::Get => {
                // Out of regions: the message goes through the channel.
                let held = self.register_for(peer, LocalMemory::Target(range), Access::LOCAL)?;
                let (near, far) = (Near::Flat(held.region), Far::Flat(remote));
                self.start_transfer(peer, receive, near, far, 0..len_bytes, Direction::Get);
                Some(IncomingWay::Get { held })
            }
        }
    }

    /// Asks the sender to write a whole message into memory in one piece.
    pub(crate) fn ask_for_writes(
        &mut self,
        peer: PeerId,
        receive: SlabKey,
        send: u64,
        range: WriteRange,
        packed: bool,
    ) -> Option<IncomingWay> {
        let held = self.register_for(peer, LocalMemory::Target(range), Access::REMOTE_WRITE)?;
        let (number, target) = (receive.index(), held.region.remote(0));
        self.send_control(peer, Message::ClearWrite { send, number, target, packed });
        Some(IncomingWay::Put { held })
    }

    /// Moves bytes of the message of a request.
    pub(crate) fn start_transfer(
        &mut self,
        peer: PeerId,
        request: SlabKey,
        near: Near,
        far: Far,
        range: Range<u64>,
        direction: Direction,
    ) {
        let (next, batches) = (range.start, SmallVec::new());
        let transfer = Transfer { peer, request, near, far, next, range, direction, batches, untold: 0, failed: false };
        let key = self.transfers.insert(transfer);
        self.posting.push_back(key);
        self.post_transfers();
    }

    /// Posts pieces while there is room; true if any was.
    pub(crate) fn post_transfers(&mut self) -> bool {
        let mut moved = false;
        // Where there is no room many may wait: only the first of each peer looks, and the first of those that need a receive.
        let mut full: SmallVec<[(PeerId, bool); 8]> = smallvec![];
        for _ in 0..self.posting.len() {
            let Some(key) = self.posting.pop_front() else { break };
            let mut step = Step::Posted;
            while let (Some(transfer), Some(port)) = (self.transfers.get(key), self.port.as_ref())
                && let need = (transfer.peer, transfer.may_end(port))
                && step == Step::Posted
                && !full.contains(&need)
            {
                step = self.post_batch(key);
                moved |= step == Step::Posted;
                full.extend((step == Step::NoRoom).then_some(need));
            }
            if self.transfers.get(key).is_some_and(|transfer| transfer.next < transfer.range.end && !transfer.failed) {
                self.posting.push_back(key);
            }
        }
        moved
    }

    /// Posts the next operations of a transfer.
    fn post_batch(&mut self, key: SlabKey) -> Step {
        let (Some(transfer), Some(port)) = (self.transfers.get(key), self.port.as_mut()) else { return Step::Rests };
        if transfer.next == transfer.range.end || transfer.batches.len() >= BATCHES_MAX || transfer.failed {
            return Step::Rests;
        }
        // Before anything is packed.
        if !port.has_room_for(transfer.peer, transfer.may_end(port)) {
            return Step::NoRoom;
        }
        let Some((plan, packed)) = self.plan_batch(key) else { return Step::Rests };
        let (Some(transfer), Some(port)) = (self.transfers.get_mut(key), self.port.as_mut()) else {
            return Step::Rests;
        };
        let work = Work::Transfer(key.index());
        match port.post_transfer(transfer.peer, work, &plan.operations, &plan.entries) {
            Posted::Gone(count) => {
                transfer.next = plan.ends[count - 1];
                let counted = match (&transfer.near, &transfer.far, transfer.direction) {
                    (Near::Flat(_), Far::Flat(_), _) => None,
                    (Near::Packed, Far::Flat(_), _) => Some(&mut self.stats.segments_packed),
                    (_, _, Direction::Put(_)) => Some(&mut self.stats.block_writes),
                    (_, _, Direction::Get) => Some(&mut self.stats.block_reads),
                };
                counted.into_iter().for_each(|counter| *counter += count as u64);
                if count < plan.operations.len() {
                    // The last one posted is not told of: whatever is posted next tells of it, too. What was packed is kept
                    // until then.
                    transfer.untold += count as u32;
                    transfer.batches.push(Batch { operations: 0, packed });
                    return Step::NoRoom;
                }
                let operations = count as u32 + std::mem::take(&mut transfer.untold);
                transfer.batches.push(Batch { operations, packed });
                Step::Posted
            }
            outcome => {
                if outcome == Posted::Never {
                    // The loss of the peer ends the requests.
                    transfer.failed = true;
                    if transfer.batches.is_empty() {
                        self.transfers.remove(key);
                    }
                }
                self.free_packed(packed);
                if outcome == Posted::Later { Step::NoRoom } else { Step::Rests }
            }
        }
    }

    /// The next operations of a transfer, and what was packed for them; `None` if that cannot be now.
    fn plan_batch(&mut self, key: SlabKey) -> Option<(Plan, Option<Packed>)> {
        let transfer = self.transfers.get(key)?;
        let (request, next, end) = (transfer.request, transfer.next, transfer.range.end);
        match &transfer.near {
            Near::Flat(_) | Near::Blocks(_) => {
                let plan = self.plan_operations(key, None, (end - next).min(BATCH_BYTES))?;
                Some((plan, None))
            }
            Near::Packed => {
                let len = (end - next).min(self.segment_bytes(request)?) as u32;
                let (source, packed) = self.pack_segment(request, next, len)?;
                let plan = self.plan_operations(key, Some(source), len.into());
                if plan.is_none() {
                    self.free_packed(Some(packed));
                    return None;
                }
                Some((plan?, Some(packed)))
            }
        }
    }

    /// Bytes of a packed segment of a send.
    fn segment_bytes(&self, request: SlabKey) -> Option<u64> {
        let len_bytes = match self.requests.get(request) {
            Some(Request { state: State::Outgoing(send), .. }) => send.envelope.len_bytes,
            _ => 0,
        };
        Some(self.port.as_ref()?.segment_bytes(len_bytes).into())
    }

    /// Packs bytes of a send: into a segment of the pool, or into memory of their own if the pool will never have one.
    /// Paper: datatypes §4.3.3
    fn pack_segment(&mut self, request: SlabKey, offset: u64, len: u32) -> Option<(ScatterGather, Packed)> {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(request) else { return None };
        let port = self.port.as_mut()?;
        let buf = &send.buf;
        let fill = |space: &mut [u8]| crate::core::pack_all(buf, offset, space);
        if let Some((source, number)) = port.fill_segment(len, fill) {
            return Some((source, Packed::Segment(number)));
        }
        if port.packing.bytes_in_use() > 0 {
            return None;
        }
        let mut bytes = vec![0; len as usize].into_boxed_slice();
        fill(&mut bytes);
        let bytes = SendBuf::from_owned(bytes);
        let held = port.register(LocalMemory::Source(bytes.range()?), Access::LOCAL).ok()?;
        Some((held.region.part(0, len), Packed::Own { held, _bytes: bytes }))
    }

    fn free_packed(&mut self, packed: Option<Packed>) {
        let Some(port) = &mut self.port else { return };
        match packed {
            Some(Packed::Segment(number)) => port.packing.sent(number),
            Some(Packed::Own { held, .. }) => port.release(held),
            None => {}
        }
    }

    /// Operations for the next bytes of a transfer, at most `left` of them: one for each piece there, and each with as many
    /// pieces here as the device takes. A transfer that the peer's description does not allow fails.
    fn plan_operations(&mut self, key: SlabKey, packed: Option<ScatterGather>, left: u64) -> Option<Plan> {
        let list_post = self.datatypes.list_post;
        let entries_max = self.port.as_ref()?.entries_max();
        let transfer = self.transfers.get(key)?;
        let is_one_piece = matches!((&transfer.near, &transfer.far), (Near::Flat(_), Far::Flat(_)));
        let operations_max = if list_post && !is_one_piece { BATCH_MAX } else { 1 };
        let mut plan = Plan::default();
        let (first, mut at) = (transfer.range.start, transfer.next);
        let stop = at + left;
        let mut allowed = true;
        while at < stop && plan.operations.len() < operations_max {
            let Some((remote, most)) = transfer.far.piece(first, at, stop - at) else {
                allowed = false;
                break;
            };
            let begin = plan.entries.len();
            let len = match (&transfer.near, packed) {
                (_, Some(source)) => {
                    plan.entries.push(ScatterGather {
                        address: source.address + (at - transfer.next),
                        len_bytes: most as u32,
                        lkey: source.lkey,
                    });
                    most
                }
                (Near::Flat(region), None) => {
                    plan.entries.push(region.part(at, most as u32));
                    most
                }
                (Near::Blocks(regions), None) => self.list_blocks(transfer, regions, at, most, entries_max, &mut plan),
                (Near::Packed, None) => 0,
            };
            if len == 0 {
                allowed = false;
                break;
            }
            at += len;
            let operation = match transfer.direction {
                Direction::Get => Operation::RdmaRead(remote),
                Direction::Put(number) if at == transfer.range.end => Operation::RdmaWriteWithImmediate(remote, number),
                Direction::Put(_) => Operation::RdmaWrite(remote),
            };
            plan.operations.push((operation, begin..plan.entries.len()));
            plan.ends.push(at);
        }
        if !allowed {
            self.fail_transfer(key);
            return None;
        }
        Some(plan)
    }

    /// Adds the blocks of a request's buffer from the byte `at` of the message on; how many bytes they hold.
    fn list_blocks(
        &self,
        transfer: &Transfer,
        regions: &BlockRegions,
        at: u64,
        most: u64,
        entries_max: usize,
        plan: &mut Plan,
    ) -> u64 {
        let mut segments = [Segment::default(); SEGMENTS];
        let segments = &mut segments[..entries_max.min(SEGMENTS)];
        let used = match self.requests.get(transfer.request).map(|request| &request.state) {
            Some(State::Outgoing(send)) => send.buf.segments_at(at, segments),
            Some(State::Incoming(incoming)) => incoming.buf.segments_at(at, segments),
            _ => 0,
        };
        let mut listed = 0;
        for segment in &segments[..used] {
            let len = segment.len_bytes.min(most - listed);
            let Some(lkey) = regions.key_of(segment.address as u64, len).filter(|_| len > 0) else { break };
            plan.entries.push(ScatterGather { address: segment.address as u64, len_bytes: len as u32, lkey });
            listed += len;
        }
        listed
    }

    /// What a peer described does not hold its message: nothing more is moved.
    fn fail_transfer(&mut self, key: SlabKey) {
        let Some(transfer) = self.transfers.get_mut(key) else { return };
        transfer.failed = true;
        let (peer, request) = (transfer.peer, transfer.request);
        if transfer.batches.is_empty() {
            self.transfers.remove(key);
        }
        self.refuse();
        if let Some(send) = self.outgoing_to(peer, request) {
            let envelope = send.envelope;
            let why = format!("process {peer} described memory that does not hold the message");
            self.finish_send(request, Completion { envelope, outcome: Outcome::Failed(Fault::new(why)) });
        }
    }

    /// A batch has been moved, or was not.
    pub(crate) fn end_batch(&mut self, number: u32, completion: &WorkCompletion) {
        let Some(key) = self.transfers.key_at(number) else { return };
        let (Some(transfer), Some(port)) = (self.transfers.get_mut(key), self.port.as_mut()) else { return };
        if port.peer_of(completion) != Some(transfer.peer) {
            // Of a transfer that ended with the loss of its peer.
            return;
        }
        if completion.status != WcStatus::Success {
            port.transfer_ended(transfer.peer, completion, 0);
            if let Some(transfer) = self.transfers.remove(key) {
                transfer.batches.into_iter().for_each(|batch| self.free_packed(batch.packed));
            }
            return;
        }
        // What was posted in parts stands before the batch that tells of it.
        let ended = transfer.batches.iter().position(|batch| batch.operations > 0).map_or(0, |at| at + 1);
        let mut packed: SmallVec<[Option<Packed>; 1]> = smallvec![];
        let mut count = 0;
        for batch in transfer.batches.drain(..ended) {
            count += batch.operations;
            packed.push(batch.packed);
        }
        port.transfer_ended(transfer.peer, completion, count);
        let is_over = transfer.batches.is_empty() && (transfer.next == transfer.range.end || transfer.failed);
        packed.into_iter().for_each(|packed| self.free_packed(packed));
        if is_over {
            self.end_transfer(key);
        }
    }

    fn end_transfer(&mut self, key: SlabKey) {
        let Some(Transfer { peer, request, range, direction, failed, .. }) = self.transfers.remove(key) else { return };
        if failed {
            return;
        }
        if direction == Direction::Get {
            return self.finish_rdma(request, peer);
        }
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(request) else { return };
        send.written += range.end - range.start;
        if send.written == send.envelope.len_bytes {
            let envelope = send.envelope;
            self.finish_send(request, Completion { envelope, outcome: Outcome::Done });
        }
    }

    /// The peer has written the last piece of the message for the receive at place `number`.
    pub(crate) fn arrive_written(&mut self, peer: PeerId, number: u32) {
        if number & crate::blocks::SEGMENT != 0 {
            return self.arrive_segment(peer, number & !crate::blocks::SEGMENT);
        }
        let key = self.requests.key_at(number);
        let is_put = |key: &SlabKey| {
            matches!(
                self.requests.get(*key),
                Some(Request { state: State::Incoming(incoming), .. })
                    if incoming.envelope.peer == peer
                        && matches!(incoming.way, IncomingWay::Put { .. } | IncomingWay::PutBlocks { .. })
            )
        };
        match key.filter(is_put) {
            Some(key) => self.finish_rdma(key, peer),
            None => self.refuse(),
        }
    }

    /// A receive by RDMA has everything.
    fn finish_rdma(&mut self, key: SlabKey, peer: PeerId) {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else { return };
        let (envelope, send) = (incoming.envelope, incoming.send);
        let get = matches!(incoming.way, IncomingWay::Get { .. } | IncomingWay::GetBlocks { .. });
        Self::unpack_arrived(incoming, envelope.len_bytes);
        incoming.buf.written_by_others(envelope.len_bytes);
        self.release_incoming(key);
        if get {
            self.stats.get_received += 1;
            self.send_control(peer, Message::Finished { send });
        } else {
            self.stats.put_received += 1;
        }
        self.complete(key, Completion { envelope, outcome: Outcome::Done });
    }

    /// Gives back what a receive by RDMA holds.
    pub(crate) fn release_incoming(&mut self, key: SlabKey) {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else { return };
        let Some(port) = &mut self.port else { return };
        match &mut incoming.way {
            IncomingWay::Get { held } | IncomingWay::Put { held } => port.release(*held),
            IncomingWay::GetBlocks { held } | IncomingWay::PutBlocks { held, .. } => held.release(port),
            IncomingWay::Segments { .. } => port.unpacking.close_all_of(key),
            IncomingWay::Read { .. } | IncomingWay::Shared { .. } | IncomingWay::Staged { .. } => {}
        }
    }
}
