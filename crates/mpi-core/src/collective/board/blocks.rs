//! A block from each to all, or from each to each: everyone shows, everyone reads.

use datatype::{SendBuf, UserMemory, UserMemoryMut};
use engine::BOARD_STEP_BYTES;
use smallvec::SmallVec;

use super::{LENGTH_BYTES, TO_EACH_MAX_BYTES, Table};
use crate::collective::arguments::Buffer;
use crate::communicator::Comm;
use crate::error::Result;

/// Longest block where all members run at once: longer ones are faster copied straight from each to each.
const BLOCK_MAX_BYTES: u64 = 32 << 10;

/// Longest block of a collective whose members show `blocks` of them each. Where members do not all run at once, boards are
/// two to three times as fast as messages: each message waits for a turn of its sender and one of its receiver, a step for
/// one turn of each member, whatever it brings.
pub(super) fn len_max_bytes(comm: &Comm, blocks: usize) -> u64 {
    match (comm.is_oversubscribed(), blocks) {
        (false, _) => BLOCK_MAX_BYTES.min(Steps::most_bytes(blocks) as u64),
        (true, 1) => u64::MAX,
        (true, _) => TO_EACH_MAX_BYTES / blocks as u64,
    }
}

impl Table<'_> {
    pub(super) fn allgather(self, send: Option<&Buffer<UserMemory>>, recv: &Buffer<UserMemoryMut>) -> Result<()> {
        let Buffer { memory, count, datatype } = recv;
        let block = |rank: usize| memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let own = match send {
            Some(send) => send.memory.send(0, send.count, &send.datatype),
            None => block(self.me()).reader(),
        };
        let call = Call { name: "MPI_Allgather", own_bytes: own.len_bytes(), block_bytes: count * datatype.size() };
        let shown = |offset, len_bytes| SmallVec::from_iter([own.slice(offset, len_bytes)]);
        self.in_steps(&call, 1, shown, |rank, step, offset, len_bytes| {
            self.group.read(rank, step, 0, len_bytes, |bytes| {
                block(rank).unpack_at(offset, bytes);
            })
        })?;
        if send.is_some() {
            block(self.me()).copy_from(&own);
        }
        Ok(())
    }

    pub(super) fn alltoall(self, send: Option<&Buffer<UserMemory>>, recv: &Buffer<UserMemoryMut>) -> Result<()> {
        let Buffer { memory, count, datatype } = recv;
        let block = |rank: usize| memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let out = |rank: usize| match send {
            Some(Buffer { memory, count, datatype }) => {
                memory.send(rank as i64 * *count as i64 * datatype.extent(), *count, datatype)
            }
            None => block(rank).reader(),
        };
        let (me, own) = (self.me(), out(self.me()));
        let call = Call { name: "MPI_Alltoall", own_bytes: own.len_bytes(), block_bytes: count * datatype.size() };
        // What goes to others, in order of rank.
        let shown = |offset, len_bytes| {
            (0..self.size()).filter(|rank| *rank != me).map(|rank| out(rank).slice(offset, len_bytes)).collect()
        };
        self.in_steps(&call, self.size() - 1, shown, |rank, step, offset, len_bytes| {
            let before = if rank < me { me - 1 } else { me };
            self.group.read(rank, step, before * len_bytes, len_bytes, |bytes| {
                block(rank).unpack_at(offset, bytes);
            })
        })?;
        if send.is_some() {
            block(me).copy_from(&own);
        }
        Ok(())
    }

    /// Shows, piece by piece, what is `shown` of `blocks` blocks from an offset on, so many bytes of each, and lets `take`
    /// read what each other member shows as a step of that; it returns false if that is less than it should be.
    ///
    /// The first step tells the length of the blocks that a member shows, and of those that it expects: one that differs in
    /// either is found out by all, itself included, and all leave after that step.
    fn in_steps(
        self,
        call: &Call,
        blocks: usize,
        shown: impl Fn(u64, u64) -> SmallVec<[SendBuf; 8]>,
        mut take: impl FnMut(usize, u64, u64, usize) -> bool,
    ) -> Result<()> {
        let block_bytes = call.block_bytes as usize;
        let steps = Steps::of(block_bytes, blocks);
        for piece in 0..steps.count {
            let (offset, len_bytes) = steps.range(piece);
            let lengths = [call.own_bytes, call.block_bytes].map(u64::to_ne_bytes);
            let told = if piece == 0 { lengths.as_flattened() } else { &[] };
            let step = self.show_common(&shown(offset as u64, len_bytes as u64), told)?;
            let outcome = (0..self.size()).try_for_each(|rank| {
                if piece == 0 {
                    let [brought, expected] = self.told::<LENGTHS>(rank, step).unwrap_or_default();
                    if brought != call.block_bytes {
                        return Err(self.disagreement(rank, "brings", brought, call.name));
                    }
                    if expected != call.block_bytes {
                        return Err(self.disagreement(rank, "expects", expected, call.name));
                    }
                }
                if rank == self.me() || take(rank, step, offset as u64, len_bytes) {
                    return Ok(());
                }
                Err(self.shorter(rank, self.group.len_bytes(rank, step), call.name))
            });
            self.group.finish_common(step);
            outcome?;
        }
        Ok(())
    }
}

/// Lengths told behind what the first step shows.
const LENGTHS: usize = 2;

/// What a member passes.
struct Call {
    name: &'static str,
    /// Bytes of a block that it shows, and of one that it expects.
    own_bytes: u64,
    block_bytes: u64,
}

/// How blocks of one length are cut into steps: each shows a piece of all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Steps {
    block_bytes: usize,
    piece_bytes: usize,
    count: usize,
}

impl Steps {
    /// Of `blocks` blocks of so many bytes, both not 0.
    fn of(block_bytes: usize, blocks: usize) -> Self {
        let most = Self::most_bytes(blocks);
        let even = block_bytes.div_ceil(block_bytes.div_ceil(most));
        let piece_bytes = even.next_multiple_of(PIECE_UNIT_BYTES);
        Self { block_bytes, piece_bytes, count: block_bytes.div_ceil(piece_bytes) }
    }

    /// Longest piece of each of `blocks` blocks.
    const fn most_bytes(blocks: usize) -> usize {
        (BOARD_STEP_BYTES - LENGTHS * LENGTH_BYTES) / blocks / PIECE_UNIT_BYTES * PIECE_UNIT_BYTES
    }

    /// Where a piece begins, and its length, in bytes of each block.
    fn range(&self, piece: usize) -> (usize, usize) {
        let offset = piece * self.piece_bytes;
        (offset, self.piece_bytes.min(self.block_bytes - offset))
    }
}

/// Pieces are multiples of it: a line.
const PIECE_UNIT_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::board::RANKS_MAX;

    #[test]
    fn pieces_cover_the_blocks_and_fit_a_step() {
        for blocks in [1, 2, 3, 7, 31, RANKS_MAX as usize - 1] {
            let most = Steps::most_bytes(blocks);
            for block_bytes in [1, 63, 64, most - 1, most, most + 1, 2 * most, 3 * most + 5, 10_000_019] {
                let steps = Steps::of(block_bytes, blocks);
                let mut next = 0;
                for piece in 0..steps.count {
                    let (offset, len_bytes) = steps.range(piece);
                    assert_eq!(offset, next);
                    assert!(len_bytes > 0 && blocks * len_bytes + LENGTHS * LENGTH_BYTES <= BOARD_STEP_BYTES);
                    next += len_bytes;
                }
                assert_eq!(next, block_bytes);
                assert_eq!(steps.count, block_bytes.div_ceil(most), "no more steps than need be");
            }
        }
    }
}
