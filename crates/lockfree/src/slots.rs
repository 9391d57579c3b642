//! Equal pieces of memory that a device reads and fills, each with one holder at a time.
//!
//! ```text
//!          take                     lend
//!   free ────────▶ held (a Slot) ────────▶ lent to the device
//!     ▲  give back   │    ▲      reclaim       │
//!     └──────────────┘    └────────────────────┘
//! ```
//! A [`Slot`] is the right to touch the bytes of one piece. It cannot be copied, and while the device has them there is
//! none: that is why nobody looks at bytes that are being filled. A slot does not know its store: who has several keeps
//! the slots of each apart, for in another store the number names a piece that may be anybody's. The bookkeeping is
//! local to one process; only the bytes are shared, with the device.
//!
//! Slots come in chunks, and go in chunks: a store *retreats* to its first ones ([`SlotStore::retreat`]), slots of the
//! others *rest* when they are given back, and a chunk whose slots all rest can be taken away. If the first chunks are
//! not enough after all, those that rest are used again.

use crate::SharedMemory;

/// The right to touch the bytes of one piece.
#[derive(Debug)]
#[must_use = "a slot that is dropped is lost to its store"]
pub struct Slot(u32);

impl Slot {
    /// Which piece, from 0.
    pub fn number(&self) -> u32 {
        self.0
    }
}

/// Where the bytes of slots lie.
#[derive(Clone)]
pub struct SlotMemory {
    /// `None`: taken away.
    chunks: Vec<Option<SharedMemory>>,
    slot_bytes: usize,
    slots_per_chunk: u32,
}

/// The pieces and who has them.
pub struct SlotStore {
    memory: SlotMemory,
    free: Vec<u32>,
    /// Free slots that are not handed out: those numbered from `retreat_from` on.
    resting: Vec<u32>,
    retreat_from: u32,
    chunk_count: u32,
    /// By number: with the device.
    lent: Vec<bool>,
}

impl SlotMemory {
    /// Shows the first `len_bytes` bytes of a slot to `look`, or as many as it has.
    pub fn read<R>(&self, slot: &Slot, len_bytes: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        let (chunk, offset) = self.bytes(slot);
        let mut result = None;
        let len = len_bytes.min(self.slot_bytes);
        // SAFETY: the slot is of this store, as its users see to. The bytes belong to whoever holds it, of which there is
        // one; it is borrowed, so it is neither filled nor lent while `look` runs.
        unsafe { chunk.read(offset, len, |bytes| result = Some(look(bytes))) };
        result.expect("what was read has been shown")
    }

    /// The bytes of a slot: a chunk and an offset inside it.
    fn bytes(&self, slot: &Slot) -> (&SharedMemory, usize) {
        let (chunk, offset) = self.place(slot);
        (self.chunks[chunk].as_ref().expect("a chunk stays while somebody has a slot of it"), offset)
    }

    /// The chunk in which a slot lies, and where in it.
    fn place(&self, slot: &Slot) -> (usize, usize) {
        let (chunk, index) = (slot.0 / self.slots_per_chunk, slot.0 % self.slots_per_chunk);
        (chunk as usize, index as usize * self.slot_bytes)
    }
}

impl SlotStore {
    /// A store without memory, for slots of `slot_bytes`, `slots_per_chunk` of which come at once.
    ///
    /// # Panics
    /// If slots are not whole cache lines, or chunks are empty.
    pub fn new(slot_bytes: usize, slots_per_chunk: u32) -> Self {
        assert!(slot_bytes > 0 && slot_bytes.is_multiple_of(crate::CACHE_LINE_BYTES), "slots are whole cache lines");
        assert!(slots_per_chunk > 0, "a chunk has slots");
        let memory = SlotMemory { chunks: Vec::new(), slot_bytes, slots_per_chunk };
        let (free, resting, lent) = (Vec::new(), Vec::new(), Vec::new());
        Self { memory, free, resting, retreat_from: u32::MAX, chunk_count: 0, lent }
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.memory.slot_bytes * self.memory.slots_per_chunk as usize
    }

    /// Adds the slots of one more chunk; they are free. The number of the chunk: the first there is none of.
    ///
    /// # Panics
    /// If `memory` is shorter than a chunk.
    pub fn add(&mut self, memory: SharedMemory) -> usize {
        assert!(memory.len_bytes() >= self.chunk_bytes(), "a chunk holds its slots");
        let vacant = self.memory.chunks.iter().position(Option::is_none);
        let chunk = vacant.unwrap_or(self.memory.chunks.len());
        match vacant {
            Some(at) => self.memory.chunks[at] = Some(memory),
            None => self.memory.chunks.push(Some(memory)),
        }
        let first = chunk as u32 * self.memory.slots_per_chunk;
        let end = first + self.memory.slots_per_chunk;
        self.lent.resize(self.lent.len().max(end as usize), false);
        self.free.extend((first..end).rev());
        self.chunk_count += 1;
        chunk
    }

    /// From now on only the first `count` chunks are used: slots of the others rest when they are given back. Those of
    /// low numbers are handed out first.
    pub fn retreat(&mut self, count: usize) {
        let per_chunk = self.memory.slots_per_chunk;
        let mut live = self.memory.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_some());
        self.retreat_from = live.nth(count).map_or(u32::MAX, |(chunk, _)| chunk as u32 * per_chunk);
        self.free.append(&mut self.resting);
        self.free.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        let resting = self.free.partition_point(|number| *number >= self.retreat_from);
        self.resting = self.free.drain(..resting).collect();
    }

    /// True if the store has retreated, and was not short of slots since.
    pub fn has_retreated(&self) -> bool {
        self.retreat_from != u32::MAX
    }

    /// True if a slot rests when it is given back.
    pub fn is_beyond(&self, slot: &Slot) -> bool {
        slot.0 >= self.retreat_from
    }

    /// Takes the chunks away whose slots all rest; their numbers. Their memory goes with the last handle to it.
    pub fn take_resting_chunks(&mut self) -> Vec<usize> {
        let per_chunk = self.memory.slots_per_chunk;
        let mut counts = vec![0; self.memory.chunks.len()];
        self.resting.iter().for_each(|number| counts[(number / per_chunk) as usize] += 1);
        let is_over = |chunk: usize| counts[chunk] == per_chunk;
        self.resting.retain(|number| !is_over((number / per_chunk) as usize));
        let over: Vec<usize> = (0..counts.len()).filter(|chunk| is_over(*chunk)).collect();
        over.iter().for_each(|chunk| self.memory.chunks[*chunk] = None);
        self.chunk_count -= over.len() as u32;
        over
    }

    /// Chunks there are.
    pub fn chunk_count(&self) -> u32 {
        self.chunk_count
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.memory.slot_bytes
    }

    /// Slots of a chunk.
    pub fn slots_per_chunk(&self) -> u32 {
        self.memory.slots_per_chunk
    }

    /// Slots in all.
    pub fn count(&self) -> u32 {
        self.chunk_count * self.memory.slots_per_chunk
    }

    /// Slots that nobody has, resting ones among them.
    pub fn free_count(&self) -> u32 {
        (self.free.len() + self.resting.len()) as u32
    }

    /// A handle to the bytes, to read from while the store itself is busy. It knows the chunks there are now.
    pub fn memory(&self) -> SlotMemory {
        self.memory.clone()
    }

    /// Takes a free slot.
    pub fn take(&mut self) -> Option<Slot> {
        if self.free.is_empty() && !self.resting.is_empty() {
            std::mem::swap(&mut self.free, &mut self.resting);
            self.retreat_from = u32::MAX;
        }
        self.free.pop().map(Slot)
    }

    /// Takes a free slot that need not rest; `None` if all of these are in use.
    pub fn take_within(&mut self) -> Option<Slot> {
        self.free.pop().map(Slot)
    }

    /// Puts a slot back among the free ones.
    pub fn give_back(&mut self, slot: Slot) {
        if self.is_beyond(&slot) { self.resting.push(slot.0) } else { self.free.push(slot.0) }
    }

    /// Leaves the bytes to the device, until [`SlotStore::reclaim`].
    pub fn lend(&mut self, slot: Slot) -> u32 {
        self.lent[slot.0 as usize] = true;
        slot.0
    }

    /// The device has done with the slot of this number; `None` if it had no such slot.
    pub fn reclaim(&mut self, number: u32) -> Option<Slot> {
        let lent = self.lent.get_mut(number as usize)?;
        std::mem::replace(lent, false).then_some(Slot(number))
    }

    /// The chunk in which a slot lies, and where in it.
    pub fn place(&self, slot: &Slot) -> (usize, usize) {
        self.memory.place(slot)
    }

    /// The bytes of a slot, for structures of this crate: they touch them while they hold the slot, and at no other time.
    pub(crate) fn space(&self, slot: &Slot) -> SharedMemory {
        let (chunk, offset) = self.memory.bytes(slot);
        chunk.part(offset, self.memory.slot_bytes).expect("slots are whole lines of their chunk")
    }

    /// Lets `fill` write the first `len_bytes` bytes of a slot.
    ///
    /// # Panics
    /// If a slot has fewer.
    pub fn fill(&mut self, slot: &mut Slot, len_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(len_bytes <= self.memory.slot_bytes, "the bytes fit the slot");
        let (chunk, offset) = self.memory.bytes(slot);
        // SAFETY: the slot is of this store, as its users see to. The bytes belong to whoever holds it, of which there is
        // one; it is borrowed mutably, so nobody reads it meanwhile and it is not lent.
        unsafe { chunk.write(offset, len_bytes, fill) };
    }

    /// As [`SlotMemory::read`].
    pub fn read<R>(&self, slot: &Slot, len_bytes: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        self.memory.read(slot, len_bytes, look)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_holder() {
        let mut store = SlotStore::new(64, 2);
        assert!(store.take().is_none(), "there is no memory yet");
        store.add(SharedMemory::private(128));
        let (mut first, second) = (store.take().expect("one of two"), store.take().expect("two of two"));
        assert!(store.take().is_none());
        assert_ne!(first.number(), second.number());
        store.fill(&mut first, 5, |space| space.copy_from_slice(b"hello"));
        let number = store.lend(first);
        assert!(store.reclaim(second.number()).is_none(), "it was not lent");
        let first = store.reclaim(number).expect("it was lent");
        assert!(store.reclaim(number).is_none(), "once");
        assert!(store.reclaim(99).is_none(), "there is no such slot");
        assert_eq!(store.memory().read(&first, 5, <[u8]>::to_vec), b"hello");
        store.give_back(second);
        store.give_back(first);
        assert_eq!((store.free_count(), store.count()), (2, 2));
    }

    #[test]
    fn chunks_are_numbered_through_and_do_not_overlap() {
        let mut store = SlotStore::new(128, 3);
        (0..4).for_each(|chunk| assert_eq!(store.add(SharedMemory::private(store.chunk_bytes())), chunk));
        let mut slots: Vec<Slot> = std::iter::from_fn(|| store.take()).collect();
        assert_eq!(slots.len(), 12);
        for slot in &mut slots {
            let byte = slot.number() as u8;
            store.fill(slot, 128, |space| space.fill(byte));
        }
        for slot in &slots {
            assert!(
                store.read(slot, 1000, |bytes| bytes.len() == 128
                    && bytes.iter().all(|one| *one == slot.number() as u8))
            );
        }
        let mut places: Vec<(usize, usize)> = slots.iter().map(|slot| store.place(slot)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 12);
        slots.into_iter().for_each(|slot| store.give_back(slot));
    }

    #[test]
    fn chunks_go_when_all_of_their_slots_rest_and_others_come_in_their_place() {
        let mut store = SlotStore::new(64, 2);
        (0..3).for_each(|_| _ = store.add(SharedMemory::private(128)));
        let mut held: Vec<Slot> = std::iter::from_fn(|| store.take()).collect();
        store.retreat(1);
        assert!(store.has_retreated() && store.take().is_none(), "all are in use");
        held.sort_unstable_by_key(Slot::number);
        let (third, second) = (held.split_off(4), held.split_off(2));
        third.into_iter().for_each(|slot| store.give_back(slot));
        let mut second = second.into_iter();
        store.give_back(second.next().expect("two of them"));
        assert_eq!((store.take_within().map(|slot| slot.number()), store.free_count()), (None, 3), "they rest");
        assert_eq!(store.take_resting_chunks(), [2], "of the second one is in use");
        assert_eq!((store.chunk_count(), store.count(), store.free_count()), (2, 4, 1));
        assert!(store.reclaim(5).is_none(), "there is no such slot any more");
        // Short of slots: what rests is used again.
        let last = store.take().expect("one rests");
        assert!(!store.has_retreated() && store.take().is_none());
        assert_eq!(store.add(SharedMemory::private(128)), 2, "in the place of the one that went");
        store.give_back(last);
        store.give_back(second.next().expect("the other"));
        held.into_iter().for_each(|slot| store.give_back(slot));
        store.retreat(1);
        assert_eq!(store.take().map(|slot| slot.number()), Some(0), "low numbers first");
        assert_eq!(store.take_resting_chunks(), [1, 2]);
        assert_eq!((store.chunk_count(), store.free_count()), (1, 1));
    }
}
