//! The shared-memory device.
//!
//! One segment per host and job holds a *part* per process:
//!
//! ```text
//!   segment = header | part 0 | part 1 | …
//!   part    = doorbell | identity | memory-region table | claim cells | introductions | channel from 0 | channel from 1 | …
//! ```
//! The segment is sparse: a channel costs memory when its first message is written.

mod cross_memory;
mod exchange;
mod peers;
mod region_table;
mod segment;
mod wakeup;

pub use cross_memory::probe as probe_cross_memory;
pub use exchange::{SegmentServer, join};
pub use peers::ShmPeers;
pub use segment::{Segment, Shape};
