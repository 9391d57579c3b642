//! Buffers for buffered sends: of the process, of a communicator, of a session.
//!
//! MPI: §3.6

use std::ffi::c_void;
use std::sync::Arc;

use mpi_core::point_to_point::{Budget, BufferOwner};
use mpi_core::{Comm, ErrorClass, Request, Result, Session};

use crate::face::{CountOut, Face, Out, OutHandle};

/// `MPI_BUFFER_AUTOMATIC`.
const BUFFER_AUTOMATIC: usize = 2;

pub(crate) fn buffer_attach(face: &Face, buffer: *const u8, size: i64) -> Result<()> {
    face.world().attach_buffer(&BufferOwner::Process, budget(buffer, size))
}

pub(crate) fn buffer_detach(face: &Face, buffer_addr: Out<*mut c_void>, size: CountOut) -> Result<()> {
    hand_back(face.world().detach_buffer(&BufferOwner::Process), &buffer_addr, &size)
}

pub(crate) fn buffer_flush(face: &Face) -> Result<()> {
    face.world().flush_buffer(&BufferOwner::Process);
    Ok(())
}

pub(crate) fn buffer_iflush(face: &Face, request: OutHandle<Request>) -> Result<()> {
    request.set(face, face.world().iflush_buffer(&BufferOwner::Process))
}

pub(crate) fn comm_attach_buffer(face: &Face, comm: &Arc<Comm>, buffer: *const u8, size: i64) -> Result<()> {
    face.world().attach_buffer(&BufferOwner::Comm(Arc::clone(comm)), budget(buffer, size))
}

pub(crate) fn comm_detach_buffer(
    face: &Face,
    comm: &Arc<Comm>,
    buffer_addr: Out<*mut c_void>,
    size: CountOut,
) -> Result<()> {
    hand_back(face.world().detach_buffer(&BufferOwner::Comm(Arc::clone(comm))), &buffer_addr, &size)
}

pub(crate) fn comm_flush_buffer(face: &Face, comm: &Arc<Comm>) -> Result<()> {
    face.world().flush_buffer(&BufferOwner::Comm(Arc::clone(comm)));
    Ok(())
}

pub(crate) fn comm_iflush_buffer(face: &Face, comm: &Arc<Comm>, request: OutHandle<Request>) -> Result<()> {
    request.set(face, face.world().iflush_buffer(&BufferOwner::Comm(Arc::clone(comm))))
}

pub(crate) fn session_attach_buffer(_face: &Face, session: &Arc<Session>, buffer: *const u8, size: i64) -> Result<()> {
    session.attach_buffer(budget(buffer, size))
}

pub(crate) fn session_detach_buffer(
    face: &Face,
    session: &Arc<Session>,
    buffer_addr: Out<*mut c_void>,
    size: CountOut,
) -> Result<()> {
    hand_back(face.world().detach_buffer(&BufferOwner::Session(Arc::clone(session))), &buffer_addr, &size)
}

pub(crate) fn session_flush_buffer(face: &Face, session: &Arc<Session>) -> Result<()> {
    face.world().flush_buffer(&BufferOwner::Session(Arc::clone(session)));
    Ok(())
}

pub(crate) fn session_iflush_buffer(face: &Face, session: &Arc<Session>, request: OutHandle<Request>) -> Result<()> {
    request.set(face, face.world().iflush_buffer(&BufferOwner::Session(Arc::clone(session))))
}

fn budget(buffer: *const u8, size: i64) -> Budget {
    if buffer.addr() == BUFFER_AUTOMATIC {
        return Budget::Automatic;
    }
    Budget::Memory { address: buffer.expose_provenance(), len_bytes: size as u64 }
}

fn hand_back(budget: Option<Budget>, address: &Out<*mut c_void>, size: &CountOut) -> Result<()> {
    let (pointer, len_bytes) = match budget {
        Some(Budget::Memory { address, len_bytes }) => (std::ptr::with_exposed_provenance_mut(address), len_bytes),
        Some(Budget::Automatic) => (std::ptr::without_provenance_mut(BUFFER_AUTOMATIC), 0),
        None => return ErrorClass::Buffer.fail("no buffer is attached"),
    };
    address.set(pointer);
    size.set(len_bytes as i64);
    Ok(())
}
