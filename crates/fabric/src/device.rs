//! The seam: a device, and everything that is asked of it once it is open.

use std::os::fd::BorrowedFd;

use base::memory::{ReadRange, WriteRange};

use crate::{
    Access, AddressHandle, Capabilities, CompletionQueue, ConnectOptions, Endpoint, FabricError, LocalMemory, LoneSend,
    MemoryRegion, MultiQueueReceive, MulticastGroup, NotifyOn, ProtectionDomain, QueuePair, QueuePairAttributes,
    QueuePairState, ReceiveRequest, SendRequest, SharedMemory, SharedReceiveQueue, SharedReceiveQueueAttributes,
    SrqNumber, Transition, WorkCompletion, XrcDomain,
};

/// One kind of interconnect, found on this machine and not yet in use.
pub trait Device: Send {
    /// What it can do here and now.
    fn capabilities(&self) -> Capabilities;
    /// Opens it.
    ///
    /// # Errors
    /// When the operating system or the adapter refuses.
    fn open(self: Box<Self>) -> Result<Box<dyn Context>, FabricError>;
}

/// What happened to an object rather than to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsynchronousEvent {
    /// The queue pair went to the error state by itself.
    QueuePairError(QueuePair),
    /// More completions than the queue holds; its queue pairs are in the error state.
    CompletionQueueOverrun(CompletionQueue),
    /// Fewer receives are left than [`Context::set_receive_limit`] asked for; the limit is spent.
    ReceiveLimitReached(SharedReceiveQueue),
    /// The port is no member of the group any more, because the network has forgotten it; whoever was attached to it, or
    /// has an address handle to it, joins again by giving that back and asking anew.
    GroupLost(MulticastGroup),
    /// The device failed.
    DeviceFatal,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramAddress<'a> {
    /// To the device of this endpoint.
    Endpoint(&'a Endpoint),
    /// To every queue pair that joined the group.
    Multicast(MulticastGroup),
}

/// An opened device.
///
/// Objects are named by handles, which carry generations: a handle of something destroyed is an error, never something
/// else. A software device does its work inside these calls, above all inside [`Context::poll`]; whoever waits keeps
/// polling or sleeps on the descriptor.
///
/// Posting stops at the first request that is refused. If that is the first of the slice, the refusal is the error;
/// otherwise the number of requests taken before it is returned, as it is when a queue is full.
pub trait Context: Send {
    /// What the device can do.
    fn capabilities(&self) -> &Capabilities;

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`FabricError::Exhausted`].
    fn allocate_protection_domain(&mut self) -> Result<ProtectionDomain, FabricError>;

    /// Gives it back.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InUse`] while it has regions, queues or queue pairs.
    fn deallocate_protection_domain(&mut self, domain: ProtectionDomain) -> Result<(), FabricError>;

    /// Registers memory of the caller; see [`LocalMemory`] for what is promised and for how long.
    ///
    /// # Errors
    /// [`FabricError::Exhausted`]; [`FabricError::BeyondLimit`] when it is too long; [`FabricError::InvalidRequest`]
    /// when peers shall change a [`LocalMemory::Source`].
    fn register(
        &mut self,
        domain: ProtectionDomain,
        memory: LocalMemory,
        access: Access,
    ) -> Result<MemoryRegion, FabricError>;

    /// Makes `len_bytes` zeroed bytes of the device's own, registered; peers on this host may map them.
    ///
    /// # Errors
    /// As [`Context::register`], and [`FabricError::Unsupported`].
    fn allocate(
        &mut self,
        domain: ProtectionDomain,
        len_bytes: usize,
        access: Access,
    ) -> Result<(MemoryRegion, SharedMemory), FabricError>;

    /// Takes the keys back. Peers that still use them get
    /// [`WcStatus::RemoteAccessError`](crate::WcStatus::RemoteAccessError); when this returns, the device does not
    /// touch the memory any more.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`].
    fn deregister(&mut self, region: MemoryRegion) -> Result<(), FabricError>;

    /// Makes a completion queue for `depth` completions.
    ///
    /// # Errors
    /// [`FabricError::Exhausted`], [`FabricError::BeyondLimit`].
    fn create_completion_queue(&mut self, depth: u32) -> Result<CompletionQueue, FabricError>;

    /// Destroys it; completions not polled are lost.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InUse`].
    fn destroy_completion_queue(&mut self, queue: CompletionQueue) -> Result<(), FabricError>;

    /// Moves completions into `into`; returns how many.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::CompletionQueueOverrun`] once what was saved is polled.
    fn poll(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError>;

    /// As [`Context::poll`] for what is complete already: a device that works in its calls does no work for this one.
    ///
    /// # Errors
    /// As [`Context::poll`].
    fn poll_at_hand(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        self.poll(queue, into)
    }

    /// The next completion makes the descriptor readable, once. Poll once more after arming: completions from before
    /// do not count.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`], [`FabricError::Unsupported`].
    fn arm(&mut self, queue: CompletionQueue, on: NotifyOn) -> Result<(), FabricError>;

    /// The descriptor to sleep on, readable from a notification until [`Context::acknowledge`]. It may also become
    /// readable when there is merely work for [`Context::poll`] to do.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`], [`FabricError::Unsupported`].
    fn descriptor(&self, queue: CompletionQueue) -> Result<BorrowedFd<'_>, FabricError>;

    /// Takes the notifications seen so far back, so that the descriptor can be slept on again.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`], [`FabricError::Unsupported`].
    fn acknowledge(&mut self, queue: CompletionQueue) -> Result<(), FabricError>;

    /// Opens an XRC domain.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`], [`FabricError::Exhausted`].
    fn open_xrc_domain(&mut self) -> Result<XrcDomain, FabricError>;

    /// Closes it.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InUse`].
    fn close_xrc_domain(&mut self, domain: XrcDomain) -> Result<(), FabricError>;

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`], [`FabricError::Exhausted`], [`FabricError::BeyondLimit`],
    /// [`FabricError::Unsupported`].
    fn create_shared_receive_queue(
        &mut self,
        attributes: &SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue, FabricError>;

    /// Destroys it; receives still posted vanish without completions.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InUse`] while a queue pair takes its receives from it.
    fn destroy_shared_receive_queue(&mut self, queue: SharedReceiveQueue) -> Result<(), FabricError>;

    /// The number by which XRC sends address it.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InvalidRequest`] if it is in no XRC domain.
    fn shared_receive_queue_number(&self, queue: SharedReceiveQueue) -> Result<SrqNumber, FabricError>;

    /// Asks for one [`AsynchronousEvent::ReceiveLimitReached`] when fewer than `limit` receives are left; 0 asks for
    /// none.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::BeyondLimit`] above its depth.
    fn set_receive_limit(&mut self, queue: SharedReceiveQueue, limit: u32) -> Result<(), FabricError>;

    /// Posts receives in order; returns how many were taken.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::BeyondLimit`] for a list that is too long.
    fn post_shared_receive(
        &mut self,
        queue: SharedReceiveQueue,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError>;

    /// Posts one receive to several queues: the first message to any of them claims it, and it is gone from the others.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`]; [`FabricError::Exhausted`] when one of the queues is full; as for
    /// [`Context::post_shared_receive`].
    fn post_multi_queue_receive(
        &mut self,
        queues: &[SharedReceiveQueue],
        request: &ReceiveRequest<'_>,
    ) -> Result<MultiQueueReceive, FabricError>;

    /// Posts a receive of one piece of memory to one queue of an XRC domain. The memory needs no key: it is the device's
    /// from here until the receive is complete or withdrawn. A device that can not look after it so refuses, and takes a
    /// receive of registered memory.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`]; [`FabricError::Exhausted`] when the queue is full; [`FabricError::NoSuch`].
    fn post_lone_receive(
        &mut self,
        queue: SharedReceiveQueue,
        id: u64,
        memory: WriteRange,
    ) -> Result<MultiQueueReceive, FabricError> {
        let _ = (queue, id, memory);
        let reason = "its receives name registered memory";
        Err(FabricError::Unsupported { operation: "post_lone_receive", reason })
    }

    /// Takes such a receive back, or one of several queues; false if a message claimed it first, whose completion comes.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`].
    fn withdraw_receive(&mut self, receive: MultiQueueReceive) -> Result<bool, FabricError>;

    /// Sends one piece of memory to a queue of an XRC domain, by a queue pair whose queues are independent; a completion
    /// comes unless it is [`LoneSend::Done`]. The memory needs no key: it is the device's from here until the send is
    /// complete. A device that can not look after it so, or has something to send before, refuses, and takes a send of
    /// registered memory.
    ///
    /// # Errors
    /// [`FabricError::Unsupported`].
    fn post_lone_send(
        &mut self,
        qp: QueuePair,
        queue: SrqNumber,
        id: u64,
        memory: ReadRange,
    ) -> Result<LoneSend, FabricError> {
        let _ = (qp, queue, id, memory);
        let reason = "its sends name registered memory";
        Err(FabricError::Unsupported { operation: "post_lone_send", reason })
    }

    /// Makes a queue pair, in [`QueuePairState::Reset`].
    ///
    /// # Errors
    /// [`FabricError::NoSuch`], [`FabricError::Exhausted`], [`FabricError::BeyondLimit`],
    /// [`FabricError::Unsupported`], [`FabricError::InvalidRequest`] for a combination that makes no sense.
    fn create_queue_pair(&mut self, attributes: &QueuePairAttributes) -> Result<QueuePair, FabricError>;

    /// Destroys it; requests still posted vanish without completions.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`].
    fn destroy_queue_pair(&mut self, qp: QueuePair) -> Result<(), FabricError>;

    /// How peers reach it; its [`Endpoint::qp`] is the number in completions.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`].
    fn endpoint(&self, qp: QueuePair) -> Result<Endpoint, FabricError>;

    /// Moves it to another state.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InvalidState`] if the state machine has no such step;
    /// [`FabricError::BadEndpoint`]; [`FabricError::NoSuchPeer`]; [`FabricError::System`] when the peer's address
    /// leads nowhere.
    fn modify(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError>;

    /// Its state.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`].
    fn queue_pair_state(&self, qp: QueuePair) -> Result<QueuePairState, FabricError>;

    /// Posts sends in order; returns how many were taken.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InvalidState`] before [`QueuePairState::ReadyToSend`];
    /// [`FabricError::BeyondLimit`]; [`FabricError::InvalidRequest`] for an operation this transport does not have.
    fn post_send(&mut self, qp: QueuePair, requests: &[SendRequest<'_>]) -> Result<usize, FabricError>;

    /// Posts receives in order; returns how many were taken.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::InvalidState`] in [`QueuePairState::Reset`];
    /// [`FabricError::BeyondLimit`]; [`FabricError::InvalidRequest`] if its receives come from a shared queue.
    fn post_receive(&mut self, qp: QueuePair, requests: &[ReceiveRequest<'_>]) -> Result<usize, FabricError>;

    /// Finds the way to a datagram's receiver.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`], [`FabricError::BadEndpoint`], [`FabricError::Exhausted`],
    /// [`FabricError::Unsupported`]; [`FabricError::System`] when the network knows no way to a group.
    fn create_address_handle(
        &mut self,
        domain: ProtectionDomain,
        to: DatagramAddress<'_>,
    ) -> Result<AddressHandle, FabricError>;

    /// Forgets it.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`].
    fn destroy_address_handle(&mut self, address: AddressHandle) -> Result<(), FabricError>;

    /// The queue pair takes what is sent to the group. Waits where the network has to be asked.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]; [`FabricError::Unsupported`]; [`FabricError::InvalidRequest`] unless it is UD;
    /// [`FabricError::System`] when the network refuses.
    fn attach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError>;

    /// And does not any more.
    ///
    /// # Errors
    /// [`FabricError::NoSuch`]: the queue pair, or its membership.
    fn detach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError>;

    /// What happened to objects since the last call, one at a time.
    fn next_event(&mut self) -> Option<AsynchronousEvent>;

    /// This process may not poll for long, or ever again: answers that peers wait for and that were held back go now.
    fn rest(&mut self) {}

    /// This process ends, and nothing is asked of the device any more: peers that would look for it are told.
    fn part(&mut self) {}
}

/// Takes a fresh queue pair all the way to [`QueuePairState::ReadyToSend`].
///
/// # Errors
/// As [`Context::modify`].
pub fn connect(
    context: &mut dyn Context,
    qp: QueuePair,
    remote: Option<Endpoint>,
    options: &ConnectOptions,
) -> Result<(), FabricError> {
    options.transitions(remote).iter().try_for_each(|transition| context.modify(qp, transition))
}
