//! Collectives of one process: nothing is sent, so nothing is planned.

use super::arguments::{Arguments, Reduction};
use super::plan::shape;
use crate::communicator::Comm;

/// Carries the collective out if nobody else takes part and it is no more than a copy; false if it is another, or
/// something is wrong with its arguments: that is left to be found where others are looked at.
#[inline]
pub(super) fn carry_out_alone(comm: &Comm, arguments: &Arguments) -> bool {
    if comm.size() != 1 || comm.is_inter() {
        return false;
    }
    match arguments {
        Arguments::Barrier | Arguments::Bcast { root: 0, .. } => true,
        Arguments::Reduce { root: 0, data }
        | Arguments::Allreduce { data }
        | Arguments::ReduceScatterBlock { data }
        | Arguments::Scan { data } => place_result(data),
        _ => false,
    }
}

/// Puts the result of one operand where it belongs; false if there is no such reduction.
fn place_result(data: &Reduction) -> bool {
    let Reduction { input, result: Some(result), count, datatype, op } = data else { return false };
    if !op.supports(datatype) || !shape(datatype).can_span(u128::from(*count)) {
        return false;
    }
    if let Some(input) = input
        && *count > 0
    {
        result.recv(0, *count, datatype).copy_from(&input.send(0, *count, datatype));
    }
    true
}
