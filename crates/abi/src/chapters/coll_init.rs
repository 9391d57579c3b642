//! Collective operations made once and started any number of times.
//!
//! MPI: §6.13

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::sync::Arc;

use datatype::{Datatype, Op};
use mpi_core::collective::Arguments;
use mpi_core::info::Info;
use mpi_core::{Comm, Request, Result};

use super::coll::{
    allgather_arguments, allgatherv_arguments, allreduce_arguments, alltoall_arguments, alltoallv_arguments,
    alltoallw_arguments, bcast_arguments, exscan_arguments, gather_arguments, gatherv_arguments, reduce_arguments,
    reduce_scatter_arguments, reduce_scatter_block_arguments, scan_arguments, scatter_arguments, scatterv_arguments,
};
use crate::face::{Counts, Face, OutHandle};

pub(crate) fn barrier_init(
    face: &Face,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    request.set(face, face.world().collective_init(comm, Arguments::Barrier)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn bcast_init(
    face: &Face,
    buffer: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { bcast_arguments(buffer, count, datatype, root) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn gather_init(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { gather_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn gatherv_init(
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
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { gatherv_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn scatter_init(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    root: i32,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { scatter_arguments(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn scatterv_init(
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
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments =
        unsafe { scatterv_arguments(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn allgather_init(
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
/// while the request exists.
pub(crate) unsafe fn allgatherv_init(
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
/// while the request exists.
pub(crate) unsafe fn alltoall_init(
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
/// while the request exists.
pub(crate) unsafe fn alltoallv_init(
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
/// while the request exists.
pub(crate) unsafe fn alltoallw_init(
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
/// while the request exists.
pub(crate) unsafe fn reduce_init(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    root: i32,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { reduce_arguments(sendbuf, recvbuf, count, datatype, op, root, comm) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn allreduce_init(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { allreduce_arguments(sendbuf, recvbuf, count, datatype, op) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn reduce_scatter_init(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    recvcounts: Counts<'_>,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { reduce_scatter_arguments(sendbuf, recvbuf, recvcounts, datatype, op) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn reduce_scatter_block_init(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    recvcount: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { reduce_scatter_block_arguments(sendbuf, recvbuf, recvcount, datatype, op) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn scan_init(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { scan_arguments(sendbuf, recvbuf, count, datatype, op) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}

/// # Safety
/// The buffers hold and have room for what the other arguments describe,
/// while the request exists.
pub(crate) unsafe fn exscan_init(
    face: &Face,
    sendbuf: *const u8,
    recvbuf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    op: &Op,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let arguments = unsafe { exscan_arguments(sendbuf, recvbuf, count, datatype, op) };
    request.set(face, face.world().collective_init(comm, arguments)?)
}
