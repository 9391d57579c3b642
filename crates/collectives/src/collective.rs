//! The collective operations by name.

use std::fmt;

use crate::data::Place;
use crate::error::BuildError;

/// The collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// `MPI_Barrier`
    Barrier,
    /// `MPI_Bcast`
    Bcast,
    /// `MPI_Gather`
    Gather,
    /// `MPI_Gatherv`
    Gatherv,
    /// `MPI_Scatter`
    Scatter,
    /// `MPI_Scatterv`
    Scatterv,
    /// `MPI_Allgather`
    Allgather,
    /// `MPI_Allgatherv`
    Allgatherv,
    /// `MPI_Alltoall`
    Alltoall,
    /// `MPI_Alltoallv`
    Alltoallv,
    /// `MPI_Alltoallw`
    Alltoallw,
    /// `MPI_Reduce`
    Reduce,
    /// `MPI_Allreduce`
    Allreduce,
    /// `MPI_Reduce_scatter`
    ReduceScatter,
    /// `MPI_Reduce_scatter_block`
    ReduceScatterBlock,
    /// `MPI_Scan`
    Scan,
    /// `MPI_Exscan`
    Exscan,
    /// `MPI_Neighbor_allgather`
    NeighborAllgather,
    /// `MPI_Neighbor_allgatherv`
    NeighborAllgatherv,
    /// `MPI_Neighbor_alltoall`
    NeighborAlltoall,
    /// `MPI_Neighbor_alltoallv`
    NeighborAlltoallv,
    /// `MPI_Neighbor_alltoallw`
    NeighborAlltoallw,
}

impl Collective {
    /// All of them, in the order of the standard.
    pub const ALL: [Collective; 22] = [
        Collective::Barrier,
        Collective::Bcast,
        Collective::Gather,
        Collective::Gatherv,
        Collective::Scatter,
        Collective::Scatterv,
        Collective::Allgather,
        Collective::Allgatherv,
        Collective::Alltoall,
        Collective::Alltoallv,
        Collective::Alltoallw,
        Collective::Reduce,
        Collective::Allreduce,
        Collective::ReduceScatter,
        Collective::ReduceScatterBlock,
        Collective::Scan,
        Collective::Exscan,
        Collective::NeighborAllgather,
        Collective::NeighborAllgatherv,
        Collective::NeighborAlltoall,
        Collective::NeighborAlltoallv,
        Collective::NeighborAlltoallw,
    ];

    /// The name of the call without `MPI_`, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Bcast => "bcast",
            Collective::Gather => "gather",
            Collective::Gatherv => "gatherv",
            Collective::Scatter => "scatter",
            Collective::Scatterv => "scatterv",
            Collective::Allgather => "allgather",
            Collective::Allgatherv => "allgatherv",
            Collective::Alltoall => "alltoall",
            Collective::Alltoallv => "alltoallv",
            Collective::Alltoallw => "alltoallw",
            Collective::Reduce => "reduce",
            Collective::Allreduce => "allreduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::ReduceScatterBlock => "reduce_scatter_block",
            Collective::Scan => "scan",
            Collective::Exscan => "exscan",
            Collective::NeighborAllgather => "neighbor_allgather",
            Collective::NeighborAllgatherv => "neighbor_allgatherv",
            Collective::NeighborAlltoall => "neighbor_alltoall",
            Collective::NeighborAlltoallv => "neighbor_alltoallv",
            Collective::NeighborAlltoallw => "neighbor_alltoallw",
        }
    }

    /// The algorithm that evaluates one expression for every element, whatever the call; none where nothing
    /// is reduced. Reductions of all inputs go up the binomial tree of rank 0, prefixes along the chain.
    pub(crate) fn reproducible_algorithm(self) -> Option<&'static str> {
        match self {
            Collective::Reduce => Some("binomial"),
            Collective::Allreduce => Some("reduce_bcast"),
            Collective::ReduceScatter | Collective::ReduceScatterBlock => Some("reduce_then_scatter"),
            Collective::Scan | Collective::Exscan => Some("chain"),
            _ => None,
        }
    }

    pub(crate) fn check_root(self, root: u32, place: Place) -> Result<(), BuildError> {
        if root < place.size {
            return Ok(());
        }
        Err(BuildError::RootOutOfRange { collective: self, root, size: place.size })
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
