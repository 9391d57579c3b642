//! Structures laid out over given, shared memory: the block between two processes, the doorbell a sleeper is
//! woken by, the claim cell by which two processes share the copying of one message, the board on which a process shows
//! a group what it has, entries that peers act on without asking their owner, and queues where receives and sends meet.
//!
//! Floor: ground. Uses `base`.
//!
//! **Invariants**
//! - Everything in [`SharedMemory`] may be changed by another process at any moment: values are loaded once,
//!   through atomics, and checked before they are used as lengths or positions.
//! - Layouts are offsets and fixed-width words; there is no pointer in shared memory.
//! - No structure here waits; each operation is a bounded number of steps.
//!
//! Deliberately absent: system calls (who sleeps and how is the caller's business), allocation.
//!
//! ```
//! use lockfree::{BlockReceiver, BlockSender, Record, SharedMemory};
//! let memory = SharedMemory::private(BlockSender::footprint(4096));
//! let mut sender = BlockSender::new(memory.clone(), 4096);
//! let mut receiver = BlockReceiver::new(memory, 4096);
//! let record = Record { kind: 1, short: 0, long: 7, ..Record::default() };
//! assert!(sender.push(record, 5, |space| space.copy_from_slice(b"hello")));
//! let mut got = Vec::new();
//! assert!(receiver.pop(|record, payload| { assert_eq!(record.long, 7); got.extend_from_slice(payload) }));
//! assert_eq!(got, b"hello");
//! ```

pub mod announcements;
pub mod block;
pub mod board;
pub mod claim;
pub mod doorbell;
pub mod fastpath;
mod growth;
mod instruction;
pub mod mailbox;
pub mod meeting;
pub mod pace;
pub mod published;
pub mod shared;
pub mod shuttle;
pub mod slots;
pub mod streaming;
mod trial;

pub use announcements::Announcements;
pub use block::{BlockReceiver, BlockSender, Reader, Record};
pub use board::Board;
pub use claim::ClaimCell;
pub use doorbell::{Barrier, Doorbell, Ticket};
pub use growth::{Allowance, Bounds};
pub use mailbox::{MailboxReceiver, MailboxSender};
pub use meeting::Meeting;
pub use published::{Engagement, Look, PublishedTable, Sight};
pub use shared::{SharedMemory, SharedWord};
pub use shuttle::{Aboard, Brought, HeldShuttles, Load, Passage, Shuttle, Shuttles};
pub use slots::{Slot, SlotMemory, SlotStore};
pub use streaming::{MEDIUM_MIN_BYTES, STREAMING_MIN_BYTES, Stores};

/// How often a test repeats itself: `count` times, or `few` times under miri, which takes a thousand times as long.
#[cfg(all(test, not(loom)))]
pub(crate) const fn times(count: u64, few: u64) -> u64 {
    if cfg!(miri) { few } else { count }
}

/// Bytes of a cache line: what one transfer between two cores carries.
pub const CACHE_LINE_BYTES: usize = base::streaming::LINE_BYTES;
