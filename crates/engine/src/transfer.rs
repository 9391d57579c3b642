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

use base::SlabKey;
use base::config::Rendezvous;
use base::memory::WriteRange;
use datatype::SendBuf;
use fabric::{Access, LocalMemory, MemoryRegion, Operation, RemoteMemory, WcStatus, WorkCompletion};
use protocol::registration::Registration;
use protocol::rendezvous::RdmaPlan;
use protocol::wire::Message;

use crate::core::Core;
use crate::port::{Posted, Work};
use crate::request::{Completion, IncomingWay, Outcome, PeerId, Request, State};
use crate::scattered::Held;

/// Bytes of one read or write.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces of one message under way at once.
const PIECES_MAX: u32 = 8;

/// A long message that this side moves.
pub(crate) struct Transfer {
    peer: PeerId,
    /// The send's request, or the receive's.
    request: SlabKey,
    local: MemoryRegion,
    remote: RemoteMemory,
    /// Bytes posted so far, and in all.
    next: u64,
    len_bytes: u64,
    /// Pieces posted and not complete.
    under_way: u32,
    direction: Direction,
    failed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Get,
    /// With the number that the receiver wants to be told.
    Put(u32),
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
        let plan = self.thresholds.plan_rdma(len_bytes, prefers_reads);
        let access = match plan {
            RdmaPlan::Staged => return None,
            RdmaPlan::Get => Access::LOCAL,
            RdmaPlan::Put => Access::REMOTE_WRITE,
        };
        // Out of regions: the message goes through the channel.
        let held = self.register_for(peer, LocalMemory::Target(range), access)?;
        if plan == RdmaPlan::Put {
            let number = receive.index();
            self.send_control(peer, Message::ClearWrite { send, number, target: held.region.remote(0) });
            return Some(IncomingWay::Put { held });
        }
        let local = held.region;
        self.start_transfer(Transfer {
            peer,
            request: receive,
            local,
            remote,
            next: 0,
            len_bytes,
            under_way: 0,
            direction: Direction::Get,
            failed: false,
        });
        Some(IncomingWay::Get { held })
    }

    /// The receiver wants a message written.
    pub(crate) fn arrive_clear_write(&mut self, peer: PeerId, send: u64, number: u32, target: RemoteMemory) {
        let key = SlabKey::from_bits(send);
        let known = self.outgoing_to(peer, key).and_then(|send| match send.region? {
            Held::Posted(registration) => Some((registration.region, send.envelope.len_bytes)),
            Held::Whole(_) | Held::Span(_) => None,
        });
        let Some((local, len_bytes)) = known else { return self.refuse() };
        self.start_transfer(Transfer {
            peer,
            request: key,
            local,
            remote: target,
            next: 0,
            len_bytes,
            under_way: 0,
            direction: Direction::Put(number),
            failed: false,
        });
    }

    fn start_transfer(&mut self, transfer: Transfer) {
        let key = self.transfers.insert(transfer);
        self.posting.push_back(key);
        self.post_transfers();
    }

    /// Posts pieces while there is room; true if any was.
    pub(crate) fn post_transfers(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.posting.len() {
            let Some(key) = self.posting.pop_front() else { break };
            while self.post_piece(key) {
                moved = true;
            }
            if self.transfers.get(key).is_some_and(|transfer| transfer.next < transfer.len_bytes && !transfer.failed) {
                self.posting.push_back(key);
            }
        }
        moved
    }

    fn post_piece(&mut self, key: SlabKey) -> bool {
        let (Some(transfer), Some(port)) = (self.transfers.get_mut(key), self.port.as_mut()) else { return false };
        let left = transfer.len_bytes - transfer.next;
        if left == 0 || transfer.under_way >= PIECES_MAX || transfer.failed {
            return false;
        }
        let len = left.min(PIECE_BYTES);
        let remote =
            RemoteMemory { address: transfer.remote.address.wrapping_add(transfer.next), rkey: transfer.remote.rkey };
        let operation = match transfer.direction {
            Direction::Get => Operation::RdmaRead(remote),
            Direction::Put(number) if len == left => Operation::RdmaWriteWithImmediate(remote, number),
            Direction::Put(_) => Operation::RdmaWrite(remote),
        };
        let part = transfer.local.part(transfer.next, len as u32);
        match port.post_transfer(transfer.peer, Work::Transfer(key.index()), operation, part) {
            Posted::Gone => {
                transfer.next += len;
                transfer.under_way += 1;
                true
            }
            Posted::Later => false,
            Posted::Never => {
                // The loss of the peer ends the requests.
                transfer.failed = true;
                if transfer.under_way == 0 {
                    self.transfers.remove(key);
                }
                false
            }
        }
    }

    /// A piece has been moved, or was not.
    pub(crate) fn end_piece(&mut self, number: u32, completion: &WorkCompletion) {
        let Some(key) = self.transfers.key_at(number) else { return };
        let (Some(transfer), Some(port)) = (self.transfers.get_mut(key), self.port.as_mut()) else { return };
        port.transfer_ended(transfer.peer, completion);
        transfer.under_way -= 1;
        transfer.failed |= completion.status != WcStatus::Success;
        if transfer.under_way > 0 || transfer.next < transfer.len_bytes && !transfer.failed {
            return;
        }
        let Some(Transfer { peer, request, direction, failed, .. }) = self.transfers.remove(key) else { return };
        if failed {
            return;
        }
        match direction {
            Direction::Get => self.finish_rdma(request, peer),
            Direction::Put(_) => {
                if let Some(send) = self.outgoing_to(peer, request) {
                    let envelope = send.envelope;
                    self.finish_send(request, Completion { envelope, outcome: Outcome::Done });
                }
            }
        }
    }

    /// The peer has written the last piece of the message for the receive at place `number`.
    pub(crate) fn arrive_written(&mut self, peer: PeerId, number: u32) {
        let key = self.requests.key_at(number);
        let is_put = |key: &SlabKey| {
            matches!(
                self.requests.get(*key),
                Some(Request { state: State::Incoming(incoming), .. })
                    if incoming.envelope.peer == peer && matches!(incoming.way, IncomingWay::Put { .. })
            )
        };
        match key.filter(is_put) {
            Some(key) => self.finish_rdma(key, peer),
            None => self.refuse(),
        }
    }

    /// A receive by RDMA has everything.
    fn finish_rdma(&mut self, key: SlabKey, peer: PeerId) {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get(key) else { return };
        let (envelope, send) = (incoming.envelope, incoming.send);
        let get = matches!(incoming.way, IncomingWay::Get { .. });
        self.release_incoming(key);
        if get {
            self.stats.get_received += 1;
            self.send_control(peer, Message::Finished { send });
        } else {
            self.stats.put_received += 1;
        }
        self.complete(key, Completion { envelope, outcome: Outcome::Done });
    }

    /// Gives the registration of a receive by RDMA back.
    pub(crate) fn release_incoming(&mut self, key: SlabKey) {
        if let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get(key)
            && let IncomingWay::Get { held } | IncomingWay::Put { held } = incoming.way
            && let Some(port) = &mut self.port
        {
            port.release(held);
        }
    }
}
