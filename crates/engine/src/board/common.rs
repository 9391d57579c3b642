//! What the members of a group change in turn, as one of them sees it: with which stores it changes what comes to it.
//!
//! An ordinary store to a line that another processor's caches still hold waits until they have given it up. Where they share
//! a cache with this one that is soon, and what is changed stays near for whose turn is next. Where they do not, it is several
//! times what the change takes: a block at a time is changed beside its place then, and written past all caches.

use std::sync::PoisonError;
use std::time::Instant;

use base::sync::Ordering;
use datatype::SendBuf;
use lockfree::Stores;
use lockfree::board::Turn;
use lockfree::pace::Pace;

use super::{Board, BoardCommonPiece, GroupBoard, REST_LAPS_MAX};
use crate::core::write_all;

/// The member on whose board it stands.
const RANK: usize = 0;
/// Steps whose pieces have places of their own.
const LAP_STEPS: u64 = 2;

/// How this member changes what comes to it.
pub(super) struct CommonChanges {
    /// With which stores.
    pace: Pace,
    /// Steps begun.
    step_count: u64,
    /// Where a block is changed that is written past the caches.
    beside: Vec<u8>,
}

impl Default for CommonChanges {
    fn default() -> Self {
        Self { pace: Pace::of_short_laps(REST_LAPS_MAX), step_count: 0, beside: Vec::new() }
    }
}

impl CommonChanges {
    /// A step begins: a lap is as many as have room.
    fn begin_step(&mut self) {
        if self.step_count > 0 && self.step_count.is_multiple_of(LAP_STEPS) {
            self.pace.turn();
        }
        self.step_count += 1;
    }

    /// Changes a piece, at most so many bytes at a time.
    fn carry_out(&mut self, common: &mut [u8], block_bytes: usize, mut change: impl FnMut(usize, &mut [u8])) {
        let stores = self.pace.stores();
        let beside_bytes = block_bytes.min(common.len());
        if self.beside.len() < beside_bytes {
            self.beside.resize(beside_bytes, 0);
        }
        let start = (self.pace.wants_sample() && !common.is_empty()).then(Instant::now);
        let mut offset = 0;
        for block in common.chunks_mut(block_bytes) {
            match stores {
                Stores::Ordinary | Stores::ByInstruction => change(offset, block),
                Stores::Streaming => {
                    let beside = &mut self.beside[..block.len()];
                    base::copy::copy(beside, block);
                    change(offset, beside);
                    stores.copy(block, beside);
                }
            }
            offset += block.len();
        }
        if let Some(start) = start {
            self.pace.note(common.len(), start.elapsed().as_nanos() as u64);
        }
    }
}

impl GroupBoard {
    /// True if members may begin to change something in turn in `step`: nobody reads what stood there before.
    #[inline]
    pub fn has_common_room(&self, step: u64) -> bool {
        self.have_finished(Board::finished_before_common(step), step)
    }

    /// This member, whose turn is the first, begins a piece with `content`. All caches may still hold what stood there: it is
    /// written past them. Only of two members it is the one that has read that last, and has it near.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn begin_common(&self, piece: BoardCommonPiece, content: &SendBuf) {
        let turn = Turn::First { finished: self.finished.load(Ordering::Relaxed) };
        let stores = if self.boards.len() > 2 { Stores::Streaming } else { Stores::Ordinary };
        let begin = |common: &mut [u8]| write_all(content, 0, common, stores);
        let is_its_turn = self.boards[RANK].change_common(piece, turn, begin);
        debug_assert!(is_its_turn, "nobody is before it");
    }

    /// Lets `change` work on a piece of what members change in turn, after the member of rank `before`: on at most so many
    /// bytes at a time, of which it is told where in the piece they begin. False if that one has not passed the piece on.
    pub fn change_common(
        &self,
        piece: BoardCommonPiece,
        before: usize,
        block_bytes: usize,
        change: impl FnMut(usize, &mut [u8]),
    ) -> bool {
        let mut changes = self.common_changes.lock().unwrap_or_else(PoisonError::into_inner);
        if piece.index == 0 {
            changes.begin_step();
        }
        let turn = Turn::After(&self.boards[before]);
        self.boards[RANK].change_common(piece, turn, |common| changes.carry_out(common, block_bytes, change))
    }

    /// This member has changed this piece, and those before it. Wakes nobody.
    #[inline]
    pub fn pass_on(&self, piece: BoardCommonPiece) {
        self.boards[self.me].pass_on(piece);
    }

    /// True if the member of this rank has passed this piece on.
    #[inline]
    pub fn has_passed_on(&self, rank: usize, piece: BoardCommonPiece) -> bool {
        self.boards[rank].has_passed_on(piece)
    }

    /// Lets `take` read a piece that members have changed in a step that is not finished here; false if the `last` to change it
    /// has not passed it on.
    #[inline]
    pub fn read_common(&self, piece: BoardCommonPiece, last: usize, take: impl FnOnce(&[u8])) -> bool {
        self.boards[RANK].read_common(piece, &self.boards[last], take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first steps are written past the caches, and some later ones are not, whatever that takes here.
    #[test]
    fn a_piece_is_changed_as_a_whole_whatever_the_stores() {
        const LEN: usize = 10_000;
        let mut changes = CommonChanges::default();
        let mut used = [0; 2];
        for step in 0..24 {
            changes.begin_step();
            for len_bytes in [LEN, LEN - 1, 4096, 1, 0] {
                used[usize::from(changes.pace.stores() == Stores::Streaming)] += 1;
                let mut common: Vec<u8> = (0..LEN).map(|at| (at + step) as u8).collect();
                let mut next = 0;
                changes.carry_out(&mut common[..len_bytes], 4096, |offset, block| {
                    assert_eq!((offset, block.len()), (next, 4096.min(len_bytes - next)), "blocks follow each other");
                    block.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = byte.wrapping_mul(3) ^ at as u8);
                    next += block.len();
                });
                let changed = |at: usize, byte: u8| if at < len_bytes { byte.wrapping_mul(3) ^ at as u8 } else { byte };
                assert!((0..LEN).all(|at| common[at] == changed(at, (at + step) as u8)), "{len_bytes} bytes of {step}");
            }
        }
        assert!(used[0] > 0 && used[1] > 0, "{used:?}");
    }
}
