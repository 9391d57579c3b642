//! Whether memory that two cores write by turns is copied the faster way by the processor's own instruction for that, found out
//! while it is copied, by its writer and its reader each for itself.
//!
//! The instruction asks for lines otherwise than a loop of loads and stores does. On an AMD EPYC of the fourth generation a
//! message of 256 KiB aboard a shuttle takes 15.0 us where it is read by it, and 16.2 by loads, between cores that share no
//! cache; between cores that do, 512 KiB took 18.5 us where both sides copied by it, and 16.5 where they did not. On one of
//! the fifth generation 256 KiB take 3.9 us between cores that share a cache where both sides copy by it, 4.2 to 4.5 where one
//! does, and 4.6 where none does. So a few messages are copied each way, and timed, and the faster way is used for a while:
//! systems move processes, and hypervisors processors.

/// Shortest piece of a message that is copied either way, in bytes.
pub(crate) const MIN_BYTES: usize = base::copy::BY_INSTRUCTION_MIN_BYTES;
/// Messages of each way in a trial.
const SAMPLES: usize = 8;
/// Messages from one trial to the next, and in one that comes to no end, for they are not alike.
const REST: u32 = 256;
/// The way that is not used has to be quicker by one part in so many.
const GAIN: u64 = 32;

/// What was measured of both ways. Messages of one length are compared, for pieces are not alike.
#[derive(Default)]
pub(crate) struct InstructionTrial {
    by_instruction: bool,
    /// There was a trial.
    is_known: bool,
    /// Messages until the next trial; the greatest number for none.
    rest: u32,
    /// Length of the messages of this trial, in bytes, once one was noted, and how many others there were.
    trial_bytes: usize,
    others: u32,
    /// What they took, in ns, by a loop and by the instruction.
    samples: [[u64; SAMPLES]; 2],
    noted: usize,
    /// The message that is being copied.
    now: Copying,
}

#[derive(Clone, Copy, Default)]
struct Copying {
    by_instruction: bool,
    is_timed: bool,
    bytes: usize,
    ns: u64,
}

impl InstructionTrial {
    /// One that finds out, or whose end was said before.
    pub(crate) fn of(by_instruction: Option<bool>) -> Self {
        match by_instruction {
            Some(by_instruction) => Self { by_instruction, is_known: true, rest: u32::MAX, ..Self::default() },
            None => Self::default(),
        }
    }

    /// Whether the piece at an offset of a message is to be copied by the instruction, and whether what that takes is to be noted.
    pub(crate) fn next(&mut self, offset: usize) -> (bool, bool) {
        if offset == 0 {
            let is_timed = self.rest == 0;
            if self.rest < u32::MAX {
                self.rest = self.rest.saturating_sub(1);
            }
            // One of each two, and not always the same one.
            let tries = self.noted.count_ones() % 2 == 1;
            self.now = Copying {
                by_instruction: if is_timed { tries } else { self.by_instruction },
                is_timed,
                ..Copying::default()
            };
        }
        (self.now.by_instruction, self.now.is_timed)
    }

    /// True if the instruction is the faster way.
    pub(crate) fn is_by_instruction(&self) -> bool {
        self.by_instruction
    }

    /// True unless it is known that it is not.
    pub(crate) fn may_be_by_instruction(&self) -> bool {
        self.by_instruction || !self.is_known
    }

    /// So many bytes took `ns`; whether they were the last of a message.
    pub(crate) fn note(&mut self, len_bytes: usize, ns: u64, are_last: bool) {
        self.now.bytes += len_bytes;
        self.now.ns = self.now.ns.saturating_add(ns);
        if !are_last {
            return;
        }
        let Copying { by_instruction, bytes, ns, .. } = std::mem::take(&mut self.now);
        if self.noted == 0 {
            self.trial_bytes = bytes;
        }
        if bytes != self.trial_bytes {
            self.others += 1;
            if self.others == REST {
                (self.noted, self.others) = (0, 0);
            }
            return;
        }
        self.samples[usize::from(by_instruction)][self.noted / 2] = ns;
        self.noted += 1;
        if self.noted == 2 * SAMPLES {
            let [by_loop, instruction] =
                self.samples.each_mut().map(|samples| *samples.select_nth_unstable(SAMPLES / 2).1);
            let (used, other) = if self.by_instruction { (instruction, by_loop) } else { (by_loop, instruction) };
            self.by_instruction ^= other < used - used / GAIN;
            (self.noted, self.others, self.rest, self.is_known) = (0, 0, REST, true);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEN: usize = 16 << 10;

    /// Copies a message of pieces, each of which takes what `ns` says of it; true if by the instruction.
    fn copy(trial: &mut InstructionTrial, pieces: usize, ns: impl Fn(bool, usize) -> u64) -> bool {
        let copy = |piece: usize| {
            let (by_instruction, is_timed) = trial.next(piece * LEN);
            if is_timed {
                trial.note(LEN, ns(by_instruction, piece), piece + 1 == pieces);
            }
            by_instruction
        };
        let ways: Vec<bool> = (0..pieces).map(copy).collect();
        assert!(ways.iter().all(|way| *way == ways[0]), "a message is copied one way");
        ways[0]
    }

    /// How many of `count` messages of one piece are copied by the instruction.
    fn messages(trial: &mut InstructionTrial, count: usize, ns: impl Fn(bool, usize) -> u64) -> usize {
        (0..count).filter(|message| copy(trial, 1, |by_instruction, _| ns(by_instruction, *message))).count()
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn the_quicker_way_is_used_and_the_other_tried_now_and_then() {
        let mut trial = InstructionTrial::default();
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        assert!((4800..5000).contains(&messages(&mut trial, 5000, quick)));
        let slow = |by_instruction, _| if by_instruction { 1100 } else { 1000 };
        let after = messages(&mut trial, 5000, slow);
        assert!((SAMPLES..600).contains(&after), "it is found out at the next trial: {after}");
        let little = |by_instruction, _| if by_instruction { 980 } else { 1000 };
        assert!(messages(&mut trial, 5000, little) < 200, "a gain of so little is none");
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn what_is_used_stays_where_both_take_about_the_same() {
        let mut trial = InstructionTrial::default();
        assert!(trial.may_be_by_instruction() && !trial.is_by_instruction(), "nothing is known");
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        messages(&mut trial, 100, quick);
        assert!(trial.is_by_instruction());
        let little = |by_instruction, _| if by_instruction { 1000 } else { 980 };
        assert!(messages(&mut trial, 5000, little) > 4800 && trial.is_by_instruction());
        let slow = |by_instruction, _| if by_instruction { 1100 } else { 1000 };
        messages(&mut trial, 600, slow);
        assert!(!trial.may_be_by_instruction());
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn what_was_said_is_not_tried() {
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        assert_eq!(messages(&mut InstructionTrial::of(Some(false)), 1000, quick), 0);
        assert_eq!(messages(&mut InstructionTrial::of(Some(true)), 1000, quick), 1000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn single_messages_that_something_delayed_decide_nothing() {
        let mut trial = InstructionTrial::default();
        let delayed = |by_instruction, message| match (by_instruction, message % 10) {
            (true, 3) => 1_000_000,
            (true, _) => 900,
            (false, _) => 1000,
        };
        assert!(messages(&mut trial, 5000, delayed) > 4800);
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn pieces_and_messages_that_are_not_alike_decide_nothing() {
        for lens in [&[1][..], &[2], &[3, 3, 5], &[6], &[9, 4], &[1, 2, 3, 4, 5, 6, 7]] {
            let mut trial = InstructionTrial::default();
            // The first piece and the last take longer for other reasons.
            let unlike = |pieces: usize| {
                move |_: bool, piece: usize| 1000 + u64::from(piece == 0) * 300 + u64::from(piece + 1 == pieces) * 150
            };
            let copy =
                |message: &usize| copy(&mut trial, lens[message % lens.len()], unlike(lens[message % lens.len()]));
            let count = (0..20_000).filter(copy).count();
            assert!(count < 4000, "only those of trials: {lens:?}: {count}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn a_trial_of_messages_of_which_none_comes_again_ends() {
        let mut trial = InstructionTrial::default();
        copy(&mut trial, 9, |_, _| 1000);
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        assert!(messages(&mut trial, 5000, quick) > 4000);
    }
}
