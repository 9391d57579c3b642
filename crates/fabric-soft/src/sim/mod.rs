//! A simulated network inside one process: virtual time, costs by LogGP, and faults asked for by a [`SimPlan`].
//!
//! ```text
//!   SoftContext ─ SimLink ┐                                 ┌ SimLink ─ SoftContext
//!                         ▼                                 ▼
//!      send port: o, then G per byte ──▶ L + jitter ──▶ receive port: o    (LinkCost)
//!                         │   loss, cuts, reordered datagrams   │
//!                         └◀── transport acknowledgement, NAK ──┘
//! ```
//! Everything but datagrams travels as a reliable connection does: numbered, acknowledged by the simulated hardware,
//! sent again from the first that is missing (go-back-N) when a NAK or the time-out says so, and given up when the
//! retries are spent; then the adapter is told that its peer is lost. A datagram travels once, may vanish and may be
//! overtaken.
//!
//! **Time is virtual.** It moves when nobody has anything left to do at this moment: see [`SimClock`]. There is no
//! clock, no sleep and no thread, so a run in one thread depends on its plan and on nothing else. A network that is
//! dropped while a test fails prints its plan, the seed with it.
//!
//! Cost of a message of `k` bytes on an idle link: `o + (k - 1) G + L + o`; two messages of a sender lie
//! `max(o, g + (k - 1) G)` apart. The adapter's own answers without payload (acknowledgements, refusals) are made by
//! hardware elsewhere, so they cost `L` and occupy no port.
//!
//! Deliberately absent: time-outs and retry counts per queue pair (the plan's hold between two adapters), switches that
//! links share, corrupted bytes, a descriptor to sleep on. Adapters may be polled by several threads, but then polls
//! race and runs differ.
//! Paper: Alexandrov et al., LogGP (1995) §2.

mod link;
mod network;
mod plan;

pub use link::{SimLink, SimNetwork};
pub use network::SimCounts;
pub use plan::{Fault, HEADER_ON_WIRE_BYTES, LinkCost, SimClock, SimPlan};
