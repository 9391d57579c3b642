//! An adapter that works by itself: a thread does what has come while its owner is busy elsewhere.
//!
//! One lock is round the adapter; the owner's calls take it, and so does the thread when the link wakes it. If the owner
//! has polled since it looked last, the thread takes a short nap. If it polls still, the thread leaves the work to it and
//! naps longer and longer, so the two are seldom in each other's way; if not, that was long ago. Whoever posts what takes a
//! while, a long message or anything about a queue that others wait for, may turn to something else at once: the thread is
//! called back. It sleeps on the link's descriptor and until the adapter's next deadline; it never spins.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use base::signals::without_signals;
use fabric::{
    Access, AddressHandle, AsynchronousEvent, Capabilities, CompletionQueue, Context, DatagramAddress, Destination,
    Endpoint, FabricError, LocalMemory, LoneSend, MemoryRegion, MultiQueueReceive, MulticastGroup, NotifyOn,
    ProtectionDomain, QueuePair, QueuePairAttributes, QueuePairState, ReceiveRequest, SendRequest, SharedMemory,
    SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber, Transition, WorkCompletion, XrcDomain,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::set_current_timer_slack;

use crate::SoftContext;
use crate::link::Link;

/// How long the thread leaves the work to an owner who polled lately: at first, and while it finds that it polls still.
const LEFT_TO_OWNER: RangeInclusive<Duration> = Duration::from_micros(20)..=Duration::from_millis(1);
/// By how much the system may wake the thread late.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

/// From so many bytes on a request takes more than the packet that is sent while it is posted.
const LONG_BYTES: u64 = 16 << 10;

/// An adapter with a thread of its own.
pub struct ThreadedContext<L: Link + 'static> {
    shared: Arc<Shared<L>>,
    capabilities: Capabilities,
    thread: Option<JoinHandle<()>>,
}

struct Shared<L: Link> {
    adapter: Mutex<SoftContext<L>>,
    /// Wakes the thread.
    bell: OwnedFd,
    /// Polls of the owner.
    polls: AtomicU64,
    /// Until when the thread sleeps, in nanoseconds of the link's time; 0 while it is up, or will be in a moment.
    asleep_until_ns: AtomicU64,
    /// How long the thread leaves the work to an owner who polled lately.
    left_to_owner: RangeInclusive<Duration>,
    /// It has.
    has_left: AtomicBool,
    /// It is called back.
    is_called: AtomicBool,
    is_over: AtomicBool,
}

impl<L: Link + 'static> ThreadedContext<L> {
    /// Gives the adapter a thread.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`] if its link has no descriptor to sleep on; [`FabricError::System`] if the system
    /// has no thread or descriptor for it.
    pub fn new(adapter: SoftContext<L>) -> Result<Self, FabricError> {
        Self::leaving_for(adapter, LEFT_TO_OWNER)
    }

    fn leaving_for(mut adapter: SoftContext<L>, left_to_owner: RangeInclusive<Duration>) -> Result<Self, FabricError> {
        let refused = |why: std::io::Error| FabricError::System {
            operation: "making an adapter thread",
            reason: why.to_string(),
        };
        let Some(link) = adapter.link().descriptor() else {
            let reason = "its link has no descriptor to sleep on";
            return Err(FabricError::Unsupported { operation: "an adapter thread", reason });
        };
        let link = link.try_clone_to_owned().map_err(refused)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|why| refused(why.into()))?;
        let capabilities = Capabilities { asynchronous: Ok(()), writes_wake: false, ..adapter.capabilities().clone() };
        let shared = Arc::new(Shared {
            adapter: Mutex::new(adapter),
            bell,
            polls: AtomicU64::new(0),
            asleep_until_ns: AtomicU64::new(0),
            left_to_owner,
            has_left: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ferrovia-adapter".into());
        let thread = without_signals(|| thread.spawn(move || its.work(&link))).map_err(refused)?;
        Ok(Self { shared, capabilities, thread: Some(thread) })
    }

    /// Does something with the adapter, and tells the thread if that cannot wait as long as it sleeps.
    fn with<T>(&mut self, work: impl FnOnce(&mut SoftContext<L>) -> T) -> T {
        let mut adapter = self.shared.lock();
        let done = work(&mut adapter);
        // Looked at under the lock: a thread that is up will take it, and find the deadline, before it sleeps.
        let asleep_until = self.shared.asleep_until_ns.load(Ordering::Acquire);
        let rings = asleep_until > 0 && adapter.deadline().map_or(u64::MAX, nanoseconds) < asleep_until;
        drop(adapter);
        if rings {
            self.shared.ring();
        }
        done
    }

    /// The same, and the thread goes on with it if the owner does not.
    fn with_thread<T>(&mut self, work: impl FnOnce(&mut SoftContext<L>) -> T) -> T {
        let done = self.with(work);
        // A thread that leaves just now is called back by what is posted next, or comes by itself a little later.
        if self.shared.has_left.swap(false, Ordering::Relaxed) {
            self.shared.is_called.store(true, Ordering::Relaxed);
            self.shared.ring();
        }
        done
    }
}

impl<L: Link> Shared<L> {
    fn lock(&self) -> MutexGuard<'_, SoftContext<L>> {
        // A panic under the lock has been reported; the adapter is as whole as without a thread.
        self.adapter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A counter that is full rings already.
    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn work(&self, link: &OwnedFd) {
        let mut polls = self.polls.load(Ordering::Relaxed);
        let mut nap = *self.left_to_owner.start();
        // Where that is refused naps are longer.
        let _ = set_current_timer_slack(Some(TIMER_SLACK));
        while !self.is_over.load(Ordering::Acquire) {
            let before = std::mem::replace(&mut polls, self.polls.load(Ordering::Relaxed));
            if polls != before && !self.is_called.swap(false, Ordering::Relaxed) {
                self.has_left.store(true, Ordering::Relaxed);
                self.sleep(None, Some(nap));
                self.has_left.store(false, Ordering::Relaxed);
                nap = (2 * nap).min(*self.left_to_owner.end());
                continue;
            }
            nap = *self.left_to_owner.start();
            let wait = {
                let mut adapter = self.lock();
                adapter.work_until_asleep();
                let deadline = adapter.deadline();
                self.asleep_until_ns.store(deadline.map_or(u64::MAX, nanoseconds), Ordering::Release);
                let now = adapter.link().now();
                deadline.map(|deadline| deadline.saturating_sub(now).max(Duration::from_micros(50)))
            };
            self.sleep(Some(link.as_fd()), wait);
            self.asleep_until_ns.store(0, Ordering::Release);
        }
    }

    /// Sleeps until rung, until the link has something, or for so long.
    fn sleep(&self, link: Option<BorrowedFd<'_>>, wait: Option<Duration>) {
        let wait = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
        let mut wanted = [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        let count = if let Some(link) = link {
            wanted[1] = PollFd::from_borrowed_fd(link, PollFlags::IN);
            2
        } else {
            1
        };
        // Interrupted is awake.
        let _ = poll(&mut wanted[..count], wait.as_ref());
        // Nothing to read is nothing to forget.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }
}

impl<L: Link + 'static> Drop for ThreadedContext<L> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn nanoseconds(moment: Duration) -> u64 {
    u64::try_from(moment.as_nanos()).unwrap_or(u64::MAX)
}

impl<L: Link + 'static> Context for ThreadedContext<L> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn poll(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        self.with(|adapter| adapter.poll(queue, into))
    }

    fn descriptor(&self, queue: CompletionQueue) -> Result<BorrowedFd<'_>, FabricError> {
        let adapter = self.shared.lock();
        let descriptor = adapter.descriptor(queue)?.as_raw_fd();
        // SAFETY: it is the completion queue's, which lives until it or the adapter is destroyed, and both take this
        // context from whoever borrows it; the thread destroys nothing.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    fn endpoint(&self, qp: QueuePair) -> Result<Endpoint, FabricError> {
        self.shared.lock().endpoint(qp)
    }

    fn queue_pair_state(&self, qp: QueuePair) -> Result<QueuePairState, FabricError> {
        self.shared.lock().queue_pair_state(qp)
    }

    fn shared_receive_queue_number(&self, queue: SharedReceiveQueue) -> Result<SrqNumber, FabricError> {
        self.shared.lock().shared_receive_queue_number(queue)
    }

    fn allocate_protection_domain(&mut self) -> Result<ProtectionDomain, FabricError> {
        self.with(|adapter| adapter.allocate_protection_domain())
    }

    fn deallocate_protection_domain(&mut self, domain: ProtectionDomain) -> Result<(), FabricError> {
        self.with(|adapter| adapter.deallocate_protection_domain(domain))
    }

    fn register(
        &mut self,
        domain: ProtectionDomain,
        memory: LocalMemory,
        access: Access,
    ) -> Result<MemoryRegion, FabricError> {
        self.with(|adapter| adapter.register(domain, memory, access))
    }

    fn allocate(
        &mut self,
        domain: ProtectionDomain,
        len_bytes: usize,
        access: Access,
    ) -> Result<(MemoryRegion, SharedMemory), FabricError> {
        self.with(|adapter| adapter.allocate(domain, len_bytes, access))
    }

    fn deregister(&mut self, region: MemoryRegion) -> Result<(), FabricError> {
        self.with(|adapter| adapter.deregister(region))
    }

    fn create_completion_queue(&mut self, depth: u32) -> Result<CompletionQueue, FabricError> {
        self.with(|adapter| adapter.create_completion_queue(depth))
    }

    fn destroy_completion_queue(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        self.with(|adapter| adapter.destroy_completion_queue(queue))
    }

    fn arm(&mut self, queue: CompletionQueue, on: NotifyOn) -> Result<(), FabricError> {
        self.with(|adapter| adapter.arm(queue, on))
    }

    fn acknowledge(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        self.with(|adapter| adapter.acknowledge(queue))
    }

    fn open_xrc_domain(&mut self) -> Result<XrcDomain, FabricError> {
        self.with(|adapter| adapter.open_xrc_domain())
    }

    fn close_xrc_domain(&mut self, domain: XrcDomain) -> Result<(), FabricError> {
        self.with(|adapter| adapter.close_xrc_domain(domain))
    }

    fn create_shared_receive_queue(
        &mut self,
        attributes: &SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue, FabricError> {
        self.with(|adapter| adapter.create_shared_receive_queue(attributes))
    }

    fn destroy_shared_receive_queue(&mut self, queue: SharedReceiveQueue) -> Result<(), FabricError> {
        self.with(|adapter| adapter.destroy_shared_receive_queue(queue))
    }

    fn set_receive_limit(&mut self, queue: SharedReceiveQueue, limit: u32) -> Result<(), FabricError> {
        self.with(|adapter| adapter.set_receive_limit(queue, limit))
    }

    fn post_shared_receive(
        &mut self,
        queue: SharedReceiveQueue,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError> {
        self.with_thread(|adapter| adapter.post_shared_receive(queue, requests))
    }

    fn post_multi_queue_receive(
        &mut self,
        queues: &[SharedReceiveQueue],
        request: &ReceiveRequest<'_>,
    ) -> Result<MultiQueueReceive, FabricError> {
        self.with_thread(|adapter| adapter.post_multi_queue_receive(queues, request))
    }

    fn post_lone_receive(
        &mut self,
        queue: SharedReceiveQueue,
        id: u64,
        memory: WriteRange,
    ) -> Result<MultiQueueReceive, FabricError> {
        self.with_thread(|adapter| adapter.post_lone_receive(queue, id, memory))
    }

    fn withdraw_receive(&mut self, receive: MultiQueueReceive) -> Result<bool, FabricError> {
        self.with(|adapter| adapter.withdraw_receive(receive))
    }

    fn post_lone_send(
        &mut self,
        qp: QueuePair,
        queue: SrqNumber,
        id: u64,
        memory: ReadRange,
    ) -> Result<LoneSend, FabricError> {
        self.with_thread(|adapter| adapter.post_lone_send(qp, queue, id, memory))
    }

    fn create_queue_pair(&mut self, attributes: &QueuePairAttributes) -> Result<QueuePair, FabricError> {
        self.with(|adapter| adapter.create_queue_pair(attributes))
    }

    fn destroy_queue_pair(&mut self, qp: QueuePair) -> Result<(), FabricError> {
        self.with(|adapter| adapter.destroy_queue_pair(qp))
    }

    fn modify(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError> {
        self.with(|adapter| adapter.modify(qp, transition))
    }

    fn post_send(&mut self, qp: QueuePair, requests: &[SendRequest<'_>]) -> Result<usize, FabricError> {
        let takes_long = |request: &SendRequest<'_>| {
            let is_to_queue = matches!(request.destination, Destination::SharedReceiveQueue(_));
            is_to_queue || request.payload.len_bytes() > LONG_BYTES
        };
        if requests.iter().any(takes_long) {
            return self.with_thread(|adapter| adapter.post_send(qp, requests));
        }
        self.with(|adapter| adapter.post_send(qp, requests))
    }

    fn post_receive(&mut self, qp: QueuePair, requests: &[ReceiveRequest<'_>]) -> Result<usize, FabricError> {
        self.with(|adapter| adapter.post_receive(qp, requests))
    }

    fn create_address_handle(
        &mut self,
        domain: ProtectionDomain,
        to: DatagramAddress<'_>,
    ) -> Result<AddressHandle, FabricError> {
        self.with(|adapter| adapter.create_address_handle(domain, to))
    }

    fn destroy_address_handle(&mut self, address: AddressHandle) -> Result<(), FabricError> {
        self.with(|adapter| adapter.destroy_address_handle(address))
    }

    fn attach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        self.with(|adapter| adapter.attach_multicast(qp, group))
    }

    fn detach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        self.with(|adapter| adapter.detach_multicast(qp, group))
    }

    fn next_event(&mut self) -> Option<AsynchronousEvent> {
        self.with(|adapter| adapter.next_event())
    }

    fn rest(&mut self) {
        self.with(Context::rest);
    }

    fn part(&mut self) {
        self.with(Context::part);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::quiet::{PATIENCE, adapters, connect, takes_signals, teach};

    #[test]
    fn what_a_poll_leaves_for_later_is_done_by_the_thread_while_the_owner_computes() {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(ThreadedContext::new(here).expect("a thread"), there);
        teach(&mut here, &mut there, 10);
        here.receive();
        let start = Instant::now();
        // The thread has done what was left, and sleeps until it is rung.
        there.poll_for(1);
        while here.context.shared.asleep_until_ns.load(Ordering::Acquire) != u64::MAX {
            assert!(start.elapsed() < PATIENCE, "the thread does not sleep");
            std::thread::sleep(Duration::from_micros(50));
        }
        there.send();
        // The acknowledgement waits for a message to ride with, and none follows.
        here.poll_for(2);
        there.poll_for(1);
    }

    #[test]
    fn a_thread_that_left_the_work_to_its_owner_is_called_back_for_what_takes_long() {
        let [here, there] = adapters();
        // By itself it would come too late.
        let here = ThreadedContext::leaving_for(here, 2 * PATIENCE..=2 * PATIENCE).expect("a thread");
        let (mut here, _there) = connect(here, there);
        let start = Instant::now();
        for _ in 0..5 {
            while !here.context.shared.has_left.load(Ordering::Relaxed) {
                // Whoever comes finds that the owner polls.
                here.poll();
                here.context.shared.ring();
                std::thread::sleep(Duration::from_millis(2));
                assert!(start.elapsed() < PATIENCE, "the thread does not leave");
            }
            here.context.with_thread(|_| ());
            while here.context.shared.asleep_until_ns.load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_micros(20));
                assert!(start.elapsed() < PATIENCE, "the thread does not come back");
            }
        }
    }

    #[test]
    fn a_thread_does_what_comes_although_its_owner_polled_since_it_looked() {
        let [here, there] = adapters();
        // It would leave for so long if the owner polled on.
        let naps = Duration::from_micros(20)..=2 * PATIENCE;
        let (mut here, _there) = connect(ThreadedContext::leaving_for(here, naps).expect("a thread"), there);
        let start = Instant::now();
        for _ in 0..5 {
            while here.context.shared.asleep_until_ns.load(Ordering::Acquire) == 0 {
                assert!(start.elapsed() < PATIENCE, "the thread does not do it");
                std::thread::sleep(Duration::from_micros(50));
            }
            here.poll();
            here.context.shared.ring();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn the_thread_takes_no_signals() {
        let [adapter, _] = adapters();
        let _adapter = ThreadedContext::new(adapter).expect("a thread");
        // The system keeps 15 characters of a name.
        assert!(!takes_signals("ferrovia-adapte"));
    }
}
