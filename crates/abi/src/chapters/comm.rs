//! Communicators.
//!
//! Attributes and error handlers of communicators are with their own chapters.
//!
//! MPI: §7.4, §7.8

use std::ffi::CStr;
use std::sync::Arc;

use mpi_core::communicator::{Comparison, SplitType};
use mpi_core::environment::{ErrorHandler, ObjectKind};
use mpi_core::group::Group;
use mpi_core::info::Info;
use mpi_core::{Comm, ErrorClass, Request, Result};

use crate::constants::{
    MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_HW_UNGUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED, MPI_COMM_TYPE_SHARED,
    MPI_CONGRUENT, MPI_IDENT, MPI_SIMILAR, MPI_UNDEFINED, MPI_UNEQUAL,
};
use crate::face::{Face, InOutHandle, Out, OutHandle, StringOut};

#[inline]
pub(crate) fn comm_size(_face: &Face, comm: &Arc<Comm>, size: Out<i32>) -> Result<()> {
    size.set(comm.size() as i32);
    Ok(())
}

#[inline]
pub(crate) fn comm_rank(_face: &Face, comm: &Arc<Comm>, rank: Out<i32>) -> Result<()> {
    rank.set(comm.rank() as i32);
    Ok(())
}

pub(crate) fn comm_compare(_face: &Face, comm1: &Arc<Comm>, comm2: &Arc<Comm>, result: Out<i32>) -> Result<()> {
    result.set(match comm1.compare(comm2) {
        Comparison::Identical => MPI_IDENT,
        Comparison::Congruent => MPI_CONGRUENT,
        Comparison::Similar => MPI_SIMILAR,
        Comparison::Unequal => MPI_UNEQUAL,
    });
    Ok(())
}

pub(crate) fn comm_group(face: &Face, comm: &Arc<Comm>, group: OutHandle<Group>) -> Result<()> {
    group.set(face, Arc::clone(comm.group()))
}

pub(crate) fn comm_test_inter(_face: &Face, comm: &Arc<Comm>, flag: Out<i32>) -> Result<()> {
    flag.set_flag(comm.is_inter());
    Ok(())
}

pub(crate) fn comm_remote_size(_face: &Face, comm: &Arc<Comm>, size: Out<i32>) -> Result<()> {
    size.set(remote_group(comm)?.size() as i32);
    Ok(())
}

pub(crate) fn comm_remote_group(face: &Face, comm: &Arc<Comm>, group: OutHandle<Group>) -> Result<()> {
    group.set(face, Arc::clone(remote_group(comm)?))
}

fn remote_group(comm: &Comm) -> Result<&Arc<Group>> {
    let no_remote_group = || ErrorClass::Comm.error(format!("{comm} is an intracommunicator and has no remote group"));
    comm.remote_group().ok_or_else(no_remote_group)
}

pub(crate) fn intercomm_create(
    face: &Face,
    local_comm: &Arc<Comm>,
    local_leader: i32,
    peer_comm: Option<&Arc<Comm>>,
    remote_leader: i32,
    tag: i32,
    newintercomm: OutHandle<Comm>,
) -> Result<()> {
    let peer = peer_comm.map(|peer_comm| (peer_comm, remote_leader));
    newintercomm.set(face, face.world().intercomm_create(local_comm, local_leader, peer, tag)?)
}

#[allow(clippy::too_many_arguments, reason = "the parameters of the call")]
pub(crate) fn intercomm_create_from_groups(
    face: &Face,
    local_group: &Arc<Group>,
    local_leader: i32,
    remote_group: Option<&Arc<Group>>,
    remote_leader: i32,
    stringtag: &CStr,
    info: Option<&Arc<Info>>,
    errhandler: &Arc<ErrorHandler>,
    newintercomm: OutHandle<Comm>,
) -> Result<()> {
    let remote = remote_group.map(|remote_group| (&**remote_group, remote_leader));
    let name = stringtag.to_string_lossy();
    let (info, handler) = (own(info), Arc::clone(errhandler));
    let new = face.world().intercomm_create_from_groups(local_group, local_leader, remote, &name, info, handler)?;
    newintercomm.set(face, new)
}

pub(crate) fn intercomm_merge(
    face: &Face,
    intercomm: &Arc<Comm>,
    high: bool,
    newintracomm: OutHandle<Comm>,
) -> Result<()> {
    newintracomm.set(face, face.world().intercomm_merge(intercomm, high)?)
}

pub(crate) fn comm_dup(face: &Face, comm: &Arc<Comm>, newcomm: OutHandle<Comm>) -> Result<()> {
    // As in `type_dup`, and in the three that follow.
    newcomm.set_null();
    newcomm.set(face, face.world().comm_dup(comm)?)
}

pub(crate) fn comm_dup_with_info(
    face: &Face,
    comm: &Arc<Comm>,
    info: Option<&Arc<Info>>,
    newcomm: OutHandle<Comm>,
) -> Result<()> {
    newcomm.set_null();
    newcomm.set(face, face.world().comm_dup_with_info(comm, own(info))?)
}

pub(crate) fn comm_idup(
    face: &Face,
    comm: &Arc<Comm>,
    newcomm: OutHandle<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    newcomm.set_null();
    let (new, its_request) = face.world().comm_idup(comm)?;
    newcomm.set(face, new)?;
    request.set(face, its_request)
}

pub(crate) fn comm_idup_with_info(
    face: &Face,
    comm: &Arc<Comm>,
    info: Option<&Arc<Info>>,
    newcomm: OutHandle<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    newcomm.set_null();
    let (new, its_request) = face.world().comm_idup_with_info(comm, own(info))?;
    newcomm.set(face, new)?;
    request.set(face, its_request)
}

pub(crate) fn comm_create(face: &Face, comm: &Arc<Comm>, group: &Arc<Group>, newcomm: OutHandle<Comm>) -> Result<()> {
    newcomm.set_or_null(face, face.world().comm_create(comm, group)?)
}

pub(crate) fn comm_create_group(
    face: &Face,
    comm: &Arc<Comm>,
    group: &Arc<Group>,
    tag: i32,
    newcomm: OutHandle<Comm>,
) -> Result<()> {
    newcomm.set_or_null(face, face.world().comm_create_group(comm, group, tag)?)
}

pub(crate) fn comm_create_from_group(
    face: &Face,
    group: &Arc<Group>,
    stringtag: &CStr,
    info: Option<&Arc<Info>>,
    errhandler: &Arc<ErrorHandler>,
    newcomm: OutHandle<Comm>,
) -> Result<()> {
    if !errhandler.suits(ObjectKind::Comm) {
        return ErrorClass::Errhandler.fail("parameter 4 (errhandler) was not created for communicators");
    }
    let name = stringtag.to_string_lossy();
    let new = face.world().comm_create_from_group(group, &name, own(info), Arc::clone(errhandler))?;
    newcomm.set_or_null(face, new)
}

pub(crate) fn comm_split(face: &Face, comm: &Arc<Comm>, color: i32, key: i32, newcomm: OutHandle<Comm>) -> Result<()> {
    newcomm.set_or_null(face, face.world().comm_split(comm, color, key)?)
}

pub(crate) fn comm_split_type(
    face: &Face,
    comm: &Arc<Comm>,
    split_type: i32,
    key: i32,
    info: Option<&Arc<Info>>,
    newcomm: OutHandle<Comm>,
) -> Result<()> {
    let kind = match split_type {
        MPI_COMM_TYPE_SHARED => SplitType::Shared,
        MPI_COMM_TYPE_HW_GUIDED => SplitType::HardwareGuided,
        MPI_COMM_TYPE_HW_UNGUIDED => SplitType::HardwareUnguided,
        MPI_COMM_TYPE_RESOURCE_GUIDED => SplitType::ResourceGuided,
        MPI_UNDEFINED => SplitType::Undefined,
        other => {
            return ErrorClass::Arg.fail(format!("split_type {other} is no MPI_COMM_TYPE_… and not MPI_UNDEFINED"));
        }
    };
    newcomm.set_or_null(face, face.world().comm_split_type(comm, kind, key, info)?)
}

pub(crate) fn comm_free(face: &Face, comm: InOutHandle<Comm>) -> Result<()> {
    face.world().comm_free(comm.object())?;
    comm.release(face)
}

pub(crate) fn comm_disconnect(face: &Face, comm: InOutHandle<Comm>) -> Result<()> {
    face.world().comm_disconnect(comm.object())?;
    comm.release(face)
}

pub(crate) fn comm_set_name(_face: &Face, comm: &Arc<Comm>, comm_name: &CStr) -> Result<()> {
    comm.set_name(&comm_name.to_string_lossy());
    Ok(())
}

pub(crate) fn comm_get_name(
    _face: &Face,
    comm: Option<&Arc<Comm>>,
    comm_name: StringOut<'_>,
    resultlen: Out<i32>,
) -> Result<()> {
    let name = comm.map_or_else(|| "MPI_COMM_NULL".to_owned(), |comm| comm.name());
    resultlen.set(comm_name.set(&name));
    Ok(())
}

pub(crate) fn comm_set_info(_face: &Face, comm: &Arc<Comm>, info: Option<&Arc<Info>>) -> Result<()> {
    info.map_or(Ok(()), |info| comm.update_info(info))
}

pub(crate) fn comm_get_info(face: &Face, comm: &Arc<Comm>, info_used: OutHandle<Info>) -> Result<()> {
    let info = comm.info().map_or_else(Info::new, |info| info.duplicate());
    info_used.set(face, Arc::new(info))
}

/// No process here was spawned by others.
pub(crate) fn comm_get_parent(_face: &Face, parent: OutHandle<Comm>) -> Result<()> {
    parent.set_null();
    Ok(())
}

/// A copy that later changes of the user's do not reach.
pub(super) fn own(info: Option<&Arc<Info>>) -> Option<Arc<Info>> {
    info.map(|info| Arc::new(info.duplicate()))
}
