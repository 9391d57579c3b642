//! The verbs: what every device of Ferrovia offers, in InfiniBand's words.
//!
//! Floor: wire. Uses `base` and `lockfree`.
//!
//! A [`Device`] joins a [`Context`]; there, memory becomes a [`MemoryRegion`] with keys, a [`QueuePair`] leads to one
//! peer, a [`WorkRequest`] posted to it ends as a [`WorkCompletion`]. Beyond verbs, a device may offer *mapped
//! peers* ([`Context::mapped`]): memory of a peer that is stored to directly.
//!
//! **Invariants**
//! - Keys and bounds are checked against what the target registered, not against what the initiator believes.
//! - Work requests of one queue pair complete in the order they were posted.
//! - A queue pair that fails goes to [`QueuePairState::Error`]; what is posted to it afterwards is flushed.
//! - "No room" is a count of what was accepted, never an error.
//!
//! Deliberately absent: matching, protocols, ranks' meaning. Reliable connections with RDMA write and read are what
//! the engine needs today; the other transports and operations join this vocabulary when a device carries them.

#![forbid(unsafe_code)]

mod verbs;

pub use verbs::{
    Access, Capabilities, Context, Device, FabricError, Lkey, LocalMemory, MappedArea, MemoryRegion, Operation,
    PeerIndex, QpNumber, QueuePairState, RemoteMemory, Rkey, Wakeup, WcStatus, WorkCompletion, WorkRequest,
};

#[doc(no_inline)]
pub use lockfree::{SharedMemory, Ticket};
