//! Which stores are the faster ones into a block, found out while it is used.
//!
//! Streaming stores cost the sender the same wherever the other core is, but the reader fetches from main memory.
//! Ordinary stores are up to three times faster for both ends together where the cores share a cache and the block is so
//! long that its lines have left the nearest ones, and up to four times slower where they share none: every line is then
//! fetched from the reader's cache before it is written. Systems move processes, and hypervisors processors, so that
//! neither is true for long.
//!
//! What the sender sees of it are its own copies. With ordinary stores a KiB took 30 to 150 ns where they are the better
//! choice, most in a short block, and 230 to 600 where they are not (measured; with streaming ones 20 to 90 in either case,
//! for nobody waits until those have arrived). So now and then the first few copies of a lap are written with ordinary
//! stores, and those of the next lap to the same place timed, or, where the lap before had no streaming ones, the next few
//! at once; while ordinary stores are in use, the first few of every lap.
//! Trials that fail become rarer. Memory that a block has just been given says little, so a lap passes before it is asked.
//! Only copies of like lengths are compared, for by the KiB short ones take longer whatever the stores (from 8 KiB on, no
//! more): where lengths come up that no streaming copies are known of, some are timed. Traffic of several lengths at once
//! is judged by all it is known of.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use crate::Stores;

/// Ordinary stores are used while their copies take at most so many ns per KiB, 11 for each line: what other caches take
/// that are not shared is beyond that,
const NEAR_MAX: u32 = 11 * 1024 / crate::CACHE_LINE_BYTES as u32;
/// or at most so many times as long as those of streaming ones did, however slow the processor.
const ORDINARY_MAX: u32 = 2;
/// Copies timed in a lap.
const SAMPLES: usize = 9;
/// Streaming copies of like lengths that have to be timed to know what they take.
const KNOWN_MIN: usize = 3;
/// Copies of unknown lengths, beyond those of known ones, after which some of theirs are timed.
const OTHERS: usize = 4;
/// Copies whose lengths have so many bits or fewer are alike, and such as have so many or more.
const LEN_BITS: RangeInclusive<u32> = 10..=13;
/// Kinds of lengths that are told apart.
const KINDS: usize = (*LEN_BITS.end() - *LEN_BITS.start() + 1) as usize;
// Some kind is known after as many samples as are taken.
const _: () = assert!((KNOWN_MIN - 1) * KINDS < SAMPLES);
/// A sample of ordinary stores that takes just as long as it may.
const LIMIT: u32 = 1 << 10;
/// Copies written anew, before those to the same place are timed.
const CHANGED: usize = 12;
/// Laps before the first trial: memory that is touched for the first time costs more than any store.
const FIRST_LAPS: u32 = 1;
/// Laps from a trial that failed to the next, at first and, in a block, at most.
const REST_LAPS: u32 = 8;
const REST_LAPS_MAX: u32 = 64;
/// Laps of ordinary stores before streaming ones are timed again.
const ORDINARY_LAPS: u32 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Streaming, for so many laps more.
    Rest(u32),
    /// Streaming, timed; with memory after it that streaming stores did not write last, ordinary ones are tried at once.
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
    /// Laps to rest after the next trial that fails, and at most.
    rest_laps: u32,
    rest_laps_max: u32,
    /// What copies of each kind of lengths took with streaming stores, in ns per KiB.
    references: [Option<u32>; KINDS],
    /// Kind and time of each copy noted in this phase and lap: of streaming ones in ns per KiB, of ordinary ones in parts
    /// of what they may take, [`LIMIT`] for all of it.
    samples: [(usize, u32); SAMPLES],
    /// Copies of unknown lengths in this phase and lap.
    others: usize,
    /// Copies noted in this phase and lap.
    noted: usize,
    /// What the last trial, or the last lap of ordinary stores, said.
    is_near: bool,
    /// There was one.
    is_known: bool,
    /// Streaming stores were used in this lap.
    streams: bool,
    /// What lies ahead was written by them.
    streams_ahead: bool,
}

impl Default for Pace {
    fn default() -> Self {
        let phase = Phase::Rest(FIRST_LAPS);
        Self {
            phase,
            rest_laps: REST_LAPS,
            rest_laps_max: REST_LAPS_MAX,
            references: [None; KINDS],
            samples: [(0, 0); SAMPLES],
            others: 0,
            noted: 0,
            is_near: false,
            is_known: false,
            streams: false,
            streams_ahead: false,
        }
    }
}

impl Pace {
    /// Of memory whose laps are so short that trials cost much beside them: at most so many pass from one to the next.
    pub fn of_short_laps(rest_laps_max: u32) -> Self {
        Self { rest_laps_max, ..Self::default() }
    }

    /// The stores to use now.
    #[inline]
    pub fn stores(&mut self) -> Stores {
        let stores = match self.phase {
            Phase::Rest(_) | Phase::Reference => Stores::Streaming,
            Phase::Change if self.noted == CHANGED => Stores::Streaming,
            Phase::Change | Phase::Ordinary(_) => Stores::Ordinary,
        };
        self.streams |= stores == Stores::Streaming;
        stores
    }

    /// True while ordinary stores are the faster ones, as far as is known: the cores share a cache.
    #[inline]
    pub fn is_near(&self) -> bool {
        self.is_near
    }

    /// True once anything is known about that.
    pub fn is_known(&self) -> bool {
        self.is_known
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
        let kind = kind_of(len_bytes);
        let ns_per_kib = (ns << 10) / len_bytes as u64;
        let sample = match (self.phase, self.references[kind]) {
            (Phase::Ordinary(_), None) => {
                self.others += 1;
                if self.others == self.noted + OTHERS {
                    self.begin(Phase::Reference);
                }
                return;
            }
            (Phase::Ordinary(_), Some(reference)) => {
                let limit = reference.saturating_mul(ORDINARY_MAX).max(NEAR_MAX);
                ns_per_kib * u64::from(LIMIT) / u64::from(limit)
            }
            _ => ns_per_kib,
        };
        if let Some(place) = self.samples.get_mut(self.noted) {
            *place = (kind, u32::try_from(sample).unwrap_or(u32::MAX));
        }
        self.noted += 1;
        if self.noted < SAMPLES {
            return;
        }
        match self.phase {
            Phase::Reference if !self.streams_ahead => {
                self.settle_references();
                self.begin(Phase::Ordinary(ORDINARY_LAPS));
            }
            Phase::Ordinary(_) => {
                self.is_near = self.median() <= LIMIT;
                self.is_known = true;
                if self.is_near {
                    self.rest_laps = REST_LAPS;
                } else {
                    self.phase = Phase::Rest(self.rest_laps);
                    self.rest_laps = (self.rest_laps * 2).min(self.rest_laps_max);
                }
            }
            Phase::Rest(_) | Phase::Reference | Phase::Change => {}
        }
    }

    fn begin(&mut self, phase: Phase) {
        (self.phase, self.others, self.noted) = (phase, 0, 0);
    }

    /// The block has become longer.
    pub fn grown(&mut self) {
        self.begin(if self.is_near { Phase::Ordinary(ORDINARY_LAPS) } else { Phase::Rest(FIRST_LAPS) });
        self.rest_laps = REST_LAPS;
        // Ordinary stores go on; nothing is timed in this lap.
        self.noted = SAMPLES;
    }

    /// The block goes back to its start within a lap.
    pub fn restart(&mut self) {
        self.streams_ahead |= self.streams;
    }

    /// The block begins a new lap.
    pub fn turn(&mut self) {
        self.streams_ahead = std::mem::take(&mut self.streams);
        let next = match self.phase {
            Phase::Rest(laps) if laps > 1 => Phase::Rest(laps - 1),
            Phase::Rest(_) => Phase::Reference,
            // Too little was copied to tell: another lap.
            Phase::Reference | Phase::Ordinary(_) if self.noted < SAMPLES => return,
            Phase::Reference => {
                self.settle_references();
                Phase::Change
            }
            Phase::Change => Phase::Ordinary(ORDINARY_LAPS),
            Phase::Ordinary(laps) if laps > 1 => Phase::Ordinary(laps - 1),
            Phase::Ordinary(_) => Phase::Reference,
        };
        self.begin(next);
    }

    /// What streaming copies take is what those took that nothing disturbed; of kinds that hardly came up it stays what it
    /// was.
    fn settle_references(&mut self) {
        for (kind, reference) in self.references.iter_mut().enumerate() {
            let mut those: SmallVec<[u32; SAMPLES]> =
                self.samples.iter().filter(|sample| sample.0 == kind).map(|sample| sample.1).collect();
            if those.len() >= KNOWN_MIN {
                *reference = Some(*those.select_nth_unstable(1).1);
            }
        }
    }

    fn median(&self) -> u32 {
        let mut samples = self.samples.map(|(_, sample)| sample);
        *samples.select_nth_unstable(SAMPLES / 2).1
    }
}

/// The kind of lengths that `len_bytes` is of.
fn kind_of(len_bytes: usize) -> usize {
    (len_bytes.ilog2().clamp(*LEN_BITS.start(), *LEN_BITS.end()) - LEN_BITS.start()) as usize
}

#[cfg(all(test, not(loom), not(miri)))]
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
        if stores == Stores::Streaming { 170 } else { 350 }
    }

    fn far(stores: Stores, _lap: u32) -> u64 {
        if stores == Stores::Streaming { 170 } else { 1500 }
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

    /// A long block that shorter records have filled so far: a lap of it is hundreds of copies.
    #[test]
    fn where_no_streaming_stores_wrote_ordinary_ones_are_tried_at_once() {
        let mut pace = Pace::default();
        (0..3).for_each(|_| pace.turn());
        let mut copies = 0;
        while !pace.is_known() {
            let stores = pace.stores();
            pace.note(4096, near(stores, 0));
            copies += 1;
        }
        assert_eq!((copies, pace.is_near()), (2 * SAMPLES, true));
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
    fn long_copies_of_different_lengths_are_alike() {
        let mut pace = Pace::default();
        let mut ordinary = 0;
        for copy in 0..400 {
            let len_bytes = if copy / 4 % 2 == 0 { 8192 } else { 16384 };
            let stores = pace.stores();
            ordinary += u32::from(stores == Stores::Ordinary);
            if pace.wants_sample() {
                pace.note(len_bytes, near(stores, 0) * len_bytes as u64 / 4096);
            }
            if copy % 20 == 19 {
                pace.turn();
            }
        }
        assert!(ordinary > 300, "{ordinary} of 400");
    }

    /// As faces of a block are, one after the other in a few lengths.
    #[test]
    fn copies_of_several_lengths_are_judged_each_by_its_like() {
        let mut pace = Pace::default();
        let mut ordinary_copies_of_mixed = |cost: fn(Stores, u32) -> u64| {
            let mut ordinary = 0;
            for copy in 0..4000 {
                let len_bytes = [4096, 8192, 2048, 8192, 4096, 16384, 2048, 20480][copy % 8];
                let stores = pace.stores();
                ordinary += u32::from(stores == Stores::Ordinary);
                if pace.wants_sample() {
                    // Short ones take longer by the KiB.
                    pace.note(len_bytes, cost(stores, 0) * (len_bytes as u64 + 2048) / 4096);
                }
                if copy % 20 == 19 {
                    pace.turn();
                }
            }
            ordinary
        };
        let used = ordinary_copies_of_mixed(near);
        assert!(used > 3900, "{used} of 4000");
        let tried = ordinary_copies_of_mixed(far);
        assert!((1..400).contains(&tried), "{tried} of 4000");
    }

    #[test]
    fn what_was_found_holds_for_the_block_that_has_grown_and_for_other_lengths() {
        let mut pace = Pace::default();
        ordinary_copies(&mut pace, 5, near);
        assert!(pace.is_near());
        pace.grown();
        let first_touch = |stores, lap| if lap < 1 { 5000 } else { near(stores, lap) };
        assert_eq!(ordinary_copies(&mut pace, 10, first_touch), 200);
        let longer = |stores, lap| 4 * near(stores, lap);
        assert_eq!(ordinary_copies_of(16384, &mut pace, 10, longer), 200 - SAMPLES as u32, "all but a new reference");
        assert!(ordinary_copies_of(16384, &mut pace, 10, |stores, lap| 4 * far(stores, lap)) < 40);
        pace.grown();
        assert!(!pace.is_near());
        assert_eq!(ordinary_copies(&mut pace, 2, far), 0);
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
