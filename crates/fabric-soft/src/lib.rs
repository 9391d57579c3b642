//! Software adapters: the verbs without hardware.
//!
//! Floor: wire. Uses `base`, `lockfree` and `fabric`.
//!
//! [`adapter`] is the adapter itself, written once: queue pairs, keys, matching, retries, completions. It stands on a
//! [`link`], which carries packets between two adapters: [`loopback`] inside one process, [`shm`] on one host, [`tcp`]
//! between hosts, [`sim`] through a simulated network with costs and faults. [`shm`] also holds the mapped peers of a
//! host, which the engine uses beside the verbs.
//!
//! **Invariants**
//! - The adapter does no I/O, reads no clock and never waits: packets and time come from its link.
//! - What a peer sent is parsed before it is believed; what it wants is checked against what this side registered. A
//!   broken peer costs itself its queue pairs.
//! - Every queue has a limit. A link that is full is asked again; a peer that floods gets no more answers.
//! - Segments are memfds, sealed against shrinking and handed over a Unix socket of the abstract namespace to
//!   processes of the same user only: no file, no `/dev/shm`, nothing left behind after a crash.
//!
//! An adapter works inside the calls of its owner; [`threaded`] gives one a thread that works while its owner does not.
//!
//! Deliberately absent: how endpoints travel between processes; the example `remote_write` sends them through a pipe.
//!
//! ```
//! use fabric::{Context, ConnectOptions, Operation, Payload, QueuePairAttributes, SendRequest, WorkCompletion};
//! use fabric_soft::{LoopbackHub, SoftContext};
//!
//! # fn main() -> Result<(), fabric::FabricError> {
//! let mut adapter = SoftContext::new(LoopbackHub::new().link()?);
//! let domain = adapter.allocate_protection_domain()?;
//! let completions = adapter.create_completion_queue(16)?;
//! let qp = adapter.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
//! // A queue pair may be its own peer.
//! let remote = adapter.endpoint(qp)?;
//! fabric::connect(&mut adapter, qp, Some(remote), &ConnectOptions::default())?;
//! let (region, memory) = adapter.allocate(domain, 64, fabric::Access::REMOTE_WRITE)?;
//! let write = Operation::RdmaWrite(region.remote(8));
//! adapter.post_send(qp, &[SendRequest::new(7, write, Payload::Inline(&42u64.to_ne_bytes()))])?;
//! let mut done = [WorkCompletion::default()];
//! while adapter.poll(completions, &mut done)? == 0 {}
//! assert_eq!((done[0].id, done[0].status), (7, fabric::WcStatus::Success));
//! assert_eq!(memory.word(8).load(std::sync::atomic::Ordering::Relaxed), 42);
//! # Ok(())
//! # }
//! ```

pub mod adapter;
pub mod copying;
pub mod link;
pub mod loopback;
mod numbered;
#[cfg(test)]
mod quiet;
pub mod shm;
pub mod sim;
pub mod tcp;
pub mod threaded;
mod wire;

pub use adapter::{SoftContext, SoftDevice};
pub use loopback::{LoopbackHub, LoopbackLink};
pub use sim::{SimNetwork, SimPlan};
pub use threaded::ThreadedContext;
