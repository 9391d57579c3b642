//! Requests that wait a moment for the next ones, to leave with them.
//!
//! Where a packet of its own is dear (a system call), a short request that is posted while others to the same peer are
//! unanswered is held back: whoever streams posts the next at once, and they leave together. They go with the next poll,
//! before their owner sleeps, or when as many wait as go well in one piece. A request with nothing unanswered before it
//! goes at once, so who waits for each answer loses nothing. Whether it is worth while is learnt from how soon a poll has
//! followed: who posts and then computes is held up at most once, when it begins to.

use std::time::Duration;

/// A poll that follows within this is soon.
const SOON: Duration = Duration::from_micros(50);
/// How often in a row one must have followed soon.
const SCORE_MIN: u8 = 4;
/// Bytes that wait, headers among them, at most.
const WAITING_MAX_BYTES: u64 = 6 << 10;
/// What a header counts for, in bytes.
const HEADER_COST_BYTES: u64 = 96;
/// Longer requests do not wait.
const SHORT_MAX_BYTES: u64 = 1 << 10;

/// What is known of the owner of an adapter.
#[derive(Default)]
pub(super) struct Posting {
    /// How often in a row a poll has followed soon.
    score: u8,
    /// When the request was posted since which no poll has come: the first that waits, or the last that might have.
    since: Option<Duration>,
    /// Bytes that wait.
    waiting_bytes: u64,
}

impl Posting {
    /// True if requests with `payload_bytes` bytes in all, posted while others are unanswered, wait for the next.
    pub(super) fn holds(&mut self, payload_bytes: u64, count: usize, now: impl FnOnce() -> Duration) -> bool {
        let bytes = payload_bytes.saturating_add(HEADER_COST_BYTES.saturating_mul(count as u64));
        let waiting = self.waiting_bytes.saturating_add(bytes);
        if self.score < SCORE_MIN {
            self.since = Some(now());
            return false;
        }
        if payload_bytes > SHORT_MAX_BYTES || waiting > WAITING_MAX_BYTES {
            // Those that waited go with it.
            (self.waiting_bytes, self.since) = (0, None);
            return false;
        }
        self.waiting_bytes = waiting;
        self.since.get_or_insert_with(now);
        true
    }

    /// True if something waits.
    pub(super) fn is_holding(&self) -> bool {
        self.waiting_bytes > 0
    }

    /// A poll has come; true if something has waited for it.
    pub(super) fn polled(&mut self, now: impl FnOnce() -> Duration) -> bool {
        if let Some(since) = self.since.take() {
            self.score = if now().saturating_sub(since) <= SOON { (self.score + 1).min(SCORE_MIN) } else { 0 };
        }
        std::mem::take(&mut self.waiting_bytes) > 0
    }

    /// The owner is about to sleep: nothing waits for a poll that may not come, and what is worth while is learnt anew.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn taught() -> Posting {
        let mut posting = Posting::default();
        for turn in 0..u64::from(SCORE_MIN) {
            assert!(!posting.holds(8, 1, || at(turn * 100)), "turn {turn}");
            assert!(!posting.polled(|| at(turn * 100 + 10)));
        }
        posting
    }

    #[test]
    fn holding_is_learnt_from_polls_and_unlearnt_at_the_first_late_one() {
        let mut posting = taught();
        for turn in 10..20 {
            assert!(posting.holds(8, 1, || at(turn * 100)) && posting.holds(8, 1, || at(turn * 100)));
            assert!(posting.is_holding() && posting.polled(|| at(turn * 100 + 10)) && !posting.is_holding());
        }
        assert!(!posting.polled(|| panic!("nothing was posted: the clock is left alone")));
        assert!(posting.holds(8, 1, || at(5000)));
        assert!(posting.polled(|| at(5100)));
        assert!(!posting.holds(8, 1, || at(5101)), "it computes now and then");
    }

    #[test]
    fn what_is_long_or_too_much_takes_the_others_with_it() {
        let mut posting = taught();
        assert!(!posting.holds(SHORT_MAX_BYTES + 1, 1, || at(0)));
        let mut count = 0;
        while posting.holds(8, 1, || at(1000)) {
            count += 1;
        }
        assert_eq!(count, WAITING_MAX_BYTES / (HEADER_COST_BYTES + 8));
        assert!(!posting.is_holding() && posting.holds(8, 1, || at(9000)), "the next begin anew");
        posting.forget();
        assert!(!posting.holds(8, 1, || at(9001)));
    }
}
