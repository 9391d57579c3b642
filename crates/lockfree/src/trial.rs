//! Whether a block does better long, found out by trying it, for records of medium length.
//!
//! In a short block each line is fetched from the reader's cache before it is written. In one so long that its lines have
//! left the nearest caches by the time they are written again, that is cheaper where the cores share a cache (a stream of
//! 512 bytes each took 145 ns a record short and 83 long, of 1500 bytes 290 and 130) and dearer where they share none (300
//! and 455). Copies so short do not tell which it is: a processor puts their stores aside and goes on. But laps do: how long
//! they take while they are short is compared with what they take once the block is long. Whatever else their time holds,
//! a program's own work or its waits for an answer, it holds in both.
//!
//! ```text
//!   Short ──a MiB, twice──▶ Asked ──is long──▶ Long ──a MiB, twice: a tenth sooner──▶ Kept
//!     ▲                      │ is not           │ no                                   │ half or twice that, or long ago
//!     ├─── Rest: 8192 laps, then twice as many ◀┘                                      │
//!     └────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! A judgement may be wrong, or become so: what is kept is tried anew now and then, as what rests is.

/// Laps are timed together until they are of so many lines: a short one may be the quick part of something.
const SAMPLE_LINES: u64 = 1 << 14;
/// Samples of a phase.
const SAMPLES: u32 = 2;
/// Pairs of samples after which what is kept is tried anew: a GiB where laps are of 2 MiB, of which going back takes less
/// than a hundredth.
const KEPT_MAX: u32 = 256;
/// Short laps from a trial that failed to the next, at first and at most: a long lap is as much as a hundred of them, so a
/// trial costs a few hundredths of the time.
const REST_LAPS: (u32, u32) = (1 << 13, 1 << 17);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Short ones are timed.
    Short,
    /// It is to be long from the next lap on.
    Asked,
    /// Long laps are timed.
    Long,
    /// It stays long while its laps take about so many ns, for so many pairs of samples more at most.
    Kept(u64, u32),
    /// It is left alone for so many laps more.
    Rest(u32),
}

/// What is known of one block. Times are of 1,024 lines, in ns.
#[derive(Debug)]
pub(crate) struct Trial {
    phase: Phase,
    /// Lines of medium records in this lap.
    medium_lines: u32,
    /// Lines of the laps of this sample, and what they took in all.
    sample: (u64, u64),
    /// Samples of this phase.
    count: u32,
    /// What the quickest sample of this phase took, and of the short ones.
    least: u64,
    short: u64,
    rest_laps: u32,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            phase: Phase::Short,
            medium_lines: 0,
            sample: (0, 0),
            count: 0,
            least: u64::MAX,
            short: 0,
            rest_laps: REST_LAPS.0,
        }
    }
}

impl Trial {
    /// A medium record takes so many lines of this lap.
    #[inline]
    pub(crate) fn note(&mut self, lines: usize) {
        self.medium_lines += lines as u32;
    }

    /// A lap of `lines` is over, which took `ns`; `is_long` if the block is long. True if it is to be long now.
    pub(crate) fn turn(&mut self, lines: usize, is_long: bool, ns: u64) -> bool {
        self.think_over(lines, is_long, ns);
        matches!(self.phase, Phase::Asked | Phase::Long | Phase::Kept(..))
    }

    fn think_over(&mut self, lines: usize, is_long: bool, ns: u64) {
        let is_medium = std::mem::take(&mut self.medium_lines) as usize >= lines / 2;
        // What is long for other records, or for none of these, is no matter of this.
        let is_ours = is_medium && is_long == matches!(self.phase, Phase::Long | Phase::Kept(..));
        match self.phase {
            Phase::Rest(0) => self.begin(Phase::Short),
            Phase::Rest(laps) => self.phase = Phase::Rest(laps - 1),
            // Memory that was just given costs more than any store: that lap does not count.
            Phase::Asked if is_medium && is_long => self.begin(Phase::Long),
            // It was not granted.
            Phase::Asked if is_medium => self.rest(),
            _ if !is_ours => self.begin(Phase::Short),
            Phase::Short => {
                if self.is_sampled(lines, ns) {
                    self.short = self.least;
                    self.begin(Phase::Asked);
                }
            }
            Phase::Long => {
                if self.is_sampled(lines, ns) {
                    if self.least <= self.short / 10 * 9 {
                        self.rest_laps = REST_LAPS.0;
                        self.begin(Phase::Kept(self.least, KEPT_MAX));
                    } else {
                        self.rest();
                    }
                }
            }
            Phase::Kept(before, left) => {
                if self.is_sampled(lines, ns) {
                    // Much quicker is other traffic as well: what holds for one message at a time need not for a stream.
                    let stays = left > 0 && (before / 2..=before * 2).contains(&self.least);
                    self.begin(if stays { Phase::Kept(before, left - 1) } else { Phase::Short });
                }
            }
            Phase::Asked => {}
        }
    }

    /// Takes a lap; true if there are enough now.
    fn is_sampled(&mut self, lines: usize, ns: u64) -> bool {
        self.sample = (self.sample.0 + lines as u64, self.sample.1.saturating_add(ns));
        if self.sample.0 >= SAMPLE_LINES {
            let (lines, ns) = std::mem::take(&mut self.sample);
            self.least = self.least.min(ns.saturating_mul(1024) / lines);
            self.count += 1;
        }
        self.count >= SAMPLES
    }

    fn begin(&mut self, phase: Phase) {
        (self.phase, self.sample, self.count, self.least) = (phase, (0, 0), 0, u64::MAX);
    }

    fn rest(&mut self) {
        self.begin(Phase::Rest(self.rest_laps));
        self.rest_laps = (self.rest_laps * 2).min(REST_LAPS.1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHORT_LINES: usize = 256;
    const LONG_LINES: usize = 1 << 15;
    /// Short laps before a trial.
    const SHORT_LAPS: u32 = SAMPLES * (SAMPLE_LINES as u32 / SHORT_LINES as u32);

    /// A block whose length follows at once, of which 1,024 lines take `short` or `long` ns.
    #[derive(Default)]
    struct Tried {
        trial: Trial,
        is_long: bool,
    }

    impl Tried {
        /// How many of `laps` were long.
        fn long_laps(&mut self, laps: u32, short: u64, long: u64) -> u32 {
            let mut count = 0;
            for _ in 0..laps {
                let (lines, each) = if self.is_long { (LONG_LINES, long) } else { (SHORT_LINES, short) };
                count += u32::from(self.is_long);
                self.trial.note(lines);
                self.is_long = self.trial.turn(lines, self.is_long, each * lines as u64 / 1024);
            }
            count
        }
    }

    #[test]
    fn what_is_quicker_long_stays_long_until_it_is_not() {
        let mut tried = Tried::default();
        assert_eq!(tried.long_laps(SHORT_LAPS, 14_000, 8_000), 0);
        assert_eq!(tried.long_laps(500, 14_000, 8_000), 500);
        // The cores are apart now.
        let apart = tried.long_laps(1000, 30_000, 45_000);
        assert!(apart < 10, "{apart} long laps");
        // And near again.
        assert!(tried.long_laps(2 * REST_LAPS.0, 14_000, 8_000) > REST_LAPS.0 / 2);
    }

    #[test]
    fn what_is_quicker_for_one_at_a_time_need_not_be_for_a_stream() {
        let mut tried = Tried::default();
        tried.long_laps(SHORT_LAPS + 10, 113_000, 93_000);
        assert!(tried.is_long);
        let stream = tried.long_laps(1000, 20_000, 30_000);
        assert!(stream < 10, "{stream} long laps");
    }

    #[test]
    fn what_was_judged_wrongly_is_found_out() {
        let mut tried = Tried::default();
        // While it was tried, something else held the short laps up.
        tried.long_laps(SHORT_LAPS + 10, 60_000, 45_000);
        assert!(tried.is_long);
        let long = tried.long_laps(REST_LAPS.0, 30_000, 45_000);
        assert!(long < 3 * KEPT_MAX, "{long}");
        assert!(!tried.is_long);
    }

    #[test]
    fn what_is_not_is_tried_ever_more_seldom() {
        let mut tried = Tried::default();
        let counts: Vec<u32> = (0..4).map(|_| tried.long_laps(2 * REST_LAPS.0, 30_000, 45_000)).collect();
        assert!(counts[0] > 0 && counts[0] <= 8 && counts[3] <= 4, "{counts:?}");
        let few = Tried::default().long_laps(1000, 30_000, 29_000);
        assert!(few > 0 && few <= 4, "not worth it: {few}");
    }

    #[test]
    fn laps_of_other_records_are_none() {
        let mut trial = Trial::default();
        for lap in 0..10 * SHORT_LAPS {
            // Now and then a lap of short records.
            trial.note(if lap % SHORT_LAPS == 5 { 10 } else { SHORT_LINES });
            assert!(!trial.turn(SHORT_LINES, false, 1000));
        }
        for _ in 0..10 * SHORT_LAPS {
            // Long because of long records.
            trial.note(LONG_LINES);
            assert!(!trial.turn(LONG_LINES, true, 1000));
        }
    }

    #[test]
    fn a_length_that_is_not_granted_is_asked_for_once() {
        let mut trial = Trial::default();
        let asked = (0..REST_LAPS.0).filter(|_| {
            trial.note(SHORT_LINES);
            trial.turn(SHORT_LINES, false, 1000)
        });
        assert_eq!(asked.count(), 1);
    }
}
