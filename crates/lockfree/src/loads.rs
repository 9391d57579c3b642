//! By which loads memory is read the fastest that another core has written, found out while it is read.
//!
//! Where the cores share no cache, the processor's own instruction for copying may fetch lines from the other one's sooner than
//! a loop of loads does; where they share one, it may be slower. On an AMD EPYC of the fourth generation a message of 256 KiB
//! aboard a shuttle takes 15.0 us by it, and 16.2 by loads, between cores that share none; between cores that do, 512 KiB took
//! 18.5 us where both sides copied by it, and 16.5 where they did not. So a few messages are read each way, and timed, and the
//! faster way is used for a while: systems move processes, and hypervisors processors.

/// Shortest piece of a message that is read either way, in bytes.
pub(crate) const MIN_BYTES: usize = base::copy::BY_INSTRUCTION_MIN_BYTES;
/// Messages of each way in a trial.
const SAMPLES: usize = 8;
/// Messages from one trial to the next, and in one that comes to no end, for they are not alike.
const REST: u32 = 256;
/// The instruction has to be quicker by one part in so many.
const GAIN: u32 = 32;

/// What was measured of both ways. Messages of one length are compared, for pieces are not alike.
#[derive(Default)]
pub(crate) struct Loads {
    by_instruction: bool,
    /// Messages until the next trial.
    rest: u32,
    /// Length of the messages of this trial, in bytes, once one was noted, and how many others there were.
    trial_bytes: usize,
    others: u32,
    /// What they took, in ns, by loads and by the instruction.
    samples: [[u64; SAMPLES]; 2],
    noted: usize,
    /// The message that is being read.
    now: Reading,
}

#[derive(Clone, Copy, Default)]
struct Reading {
    by_instruction: bool,
    is_timed: bool,
    bytes: usize,
    ns: u64,
}

impl Loads {
    /// Whether the piece at an offset of a message is to be read by the instruction, and whether what that takes is to be noted.
    pub(crate) fn next(&mut self, offset: usize) -> (bool, bool) {
        if offset == 0 {
            let is_timed = self.rest == 0;
            self.rest = self.rest.saturating_sub(1);
            // One of each two, and not always the same one.
            let tries = self.noted.count_ones() % 2 == 1;
            self.now = Reading {
                by_instruction: if is_timed { tries } else { self.by_instruction },
                is_timed,
                ..Reading::default()
            };
        }
        (self.now.by_instruction, self.now.is_timed)
    }

    /// So many bytes took `ns`; whether they were the last of a message.
    pub(crate) fn note(&mut self, len_bytes: usize, ns: u64, are_last: bool) {
        self.now.bytes += len_bytes;
        self.now.ns = self.now.ns.saturating_add(ns);
        if !are_last {
            return;
        }
        let Reading { by_instruction, bytes, ns, .. } = std::mem::take(&mut self.now);
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
            let [loads, instruction] =
                self.samples.each_mut().map(|samples| *samples.select_nth_unstable(SAMPLES / 2).1);
            self.by_instruction = instruction < loads - loads / u64::from(GAIN);
            (self.noted, self.others, self.rest) = (0, 0, REST);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LEN: usize = 16 << 10;

    /// Reads a message of pieces, each of which takes what `ns` says of it; true if by the instruction.
    fn read(loads: &mut Loads, pieces: usize, ns: impl Fn(bool, usize) -> u64) -> bool {
        let read = |piece: usize| {
            let (by_instruction, is_timed) = loads.next(piece * LEN);
            if is_timed {
                loads.note(LEN, ns(by_instruction, piece), piece + 1 == pieces);
            }
            by_instruction
        };
        let ways: Vec<bool> = (0..pieces).map(read).collect();
        assert!(ways.iter().all(|way| *way == ways[0]), "a message is read one way");
        ways[0]
    }

    /// How many of `count` messages of one piece are read by the instruction.
    fn messages(loads: &mut Loads, count: usize, ns: impl Fn(bool, usize) -> u64) -> usize {
        (0..count).filter(|message| read(loads, 1, |by_instruction, _| ns(by_instruction, *message))).count()
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn the_quicker_way_is_used_and_the_other_tried_now_and_then() {
        let mut loads = Loads::default();
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        assert!((4800..5000).contains(&messages(&mut loads, 5000, quick)));
        let slow = |by_instruction, _| if by_instruction { 1100 } else { 1000 };
        let after = messages(&mut loads, 5000, slow);
        assert!((SAMPLES..600).contains(&after), "it is found out at the next trial: {after}");
        let little = |by_instruction, _| if by_instruction { 980 } else { 1000 };
        assert!(messages(&mut loads, 5000, little) < 200, "a gain of so little is none");
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn single_messages_that_something_delayed_decide_nothing() {
        let mut loads = Loads::default();
        let delayed = |by_instruction, message| match (by_instruction, message % 10) {
            (true, 3) => 1_000_000,
            (true, _) => 900,
            (false, _) => 1000,
        };
        assert!(messages(&mut loads, 5000, delayed) > 4800);
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn pieces_and_messages_that_are_not_alike_decide_nothing() {
        for lens in [&[1][..], &[2], &[3, 3, 5], &[6], &[9, 4], &[1, 2, 3, 4, 5, 6, 7]] {
            let mut loads = Loads::default();
            // The first piece and the last take longer for other reasons.
            let unlike = |pieces: usize| {
                move |_: bool, piece: usize| 1000 + u64::from(piece == 0) * 300 + u64::from(piece + 1 == pieces) * 150
            };
            let read =
                |message: &usize| read(&mut loads, lens[message % lens.len()], unlike(lens[message % lens.len()]));
            let count = (0..20_000).filter(read).count();
            assert!(count < 4000, "only those of trials: {lens:?}: {count}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of messages, and no memory but its own")]
    fn a_trial_of_messages_of_which_none_comes_again_ends() {
        let mut loads = Loads::default();
        read(&mut loads, 9, |_, _| 1000);
        let quick = |by_instruction, _| if by_instruction { 900 } else { 1000 };
        assert!(messages(&mut loads, 5000, quick) > 4000);
    }
}
