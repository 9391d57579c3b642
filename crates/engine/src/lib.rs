//! The engine of one process: matching, requests, progress and waiting.
//!
//! Floor: machinery. Uses `base`, `lockfree`, `fabric`, `datatype` and `protocol`.
//!
//! **Invariants**
//! - An [`Engine`] is a value: a test owns as many as it likes, in one process.
//! - Messages from one process in one context match receives in the order they were sent (MPI: §3.5).
//! - A request completes exactly once; a stale [`RequestId`] finds nothing.
//! - Unexpected data has a budget; past it senders are held back (they keep their data until it is asked for).
//! - Nothing here blocks: [`Engine::progress`] does what can be done and returns. Who waits uses the [`Waiter`],
//!   without holding the engine.
//!
//! Deliberately absent: communicators, ranks in them, collectives, error classes.

#![forbid(unsafe_code)]

mod arrivals;
mod blocks;
mod board;
mod channels;
mod coming;
mod core;
mod deliver;
mod descriptor;
mod eager;
mod inbound;
mod layouts;
mod matching;
mod neighbours;
mod packed;
mod peer;
mod port;
mod progress;
mod receives;
mod request;
mod scattered;
mod shuttles;
mod standing;
mod stats;
mod streams;
mod transfer;
mod tuples;
mod wait;
mod watch;
mod ways;

pub use crate::board::{
    BOARD_COMMON_BYTES, BOARD_COMMON_PIECES, BOARD_PIECE_BYTES, BOARD_PIECES, BOARD_SHORT_BYTES, BOARD_STEP_BYTES,
    BOARDS_MAX, BoardCommonPiece, BoardOffer, BoardTable, GroupBoard, Lent, LentPlace,
};
pub use crate::core::{CHANNEL_MEMORY_MAX_BYTES, Engine};
pub use port::Port;
pub use request::{
    Completion, ContextId, Envelope, Fault, MessageId, Outcome, PeerId, RequestId, SendMode, Source, Tag, TagPattern,
};
pub use shuttles::ABOARD_MIN_BYTES;
pub use standing::CreditBalance;
pub use stats::{Counter, CounterKind, Holdings, PeerStats, Stats};
pub use tuples::TupleSetup;
pub use wait::{Backoff, Passing, Pause, Ticket, WaitPolicy, Waiter};
pub use watch::{EVENTS_MAX, Event, EventKind};

/// What can be wrong with a call of the engine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// There is no such peer.
    #[error("there is no process {0} in this world")]
    NoSuchPeer(u32),
    /// The matched message was received already, or never existed.
    #[error("the matched message does not exist any more")]
    NoSuchMessage,
    /// The process cannot be reached any more.
    #[error("process {peer} is lost: {why}")]
    PeerLost {
        /// The process.
        peer: u32,
        /// What was seen of it last.
        why: String,
    },
    /// The device failed at start.
    #[error(transparent)]
    Fabric(#[from] fabric::FabricError),
    /// The device does not map its peers; channels need that.
    #[error("device {0} does not offer mapped memory")]
    NoMappedPeers(&'static str),
}
