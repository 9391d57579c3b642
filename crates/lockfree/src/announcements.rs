//! Who has something to say, without asking everybody: a bit per process, and one word that says where to look.
//!
//! ```text
//!   line 0   summary: bit i % 64 for word i | places taken
//!   line 1…  a bit per process
//! ```
//! A process sets its own bit and then the summary's. The owner takes the summary and then the words it points to, so
//! looking costs one load however many processes there are. A bit that is set while it is being taken is found now or
//! by the next look.

use base::sync::Ordering;

use crate::{CACHE_LINE_BYTES, SharedMemory};

const SUMMARY: usize = 0;
const TAKEN: usize = 8;
const WORDS: usize = CACHE_LINE_BYTES;

/// The announcements to one process, by places counted from 0.
#[derive(Clone)]
pub struct Announcements {
    memory: SharedMemory,
    word_count: usize,
}

impl Announcements {
    /// Bytes for `places`.
    pub const fn footprint(places: usize) -> usize {
        WORDS + places.div_ceil(64).next_multiple_of(8) * 8
    }

    /// The announcements in `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is too short.
    pub fn new(memory: SharedMemory, places: usize) -> Self {
        assert!(memory.len_bytes() >= Self::footprint(places), "a bit per place fits the memory");
        Self { memory, word_count: places.div_ceil(64) }
    }

    /// Says that `place` has something for the owner.
    pub fn announce(&self, place: u32) {
        let (index, bit) = (place as usize / 64, place % 64);
        assert!(index < self.word_count, "a place of this world");
        // Release, both: who takes the bit finds what it announces, and who takes the summary finds the bit.
        self.memory.word(WORDS + index * 8).fetch_or(1 << bit, Ordering::Release);
        self.memory.word(SUMMARY).fetch_or(1 << (index % 64), Ordering::Release);
    }

    /// True if nobody has announced anything since the owner took it last.
    #[inline]
    pub fn are_none(&self) -> bool {
        // Relaxed: `take` orders.
        self.memory.word(SUMMARY).load(Ordering::Relaxed) == 0
    }

    /// The owner takes all announcements.
    pub fn take(&self, mut found: impl FnMut(u32)) {
        // Acquire, both: pair with the releases in `announce`.
        let summary = self.memory.word(SUMMARY).swap(0, Ordering::Acquire);
        for index in (0..self.word_count).filter(|index| summary >> (index % 64) & 1 != 0) {
            let mut bits = self.memory.word(WORDS + index * 8).swap(0, Ordering::Acquire);
            while bits != 0 {
                found((index * 64) as u32 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Takes one of at most `max` places that the owner grants (memory it spends for a sender, say); false if all are
    /// taken. Whoever stands in the way of a limit finds it again once a place was given back.
    pub fn take_place(&self, max: u32) -> bool {
        let word = self.memory.word(TAKEN);
        let mut taken = word.load(Ordering::Relaxed);
        // Relaxed: a count, which orders nothing.
        while taken < max.into() {
            match word.compare_exchange_weak(taken, taken + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
        false
    }

    /// A place that was taken is free again.
    pub fn give_place_back(&self) {
        let word = self.memory.word(TAKEN);
        let mut taken = word.load(Ordering::Relaxed);
        // A count that somebody damaged does not go below 0.
        while let Some(less) = taken.checked_sub(1) {
            match word.compare_exchange_weak(taken, less, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => taken = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_found_once() {
        for places in [1, 64, 65, 500, 5000].into_iter().take(if cfg!(miri) { 4 } else { 5 }) {
            let all = Announcements::new(SharedMemory::private(Announcements::footprint(places)), places);
            assert!(all.are_none());
            let some: Vec<u32> =
                (0..places as u32).filter(|place| place % 7 == 3 || *place + 1 == places as u32).collect();
            for place in some.iter().chain(&some) {
                all.announce(*place);
            }
            assert!(!all.are_none());
            let mut found = Vec::new();
            all.take(|place| found.push(place));
            assert_eq!(found, some, "{places} places");
            assert!(all.are_none());
            all.take(|place| panic!("{place} was taken before"));
        }
    }

    #[test]
    fn places_are_limited_and_come_back() {
        let all = Announcements::new(SharedMemory::private(Announcements::footprint(3)), 3);
        assert!(all.take_place(2) && all.take_place(2) && !all.take_place(2));
        all.give_place_back();
        assert!(all.take_place(2) && !all.take_place(2) && !all.take_place(0));
        for _ in 0..5 {
            all.give_place_back();
        }
        assert!(all.take_place(1) && !all.take_place(1), "no more came back than were taken");
    }
}
