//! A claim cell: two processes copy one message together, chunk by chunk, whoever is free.
//!
//! ```text
//!   word 0  generation:32 | next chunk:32      taken by compare-and-swap
//!   word 1  chunks done
//! ```
//! The owner opens a new generation for each message and closes it when all chunks are done; a helper that
//! comes late finds another generation and leaves.

use base::sync::Ordering;

use crate::{CACHE_LINE_BYTES, SharedMemory};

const NEXT: usize = 0;
const DONE: usize = 8;

/// One cell, a cache line.
#[derive(Clone)]
pub struct ClaimCell {
    memory: SharedMemory,
}

impl ClaimCell {
    /// Bytes a cell takes.
    pub const FOOTPRINT: usize = CACHE_LINE_BYTES;

    /// The cell in `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is shorter than [`ClaimCell::FOOTPRINT`].
    pub fn new(memory: SharedMemory) -> Self {
        assert!(memory.len_bytes() >= Self::FOOTPRINT, "a claim cell takes a cache line");
        Self { memory }
    }

    /// The owner opens the cell for a message; returns the generation helpers must name.
    pub fn open(&self) -> u32 {
        let generation = ((self.memory.word(NEXT).load(Ordering::Relaxed) >> 32) as u32).wrapping_add(1);
        self.memory.word(DONE).store(0, Ordering::Relaxed);
        // Release: a helper that sees the generation sees `done` at 0.
        self.memory.word(NEXT).store(u64::from(generation) << 32, Ordering::Release);
        generation
    }

    /// Takes the next of `chunk_count` chunks, or `None` when all are taken or the message is another one.
    pub fn claim(&self, generation: u32, chunk_count: u32) -> Option<u32> {
        let word = self.memory.word(NEXT);
        let mut seen = word.load(Ordering::Acquire);
        loop {
            let next = seen as u32;
            if (seen >> 32) as u32 != generation || next >= chunk_count {
                return None;
            }
            match word.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(next),
                Err(now) => seen = now,
            }
        }
    }

    /// A claimed chunk is copied; returns how many are done now.
    pub fn finish(&self) -> u64 {
        // Release: the bytes copied are seen by whoever counts them done. Pairs with `done`.
        self.memory.word(DONE).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// How many chunks are done.
    pub fn done(&self) -> u64 {
        self.memory.word(DONE).load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_claimed_once_and_late_helpers_leave() {
        let cell = ClaimCell::new(SharedMemory::private(ClaimCell::FOOTPRINT));
        let generation = cell.open();
        let helper = {
            let cell = cell.clone();
            std::thread::spawn(move || {
                let mut mine = Vec::new();
                while let Some(chunk) = cell.claim(generation, 1000) {
                    mine.push(chunk);
                    cell.finish();
                }
                mine
            })
        };
        let mut all = Vec::new();
        while let Some(chunk) = cell.claim(generation, 1000) {
            all.push(chunk);
            cell.finish();
        }
        all.extend(helper.join().expect("no panic"));
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert_eq!(cell.done(), 1000);
        let next = cell.open();
        assert_eq!(cell.claim(generation, 1000), None);
        assert_eq!(cell.claim(next, 1), Some(0));
    }
}
