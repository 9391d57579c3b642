//! A virtual interface: two work queues and at most one connection.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::channel::SERVICES_MAX;
use crate::descriptor::{Completion, Descriptor};
use crate::link::Link;
use crate::memory::ProtectionTag;
use crate::nic::{Core, ErrorEvent, LIMITS, Nic};
use crate::queue::{CompletionQueue, QueueCore};
use crate::status::{Error, Reliability, State};
use crate::waiting::{self, wait};
use crate::work::{Done, Outcome, Queues, Surroundings};

/// What a VI is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViAttributes {
    /// What becomes of messages that go wrong.
    pub reliability: Reliability,
    /// Longest transfer, in bytes.
    pub transfer_max_bytes: u64,
    /// Its descriptors name memory of this tag.
    pub ptag: ProtectionTag,
    /// RDMA writes of the other side are taken.
    pub rdma_write: bool,
    /// RDMA reads of the other side are taken; needs a reliable level.
    pub rdma_read: bool,
}

/// Which work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkQueue {
    /// Sends and RDMA operations.
    Send,
    /// Receives.
    Receive,
}

/// What is called when a descriptor is complete.
pub type Handler = Box<dyn FnOnce(Completion) + Send>;

/// A VI. Dropping it disconnects it; descriptors that were not taken back are forgotten then, and [`Vi::destroy`] refuses
/// that.
pub struct Vi {
    pub(crate) core: Arc<ViCore>,
}

/// What a VI tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViReport {
    /// Where it stands.
    pub state: State,
    /// What it is like.
    pub attributes: ViAttributes,
    /// No descriptor is in the send queue.
    pub send_queue_empty: bool,
    /// Nor in the receive queue.
    pub receive_queue_empty: bool,
}

pub(crate) struct ViCore {
    pub(crate) nic: Arc<Core>,
    pub(crate) number: u64,
    pub(crate) queues: Mutex<Queues>,
    /// By work queue.
    handlers: [Mutex<VecDeque<Handler>>; 2],
    completion_queues: [Option<Arc<QueueCore>>; 2],
    /// Its owner has dropped it; a thread that looks may hold it for a moment longer.
    is_gone: AtomicBool,
}

impl Nic {
    /// Makes a VI; completions of a work queue that is given a completion queue are told of there.
    ///
    /// # Errors
    /// What is wrong with the attributes, or [`Error::Resource`] if there are as many as there may be.
    pub fn create_vi(
        &self,
        attributes: &ViAttributes,
        send_queue: Option<&CompletionQueue>,
        receive_queue: Option<&CompletionQueue>,
    ) -> Result<Vi, Error> {
        const CALL: &str = "VipCreateVi";
        self.core.check_attributes(CALL, attributes)?;
        let of_another = |queue: &&CompletionQueue| !Arc::ptr_eq(&queue.core.nic, &self.core);
        if send_queue.iter().chain(receive_queue.iter()).any(of_another) {
            return Err(Error::InvalidParameter { call: CALL, what: "a completion queue of another NIC" });
        }
        let number = self.core.number();
        let mut vis = self.core.vis.lock();
        vis.retain(ViCore::is_alive);
        if vis.len() >= LIMITS.vis_max {
            return Err(Error::Resource { call: CALL, what: "there are no more VIs" });
        }
        let core = Arc::new(ViCore {
            nic: Arc::clone(&self.core),
            number,
            queues: Mutex::new(Queues::new(*attributes)),
            handlers: Default::default(),
            completion_queues: [send_queue, receive_queue].map(|queue| queue.map(|queue| Arc::clone(&queue.core))),
            is_gone: AtomicBool::new(false),
        });
        vis.push(Arc::downgrade(&core));
        drop(vis);
        for (queue, which) in [(send_queue, WorkQueue::Send), (receive_queue, WorkQueue::Receive)] {
            if let Some(queue) = queue {
                queue.core.add(&core, which);
            }
        }
        Ok(Vi { core })
    }
}

impl Vi {
    /// Its number, which no other VI of this NIC has had.
    pub fn number(&self) -> u64 {
        self.core.number
    }

    /// What it is and where it stands.
    pub fn query(&self) -> ViReport {
        self.core.look();
        let queues = self.core.queues.lock();
        let [sends, receives] = queues.lengths();
        ViReport {
            state: queues.state,
            attributes: queues.attributes,
            send_queue_empty: sends == 0,
            receive_queue_empty: receives == 0,
        }
    }

    /// Changes what it is like.
    ///
    /// # Errors
    /// [`Error::InvalidState`] unless it is idle, [`Error::Resource`] while receives are posted, which were checked against
    /// what it was like, and what is wrong with the attributes.
    pub fn set_attributes(&self, attributes: &ViAttributes) -> Result<(), Error> {
        const CALL: &str = "VipSetViAttributes";
        self.core.nic.check_attributes(CALL, attributes)?;
        let mut queues = self.core.queues.lock();
        match queues.state {
            State::Idle if queues.has_receives() => Err(Error::Resource { call: CALL, what: "receives are posted" }),
            State::Idle => {
                queues.attributes = *attributes;
                Ok(())
            }
            state => Err(Error::InvalidState { call: CALL, state }),
        }
    }

    /// Posts a descriptor to the send queue. While nothing is connected it comes back flushed.
    ///
    /// # Errors
    /// [`Error::Resource`] if the queue is full.
    pub fn post_send(&self, descriptor: Descriptor) -> Result<(), Error> {
        self.core.post("VipPostSend", WorkQueue::Send, descriptor)
    }

    /// Posts a descriptor to the receive queue, which may be done before the VI is connected.
    ///
    /// # Errors
    /// [`Error::Resource`] if the queue is full.
    pub fn post_receive(&self, descriptor: Descriptor) -> Result<(), Error> {
        self.core.post("VipPostRecv", WorkQueue::Receive, descriptor)
    }

    /// Takes the next completed descriptor of a work queue, if there is one.
    pub fn done(&self, which: WorkQueue) -> Option<Completion> {
        self.core.done(which)
    }

    /// Waits for the next completed descriptor of a work queue; `None`: for ever.
    ///
    /// # Errors
    /// [`Error::Timeout`], or [`Error::Resource`] if the queue's completions are told to a completion queue.
    pub fn wait(&self, which: WorkQueue, timeout: Option<Duration>) -> Result<Completion, Error> {
        let call = match which {
            WorkQueue::Send => "VipSendWait",
            WorkQueue::Receive => "VipRecvWait",
        };
        self.core.check_alone(call, which)?;
        let nic = &self.core.nic;
        wait(&nic.bell, nic.settings.waiting, &nic.counters, waiting::deadline(timeout), || self.core.done(which))
            .ok_or(Error::Timeout(call))
    }

    /// Has `handler` called, on a thread of the NIC, with the next completed descriptor of a work queue that nobody else
    /// takes. Handlers are called in the order in which they were given.
    ///
    /// # Errors
    /// [`Error::Resource`] if the queue's completions are told to a completion queue, or the system has no thread.
    pub fn notify(&self, which: WorkQueue, handler: Handler) -> Result<(), Error> {
        let call = match which {
            WorkQueue::Send => "VipSendNotify",
            WorkQueue::Receive => "VipRecvNotify",
        };
        self.core.check_alone(call, which)?;
        let manager = &self.core.nic.manager;
        if !manager.start() {
            return Err(Error::Resource { call, what: "the system has no thread for the event manager" });
        }
        let mut handlers = self.core.handlers[which as usize].lock();
        if handlers.len() >= LIMITS.descriptors_max {
            return Err(Error::Resource { call, what: "there are as many handlers as descriptors" });
        }
        handlers.push_back(handler);
        drop(handlers);
        manager.want_callback();
        Ok(())
    }

    /// Ends the connection, or what became of it. Descriptors that are not complete come back flushed; the VI is idle.
    pub fn disconnect(&self) {
        self.core.disconnect();
    }

    /// Takes the VI back.
    ///
    /// # Errors
    /// The VI and [`Error::Resource`] while it is connected, or descriptors were not taken back.
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        match self.check_unused() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Whether it could be destroyed.
    ///
    /// # Errors
    /// As [`Vi::destroy`].
    pub fn check_unused(&self) -> Result<(), Error> {
        let queues = self.core.queues.lock();
        let what = match (queues.state, queues.lengths()) {
            (State::Idle, [0, 0]) => return Ok(()),
            (State::Idle, _) => "descriptors were not taken back",
            _ => "the VI is not idle",
        };
        Err(Error::Resource { call: "VipDestroyVi", what })
    }
}

impl Drop for Vi {
    fn drop(&mut self) {
        self.core.disconnect();
        self.core.is_gone.store(true, Release);
        for queue in self.core.completion_queues.iter().flatten() {
            queue.forget(self.core.number);
        }
        for handlers in &self.core.handlers {
            std::mem::take(&mut *handlers.lock()).iter().for_each(|_| self.core.nic.manager.forget_callback());
        }
    }
}

impl Core {
    fn check_attributes(&self, call: &'static str, attributes: &ViAttributes) -> Result<(), Error> {
        self.check_ptag(call, attributes.ptag)?;
        if attributes.transfer_max_bytes > LIMITS.transfer_max_bytes {
            return Err(Error::InvalidMtu(call));
        }
        if attributes.rdma_read && !attributes.reliability.is_reliable() {
            return Err(Error::InvalidRdmaRead(call));
        }
        Ok(())
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings { registry: &self.registry, counters: &self.counters, push_max: self.settings.push_max }
    }
}

impl ViCore {
    pub(crate) fn is_alive(vi: &Weak<Self>) -> bool {
        vi.upgrade().is_some_and(|vi| !vi.is_gone.load(Acquire))
    }

    fn post(&self, call: &'static str, which: WorkQueue, descriptor: Descriptor) -> Result<(), Error> {
        let mut queues = self.queues.lock();
        if queues.lengths()[which as usize] >= LIMITS.descriptors_max {
            return Err(Error::Resource { call, what: "the work queue is full" });
        }
        let around = self.nic.surroundings();
        let outcome = match which {
            WorkQueue::Send => queues.post_send(descriptor, &around),
            WorkQueue::Receive => queues.post_receive(descriptor, &around),
        };
        drop(queues);
        self.pass_on(outcome);
        Ok(())
    }

    fn done(&self, which: WorkQueue) -> Option<Completion> {
        let mut queues = self.queues.lock();
        if let Some(completion) = queues.done_mut(which).take() {
            return Some(completion);
        }
        let outcome = queues.look(&self.nic.surroundings());
        let taken = queues.done_mut(which).take();
        drop(queues);
        self.pass_on(outcome);
        taken
    }

    /// Goes on with what can go on.
    pub(crate) fn look(&self) {
        let outcome = self.queues.lock().look(&self.nic.surroundings());
        self.pass_on(outcome);
    }

    /// Completions that a completion queue has not been told of, up to so many.
    pub(crate) fn announce(&self, which: WorkQueue, most: usize) -> usize {
        let mut queues = self.queues.lock();
        let outcome = queues.look(&self.nic.surroundings());
        let done = queues.done_mut(which);
        let told = done.unannounced.min(most);
        done.unannounced -= told;
        drop(queues);
        // Whoever asks is told, but others may sleep at the other work queue, or beside the rest of what was completed.
        self.pass_on(outcome);
        told
    }

    /// Makes the copies that the other side asks for.
    pub(crate) fn serve(&self) {
        let served = self.queues.lock().serve(&self.nic.surroundings());
        if served == SERVICES_MAX {
            // There may be more, for which nobody rings again.
            self.nic.wake_manager();
        }
    }

    /// Calls handlers with completed descriptors, holding nothing.
    pub(crate) fn call_handlers(&self) {
        for which in [WorkQueue::Send, WorkQueue::Receive] {
            loop {
                // Whoever destroys the VI waits until the call is over.
                let _calling = self.nic.calling.lock();
                // Both in one go, so that the order of handlers is that of descriptors.
                let mut handlers = self.handlers[which as usize].lock();
                if handlers.is_empty() {
                    break;
                }
                let Some(completion) = self.done(which) else { break };
                let handler = handlers.pop_front();
                drop(handlers);
                self.nic.manager.forget_callback();
                if let Some(handler) = handler {
                    handler(completion);
                }
            }
        }
    }

    pub(crate) fn disconnect(&self) {
        let outcome = self.queues.lock().disconnect(&self.nic.surroundings());
        self.pass_on(outcome);
    }

    /// A connection is being made; the number tells this attempt from later ones.
    pub(crate) fn begin(&self, call: &'static str) -> Result<(ViAttributes, u64), Error> {
        let mut queues = self.queues.lock();
        match queues.state {
            State::Idle => {
                queues.state = State::ConnectPending;
                queues.attempt += 1;
                Ok((queues.attributes, queues.attempt))
            }
            state => Err(Error::InvalidState { call, state }),
        }
    }

    /// Whether the attempt still goes on.
    pub(crate) fn is_pending(&self, attempt: u64) -> bool {
        self.queues.lock().is_pending(attempt)
    }

    /// None came of it.
    pub(crate) fn give_up(&self, attempt: u64) {
        let mut queues = self.queues.lock();
        if queues.is_pending(attempt) {
            queues.state = State::Idle;
        }
    }

    /// The connection was made; false if the VI was disconnected meanwhile.
    pub(crate) fn connected(&self, link: Link, attempt: u64) -> bool {
        let mut queues = self.queues.lock();
        if !queues.is_pending(attempt) {
            return false;
        }
        queues.connected(link, &self.nic.surroundings());
        drop(queues);
        self.nic.completed();
        true
    }

    fn check_alone(&self, call: &'static str, which: WorkQueue) -> Result<(), Error> {
        match self.completion_queues[which as usize] {
            Some(_) => Err(Error::Resource { call, what: "the work queue belongs to a completion queue" }),
            None => Ok(()),
        }
    }

    fn pass_on(&self, outcome: Outcome) {
        if outcome.completed {
            self.nic.completed();
        }
        self.report(outcome);
    }

    fn report(&self, outcome: Outcome) {
        if !outcome.errors.is_empty() {
            let vi = self.number;
            self.nic.report(outcome.errors.into_iter().map(|code| ErrorEvent { code, vi }));
        }
    }
}

impl Queues {
    fn is_pending(&self, attempt: u64) -> bool {
        self.state == State::ConnectPending && self.attempt == attempt
    }

    fn done_mut(&mut self, which: WorkQueue) -> &mut Done {
        match which {
            WorkQueue::Send => &mut self.send_done,
            WorkQueue::Receive => &mut self.receive_done,
        }
    }
}
