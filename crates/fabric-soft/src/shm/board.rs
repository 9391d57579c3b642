//! Shared receives and the sends to them, met in the segment: whoever comes second moves the data by cross-memory
//! attach, and the other side's processor takes no part.
//!
//! ```text
//!   sender first:    send waits in its slot ──▶ owner posts a receive: reads from the sender's memory, ends both
//!   receiver first:  receive shown in its slot ──▶ sender takes it: writes to the owner's memory, ends both
//! ```
//! What a receive names was checked against its owner's regions when it was shown, and its owner takes it back before
//! any of them goes; the same holds for a send that waits. So a slot is itself the right to use its memory, and the
//! kernel checks that the memory is there. Where either side can not reach the other, or a list is long, sends go as
//! packets as if there were no board.

use base::memory::{ReadRange, WriteRange};
use base::sync::Ordering;
use fabric::DirectCopyError;
use lockfree::meeting::{Content, Held, Offer, QUEUES_MAX, QueueName, RANGES_MAX, RECEIVES_MAX, SENDS_MAX, Shown};
use lockfree::{Doorbell, Meeting, PublishedTable, SharedMemory};

use super::cross_memory;
use super::life::{self, ProcessMark};
use super::link::REACHED;
use super::segment::Segment;
use super::wakeup::ring;
use super::watch::Pauses;
use crate::link::{Board, BoardTarget, Filled, LinkPeer, Note, Offered};

/// Bits of a slot's second word, above the queue pair's number.
const HAS_IMMEDIATE: u64 = 1 << 32;
const SOLICITED: u64 = 1 << 33;
/// Results of a send.
const TAKEN_WHOLE: u64 = 1;
const COME_AS_PACKET: u64 = 2;

/// One adapter's view of the boards of its host.
pub(super) struct ShmBoard {
    me: u32,
    meeting: Meeting,
    places: Vec<Place>,
    free_receives: Vec<u32>,
    free_sends: Vec<u32>,
    /// Receives that queues opened so far may show at once.
    promised: u32,
    /// Behind the last place that a queue has had.
    queues_end: u32,
}

/// What is to be seen of a process at its place.
struct Place {
    doorbell: Doorbell,
    identity: SharedMemory,
    reach: SharedMemory,
    queue_pairs: PublishedTable,
}

impl ShmBoard {
    pub(super) fn new(segment: &Segment, me: u32, doorbells: Vec<Doorbell>) -> Option<Self> {
        let meeting = segment.meeting(me)?;
        let place = |(place, doorbell)| {
            let (identity, reach) = (segment.identity(place)?, segment.reach(place)?);
            Some(Place { doorbell, identity, reach, queue_pairs: segment.published_queue_pairs(place)? })
        };
        let places = (0..).zip(doorbells).map(place).collect::<Option<Vec<_>>>()?;
        let (free_receives, free_sends) = ((0..RECEIVES_MAX).rev().collect(), (0..SENDS_MAX).rev().collect());
        Some(Self { me, meeting, places, free_receives, free_sends, promised: 0, queues_end: 0 })
    }

    /// Does `work`, which is a few stores, as soon as nobody else holds the queue's latch. A holder that is stopped is
    /// waited for: it may go on with its stores at any moment.
    fn latched<T>(&self, queue: QueueName, work: impl Fn(&Meeting) -> Result<T, Held>) -> T {
        let mut pauses = Pauses::new();
        for turn in 0u32.. {
            let held = match work(&self.meeting) {
                Ok(done) => return done,
                Err(held) => held,
            };
            if turn < 100 {
                std::hint::spin_loop();
            } else if held.holder().is_some_and(|holder| holder != self.me && self.lives(holder)) {
                pauses.pause();
            } else {
                // Its holder is dead, or a broken process wrote what no holder does.
                self.meeting.seize(queue, held);
            }
        }
        unreachable!("a holder lets go or dies")
    }

    fn lives(&self, place: u32) -> bool {
        let mark = self.places.get(place as usize).and_then(|place| ProcessMark::of(&place.identity));
        mark.is_some_and(ProcessMark::is_alive)
    }

    fn process(&self, place: u32) -> Option<i32> {
        let place = self.places.get(place as usize).filter(|place| !life::has_left(&place.identity))?;
        Some(ProcessMark::of(&place.identity)?.process_id as i32)
    }

    /// True if `from` has found that it can reach the memory of `to`.
    fn reaches(&self, from: u32, to: u32) -> bool {
        // Acquire is for tidiness: the word stands for itself.
        let at = to as usize * 8;
        self.places.get(from as usize).is_some_and(|from| from.reach.word(at).load(Ordering::Acquire) == REACHED)
    }

    fn own_queue(&self, queue: u32) -> QueueName {
        name(self.me, queue)
    }

    fn wake(&self, place: u32) {
        if let Some(place) = self.places.get(place as usize) {
            ring(&place.doorbell);
        }
    }

    /// Fetches a send that waited into a receive of ours; false if its memory can not be read.
    fn fetch(&self, from: u32, content: &Content, into: &[WriteRange]) -> bool {
        let Some(process) = self.process(from) else { return false };
        let local = into.iter().map(|range| (range.address() as u64, range.len_bytes() as u64));
        let far = content.ranges[..content.count].iter().copied();
        pieces(local, far, |here, there, len| {
            // SAFETY: the piece lies in a range of the receive, which its owner left to us until it is filled.
            unsafe { cross_memory::read(process, here as usize, there, len) }
        })
    }

    /// Fills a receive of `to`; false if its memory can not be written.
    fn deliver(&self, to: u32, content: &Content, from: &[ReadRange]) -> bool {
        let Some(process) = self.process(to) else { return false };
        let local = from.iter().map(|range| (range.address() as u64, range.len_bytes() as u64));
        let far = content.ranges[..content.count].iter().copied();
        pieces(local, far, |here, there, len| {
            // SAFETY: the piece lies in registered memory of a send that is not complete.
            unsafe { cross_memory::write(process, here as usize, there, len) }
        })
    }

    /// The result of a receive that was filled; its slot is free then.
    fn ended(&mut self, slot: u32) -> Option<Filled> {
        let [first, second] = self.meeting.filled(slot)?;
        self.free_receives.push(slot);
        let is_whole = second & BROKEN == 0;
        Some(Filled { len_bytes: u64::from(first as u32), note: note((first >> 32) as u32, second), is_whole })
    }

    /// The domain of the queue pair at the far end, if it is connected to ours.
    fn far_domain(&self, to: &BoardTarget) -> Option<u64> {
        let far = self.places.get(to.peer.0 as usize)?;
        let look = far.queue_pairs.look(to.remote_qp & 0xffff, (to.remote_qp >> 16) as u16)?;
        let [connected, _, domain] = look.words;
        let expected = u64::from(self.me) << 32 | u64::from(to.local_qp);
        (connected == expected && domain != 0).then_some(domain)
    }
}

impl Board for ShmBoard {
    fn open(&mut self, queue: u32, domain: u32, depth: u32) -> bool {
        // Each queue may be full: no receive is ever refused for want of a slot.
        if depth > RECEIVES_MAX - self.promised || queue & 0xffff >= QUEUES_MAX {
            return false;
        }
        let named = self.own_queue(queue);
        let is_open = self.latched(named, |meeting| meeting.open(named.index, named.generation, u64::from(domain) + 1));
        self.promised += if is_open { depth } else { 0 };
        self.queues_end = self.queues_end.max(named.index + 1);
        is_open
    }

    fn close(&mut self, queue: u32, depth: u32) {
        self.promised -= depth;
        let named = self.own_queue(queue);
        for waited in self.latched(named, |meeting| meeting.close(named.index)) {
            self.meeting.finish(waited, [COME_AS_PACKET, 0]);
            self.wake(waited.process);
        }
    }

    fn show(&mut self, queue: u32, into: &[WriteRange]) -> Option<(u32, bool)> {
        let content = content(into.iter().map(|range| (range.address() as u64, range.len_bytes() as u64)))?;
        let slot = self.free_receives.pop()?;
        let named = self.own_queue(queue);
        loop {
            match self.latched(named, |meeting| meeting.show(named.index, slot, &content)) {
                Shown::Waits => return Some((slot, false)),
                Shown::TooShort => {
                    // Its target refuses it, and that is told both sides by packets.
                    self.free_receives.push(slot);
                    return None;
                }
                Shown::Met(send, what) => {
                    let is_whole = self.fetch(send.process, &what, into);
                    self.meeting.finish(send, [if is_whole { TAKEN_WHOLE } else { COME_AS_PACKET }, 0]);
                    self.wake(send.process);
                    if is_whole {
                        let own = lockfree::meeting::SlotName { process: self.me, index: slot };
                        self.meeting.fill(named, own, [what.len_bytes | what.words[0] << 32, what.words[1]]);
                        return Some((slot, true));
                    }
                }
            }
        }
    }

    fn hide(&mut self, queue: u32, slot: u32) -> bool {
        let named = self.own_queue(queue);
        let is_hidden = self.latched(named, |meeting| meeting.hide(named.index, slot));
        if is_hidden {
            self.free_receives.push(slot);
        }
        is_hidden
    }

    fn queues_filled(&mut self, into: &mut Vec<u32>) {
        self.meeting.take_filled(self.queues_end, |queue| into.push(queue));
    }

    fn filled(&mut self, queue: u32, slot: u32) -> Option<Filled> {
        let filled = self.ended(slot);
        if filled.is_some() {
            // The sender had its line, and the next receive is posted soon.
            self.meeting.expect_next(queue & 0xffff);
        }
        filled
    }

    fn is_abandoned(&mut self, slot: u32, peer: LinkPeer) -> bool {
        let is_abandoned = self.meeting.filler(slot) == Some(peer.0);
        if is_abandoned {
            self.free_receives.push(slot);
        }
        is_abandoned
    }

    fn settle(&mut self, slot: u32) -> Option<Filled> {
        let mut pauses = Pauses::new();
        loop {
            if let Some(filled) = self.ended(slot) {
                return Some(filled);
            }
            match self.meeting.filler(slot) {
                Some(filler) if self.lives(filler) => pauses.pause(),
                _ => {
                    // It may have ended between the two looks.
                    let filled = self.ended(slot);
                    if filled.is_none() {
                        self.free_receives.push(slot);
                    }
                    return filled;
                }
            }
        }
    }

    fn offer(&mut self, to: &BoardTarget, from: &[ReadRange], note: Note) -> Offered {
        let place = to.peer.0;
        let Some(mut content) = content(from.iter().map(|range| (range.address() as u64, range.len_bytes() as u64)))
        else {
            return Offered::NotHere;
        };
        let Some(domain) = self.far_domain(to) else { return Offered::NotHere };
        if !self.reaches(self.me, place) || !self.reaches(place, self.me) || self.process(place).is_none() {
            return Offered::NotHere;
        }
        let words = words(note);
        content.words = words;
        content.patient = note.patient;
        let Some(slot) = self.free_sends.pop() else { return Offered::NotHere };
        let named = name(place, to.queue);
        match self.latched(named, |meeting| meeting.offer(named, domain, slot, &content)) {
            Offer::Waits => Offered::Waits(slot),
            Offer::NoQueue | Offer::TooLong => {
                self.free_sends.push(slot);
                Offered::NotHere
            }
            Offer::Met(receive, into) => {
                self.free_sends.push(slot);
                // A target that can not be written to is broken or gone: the packet that follows finds out.
                let is_whole = self.deliver(place, &into, from);
                let first = if is_whole { content.len_bytes } else { 0 };
                self.meeting.fill(named, receive, [first | words[0] << 32, words[1] | broken(!is_whole)]);
                self.wake(place);
                if is_whole { Offered::Done } else { Offered::NotHere }
            }
        }
    }

    fn sent(&mut self, slot: u32) -> Option<bool> {
        let [result, _] = self.meeting.finished(slot)?;
        self.free_sends.push(slot);
        Some(result == TAKEN_WHOLE)
    }

    fn withdraw(&mut self, to: &BoardTarget, slot: u32) -> bool {
        let named = name(to.peer.0, to.queue);
        if self.latched(named, |meeting| meeting.withdraw(named, slot)) {
            self.free_sends.push(slot);
            return true;
        }
        let mut pauses = Pauses::new();
        while let Some(mover) = self.meeting.mover(slot)
            && self.lives(mover)
        {
            pauses.pause();
        }
        false
    }

    fn is_connected(&self, to: &BoardTarget) -> bool {
        self.far_domain(to).is_some()
    }
}

/// Set in a result when the data could not be moved.
const BROKEN: u64 = 1 << 34;

fn broken(is_broken: bool) -> u64 {
    if is_broken { BROKEN } else { 0 }
}

fn words(note: Note) -> [u64; 2] {
    let flags = if note.immediate.is_some() { HAS_IMMEDIATE } else { 0 } | if note.solicited { SOLICITED } else { 0 };
    [u64::from(note.immediate.unwrap_or(0)), u64::from(note.qp) | flags]
}

fn note(immediate: u32, word: u64) -> Note {
    Note {
        immediate: (word & HAS_IMMEDIATE != 0).then_some(immediate),
        solicited: word & SOLICITED != 0,
        patient: false,
        qp: word as u32,
    }
}

fn name(owner: u32, queue: u32) -> QueueName {
    QueueName { owner, index: queue & 0xffff, generation: queue >> 16 }
}

/// What a slot says of these ranges; `None` if they are too many, or too long for a length of 32 bits.
fn content(ranges: impl Iterator<Item = (u64, u64)>) -> Option<Content> {
    let mut content = Content::default();
    for range in ranges.filter(|(_, len)| *len > 0) {
        *content.ranges.get_mut(content.count)? = range;
        content.count += 1;
        content.len_bytes += range.1;
    }
    (content.len_bytes <= u64::from(u32::MAX) && content.count <= RANGES_MAX).then_some(content)
}

/// Moves piece by piece between two lists until either ends; false at the first that can not be moved.
fn pieces(
    here: impl Iterator<Item = (u64, u64)>,
    there: impl Iterator<Item = (u64, u64)>,
    mut step: impl FnMut(u64, u64, usize) -> Result<(), DirectCopyError>,
) -> bool {
    let (mut here, mut there) = (here.filter(|(_, len)| *len > 0), there.filter(|(_, len)| *len > 0));
    let (mut near, mut far) = (here.next(), there.next());
    while let (Some((from, from_len)), Some((to, to_len))) = (near, far) {
        let len = from_len.min(to_len);
        if step(from, to, len as usize).is_err() {
            return false;
        }
        near = if from_len > len { Some((from + len, from_len - len)) } else { here.next() };
        far = if to_len > len { Some((to.wrapping_add(len), to_len - len)) } else { there.next() };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_shape_are_moved_in_order() {
        let mut moved = Vec::new();
        let is_whole =
            pieces([(10, 3), (20, 0), (30, 4)].into_iter(), [(100, 1), (200, 9)].into_iter(), |a, b, len| {
                moved.push((a, b, len));
                Ok(())
            });
        assert!(is_whole);
        assert_eq!(moved, [(10, 100, 1), (11, 200, 2), (30, 202, 4)]);
        let refused = pieces([(1, 1)].into_iter(), [(2, 1)].into_iter(), |_, _, _| Err(DirectCopyError::Refused));
        assert!(!refused);
    }

    #[test]
    fn notes_come_back_as_they_went() {
        for immediate in [None, Some(0), Some(u32::MAX)] {
            for solicited in [false, true] {
                let wanted = Note { immediate, solicited, patient: false, qp: 0x0001_0007 };
                let [first, second] = words(wanted);
                assert_eq!(note(first as u32, second), wanted);
            }
        }
    }
}
