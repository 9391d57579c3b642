//! Completion queues: one place to look for the completions of many work queues. Paper: via2sisci §1.4.4.
//!
//! A queue has a limit and is never overrun: completions that it has no place for stay in their work queues and are told of
//! as soon as there is one. Looking costs a look at every work queue that belongs to it.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::nic::{Core, LIMITS, Nic};
use crate::status::Error;
use crate::vi::{ViCore, WorkQueue};
use crate::waiting::{self, wait};

/// A completion: which VI's, by [`crate::Vi::number`], and of which of its queues. The descriptor is taken from there.
pub type Entry = (u64, WorkQueue);

/// What is called when something is complete.
pub type QueueHandler = Box<dyn FnOnce(Entry) + Send>;

/// A completion queue.
pub struct CompletionQueue {
    pub(crate) core: Arc<QueueCore>,
}

pub(crate) struct QueueCore {
    pub(crate) nic: Arc<Core>,
    state: Mutex<QueueState>,
    /// As of a VI.
    is_gone: AtomicBool,
}

struct QueueState {
    members: Vec<(Weak<ViCore>, WorkQueue)>,
    /// Whose turn it is, so that none is passed over for ever.
    next: usize,
    ready: VecDeque<Entry>,
    entries_max: usize,
    handlers: VecDeque<QueueHandler>,
}

impl Nic {
    /// Makes a completion queue with so many places.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for none, [`Error::Resource`] for too many of either.
    pub fn create_queue(&self, entries: usize) -> Result<CompletionQueue, Error> {
        const CALL: &str = "VipCreateCQ";
        check_entries(CALL, entries)?;
        let mut queues = self.core.queues.lock();
        queues.retain(QueueCore::is_alive);
        if queues.len() >= LIMITS.queues_max {
            return Err(Error::Resource { call: CALL, what: "there are no more completion queues" });
        }
        let state = QueueState {
            members: Vec::new(),
            next: 0,
            ready: VecDeque::new(),
            entries_max: entries,
            handlers: VecDeque::new(),
        };
        let core = Arc::new(QueueCore {
            nic: Arc::clone(&self.core),
            state: Mutex::new(state),
            is_gone: AtomicBool::new(false),
        });
        queues.push(Arc::downgrade(&core));
        Ok(CompletionQueue { core })
    }
}

fn check_entries(call: &'static str, entries: usize) -> Result<(), Error> {
    match entries {
        0 => Err(Error::InvalidParameter { call, what: "a completion queue without places" }),
        _ if entries > LIMITS.queue_entries_max => Err(Error::Resource { call, what: "too many places" }),
        _ => Ok(()),
    }
}

impl CompletionQueue {
    /// Takes the next completion, if there is one.
    pub fn done(&self) -> Option<Entry> {
        self.core.done()
    }

    /// Waits for the next completion; `None`: for ever.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Entry, Error> {
        let nic = &self.core.nic;
        wait(&nic.bell, nic.settings.waiting, &nic.counters, waiting::deadline(timeout), || self.core.done())
            .ok_or(Error::Timeout("VipCQWait"))
    }

    /// Has `handler` called, on a thread of the NIC, with the next completion that nobody else takes.
    ///
    /// # Errors
    /// [`Error::Resource`] if the system has no thread, or there are too many handlers.
    pub fn notify(&self, handler: QueueHandler) -> Result<(), Error> {
        const CALL: &str = "VipCQNotify";
        let manager = &self.core.nic.manager;
        if !manager.start() {
            return Err(Error::Resource { call: CALL, what: "the system has no thread for the event manager" });
        }
        let mut state = self.core.state.lock();
        if state.handlers.len() >= LIMITS.descriptors_max {
            return Err(Error::Resource { call: CALL, what: "there are too many handlers" });
        }
        state.handlers.push_back(handler);
        drop(state);
        manager.want_callback();
        Ok(())
    }

    /// Gives it another number of places.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for none, [`Error::Resource`] for too many, or fewer than are taken.
    pub fn resize(&self, entries: usize) -> Result<(), Error> {
        const CALL: &str = "VipResizeCQ";
        check_entries(CALL, entries)?;
        let mut state = self.core.state.lock();
        if entries < state.ready.len() {
            return Err(Error::Resource { call: CALL, what: "more completions are in the queue" });
        }
        state.entries_max = entries;
        Ok(())
    }

    /// Takes the queue back.
    ///
    /// # Errors
    /// The queue and [`Error::Resource`] while a VI uses it.
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        match self.check_unused() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Whether it could be destroyed.
    ///
    /// # Errors
    /// As [`CompletionQueue::destroy`].
    pub fn check_unused(&self) -> Result<(), Error> {
        let used = self.core.state.lock().members.iter().any(|(vi, _)| ViCore::is_alive(vi));
        match used {
            true => Err(Error::Resource { call: "VipDestroyCQ", what: "a VI uses the completion queue" }),
            false => Ok(()),
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.core.is_gone.store(true, Release);
        let handlers = std::mem::take(&mut self.core.state.lock().handlers);
        handlers.iter().for_each(|_| self.core.nic.manager.forget_callback());
    }
}

impl QueueCore {
    pub(crate) fn is_alive(queue: &Weak<Self>) -> bool {
        queue.upgrade().is_some_and(|queue| !queue.is_gone.load(Acquire))
    }

    pub(crate) fn add(&self, vi: &Arc<ViCore>, which: WorkQueue) {
        self.state.lock().members.push((Arc::downgrade(vi), which));
    }

    /// A VI is gone, and what was told of it with it.
    pub(crate) fn forget(&self, vi: u64) {
        self.state.lock().ready.retain(|(other, _)| *other != vi);
    }

    fn done(&self) -> Option<Entry> {
        let mut state = self.state.lock();
        if state.ready.is_empty() {
            state.collect();
        }
        state.ready.pop_front()
    }

    /// Calls handlers with completions, holding nothing.
    pub(crate) fn call_handlers(&self) {
        loop {
            let _calling = self.nic.calling.lock();
            let mut state = self.state.lock();
            if state.handlers.is_empty() {
                return;
            }
            state.collect();
            let Some(entry) = state.ready.pop_front() else { return };
            let handler = state.handlers.pop_front();
            drop(state);
            self.nic.manager.forget_callback();
            if let Some(handler) = handler {
                handler(entry);
            }
        }
    }
}

impl QueueState {
    /// Fills the free places, one work queue after the other.
    fn collect(&mut self) {
        self.members.retain(|(vi, _)| ViCore::is_alive(vi));
        let count = self.members.len();
        for step in 0..count {
            let room = self.entries_max.saturating_sub(self.ready.len());
            if room == 0 {
                return;
            }
            let (vi, which) = &self.members[(self.next + step) % count];
            let Some(vi) = vi.upgrade() else { continue };
            let told = vi.announce(*which, room);
            self.ready.extend(std::iter::repeat_n((vi.number, *which), told));
        }
        self.next = (self.next + 1) % count.max(1);
    }
}
