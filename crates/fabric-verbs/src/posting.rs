//! Requests: from our words to chains of the library's structures.

use crate::choice::LinkLayer;
use crate::context::{Scratch, VerbsContext, within};
use crate::ffi::numbers::{send, wr};
use crate::ffi::{IbvRecvWr, IbvSendWr, IbvSendWrAtomic, IbvSendWrDatagram, IbvSendWrRdma, IbvSendWrTarget, IbvSge};
use crate::queues::SendEntry;
use base::Slab;
use fabric::{
    CompletionOpcode, Destination, FabricError, Operation, Payload, QueuePair, QueuePairAttributes, QueuePairState,
    ReceiveRequest, ScatterGather, SendRequest, SharedReceiveQueue, Transport,
};
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

/// Bytes that an atomic operation brings back.
const ATOMIC_BYTES: u64 = 8;

impl VerbsContext {
    pub(crate) fn post_sends(&mut self, qp: QueuePair, requests: &[SendRequest<'_>]) -> Result<usize, FabricError> {
        let entry = self.pairs.get(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        if !entry.attributes.transport.sends() {
            return Err(refuse("an XRC target does not send"));
        }
        if matches!(entry.state, QueuePairState::Reset | QueuePairState::Init | QueuePairState::ReadyToReceive) {
            return Err(FabricError::InvalidState { operation: "post_send", state: entry.state });
        }
        if entry.substitute.is_some() {
            return self.post_to_substitute(qp, requests);
        }
        let limits = &self.capabilities.limits;
        let longest = match (entry.attributes.transport, self.offer.link_layer) {
            (Transport::UnreliableDatagram, _) => u64::from(limits.datagram_max_bytes),
            (_, LinkLayer::Ethernet | LinkLayer::InfiniBand) => limits.message_max_bytes,
        };
        let queue = self.registry.send(entry.sends);
        let scratch = &mut self.scratch;
        scratch.sends.clear();
        scratch.entries.clear();
        // Refused requests stop the rest; the refusal is told if nothing went before it.
        let mut refusal = None;
        for request in requests.iter().take(queue.room()) {
            let target = match check_send(&entry.attributes, &self.routes, request, longest) {
                Ok(target) if target.srq_number == 0 => Target { srq_number: entry.memory_queue, ..target },
                Ok(target) => target,
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            };
            let (slot, report) = queue.push(SendEntry {
                id: request.id,
                opcode: opcode(request.operation),
                bytes: bytes(request),
                signalled: request.flags.signalled,
            });
            fill_send(scratch, request, target, entry.sends.request(slot), report);
        }
        let taken = scratch.sends.len();
        if taken == 0 {
            return refusal.map_or(Ok(0), Err);
        }
        scratch.link_sends();
        // SAFETY: `link_sends` linked the chain; gather lists lie in `scratch.entries` or are the caller's inline
        // bytes, address handles live in `self.routes`; all outlive the call, and the library keeps none of them.
        match unsafe { entry.pair.post_send(&mut scratch.sends) } {
            Ok(()) => Ok(taken),
            Err((place, code)) => {
                queue.take_back(taken - place);
                posted_before(place, code, "ibv_post_send")
            }
        }
    }

    pub(crate) fn post_receives(
        &mut self,
        qp: QueuePair,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError> {
        let entry = self.pairs.get(qp.0).ok_or(FabricError::NoSuch("queue pair"))?;
        let name = entry.receives.ok_or(FabricError::InvalidRequest {
            operation: "post_receive",
            reason: "the queue pair has no receive queue of its own",
        })?;
        if entry.state == QueuePairState::Reset {
            return Err(FabricError::InvalidState { operation: "post_receive", state: entry.state });
        }
        let queue = self.registry.receive(name);
        let scratch = &mut self.scratch;
        let refusal = fill_receives(scratch, requests, queue.room(), entry.attributes.receive_entries_max, |id| {
            name.request(queue.push(id))
        });
        let taken = scratch.receives.len();
        if taken == 0 {
            return refusal.map_or(Ok(0), Err);
        }
        // SAFETY: `fill_receives` linked the chain, whose lists lie in `scratch.entries`.
        let posted = match unsafe { entry.pair.post_receive(&mut scratch.receives) } {
            Ok(()) => Ok(taken),
            Err((place, code)) => {
                scratch.receives[place..].iter().for_each(|refused| {
                    queue.complete((refused.wr_id >> 32) as u32);
                });
                posted_before(place, code, "ibv_post_recv")
            }
        };
        if entry.failed || entry.state == QueuePairState::Error {
            // Some adapters flush what is in the queue when it fails, and not what comes later, until told again.
            self.flush(qp.0);
        }
        posted
    }

    pub(crate) fn post_to_shared(
        &mut self,
        queue: SharedReceiveQueue,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError> {
        let entry = self.shared.get(queue.0).ok_or(FabricError::NoSuch("shared receive queue"))?;
        let queue = self.registry.receive(entry.name);
        let scratch = &mut self.scratch;
        let refusal =
            fill_receives(scratch, requests, queue.room(), entry.entries_max, |id| entry.name.request(queue.push(id)));
        let taken = scratch.receives.len();
        if taken == 0 {
            return refusal.map_or(Ok(0), Err);
        }
        // SAFETY: `fill_receives` linked the chain, whose lists lie in `scratch.entries`.
        match unsafe { entry.queue.post(&mut scratch.receives) } {
            Ok(()) => Ok(taken),
            Err((place, code)) => {
                scratch.receives[place..].iter().for_each(|refused| {
                    queue.complete((refused.wr_id >> 32) as u32);
                });
                posted_before(place, code, "ibv_post_srq_recv")
            }
        }
    }
}

/// What the library is told about the peer's end.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    remote: IbvSendWrTarget,
    srq_number: u32,
}

fn refuse(reason: &'static str) -> FabricError {
    FabricError::InvalidRequest { operation: "post_send", reason }
}

pub(crate) fn check_send(
    attributes: &QueuePairAttributes,
    routes: &Slab<crate::context::RouteEntry>,
    request: &SendRequest<'_>,
    longest: u64,
) -> Result<Target, FabricError> {
    match request.payload {
        Payload::Inline(bytes) => {
            within("bytes of an inline payload", bytes.len() as u64, attributes.inline_max_bytes.into())?;
            if request.operation.returns_data() {
                return Err(refuse("what comes back needs registered memory"));
            }
        }
        Payload::Memory(list) => {
            within("entries of a gather list", list.len() as u64, attributes.send_entries_max.into())?;
        }
    }
    within("bytes of a message", request.payload.len_bytes(), longest)?;
    if matches!(opcode(request.operation), CompletionOpcode::FetchAdd | CompletionOpcode::CompareSwap)
        && request.payload.len_bytes() != ATOMIC_BYTES
    {
        return Err(refuse("an atomic operation brings back 8 bytes"));
    }
    let mut srq_number = 0;
    let remote = match (attributes.transport, request.destination) {
        (Transport::UnreliableDatagram, Destination::Datagram { address, qp, qkey }) => {
            if request.operation.remote().is_some() {
                return Err(refuse("datagrams only send"));
            }
            let route = routes.get(address.0).ok_or(FabricError::NoSuch("address handle"))?;
            let remote_qpn = if route.group.is_some() { 0xff_ffff } else { qp.0 };
            return Ok(Target {
                remote: IbvSendWrTarget {
                    ud: IbvSendWrDatagram { ah: route.route.raw(), remote_qpn, remote_qkey: qkey.0 },
                },
                srq_number,
            });
        }
        (Transport::UnreliableDatagram, _) => return Err(refuse("a datagram needs an address")),
        (Transport::XrcInitiator, Destination::SharedReceiveQueue(number)) => {
            srq_number = number.0;
            remote(request.operation)
        }
        (Transport::XrcInitiator, Destination::Connected) if !request.operation.takes_receive() => {
            remote(request.operation)
        }
        (Transport::XrcInitiator, _) => return Err(refuse("XRC needs the number of a shared receive queue")),
        (_, Destination::Connected) => remote(request.operation),
        (_, _) => return Err(refuse("a connection has one peer")),
    };
    Ok(Target { remote, srq_number })
}

/// The target of an operation on a reliable connection.
pub(crate) fn memory_target(operation: Operation) -> Target {
    Target { remote: remote(operation), srq_number: 0 }
}

fn remote(operation: Operation) -> IbvSendWrTarget {
    let atomic = |remote: fabric::RemoteMemory, compare_add, swap| IbvSendWrTarget {
        atomic: IbvSendWrAtomic { remote_addr: remote.address, compare_add, swap, rkey: remote.rkey.0 },
    };
    match operation {
        Operation::FetchAdd { remote, add } => atomic(remote, add, 0),
        Operation::CompareSwap { remote, compare, swap } => atomic(remote, compare, swap),
        Operation::RdmaWrite(remote) | Operation::RdmaWriteWithImmediate(remote, _) | Operation::RdmaRead(remote) => {
            IbvSendWrTarget { rdma: IbvSendWrRdma { remote_addr: remote.address, rkey: remote.rkey.0 } }
        }
        Operation::Send | Operation::SendWithImmediate(_) => IbvSendWrTarget { atomic: IbvSendWrAtomic::default() },
    }
}

pub(crate) fn opcode(operation: Operation) -> CompletionOpcode {
    match operation {
        Operation::Send | Operation::SendWithImmediate(_) => CompletionOpcode::Send,
        Operation::RdmaWrite(_) | Operation::RdmaWriteWithImmediate(..) => CompletionOpcode::RdmaWrite,
        Operation::RdmaRead(_) => CompletionOpcode::RdmaRead,
        Operation::FetchAdd { .. } => CompletionOpcode::FetchAdd,
        Operation::CompareSwap { .. } => CompletionOpcode::CompareSwap,
    }
}

fn library_opcode(operation: Operation) -> c_uint {
    match operation {
        Operation::Send => wr::SEND,
        Operation::SendWithImmediate(_) => wr::SEND_WITH_IMM,
        Operation::RdmaWrite(_) => wr::RDMA_WRITE,
        Operation::RdmaWriteWithImmediate(..) => wr::RDMA_WRITE_WITH_IMM,
        Operation::RdmaRead(_) => wr::RDMA_READ,
        Operation::FetchAdd { .. } => wr::ATOMIC_FETCH_AND_ADD,
        Operation::CompareSwap { .. } => wr::ATOMIC_CMP_AND_SWP,
    }
}

fn bytes(request: &SendRequest<'_>) -> u64 {
    request.payload.len_bytes()
}

/// Appends one request; links and list addresses follow in [`Scratch::link_sends`], when nothing moves any more.
pub(crate) fn fill_send(scratch: &mut Scratch, request: &SendRequest<'_>, target: Target, wr_id: u64, report: bool) {
    let flag = |wanted, flag| if wanted { flag } else { 0 };
    let mut send_flags = flag(report, send::SIGNALED)
        | flag(request.flags.fence, send::FENCE)
        | flag(request.flags.solicited, send::SOLICITED);
    let before = scratch.entries.len();
    match request.payload {
        Payload::Memory(list) => fill_list(&mut scratch.entries, list),
        Payload::Inline([]) => {}
        Payload::Inline(bytes) => {
            send_flags |= send::INLINE;
            let length = u32::try_from(bytes.len()).expect("checked against the limit");
            scratch.entries.push(IbvSge { addr: bytes.as_ptr() as u64, length, lkey: 0 });
        }
    }
    scratch.sends.push(IbvSendWr {
        wr_id,
        next: null_mut(),
        sg_list: null_mut(),
        num_sge: (scratch.entries.len() - before) as c_int,
        opcode: library_opcode(request.operation),
        send_flags,
        imm_data: request.operation.immediate().unwrap_or(0).to_be(),
        wr: target.remote,
        remote_srqn: target.srq_number,
        bind_or_tso: [0; 6],
    });
}

/// Empty pieces stay out: providers do not agree on what length 0 means.
fn fill_list(entries: &mut Vec<IbvSge>, list: &[ScatterGather]) {
    let pieces = list.iter().filter(|piece| piece.len_bytes > 0);
    entries.extend(pieces.map(|piece| IbvSge { addr: piece.address, length: piece.len_bytes, lkey: piece.lkey.0 }));
}

/// Fills and links the chain of receives; the refusal that ended it, if one did.
fn fill_receives(
    scratch: &mut Scratch,
    requests: &[ReceiveRequest<'_>],
    room: usize,
    entries_max: u32,
    mut number: impl FnMut(u64) -> u64,
) -> Option<FabricError> {
    scratch.receives.clear();
    scratch.entries.clear();
    let mut refusal = None;
    for request in requests.iter().take(room) {
        if let Err(error) = within("entries of a scatter list", request.list.len() as u64, entries_max.into()) {
            refusal = Some(error);
            break;
        }
        let before = scratch.entries.len();
        fill_list(&mut scratch.entries, request.list);
        scratch.receives.push(IbvRecvWr {
            wr_id: number(request.id),
            next: null_mut(),
            sg_list: null_mut(),
            num_sge: (scratch.entries.len() - before) as c_int,
        });
    }
    let mut list = scratch.entries.as_mut_ptr();
    let mut next = null_mut();
    for request in &mut scratch.receives {
        request.sg_list = list;
        // At most one past the end, behind the last request's list.
        list = list.wrapping_add(request.num_sge as usize);
    }
    for request in scratch.receives.iter_mut().rev() {
        request.next = next;
        next = request;
    }
    refusal
}

impl Scratch {
    /// Points each request at its list and at the next request.
    pub(crate) fn link_sends(&mut self) {
        let mut list = self.entries.as_mut_ptr();
        for request in &mut self.sends {
            request.sg_list = list;
            // At most one past the end, behind the last request's list.
            list = list.wrapping_add(request.num_sge as usize);
        }
        let mut next = null_mut();
        for request in self.sends.iter_mut().rev() {
            request.next = next;
            next = request;
        }
    }
}

/// What to say when the provider stopped at `place`: a full queue is no error, nor is anything after a success.
fn posted_before(place: usize, code: c_int, operation: &'static str) -> Result<usize, FabricError> {
    match code {
        _ if place > 0 => Ok(place),
        libc::ENOMEM | libc::EAGAIN => Ok(0),
        _ => Err(crate::objects::system(operation, code)),
    }
}
