//! Sessions.
//!
//! Their buffers and error handlers are with their own chapters.
//!
//! MPI: §11.3

use std::ffi::CStr;
use std::sync::Arc;

use mpi_core::environment::{ErrorHandler, ObjectKind};
use mpi_core::group::Group;
use mpi_core::info::Info;
use mpi_core::point_to_point::BufferOwner;
use mpi_core::session::PROCESS_SETS;
use mpi_core::{ErrorClass, Result, Session, ThreadLevel};

use crate::face::entry::announce_panics;
use crate::face::{CountInOut, Face, InOutHandle, Out, OutHandle, StringOut};

pub(crate) fn session_init(
    face: &Face,
    info: Option<&Arc<Info>>,
    errhandler: &Arc<ErrorHandler>,
    session: OutHandle<Session>,
) -> Result<()> {
    if !errhandler.suits(ObjectKind::Session) {
        return ErrorClass::Errhandler.fail("parameter 2 (errhandler) was not created for sessions");
    }
    let wanted = match info.and_then(|info| info.value("thread_level")) {
        None => ThreadLevel::Multiple,
        Some(name) => match ThreadLevel::from_name(name.trim()) {
            Some(level) => level,
            None => {
                return ErrorClass::InfoValue.fail(format!(
                    "parameter 1 (info) has thread_level = '{name}', which is none of the thread levels MPI_THREAD_…"
                ));
            }
        },
    };
    announce_panics();
    face.process().open_session(wanted, |rank, size, level| {
        session.set(face, Arc::new(Session::new(rank, size, level, Arc::clone(errhandler))))
    })
}

pub(crate) fn session_finalize(face: &Face, session: InOutHandle<Session>) -> Result<()> {
    let own = BufferOwner::Session(Arc::clone(session.object()));
    // Without a world nothing has been sent.
    if let Some(world) = face.world_if_running() {
        world.detach_buffer(&own);
    }
    session.release(face)?;
    face.process().close_session()
}

pub(crate) fn session_get_info(face: &Face, session: &Arc<Session>, info_used: OutHandle<Info>) -> Result<()> {
    info_used.set(face, Arc::new(session.info()))
}

pub(crate) fn session_get_num_psets(
    _face: &Face,
    _session: &Arc<Session>,
    _info: Option<&Arc<Info>>,
    npset_names: Out<i32>,
) -> Result<()> {
    npset_names.set(PROCESS_SETS.len() as i32);
    Ok(())
}

pub(crate) fn session_get_nth_pset(
    _face: &Face,
    session: &Arc<Session>,
    _info: Option<&Arc<Info>>,
    n: i32,
    pset_len: CountInOut,
    pset_name: StringOut<'_>,
) -> Result<()> {
    let Ok(room) = usize::try_from(pset_len.value()) else {
        return ErrorClass::Arg.fail(format!("parameter 4 (pset_len) = {} is negative", pset_len.value()));
    };
    let name = session.nth_set(n)?;
    pset_name.set_within(name, room);
    pset_len.set(name.len() as i64 + 1);
    Ok(())
}

pub(crate) fn session_get_pset_info(
    face: &Face,
    session: &Arc<Session>,
    pset_name: &CStr,
    info: OutHandle<Info>,
) -> Result<()> {
    info.set(face, Arc::new(session.set_info(&pset_name.to_string_lossy())?))
}

pub(crate) fn group_from_session_pset(
    face: &Face,
    session: &Arc<Session>,
    pset_name: &CStr,
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set_null();
    newgroup.set(face, Arc::new(session.group(&pset_name.to_string_lossy())?))
}
