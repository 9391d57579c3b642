//! From the user's arguments to a schedule.

use std::sync::Arc;

use collectives::{BuildError, Call, Data, Inter, Part, Schedule, Side, TypeShape, Vector};
use datatype::Datatype;

use super::arguments::{Arguments, Blocks, Buffer, Parts, Reduction};
use crate::communicator::Comm;
use crate::constants::{PROC_NULL, ROOT};
use crate::error::{ErrorClass, Result};

/// Checks the arguments and finds or writes the schedule of this rank.
pub(crate) fn schedule_of(comm: &Comm, arguments: &Arguments) -> Result<Arc<Schedule>> {
    let call = if comm.is_inter() { translate_inter(comm, arguments)? } else { translate(comm, arguments)? };
    comm.schedules().schedule(&call).map_err(build_error)
}

/// The same between two groups.
#[cold]
fn translate_inter(comm: &Comm, arguments: &Arguments) -> Result<Call> {
    let side = match arguments.root() {
        None => Side::Both,
        Some(ROOT) => Side::Root,
        Some(PROC_NULL) => Side::Beside,
        Some(_) => Side::Opposite,
    };
    if side != Side::Beside && arguments.is_in_place(side == Side::Root) {
        return ErrorClass::Buffer.fail(format!("MPI_IN_PLACE is not legal on {comm}, an intercommunicator"));
    }
    let call = match side {
        // Nothing but the root is significant.
        Side::Beside => Call::Barrier(collectives::Barrier),
        _ => translate(comm, arguments)?,
    };
    Ok(Call::Inter(Box::new(Inter { remote_size: comm.peer_count(), side, call })))
}

/// What the schedule depends on: all but memory and the operation itself.
fn translate(comm: &Comm, arguments: &Arguments) -> Result<Call> {
    Ok(match arguments {
        Arguments::Barrier => Call::Barrier(collectives::Barrier),
        Arguments::Bcast { root, buffer } => {
            let root = root_rank(comm, *root)?;
            Call::Bcast(collectives::Bcast { root, data: block(Some(buffer)) })
        }
        Arguments::Gather { root, send, recv } => {
            let root = root_rank(comm, *root)?;
            let (in_place, send, recv) = (send.is_none(), block(send.as_ref()), block(recv.as_ref()));
            Call::Gather(collectives::Gather { root, in_place, send, recv })
        }
        Arguments::Gatherv { root, send, recv } => {
            let root = root_rank(comm, *root)?;
            let (in_place, send, recv) = (send.is_none(), block(send.as_ref()), blocks(recv.as_ref()));
            Call::Gatherv(collectives::Gatherv { root, in_place, send, recv })
        }
        Arguments::Scatter { root, send, recv } => {
            let root = root_rank(comm, *root)?;
            let (in_place, send, recv) = (recv.is_none(), block(send.as_ref()), block(recv.as_ref()));
            Call::Scatter(collectives::Scatter { root, in_place, send, recv })
        }
        Arguments::Scatterv { root, send, recv } => {
            let root = root_rank(comm, *root)?;
            let (in_place, send, recv) = (recv.is_none(), blocks(send.as_ref()), block(recv.as_ref()));
            Call::Scatterv(collectives::Scatterv { root, in_place, send, recv })
        }
        Arguments::Allgather { send, recv } => {
            let (in_place, send, recv) = (send.is_none(), block(send.as_ref()), block(Some(recv)));
            Call::Allgather(collectives::Allgather { in_place, send, recv })
        }
        Arguments::Allgatherv { send, recv } => {
            let (in_place, send, recv) = (send.is_none(), block(send.as_ref()), blocks(Some(recv)));
            Call::Allgatherv(collectives::Allgatherv { in_place, send, recv })
        }
        Arguments::Alltoall { send, recv } => {
            let (in_place, send, recv) = (send.is_none(), block(send.as_ref()), block(Some(recv)));
            Call::Alltoall(collectives::Alltoall { in_place, send, recv })
        }
        Arguments::Alltoallv { send, recv } => {
            let (in_place, send, recv) = (send.is_none(), blocks(send.as_ref()), blocks(Some(recv)));
            Call::Alltoallv(collectives::Alltoallv { in_place, send, recv })
        }
        Arguments::Alltoallw { send, recv } => {
            let (in_place, send, recv) = (send.is_none(), parts(send.as_ref()), parts(Some(recv)));
            Call::Alltoallw(collectives::Alltoallw { in_place, send, recv })
        }
        Arguments::Reduce { root, data } => {
            let root = root_rank(comm, *root)?;
            let (in_place, commutative, data) = reduction(comm, data)?;
            Call::Reduce(collectives::Reduce { root, in_place, commutative, data })
        }
        Arguments::Allreduce { data } => {
            let (in_place, commutative, data) = reduction(comm, data)?;
            Call::Allreduce(collectives::Allreduce { in_place, commutative, data })
        }
        Arguments::ReduceScatter { counts, data } => {
            let (in_place, commutative, data) = reduction(comm, data)?;
            let (counts, shape) = (counts.clone(), data.shape());
            Call::ReduceScatter(collectives::ReduceScatter { in_place, commutative, counts, shape })
        }
        Arguments::ReduceScatterBlock { data } => {
            let (in_place, commutative, data) = reduction(comm, data)?;
            Call::ReduceScatterBlock(collectives::ReduceScatterBlock { in_place, commutative, data })
        }
        Arguments::Scan { data } => {
            let (in_place, commutative, data) = reduction(comm, data)?;
            Call::Scan(collectives::Scan { in_place, commutative, data })
        }
        Arguments::Exscan { data } => {
            let (in_place, commutative, data) = reduction(comm, data)?;
            Call::Exscan(collectives::Exscan { in_place, commutative, data })
        }
        Arguments::NeighborAllgather { send, recv } => {
            let (neighbours, send, recv) = (comm.neighbours()?.clone(), block(Some(send)), block(Some(recv)));
            Call::NeighborAllgather(collectives::NeighborAllgather { neighbours, send, recv })
        }
        Arguments::NeighborAllgatherv { send, recv } => {
            let (neighbours, send, recv) = (comm.neighbours()?.clone(), block(Some(send)), blocks(Some(recv)));
            Call::NeighborAllgatherv(collectives::NeighborAllgatherv { neighbours, send, recv })
        }
        Arguments::NeighborAlltoall { send, recv } => {
            let (neighbours, send, recv) = (comm.neighbours()?.clone(), block(Some(send)), block(Some(recv)));
            Call::NeighborAlltoall(collectives::NeighborAlltoall { neighbours, send, recv })
        }
        Arguments::NeighborAlltoallv { send, recv } => {
            let (neighbours, send, recv) = (comm.neighbours()?.clone(), blocks(Some(send)), blocks(Some(recv)));
            Call::NeighborAlltoallv(collectives::NeighborAlltoallv { neighbours, send, recv })
        }
        Arguments::NeighborAlltoallw { send, recv } => {
            let (neighbours, send, recv) = (comm.neighbours()?.clone(), parts(Some(send)), parts(Some(recv)));
            Call::NeighborAlltoallw(collectives::NeighborAlltoallw { neighbours, send, recv })
        }
    })
}

fn block<M>(buffer: Option<&Buffer<M>>) -> Data {
    buffer.map_or_else(Data::none, |buffer| Data::new(buffer.count, shape(&buffer.datatype)))
}

fn blocks<M>(blocks: Option<&Blocks<M>>) -> Vector {
    blocks.map_or_else(Vector::none, |blocks| {
        Vector::new(blocks.counts.clone(), blocks.displacements.clone(), shape(&blocks.datatype))
    })
}

fn parts<M>(parts: Option<&Parts<M>>) -> Vec<Part> {
    let Some(parts) = parts else { return Vec::new() };
    let measures = parts.counts.iter().zip(&parts.displacements_bytes).zip(&parts.datatypes);
    measures.map(|((count, displacement), datatype)| Part::new(*count, *displacement, datatype.size())).collect()
}

/// `(in place, commutative, data)` of a reduction.
fn reduction(comm: &Comm, data: &Reduction) -> Result<(bool, bool, Data)> {
    if !data.op.supports(&data.datatype) {
        return ErrorClass::Op.fail(format!(
            "{:?} is not defined for {} (reduction on {comm})",
            data.op,
            data.datatype.described()
        ));
    }
    let commutes = data.op.commutes() && !comm.is_reproducible();
    Ok((data.input.is_none(), commutes, Data::new(data.count, shape(&data.datatype))))
}

pub(super) fn shape(datatype: &Datatype) -> TypeShape {
    TypeShape { size_bytes: datatype.size(), extent_bytes: datatype.extent(), contiguous: datatype.is_contiguous() }
}

fn root_rank(comm: &Comm, root: i32) -> Result<u32> {
    if (0..comm.peer_count() as i32).contains(&root) {
        return Ok(root as u32);
    }
    if comm.is_inter() && root == ROOT {
        return Ok(0);
    }
    ErrorClass::Root.fail(format!("root {root} is no rank of {comm}, whose size is {}", comm.peer_count()))
}

fn build_error(error: BuildError) -> crate::Error {
    let class = match error {
        BuildError::RootOutOfRange { .. } => ErrorClass::Root,
        BuildError::TooLarge { .. } => ErrorClass::Count,
        BuildError::RankOutOfRange { .. } => ErrorClass::Intern,
        BuildError::NotBetweenGroups { .. } => ErrorClass::Comm,
        _ => ErrorClass::Arg,
    };
    class.error(error.to_string())
}
