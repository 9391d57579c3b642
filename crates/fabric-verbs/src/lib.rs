//! Real adapters: InfiniBand and RoCE through rdma-core.
//!
//! Floor: wire. Uses `base` and `fabric`.
//!
//! `libibverbs.so.1` is loaded when first asked for ([`ffi`]), so that one binary works on machines with and without
//! adapters and nothing is needed to build it.
//!
//! **Invariants**
//! - What crosses the border to C is declared once, in [`ffi`], and checked against the installed header by a test.
//! - Every limit is asked of the device; none is assumed.
//!
//! Deliberately absent: rdma_cm. Addresses are exchanged by whoever starts the job.

mod address;
pub mod choice;
mod completions;
mod connect;
mod context;
mod device;
pub mod ffi;
mod limits;
mod multicast;
mod objects;
mod posting;
mod queues;
mod status;
mod substitute;

pub use context::VerbsContext;
pub use device::{NoDevice, Survey, VerbsDevice};
