//! Which stores are the faster ones into a block, found out while it is used.
//!
//! Streaming stores cost the sender the same wherever the other core is, but the reader fetches from main memory.
//! Ordinary stores are up to three times faster for both ends together where the cores share a cache and the block is so
//! long that its lines have left the nearest ones, and up to four times slower where they share none: every line is then
//! fetched from the reader's cache before it is written. Systems move processes, and hypervisors processors, so that
//! neither is true for long.
//!
//! What the sender sees of it are its own copies. With ordinary stores they take at most [`ORDINARY_MAX`] times as
//! long as with streaming ones where they are the better choice (measured: 0.7 to 1.6), and 3 to 12 times where they are
//! not. So now and then the first few copies of a lap are written with ordinary stores, and those of the next lap to the
//! same place timed; while ordinary stores are in use, the first few of every lap. Trials that fail become rarer. Only
//! copies of like lengths are compared: by the KiB, short ones take longer whatever the stores.

use crate::Stores;

/// Ordinary stores are used while their copies take at most so many times as long as those of streaming ones did.
const ORDINARY_MAX: u32 = 2;
/// Copies timed in a lap.
const SAMPLES: usize = 9;
/// Copies written anew, before those to the same place are timed.
const CHANGED: usize = 12;
/// Laps before the first trial: memory that is touched for the first time costs more than any store.
const FIRST_LAPS: u32 = 1;
/// Laps from a trial that failed to the next, at first and at most.
const REST_LAPS: u32 = 8;
const REST_LAPS_MAX: u32 = 64;
/// Laps of ordinary stores before streaming ones are timed again.
const ORDINARY_LAPS: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Streaming, for so many laps more.
    Rest(u32),
    /// Streaming, timed.
    Reference,
    /// Ordinary stores where streaming ones wrote a lap ago.
    Change,
    /// Ordinary stores, timed, for so many laps more.
    Ordinary(u32),
}

/// The stores of one block, and what was measured of them.
#[derive(Debug)]
pub struct Pace {
    phase: Phase,
    /// Laps to rest after the next trial that fails.
    rest_laps: u32,
    /// What copies with streaming stores took, in ns per KiB.
    reference: u32,
    /// The lengths it holds for: those of as many bits.
    len_bits: u32,
    samples: [u32; SAMPLES],
    /// Copies of other lengths in this phase and lap.
    others: usize,
    /// Copies noted in this phase and lap.
    noted: usize,
    /// What the last trial, or the last lap of ordinary stores, said.
    is_near: bool,
}

impl Default for Pace {
    fn default() -> Self {
        let phase = Phase::Rest(FIRST_LAPS);
        Self {
            phase,
            rest_laps: REST_LAPS,
            reference: 0,
            len_bits: 0,
            samples: [0; SAMPLES],
            others: 0,
            noted: 0,
            is_near: false,
        }
    }
}

impl Pace {
    /// The stores to use now.
    #[inline]
    pub fn stores(&self) -> Stores {
        match self.phase {
            Phase::Rest(_) | Phase::Reference => Stores::Streaming,
            Phase::Change if self.noted == CHANGED => Stores::Streaming,
            Phase::Change | Phase::Ordinary(_) => Stores::Ordinary,
        }
    }

    /// True while ordinary stores are the faster ones, as far as is known: the cores share a cache.
    #[inline]
    pub fn is_near(&self) -> bool {
        self.is_near
    }

    /// True if the next copy is to be timed, and noted.
    #[inline]
    pub fn wants_sample(&self) -> bool {
        match self.phase {
            Phase::Rest(_) => false,
            Phase::Change => self.noted < CHANGED,
            Phase::Reference | Phase::Ordinary(_) => self.noted < SAMPLES,
        }
    }

    /// A copy of `len_bytes`, which are not 0, took `ns`.
    pub fn note(&mut self, len_bytes: usize, ns: u64) {
        if self.phase == Phase::Reference && self.noted == 0 {
            self.len_bits = len_bytes.ilog2();
        }
        if self.phase != Phase::Change && len_bytes.ilog2() != self.len_bits {
            self.others += 1;
            if self.others == SAMPLES {
                (self.phase, self.others, self.noted) = (Phase::Reference, 0, 0);
            }
            return;
        }
        let per_kib = u32::try_from((ns << 10) / len_bytes as u64).unwrap_or(u32::MAX);
        if let Some(sample) = self.samples.get_mut(self.noted) {
            *sample = per_kib;
        }
        self.noted += 1;
        if matches!(self.phase, Phase::Ordinary(_)) && self.noted == SAMPLES {
            self.is_near = self.median() <= self.reference.saturating_mul(ORDINARY_MAX);
            if self.is_near {
                self.rest_laps = REST_LAPS;
            } else {
                self.phase = Phase::Rest(self.rest_laps);
                self.rest_laps = (self.rest_laps * 2).min(REST_LAPS_MAX);
            }
        }
    }

    /// The block begins a new lap.
    pub fn turn(&mut self) {
        self.phase = match self.phase {
            Phase::Rest(laps) if laps > 1 => Phase::Rest(laps - 1),
            Phase::Rest(_) => Phase::Reference,
            // Too little was copied to tell: another lap.
            Phase::Reference | Phase::Ordinary(_) if self.noted < SAMPLES => return,
            Phase::Reference => {
                self.reference = self.median();
                Phase::Change
            }
            Phase::Change => Phase::Ordinary(ORDINARY_LAPS),
            Phase::Ordinary(laps) if laps > 1 => Phase::Ordinary(laps - 1),
            Phase::Ordinary(_) => Phase::Reference,
        };
        (self.others, self.noted) = (0, 0);
    }

    fn median(&self) -> u32 {
        let mut samples = self.samples;
        *samples.select_nth_unstable(SAMPLES / 2).1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Laps of 20 copies of 4 KiB, timed by `cost` of stores and lap; how many copies had ordinary stores.
    fn ordinary_copies(pace: &mut Pace, laps: u32, cost: impl Fn(Stores, u32) -> u64) -> u32 {
        ordinary_copies_of(4096, pace, laps, cost)
    }

    fn ordinary_copies_of(len_bytes: usize, pace: &mut Pace, laps: u32, cost: impl Fn(Stores, u32) -> u64) -> u32 {
        let mut ordinary = 0;
        for lap in 0..laps {
            for copy in 0..20 {
                let stores = pace.stores();
                ordinary += u32::from(stores == Stores::Ordinary);
                if pace.wants_sample() {
                    // Some are interrupted.
                    let late = if copy % 5 == 4 { 50_000 } else { 0 };
                    pace.note(len_bytes, cost(stores, lap) + late);
                }
            }
            pace.turn();
        }
        ordinary
    }

    fn near(stores: Stores, _lap: u32) -> u64 {
        if stores == Stores::Streaming { 170 } else { 250 }
    }

    fn far(stores: Stores, _lap: u32) -> u64 {
        if stores == Stores::Streaming { 170 } else { 600 }
    }

    #[test]
    fn ordinary_stores_are_used_where_they_are_not_much_slower() {
        let mut pace = Pace::default();
        let ordinary = ordinary_copies(&mut pace, 100, near);
        assert_eq!(ordinary, 97 * 20 + CHANGED as u32, "all laps but the first three, of the last of which a part");
        let tried = ordinary_copies(&mut pace, 10_000, far);
        assert!((2000..5000).contains(&tried), "a few copies of each trial, and trials become rare: {tried} of 200000");
        let later = ordinary_copies(&mut pace, 1000, near);
        assert!(later > 900 * 20, "it is found out when that changes: {later}");
        let back = ordinary_copies(&mut pace, 100, far);
        assert!(back < 200, "and when it changes back, within a lap: {back}");
    }

    #[test]
    fn memory_touched_for_the_first_time_says_nothing_about_stores() {
        let first_touch = |stores, lap| if lap < 1 { 5000 } else { far(stores, lap) };
        assert!(ordinary_copies(&mut Pace::default(), 100, first_touch) < 200);
    }

    #[test]
    fn short_copies_say_nothing_about_long_ones() {
        let mut pace = Pace::default();
        let short = |stores, _| if stores == Stores::Streaming { 250 } else { 300 };
        assert!(ordinary_copies_of(2048, &mut pace, 100, short) > 1800);
        // By the KiB, less than twice what the short ones took.
        let long = |stores, _| if stores == Stores::Streaming { 500 } else { 3000 };
        let ordinary = ordinary_copies_of(16384, &mut pace, 100, long);
        assert!(ordinary < 250, "{ordinary} of 2000");
    }

    #[test]
    fn without_copies_nothing_is_tried() {
        let mut pace = Pace::default();
        for _ in 0..1000 {
            pace.turn();
            assert_eq!(pace.stores(), Stores::Streaming);
        }
    }
}
