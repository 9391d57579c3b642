//! Real adapters: InfiniBand and RoCE through rdma-core.
//!
//! Floor: wire. Uses `base`, `lockfree` and `fabric`.
//!
//! `libibverbs.so.1` is loaded when first asked for ([`ffi`]), so that one binary works on machines with and without
//! adapters and nothing is needed to build it.
//!
//! **Invariants**
//! - What crosses the border to C is declared once, in [`ffi`], and checked against the installed header by a test.
//! - Every limit is asked of the adapter; none is assumed.
//! - A request is known to the adapter by a number that dies with its queue, so that a late completion never ends
//!   another request.
//! - Where the adapter has no XRC, ordinary connections keep its semantics, order included.
//!
//! Deliberately absent: connections through rdma_cm, and with it iWARP; addresses are exchanged by whoever starts the job.
//! Only groups on InfiniBand are joined through it (`multicast`), by `librdmacm.so.1`, loaded for the first of them.
//! On-demand paging, memory windows.
//!
//! ```
//! use fabric::Device;
//! use fabric_verbs::{VerbsDevice, choice::Wanted};
//!
//! match VerbsDevice::find(&Wanted::default()) {
//!     Ok(device) => println!("{}", device.capabilities().description),
//!     Err(why) => println!("no RDMA here: {why}"),
//! }
//! ```

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
