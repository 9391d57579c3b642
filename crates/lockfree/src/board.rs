//! A board: what one process shows to all others of a group, step by step.
//!
//! ```text
//!   finished: 41                        written by the owner: through with everyone's step 41
//!   line 0   │ 40 │ told │ up to 48 bytes      one cache line: a short step is one transfer for each reader; told are
//!   line 1   │ 41 │ told │ …                     the length, where longer content stands, and a mark for the owner's use
//!   …  8 lines, step modulo 8
//!   passed on: 41 │ 3                   written by the owner: how many pieces it has changed at its turn, see below
//!   8 pieces of 2 KiB                   content that is hardly longer, step modulo 8
//!   a ring of 9 to 64 pieces of 64 KiB  content up to that length; or 8 pieces, step modulo 8
//!   2 pieces of 256 KiB                 longer content, step modulo 2
//!   2 times 8 pieces of 64 KiB          on one board of a group: what all change in turn ([`Turn`]), step modulo 2
//! ```
//! Steps are numbered alike by all members of the group and only go up. The owner shows a step once, everyone reads
//! it, and what stood in its place before may be overwritten when all have finished with that: [`Board::show`] asks for
//! the proof. A step that all members show is its own proof: who shows step `n + 1` has finished step `n`. Where content
//! stands is the owner's choice ([`Places`]).

mod ahead;
mod common;
mod places;

use std::ops::Range;

use base::sync::Ordering;

pub use self::ahead::Ahead;
pub use self::common::{COMMON_MAX_BYTES, COMMON_PIECES, CommonPiece, Turn};
pub use self::places::{Place, Places};
use crate::{CACHE_LINE_BYTES, SharedMemory};

/// Longest content that travels in one line with its number, in bytes.
pub const SHORT_MAX_BYTES: usize = CACHE_LINE_BYTES - 16;
/// Longest content of which many steps have room at a time, in bytes.
pub const MEDIUM_MAX_BYTES: usize = if cfg!(any(loom, miri)) { 64 } else { 64 << 10 };
/// Longest content, in bytes.
pub const LONG_MAX_BYTES: usize = if cfg!(any(loom, miri)) { 128 } else { 256 << 10 };

/// Steps up to [`MEDIUM_MAX_BYTES`] that have room at a time.
pub const SLOTS: u64 = 8;
const LONG_SLOTS: u64 = 2;
const FINISHED: usize = 0;
/// In the word that tells of the content: where it stands, in lines, above its length; and the mark.
const LINE_SHIFT: u32 = 20;
const MARK: u64 = 1 << 63;

/// What a step that is shown says of its content.
#[derive(Clone, Copy)]
struct Told {
    len_bytes: usize,
    offset: usize,
    is_marked: bool,
}

impl Told {
    fn word(self) -> u64 {
        let mark = if self.is_marked { MARK } else { 0 };
        self.len_bytes as u64 | ((self.offset / CACHE_LINE_BYTES) as u64) << LINE_SHIFT | mark
    }

    /// Whatever the owner wrote, no more than a step may have is read, and nothing but content.
    #[inline]
    fn of(word: u64, step: u64) -> Self {
        let len_bytes = (word as usize & ((1 << LINE_SHIFT) - 1)).min(LONG_MAX_BYTES);
        let told = ((word & !MARK) >> LINE_SHIFT) as usize * CACHE_LINE_BYTES;
        let offset = if len_bytes <= SHORT_MAX_BYTES {
            line(step) + 16
        } else {
            told.clamp(places::CONTENT.start, places::CONTENT.end - len_bytes)
        };
        Self { len_bytes, offset, is_marked: word & MARK != 0 }
    }
}

/// The board of one process, as its owner or a reader holds it.
#[derive(Clone)]
pub struct Board {
    memory: SharedMemory,
}

impl Board {
    /// Bytes of a board. Memory is taken by what is shown, not by what could be.
    pub const FOOTPRINT: usize = common::END;

    /// The board in `memory`, zeroed before its first use.
    ///
    /// # Panics
    /// If `memory` is too short.
    pub fn new(memory: SharedMemory) -> Self {
        assert!(memory.len_bytes() >= Self::FOOTPRINT, "the board fits its memory");
        Self { memory }
    }

    /// The last step that all readers must have finished before `len_bytes` of `step` may be shown.
    #[inline]
    pub fn finished_before(step: u64, len_bytes: usize) -> u64 {
        step.saturating_sub(if len_bytes <= MEDIUM_MAX_BYTES { SLOTS } else { LONG_SLOTS })
    }

    /// The owner shows what `fill` writes as `step`, at the place taken for it, and a mark if it `is_marked`; everyone has
    /// finished `finished`.
    ///
    /// # Panics
    /// If `finished` is below [`Board::finished_before`].
    #[inline]
    pub fn show(&self, step: u64, place: Place, is_marked: bool, finished: u64, fill: impl FnOnce(&mut [u8])) {
        let Place { offset, len_bytes, to_provide, .. } = place;
        assert!(finished >= Self::finished_before(step, len_bytes), "what stands here may still be read");
        if !to_provide.is_empty() {
            self.memory.populate(to_provide.start, to_provide.len());
        }
        let line = line(step);
        // SAFETY: nobody reads what stood here by the check above, and nobody looks before the number below is stored.
        unsafe { self.memory.write(offset, len_bytes, fill) };
        self.memory.word(line + 8).store(Told { len_bytes, offset, is_marked }.word(), Ordering::Relaxed);
        // Release: who sees the number sees the content. Pairs with the load in `is_shown`.
        self.memory.word(line).store(step, Ordering::Release);
    }

    /// The owner asks the processor for lines that it is likely to write: from the start of this range on, to its end.
    fn own(&self, range: Range<usize>) {
        for line in range.step_by(CACHE_LINE_BYTES) {
            self.memory.prefetch_to_write(line);
        }
    }

    /// True if the owner shows `step`.
    #[inline]
    pub fn is_shown(&self, step: u64) -> bool {
        self.memory.word(line(step)).load(Ordering::Acquire) == step
    }

    /// Bytes of the content of a step that is shown.
    #[inline]
    pub fn len_bytes(&self, step: u64) -> usize {
        self.told(step).len_bytes
    }

    /// True if a step that is shown has the mark.
    #[inline]
    pub fn is_marked(&self, step: u64) -> bool {
        self.told(step).is_marked
    }

    /// Lets `take` read `len_bytes` bytes from `offset` of a step that is shown and that this reader has not finished;
    /// false if its content is shorter.
    #[inline]
    pub fn read(&self, step: u64, offset: usize, len_bytes: usize, take: impl FnOnce(&[u8])) -> bool {
        // The number first: its acquire makes the length that of this step.
        if !self.is_shown(step) {
            return false;
        }
        let told = self.told(step);
        if offset.checked_add(len_bytes).is_none_or(|end| end > told.len_bytes) {
            return false;
        }
        // SAFETY: shown to us, and not overwritten before we say that we have finished.
        unsafe { self.memory.read(told.offset + offset, len_bytes, take) };
        true
    }

    /// The owner is through with `step` of everyone.
    #[inline]
    pub fn finish(&self, step: u64) {
        // Release: what was read is read. Pairs with the load in `finished`.
        self.memory.word(FINISHED).store(step, Ordering::Release);
    }

    /// The last step the owner is through with.
    #[inline]
    pub fn finished(&self) -> u64 {
        self.memory.word(FINISHED).load(Ordering::Acquire)
    }

    #[inline]
    fn told(&self, step: u64) -> Told {
        Told::of(self.memory.word(line(step) + 8).load(Ordering::Relaxed), step)
    }
}

/// Where the number of a step stands.
#[inline]
fn line(step: u64) -> usize {
    (1 + (step % SLOTS) as usize) * CACHE_LINE_BYTES
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_seen_under_its_number_until_another_takes_its_place() {
        for mut places in [Places::in_turns(), Places::in_a_ring(8)] {
            let board = Board::new(SharedMemory::private(Board::FOOTPRINT));
            let lengths = [0, 48, 49, MEDIUM_MAX_BYTES, MEDIUM_MAX_BYTES + 1, LONG_MAX_BYTES];
            for (step, len) in (61..).zip(lengths) {
                assert!(!board.is_shown(step));
                board
                    .show(step, places.take(step, len, false), step % 3 == 0, step - 1, |space| space.fill(step as u8));
                assert_eq!(board.is_marked(step), step % 3 == 0);
                assert_eq!((board.is_shown(step), board.len_bytes(step)), (true, len));
                assert!(!board.read(step, 1, len, |_| ()), "more than was shown");
            }
            for (step, len) in (61..).zip(lengths) {
                let mut seen = 0;
                let count = |bytes: &[u8]| seen = bytes.iter().filter(|byte| **byte == step as u8).count();
                assert!(board.read(step, 0, len, count));
                assert_eq!(seen, len, "nothing has been overwritten by steps of other lengths");
            }
            board.show(61 + SLOTS, places.take(61 + SLOTS, 0, false), false, 60 + SLOTS, |_| ());
            assert!(!board.is_shown(61) && !board.read(61, 0, 0, |_| ()));
        }
    }

    #[test]
    #[should_panic(expected = "may still be read")]
    fn what_is_still_read_is_not_overwritten() {
        let place = Places::in_turns().take(7, MEDIUM_MAX_BYTES + 1, false);
        Board::new(SharedMemory::private(Board::FOOTPRINT)).show(7, place, false, 4, |_| ());
    }

    #[test]
    fn whatever_a_broken_owner_tells_only_content_is_read() {
        let memory = SharedMemory::private(Board::FOOTPRINT);
        let board = Board::new(memory.clone());
        board.show(1, Places::in_turns().take(1, 50, false), false, 0, |_| ());
        for word in [u64::MAX, !MARK, 50, LONG_MAX_BYTES as u64 + 1, 1 << LINE_SHIFT | 100] {
            memory.word(line(1) + 8).store(word, Ordering::Relaxed);
            let len_bytes = board.len_bytes(1);
            assert!(len_bytes <= LONG_MAX_BYTES);
            assert!(board.read(1, 0, len_bytes, |bytes| assert_eq!(bytes.len(), len_bytes)));
            assert!(places::CONTENT.contains(&board.told(1).offset));
            assert!(!board.read(1, usize::MAX, 2, |_| ()));
        }
    }
}
