//! Segments: registered buffers in which packed data waits to be sent, or arrives to be unpacked.
//! Paper: datatypes §4.3.3, §7.2
//!
//! A pool of them serves all peers. It grows by chunks up to a limit and gives back what is not used ([`Buffers`]); what
//! happens when all are taken is for whoever asks to decide. One pool is for packing and another for unpacking: segments to be unpacked wait for what
//! peers write, and if what those peers write waited for segments of the same pool, nobody could go on.

use base::SlabKey;
use fabric::{Access, Context, ProtectionDomain, RemoteMemory, ScatterGather};
use lockfree::Slot;

use super::buffers::Buffers;

/// Bytes of a chunk of segments, unless that is less than one.
const CHUNK_BYTES: usize = 1 << 20;

/// What a segment that peers write is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentUse {
    /// The receive whose data it gets.
    pub(crate) receive: SlabKey,
    /// Where in the message that begins, in bytes.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) len_bytes: u32,
}

/// Segments for one purpose.
pub(crate) struct SegmentPool {
    buffers: Buffers,
    segment_bytes: usize,
    segments_max: u32,
    /// By number: what peers write there.
    uses: Vec<Option<SegmentUse>>,
    taken: u32,
    peak: u32,
}

impl SegmentPool {
    /// A pool of at most `bytes_max` bytes, in segments of `segment_bytes`; it holds none yet.
    pub(super) fn new(domain: ProtectionDomain, access: Access, segment_bytes: usize, bytes_max: usize) -> Self {
        let segments_max = u32::try_from(bytes_max / segment_bytes).unwrap_or(u32::MAX);
        let per_chunk = segments_max.clamp(1, (CHUNK_BYTES / segment_bytes).max(1) as u32);
        let buffers = Buffers::new(domain, access, segment_bytes, per_chunk);
        Self { buffers, segment_bytes, segments_max, uses: Vec::new(), taken: 0, peak: 0 }
    }

    /// Most bytes of segments in use at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        u64::from(self.peak) * self.segment_bytes as u64
    }

    /// Bytes of segments in use; while there are any, one will come back.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        u64::from(self.taken) * self.segment_bytes as u64
    }

    /// A segment, if one is free or there may be more.
    pub(super) fn take(&mut self, context: &mut dyn Context) -> Option<Slot> {
        if self.buffers.slots.free_count() == 0 {
            self.grow(context)?;
        }
        let slot = self.buffers.slots.take()?;
        self.taken += 1;
        self.peak = self.peak.max(self.taken);
        Some(slot)
    }

    fn grow(&mut self, context: &mut dyn Context) -> Option<()> {
        if self.buffers.slots.count() + self.buffers.slots.slots_per_chunk() > self.segments_max {
            return None;
        }
        self.buffers.grow(context).ok()
    }

    /// As [`Buffers::has_grown`].
    pub(super) fn has_grown(&self) -> bool {
        self.buffers.has_grown()
    }

    /// A period is over, as for [`Buffers::end_period`].
    pub(super) fn end_period(&mut self, context: &mut dyn Context) -> bool {
        self.buffers.end_period(context)
    }

    /// The memory, and what became of it.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Lets a peer write a segment; where that is, and its number.
    pub(super) fn open(&mut self, slot: Slot, used: SegmentUse) -> (RemoteMemory, u32) {
        let remote = self.buffers.remote(&slot);
        let number = self.buffers.slots.lend(slot);
        if number as usize >= self.uses.len() {
            self.uses.resize(number as usize + 1, None);
        }
        self.uses[number as usize] = Some(used);
        (remote, number)
    }

    /// What a peer writes into a segment.
    pub(crate) fn use_of(&self, number: u32) -> Option<SegmentUse> {
        *self.uses.get(number as usize)?
    }

    /// A peer has written a segment: its bytes are shown, and it is free again.
    pub(crate) fn close(&mut self, number: u32, look: impl FnOnce(&[u8])) {
        let used = self.uses.get_mut(number as usize).and_then(Option::take);
        if let (Some(used), Some(slot)) = (used, self.buffers.slots.reclaim(number)) {
            self.buffers.slots.read(&slot, used.len_bytes as usize, look);
            self.give_back(slot);
        }
    }

    /// Gives up the segments of a receive that is over.
    pub(crate) fn close_all_of(&mut self, receive: SlabKey) {
        for number in 0..self.uses.len() as u32 {
            if self.use_of(number).is_some_and(|used| used.receive == receive) {
                self.close(number, |_| {});
            }
        }
    }

    /// Fills a segment that is sent next and leaves it to the device; what is sent, and its number.
    pub(super) fn fill(
        &mut self,
        mut slot: Slot,
        len_bytes: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> (ScatterGather, u32) {
        self.buffers.slots.fill(&mut slot, len_bytes as usize, fill);
        (self.buffers.part(&slot, 0, len_bytes), self.buffers.slots.lend(slot))
    }

    /// A segment was sent.
    pub(crate) fn sent(&mut self, number: u32) {
        if let Some(slot) = self.buffers.slots.reclaim(number) {
            self.give_back(slot);
        }
    }

    fn give_back(&mut self, slot: Slot) {
        self.buffers.slots.give_back(slot);
        self.taken -= 1;
    }
}
