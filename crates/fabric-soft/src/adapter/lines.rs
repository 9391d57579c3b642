//! Sends to shared queues that do not wait for each other, where no board takes them: a line for each queue.
//!
//! ```text
//!   initiator                            target
//!   short message n ────────────────────▶ a receive that is long enough: filled
//!           ◀──────── Acknowledge n       (and all before it in this line)
//!   short message n ────────────────────▶ none: parked, its bytes are thrown away, those behind it in the line dropped
//!           ◀──────── Refuse n            nothing of this line is sent; other lines go on
//!   long message n, its header ─────────▶ none: parked
//!           ◀──────── Ready n             (a receive was posted, or was there)
//!   message n with its bytes ───────────▶ filled
//! ```
//! A message waits for as long as it takes, in the device: nobody asks again. Links keep the order of packets and lose
//! none, over broken connections, too; so what is parked is all that the target keeps of a line, whatever else comes of
//! the line before it is older. Until the target has answered for the first time it may not be connected yet, and one
//! packet at a time is sent.

use std::collections::{BTreeMap, VecDeque};

use fabric::{Destination, Operation, QueuePairState, WcStatus};

use super::core::{Answer, Core, Ended, OWN};
use super::initiator::{Started, request, status_of};
use super::queue_pair::{Hold, QueuePairObject, Send, WINDOW_MAX};
use super::receive::Posted;
use super::regions::Sources;
use crate::link::{Link, Outgoing, SendOutcome};
use crate::wire::{Kind, Packet, Refusal};

/// A message of so many bytes goes with its header: should no receive be there, no more than this is sent in vain.
const SHORT_MAX_BYTES: u64 = 16 << 10;

/// What a queue pair keeps of its lines: those it sends, or what is parked of those it receives.
#[derive(Default)]
pub(super) struct Lines {
    sending: BTreeMap<u32, Line>,
    /// Lines that may go on, by queue.
    startable: VecDeque<u32>,
    next_sequence: u32,
    /// Messages in all lines, and those among them that were sent with their bytes and not answered.
    len: usize,
    in_flight: usize,
    target: Target,
    /// First messages of lines that found no receive, by queue.
    parked: BTreeMap<u32, Parked>,
}

/// What is known of the queue pair at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Target {
    #[default]
    Unknown,
    /// A packet is on its way that will tell.
    Asked,
    Connected,
}

#[derive(Default)]
struct Line {
    messages: VecDeque<Message>,
    /// The first so many are sent with their bytes and not answered.
    sent: usize,
    /// Nothing is sent until the target calls for this one, the first that is not sent.
    waits_for: Option<u32>,
    /// It has called for it.
    is_called: bool,
    is_listed: bool,
}

struct Message {
    sequence: u32,
    send: Send,
}

struct Parked {
    sequence: u32,
    len_bytes: u64,
}

impl Line {
    /// The place of a message that the target may speak of.
    fn place_of(&self, sequence: u32) -> Option<usize> {
        let known = self.sent + usize::from(self.waits_for.is_some());
        self.messages.iter().take(known).position(|message| message.sequence == sequence)
    }
}

impl Lines {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn has_line(&self, queue: u32) -> bool {
        self.sending.contains_key(&queue)
    }

    /// The last of the line of a queue, or the first: one that stood before all others.
    pub(super) fn push(&mut self, queue: u32, send: Send, is_first: bool) {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        self.len += 1;
        let line = self.sending.entry(queue).or_default();
        let message = Message { sequence, send };
        if is_first {
            line.messages.push_front(message)
        } else {
            line.messages.push_back(message)
        }
        self.list(queue);
    }

    fn list(&mut self, queue: u32) {
        if let Some(line) = self.sending.get_mut(&queue)
            && !std::mem::replace(&mut line.is_listed, true)
        {
            self.startable.push_back(queue);
        }
    }

    fn take_startable(&mut self) -> Option<u32> {
        let queue = self.startable.pop_front()?;
        if let Some(line) = self.sending.get_mut(&queue) {
            line.is_listed = false;
        }
        Some(queue)
    }

    /// Takes the first message of a line out.
    fn pop(&mut self, queue: u32) -> Option<Send> {
        let line = self.sending.get_mut(&queue)?;
        let message = line.messages.pop_front()?;
        if line.sent > 0 {
            line.sent -= 1;
            self.in_flight -= 1;
        } else {
            (line.waits_for, line.is_called) = (None, false);
        }
        if line.messages.is_empty() {
            self.sending.remove(&queue);
        }
        self.len -= 1;
        Some(message.send)
    }

    /// Everything that is not complete, line by line.
    pub(super) fn take_all(&mut self) -> Vec<Send> {
        let sending = std::mem::take(&mut self.sending);
        self.startable.clear();
        (self.len, self.in_flight) = (0, 0);
        sending.into_values().flat_map(|line| line.messages).map(|message| message.send).collect()
    }

    /// The line starts anew with its first message, once that is called for or, without one, at once.
    fn rewind(&mut self, queue: u32, waits_for: Option<u32>) {
        if let Some(line) = self.sending.get_mut(&queue) {
            self.in_flight -= std::mem::take(&mut line.sent);
            (line.waits_for, line.is_called) = (waits_for, false);
        }
    }
}

impl QueuePairObject {
    /// The queue that a send names, if it does not wait for those to others.
    pub(super) fn independent_queue(&self, send: &Send) -> Option<u32> {
        match (send.destination, send.operation) {
            (Destination::SharedReceiveQueue(queue), Operation::Send | Operation::SendWithImmediate(_)) => {
                self.attributes.independent_queues.then_some(queue.0)
            }
            _ => None,
        }
    }

    /// Sends with their bytes on their way.
    pub(super) fn in_window(&self) -> usize {
        self.started + self.lines.as_ref().map_or(0, |lines| lines.in_flight())
    }
}

/// The initiator's half.
impl Core {
    /// Starts the next send of a queue pair, which names `queue` and waits for no other: it meets its receive on the
    /// board, waits there, or joins its line.
    pub(super) fn start_independent(&mut self, link: &mut dyn Link, number: u32, queue: u32) -> Started {
        let Some(qp) = self.queue_pairs.get(number) else { return Started::Stop };
        let has_line = qp.lines.as_ref().is_some_and(|lines| lines.has_line(queue));
        if !has_line && self.may_offer(number) && self.offer_next(link, number) {
            return Started::Next;
        }
        let Some(qp) = self.queue_pairs.get_mut(number) else { return Started::Stop };
        let Some(send) = qp.sends.remove(qp.started) else { return Started::Stop };
        qp.lines.get_or_insert_default().push(queue, send, false);
        if self.start_lines(link, number) { Started::Full } else { Started::Next }
    }

    /// True if the next send is on the board, or was.
    fn offer_next(&mut self, link: &dyn Link, number: u32) -> bool {
        let Some(qp) = self.queue_pairs.get(number) else { return false };
        let (Some(peer), Some(send)) = (qp.peer.filter(|peer| *peer != OWN), qp.sends.front()) else { return false };
        if send.len_bytes > link.properties().message_max_bytes {
            return false;
        }
        let sources = send.sources(&self.regions, qp.domain());
        sources.is_some_and(|sources| self.start_on_board(number, peer, &sources) == Some(true))
    }

    /// Goes on with all lines that may; true if the link is full.
    #[inline]
    pub(super) fn start_lines(&mut self, link: &mut dyn Link, number: u32) -> bool {
        let lines = self.queue_pairs.get(number).and_then(|qp| qp.lines.as_ref());
        let Some(count) = lines.map(|lines| lines.startable.len()) else { return false };
        self.start_some_lines(link, number, count)
    }

    fn start_some_lines(&mut self, link: &mut dyn Link, number: u32, count: usize) -> bool {
        for _ in 0..count {
            let Some(lines) = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut()) else { return false };
            let Some(queue) = lines.take_startable() else { return false };
            loop {
                match self.start_line(link, number, queue) {
                    Started::Next => {}
                    Started::Stop => break,
                    Started::Full => return true,
                }
            }
        }
        false
    }

    /// The next message of a line, or its header.
    fn start_line(&mut self, link: &mut dyn Link, number: u32, queue: u32) -> Started {
        let Some(qp) = self.queue_pairs.get(number) else { return Started::Stop };
        let (Some(peer), Some(lines)) = (qp.peer, qp.lines.as_ref()) else { return Started::Stop };
        let Some(line) = lines.sending.get(&queue).filter(|line| line.waits_for.is_none()) else {
            return Started::Stop;
        };
        let Some(Message { sequence, send }) = line.messages.get(line.sent) else { return Started::Stop };
        let is_held = qp.state != QueuePairState::ReadyToSend || matches!(qp.hold, Some(Hold::Until(_)));
        let is_behind_offers = qp.offered.iter().any(|offered| offered.is_to(queue));
        if is_held || is_behind_offers || qp.in_window() >= WINDOW_MAX || lines.target == Target::Asked {
            // Whatever ends that lists the queue pair.
            self.list_line(number, queue);
            return Started::Stop;
        }
        let (is_first, is_header) = (line.sent == 0, send.len_bytes > SHORT_MAX_BYTES && !line.is_called);
        let sources = send.sources(&self.regions, qp.domain());
        let failure = match &sources {
            _ if send.len_bytes > link.properties().message_max_bytes => Some(WcStatus::LocalLengthError),
            None => Some(WcStatus::LocalProtectionError),
            Some(_) => None,
        };
        if let Some(status) = failure {
            // It ends in its turn: when those before it are answered, it is looked at again.
            if is_first {
                self.end_line_send(number, queue, status);
            } else {
                self.list_line(number, queue);
            }
            return Started::Stop;
        }
        let mut packet = request(send, number, qp.remote, *sequence);
        packet.kind = if is_header { Kind::QueueHeader } else { Kind::QueueSend };
        let (lent, more) = (send.is_lent(), line.messages.len() > line.sent + 1 || qp.sends.len() > qp.started);
        let sources = if is_header { Sources::new() } else { sources.unwrap_or_default() };
        self.ride(link, peer, None);
        let outgoing = Outgoing { ranges: &sources, lent, is_answer: false, more };
        match self.send_packet(link, peer, &packet, outgoing) {
            SendOutcome::Taken => {
                self.has_followed(link, peer);
                self.line_started(number, queue, is_header.then_some(packet.sequence));
                Started::Next
            }
            SendOutcome::Full => {
                self.list_line(number, queue);
                Started::Full
            }
            SendOutcome::Gone => {
                self.end_line_send(number, queue, WcStatus::TransportRetryExceeded);
                Started::Stop
            }
        }
    }

    /// The next message of a line is on its way, or the header of this one.
    fn line_started(&mut self, number: u32, queue: u32, header: Option<u32>) {
        let Some(lines) = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut()) else { return };
        if lines.target == Target::Unknown {
            lines.target = Target::Asked;
        }
        let Some(line) = lines.sending.get_mut(&queue) else { return };
        if header.is_some() {
            line.waits_for = header;
        } else {
            (line.sent, line.is_called) = (line.sent + 1, false);
            lines.in_flight += 1;
        }
    }

    fn list_line(&mut self, number: u32, queue: u32) {
        if let Some(lines) = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut()) {
            lines.list(queue);
        }
    }

    /// Ends the first send of a line.
    fn end_line_send(&mut self, number: u32, queue: u32, status: WcStatus) {
        let Some(qp) = self.queue_pairs.get_mut(number) else { return };
        qp.retries = 0;
        let Some(send) = qp.lines.as_mut().and_then(|lines| lines.pop(queue)) else { return };
        self.complete_send(number, Ended::of(&send), status);
        if status != WcStatus::Success {
            self.fail(number);
        }
    }

    /// The first send of any line tells why its queue pair fails.
    pub(super) fn end_lines(&mut self, number: u32, status: WcStatus) {
        let lines = self.queue_pairs.get(number).and_then(|qp| qp.lines.as_ref());
        if let Some(queue) = lines.and_then(|lines| lines.sending.keys().next().copied()) {
            self.end_line_send(number, queue, status);
        }
    }

    /// The target of a line has answered.
    pub(super) fn line_answered(&mut self, number: u32, packet: &Packet) {
        let (queue, sequence) = (packet.selector, packet.sequence);
        let Some(qp) = self.queue_pairs.get_mut(number) else { return };
        let Some(lines) = qp.lines.as_mut() else { return };
        let was_connected = lines.target == Target::Connected;
        let Some(line) = lines.sending.get_mut(&queue) else { return };
        let Some(place) = line.place_of(sequence) else { return };
        let is_early = packet.kind == Kind::QueueRefuse && packet.refusal == Refusal::NotConnected && !was_connected;
        lines.target = if is_early { Target::Unknown } else { Target::Connected };
        match (packet.kind, packet.refusal) {
            (Kind::QueueReady, _) => {
                if line.waits_for == Some(sequence) {
                    (line.waits_for, line.is_called) = (None, true);
                }
            }
            (Kind::QueueAcknowledge, _) => self.end_line_sends(number, queue, place + 1),
            (_, Refusal::ReceiverNotReady) => {
                self.end_line_sends(number, queue, place);
                if let Some(lines) = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut()) {
                    lines.rewind(queue, Some(sequence));
                }
            }
            (_, Refusal::NotConnected) if is_early => {
                lines.rewind(queue, None);
                if qp.retries >= qp.retry_count {
                    return self.end_line_send(number, queue, WcStatus::TransportRetryExceeded);
                }
                qp.retries += 1;
                qp.hold = Some(Hold::Until(qp.timeout));
                self.newly_held.push(number);
            }
            (_, refusal) => {
                self.end_line_sends(number, queue, place);
                self.end_line_send(number, queue, status_of(refusal));
            }
        }
        self.list_line(number, queue);
        self.list(number);
    }

    fn end_line_sends(&mut self, number: u32, queue: u32, count: usize) {
        (0..count).for_each(|_| self.end_line_send(number, queue, WcStatus::Success));
    }
}

/// The target's half.
impl Core {
    /// True if a message of so many bytes may be filled into the next receive of a queue, which is taken off the board.
    pub(super) fn has_receive_for(&mut self, queue: u32, len_bytes: u64) -> bool {
        self.leave_board(queue);
        let Some(shared) = self.shared.get_mut(queue) else { return false };
        while let Some(posted) = shared.queue.posted.front() {
            let receive = match posted {
                Posted::Here(receive) => Some(receive),
                Posted::InSeveral(several) => self.several.get(*several).map(|several| &several.receive),
            };
            match receive {
                Some(receive) => return receive.capacity_bytes() >= len_bytes,
                // Another queue's message has claimed it.
                None => _ = shared.queue.posted.pop_front(),
            }
        }
        false
    }

    /// True if what came of a line follows a message that is parked: it comes again after that.
    pub(super) fn is_behind_parked(&self, packet: &Packet) -> bool {
        let lines = self.queue_pairs.get(packet.destination).and_then(|qp| qp.lines.as_ref());
        let parked = lines.and_then(|lines| lines.parked.get(&packet.selector));
        parked.is_some_and(|parked| parked.sequence != packet.sequence)
    }

    /// The message waits for its receive, and its line with it.
    pub(super) fn park(&mut self, packet: &Packet) {
        let (number, queue) = (packet.destination, packet.selector);
        let parked = Parked { sequence: packet.sequence, len_bytes: packet.len_bytes };
        if let Some(qp) = self.queue_pairs.get_mut(number) {
            qp.lines.get_or_insert_default().parked.insert(queue, parked);
        }
        if let Some(shared) = self.shared.get_mut(queue) {
            shared.queue.wait(number);
        }
    }

    /// It has met its receive: the line goes on.
    pub(super) fn unpark(&mut self, packet: &Packet) {
        if let Some(lines) = self.queue_pairs.get_mut(packet.destination).and_then(|qp| qp.lines.as_mut()) {
            lines.parked.remove(&packet.selector);
        }
    }

    /// Calls for what queue pair `number` has parked at a queue; false if its receive is not there, `None` if nothing is
    /// parked.
    pub(super) fn call_parked(&mut self, number: u32, queue: u32) -> Option<bool> {
        let parked = self.queue_pairs.get(number)?.lines.as_ref()?.parked.get(&queue)?;
        let (sequence, len_bytes) = (parked.sequence, parked.len_bytes);
        let is_called = self.has_receive_for(queue, len_bytes);
        if is_called {
            self.answer_line(number, queue, sequence, (Kind::QueueReady, Refusal::None));
        }
        Some(is_called)
    }

    /// The first receive of a queue is another one now: who waits first may have waited for it.
    pub(super) fn call_next(&mut self, queue: u32) {
        let Some(shared) = self.shared.get_mut(queue).filter(|shared| !shared.queue.posted.is_empty()) else { return };
        if let Some(number) = shared.queue.waiting.pop_front() {
            self.call_waiting(Some(queue), &[number]);
        }
    }

    /// The queue pair takes nothing any more.
    pub(super) fn refuse_parked(&mut self, number: u32) {
        let lines = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut());
        let parked = lines.map(|lines| std::mem::take(&mut lines.parked)).unwrap_or_default();
        for (queue, parked) in parked {
            self.answer_line(number, queue, parked.sequence, (Kind::QueueRefuse, Refusal::Gone));
        }
    }

    /// The queue is no more: who waits for it is refused, as who comes later is.
    pub(super) fn refuse_parked_at(&mut self, queue: u32) {
        let waits = |qp: &QueuePairObject| qp.lines.as_ref().is_some_and(|lines| lines.parked.contains_key(&queue));
        let all: Vec<u32> = self.queue_pairs.iter().filter(|(_, qp)| waits(qp)).map(|(number, _)| number).collect();
        for number in all {
            let lines = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut());
            let Some(parked) = lines.and_then(|lines| lines.parked.remove(&queue)) else { continue };
            self.answer_line(number, queue, parked.sequence, (Kind::QueueRefuse, Refusal::Invalid));
            self.fail(number);
        }
    }

    fn answer_line(&mut self, number: u32, queue: u32, sequence: u32, (kind, refusal): (Kind, Refusal)) {
        let Some(qp) = self.queue_pairs.get(number) else { return };
        let (Some(peer), packet) = (qp.peer, Packet::new(kind, number, qp.remote, sequence)) else { return };
        let packet = Packet { selector: queue, refusal, ..packet };
        self.answer(peer, Answer::at_once(packet));
    }
}
