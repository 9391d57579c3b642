//! A board: what one process shows to all others of a group, step by step.
//!
//! ```text
//!   finished: 41                        written by the owner: through with everyone's step 41
//!   line 0   │ 40 │ len │ up to 48 bytes       one cache line: a short step is one transfer for each reader; the
//!   line 1   │ 41 │ len │ …                     length has a mark for the owner's use
//!   …  8 lines, step modulo 8
//!   8 to 64 pieces of 64 KiB            steps up to that length: modulo 8 if they are short, else modulo the pieces
//!   2 pieces of 256 KiB                 longer steps, step modulo 2
//! ```
//! Steps are numbered alike by all members of the group and only go up. The owner shows a step once, everyone reads
//! it, and what stood in its place before may be overwritten when all have finished with that: [`Board::show`] asks for
//! the proof. A step that all members show is its own proof: who shows step `n + 1` has finished step `n`.
//!
//! The pieces are many on purpose: until the turn of one comes again, its lines have left the reader's cache, from which
//! they would be fetched back slowly. Between two cores that share a cache and have 1 MiB each of their own, 32 KiB went over
//! in 0.9 us with 64 pieces and in 3.8 with eight. Short content gains nothing by it. Where the processes take turns on the processors, few pieces are better:
//! who is next finds near what was written last.

use base::sync::Ordering;

use crate::{CACHE_LINE_BYTES, SharedMemory};

/// Longest content that travels in one line with its number, in bytes.
pub const SHORT_MAX_BYTES: usize = CACHE_LINE_BYTES - 16;
/// Longest content of which many steps have room at a time, in bytes.
pub const MEDIUM_MAX_BYTES: usize = if cfg!(any(loom, miri)) { 64 } else { 64 << 10 };
/// Longest content, in bytes.
pub const LONG_MAX_BYTES: usize = if cfg!(any(loom, miri)) { 128 } else { 256 << 10 };

/// Steps up to [`MEDIUM_MAX_BYTES`] that have room at a time.
pub const SLOTS: u64 = 8;
/// Most places of medium content, and fewest: a multiple of [`SLOTS`], so that two steps which have room at a time never
/// share one, though each goes by its own modulus.
pub const PLACES_MAX: u64 = if cfg!(any(loom, miri)) { 16 } else { 64 };
/// As [`PLACES_MAX`].
pub const PLACES_MIN: u64 = SLOTS;
/// Content from so many bytes on has its turn at all places.
const SPREAD_MIN_BYTES: usize = if cfg!(any(loom, miri)) { 56 } else { crate::STREAMING_MIN_BYTES };
const LONG_SLOTS: u64 = 2;
const FINISHED: usize = 0;
/// In the word of the length.
const MARK: u64 = 1 << 63;
const MEDIUM: usize = if cfg!(any(loom, miri)) { 1024 } else { 4096 };
const LONG: usize = MEDIUM + PLACES_MAX as usize * MEDIUM_MAX_BYTES;

/// The board of one process, as its owner or a reader holds it.
#[derive(Clone)]
pub struct Board {
    memory: SharedMemory,
    /// Of medium content; a power of two.
    places: u64,
}

impl Board {
    /// Bytes of a board. Memory is taken by what is shown, not by what could be.
    pub const FOOTPRINT: usize = LONG + LONG_SLOTS as usize * LONG_MAX_BYTES;

    /// The board in `memory`, zeroed before its first use, with `places` for medium content: as owner and readers agree, a
    /// power of two from [`PLACES_MIN`] to [`PLACES_MAX`].
    ///
    /// # Panics
    /// If `memory` is too short, or `places` is not such a number.
    pub fn new(memory: SharedMemory, places: u64) -> Self {
        assert!(memory.len_bytes() >= Self::FOOTPRINT, "the board fits its memory");
        assert!(places.is_power_of_two() && (PLACES_MIN..=PLACES_MAX).contains(&places), "{places} places");
        Self { memory, places }
    }

    /// Steps after which long content stands at the same places again.
    #[inline]
    pub fn lap(&self) -> u64 {
        self.places
    }

    /// The last step that all readers must have finished before `len_bytes` of `step` may be shown.
    #[inline]
    pub fn finished_before(step: u64, len_bytes: usize) -> u64 {
        step.saturating_sub(if len_bytes <= MEDIUM_MAX_BYTES { SLOTS } else { LONG_SLOTS })
    }

    /// The owner shows `len_bytes` bytes, written by `fill`, as `step`, and a mark if it `is_marked`; everyone has finished
    /// `finished`.
    ///
    /// # Panics
    /// If the content is too long, or `finished` is below [`Board::finished_before`].
    #[inline]
    pub fn show(&self, step: u64, len_bytes: usize, is_marked: bool, finished: u64, fill: impl FnOnce(&mut [u8])) {
        assert!(len_bytes <= LONG_MAX_BYTES, "a step has a limit");
        assert!(finished >= Self::finished_before(step, len_bytes), "what stands here may still be read");
        let line = line(step);
        // SAFETY: nobody reads what stood here by the check above, and nobody looks before the number below is stored.
        unsafe { self.memory.write(self.content(step, len_bytes), len_bytes, fill) };
        let mark = if is_marked { MARK } else { 0 };
        self.memory.word(line + 8).store(len_bytes as u64 | mark, Ordering::Relaxed);
        // Release: who sees the number sees the content. Pairs with the load in `is_shown`.
        self.memory.word(line).store(step, Ordering::Release);
    }

    /// True if the owner shows `step`.
    #[inline]
    pub fn is_shown(&self, step: u64) -> bool {
        self.memory.word(line(step)).load(Ordering::Acquire) == step
    }

    /// Bytes of the content of a step that is shown.
    #[inline]
    pub fn len_bytes(&self, step: u64) -> usize {
        // Whatever the owner wrote, no more than there is room for is read.
        (self.memory.word(line(step) + 8).load(Ordering::Relaxed) & !MARK).min(LONG_MAX_BYTES as u64) as usize
    }

    /// True if a step that is shown has the mark.
    #[inline]
    pub fn is_marked(&self, step: u64) -> bool {
        self.memory.word(line(step) + 8).load(Ordering::Relaxed) & MARK != 0
    }

    /// Lets `take` read `len_bytes` bytes from `offset` of a step that is shown and that this reader has not finished;
    /// false if its content is shorter.
    #[inline]
    pub fn read(&self, step: u64, offset: usize, len_bytes: usize, take: impl FnOnce(&[u8])) -> bool {
        // The number first: its acquire makes the length that of this step.
        if !self.is_shown(step) {
            return false;
        }
        let shown = self.len_bytes(step);
        if offset.checked_add(len_bytes).is_none_or(|end| end > shown) {
            return false;
        }
        // SAFETY: shown to us, and not overwritten before we say that we have finished.
        unsafe { self.memory.read(self.content(step, shown) + offset, len_bytes, take) };
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

    /// Numbers that [`Board::place`] gives on a board of so many places.
    pub fn place_count(places: u64) -> usize {
        (places + LONG_SLOTS) as usize
    }

    /// Number of the place of so many bytes of a step.
    #[inline]
    pub fn place(&self, step: u64, len_bytes: usize) -> usize {
        let place = match len_bytes {
            ..SPREAD_MIN_BYTES => step % SLOTS,
            SPREAD_MIN_BYTES..=MEDIUM_MAX_BYTES => step & (self.places - 1),
            _ => self.places + step % LONG_SLOTS,
        };
        place as usize
    }

    /// Where the content of a step stands.
    #[inline]
    fn content(&self, step: u64, len_bytes: usize) -> usize {
        if len_bytes <= SHORT_MAX_BYTES {
            line(step) + 16
        } else if len_bytes <= MEDIUM_MAX_BYTES {
            MEDIUM + self.place(step, len_bytes) * MEDIUM_MAX_BYTES
        } else {
            LONG + (step % LONG_SLOTS) as usize * LONG_MAX_BYTES
        }
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

    fn board(places: u64) -> Board {
        Board::new(SharedMemory::private(Board::FOOTPRINT), places)
    }

    #[test]
    fn a_step_is_seen_under_its_number_until_another_takes_its_place() {
        for places in [PLACES_MIN, PLACES_MAX] {
            let board = board(places);
            let lengths = [0, 48, 49, MEDIUM_MAX_BYTES, MEDIUM_MAX_BYTES + 1, LONG_MAX_BYTES];
            // The last places and the first: none reaches into what is behind it.
            let first = places - 3;
            for (step, len) in (first..).zip(lengths) {
                assert!(!board.is_shown(step));
                board.show(step, len, step % 3 == 0, step - 1, |space| space.fill(step as u8));
                assert_eq!(board.is_marked(step), step % 3 == 0);
                assert_eq!((board.is_shown(step), board.len_bytes(step)), (true, len));
                assert!(!board.read(step, 1, len, |_| ()), "more than was shown");
            }
            for (step, len) in (first..).zip(lengths) {
                let mut seen = 0;
                let count = |bytes: &[u8]| seen = bytes.iter().filter(|byte| **byte == step as u8).count();
                assert!(board.read(step, 0, len, count));
                assert_eq!(seen, len, "nothing has been overwritten by steps of other lengths");
            }
            board.show(first + SLOTS, 0, false, first + SLOTS - 1, |_| ());
            assert!(!board.is_shown(first) && !board.read(first, 0, 0, |_| ()));
        }
    }

    #[test]
    fn steps_that_have_room_at_a_time_stand_apart_whatever_their_lengths() {
        let lengths = [SHORT_MAX_BYTES + 1, SPREAD_MIN_BYTES - 1, SPREAD_MIN_BYTES, MEDIUM_MAX_BYTES];
        for places in [PLACES_MIN, PLACES_MAX] {
            let board = board(places);
            let pairs = lengths.iter().flat_map(|len| lengths.iter().map(move |other| (*len, *other)));
            for (len, other) in pairs {
                for step in 2 * places..4 * places {
                    let place = board.place(step, len);
                    assert!(
                        (1..SLOTS).all(|before| board.place(step - before, other) != place),
                        "{step}: {len}, {other}"
                    );
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "may still be read")]
    fn what_is_still_read_is_not_overwritten() {
        board(PLACES_MIN).show(7, MEDIUM_MAX_BYTES + 1, false, 4, |_| ());
    }

    #[test]
    fn a_length_from_a_broken_owner_is_cut() {
        let memory = SharedMemory::private(Board::FOOTPRINT);
        let board = Board::new(memory.clone(), PLACES_MIN);
        board.show(1, 50, false, 0, |_| ());
        memory.word(line(1) + 8).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(board.len_bytes(1), LONG_MAX_BYTES);
        assert!(!board.read(1, usize::MAX, 2, |_| ()));
    }
}
