//! Collectives that run while the program does something else.
//!
//! Each is the operation of the same name on [`Communicator`](crate::Communicator), with the same demands; its request
//! gives back the buffer with the result. All ranks start them in the same order.
//!
//! MPI: §6.12

use mpi_core::collective::Arguments;

use super::Blocks;
use super::plan::{Plan, Planner};
use crate::borrowed::{Borrowed, Loan};
use crate::element::Element;
use crate::error::Result;
use crate::op::Operation;
use crate::scope::{Collecting, Request, Scope, Signal};

/// A collective under way that fills a buffer.
type Filling<'scope, T> = Request<'scope, Collecting<'scope, T>>;

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a barrier, which is over when all ranks have started it.
    ///
    /// # Errors
    /// As [`Communicator::barrier`](crate::Communicator::barrier).
    ///
    /// MPI: §6.12.1 `MPI_Ibarrier`
    pub fn ibarrier(&'scope self) -> Result<Request<'scope, Signal>> {
        self.start("ibarrier", self.planner().barrier().map(|plan| (plan, Signal)))
    }

    /// Starts a broadcast.
    ///
    /// # Errors
    /// As [`Communicator::broadcast`](crate::Communicator::broadcast).
    ///
    /// MPI: §6.12.2 `MPI_Ibcast`
    pub fn ibroadcast<T: Element>(&'scope self, data: &'scope mut [T], root: u32) -> Result<Filling<'scope, T>> {
        self.fill("ibroadcast", data, |planner, data| planner.broadcast(data, root))
    }

    /// Starts a gather.
    ///
    /// # Errors
    /// As [`Communicator::gather`](crate::Communicator::gather).
    ///
    /// MPI: §6.12.3 `MPI_Igather`
    pub fn igather<T: Element>(
        &'scope self,
        data: &'scope [T],
        all: &'scope mut [T],
        root: u32,
    ) -> Result<Filling<'scope, T>> {
        self.fill("igather", all, |planner, all| planner.gather(data, all, root))
    }

    /// Starts a gather of different numbers of elements.
    ///
    /// # Errors
    /// As [`Communicator::gather_v`](crate::Communicator::gather_v).
    ///
    /// MPI: §6.12.3 `MPI_Igatherv`
    pub fn igather_v<T: Element>(
        &'scope self,
        data: &'scope [T],
        all: &'scope mut [T],
        blocks: &Blocks,
        root: u32,
    ) -> Result<Filling<'scope, T>> {
        self.fill("igather_v", all, |planner, all| planner.gather_v(data, all, blocks, root))
    }

    /// Starts a scatter.
    ///
    /// # Errors
    /// As [`Communicator::scatter`](crate::Communicator::scatter).
    ///
    /// MPI: §6.12.4 `MPI_Iscatter`
    pub fn iscatter<T: Element>(
        &'scope self,
        all: &'scope [T],
        data: &'scope mut [T],
        root: u32,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iscatter", data, |planner, data| planner.scatter(all, data, root))
    }

    /// Starts a scatter of different numbers of elements.
    ///
    /// # Errors
    /// As [`Communicator::scatter_v`](crate::Communicator::scatter_v).
    ///
    /// MPI: §6.12.4 `MPI_Iscatterv`
    pub fn iscatter_v<T: Element>(
        &'scope self,
        all: &'scope [T],
        blocks: &Blocks,
        data: &'scope mut [T],
        root: u32,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iscatter_v", data, |planner, data| planner.scatter_v(all, blocks, data, root))
    }

    /// Starts a gather to all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_gather`](crate::Communicator::all_gather).
    ///
    /// MPI: §6.12.5 `MPI_Iallgather`
    pub fn iall_gather<T: Element>(
        &'scope self,
        data: &'scope [T],
        all: &'scope mut [T],
    ) -> Result<Filling<'scope, T>> {
        self.fill("iall_gather", all, |planner, all| planner.all_gather(data, all))
    }

    /// Starts a gather of different numbers of elements to all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_gather_v`](crate::Communicator::all_gather_v).
    ///
    /// MPI: §6.12.5 `MPI_Iallgatherv`
    pub fn iall_gather_v<T: Element>(
        &'scope self,
        data: &'scope [T],
        all: &'scope mut [T],
        blocks: &Blocks,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iall_gather_v", all, |planner, all| planner.all_gather_v(data, all, blocks))
    }

    /// Starts an exchange between all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all`](crate::Communicator::all_to_all).
    ///
    /// MPI: §6.12.6 `MPI_Ialltoall`
    pub fn iall_to_all<T: Element>(
        &'scope self,
        out: &'scope [T],
        into: &'scope mut [T],
    ) -> Result<Filling<'scope, T>> {
        self.fill("iall_to_all", into, |planner, into| planner.all_to_all(out, into))
    }

    /// Starts an exchange of different numbers of elements between all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all_v`](crate::Communicator::all_to_all_v).
    ///
    /// MPI: §6.12.6 `MPI_Ialltoallv`
    pub fn iall_to_all_v<T: Element>(
        &'scope self,
        out: &'scope [T],
        out_blocks: &Blocks,
        into: &'scope mut [T],
        into_blocks: &Blocks,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iall_to_all_v", into, |planner, into| planner.all_to_all_v(out, out_blocks, into, into_blocks))
    }

    /// Starts a reduction to the root.
    ///
    /// # Errors
    /// As [`Communicator::reduce`](crate::Communicator::reduce).
    ///
    /// MPI: §6.12.7 `MPI_Ireduce`
    pub fn ireduce<T: Element>(
        &'scope self,
        data: &'scope [T],
        result: &'scope mut [T],
        op: impl Operation<T>,
        root: u32,
    ) -> Result<Filling<'scope, T>> {
        self.fill("ireduce", result, |planner, result| planner.reduce(data, result, op, root))
    }

    /// Starts a reduction to all ranks.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`](crate::Communicator::all_reduce).
    ///
    /// MPI: §6.12.8 `MPI_Iallreduce`
    pub fn iall_reduce<T: Element>(
        &'scope self,
        data: &'scope [T],
        result: &'scope mut [T],
        op: impl Operation<T>,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iall_reduce", result, |planner, result| planner.all_reduce(data, result, op))
    }

    /// Starts a reduction of which each rank gets a block.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter_block`](crate::Communicator::reduce_scatter_block).
    ///
    /// MPI: §6.12.9 `MPI_Ireduce_scatter_block`
    pub fn ireduce_scatter_block<T: Element>(
        &'scope self,
        data: &'scope [T],
        result: &'scope mut [T],
        op: impl Operation<T>,
    ) -> Result<Filling<'scope, T>> {
        let plan = |planner: Planner<'_>, result| planner.reduce_scatter_block(data, result, op);
        self.fill("ireduce_scatter_block", result, plan)
    }

    /// Starts a reduction over the ranks up to this one.
    ///
    /// # Errors
    /// As [`Communicator::scan`](crate::Communicator::scan).
    ///
    /// MPI: §6.12.11 `MPI_Iscan`
    pub fn iscan<T: Element>(
        &'scope self,
        data: &'scope [T],
        result: &'scope mut [T],
        op: impl Operation<T>,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iscan", result, |planner, result| planner.scan(data, result, op))
    }

    /// Starts a reduction over the ranks below this one.
    ///
    /// # Errors
    /// As [`Communicator::exscan`](crate::Communicator::exscan).
    ///
    /// MPI: §6.12.12 `MPI_Iexscan`
    pub fn iexscan<T: Element>(
        &'scope self,
        data: &'scope [T],
        result: &'scope mut [T],
        op: impl Operation<T>,
    ) -> Result<Filling<'scope, T>> {
        self.fill("iexscan", result, |planner, result| planner.exscan(data, result, op))
    }

    /// Starts what `plan` makes of a buffer that is lent out until it is over.
    fn fill<T: Element>(
        &'scope self,
        call: &'static str,
        buffer: &'scope mut [T],
        plan: impl FnOnce(Planner<'env>, &'scope mut [T]) -> Plan<'scope>,
    ) -> Result<Filling<'scope, T>> {
        let (lent, loan) = Loan::new(buffer, |buffer| plan(self.planner(), buffer));
        self.start(call, lent.map(|lent: Borrowed<'scope, Arguments>| (lent, Collecting(loan))))
    }

    fn planner(&self) -> Planner<'env> {
        Planner(self.communicator())
    }
}
