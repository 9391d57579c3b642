//! Blocking collectives between processes of one host: each member shows what it has, all others read it.
//!
//! ```text
//! barrier, allgather(v), alltoall  everyone shows, everyone reads                        1 step
//! allgather(v), alltoall, long     the same by pieces of each block                      1 step per piece
//! alltoallv, alltoallw             the same by pieces of all blocks together             1 step per piece
//! broadcast, short                 the root shows, all others read                       1 step
//! broadcast, long                  the same by pieces, of which several are under way    1 step per piece
//! gather                           all but the root show, the root reads                 1 step (per piece)
//! scatter                          the root shows, each other reads its block            1 step (per piece)
//! allreduce, reduce, short         everyone shows, everyone (the root) reduces all       1 step
//! allreduce, reduce, long          everyone shows a piece, each reduces a part of it     2 steps per piece
//!                                  and shows that, everyone (the root) reads the parts
//! reduce-scatter-block             everyone shows, each reduces its block                1 step (per piece)
//! scan, exscan, short              everyone shows, each reduces those before it          1 step
//! ```
//! Nothing is matched and nobody runs between two others: where processes outnumber processors each of them runs once
//! per step, whoever comes first. Reductions evaluate operands in the order of ranks, in all members alike.
//!
//! Cost: a step is one line written and one read from each other member, or a copy in and one out.
//!
//! A group has boards from its ninth such call on, if its members have one in common; see
//! [`engine::BoardTable`]. What goes this way depends on nothing but what all members know: the call, its size, the
//! settings; where sizes differ from member to member, or may be mistaken by one, what all have been told in the first
//! step.

mod blocks;
mod broadcast;
mod parts;
mod reduce;
mod rooted;

use collectives::Collective;
use datatype::{Datatype, SendBuf, UserMemory, UserMemoryMut};
use engine::GroupBoard;

use super::arguments::{Arguments, Blocks, Buffer, Parts, Reduction};
use super::plan::shape;
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// Largest group.
const RANKS_MAX: u32 = 64;
/// The length of something that may take several steps, behind what the first of them shows.
const LENGTH_BYTES: usize = 8;

/// Most that one member shows in all where it has something else for each of the others: what is longer is with no cache
/// when it is read.
const TO_EACH_MAX_BYTES: u64 = 4 << 20;

/// What a call shows in all, if it may go over boards.
#[derive(Clone, Copy)]
enum Plan<'a> {
    Barrier,
    Bcast { root: usize, buffer: &'a Buffer<UserMemoryMut> },
    Gather { root: usize, send: Option<&'a Buffer<UserMemory>>, recv: Option<&'a Buffer<UserMemoryMut>> },
    Scatter { root: usize, send: Option<&'a Buffer<UserMemory>>, recv: Option<&'a Buffer<UserMemoryMut>> },
    Reduce { root: Option<usize>, data: &'a Reduction },
    ReduceScatterBlock { data: &'a Reduction },
    Scan { data: &'a Reduction, is_exclusive: bool },
    Allgather { send: Option<&'a Buffer<UserMemory>>, recv: &'a Buffer<UserMemoryMut> },
    Allgatherv { send: Option<&'a Buffer<UserMemory>>, recv: &'a Blocks<UserMemoryMut> },
    Alltoall { send: Option<&'a Buffer<UserMemory>>, recv: &'a Buffer<UserMemoryMut> },
    Alltoallv { send: &'a Blocks<UserMemory>, recv: &'a Blocks<UserMemoryMut> },
    Alltoallw { send: &'a Parts<UserMemory>, recv: &'a Parts<UserMemoryMut> },
}

impl<'a> Plan<'a> {
    /// The plan of a call, if it is one for boards: the same decision in all members.
    #[inline]
    fn of(comm: &Comm, arguments: &'a Arguments) -> Option<Plan<'a>> {
        if !comm.may_share() || comm.is_inter() || !(2..=RANKS_MAX).contains(&comm.size()) {
            return None;
        }
        let ranks = comm.size() as usize;
        let is_me = |root: i32| root == comm.rank() as i32;
        let rank_of = |root: i32| usize::try_from(root).ok().filter(|root| *root < ranks);
        // Empty ones, too: messages would leave out who means nothing, and after a mistake members would not be at one step.
        let can_reduce = |data: &Reduction, blocks: usize| {
            (1..=reduce::ELEMENT_MAX_BYTES).contains(&data.datatype.size())
                && can_reach(data.count, &data.datatype, blocks)
                && data.op.supports(&data.datatype)
        };
        // Where members take turns, messages let those of low ranks run further ahead.
        let can_scan = |data: &Reduction| data.result.is_some() && !comm.is_oversubscribed() && can_reduce(data, 1);
        let (plan, collective) = match arguments {
            Arguments::Barrier => (Plan::Barrier, Collective::Barrier),
            Arguments::Bcast { root, buffer } if can_reach(buffer.count, &buffer.datatype, 1) => {
                (Plan::Bcast { root: rank_of(*root)?, buffer }, Collective::Bcast)
            }
            Arguments::Gather { root, send, recv }
                if match (recv, send) {
                    (Some(recv), _) if is_me(*root) => {
                        can_reach(recv.count, &recv.datatype, ranks)
                            && send.as_ref().is_none_or(|send| can_reach(send.count, &send.datatype, 1))
                    }
                    (_, Some(send)) if !is_me(*root) => can_reach(send.count, &send.datatype, 1),
                    _ => false,
                } =>
            {
                (Plan::Gather { root: rank_of(*root)?, send: send.as_ref(), recv: recv.as_ref() }, Collective::Gather)
            }
            Arguments::Scatter { root, send, recv }
                if match (send, recv) {
                    (Some(send), _) if is_me(*root) => {
                        can_reach(send.count, &send.datatype, ranks)
                            && recv.as_ref().is_none_or(|recv| can_reach(recv.count, &recv.datatype, 1))
                    }
                    (_, Some(recv)) if !is_me(*root) => can_reach(recv.count, &recv.datatype, 1),
                    _ => false,
                } =>
            {
                (Plan::Scatter { root: rank_of(*root)?, send: send.as_ref(), recv: recv.as_ref() }, Collective::Scatter)
            }
            Arguments::Reduce { root, data }
                if (if is_me(*root) { data.result.is_some() } else { data.input.is_some() }) && can_reduce(data, 1) =>
            {
                (Plan::Reduce { root: Some(rank_of(*root)?), data }, Collective::Reduce)
            }
            Arguments::Allreduce { data } if data.result.is_some() && can_reduce(data, 1) => {
                (Plan::Reduce { root: None, data }, Collective::Allreduce)
            }
            Arguments::ReduceScatterBlock { data }
                if data.result.is_some()
                    && can_reduce(data, ranks)
                    && blocks::Steps::most_bytes(ranks - 1, data.datatype.size() as usize) > 0 =>
            {
                (Plan::ReduceScatterBlock { data }, Collective::ReduceScatterBlock)
            }
            Arguments::Scan { data } if can_scan(data) => (Plan::Scan { data, is_exclusive: false }, Collective::Scan),
            Arguments::Exscan { data } if can_scan(data) => {
                (Plan::Scan { data, is_exclusive: true }, Collective::Exscan)
            }
            Arguments::Allgather { send, recv }
                if can_reach(recv.count, &recv.datatype, ranks)
                    && send.as_ref().is_none_or(|send| can_reach(send.count, &send.datatype, 1)) =>
            {
                (Plan::Allgather { send: send.as_ref(), recv }, Collective::Allgather)
            }
            Arguments::Allgatherv { send, recv }
                if can_reach_blocks(recv, ranks)
                    && send.as_ref().is_none_or(|send| can_reach(send.count, &send.datatype, 1)) =>
            {
                (Plan::Allgatherv { send: send.as_ref(), recv }, Collective::Allgatherv)
            }
            Arguments::Alltoall { send, recv }
                if can_reach(recv.count, &recv.datatype, ranks)
                    && send.as_ref().is_none_or(|send| can_reach(send.count, &send.datatype, ranks)) =>
            {
                (Plan::Alltoall { send: send.as_ref(), recv }, Collective::Alltoall)
            }
            // In place, what comes for a later block would be shown as what goes: that is for messages.
            Arguments::Alltoallv { send: Some(send), recv }
                if can_reach_blocks(send, ranks) && can_reach_blocks(recv, ranks) =>
            {
                (Plan::Alltoallv { send, recv }, Collective::Alltoallv)
            }
            Arguments::Alltoallw { send: Some(send), recv }
                if can_reach_parts(send, ranks) && can_reach_parts(recv, ranks) =>
            {
                (Plan::Alltoallw { send, recv }, Collective::Alltoallw)
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
        if let Some(error) = self.lost_among(comm) {
            return Some(Err(error));
        }
        let table = Table { world: self, comm, group };
        let outcome = match plan {
            Plan::Barrier => Some(table.barrier()),
            Plan::Bcast { root, buffer } => table.bcast(root, buffer).transpose(),
            Plan::Gather { root, send, recv } => table.gather(root, send, recv).transpose(),
            Plan::Scatter { root, send, recv } => table.scatter(root, send, recv).transpose(),
            Plan::Reduce { root, data } => Some(table.reduce(root, data)),
            Plan::ReduceScatterBlock { data } => table.reduce_scatter_block(data).transpose(),
            Plan::Scan { data, is_exclusive } => table.scan(data, is_exclusive).transpose(),
            Plan::Allgather { send, recv } => table.allgather(send, recv).transpose(),
            Plan::Allgatherv { send, recv } => table.allgatherv(send, recv).transpose(),
            Plan::Alltoall { send, recv } => table.alltoall(send, recv).transpose(),
            Plan::Alltoallv { send, recv } => table.alltoallv(send, recv).transpose(),
            Plan::Alltoallw { send, recv } => table.alltoallw(send, recv).transpose(),
        };
        if outcome.is_some() {
            self.engine.borrow_mut().count_board_collective();
        }
        outcome
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
        let step = self.show_common(&[], &[])?;
        self.group.finish_common(step);
        Ok(())
    }

    /// A step that all members show; returns its number once they do.
    #[inline]
    fn show_common(self, contents: &[SendBuf], trailer: &[u8]) -> Result<u64> {
        let step = self.group.next_step();
        self.show(step, contents, trailer)?;
        self.await_all(step)?;
        Ok(step)
    }

    /// A step of which this member reads nothing.
    #[inline]
    fn show_and_leave(self, contents: &[SendBuf]) -> Result<()> {
        let step = self.group.next_step();
        self.write(step, contents, &[])?;
        self.group.finish_lone(&self.world.engine.borrow(), step, None);
        Ok(())
    }

    #[inline]
    fn await_all(self, step: u64) -> Result<()> {
        let mut checked = 0;
        self.wait(|| self.group.is_shown_by_all(step, &mut checked))
    }

    fn await_step(self, rank: usize, step: u64) -> Result<()> {
        self.wait(|| self.group.is_shown(rank, step))
    }

    /// Waits for a step of a member, which is to show so many bytes and not to be the first of several.
    #[inline]
    fn expect(self, call: &'static str, rank: usize, step: u64, len_bytes: usize) -> Result<()> {
        if !self.group.is_shown(rank, step) {
            self.await_step(rank, step)?;
        }
        let shown = self.group.len_bytes(rank, step);
        if shown == len_bytes && !self.group.has_trailer(rank, step) {
            Ok(())
        } else {
            Err(self.shorter(rank, shown, call))
        }
    }

    /// Lets `take` read a part of what a member shows.
    #[inline]
    fn read(
        self,
        call: &'static str,
        rank: usize,
        step: u64,
        offset: usize,
        len_bytes: usize,
        take: impl FnOnce(&[u8]),
    ) -> Result<()> {
        let is_there = self.group.read(rank, step, offset, len_bytes, take);
        if is_there { Ok(()) } else { Err(self.shorter(rank, self.group.len_bytes(rank, step), call)) }
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
            world.lost_among(self.comm).map(Err)
        })
    }

    #[inline]
    fn show(self, step: u64, contents: &[SendBuf], trailer: &[u8]) -> Result<()> {
        self.write(step, contents, trailer)?;
        self.group.ring_others(&self.world.engine.borrow());
        Ok(())
    }

    /// Shows something without waking those who wait for it.
    #[inline]
    fn write(self, step: u64, contents: &[SendBuf], trailer: &[u8]) -> Result<()> {
        let len_bytes = contents.iter().map(SendBuf::len_bytes).sum::<u64>() as usize + trailer.len();
        if !self.group.has_room(step, len_bytes) {
            self.wait(|| self.group.has_room(step, len_bytes))?;
        }
        self.group.show(step, contents, trailer);
        Ok(())
    }

    /// The lengths that stand behind what a member shows as `step`; `None` if none do.
    #[inline]
    fn told<const N: usize>(self, rank: usize, step: u64) -> Option<[u64; N]> {
        if !self.group.has_trailer(rank, step) {
            return None;
        }
        let mut told = [[0; LENGTH_BYTES]; N];
        let offset = self.group.len_bytes(rank, step).checked_sub(N * LENGTH_BYTES)?;
        let is_told = self.group.read(rank, step, offset, N * LENGTH_BYTES, |bytes| {
            told.as_flattened_mut().copy_from_slice(bytes);
        });
        is_told.then_some(told.map(u64::from_ne_bytes))
    }

    /// The error of members that do not agree about sizes: one brings so many bytes.
    #[cold]
    fn shorter(self, rank: usize, shown_bytes: usize, call: &str) -> crate::Error {
        self.disagreement(rank, "brings", shown_bytes as u64, call)
    }

    #[cold]
    fn disagreement(self, rank: usize, what: &str, bytes: u64, call: &str) -> crate::Error {
        ErrorClass::Truncate.error(format!(
            "{call} on {}: {} {what} {bytes} bytes, which is not what {} expects; do all ranks pass the same counts and \
             types?",
            self.comm,
            self.comm.describe_rank(rank as u32),
            self.comm.describe_self(),
        ))
    }

    /// The ranks of all other members.
    fn others(self) -> impl Iterator<Item = usize> {
        let me = self.me();
        (0..self.size()).filter(move |rank| *rank != me)
    }

    fn me(self) -> usize {
        self.comm.rank() as usize
    }

    fn size(self) -> usize {
        self.comm.size() as usize
    }
}

/// True if so many blocks of `count` elements each can be addressed. What can not is left to messages, which refuse it.
fn can_reach(count: u64, datatype: &Datatype, blocks: usize) -> bool {
    shape(datatype).can_span(u128::from(count) * blocks as u128)
}

/// True if there is a block for each of `ranks`, and all can be addressed.
fn can_reach_blocks<M>(blocks: &Blocks<M>, ranks: usize) -> bool {
    let are_listed = [blocks.counts.len(), blocks.displacements.len()] == [ranks; 2];
    are_listed && shape(&blocks.datatype).can_span_blocks(&blocks.counts, &blocks.displacements)
}

/// As [`can_reach_blocks`].
fn can_reach_parts<M>(parts: &Parts<M>, ranks: usize) -> bool {
    let are_listed = [parts.counts.len(), parts.displacements_bytes.len(), parts.datatypes.len()] == [ranks; 3];
    are_listed && parts.counts.iter().zip(&parts.datatypes).all(|(count, datatype)| can_reach(*count, datatype, ranks))
}
