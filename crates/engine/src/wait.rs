//! Waiting that ends in sleep.
//!
//! Spin a little, yield a little, then sleep until somebody rings. How little depends on whether every process can
//! have a core of its own: where ranks outnumber cores, spinning only keeps the others from working.
//!
//! A yield is cheap among processes that all wait. Where somebody works on the same core it costs a time slice, and the
//! scheduler prefers who slept to who yielded. So yields are timed, and where several of a few were dear, sleeps follow for
//! a while. One among many says nothing: ranks that share cores are interrupted now and then. And where ranks share cores
//! a yield is as long as others take for their wake-ups, once some sleep; what is dear lies above that, or none of them
//! would ever find back.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use fabric::Ticket;
use fabric::Wakeup;

/// Longest sleep before a waiting thread looks for itself.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Longest rest that nobody else made use of. A system call takes a fraction of it, two switches between processes more.
const LONELY_REST_MAX_NS: u64 = 1_500;
/// Polls in passing from one rest to the next, at most, while nobody makes use of the rests: each is a system call, some
/// twenty times as long as a poll.
const RESTS_APART_MAX: u32 = 256;
/// What a dear yield adds to the score, from which a cheap one takes 1.
const DEAR_SCORE: u32 = 16;
/// The score at which yields are dear, and the highest.
const SCORE_CROWDED: u32 = 32;
const SCORE_MAX: u32 = 48;
/// Nanoseconds without a yield where they are dear. One dear yield after it, usually of a tick, is a small part of that.
const ABSTENTION_NS: u64 = 50_000_000;

/// How long to spin and to yield before sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitPolicy {
    /// Empty polls, one right after the other, before the first pause of the processor.
    pub close_count: u32,
    /// Empty polls with such pauses before the first yield.
    pub spin_count: u32,
    /// Yields before the first sleep.
    pub yield_count: u32,
    /// How long a yield takes where somebody else works on the same core.
    pub dear_yield: Duration,
}

impl WaitPolicy {
    /// The policy for `process_count` processes on `core_count` cores.
    pub fn for_host(process_count: u32, core_count: u32) -> Self {
        // A yield costs a fraction of a microsecond where nobody else wants the core, and where somebody does (a
        // rank placed on the same core, another program) spinning on would cost a time slice.
        if process_count <= core_count {
            // The processor's pause takes 20 to 50 ns, which a short message's latency would be longer by half of.
            Self { close_count: 100, spin_count: 300, yield_count: 2000, dear_yield: Duration::from_millis(1) }
        } else {
            // A barrier of 16 ranks on two cores that all sleep and wake each other takes more than a millisecond.
            Self { close_count: 0, spin_count: 2, yield_count: 500, dear_yield: Duration::from_millis(3) }
        }
    }

    /// Empty polls before the first yield.
    pub fn polls(&self) -> u32 {
        self.close_count.saturating_add(self.spin_count)
    }
}

/// Puts threads of this process to sleep and wakes them; used without the engine borrowed.
pub struct Waiter {
    wakeup: Arc<dyn Wakeup>,
    policy: WaitPolicy,
    abstention: Abstention,
}

/// Until when it does not pay to yield.
struct Abstention {
    dear_ns: u64,
    epoch: Instant,
    /// Nanoseconds after the epoch; 0 if yields have not been dear.
    until_ns: AtomicU64,
    score: AtomicU32,
}

/// What a waiting thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pause {
    /// Poll again at once.
    Poll,
    /// Let the processor pause, then poll.
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

/// How often a caller that asks again and again in vain, and has other work to do, lets others run.
#[derive(Debug)]
pub struct Passing {
    /// Polls in vain before the first rest.
    polls: u32,
    apart_max: u32,
    /// Polls from one rest to the next.
    apart: Cell<u32>,
    in_vain: Cell<u64>,
    /// How many have been in vain when the next rest is due: a multiple of `apart`.
    due: Cell<u64>,
    /// The first of those; each poll compares, none divides.
    first_due: Cell<u64>,
}

impl Passing {
    fn new(polls: u32, apart_max: u32) -> Self {
        let first = Cell::new(u64::from(polls) + 1);
        Passing { polls, apart_max, apart: Cell::new(1), in_vain: Cell::new(0), due: first.clone(), first_due: first }
    }

    /// A poll has found something.
    #[inline]
    pub fn found(&self) {
        self.in_vain.set(0);
        self.due.set(self.first_due.get());
    }

    /// A poll has found nothing; true if it is time to let others run, which [`Passing::rested`] is told of.
    #[inline]
    pub fn is_rest_due(&self) -> bool {
        let count = self.in_vain.get() + 1;
        self.in_vain.set(count);
        count >= self.due.get()
    }

    /// There was a rest: the next one comes the later the longer none was of use.
    pub fn rested(&self, was_of_use: bool) {
        let apart = if was_of_use { 1 } else { (2 * self.apart.get()).min(self.apart_max) };
        self.apart.set(apart);
        let due_after = |count: u64| (count / u64::from(apart) + 1) * u64::from(apart);
        self.due.set(due_after(self.in_vain.get()));
        self.first_due.set(due_after(self.polls.into()));
    }
}

impl Waiter {
    pub(crate) fn new(wakeup: Arc<dyn Wakeup>, policy: WaitPolicy) -> Self {
        Self { wakeup, policy, abstention: Abstention::new(policy.dear_yield) }
    }

    /// A fresh count of patience.
    pub fn backoff(&self) -> Backoff {
        Backoff { policy: self.policy, polls: 0 }
    }

    /// For who asks in passing. Where threads share the engine, each rest lets one of them in: none is left out.
    pub fn passing(&self, has_threads: bool) -> Passing {
        let apart_max = if has_threads { 1 } else { RESTS_APART_MAX };
        Passing::new(self.policy.polls(), apart_max)
    }

    /// Lets others run for a moment; true if it took so long that somebody may have wanted to.
    pub fn rest(&self) -> bool {
        let start_ns = self.abstention.now_ns();
        self.wakeup.rest();
        let end_ns = self.abstention.now_ns();
        self.abstention.note(start_ns, end_ns);
        end_ns - start_ns > LONELY_REST_MAX_NS
    }

    /// Looks after peers, now and then, as whoever sleeps does: for those who ask again and again instead.
    pub fn look(&self) {
        self.wakeup.slept(true);
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

    /// From now on senders wake this process; poll once more after this, in a hurry ([`Engine::hurry`](crate::Engine::hurry)),
    /// then sleep or withdraw.
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
    fn new(dear_yield: Duration) -> Self {
        let dear_ns = u64::try_from(dear_yield.as_nanos()).unwrap_or(u64::MAX);
        Self { dear_ns, epoch: Instant::now(), until_ns: AtomicU64::new(0), score: AtomicU32::new(0) }
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// A yield lasted from then to now.
    fn note(&self, start_ns: u64, end_ns: u64) {
        // Relaxed, here and below: hints that guard nothing.
        let before = self.score.load(Ordering::Relaxed);
        if end_ns.saturating_sub(start_ns) < self.dear_ns {
            if before > 0 {
                self.score.store(before - 1, Ordering::Relaxed);
            }
            return;
        }
        let score = (before + DEAR_SCORE).min(SCORE_MAX);
        self.score.store(score, Ordering::Relaxed);
        if score >= SCORE_CROWDED {
            self.until_ns.store(end_ns + ABSTENTION_NS, Ordering::Relaxed);
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
        if self.polls <= self.policy.close_count {
            Pause::Poll
        } else if self.polls <= self.policy.polls() {
            Pause::Spin
        } else if self.polls <= self.policy.polls().saturating_add(self.policy.yield_count) {
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
        let policy = WaitPolicy { close_count: 1, spin_count: 2, yield_count: 1, ..WaitPolicy::for_host(1, 1) };
        let mut backoff = Backoff { policy, polls: 0 };
        let pauses: Vec<_> = (0..6).map(|_| backoff.pause()).collect();
        assert_eq!(pauses, [Pause::Poll, Pause::Spin, Pause::Spin, Pause::Yield, Pause::Sleep, Pause::Sleep]);
        backoff.reset();
        assert_eq!(backoff.pause(), Pause::Poll);
    }

    const DEAR_NS: u64 = 1_000_000;

    #[test]
    fn after_dear_yields_there_are_none_for_a_while() {
        let abstention = Abstention::new(Duration::from_nanos(DEAR_NS));
        let nobody_asks = |_: &Abstention| unreachable!("nobody asks for the time before yields were dear");
        assert!(!abstention.lasts(nobody_asks));
        abstention.note(1_000, 1_000 + DEAR_NS);
        assert!(!abstention.lasts(nobody_asks), "one says nothing");
        abstention.note(1_000, 1_000 + DEAR_NS);
        let end_ns = 1_000 + DEAR_NS + ABSTENTION_NS;
        assert!(abstention.lasts(|_| end_ns - 1));
        assert!(!abstention.lasts(|_| end_ns));
    }

    #[test]
    fn a_dear_yield_among_many_cheap_ones_says_nothing() {
        let abstention = Abstention::new(Duration::from_nanos(DEAR_NS));
        for _ in 0..100 {
            abstention.note(0, 4 * DEAR_NS);
            (0..DEAR_SCORE).for_each(|_| abstention.note(0, DEAR_NS - 1));
        }
        assert!(!abstention.lasts(|_| 0));
    }

    #[test]
    fn rests_in_passing_lie_further_apart_while_nobody_makes_use_of_them() {
        let passing = |apart_max| Passing::new(3, apart_max);
        let due_of = |passing: &Passing, polls: usize, was_of_use: bool| {
            let is_due = |_: &usize| {
                passing.is_rest_due() && {
                    passing.rested(was_of_use);
                    true
                }
            };
            (1..=polls).filter(is_due).collect::<Vec<_>>()
        };
        let lonely = passing(8);
        assert_eq!(due_of(&lonely, 40, false), [4, 6, 8, 16, 24, 32, 40]);
        assert_eq!(
            due_of(&lonely, 12, true),
            [8, 9, 10, 11, 12],
            "as soon as one was of use, each poll is followed by one"
        );
        lonely.found();
        assert_eq!(due_of(&lonely, 5, true), [4, 5], "after a success there is patience again");
        assert_eq!(due_of(&passing(1), 6, false), [4, 5, 6], "never apart if so asked");
    }

    #[test]
    fn ranks_that_outnumber_cores_hardly_spin() {
        let policy = WaitPolicy::for_host(8, 2);
        assert!(policy.polls() < 100);
    }
}
