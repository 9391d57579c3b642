//! Short blocking collectives between processes of one host: each member shows what it has, all others read it.
//!
//! ```text
//! barrier, allgather, alltoall     everyone shows, everyone reads                        1 step
//! broadcast, short                 the root shows, all others read                       1 step
//! broadcast, long                  the same by pieces, of which several are under way    1 step per piece
//! allreduce, short                 everyone shows, everyone reduces everything           1 step
//! allreduce, long                  everyone shows a piece, each reduces a part of it     2 steps per piece
//!                                  and shows that, everyone reads the parts
//! ```
//! Nothing is matched and nobody runs between two others: where processes outnumber processors each of them runs once
//! per step, whoever comes first. Reductions evaluate operands in the order of ranks, in all members alike.
//!
//! Cost: a step is one line written and one read from each other member, or a copy in and one out.
//!
//! A group has boards from its ninth such call on, if its members have one in common; see
//! [`engine::BoardTable`]. What goes this way depends on nothing but what all members know: the call, its size, the
//! settings.

use collectives::Collective;
use datatype::{RecvBuf, SendBuf};
use engine::{BOARD_PIECE_BYTES, BOARD_STEP_BYTES, GroupBoard};

use super::arguments::{Arguments, Buffer, Reduction};
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// Largest group.
const RANKS_MAX: u32 = 64;
/// Longest broadcast in one step.
const BCAST_STEP_MAX_BYTES: u64 = 32 << 10;
/// Ranks from which on a longer one goes by pieces, where all run at once: with fewer of them, or where a piece would wait
/// for everybody's turn, it is faster copied straight from the root.
const BCAST_PIECES_RANKS_MIN: u32 = 3;
/// The length of a broadcast, behind the first of its pieces.
const BCAST_LEN_BYTES: usize = 8;
/// Steps of a piece's length that have room at a time.
const PIECES_AT_ONCE: usize = 8;
/// Bytes of a piece. With the length it is longer than a broadcast in one step, and several have room.
const BCAST_PIECE_BYTES: (usize, usize) = (BCAST_STEP_MAX_BYTES as usize, BOARD_PIECE_BYTES - BCAST_LEN_BYTES);
/// Longest block of an allgather.
const ALLGATHER_MAX_BYTES: u64 = 32 << 10;
/// Longest block of an alltoall.
const ALLTOALL_MAX_BYTES: u64 = 16 << 10;
/// Longest content of an alltoall: below the longest step, so that content that was cut to that is seen to be wrong.
const CONTENT_MAX_BYTES: u64 = BOARD_STEP_BYTES as u64 - 1;
/// Up to so many bytes of all inputs together, every member reduces everything.
const REDUCE_ALL_MAX_BYTES: u64 = 16 << 10;
/// Bytes reduced at a time: operand and value stay in a first-level cache.
const REDUCE_BLOCK_BYTES: u64 = 8 << 10;

/// What a call shows in all, if it may go over boards.
#[derive(Clone, Copy)]
enum Plan<'a> {
    Barrier,
    Bcast { root: usize, buffer: &'a Buffer<datatype::UserMemoryMut> },
    Allreduce { data: &'a Reduction },
    Allgather { send: Option<&'a Buffer<datatype::UserMemory>>, recv: &'a Buffer<datatype::UserMemoryMut> },
    Alltoall { send: Option<&'a Buffer<datatype::UserMemory>>, recv: &'a Buffer<datatype::UserMemoryMut> },
}

impl<'a> Plan<'a> {
    /// The plan of a call, if it is one for boards: the same decision in all members.
    #[inline]
    fn of(comm: &Comm, arguments: &'a Arguments) -> Option<Plan<'a>> {
        if !comm.may_share() || comm.is_inter() || !(2..=RANKS_MAX).contains(&comm.size()) {
            return None;
        }
        let within = |count: u64, size: u64, max: u64| {
            count.checked_mul(size).is_some_and(|len_bytes| (1..=max).contains(&len_bytes))
        };
        let (plan, collective) = match arguments {
            Arguments::Barrier => (Plan::Barrier, Collective::Barrier),
            Arguments::Bcast { root, buffer }
                if within(buffer.count, buffer.datatype.size(), bcast_max_bytes(comm)) =>
            {
                let root = usize::try_from(*root).ok().filter(|root| *root < comm.size() as usize)?;
                (Plan::Bcast { root, buffer }, Collective::Bcast)
            }
            Arguments::Allreduce { data }
                if data.result.is_some()
                    && (1..=BOARD_STEP_BYTES as u64).contains(&data.datatype.size())
                    && within(data.count, data.datatype.size(), u64::MAX)
                    && data.op.supports(&data.datatype) =>
            {
                (Plan::Allreduce { data }, Collective::Allreduce)
            }
            Arguments::Allgather { send, recv } if within(recv.count, recv.datatype.size(), ALLGATHER_MAX_BYTES) => {
                (Plan::Allgather { send: send.as_ref(), recv }, Collective::Allgather)
            }
            Arguments::Alltoall { send, recv }
                if within(recv.count, recv.datatype.size(), ALLTOALL_MAX_BYTES)
                    && within(recv.count * u64::from(comm.size()), recv.datatype.size(), CONTENT_MAX_BYTES) =>
            {
                (Plan::Alltoall { send: send.as_ref(), recv }, Collective::Alltoall)
            }
            _ => return None,
        };
        comm.chooses_freely(collective).then_some(plan)
    }
}

impl World {
    /// Carries the collective out if it is one for this way.
    #[inline]
    pub(super) fn on_boards(&self, comm: &Comm, arguments: &Arguments) -> Option<Result<()>> {
        let plan = Plan::of(comm, arguments)?;
        let group = comm.boards(self)?;
        // Those who were in the call when a member was lost may have left it at different steps.
        if let Some(error) = self.lost_among((0..comm.size()).map(|rank| comm.peer_of(rank))) {
            return Some(Err(error));
        }
        self.engine.borrow_mut().count_board_collective();
        let table = Table { world: self, comm, group };
        Some(match plan {
            Plan::Barrier => table.barrier(),
            Plan::Bcast { root, buffer } => table.bcast(root, buffer),
            Plan::Allreduce { data } => table.allreduce(data),
            Plan::Allgather { send, recv } => table.allgather(send, recv),
            Plan::Alltoall { send, recv } => table.alltoall(send, recv),
        })
    }
}

/// One call over the boards of its group.
#[derive(Clone, Copy)]
struct Table<'a> {
    world: &'a World,
    comm: &'a Comm,
    group: &'a GroupBoard,
}

impl Table<'_> {
    fn barrier(self) -> Result<()> {
        let step = self.show_common(&SendBuf::empty(), &SendBuf::empty())?;
        self.group.finish_common(step);
        Ok(())
    }

    fn bcast(self, root: usize, buffer: &Buffer<datatype::UserMemoryMut>) -> Result<()> {
        let Buffer { memory, count, datatype } = buffer;
        if root == self.me() {
            self.show_pieces(&memory.send(0, *count, datatype))
        } else {
            let len_bytes = (count * datatype.size()) as usize;
            self.read_pieces(root, len_bytes, &mut memory.recv(0, *count, datatype))
        }
    }

    /// The root's part of a broadcast.
    fn show_pieces(self, content: &SendBuf) -> Result<()> {
        let pieces = Pieces::of(content.len_bytes() as usize);
        let mut step = 0;
        for piece in 0..pieces.count {
            let (offset, len_bytes) = pieces.range(piece);
            let told = match piece {
                0 if pieces.count > 1 => SendBuf::from_owned((pieces.len_bytes as u64).to_ne_bytes().into()),
                _ => SendBuf::empty(),
            };
            step = self.group.next_step();
            self.show(step, &content.slice(offset as u64, len_bytes as u64), &told)?;
        }
        self.group.finish_lone(&self.world.engine.borrow(), step, None);
        Ok(())
    }

    /// The part of all others. Who expects another length than the root has follows it through all of its steps, so that
    /// what comes next is not mistaken for one of them.
    fn read_pieces(self, root: usize, own_bytes: usize, into: &mut RecvBuf) -> Result<()> {
        let mut outcome = Ok(());
        let mut pieces = Pieces::of(own_bytes);
        let mut piece = 0;
        while piece < pieces.count {
            let step = self.group.next_step();
            self.wait(|| self.group.is_shown(root, step))?;
            if piece == 0 {
                pieces = Pieces::of(self.broadcast_bytes(root, step));
                if pieces.len_bytes != own_bytes {
                    outcome = Err(self.shorter(root, pieces.len_bytes, "MPI_Bcast"));
                }
            }
            let (offset, len_bytes) = pieces.range(piece);
            if outcome.is_ok() {
                let whole = self.group.read(root, step, 0, len_bytes, |bytes| {
                    into.unpack_at(offset as u64, bytes);
                });
                if !whole {
                    outcome = Err(self.shorter(root, pieces.len_bytes, "MPI_Bcast"));
                }
            }
            // For the room of a piece only the root waits, until all is shown; for that of the last ones whoever shows
            // something next.
            let only = Some(root).filter(|_| piece + PIECES_AT_ONCE < pieces.count);
            self.group.finish_lone(&self.world.engine.borrow(), step, only);
            piece += 1;
        }
        outcome
    }

    /// Bytes of the broadcast whose first piece the root shows as `step`.
    fn broadcast_bytes(self, root: usize, step: u64) -> usize {
        let shown = self.group.len_bytes(root, step);
        let mut told = [0; BCAST_LEN_BYTES];
        match shown.checked_sub(BCAST_LEN_BYTES).filter(|_| shown > BCAST_STEP_MAX_BYTES as usize) {
            Some(offset) if self.group.read(root, step, offset, told.len(), |bytes| told.copy_from_slice(bytes)) => {
                u64::from_ne_bytes(told) as usize
            }
            _ => shown,
        }
    }

    fn allgather(
        self,
        send: Option<&Buffer<datatype::UserMemory>>,
        recv: &Buffer<datatype::UserMemoryMut>,
    ) -> Result<()> {
        let Buffer { memory, count, datatype } = recv;
        let len_bytes = (count * datatype.size()) as usize;
        let block = |rank: usize| rank as i64 * *count as i64 * datatype.extent();
        let own = match send {
            Some(send) => send.memory.send(0, send.count, &send.datatype),
            None => memory.send(block(self.me()), *count, datatype),
        };
        let step = self.show_common(&cut(&own), &SendBuf::empty())?;
        let outcome = (0..self.size()).filter(|rank| send.is_some() || *rank != self.me()).try_for_each(|rank| {
            let mut into = memory.recv(block(rank), *count, datatype);
            self.read_whole(rank, step, len_bytes, &mut into, "MPI_Allgather")
        });
        self.group.finish_common(step);
        outcome
    }

    fn alltoall(
        self,
        send: Option<&Buffer<datatype::UserMemory>>,
        recv: &Buffer<datatype::UserMemoryMut>,
    ) -> Result<()> {
        let Buffer { memory, count, datatype } = recv;
        let block_bytes = (count * datatype.size()) as usize;
        let ranks = self.size() as u64;
        let all = match send {
            Some(send) => send.memory.send(0, send.count.saturating_mul(ranks), &send.datatype),
            None => memory.send(0, count * ranks, datatype),
        };
        let len_bytes = block_bytes * self.size();
        let step = self.show_common(&cut(&all), &SendBuf::empty())?;
        let outcome = (0..self.size()).try_for_each(|rank| {
            self.expect(rank, step, len_bytes, "MPI_Alltoall")?;
            let mut into = memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
            self.group.read(rank, step, self.me() * block_bytes, block_bytes, |bytes| {
                into.unpack_at(0, bytes);
            });
            Ok(())
        });
        self.group.finish_common(step);
        outcome
    }

    fn allreduce(self, data: &Reduction) -> Result<()> {
        let (size, ranks) = (data.datatype.size(), self.size() as u64);
        let len_bytes = data.count * size;
        if len_bytes * ranks <= REDUCE_ALL_MAX_BYTES.max(ranks * engine::BOARD_SHORT_BYTES as u64) {
            let step = self.show_common(&Part { first: 0, count: data.count }.input(data), &SendBuf::empty())?;
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
        let inputs = self.show_common(&below.input(data), &above.input(data))?;
        let outcome = self
            .reduce(data, inputs, own, |rank| own.first - first - if rank < self.me() { part(rank).count } else { 0 });
        self.group.finish_common(inputs);
        let size = data.datatype.size();
        let results = self.show_common(&own.of(data).reader(), &SendBuf::empty())?;
        let taken = (0..self.size()).filter(|rank| *rank != self.me()).try_for_each(|rank| {
            let part = part(rank);
            self.read_whole(rank, results, (part.count * size) as usize, &mut part.of(data), "MPI_Allreduce")
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

    /// A step that all members show; returns its number once they do.
    #[inline]
    fn show_common(self, first: &SendBuf, second: &SendBuf) -> Result<u64> {
        let step = self.group.next_step();
        self.show(step, first, second)?;
        let mut checked = 0;
        self.wait(|| self.group.is_shown_by_all(step, &mut checked))?;
        Ok(step)
    }

    /// Waits for what other members show.
    ///
    /// # Errors
    /// If one of them is lost, which shows nothing any more.
    #[inline]
    fn wait(self, mut is_reached: impl FnMut() -> bool) -> Result<()> {
        self.world.wait_closely(|world| {
            if is_reached() {
                return Some(Ok(()));
            }
            world.lost_among((0..self.comm.size()).map(|rank| self.comm.peer_of(rank))).map(Err)
        })
    }

    #[inline]
    fn show(self, step: u64, first: &SendBuf, second: &SendBuf) -> Result<()> {
        let len_bytes = (first.len_bytes() + second.len_bytes()) as usize;
        if !self.group.has_room(step, len_bytes) {
            self.wait(|| self.group.has_room(step, len_bytes))?;
        }
        self.group.show(&self.world.engine.borrow(), step, first, second);
        Ok(())
    }

    /// Copies what a member shows, which should be `len_bytes` long.
    #[inline]
    fn read_whole(self, rank: usize, step: u64, len_bytes: usize, into: &mut RecvBuf, call: &str) -> Result<()> {
        self.expect(rank, step, len_bytes, call)?;
        self.group.read(rank, step, 0, len_bytes, |bytes| {
            into.unpack_at(0, bytes);
        });
        Ok(())
    }

    #[inline]
    fn expect(self, rank: usize, step: u64, len_bytes: usize, call: &str) -> Result<()> {
        let shown = self.group.len_bytes(rank, step);
        if shown == len_bytes { Ok(()) } else { Err(self.shorter(rank, shown, call)) }
    }

    /// The error of members that do not agree about sizes.
    #[cold]
    fn shorter(self, rank: usize, shown_bytes: usize, call: &str) -> crate::Error {
        ErrorClass::Truncate.error(format!(
            "{call} on {}: {} brings {shown_bytes} bytes, which is not what {} expects; do all ranks pass the same counts and \
             types?",
            self.comm,
            self.comm.describe_rank(rank as u32),
            self.comm.describe_self(),
        ))
    }

    fn me(self) -> usize {
        self.comm.rank() as usize
    }

    fn size(self) -> usize {
        self.comm.size() as usize
    }
}

/// Longest broadcast that goes over boards.
fn bcast_max_bytes(comm: &Comm) -> u64 {
    if comm.size() >= BCAST_PIECES_RANKS_MIN && !comm.is_oversubscribed() { u64::MAX } else { BCAST_STEP_MAX_BYTES }
}

/// How a broadcast is cut into steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pieces {
    len_bytes: usize,
    piece_bytes: usize,
    count: usize,
}

impl Pieces {
    /// Of so many bytes, which are not 0.
    fn of(len_bytes: usize) -> Self {
        let (least, most) = BCAST_PIECE_BYTES;
        let piece_bytes = (len_bytes / 8).clamp(least, most) & !63;
        Self { len_bytes, piece_bytes, count: len_bytes.div_ceil(piece_bytes) }
    }

    /// Where a piece begins, and its length, in bytes.
    fn range(&self, piece: usize) -> (usize, usize) {
        let offset = piece * self.piece_bytes;
        (offset, self.piece_bytes.min(self.len_bytes - offset))
    }
}

/// What of a send buffer can be shown. One that is longer does not fit the receive buffers: every member sees that its
/// length is not what it expects.
fn cut(content: &SendBuf) -> SendBuf {
    content.slice(0, BOARD_STEP_BYTES as u64)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_of_a_broadcast_tells_whether_there_are_more() {
        let one = BCAST_STEP_MAX_BYTES as usize;
        for len_bytes in [1, 63, one - 1, one, one + 1, 2 * one, 100_000, 8 * one + 7, 1 << 20, (1 << 26) + 5] {
            let pieces = Pieces::of(len_bytes);
            let mut next = 0;
            for piece in 0..pieces.count {
                let (offset, len) = pieces.range(piece);
                assert_eq!(offset, next);
                assert!(len > 0);
                next += len;
            }
            assert_eq!(next, len_bytes);
            let told = if pieces.count > 1 { BCAST_LEN_BYTES } else { 0 };
            let first = pieces.range(0).1 + told;
            assert_eq!(first > one, pieces.count > 1, "{len_bytes}");
            assert!(first <= BOARD_PIECE_BYTES, "several have room");
        }
    }
}
