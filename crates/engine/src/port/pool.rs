//! The pool of a process: registered buffers for records, posted to one shared receive queue or on their way out.
//!
//! Paper: mpich2-ib §2.3.2, with one pool per process instead of one per connection. It grows by chunks, up to a limit;
//! past it connections get no more credits and sends wait. What a fresh connection needs at least is taken all the same, and
//! so are some buffers for sends: where all are with receives, those would wait for ever.
//! It shrinks as credits come back and buffers are not used, see [`Buffers`].

use fabric::{Access, Context, FabricError, ProtectionDomain, ReceiveRequest, ScatterGather, SharedReceiveQueue};
use lockfree::fastpath::Carried;
use lockfree::{Slot, SlotMemory};
use smallvec::SmallVec;

use super::Work;
use super::buffers::Buffers;

/// Bytes of one chunk, about.
const CHUNK_BYTES: usize = 512 << 10;
/// Receives posted at once.
const BATCH: usize = 32;
/// Slots for sends at least, whatever the limit.
const SENDS_MIN: u32 = 8;

pub(super) struct Pool {
    buffers: Buffers,
    queue: SharedReceiveQueue,
    /// Slots at most, but for what connections and sends need at least.
    slots_max: u32,
    /// Slots that are with the shared receive queue, or will be at once.
    receiving_count: u32,
    /// Emptied receives, to be posted again.
    emptied: Vec<Slot>,
    /// So many of those that are emptied next are not posted again.
    retiring_count: u32,
}

impl Pool {
    pub(super) fn new(
        domain: ProtectionDomain,
        queue: SharedReceiveQueue,
        message_max_bytes: usize,
        pool_max_bytes: usize,
    ) -> Self {
        let slot_bytes = message_max_bytes.next_multiple_of(lockfree::CACHE_LINE_BYTES);
        let slots_per_chunk = (CHUNK_BYTES / slot_bytes).clamp(8, 256) as u32;
        Self {
            buffers: Buffers::new(domain, Access::LOCAL, slot_bytes, slots_per_chunk),
            queue,
            slots_max: u32::try_from(pool_max_bytes / slot_bytes).unwrap_or(u32::MAX),
            receiving_count: 0,
            emptied: Vec::new(),
            retiring_count: 0,
        }
    }

    /// The bytes of all slots there are now, if that has changed since it was `known` times.
    #[inline]
    pub(super) fn memory_unless(&self, known: u64) -> Option<(SlotMemory, u64)> {
        (self.buffers.version() != known).then(|| self.buffers.memory())
    }

    /// The memory, and what became of it.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// A slot for a send; `None` while all are in use and there may be no more.
    #[inline]
    pub(super) fn take(&mut self, context: &mut dyn Context) -> Option<Slot> {
        if self.buffers.slots.free_count() == 0 {
            let must = self.buffers.slots.count().saturating_sub(self.receiving_count) < SENDS_MIN;
            self.grow(context, must).ok()?;
        }
        self.buffers.slots.take()
    }

    pub(super) fn give_back(&mut self, slot: Slot) {
        self.buffers.slots.give_back(slot);
    }

    pub(super) fn fill(&mut self, slot: &mut Slot, len_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        self.buffers.slots.fill(slot, len_bytes, fill);
    }

    /// Leaves a slot to the device; the number under which it comes back.
    pub(super) fn lend(&mut self, slot: Slot) -> u32 {
        self.buffers.slots.lend(slot)
    }

    pub(super) fn reclaim(&mut self, number: u32) -> Option<Slot> {
        self.buffers.slots.reclaim(number)
    }

    /// The first `len_bytes` of a slot, for a work request.
    pub(super) fn part(&self, slot: &Slot, len_bytes: u32) -> ScatterGather {
        self.buffers.part(slot, 0, len_bytes)
    }

    /// `len_bytes` of a slot from `from` on, for a work request.
    pub(super) fn part_at(&self, slot: &Slot, from: usize, len_bytes: u32) -> ScatterGather {
        self.buffers.part(slot, from, len_bytes)
    }

    /// Leaves a slot to the sender of a channel, for its next record.
    pub(super) fn lend_to(&self, channel: &mut Carried, slot: Slot) {
        channel.lend(&self.buffers.slots, slot);
    }

    /// Posts up to `count` more receives; how many. `must`: the limit does not count.
    pub(super) fn post_more(&mut self, context: &mut dyn Context, count: u32, must: bool) -> Result<u32, FabricError> {
        // What is left over is for sends: a quarter of the pool.
        let room = (self.slots_max / 4 * 3).saturating_sub(self.receiving_count);
        let count = if must { count } else { count.min(room) };
        let mut got = 0;
        while got < count {
            if self.buffers.slots.free_count() == 0 && self.grow(context, must).is_err() {
                break;
            }
            let Some(slot) = self.buffers.slots.take() else { break };
            self.emptied.push(slot);
            got += 1;
        }
        self.receiving_count += got;
        self.post_emptied(context)?;
        Ok(got)
    }

    /// A receive has been emptied: it is posted again with the next batch.
    pub(super) fn emptied(&mut self, slot: Slot) {
        self.emptied.push(slot);
    }

    /// Slots that are with the shared receive queue, or will be at once, and not to leave it.
    pub(super) fn receives_kept(&self) -> i64 {
        i64::from(self.receiving_count) - i64::from(self.retiring_count)
    }

    /// What became of its slots, in words.
    pub(super) fn standing(&self) -> String {
        let (free, count) = (self.buffers.slots.free_count(), self.buffers.slots.count());
        let Self { receiving_count, retiring_count, emptied, slots_max, .. } = self;
        format!(
            "{free} of {count} buffers free (at most {slots_max}), {receiving_count} to receive ({} emptied, \
             {retiring_count} to be kept back)",
            emptied.len()
        )
    }

    /// `count` receives are not needed any more; those that are emptied next are not posted again.
    pub(super) fn retire(&mut self, count: u32) {
        self.retiring_count += count;
    }

    /// As [`Buffers::has_grown`].
    pub(super) fn has_grown(&self) -> bool {
        self.buffers.has_grown()
    }

    /// A period is over, as for [`Buffers::end_period`].
    pub(super) fn end_period(&mut self, context: &mut dyn Context) -> bool {
        self.buffers.end_period(context)
    }

    /// Keeps back what is not needed of the receives that were emptied, and replaces what should rest.
    #[cold]
    fn thin_out(&mut self) {
        while self.retiring_count > 0
            && let Some(slot) = self.emptied.pop()
        {
            self.buffers.slots.give_back(slot);
            self.retiring_count -= 1;
            self.receiving_count -= 1;
        }
        for at in 0..self.emptied.len() {
            if self.buffers.slots.is_beyond(&self.emptied[at])
                && let Some(better) = self.buffers.slots.take_within()
            {
                let rests = std::mem::replace(&mut self.emptied[at], better);
                self.buffers.slots.give_back(rests);
            }
        }
    }

    /// Posts what was emptied.
    ///
    /// # Errors
    /// What the device says; what was not posted is tried again with the next batch.
    pub(super) fn post_emptied(&mut self, context: &mut dyn Context) -> Result<(), FabricError> {
        if self.retiring_count > 0 || self.buffers.slots.has_retreated() {
            self.thin_out();
        }
        while !self.emptied.is_empty() {
            let first = self.emptied.len().saturating_sub(BATCH);
            let bytes = self.buffers.slots.slot_bytes() as u32;
            let lists: SmallVec<[[ScatterGather; 1]; BATCH]> =
                self.emptied[first..].iter().map(|slot| [self.part(slot, bytes)]).collect();
            let requests: SmallVec<[ReceiveRequest<'_>; BATCH]> = self.emptied[first..]
                .iter()
                .zip(&lists)
                .map(|(slot, list)| ReceiveRequest { id: Work::Receive(slot.number()).id(), list })
                .collect();
            let posted = context.post_shared_receive(self.queue, &requests)?;
            if posted == 0 {
                break;
            }
            for slot in self.emptied.drain(first..first + posted) {
                self.buffers.slots.lend(slot);
            }
        }
        Ok(())
    }

    /// Adds a chunk. `must`: the limit does not count.
    fn grow(&mut self, context: &mut dyn Context, must: bool) -> Result<(), FabricError> {
        let after = self.buffers.slots.count() + self.buffers.slots.slots_per_chunk();
        if !must && after > self.slots_max.max(self.buffers.slots.slots_per_chunk()) {
            return Err(FabricError::Exhausted { object: "buffers for messages", max: self.slots_max });
        }
        self.buffers.grow(context)
    }
}
