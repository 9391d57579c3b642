//! What the members of a group change in turn: one value instead of a copy of each.
//!
//! It is on one board of the group, in pieces. Each member changes the pieces one after the other, in an order of members that
//! all know, and passes each on when it has ([`Board::pass_on`]); what the last one has passed on is whole. All may read that
//! until they finish the step.

use base::sync::Ordering;

use super::{Board, LONG_MAX_BYTES, LONG_SLOTS, SLOTS, places};
use crate::CACHE_LINE_BYTES;

/// Longest piece of what is changed in turn, in bytes.
pub const COMMON_MAX_BYTES: usize = if cfg!(any(loom, miri)) { 64 } else { 64 << 10 };
/// Most pieces of a step.
pub const COMMON_PIECES: usize = 8;

/// Behind the lines of the steps.
const PASSED_ON: usize = (1 + SLOTS as usize) * CACHE_LINE_BYTES;
/// In that word, below the step: how many pieces.
const COUNT_BITS: u32 = 8;
const START: usize = places::CONTENT.end;
const STEP_BYTES: usize = COMMON_PIECES * COMMON_MAX_BYTES;
/// Where a board ends.
pub(super) const END: usize = START + LONG_SLOTS as usize * STEP_BYTES;

const _: () = assert!(PASSED_ON + CACHE_LINE_BYTES <= places::CONTENT.start && COMMON_PIECES < 1 << COUNT_BITS);

/// Why it is a member's turn.
#[derive(Clone, Copy)]
pub enum Turn<'a> {
    /// It is the first.
    First {
        /// The last step that everyone has finished.
        finished: u64,
    },
    /// The member before, whose board this is, has passed the piece on.
    After(&'a Board),
}

impl Board {
    /// The last step that all readers must have finished before the first member changes anything in `step`.
    pub fn finished_before_common(step: u64) -> u64 {
        Self::finished_before(step, LONG_MAX_BYTES)
    }

    /// Lets `change` work on the first `len_bytes` of a piece of what members change in `step`, which is on this board, whoever
    /// owns it; false unless it is the caller's turn.
    ///
    /// # Panics
    /// If the caller is the first and some still read what stood there, or there is no such piece.
    #[inline]
    pub fn change_common(
        &self,
        step: u64,
        piece: usize,
        len_bytes: usize,
        turn: Turn<'_>,
        change: impl FnOnce(&mut [u8]),
    ) -> bool {
        match turn {
            Turn::First { finished } => {
                assert!(finished >= Self::finished_before_common(step), "what stands here may still be read");
            }
            Turn::After(before) if before.passed_on(step) <= piece => return false,
            Turn::After(_) => {}
        }
        // SAFETY: the first member begins when all have finished what stood here before, each other one when the one before has
        // passed the piece on, which it does when it is through; and who reads waits for the last. The loads of `passed_on` and
        // `finished` pair with their stores.
        unsafe { self.memory.write(place(step, piece, len_bytes), len_bytes, change) };
        true
    }

    /// Lets `take` read the first `len_bytes` of a piece that members have changed in `step`, which is on this board, before this
    /// reader finishes it; false unless `last`, the last of them, has passed it on.
    ///
    /// # Panics
    /// If there is no such piece.
    #[inline]
    pub fn read_common(
        &self,
        step: u64,
        piece: usize,
        len_bytes: usize,
        last: &Board,
        take: impl FnOnce(&[u8]),
    ) -> bool {
        if last.passed_on(step) <= piece {
            return false;
        }
        // SAFETY: the last one to change it is through, and the first one of the step that stands here next waits until this
        // reader has finished.
        unsafe { self.memory.read(place(step, piece, len_bytes), len_bytes, take) };
        true
    }

    /// The owner has changed so many pieces of a step, at its turn.
    #[inline]
    pub fn pass_on(&self, step: u64, pieces: usize) {
        // Release: whose turn comes next sees what was changed. Pairs with the load in `passed_on`.
        self.memory.word(PASSED_ON).store(step << COUNT_BITS | pieces as u64, Ordering::Release);
    }

    /// How many pieces of a step the owner has passed on; all, if it has gone on to a later one.
    #[inline]
    pub fn passed_on(&self, step: u64) -> usize {
        let word = self.memory.word(PASSED_ON).load(Ordering::Acquire);
        match word >> COUNT_BITS {
            its if its == step => word as usize & ((1 << COUNT_BITS) - 1),
            its if its > step => COMMON_PIECES,
            _ => 0,
        }
    }
}

/// Where so many bytes of a piece stand.
#[inline]
fn place(step: u64, piece: usize, len_bytes: usize) -> usize {
    assert!(piece < COMMON_PIECES && len_bytes <= COMMON_MAX_BYTES, "a step has a limit");
    START + (step % LONG_SLOTS) as usize * STEP_BYTES + piece * COMMON_MAX_BYTES
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;

    fn boards() -> [Board; 2] {
        [(); 2].map(|()| Board::new(SharedMemory::private(Board::FOOTPRINT)))
    }

    #[test]
    fn a_value_is_changed_in_turn_and_read_once_it_is_whole() {
        let [first, last] = boards();
        for step in 1..9 {
            for piece in 0..COMMON_PIECES {
                let turn = Turn::First { finished: step - 1 };
                assert!(first.change_common(step, piece, COMMON_MAX_BYTES, turn, |value| value.fill(step as u8)));
                let change = |value: &mut [u8]| value[1] += piece as u8;
                assert!(!first.change_common(step, piece, 2, Turn::After(&first), change), "it is not passed on");
                first.pass_on(step, piece + 1);
                assert!(first.change_common(step, piece, 2, Turn::After(&first), change));
                assert!(!first.read_common(step, piece, 3, &last, |_| ()), "it is not whole");
                last.pass_on(step, piece + 1);
            }
            for piece in 0..COMMON_PIECES {
                let mut seen = [0; 3];
                assert!(first.read_common(step, piece, 3, &last, |value| seen.copy_from_slice(value)));
                assert_eq!(seen, [step as u8, (step as usize + piece) as u8, step as u8]);
            }
        }
    }

    #[test]
    fn who_has_gone_on_to_a_later_step_has_passed_all_on() {
        let [board, _] = boards();
        board.pass_on(7, 3);
        assert_eq!([6, 7, 8].map(|step| board.passed_on(step)), [COMMON_PIECES, 3, 0]);
    }

    #[test]
    fn pieces_of_steps_that_have_room_at_a_time_stand_apart_from_each_other_and_from_content() {
        let places = (6..8).flat_map(|step| (0..COMMON_PIECES).map(move |piece| place(step, piece, 0)));
        let expected = (places::CONTENT.end..Board::FOOTPRINT).step_by(COMMON_MAX_BYTES);
        assert!(places.eq(expected));
    }

    #[test]
    #[should_panic(expected = "may still be read")]
    fn the_first_waits_for_those_who_still_read() {
        let [board, _] = boards();
        board.change_common(20, 0, 1, Turn::First { finished: 17 }, |_| ());
    }
}
