//! Process topologies: which ranks of a communicator are neighbours.
//!
//! A topology is made with a communicator and stays with it; duplicates have it too. Ranks are never
//! reordered, which the standard leaves to the library.
//!
//! **Invariants**
//! - The neighbours are computed once, when the topology is made, and shared by all neighbourhood
//!   collectives on the communicator.
//! - A topology is immutable.
//!
//! MPI: §8

mod cartesian;
mod create;
mod dims;
mod distributed;
mod graph;

pub use cartesian::Cartesian;
pub use dims::dims_create;
pub use distributed::{Adjacent, Distributed, Edges};
pub use graph::Graph;

use collectives::Neighbours;

use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};

/// What a communicator knows about its neighbours.
#[derive(Clone, Debug)]
pub enum Topology {
    /// A grid.
    Cartesian(Cartesian),
    /// A graph that every process knows as a whole.
    Graph(Graph),
    /// A graph of which each process knows its own edges.
    Distributed(Distributed),
}

impl Topology {
    /// Who sends to this process and whom it sends to.
    pub fn neighbours(&self) -> &Neighbours {
        match self {
            Topology::Cartesian(grid) => grid.neighbours(),
            Topology::Graph(graph) => graph.neighbours(),
            Topology::Distributed(graph) => graph.neighbours(),
        }
    }
}

impl Comm {
    /// The neighbours of this process.
    ///
    /// # Errors
    /// `Topology` when the communicator has no topology.
    pub fn neighbours(&self) -> Result<&Neighbours> {
        match self.topology() {
            Some(topology) => Ok(topology.neighbours()),
            None => ErrorClass::Topology.fail(format!("{self} has no topology")),
        }
    }

    /// The grid of this communicator.
    ///
    /// # Errors
    /// `Topology` when it has none.
    pub fn cartesian(&self) -> Result<&Cartesian> {
        match self.topology() {
            Some(Topology::Cartesian(grid)) => Ok(grid),
            _ => ErrorClass::Topology.fail(format!("{self} has no Cartesian topology")),
        }
    }

    /// The graph of this communicator.
    ///
    /// # Errors
    /// `Topology` when it has none that was made by `MPI_Graph_create`.
    pub fn graph(&self) -> Result<&Graph> {
        match self.topology() {
            Some(Topology::Graph(graph)) => Ok(graph),
            _ => ErrorClass::Topology.fail(format!("{self} has no graph topology")),
        }
    }

    /// This process's part of the distributed graph of this communicator.
    ///
    /// # Errors
    /// `Topology` when it has none.
    pub fn distributed_graph(&self) -> Result<&Distributed> {
        match self.topology() {
            Some(Topology::Distributed(graph)) => Ok(graph),
            _ => ErrorClass::Topology.fail(format!("{self} has no distributed graph topology")),
        }
    }
}
