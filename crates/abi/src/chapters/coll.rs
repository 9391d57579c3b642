//! Collective operations that return when they are done.
//!
//! The blocking, non-blocking (`icoll`) and persistent (`coll_init`) forms of a call take the same
//! arguments, gathered once by a function `…_arguments`.
//!
//! MPI: §6

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::sync::Arc;

use datatype::{Datatype, LentSendBuf, Op, RecvBuf, RecvBytes, SendBuf, UserMemory, UserMemoryMut};
use mpi_core::collective::{Arguments, Blocks, Buffer, Operands, Parts, Reduction};
use mpi_core::{Comm, ErrorClass, Result};

use crate::face::{Counts, Face, check, is_in_place};

#[inline(always)]
pub(crate) fn barrier_alone(_face: &Face, comm: &Arc<Comm>) -> Option<()> {
    comm.barrier_alone().then_some(())
}

pub(crate) fn barrier(face: &Face, comm: &Arc<Comm>) -> Result<()> {
    face.world().collective(comm, &Arguments::Barrier)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn bcast(
    face: &Face,
    buffer: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { bcast_arguments(buffer, count, datatype, root) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn bcast_arguments(buffer: *mut u8, count: i64, datatype: &Arc<Datatype>, root: i32) -> Arguments {
    // SAFETY: by the contract of the caller.
    let buffer = unsafe { recv_block(buffer, count, datatype) };
    Arguments::Bcast { root, buffer }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn gather(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { gather_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn gather_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Comm,
) -> Arguments {
    let is_root = check::is_root(root, comm);
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) };
    // SAFETY: as above.
    let recv = is_root.then(|| unsafe { recv_block(recvbuf, recvcount, recvtype) });
    Arguments::Gather { root, send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn gatherv(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { gatherv_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn gatherv_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Comm,
) -> Arguments {
    let is_root = check::is_root(root, comm);
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) };
    // SAFETY: as above.
    let recv = is_root.then(|| unsafe { recv_blocks(recvbuf, &recvcounts, &displs, recvtype) });
    Arguments::Gatherv { root, send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn scatter(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { scatter_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn scatter_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Comm,
) -> Arguments {
    let is_root = check::is_root(root, comm);
    // SAFETY: by the contract of the caller.
    let send = if is_root { unsafe { send_block(sendbuf, sendcount, sendtype) } } else { None };
    // SAFETY: as above.
    let recv = (!is_in_place(recvbuf)).then(|| unsafe { recv_block(recvbuf, recvcount, recvtype) });
    Arguments::Scatter { root, send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn scatterv(
    face: &Face,
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    displs: Counts<'_>,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { scatterv_arguments(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn scatterv_arguments(
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    displs: Counts<'_>,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Comm,
) -> Arguments {
    let is_root = check::is_root(root, comm);
    // SAFETY: by the contract of the caller.
    let send = if is_root { unsafe { send_blocks(sendbuf, &sendcounts, &displs, sendtype) } } else { None };
    // SAFETY: as above.
    let recv = (!is_in_place(recvbuf)).then(|| unsafe { recv_block(recvbuf, recvcount, recvtype) });
    Arguments::Scatterv { root, send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn allgather(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { allgather_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn allgather_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) };
    // SAFETY: as above.
    let recv = unsafe { recv_block(recvbuf, recvcount, recvtype) };
    Arguments::Allgather { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn allgatherv(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { allgatherv_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn allgatherv_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) };
    // SAFETY: as above.
    let recv = unsafe { recv_blocks(recvbuf, &recvcounts, &displs, recvtype) };
    Arguments::Allgatherv { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn alltoall(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { alltoall_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn alltoall_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) };
    // SAFETY: as above.
    let recv = unsafe { recv_block(recvbuf, recvcount, recvtype) };
    Arguments::Alltoall { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn alltoallv(
    face: &Face,
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: Counts<'_>,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: Counts<'_>,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { alltoallv_arguments(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn alltoallv_arguments(
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: Counts<'_>,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: Counts<'_>,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_blocks(sendbuf, &sendcounts, &sdispls, sendtype) };
    // SAFETY: as above.
    let recv = unsafe { recv_blocks(recvbuf, &recvcounts, &rdispls, recvtype) };
    Arguments::Alltoallv { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn alltoallw(
    face: &Face,
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: Counts<'_>,
    sendtypes: &[Arc<Datatype>],
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: Counts<'_>,
    recvtypes: &[Arc<Datatype>],
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe {
        alltoallw_arguments(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes)
    };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn alltoallw_arguments(
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: Counts<'_>,
    sendtypes: &[Arc<Datatype>],
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: Counts<'_>,
    recvtypes: &[Arc<Datatype>],
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_parts(sendbuf, &sendcounts, &sdispls, sendtypes) };
    // SAFETY: as above.
    let recv = unsafe { recv_parts(recvbuf, &recvcounts, &rdispls, recvtypes) };
    Arguments::Alltoallw { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn reduce(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    root: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { reduce_arguments(sendbuf, recvbuf, count, datatype, op, root, comm) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn reduce_arguments(
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    root: i32,
    comm: &Comm,
) -> Arguments {
    let is_root = check::is_root(root, comm);
    // SAFETY: by the contract of the caller.
    let mut data = unsafe { reduction(sendbuf, recvbuf, count, datatype, op) };
    if !is_root {
        data.result = None;
    }
    Arguments::Reduce { root, data }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
#[inline(always)]
pub(crate) unsafe fn allreduce_alone(
    _face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
) -> Option<()> {
    // SAFETY: by our own contract.
    let (input, result) = unsafe { reduction_memory(sendbuf, recvbuf) };
    let operands = Operands { input: input.as_ref(), result: &result, count: count as u64, datatype, op };
    comm.allreduce_alone(&operands).then_some(())
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn allreduce(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { allreduce_arguments(sendbuf, recvbuf, count, datatype, op) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn allreduce_arguments(
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let data = unsafe { reduction(sendbuf, recvbuf, count, datatype, op) };
    Arguments::Allreduce { data }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn reduce_scatter(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { reduce_scatter_arguments(sendbuf, recvbuf, recvcounts, datatype, op) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn reduce_scatter_arguments(
    sendbuf: *const u8,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let data = unsafe { reduction(sendbuf, recvbuf, 0, datatype, op) };
    Arguments::ReduceScatter { counts: lengths(&recvcounts), data }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn reduce_scatter_block(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    recvcount: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { reduce_scatter_block_arguments(sendbuf, recvbuf, recvcount, datatype, op) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn reduce_scatter_block_arguments(
    sendbuf: *const u8,
    recvbuf: *mut u8,
    recvcount: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let data = unsafe { reduction(sendbuf, recvbuf, recvcount, datatype, op) };
    Arguments::ReduceScatterBlock { data }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn scan(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { scan_arguments(sendbuf, recvbuf, count, datatype, op) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn scan_arguments(
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let data = unsafe { reduction(sendbuf, recvbuf, count, datatype, op) };
    Arguments::Scan { data }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn exscan(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { exscan_arguments(sendbuf, recvbuf, count, datatype, op) };
    face.world().collective(comm, &arguments)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
pub(super) unsafe fn exscan_arguments(
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let data = unsafe { reduction(sendbuf, recvbuf, count, datatype, op) };
    Arguments::Exscan { data }
}

/// # Safety
/// Both buffers hold `count` elements of `datatype`.
pub(crate) unsafe fn reduce_local(
    _face: &Face,
    inbuf: *const u8,
    inoutbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Result<()> {
    if !op.supports(datatype) {
        return ErrorClass::Op.fail(format!("{op:?} is not defined for {}", datatype.described()));
    }
    // SAFETY: by the contract of the caller.
    let input = unsafe { SendBuf::new(inbuf, count as u64, datatype) };
    if input.len_bytes() > 0 && inbuf == inoutbuf.cast_const() {
        return ErrorClass::Buffer.fail(format!("inbuf and inoutbuf both start at address {inbuf:p}"));
    }
    // SAFETY: as above; the two do not overlap.
    let mut inout = unsafe { RecvBuf::new(inoutbuf, count as u64, datatype) };
    op.reduce(datatype, &input, &mut inout).map_err(|error| ErrorClass::Op.error(error.to_string()))
}

/// Packed elements, which the operation needs no buffers for that know their datatype.
///
/// # Safety
/// Both buffers hold `count` elements of `datatype`.
#[inline(always)]
pub(crate) unsafe fn reduce_local_at_once(
    _face: &Face,
    inbuf: *const u8,
    inoutbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
) -> Option<()> {
    let op = op.predefined_for(datatype)?;
    if !datatype.is_contiguous() || inbuf.is_null() || inoutbuf.is_null() || inbuf == inoutbuf.cast_const() {
        return None;
    }
    let len_bytes = (count as u64).saturating_mul(datatype.size());
    // SAFETY: by the contract of the caller.
    let input = unsafe { LentSendBuf::bytes(inbuf, len_bytes) };
    // SAFETY: as above; the two do not overlap.
    let mut inout = unsafe { RecvBytes::new(inoutbuf, len_bytes) };
    op.reduce_packed(input.as_contiguous()?, inout.as_mut_slice());
    Some(())
}

/// A send argument; none for `MPI_IN_PLACE`.
///
/// # Safety
/// `buf` holds the elements until the operation is over.
pub(super) unsafe fn send_block(buf: *const u8, count: i64, datatype: &Arc<Datatype>) -> Option<Buffer<UserMemory>> {
    if is_in_place(buf) {
        return None;
    }
    // SAFETY: by the contract of the caller.
    let memory = unsafe { UserMemory::new(buf) };
    Some(Buffer { memory, count: count as u64, datatype: Arc::clone(datatype) })
}

/// A receive argument.
///
/// # Safety
/// `buf` has room for the elements until the operation is over.
pub(super) unsafe fn recv_block(buf: *mut u8, count: i64, datatype: &Arc<Datatype>) -> Buffer<UserMemoryMut> {
    // SAFETY: by the contract of the caller.
    let memory = unsafe { UserMemoryMut::new(buf) };
    Buffer { memory, count: count as u64, datatype: Arc::clone(datatype) }
}

/// A send argument of several blocks; none for `MPI_IN_PLACE`.
///
/// # Safety
/// `buf` holds the blocks until the operation is over.
pub(super) unsafe fn send_blocks(
    buf: *const u8,
    counts: &Counts<'_>,
    displacements: &Counts<'_>,
    datatype: &Arc<Datatype>,
) -> Option<Blocks<UserMemory>> {
    if is_in_place(buf) {
        return None;
    }
    // SAFETY: by the contract of the caller.
    let memory = unsafe { UserMemory::new(buf) };
    let (counts, displacements) = (lengths(counts), displacements.iter().collect());
    Some(Blocks { memory, counts, displacements, datatype: Arc::clone(datatype) })
}

/// A receive argument of several blocks.
///
/// # Safety
/// `buf` has room for the blocks until the operation is over.
pub(super) unsafe fn recv_blocks(
    buf: *mut u8,
    counts: &Counts<'_>,
    displacements: &Counts<'_>,
    datatype: &Arc<Datatype>,
) -> Blocks<UserMemoryMut> {
    // SAFETY: by the contract of the caller.
    let memory = unsafe { UserMemoryMut::new(buf) };
    let (counts, displacements) = (lengths(counts), displacements.iter().collect());
    Blocks { memory, counts, displacements, datatype: Arc::clone(datatype) }
}

/// A send argument of blocks that differ in type; none for `MPI_IN_PLACE`.
///
/// # Safety
/// `buf` holds the blocks until the operation is over.
pub(super) unsafe fn send_parts(
    buf: *const u8,
    counts: &Counts<'_>,
    displacements: &Counts<'_>,
    datatypes: &[Arc<Datatype>],
) -> Option<Parts<UserMemory>> {
    if is_in_place(buf) {
        return None;
    }
    // SAFETY: by the contract of the caller.
    let memory = unsafe { UserMemory::new(buf) };
    let (counts, displacements_bytes) = (lengths(counts), displacements.iter().collect());
    Some(Parts { memory, counts, displacements_bytes, datatypes: datatypes.to_vec() })
}

/// A receive argument of blocks that differ in type.
///
/// # Safety
/// `buf` has room for the blocks until the operation is over.
pub(super) unsafe fn recv_parts(
    buf: *mut u8,
    counts: &Counts<'_>,
    displacements: &Counts<'_>,
    datatypes: &[Arc<Datatype>],
) -> Parts<UserMemoryMut> {
    // SAFETY: by the contract of the caller.
    let memory = unsafe { UserMemoryMut::new(buf) };
    let (counts, displacements_bytes) = (lengths(counts), displacements.iter().collect());
    Parts { memory, counts, displacements_bytes, datatypes: datatypes.to_vec() }
}

/// The arguments of a reduction.
///
/// # Safety
/// The buffers hold and have room for the elements until the operation is over.
unsafe fn reduction(sendbuf: *const u8, recvbuf: *mut u8, count: i64, datatype: &Arc<Datatype>, op: &Op) -> Reduction {
    // SAFETY: by the contract of the caller.
    let (input, result) = unsafe { reduction_memory(sendbuf, recvbuf) };
    Reduction { input, result: Some(result), count: count as u64, datatype: Arc::clone(datatype), op: op.clone() }
}

/// Where the input of a reduction is, none for `MPI_IN_PLACE`, and where its result goes.
///
/// # Safety
/// The buffers hold and have room for the elements until the operation is over.
#[inline]
unsafe fn reduction_memory(sendbuf: *const u8, recvbuf: *mut u8) -> (Option<UserMemory>, UserMemoryMut) {
    // SAFETY: by the contract of the caller.
    let input = (!is_in_place(sendbuf)).then(|| unsafe { UserMemory::new(sendbuf) });
    // SAFETY: as above.
    (input, unsafe { UserMemoryMut::new(recvbuf) })
}

/// Counts, which the face has checked not to be negative.
fn lengths(counts: &Counts<'_>) -> Vec<u64> {
    counts.iter().map(|count| count as u64).collect()
}
