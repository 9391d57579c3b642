//! Process topologies.
//!
//! MPI: §8

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::ffi::c_int;
use std::sync::Arc;

use mpi_core::info::Info;
use mpi_core::topology::{Adjacent, Edges, Graph, Topology, dims_create as balance};
use mpi_core::{Comm, ErrorClass, Result};

use super::comm::own;
use crate::constants::{MPI_CART, MPI_DIST_GRAPH, MPI_GRAPH, MPI_UNDEFINED, MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY};
use crate::face::{Face, Out, OutArray, OutHandle, check};

pub(crate) fn topo_test(_face: &Face, comm: &Arc<Comm>, status: Out<i32>) -> Result<()> {
    status.set(match comm.topology() {
        None => MPI_UNDEFINED,
        Some(Topology::Cartesian(_)) => MPI_CART,
        Some(Topology::Graph(_)) => MPI_GRAPH,
        Some(Topology::Distributed(_)) => MPI_DIST_GRAPH,
    });
    Ok(())
}

/// # Safety
/// `dims` holds `ndims` numbers that may be written.
pub(crate) unsafe fn dims_create(face: &Face, nnodes: i32, ndims: i32, dims: *mut c_int) -> Result<()> {
    let len = check::length(face, 2, i64::from(ndims))?;
    // SAFETY: by our own contract.
    let mut factors = unsafe { check::array(face, 3, dims, len) }?.to_vec();
    balance(nnodes, &mut factors)?;
    // SAFETY: by our own contract.
    let places = unsafe { OutArray::new(dims, len) };
    fill(&places, &factors);
    Ok(())
}

pub(crate) fn cart_create(
    face: &Face,
    comm_old: &Arc<Comm>,
    _ndims: i32,
    dims: &[i32],
    periods: &[i32],
    _reorder: bool,
    comm_cart: OutHandle<Comm>,
) -> Result<()> {
    comm_cart.set_or_null(face, face.world().cart_create(comm_old, dims, &truths(periods))?)
}

pub(crate) fn cartdim_get(_face: &Face, comm: &Arc<Comm>, ndims: Out<i32>) -> Result<()> {
    ndims.set(comm.cartesian()?.dimensions().len() as i32);
    Ok(())
}

pub(crate) fn cart_get(
    _face: &Face,
    comm: &Arc<Comm>,
    _maxdims: i32,
    dims: OutArray<i32>,
    periods: OutArray<i32>,
    coords: OutArray<i32>,
) -> Result<()> {
    let grid = comm.cartesian()?;
    for (at, (dimension, coordinate)) in grid.dimensions().iter().zip(grid.coordinates()).enumerate().take(dims.len()) {
        dims.set(at, dimension.extent as i32);
        periods.set(at, i32::from(dimension.is_periodic));
        coords.set(at, *coordinate as i32);
    }
    Ok(())
}

/// # Safety
/// `coords` holds a number for each dimension of the grid.
pub(crate) unsafe fn cart_rank(face: &Face, comm: &Arc<Comm>, coords: *const c_int, rank: Out<i32>) -> Result<()> {
    let grid = comm.cartesian()?;
    // SAFETY: by our own contract.
    let coords = unsafe { check::array(face, 2, coords, grid.dimensions().len()) }?;
    rank.set(grid.rank_at(coords)?);
    Ok(())
}

pub(crate) fn cart_coords(
    _face: &Face,
    comm: &Arc<Comm>,
    rank: i32,
    _maxdims: i32,
    coords: OutArray<i32>,
) -> Result<()> {
    let coordinates = comm.cartesian()?.coordinates_of(rank)?;
    for (at, coordinate) in coordinates.into_iter().enumerate().take(coords.len()) {
        coords.set(at, coordinate as i32);
    }
    Ok(())
}

pub(crate) fn cart_shift(
    _face: &Face,
    comm: &Arc<Comm>,
    direction: i32,
    disp: i32,
    rank_source: Out<i32>,
    rank_dest: Out<i32>,
) -> Result<()> {
    let (source, destination) = comm.cartesian()?.shift(direction, disp)?;
    rank_source.set(source);
    rank_dest.set(destination);
    Ok(())
}

/// # Safety
/// `remain_dims` holds a truth value for each dimension of the grid.
pub(crate) unsafe fn cart_sub(
    face: &Face,
    comm: &Arc<Comm>,
    remain_dims: *const c_int,
    newcomm: OutHandle<Comm>,
) -> Result<()> {
    let dimension_count = comm.cartesian()?.dimensions().len();
    // SAFETY: by our own contract.
    let remain = unsafe { check::array(face, 2, remain_dims, dimension_count) }?;
    newcomm.set(face, face.world().cart_sub(comm, &truths(remain))?)
}

pub(crate) fn cart_map(
    face: &Face,
    comm: &Arc<Comm>,
    _ndims: i32,
    dims: &[i32],
    periods: &[i32],
    newrank: Out<i32>,
) -> Result<()> {
    newrank.set(face.world().cart_map(comm, dims, &truths(periods))?);
    Ok(())
}

/// # Safety
/// `edges` holds as many numbers as the last of `index` says.
pub(crate) unsafe fn graph_create(
    face: &Face,
    comm_old: &Arc<Comm>,
    _nnodes: i32,
    index: &[i32],
    edges: *const c_int,
    _reorder: bool,
    comm_graph: OutHandle<Comm>,
) -> Result<()> {
    let (_, edge_count) = Graph::check(index, comm_old.size())?;
    // SAFETY: by our own contract.
    let edges = unsafe { check::array(face, 4, edges, edge_count) }?;
    comm_graph.set_or_null(face, face.world().graph_create(comm_old, index, edges)?)
}

pub(crate) fn graphdims_get(_face: &Face, comm: &Arc<Comm>, nnodes: Out<i32>, nedges: Out<i32>) -> Result<()> {
    let graph = comm.graph()?;
    nnodes.set(graph.index().len() as i32);
    nedges.set(graph.edges().len() as i32);
    Ok(())
}

pub(crate) fn graph_get(
    _face: &Face,
    comm: &Arc<Comm>,
    _maxindex: i32,
    _maxedges: i32,
    index: OutArray<i32>,
    edges: OutArray<i32>,
) -> Result<()> {
    let graph = comm.graph()?;
    fill(&index, graph.index());
    fill(&edges, graph.edges());
    Ok(())
}

pub(crate) fn graph_neighbors_count(_face: &Face, comm: &Arc<Comm>, rank: i32, nneighbors: Out<i32>) -> Result<()> {
    nneighbors.set(comm.graph()?.neighbours_of(rank)?.len() as i32);
    Ok(())
}

pub(crate) fn graph_neighbors(
    _face: &Face,
    comm: &Arc<Comm>,
    rank: i32,
    _maxneighbors: i32,
    neighbors: OutArray<i32>,
) -> Result<()> {
    fill(&neighbors, comm.graph()?.neighbours_of(rank)?);
    Ok(())
}

/// # Safety
/// `edges` holds as many numbers as the last of `index` says.
pub(crate) unsafe fn graph_map(
    face: &Face,
    comm: &Arc<Comm>,
    _nnodes: i32,
    index: &[i32],
    edges: *const c_int,
    newrank: Out<i32>,
) -> Result<()> {
    let (_, edge_count) = Graph::check(index, comm.size())?;
    // SAFETY: by our own contract.
    let edges = unsafe { check::array(face, 4, edges, edge_count) }?;
    newrank.set(face.world().graph_map(comm, index, edges)?);
    Ok(())
}

/// # Safety
/// `destinations`, and `weights` unless it stands for none, hold as many numbers as the sum of `degrees`.
pub(crate) unsafe fn dist_graph_create(
    face: &Face,
    comm_old: &Arc<Comm>,
    _n: i32,
    sources: &[i32],
    degrees: &[i32],
    destinations: *const c_int,
    weights: *const c_int,
    info: Option<&Arc<Info>>,
    _reorder: bool,
    comm_dist_graph: OutHandle<Comm>,
) -> Result<()> {
    let edge_count = Edges::count(degrees)?;
    // SAFETY: by our own contract.
    let ranks = unsafe { check::array(face, 5, destinations, edge_count) }?;
    // SAFETY: as above.
    let weights = unsafe { own_weights(face, 6, weights, edge_count) }?;
    let destinations = Edges { ranks: ranks.to_vec(), weights };
    let new = face.world().dist_graph_create(comm_old, sources, degrees, &destinations, own(info))?;
    comm_dist_graph.set(face, new)
}

/// # Safety
/// `sourceweights` and `destweights`, unless they stand for none, hold as many numbers as there are
/// sources and destinations.
pub(crate) unsafe fn dist_graph_create_adjacent(
    face: &Face,
    comm_old: &Arc<Comm>,
    _indegree: i32,
    sources: &[i32],
    sourceweights: *const c_int,
    _outdegree: i32,
    destinations: &[i32],
    destweights: *const c_int,
    info: Option<&Arc<Info>>,
    _reorder: bool,
    comm_dist_graph: OutHandle<Comm>,
) -> Result<()> {
    // SAFETY: by our own contract.
    let source_weights = unsafe { own_weights(face, 4, sourceweights, sources.len()) }?;
    // SAFETY: as above.
    let destination_weights = unsafe { own_weights(face, 7, destweights, destinations.len()) }?;
    if source_weights.is_some() != destination_weights.is_some() {
        return ErrorClass::Arg
            .fail("MPI_UNWEIGHTED is to be given for both sourceweights and destweights or for neither");
    }
    let adjacent = Adjacent {
        sources: Edges { ranks: sources.to_vec(), weights: source_weights },
        destinations: Edges { ranks: destinations.to_vec(), weights: destination_weights },
    };
    let new = face.world().dist_graph_create_adjacent(comm_old, adjacent, own(info))?;
    comm_dist_graph.set(face, new)
}

pub(crate) fn dist_graph_neighbors_count(
    _face: &Face,
    comm: &Arc<Comm>,
    indegree: Out<i32>,
    outdegree: Out<i32>,
    weighted: Out<i32>,
) -> Result<()> {
    let graph = comm.distributed_graph()?;
    indegree.set(graph.sources().ranks.len() as i32);
    outdegree.set(graph.destinations().ranks.len() as i32);
    weighted.set_flag(graph.is_weighted());
    Ok(())
}

/// # Safety
/// `sourceweights` and `destweights`, unless they stand for none, have room for as many numbers as
/// the arrays beside them.
pub(crate) unsafe fn dist_graph_neighbors(
    face: &Face,
    comm: &Arc<Comm>,
    _maxindegree: i32,
    sources: OutArray<i32>,
    sourceweights: *mut c_int,
    _maxoutdegree: i32,
    destinations: OutArray<i32>,
    destweights: *mut c_int,
) -> Result<()> {
    let graph = comm.distributed_graph()?;
    let sides = [(4, graph.sources(), sources, sourceweights), (7, graph.destinations(), destinations, destweights)];
    for (n, edges, ranks, weights_start) in sides {
        fill(&ranks, &edges.ranks);
        let wanted = !stands_for_none(weights_start) && !ranks.is_empty();
        if let Some(weights) = edges.weights.as_ref().filter(|weights| wanted && !weights.is_empty()) {
            check::pointer(face, n, weights_start)?;
            // SAFETY: by our own contract.
            let places = unsafe { OutArray::new(weights_start, ranks.len()) };
            fill(&places, weights);
        }
    }
    Ok(())
}

/// The weights of `count` edges; `None` for `MPI_UNWEIGHTED`.
///
/// # Safety
/// `start`, unless it stands for none, holds `count` numbers.
unsafe fn own_weights(face: &Face, n: usize, start: *const c_int, count: usize) -> Result<Option<Vec<i32>>> {
    if start as usize == MPI_UNWEIGHTED {
        return Ok(None);
    }
    if start as usize == MPI_WEIGHTS_EMPTY && count > 0 {
        return ErrorClass::Arg.fail(format!("parameter {n} is MPI_WEIGHTS_EMPTY, but there are {count} edges"));
    }
    // SAFETY: by the contract of the caller.
    Ok(Some(unsafe { check::array(face, n, start, count) }?.to_vec()))
}

fn stands_for_none(weights: *const c_int) -> bool {
    matches!(weights as usize, MPI_UNWEIGHTED | MPI_WEIGHTS_EMPTY)
}

/// As many of `values` as there is room for.
fn fill(places: &OutArray<i32>, values: &[i32]) {
    for (at, value) in values.iter().enumerate().take(places.len()) {
        places.set(at, *value);
    }
}

fn truths(values: &[i32]) -> Vec<bool> {
    values.iter().map(|value| *value != 0).collect()
}
