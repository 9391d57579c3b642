//! Where receives and sends meet that name the same queue: whoever comes second finds the first, and moves the data.
//!
//! ```text
//!   a part per process:  queues | receive slots of its queues | send slots of its own | queues with filled receives
//!   queue:  state | latch | domain | receives: head, tail | waiting sends: head, tail
//!   slot:   state | next | length | range count | range | two words of result || three ranges | two words
//!
//!   sender                                     owner
//!   offer: a receive is shown? take it         show: a send waits? take it
//!          else join those who wait                  else join those shown
//!   fill (receive): result, Filled             finish (send): result, Filled
//! ```
//! The lists of a queue change under its latch only, for a few stores; nobody waits for the latch here: [`Held`] says
//! whose it is, and a holder that has died is relieved by [`Meeting::seize`], which makes the lists whole again. One
//! that is stopped between those stores is waited for until it goes on or dies: it may still store. A slot that was
//! taken belongs to who took it until it is filled; it is marked so before it leaves its list, so that at no moment it
//! stands nowhere. Links, counts and lengths come from other processes: they are checked, and walks have an end.

mod latch;

use base::sync::Ordering;

use self::latch::Latch;
use crate::{CACHE_LINE_BYTES, SharedMemory};

/// Queues of a process, at most.
pub const QUEUES_MAX: u32 = if cfg!(loom) { 1 } else { 1024 };
/// Receives a process shows, at most.
pub const RECEIVES_MAX: u32 = if cfg!(loom) { 1 } else { 1 << 14 };
/// Sends of a process that wait, at most.
pub const SENDS_MAX: u32 = if cfg!(loom) { 1 } else { 1 << 12 };
/// Ranges of memory of a receive or a send, at most.
pub const RANGES_MAX: usize = 4;

const QUEUE_BYTES: usize = CACHE_LINE_BYTES;
const SLOT_BYTES: usize = 2 * CACHE_LINE_BYTES;
const RECEIVES: usize = QUEUES_MAX as usize * QUEUE_BYTES;
const SENDS: usize = RECEIVES + RECEIVES_MAX as usize * SLOT_BYTES;
const BITS: usize = SENDS + SENDS_MAX as usize * SLOT_BYTES;
const BIT_WORDS: usize = (QUEUES_MAX as usize).div_ceil(64);

/// Of a queue.
const LATCH: usize = 8;
const DOMAIN: usize = 16;
const OPEN: u64 = 1;

/// Of a slot.
const NEXT: usize = 8;
const LENGTH: usize = 16;
const COUNT: usize = 24;
const FIRST_RANGE: usize = 32;
/// Beside the first range, so that a receive in one piece takes one line to and fro.
const RESULT: usize = 48;
/// On the second line: further ranges, and the words of a send.
const MORE_RANGES: usize = 64;
const WORDS: usize = 112;
/// Beside the count.
const PATIENT: u64 = 1 << 32;

const FREE: u64 = 0;
/// It stands in a list.
const LISTED: u64 = 1;
/// The other side moves the data; who that is stands above.
const TAKEN: u64 = 2;
const FILLED: u64 = 3;
const STATE_MASK: u64 = 0xff;

/// More steps than all slots that one list may hold in a sensible job.
const STEPS_MAX: usize = 1 << 15;

/// A list of a queue: where its ends are kept and where its slots are.
#[derive(Clone, Copy)]
struct List {
    head: usize,
    tail: usize,
    slots: usize,
    max: u32,
    /// Its slots have words for the other side.
    has_words: bool,
}

const SHOWN: List = List { head: 24, tail: 40, slots: RECEIVES, max: RECEIVES_MAX, has_words: false };
const WAITING: List = List { head: 32, tail: 48, slots: SENDS, max: SENDS_MAX, has_words: true };

/// Where a slot says its range of this index.
const fn range_at(index: usize) -> usize {
    if index == 0 { FIRST_RANGE } else { MORE_RANGES + (index - 1) * 16 }
}

const _: () = assert!(range_at(RANGES_MAX) == WORDS && WORDS + 16 == SLOT_BYTES && RESULT + 16 == CACHE_LINE_BYTES);

/// The latch of the queue is held: what stands in it, which another process wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held(pub u64);

impl Held {
    /// By which process; `None` if no process writes that.
    pub fn holder(self) -> Option<u32> {
        u32::try_from(self.0.checked_sub(1)?).ok()
    }
}

/// A queue of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueName {
    /// Whose.
    pub owner: u32,
    /// Its place there.
    pub index: u32,
    /// Which of those that had this place one after the other.
    pub generation: u32,
}

/// A slot of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotName {
    /// Whose.
    pub process: u32,
    /// Its place there.
    pub index: u32,
}

/// What a slot says: memory of its process, and two words that are the users' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// Bytes in all.
    pub len_bytes: u64,
    /// Address and length of each range; the first `count` count.
    pub ranges: [(u64, u64); RANGES_MAX],
    /// Ranges there are.
    pub count: usize,
    /// Of a send: for the other side.
    pub words: [u64; 2],
    /// Of a send: while the receive that is next is too short, it waits as if there was none.
    pub patient: bool,
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// There is no such queue, or not in that domain.
    NoQueue,
    /// The receive that is next is shorter; nothing was taken.
    TooLong,
    /// Nobody is there: the send waits.
    Waits,
    /// This receive is the caller's to fill.
    Met(SlotName, Content),
}

/// All parts, as one process uses them.
#[derive(Clone)]
pub struct Meeting {
    parts: Vec<SharedMemory>,
    me: u32,
}

impl Meeting {
    /// Bytes of one part.
    pub const FOOTPRINT: usize = BITS + BIT_WORDS * 8;

    /// The parts of all processes, zeroed before their first use, as process `me` uses them.
    ///
    /// # Panics
    /// If a part is too short, or there is none for `me`.
    pub fn new(parts: Vec<SharedMemory>, me: u32) -> Self {
        assert!(parts.iter().all(|part| part.len_bytes() >= Self::FOOTPRINT), "each part has its place");
        assert!((me as usize) < parts.len(), "the process is one of them");
        Self { parts, me }
    }

    /// The owner opens a queue; senders name `domain`.
    ///
    /// # Errors
    /// [`Held`] by somebody else.
    pub fn open(&self, index: u32, generation: u32, domain: u64) -> Result<bool, Held> {
        if index >= QUEUES_MAX {
            return Ok(false);
        }
        let latch = self.latch(self.me, index)?;
        for end in [SHOWN.head, SHOWN.tail, WAITING.head, WAITING.tail] {
            latch.word(end).store(0, Ordering::Relaxed);
        }
        latch.word(DOMAIN).store(domain, Ordering::Relaxed);
        latch.word(0).store(u64::from(generation) << 32 | OPEN, Ordering::Relaxed);
        Ok(true)
    }

    /// The owner closes a queue: what it shows is hidden, and these sends waited.
    ///
    /// # Errors
    /// [`Held`] by somebody else.
    pub fn close(&self, index: u32) -> Result<Vec<SlotName>, Held> {
        let latch = self.latch(self.me, index)?;
        latch.word(0).store(0, Ordering::Relaxed);
        for slot in (0..STEPS_MAX).map_while(|_| latch.head(SHOWN)) {
            self.set_state(SHOWN, slot, FREE);
            latch.pop(SHOWN);
        }
        let mut waited = Vec::new();
        for slot in (0..STEPS_MAX).map_while(|_| latch.head(WAITING)) {
            self.set_state(WAITING, slot, TAKEN | u64::from(self.me) << 8);
            latch.pop(WAITING);
            waited.push(slot);
        }
        Ok(waited)
    }

    /// The owner shows a receive in its slot `slot`, or takes the send that waits.
    ///
    /// # Errors
    /// [`Held`] by somebody else.
    pub fn show(&self, index: u32, slot: u32, content: &Content) -> Result<Shown, Held> {
        let latch = self.latch(self.me, index)?;
        let own = SlotName { process: self.me, index: slot };
        for first in (0..STEPS_MAX).map_while(|_| latch.head(WAITING).filter(|_| latch.head(SHOWN).is_none())) {
            let waiting = self.content(WAITING, first);
            match waiting.filter(|waiting| waiting.len_bytes > content.len_bytes) {
                Some(waiting) if waiting.patient => break,
                Some(_) => return Ok(Shown::TooShort),
                None => {}
            }
            if let (Some(waiting), true) = (waiting, self.take_first(&latch, WAITING, first)) {
                self.set_state(SHOWN, own, TAKEN | u64::from(self.me) << 8);
                return Ok(Shown::Met(first, waiting));
            }
        }
        self.write(SHOWN, own, content);
        self.set_state(SHOWN, own, LISTED);
        latch.append(SHOWN, own);
        Ok(Shown::Waits)
    }

    /// The owner takes a receive back; false if a sender took it first.
    ///
    /// # Errors
    /// [`Held`] by somebody else.
    pub fn hide(&self, index: u32, slot: u32) -> Result<bool, Held> {
        self.unlist(QueueName { owner: self.me, index, generation: 0 }, SHOWN, slot)
    }

    /// A sender offers what its slot `slot` will say: takes the receive that is first, or waits.
    ///
    /// # Errors
    /// [`Held`] by somebody else.
    pub fn offer(&self, queue: QueueName, domain: u64, slot: u32, content: &Content) -> Result<Offer, Held> {
        if queue.owner as usize >= self.parts.len() || queue.index >= QUEUES_MAX {
            return Ok(Offer::NoQueue);
        }
        let latch = self.latch(queue.owner, queue.index)?;
        let is_it = latch.word(0).load(Ordering::Relaxed) == u64::from(queue.generation) << 32 | OPEN;
        if !is_it || latch.word(DOMAIN).load(Ordering::Relaxed) != domain {
            return Ok(Offer::NoQueue);
        }
        for first in (0..STEPS_MAX).map_while(|_| latch.head(SHOWN).filter(|_| latch.head(WAITING).is_none())) {
            let shown = self.content(SHOWN, first).filter(|_| first.process == queue.owner);
            if shown.is_some_and(|shown| shown.len_bytes < content.len_bytes) {
                if content.patient {
                    break;
                }
                return Ok(Offer::TooLong);
            }
            if let (Some(shown), true) = (shown, self.take_first(&latch, SHOWN, first)) {
                return Ok(Offer::Met(first, shown));
            }
        }
        let own = SlotName { process: self.me, index: slot };
        self.write(WAITING, own, content);
        self.set_state(WAITING, own, LISTED);
        latch.append(WAITING, own);
        Ok(Offer::Waits)
    }

    /// A sender takes its waiting send back; false if the owner of the queue took it first.
    ///
    /// # Errors
    /// [`Held`] by somebody else.
    pub fn withdraw(&self, queue: QueueName, slot: u32) -> Result<bool, Held> {
        self.unlist(queue, WAITING, slot)
    }

    /// Who took a receive has filled it: its owner finds `result`, and the queue in [`Meeting::take_filled`].
    pub fn fill(&self, queue: QueueName, slot: SlotName, result: [u64; 2]) {
        self.end(SHOWN, slot, result);
        let Some(part) = self.parts.get(slot.process as usize) else { return };
        let index = (queue.index % QUEUES_MAX) as usize;
        // Release: who sees the bit sees the slot filled. Pairs with the swap in `take_filled`.
        part.word(BITS + index / 64 * 8).fetch_or(1 << (index % 64), Ordering::Release);
    }

    /// The owner of a queue is through with a send it took.
    pub fn finish(&self, slot: SlotName, result: [u64; 2]) {
        self.end(WAITING, slot, result);
    }

    /// Hands each queue below `end` in which receives were filled to `each`, once.
    pub fn take_filled(&self, end: u32, mut each: impl FnMut(u32)) {
        let part = &self.parts[self.me as usize];
        for word in 0..(end as usize).div_ceil(64).min(BIT_WORDS) {
            let bits = part.word(BITS + word * 8);
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Acquire pairs with the release in `fill`.
            let mut set = bits.swap(0, Ordering::Acquire);
            while set != 0 {
                let index = word as u32 * 64 + set.trailing_zeros();
                each(index);
                set &= set - 1;
            }
        }
    }

    /// The result of an own receive, once it is filled; its slot may be used again then.
    pub fn filled(&self, slot: u32) -> Option<[u64; 2]> {
        self.result(SHOWN, slot)
    }

    /// Asks for the line of an own queue, into which the next receive will be written; nothing else happens.
    #[inline]
    pub fn expect_next(&self, index: u32) {
        self.parts[self.me as usize].prefetch_to_write((index % QUEUES_MAX) as usize * QUEUE_BYTES);
    }

    /// The result of an own send, once its taker is through; its slot may be used again then.
    pub fn finished(&self, slot: u32) -> Option<[u64; 2]> {
        self.result(WAITING, slot)
    }

    /// Who fills an own receive now.
    pub fn filler(&self, slot: u32) -> Option<u32> {
        self.taker(SHOWN, slot)
    }

    /// Who moves an own send now.
    pub fn mover(&self, slot: u32) -> Option<u32> {
        self.taker(WAITING, slot)
    }

    /// Relieves `dead` of the latch of a queue and makes the queue's lists whole; the caller has seen its holder die, or
    /// it names none.
    pub fn seize(&self, queue: QueueName, dead: Held) {
        let Some(part) = self.parts.get(queue.owner as usize) else { return };
        let base = (queue.index % QUEUES_MAX) as usize * QUEUE_BYTES;
        // Acquire: as far as the dead one came is seen.
        let own = u64::from(self.me) + 1;
        if part.word(base + LATCH).compare_exchange(dead.0, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let latch = Latch { meeting: self, part, base };
        for list in [SHOWN, WAITING] {
            latch.mend(list);
        }
    }

    /// Takes the first slot out of its list; it is the caller's then, if it was whole. Marked first: who dies between the
    /// two leaves a slot that is found to be its, and [`Latch::mend`] drops it.
    fn take_first(&self, latch: &Latch<'_>, list: List, first: SlotName) -> bool {
        let is_listed = self.state(list, first) & STATE_MASK == LISTED;
        if is_listed {
            self.set_state(list, first, TAKEN | u64::from(self.me) << 8);
        }
        latch.pop(list);
        is_listed
    }

    fn unlist(&self, queue: QueueName, list: List, slot: u32) -> Result<bool, Held> {
        let latch = self.latch(queue.owner, queue.index)?;
        let own = SlotName { process: self.me, index: slot };
        if self.state(list, own) & STATE_MASK != LISTED {
            return Ok(false);
        }
        latch.unlink(list, own);
        self.set_state(list, own, FREE);
        Ok(true)
    }

    fn end(&self, list: List, slot: SlotName, result: [u64; 2]) {
        let Some((part, at)) = self.at(list, slot) else { return };
        for (word, value) in result.into_iter().enumerate() {
            part.word(at + RESULT + word * 8).store(value, Ordering::Relaxed);
        }
        // Release: the data was moved and the result is there. Pairs with the load in `result`.
        part.word(at).store(FILLED, Ordering::Release);
    }

    fn result(&self, list: List, slot: u32) -> Option<[u64; 2]> {
        let (part, at) = self.at(list, SlotName { process: self.me, index: slot })?;
        if part.word(at).load(Ordering::Acquire) & STATE_MASK != FILLED {
            return None;
        }
        let result = [0, 8].map(|word| part.word(at + RESULT + word).load(Ordering::Relaxed));
        part.word(at).store(FREE, Ordering::Relaxed);
        Some(result)
    }

    fn taker(&self, list: List, slot: u32) -> Option<u32> {
        let state = self.state(list, SlotName { process: self.me, index: slot });
        (state & STATE_MASK == TAKEN).then_some((state >> 8) as u32)
    }

    fn latch(&self, owner: u32, index: u32) -> Result<Latch<'_>, Held> {
        let part = &self.parts[owner as usize];
        let base = (index % QUEUES_MAX) as usize * QUEUE_BYTES;
        // Acquire: what the last holder did is seen. Pairs with the release in `drop`.
        match part.word(base + LATCH).compare_exchange(0, self.me as u64 + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Latch { meeting: self, part, base }),
            Err(held) => Err(Held(held)),
        }
    }

    fn at(&self, list: List, slot: SlotName) -> Option<(&SharedMemory, usize)> {
        let part = self.parts.get(slot.process as usize)?;
        (slot.index < list.max).then(|| (part, list.slots + slot.index as usize * SLOT_BYTES))
    }

    fn state(&self, list: List, slot: SlotName) -> u64 {
        self.at(list, slot).map_or(FREE, |(part, at)| part.word(at).load(Ordering::Acquire))
    }

    fn set_state(&self, list: List, slot: SlotName, state: u64) {
        if let Some((part, at)) = self.at(list, slot) {
            part.word(at).store(state, Ordering::Release);
        }
    }

    fn write(&self, list: List, slot: SlotName, content: &Content) {
        let Some((part, at)) = self.at(list, slot) else { return };
        let store = |offset, value| part.word(at + offset).store(value, Ordering::Relaxed);
        store(LENGTH, content.len_bytes);
        store(COUNT, content.count as u64 | if content.patient { PATIENT } else { 0 });
        for (index, (address, len)) in content.ranges.into_iter().enumerate().take(content.count) {
            store(range_at(index), address);
            store(range_at(index) + 8, len);
        }
        if list.has_words {
            store(WORDS, content.words[0]);
            store(WORDS + 8, content.words[1]);
        }
    }

    /// What a slot says; `None` if it makes no sense.
    fn content(&self, list: List, slot: SlotName) -> Option<Content> {
        let (part, at) = self.at(list, slot)?;
        let load = |offset| part.word(at + offset).load(Ordering::Relaxed);
        let (count, patient) = (load(COUNT) & !PATIENT, load(COUNT) & PATIENT != 0);
        let count = usize::try_from(count).ok().filter(|count| *count <= RANGES_MAX)?;
        let mut ranges = [(0, 0); RANGES_MAX];
        for (index, range) in ranges.iter_mut().enumerate().take(count) {
            *range = (load(range_at(index)), load(range_at(index) + 8));
        }
        let words = if list.has_words { [load(WORDS), load(WORDS + 8)] } else { [0; 2] };
        let content = Content { len_bytes: load(LENGTH), ranges, count, words, patient };
        let sum = ranges[..count].iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len))?;
        (sum == content.len_bytes).then_some(content)
    }
}

/// What became of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Nobody is there: it waits for a sender to take it.
    Waits,
    /// This send is the caller's to move into it.
    Met(SlotName, Content),
    /// The send that is first is longer; nothing was shown or taken.
    TooShort,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::times;

    fn meetings(count: u32) -> Vec<Meeting> {
        let parts: Vec<_> = (0..count).map(|_| SharedMemory::private(Meeting::FOOTPRINT)).collect();
        (0..count).map(|me| Meeting::new(parts.clone(), me)).collect()
    }

    fn content(len_bytes: u64, word: u64) -> Content {
        let ranges = [(0x1000, len_bytes), (0, 0), (0, 0), (0, 0)];
        Content { len_bytes, ranges, count: 1, words: [word, 0], patient: false }
    }

    const QUEUE: QueueName = QueueName { owner: 0, index: 5, generation: 3 };

    /// Against the naive way: two queues, one of which is always empty.
    #[test]
    fn receives_and_sends_meet_in_order_whoever_comes_first() {
        let sides = meetings(3);
        let mut seed = 7u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        assert_eq!(sides[0].open(5, 3, 9), Ok(true));
        let (mut shown, mut waiting) = (VecDeque::new(), VecDeque::new());
        let mut free: Vec<Vec<u32>> = (0..3).map(|_| (0..12).collect()).collect();
        for step in 0..times(20_000, 200) {
            match random(6) {
                0..2 if !free[0].is_empty() => {
                    let slot = free[0].pop().expect("looked");
                    match (sides[0].show(5, slot, &content(8, step)).expect("nobody else"), waiting.pop_front()) {
                        (Shown::Waits, None) => shown.push_back(slot),
                        (Shown::Met(found, what), Some((send, word))) => {
                            assert_eq!((found, what.words[0]), (send, word));
                            sides[0].finish(found, [word, 0]);
                            let sender: SlotName = send;
                            let side = &sides[sender.process as usize];
                            assert_eq!(side.finished(sender.index), Some([word, 0]));
                            free[sender.process as usize].push(sender.index);
                            free[0].push(slot);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                2..4 => {
                    let me = 1 + random(2) as usize;
                    let Some(slot) = free[me].pop() else { continue };
                    let name = SlotName { process: me as u32, index: slot };
                    match (sides[me].offer(QUEUE, 9, slot, &content(8, step)).expect("nobody else"), shown.pop_front())
                    {
                        (Offer::Waits, None) => waiting.push_back((name, step)),
                        (Offer::Met(found, _), Some(receive)) => {
                            assert_eq!(found, SlotName { process: 0, index: receive });
                            assert_eq!(sides[0].filler(receive), Some(me as u32));
                            sides[me].fill(QUEUE, found, [8, step]);
                            let mut told = Vec::new();
                            sides[0].take_filled(QUEUES_MAX, |queue| told.push(queue));
                            assert_eq!(told, [5]);
                            assert_eq!(sides[0].filled(receive), Some([8, step]));
                            free[0].push(receive);
                            free[me].push(slot);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                4 if !shown.is_empty() => {
                    let slot = shown.remove(random(shown.len() as u64) as usize).expect("inside");
                    assert_eq!(sides[0].hide(5, slot), Ok(true));
                    assert_eq!(sides[0].hide(5, slot), Ok(false), "once");
                    free[0].push(slot);
                }
                5 if !waiting.is_empty() => {
                    let (send, _) = waiting.remove(random(waiting.len() as u64) as usize).expect("inside");
                    assert_eq!(sides[send.process as usize].withdraw(QUEUE, send.index), Ok(true));
                    free[send.process as usize].push(send.index);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn names_domains_and_lengths_hold() {
        let sides = meetings(2);
        sides[0].open(5, 3, 9).expect("nobody else");
        for (queue, domain) in [
            (QueueName { generation: 2, ..QUEUE }, 9),
            (QueueName { index: 6, ..QUEUE }, 9),
            (QueueName { index: QUEUES_MAX, ..QUEUE }, 9),
            (QueueName { owner: 7, ..QUEUE }, 9),
            (QUEUE, 8),
        ] {
            assert_eq!(sides[1].offer(queue, domain, 0, &content(1, 0)), Ok(Offer::NoQueue), "{queue:?} {domain}");
        }
        assert_eq!(sides[0].show(5, 0, &content(4, 0)), Ok(Shown::Waits));
        assert_eq!(sides[1].offer(QUEUE, 9, 0, &content(5, 0)), Ok(Offer::TooLong));
        assert!(matches!(sides[1].offer(QUEUE, 9, 0, &content(4, 0)), Ok(Offer::Met(..))));
        assert_eq!(sides[1].offer(QUEUE, 9, 1, &content(5, 0)), Ok(Offer::Waits));
        assert_eq!(sides[0].show(5, 1, &content(4, 0)), Ok(Shown::TooShort));
        assert_eq!(sides[0].close(5), Ok(vec![SlotName { process: 1, index: 1 }]));
        assert_eq!(sides[1].offer(QUEUE, 9, 2, &content(1, 0)), Ok(Offer::NoQueue), "closed");
    }

    #[test]
    fn a_patient_send_waits_in_line_until_there_is_a_receive_long_enough() {
        let sides = meetings(2);
        sides[0].open(5, 3, 9).expect("nobody else");
        let patient = |len_bytes| Content { patient: true, ..content(len_bytes, 0) };
        assert_eq!(sides[0].show(5, 0, &content(4, 0)), Ok(Shown::Waits));
        assert_eq!(sides[1].offer(QUEUE, 9, 0, &patient(5)), Ok(Offer::Waits));
        assert_eq!(sides[1].offer(QUEUE, 9, 1, &patient(1)), Ok(Offer::Waits), "it does not overtake");
        assert_eq!(sides[0].show(5, 1, &content(9, 0)), Ok(Shown::Waits), "nor do receives");
        assert_eq!(sides[0].hide(5, 0), Ok(true));
        assert_eq!(sides[0].hide(5, 1), Ok(true));
        for (slot, len_bytes) in [(2, 5), (3, 4)] {
            let met = sides[0].show(5, slot, &content(len_bytes, 0)).expect("nobody else");
            assert!(matches!(met, Shown::Met(SlotName { index, .. }, _) if index == slot - 2), "{met:?}");
        }
    }

    #[test]
    fn a_latch_whose_holder_died_is_relieved_and_its_lists_are_mended() {
        let sides = meetings(2);
        sides[0].open(5, 3, 9).expect("nobody else");
        for slot in 0..3 {
            sides[0].show(5, slot, &content(8, 0)).expect("nobody else");
        }
        // It dies having taken the second receive, unlinked nothing, and lost the tail.
        let latch = sides[1].latch(0, 5).expect("nobody else");
        sides[1].set_state(SHOWN, SlotName { process: 0, index: 1 }, TAKEN | 1 << 8);
        latch.word(SHOWN.tail).store(0, Ordering::Relaxed);
        std::mem::forget(latch);
        let held = sides[0].hide(5, 0).expect_err("it is held");
        assert_eq!(held.holder(), Some(1));
        sides[0].seize(QUEUE, Held(1));
        assert_eq!(sides[0].hide(5, 0), Err(held), "it is another's");
        sides[0].seize(QUEUE, held);
        assert_eq!(sides[0].filler(1), Some(1));
        for expected in [0, 2] {
            let met = sides[1].offer(QUEUE, 9, 0, &content(8, 0)).expect("free");
            assert!(matches!(met, Offer::Met(slot, _) if slot.index == expected), "{met:?}");
        }
    }

    /// Dies after `accesses` accesses to shared memory in the midst of `work`.
    fn killed<T>(accesses: u32, work: impl FnOnce() -> T) {
        crate::shared::dying::AFTER.set(Some(accesses));
        work();
        crate::shared::dying::AFTER.set(None);
    }

    #[test]
    fn whoever_dies_at_any_moment_leaves_each_slot_listed_or_its_own() {
        for accesses in (0..60).step_by(if cfg!(miri) { 11 } else { 1 }) {
            let sides = meetings(2);
            sides[0].open(5, 3, 9).expect("nobody else");
            for slot in 0..2 {
                sides[0].show(5, slot, &content(8, 0)).expect("nobody else");
            }
            killed(accesses, || sides[1].offer(QUEUE, 9, 0, &content(8, 0)));
            sides[0].seize(QUEUE, Held(2));
            let left: Vec<u32> = (0..2).filter(|slot| sides[0].filler(*slot).is_none()).collect();
            for slot in left {
                let met = sides[1].offer(QUEUE, 9, 0, &content(8, 0));
                assert!(matches!(met, Ok(Offer::Met(found, _)) if found.index == slot), "after {accesses}: {met:?}");
            }
        }
    }

    #[test]
    fn an_owner_that_dies_at_any_moment_leaves_each_send_listed_or_its_own() {
        for accesses in (0..60).step_by(if cfg!(miri) { 11 } else { 1 }) {
            for closes in [false, true] {
                let sides = meetings(3);
                sides[0].open(5, 3, 9).expect("nobody else");
                for slot in 0..2 {
                    sides[1].offer(QUEUE, 9, slot, &content(8, 0)).expect("nobody else");
                }
                killed(accesses, || {
                    if closes { sides[0].close(5).is_ok() } else { sides[0].show(5, 0, &content(8, 0)).is_ok() }
                });
                sides[1].seize(QUEUE, Held(1));
                let at = |slot| SlotName { process: 1, index: slot };
                let latch = sides[1].latch(0, 5).expect("free");
                for slot in 0..2 {
                    let is_listed = std::iter::successors(latch.head(WAITING), |here| latch.next(WAITING, *here))
                        .take(3)
                        .any(|here| here == at(slot));
                    assert_eq!(is_listed, sides[1].mover(slot).is_none(), "after {accesses}, slot {slot}");
                }
            }
        }
    }

    #[test]
    fn whatever_stands_in_shared_memory_is_survived() {
        for value in [u64::MAX, 1 << 32, 1 << 32 | 1, 1 << 32 | 2047, 2 << 32 | 1, 3] {
            let sides = meetings(2);
            sides[0].open(5, 3, 9).expect("nobody else");
            sides[0].parts[0].word(5 * QUEUE_BYTES + LATCH).store(value, Ordering::Relaxed);
            let held = sides[1].offer(QUEUE, 9, 0, &content(8, 0)).expect_err("it is held");
            assert_eq!(held.holder(), u32::try_from(value - 1).ok(), "{value:x}");
            sides[1].seize(QUEUE, held);
            assert_eq!(sides[1].offer(QUEUE, 9, 0, &content(8, 0)), Ok(Offer::Waits), "{value:x}");
        }
        for value in [u64::MAX, 1 << 32, 1 << 32 | 1, 1 << 32 | 2047, 2 << 32 | 1, 3] {
            let sides = meetings(2);
            sides[0].open(5, 3, 9).expect("nobody else");
            sides[0].show(5, 1, &content(8, 0)).expect("nobody else");
            for offset in (0..QUEUE_BYTES).step_by(8).filter(|offset| *offset != LATCH && *offset != 0) {
                sides[0].parts[0].word(5 * QUEUE_BYTES + offset).store(value, Ordering::Relaxed);
            }
            for offset in (0..SLOT_BYTES).step_by(8) {
                sides[0].parts[0].word(RECEIVES + SLOT_BYTES + offset).store(value, Ordering::Relaxed);
            }
            let _ = sides[1].offer(QUEUE, value, 0, &content(8, 0));
            let _ = sides[0].show(5, 2, &content(8, 0));
            let _ = sides[0].hide(5, 2);
            let _ = sides[0].filled(1);
            let _ = sides[0].close(5);
        }
    }
}
