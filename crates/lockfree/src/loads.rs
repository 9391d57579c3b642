//! By which loads memory is read the fastest that another core has written, found out while it is read.
//!
//! Where the cores share no cache, the processor's own instruction for copying may fetch lines from the other one's sooner than
//! a loop of loads does; where they share one, it may be slower. On an AMD EPYC of the fourth generation a message of 256 KiB
//! aboard a shuttle takes 15.0 us by it, and 16.2 by loads, between cores that share none; between cores that do, 512 KiB took
//! 18.5 us where both sides copied by it, and 16.5 where they did not. So a few copies of each kind are timed, in turns, and the
//! faster kind is used for a while: systems move processes, and hypervisors processors.

/// Shortest copy that is compared, in bytes.
pub(crate) const MIN_BYTES: usize = base::copy::BY_INSTRUCTION_MIN_BYTES;
/// Copies of each kind in a trial.
const SAMPLES: usize = 9;
/// Copies from one trial to the next.
const REST: u32 = 1024;
/// The instruction has to be quicker by one part in so many.
const GAIN: u32 = 32;

/// What was measured of both.
#[derive(Default)]
pub(crate) struct Loads {
    by_instruction: bool,
    /// Copies until the next trial.
    rest: u32,
    /// Of this trial, in ns per KiB, by loads and by instruction.
    samples: [[u32; SAMPLES]; 2],
    noted: usize,
}

impl Loads {
    /// Whether the next copy is to be by the instruction, and whether what it takes is to be noted.
    pub(crate) fn next(&mut self) -> (bool, bool) {
        if self.rest > 0 {
            self.rest -= 1;
            return (self.by_instruction, false);
        }
        (self.noted % 2 == 1, true)
    }

    /// The last one, of `len_bytes`, took `ns`.
    pub(crate) fn note(&mut self, len_bytes: usize, ns: u64) {
        let per_kib = (ns << 10) / len_bytes.max(1) as u64;
        self.samples[self.noted % 2][self.noted / 2] = u32::try_from(per_kib).unwrap_or(u32::MAX);
        self.noted += 1;
        if self.noted == 2 * SAMPLES {
            let [loads, instruction] =
                self.samples.each_mut().map(|samples| *samples.select_nth_unstable(SAMPLES / 2).1);
            self.by_instruction = instruction < loads - loads / GAIN;
            (self.noted, self.rest) = (0, REST);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEN: usize = 16 << 10;

    /// How many of `count` copies are by the instruction, where one takes `ns`.
    fn copies(loads: &mut Loads, count: usize, ns: impl Fn(bool, usize) -> u64) -> usize {
        let copy = |copy: usize| {
            let (by_instruction, is_timed) = loads.next();
            if is_timed {
                loads.note(LEN, ns(by_instruction, copy));
            }
            usize::from(by_instruction)
        };
        (0..count).map(copy).sum()
    }

    #[test]
    fn the_quicker_loads_are_used_and_the_others_tried_now_and_then() {
        let mut loads = Loads::default();
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        assert!((4900..5000).contains(&copies(&mut loads, 5000, quick)));
        let slow = |by_instruction, _| if by_instruction { 1100 } else { 1000 };
        let after = copies(&mut loads, 5000, slow);
        assert!((9..1100).contains(&after), "it is found out at the next trial: {after}");
        let little = |by_instruction, _| if by_instruction { 980 } else { 1000 };
        assert!(copies(&mut loads, 5000, little) < 100, "a gain of so little is none");
    }

    #[test]
    fn single_copies_that_something_delayed_decide_nothing() {
        let mut loads = Loads::default();
        let delayed = |by_instruction, copy| match (by_instruction, copy % 10) {
            (true, 3) => 1_000_000,
            (true, _) => 900,
            (false, _) => 1000,
        };
        assert!(copies(&mut loads, 5000, delayed) > 4900);
    }
}
