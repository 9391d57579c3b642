//! The steps of collectives over boards.
//!
//! Read twice: for calls that wait where it says `await` ([`super::super::blocking`]), of which nothing is left there, and
//! for those that go on when their process polls ([`super::super::background`]). What happens is the same, in the same order.

pub(super) mod blocks;
mod broadcast;
mod chain;
mod reduce;
mod rooted;
mod straight;
mod streams;

use datatype::SendBuf;
use engine::GroupBoard;

use super::{Caller, boxed, flavoured};
use crate::collective::arguments::Arguments;
use crate::collective::board::Plan;
use crate::collective::board::cuts::LENGTH_BYTES;
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};

/// One call over the boards of its group.
#[derive(Clone, Copy)]
pub(in crate::collective) struct Table<'a> {
    pub comm: &'a Comm,
    pub group: &'a GroupBoard,
    pub arguments: &'a Arguments,
    pub caller: Caller<'a>,
}

#[flavoured]
impl Table<'_> {
    /// Carries a plan out. `None` if messages are to do it, which all members find.
    #[inline]
    pub async fn carry_out(self, plan: Plan<'_>) -> Result<Option<()>> {
        match plan {
            Plan::Barrier => boxed(self.barrier()).await.map(Some),
            Plan::Bcast { root, buffer } => boxed(self.bcast(root, buffer)).await,
            Plan::Gather { root, send, recv } => boxed(self.gather(root, send, recv)).await,
            Plan::Scatter { root, send, recv } => boxed(self.scatter(root, send, recv)).await,
            Plan::Reduce { root, data } => boxed(self.reduce(root, data)).await,
            Plan::ReduceScatterBlock { data } => boxed(self.reduce_scatter_block(data)).await,
            Plan::Scan { data, is_exclusive } => boxed(self.scan(data, is_exclusive)).await,
            Plan::Allgather { send, recv } => boxed(self.allgather(send, recv)).await,
            Plan::Allgatherv { send, recv } => boxed(self.allgatherv(send, recv)).await,
            Plan::Alltoall { send, recv } => boxed(self.alltoall(send, recv)).await,
            Plan::Alltoallv { send, recv } => boxed(self.alltoallv(send, recv)).await,
            Plan::Alltoallw { send, recv } => boxed(self.alltoallw(send, recv)).await,
        }
    }

    async fn barrier(self) -> Result<()> {
        let step = self.show_common(&[], &[]).await?;
        self.group.finish_common(step);
        Ok(())
    }

    /// A step that all members show; returns its number once they do.
    #[inline]
    async fn show_common(self, contents: &[SendBuf], trailer: &[u8]) -> Result<u64> {
        let step = self.group.next_step();
        self.show(step, contents, trailer).await?;
        self.await_all(step).await?;
        Ok(step)
    }

    /// A step of which this member reads nothing.
    #[inline]
    async fn show_and_leave(self, contents: &[SendBuf]) -> Result<()> {
        let step = self.group.next_step();
        self.write(step, contents, &[]).await?;
        self.finish_lone(step, None).await;
        Ok(())
    }

    #[inline]
    async fn await_all(self, step: u64) -> Result<()> {
        let mut checked = 0;
        self.group.note_wait();
        if self.group.is_shown_by_all(step, &mut checked) {
            return Ok(());
        }
        self.wait_for_shown(|| self.group.is_shown_by_all(step, &mut checked)).await
    }

    async fn await_step(self, rank: usize, step: u64) -> Result<()> {
        self.group.note_wait();
        self.wait_for_shown(|| self.group.is_shown(rank, step)).await
    }

    /// Waits for what other members show, and readies what this one will show next.
    #[inline]
    async fn wait_for_shown(self, mut is_shown: impl FnMut() -> bool) -> Result<()> {
        let look = || {
            let is_shown = is_shown();
            if !is_shown {
                self.group.ready();
            }
            is_shown
        };
        self.wait(look).await
    }

    /// Waits for other members.
    ///
    /// # Errors
    /// If one of them is lost, which shows nothing any more.
    #[inline]
    async fn wait(self, is_reached: impl FnMut() -> bool) -> Result<()> {
        self.caller.wait(self.comm, is_reached).await
    }

    /// Waits for a step of a member, which is to show so many bytes and not to be the first of several.
    #[inline]
    async fn expect(self, rank: usize, step: u64, len_bytes: usize) -> Result<()> {
        if !self.group.is_shown(rank, step) {
            self.await_step(rank, step).await?;
        }
        let shown = self.group.len_bytes(rank, step);
        if shown == len_bytes && !self.group.has_trailer(rank, step) { Ok(()) } else { Err(self.shorter(rank, shown)) }
    }

    /// The same of each of `ranks`.
    #[inline]
    async fn expect_all(self, ranks: impl Iterator<Item = usize>, step: u64, len_bytes: u64) -> Result<()> {
        for rank in ranks {
            self.expect(rank, step, len_bytes as usize).await?;
        }
        Ok(())
    }

    /// Lets `take` read a part of what a member shows.
    #[inline]
    fn read(self, rank: usize, step: u64, offset: usize, len_bytes: usize, take: impl FnOnce(&[u8])) -> Result<()> {
        let is_there = self.group.read(rank, step, offset, len_bytes, take);
        if is_there { Ok(()) } else { Err(self.shorter(rank, self.group.len_bytes(rank, step))) }
    }

    #[inline]
    pub async fn show(self, step: u64, contents: &[SendBuf], trailer: &[u8]) -> Result<()> {
        self.write(step, contents, trailer).await?;
        self.caller.ring(self.group, None).await;
        Ok(())
    }

    /// Shows something without waking those who wait for it.
    #[inline]
    async fn write(self, step: u64, contents: &[SendBuf], trailer: &[u8]) -> Result<()> {
        let len_bytes = contents.iter().map(SendBuf::len_bytes).sum::<u64>() as usize + trailer.len();
        if !self.group.has_room(step, len_bytes) {
            self.wait(|| self.group.has_room(step, len_bytes)).await?;
        }
        self.group.show(step, contents, trailer);
        Ok(())
    }

    /// This member is through with `step`, which not all showed: some may wait to hear that, or `only` the member of that
    /// rank.
    #[inline]
    async fn finish_lone(self, step: u64, only: Option<usize>) {
        self.group.finish(step);
        self.caller.ring(self.group, only).await;
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
    fn shorter(self, rank: usize, shown_bytes: usize) -> crate::Error {
        self.disagreement(rank, "brings", shown_bytes as u64)
    }

    #[cold]
    fn disagreement(self, rank: usize, what: &str, bytes: u64) -> crate::Error {
        ErrorClass::Truncate.error(format!(
            "{} on {}: {} {what} {bytes} bytes, which is not what {} expects; do all ranks pass the same counts and \
             types?",
            self.caller.name_of(self.arguments),
            self.comm,
            self.comm.describe_rank(rank as u32),
            self.comm.describe_self(),
        ))
    }

    /// The ranks of all other members.
    pub fn others(self) -> impl Iterator<Item = usize> {
        let me = self.me();
        (0..self.size()).filter(move |rank| *rank != me)
    }

    pub fn me(self) -> usize {
        self.comm.rank() as usize
    }

    fn size(self) -> usize {
        self.comm.size() as usize
    }
}
