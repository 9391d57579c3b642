//! Collective operations over the neighbours of a topology, in their three forms.
//!
//! MPI: §8.6, §8.7, §8.8

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::sync::Arc;

use datatype::Datatype;
use mpi_core::collective::Arguments;
use mpi_core::info::Info;
use mpi_core::{Comm, Request, Result};

use super::coll::{recv_block, recv_blocks, recv_parts, send_block, send_blocks, send_parts};
use crate::face::{Counts, Face, OutHandle};

/// The face refuses `MPI_IN_PLACE` in these calls.
const NOT_IN_PLACE: &str = "neighbourhood collectives are not in place";

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn neighbor_allgather(
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
/// until the request has completed.
pub(crate) unsafe fn ineighbor_allgather(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { allgather_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype) };
    request.set(face, face.world().start_collective(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn neighbor_allgather_init(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { allgather_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
unsafe fn allgather_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) }.expect(NOT_IN_PLACE);
    // SAFETY: as above.
    let recv = unsafe { recv_block(recvbuf, recvcount, recvtype) };
    Arguments::NeighborAllgather { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn neighbor_allgatherv(
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
/// until the request has completed.
pub(crate) unsafe fn ineighbor_allgatherv(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { allgatherv_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype) };
    request.set(face, face.world().start_collective(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn neighbor_allgatherv_init(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { allgatherv_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
unsafe fn allgatherv_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    displs: Counts<'_>,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) }.expect(NOT_IN_PLACE);
    // SAFETY: as above.
    let recv = unsafe { recv_blocks(recvbuf, &recvcounts, &displs, recvtype) };
    Arguments::NeighborAllgatherv { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn neighbor_alltoall(
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
/// until the request has completed.
pub(crate) unsafe fn ineighbor_alltoall(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { alltoall_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype) };
    request.set(face, face.world().start_collective(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn neighbor_alltoall_init(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { alltoall_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
unsafe fn alltoall_arguments(
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_block(sendbuf, sendcount, sendtype) }.expect(NOT_IN_PLACE);
    // SAFETY: as above.
    let recv = unsafe { recv_block(recvbuf, recvcount, recvtype) };
    Arguments::NeighborAlltoall { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn neighbor_alltoallv(
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
/// until the request has completed.
pub(crate) unsafe fn ineighbor_alltoallv(
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
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { alltoallv_arguments(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype) };
    request.set(face, face.world().start_collective(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn neighbor_alltoallv_init(
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
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { alltoallv_arguments(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
unsafe fn alltoallv_arguments(
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
    let send = unsafe { send_blocks(sendbuf, &sendcounts, &sdispls, sendtype) }.expect(NOT_IN_PLACE);
    // SAFETY: as above.
    let recv = unsafe { recv_blocks(recvbuf, &recvcounts, &rdispls, recvtype) };
    Arguments::NeighborAlltoallv { send, recv }
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe.
pub(crate) unsafe fn neighbor_alltoallw(
    face: &Face,
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: &[i64],
    sendtypes: &[Arc<Datatype>],
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: &[i64],
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
/// until the request has completed.
pub(crate) unsafe fn ineighbor_alltoallw(
    face: &Face,
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: &[i64],
    sendtypes: &[Arc<Datatype>],
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: &[i64],
    recvtypes: &[Arc<Datatype>],
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe {
        alltoallw_arguments(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes)
    };
    request.set(face, face.world().start_collective(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn neighbor_alltoallw_init(
    face: &Face,
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: &[i64],
    sendtypes: &[Arc<Datatype>],
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: &[i64],
    recvtypes: &[Arc<Datatype>],
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe {
        alltoallw_arguments(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes)
    };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// until the operation is over.
unsafe fn alltoallw_arguments(
    sendbuf: *const u8,
    sendcounts: Counts<'_>,
    sdispls: &[i64],
    sendtypes: &[Arc<Datatype>],
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    rdispls: &[i64],
    recvtypes: &[Arc<Datatype>],
) -> Arguments {
    // SAFETY: by the contract of the caller.
    let send = unsafe { send_parts(sendbuf, &sendcounts, &Counts::Large(sdispls), sendtypes) }.expect(NOT_IN_PLACE);
    // SAFETY: as above.
    let recv = unsafe { recv_parts(recvbuf, &recvcounts, &Counts::Large(rdispls), recvtypes) };
    Arguments::NeighborAlltoallw { send, recv }
}
