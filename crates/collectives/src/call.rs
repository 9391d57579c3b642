//! A call of a collective on one rank: everything a schedule depends on, buffers aside.

use crate::data::{Data, Neighbours, Part, TypeShape, Vector};

/// `MPI_Barrier`. MPI: §6.3
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Barrier;

/// `MPI_Bcast`. The buffer is `Recv` on every rank, the root too. MPI: §6.4
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bcast {
    /// Whose data is sent.
    pub root: u32,
    /// The buffer; ranks may differ in count and type, not in packed size.
    pub data: Data,
}

/// `MPI_Gather`. MPI: §6.5
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// Where the blocks are collected.
    pub root: u32,
    /// The root's block stands in its receive buffer already.
    pub in_place: bool,
    /// This rank's block.
    pub send: Data,
    /// One block of the receive buffer; significant at the root.
    pub recv: Data,
}

/// `MPI_Gatherv`. MPI: §6.5
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gatherv {
    /// Where the blocks are collected.
    pub root: u32,
    /// The root's block stands in its receive buffer already.
    pub in_place: bool,
    /// This rank's block.
    pub send: Data,
    /// The blocks of the receive buffer; significant at the root.
    pub recv: Vector,
}

/// `MPI_Scatter`. MPI: §6.6
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// Who holds the blocks.
    pub root: u32,
    /// The root's block stays in its send buffer.
    pub in_place: bool,
    /// One block of the send buffer; significant at the root.
    pub send: Data,
    /// This rank's block.
    pub recv: Data,
}

/// `MPI_Scatterv`. MPI: §6.6
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatterv {
    /// Who holds the blocks.
    pub root: u32,
    /// The root's block stays in its send buffer.
    pub in_place: bool,
    /// The blocks of the send buffer; significant at the root.
    pub send: Vector,
    /// This rank's block.
    pub recv: Data,
}

/// `MPI_Allgather`. MPI: §6.7
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allgather {
    /// Each rank's block stands in its receive buffer already.
    pub in_place: bool,
    /// This rank's block.
    pub send: Data,
    /// One block of the receive buffer.
    pub recv: Data,
}

/// `MPI_Allgatherv`. MPI: §6.7
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Allgatherv {
    /// Each rank's block stands in its receive buffer already.
    pub in_place: bool,
    /// This rank's block.
    pub send: Data,
    /// The blocks of the receive buffer; ranks may differ in type and displacements only.
    pub recv: Vector,
}

/// `MPI_Alltoall`. MPI: §6.8
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alltoall {
    /// Blocks are exchanged inside the receive buffer; on all ranks or none.
    pub in_place: bool,
    /// One block of the send buffer.
    pub send: Data,
    /// One block of the receive buffer.
    pub recv: Data,
}

/// `MPI_Alltoallv`. MPI: §6.8
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alltoallv {
    /// Blocks are exchanged inside the receive buffer; on all ranks or none.
    pub in_place: bool,
    /// The blocks of the send buffer.
    pub send: Vector,
    /// The blocks of the receive buffer.
    pub recv: Vector,
}

/// `MPI_Alltoallw`. MPI: §6.8
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alltoallw {
    /// Blocks are exchanged inside the receive buffer; on all ranks or none.
    pub in_place: bool,
    /// The blocks of the send buffer.
    pub send: Vec<Part>,
    /// The blocks of the receive buffer.
    pub recv: Vec<Part>,
}

/// `MPI_Reduce`. MPI: §6.9
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// Where the result goes.
    pub root: u32,
    /// The root's input stands in its receive buffer.
    pub in_place: bool,
    /// Operands may be exchanged.
    pub commutative: bool,
    /// Input and result.
    pub data: Data,
}

/// `MPI_Allreduce`. MPI: §6.9
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Allreduce {
    /// The input stands in the receive buffer.
    pub in_place: bool,
    /// Operands may be exchanged.
    pub commutative: bool,
    /// Input and result.
    pub data: Data,
}

/// `MPI_Reduce_scatter`. MPI: §6.10
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceScatter {
    /// The input stands in the receive buffer, whose start takes the result.
    pub in_place: bool,
    /// Operands may be exchanged.
    pub commutative: bool,
    /// Elements of the result per rank.
    pub counts: Vec<u64>,
    /// Measures of the type.
    pub shape: TypeShape,
}

/// `MPI_Reduce_scatter_block`. MPI: §6.10
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReduceScatterBlock {
    /// The input stands in the receive buffer, whose start takes the result.
    pub in_place: bool,
    /// Operands may be exchanged.
    pub commutative: bool,
    /// One block: the result, and a part of the input.
    pub data: Data,
}

/// `MPI_Scan`. MPI: §6.11
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// The input stands in the receive buffer.
    pub in_place: bool,
    /// Operands may be exchanged.
    pub commutative: bool,
    /// Input and result.
    pub data: Data,
}

/// `MPI_Exscan`. The receive buffer of rank 0 is not written. MPI: §6.11
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exscan {
    /// The input stands in the receive buffer.
    pub in_place: bool,
    /// Operands may be exchanged.
    pub commutative: bool,
    /// Input and result.
    pub data: Data,
}

/// `MPI_Neighbor_allgather`. MPI: §8.6
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeighborAllgather {
    /// Who is connected.
    pub neighbours: Neighbours,
    /// This rank's block, sent to every destination.
    pub send: Data,
    /// One block of the receive buffer.
    pub recv: Data,
}

/// `MPI_Neighbor_allgatherv`. MPI: §8.6
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeighborAllgatherv {
    /// Who is connected.
    pub neighbours: Neighbours,
    /// This rank's block, sent to every destination.
    pub send: Data,
    /// The blocks of the receive buffer, one per source.
    pub recv: Vector,
}

/// `MPI_Neighbor_alltoall`. MPI: §8.6
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeighborAlltoall {
    /// Who is connected.
    pub neighbours: Neighbours,
    /// One block of the send buffer.
    pub send: Data,
    /// One block of the receive buffer.
    pub recv: Data,
}

/// `MPI_Neighbor_alltoallv`. MPI: §8.6
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeighborAlltoallv {
    /// Who is connected.
    pub neighbours: Neighbours,
    /// The blocks of the send buffer, one per destination.
    pub send: Vector,
    /// The blocks of the receive buffer, one per source.
    pub recv: Vector,
}

/// `MPI_Neighbor_alltoallw`. MPI: §8.6
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeighborAlltoallw {
    /// Who is connected.
    pub neighbours: Neighbours,
    /// The blocks of the send buffer, one per destination.
    pub send: Vec<Part>,
    /// The blocks of the receive buffer, one per source.
    pub recv: Vec<Part>,
}

/// A call over an intercommunicator. The schedule's place is the rank in the local group; its peer
/// `size + r` is rank `r` of the remote group. Nothing is in place, and lists have one entry per
/// remote rank (those of reduce-scatter per local rank).
///
/// MPI: §6.2.3
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inter {
    /// Ranks in the remote group.
    pub remote_size: u32,
    /// What this rank has to do with the root.
    pub side: Side,
    /// The call itself; its root, if it has one, is a rank of the remote group.
    pub call: Call,
}

/// What a rank has to do with the root of a call over an intercommunicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// There is none: both groups do the same.
    Both,
    /// It is the root (`MPI_ROOT`).
    Root,
    /// It is in the root's group and does nothing (`MPI_PROC_NULL`).
    Beside,
    /// The root is in the other group.
    Opposite,
}

/// A call of any collective: all that a schedule depends on besides rank, size and selection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `MPI_Barrier`
    Barrier(Barrier),
    /// `MPI_Bcast`
    Bcast(Bcast),
    /// `MPI_Gather`
    Gather(Gather),
    /// `MPI_Gatherv`
    Gatherv(Gatherv),
    /// `MPI_Scatter`
    Scatter(Scatter),
    /// `MPI_Scatterv`
    Scatterv(Scatterv),
    /// `MPI_Allgather`
    Allgather(Allgather),
    /// `MPI_Allgatherv`
    Allgatherv(Allgatherv),
    /// `MPI_Alltoall`
    Alltoall(Alltoall),
    /// `MPI_Alltoallv`
    Alltoallv(Alltoallv),
    /// `MPI_Alltoallw`
    Alltoallw(Alltoallw),
    /// `MPI_Reduce`
    Reduce(Reduce),
    /// `MPI_Allreduce`
    Allreduce(Allreduce),
    /// `MPI_Reduce_scatter`
    ReduceScatter(ReduceScatter),
    /// `MPI_Reduce_scatter_block`
    ReduceScatterBlock(ReduceScatterBlock),
    /// `MPI_Scan`
    Scan(Scan),
    /// `MPI_Exscan`
    Exscan(Exscan),
    /// `MPI_Neighbor_allgather`
    NeighborAllgather(NeighborAllgather),
    /// `MPI_Neighbor_allgatherv`
    NeighborAllgatherv(NeighborAllgatherv),
    /// `MPI_Neighbor_alltoall`
    NeighborAlltoall(NeighborAlltoall),
    /// `MPI_Neighbor_alltoallv`
    NeighborAlltoallv(NeighborAlltoallv),
    /// `MPI_Neighbor_alltoallw`
    NeighborAlltoallw(NeighborAlltoallw),
    /// A call between two groups
    Inter(Box<Inter>),
}
