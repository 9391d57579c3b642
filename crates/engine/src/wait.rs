//! Waiting that ends in sleep.
//!
//! Spin a little, yield a little, then sleep until somebody rings. How little depends on whether every process can
//! have a core of its own: where ranks outnumber cores, spinning only keeps the others from working.

use std::sync::Arc;
use std::time::Duration;

pub use fabric::Ticket;
use fabric::Wakeup;

/// Longest sleep before a waiting thread looks for itself.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// How long to spin and to yield before sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPolicy {
    /// Empty polls before the first yield.
    pub spin_count: u32,
    /// Yields before the first sleep.
    pub yield_count: u32,
}

impl WaitPolicy {
    /// The policy for `process_count` processes on `core_count` cores.
    pub fn for_host(process_count: u32, core_count: u32) -> Self {
        // A yield costs a fraction of a microsecond where nobody else wants the core, and where somebody does (a
        // rank placed on the same core, another program) spinning on would cost a time slice.
        if process_count <= core_count {
            Self { spin_count: 300, yield_count: 2000 }
        } else {
            Self { spin_count: 2, yield_count: 500 }
        }
    }
}

/// Puts threads of this process to sleep and wakes them; used without the engine borrowed.
pub struct Waiter {
    wakeup: Arc<dyn Wakeup>,
    policy: WaitPolicy,
}

/// What a waiting thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// Poll again at once.
    Spin,
    /// Let others run, then poll.
    Yield,
    /// Announce, poll once more, sleep.
    Sleep,
}

/// How patient a waiting thread still is.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: WaitPolicy,
    polls: u32,
}

impl Waiter {
    pub(crate) fn new(wakeup: Arc<dyn Wakeup>, policy: WaitPolicy) -> Self {
        Self { wakeup, policy }
    }

    /// A fresh count of patience.
    pub fn backoff(&self) -> Backoff {
        Backoff { policy: self.policy, polls: 0 }
    }

    /// Lets others run for a moment.
    pub fn rest(&self) {
        self.wakeup.rest();
    }

    /// How long to spin and to yield.
    pub fn policy(&self) -> WaitPolicy {
        self.policy
    }

    /// From now on senders wake this process; poll once more after this, then sleep or withdraw.
    pub fn announce(&self) -> Ticket {
        self.wakeup.announce()
    }

    /// Takes an announcement back.
    pub fn withdraw(&self, _ticket: Ticket) {
        self.wakeup.withdraw();
    }

    /// Sleeps until woken, at most a second, and withdraws.
    pub fn sleep(&self, ticket: Ticket) {
        self.wakeup.sleep(ticket, SLEEP_MAX);
    }

    /// Another thread of this process completed something: wakes the sleepers.
    pub fn wake_local(&self) {
        self.wakeup.wake_local();
    }
}

impl Backoff {
    /// What to do after a poll that found nothing.
    #[inline]
    pub fn pause(&mut self) -> Pause {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= self.policy.spin_count {
            Pause::Spin
        } else if self.polls <= self.policy.spin_count.saturating_add(self.policy.yield_count) {
            Pause::Yield
        } else {
            Pause::Sleep
        }
    }

    /// Something moved: patience starts over.
    #[inline]
    pub fn reset(&mut self) {
        self.polls = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_ends_in_sleep_and_starts_over_when_something_moves() {
        let mut backoff = Backoff { policy: WaitPolicy { spin_count: 2, yield_count: 1 }, polls: 0 };
        let pauses: Vec<_> = (0..5).map(|_| backoff.pause()).collect();
        assert_eq!(pauses, [Pause::Spin, Pause::Spin, Pause::Yield, Pause::Sleep, Pause::Sleep]);
        backoff.reset();
        assert_eq!(backoff.pause(), Pause::Spin);
    }

    #[test]
    fn ranks_that_outnumber_cores_hardly_spin() {
        assert!(WaitPolicy::for_host(8, 2).spin_count < 100);
    }
}
