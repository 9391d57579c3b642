//! Lines of a board that its owner is likely to write next, asked for while it waits.
//!
//! What others have read has to be taken back from their caches before it is written anew, line after line. Where ordinary
//! stores are the faster ones all the same, that goes on while the owner waits for what others show: between two cores of an
//! Intel Xeon of the fourth generation that share no cache but the last, a broadcast of 4 to 32 KiB by roots in turns takes
//! 20 to 36 % less by it. Members that all show at once do not wait, and gain little.

use std::ops::Range;

use base::sync::{AtomicBool, AtomicUsize, Ordering};

use super::Board;
use crate::CACHE_LINE_BYTES;

/// Asked for at a time, in bytes: as many lines as a core waits for at once, or hardly more.
const STEP_BYTES: usize = 16 * CACHE_LINE_BYTES;

/// What an owner asks for ahead. Whatever order its threads see of this, no more happens than that other lines are asked for.
#[derive(Debug, Default)]
pub struct Ahead {
    from: AtomicUsize,
    end: AtomicUsize,
    /// The owner has waited since it showed something, or had to look for what others show.
    has_waited: AtomicBool,
}

impl Ahead {
    /// The owner of `board` has shown something, and what it shows next is likely to stand at `next`. It is asked for at once
    /// if the owner did not wait before.
    pub fn expect(&self, board: &Board, next: Range<usize>) {
        self.from.store(next.start, Ordering::Relaxed);
        self.end.store(next.end, Ordering::Relaxed);
        if !self.has_waited.load(Ordering::Relaxed) {
            board.own(self.take(usize::MAX));
        }
        self.has_waited.store(false, Ordering::Relaxed);
    }

    /// The owner is about to wait.
    #[inline]
    pub fn note_wait(&self) {
        self.has_waited.store(true, Ordering::Relaxed);
    }

    /// For a moment of waiting: asks for some more of the lines.
    #[inline]
    pub fn ready(&self, board: &Board) {
        if self.from.load(Ordering::Relaxed) < self.end.load(Ordering::Relaxed) {
            board.own(self.take(STEP_BYTES));
        }
    }

    /// Up to `len_bytes` of what is left.
    fn take(&self, len_bytes: usize) -> Range<usize> {
        let (from, end) = (self.from.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let taken = from..from.saturating_add(len_bytes).min(end);
        self.from.store(taken.end, Ordering::Relaxed);
        taken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SharedMemory;

    #[test]
    fn lines_are_asked_for_step_by_step_or_at_once_if_nobody_waited() {
        let board = Board::new(SharedMemory::private(Board::FOOTPRINT));
        let ahead = Ahead::default();
        let left = || ahead.end.load(Ordering::Relaxed) - ahead.from.load(Ordering::Relaxed);
        let next = Board::FOOTPRINT - (2 * STEP_BYTES + 100)..Board::FOOTPRINT;
        ahead.note_wait();
        ahead.expect(&board, next.clone());
        for rest in [STEP_BYTES + 100, 100, 0, 0] {
            ahead.ready(&board);
            assert_eq!(left(), rest);
        }
        ahead.expect(&board, next.clone());
        assert_eq!(left(), 0, "there was no wait since");
        ahead.note_wait();
        ahead.expect(&board, next);
        assert_eq!(left(), 2 * STEP_BYTES + 100);
        ahead.expect(&board, 0..0);
        assert_eq!(left(), 0);
    }
}
