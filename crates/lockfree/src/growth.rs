//! How long a block should be: what its sender learns from its traffic, and how much memory its receiver may spend.
//!
//! Paper: veloblock §8. A sender that was refused in most of its recent laps wants a longer block, one that never had more
//! than three eighths outstanding a shorter one. How the length is changed is the business of each kind of block: in
//! place where the memory is mapped, by another channel where it is registered ([`crate::fastpath`]).

use std::sync::Arc;

use base::sync::{AtomicU64, Ordering};

use crate::CACHE_LINE_BYTES;

/// Shortest block.
pub(crate) const LINES_MIN: usize = 16;

/// Laps after which the length of a block is thought over.
const LAPS_WATCHED: u16 = 8;
/// Laps that a block stays as it is at most because its sender wants it to.
const LAPS_STAYING: u16 = 24;
/// At most, after lengths could not be granted or were not needed for long.
const LAPS_WATCHED_MAX: u16 = 1024;

/// Within which lengths a block follows its traffic, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    /// It does not shrink below this.
    pub min_bytes: usize,
    /// It does not grow beyond this, nor beyond its memory, because it is full.
    pub max_bytes: usize,
    /// Its length while its records are long; shorter than it was in the beginning for none of its own.
    pub long_bytes: usize,
    /// The same where processes share processors: what each has if all are equally long. Longer for records that need it.
    pub shared_bytes: usize,
}

/// How much longer than in the beginning the blocks that share this may be, in bytes all together.
#[derive(Clone)]
pub struct Allowance(Arc<AtomicU64>);

impl Allowance {
    /// Of so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Bytes that are left.
    pub fn left_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Something that took `from_bytes` of it takes `to_bytes`; false, and nothing changes, if there is not enough left.
    pub fn change(&self, from_bytes: u64, to_bytes: u64) -> bool {
        let mut left = self.left_bytes();
        // Relaxed: a count, which orders nothing.
        while let Some(rest) = (left + from_bytes).checked_sub(to_bytes) {
            match self.0.compare_exchange_weak(left, rest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }

    /// As [`Allowance::change`], but an eighth of what is left stays for others: one that leaves less is refused.
    pub fn change_leaving_some(&self, from_bytes: u64, to_bytes: u64) -> bool {
        let left = self.left_bytes() + from_bytes;
        to_bytes <= left - left / 8 && self.change(from_bytes, to_bytes)
    }
}

/// What a sender knows of the traffic in its block; touched once per lap, and when there is no room.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    min_lines: u32,
    max_lines: u32,
    /// The length in the beginning, and that for long records.
    first_lines: u32,
    long_lines: u32,
    shared_lines: u32,
    /// Most lines outstanding when the receiver's count was last asked for.
    peak_lines: u32,
    /// A push of this lap found no room.
    lap_refused: bool,
    /// Lines of long records in this lap.
    lap_long_lines: u32,
    laps: u16,
    refused_laps: u16,
    /// Of these laps, how many were mostly long records.
    long_laps: u16,
    /// Laps after which all this is thought over.
    laps_watched: u16,
    /// The length from which being long is tried, or was the last time; 0 if it was for its own records.
    tried_lines: u32,
    /// A length that was asked for was not granted.
    was_declined: bool,
    /// The length for long records where processes share processors; 0 where they do not.
    enough_lines: u32,
}

impl Growth {
    /// Of a block of `lines` in the beginning, whose memory has room for `room_lines`.
    pub(crate) fn new(lines: usize, bounds: Bounds, room_lines: usize) -> Self {
        // As blocks are: nothing else is granted.
        let up_to_room = |bytes: usize| ((bytes / CACHE_LINE_BYTES) & !3).clamp(lines, room_lines) as u32;
        Self {
            min_lines: (bounds.min_bytes / CACHE_LINE_BYTES).clamp(LINES_MIN, lines) as u32,
            max_lines: up_to_room(bounds.max_bytes),
            long_lines: up_to_room(bounds.long_bytes),
            shared_lines: up_to_room(bounds.shared_bytes),
            first_lines: lines as u32,
            peak_lines: 0,
            lap_refused: false,
            lap_long_lines: 0,
            laps: 0,
            refused_laps: 0,
            long_laps: 0,
            laps_watched: LAPS_WATCHED,
            tried_lines: 0,
            was_declined: false,
            enough_lines: 0,
        }
    }

    pub(crate) fn first_lines(&self) -> usize {
        self.first_lines as usize
    }

    /// The longest it may be because it is full, or because a record is long.
    pub(crate) fn max_lines(&self) -> usize {
        self.max_lines as usize
    }

    /// The length that a block of `lines` has or will have if most of its records are long, as far as is known.
    pub(crate) fn long_lines(&self, lines: usize) -> usize {
        if self.was_declined { lines } else { lines.max(self.long_lines as usize) }
    }

    /// The longest it may be for any reason.
    pub(crate) fn longest_lines(&self) -> usize {
        self.max_lines.max(self.long_lines) as usize
    }

    /// The shortest it may be.
    pub(crate) fn min_lines(&self) -> usize {
        self.min_lines as usize
    }

    /// A push found no room.
    pub(crate) fn refused(&mut self) {
        self.lap_refused = true;
    }

    /// A long record takes so many lines of this lap.
    #[inline]
    pub(crate) fn note_long(&mut self, lines: usize) {
        self.lap_long_lines += lines as u32;
    }

    /// Processes share processors, and a length `fits` a record like this.
    pub(crate) fn note_shared(&mut self, fits: impl Fn(usize) -> bool) {
        let mut enough = self.shared_lines.max(self.enough_lines);
        while !fits(enough as usize) && enough < self.long_lines {
            enough = longer(enough).min(self.long_lines);
        }
        self.enough_lines = enough;
    }

    /// The length that was asked for was not granted: the next wish comes later.
    pub(crate) fn declined(&mut self) {
        self.was_declined = true;
        if std::mem::take(&mut self.tried_lines) == 0 {
            self.laps_watched = (self.laps_watched * 4).min(LAPS_WATCHED_MAX);
        }
    }

    /// In place of [`Growth::turn`], for a block of `lines` that is to be as long as for long records, at once: whether that
    /// is worth it is known elsewhere. When it is not any more, the block is as long as before, and what is known here does
    /// not take longer for it.
    pub(crate) fn try_long(&mut self, lines: usize) -> usize {
        if lines <= self.max_lines() {
            self.tried_lines = lines as u32;
        }
        self.forget_laps();
        (self.lap_long_lines, self.lap_refused) = (0, false);
        (self.long_lines as usize).max(lines)
    }

    /// A record does not fit even an empty block of `lines`: the length that `fits` it, below which the block does not
    /// shrink any more.
    pub(crate) fn need(&mut self, lines: usize, fits: impl Fn(usize) -> bool) -> usize {
        let mut wanted = lines as u32;
        while !fits(wanted as usize) && wanted < self.max_lines {
            wanted = longer(wanted).min(self.max_lines);
        }
        self.min_lines = wanted;
        wanted as usize
    }

    /// A lap of a block of `lines` is over, of which `outstanding` are not consumed; how long it should be now. While
    /// `wants_to_stay` long records leave it as it is, for some laps.
    pub(crate) fn turn(&mut self, lines: usize, outstanding: u64, wants_to_stay: bool) -> usize {
        let lines = lines as u32;
        let long = std::mem::take(&mut self.lap_long_lines);
        self.laps += 1;
        self.refused_laps += u16::from(std::mem::take(&mut self.lap_refused));
        self.long_laps += u16::from(long >= lines / 2);
        self.peak_lines = self.peak_lines.max(outstanding as u32);
        self.wanted(lines, long, wants_to_stay) as usize
    }

    fn wanted(&mut self, lines: u32, long: u32, wants_to_stay: bool) -> u32 {
        if lines > self.max_lines && long < lines / 8 {
            // It is as long as this for long records, and there are none.
            self.forget_laps();
            let before = std::mem::take(&mut self.tried_lines);
            if before == 0 {
                // Should they come again, that is thought over for longer: memory given back has to be touched anew.
                self.laps_watched = (self.laps_watched * 2).min(LAPS_WATCHED_MAX);
            }
            return self.first_lines.max(self.min_lines).max(before);
        }
        let stays = wants_to_stay && self.long_laps > 0 && self.laps < LAPS_STAYING;
        if self.laps < self.laps_watched || stays {
            return lines;
        }
        let Self { laps, refused_laps, long_laps, peak_lines, .. } = *self;
        self.forget_laps();
        let long = if self.enough_lines > 0 { self.enough_lines } else { self.long_lines };
        if long_laps >= laps / 4 * 3 && long > lines {
            long
        } else if refused_laps >= laps / 2 {
            longer(lines).min(self.max_lines).max(lines)
        } else if refused_laps == 0 && long_laps == 0 && peak_lines <= lines / 8 * 3 {
            shorter(lines).max(self.min_lines)
        } else {
            lines
        }
    }

    fn forget_laps(&mut self) {
        (self.laps, self.refused_laps, self.long_laps, self.peak_lines) = (0, 0, 0, 0);
    }
}

/// The next longer length: 16, 24, 32, 48, 64, 96 … KiB, in lines.
fn longer(lines: u32) -> u32 {
    let below = 1 << lines.ilog2();
    if lines == below { below / 2 * 3 } else { below * 2 }
}

/// The next shorter length.
fn shorter(lines: u32) -> u32 {
    let below = 1 << lines.ilog2();
    if lines == below { below / 4 * 3 } else { below }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_each_other() {
        let up: Vec<u32> = std::iter::successors(Some(256), |lines| Some(longer(*lines))).take(8).collect();
        assert_eq!(up, [256, 384, 512, 768, 1024, 1536, 2048, 3072]);
        assert!(up.windows(2).all(|pair| shorter(pair[1]) == pair[0]));
    }

    #[test]
    fn no_length_is_asked_for_that_blocks_cannot_have() {
        let bounds = Bounds { min_bytes: 8 << 10, max_bytes: 100_000, long_bytes: 300_000, ..Bounds::default() };
        let mut growth = Growth::new(1024, bounds, 1 << 20);
        assert_eq!(growth.max_lines(), 1560);
        let full = |growth: &mut Growth| {
            growth.refused();
            growth.turn(1024, 1024, false)
        };
        let wanted = (0..LAPS_WATCHED).map(|_| full(&mut growth)).max();
        assert_eq!(wanted, Some(1536));
        let long = (0..LAPS_WATCHED).map(|_| {
            growth.note_long(1024);
            growth.turn(1024, 1024, false)
        });
        assert_eq!(long.max(), Some(4684));
    }

    /// Long records find the block as ready to grow for them as if nothing had been tried.
    #[test]
    fn a_length_that_was_tried_changes_nothing_else() {
        let bounds = Bounds { min_bytes: 16 << 10, max_bytes: 64 << 10, long_bytes: 256 << 10, ..Bounds::default() };
        let mut growth = Growth::new(512, bounds, 1 << 20);
        for _ in 0..10 {
            assert_eq!(growth.try_long(768), 4096);
            growth.declined();
            assert_eq!(growth.try_long(768), 4096);
            assert_eq!(growth.try_long(4096), 4096);
            assert_eq!(growth.turn(4096, 0, false), 768, "as long as before");
        }
        let laps = (1..).find(|_| {
            growth.note_long(512);
            growth.turn(512, 512, false) == 4096
        });
        assert_eq!(laps, Some(LAPS_WATCHED));
    }

    /// Where processes share processors a block has its share, or as much as a record needs.
    #[test]
    fn shared_processors_have_shorter_blocks_for_long_records() {
        let (long_bytes, shared_bytes) = (1 << 20, 192 << 10);
        let bounds = Bounds { min_bytes: 16 << 10, max_bytes: 128 << 10, long_bytes, shared_bytes };
        let length_for = |needed_lines: Option<usize>| {
            let mut growth = Growth::new(1024, bounds, 1 << 20);
            let lengths = (0..LAPS_WATCHED).map(|_| {
                if let Some(needed_lines) = needed_lines {
                    growth.note_shared(|lines| lines >= needed_lines);
                }
                growth.note_long(1024);
                growth.turn(1024, 0, false)
            });
            lengths.max()
        };
        assert_eq!(length_for(Some(100)), Some(3072));
        assert_eq!(length_for(Some(3073)), Some(4096));
        assert_eq!(length_for(Some(1 << 20)), Some(16384), "no longer than for long records anywhere");
        assert_eq!(length_for(None), Some(16384));
    }

    #[test]
    fn an_allowance_is_spent_once() {
        let allowance = Allowance::new(100);
        assert!(allowance.change(0, 60) && !allowance.change(0, 41) && allowance.change(60, 100));
        assert_eq!(allowance.left_bytes(), 0);
        assert!(allowance.change(100, 0));
        assert_eq!(allowance.left_bytes(), 100);
    }
}
