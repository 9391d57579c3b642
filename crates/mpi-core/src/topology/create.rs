//! Communicators with topologies.
//!
//! MPI: §8.5

use std::sync::Arc;

use super::distributed::Told;
use super::{Adjacent, Cartesian, Distributed, Edges, Graph, Topology};
use crate::communicator::Comm;
use crate::constants::UNDEFINED;
use crate::error::{ErrorClass, Result};
use crate::info::Info;
use crate::world::World;

impl World {
    /// A communicator whose processes form a grid, row by row; `None` for those left over.
    ///
    /// Collective over `comm`.
    ///
    /// # Errors
    /// `Dims` for an extent below 1 or a grid of too many processes.
    ///
    /// MPI: §8.5.1 `MPI_Cart_create`
    pub fn cart_create(&self, comm: &Arc<Comm>, extents: &[i32], periods: &[bool]) -> Result<Option<Arc<Comm>>> {
        let (dimensions, count) = Cartesian::check(extents, periods, comm.size())?;
        let new = self.first_ranks(comm, count)?;
        Ok(new.inspect(|new| new.set_topology(Topology::Cartesian(Cartesian::new(dimensions, new.rank())))))
    }

    /// Communicators of the grids that remain when some dimensions are cut through.
    ///
    /// Collective over `comm`.
    ///
    /// # Errors
    /// `Topology` when `comm` has no grid.
    ///
    /// MPI: §8.5.7 `MPI_Cart_sub`
    pub fn cart_sub(&self, comm: &Arc<Comm>, remain: &[bool]) -> Result<Arc<Comm>> {
        let (colour, dimensions, rank) = comm.cartesian()?.sub(remain);
        let new = self.split_by(comm, Some(colour), rank as i32)?;
        let new = new.expect("every process of a grid is in one of its parts");
        new.set_topology(Topology::Cartesian(Cartesian::new(dimensions, new.rank())));
        Ok(new)
    }

    /// The rank this process would have in a grid, or `MPI_UNDEFINED`.
    ///
    /// # Errors
    /// As [`World::cart_create`].
    ///
    /// MPI: §8.5.8 `MPI_Cart_map`
    pub fn cart_map(&self, comm: &Comm, extents: &[i32], periods: &[bool]) -> Result<i32> {
        let (_, count) = Cartesian::check(extents, periods, comm.size())?;
        Ok(mapped(comm, count))
    }

    /// A communicator whose processes form a graph that all pass in whole; `None` for those left over.
    ///
    /// Collective over `comm`.
    ///
    /// # Errors
    /// `Topology` for what is no graph on these processes.
    ///
    /// MPI: §8.5.3 `MPI_Graph_create`
    pub fn graph_create(&self, comm: &Arc<Comm>, index: &[i32], edges: &[i32]) -> Result<Option<Arc<Comm>>> {
        let (node_count, _) = Graph::check(index, comm.size())?;
        Graph::check_edges(edges, node_count)?;
        let new = self.first_ranks(comm, node_count)?;
        Ok(new.inspect(|new| new.set_topology(Topology::Graph(Graph::new(index, edges, new.rank())))))
    }

    /// The rank this process would have in a graph, or `MPI_UNDEFINED`.
    ///
    /// # Errors
    /// As [`World::graph_create`].
    ///
    /// MPI: §8.5.8 `MPI_Graph_map`
    pub fn graph_map(&self, comm: &Comm, index: &[i32], edges: &[i32]) -> Result<i32> {
        let (node_count, _) = Graph::check(index, comm.size())?;
        Graph::check_edges(edges, node_count)?;
        Ok(mapped(comm, node_count))
    }

    /// A communicator with a graph of which each process names the edges that end at it.
    ///
    /// Collective over `comm`.
    ///
    /// # Errors
    /// `Rank` for an end that is no rank, `Arg` for a negative weight.
    ///
    /// MPI: §8.5.4 `MPI_Dist_graph_create_adjacent`
    pub fn dist_graph_create_adjacent(
        &self,
        comm: &Arc<Comm>,
        adjacent: Adjacent,
        info: Option<Arc<Info>>,
    ) -> Result<Arc<Comm>> {
        comm.intra_only()?;
        adjacent.sources.check("sources", comm.size())?;
        adjacent.destinations.check("destinations", comm.size())?;
        self.with_distributed_graph(comm, adjacent, info)
    }

    /// A communicator with a graph of which any process names any edges: source *i* of `sources` has
    /// the next `degrees[i]` of `destinations`.
    ///
    /// Collective over `comm`.
    ///
    /// # Errors
    /// `Rank` for an end that is no rank, `Arg` for a negative degree or weight.
    ///
    /// MPI: §8.5.4 `MPI_Dist_graph_create`
    pub fn dist_graph_create(
        &self,
        comm: &Arc<Comm>,
        sources: &[i32],
        degrees: &[i32],
        destinations: &Edges,
        info: Option<Arc<Info>>,
    ) -> Result<Arc<Comm>> {
        comm.intra_only()?;
        let told = Told::new(sources, degrees, destinations, comm.size())?;
        let packets = self.exchange(comm, told.encode())?;
        let adjacent = told.gather(&packets, comm.size())?;
        self.with_distributed_graph(comm, adjacent, info)
    }

    fn with_distributed_graph(
        &self,
        comm: &Arc<Comm>,
        adjacent: Adjacent,
        info: Option<Arc<Info>>,
    ) -> Result<Arc<Comm>> {
        let new = self.first_ranks(comm, comm.size())?.expect("all are members");
        new.set_info(info);
        new.set_topology(Topology::Distributed(Distributed::new(adjacent)));
        Ok(new)
    }

    /// A communicator of the first `count` ranks; `None` for the others, and for all if there are none.
    fn first_ranks(&self, comm: &Arc<Comm>, count: u32) -> Result<Option<Arc<Comm>>> {
        comm.intra_only()?;
        let group = match count {
            0 => return Ok(None),
            count if count == comm.size() => Arc::clone(comm.group()),
            count => Arc::new(comm.group().range_incl(&[[0, count as i32 - 1, 1]])?),
        };
        self.comm_create(comm, &group)
    }
}

impl Comm {
    /// That the communicator has one group.
    ///
    /// # Errors
    /// `Comm` otherwise.
    pub(crate) fn intra_only(&self) -> Result<()> {
        if self.is_inter() {
            return ErrorClass::Comm.fail(format!("{self} is an intercommunicator; an intracommunicator is needed"));
        }
        Ok(())
    }
}

fn mapped(comm: &Comm, count: u32) -> i32 {
    if comm.rank() < count { comm.rank() as i32 } else { UNDEFINED }
}
