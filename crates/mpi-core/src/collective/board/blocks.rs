//! A block from each to all, or from each to each: everyone shows, everyone reads, by pieces if the blocks are long.

use datatype::{SendBuf, UserMemory, UserMemoryMut};
use engine::BOARD_STEP_BYTES;
use smallvec::SmallVec;

use super::{LENGTH_BYTES, TO_EACH_MAX_BYTES, Table};
use crate::collective::arguments::{Blocks, Buffer};
use crate::communicator::Comm;
use crate::error::Result;

/// Longest block where all members run at once: longer ones are faster copied straight from each to each.
const BLOCK_MAX_BYTES: u64 = 32 << 10;
/// Lengths told behind what the first of several steps shows: of what the member brings, and of the longest block that it
/// knows of.
pub(super) const LENGTHS: usize = 2;
/// Pieces are multiples of it: a line.
const PIECE_UNIT_BYTES: usize = 64;

/// Longest block of a collective whose members show `blocks` of them each. Where members do not all run at once, boards are
/// two to three times as fast as messages: each message waits for a turn of its sender and one of its receiver, a step for
/// one turn of each member, whatever it brings.
pub(super) fn len_max_bytes(comm: &Comm, blocks: usize) -> u64 {
    match (comm.is_oversubscribed(), blocks) {
        (false, _) => BLOCK_MAX_BYTES.min(Steps::most_bytes(blocks, PIECE_UNIT_BYTES) as u64),
        (true, 1) => u64::MAX,
        (true, _) => TO_EACH_MAX_BYTES / blocks as u64,
    }
}

/// Bytes of the longest of some blocks.
fn longest_bytes<M>(blocks: &Blocks<M>) -> u64 {
    blocks.counts.iter().copied().max().unwrap_or(0) * blocks.datatype.size()
}

/// What members show of their blocks in a step.
pub(super) type Shown = SmallVec<[SendBuf; 8]>;

impl Table<'_> {
    /// `None` if messages are to do it, as below.
    pub(super) fn allgather(
        self,
        send: Option<&Buffer<UserMemory>>,
        recv: &Buffer<UserMemoryMut>,
    ) -> Result<Option<()>> {
        let Buffer { memory, count, datatype } = recv;
        let block = |rank: usize| memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let block_bytes = count * datatype.size();
        self.gather_to_all("MPI_Allgather", send, block_bytes, |_| block_bytes, block)
    }

    pub(super) fn allgatherv(
        self,
        send: Option<&Buffer<UserMemory>>,
        recv: &Blocks<UserMemoryMut>,
    ) -> Result<Option<()>> {
        let Blocks { memory, counts, displacements, datatype } = recv;
        let block = |rank: usize| memory.recv(displacements[rank] * datatype.extent(), counts[rank], datatype);
        self.gather_to_all("MPI_Allgatherv", send, longest_bytes(recv), |rank| counts[rank] * datatype.size(), block)
    }

    fn gather_to_all(
        self,
        name: &'static str,
        send: Option<&Buffer<UserMemory>>,
        longest_bytes: u64,
        expected_bytes: impl Fn(usize) -> u64,
        block: impl Fn(usize) -> datatype::RecvBuf,
    ) -> Result<Option<()>> {
        let me = self.me();
        let own = match send {
            Some(send) => send.memory.send(0, send.count, &send.datatype),
            None => block(me).reader(),
        };
        let call = Call { name, root: None, own_bytes: own.len_bytes(), longest_bytes };
        let shown = |offset, len_bytes| SmallVec::from_iter([own.slice(offset, len_bytes)]);
        let gathered =
            self.in_steps(&call, Cut::of(self.comm, 1), &expected_bytes, shown, |step, offset, len_bytes| {
                self.others().try_for_each(|rank| {
                    let len_bytes = expected_bytes(rank).saturating_sub(offset).min(len_bytes as u64) as usize;
                    self.read(name, rank, step, 0, len_bytes, |bytes| {
                        block(rank).unpack_at(offset, bytes);
                    })
                })
            })?;
        if gathered.is_some() && send.is_some() {
            block(me).copy_from(&own);
        }
        Ok(gathered)
    }

    pub(super) fn alltoall(
        self,
        send: Option<&Buffer<UserMemory>>,
        recv: &Buffer<UserMemoryMut>,
    ) -> Result<Option<()>> {
        const NAME: &str = "MPI_Alltoall";
        let Buffer { memory, count, datatype } = recv;
        let block_bytes = count * datatype.size();
        let block = |rank: usize| memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let out = |rank: usize| match send {
            Some(Buffer { memory, count, datatype }) => {
                memory.send(rank as i64 * *count as i64 * datatype.extent(), *count, datatype)
            }
            None => block(rank).reader(),
        };
        let own = out(self.me());
        let call = Call { name: NAME, root: None, own_bytes: own.len_bytes(), longest_bytes: block_bytes };
        let shown = |offset, len_bytes| self.others().map(|rank| out(rank).slice(offset, len_bytes)).collect();
        let cut = Cut::of(self.comm, self.size() - 1);
        let exchanged = self.in_steps(
            &call,
            cut,
            |_| block_bytes,
            shown,
            |step, offset, len_bytes| {
                self.others().try_for_each(|rank| {
                    self.read(NAME, rank, step, self.place_at(rank) * len_bytes, len_bytes, |bytes| {
                        block(rank).unpack_at(offset, bytes);
                    })
                })
            },
        )?;
        if exchanged.is_some() && send.is_some() {
            block(self.me()).copy_from(&own);
        }
        Ok(exchanged)
    }

    /// How many blocks another member shows before ours, if it shows one for each of the others, in order of rank.
    pub(super) fn place_at(self, rank: usize) -> usize {
        if rank < self.me() { self.me() - 1 } else { self.me() }
    }

    /// Shows, piece by piece, what is `shown` of the blocks of this member from an offset on, so many bytes of each, and
    /// lets `take` read what others show of theirs. Where there is a root, either it shows or all others do, and who does
    /// not, reads. `None` if the blocks are so long that messages are to do it.
    ///
    /// With a root, what fits a step is one, in which nobody waits but for what it reads, and for room. Else the first step
    /// tells the length of the block that a member brings, of which `expected_bytes(rank)` are expected, and that of the
    /// longest. A member that means another longest one counts other steps, and a root that brings what is not expected
    /// stops those who would go on: both are found out by all, who leave after that step. Whatever else goes wrong, members
    /// go on to the last one: the others do not know of it.
    pub(super) fn in_steps(
        self,
        call: &Call,
        cut: Cut,
        expected_bytes: impl Fn(usize) -> u64,
        shown: impl Fn(u64, u64) -> Shown,
        mut take: impl FnMut(u64, u64, usize) -> Result<()>,
    ) -> Result<Option<()>> {
        if call.longest_bytes > cut.max_bytes {
            return self.leave_to_messages(call.name, call.root, call.longest_bytes);
        }
        let steps = Steps::of(call.longest_bytes as usize, cut.blocks, cut.unit_bytes);
        let (offset, len_bytes) = steps.range(0);
        let contents = shown(offset as u64, len_bytes as u64);
        let sources = call.root.filter(|_| contents.is_empty()).map(|root| self.sources(root));
        if call.root.is_some() && steps.count == 1 {
            let Some(mut sources) = sources else { return self.show_and_leave(&contents).map(Some) };
            let step = self.group.next_step();
            let outcome = sources
                .try_for_each(|rank| self.expect(call.name, rank, step, cut.blocks * len_bytes))
                .and_then(|()| take(step, 0, len_bytes));
            return self.leave_reading(step, call.longest_bytes, outcome).map(Some);
        }
        let (step, is_agreed, mut outcome) = self.first_step(call, &contents, expected_bytes)?;
        if outcome.is_ok() {
            outcome = take(step, offset as u64, len_bytes);
        }
        self.finish_first(step, is_agreed);
        for piece in 1..if is_agreed { steps.count } else { 1 } {
            let (offset, len_bytes) = steps.range(piece);
            let contents = shown(offset as u64, len_bytes as u64);
            let step = if call.root.is_none() { self.show_common(&contents, &[])? } else { self.group.next_step() };
            match &sources {
                Some(sources) => sources.clone().try_for_each(|rank| self.await_step(rank, step))?,
                // Who shows to a root, or as one, reads nothing: all are woken at the step's end.
                None if call.root.is_some() => self.write(step, &contents, &[])?,
                None => {}
            }
            if outcome.is_ok() {
                outcome = take(step, offset as u64, len_bytes);
            }
            match call.root {
                None => self.group.finish_common(step),
                Some(_) => self.group.finish_lone(&self.world.engine.borrow(), step, None),
            }
        }
        outcome.map(Some)
    }

    /// Whom a member reads from, where there is a root: from all others at the root, elsewhere from the root.
    fn sources(self, root: usize) -> impl Iterator<Item = usize> + Clone {
        let me = self.me();
        (0..self.size()).filter(move |rank| *rank != me && (me == root || *rank == root))
    }

    /// Shows the first of several steps and waits for all others; it is not finished. Returns its number, whether all members
    /// count the same steps, and what is wrong.
    pub(super) fn first_step(
        self,
        call: &Call,
        contents: &[SendBuf],
        expected_bytes: impl Fn(usize) -> u64,
    ) -> Result<(u64, bool, Result<()>)> {
        let told = [call.own_bytes, call.longest_bytes].map(u64::to_ne_bytes);
        let step = self.group.next_step();
        self.show(step, contents, told.as_flattened())?;
        if let Some(root) = call.root {
            // If the root counts but one step, the others may, too, and show nothing.
            self.await_step(root, step)?;
            let (_, outcome) = self.compare(call, root, step, expected_bytes(root));
            if outcome.is_err() {
                return Ok((step, false, outcome));
            }
        }
        self.await_all(step)?;
        let mut outcome = Ok(());
        let mut is_agreed = true;
        for rank in 0..self.size() {
            let (counts_alike, found) = self.compare(call, rank, step, expected_bytes(rank));
            is_agreed &= counts_alike;
            outcome = outcome.and(found);
        }
        Ok((step, is_agreed, outcome))
    }

    /// A step that says no more than how long the longest block is, or those to or from `root`: if all agree, they go by
    /// messages, which is `None`.
    pub(super) fn leave_to_messages(
        self,
        name: &'static str,
        root: Option<usize>,
        longest_bytes: u64,
    ) -> Result<Option<()>> {
        let call = Call { name, root, own_bytes: longest_bytes, longest_bytes };
        let (step, is_agreed, outcome) = self.first_step(&call, &[], |_| longest_bytes)?;
        self.finish_first(step, is_agreed);
        outcome.map(|()| None)
    }

    /// This member is through with the first of several steps; who leaves after it may not have seen all show it.
    pub(super) fn finish_first(self, step: u64, is_agreed: bool) {
        if is_agreed {
            self.group.finish_common(step);
        } else {
            self.group.finish_lone(&self.world.engine.borrow(), step, None);
        }
    }

    /// The end of a step that only some show and that this member has read. Who counts on several steps, of which this
    /// would be the first, waits for all to show it: after a disagreement this member tells how long it takes a block to be.
    pub(super) fn leave_reading(self, step: u64, block_bytes: u64, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.show(step, &[], [block_bytes; LENGTHS].map(u64::to_ne_bytes).as_flattened())?;
        }
        self.group.finish_lone(&self.world.engine.borrow(), step, None);
        outcome
    }

    /// Compares what a member tells in the first of several steps with what this one means: whether it counts the same
    /// steps, and what is wrong.
    fn compare(self, call: &Call, rank: usize, step: u64, expected_bytes: u64) -> (bool, Result<()>) {
        let Some([brought, longest]) = self.told::<LENGTHS>(rank, step) else {
            // It counts one step.
            return (false, Err(self.shorter(rank, self.group.len_bytes(rank, step), call.name)));
        };
        let counts_alike = longest == call.longest_bytes;
        if !counts_alike {
            (false, Err(self.disagreement(rank, "expects", longest, call.name)))
        } else if brought != expected_bytes {
            (true, Err(self.disagreement(rank, "brings", brought, call.name)))
        } else {
            (true, Ok(()))
        }
    }
}

/// What a member passes.
pub(super) struct Call {
    pub name: &'static str,
    /// The member that all others send to, or receive from.
    pub root: Option<usize>,
    /// Bytes of a block that it brings, and of the longest one that it knows of.
    pub own_bytes: u64,
    pub longest_bytes: u64,
}

/// What is known of all blocks of a call before their length.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// How many a member shows.
    pub blocks: usize,
    /// Pieces of them are multiples of so many bytes.
    pub unit_bytes: usize,
    /// The longest that goes over boards.
    pub max_bytes: u64,
}

impl Cut {
    /// Of bytes that nothing holds together.
    pub fn of(comm: &Comm, blocks: usize) -> Self {
        Self { blocks, unit_bytes: PIECE_UNIT_BYTES, max_bytes: len_max_bytes(comm, blocks) }
    }
}

/// How blocks of one length are cut into steps: each shows a piece of all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Steps {
    block_bytes: usize,
    piece_bytes: usize,
    count: usize,
}

impl Steps {
    /// Of `blocks` blocks of so many bytes, in pieces of whole units; of none it is one empty step.
    fn of(block_bytes: usize, blocks: usize, unit_bytes: usize) -> Self {
        let most = Self::most_bytes(blocks, unit_bytes);
        let even = block_bytes.div_ceil(block_bytes.div_ceil(most).max(1));
        let piece_bytes = even.next_multiple_of(unit_bytes).max(unit_bytes);
        Self { block_bytes, piece_bytes, count: block_bytes.div_ceil(piece_bytes).max(1) }
    }

    /// Longest piece of each of `blocks` blocks; 0 if no unit of all of them fits a step.
    pub const fn most_bytes(blocks: usize, unit_bytes: usize) -> usize {
        (BOARD_STEP_BYTES - LENGTHS * LENGTH_BYTES) / blocks / unit_bytes * unit_bytes
    }

    /// Where a piece begins, and its length, in bytes of each block.
    fn range(&self, piece: usize) -> (usize, usize) {
        let offset = piece * self.piece_bytes;
        (offset, self.piece_bytes.min(self.block_bytes - offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::board::RANKS_MAX;

    #[test]
    fn pieces_cover_the_blocks_and_fit_a_step() {
        for blocks in [1, 2, 3, 7, 31, RANKS_MAX as usize - 1] {
            for unit in [PIECE_UNIT_BYTES, 12] {
                let most = Steps::most_bytes(blocks, unit);
                for block_bytes in [1, 63, 64, most - 1, most, most + 1, 2 * most, 3 * most + 5, 10_000_019] {
                    let steps = Steps::of(block_bytes, blocks, unit);
                    let mut next = 0;
                    for piece in 0..steps.count {
                        let (offset, len_bytes) = steps.range(piece);
                        assert_eq!(offset, next);
                        assert!(
                            offset % unit == 0
                                && len_bytes > 0
                                && blocks * len_bytes + LENGTHS * LENGTH_BYTES <= BOARD_STEP_BYTES
                        );
                        next += len_bytes;
                    }
                    assert_eq!(next, block_bytes);
                    assert_eq!(steps.count, block_bytes.div_ceil(most), "no more steps than need be");
                }
            }
        }
    }
}
