//! Counters that show which mechanism was at work.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What is counted; each figure grows only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Bytes copied from the caller's memory into shadow segments (way 2).
    CopiedInBytes,
    /// Bytes copied from shadow segments into the caller's memory (way 2).
    CopiedOutBytes,
    /// Bytes transferred from or to memory inside a segment, which needs no such copy (way 3).
    SparedBytes,
    /// Bytes moved between this process's segments and those of a peer.
    TransferredBytes,
    /// Pieces in which they were moved.
    Pieces,
    /// Pushes of receive descriptors to the other side.
    Pushes,
    /// Receive descriptors pushed by them.
    DescriptorsPushed,
    /// Sends that had to wait until the other side pushed descriptors that it had posted.
    SendsHeld,
    /// Sends of unreliable VIs for which no receive was posted.
    Dropped,
    /// Copies that the event manager made for an RDMA operation of a peer.
    Served,
    /// Waits that ended without a sleep.
    WaitsAwake,
    /// Sleeps of waiting threads.
    Sleeps,
    /// Times that the event manager woke.
    ManagerWakes,
    /// Records of a peer that made no sense.
    Refused,
}

impl Counter {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::CopiedInBytes,
        Self::CopiedOutBytes,
        Self::SparedBytes,
        Self::TransferredBytes,
        Self::Pieces,
        Self::Pushes,
        Self::DescriptorsPushed,
        Self::SendsHeld,
        Self::Dropped,
        Self::Served,
        Self::WaitsAwake,
        Self::Sleeps,
        Self::ManagerWakes,
        Self::Refused,
    ];
}

/// Figures at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; Counter::ALL.len()]);

impl Counts {
    /// One of them.
    pub fn of(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// How much each has grown since then.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] - before.0[index]))
    }
}

#[derive(Default)]
pub(crate) struct Counters([AtomicU64; Counter::ALL.len()]);

impl Counters {
    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.0[counter as usize].fetch_add(amount, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|index| self.0[index].load(Relaxed)))
    }
}
