//! Sleeping on the doorbell's futex, across processes.

use std::time::Duration;

use fabric::{Ticket, Wakeup};
use lockfree::{Barrier, Doorbell};
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, futex, membarrier};

use super::lookout::Lookout;
use super::placement::Placement;

/// Sleeps on this process's own doorbell.
pub(super) struct ShmWakeup {
    doorbell: Doorbell,
    placement: Placement,
    lookout: Option<Lookout>,
}

impl ShmWakeup {
    pub(super) fn new(doorbell: Doorbell, placement: Placement) -> Self {
        Self { doorbell, placement, lookout: None }
    }

    /// Nobody is moved out of another's way.
    pub(super) fn stay(&mut self) {
        self.placement = Placement::nowhere();
    }

    pub(super) fn runs_here(&self, process: u32) -> bool {
        self.placement.runs_here(process)
    }

    /// Whoever sleeps looks for peers that are stopped.
    pub(super) fn look_out(&mut self, lookout: Lookout) {
        self.lookout = Some(lookout);
    }

    pub(super) fn given_up(&self) -> Option<(u32, String)> {
        self.lookout.as_ref()?.given_up()
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
        let in_vain = sleep(&self.doorbell, ticket, Some(timeout));
        self.doorbell.withdraw();
        self.slept(in_vain);
    }

    fn slept(&self, in_vain: bool) {
        if let Some(lookout) = &self.lookout {
            lookout.look(in_vain);
        }
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
pub fn imposed_barrier() -> Barrier {
    if cfg!(miri) {
        return Barrier::Own;
    }
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
pub fn ring(doorbell: &Doorbell) {
    if doorbell.must_ring() {
        wake(doorbell);
    }
}

/// Sleeps at `doorbell` until it rings after `ticket` was drawn, or the time is up, which is told; `None`: it never is. Who is
/// interrupted returns as well, so whoever sleeps looks again in every case.
pub fn sleep(doorbell: &Doorbell, ticket: Ticket, timeout: Option<Duration>) -> bool {
    let limit =
        timeout.map(|left| futex::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    let slept = futex::wait(doorbell.futex_word(), futex::Flags::empty(), ticket.rings(), limit.as_ref());
    slept == Err(Errno::TIMEDOUT)
}

/// Wakes everybody who sleeps on the word of `doorbell`, which has rung.
pub(super) fn wake(doorbell: &Doorbell) {
    let _ = futex::wake(doorbell.futex_word(), futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use fabric::SharedMemory;

    use super::*;

    /// Longer than any machine keeps a runnable thread waiting; a wake-up that was lost takes this long.
    const LOST: Duration = Duration::from_secs(20);

    /// Looks for a while, each time another while, and then sleeps: the other answers at once, so that now and then it
    /// does so in the very moment of the announcement.
    fn wait_for_turn(wakeup: &ShmWakeup, turn: &AtomicU32, mine: u32) {
        for _ in 0..mine.wrapping_mul(2_654_435_761) >> 23 {
            if turn.load(Ordering::Acquire) == mine {
                return;
            }
            std::hint::spin_loop();
        }
        while turn.load(Ordering::Acquire) != mine {
            let ticket = wakeup.announce();
            if turn.load(Ordering::Acquire) == mine {
                wakeup.withdraw();
                return;
            }
            let start = Instant::now();
            wakeup.sleep(ticket, LOST);
            assert!(start.elapsed() < LOST, "nobody rang");
        }
    }

    /// Two sleep and wake each other by turns.
    fn take_turns(barrier: Barrier) {
        let memory = SharedMemory::private(2 * Doorbell::FOOTPRINT);
        let bell = |at: usize| {
            let part = memory.part(at * Doorbell::FOOTPRINT, Doorbell::FOOTPRINT).expect("inside");
            let doorbell = Doorbell::new(part, barrier);
            doorbell.own();
            doorbell
        };
        let bells = [bell(0), bell(1)];
        let turn = AtomicU32::new(0);
        let rounds = 100_000;
        let play = |me: usize| {
            let wakeup = ShmWakeup::new(bells[me].clone(), Placement::new(0, Vec::new()));
            for round in 0..rounds {
                wait_for_turn(&wakeup, &turn, 2 * round + me as u32);
                turn.store(2 * round + me as u32 + 1, Ordering::Release);
                ring(&bells[1 - me]);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(0));
            play(1);
        });
        assert_eq!(turn.load(Ordering::Relaxed), 2 * rounds);
    }

    #[test]
    fn nobody_is_slept_through_with_a_barrier_in_each_message() {
        take_turns(Barrier::Own);
    }

    #[test]
    fn nobody_is_slept_through_with_a_barrier_imposed_by_the_sleeper() {
        match imposed_barrier() {
            Barrier::Own => println!("skipped: the system offers no barrier that can be imposed"),
            imposed => take_turns(imposed),
        }
    }
}
