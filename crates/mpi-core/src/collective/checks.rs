//! What one process can see of wrong buffers, before anything is sent.

use super::arguments::{Arguments, Operands};
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};

/// In calls that have a root, only the root's data may stand in place; and data stands in place only if it is said to.
///
/// # Errors
/// `Buffer`
///
/// MPI: §6.2.1, §2.3
#[inline]
pub(super) fn check_buffers(comm: &Comm, arguments: &Arguments) -> Result<()> {
    let has_none = matches!(arguments, Arguments::Barrier);
    if has_none || comm.is_inter() { Ok(()) } else { check_given_buffers(comm, arguments) }
}

fn check_given_buffers(comm: &Comm, arguments: &Arguments) -> Result<()> {
    if let Some(root) = arguments.root().filter(|root| *root != comm.rank() as i32)
        && arguments.is_in_place(false)
    {
        return ErrorClass::Buffer.fail(format!("MPI_IN_PLACE is only for the root, rank {root} of {comm}"));
    }
    match own_data(arguments, comm.rank() as usize).and_then(common_start) {
        Some(from) => ErrorClass::Buffer.fail(format!(
            "what this process gives and what it gets of itself both start at address {from:#x}; is MPI_IN_PLACE meant?"
        )),
        None => Ok(()),
    }
}

/// The address at which both begin, if it is one.
#[inline]
pub(super) fn common_start((from, to): (Option<usize>, Option<usize>)) -> Option<usize> {
    from.filter(|from| to == Some(*from))
}

/// The addresses of the first bytes of what this process gives to itself, or reduces, and of where that goes; of no
/// bytes, none.
#[inline]
fn own_data(arguments: &Arguments, rank: usize) -> Option<(Option<usize>, Option<usize>)> {
    Some(match arguments {
        Arguments::Gather { send: Some(send), recv: Some(recv), .. } => (send.first_byte(0), recv.first_byte(rank)),
        Arguments::Gatherv { send: Some(send), recv: Some(recv), .. } => (send.first_byte(0), recv.first_byte(rank)),
        Arguments::Scatter { send: Some(send), recv: Some(recv), .. } => (send.first_byte(rank), recv.first_byte(0)),
        Arguments::Scatterv { send: Some(send), recv: Some(recv), .. } => (send.first_byte(rank), recv.first_byte(0)),
        Arguments::Allgather { send: Some(send), recv } => (send.first_byte(0), recv.first_byte(rank)),
        Arguments::Allgatherv { send: Some(send), recv } => (send.first_byte(0), recv.first_byte(rank)),
        Arguments::Alltoall { send: Some(send), recv } => (send.first_byte(rank), recv.first_byte(rank)),
        Arguments::Alltoallv { send: Some(send), recv } => (send.first_byte(rank), recv.first_byte(rank)),
        Arguments::Alltoallw { send: Some(send), recv } => (send.first_byte(rank), recv.first_byte(rank)),
        _ => {
            let data = arguments.reduction()?;
            // Reduce_scatter counts the elements of each rank for itself.
            let count =
                if let Arguments::ReduceScatter { counts, .. } = arguments { *counts.get(rank)? } else { data.count };
            Operands { count, ..data.operands()? }.first_bytes()?
        }
    })
}
