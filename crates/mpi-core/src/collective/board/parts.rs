//! Blocks of any lengths from each to each: what goes to all others is one stream, cut into steps without regard to the
//! blocks. The first step tells how long each block is, so that all know how many steps there are, and every reader where
//! its own block lies.

use std::ops::Range;

use datatype::{RecvBuf, SendBuf};
use engine::BOARD_STEP_BYTES;
use smallvec::SmallVec;

use super::{LENGTH_BYTES, RANKS_MAX, TO_EACH_MAX_BYTES, Table, blocks};
use crate::collective::arguments::{Blocks, Parts};
use crate::communicator::Comm;
use crate::error::Result;

/// Bytes of a stream in one step; behind the first of them stand the lengths of its blocks.
const STREAM_STEP_BYTES: u64 = (BOARD_STEP_BYTES - RANKS_MAX as usize * LENGTH_BYTES) as u64;

/// Longest stream; of a longer one the blocks go by messages. Where all members run at once, a step, and no more than so
/// many blocks of the longest that goes over boards.
fn len_max_bytes(comm: &Comm) -> u64 {
    let blocks = comm.size() as usize - 1;
    if comm.is_oversubscribed() {
        TO_EACH_MAX_BYTES
    } else {
        (blocks::len_max_bytes(comm, blocks) * blocks as u64).min(STREAM_STEP_BYTES)
    }
}

impl Table<'_> {
    /// `None` if messages are to do it, for some member's stream is too long: all come to the same conclusion.
    pub(super) fn alltoallv(
        self,
        send: &Blocks<datatype::UserMemory>,
        recv: &Blocks<datatype::UserMemoryMut>,
    ) -> Result<Option<()>> {
        self.in_streams(
            "MPI_Alltoallv",
            |rank| {
                let at = send.displacements[rank] * send.datatype.extent();
                send.memory.send(at, send.counts[rank], &send.datatype)
            },
            |rank| {
                let at = recv.displacements[rank] * recv.datatype.extent();
                recv.memory.recv(at, recv.counts[rank], &recv.datatype)
            },
        )
    }

    /// As [`Table::alltoallv`].
    pub(super) fn alltoallw(
        self,
        send: &Parts<datatype::UserMemory>,
        recv: &Parts<datatype::UserMemoryMut>,
    ) -> Result<Option<()>> {
        self.in_streams(
            "MPI_Alltoallw",
            |rank| send.memory.send(send.displacements_bytes[rank], send.counts[rank], &send.datatypes[rank]),
            |rank| recv.memory.recv(recv.displacements_bytes[rank], recv.counts[rank], &recv.datatypes[rank]),
        )
    }

    fn in_streams(
        self,
        call: &'static str,
        out: impl Fn(usize) -> SendBuf,
        block: impl Fn(usize) -> RecvBuf,
    ) -> Result<Option<()>> {
        let (me, ranks) = (self.me(), self.size());
        let own = Stream::of((0..ranks).map(|rank| if rank == me { 0 } else { out(rank).len_bytes() }));
        let shown = |window: Range<u64>| -> SmallVec<[SendBuf; 8]> {
            let inside = |rank| {
                let (part, offset) = own.part(rank, &window)?;
                Some(out(rank).slice(offset, part.end - part.start))
            };
            (0..ranks).filter_map(inside).collect()
        };
        let most = len_max_bytes(self.comm);
        let first = if own.len_bytes() > most { SmallVec::new() } else { shown(window(0)) };
        let mut step = self.show_common(&first, &own.told())?;
        // Who can not be understood is taken to bring nothing: that is an error below.
        let streams: SmallVec<[Option<Stream>; 8]> = (0..ranks).map(|rank| self.stream_of(rank, step)).collect();
        let longest = streams.iter().flatten().map(Stream::len_bytes).max().unwrap_or(0);
        if longest > most {
            self.group.finish_common(step);
            return Ok(None);
        }
        let mut outcome = Ok(());
        for index in 0..longest.div_ceil(STREAM_STEP_BYTES).max(1) {
            let window = window(index);
            if index > 0 {
                step = self.show_common(&shown(window.clone()), &[])?;
            }
            for rank in (0..ranks).filter(|rank| *rank != me) {
                // Members go on to the last step whatever they find: the others do not know of it.
                let taken = self.take_part(rank, step, streams[rank].as_ref(), &window, &mut block(rank));
                outcome = outcome.and(taken.map_err(|brought| self.shorter(rank, brought, call)));
            }
            self.group.finish_common(step);
        }
        let own_block = out(me);
        if block(me).copy_from(&own_block) < own_block.len_bytes() {
            outcome = outcome.and(Err(self.shorter(me, own_block.len_bytes() as usize, call)));
        }
        outcome.map(Some)
    }

    /// What a member's first step tells of its stream; `None` if that is not how one looks.
    fn stream_of(self, rank: usize, step: u64) -> Option<Stream> {
        let told_bytes = self.size() * LENGTH_BYTES;
        let shown = self.group.len_bytes(rank, step);
        let mut stream = None;
        self.group.read(rank, step, shown.checked_sub(told_bytes)?, told_bytes, |told| {
            let (lengths, _) = told.as_chunks::<LENGTH_BYTES>();
            stream = Some(Stream::of(lengths.iter().map(|length| u64::from_ne_bytes(*length))));
        });
        stream
    }

    /// Reads what a member shows for this one in a window of its stream, as `step`.
    ///
    /// # Errors
    /// The bytes it brings, if they are more than there is room for or less than it said.
    fn take_part(
        self,
        rank: usize,
        step: u64,
        stream: Option<&Stream>,
        window: &Range<u64>,
        into: &mut RecvBuf,
    ) -> std::result::Result<(), usize> {
        let stream = stream.ok_or(0_usize)?;
        let brought = stream.block_bytes(self.me());
        if brought > into.len_bytes() {
            return Err(brought as usize);
        }
        let Some((part, offset)) = stream.part(self.me(), window) else { return Ok(()) };
        let (at, len_bytes) = ((part.start - window.start) as usize, (part.end - part.start) as usize);
        let is_there = self.group.read(rank, step, at, len_bytes, |bytes| {
            into.unpack_at(offset, bytes);
        });
        if is_there { Ok(()) } else { Err(self.group.len_bytes(rank, step)) }
    }
}

/// The bytes of a stream that a step shows.
fn window(index: u64) -> Range<u64> {
    index * STREAM_STEP_BYTES..(index + 1) * STREAM_STEP_BYTES
}

/// The blocks of one member, in order of who reads them, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stream {
    /// Where each ends.
    ends: SmallVec<[u64; 8]>,
}

impl Stream {
    fn of(lengths: impl Iterator<Item = u64>) -> Self {
        let ends = lengths.scan(0u64, |end, length| {
            *end = end.saturating_add(length);
            Some(*end)
        });
        Self { ends: ends.collect() }
    }

    fn len_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn start(&self, rank: usize) -> u64 {
        rank.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn block_bytes(&self, rank: usize) -> u64 {
        self.ends[rank] - self.start(rank)
    }

    /// What of a block lies in `window`, and how far into the block that begins; `None` if nothing does.
    fn part(&self, rank: usize, window: &Range<u64>) -> Option<(Range<u64>, u64)> {
        let (start, end) = (self.start(rank), self.ends[rank]);
        let part = start.max(window.start)..end.min(window.end);
        (part.start < part.end).then(|| (part.clone(), part.start - start))
    }

    /// The lengths, as others are told.
    fn told(&self) -> SmallVec<[u8; 64]> {
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
