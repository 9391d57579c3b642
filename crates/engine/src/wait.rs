//! Waiting that ends in sleep.
//!
//! Spin a little, yield a little, then sleep until somebody rings. How little depends on whether every process can
//! have a core of its own: where ranks outnumber cores, spinning only keeps the others from working.
//!
//! A yield is cheap among processes that all wait. Where somebody works on the same core it costs a time slice or more,
//! and the scheduler prefers who slept to who yielded. So yields are timed. Where several of a few were dear, sleeps
//! follow, for so long that dear yields take a small part of the time. One among many says nothing: ranks
//! that share cores and wait for each other are interrupted now and then, and would pay for each sleep with a wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use fabric::Ticket;
use fabric::Wakeup;

/// Longest sleep before a waiting thread looks for itself.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Nanoseconds of a yield that are dear: more than it takes to go round among some processes that copy, look and yield,
/// less than a time slice.
const DEAR_YIELD_NS: u64 = 250_000;
/// What a dear yield adds to the score, from which a cheap one takes 1.
const DEAR_SCORE: u32 = 16;
/// The score at which yields are dear, and the highest.
const SCORE_CROWDED: u32 = 32;
const SCORE_MAX: u32 = 48;
/// So many times as long as a dear yield took, none is tried.
const ABSTENTION_FACTOR: u64 = 16;
/// Nanoseconds without a yield, at most: what was true while ranks started is soon tried again.
const ABSTENTION_MAX_NS: u64 = 50_000_000;

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
    abstention: Abstention,
}

/// Since when and until when it does not pay to yield.
struct Abstention {
    epoch: Instant,
    /// Nanoseconds after the epoch; 0 if yields have not been dear.
    until_ns: AtomicU64,
    score: AtomicU32,
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
        Self { wakeup, policy, abstention: Abstention::none() }
    }

    /// A fresh count of patience.
    pub fn backoff(&self) -> Backoff {
        Backoff { policy: self.policy, polls: 0 }
    }

    /// Lets others run for a moment.
    pub fn rest(&self) {
        let start_ns = self.abstention.now_ns();
        self.wakeup.rest();
        self.abstention.note(start_ns, self.abstention.now_ns());
    }

    /// A yield took so long of late that sleeping is better.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.abstention.lasts(|abstention| abstention.now_ns())
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

impl Abstention {
    fn none() -> Self {
        Self { epoch: Instant::now(), until_ns: AtomicU64::new(0), score: AtomicU32::new(0) }
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// A yield lasted from then to now.
    fn note(&self, start_ns: u64, end_ns: u64) {
        let took_ns = end_ns.saturating_sub(start_ns);
        // Relaxed, here and below: hints that guard nothing.
        let before = self.score.load(Ordering::Relaxed);
        if took_ns < DEAR_YIELD_NS {
            if before > 0 {
                self.score.store(before - 1, Ordering::Relaxed);
            }
            return;
        }
        let score = (before + DEAR_SCORE).min(SCORE_MAX);
        self.score.store(score, Ordering::Relaxed);
        if score >= SCORE_CROWDED {
            let abstention_ns = took_ns.saturating_mul(ABSTENTION_FACTOR).min(ABSTENTION_MAX_NS);
            self.until_ns.store(end_ns + abstention_ns, Ordering::Relaxed);
        }
    }

    /// True until its end; the clock is asked only if a yield has been dear.
    #[inline]
    fn lasts(&self, now_ns: impl FnOnce(&Self) -> u64) -> bool {
        let until_ns = self.until_ns.load(Ordering::Relaxed);
        until_ns != 0 && now_ns(self) < until_ns
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
    fn dear_yields_are_followed_by_a_time_without_one_in_proportion_and_within_a_limit() {
        let abstention = Abstention::none();
        let nobody_asks = |_: &Abstention| unreachable!("nobody asks for the time before yields were dear");
        assert!(!abstention.lasts(nobody_asks));
        abstention.note(1_000, 1_000 + DEAR_YIELD_NS);
        assert!(!abstention.lasts(nobody_asks), "one says nothing");
        abstention.note(1_000, 1_000 + DEAR_YIELD_NS);
        let end_ns = 1_000 + (1 + ABSTENTION_FACTOR) * DEAR_YIELD_NS;
        assert!(abstention.lasts(|_| end_ns - 1));
        assert!(!abstention.lasts(|_| end_ns));
        abstention.note(0, 3_000_000_000);
        assert!(abstention.lasts(|_| 3_000_000_000 + ABSTENTION_MAX_NS - 1));
        assert!(!abstention.lasts(|_| 3_000_000_000 + ABSTENTION_MAX_NS));
    }

    #[test]
    fn a_dear_yield_among_many_cheap_ones_says_nothing() {
        let abstention = Abstention::none();
        for _ in 0..100 {
            abstention.note(0, 4_000_000);
            (0..DEAR_SCORE).for_each(|_| abstention.note(0, DEAR_YIELD_NS - 1));
        }
        assert!(!abstention.lasts(|_| 0));
    }

    #[test]
    fn ranks_that_outnumber_cores_hardly_spin() {
        assert!(WaitPolicy::for_host(8, 2).spin_count < 100);
    }
}
