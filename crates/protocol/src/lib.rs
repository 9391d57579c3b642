//! What processes say to each other: records on the fast path, and the protocols built from them.
//!
//! Floor: machinery. Uses `base`, `lockfree` and `fabric`.
//!
//! **Invariants**
//! - A match key is an opaque 64-bit number here; what it means is the engine's business.
//! - Nothing here posts, sleeps or reads a clock: [`wire`] turns messages into records and back, [`Link`] keeps them
//!   in order while there is no room, [`verbs_channel`] counts credits, [`rendezvous`] and [`experience`] decide who moves
//!   which bytes.
//! - Every record that arrives is parsed into [`wire::Message`] or refused; identifiers in it are looked up, never
//!   trusted.
//!
//! Deliberately absent: matching, requests, user buffers.

#![forbid(unsafe_code)]

pub mod blocks;
pub mod experience;
pub mod fastpath;
pub mod link;
pub mod registration;
pub mod rendezvous;
pub mod schemes;
pub mod table;
pub mod tupleq;
pub mod verbs_channel;
pub mod wire;

pub use link::{Link, Outgoing};
pub use rendezvous::{CopyPlan, Thresholds};
pub use wire::{LayoutReference, Message, RendezvousOffer, ScatteredMemory, SharedCopy, SourceLayout};
