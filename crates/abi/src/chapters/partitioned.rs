//! Partitioned communication.
//!
//! MPI: §4.2

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::sync::Arc;

use datatype::{Datatype, UserMemory, UserMemoryMut};
use mpi_core::info::Info;
use mpi_core::{Comm, ErrorClass, Request, RequestSet, Result};

use crate::face::{Face, Out, OutHandle, Requests};

/// # Safety
/// `buf` holds `partitions` times `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn psend_init(
    face: &Face,
    buf: *const u8,
    partitions: i32,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemory::new(buf) };
    request.set(face, face.world().psend_init(comm, dest, tag, buf, partitions, count as u64, datatype)?)
}

/// # Safety
/// `buf` has room for `partitions` times `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn precv_init(
    face: &Face,
    buf: *mut u8,
    partitions: i32,
    count: i64,
    datatype: &Arc<Datatype>,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    _info: Option<&Arc<Info>>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemoryMut::new(buf) };
    request.set(face, face.world().precv_init(comm, source, tag, buf, partitions, count as u64, datatype)?)
}

pub(crate) fn pready(face: &Face, partition: i32, request: Requests<'_>) -> Result<()> {
    ready(face, [partition], &request)
}

pub(crate) fn pready_range(face: &Face, partition_low: i32, partition_high: i32, request: Requests<'_>) -> Result<()> {
    if partition_low > partition_high {
        let message = format!("partition_low {partition_low} is greater than partition_high {partition_high}");
        return ErrorClass::Arg.fail(message);
    }
    ready(face, partition_low..=partition_high, &request)
}

pub(crate) fn pready_list(face: &Face, length: i32, partitions: &[i32], request: Requests<'_>) -> Result<()> {
    debug_assert_eq!(length as usize, partitions.len());
    ready(face, partitions.iter().copied(), &request)
}

pub(crate) fn parrived(face: &Face, request: Requests<'_>, partition: i32, flag: Out<i32>) -> Result<()> {
    flag.set_flag(face.world().parrived(&request, partition).inspect_err(|_| blame(face, &request))?);
    Ok(())
}

fn ready(face: &Face, partitions: impl IntoIterator<Item = i32>, request: &Requests<'_>) -> Result<()> {
    face.world().pready(request, partitions).inspect_err(|_| blame(face, request))
}

/// Errors are those of the request's communicator.
fn blame(face: &Face, request: &Requests<'_>) {
    let comm = request.with(0, |request| request.comm().cloned()).flatten();
    face.blame(comm.as_ref());
}
