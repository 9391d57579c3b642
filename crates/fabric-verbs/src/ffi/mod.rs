//! `libibverbs.so.1` as it is: its structures, its numbers, and its functions found at run time; and of `librdmacm.so.1`
//! what groups need ([`rdma_cm`]).
//!
//! Names are the headers' own in Rust's spelling (`struct ibv_qp_attr` is [`IbvQpAttr`]), so that whoever knows
//! `infiniband/verbs.h` finds them. Of objects that only the library makes, the leading fields that we read are
//! declared and the rest is left out.

#![expect(missing_docs, reason = "fields and functions are the headers' own; their manual pages describe them")]

mod library;
pub mod numbers;
pub mod rdma_cm;
mod structures;

pub use library::{LoadError, Verbs};
pub use structures::*;
