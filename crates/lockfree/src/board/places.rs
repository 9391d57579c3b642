//! Where the owner of a board puts what it shows.
//!
//! Where all members run at once, content of medium length goes one behind the other through a ring. It is long where cores
//! share a cache: until the turn of a line comes again, it has left the reader's own, from which it would be fetched back
//! slowly. Between two of 1 MiB each, 32 KiB went over in 0.9 us where a lap was 4 MiB and in 3.8 where it was eight steps. A
//! piece for each step, a power of two behind the last, would do for long content only: the lines of shorter one meet in few
//! sets of the caches (8 KiB, each 64 KiB behind the last: 1.2 us, not 0.65). Where the processes take turns on the
//! processors, it is such pieces all the same, and few: who is next finds near what was written last.

use std::ops::Range;

use super::{LONG_MAX_BYTES, LONG_SLOTS, MEDIUM_MAX_BYTES, SHORT_MAX_BYTES, SLOTS, line};
use crate::{CACHE_LINE_BYTES, STREAMING_MIN_BYTES};

/// Content from so many bytes on has its turn in the ring; a lap of shorter content would be many steps.
const SPREAD_MIN_BYTES: usize = if cfg!(any(loom, miri)) { 56 } else { STREAMING_MIN_BYTES };
/// Bytes of a piece of shorter content.
const SLOT_BYTES: usize = SPREAD_MIN_BYTES.next_multiple_of(CACHE_LINE_BYTES);
/// Content from so many bytes on begins where a piece of the ring does: what stays free behind it leaves the caches to the
/// caller's operands. Shorter content from a page on begins where a page does.
const PIECE_MIN_BYTES: usize = MEDIUM_MAX_BYTES / 2;
const PAGE_BYTES: usize = if cfg!(any(loom, miri)) { CACHE_LINE_BYTES } else { 4096 };
/// Pieces of a short ring: one more than what has room at a time, for what is left at the end of a lap is less than one.
const SHORT_PIECES: usize = SLOTS as usize + 1;
/// Laps of a short ring before it is provided with the memory of a long one: about as much goes through it as that is. What is
/// used less is not worth the system's time.
const LAPS_GROWING: u32 = 8;
/// Most pieces of a long one.
const LONG_PIECES_MAX: usize = if cfg!(any(loom, miri)) { 16 } else { 64 };

const SLOT: usize = if cfg!(any(loom, miri)) { 1024 } else { 4096 };
const RING: usize = SLOT + SLOTS as usize * SLOT_BYTES;
const LONG: usize = RING + LONG_PIECES_MAX * MEDIUM_MAX_BYTES;
/// Where content stands that does not fit a line.
pub(super) const CONTENT: Range<usize> = SLOT..LONG + LONG_SLOTS as usize * LONG_MAX_BYTES;

/// Chooses the places on one board: its owner asks the same one for each step that it shows.
#[derive(Debug)]
pub struct Places {
    /// `None`: each step has a piece.
    ring: Option<Ring>,
    /// The step with which this lap began.
    lap_start: u64,
    /// How far each piece has been written that is not one of a ring.
    written: [usize; (SLOTS + LONG_SLOTS) as usize],
}

#[derive(Debug)]
struct Ring {
    /// Where it goes on; past its end before the first lap.
    head: usize,
    /// Its pieces now, those of a long one, and those that have been provided.
    pieces: usize,
    long_pieces: usize,
    provided: usize,
    /// Laps since it has been better long.
    laps: u32,
}

/// Where the content of one step stands.
#[derive(Debug)]
pub struct Place {
    pub(super) offset: usize,
    pub(super) len_bytes: usize,
    /// What the system is to provide before the place is written: met page by page, memory costs ten times as much as what
    /// is copied there.
    pub(super) to_provide: Range<usize>,
    /// A lap begins: from here on long content stands where it stood before.
    pub begins_lap: bool,
    /// Some of this memory is touched for the first time.
    pub is_new: bool,
    /// Where as much would go next in this lap of the ring; empty if there is no room, or no ring.
    pub next: Range<usize>,
}

impl Place {
    /// Of content so short that no choice is to be made.
    #[inline]
    pub fn fixed(step: u64, len_bytes: usize) -> Option<Self> {
        let offset = if len_bytes <= SHORT_MAX_BYTES {
            line(step) + 16
        } else if len_bytes < SPREAD_MIN_BYTES {
            SLOT + (step % SLOTS) as usize * SLOT_BYTES
        } else {
            return None;
        };
        Some(Self { offset, len_bytes, to_provide: 0..0, begins_lap: false, is_new: false, next: 0..0 })
    }

    /// The ring that it is in has become longer than it ever was.
    pub fn is_of_longer_ring(&self) -> bool {
        !self.to_provide.is_empty()
    }
}

impl Places {
    /// A piece for each of eight steps.
    pub fn in_turns() -> Self {
        Self { ring: None, lap_start: 0, written: Default::default() }
    }

    /// A ring that is short, or long with about so many pieces of [`MEDIUM_MAX_BYTES`], up to 64.
    pub fn in_a_ring(long_pieces: usize) -> Self {
        let long_pieces = long_pieces.clamp(SHORT_PIECES, LONG_PIECES_MAX);
        let ring = Ring { head: usize::MAX, pieces: SHORT_PIECES, long_pieces, provided: 0, laps: 0 };
        Self { ring: Some(ring), ..Self::in_turns() }
    }

    /// The place of so many bytes of a step. If a lap of the ring begins with it, that is short from now on, or long if that has been
    /// better for a while.
    ///
    /// # Panics
    /// If they are more than a step may have.
    #[inline]
    pub fn take(&mut self, step: u64, len_bytes: usize, is_better_long: bool) -> Place {
        Place::fixed(step, len_bytes).unwrap_or_else(|| self.choose(step, len_bytes, is_better_long))
    }

    fn choose(&mut self, step: u64, len_bytes: usize, is_better_long: bool) -> Place {
        assert!(len_bytes <= LONG_MAX_BYTES, "a step has a limit");
        let (slot, start) = match &mut self.ring {
            _ if len_bytes > MEDIUM_MAX_BYTES => {
                let slot = (step % LONG_SLOTS) as usize;
                (SLOTS as usize + slot, LONG + slot * LONG_MAX_BYTES)
            }
            Some(ring) => {
                let place = ring.take(len_bytes, is_better_long);
                if place.begins_lap {
                    self.lap_start = step;
                }
                return place;
            }
            None => {
                let slot = (step % SLOTS) as usize;
                (slot, RING + slot * MEDIUM_MAX_BYTES)
            }
        };
        let begins_lap = step >= self.lap_start + SLOTS;
        if begins_lap {
            self.lap_start = step;
        }
        let written = &mut self.written[slot];
        let is_new = len_bytes > *written;
        *written = len_bytes.max(*written);
        Place { offset: start, len_bytes, to_provide: 0..0, begins_lap, is_new, next: 0..0 }
    }
}

impl Ring {
    /// Where so many bytes go, which are of medium length.
    ///
    /// What is overwritten is of eight steps ago or more: any number of contents in a row take as many pieces at most, with
    /// what stays free between them, for what is shorter than half a piece leaves the rest of one free at most once; and a
    /// lap fills eight pieces before it ends, whatever the length of the ring was when it began.
    fn take(&mut self, len_bytes: usize, is_better_long: bool) -> Place {
        let next = self.next(len_bytes);
        let to_provide = if next.is_none() { self.begin_lap(is_better_long) } else { 0..0 };
        let from = next.unwrap_or(0);
        self.head = from + len_bytes.next_multiple_of(CACHE_LINE_BYTES);
        let behind = self.next(len_bytes).map_or(0..0, |start| RING + start..RING + start + len_bytes);
        Place { offset: RING + from, len_bytes, to_provide, begins_lap: next.is_none(), is_new: false, next: behind }
    }

    /// Where so many bytes would start in this lap; `None` if they do not fit.
    fn next(&self, len_bytes: usize) -> Option<usize> {
        let unit_bytes = if len_bytes >= PIECE_MIN_BYTES {
            MEDIUM_MAX_BYTES
        } else if len_bytes >= PAGE_BYTES {
            PAGE_BYTES
        } else {
            CACHE_LINE_BYTES
        };
        let next = self.head.checked_next_multiple_of(unit_bytes)?;
        Some(next).filter(|next| *next <= self.pieces * MEDIUM_MAX_BYTES - len_bytes)
    }

    /// Decides on the length of the lap that begins; gives the memory that was in none before.
    fn begin_lap(&mut self, is_better_long: bool) -> Range<usize> {
        self.laps = if is_better_long { self.laps.saturating_add(1) } else { 0 };
        let is_worth_it = self.laps > LAPS_GROWING || self.provided == self.long_pieces;
        self.pieces = if is_better_long && is_worth_it { self.long_pieces } else { SHORT_PIECES };
        let before = self.provided;
        self.provided = self.pieces.max(before);
        RING + before * MEDIUM_MAX_BYTES..RING + self.provided * MEDIUM_MAX_BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::times;

    fn range(place: &Place) -> Range<usize> {
        place.offset..place.offset + place.len_bytes
    }

    #[test]
    fn steps_that_have_room_at_a_time_stand_apart_whatever_their_lengths() {
        let lengths = [1, SPREAD_MIN_BYTES, PAGE_BYTES - 1, PAGE_BYTES, PIECE_MIN_BYTES - 1, PIECE_MIN_BYTES];
        for mut places in [Places::in_turns(), Places::in_a_ring(0), Places::in_a_ring(13)] {
            let mut shown = VecDeque::new();
            let mut state = 1u32;
            for step in 0..times(20_000, 500) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Mostly the longest, so that a ring goes round as soon as it can.
                let len = lengths[(state >> 24) as usize % lengths.len()];
                let len = if state >> 31 == 1 { MEDIUM_MAX_BYTES } else { len };
                // Long and short in turns.
                let place = range(&places.take(step, len, step % 1000 < 700));
                assert!(shown.iter().all(|other: &Range<usize>| other.end <= place.start || place.end <= other.start));
                shown.push_back(place);
                if shown.len() == SLOTS as usize {
                    shown.pop_front();
                }
            }
        }
    }

    #[test]
    fn content_tells_where_as_much_goes_next() {
        let mut places = Places::in_a_ring(0);
        let mut told_count = 0;
        for len in [SPREAD_MIN_BYTES, PAGE_BYTES, PIECE_MIN_BYTES, MEDIUM_MAX_BYTES] {
            let mut told = 0..0;
            for step in 0..times(400, 40) {
                let place = places.take(step, len, false);
                if !told.is_empty() {
                    assert_eq!((told, place.begins_lap), (range(&place), false));
                    told_count += 1;
                }
                told = place.next;
            }
        }
        assert!(told_count > times(1000, 100), "{told_count}");
        assert!(Places::in_turns().take(1, MEDIUM_MAX_BYTES, false).next.is_empty());
    }

    #[test]
    fn long_content_stands_apart_from_all_other() {
        for mut places in [Places::in_turns(), Places::in_a_ring(usize::MAX)] {
            let long = [0, 1].map(|step| range(&places.take(step, LONG_MAX_BYTES, true)));
            let later = places.take(SLOTS, LONG_MAX_BYTES, true);
            assert!(later.begins_lap && !later.is_of_longer_ring(), "no lap of a ring");
            assert!(long[0].end <= long[1].start && long[1].end == CONTENT.end);
            for step in SLOTS + 1..2000 {
                let place = range(&places.take(step, MEDIUM_MAX_BYTES, true));
                assert!(place.start >= CONTENT.start && place.end <= long[0].start);
            }
        }
    }

    #[test]
    fn a_ring_is_as_long_as_it_should_be_and_provided_once() {
        let mut places = Places::in_a_ring(12);
        let mut laps = |steps: Range<u64>, is_better_long| -> (Vec<u64>, usize) {
            let places = steps.map(|step| (step, places.take(step, MEDIUM_MAX_BYTES, is_better_long)));
            let begun = places.filter(|(_, place)| place.begins_lap || place.is_of_longer_ring()).collect::<Vec<_>>();
            let provided_bytes = begun.iter().map(|(_, place)| place.to_provide.len()).sum::<usize>();
            (begun.iter().map(|(step, _)| *step).collect(), provided_bytes / MEDIUM_MAX_BYTES)
        };
        assert_eq!(laps(0..20, false), (vec![0, 9, 18], 9));
        let long = 27 + u64::from(LAPS_GROWING) * 9;
        assert_eq!(laps(20..long, true), ((27..long).step_by(9).collect(), 0));
        assert_eq!(laps(long..long + 24, true), (vec![long, long + 12], 3));
        assert_eq!(laps(long + 24..long + 40, false), (vec![long + 24, long + 33], 0));
        assert_eq!(laps(long + 40..long + 60, true), (vec![long + 42, long + 54], 0), "its memory is there");
    }

    #[test]
    fn pieces_are_new_once_and_laps_are_of_eight_steps_even_for_who_shows_few() {
        let mut places = Places::in_turns();
        for step in (8..80).step_by(2) {
            let place = places.take(step, MEDIUM_MAX_BYTES, true);
            assert_eq!((place.is_new, place.begins_lap), (step < 16, step % 8 == 0), "{step}");
        }
        assert!(places.take(80, MEDIUM_MAX_BYTES + 1, true).is_new, "others are");
    }
}
