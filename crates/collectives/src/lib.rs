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
//! **Absent on purpose**: buffers, datatypes, operations and requests (the host's); clocks and
//! tuning (tables are data, see [`Selection`]); intercommunicators.
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
    NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw, Reduce,
    ReduceScatter, ReduceScatterBlock, Scan, Scatter, Scatterv,
};
pub use collective::Collective;
pub use data::{Data, Neighbour, Neighbours, Part, Place, TypeShape, Vector};
pub use error::{BuildError, SelectionError};
pub use execution::{Execution, Host, Progress};
pub use schedule::{BufferId, Region, Schedule, Step, TAG_OFFSETS_MAX, Temp, TypeSlot};
pub use selection::{AlgorithmInfo, Selection};

use builder::Builder;
use selection::CollectiveCall;

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
    }
}

/// All algorithms, by collective.
pub fn algorithms() -> impl Iterator<Item = AlgorithmInfo> + Clone {
    [
        list::<Barrier>,
        list::<Bcast>,
        list::<Gather>,
        list::<Gatherv>,
        list::<Scatter>,
        list::<Scatterv>,
        list::<Allgather>,
        list::<Allgatherv>,
        list::<Alltoall>,
        list::<Alltoallv>,
        list::<Alltoallw>,
        list::<Reduce>,
        list::<Allreduce>,
        list::<ReduceScatter>,
        list::<ReduceScatterBlock>,
        list::<Scan>,
        list::<Exscan>,
        list::<NeighborAllgather>,
        list::<NeighborAllgatherv>,
        list::<NeighborAlltoall>,
        list::<NeighborAlltoallv>,
        list::<NeighborAlltoallw>,
    ]
    .into_iter()
    .flat_map(|list| list())
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

fn list<C: CollectiveCall>() -> Vec<AlgorithmInfo> {
    let info = |algorithm: &&selection::Algorithm<C>| AlgorithmInfo {
        collective: C::COLLECTIVE,
        name: algorithm.name,
        summary: algorithm.summary,
        cost: algorithm.cost,
    };
    C::ALGORITHMS.iter().map(info).collect()
}
