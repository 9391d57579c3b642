//! Tuple queues at work: messages of a granted tuple go to a receive queue of their own, and whoever comes second, the
//! message or its receive, moves the data. Paper: tupleq §7. What is said between the two, and why MPI's order holds, is
//! in [`protocol::tupleq`].
//!
//! ```text
//!   send ─▶ route ─▶ classic
//!              └──▶ flight on the device ─▶ done at once │ announced, done when a receive fetches it
//!   receive ─▶ unexpected? ─ announced message ─▶ its queue, which fetches it
//!         └──▶ exact, granted, nobody before it? ─▶ its queue      └─▶ posted, as always
//! ```
//! A message that the device has no room for holds back those behind it to the same receiver, so that none is overtaken.

mod device;
mod sides;
mod standing;
mod talk;

use std::collections::VecDeque;

use base::{Slab, SlabKey};
use datatype::{RecvBuf, SendBuf};
use fabric::{
    CompletionOpcode, CompletionQueue, Context, FabricError, MemoryRegion, MultiQueueReceive, ProtectionDomain,
    QueuePair, SharedReceiveQueue, SrqNumber, WcStatus, WorkCompletion, XrcDomain,
};
use protocol::tupleq::{ReceiveTuples, Route, SendTuples, Tuple, TupleMessage};
use protocol::wire;
use rustc_hash::FxHashMap;

use self::device::Launch;
pub(crate) use self::sides::{Side, TupleQueues};
use self::sides::{at_work, at_work_on};
use crate::EngineError;
use crate::core::{Core, match_key};
use crate::deliver::split;
use crate::matching::Pattern;
use crate::request::{
    Completion, ContextId, Envelope, Fault, Outcome, OutgoingSend, PeerId, Request, RequestId, Source, State,
    TagPattern,
};

/// Receives in one queue, at most.
const QUEUE_DEPTH: u32 = 32;
/// Messages on the device that are not complete, at most; more are held back.
const FLIGHTS_MAX: usize = 2048;
/// A message so short is handed to the device whole.
const INLINE_MAX_BYTES: u64 = 256;
/// A longer one takes the classic way, and its tuple with it.
const MESSAGE_MAX_BYTES: u64 = 1 << 30;
/// Completions taken at once: few, for most polls find one or none.
const COMPLETIONS_AT_ONCE: usize = 4;
/// Completions kept by the device.
const COMPLETIONS_MAX: u32 = 1 << 15;

/// How tuple queues are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TupleSetup {
    /// Messages shorter than this are copied by their sender if they have to wait, so that it may go on.
    pub copy_below_bytes: u64,
    /// Queues of this process on a device, at most.
    pub queues_max: usize,
    /// So many messages of a tuple matched by wildcards, and more than not, end its queue; 0: never.
    pub retreat_after: u32,
}

/// Tuple queues of one process.
pub(crate) struct Tuples {
    setup: TupleSetup,
    /// Of a message and its receive, whoever comes second moves the data.
    second_moves: bool,
    /// Receives in one queue, at most.
    depth: u32,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    xrc: XrcDomain,
    sending: SendTuples,
    receiving: ReceiveTuples<SharedReceiveQueue>,
    ways: FxHashMap<PeerId, Way>,
    /// Where messages of peers come in.
    targets: FxHashMap<PeerId, QueuePair>,
    flights: Slab<Flight>,
    /// Sends whose receivers were asked to throw their messages away: how each ends as soon as the device has done with
    /// it, if its receiver has said that.
    cancelling: FxHashMap<SlabKey, Option<Outcome>>,
    /// Peers with messages held back: all of them.
    stuck: Vec<PeerId>,
    /// What was fetched for a probe, by its request, until the receive comes.
    kept: FxHashMap<SlabKey, RecvBuf>,
    /// Of receives that are over.
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    boxes: Vec<Box<InQueue>>,
}

/// The way to one peer's queues.
struct Way {
    qp: QueuePair,
    is_connected: bool,
    /// Messages that the device had no room for, and those behind them.
    held: VecDeque<SlabKey>,
}

/// A message on the device.
struct Flight {
    /// Whose request ends with it.
    send: Option<SlabKey>,
    to: PeerId,
    region: Option<MemoryRegion>,
    /// Keeps what is sent.
    _copy: Option<SendBuf>,
}

/// A receive in a queue.
pub(crate) struct InQueue {
    buf: RecvBuf,
    tuple: Tuple,
    handle: MultiQueueReceive,
    /// Bytes of the longest message it takes there.
    room_bytes: u64,
    region: Option<MemoryRegion>,
    /// Where the data comes first, if it can not come to `buf` itself.
    staging: Option<RecvBuf>,
    /// Its message is known already: it is fetched, and the receive can not be cancelled.
    is_met: bool,
    /// A probe has taken the message, and `buf` is not known: the bytes are kept.
    is_kept: bool,
    /// Bytes of its message, if that was announced.
    announced_bytes: u64,
    /// The connection failed while its message came: it ends when the loss of the sender is told.
    has_failed: bool,
}

impl Core {
    /// A send while tuple queues are in use.
    #[cold]
    pub(crate) fn send_by_tuple(
        &mut self,
        synchronous: bool,
        context: ContextId,
        envelope: Envelope,
        buf: SendBuf,
    ) -> Result<RequestId, EngineError> {
        let (to, key) = (envelope.peer, match_key(context, envelope.tag));
        if to == self.me {
            return self.send_classic(synchronous, context, envelope, buf);
        }
        if let Some(lost) = self.lost(to) {
            return Err(lost);
        }
        self.peer(to)?;
        let Some(tuples) = self.tuples_of(to) else { return self.send_classic(synchronous, context, envelope, buf) };
        let route = if tuples.holds(to) { None } else { Some(tuples.sending.route((to, key))) };
        if let Some(Route::Classic | Route::ClassicThenAsk) = route {
            let id = self.send_classic(synchronous, context, envelope, buf)?;
            if route == Some(Route::ClassicThenAsk) {
                self.ask_for_queue(to, key);
            }
            return Ok(id);
        }
        let id = self.insert_send(OutgoingSend::new(buf, envelope, key, synchronous));
        match route {
            Some(Route::Queue(queue)) => self.send_to_queue(id, queue),
            _ => self.hold(to, id),
        }
        Ok(RequestId(id))
    }

    fn hold(&mut self, to: PeerId, id: SlabKey) {
        self.stats.tuple_held += 1;
        if let Some(way) = self.tuples_of(to).and_then(|tuples| tuples.ways.get_mut(&to)) {
            way.held.push_back(id);
        }
    }

    fn ask_for_queue(&mut self, to: PeerId, key: u64) {
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, to) else { return };
        let endpoint = tuples.way(device, to).ok();
        let message = endpoint.as_ref().map(|endpoint| TupleMessage::Ask { key, endpoint });
        let is_possible = message.is_some_and(|message| self.say(to, message));
        let Some(tuples) = self.tuples_of(to) else { return };
        tuples.sending.asked((to, key), is_possible);
    }

    /// Sends a message about tuples; false if it is too long for a record.
    fn say(&mut self, to: PeerId, message: TupleMessage<'_>) -> bool {
        let Some((record, payload, len)) = message.encode() else { return false };
        self.send_record(to, wire::control_of(record, payload, len));
        true
    }

    /// Sends the message of a request to a queue.
    fn send_to_queue(&mut self, id: SlabKey, queue: SrqNumber) {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return };
        let (envelope, key, synchronous) = (send.envelope, send.key, send.synchronous);
        let to = envelope.peer;
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, to) else { return };
        let launched = if envelope.len_bytes > MESSAGE_MAX_BYTES {
            Err(FabricError::BeyondLimit {
                what: "bytes of a message",
                asked: envelope.len_bytes,
                max: MESSAGE_MAX_BYTES,
            })
        } else {
            tuples.launch(device, to, queue, id, send)
        };
        let launch = match launched {
            Ok(Launch::NoRoom) => {
                if let Some(way) = tuples.ways.get_mut(&to) {
                    way.held.push_front(id);
                }
                tuples.wait_for_room(to);
                return;
            }
            Ok(launch) => launch,
            Err(_) => {
                // Not this way: neither this message nor those after it.
                if let Some(sent) = tuples.sending.revoked((to, key), true) {
                    self.say(to, TupleMessage::Left { key, sent });
                }
                return self.dispatch(id);
            }
        };
        let number = tuples.sending.number((to, key));
        self.stats.tuple_sent += 1;
        self.count_for(to, |traffic| traffic.tuple_sent += 1);
        let left = match launch {
            Launch::Waits(message) => Some(message),
            Launch::Posted(message) => {
                let side = Side::of(self.port.as_deref(), to);
                self.take_completed(side, |device, queue, into| device.poll_at_hand(queue, into));
                Some(message)
            }
            Launch::Done | Launch::NoRoom => {
                // Its receiver may sleep while this side has filled its receive.
                self.context.notify(fabric::PeerIndex(to));
                self.finish_send(id, Completion { envelope, outcome: Outcome::Done });
                None
            }
        };
        let flight = left.and_then(|message| self.tuples_of(to)?.flights.get_mut(message.flight));
        let Some(flight) = flight else {
            self.stats.tuple_hits += 1;
            self.count_for(to, |traffic| traffic.tuple_hits += 1);
            return;
        };
        let is_over = left.is_some_and(|message| message.is_copied) && !synchronous;
        if is_over {
            flight.send = None;
        }
        self.say(to, TupleMessage::Announce { key, send: id.to_bits(), len_bytes: envelope.len_bytes, number });
        if is_over {
            self.finish_send(id, Completion { envelope, outcome: Outcome::Done });
        }
    }

    /// Goes on with messages to a peer that were held back.
    fn release_held(&mut self, to: PeerId) {
        loop {
            let Some(tuples) = self.tuples.of(self.port.as_deref(), to) else { return };
            if !tuples.holds(to) {
                return;
            }
            if tuples.flights.len() >= FLIGHTS_MAX {
                return tuples.wait_for_room(to);
            }
            let Some(id) = tuples.ways.get_mut(&to).and_then(|way| way.held.pop_front()) else { return };
            let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { continue };
            let key = send.key;
            match tuples.sending.route((to, key)) {
                Route::Queue(queue) => {
                    self.send_to_queue(id, queue);
                    // The device has taken no more.
                    if self.tuples_of(to).is_some_and(|tuples| tuples.is_stuck(to)) {
                        return;
                    }
                }
                Route::Classic => self.dispatch(id),
                Route::ClassicThenAsk => {
                    self.dispatch(id);
                    self.ask_for_queue(to, key);
                }
            }
        }
    }

    /// A receive while tuple queues are in use, for which nothing has come yet.
    #[cold]
    pub(crate) fn recv_by_tuple(
        &mut self,
        from: Source,
        context: ContextId,
        tag: TagPattern,
        buf: RecvBuf,
    ) -> RequestId {
        let id = self.requests.insert(Request { state: State::placeholder(), detached: false });
        let mut buf = Some(buf);
        if let (Source::Peer(peer), TagPattern::Exact(tag)) = (from, tag)
            && peer != self.me
            && let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer)
        {
            let tuple = (peer, match_key(context, tag));
            let queue = tuples.receiving.queue_for_receive(tuple);
            if let Some(queue) = queue.filter(|_| !self.posted.would_match(context, peer, tag))
                && let Some(whole) = buf.take()
            {
                let len = whole.len_bytes();
                match tuples.post(device, tuple, queue, id, whole, len) {
                    // One that met a message is over, which the next turn of progress finds.
                    Ok(in_queue) => {
                        let in_queue = tuples.boxed(in_queue);
                        self.set_state(id, State::InQueue(in_queue));
                    }
                    Err(back) => buf = Some(back),
                }
            }
        }
        if let Some(buf) = buf {
            let links = self.posted.post(Pattern::new(context, from, tag), id);
            self.set_state(id, State::Posted { buf, links });
        }
        RequestId(id)
    }

    fn set_state(&mut self, id: SlabKey, state: State) {
        if let Some(request) = self.requests.get_mut(id) {
            request.state = state;
        }
    }

    /// A message that the device holds has met its receive: the queue fetches it.
    pub(crate) fn fetch_announced(&mut self, receive: SlabKey, buf: RecvBuf, envelope: Envelope, key: u64) {
        if !self.fetch(receive, buf, envelope, key, false) {
            let outcome = Outcome::Failed(self.not_fetched(envelope.peer));
            self.complete(receive, Completion { envelope, outcome });
        }
    }

    /// Why a message that the device held can not be had.
    pub(crate) fn not_fetched(&self, peer: PeerId) -> Fault {
        match self.lost(peer) {
            Some(EngineError::PeerLost { peer, why }) => Fault::loss(peer, why),
            _ => Fault::new("the queue of its tuple did not give it out"),
        }
    }

    /// Has a message that the device holds fetched for a receive that is yet to come, see [`Core::receive_fetched`]: the
    /// request of that; `None` if it can not be had.
    pub(crate) fn fetch_kept(&mut self, envelope: Envelope, key: u64) -> Option<SlabKey> {
        let id = self.requests.insert(Request { state: State::placeholder(), detached: false });
        if self.fetch(id, RecvBuf::empty(), envelope, key, true) {
            return Some(id);
        }
        self.requests.remove(id);
        None
    }

    /// Has a message that the device holds fetched and thrown away.
    fn fetch_in_vain(&mut self, envelope: Envelope, key: u64) {
        let id = self.requests.insert(Request { state: State::placeholder(), detached: true });
        if !self.fetch(id, RecvBuf::empty(), envelope, key, false) {
            self.requests.remove(id);
        }
    }

    /// The receive for a message that was fetched for it, or is being fetched.
    pub(crate) fn receive_fetched(&mut self, id: SlabKey, mut buf: RecvBuf) -> RequestId {
        match self.requests.get_mut(id) {
            Some(Request { state: State::InQueue(in_queue), .. }) => {
                in_queue.buf = buf;
                in_queue.is_kept = false;
            }
            Some(Request { state: State::Complete(completion), .. }) => {
                let peer = completion.envelope.peer;
                let kept = self.tuples.of(self.port.as_deref(), peer).and_then(|tuples| tuples.kept.remove(&id));
                if let Some(bytes) = kept.as_ref().and_then(RecvBuf::as_contiguous) {
                    let (sent_bytes, capacity_bytes) = (bytes.len() as u64, buf.len_bytes());
                    buf.unpack_at(0, &bytes[..sent_bytes.min(capacity_bytes) as usize]);
                    if sent_bytes > capacity_bytes {
                        completion.outcome = Outcome::Truncated { sent_bytes, capacity_bytes };
                    }
                }
            }
            _ => {}
        }
        RequestId(id)
    }

    /// Posts a receive for a message that the device holds; false if its queue does not take it.
    fn fetch(&mut self, receive: SlabKey, buf: RecvBuf, envelope: Envelope, key: u64, is_kept: bool) -> bool {
        let tuple = (envelope.peer, key);
        if self.lost(envelope.peer).is_some() {
            return false;
        }
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, envelope.peer) else {
            return false;
        };
        tuples.receiving.matched(tuple);
        let queue = tuples.receiving.queue(tuple);
        let posted = queue.and_then(|queue| tuples.post(device, tuple, queue, receive, buf, envelope.len_bytes).ok());
        let Some(in_queue) = posted else {
            self.fetch_failed(envelope.peer, key);
            return false;
        };
        self.set_state(
            receive,
            State::InQueue(Box::new(InQueue {
                is_met: true,
                is_kept,
                announced_bytes: envelope.len_bytes,
                ..in_queue
            })),
        );
        self.poll_tuples_of(envelope.peer);
        true
    }

    /// A message that was matched stays in the queue, and those behind it with it: its sender goes back to the channel.
    #[cold]
    fn fetch_failed(&mut self, peer: PeerId, key: u64) {
        if self.tuples_of(peer).is_some_and(|tuples| tuples.receiving.failed((peer, key))) {
            self.say(peer, TupleMessage::Revoke { key, for_good: true });
        }
    }

    /// Takes in what the device of messages from and to `peer` has completed.
    fn poll_tuples_of(&mut self, peer: PeerId) {
        self.poll_tuples_on(Side::of(self.port.as_deref(), peer));
    }

    /// Takes in what a device has completed; true if anything was.
    pub(crate) fn poll_tuples_on(&mut self, side: Side) -> bool {
        let moved = self.take_completed(side, |device, queue, into| device.poll(queue, into));
        if let Some(tuples) = self.tuples.on(side)
            && !tuples.stuck.is_empty()
        {
            for to in std::mem::take(&mut tuples.stuck) {
                self.release_held(to);
            }
        }
        moved
    }

    /// Ends what `poll` says is complete; true if anything was.
    #[inline]
    fn take_completed(
        &mut self,
        side: Side,
        poll: impl Fn(&mut dyn Context, CompletionQueue, &mut [WorkCompletion]) -> Result<usize, FabricError>,
    ) -> bool {
        let mut moved = false;
        let mut into = [WorkCompletion::default(); COMPLETIONS_AT_ONCE];
        loop {
            let Some((tuples, device)) = at_work_on(&mut self.tuples, &mut self.port, side) else {
                return moved;
            };
            // An overrun can not be: the queue is longer than all that may be posted.
            let count = poll(device, tuples.completions, &mut into).unwrap_or(0);
            for done in &into[..count] {
                match done.opcode {
                    CompletionOpcode::Receive => self.end_receive(done),
                    _ => self.end_flight(side, done),
                }
            }
            moved |= count > 0;
            if count < into.len() {
                return moved;
            }
        }
    }

    fn end_flight(&mut self, side: Side, done: &WorkCompletion) {
        let Some((tuples, device)) = at_work_on(&mut self.tuples, &mut self.port, side) else { return };
        let Some(flight) = tuples.flights.remove(SlabKey::from_bits(done.id)) else { return };
        if let Some(region) = flight.region {
            // It was registered with the flight.
            let _ = device.deregister(region);
        }
        // Its receiver may sleep while this side has filled its receive.
        self.context.notify(fabric::PeerIndex(flight.to));
        self.drop_ways_if_lost(flight.to);
        if done.status != WcStatus::Success && self.lose_with(flight.to, done.status) {
            // It ends with the others when the loss is told.
            return;
        }
        let Some(id) = flight.send else { return };
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return };
        let said = self.tuples.on(side).and_then(|tuples| tuples.cancelling.get(&id).cloned());
        let envelope = send.envelope;
        let outcome = match (done.status, said) {
            // It may have been thrown away: its receiver says so.
            (WcStatus::Success, Some(None)) => return,
            (WcStatus::Success, Some(Some(outcome))) => outcome,
            (WcStatus::Success, None) => Outcome::Done,
            (status, _) => Outcome::Failed(Fault::new(format!("sending to the queue of its tuple failed: {status:?}"))),
        };
        self.finish_send(id, Completion { envelope, outcome });
    }

    /// A receive whose message did not come whole: it ends now if its sender is known to be lost, or when it is.
    #[cold]
    fn end_failed(&mut self, id: SlabKey, in_queue: Box<InQueue>) {
        let (peer, key) = in_queue.tuple;
        if self.lost(peer).is_none() {
            return self.set_state(id, State::InQueue(in_queue));
        }
        let envelope = Envelope { peer, tag: split(key).1, len_bytes: in_queue.announced_bytes };
        let outcome = Outcome::Failed(self.not_fetched(peer));
        self.complete(id, Completion { envelope, outcome });
    }

    /// A queue pair for tuples that fails is the loss of its peer, as any is: true if that will be told of, which is so on
    /// the device of the port.
    #[cold]
    fn lose_with(&mut self, peer: PeerId, status: WcStatus) -> bool {
        let Some(port) = self.port.as_mut().filter(|port| port.reaches(peer)) else { return false };
        port.lose_by(peer, status);
        true
    }

    fn end_receive(&mut self, done: &WorkCompletion) {
        let id = SlabKey::from_bits(done.id);
        let Some(request) = self.requests.get_mut(id) else { return };
        let mut in_queue = match std::mem::replace(&mut request.state, State::placeholder()) {
            State::InQueue(in_queue) => in_queue,
            other => {
                request.state = other;
                return;
            }
        };
        let (peer, key) = in_queue.tuple;
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else { return };
        let may_be_over = tuples.receiving.filled(in_queue.tuple, done.id);
        if let Some(region) = in_queue.region.take() {
            // It was registered with the receive.
            let _ = device.deregister(region);
        }
        if may_be_over {
            tuples.close_if_over(device, in_queue.tuple);
        }
        self.drop_ways_if_lost(peer);
        if done.status != WcStatus::Success && self.lose_with(peer, done.status) {
            (in_queue.is_met, in_queue.has_failed) = (true, true);
            return self.end_failed(id, in_queue);
        }
        let envelope = Envelope { peer, tag: split(key).1, len_bytes: done.bytes };
        if in_queue.is_kept && done.status == WcStatus::Success {
            let bytes = in_queue.staging.take().unwrap_or_else(RecvBuf::empty).slice(0, done.bytes);
            if let Some(tuples) = self.tuples_of(peer) {
                tuples.kept.insert(id, bytes);
            }
            in_queue.buf = RecvBuf::empty();
        }
        let is_kept = in_queue.is_kept;
        self.stats.tuple_received += 1;
        let capacity_bytes = in_queue.buf.len_bytes();
        if let Some(bytes) = in_queue.staging.as_ref().and_then(RecvBuf::as_contiguous) {
            let len = done.bytes.min(capacity_bytes) as usize;
            in_queue.buf.unpack_at(0, &bytes[..len]);
        }
        in_queue.buf.written_by_others(done.bytes);
        // Its sender may sleep while this side has fetched the message.
        self.context.notify(fabric::PeerIndex(peer));
        let outcome = match done.status {
            WcStatus::Success if done.bytes > capacity_bytes && !is_kept => {
                Outcome::Truncated { sent_bytes: done.bytes, capacity_bytes }
            }
            WcStatus::Success => Outcome::Done,
            status => Outcome::Failed(Fault::new(format!("receiving from the queue of its tuple failed: {status:?}"))),
        };
        if let Some(tuples) = self.tuples_of(peer) {
            tuples.unbox(in_queue);
        }
        self.complete(id, Completion { envelope, outcome });
    }
}
