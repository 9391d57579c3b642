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

/// A piece of what members change in a step, as far as it goes.
#[derive(Clone, Copy, Debug)]
pub struct CommonPiece {
    /// The step.
    pub step: u64,
    /// Its place among the pieces of the step.
    pub index: usize,
    /// Its length, in bytes.
    pub len_bytes: usize,
}

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

    /// Lets `change` work on a piece of what members change, which is on this board, whoever owns it; false unless it is the
    /// caller's turn.
    ///
    /// # Panics
    /// If the caller is the first and some still read what stood there, or there is no such piece.
    #[inline]
    pub fn change_common(&self, piece: CommonPiece, turn: Turn<'_>, change: impl FnOnce(&mut [u8])) -> bool {
        match turn {
            Turn::First { finished } => {
                assert!(finished >= Self::finished_before_common(piece.step), "what stands here may still be read");
            }
            Turn::After(before) if !before.has_passed_on(piece) => return false,
            Turn::After(_) => {}
        }
        // SAFETY: the first member begins when all have finished what stood here before, each other one when the one before has
        // passed the piece on, which it does when it is through; and who reads waits for the last. The loads of `has_passed_on`
        // and `finished` pair with their stores.
        unsafe { self.memory.write(piece.place(), piece.len_bytes, change) };
        true
    }

    /// Lets `take` read a piece that members have changed, which is on this board, before this reader finishes the step; false
    /// unless `last`, the last of them, has passed it on.
    ///
    /// # Panics
    /// If there is no such piece.
    #[inline]
    pub fn read_common(&self, piece: CommonPiece, last: &Board, take: impl FnOnce(&[u8])) -> bool {
        if !last.has_passed_on(piece) {
            return false;
        }
        // SAFETY: the last one to change it is through, and the first one of the step that stands here next waits until this
        // reader has finished.
        unsafe { self.memory.read(piece.place(), piece.len_bytes, take) };
        true
    }

    /// The owner has changed this piece, and those before it, at its turn.
    #[inline]
    pub fn pass_on(&self, piece: CommonPiece) {
        // Release: whose turn comes next sees what was changed. Pairs with the load in `has_passed_on`.
        self.memory.word(PASSED_ON).store(piece.passed_on(), Ordering::Release);
    }

    /// True if the owner has passed this piece on, or has gone on to a later step.
    #[inline]
    pub fn has_passed_on(&self, piece: CommonPiece) -> bool {
        self.memory.word(PASSED_ON).load(Ordering::Acquire) >= piece.passed_on()
    }
}

impl CommonPiece {
    /// What tells that it has been passed on: more for each later one.
    #[inline]
    fn passed_on(self) -> u64 {
        self.step << COUNT_BITS | (self.index as u64 + 1)
    }

    /// Where it stands.
    #[inline]
    fn place(self) -> usize {
        assert!(self.index < COMMON_PIECES && self.len_bytes <= COMMON_MAX_BYTES, "a step has a limit");
        START + (self.step % LONG_SLOTS) as usize * STEP_BYTES + self.index * COMMON_MAX_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;

    fn boards() -> [Board; 2] {
        [(); 2].map(|()| Board::new(SharedMemory::private(Board::FOOTPRINT)))
    }

    fn piece(step: u64, index: usize, len_bytes: usize) -> CommonPiece {
        CommonPiece { step, index, len_bytes }
    }

    #[test]
    fn a_value_is_changed_in_turn_and_read_once_it_is_whole() {
        let [first, last] = boards();
        for step in 1..9 {
            for index in 0..COMMON_PIECES {
                let (whole, part) = (piece(step, index, COMMON_MAX_BYTES), piece(step, index, 2));
                let turn = Turn::First { finished: step - 1 };
                assert!(first.change_common(whole, turn, |value| value.fill(step as u8)));
                let change = |value: &mut [u8]| value[1] += index as u8;
                assert!(!first.change_common(part, Turn::After(&first), change), "it is not passed on");
                first.pass_on(whole);
                assert!(first.change_common(part, Turn::After(&first), change));
                assert!(!first.read_common(part, &last, |_| ()), "it is not whole");
                last.pass_on(whole);
            }
            for index in 0..COMMON_PIECES {
                let mut seen = [0; 3];
                assert!(first.read_common(piece(step, index, 3), &last, |value| seen.copy_from_slice(value)));
                assert_eq!(seen, [step as u8, (step as usize + index) as u8, step as u8]);
            }
        }
    }

    #[test]
    fn who_has_gone_on_to_a_later_step_has_passed_all_on() {
        let [board, _] = boards();
        board.pass_on(piece(7, 3, 0));
        let pieces = [(6, COMMON_PIECES - 1), (7, 2), (7, 3), (7, 4), (8, 0)];
        let has_passed_on = pieces.map(|(step, index)| board.has_passed_on(piece(step, index, 0)));
        assert_eq!(has_passed_on, [true, true, true, false, false]);
    }

    #[test]
    fn pieces_of_steps_that_have_room_at_a_time_stand_apart_from_each_other_and_from_content() {
        let places = (6..8).flat_map(|step| (0..COMMON_PIECES).map(move |index| piece(step, index, 0).place()));
        let expected = (places::CONTENT.end..Board::FOOTPRINT).step_by(COMMON_MAX_BYTES);
        assert!(places.eq(expected));
    }

    #[test]
    #[should_panic(expected = "may still be read")]
    fn the_first_waits_for_those_who_still_read() {
        let [board, _] = boards();
        board.change_common(piece(20, 0, 1), Turn::First { finished: 17 }, |_| ());
    }

    #[test]
    #[should_panic(expected = "a step has a limit")]
    fn a_piece_ends_where_the_next_one_begins() {
        let [board, _] = boards();
        board.change_common(piece(20, 0, COMMON_MAX_BYTES + 1), Turn::First { finished: 19 }, |_| ());
    }
}
