//! The algorithms: a folder per collective, a file per algorithm, each a value.
//!
//! The tables in the `mod.rs` of each folder come from measurement over shared memory, with a core
//! for each rank and with several ranks per core; [`crate::choices`] lists them.

pub(crate) mod allgather;
pub(crate) mod allreduce;
pub(crate) mod alltoall;
pub(crate) mod barrier;
pub(crate) mod bcast;
pub(crate) mod common;
pub(crate) mod gather;
pub(crate) mod inter;
pub(crate) mod neighbor;
pub(crate) mod reduce;
pub(crate) mod reduce_scatter;
pub(crate) mod scan;
pub(crate) mod scatter;
