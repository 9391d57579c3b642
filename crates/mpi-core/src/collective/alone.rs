//! Collectives of one process: nothing is sent, so nothing is planned.

use super::arguments::{Arguments, Operands};
use super::checks::common_start;
use super::plan::shape;
use crate::communicator::{Comm, Sequence};

/// Carries the collective out if nobody else takes part and it is no more than a copy; false if it is another, or
/// something is wrong with its arguments: that is left to be found where others are looked at.
#[inline]
pub(super) fn carry_out_alone(comm: &Comm, arguments: &Arguments) -> bool {
    if !comm.is_alone() {
        return false;
    }
    match arguments {
        Arguments::Barrier | Arguments::Bcast { root: 0, .. } => comm.barrier_alone(),
        Arguments::Reduce { root: 0, data }
        | Arguments::Allreduce { data }
        | Arguments::ReduceScatterBlock { data }
        | Arguments::Scan { data } => data.operands().is_some_and(|operands| comm.allreduce_alone(&operands)),
        _ => false,
    }
}

impl Comm {
    /// Carries out a barrier if this process is alone here; else false.
    ///
    /// MPI: §6.3 `MPI_Barrier`
    #[inline]
    pub fn barrier_alone(&self) -> bool {
        if self.is_alone() {
            // It counts as those with others do.
            self.next_collective_tag(Sequence::Blocking);
        }
        self.is_alone()
    }

    /// Carries out a reduction whose result is its only operand if this process is alone here; else, or if something is
    /// wrong with the operands, false.
    ///
    /// MPI: §6.9.6 `MPI_Allreduce`
    #[inline(always)]
    pub fn allreduce_alone(&self, operands: &Operands<'_>) -> bool {
        self.is_alone() && place_result(operands) && self.barrier_alone()
    }
}

/// Puts the result of one operand where it belongs; false if there is no such reduction.
#[inline(always)]
fn place_result(operands: &Operands<'_>) -> bool {
    let Operands { input, result, count, datatype, op } = *operands;
    let is_right = op.supports(datatype)
        && shape(datatype).can_span(u128::from(count))
        && operands.first_bytes().and_then(common_start).is_none();
    if let Some(input) = input
        && count > 0
        && is_right
    {
        result.copy_from(input, count, datatype);
    }
    is_right
}
