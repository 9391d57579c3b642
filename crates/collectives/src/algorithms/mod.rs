//! The algorithms: a folder per collective, a file per algorithm, each a value.

pub(crate) mod allreduce;
pub(crate) mod barrier;
pub(crate) mod bcast;
pub(crate) mod common;
pub(crate) mod reduce;
