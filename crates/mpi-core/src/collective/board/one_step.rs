//! Operations in the background that take one step: most of them, and those of which programs time every instruction.
//!
//! ```text
//! who shows                  room ──► show                                   over
//! who reads                           is shown ──► read                      over
//! who does both   room ──► show ──►   is shown by all ──► read               over
//! ```
//! What a member waits for is one look at memory. Between two looks nothing is kept but what is looked for, so there is no
//! future to be made, moved and polled; and what need not wait is over when it is started. What follows a look is done by
//! the steps of calls that wait, which find there that they need not.
//!
//! Who reads looks first whether what is shown is what it expects. If it is not, nothing has happened here yet, and the
//! operation is left to the steps that may wait in the midst ([`OnBoards`](super::OnBoards)).

use datatype::{SendBuf, UserMemory, UserMemoryMut};
use engine::GroupBoard;

use super::Plan;
use super::blocking::{Brought, Caller, Shown, Table, outgoing};
use super::cuts::LENGTH_BYTES;
use super::cuts::blocks::{Cut, LENGTHS, To};
use super::cuts::broadcast::ONE_STEP_MAX_BYTES;
use super::cuts::reductions::is_brief;
use crate::collective::arguments::{Arguments, Buffer};
use crate::communicator::Comm;
use crate::error::Result;
use crate::world::World;

/// An operation of one step at its turn, as one member takes part in it.
pub(in crate::collective) struct OneStep {
    /// Bytes that a member shows.
    len_bytes: usize,
    part: Part,
}

#[derive(Clone, Copy)]
enum Part {
    /// Others read.
    Show,
    /// What the member of this rank shows.
    Read(usize),
    /// What all others show; those below `checked` do already.
    ReadAll { checked: usize },
    /// All show, and all read: before this member has shown its own.
    ShowAndRead,
    /// And then. Those below `checked` show `step` already.
    Shown { step: u64, checked: usize },
}

/// What an operation came to.
pub(in crate::collective) enum Advance {
    /// It waits for others.
    Pending,
    Over(Result<()>),
    /// Others show something else than what it is about, and it has not begun: it takes all steps that may follow.
    Otherwise,
}

impl OneStep {
    /// The part of this member in an operation, if it is one of these.
    #[inline]
    pub fn of(comm: &Comm, plan: Plan<'_>) -> Option<OneStep> {
        let me = comm.rank() as usize;
        let (len_bytes, part) = match plan {
            Plan::Barrier => (0, Part::ShowAndRead),
            Plan::Bcast { root, buffer } => {
                let len_bytes = buffer.count * buffer.datatype.size();
                let part = if root == me { Part::Show } else { Part::Read(root) };
                (Some(len_bytes).filter(|bytes| *bytes <= ONE_STEP_MAX_BYTES)?, part)
            }
            Plan::Reduce { root, data } => {
                let len_bytes = data.count * data.datatype.size();
                let part = match root {
                    None => Part::ShowAndRead,
                    Some(root) if root == me => Part::ReadAll { checked: 0 },
                    Some(_) => Part::Show,
                };
                (Some(len_bytes).filter(|bytes| is_brief(comm, *bytes, root.is_some()))?, part)
            }
            Plan::Gather { root, send, recv } => {
                let block_bytes = if root == me { recv?.block_bytes() } else { send?.block_bytes() };
                let part = if root == me { Part::ReadAll { checked: 0 } } else { Part::Show };
                (Cut::to_root(comm).takes_one_step(block_bytes).then_some(block_bytes)?, part)
            }
            Plan::Scatter { root, send, recv } => {
                let block_bytes = if root == me { send?.block_bytes() } else { recv?.block_bytes() };
                let part = if root == me { Part::Show } else { Part::Read(root) };
                let is_one = Cut::from_root(comm).takes_one_step(block_bytes);
                (is_one.then_some(block_bytes * u64::from(comm.size() - 1))?, part)
            }
            Plan::Allgather { send, recv } => (all_at_once(comm, 1, send, recv)?, Part::ShowAndRead),
            Plan::Alltoall { send, recv } => {
                (all_at_once(comm, comm.size() as usize - 1, send, recv)?, Part::ShowAndRead)
            }
            _ => return None,
        };
        Some(OneStep { len_bytes: len_bytes as usize, part })
    }

    /// Does what can be done now; `plan` gives that of the operation.
    #[inline]
    pub fn advance<'a>(
        &mut self,
        world: &World,
        comm: &Comm,
        group: &GroupBoard,
        arguments: &'a Arguments,
        plan: impl FnOnce() -> Plan<'a>,
    ) -> Advance {
        let upcoming = group.upcoming_step();
        let is_ready = match &mut self.part {
            Part::Show | Part::ShowAndRead => group.has_room(upcoming, self.len_bytes),
            Part::Read(root) => group.is_shown(*root, upcoming),
            Part::ReadAll { checked } => group.is_shown_by_others(upcoming, checked),
            Part::Shown { step, checked } => group.is_shown_by_all(*step, checked),
        };
        if !is_ready {
            group.note_wait();
            return Advance::Pending;
        }
        if !self.meets_what_it_expects(comm, group, upcoming) {
            return Advance::Otherwise;
        }
        let table = Table { comm, group, arguments, caller: Caller { world, form: 1 } };
        let outcome = match self.part {
            Part::Show | Part::Read(_) | Part::ReadAll { .. } => table.carry_out(plan()).map(|_| ()),
            Part::ShowAndRead => {
                let plan = plan();
                let mut checked = 0;
                match table.show_for_all(plan) {
                    Ok(step) if group.is_shown_by_all(step, &mut checked) => table.read_of_all(plan, step),
                    Ok(step) => {
                        group.note_wait();
                        self.part = Part::Shown { step, checked };
                        return Advance::Pending;
                    }
                    Err(error) => Err(error),
                }
            }
            Part::Shown { step, .. } => table.read_of_all(plan(), step),
        };
        world.engine.borrow_mut().count_board_collective();
        Advance::Over(outcome)
    }

    /// False if this member only reads and something else than it expects is shown as `step`: another length, or the first of
    /// several steps.
    #[inline]
    fn meets_what_it_expects(&self, comm: &Comm, group: &GroupBoard, step: u64) -> bool {
        let is_expected = |rank| group.len_bytes(rank, step) == self.len_bytes && !group.has_trailer(rank, step);
        match self.part {
            Part::Read(root) => is_expected(root),
            Part::ReadAll { .. } => {
                let me = comm.rank() as usize;
                (0..comm.size() as usize).all(|rank| rank == me || is_expected(rank))
            }
            Part::Show | Part::ShowAndRead | Part::Shown { .. } => true,
        }
    }
}

/// Bytes that a member shows of so many blocks, with what it tells of them; `None` if they take several steps.
fn all_at_once(comm: &Comm, blocks: usize, send: Outgoing<'_>, recv: &Buffer<UserMemoryMut>) -> Option<u64> {
    let block_bytes = recv.block_bytes();
    let is_alike = send.is_none_or(|send| send.block_bytes() == block_bytes);
    let is_one = is_alike && Cut::of(comm, blocks).takes_one_step(block_bytes);
    is_one.then_some(block_bytes * blocks as u64 + (LENGTHS * LENGTH_BYTES) as u64)
}

impl Table<'_> {
    /// Shows what this member has for a step in which all show and all read; there is room for it.
    fn show_for_all(self, plan: Plan<'_>) -> Result<u64> {
        let step = self.group.next_step();
        match plan {
            Plan::Reduce { data, .. } => self.show(step, &[data.elements(0, data.count)], &[])?,
            Plan::Allgather { send, recv } => self.show_blocks(To::All, send, recv, step)?,
            Plan::Alltoall { send, recv } => self.show_blocks(To::Each, send, recv, step)?,
            _ => self.show(step, &[], &[])?,
        }
        Ok(step)
    }

    /// Reads what all show in such a step.
    fn read_of_all(self, plan: Plan<'_>, step: u64) -> Result<()> {
        match plan {
            Plan::Reduce { data, .. } => self.reduce_shown(step, data),
            Plan::Allgather { send, recv } => self.take_blocks(To::All, send, recv, step),
            Plan::Alltoall { send, recv } => self.take_blocks(To::Each, send, recv, step),
            _ => {
                self.group.finish_common(step);
                Ok(())
            }
        }
    }

    /// Shows the blocks of this member, and tells how long they are.
    fn show_blocks(self, to: To, send: Outgoing<'_>, recv: &Buffer<UserMemoryMut>, step: u64) -> Result<()> {
        let own = self.own_block(to, send, recv);
        let told = brought(&own, recv).told().map(u64::to_ne_bytes);
        let contents: Shown = match to {
            To::All => std::iter::once(own).collect(),
            To::Each => self.others().map(|rank| outgoing(send, recv, rank)).collect(),
        };
        self.show(step, &contents, told.as_flattened())
    }

    /// Takes the blocks that all others show, if all mean the same lengths, and this member's own.
    fn take_blocks(self, to: To, send: Outgoing<'_>, recv: &Buffer<UserMemoryMut>, step: u64) -> Result<()> {
        let own = self.own_block(to, send, recv);
        let block_bytes = recv.block_bytes();
        let (is_agreed, mut outcome) = self.compare_all(&brought(&own, recv), step, |_| block_bytes)?;
        if outcome.is_ok() {
            outcome = self.take_pieces(recv, to, step, 0, block_bytes as usize);
        }
        self.finish_first(step, is_agreed);
        if outcome.is_ok() && send.is_some() {
            recv.block(self.me()).copy_from(&own);
        }
        outcome
    }

    /// The block of this member that it keeps.
    fn own_block(self, to: To, send: Outgoing<'_>, recv: &Buffer<UserMemoryMut>) -> SendBuf {
        match (to, send) {
            (To::All, Some(send)) => send.block(0),
            _ => outgoing(send, recv, self.me()),
        }
    }
}

/// What goes out; `None` in place.
type Outgoing<'a> = Option<&'a Buffer<UserMemory>>;

/// What a member passes that brings blocks as long as `own` and takes those of `recv`.
fn brought(own: &SendBuf, recv: &Buffer<UserMemoryMut>) -> Brought {
    Brought::new(None, own.len_bytes(), recv.block_bytes())
}
