//! Waiting: look, yield, then sleep on the doorbell's futex. Nobody spins for long, and nobody sleeps through a ring.

use std::time::{Duration, Instant};

use fabric_soft::shm;
use lockfree::Doorbell;

use crate::counters::{Counter, Counters};

/// Looks before the processor is offered to others, and how often it is before a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Looks in a row.
    pub spin_count: u32,
    /// Yields after them, with a look each.
    pub yield_count: u32,
}

impl WaitPolicy {
    /// Short looks where there is a second processor, none where there is not.
    pub fn for_host() -> Self {
        match std::thread::available_parallelism().map_or(1, usize::from) {
            1 => Self { spin_count: 1, yield_count: 4 },
            _ => Self { spin_count: 1000, yield_count: 16 },
        }
    }
}

/// When a call gives up; `None`: never.
pub(crate) type Deadline = Option<Instant>;

/// So many milliseconds from now; too many are for ever.
pub(crate) fn deadline(timeout: Option<Duration>) -> Deadline {
    Instant::now().checked_add(timeout?)
}

/// Waits until `look` finds something; `None` when the time is up.
pub(crate) fn wait<T>(
    bell: &Doorbell,
    policy: WaitPolicy,
    counters: &Counters,
    deadline: Deadline,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let found = 'awake: {
        for round in 0..policy.spin_count.max(1) {
            if let Some(found) = look() {
                break 'awake Some(found);
            }
            // The first of them counts for a caller who only wants to look; asking the clock costs as much as many looks.
            if round % 64 == 0 && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break 'awake None;
            }
            std::hint::spin_loop();
        }
        for _ in 0..policy.yield_count {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                break;
            }
            std::thread::yield_now();
            if let Some(found) = look() {
                break 'awake Some(found);
            }
        }
        None
    };
    if found.is_some() {
        counters.add(Counter::WaitsAwake, 1);
        return found;
    }
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ticket = bell.announce();
        let found = look();
        if found.is_some() || left == Some(Duration::ZERO) {
            bell.withdraw();
            return found;
        }
        counters.add(Counter::Sleeps, 1);
        shm::sleep(bell, ticket, left);
        bell.withdraw();
    }
}
