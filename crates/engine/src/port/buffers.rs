//! Registered memory in equal pieces, which comes and goes in chunks.
//!
//! A chunk is added when all pieces are in use and given back when none of its own was needed for a whole period: at the
//! end of one the store retreats to as many chunks as were in use then and half of one more; those beyond that were not
//! touched until the end of the next go. So what is used now and then stays, and a chunk is not made again right after.

use fabric::{Access, Context, FabricError, MemoryRegion, ProtectionDomain, RemoteMemory, ScatterGather};
use lockfree::{Slot, SlotMemory, SlotStore};

/// Pieces of registered memory.
pub(super) struct Buffers {
    pub(super) slots: SlotStore,
    /// By chunk; of those that are gone, what they were.
    regions: Vec<MemoryRegion>,
    domain: ProtectionDomain,
    access: Access,
    /// How often chunks came or went.
    version: u64,
    /// A chunk came in this period.
    has_grown: bool,
    held_peak_bytes: u64,
    given_back_bytes: u64,
}

impl Buffers {
    /// None yet, of `slot_bytes` each, of which `slots_per_chunk` come at once.
    pub(super) fn new(domain: ProtectionDomain, access: Access, slot_bytes: usize, slots_per_chunk: u32) -> Self {
        let slots = SlotStore::new(slot_bytes, slots_per_chunk);
        Self {
            slots,
            regions: Vec::new(),
            domain,
            access,
            version: 0,
            has_grown: false,
            held_peak_bytes: 0,
            given_back_bytes: 0,
        }
    }

    /// The bytes of all pieces there are now, and how often that has changed.
    pub(super) fn memory(&self) -> (SlotMemory, u64) {
        (self.slots.memory(), self.version)
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// True if chunks have come in this period, so that its end may find some that are not needed.
    pub(super) fn has_grown(&self) -> bool {
        self.has_grown
    }

    /// Bytes registered.
    pub(super) fn held_bytes(&self) -> u64 {
        self.slots.chunk_bytes() as u64 * u64::from(self.slots.chunk_count())
    }

    /// Most bytes registered at once.
    pub(super) fn held_peak_bytes(&self) -> u64 {
        self.held_peak_bytes
    }

    /// Bytes given back because they were not needed.
    pub(super) fn given_back_bytes(&self) -> u64 {
        self.given_back_bytes
    }

    /// `len_bytes` bytes of a piece from `from` on, for a work request.
    pub(super) fn part(&self, slot: &Slot, from: usize, len_bytes: u32) -> ScatterGather {
        let (chunk, offset) = self.slots.place(slot);
        self.regions[chunk].part((offset + from) as u64, len_bytes)
    }

    /// Where a peer finds a piece.
    pub(super) fn remote(&self, slot: &Slot) -> RemoteMemory {
        let (chunk, offset) = self.slots.place(slot);
        self.regions[chunk].remote(offset as u64)
    }

    /// Adds a chunk.
    ///
    /// # Errors
    /// What the device says.
    pub(super) fn grow(&mut self, context: &mut dyn Context) -> Result<(), FabricError> {
        let (region, memory) = context.allocate(self.domain, self.slots.chunk_bytes(), self.access)?;
        let chunk = self.slots.add(memory);
        match self.regions.get_mut(chunk) {
            Some(before) => *before = region,
            None => self.regions.push(region),
        }
        self.version += 1;
        self.has_grown = true;
        self.held_peak_bytes = self.held_peak_bytes.max(self.held_bytes());
        Ok(())
    }

    /// A period is over: gives back what was not needed in it. True if the next one may find more to give back.
    pub(super) fn end_period(&mut self, context: &mut dyn Context) -> bool {
        let chunk_bytes = self.slots.chunk_bytes() as u64;
        self.has_grown = false;
        let gone = if self.slots.has_retreated() { self.slots.take_resting_chunks() } else { Vec::new() };
        for chunk in &gone {
            // It was allocated for this, and none of its pieces is with the device.
            let _ = context.deregister(self.regions[*chunk]);
            self.given_back_bytes += chunk_bytes;
            self.version += 1;
        }
        let (before, per_chunk) = (self.slots.has_retreated(), self.slots.slots_per_chunk());
        let in_use = self.slots.count() - self.slots.free_count();
        let needed = if in_use == 0 { 0 } else { (in_use + per_chunk / 2).div_ceil(per_chunk) };
        self.slots.retreat(needed as usize);
        !gone.is_empty() || before != self.slots.has_retreated()
    }
}
