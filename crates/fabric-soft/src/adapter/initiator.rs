//! The initiator's half: requests are started in order, held back, started again, and ended by their answers.

use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Destination, Operation, Payload, QueuePairState, ReceiverNotReadyRetry, RemoteMemory, SendRequest, WcStatus,
};

use super::core::{Core, Ended, OWN, Way};
use super::queue_pair::{Hold, READS_MAX, Send, WINDOW_MAX};
use super::regions::{Sources, Targets};
use super::responder::address_group;
use super::riding::Patience;
use crate::copying;
use crate::link::{Direct, DirectOutcome, DirectTarget, Link, LinkPeer, Outgoing, SendOutcome};
use crate::numbered::number_of;
use crate::wire::{Kind, Packet, Refusal};

/// When a peer that tells as soon as it is ready is asked again all the same.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What becomes of acknowledgements that may wait for a packet to ride with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Riders {
    Wait,
    /// Only those do that nobody waits for.
    WaitLonger,
    GoAlone,
}

/// Carries out a read, write or atomic at `place`; false if the link cannot.
#[inline]
fn carry_out(
    direct: &mut dyn Direct,
    place: &DirectTarget,
    operation: &Operation,
    sources: &[ReadRange],
    targets: &[WriteRange],
) -> bool {
    if !operation.returns_data() {
        return direct.write(place, sources) == DirectOutcome::Done;
    }
    if matches!(operation, Operation::RdmaRead(_)) {
        return direct.read(place, targets) == DirectOutcome::Done;
    }
    let before = direct.atomic(place, *operation);
    before.is_some_and(|before| copying::scatter(&before.to_ne_bytes(), targets) == 8)
}

/// What starting one request came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Started {
    Next,
    /// Nothing more for now; something will list the queue pair again.
    Stop,
    /// The link is full: try again at the next progress.
    Full,
}

impl Core {
    /// Starts what can be started on all queue pairs that may have something.
    pub(super) fn start_all(&mut self, link: &mut dyn Link) {
        self.release_held(link);
        for _ in 0..self.startable.len() {
            let Some(number) = self.startable.pop_front() else { break };
            if let Some(qp) = self.queue_pairs.get_mut(number) {
                qp.listed = false;
            }
            if self.start(link, number) {
                self.list(number);
            }
        }
    }

    /// Starts the sends of a queue pair; true if it stopped because the link is full.
    pub(super) fn start(&mut self, link: &mut dyn Link, number: u32) -> bool {
        loop {
            match self.start_next(link, number) {
                Started::Next => {}
                Started::Stop => return self.start_lines(link, number),
                Started::Full => return true,
            }
        }
    }

    fn start_next(&mut self, link: &mut dyn Link, number: u32) -> Started {
        let Some(qp) = self.queue_pairs.get(number) else { return Started::Stop };
        if qp.state != QueuePairState::ReadyToSend || qp.hold.is_some() || qp.in_window() >= WINDOW_MAX {
            return Started::Stop;
        }
        let Some(send) = qp.sends.get(qp.started) else { return Started::Stop };
        let returns_data = send.operation.returns_data();
        let waits_for_reads = send.flags.fence && qp.reads_in_flight > 0;
        if waits_for_reads || returns_data && qp.reads_in_flight >= READS_MAX {
            return Started::Stop;
        }
        if let Some(queue) = qp.independent_queue(send) {
            return self.start_independent(link, number, queue);
        }
        let sequence = qp.first_sequence.wrapping_add(qp.started as u32);
        let alone = qp.started == 0;
        let domain = qp.domain();
        // A request that fails here ends in its turn: when those before it are answered, it is looked at again.
        let fail = |core: &mut Self, status| {
            if alone {
                core.end_send(number, status);
            }
            Started::Stop
        };
        if send.len_bytes > link.properties().message_max_bytes {
            return fail(self, WcStatus::LocalLengthError);
        }
        let sources = match returns_data {
            true => self.regions.targets(domain, &send.list).map(|_| Sources::new()),
            false => send.sources(&self.regions, domain),
        };
        let Some(sources) = sources else { return fail(self, WcStatus::LocalProtectionError) };
        let more = qp.sends.len() > qp.started + 1;
        let outgoing = Outgoing { ranges: &sources, lent: send.is_lent(), is_answer: false, more };
        if let Destination::Datagram { address, qp: to, qkey } = send.destination {
            let mut packet = request(send, number, to.0, 0);
            packet.kind = Kind::Datagram;
            packet.selector = qkey.0;
            let Some((owner, way)) = self.addresses.get(number_of(address.0)).copied() else {
                return fail(self, WcStatus::LocalQueuePairOperationError);
            };
            if owner != domain {
                return fail(self, WcStatus::LocalQueuePairOperationError);
            }
            // The datagram is over when it is sent, so nothing of it can be lent.
            if !self.send_datagram(link, way, packet, Outgoing { lent: false, ..outgoing }) {
                return Started::Full;
            }
            self.end_send(number, WcStatus::Success);
            return Started::Next;
        }
        let (Some(peer), remote) = (qp.peer, qp.remote) else { return Started::Stop };
        let behind_offers = qp.offered.is_empty() || qp.attributes.independent_queues;
        if alone && behind_offers && self.start_directly(link, number, peer, &sources) {
            self.end_send(number, WcStatus::Success);
            if let Some(qp) = self.queue_pairs.get_mut(number) {
                // The target has not seen it: its number goes to the next.
                qp.first_sequence = qp.first_sequence.wrapping_sub(1);
            }
            return Started::Next;
        }
        if alone && peer != OWN && self.may_offer(number) {
            match self.start_on_board(number, peer, &sources) {
                Some(true) => return Started::Next,
                Some(false) => return Started::Stop,
                None => {}
            }
        }
        let acknowledged = self.ride(link, peer, Some((number, remote)));
        let Some(send) = self.queue_pairs.get(number).and_then(|qp| qp.sends.get(qp.started)) else {
            return Started::Stop;
        };
        let mut packet = request(send, number, remote, sequence);
        packet.acknowledged = acknowledged;
        match self.send_packet(link, peer, &packet, outgoing) {
            SendOutcome::Taken => {
                self.has_followed(link, peer);
                if acknowledged.is_some() {
                    self.has_ridden(peer);
                }
                let Some(qp) = self.queue_pairs.get_mut(number) else { return Started::Stop };
                qp.started += 1;
                qp.reads_in_flight += u32::from(returns_data);
                if qp.started < qp.sends.len() { Started::Next } else { Started::Stop }
            }
            SendOutcome::Full => Started::Full,
            SendOutcome::Gone => fail(self, WcStatus::TransportRetryExceeded),
        }
    }

    /// A read, write or atomic of one piece that this processor can do while it is posted, for nothing is before it: it
    /// never enters a queue. False if it must, or is to be refused.
    ///
    /// What the caller has just written part by part is read part by part: a processor that is asked for the whole waits.
    #[inline]
    pub(super) fn do_at_once(&mut self, link: &mut impl Link, number: u32, request: &SendRequest<'_>) -> bool {
        let message_max_bytes = link.properties().message_max_bytes;
        let Some(direct) = link.direct() else { return false };
        if let Operation::RdmaWrite(memory) = &request.operation {
            direct.expect_write(number, memory);
        }
        let Some(qp) = self.queue_pairs.get(number).filter(|qp| qp.may_begin(&request.destination)) else {
            return false;
        };
        let (Some(peer), Some(memory)) = (qp.peer.filter(|peer| *peer != OWN), request.operation.remote()) else {
            return false;
        };
        let place = |len_bytes| DirectTarget { peer, remote_qp: qp.remote, local_qp: number, memory, len_bytes };
        let piece = match &request.payload {
            Payload::Memory([piece]) if qp.attributes.send_entries_max > 0 => Some(piece),
            _ => None,
        };
        let (len_bytes, is_done) = if matches!(request.operation, Operation::RdmaWrite(_)) {
            let source = match &request.payload {
                Payload::Inline(bytes) if bytes.len() <= qp.attributes.inline_max_bytes as usize => {
                    Some(copying::borrowed(bytes))
                }
                _ => piece.and_then(|piece| self.regions.source(qp.domain(), piece)),
            };
            let Some(source) = source else { return false };
            let len_bytes = source.len_bytes() as u64;
            let may = len_bytes <= message_max_bytes;
            (len_bytes, may && carry_out(direct, &place(len_bytes), &request.operation, &[source], &[]))
        } else {
            let target = piece.and_then(|piece| self.regions.target(qp.domain(), piece));
            let Some(target) = target.filter(|_| request.operation.returns_data()) else { return false };
            let len_bytes = target.len_bytes() as u64;
            let is_read = matches!(request.operation, Operation::RdmaRead(_));
            let may = if is_read { len_bytes <= message_max_bytes } else { len_bytes == 8 };
            (len_bytes, may && carry_out(direct, &place(len_bytes), &request.operation, &[], &[target]))
        };
        if is_done {
            let ended = Ended { id: request.id, operation: request.operation, len_bytes, flags: request.flags };
            self.complete_send(number, ended, WcStatus::Success);
        }
        is_done
    }

    /// Reads, writes and atomics by this processor, where the link can and nothing before is under way.
    fn start_directly(&mut self, link: &mut dyn Link, number: u32, peer: LinkPeer, sources: &[ReadRange]) -> bool {
        let Some(qp) = self.queue_pairs.get(number) else { return false };
        let Some(send) = qp.sends.front() else { return false };
        let Some(memory) = send.operation.remote().filter(|_| !send.operation.takes_receive() && peer != OWN) else {
            return false;
        };
        let Some(direct) = link.direct() else { return false };
        let (remote_qp, len_bytes) = (qp.remote, send.len_bytes);
        let place = DirectTarget { peer, remote_qp, local_qp: number, memory, len_bytes };
        let targets = match send.operation.returns_data() {
            true => self.regions.targets(qp.domain(), &send.list),
            false => Some(Targets::new()),
        };
        targets.is_some_and(|targets| carry_out(direct, &place, &send.operation, sources, &targets))
    }

    pub(super) fn send_packet(
        &mut self,
        link: &mut dyn Link,
        to: LinkPeer,
        packet: &Packet,
        payload: Outgoing<'_>,
    ) -> SendOutcome {
        if to == OWN {
            self.own_packets.push_back((packet.to_bytes(), copying::gather(payload.ranges)));
            return SendOutcome::Taken;
        }
        link.send(to, &packet.to_bytes(), payload)
    }

    /// True unless the link was full for a single receiver; a group's members that are full miss it.
    fn send_datagram(&mut self, link: &mut dyn Link, way: Way, packet: Packet, payload: Outgoing<'_>) -> bool {
        match way {
            Way::Peer(peer) => self.send_packet(link, peer, &packet, payload) != SendOutcome::Full,
            Way::Group(group) => {
                let mut packet = packet;
                address_group(&mut packet, group);
                for peer in link.everyone().unwrap_or_default() {
                    let _ = self.send_packet(link, peer, &packet, payload);
                }
                let _ = self.send_packet(link, OWN, &packet, payload);
                true
            }
        }
    }

    /// Sends answers as long as the link takes them.
    pub(super) fn send_answers(&mut self, link: &mut dyn Link, riders: Riders) {
        let mut index = 0;
        while index < self.answering.len() {
            let peer = self.answering[index];
            let patience = self.holds_back(link, peer);
            let waits = match riders {
                Riders::Wait => patience > Patience::None,
                Riders::WaitLonger => patience == Patience::Longer,
                Riders::GoAlone => false,
            };
            if waits {
                index += 1;
                continue;
            }
            self.goes_alone(link, peer);
            if self.send_answers_to(link, peer, false) {
                self.answering.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// True if nothing is left for this peer; `more` if a request to it follows at once.
    pub(super) fn send_answers_to(&mut self, link: &mut dyn Link, peer: LinkPeer, more: bool) -> bool {
        while let Some(mut answer) = self.peer(peer).answers.pop_front() {
            let mut ranges = Sources::new();
            if let Some(wanted) = answer.bytes {
                match self.regions.remote_source(wanted) {
                    Some(range) => ranges.push(range),
                    None => {
                        // The region went between the request and now.
                        answer.packet.kind = Kind::Refuse;
                        answer.packet.refusal = Refusal::Access;
                        answer.packet.len_bytes = 0;
                        answer.bytes = None;
                    }
                }
            }
            let more = more || !self.peer(peer).answers.is_empty();
            let outgoing = Outgoing { ranges: &ranges, lent: true, is_answer: true, more };
            match self.send_packet(link, peer, &answer.packet, outgoing) {
                SendOutcome::Full => {
                    self.peer(peer).answers.push_front(answer);
                    return false;
                }
                SendOutcome::Gone => self.peer(peer).answers.clear(),
                SendOutcome::Taken if answer.packet.counts() => self.answer_is_sent(answer.packet.source),
                SendOutcome::Taken => {}
            }
        }
        true
    }

    /// The link has taken an answer to a request, of this queue pair.
    pub(super) fn answer_is_sent(&mut self, number: u32) {
        if let Some(qp) = self.queue_pairs.get_mut(number) {
            qp.unsent_answers = qp.unsent_answers.saturating_sub(1);
        }
    }

    /// Ends the first `count` sends, which a later answer says are done.
    #[inline]
    pub(super) fn end_sends(&mut self, number: u32, count: usize) {
        for _ in 0..count {
            let Some(ended) = self.take_first_send(number) else { return };
            // What brings something back cannot be done without having brought it.
            let status = if ended.operation.returns_data() { WcStatus::BadResponse } else { WcStatus::Success };
            self.end_taken_send(number, ended, status);
        }
    }

    /// All requests up to this one are done.
    #[inline]
    pub(super) fn acknowledged(&mut self, number: u32, sequence: u32) {
        let in_flight = self.queue_pairs.get(number).and_then(|qp| qp.in_flight(sequence));
        if let Some(offset) = in_flight {
            self.end_sends(number, offset + 1);
            self.list(number);
        }
    }

    /// An answer without payload.
    pub(super) fn answered(&mut self, number: u32, packet: &Packet) {
        if packet.kind.is_of_line() {
            return self.line_answered(number, packet);
        }
        let Some(qp) = self.queue_pairs.get_mut(number) else { return };
        if packet.kind == Kind::Ready {
            if matches!(qp.hold, Some(Hold::UntilReady(_))) {
                qp.hold = None;
                self.list(number);
            }
            return;
        }
        if packet.kind == Kind::Acknowledge {
            return self.acknowledged(number, packet.sequence);
        }
        let Some(offset) = qp.in_flight(packet.sequence) else { return };
        match packet.kind {
            Kind::AtomicResponse => {
                self.end_sends(number, offset);
                self.bring_atomic(number, packet.operands[0]);
            }
            _ => {
                self.end_sends(number, offset);
                self.refused(number, packet);
            }
        }
        self.list(number);
    }

    fn bring_atomic(&mut self, number: u32, before: u64) {
        let Some(qp) = self.queue_pairs.get(number) else { return };
        let Some(send) = qp.sends.front() else { return };
        let is_atomic = matches!(send.operation, Operation::FetchAdd { .. } | Operation::CompareSwap { .. });
        let targets = self.regions.targets(qp.domain(), &send.list);
        let status = match targets {
            _ if !is_atomic => WcStatus::BadResponse,
            None => WcStatus::LocalProtectionError,
            Some(targets) => {
                copying::scatter(&before.to_ne_bytes(), &targets);
                WcStatus::Success
            }
        };
        self.end_send(number, status);
    }

    fn refused(&mut self, number: u32, packet: &Packet) {
        match packet.refusal {
            Refusal::ReceiverNotReady | Refusal::NotConnected => self.come_again(number, packet),
            refusal => self.end_send(number, status_of(refusal)),
        }
    }

    /// The first request and those after it are sent again later, if they may.
    fn come_again(&mut self, number: u32, packet: &Packet) {
        let Some(qp) = self.queue_pairs.get_mut(number) else { return };
        let not_ready = packet.refusal == Refusal::ReceiverNotReady;
        let (retry_max, status) = match (not_ready, qp.receiver_not_ready_retry) {
            (true, ReceiverNotReadyRetry::Forever) => (None, WcStatus::ReceiverNotReadyRetryExceeded),
            (true, ReceiverNotReadyRetry::Count(count)) => (Some(count), WcStatus::ReceiverNotReadyRetryExceeded),
            (false, _) => (Some(qp.retry_count), WcStatus::TransportRetryExceeded),
        };
        if retry_max.is_some_and(|max| qp.retries >= max) {
            return self.end_send(number, status);
        }
        qp.retries = qp.retries.saturating_add(1);
        qp.started = 0;
        qp.reads_in_flight = 0;
        // The deadline is set by the next progress, which knows the time: here it is a duration still.
        qp.hold = Some(if !not_ready {
            Hold::Until(qp.timeout)
        } else if retry_max.is_none() {
            Hold::UntilReady(ASK_AGAIN)
        } else {
            Hold::UntilReady(Duration::from_nanos(packet.operands[0]).min(ASK_AGAIN * 10))
        });
        self.newly_held.push(number);
    }

    /// Gives the newly held their deadlines, and lets go of those whose deadline has come.
    fn release_held(&mut self, link: &dyn Link) {
        if self.newly_held.is_empty() && self.held.is_empty() {
            return;
        }
        let now = link.now();
        for number in std::mem::take(&mut self.newly_held) {
            let hold = self.queue_pairs.get_mut(number).and_then(|qp| qp.hold.as_mut());
            match hold {
                Some(Hold::UntilReady(moment) | Hold::Until(moment)) => *moment = now.saturating_add(*moment),
                None => continue,
            }
            self.held.push(number);
        }
        let mut index = 0;
        while index < self.held.len() {
            let number = self.held[index];
            let hold = self.queue_pairs.get(number).and_then(|qp| qp.hold);
            if hold.is_some_and(|hold| hold.deadline() > now) {
                index += 1;
                continue;
            }
            self.held.swap_remove(index);
            if let Some(qp) = self.queue_pairs.get_mut(number) {
                qp.hold = None;
                self.list(number);
            }
        }
    }

    /// The next moment at which something held may go.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.held.iter().filter_map(|number| self.queue_pairs.get(*number)?.hold).map(Hold::deadline).min()
    }
}

/// How a request ends that was refused for good.
pub(super) const fn status_of(refusal: Refusal) -> WcStatus {
    match refusal {
        Refusal::Invalid => WcStatus::RemoteInvalidRequest,
        Refusal::Access => WcStatus::RemoteAccessError,
        Refusal::Operation => WcStatus::RemoteOperationError,
        Refusal::Gone | Refusal::NotConnected => WcStatus::TransportRetryExceeded,
        Refusal::None | Refusal::ReceiverNotReady => WcStatus::BadResponse,
    }
}

#[inline]
pub(super) fn request(send: &Send, source: u32, destination: u32, sequence: u32) -> Packet {
    let (kind, operands) = match send.operation {
        Operation::Send | Operation::SendWithImmediate(_) => (Kind::Send, [0; 2]),
        Operation::RdmaWrite(_) => (Kind::Write, [0; 2]),
        Operation::RdmaWriteWithImmediate(..) => (Kind::WriteWithImmediate, [0; 2]),
        Operation::RdmaRead(_) => (Kind::Read, [0; 2]),
        Operation::FetchAdd { add, .. } => (Kind::FetchAdd, [add, 0]),
        Operation::CompareSwap { compare, swap, .. } => (Kind::CompareSwap, [compare, swap]),
    };
    let RemoteMemory { address, rkey } =
        send.operation.remote().unwrap_or(RemoteMemory { address: 0, rkey: fabric::Rkey(0) });
    let selector = match send.destination {
        Destination::SharedReceiveQueue(number) => number.0,
        _ => 0,
    };
    let is_atomic = matches!(kind, Kind::FetchAdd | Kind::CompareSwap);
    Packet {
        solicited: send.flags.solicited,
        unhurried: send.flags.unhurried,
        immediate: send.operation.immediate(),
        selector,
        rkey: rkey.0,
        address,
        // An atomic carries its operands in the header.
        len_bytes: if is_atomic { 0 } else { send.len_bytes },
        operands,
        ..Packet::new(kind, source, destination, sequence)
    }
}
