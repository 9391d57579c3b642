//! The event manager: a thread that sleeps on a doorbell in shared memory and does what cannot wait for the program to call.
//! Paper: via2sisci §1.4.4.
//!
//! It makes the copies that peers ask for, pushes descriptors that they want, goes on with sends that were held, notices
//! connections that were lost, and calls the program's handlers. It is started when it is first needed, and rings of peers
//! cost a system call only while it sleeps.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use base::signals::without_signals;
use fabric_soft::shm;
use lockfree::Doorbell;
use parking_lot::Mutex;

use crate::counters::Counter;
use crate::nic::Core;

/// The thread, once there is one.
pub(crate) struct Manager {
    shared: Arc<Shared>,
    callbacks: Doorbell,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    bell: Doorbell,
    core: Weak<Core>,
    stops: AtomicBool,
}

impl Manager {
    pub(crate) fn new(bell: Doorbell, callbacks: Doorbell, core: Weak<Core>) -> Self {
        let shared = Arc::new(Shared { bell, core, stops: AtomicBool::new(false) });
        Self { shared, callbacks, thread: Mutex::new(None) }
    }

    /// From now on somebody looks; true unless the system has no thread for it.
    pub(crate) fn start(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let started =
                without_signals(|| std::thread::Builder::new().name("vipl-events".into()).spawn(move || shared.run()));
            *thread = started.ok();
        }
        thread.is_some()
    }

    pub(crate) fn wake(&self) {
        shm::ring(&self.shared.bell);
    }

    /// A handler was registered: completions are to be told to the manager.
    pub(crate) fn want_callback(&self) {
        let _ticket = self.callbacks.announce();
        self.wake();
    }

    /// A handler was called, or dropped.
    pub(crate) fn forget_callback(&self) {
        self.callbacks.withdraw();
    }

    pub(crate) fn wants_callbacks(&self) -> bool {
        self.callbacks.must_ring()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.stops.store(true, Release);
        shm::ring(&self.shared.bell);
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic in there has been printed, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let ticket = self.bell.announce();
            if self.stops.load(Acquire) {
                self.bell.withdraw();
                return;
            }
            let Some(core) = self.core.upgrade() else {
                self.bell.withdraw();
                return;
            };
            core.counters.add(Counter::ManagerWakes, 1);
            core.manage();
            // This may have been the last use of the NIC, which then ends here.
            drop(core);
            while !self.bell.rang(ticket) && !self.stops.load(Acquire) {
                shm::sleep(&self.bell, ticket, None);
            }
            self.bell.withdraw();
        }
    }
}

impl Core {
    /// Looks after everything once.
    fn manage(&self) {
        for vi in self.vis() {
            vi.serve();
            vi.look();
            vi.call_handlers();
        }
        let queues: Vec<_> = self.queues.lock().iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            queue.call_handlers();
        }
        loop {
            let _calling = self.calling.lock();
            let Some(handler) = self.error_handler.lock().clone() else { return };
            let Some(event) = self.errors.lock().pop_front() else { return };
            handler(event);
        }
    }
}
