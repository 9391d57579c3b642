//! The adapter's objects and what happens to them; everything here is without a link.

use std::collections::VecDeque;

use base::{Slab, SlabKey};
use fabric::{
    AsynchronousEvent, CompletionOpcode, CompletionQueue, FabricError, MulticastGroup, NotifyOn, Operation, QpNumber,
    QueuePair, QueuePairState, SendFlags, SharedReceiveQueue, Transport, WcStatus, WorkCompletion,
};

use smallvec::SmallVec;

use super::completion::{Completions, Pushed};
use super::queue_pair::{QueuePairObject, Send};
use super::receive::{Posted, Receive, ReceiveQueue};
use super::regions::{Regions, RemoteUse};
use super::responder::Arriving;
use super::riding::{Fresh, Patience, Riding};
use super::shown::ShownReceive;
use crate::link::{Board, HEADER_BYTES, LinkPeer};
use crate::numbered::{Numbered, handle, number_of};
use crate::wire::{Kind, Packet};

/// Protection domains, completion queues, shared receive queues and address handles, each, at most.
pub(super) const OBJECTS_MAX: u32 = 1 << 14;
/// Receives in several queues, at most.
pub(super) const SEVERAL_MAX: u32 = 1 << 16;
/// Queue pairs at most.
pub(super) const QUEUE_PAIRS_MAX: u32 = 1 << 16;
/// Queues one receive may stand in.
pub(super) const MULTI_QUEUE_MAX: usize = 64;
/// Answers waiting for one peer, at most. Past it a peer that floods gets none.
const ANSWERS_MAX: usize = 1 << 16;

/// This adapter as a peer of itself; no link has so many peers.
pub(super) const OWN: LinkPeer = LinkPeer(u32::MAX);

pub(super) struct SharedReceives {
    pub(super) domain: u32,
    pub(super) queue: ReceiveQueue,
    pub(super) xrc: Option<(u32, CompletionQueue)>,
    pub(super) limit: u32,
    /// Its receives are shown to senders.
    pub(super) on_board: bool,
    /// Those that are, in order; all of them stand before those in `queue`.
    pub(super) shown: VecDeque<ShownReceive>,
}

/// A receive that stands in several queues.
pub(super) struct InSeveral {
    pub(super) receive: Receive,
    pub(super) queues: SmallVec<[u32; 2]>,
}

/// Where a datagram goes.
#[derive(Clone, Copy)]
pub(super) enum Way {
    Peer(LinkPeer),
    Group(MulticastGroup),
}

/// What there is to tell of a send that is over.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) len_bytes: u64,
    pub(super) flags: SendFlags,
}

impl Ended {
    pub(super) fn of(send: &Send) -> Self {
        Self { id: send.id, operation: send.operation, len_bytes: send.len_bytes, flags: send.flags }
    }
}

/// A packet to be sent when the link has room.
pub(super) struct Answer {
    pub(super) packet: Packet,
    /// What a read brings: looked up again when it is sent, for the region may have gone.
    pub(super) bytes: Option<RemoteUse>,
    /// How long it may wait for a packet to ride with.
    pub(super) patience: Patience,
}

impl Answer {
    /// One without payload that waits for nothing.
    pub(super) fn at_once(packet: Packet) -> Self {
        Self { packet, bytes: None, patience: Patience::None }
    }
}

/// What the adapter keeps per peer.
#[derive(Default)]
pub(super) struct PeerState {
    pub(super) answers: VecDeque<Answer>,
    pub(super) arriving: Option<Arriving>,
    pub(super) is_lost: bool,
    pub(super) riding: Riding,
}

pub(super) struct Core {
    /// Acknowledgements may wait for packets to ride with.
    pub(super) answers_ride: bool,
    pub(super) regions: Regions,
    pub(super) domains: Numbered<()>,
    pub(super) xrc_domains: Numbered<()>,
    pub(super) completions: Numbered<Completions>,
    pub(super) shared: Numbered<SharedReceives>,
    /// Their keys do not travel, so the place used last is used next, and is near.
    pub(super) several: Slab<InSeveral>,
    pub(super) addresses: Numbered<(u32, Way)>,
    pub(super) queue_pairs: Numbered<QueuePairObject>,
    pub(super) events: VecDeque<AsynchronousEvent>,
    pub(super) peers: Vec<PeerState>,
    pub(super) own: PeerState,
    /// Packets of this adapter to itself.
    pub(super) own_packets: VecDeque<([u8; HEADER_BYTES], Vec<u8>)>,
    /// Queue pairs with something to send.
    pub(super) startable: VecDeque<u32>,
    /// Queue pairs that wait for a moment.
    pub(super) held: Vec<u32>,
    /// Those among them whose wait is a duration still.
    pub(super) newly_held: Vec<u32>,
    /// An acknowledgement that is not queued yet.
    pub(super) fresh: Option<Fresh>,
    /// Peers with answers to send.
    pub(super) answering: Vec<LinkPeer>,
    /// Queue pairs to be taken out of the link's table.
    pub(super) unpublish: Vec<u32>,
    /// Packets that were none, or not for us.
    pub(super) refused_packets: u64,
    /// Packets of any kind that have come.
    pub(super) begun_packets: u64,
    /// Polls since then, or since held answers went alone.
    pub(super) polls_in_vain: u32,
    /// Where shared receives are shown to senders, if the link has that.
    pub(super) board: Option<Box<dyn Board>>,
    /// Shared queues that were put on the board and are not destroyed.
    pub(super) boarded: Vec<u32>,
    /// Kept for its memory.
    pub(super) queues_filled: Vec<u32>,
    /// Queue pairs with sends on the board.
    pub(super) offering: Vec<u32>,
    pub(super) board_turn: u32,
}

impl Core {
    pub(super) fn new(board: Option<Box<dyn Board>>, answers_ride: bool) -> Self {
        Self {
            answers_ride,
            board,
            boarded: Vec::new(),
            queues_filled: Vec::new(),
            offering: Vec::new(),
            board_turn: 0,
            regions: Regions::new(),
            domains: Numbered::new("protection domains", OBJECTS_MAX),
            xrc_domains: Numbered::new("XRC domains", OBJECTS_MAX),
            completions: Numbered::new("completion queues", OBJECTS_MAX),
            shared: Numbered::new("shared receive queues", OBJECTS_MAX),
            several: Slab::new(),
            addresses: Numbered::new("address handles", OBJECTS_MAX),
            queue_pairs: Numbered::new("queue pairs", QUEUE_PAIRS_MAX),
            events: VecDeque::new(),
            peers: Vec::new(),
            own: PeerState::default(),
            own_packets: VecDeque::new(),
            startable: VecDeque::new(),
            held: Vec::new(),
            newly_held: Vec::new(),
            fresh: None,
            answering: Vec::new(),
            unpublish: Vec::new(),
            refused_packets: 0,
            begun_packets: 0,
            polls_in_vain: 0,
        }
    }

    pub(super) fn peer(&mut self, peer: LinkPeer) -> &mut PeerState {
        if peer == OWN {
            return &mut self.own;
        }
        let index = peer.0 as usize;
        if index >= self.peers.len() {
            self.peers.resize_with(index + 1, PeerState::default);
        }
        &mut self.peers[index]
    }

    /// Adds a completion; an overrun takes the queue pairs of the queue with it.
    #[inline]
    pub(super) fn complete(&mut self, queue: CompletionQueue, completion: WorkCompletion, solicited: bool) {
        let Some(completions) = self.completions.get_mut(number_of(queue.0)) else { return };
        if completions.push(completion, solicited) == Pushed::Overran {
            self.break_queue(queue);
        }
    }

    /// A completion found no room: whoever completes there has failed.
    #[cold]
    fn break_queue(&mut self, queue: CompletionQueue) {
        self.events.push_back(AsynchronousEvent::CompletionQueueOverrun(queue));
        let broken: Vec<u32> = self
            .queue_pairs
            .iter()
            .filter(|(_, qp)| {
                [qp.attributes.send_completions, qp.attributes.receive_completions].contains(&queue)
                    && qp.state != QueuePairState::Reset
            })
            .map(|(number, _)| number)
            .collect();
        broken.into_iter().for_each(|number| self.fail(number));
    }

    /// True if there is nothing to send, nor anything that waits for a moment.
    pub(super) fn is_idle(&self) -> bool {
        self.answering.is_empty()
            && self.startable.is_empty()
            && self.held.is_empty()
            && self.newly_held.is_empty()
            && self.own_packets.is_empty()
            && self.unpublish.is_empty()
    }

    /// Lists a queue pair, if it may have something to send.
    #[inline]
    pub(super) fn list(&mut self, number: u32) {
        if let Some(qp) = self.queue_pairs.get_mut(number)
            && !qp.listed
            && (qp.started < qp.sends.len() || qp.lines.is_some())
        {
            qp.listed = true;
            self.startable.push_back(number);
        }
    }

    /// The queue pair goes to the error state by itself.
    pub(super) fn fail(&mut self, number: u32) {
        if self.queue_pairs.get(number).is_some_and(|qp| qp.state != QueuePairState::Error) {
            self.events.push_back(AsynchronousEvent::QueuePairError(QueuePair(handle(number))));
            self.enter_error(number);
        }
    }

    /// The error state: everything posted is flushed, sends first.
    pub(super) fn enter_error(&mut self, number: u32) {
        let Some(qp) = self.queue_pairs.get_mut(number) else { return };
        qp.state = QueuePairState::Error;
        qp.hold = None;
        qp.started = 0;
        qp.reads_in_flight = 0;
        let sends = std::mem::take(&mut qp.sends);
        qp.first_sequence = qp.first_sequence.wrapping_add(sends.len() as u32);
        let receives = std::mem::take(&mut qp.receives.posted);
        qp.receives.live = 0;
        qp.by_packets = true;
        let attributes = qp.attributes;
        if std::mem::take(&mut qp.published) {
            self.unpublish.push(number);
        }
        self.refuse_parked(number);
        let waited = self.queue_pairs.get_mut(number).and_then(|qp| qp.lines.as_mut()).map(|lines| lines.take_all());
        // Those on the board were posted first.
        let (taken, back) = self.withdraw_offers(number);
        for send in taken {
            self.end_offered_send(number, &send);
        }
        for send in back.into_iter().chain(waited.unwrap_or_default()).chain(sends) {
            let completion = flushed(number, send.id, opcode(send.operation));
            self.complete(attributes.send_completions, completion, false);
        }
        for posted in receives {
            if let Posted::Here(receive) = posted {
                let completion = flushed(number, receive.id, CompletionOpcode::Receive);
                self.complete(attributes.receive_completions, completion, false);
            }
        }
    }

    /// Ends the first send of a queue pair.
    pub(super) fn end_send(&mut self, number: u32, status: WcStatus) {
        if let Some(ended) = self.take_first_send(number) {
            self.end_taken_send(number, ended, status);
        }
    }

    /// The first send of a queue pair, which is over, leaves it.
    #[inline]
    pub(super) fn take_first_send(&mut self, number: u32) -> Option<Ended> {
        let qp = self.queue_pairs.get_mut(number)?;
        let ended = Ended::of(qp.sends.front()?);
        drop(qp.sends.pop_front());
        qp.first_sequence = qp.first_sequence.wrapping_add(1);
        if qp.started > 0 {
            qp.started -= 1;
            qp.reads_in_flight -= u32::from(ended.operation.returns_data());
        }
        qp.retries = 0;
        Some(ended)
    }

    /// How a send ended that has left its queue pair.
    #[inline]
    pub(super) fn end_taken_send(&mut self, number: u32, ended: Ended, status: WcStatus) {
        self.complete_send(number, ended, status);
        if status != WcStatus::Success {
            self.fail(number);
        }
    }

    /// The completion of a send that is over, if there is one.
    #[inline]
    pub(super) fn complete_send(&mut self, number: u32, ended: Ended, status: WcStatus) {
        let Ended { id, operation, len_bytes, flags } = ended;
        if flags.signalled || status != WcStatus::Success {
            let Some(qp) = self.queue_pairs.get(number) else { return };
            let queue = qp.attributes.send_completions;
            let bytes = if status == WcStatus::Success { len_bytes } else { 0 };
            let (opcode, qp) = (opcode(operation), QpNumber(number));
            self.complete(queue, WorkCompletion { id, status, opcode, bytes, qp, ..WorkCompletion::default() }, false);
        }
    }

    /// The next receive for a message that came through queue pair `number`, and where it completes. `selected` is the
    /// shared receive queue an XRC message names.
    pub(super) fn take_receive(&mut self, number: u32, selected: Option<u32>) -> Option<(Receive, CompletionQueue)> {
        let qp = self.queue_pairs.get_mut(number)?;
        let own_completions = qp.attributes.receive_completions;
        let shared = selected.or(qp.shared);
        let Some(shared) = shared else {
            let Posted::Here(receive) = qp.receives.posted.pop_front()? else { return None };
            qp.receives.live -= 1;
            return Some((receive, own_completions));
        };
        let completions = self.shared.get(shared)?.xrc.map_or(own_completions, |(_, queue)| queue);
        loop {
            let posted = match self.take_shown(shared) {
                Some(posted) => posted,
                None => self.shared.get_mut(shared)?.queue.posted.pop_front()?,
            };
            match posted {
                Posted::Here(receive) => {
                    self.shared.get_mut(shared)?.queue.live -= 1;
                    self.check_limit(shared);
                    return Some((receive, completions));
                }
                Posted::InSeveral(several) => {
                    // Claimed by this message, or by another one before.
                    let Some(claimed) = self.claim(several) else { continue };
                    return Some((claimed, completions));
                }
            }
        }
    }

    /// Keeps a receive that stands in one queue or several.
    pub(super) fn insert_several(&mut self, several: InSeveral) -> Result<SlabKey, FabricError> {
        if self.several.len() >= SEVERAL_MAX as usize {
            return Err(FabricError::Exhausted { object: "receives in several queues", max: SEVERAL_MAX });
        }
        Ok(self.several.insert(several))
    }

    /// Takes a receive out of all queues in which it stands.
    pub(super) fn claim(&mut self, several: SlabKey) -> Option<Receive> {
        let InSeveral { receive, queues } = self.several.remove(several)?;
        for queue in queues {
            if let Some(shared) = self.shared.get_mut(queue) {
                let table = &self.several;
                shared.queue.forget_one(|key| table.get(key).is_some());
                self.check_limit(queue);
            }
        }
        Some(receive)
    }

    pub(super) fn check_limit(&mut self, shared: u32) {
        if let Some(receives) = self.shared.get_mut(shared)
            && receives.queue.live < receives.limit
        {
            receives.limit = 0;
            let event = AsynchronousEvent::ReceiveLimitReached(SharedReceiveQueue(handle(shared)));
            self.events.push_back(event);
        }
    }

    /// The queue from which a message through `number` takes its receive.
    pub(super) fn receive_queue(&mut self, number: u32, selected: Option<u32>) -> Option<&mut ReceiveQueue> {
        let qp = self.queue_pairs.get_mut(number)?;
        match selected.or(qp.shared) {
            Some(shared) => self.shared.get_mut(shared).map(|shared| &mut shared.queue),
            None => self.queue_pairs.get_mut(number).map(|qp| &mut qp.receives),
        }
    }

    /// Tells those who wait, at queue `shared` if it is one, to come again.
    pub(super) fn call_waiting(&mut self, shared: Option<u32>, waiting: &[u32]) {
        let mut waiting_on = Vec::new();
        for number in waiting {
            match shared.and_then(|queue| self.call_parked(*number, queue)) {
                Some(true) => continue,
                Some(false) => {
                    waiting_on.push(*number);
                    continue;
                }
                None => {}
            }
            let Some(qp) = self.queue_pairs.get(*number).filter(|qp| qp.is_taking()) else { continue };
            let (Some(peer), packet) = (qp.peer, Packet::new(Kind::Ready, *number, qp.remote, qp.expected)) else {
                continue;
            };
            self.answer(peer, Answer::at_once(packet));
        }
        if let Some(receives) = shared.and_then(|queue| self.shared.get_mut(queue)) {
            waiting_on.into_iter().rev().for_each(|number| receives.queue.waiting.push_front(number));
        }
    }

    /// Queues an answer; acknowledgements of one queue pair are cumulative, so the last replaces the one before.
    pub(super) fn answer(&mut self, peer: LinkPeer, answer: Answer) {
        self.settle();
        let state = self.peer(peer);
        if state.is_lost || state.answers.len() >= ANSWERS_MAX {
            return;
        }
        if matches!(answer.packet.kind, Kind::Acknowledge | Kind::QueueAcknowledge)
            && let Some(last) = state.answers.back_mut()
            && last.packet.kind == answer.packet.kind
            && (last.packet.source, last.packet.destination) == (answer.packet.source, answer.packet.destination)
            && last.packet.selector == answer.packet.selector
        {
            last.packet.sequence = answer.packet.sequence;
            last.patience = last.patience.min(answer.patience);
            state.riding.is_new |= answer.patience > Patience::None;
            return;
        }
        let is_first = state.answers.is_empty();
        let counts = answer.packet.counts();
        let source = answer.packet.source;
        state.riding.is_new |= answer.patience > Patience::None;
        state.answers.push_back(answer);
        if is_first {
            self.answering.push(peer);
        }
        if let Some(qp) = self.queue_pairs.get_mut(source).filter(|_| counts) {
            qp.unsent_answers += 1;
        }
    }

    /// True if anything of the kind is used by a queue pair or shared receive queue.
    pub(super) fn completion_queue_user(&self, queue: CompletionQueue) -> Option<&'static str> {
        if self.shared.iter().any(|(_, shared)| shared.xrc.is_some_and(|(_, completions)| completions == queue)) {
            return Some("shared receive queue");
        }
        self.queue_pairs
            .iter()
            .any(|(_, qp)| [qp.attributes.send_completions, qp.attributes.receive_completions].contains(&queue))
            .then_some("queue pair")
    }

    /// Who uses a protection domain.
    pub(super) fn domain_user(&self, domain: u32) -> Option<&'static str> {
        if self.regions.is_used(domain) {
            return Some("memory region");
        }
        if self.shared.iter().any(|(_, shared)| shared.domain == domain) {
            return Some("shared receive queue");
        }
        if self.addresses.iter().any(|(_, (owner, _))| *owner == domain) {
            return Some("address handle");
        }
        self.queue_pairs.iter().any(|(_, qp)| qp.domain() == domain).then_some("queue pair")
    }

    /// Who uses an XRC domain.
    pub(super) fn xrc_domain_user(&self, domain: u32) -> Option<&'static str> {
        if self.shared.iter().any(|(_, shared)| shared.xrc.is_some_and(|(used, _)| used == domain)) {
            return Some("shared receive queue");
        }
        let uses = |transport| matches!(transport, Transport::XrcTarget(used) if number_of(used.0) == domain);
        self.queue_pairs.iter().any(|(_, qp)| uses(qp.attributes.transport)).then_some("queue pair")
    }

    pub(super) fn arm(&mut self, queue: CompletionQueue, on: NotifyOn) {
        if let Some(completions) = self.completions.get_mut(number_of(queue.0)) {
            completions.arm(on);
        }
    }
}

/// A request that was not done because its queue pair failed.
pub(super) fn flushed(number: u32, id: u64, opcode: CompletionOpcode) -> WorkCompletion {
    WorkCompletion {
        id,
        status: WcStatus::WorkRequestFlushed,
        opcode,
        qp: QpNumber(number),
        ..WorkCompletion::default()
    }
}

pub(super) fn opcode(operation: Operation) -> CompletionOpcode {
    match operation {
        Operation::Send | Operation::SendWithImmediate(_) => CompletionOpcode::Send,
        Operation::RdmaWrite(_) | Operation::RdmaWriteWithImmediate(..) => CompletionOpcode::RdmaWrite,
        Operation::RdmaRead(_) => CompletionOpcode::RdmaRead,
        Operation::FetchAdd { .. } => CompletionOpcode::FetchAdd,
        Operation::CompareSwap { .. } => CompletionOpcode::CompareSwap,
    }
}
