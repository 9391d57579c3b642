//! Collectives between processes of one host, blocking and not: each member shows what it has, all others read it.
//!
//! ```text
//! barrier, allgather(v), alltoall  everyone shows, everyone reads                        1 step
//! allgather(v), alltoall, long     the same by pieces of each block                      1 step per piece
//! the same, longer yet             everyone shows where its blocks lie, and reads the     2 steps
//!                                  others' straight from there (steps::straight)
//! the same of two                  all tell how long, and exchange messages               1 step
//! alltoallv, alltoallw             the same by pieces of all blocks together             1 step per piece
//! broadcast, short                 the root shows, all others read                       1 step
//! broadcast, long                  the same by pieces, of which several are under way    1 step per piece
//! gather                           all but the root show, the root reads                 1 step (per piece)
//! scatter                          the root shows, each other reads its block            1 step (per piece)
//! allreduce, reduce, short         everyone shows, everyone (the root) reduces all       1 step
//! allreduce, reduce, long          everyone shows a piece, each reduces a part of it     2 steps per piece
//!                                  and shows that, everyone (the root) reads the parts
//! the same of two, or where they   each adds its operands to one value in turn, which    1 step per 512 KiB
//! take turns on the processors     everyone (the root) reads (steps::chain)
//! allreduce, longer yet            everyone shows where operands and result lie, reduces  3 steps
//!                                  a part of all operands, and reads all other parts
//! reduce of two, long              as short ones, by pieces                              1 step per piece
//! broadcast, gather, scatter or    all tell how long, and one sends the other a message  1 step
//! reduce of two, longer yet
//! reduce-scatter-block             everyone shows, each reduces its block                1 step (per piece)
//! scan, exscan, short              everyone shows, each reduces those before it          1 step
//! ```
//! Nothing is matched and, but in a chain, nobody runs between two others: where processes outnumber processors each of them
//! runs once per step, whoever comes first. Reductions evaluate operands in the order of ranks, in all members alike.
//!
//! Cost: a step is one line written and one read from each other member, or a copy in and one out.
//!
//! A group has boards from its ninth such call on, if its members have one in common, and others from its ninth non-blocking
//! one; see [`engine::BoardTable`]. What goes this way depends on nothing but what all members know: the call, its size, the
//! settings; where sizes differ from member to member, or may be mistaken by one, what all have been told in the first
//! step.

mod background;
mod blocking;
mod cuts;
mod judgement;
mod one_step;

use collectives::Collective;
use datatype::{Datatype, UserMemory, UserMemoryMut};

pub(super) use self::background::OnBoards;
use self::cuts::blocks::has_room;
use self::cuts::reductions::ELEMENT_MAX_BYTES;
pub(crate) use self::judgement::Judgements;
pub(super) use self::one_step::{Advance, OneStep};
use super::arguments::{Arguments, Blocks, Buffer, Parts, Reduction};
use super::plan::shape;
use crate::communicator::{Comm, Turn};
use crate::error::Result;
use crate::world::World;

/// Largest group.
const RANKS_MAX: u32 = 64;

/// What a call shows in all, if it may go over boards.
#[derive(Clone, Copy)]
pub(super) enum Plan<'a> {
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
    pub fn of(comm: &Comm, arguments: &'a Arguments) -> Option<Plan<'a>> {
        if !comm.may_share() || comm.is_inter() || !(2..=RANKS_MAX).contains(&comm.size()) {
            return None;
        }
        let ranks = comm.size() as usize;
        let is_me = |root: i32| root == comm.rank() as i32;
        let rank_of = |root: i32| usize::try_from(root).ok().filter(|root| *root < ranks);
        // Empty ones, too: messages would leave out who means nothing, and after a mistake members would not be at one step.
        let can_reduce = |data: &Reduction, blocks: usize| {
            (1..=ELEMENT_MAX_BYTES).contains(&data.datatype.size())
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
                    && has_room(ranks - 1, data.datatype.size() as usize) =>
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
        let caller = blocking::Caller { world: self, form: 0 };
        let table = blocking::Table { comm, group, arguments, caller };
        let outcome = table.carry_out(plan).transpose();
        if let Some(outcome) = &outcome {
            self.engine.borrow_mut().count_board_collective();
            comm.judgements().end(outcome.is_err());
        }
        outcome
    }
}

/// A turn at the boards for an operation in the background, if it is one for this way: the same in all members.
pub(super) fn turn_for<'a>(comm: &Comm, arguments: &'a Arguments) -> Option<(Turn, Plan<'a>)> {
    let plan = Plan::of(comm, arguments)?;
    Some((comm.draw_turn()?, plan))
}

/// Why an operation still has a plan at its turn.
pub(super) const ONE_FOR_BOARDS: &str = "what was one for boards at its start is one at its turn";

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
