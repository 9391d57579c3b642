//! The sending half of a substitute: holds requests until their lane may take them.

use super::control::{LaneEnd, Message};
use super::service::IN_FLIGHT_MAX;
use super::{LANES_MAX, Role};
use crate::address::{Address, sequence_number};
use crate::connect::{ready_to_send, receive_mask};
use crate::context::VerbsContext;
use crate::ffi::IbvQpAttr;
use crate::ffi::IbvQpCap;
use crate::ffi::numbers::{QPS_ERR, QPT_RC, qp_attr};
use crate::objects::{Pair, PairParts};
use crate::posting::{check_send, fill_send, memory_target, opcode};
use crate::queues::{QueueName, SendEntry, SendQueue, WorkQueue};
use base::SlabKey;
use fabric::{
    Destination, FabricError, Operation, Payload, QpNumber, QueuePair, QueuePairState, ScatterGather, SendFlags,
    SendRequest, Transport, WcStatus, WorkCompletion,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests on one lane at once; the rest waits with us.
const LANE_DEPTH: u32 = 64;

/// Requests, and the lanes they go by.
#[derive(Default)]
pub(crate) struct Initiator {
    /// Not yet with the adapter, in order.
    held: VecDeque<HeldRequest>,
    lanes: Vec<Lane>,
    /// The lane in use, and how many requests it has.
    active: usize,
    outstanding: u32,
    opening: Option<Opening>,
    /// The peer has no queue for the head; it is told when all before it is over.
    refused: bool,
    /// Counts lanes taken into use; the smallest mark is the one not used for longest.
    uses: u64,
}

/// A reliable connection to one shared receive queue of the peer, or to none.
struct Lane {
    queue: Option<u32>,
    pair: Pair,
    sends: QueueName,
    /// The peer's end.
    peer: u32,
    last_use: u64,
}

/// A lane that the peer was asked for.
struct Opening {
    queue: Option<u32>,
    pair: Pair,
    sequence_number: u32,
}

/// A request whose bytes and lists are ours.
struct HeldRequest {
    id: u64,
    operation: Operation,
    payload: HeldPayload,
    flags: SendFlags,
    queue: Option<u32>,
}

enum HeldPayload {
    Memory(Vec<ScatterGather>),
    Inline(Vec<u8>),
}

impl HeldRequest {
    fn new(request: &SendRequest<'_>) -> Self {
        Self {
            id: request.id,
            operation: request.operation,
            payload: match request.payload {
                Payload::Memory(list) => HeldPayload::Memory(list.to_vec()),
                Payload::Inline(bytes) => HeldPayload::Inline(bytes.to_vec()),
            },
            flags: request.flags,
            queue: match request.destination {
                // Only what takes a receive goes to a queue.
                Destination::SharedReceiveQueue(number) if request.operation.takes_receive() => Some(number.0),
                _ => None,
            },
        }
    }

    fn request(&self) -> SendRequest<'_> {
        let payload = match &self.payload {
            HeldPayload::Memory(list) => Payload::Memory(list),
            HeldPayload::Inline(bytes) => Payload::Inline(bytes),
        };
        SendRequest { flags: self.flags, ..SendRequest::new(self.id, self.operation, payload) }
    }

    fn entry(&self) -> SendEntry {
        SendEntry {
            id: self.id,
            opcode: opcode(self.operation),
            bytes: self.request().payload.len_bytes(),
            signalled: self.flags.signalled,
        }
    }
}

/// What the request at the head of the queue needs.
enum Next {
    Wait,
    Open(Option<u32>),
    Post,
}

impl Initiator {
    fn lane_to(&self, queue: Option<u32>) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.queue == queue)
    }

    /// Decides about the head of the queue; a lane is left only when it is empty.
    fn next(&mut self) -> Next {
        let Some(head) = self.held.front() else { return Next::Wait };
        match self.lane_to(head.queue) {
            None if self.opening.is_some() || self.refused => Next::Wait,
            None => Next::Open(head.queue),
            Some(lane) if lane != self.active && self.outstanding > 0 => Next::Wait,
            Some(_) if self.outstanding >= LANE_DEPTH => Next::Wait,
            Some(lane) => {
                if lane != self.active {
                    self.uses += 1;
                    self.lanes[lane].last_use = self.uses;
                    self.active = lane;
                }
                Next::Post
            }
        }
    }

    /// Takes out the idle lane not used for longest, if there are too many.
    fn surplus(&mut self) -> Option<Lane> {
        if self.lanes.len() < LANES_MAX {
            return None;
        }
        let busy = if self.outstanding > 0 { Some(self.active) } else { None };
        let idle = (0..self.lanes.len()).filter(|lane| Some(*lane) != busy);
        let oldest = idle.min_by_key(|lane| self.lanes[*lane].last_use)?;
        let lane = self.lanes.swap_remove(oldest);
        // The last lane took the place of the one that went.
        if self.active == self.lanes.len() {
            self.active = oldest;
        } else if self.active == oldest {
            self.active = usize::MAX;
        }
        Some(lane)
    }
}

impl VerbsContext {
    /// Takes requests for a pair with a substitute.
    pub(crate) fn post_to_substitute(
        &mut self,
        qp: QueuePair,
        requests: &[SendRequest<'_>],
    ) -> Result<usize, FabricError> {
        let longest = self.capabilities.limits.message_max_bytes;
        let entry = self.pairs.get_mut(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        let attributes = entry.attributes;
        let Some(Role::Initiator(initiator)) = entry.substitute.as_mut().map(|substitute| &mut substitute.role) else {
            return Err(FabricError::NoSuch("queue pair that sends"));
        };
        let mut taken = 0;
        for request in requests {
            if initiator.held.len() + initiator.outstanding as usize >= attributes.send_depth as usize {
                break;
            }
            match check_send(&attributes, &self.routes, request, longest) {
                Ok(_) => initiator.held.push_back(HeldRequest::new(request)),
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
            taken += 1;
        }
        self.pump(qp.0);
        Ok(taken)
    }

    /// Hands requests to the adapter as far as order and room allow; flushes them once the pair has failed.
    pub(crate) fn pump(&mut self, key: SlabKey) {
        loop {
            let Some(entry) = self.pairs.get(key) else { return };
            let (failed, state) = (entry.failed, entry.state);
            let Some(initiator) = self.initiator_mut(key) else { return };
            if failed {
                let flushed = if initiator.outstanding == 0 { initiator.held.pop_front() } else { None };
                let Some(flushed) = flushed else { return };
                self.end(key, flushed.entry(), WcStatus::WorkRequestFlushed);
                continue;
            }
            if state != QueuePairState::ReadyToSend {
                return;
            }
            let carried_on = match initiator.next() {
                Next::Wait => return,
                Next::Open(queue) => self.ask_for_lane(key, queue),
                Next::Post if self.service.as_ref().is_none_or(|service| service.in_flight >= IN_FLIGHT_MAX) => return,
                Next::Post => self.post_head(key),
            };
            match carried_on {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => {
                    // The system refuses a queue pair or a request that was in order: nothing more goes this way.
                    self.end_head(key, WcStatus::GeneralError);
                    self.fail_substitute(key, true);
                }
            }
        }
    }

    /// Posts the head to the lane in use; false if the provider has no room.
    fn post_head(&mut self, key: SlabKey) -> Result<bool, FabricError> {
        let entry = self.pairs.get_mut(key).ok_or(FabricError::NoSuch("queue pair"))?;
        let Some(Role::Initiator(initiator)) = entry.substitute.as_mut().map(|substitute| &mut substitute.role) else {
            return Ok(false);
        };
        let (Some(head), Some(lane)) = (initiator.held.front(), initiator.lanes.get(initiator.active)) else {
            return Ok(false);
        };
        let Some(WorkQueue::Lane(_, queue)) = self.registry.get_mut(lane.sends) else { return Ok(false) };
        let (slot, _) = queue.push(head.entry());
        let scratch = &mut self.scratch;
        scratch.sends.clear();
        scratch.entries.clear();
        // Every request is reported, to us: only so do we know when the lane is empty.
        fill_send(scratch, &head.request(), memory_target(head.operation), lane.sends.request(slot), true);
        scratch.link_sends();
        // SAFETY: `link_sends` linked the chain; the gather list lies in `scratch.entries`, inline bytes in the head,
        // and both outlive the call.
        match unsafe { lane.pair.post_send(&mut scratch.sends) } {
            Ok(()) => {
                initiator.held.pop_front();
                initiator.outstanding += 1;
                if let Some(service) = &mut self.service {
                    service.in_flight += 1;
                }
                Ok(true)
            }
            Err((_, code)) => {
                queue.take_back(1);
                match code {
                    libc::ENOMEM | libc::EAGAIN if initiator.outstanding > 0 => Ok(false),
                    _ => Err(crate::objects::system("ibv_post_send", code)),
                }
            }
        }
    }

    /// Makes our end of a lane and asks the peer for its own.
    fn ask_for_lane(&mut self, key: SlabKey, queue: Option<u32>) -> Result<bool, FabricError> {
        let entry = self.pairs.get(key).ok_or(FabricError::NoSuch("queue pair"))?;
        let service = self.service.as_ref().ok_or(FabricError::NoSuch("service"))?;
        let attributes = &entry.attributes;
        let parts = PairParts {
            domain: Arc::clone(self.domain(attributes.protection_domain)?),
            send: Arc::clone(&service.completions),
            receive: Arc::clone(&service.completions),
            shared: None,
            extended: None,
        };
        let cap = IbvQpCap {
            max_send_wr: attributes.send_depth.clamp(1, LANE_DEPTH),
            max_recv_wr: 0,
            max_send_sge: attributes.send_entries_max.max(1),
            max_recv_sge: 0,
            max_inline_data: attributes.inline_max_bytes,
        };
        let pair = Pair::new(parts, QPT_RC, cap)?;
        self.init_lane(&pair, 0)?;
        let end = LaneEnd { number: pair.number(), sequence_number: sequence_number() };
        let Some(initiator) = self.initiator_mut(key) else { return Ok(false) };
        initiator.opening = Some(Opening { queue, pair, sequence_number: end.sequence_number });
        let surplus = initiator.surplus();
        let close = surplus.as_ref().map(|lane| lane.peer);
        if let Some(lane) = surplus {
            self.registry.remove(lane.sends);
        }
        self.tell(key, Message::Open { queue, end, close })?;
        Ok(false)
    }

    /// The peer made its end.
    pub(crate) fn lane_opened(&mut self, key: SlabKey, end: LaneEnd) -> Result<(), FabricError> {
        let unasked = FabricError::BadEndpoint("the peer opens a lane nobody asked for");
        let opening = self.initiator_mut(key).and_then(|initiator| initiator.opening.take()).ok_or(unasked)?;
        let entry = self.pairs.get(key).ok_or(FabricError::NoSuch("queue pair"))?;
        let substitute = entry.substitute.as_ref().ok_or(FabricError::NoSuch("substitute"))?;
        let peer = substitute.peer.ok_or(FabricError::NoSuch("peer"))?;
        let address = Address { sequence_number: end.sequence_number, ..peer };
        let attributes = self.receive_attributes(&address, end.number, substitute.receiver_not_ready_timer)?;
        opening.pair.modify(&attributes, receive_mask())?;
        let reads = self.reads_in_flight_max().min(peer.reads_in_flight);
        let (attributes, mask) = ready_to_send(
            Transport::ReliableConnection,
            (opening.sequence_number, reads),
            substitute.timeout,
            substitute.retry_count,
            substitute.receiver_not_ready_retry,
        );
        opening.pair.modify(&attributes, mask)?;
        let sends = self.registry.insert(WorkQueue::Lane(key, SendQueue::new(LANE_DEPTH)));
        if let Some(initiator) = self.initiator_mut(key) {
            let (queue, pair) = (opening.queue, opening.pair);
            initiator.uses += 1;
            let last_use = initiator.uses;
            initiator.lanes.push(Lane { queue, pair, sends, peer: end.number, last_use });
        }
        Ok(())
    }

    /// The peer has no such queue: what was sent to it ends as XRC would have it.
    pub(crate) fn lane_refused(&mut self, key: SlabKey) -> Result<(), FabricError> {
        let unasked = FabricError::BadEndpoint("the peer refuses a lane nobody asked for");
        self.initiator_mut(key).and_then(|initiator| initiator.opening.take()).ok_or(unasked)?;
        // Requests before it are over first: it was asked for while they may still have been under way.
        if let Some(initiator) = self.initiator_mut(key) {
            initiator.refused = true;
        }
        self.settle_refusal(key);
        Ok(())
    }

    /// Ends the head of the queue, which nobody took, once all before it is over.
    fn settle_refusal(&mut self, key: SlabKey) {
        let Some(initiator) = self.initiator_mut(key) else { return };
        if initiator.refused && initiator.outstanding == 0 {
            initiator.refused = false;
            self.end_head(key, WcStatus::RemoteInvalidRequest);
            self.fail_substitute(key, true);
        }
    }

    /// A request on a lane is over.
    pub(crate) fn lane_completed(&mut self, key: SlabKey, request: SendEntry, status: WcStatus) {
        if let Some(service) = &mut self.service {
            service.in_flight -= 1;
        }
        if let Some(initiator) = self.initiator_mut(key) {
            initiator.outstanding -= 1;
        }
        self.end(key, request, status);
        match status {
            WcStatus::Success => self.settle_refusal(key),
            _ => self.fail_substitute(key, true),
        }
    }

    /// Reports the end of the request at the head of the queue, if there is one.
    pub(crate) fn end_head(&mut self, key: SlabKey, status: WcStatus) {
        if let Some(head) = self.initiator_mut(key).and_then(|initiator| initiator.held.pop_front()) {
            self.end(key, head.entry(), status);
        }
    }

    fn end(&mut self, key: SlabKey, request: SendEntry, status: WcStatus) {
        let Some(entry) = self.pairs.get(key) else { return };
        if status == WcStatus::Success && !request.signalled {
            return;
        }
        let completion = WorkCompletion {
            id: request.id,
            status,
            opcode: request.opcode,
            bytes: if status == WcStatus::Success { request.bytes } else { 0 },
            qp: QpNumber(entry.pair.number()),
            ..WorkCompletion::default()
        };
        self.deliver(entry.attributes.send_completions, completion);
    }

    /// Moves all lanes to the error state; what is on them is flushed.
    pub(crate) fn flush_lanes(&mut self, key: SlabKey) {
        let attributes = IbvQpAttr { qp_state: QPS_ERR, ..IbvQpAttr::default() };
        if let Some(initiator) = self.initiator_mut(key) {
            initiator.opening = None;
            for lane in &initiator.lanes {
                // Refused only where there is nothing left to flush.
                let _ = lane.pair.modify(&attributes, qp_attr::STATE);
            }
        }
    }

    /// Forgets all lanes and requests of a pair that is reset or goes.
    pub(crate) fn remove_lanes(&mut self, key: SlabKey) {
        self.close_target_lanes(key, |_| true);
        let Some(initiator) = self.initiator_mut(key) else { return };
        let gone = std::mem::take(initiator);
        for lane in &gone.lanes {
            self.registry.remove(lane.sends);
        }
        if let Some(service) = &mut self.service {
            service.in_flight -= gone.outstanding;
        }
    }

    fn initiator_mut(&mut self, key: SlabKey) -> Option<&mut Initiator> {
        match &mut self.pairs.get_mut(key)?.substitute.as_mut()?.role {
            Role::Initiator(initiator) => Some(initiator),
            Role::Target(_) => None,
        }
    }
}
