//! A block from each to the root, or from the root to each: who sends shows, who receives reads.
//!
//! What fits a step is one, in which nobody waits but for what it reads, and for room. More begins with a step that all
//! show, so that all know how many there are, or that messages are to do it.

use datatype::{SendBuf, UserMemory, UserMemoryMut};
use smallvec::SmallVec;

use super::blocks::{Call, LENGTHS, PIECE_UNIT_BYTES, Shown, Steps};
use super::{Table, blocks};
use crate::collective::arguments::Buffer;
use crate::communicator::Comm;
use crate::error::Result;

/// Longest block of a scatter where members do not all run at once: of a longer one two copies cost more than the turns.
const SCATTER_MAX_BYTES: u64 = 128 << 10;

/// Longest block of a scatter.
fn scatter_max_bytes(comm: &Comm) -> u64 {
    blocks::len_max_bytes(comm, comm.size() as usize - 1).min(SCATTER_MAX_BYTES)
}

impl Table<'_> {
    /// `recv` is there at the root, `send` at all others; without it, the root's block stands in its place. `None` if
    /// messages are to do it.
    pub(super) fn gather(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<Option<()>> {
        let recv = recv.filter(|_| root == self.me());
        let block_bytes = recv.map(len_bytes).or_else(|| send.map(len_bytes)).unwrap_or(0);
        if block_bytes > blocks::len_max_bytes(self.comm, 1) {
            return self.leave_to_messages("MPI_Gather", Some(root), block_bytes);
        }
        self.gather_blocks(root, send, recv).map(Some)
    }

    fn gather_blocks(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<()> {
        const NAME: &str = "MPI_Gather";
        let own = send.map(|send| send.memory.send(0, send.count, &send.datatype));
        let Some(Buffer { memory, count, datatype }) = recv else {
            let own = own.unwrap_or_else(SendBuf::empty);
            let steps = Steps::of(own.len_bytes() as usize, 1, PIECE_UNIT_BYTES);
            if steps.count == 1 {
                return self.show_and_leave(&[own]);
            }
            let bytes = own.len_bytes();
            let call = Call { name: NAME, root: Some(root), own_bytes: bytes, longest_bytes: bytes };
            let shown = |offset, len_bytes| SmallVec::from_iter([own.slice(offset, len_bytes)]);
            return self.in_steps(&call, steps, |_| bytes, shown, |_, _, _| Ok(()));
        };
        let block = |rank: usize| memory.recv(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let block_bytes = count * datatype.size();
        let own_bytes = own.as_ref().map_or(block_bytes, SendBuf::len_bytes);
        let steps = Steps::of(block_bytes as usize, 1, PIECE_UNIT_BYTES);
        let take = |rank: usize, step, offset, len_bytes| {
            self.read(NAME, rank, step, 0, len_bytes, |bytes| {
                block(rank).unpack_at(offset, bytes);
            })
        };
        let mut outcome = Ok(());
        if steps.count == 1 {
            let step = self.group.next_step();
            let len_bytes = block_bytes as usize;
            for rank in self.others() {
                let taken = self.expect(NAME, rank, step, len_bytes).and_then(|()| take(rank, step, 0, len_bytes));
                outcome = outcome.and(taken);
            }
            outcome = self.leave_reading(step, block_bytes, outcome);
        } else {
            let call = Call { name: NAME, root: Some(root), own_bytes, longest_bytes: block_bytes };
            outcome = self.in_steps(
                &call,
                steps,
                |_| block_bytes,
                |_, _| Shown::new(),
                |step, offset, len_bytes| {
                    self.others().try_for_each(|rank| {
                        self.await_step(rank, step)?;
                        take(rank, step, offset, len_bytes)
                    })
                },
            );
        }
        let Some(own) = own else { return outcome };
        if own_bytes != block_bytes {
            return outcome.and(Err(self.shorter(root, own_bytes as usize, NAME)));
        }
        block(root).copy_from(&own);
        outcome
    }

    /// `send` is there at the root, `recv` at all others; without it, the root's block stays where it is. `None` if messages
    /// are to do it.
    pub(super) fn scatter(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<Option<()>> {
        let send = send.filter(|_| root == self.me());
        let block_bytes = send.map(len_bytes).or_else(|| recv.map(len_bytes)).unwrap_or(0);
        if block_bytes > scatter_max_bytes(self.comm) {
            return self.leave_to_messages("MPI_Scatter", Some(root), block_bytes);
        }
        self.scatter_blocks(root, send, recv).map(Some)
    }

    fn scatter_blocks(
        self,
        root: usize,
        send: Option<&Buffer<UserMemory>>,
        recv: Option<&Buffer<UserMemoryMut>>,
    ) -> Result<()> {
        const NAME: &str = "MPI_Scatter";
        let mut own = recv.map(|recv| recv.memory.recv(0, recv.count, &recv.datatype));
        let blocks = self.size() - 1;
        let Some(Buffer { memory, count, datatype }) = send else {
            let Some(own) = &mut own else { return Ok(()) };
            let bytes = own.len_bytes();
            let steps = Steps::of(bytes as usize, blocks, PIECE_UNIT_BYTES);
            let before = self.place_at(root);
            let mut take = |step, offset, len_bytes| {
                self.read(NAME, root, step, before * len_bytes, len_bytes, |bytes| {
                    own.unpack_at(offset, bytes);
                })
            };
            if steps.count == 1 {
                let step = self.group.next_step();
                let len_bytes = bytes as usize;
                let outcome = self.expect(NAME, root, step, blocks * len_bytes).and_then(|()| take(step, 0, len_bytes));
                return self.leave_reading(step, bytes, outcome);
            }
            let call = Call { name: NAME, root: Some(root), own_bytes: bytes, longest_bytes: bytes };
            return self.in_steps(
                &call,
                steps,
                |_| bytes,
                |_, _| Shown::new(),
                |step, offset, len_bytes| {
                    self.await_step(root, step)?;
                    take(step, offset, len_bytes)
                },
            );
        };
        let block = |rank: usize| memory.send(rank as i64 * *count as i64 * datatype.extent(), *count, datatype);
        let block_bytes = count * datatype.size();
        let steps = Steps::of(block_bytes as usize, blocks, PIECE_UNIT_BYTES);
        let shown =
            |offset, len_bytes| -> Shown { self.others().map(|rank| block(rank).slice(offset, len_bytes)).collect() };
        let outcome = if steps.count == 1 {
            self.show_and_leave(&shown(0, block_bytes))
        } else {
            let call = Call { name: NAME, root: Some(root), own_bytes: block_bytes, longest_bytes: block_bytes };
            self.in_steps(&call, steps, |_| block_bytes, shown, |_, _, _| Ok(()))
        };
        let Some(own) = &mut own else { return outcome };
        if own.len_bytes() != block_bytes {
            return outcome.and(Err(self.shorter(root, block_bytes as usize, NAME)));
        }
        own.copy_from(&block(root));
        outcome
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
}

/// Bytes of a block of data.
fn len_bytes<M>(buffer: &Buffer<M>) -> u64 {
    buffer.count * buffer.datatype.size()
}
