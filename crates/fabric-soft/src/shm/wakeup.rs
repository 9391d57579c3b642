//! Sleeping on the doorbell's futex, across processes.

use std::time::Duration;

use fabric::{Ticket, Wakeup};
use lockfree::{Barrier, Doorbell};
use rustix::thread::{MembarrierCommand, futex, membarrier};

use super::placement::Placement;

/// Sleeps on this process's own doorbell.
pub(super) struct ShmWakeup {
    doorbell: Doorbell,
    placement: Placement,
}

impl ShmWakeup {
    pub(super) fn new(doorbell: Doorbell, placement: Placement) -> Self {
        Self { doorbell, placement }
    }
}

impl Wakeup for ShmWakeup {
    fn announce(&self) -> Ticket {
        self.doorbell.announce()
    }

    fn withdraw(&self) {
        self.doorbell.withdraw();
    }

    fn sleep(&self, ticket: Ticket, timeout: Duration) {
        let limit = rustix::thread::futex::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // Woken, timed out, interrupted or too late: the caller polls again in every case.
        let _ = futex::wait(self.doorbell.futex_word(), futex::Flags::empty(), ticket.rings(), Some(&limit));
        self.doorbell.withdraw();
    }

    fn rest(&self) {
        std::thread::yield_now();
        self.placement.look_around();
    }

    fn wake_local(&self) {
        ring(&self.doorbell);
    }
}

/// A barrier that one process imposes on all that have registered for it, if the system offers that: it makes a
/// message cheaper than one that brings a barrier of its own.
pub(super) fn imposed_barrier() -> Barrier {
    let registered = membarrier(MembarrierCommand::RegisterGlobalExpedited);
    match registered.and_then(|()| membarrier(MembarrierCommand::GlobalExpedited)) {
        Ok(()) => Barrier::Imposed(|| {
            membarrier(MembarrierCommand::GlobalExpedited).expect("a registered process may impose a barrier");
        }),
        Err(_) => Barrier::Own,
    }
}

/// Wakes everybody who sleeps at `doorbell`.
#[inline]
pub(super) fn ring(doorbell: &Doorbell) {
    if doorbell.must_ring() {
        let _ = futex::wake(doorbell.futex_word(), futex::Flags::empty(), i32::MAX as u32);
    }
}
