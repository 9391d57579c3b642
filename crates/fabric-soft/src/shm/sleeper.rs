//! A descriptor that becomes readable when the doorbell rings: a thread sleeps on the futex and writes to an eventfd.
//! It is started by the first who wants to sleep on a descriptor; polling needs none.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use base::signals::without_signals;
use fabric::{FabricError, Ticket};
use lockfree::Doorbell;
use rustix::event::{EventfdFlags, eventfd};

use super::sealed::system;
use super::wakeup::sleep;

/// What the thread does.
enum Task {
    Nothing,
    Watch(Ticket),
    Stop,
}

struct Shared {
    task: Mutex<Task>,
    changed: Condvar,
    doorbell: Doorbell,
    bell: OwnedFd,
}

/// Watches a doorbell for somebody who sleeps on a descriptor.
pub(super) struct Sleeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub(super) fn new(doorbell: Doorbell) -> Result<Self, FabricError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("making a bell (eventfd)", error))?;
        let shared = Shared { task: Mutex::new(Task::Nothing), changed: Condvar::new(), doorbell, bell };
        Ok(Self { shared: Arc::new(shared), thread: None })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// From now on a ring makes the descriptor readable.
    pub(super) fn watch(&mut self) -> Result<(), FabricError> {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = without_signals(|| {
                std::thread::Builder::new().name("ferrovia-bell".into()).spawn(move || shared.run())
            });
            let reason = |error: std::io::Error| FabricError::System {
                operation: "starting the thread that watches the doorbell",
                reason: error.to_string(),
            };
            self.thread = Some(thread.map_err(reason)?);
        }
        let mut task = self.shared.task();
        if matches!(*task, Task::Nothing) {
            *task = Task::Watch(self.shared.doorbell.announce());
            self.shared.changed.notify_one();
        }
        Ok(())
    }

    /// What rang has been seen; nothing to read is nothing to forget.
    pub(super) fn forget(&self) {
        let _ = rustix::io::read(&self.shared.bell, &mut [0u8; 8]);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let was = std::mem::replace(&mut *self.shared.task(), Task::Stop);
        self.shared.changed.notify_one();
        if matches!(was, Task::Watch(_)) {
            super::wakeup::ring(&self.shared.doorbell);
        }
        // A panic in there has been printed, and there is nobody left to tell.
        let _ = thread.join();
    }
}

impl Shared {
    fn task(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut task = self.task();
        loop {
            match *task {
                Task::Stop => return,
                Task::Nothing => task = self.changed.wait(task).unwrap_or_else(PoisonError::into_inner),
                Task::Watch(ticket) => {
                    drop(task);
                    while !self.doorbell.rang(ticket) {
                        sleep(&self.doorbell, ticket, None);
                    }
                    self.doorbell.withdraw();
                    task = self.task();
                    if matches!(*task, Task::Watch(_)) {
                        *task = Task::Nothing;
                    }
                    // Last: whoever sees it may ask for the next watch at once. A counter that is full is readable already.
                    let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockfree::{Barrier, SharedMemory};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Longer than any machine keeps a runnable thread waiting.
    const LOST: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

    #[test]
    fn whoever_watches_again_at_once_hears_the_next_ring() {
        let doorbell = Doorbell::new(SharedMemory::private(Doorbell::FOOTPRINT), Barrier::Own);
        let mut sleeper = Sleeper::new(doorbell.clone()).expect("a bell");
        for round in 0..20_000 {
            sleeper.watch().expect("a thread");
            crate::shm::wakeup::ring(&doorbell);
            let bell = sleeper.descriptor();
            let count = poll(&mut [PollFd::new(&bell, PollFlags::IN)], Some(&LOST)).expect("a descriptor");
            assert_eq!(count, 1, "round {round}: nobody watched");
            sleeper.forget();
        }
    }

    #[test]
    fn the_thread_takes_no_signals() {
        let doorbell = Doorbell::new(SharedMemory::private(Doorbell::FOOTPRINT), Barrier::Own);
        let mut sleeper = Sleeper::new(doorbell).expect("a bell");
        sleeper.watch().expect("a thread");
        assert!(!crate::quiet::takes_signals("ferrovia-bell"));
    }
}
