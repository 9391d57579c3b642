//! Shared memory: the mapped peers of a host, and the link of its software adapters.
//!
//! One segment per host and job holds a *part* per process:
//!
//! ```text
//!   segment = header | part 0 | part 1 | …
//!   part    = doorbell | identity | memory-region table | claim cells | announcements | reach | engagement
//!           | published regions | published queue pairs | meeting | mailbox | channel from 0 | … | arena | boards
//! ```
//! The segment is sparse: a channel, or a table, costs memory when it is first written. [`ShmPeers`] and [`ShmLink`]
//! use channels and doorbells each in its own way, so each has a segment of its own.
//!
//! A process that is stopped is not one that computes: the former is told of, and given up past a deadline if there is one
//! ([`StopPolicy`]); reads, writes and atomics by the initiator's processor go on until then.

mod arena;
mod board;
mod cross_memory;
mod direct;
mod exchange;
mod grants;
mod life;
mod link;
mod lookout;
mod packets;
mod peers;
mod placement;
mod region_table;
pub mod sealed;
mod segment;
mod sleeper;
mod wakeup;
mod watch;

pub use cross_memory::probe as probe_cross_memory;
pub use exchange::{SegmentServer, join};
pub use link::ShmLink;
pub use peers::ShmPeers;
pub use segment::{Segment, Shape};
pub use wakeup::{imposed_barrier, ring, sleep};
pub use watch::StopPolicy;
