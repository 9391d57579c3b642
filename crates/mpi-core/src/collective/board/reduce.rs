//! Reductions: everyone shows operands, each reduces a part of them.

use datatype::{RecvBuf, SendBuf};
use engine::{BOARD_PIECE_BYTES, BOARD_STEP_BYTES};

use super::Table;
use crate::collective::arguments::Reduction;
use crate::error::{ErrorClass, Result};

/// Up to so many bytes of all inputs together, every member reduces everything.
const REDUCE_ALL_MAX_BYTES: u64 = 16 << 10;
/// Bytes reduced at a time: operand and value stay in a first-level cache.
const REDUCE_BLOCK_BYTES: u64 = 8 << 10;

impl Table<'_> {
    pub(super) fn allreduce(self, data: &Reduction) -> Result<()> {
        let (size, ranks) = (data.datatype.size(), self.size() as u64);
        let len_bytes = data.count * size;
        if len_bytes * ranks <= REDUCE_ALL_MAX_BYTES.max(ranks * engine::BOARD_SHORT_BYTES as u64) {
            let step = self.show_common(&[Part { first: 0, count: data.count }.input(data)], &[])?;
            let outcome = self.reduce(data, step, Part { first: 0, count: data.count }, |_| 0);
            self.group.finish_common(step);
            return outcome;
        }
        // Where all run at once, what one writes is read while it is near; otherwise each step costs a turn of everyone.
        let near_max = BOARD_PIECE_BYTES as u64 * ranks / (ranks - 1);
        let bytes_max = if self.comm.is_oversubscribed() { BOARD_STEP_BYTES as u64 } else { near_max };
        let piece_max = (bytes_max / size).max(1);
        let pieces = data.count.div_ceil(piece_max);
        for piece in 0..pieces {
            let cut = |index: u64| data.count / pieces * index + index.min(data.count % pieces);
            self.reduce_piece(data, cut(piece), cut(piece + 1) - cut(piece))?;
        }
        Ok(())
    }

    /// Allreduce of `count` elements from `first` on: each member a part.
    fn reduce_piece(self, data: &Reduction, first: u64, count: u64) -> Result<()> {
        let ranks = self.size() as u64;
        let cut = |rank: usize| count / ranks * rank as u64 + (rank as u64).min(count % ranks);
        let part = |rank: usize| Part { first: first + cut(rank), count: cut(rank + 1) - cut(rank) };
        let own = part(self.me());
        // All but what nobody else reduces.
        let below = Part { first, count: cut(self.me()) };
        let above = Part { first: own.first + own.count, count: count - cut(self.me() + 1) };
        let inputs = self.show_common(&[below.input(data), above.input(data)], &[])?;
        let outcome = self
            .reduce(data, inputs, own, |rank| own.first - first - if rank < self.me() { part(rank).count } else { 0 });
        self.group.finish_common(inputs);
        let size = data.datatype.size();
        let results = self.show_common(&[own.of(data).reader()], &[])?;
        let taken = (0..self.size()).filter(|rank| *rank != self.me()).try_for_each(|rank| {
            let part = part(rank);
            let (shown, len_bytes) = (self.group.len_bytes(rank, results), (part.count * size) as usize);
            if shown != len_bytes {
                return Err(self.shorter(rank, shown, "MPI_Allreduce"));
            }
            self.group.read(rank, results, 0, len_bytes, |bytes| {
                part.of(data).unpack_at(0, bytes);
            });
            Ok(())
        });
        self.group.finish_common(results);
        outcome.and(taken)
    }

    /// Reduces over the elements of `part` what all show as `step`, where it begins `before(rank)` elements in. Our own
    /// operand is read where it lies: what was written for others is no longer near.
    fn reduce(self, data: &Reduction, step: u64, part: Part, before: impl Fn(usize) -> u64) -> Result<()> {
        let size = data.datatype.size();
        let block_max = (REDUCE_BLOCK_BYTES / size).max(1);
        let count_max = part.count.min(block_max);
        let room = self.world.temporary(count_max, &data.datatype)?;
        let is_in_place = data.input.is_none();
        let own_room = if is_in_place { Some(self.world.temporary(count_max, &data.datatype)?) } else { None };
        let last = self.size() - 1;
        let mut first = part.first;
        while first < part.first + part.count {
            let block = Part { first, count: block_max.min(part.first + part.count - first) };
            let len_bytes = (block.count * size) as usize;
            let fetch = |rank: usize, into: &mut RecvBuf| {
                let offset = (before(rank) + first - part.first) * size;
                let whole = self.group.read(rank, step, offset as usize, len_bytes, |bytes| {
                    into.unpack_at(0, bytes);
                });
                if whole { Ok(()) } else { Err(self.shorter(rank, self.group.len_bytes(rank, step), "MPI_Allreduce")) }
            };
            let mut value = block.of(data);
            let own = match &own_room {
                // The value comes where our operand stands.
                Some(own_room) => {
                    own_room.memory().recv(0, block.count, &data.datatype).copy_from(&value.reader());
                    own_room.memory().send(0, block.count, &data.datatype)
                }
                None => block.input(data),
            };
            if last == self.me() {
                value.copy_from(&own);
            } else {
                fetch(last, &mut value)?;
            }
            // One buffer for the operands of all: of a few elements, making one costs more than reducing it.
            let mut fetched = room.memory().recv(0, block.count, &data.datatype);
            let operand = room.memory().send(0, block.count, &data.datatype);
            for rank in (0..last).rev() {
                let reduced = if rank == self.me() {
                    data.op.reduce(&data.datatype, &own, &mut value)
                } else {
                    fetch(rank, &mut fetched)?;
                    data.op.reduce(&data.datatype, &operand, &mut value)
                };
                reduced.map_err(|error| ErrorClass::Op.error(format!("MPI_Allreduce: {error}")))?;
            }
            first += block.count;
        }
        self.world.keep_temporaries([room].into_iter().chain(own_room));
        Ok(())
    }
}

/// Some elements of a reduction.
#[derive(Clone, Copy)]
struct Part {
    first: u64,
    count: u64,
}

impl Part {
    /// Where they come from.
    fn input(self, data: &Reduction) -> SendBuf {
        let offset = self.first as i64 * data.datatype.extent();
        match (&data.input, &data.result) {
            (Some(input), _) => input.send(offset, self.count, &data.datatype),
            (None, Some(result)) => result.send(offset, self.count, &data.datatype),
            (None, None) => SendBuf::empty(),
        }
    }

    /// Where they go.
    fn of(self, data: &Reduction) -> RecvBuf {
        let offset = self.first as i64 * data.datatype.extent();
        data.result.as_ref().map_or_else(RecvBuf::empty, |result| result.recv(offset, self.count, &data.datatype))
    }
}
