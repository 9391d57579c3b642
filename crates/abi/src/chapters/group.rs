//! Groups.
//!
//! MPI: §7.3

use std::sync::Arc;

use mpi_core::Result;
use mpi_core::group::{Comparison, Group};

use crate::constants::{MPI_IDENT, MPI_SIMILAR, MPI_UNDEFINED, MPI_UNEQUAL};
use crate::face::{Face, InOutHandle, Out, OutArray, OutHandle};

pub(crate) fn group_size(_face: &Face, group: &Arc<Group>, size: Out<i32>) -> Result<()> {
    size.set(group.size() as i32);
    Ok(())
}

pub(crate) fn group_rank(_face: &Face, group: &Arc<Group>, rank: Out<i32>) -> Result<()> {
    rank.set(group.rank().map_or(MPI_UNDEFINED, |rank| rank as i32));
    Ok(())
}

pub(crate) fn group_translate_ranks(
    _face: &Face,
    group1: &Arc<Group>,
    _n: i32,
    ranks1: &[i32],
    group2: &Arc<Group>,
    ranks2: OutArray<i32>,
) -> Result<()> {
    for (index, rank) in ranks1.iter().enumerate() {
        ranks2.set(index, group1.translate_rank(*rank, group2)?);
    }
    Ok(())
}

pub(crate) fn group_compare(_face: &Face, group1: &Arc<Group>, group2: &Arc<Group>, result: Out<i32>) -> Result<()> {
    result.set(match group1.compare(group2) {
        Comparison::Identical => MPI_IDENT,
        Comparison::Similar => MPI_SIMILAR,
        Comparison::Unequal => MPI_UNEQUAL,
    });
    Ok(())
}

pub(crate) fn group_union(
    face: &Face,
    group1: &Arc<Group>,
    group2: &Arc<Group>,
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group1.union(group2)))
}

pub(crate) fn group_intersection(
    face: &Face,
    group1: &Arc<Group>,
    group2: &Arc<Group>,
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group1.intersection(group2)))
}

pub(crate) fn group_difference(
    face: &Face,
    group1: &Arc<Group>,
    group2: &Arc<Group>,
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group1.difference(group2)))
}

pub(crate) fn group_incl(
    face: &Face,
    group: &Arc<Group>,
    _n: i32,
    ranks: &[i32],
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group.incl(ranks)?))
}

pub(crate) fn group_excl(
    face: &Face,
    group: &Arc<Group>,
    _n: i32,
    ranks: &[i32],
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group.excl(ranks)?))
}

pub(crate) fn group_range_incl(
    face: &Face,
    group: &Arc<Group>,
    _n: i32,
    ranges: &[[i32; 3]],
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group.range_incl(ranges)?))
}

pub(crate) fn group_range_excl(
    face: &Face,
    group: &Arc<Group>,
    _n: i32,
    ranges: &[[i32; 3]],
    newgroup: OutHandle<Group>,
) -> Result<()> {
    newgroup.set(face, Arc::new(group.range_excl(ranges)?))
}

pub(crate) fn group_free(face: &Face, group: InOutHandle<Group>) -> Result<()> {
    group.release(face)
}
