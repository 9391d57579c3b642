//! Operations in which all ranks of a communicator take part, in the same order.
//!
//! Slices that matter at the root only may be empty elsewhere.
//!
//! Lengths and roots are checked before anything is sent, and an error then harms nobody but this rank. A collective
//! that fails under way, for instance because ranks disagree about lengths, ends the job with a line that names them.
//!
//! MPI: §6

mod blocks;
mod plan;
mod scoped;

pub use blocks::Blocks;

use crate::communicator::Communicator;
use crate::element::{Element, zeroed};
use crate::error::Result;
use crate::op::Operation;
use plan::{Plan, Planner};

impl Communicator<'_> {
    /// Waits until all ranks have come here.
    ///
    /// # Errors
    /// None that the job survives.
    ///
    /// MPI: §6.3 `MPI_Barrier`
    pub fn barrier(&self) -> Result<()> {
        self.carry_out("barrier", self.plan().barrier())
    }

    /// Copies the root's elements to all ranks.
    ///
    /// # Errors
    /// `Root` for a root that does not exist.
    ///
    /// MPI: §6.4 `MPI_Bcast`
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: u32) -> Result<()> {
        self.carry_out("broadcast", self.plan().broadcast(data, root))
    }

    /// Collects the elements of all ranks at the root, in order of rank: `all.len() == size * data.len()` there.
    ///
    /// # Errors
    /// `Root` for a root that does not exist, `Count` if the lengths do not fit.
    ///
    /// MPI: §6.5 `MPI_Gather`
    pub fn gather<T: Element>(&self, data: &[T], all: &mut [T], root: u32) -> Result<()> {
        self.carry_out("gather", self.plan().gather(data, all, root))
    }

    /// Collects different numbers of elements at the root, where `blocks` says where they go.
    ///
    /// ```
    /// use ferrovia::Blocks;
    /// ferrovia::local::run(3, |universe| {
    ///     let world = universe.world();
    ///     let mine = vec![world.rank(); world.rank() as usize];
    ///     let mut all = [0; 3];
    ///     world.gather_v(&mine, &mut all, &Blocks::adjacent(&[0, 1, 2]), 0).unwrap();
    ///     assert!(world.rank() != 0 || all == [1, 2, 2]);
    /// });
    /// ```
    ///
    /// # Errors
    /// `Root` for a root that does not exist; at the root `Arg` or `Count` for blocks that do not fit.
    ///
    /// MPI: §6.5 `MPI_Gatherv`
    pub fn gather_v<T: Element>(&self, data: &[T], all: &mut [T], blocks: &Blocks, root: u32) -> Result<()> {
        self.carry_out("gather_v", self.plan().gather_v(data, all, blocks, root))
    }

    /// Gives each rank its part of the root's elements: `all.len() == size * data.len()` there.
    ///
    /// # Errors
    /// As [`Communicator::gather`].
    ///
    /// MPI: §6.6 `MPI_Scatter`
    pub fn scatter<T: Element>(&self, all: &[T], data: &mut [T], root: u32) -> Result<()> {
        self.carry_out("scatter", self.plan().scatter(all, data, root))
    }

    /// Gives each rank its block of the root's elements.
    ///
    /// # Errors
    /// As [`Communicator::gather_v`].
    ///
    /// MPI: §6.6 `MPI_Scatterv`
    pub fn scatter_v<T: Element>(&self, all: &[T], blocks: &Blocks, data: &mut [T], root: u32) -> Result<()> {
        self.carry_out("scatter_v", self.plan().scatter_v(all, blocks, data, root))
    }

    /// Collects the elements of all ranks at every rank: `all.len() == size * data.len()`.
    ///
    /// # Errors
    /// `Count` if the lengths do not fit.
    ///
    /// MPI: §6.7 `MPI_Allgather`
    pub fn all_gather<T: Element>(&self, data: &[T], all: &mut [T]) -> Result<()> {
        self.carry_out("all_gather", self.plan().all_gather(data, all))
    }

    /// Collects one element of each rank at every rank.
    ///
    /// # Errors
    /// None that the job survives.
    ///
    /// MPI: §6.7 `MPI_Allgather`
    pub fn all_gather_value<T: Element>(&self, value: T) -> Result<Vec<T>> {
        let mut all = zeroed(self.size() as usize);
        self.all_gather(&[value], &mut all)?;
        Ok(all)
    }

    /// Collects different numbers of elements at every rank.
    ///
    /// # Errors
    /// `Arg` or `Count` for blocks that do not fit.
    ///
    /// MPI: §6.7 `MPI_Allgatherv`
    pub fn all_gather_v<T: Element>(&self, data: &[T], all: &mut [T], blocks: &Blocks) -> Result<()> {
        self.carry_out("all_gather_v", self.plan().all_gather_v(data, all, blocks))
    }

    /// Sends block *r* of `out` to rank *r* and receives its block for this rank: all blocks have `out.len() / size`
    /// elements.
    ///
    /// # Errors
    /// `Count` if the lengths do not fit.
    ///
    /// MPI: §6.8 `MPI_Alltoall`
    pub fn all_to_all<T: Element>(&self, out: &[T], into: &mut [T]) -> Result<()> {
        self.carry_out("all_to_all", self.plan().all_to_all(out, into))
    }

    /// Sends block *r* of `out` to rank *r* and receives its block for this rank.
    ///
    /// # Errors
    /// `Arg` or `Count` for blocks that do not fit.
    ///
    /// MPI: §6.8 `MPI_Alltoallv`
    pub fn all_to_all_v<T: Element>(
        &self,
        out: &[T],
        out_blocks: &Blocks,
        into: &mut [T],
        into_blocks: &Blocks,
    ) -> Result<()> {
        self.carry_out("all_to_all_v", self.plan().all_to_all_v(out, out_blocks, into, into_blocks))
    }

    /// Combines the elements of all ranks, place by place, into `result` at the root.
    ///
    /// # Errors
    /// `Root` for a root that does not exist; at the root `Count` if the lengths differ.
    ///
    /// MPI: §6.9.1 `MPI_Reduce`
    pub fn reduce<T: Element>(&self, data: &[T], result: &mut [T], op: impl Operation<T>, root: u32) -> Result<()> {
        self.carry_out("reduce", self.plan().reduce(data, result, op, root))
    }

    /// Combines the elements of all ranks, place by place, into `result` at every rank.
    ///
    /// # Errors
    /// `Count` if the lengths differ.
    ///
    /// MPI: §6.9.6 `MPI_Allreduce`
    pub fn all_reduce<T: Element>(&self, data: &[T], result: &mut [T], op: impl Operation<T>) -> Result<()> {
        self.carry_out("all_reduce", self.plan().all_reduce(data, result, op))
    }

    /// Combines the elements of all ranks, place by place, and leaves the result in their place.
    ///
    /// # Errors
    /// None that the job survives.
    ///
    /// MPI: §6.9.6 `MPI_Allreduce` with `MPI_IN_PLACE`
    pub fn all_reduce_in_place<T: Element>(&self, data: &mut [T], op: impl Operation<T>) -> Result<()> {
        self.carry_out("all_reduce_in_place", self.plan().all_reduce_in_place(data, op))
    }

    /// Combines one element of each rank.
    ///
    /// # Errors
    /// None that the job survives.
    ///
    /// MPI: §6.9.6 `MPI_Allreduce`
    pub fn all_reduce_value<T: Element>(&self, value: T, op: impl Operation<T>) -> Result<T> {
        let mut data = [value];
        self.all_reduce_in_place(&mut data, op)?;
        Ok(data[0])
    }

    /// Combines the elements of all ranks and gives each its block of the result: `data.len() == size * result.len()`.
    ///
    /// # Errors
    /// `Count` if the lengths do not fit.
    ///
    /// MPI: §6.10.1 `MPI_Reduce_scatter_block`
    pub fn reduce_scatter_block<T: Element>(&self, data: &[T], result: &mut [T], op: impl Operation<T>) -> Result<()> {
        self.carry_out("reduce_scatter_block", self.plan().reduce_scatter_block(data, result, op))
    }

    /// Combines the elements of the ranks up to this one.
    ///
    /// # Errors
    /// `Count` if the lengths differ.
    ///
    /// MPI: §6.11.1 `MPI_Scan`
    pub fn scan<T: Element>(&self, data: &[T], result: &mut [T], op: impl Operation<T>) -> Result<()> {
        self.carry_out("scan", self.plan().scan(data, result, op))
    }

    /// Combines the elements of the ranks below this one; rank 0 keeps what it has in `result`.
    ///
    /// # Errors
    /// `Count` if the lengths differ.
    ///
    /// MPI: §6.11.2 `MPI_Exscan`
    pub fn exscan<T: Element>(&self, data: &[T], result: &mut [T], op: impl Operation<T>) -> Result<()> {
        self.carry_out("exscan", self.plan().exscan(data, result, op))
    }

    fn plan(&self) -> Planner<'_> {
        Planner(self)
    }

    fn carry_out(&self, call: &str, plan: Plan<'_>) -> Result<()> {
        self.shared().collective(call, self.comm(), plan)
    }
}
