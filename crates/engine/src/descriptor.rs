//! Sleeping on a device's descriptor.
//!
//! A thread that wants to sleep announces it; the engine arms the completion queue in the next poll, which finds nothing
//! or sends the thread back to work; then the thread sleeps until the descriptor is readable. One thread at a time sleeps
//! there, the others wait for it to come back. A bell beside the descriptor lets other threads of the process wake it.
//! A second device that the engine polls may have a descriptor there, too. So have mapped peers, where a process has some
//! beside its device: who announces that it will sleep tells them, and they make a bell of theirs readable.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fabric::{FabricError, Ticket, Wakeup};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use smallvec::SmallVec;

/// Where the threads of an engine over verbs sleep.
pub(crate) struct DescriptorWakeup {
    descriptor: OwnedFd,
    second: OnceLock<OwnedFd>,
    neighbours: OnceLock<NeighbourBell>,
    bell: OwnedFd,
    /// Somebody is about to sleep: the completion queue must be armed.
    announced: AtomicBool,
    /// Longest sleep in nanoseconds, for what has to be looked after by the clock.
    limit_ns: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// How mapped peers wake sleepers.
struct NeighbourBell {
    descriptor: OwnedFd,
    /// Knows who sleeps; nobody sleeps there.
    announcements: Arc<dyn Wakeup>,
}

#[derive(Default)]
struct State {
    /// Counts the rings of the bell.
    rings: u32,
    /// A thread sleeps on the descriptor.
    watched: bool,
}

impl DescriptorWakeup {
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, FabricError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|why| FabricError::System { operation: "making a bell (eventfd)", reason: why.to_string() })?;
        Ok(Self {
            descriptor,
            second: OnceLock::new(),
            neighbours: OnceLock::new(),
            bell,
            announced: AtomicBool::new(false),
            limit_ns: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A second device wakes sleepers as well; there is no third.
    pub(crate) fn add(&self, descriptor: OwnedFd) {
        let _ = self.second.set(descriptor);
    }

    /// Mapped peers wake sleepers as well: told of them by `announcements`, they make `bell` readable.
    pub(crate) fn join(&self, bell: BorrowedFd<'_>, announcements: Arc<dyn Wakeup>) -> Result<(), FabricError> {
        let descriptor = bell.try_clone_to_owned().map_err(|why| FabricError::System {
            operation: "duplicating the bell of mapped peers",
            reason: why.to_string(),
        })?;
        let _ = self.neighbours.set(NeighbourBell { descriptor, announcements });
        Ok(())
    }

    /// True if somebody has announced that it will sleep.
    #[inline]
    pub(crate) fn is_announced(&self) -> bool {
        self.announced.load(Ordering::Relaxed)
    }

    /// True, once, if somebody has announced that it will sleep.
    #[inline]
    pub(crate) fn take_announced(&self) -> bool {
        // A plain look first: this is asked in every poll that finds nothing.
        self.is_announced() && self.announced.swap(false, Ordering::Relaxed)
    }

    /// The next sleep is over after `limit`.
    pub(crate) fn limit(&self, limit: Option<Duration>) {
        let nanoseconds = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.limit_ns.store(nanoseconds, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if anything became readable.
    fn watch(&self, limit: Duration) -> bool {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let readable = |descriptor| PollFd::new(descriptor, PollFlags::IN);
        let others = self.second.get().into_iter().chain(self.neighbours.get().map(|bell| &bell.descriptor));
        let all = [&self.descriptor, &self.bell].into_iter().chain(others).map(readable);
        let mut all: SmallVec<[PollFd<'_>; 4]> = all.collect();
        // Ready, too late or interrupted: the caller looks for work in every case.
        let ready_count = poll(&mut all, Some(&limit)).unwrap_or(0);
        let rang = |at: usize| !all[at].revents().is_empty();
        if rang(1) {
            let _ = rustix::io::read(self.bell.as_fd(), &mut [0u8; 8]);
        }
        if let Some(bell) = self.neighbours.get()
            && rang(all.len() - 1)
        {
            let _ = rustix::io::read(&bell.descriptor, &mut [0u8; 8]);
        }
        ready_count > 0
    }

    /// Sleeps until there may be work; false if none came.
    fn doze(&self, ticket: Ticket, timeout: Duration) -> bool {
        let timeout = timeout.min(Duration::from_nanos(self.limit_ns.load(Ordering::Relaxed)));
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        while state.rings == ticket.rings() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if state.watched {
                state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                if !state.watched {
                    // Who watched has come back, perhaps because there is work.
                    return true;
                }
                continue;
            }
            state.watched = true;
            drop(state);
            let is_ready = self.watch(left);
            self.state().watched = false;
            self.changed.notify_all();
            return is_ready;
        }
        true
    }
}

impl Wakeup for DescriptorWakeup {
    fn announce(&self) -> Ticket {
        self.announced.store(true, Ordering::Relaxed);
        if let Some(bell) = self.neighbours.get() {
            // Its bell stays readable, so nothing has to be remembered.
            let _ = bell.announcements.announce();
        }
        Ticket::new(self.state().rings)
    }

    fn withdraw(&self) {
        self.announced.store(false, Ordering::Relaxed);
        if let Some(bell) = self.neighbours.get() {
            bell.announcements.withdraw();
        }
    }

    fn slept(&self, in_vain: bool) {
        if let Some(bell) = self.neighbours.get() {
            bell.announcements.slept(in_vain);
        }
    }

    fn rest(&self) {
        match self.neighbours.get() {
            Some(bell) => bell.announcements.rest(),
            None => std::thread::yield_now(),
        }
    }

    fn sleep(&self, ticket: Ticket, timeout: Duration) {
        let is_ready = self.doze(ticket, timeout);
        if let Some(bell) = self.neighbours.get() {
            bell.announcements.withdraw();
        }
        self.slept(!is_ready);
    }

    fn wake_local(&self) {
        let mut state = self.state();
        state.rings = state.rings.wrapping_add(1);
        if state.watched {
            // A counter that is full is readable already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any machine keeps a runnable thread waiting.
    const LOST: Duration = Duration::from_secs(20);

    fn wakeup() -> (Arc<DescriptorWakeup>, OwnedFd) {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let other = descriptor.try_clone().expect("another");
        (Arc::new(DescriptorWakeup::new(descriptor).expect("a bell")), other)
    }

    #[test]
    fn the_descriptor_and_the_other_threads_wake_a_sleeper() {
        let (wakeup, descriptor) = wakeup();
        let ticket = wakeup.announce();
        assert!(wakeup.take_announced() && !wakeup.take_announced());
        rustix::io::write(&descriptor, &1u64.to_ne_bytes()).expect("room");
        let start = Instant::now();
        wakeup.sleep(ticket, LOST);
        assert!(start.elapsed() < LOST, "the descriptor was readable");
        rustix::io::read(&descriptor, &mut [0u8; 8]).expect("what was written");
        for _ in 0..200 {
            let ticket = wakeup.announce();
            let ringer = Arc::clone(&wakeup);
            let thread = std::thread::spawn(move || ringer.wake_local());
            let start = Instant::now();
            wakeup.sleep(ticket, LOST);
            assert!(start.elapsed() < LOST, "somebody rang");
            thread.join().expect("it only rings");
        }
    }

    #[test]
    fn a_second_descriptor_wakes_a_sleeper() {
        let (wakeup, _descriptor) = wakeup();
        let second = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        wakeup.add(second);
        let start = Instant::now();
        wakeup.sleep(wakeup.announce(), LOST);
        assert!(start.elapsed() < LOST, "it was readable");
    }

    /// Counts who has announced and not withdrawn.
    #[derive(Default)]
    struct Announced(AtomicU64);

    impl Wakeup for Announced {
        fn announce(&self) -> Ticket {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ticket::new(0)
        }

        fn withdraw(&self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }

        fn sleep(&self, _ticket: Ticket, _timeout: Duration) {
            panic!("nobody sleeps here");
        }

        fn wake_local(&self) {}
    }

    #[test]
    fn neighbours_are_told_of_sleepers_and_wake_them() {
        let (wakeup, _descriptor) = wakeup();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let announced = Arc::new(Announced::default());
        wakeup.join(bell.as_fd(), announced.clone()).expect("a descriptor");
        let withdrawn = wakeup.announce();
        assert_eq!((announced.0.load(Ordering::Relaxed), withdrawn), (1, wakeup.announce()));
        wakeup.withdraw();
        wakeup.withdraw();
        for _ in 0..3 {
            let ticket = wakeup.announce();
            assert_eq!(announced.0.load(Ordering::Relaxed), 1);
            rustix::io::write(&bell, &1u64.to_ne_bytes()).expect("room");
            let start = Instant::now();
            wakeup.sleep(ticket, LOST);
            assert!(start.elapsed() < LOST, "a neighbour rang");
            assert_eq!(announced.0.load(Ordering::Relaxed), 0, "whoever wakes has withdrawn");
            assert!(rustix::io::read(&bell, &mut [0u8; 8]).is_err(), "what rang is forgotten");
        }
    }

    #[test]
    fn all_sleepers_wake_when_one_does() {
        let (wakeup, descriptor) = wakeup();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let wakeup = Arc::clone(&wakeup);
                std::thread::spawn(move || {
                    let ticket = wakeup.announce();
                    let start = Instant::now();
                    wakeup.sleep(ticket, LOST);
                    start.elapsed() < LOST
                })
            })
            .collect();
        rustix::io::write(&descriptor, &1u64.to_ne_bytes()).expect("room");
        assert!(threads.into_iter().all(|thread| thread.join().expect("it only sleeps")));
    }

    #[test]
    fn a_limit_ends_a_sleep() {
        let (wakeup, _descriptor) = wakeup();
        wakeup.limit(Some(Duration::from_millis(1)));
        let start = Instant::now();
        wakeup.sleep(wakeup.announce(), LOST);
        assert!(start.elapsed() < LOST);
    }
}
