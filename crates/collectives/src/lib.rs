//! Collective operations as schedules: plain data that says what one rank sends, receives, copies
//! and reduces, and in which order.
//!
//! Floor: machinery, above `engine` and below `mpi-core`. It names neither: a schedule is built from
//! numbers (ranks, counts, displacements, sizes of types) and runs on anything that implements
//! [`Host`]. Buffers and datatypes are symbols bound at a start, so one schedule serves blocking,
//! non-blocking and persistent calls and may be kept ([`Cache`]) and started any number of times.
//!
//! **Invariants**
//! - Schedules built on all ranks of a communicator with matching parameters and equal
//!   [`Selection`]s fit together: every message sent is received, with its exact size, in the order
//!   of (source, tag offset), and none waits on a cycle even if no send completes before its receive.
//! - A region is neither read nor written while a message into it is under way, nor written while a
//!   message from it is; the send buffer is never written.
//! - Operands of a reduction stand in rank order unless the call says `commutative`, and results of
//!   `allreduce` are equal to the bit on all ranks.
//! - Execution allocates nothing but, for schedules with more than eight messages under way at
//!   once, a list of these at the start.
//!
//! **Deliberately absent**: buffers, datatypes, operations and requests (the host's); clocks and
//! tuning (tables are data, see [`Selection`]); a choice of algorithms between two groups ([`Inter`]).
//!
//! ```
//! use collectives::{Allreduce, Call, Data, Place, Selection, Step, TypeShape, build};
//!
//! // Eight-byte allreduce on rank 1 of 2.
//! let call = Call::Allreduce(Allreduce {
//!     in_place: false,
//!     commutative: true,
//!     data: Data::new(1, TypeShape::basic(8)),
//! });
//! let schedule = build(Place { rank: 1, size: 2 }, &call, &Selection::default())?;
//! assert_eq!(schedule.algorithm(), "recursive_doubling");
//! assert!(matches!(schedule.steps()[0], Step::Recv { peer: 0, .. }));
//! # Ok::<(), collectives::BuildError>(())
//! ```

#![forbid(unsafe_code)]

mod algorithms;
mod builder;
mod cache;
mod call;
mod collective;
mod data;
mod error;
mod execution;
mod schedule;
mod selection;

pub use cache::Cache;
pub use call::{
    Allgather, Allgatherv, Allreduce, Alltoall, Alltoallv, Alltoallw, Barrier, Bcast, Call, Exscan, Gather, Gatherv,
    Inter, NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw, Reduce,
    ReduceScatter, ReduceScatterBlock, Scan, Scatter, Scatterv, Side,
};
pub use collective::Collective;
pub use data::{Data, Neighbour, Neighbours, Part, Place, TypeShape, Vector};
pub use error::{BuildError, SelectionError};
pub use execution::{Execution, Host, Progress};
pub use schedule::{BufferId, Region, Schedule, Step, TAG_OFFSETS_MAX, Temp, TypeSlot};
pub use selection::{AlgorithmInfo, Choice, Selection};

use builder::Builder;
use selection::{CollectiveCall, list};

/// The schedule of `call` at `place`, by the algorithm that `selection` chooses.
///
/// # Errors
/// Parameters that contradict each other or the size of the communicator.
pub fn build(place: Place, call: &Call, selection: &Selection) -> Result<Schedule, BuildError> {
    match call {
        Call::Barrier(call) => build_one(place, call, selection),
        Call::Bcast(call) => build_one(place, call, selection),
        Call::Gather(call) => build_one(place, call, selection),
        Call::Gatherv(call) => build_one(place, call, selection),
        Call::Scatter(call) => build_one(place, call, selection),
        Call::Scatterv(call) => build_one(place, call, selection),
        Call::Allgather(call) => build_one(place, call, selection),
        Call::Allgatherv(call) => build_one(place, call, selection),
        Call::Alltoall(call) => build_one(place, call, selection),
        Call::Alltoallv(call) => build_one(place, call, selection),
        Call::Alltoallw(call) => build_one(place, call, selection),
        Call::Reduce(call) => build_one(place, call, selection),
        Call::Allreduce(call) => build_one(place, call, selection),
        Call::ReduceScatter(call) => build_one(place, call, selection),
        Call::ReduceScatterBlock(call) => build_one(place, call, selection),
        Call::Scan(call) => build_one(place, call, selection),
        Call::Exscan(call) => build_one(place, call, selection),
        Call::NeighborAllgather(call) => build_one(place, call, selection),
        Call::NeighborAllgatherv(call) => build_one(place, call, selection),
        Call::NeighborAlltoall(call) => build_one(place, call, selection),
        Call::NeighborAlltoallv(call) => build_one(place, call, selection),
        Call::NeighborAlltoallw(call) => build_one(place, call, selection),
        Call::Inter(call) => build_inter(place, call, selection),
    }
}

/// All algorithms, by collective.
pub fn algorithms() -> impl Iterator<Item = AlgorithmInfo> + Clone {
    Collective::ALL.into_iter().flat_map(|collective| match collective {
        Collective::Barrier => list::<Barrier>(),
        Collective::Bcast => list::<Bcast>(),
        Collective::Gather => list::<Gather>(),
        Collective::Gatherv => list::<Gatherv>(),
        Collective::Scatter => list::<Scatter>(),
        Collective::Scatterv => list::<Scatterv>(),
        Collective::Allgather => list::<Allgather>(),
        Collective::Allgatherv => list::<Allgatherv>(),
        Collective::Alltoall => list::<Alltoall>(),
        Collective::Alltoallv => list::<Alltoallv>(),
        Collective::Alltoallw => list::<Alltoallw>(),
        Collective::Reduce => list::<Reduce>(),
        Collective::Allreduce => list::<Allreduce>(),
        Collective::ReduceScatter => list::<ReduceScatter>(),
        Collective::ReduceScatterBlock => list::<ReduceScatterBlock>(),
        Collective::Scan => list::<Scan>(),
        Collective::Exscan => list::<Exscan>(),
        Collective::NeighborAllgather => list::<NeighborAllgather>(),
        Collective::NeighborAllgatherv => list::<NeighborAllgatherv>(),
        Collective::NeighborAlltoall => list::<NeighborAlltoall>(),
        Collective::NeighborAlltoallv => list::<NeighborAlltoallv>(),
        Collective::NeighborAlltoallw => list::<NeighborAlltoallw>(),
    })
}

/// The tables by which algorithms are chosen where none is asked for by name.
pub fn choices() -> impl Iterator<Item = Choice> + Clone {
    Collective::ALL.into_iter().flat_map(|collective| match collective {
        Collective::Barrier => selection::choices::<Barrier>(),
        Collective::Bcast => selection::choices::<Bcast>(),
        Collective::Gather => selection::choices::<Gather>(),
        Collective::Gatherv => selection::choices::<Gatherv>(),
        Collective::Scatter => selection::choices::<Scatter>(),
        Collective::Scatterv => selection::choices::<Scatterv>(),
        Collective::Allgather => selection::choices::<Allgather>(),
        Collective::Allgatherv => selection::choices::<Allgatherv>(),
        Collective::Alltoall => selection::choices::<Alltoall>(),
        Collective::Alltoallv => selection::choices::<Alltoallv>(),
        Collective::Alltoallw => selection::choices::<Alltoallw>(),
        Collective::Reduce => selection::choices::<Reduce>(),
        Collective::Allreduce => selection::choices::<Allreduce>(),
        Collective::ReduceScatter => selection::choices::<ReduceScatter>(),
        Collective::ReduceScatterBlock => selection::choices::<ReduceScatterBlock>(),
        Collective::Scan => selection::choices::<Scan>(),
        Collective::Exscan => selection::choices::<Exscan>(),
        Collective::NeighborAllgather => selection::choices::<NeighborAllgather>(),
        Collective::NeighborAllgatherv => selection::choices::<NeighborAllgatherv>(),
        Collective::NeighborAlltoall => selection::choices::<NeighborAlltoall>(),
        Collective::NeighborAlltoallv => selection::choices::<NeighborAlltoallv>(),
        Collective::NeighborAlltoallw => selection::choices::<NeighborAlltoallw>(),
    })
}

fn build_inter(place: Place, call: &Inter, selection: &Selection) -> Result<Schedule, BuildError> {
    if place.rank >= place.size {
        return Err(BuildError::RankOutOfRange { rank: place.rank, size: place.size });
    }
    algorithms::inter::check(place, call)?;
    let mut builder = Builder::new(place);
    algorithms::inter::append(&mut builder, call, selection);
    Ok(builder.finish("inter"))
}

fn build_one<C: CollectiveCall>(place: Place, call: &C, selection: &Selection) -> Result<Schedule, BuildError> {
    if place.rank >= place.size {
        return Err(BuildError::RankOutOfRange { rank: place.rank, size: place.size });
    }
    call.check(place)?;
    let algorithm = selection.choose(place, call);
    let mut builder = Builder::new(place);
    (algorithm.build)(&mut builder, call);
    Ok(builder.finish(algorithm.name))
}
