//! Shared receives on the link's board, where senders take them, and sends that wait there.
//!
//! ```text
//!   post_shared_receive ─▶ posted ─▶ shown (on the board) ─▶ filled by a sender ─▶ completion, in order
//!                                └─── can not be shown: the queue leaves the board for good
//!   post_send ─▶ sends ─▶ offered (on the board) ─▶ taken by the receiver ─▶ completion, in order of its queue
//!                     └─── not that way: a packet, after what was offered before
//! ```
//! A queue in an XRC domain is on the board until something does not fit there: a receive in several queues, a long
//! list, memory that went. Then what is not taken moves back and messages come as packets.

use std::collections::VecDeque;

use base::SlabKey;
use base::memory::{ReadRange, WriteRange};
use fabric::{
    CompletionOpcode, Destination, LoneSend, Operation, QpNumber, QueuePairState, SrqNumber, Transport, WorkCompletion,
};

use super::core::{Core, OWN, flushed, opcode};
use super::queue_pair::Send;
use super::receive::{Posted, Receive};
use crate::link::{BoardTarget, Filled, LinkPeer, Note, Offered};

/// Calls of progress from one look at the far ends of waiting sends to the next.
const TURNS_PER_LOOK: u32 = 64;
/// Up to so many queues the receives that are next are looked at themselves; what senders note elsewhere is not.
const LOOKED_AT_MAX: usize = 4;

/// A receive on the board.
pub(super) struct ShownReceive {
    slot: u32,
    posted: Posted,
}

/// A send on the board.
pub(super) struct OfferedSend {
    send: Send,
    queue: u32,
    place: Place,
}

impl OfferedSend {
    /// True if it names this queue.
    pub(super) fn is_to(&self, queue: u32) -> bool {
        self.queue == queue
    }
}

/// Where an offered send is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In this slot.
    Waits(u32),
    /// In its receive; it only waits for those before it to complete.
    Taken,
    /// It must come as a packet.
    Refused,
}

impl Core {
    /// Puts a fresh shared queue on the board, if there is one and it fits.
    pub(super) fn open_on_board(&mut self, number: u32) {
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return };
        if let Some((domain, _)) = shared.xrc {
            shared.on_board = board.open(number, domain, shared.queue.depth);
            if shared.on_board {
                self.boarded.push(number);
            }
        }
    }

    /// Shows a receive that brings its memory at once, if nothing stands before it; false if it must be posted first.
    pub(super) fn show_lone(&mut self, number: u32, several: SlabKey, memory: WriteRange) -> bool {
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return false };
        if !shared.on_board || !shared.queue.posted.is_empty() || !shared.queue.waiting.is_empty() {
            return false;
        }
        let Some((slot, has_met)) = board.show(number, &[memory]) else { return false };
        shared.queue.live += 1;
        shared.shown.push_back(ShownReceive { slot, posted: Posted::InSeveral(several) });
        // What met a send that waited is over already.
        if has_met {
            self.end_filled(number);
        }
        true
    }

    /// Shows what was posted since.
    pub(super) fn show_posted(&mut self, number: u32) {
        loop {
            let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return };
            let Some(posted) = shared.queue.posted.front().filter(|_| shared.on_board) else {
                // What met a send that waited is over already.
                return self.end_filled(number);
            };
            let receive = match posted {
                Posted::Here(receive) => Some(receive),
                Posted::InSeveral(several) => self.several.get(*several).map(|several| &several.receive),
            };
            let Some(receive) = receive else {
                shared.queue.posted.pop_front();
                continue;
            };
            let targets = receive.targets(&self.regions, shared.domain);
            let Some((slot, _)) = targets.and_then(|targets| board.show(number, &targets)) else {
                return self.leave_board(number);
            };
            self.regions.board(&receive.list);
            if let Some(posted) = shared.queue.posted.pop_front() {
                shared.shown.push_back(ShownReceive { slot, posted });
            }
        }
    }

    /// From now on messages to this queue come as packets.
    pub(super) fn leave_board(&mut self, number: u32) {
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return };
        if !std::mem::replace(&mut shared.on_board, false) {
            return;
        }
        let (mut kept, mut hidden) = (VecDeque::new(), VecDeque::new());
        for shown in shared.shown.drain(..) {
            if board.hide(number, shown.slot) { hidden.push_back(shown.posted) } else { kept.push_back(shown) }
        }
        shared.shown = kept;
        hidden.append(&mut shared.queue.posted);
        shared.queue.posted = hidden;
        board.close(number, shared.queue.depth);
    }

    /// The queue goes: receives that are being filled are waited for.
    pub(super) fn clear_board(&mut self, number: u32) {
        self.leave_board(number);
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return };
        for shown in shared.shown.drain(..) {
            let _ = board.settle(shown.slot);
        }
    }

    /// The receive on the board that is next for a packet.
    pub(super) fn take_shown(&mut self, number: u32) -> Option<Posted> {
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return None };
        let at = shared.shown.iter().position(|shown| board.hide(number, shown.slot))?;
        shared.shown.remove(at).map(|shown| shown.posted)
    }

    /// Takes the receive in several queues off the board; false if a sender took it.
    pub(super) fn hide_several(&mut self, several: SlabKey) -> bool {
        let Some(number) = self.several.get(several).and_then(|several| several.queues.first().copied()) else {
            return true;
        };
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return true };
        let is_it = |shown: &ShownReceive| matches!(shown.posted, Posted::InSeveral(its) if its == several);
        let Some(at) = shared.shown.iter().position(is_it) else { return true };
        let is_hidden = board.hide(number, shared.shown[at].slot);
        if is_hidden {
            shared.shown.remove(at);
            if at == 0 {
                self.show_again(number);
            }
        }
        is_hidden
    }

    /// Another receive is the first of its queue: a message that waits for a longer one may take it, but looks at what is
    /// shown only when it is.
    fn show_again(&mut self, number: u32) {
        let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return };
        let mut hidden = VecDeque::new();
        while let Some(last) = shared.shown.pop_back_if(|last| board.hide(number, last.slot)) {
            hidden.push_front(last.posted);
        }
        hidden.append(&mut shared.queue.posted);
        shared.queue.posted = hidden;
        self.show_posted(number);
    }

    /// Memory is about to go: what names it on the board is taken back, and what is under way is waited for.
    pub(super) fn recall_from_board(&mut self, lkey: fabric::Lkey) {
        // Asked at every deregistration, and most of what is registered never was there, or is there no more.
        if self.board.is_none() || !self.regions.may_be_on_board(lkey) {
            return;
        }
        let names = |receive: &Receive| receive.list.iter().any(|entry| entry.lkey == lkey);
        let concerned: Vec<u32> = self
            .shared
            .iter()
            .filter(|(_, shared)| {
                shared.shown.iter().any(|shown| match &shown.posted {
                    Posted::Here(receive) => names(receive),
                    Posted::InSeveral(several) => self.several.get(*several).is_some_and(|its| names(&its.receive)),
                })
            })
            .map(|(number, _)| number)
            .collect();
        for number in concerned {
            self.leave_board(number);
            while let Some(shown) = self.shared.get_mut(number).and_then(|shared| shared.shown.pop_front()) {
                let filled = self.board.as_mut().and_then(|board| board.settle(shown.slot));
                self.end_shown(number, shown.posted, filled);
            }
        }
        let senders: Vec<u32> = self.offering.clone();
        for number in senders {
            let Some(qp) = self.queue_pairs.get(number) else { continue };
            if qp.offered.iter().any(|offered| offered.send.list.iter().any(|entry| entry.lkey == lkey)) {
                self.take_offers_back(number);
            }
        }
    }

    /// Completes receives that senders have filled.
    pub(super) fn look_at_board(&mut self) {
        if self.board.is_none() {
            return;
        }
        if self.boarded.len() <= LOOKED_AT_MAX {
            for at in 0..self.boarded.len() {
                self.end_filled(self.boarded[at]);
            }
        } else {
            self.look_for_filled();
        }
        if !self.offering.is_empty() {
            self.end_offered();
        }
    }

    /// Among many queues those are looked at of which senders say that they have filled a receive there.
    fn look_for_filled(&mut self) {
        let Some(board) = &mut self.board else { return };
        let mut filled = std::mem::take(&mut self.queues_filled);
        board.queues_filled(&mut filled);
        for index in filled.drain(..) {
            if let Some(number) = self.shared.number_at(index) {
                self.end_filled(number);
            }
        }
        self.queues_filled = filled;
    }

    fn end_filled(&mut self, number: u32) {
        loop {
            let (Some(board), Some(shared)) = (&mut self.board, self.shared.get_mut(number)) else { return };
            let Some(filled) = shared.shown.front().and_then(|shown| board.filled(number, shown.slot)) else { return };
            let Some(shown) = shared.shown.pop_front() else { return };
            self.end_shown(number, shown.posted, Some(filled));
        }
    }

    /// A receive that was on the board is over; without a message if its sender died.
    fn end_shown(&mut self, number: u32, posted: Posted, filled: Option<Filled>) {
        let Some(shared) = self.shared.get_mut(number) else { return };
        let Some((_, completions)) = shared.xrc else { return };
        if filled.is_some_and(|filled| !filled.is_whole) {
            // The sender could not write here: its message comes as a packet, for the same receive.
            // It stood before all that are hidden now.
            self.leave_board(number);
            if let Some(shared) = self.shared.get_mut(number) {
                shared.queue.posted.push_front(posted);
            }
            return;
        }
        let receive = match posted {
            Posted::Here(receive) => {
                shared.queue.live -= 1;
                receive
            }
            Posted::InSeveral(several) => match self.claim(several) {
                Some(receive) => receive,
                None => return,
            },
        };
        self.regions.leave_board(&receive.list);
        self.check_limit(number);
        let capacity = receive.capacity_bytes();
        let (completion, solicited) = match filled {
            Some(Filled { len_bytes, note, .. }) => (
                WorkCompletion {
                    id: receive.id,
                    opcode: CompletionOpcode::Receive,
                    bytes: len_bytes.min(capacity),
                    immediate: note.immediate,
                    qp: QpNumber(note.qp),
                    ..WorkCompletion::default()
                },
                note.solicited,
            ),
            None => (flushed(0, receive.id, CompletionOpcode::Receive), true),
        };
        self.complete(completions, completion, solicited);
    }

    /// A peer is gone: receives it was filling are flushed.
    pub(super) fn abandon_shown(&mut self, peer: LinkPeer) {
        let Some(board) = &mut self.board else { return };
        let mut abandoned = Vec::new();
        let numbers: Vec<u32> = self.shared.iter().map(|(number, _)| number).collect();
        for number in numbers {
            let Some(shared) = self.shared.get_mut(number) else { continue };
            while let Some(at) = shared.shown.iter().position(|shown| board.is_abandoned(shown.slot, peer)) {
                abandoned.extend(shared.shown.remove(at).map(|shown| (number, shown.posted)));
            }
        }
        for (number, posted) in abandoned {
            self.end_shown(number, posted, None);
        }
    }

    /// Offers the first send of a queue pair on the board. `None`: it goes as a packet; false: it must wait.
    pub(super) fn start_on_board(&mut self, number: u32, peer: LinkPeer, sources: &[ReadRange]) -> Option<bool> {
        let (board, qp) = (self.board.as_mut()?, self.queue_pairs.get_mut(number)?);
        let send = qp.sends.front()?;
        let last = qp.offered.back().map(|offered| offered.queue);
        let is_independent = qp.attributes.independent_queues;
        let (Destination::SharedReceiveQueue(queue), Operation::Send | Operation::SendWithImmediate(_)) =
            (send.destination, send.operation)
        else {
            return (last.is_some() && !is_independent).then_some(false);
        };
        if qp.by_packets || last.is_some_and(|last| last != queue.0 && !is_independent) {
            return last.is_some().then_some(false);
        }
        let waits_before = qp.offered.iter().any(|offered| offered.queue == queue.0);
        let to = BoardTarget { peer, remote_qp: qp.remote, local_qp: number, queue: queue.0 };
        let note = Note {
            immediate: send.operation.immediate(),
            solicited: send.flags.solicited,
            patient: is_independent,
            qp: to.remote_qp,
        };
        let place = match board.offer(&to, sources, note) {
            Offered::NotHere => return waits_before.then_some(false),
            Offered::Done if !waits_before => {
                let send = qp.sends.pop_front()?;
                self.end_offered_send(number, &send);
                return Some(true);
            }
            Offered::Done => Place::Taken,
            Offered::Waits(slot) => Place::Waits(slot),
        };
        let send = qp.sends.pop_front()?;
        self.keep_offered(number, OfferedSend { send, queue: queue.0, place });
        Some(true)
    }

    /// Offers a send that brings its memory along; `None`: it must be posted.
    pub(super) fn offer_lone(&mut self, number: u32, queue: SrqNumber, id: u64, memory: ReadRange) -> Option<LoneSend> {
        let (board, qp) = (self.board.as_mut()?, self.queue_pairs.get_mut(number)?);
        let peer = qp.peer.filter(|peer| *peer != OWN && qp.may_offer_lone())?;
        let waits_before = qp.offered.iter().any(|offered| offered.queue == queue.0);
        let to = BoardTarget { peer, remote_qp: qp.remote, local_qp: number, queue: queue.0 };
        let note = Note { immediate: None, solicited: false, patient: true, qp: to.remote_qp };
        let place = match board.offer(&to, &[memory], note) {
            Offered::NotHere => return None,
            Offered::Done if !waits_before => return Some(LoneSend::Done),
            Offered::Done => Place::Taken,
            Offered::Waits(slot) => Place::Waits(slot),
        };
        self.keep_offered(number, OfferedSend { send: Send::lone(id, queue, memory), queue: queue.0, place });
        Some(LoneSend::Posted)
    }

    /// A send of a queue pair stands on the board.
    fn keep_offered(&mut self, number: u32, offered: OfferedSend) {
        self.regions.board(&offered.send.list);
        if let Some(qp) = self.queue_pairs.get_mut(number) {
            qp.offered.push_back(offered);
        }
        if !self.offering.contains(&number) {
            self.offering.push(number);
        }
    }

    /// Completes sends that receivers have taken.
    fn end_offered(&mut self) {
        self.board_turn = self.board_turn.wrapping_add(1);
        let looks = self.board_turn.is_multiple_of(TURNS_PER_LOOK);
        // Ending a send lists none: what is put back is all there is.
        let mut offering = std::mem::take(&mut self.offering);
        for number in &offering {
            self.end_offered_of(*number, looks);
        }
        offering.retain(|number| self.queue_pairs.get(*number).is_some_and(|qp| !qp.offered.is_empty()));
        self.offering = offering;
    }

    fn end_offered_of(&mut self, number: u32, looks: bool) {
        let (Some(board), Some(qp)) = (&mut self.board, self.queue_pairs.get_mut(number)) else { return };
        let mut comes_back = false;
        for offered in &mut qp.offered {
            if let Place::Waits(slot) = offered.place
                && let Some(is_taken) = board.sent(slot)
            {
                offered.place = if is_taken { Place::Taken } else { Place::Refused };
                comes_back |= !is_taken;
            }
        }
        if let Some(peer) = qp.peer.filter(|_| looks && !comes_back) {
            let queue = qp.offered.front().map_or(0, |offered| offered.queue);
            comes_back = !board.is_connected(&BoardTarget { peer, remote_qp: qp.remote, local_qp: number, queue });
        }
        if comes_back {
            return self.take_offers_back(number);
        }
        let (mut at, mut has_ended) = (0, false);
        while let Some(qp) = self.queue_pairs.get_mut(number)
            && let Some(offered) = qp.offered.get(at)
        {
            let is_first = !qp.offered.iter().take(at).any(|before| before.queue == offered.queue);
            if offered.place != Place::Taken || !is_first {
                at += 1;
            } else if let Some(offered) = qp.offered.remove(at) {
                self.regions.leave_board(&offered.send.list);
                self.end_offered_send(number, &offered.send);
                has_ended = true;
            }
        }
        if has_ended {
            // What waited for it may go.
            self.list(number);
        }
    }

    /// What waits goes as packets, now and later; what was taken is complete.
    fn take_offers_back(&mut self, number: u32) {
        let (taken, back) = self.withdraw_offers(number);
        for send in taken {
            self.end_offered_send(number, &send);
        }
        if let Some(qp) = self.queue_pairs.get_mut(number) {
            qp.by_packets = true;
            for send in back.into_iter().rev() {
                match qp.independent_queue(&send) {
                    Some(queue) => qp.lines.get_or_insert_default().push(queue, send, true),
                    None => qp.sends.push_front(send),
                }
            }
        }
        self.list(number);
    }

    /// Takes all offers of a queue pair off the board: those that receivers took, and those that nobody did.
    pub(super) fn withdraw_offers(&mut self, number: u32) -> (Vec<Send>, Vec<Send>) {
        let (mut taken, mut back) = (Vec::new(), Vec::new());
        let (Some(board), Some(qp)) = (&mut self.board, self.queue_pairs.get_mut(number)) else { return (taken, back) };
        for OfferedSend { send, queue, place } in std::mem::take(&mut qp.offered) {
            let to =
                BoardTarget { peer: qp.peer.unwrap_or(LinkPeer(0)), remote_qp: qp.remote, local_qp: number, queue };
            let is_taken = match place {
                Place::Taken => true,
                Place::Refused => false,
                Place::Waits(slot) => !board.withdraw(&to, slot) && board.sent(slot).unwrap_or(false),
            };
            self.regions.leave_board(&send.list);
            if is_taken { taken.push(send) } else { back.push(send) }
        }
        (taken, back)
    }

    /// A send was taken by its receiver.
    pub(super) fn end_offered_send(&mut self, number: u32, send: &Send) {
        let Some(qp) = self.queue_pairs.get(number) else { return };
        if send.flags.signalled {
            let completion = WorkCompletion {
                id: send.id,
                opcode: opcode(send.operation),
                bytes: send.len_bytes,
                qp: QpNumber(number),
                ..WorkCompletion::default()
            };
            self.complete(qp.attributes.send_completions, completion, false);
        }
    }

    /// True if the next send of a queue pair may look at the board.
    pub(super) fn may_offer(&self, number: u32) -> bool {
        self.board.is_some()
            && self.queue_pairs.get(number).is_some_and(|qp| {
                qp.started == 0
                    && qp.state == QueuePairState::ReadyToSend
                    && qp.attributes.transport == Transport::XrcInitiator
            })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use fabric::{CompletionQueue, ReceiveRequest};

    use super::super::completion::Completions;
    use super::super::core::SharedReceives;
    use super::super::receive::ReceiveQueue;
    use super::*;
    use crate::link::Board;
    use crate::numbered::handle;

    /// A board whose first receive a sender takes and cannot write to.
    struct Refusing {
        shown: u32,
        is_taken: Arc<AtomicBool>,
    }

    impl Board for Refusing {
        fn open(&mut self, _: u32, _: u32, _: u32) -> bool {
            true
        }
        fn close(&mut self, _: u32, _: u32) {}
        fn show(&mut self, _: u32, _: &[WriteRange]) -> Option<(u32, bool)> {
            self.shown += 1;
            Some((self.shown - 1, false))
        }
        fn hide(&mut self, _: u32, slot: u32) -> bool {
            slot > 0
        }
        fn queues_filled(&mut self, into: &mut Vec<u32>) {
            into.push(0);
        }
        fn filled(&mut self, _: u32, slot: u32) -> Option<Filled> {
            let note = Note { immediate: None, solicited: false, patient: false, qp: 0 };
            let is_it = slot == 0 && self.is_taken.load(Ordering::Relaxed);
            is_it.then_some(Filled { len_bytes: 0, note, is_whole: false })
        }
        fn is_abandoned(&mut self, _: u32, _: LinkPeer) -> bool {
            false
        }
        fn settle(&mut self, _: u32) -> Option<Filled> {
            None
        }
        fn offer(&mut self, _: &BoardTarget, _: &[ReadRange], _: Note) -> Offered {
            Offered::NotHere
        }
        fn sent(&mut self, _: u32) -> Option<bool> {
            None
        }
        fn withdraw(&mut self, _: &BoardTarget, _: u32) -> bool {
            true
        }
        fn is_connected(&self, _: &BoardTarget) -> bool {
            true
        }
    }

    #[test]
    fn a_receive_that_could_not_be_written_to_stands_before_those_behind_it_again() {
        let is_taken = Arc::new(AtomicBool::new(false));
        let mut core = Core::new(Some(Box::new(Refusing { shown: 0, is_taken: Arc::clone(&is_taken) })), false);
        let completions = CompletionQueue(handle(core.completions.insert(Completions::new(8)).expect("room")));
        let mut queue = ReceiveQueue::new(8, 1);
        let requests = [10, 11, 12].map(|id| ReceiveRequest { id, list: &[] });
        assert_eq!(queue.post(&requests), Ok(3));
        let (xrc, shown) = (Some((0, completions)), VecDeque::new());
        let shared = SharedReceives { domain: 0, queue, xrc, limit: 0, on_board: true, shown };
        let number = core.shared.insert(shared).expect("room");
        core.boarded.push(number);
        core.show_posted(number);
        assert_eq!(core.shared.get(number).map(|shared| shared.shown.len()), Some(3));
        is_taken.store(true, Ordering::Relaxed);
        core.look_at_board();
        let posted = core.shared.get(number).map(|shared| &shared.queue.posted).expect("it is there");
        let ids: Vec<u64> = posted
            .iter()
            .map(|posted| match posted {
                Posted::Here(receive) => receive.id,
                Posted::InSeveral(_) => panic!("none was posted so"),
            })
            .collect();
        assert_eq!(ids, [10, 11, 12]);
    }
}
