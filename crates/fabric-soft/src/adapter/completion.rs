//! Completion queues, and the descriptors that tell of them.

use std::cell::{Cell, OnceCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use fabric::{FabricError, NotifyOn, WcStatus, WorkCompletion};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

/// One completion queue.
pub(super) struct Completions {
    waiting: VecDeque<WorkCompletion>,
    depth: u32,
    overrun: bool,
    armed: Option<NotifyOn>,
    notifier: OnceCell<Notifier>,
    /// Rounds of the adapter's work when it was polled last.
    polled_at: u64,
}

/// What became of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pushed {
    Kept,
    /// The queue was full, and is broken from now on.
    Overran,
    /// The queue was broken before.
    Dropped,
}

impl Completions {
    pub(super) fn new(depth: u32) -> Self {
        Self { waiting: VecDeque::new(), depth, overrun: false, armed: None, notifier: OnceCell::new(), polled_at: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, completion: WorkCompletion, solicited: bool) -> Pushed {
        if self.overrun {
            return Pushed::Dropped;
        }
        let full = self.waiting.len() >= self.depth as usize;
        if full {
            self.overrun = true;
        } else {
            self.waiting.push_back(completion);
        }
        let rings = match self.armed {
            Some(NotifyOn::Any) => true,
            Some(NotifyOn::Solicited) => solicited || full || completion.status != WcStatus::Success,
            None => false,
        };
        if rings {
            self.armed = None;
            if let Some(notifier) = self.notifier.get() {
                notifier.ring();
            }
        }
        if full { Pushed::Overran } else { Pushed::Kept }
    }

    /// True if it is to be polled before the adapter, which has done `rounds` rounds of work, does another: what is in it
    /// came with a round that the poll of another queue has brought about. Never twice in a row.
    pub(super) fn goes_first(&self, rounds: u64) -> bool {
        self.polled_at < rounds && !self.waiting.is_empty()
    }

    /// Takes what is there after so many rounds.
    pub(super) fn poll(&mut self, into: &mut [WorkCompletion], rounds: u64) -> Result<usize, FabricError> {
        self.polled_at = rounds;
        if self.waiting.is_empty() && self.overrun && !into.is_empty() {
            return Err(FabricError::CompletionQueueOverrun { depth: self.depth });
        }
        let count = self.waiting.len().min(into.len());
        for slot in &mut into[..count] {
            *slot = self.waiting.pop_front().expect("as many were counted");
        }
        Ok(count)
    }

    pub(super) fn arm(&mut self, on: NotifyOn) {
        // Armed for any completion it stays so: the wider wish includes the narrower.
        if self.armed != Some(NotifyOn::Any) {
            self.armed = Some(on);
        }
    }

    /// Whether the next completion, or the next solicited one, is to make the descriptor readable.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// The descriptor, made when it is first asked for; `link` wakes it too.
    pub(super) fn notifier(&self, link: Option<BorrowedFd<'_>>) -> Result<&Notifier, FabricError> {
        if self.notifier.get().is_none() {
            let notifier = Notifier::new(link).map_err(|error| FabricError::System {
                operation: "making a completion descriptor",
                reason: error.to_string(),
            })?;
            return Ok(self.notifier.get_or_init(|| notifier));
        }
        Ok(self.notifier.get().expect("seen above"))
    }
}

/// One descriptor over three: completions, the link, and the adapter's next deadline.
pub(super) struct Notifier {
    all: OwnedFd,
    rung: OwnedFd,
    timer: OwnedFd,
    /// The deadline that the timer is set to.
    wakes_at: Cell<Option<Duration>>,
}

impl Notifier {
    fn new(link: Option<BorrowedFd<'_>>) -> rustix::io::Result<Self> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let rung = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        for fd in [Some(rung.as_fd()), Some(timer.as_fd()), link].into_iter().flatten() {
            epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { all, rung, timer, wakes_at: Cell::new(None) })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Makes the descriptor readable. A counter that is full is readable already.
    fn ring(&self) {
        let _ = rustix::io::write(&self.rung, &1u64.to_ne_bytes());
    }

    /// The descriptor becomes readable at `deadline` at the latest, when it is `now`; `None`: no deadline.
    pub(super) fn wake_at(&self, deadline: Option<Duration>, now: Duration) {
        self.wakes_at.set(deadline);
        let wait = deadline.map(|deadline| deadline.saturating_sub(now));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = wait.map_or(zero, |wait| {
            let wait = wait.max(Duration::from_nanos(1));
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() }
        });
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // A timer of our own with a value in range cannot be refused.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
    }

    /// True if the descriptor becomes readable before `deadline`, or then.
    pub(super) fn wakes_by(&self, deadline: Duration) -> bool {
        self.wakes_at.get().is_some_and(|at| at <= deadline)
    }

    /// What rang has been seen. Nothing to read is nothing to forget.
    pub(super) fn acknowledge(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.rung, &mut count);
        let _ = rustix::io::read(&self.timer, &mut count);
        self.wakes_at.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(id: u64) -> WorkCompletion {
        WorkCompletion { id, ..WorkCompletion::default() }
    }

    #[test]
    fn a_queue_goes_first_once_for_each_round_that_has_filled_it() {
        let mut queue = Completions::new(4);
        let mut into = [WorkCompletion::default(); 1];
        assert!(!queue.goes_first(1), "nothing is in it");
        assert_eq!(queue.poll(&mut into, 1), Ok(0));
        queue.push(completion(1), false);
        queue.push(completion(2), false);
        assert!(!queue.goes_first(1), "it was posted, and something may have come");
        assert!(queue.goes_first(2));
        assert_eq!(queue.poll(&mut into, 2), Ok(1));
        assert!(!queue.goes_first(2) && queue.goes_first(3));
    }

    #[test]
    fn what_was_saved_is_polled_before_the_overrun_is_told() {
        let mut queue = Completions::new(2);
        assert_eq!(
            [1, 2, 3, 4].map(|id| queue.push(completion(id), false)),
            [Pushed::Kept, Pushed::Kept, Pushed::Overran, Pushed::Dropped]
        );
        let mut into = [WorkCompletion::default(); 3];
        assert_eq!(queue.poll(&mut into, 1), Ok(2));
        assert_eq!([into[0].id, into[1].id], [1, 2]);
        assert_eq!(queue.poll(&mut into, 1), Err(FabricError::CompletionQueueOverrun { depth: 2 }));
    }
}
