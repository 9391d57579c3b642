//! Blocks of any lengths from each to each: what goes to all others is one stream, cut without regard to the blocks.

use std::ops::Range;

use engine::BOARD_STEP_BYTES;
use smallvec::SmallVec;

use super::super::RANKS_MAX;
use super::{LENGTH_BYTES, TO_EACH_MAX_BYTES, blocks};
use crate::communicator::Comm;

/// Bytes of a stream in one step; behind the first of them stand the lengths of its blocks.
pub const STREAM_STEP_BYTES: u64 = (BOARD_STEP_BYTES - RANKS_MAX as usize * LENGTH_BYTES) as u64;

/// Longest stream; of a longer one the blocks go by messages. Where all members run at once, a step, and no more than so
/// many blocks of the longest that goes over boards.
pub fn len_max_bytes(comm: &Comm) -> u64 {
    let blocks = comm.size() as usize - 1;
    if comm.is_oversubscribed() {
        TO_EACH_MAX_BYTES
    } else {
        (blocks::len_max_bytes(comm, blocks) * blocks as u64).min(STREAM_STEP_BYTES)
    }
}

/// The bytes of a stream that a step shows.
pub fn window(index: u64) -> Range<u64> {
    index * STREAM_STEP_BYTES..(index + 1) * STREAM_STEP_BYTES
}

/// The blocks of one member, in order of who reads them, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Where each ends.
    ends: SmallVec<[u64; 8]>,
}

impl Stream {
    pub fn of(lengths: impl Iterator<Item = u64>) -> Self {
        let ends = lengths.scan(0u64, |end, length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    pub fn len_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn start(&self, rank: usize) -> u64 {
        rank.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    pub fn block_bytes(&self, rank: usize) -> u64 {
        self.ends[rank] - self.start(rank)
    }

    /// What of a block lies in `window`, and how far into the block that begins; `None` if nothing does.
    pub fn part(&self, rank: usize, window: &Range<u64>) -> Option<(Range<u64>, u64)> {
        let (start, end) = (self.start(rank), self.ends[rank]);
        let part = start.max(window.start)..end.min(window.end);
        (part.start < part.end).then(|| (part.clone(), part.start - start))
    }

    /// The lengths, as others are told.
    pub fn told(&self) -> SmallVec<[u8; 64]> {
        (0..self.ends.len()).flat_map(|rank| self.block_bytes(rank).to_ne_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_show_every_byte_of_every_block_once() {
        let step = STREAM_STEP_BYTES;
        let cases: [&[u64]; 5] =
            [&[0, 0], &[1, 0, 5], &[step, 0, step], &[0, step - 1, 2, 3 * step, 0], &[2 * step + 1, 0, 0, 7]];
        for lengths in cases {
            let stream = Stream::of(lengths.iter().copied());
            assert_eq!(stream.len_bytes(), lengths.iter().sum::<u64>());
            let mut next = vec![0; lengths.len()];
            for index in 0..stream.len_bytes().div_ceil(step) {
                let window = window(index);
                let mut at = window.start;
                for (rank, next) in next.iter_mut().enumerate() {
                    let Some((part, offset)) = stream.part(rank, &window) else { continue };
                    assert_eq!((part.start, offset), (at, *next), "in order, without gaps");
                    at = part.end;
                    *next += part.end - part.start;
                }
                assert_eq!(at, window.end.min(stream.len_bytes()));
            }
            assert_eq!(next, lengths);
            assert_eq!(stream.told().len(), lengths.len() * LENGTH_BYTES);
        }
    }

    #[test]
    fn the_first_step_has_room_for_the_lengths() {
        let told_bytes = RANKS_MAX as usize * LENGTH_BYTES;
        assert!(STREAM_STEP_BYTES as usize + told_bytes <= BOARD_STEP_BYTES);
    }
}
