//! The target's half: requests that arrive are checked, placed and answered.
//!
//! ```text
//!   initiator                          target
//!   request, sequence n ───────────▶   n is expected: check, place, answer; expect n + 1
//!           ◀─────────── Acknowledge n (and all before), ReadResponse, AtomicResponse
//!           ◀─────────── Refuse n: not ready  (n is expected still; n + 1 … are dropped until it comes again)
//!           ◀─────────── Ready                (a receive was posted: come again now)
//!           ◀─────────── Refuse n: access …   (both queue pairs are in the error state)
//! ```
//! Sends of queue pairs with independent queues come in lines of their own (`lines`). Links keep order, so a gap in the sequence only ever follows a refusal.

use base::memory::WriteRange;
use base::sync::Ordering;
use fabric::{
    CompletionOpcode, CompletionQueue, MulticastGroup, Operation, QpNumber, Transport, WcStatus, WorkCompletion,
};

use super::core::{Answer, Core, flushed};
use super::queue_pair::{QueuePairObject, WINDOW_MAX};
use super::regions::{RemoteUse, Targets};
use super::riding::Patience;
use crate::copying;
use crate::link::{HEADER_BYTES, LinkPeer, Placement, Responder};
use crate::numbered::number_of;
use crate::wire::{self, Kind, Packet, Refusal};

/// Bytes in front of a datagram in its receive: the global route header's place.
pub(super) const DATAGRAM_HEADER_BYTES: usize = 40;

/// A receive that is being filled.
struct Filling {
    completions: CompletionQueue,
    completion: WorkCompletion,
    solicited: bool,
    /// The request to be answered, if it wants an answer.
    acknowledge: Option<Owed>,
    /// It came from a shared queue, and ends with a completion even if its queue pair is gone by then.
    is_shared: bool,
}

/// A receive that a message has taken: how it completes, and where the bytes go.
struct Matched {
    completions: CompletionQueue,
    completion: WorkCompletion,
    targets: Targets,
}

/// An acknowledgement that is owed when the bytes have come.
#[derive(Clone, Copy)]
struct Owed {
    sequence: u32,
    /// Of a line of sends to this queue.
    queue: Option<u32>,
    patience: Patience,
}

impl Owed {
    fn of(packet: &Packet) -> Self {
        let queue = packet.kind.is_of_line().then_some(packet.selector);
        Self { sequence: packet.sequence, queue, patience: Patience::of(packet) }
    }
}

/// What to do when a payload has come.
pub(super) struct Arriving {
    qp: u32,
    epoch: u32,
    then: Then,
}

enum Then {
    /// A receive is filled.
    Receive(Filling),
    /// The request is answered, at once or in a moment.
    Acknowledge(Owed),
    /// What our own read asked for.
    Brought,
    /// Datagrams for everybody in a group are copied from here.
    Group { packet: Packet, bytes: Vec<u8> },
}

impl Responder for Core {
    fn begin(&mut self, from: LinkPeer, header: &[u8; HEADER_BYTES], payload_bytes: u64) -> Placement {
        let begun = self.begin_packet(from, header, payload_bytes);
        let state = self.peer(from);
        let Some((arriving, placement)) = begun else {
            state.arriving = None;
            return Placement::discard();
        };
        state.arriving = Some(arriving);
        placement
    }

    fn bring(&mut self, from: LinkPeer, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        let Some(packet) = self.unpack(from, header, payload.len() as u64) else { return };
        match packet.kind {
            Kind::Write => return self.bring_write(from, &packet, payload),
            Kind::Send => return self.bring_send(from, &packet, payload),
            _ => {}
        }
        if let Some((arriving, placement)) = self.begin_unpacked(from, &packet) {
            copying::scatter_in_order(payload, &placement.ranges);
            self.end_packet(arriving);
        }
    }

    fn finish(&mut self, from: LinkPeer) {
        if let Some(arriving) = self.peer(from).arriving.take() {
            self.end_packet(arriving);
        }
    }

    fn lost(&mut self, peer: LinkPeer) {
        let state = self.peer(peer);
        state.is_lost = true;
        state.answers.clear();
        let arriving = state.arriving.take();
        self.forget_fresh(peer);
        self.abandon_shown(peer);
        if let Some(Arriving { qp, then: Then::Receive(Filling { completions, completion, .. }), .. }) = arriving {
            self.complete(completions, flushed(qp, completion.id, completion.opcode), false);
        }
        self.broken(peer);
    }

    fn is_armed(&self) -> bool {
        self.completions.iter().any(|(_, queue)| queue.is_armed())
    }

    fn broken(&mut self, peer: LinkPeer) {
        let its: Vec<u32> =
            self.queue_pairs.iter().filter(|(_, qp)| qp.peer == Some(peer)).map(|(number, _)| number).collect();
        for number in its {
            // The request under way tells why; the others are flushed.
            let in_flight = self.queue_pairs.get(number).is_some_and(|qp| qp.started > 0);
            if in_flight {
                self.end_send(number, WcStatus::TransportRetryExceeded);
            } else {
                self.end_lines(number, WcStatus::TransportRetryExceeded);
            }
            self.fail(number);
        }
    }
}

type Begun = Option<(Arriving, Placement)>;

impl Core {
    /// What to do with a packet, and where its payload goes; `None` if it goes nowhere.
    fn begin_packet(&mut self, from: LinkPeer, header: &[u8; HEADER_BYTES], payload_bytes: u64) -> Begun {
        let packet = self.unpack(from, header, payload_bytes)?;
        self.begin_unpacked(from, &packet)
    }

    /// The packet behind a header, if it is one; the acknowledgement that rides in it is taken out.
    #[inline]
    fn unpack(&mut self, from: LinkPeer, header: &[u8; HEADER_BYTES], payload_bytes: u64) -> Option<Packet> {
        self.begun_packets += 1;
        let packet = wire::parse(header).filter(|packet| {
            let bytes = if packet.kind.has_payload() { packet.len_bytes } else { 0 };
            bytes == payload_bytes
        });
        let Some(packet) = packet else {
            self.refused_packets += 1;
            return None;
        };
        if let Some(sequence) = packet.acknowledged {
            // It says what a packet of its own would have said before this one.
            if self.knows(from, &packet) {
                self.acknowledged(packet.destination, sequence);
            }
        }
        Some(packet)
    }

    fn begin_unpacked(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        match packet.kind {
            Kind::Datagram => self.begin_datagram(packet),
            kind if kind.is_request() => self.begin_request(from, packet),
            _ => self.begin_answer(from, packet),
        }
    }

    /// A write that is here already.
    #[inline]
    fn bring_write(&mut self, from: LinkPeer, packet: &Packet, payload: &[u8]) {
        if !self.takes(from, packet) {
            return;
        }
        let Some(placement) = self.place_of_write(packet) else {
            self.refuse_for_good(from, packet, Refusal::Access);
            return;
        };
        copying::scatter_in_order(payload, &placement.ranges);
        self.expect_next(packet);
        self.acknowledge(packet.destination, Owed::of(packet));
    }

    /// A send that is here already.
    fn bring_send(&mut self, from: LinkPeer, packet: &Packet, payload: &[u8]) {
        if !self.takes(from, packet) {
            return;
        }
        let selected = match self.selected(packet) {
            Ok(selected) => selected,
            Err(refusal) => {
                self.refuse_for_good(from, packet, refusal);
                return;
            }
        };
        let Some(Matched { completions, completion, targets }) = self.match_receive(from, packet, selected) else {
            return;
        };
        copying::scatter_in_order(payload, &targets);
        self.expect_next(packet);
        self.complete(completions, completion, packet.solicited);
        self.acknowledge(packet.destination, Owed::of(packet));
    }

    /// The payload of a packet is where it belongs.
    fn end_packet(&mut self, Arriving { qp: number, epoch, then }: Arriving) {
        let is_alive = self.queue_pairs.get(number).is_some_and(|qp| qp.epoch == epoch && qp.is_taking());
        match then {
            Then::Receive(Filling { completions, completion, solicited, acknowledge, is_shared }) => {
                if !is_alive {
                    // It failed while the bytes came: now that they do not any more, the receive is flushed as the
                    // others were.
                    let posted_here = self.queue_pairs.get(number).is_some_and(|qp| qp.epoch == epoch);
                    if posted_here || is_shared {
                        self.complete(completions, flushed(number, completion.id, completion.opcode), false);
                    }
                    return;
                }
                self.complete(completions, completion, solicited);
                if let Some(owed) = acknowledge {
                    self.acknowledge(number, owed);
                }
            }
            Then::Acknowledge(owed) if is_alive => self.acknowledge(number, owed),
            Then::Brought if is_alive => {
                self.end_send(number, WcStatus::Success);
                self.list(number);
            }
            Then::Acknowledge(..) | Then::Brought => {}
            Then::Group { packet, bytes } => self.spread(packet, &bytes),
        }
    }

    /// Whether a request is the next one of a queue pair that takes it; one that is not is refused.
    #[inline]
    fn takes(&mut self, from: LinkPeer, packet: &Packet) -> bool {
        let number = packet.destination;
        let Some(qp) = self.queue_pairs.get(number) else {
            self.refuse(from, packet, Refusal::Gone);
            return false;
        };
        if !qp.is_taking() || !qp.is_connected_to(from, packet.source) {
            use fabric::QueuePairState::{Init, Reset};
            let is_early = matches!(qp.state, Reset | Init);
            self.refuse(from, packet, if is_early { Refusal::NotConnected } else { Refusal::Gone });
            return false;
        }
        if !packet.kind.is_of_line() && packet.sequence != qp.expected {
            // It follows one that was refused, and comes again after it.
            return false;
        }
        if qp.unsent_answers > WINDOW_MAX {
            self.refused_packets += 1;
            self.refuse_for_good(from, packet, Refusal::Invalid);
            return false;
        }
        true
    }

    fn begin_request(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        if !self.takes(from, packet) {
            return None;
        }
        match packet.kind {
            Kind::Send => self.begin_send(from, packet),
            Kind::QueueSend | Kind::QueueHeader => self.begin_line_send(from, packet),
            Kind::Write | Kind::WriteWithImmediate => self.begin_write(from, packet),
            Kind::Read => self.read(from, packet),
            _ => self.atomic(from, packet),
        }
    }

    fn expect_next(&mut self, packet: &Packet) -> u32 {
        let Some(qp) = self.queue_pairs.get_mut(packet.destination) else { return 0 };
        qp.expected = qp.expected.wrapping_add(u32::from(!packet.kind.is_of_line()));
        qp.epoch
    }

    /// The shared receive queue that an XRC message names, if it may; `Err` if it may not.
    fn selected(&self, packet: &Packet) -> Result<Option<u32>, Refusal> {
        let Some(qp) = self.queue_pairs.get(packet.destination) else { return Err(Refusal::Gone) };
        match qp.attributes.transport {
            Transport::XrcTarget(domain) => match self.shared.get(packet.selector).and_then(|shared| shared.xrc) {
                Some((its, _)) if its == number_of(domain.0) => Ok(Some(packet.selector)),
                _ => Err(Refusal::Invalid),
            },
            Transport::XrcInitiator => Err(Refusal::Invalid),
            _ => Ok(None),
        }
    }

    fn begin_send(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        let selected = match self.selected(packet) {
            Ok(selected) => selected,
            Err(refusal) => return self.refuse_for_good(from, packet, refusal),
        };
        self.fill_receive(from, packet, selected)
    }

    /// As [`Core::begin_send`], for a send that waits for no other queue: it is parked until there is a receive that is
    /// long enough.
    fn begin_line_send(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        let queue = match self.selected(packet) {
            Ok(Some(queue)) => queue,
            Ok(None) => return self.refuse_for_good(from, packet, Refusal::Invalid),
            Err(refusal) => return self.refuse_for_good(from, packet, refusal),
        };
        if self.is_behind_parked(packet) {
            return None;
        }
        let (is_header, has_receive) =
            (packet.kind == Kind::QueueHeader, self.has_receive_for(queue, packet.len_bytes));
        match (is_header, has_receive) {
            (true, true) => self.answer(from, Answer::at_once(reply(packet, Kind::QueueReady))),
            (true, false) => self.park(packet),
            (false, false) => {
                self.park(packet);
                self.refuse(from, packet, Refusal::ReceiverNotReady);
            }
            (false, true) => {
                self.unpark(packet);
                let begun = self.fill_receive(from, packet, Some(queue));
                self.call_next(queue);
                return begun;
            }
        }
        None
    }

    /// A send takes its receive, which is filled.
    fn fill_receive(&mut self, from: LinkPeer, packet: &Packet, selected: Option<u32>) -> Begun {
        let number = packet.destination;
        let Matched { completions, completion, targets } = self.match_receive(from, packet, selected)?;
        let epoch = self.expect_next(packet);
        let (solicited, acknowledge) = (packet.solicited, Some(Owed::of(packet)));
        let is_shared = self.shared_queue(number, selected).is_some();
        let then = Then::Receive(Filling { completions, completion, solicited, acknowledge, is_shared });
        Some((Arriving { qp: number, epoch, then }, Placement { ranges: targets }))
    }

    /// A send takes its receive; `None` if there is none, or none that it can fill.
    #[inline]
    fn match_receive(&mut self, from: LinkPeer, packet: &Packet, selected: Option<u32>) -> Option<Matched> {
        let number = packet.destination;
        let Some((receive, completions)) = self.take_receive(number, selected) else {
            self.not_ready(from, packet, selected);
            return None;
        };
        let mut completion = WorkCompletion {
            id: receive.id,
            opcode: CompletionOpcode::Receive,
            bytes: packet.len_bytes,
            immediate: packet.immediate,
            qp: QpNumber(number),
            ..WorkCompletion::default()
        };
        let capacity = receive.capacity_bytes();
        let domain = self.receiving_domain(number, selected);
        let (status, refusal) = match receive.targets(&self.regions, domain) {
            Some(targets) if capacity >= packet.len_bytes => return Some(Matched { completions, completion, targets }),
            Some(_) => (WcStatus::LocalLengthError, Refusal::Invalid),
            None => (WcStatus::LocalProtectionError, Refusal::Operation),
        };
        completion = WorkCompletion { status, bytes: 0, immediate: None, ..completion };
        self.complete(completions, completion, true);
        self.refuse_for_good(from, packet, refusal);
        None
    }

    /// The shared queue whose receives a message through `number` fills, if it is one.
    fn shared_queue(&self, number: u32, selected: Option<u32>) -> Option<u32> {
        selected.or_else(|| self.queue_pairs.get(number)?.shared)
    }

    /// The protection domain of the receives a message through `number` fills.
    fn receiving_domain(&self, number: u32, selected: Option<u32>) -> u32 {
        let shared = self.shared_queue(number, selected).and_then(|shared| self.shared.get(shared));
        let own = || self.queue_pairs.get(number).map_or(0, QueuePairObject::domain);
        shared.map_or_else(own, |shared| shared.domain)
    }

    /// Where a write goes; `None` if it may not go there.
    #[inline]
    fn place_of_write(&self, packet: &Packet) -> Option<Placement> {
        let qp = self.queue_pairs.get(packet.destination)?;
        let target =
            if qp.access.remote_write { self.regions.remote_target(remote(packet, qp.domain())) } else { None };
        // Zero bytes name no memory.
        target.map(Placement::of).or_else(|| (packet.len_bytes == 0).then(Placement::discard))
    }

    fn begin_write(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        let number = packet.destination;
        let Some(placement) = self.place_of_write(packet) else {
            return self.refuse_for_good(from, packet, Refusal::Access);
        };
        if packet.kind == Kind::Write {
            let epoch = self.expect_next(packet);
            return Some((Arriving { qp: number, epoch, then: Then::Acknowledge(Owed::of(packet)) }, placement));
        }
        let selected = match self.selected(packet) {
            Ok(selected) => selected,
            Err(refusal) => return self.refuse_for_good(from, packet, refusal),
        };
        let Some((receive, completions)) = self.take_receive(number, selected) else {
            return self.not_ready(from, packet, selected);
        };
        let completion = WorkCompletion {
            id: receive.id,
            opcode: CompletionOpcode::ReceiveRdmaWithImmediate,
            bytes: packet.len_bytes,
            immediate: packet.immediate,
            qp: QpNumber(number),
            ..WorkCompletion::default()
        };
        let epoch = self.expect_next(packet);
        let (solicited, acknowledge) = (packet.solicited, Some(Owed::of(packet)));
        let is_shared = self.shared_queue(number, selected).is_some();
        let then = Then::Receive(Filling { completions, completion, solicited, acknowledge, is_shared });
        Some((Arriving { qp: number, epoch, then }, placement))
    }

    fn read(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        let number = packet.destination;
        let qp = self.queue_pairs.get(number)?;
        let wanted = remote(packet, qp.domain());
        let allowed = packet.len_bytes == 0 || qp.access.remote_read && self.regions.remote_source(wanted).is_some();
        if !allowed {
            return self.refuse_for_good(from, packet, Refusal::Access);
        }
        self.expect_next(packet);
        let mut answer = reply(packet, Kind::ReadResponse);
        answer.len_bytes = packet.len_bytes;
        let bytes = (packet.len_bytes > 0).then_some(wanted);
        self.answer(from, Answer { bytes, ..Answer::at_once(answer) });
        None
    }

    fn atomic(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        let number = packet.destination;
        let qp = self.queue_pairs.get(number)?;
        if !packet.address.is_multiple_of(8) {
            return self.refuse_for_good(from, packet, Refusal::Invalid);
        }
        let word = self.regions.remote_word(remote(packet, qp.domain())).filter(|_| qp.access.remote_atomic);
        let Some(word) = word else { return self.refuse_for_good(from, packet, Refusal::Access) };
        let [first, second] = packet.operands;
        // AcqRel: what was written before the atomic is seen by whoever sees its effect.
        let before = match packet.kind {
            Kind::FetchAdd => word.fetch_add(first, Ordering::AcqRel),
            _ => match word.compare_exchange(first, second, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) | Err(before) => before,
            },
        };
        self.expect_next(packet);
        let mut answer = reply(packet, Kind::AtomicResponse);
        answer.operands[0] = before;
        self.answer(from, Answer::at_once(answer));
        None
    }

    /// Whether an answer comes from where our requests go; one that does not is counted.
    #[inline]
    fn knows(&mut self, from: LinkPeer, packet: &Packet) -> bool {
        let is_known =
            self.queue_pairs.get(packet.destination).is_some_and(|qp| qp.is_connected_to(from, packet.source));
        self.refused_packets += u64::from(!is_known);
        is_known
    }

    /// An answer to a request of ours; only what a read brings has a payload.
    fn begin_answer(&mut self, from: LinkPeer, packet: &Packet) -> Begun {
        let number = packet.destination;
        if !self.knows(from, packet) {
            return None;
        }
        if packet.kind != Kind::ReadResponse {
            self.answered(number, packet);
            return None;
        }
        let offset = self.queue_pairs.get(number)?.in_flight(packet.sequence)?;
        self.end_sends(number, offset);
        let qp = self.queue_pairs.get(number)?;
        let first = qp.sends.front()?;
        if !matches!(first.operation, Operation::RdmaRead(_)) || first.len_bytes != packet.len_bytes {
            self.end_send(number, WcStatus::BadResponse);
            return None;
        }
        let Some(targets) = self.regions.targets(qp.domain(), &first.list) else {
            self.end_send(number, WcStatus::LocalProtectionError);
            return None;
        };
        Some((Arriving { qp: number, epoch: qp.epoch, then: Then::Brought }, Placement { ranges: targets }))
    }

    fn begin_datagram(&mut self, packet: &Packet) -> Begun {
        if let Some(len) = group_of(packet).map(|_| packet.len_bytes as usize) {
            let mut bytes = vec![0u8; len];
            // SAFETY: the vector's memory stays where it is while it is moved into `Arriving`, which lives until the
            // link has finished the packet or has forgotten it.
            let range = unsafe { WriteRange::new(bytes.as_mut_ptr(), len) };
            let then = Then::Group { packet: *packet, bytes };
            return Some((Arriving { qp: 0, epoch: 0, then }, Placement::of(range)));
        }
        let number = packet.destination;
        let Matched { completions, completion, targets } = self.receive_datagram(number, packet)?;
        let epoch = self.queue_pairs.get(number)?.epoch;
        let (solicited, is_shared) = (packet.solicited, self.shared_queue(number, None).is_some());
        let then = Then::Receive(Filling { completions, completion, solicited, acknowledge: None, is_shared });
        Some((Arriving { qp: number, epoch, then }, Placement { ranges: targets }))
    }

    /// Hands a datagram to every queue pair in its group.
    fn spread(&mut self, packet: Packet, bytes: &[u8]) {
        let Some(group) = group_of(&packet) else { return };
        let members: Vec<u32> =
            self.queue_pairs.iter().filter(|(_, qp)| qp.groups.contains(&group)).map(|(number, _)| number).collect();
        for number in members {
            if let Some(Matched { completions, completion, targets }) = self.receive_datagram(number, &packet) {
                copying::scatter(bytes, &targets);
                self.complete(completions, completion, packet.solicited);
            }
        }
    }

    /// A receive for a datagram; without one, or with too short a one, the datagram is dropped.
    fn receive_datagram(&mut self, number: u32, packet: &Packet) -> Option<Matched> {
        let qp = self.queue_pairs.get(number)?;
        let takes =
            qp.attributes.transport == Transport::UnreliableDatagram && qp.is_taking() && qp.qkey.0 == packet.selector;
        if !takes {
            self.refused_packets += 1;
            return None;
        }
        let domain = self.receiving_domain(number, None);
        let (receive, completions) = self.take_receive(number, None)?;
        let mut completion = WorkCompletion {
            id: receive.id,
            opcode: CompletionOpcode::Receive,
            bytes: packet.len_bytes + DATAGRAM_HEADER_BYTES as u64,
            immediate: packet.immediate,
            qp: QpNumber(number),
            source: Some(QpNumber(packet.source)),
            ..WorkCompletion::default()
        };
        let capacity = receive.capacity_bytes();
        let targets = receive.targets(&self.regions, domain);
        let status = match &targets {
            Some(_) if capacity >= completion.bytes => WcStatus::Success,
            Some(_) => WcStatus::LocalLengthError,
            None => WcStatus::LocalProtectionError,
        };
        if status != WcStatus::Success {
            completion = WorkCompletion { status, bytes: 0, immediate: None, source: None, ..completion };
            self.complete(completions, completion, true);
            self.fail(number);
            return None;
        }
        let targets = copying::behind(&targets.unwrap_or_default(), DATAGRAM_HEADER_BYTES);
        Some(Matched { completions, completion, targets })
    }

    fn acknowledge(&mut self, number: u32, Owed { sequence, queue, patience }: Owed) {
        let Some(qp) = self.queue_pairs.get(number) else { return };
        let (Some(peer), through) = (qp.peer, (number, qp.remote)) else { return };
        if queue.is_none() && self.keeps_fresh(peer, through, (sequence, patience)) {
            return;
        }
        let kind = if queue.is_some() { Kind::QueueAcknowledge } else { Kind::Acknowledge };
        let packet = Packet { selector: queue.unwrap_or(0), ..Packet::new(kind, through.0, through.1, sequence) };
        self.answer(peer, Answer { packet, bytes: None, patience });
    }

    fn not_ready(&mut self, from: LinkPeer, packet: &Packet, selected: Option<u32>) -> Begun {
        let number = packet.destination;
        if let Some(queue) = self.receive_queue(number, selected) {
            queue.wait(number);
        }
        self.refuse(from, packet, Refusal::ReceiverNotReady);
        None
    }

    /// Both queue pairs go to the error state.
    fn refuse_for_good(&mut self, from: LinkPeer, packet: &Packet, refusal: Refusal) -> Begun {
        self.refuse(from, packet, refusal);
        self.fail(packet.destination);
        None
    }

    fn refuse(&mut self, from: LinkPeer, packet: &Packet, refusal: Refusal) {
        let kind = if packet.kind.is_of_line() { Kind::QueueRefuse } else { Kind::Refuse };
        let mut answer = reply(packet, kind);
        answer.refusal = refusal;
        if let Some(qp) = self.queue_pairs.get(packet.destination) {
            answer.operands[0] = qp.receiver_not_ready_timer.as_nanos() as u64;
        }
        self.answer(from, Answer::at_once(answer));
    }
}

fn reply(packet: &Packet, kind: Kind) -> Packet {
    let selector = if kind.is_of_line() { packet.selector } else { 0 };
    Packet { selector, ..Packet::new(kind, packet.destination, packet.source, packet.sequence) }
}

fn remote(packet: &Packet, domain: u32) -> RemoteUse {
    RemoteUse { domain, rkey: packet.rkey, address: packet.address, len_bytes: packet.len_bytes }
}

/// The destination that means a group.
pub(super) const EVERYBODY: u32 = 0x00ff_ffff;

/// Writes a group into a datagram.
pub(super) fn address_group(packet: &mut Packet, group: MulticastGroup) {
    let [a, b] = [0, 8].map(|at| u64::from_le_bytes(group.0[at..at + 8].try_into().expect("eight of sixteen bytes")));
    packet.destination = EVERYBODY;
    packet.operands = [a, b];
}

fn group_of(packet: &Packet) -> Option<MulticastGroup> {
    if packet.destination != EVERYBODY || packet.len_bytes > u64::from(u16::MAX) {
        return None;
    }
    let mut group = [0; 16];
    group[..8].copy_from_slice(&packet.operands[0].to_le_bytes());
    group[8..].copy_from_slice(&packet.operands[1].to_le_bytes());
    Some(MulticastGroup(group))
}
