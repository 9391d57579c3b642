//! The watch over connections: a thread that sleeps in `poll` on their sockets. Nothing comes over a socket once its
//! connection is made, so anything there, its end above all, says that the other side is gone: also when it was killed.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use base::signals::without_signals;
use fabric_soft::shm;
use lockfree::Doorbell;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::link::Line;

/// From a look that the system refused to the next.
const PAUSE: Duration = Duration::from_millis(10);

/// The thread, once there is one.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    lines: Mutex<Vec<Weak<Line>>>,
    /// Wakes the thread.
    changed: OwnedFd,
    /// The event manager's.
    bell: Doorbell,
    stops: AtomicBool,
}

impl Watch {
    /// Nobody is watched yet; `bell` is rung for whoever is lost.
    pub(crate) fn new(bell: Doorbell) -> rustix::io::Result<Self> {
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared { lines: Mutex::default(), changed, bell, stops: AtomicBool::new(false) };
        Ok(Self { shared: Arc::new(shared), thread: Mutex::new(None) })
    }

    /// Watches a connection until it is dropped; false if the system has no thread for it.
    pub(crate) fn add(&self, line: &Arc<Line>) -> bool {
        self.shared.lines.lock().push(Arc::downgrade(line));
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let started =
                without_signals(|| std::thread::Builder::new().name("vipl-watch".into()).spawn(move || shared.run()));
            *thread = started.ok();
        }
        self.shared.wake();
        thread.is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stops.store(true, Release);
        self.shared.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in there has been printed, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wake(&self) {
        // A counter that is full is readable already.
        let _ = rustix::io::write(&self.changed, &1u64.to_ne_bytes());
    }

    fn run(&self) {
        while !self.stops.load(Acquire) {
            let lines: Vec<Arc<Line>> = {
                let mut lines = self.lines.lock();
                lines.retain(|line| line.upgrade().is_some_and(|line| !line.is_lost()));
                lines.iter().filter_map(Weak::upgrade).collect()
            };
            let mut watched: Vec<PollFd<'_>> = Vec::with_capacity(lines.len() + 1);
            watched.push(PollFd::new(&self.changed, PollFlags::IN));
            watched.extend(lines.iter().map(|line| PollFd::from_borrowed_fd(line.socket.as_fd(), PollFlags::IN)));
            if poll(&mut watched, None).is_err() {
                // Interrupted, or out of memory for a moment: the list is looked at again.
                std::thread::sleep(PAUSE);
                continue;
            }
            let found: Vec<bool> = watched.iter().map(|one| !one.revents().is_empty()).collect();
            if found[0] {
                let _ = rustix::io::read(&self.changed, &mut [0u8; 8]);
            }
            let lost = std::iter::zip(&lines, &found[1..]).filter(|(_, found)| **found);
            let mut any = false;
            lost.for_each(|(line, _)| {
                line.lose();
                any = true;
            });
            if any {
                shm::ring(&self.bell);
            }
        }
    }
}
