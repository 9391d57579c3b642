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
    chunks: Vec<SharedMemory>,
    slot_bytes: usize,
    slots_per_chunk: u32,
}

/// The pieces and who has them.
pub struct SlotStore {
    memory: SlotMemory,
    free: Vec<u32>,
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
        (&self.chunks[chunk], offset)
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
        Self { memory, free: Vec::new(), lent: Vec::new() }
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.memory.slot_bytes * self.memory.slots_per_chunk as usize
    }

    /// Adds the slots of one more chunk; they are free.
    ///
    /// # Panics
    /// If `memory` is shorter than a chunk.
    pub fn add(&mut self, memory: SharedMemory) {
        assert!(memory.len_bytes() >= self.chunk_bytes(), "a chunk holds its slots");
        let first = self.count();
        self.memory.chunks.push(memory);
        self.lent.resize((first + self.memory.slots_per_chunk) as usize, false);
        self.free.extend((first..first + self.memory.slots_per_chunk).rev());
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
        self.lent.len() as u32
    }

    /// Slots that nobody has.
    pub fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// A handle to the bytes, to read from while the store itself is busy. It knows the chunks there are now.
    pub fn memory(&self) -> SlotMemory {
        self.memory.clone()
    }

    /// Takes a free slot.
    pub fn take(&mut self) -> Option<Slot> {
        self.free.pop().map(Slot)
    }

    /// Puts a slot back among the free ones.
    pub fn give_back(&mut self, slot: Slot) {
        self.free.push(slot.0);
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
        (0..4).for_each(|_| store.add(SharedMemory::private(store.chunk_bytes())));
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
}
