//! The beginning and the end of MPI in a process.
//!
//! MPI: §11.2, §11.6, §9.7

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use base::ending::Words;
use mpi_core::{Comm, ErrorClass, Result, ThreadLevel};

use crate::constants::{MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE};
use crate::face::entry::announce_panics;
use crate::face::{Face, Out};

pub(crate) fn init(face: &Face, _argc: *mut c_int, _argv: *mut *mut *mut c_char) -> Result<()> {
    initialize(face, ThreadLevel::Single)
}

pub(crate) fn init_thread(
    face: &Face,
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: i32,
    provided: Out<i32>,
) -> Result<()> {
    let level = match required {
        MPI_THREAD_SINGLE => ThreadLevel::Single,
        MPI_THREAD_FUNNELED => ThreadLevel::Funneled,
        MPI_THREAD_SERIALIZED => ThreadLevel::Serialized,
        MPI_THREAD_MULTIPLE => ThreadLevel::Multiple,
        other => return ErrorClass::Arg.fail(format!("required {other} is none of the thread levels MPI_THREAD_…")),
    };
    initialize(face, level)?;
    provided.set(required);
    Ok(())
}

fn initialize(face: &Face, level: ThreadLevel) -> Result<()> {
    let process = face.process();
    if process.lifecycle.is_initialized() {
        return ErrorClass::Other.fail("MPI has been initialised before");
    }
    announce_panics();
    process.enter_world_model(level)
}

pub(crate) fn initialized(face: &Face, flag: Out<i32>) -> Result<()> {
    flag.set_flag(face.process().lifecycle.is_initialized());
    Ok(())
}

pub(crate) fn finalized(face: &Face, flag: Out<i32>) -> Result<()> {
    flag.set_flag(face.process().lifecycle.is_finalized());
    Ok(())
}

pub(crate) fn query_thread(face: &Face, provided: Out<i32>) -> Result<()> {
    provided.set(match face.process().lifecycle.thread_level() {
        None | Some(ThreadLevel::Single) => MPI_THREAD_SINGLE,
        Some(ThreadLevel::Funneled) => MPI_THREAD_FUNNELED,
        Some(ThreadLevel::Serialized) => MPI_THREAD_SERIALIZED,
        Some(ThreadLevel::Multiple) => MPI_THREAD_MULTIPLE,
    });
    Ok(())
}

pub(crate) fn is_thread_main(face: &Face, flag: Out<i32>) -> Result<()> {
    flag.set_flag(face.process().lifecycle.is_main_thread());
    Ok(())
}

pub(crate) fn finalize(face: &Face) -> Result<()> {
    if !face.process().is_in_world_model() {
        return ErrorClass::Other.fail("a session is open, but MPI_Init was not called or MPI_Finalize was before");
    }
    let world = face.world();
    // The library is still usable while these callbacks run.
    let own = world.comm_self();
    own.attributes.delete_all(own)?;
    face.process().leave_world_model(world)
}

pub(crate) fn abort(face: &Face, comm: &Arc<Comm>, errorcode: i32) -> Result<()> {
    let world = face.world();
    let rank = world.peer();
    let message = Words::of(format_args!("rank {rank} of MPI_COMM_WORLD called MPI_Abort({comm}, {errorcode})"));
    world.abort(errorcode, message.as_str())
}
