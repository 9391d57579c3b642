//! The part of a segment from which a process gives out memory that its peers map.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::sync::Ordering;
use fabric::SharedMemory;

/// Blocks begin on pages of this size.
const PAGE_BYTES: usize = 4096;

/// The pages of shorter blocks stay with the segment: handing them back and meeting them again costs more than they hold.
const GIVEN_BACK_MIN_BYTES: usize = 64 << 10;

/// The memory, and what of it is free.
pub(super) struct Arena {
    memory: SharedMemory,
    free: Arc<Mutex<Free>>,
}

/// Free blocks by offset, none touching the next.
struct Free {
    blocks: Vec<(usize, usize)>,
}

/// A block given out; it is free again when the last handle of it is dropped.
struct Block {
    free: Arc<Mutex<Free>>,
    offset: usize,
    len_bytes: usize,
    /// Keeps the segment mapped.
    memory: SharedMemory,
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.len_bytes >= GIVEN_BACK_MIN_BYTES {
            let start = self.memory.start().as_ptr();
            // The system's pages may be longer than the arena's, and belong to a neighbour in part.
            let page_bytes = rustix::param::page_size();
            let skipped = (start as usize).wrapping_neg() % page_bytes;
            let whole = self.len_bytes.saturating_sub(skipped) / page_bytes * page_bytes;
            let first = start.wrapping_add(skipped).cast();
            // Where the memory is not a segment's the system refuses, and it stays as it is.
            // SAFETY: whole pages of the mapping that `memory` keeps; this was the last handle to them, and whoever gets
            // them next reaches them through atomics, and finds zeroes.
            let _ = unsafe { rustix::mm::madvise(first, whole, rustix::mm::Advice::LinuxRemove) };
        }
        lock(&self.free).give_back(self.offset, self.len_bytes);
    }
}

impl Arena {
    pub(super) fn new(memory: SharedMemory) -> Self {
        let blocks = if memory.len_bytes() == 0 { Vec::new() } else { vec![(0, memory.len_bytes())] };
        Self { memory, free: Arc::new(Mutex::new(Free { blocks })) }
    }

    /// `len_bytes` zero bytes, on a page of their own; `None` if there are not so many in one piece.
    pub(super) fn allocate(&self, len_bytes: usize) -> Option<SharedMemory> {
        let whole = len_bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let offset = lock(&self.free).take(whole)?;
        let part = self.memory.part(offset, whole)?;
        for at in (0..whole).step_by(8) {
            part.word(at).store(0, Ordering::Relaxed);
        }
        let start = part.start();
        let block = Block { free: Arc::clone(&self.free), offset, len_bytes: whole, memory: part };
        // SAFETY: the block lies in the mapping that `memory` keeps, on a page, and belongs to nobody else until it
        // is dropped.
        Some(unsafe { SharedMemory::new(start, len_bytes, Arc::new(block)) })
    }
}

impl Free {
    /// The first block that is long enough.
    fn take(&mut self, len_bytes: usize) -> Option<usize> {
        let index = self.blocks.iter().position(|(_, len)| *len >= len_bytes)?;
        let (offset, len) = self.blocks[index];
        if len == len_bytes {
            self.blocks.remove(index);
        } else {
            self.blocks[index] = (offset + len_bytes, len - len_bytes);
        }
        Some(offset)
    }

    fn give_back(&mut self, offset: usize, len_bytes: usize) {
        let index = self.blocks.partition_point(|(start, _)| *start < offset);
        self.blocks.insert(index, (offset, len_bytes));
        self.join(index);
        if index > 0 {
            self.join(index - 1);
        }
    }

    /// Makes one of a block and the next, if they touch.
    fn join(&mut self, index: usize) {
        if let [(start, len), (next, more), ..] = self.blocks[index..]
            && start + len == next
        {
            self.blocks[index].1 = len + more;
            self.blocks.remove(index + 1);
        }
    }
}

/// The list is whole between any two of its operations.
fn lock(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the naive way: which pages are whose.
        #[test]
        fn blocks_never_overlap_and_all_of_it_comes_back(steps in prop::collection::vec((any::<bool>(), 0usize..5), 1..60)) {
            const PAGES: usize = 12;
            let memory = SharedMemory::private(PAGES * PAGE_BYTES);
            let base = memory.start().addr().get();
            let arena = Arena::new(memory);
            let mut held: Vec<(SharedMemory, u64)> = Vec::new();
            for (number, (gives, size)) in (1u64..).zip(steps) {
                if gives && !held.is_empty() {
                    held.swap_remove(size % held.len());
                } else if let Some(block) = arena.allocate(size * PAGE_BYTES) {
                    if size > 0 {
                        let at = block.start().addr().get() - base;
                        prop_assert!(at.is_multiple_of(PAGE_BYTES) && at + size * PAGE_BYTES <= PAGES * PAGE_BYTES);
                    }
                    for word in (0..block.len_bytes()).step_by(8) {
                        prop_assert_eq!(block.word(word).swap(number, Ordering::Relaxed), 0, "zeroed");
                    }
                    held.push((block, number));
                }
                for (block, number) in &held {
                    for word in (0..block.len_bytes()).step_by(8) {
                        prop_assert_eq!(block.word(word).load(Ordering::Relaxed), *number, "its owner's alone");
                    }
                }
            }
            held.clear();
            prop_assert!(arena.allocate(PAGES * PAGE_BYTES).is_some(), "in one piece again");
        }
    }
}
