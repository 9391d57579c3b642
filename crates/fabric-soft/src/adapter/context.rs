//! The verbs on the adapter's objects.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Access, AddressHandle, AsynchronousEvent, Capabilities, CompletionQueue, Context, DatagramAddress, Endpoint,
    FabricError, LocalMemory, LoneSend, MemoryRegion, MultiQueueReceive, MulticastGroup, NotifyOn, ProtectionDomain,
    QpNumber, QueuePair, QueuePairAttributes, QueuePairState, ReceiveRequest, SendRequest, SharedMemory,
    SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber, Transition, Transport, WorkCompletion, XrcDomain,
};
use smallvec::smallvec;

use super::completion::Completions;
use super::core::{InSeveral, MULTI_QUEUE_MAX, OWN, SharedReceives, Way};
use super::queue_pair::{QueuePairObject, Send};
use super::receive::{Posted, Receive, ReceiveQueue};
use super::{DEPTH_MAX, INLINE_MAX_BYTES, SCATTER_GATHER_MAX, SoftContext};
use crate::link::{DirectQueuePair, Link, LinkPeer};
use crate::numbered::{handle, number_of};

const NO_QUEUE_PAIR: FabricError = FabricError::NoSuch("queue pair");
const NO_COMPLETION_QUEUE: FabricError = FabricError::NoSuch("completion queue");
const NO_SHARED_QUEUE: FabricError = FabricError::NoSuch("shared receive queue");
const NO_DOMAIN: FabricError = FabricError::NoSuch("protection domain");

impl<L: Link> Context for SoftContext<L> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn allocate_protection_domain(&mut self) -> Result<ProtectionDomain, FabricError> {
        self.core.domains.insert(()).map(|number| ProtectionDomain(handle(number)))
    }

    fn deallocate_protection_domain(&mut self, domain: ProtectionDomain) -> Result<(), FabricError> {
        let number = self.domain(domain)?;
        if let Some(by) = self.core.domain_user(number) {
            return Err(FabricError::InUse { object: "protection domain", by });
        }
        self.core.domains.remove(number);
        Ok(())
    }

    fn register(
        &mut self,
        domain: ProtectionDomain,
        memory: LocalMemory,
        access: Access,
    ) -> Result<MemoryRegion, FabricError> {
        let domain = self.domain(domain)?;
        let region = self.core.regions.register(domain, memory, access, None)?;
        self.link.spend_on_registering(false);
        if let Some(direct) = self.link.direct() {
            direct.publish_region(&region, access, domain);
        }
        Ok(region)
    }

    fn allocate(
        &mut self,
        domain: ProtectionDomain,
        len_bytes: usize,
        access: Access,
    ) -> Result<(MemoryRegion, SharedMemory), FabricError> {
        let domain = self.domain(domain)?;
        if len_bytes < 8 {
            return Err(FabricError::InvalidRequest { operation: "allocate", reason: "at least 8 bytes" });
        }
        let mapped = self.link.allocate(len_bytes)?;
        let memory = mapped.unwrap_or_else(|| SharedMemory::private(len_bytes));
        // SAFETY: the table keeps the memory alive as long as the region; it is shared memory, whose users expect it to
        // change at any moment.
        let range = unsafe { WriteRange::new(memory.start().as_ptr(), len_bytes) };
        let region = self.core.regions.register(domain, LocalMemory::Target(range), access, Some(memory.clone()))?;
        if let Some(direct) = self.link.direct() {
            direct.publish_region(&region, access, domain);
        }
        Ok((region, memory))
    }

    fn deregister(&mut self, region: MemoryRegion) -> Result<(), FabricError> {
        self.core.recall_from_board(region.lkey);
        let removed = self.core.regions.remove(region.lkey)?;
        self.link.spend_on_registering(true);
        if let Some(direct) = self.link.direct() {
            direct.withdraw_region(&region);
        }
        self.link.recall(removed.memory.address() as u64, removed.memory.len_bytes() as u64);
        Ok(())
    }

    fn create_completion_queue(&mut self, depth: u32) -> Result<CompletionQueue, FabricError> {
        within("completion queue depth", depth, DEPTH_MAX)?;
        self.core.completions.insert(Completions::new(depth)).map(|number| CompletionQueue(handle(number)))
    }

    fn destroy_completion_queue(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        self.completion_queue(queue)?;
        if let Some(by) = self.core.completion_queue_user(queue) {
            return Err(FabricError::InUse { object: "completion queue", by });
        }
        self.core.completions.remove(number_of(queue.0));
        Ok(())
    }

    fn poll(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        let number = number_of(queue.0);
        if self.core.completions.get(number).is_none_or(|queue| !queue.goes_first(self.rounds)) {
            self.progress();
        }
        let completions = self.core.completions.get_mut(number).ok_or(NO_COMPLETION_QUEUE)?;
        let count = completions.poll(into, self.rounds)?;
        if completions.is_armed() {
            self.wake_in_time(number);
        }
        Ok(count)
    }

    fn poll_at_hand(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        self.core.completions.get_mut(number_of(queue.0)).ok_or(NO_COMPLETION_QUEUE)?.poll(into, self.rounds)
    }

    fn arm(&mut self, queue: CompletionQueue, on: NotifyOn) -> Result<(), FabricError> {
        self.completion_queue(queue)?;
        // Sent first: what is sent may be what the next deadline is about.
        self.send_held();
        let (now, deadline) = (self.link.now(), self.deadline());
        let notifier = self.completion_queue(queue)?.notifier(self.link.descriptor())?;
        notifier.wake_at(deadline, now);
        self.core.arm(queue, on);
        self.link.prepare_sleep()
    }

    fn descriptor(&self, queue: CompletionQueue) -> Result<BorrowedFd<'_>, FabricError> {
        Ok(self.completion_queue(queue)?.notifier(self.link.descriptor())?.descriptor())
    }

    fn acknowledge(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        self.completion_queue(queue)?.notifier(self.link.descriptor())?.acknowledge();
        self.link.woken();
        Ok(())
    }

    fn open_xrc_domain(&mut self) -> Result<XrcDomain, FabricError> {
        self.core.xrc_domains.insert(()).map(|number| XrcDomain(handle(number)))
    }

    fn close_xrc_domain(&mut self, domain: XrcDomain) -> Result<(), FabricError> {
        let number = self.xrc_domain(domain)?;
        if let Some(by) = self.core.xrc_domain_user(number) {
            return Err(FabricError::InUse { object: "XRC domain", by });
        }
        self.core.xrc_domains.remove(number);
        Ok(())
    }

    fn create_shared_receive_queue(
        &mut self,
        attributes: &SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue, FabricError> {
        let domain = self.domain(attributes.protection_domain)?;
        within("shared receive queue depth", attributes.depth, DEPTH_MAX)?;
        within("entries of a receive", attributes.entries_max, SCATTER_GATHER_MAX)?;
        let xrc = match attributes.xrc {
            Some((domain, completions)) => {
                self.completion_queue(completions)?;
                Some((self.xrc_domain(domain)?, completions))
            }
            None => None,
        };
        let queue = ReceiveQueue::new(attributes.depth, attributes.entries_max);
        let shown = VecDeque::new();
        let shared = SharedReceives { domain, queue, xrc, limit: 0, on_board: false, shown };
        let number = self.core.shared.insert(shared)?;
        self.core.open_on_board(number);
        Ok(SharedReceiveQueue(handle(number)))
    }

    fn destroy_shared_receive_queue(&mut self, queue: SharedReceiveQueue) -> Result<(), FabricError> {
        let number = number_of(queue.0);
        self.core.shared.get(number).ok_or(NO_SHARED_QUEUE)?;
        if self.core.queue_pairs.iter().any(|(_, qp)| qp.attributes.shared_receives == Some(queue)) {
            return Err(FabricError::InUse { object: "shared receive queue", by: "queue pair" });
        }
        self.core.clear_board(number);
        self.core.boarded.retain(|other| *other != number);
        self.core.shared.remove(number);
        self.core.refuse_parked_at(number);
        self.push();
        Ok(())
    }

    fn shared_receive_queue_number(&self, queue: SharedReceiveQueue) -> Result<SrqNumber, FabricError> {
        let number = number_of(queue.0);
        match self.core.shared.get(number).ok_or(NO_SHARED_QUEUE)?.xrc {
            Some(_) => Ok(SrqNumber(number)),
            None => Err(FabricError::InvalidRequest {
                operation: "shared_receive_queue_number",
                reason: "the queue is in no XRC domain",
            }),
        }
    }

    fn set_receive_limit(&mut self, queue: SharedReceiveQueue, limit: u32) -> Result<(), FabricError> {
        let shared = self.core.shared.get_mut(number_of(queue.0)).ok_or(NO_SHARED_QUEUE)?;
        within("receive limit", limit, shared.queue.depth)?;
        shared.limit = limit;
        Ok(())
    }

    fn post_shared_receive(
        &mut self,
        queue: SharedReceiveQueue,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError> {
        let number = number_of(queue.0);
        let receives = &mut self.core.shared.get_mut(number).ok_or(NO_SHARED_QUEUE)?.queue;
        let count = receives.post(requests)?;
        let waiting = call(receives, count);
        self.core.show_posted(number);
        self.call(Some(number), &waiting);
        Ok(count)
    }

    fn post_multi_queue_receive(
        &mut self,
        queues: &[SharedReceiveQueue],
        request: &ReceiveRequest<'_>,
    ) -> Result<MultiQueueReceive, FabricError> {
        within("queues of one receive", u32::try_from(queues.len()).unwrap_or(u32::MAX), MULTI_QUEUE_MAX as u32)?;
        let mut numbers: Vec<u32> = queues.iter().map(|queue| number_of(queue.0)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            let receives = &self.core.shared.get(*number).ok_or(NO_SHARED_QUEUE)?.queue;
            receives.fits(request)?;
            if receives.is_full() {
                return Err(FabricError::Exhausted { object: "places in a receive queue", max: receives.depth });
            }
        }
        let queues = numbers.iter().copied().collect();
        let several = self.core.insert_several(InSeveral { receive: Receive::of(request), queues })?;
        let is_alone = numbers.len() == 1;
        for number in numbers {
            if !is_alone {
                self.core.leave_board(number);
            }
            let mut waiting = Vec::new();
            if let Some(shared) = self.core.shared.get_mut(number) {
                shared.queue.push(Posted::InSeveral(several));
                waiting = call(&mut shared.queue, 1);
            }
            self.core.show_posted(number);
            self.call(Some(number), &waiting);
        }
        Ok(MultiQueueReceive(several))
    }

    fn post_lone_receive(
        &mut self,
        queue: SharedReceiveQueue,
        id: u64,
        memory: WriteRange,
    ) -> Result<MultiQueueReceive, FabricError> {
        let number = number_of(queue.0);
        let shared = self.core.shared.get(number).ok_or(NO_SHARED_QUEUE)?;
        // What comes as packets may stop in the midst of the memory, and only a region can be called back then.
        if !shared.on_board {
            let reason = "the queue is not where senders move the data themselves";
            return Err(FabricError::Unsupported { operation: "post_lone_receive", reason });
        }
        if shared.queue.is_full() {
            return Err(FabricError::Exhausted { object: "places in a receive queue", max: shared.queue.depth });
        }
        let receive = Receive::lone(id, memory);
        let several = self.core.insert_several(InSeveral { receive, queues: smallvec![number] })?;
        if !self.core.show_lone(number, several, memory) {
            let mut waiting = Vec::new();
            if let Some(shared) = self.core.shared.get_mut(number) {
                shared.queue.push(Posted::InSeveral(several));
                waiting = call(&mut shared.queue, 1);
            }
            self.core.show_posted(number);
            self.call(Some(number), &waiting);
        }
        Ok(MultiQueueReceive(several))
    }

    fn withdraw_receive(&mut self, receive: MultiQueueReceive) -> Result<bool, FabricError> {
        let several = receive.0;
        let queues = self.core.several.get(several).map(|several| several.queues.clone()).unwrap_or_default();
        let is_back = self.core.hide_several(several) && self.core.claim(several).is_some();
        if is_back {
            queues.into_iter().for_each(|queue| self.core.call_next(queue));
            self.push();
        }
        Ok(is_back)
    }

    fn post_lone_send(
        &mut self,
        qp: QueuePair,
        queue: SrqNumber,
        id: u64,
        memory: ReadRange,
    ) -> Result<LoneSend, FabricError> {
        let is_short_enough = memory.len_bytes() as u64 <= self.link.properties().message_max_bytes;
        let offered = is_short_enough.then(|| self.core.offer_lone(number_of(qp.0), queue, id, memory)).flatten();
        offered.ok_or_else(|| {
            let reason = "the send can not wait where receivers fetch the data themselves";
            FabricError::Unsupported { operation: "post_lone_send", reason }
        })
    }

    fn create_queue_pair(&mut self, attributes: &QueuePairAttributes) -> Result<QueuePair, FabricError> {
        self.domain(attributes.protection_domain)?;
        self.completion_queue(attributes.send_completions)?;
        self.completion_queue(attributes.receive_completions)?;
        within("send queue depth", attributes.send_depth, DEPTH_MAX)?;
        within("receive queue depth", attributes.receive_depth, DEPTH_MAX)?;
        within("entries of a send", attributes.send_entries_max, SCATTER_GATHER_MAX)?;
        within("entries of a receive", attributes.receive_entries_max, SCATTER_GATHER_MAX)?;
        within("bytes of an inline payload", attributes.inline_max_bytes, INLINE_MAX_BYTES)?;
        let refuse = |reason| Err(FabricError::InvalidRequest { operation: "create_queue_pair", reason });
        let mut shared_number = None;
        if let Some(queue) = attributes.shared_receives {
            let number = number_of(queue.0);
            let shared = self.core.shared.get(number).ok_or(NO_SHARED_QUEUE)?;
            if !attributes.transport.receives() {
                return refuse("XRC queue pairs take no receives of their own");
            }
            if shared.xrc.is_some() {
                return refuse("a queue in an XRC domain is reached by its number only");
            }
            shared_number = Some(number);
        }
        if attributes.independent_queues && attributes.transport != Transport::XrcInitiator {
            return refuse("only XRC sends name queues");
        }
        if let Transport::XrcTarget(domain) = attributes.transport {
            self.xrc_domain(domain)?;
        }
        let number = self.core.queue_pairs.insert(QueuePairObject::new(*attributes, shared_number))?;
        Ok(QueuePair(handle(number)))
    }

    fn destroy_queue_pair(&mut self, qp: QueuePair) -> Result<(), FabricError> {
        let number = number_of(qp.0);
        self.core.withdraw_offers(number);
        self.core.refuse_parked(number);
        let object = self.core.queue_pairs.remove(number).ok_or(NO_QUEUE_PAIR)?;
        if object.published {
            self.core.unpublish.push(number);
        }
        self.push();
        Ok(())
    }

    fn endpoint(&self, qp: QueuePair) -> Result<Endpoint, FabricError> {
        self.queue_pair(qp)?;
        Ok(Endpoint::new(self.capabilities.kind, QpNumber(number_of(qp.0)), &self.address))
    }

    fn modify(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError> {
        let state = self.queue_pair(qp)?.state;
        if !transition.fits(state) {
            return Err(FabricError::InvalidState { operation: "modify", state });
        }
        let number = number_of(qp.0);
        let connection = match transition {
            Transition::ReadyToReceive { remote, .. } => self.find_peer(qp, remote.as_ref())?,
            _ => None,
        };
        if matches!(transition, Transition::Reset) {
            self.core.withdraw_offers(number);
            self.core.refuse_parked(number);
        }
        let object = self.core.queue_pairs.get_mut(number).ok_or(NO_QUEUE_PAIR)?;
        match transition {
            Transition::Reset => {
                if object.published {
                    self.core.unpublish.push(number);
                }
                object.reset();
            }
            Transition::Init { access, qkey } => {
                (object.access, object.qkey) = (*access, *qkey);
            }
            Transition::ReadyToReceive { receiver_not_ready_timer, .. } => {
                object.receiver_not_ready_timer = *receiver_not_ready_timer;
                if let Some((peer, remote)) = connection {
                    (object.peer, object.remote) = (Some(peer), remote);
                }
            }
            Transition::ReadyToSend { timeout, retry_count, receiver_not_ready_retry } => {
                object.timeout = (*timeout).max(Duration::from_millis(1));
                object.retry_count = (*retry_count).min(7);
                object.receiver_not_ready_retry = *receiver_not_ready_retry;
            }
            Transition::Resume | Transition::Drain => {}
            Transition::Error => self.core.enter_error(number),
        }
        if let Some(object) = self.core.queue_pairs.get_mut(number) {
            object.state = transition.state();
        }
        if let Some((peer, remote)) = connection
            && peer != OWN
        {
            self.publish(number, peer, remote);
        }
        self.core.list(number);
        self.push();
        Ok(())
    }

    fn queue_pair_state(&self, qp: QueuePair) -> Result<QueuePairState, FabricError> {
        Ok(self.queue_pair(qp)?.state)
    }

    fn post_send(&mut self, qp: QueuePair, requests: &[SendRequest<'_>]) -> Result<usize, FabricError> {
        let number = number_of(qp.0);
        // A completion that its queue has no room for ends the queue pair, and what follows is queued to be flushed.
        let mut count = 0;
        while requests.get(count).is_some_and(|request| self.core.do_at_once(&mut self.link, number, request)) {
            count += 1;
        }
        if count == requests.len() && count > 0 {
            return Ok(count);
        }
        let datagram_max_bytes = self.capabilities.limits.datagram_max_bytes;
        let object = self.core.queue_pairs.get(number).ok_or(NO_QUEUE_PAIR)?;
        use QueuePairState::{Error, ReadyToSend, SendQueueDrained};
        if !matches!(object.state, ReadyToSend | SendQueueDrained | Error) {
            return Err(FabricError::InvalidState { operation: "post_send", state: object.state });
        }
        let done = count;
        for request in &requests[done..] {
            let object = self.core.queue_pairs.get_mut(number).ok_or(NO_QUEUE_PAIR)?;
            match object.check(request, datagram_max_bytes) {
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
            if object.send_count() >= object.attributes.send_depth as usize {
                break;
            }
            object.sends.push_back(Send::of(request));
            count += 1;
        }
        let state = self.queue_pair(qp)?.state;
        if state == Error {
            self.core.enter_error(number);
        } else if state == ReadyToSend && count > done {
            if self.core.start(&mut self.link, number) {
                self.core.list(number);
            }
            self.link.flush();
            if !self.core.own_packets.is_empty() {
                self.push();
            }
        }
        Ok(count)
    }

    fn post_receive(&mut self, qp: QueuePair, requests: &[ReceiveRequest<'_>]) -> Result<usize, FabricError> {
        let number = number_of(qp.0);
        let object = self.core.queue_pairs.get_mut(number).ok_or(NO_QUEUE_PAIR)?;
        if object.state == QueuePairState::Reset {
            return Err(FabricError::InvalidState { operation: "post_receive", state: object.state });
        }
        if object.attributes.shared_receives.is_some() || !object.attributes.transport.receives() {
            let reason = "this queue pair has no receive queue of its own";
            return Err(FabricError::InvalidRequest { operation: "post_receive", reason });
        }
        let count = object.receives.post(requests)?;
        let waiting = call(&mut object.receives, count);
        if object.state == QueuePairState::Error {
            self.core.enter_error(number);
        }
        self.call(None, &waiting);
        Ok(count)
    }

    fn create_address_handle(
        &mut self,
        domain: ProtectionDomain,
        to: DatagramAddress<'_>,
    ) -> Result<AddressHandle, FabricError> {
        let domain = self.domain(domain)?;
        let way = match to {
            DatagramAddress::Endpoint(endpoint) => Way::Peer(self.resolve(endpoint)?),
            DatagramAddress::Multicast(group) => {
                self.multicast()?;
                Way::Group(group)
            }
        };
        self.core.addresses.insert((domain, way)).map(|number| AddressHandle(handle(number)))
    }

    fn destroy_address_handle(&mut self, address: AddressHandle) -> Result<(), FabricError> {
        self.core.addresses.remove(number_of(address.0)).map(|_| ()).ok_or(FabricError::NoSuch("address handle"))
    }

    fn attach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        let transport = self.queue_pair(qp)?.attributes.transport;
        self.multicast()?;
        if transport != Transport::UnreliableDatagram {
            let reason = "only datagrams are multicast";
            return Err(FabricError::InvalidRequest { operation: "attach_multicast", reason });
        }
        let object = self.core.queue_pairs.get_mut(number_of(qp.0)).ok_or(NO_QUEUE_PAIR)?;
        if !object.groups.contains(&group) {
            object.groups.push(group);
        }
        Ok(())
    }

    fn detach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        let object = self.core.queue_pairs.get_mut(number_of(qp.0)).ok_or(NO_QUEUE_PAIR)?;
        let before = object.groups.len();
        object.groups.retain(|member| *member != group);
        if object.groups.len() == before { Err(FabricError::NoSuch("multicast membership")) } else { Ok(()) }
    }

    fn next_event(&mut self) -> Option<AsynchronousEvent> {
        self.core.events.pop_front()
    }

    fn rest(&mut self) {
        self.send_held();
    }

    fn part(&mut self) {
        self.send_held();
        self.link.part();
    }
}

impl<L: Link> SoftContext<L> {
    fn domain(&self, domain: ProtectionDomain) -> Result<u32, FabricError> {
        let number = number_of(domain.0);
        self.core.domains.get(number).map(|()| number).ok_or(NO_DOMAIN)
    }

    fn xrc_domain(&self, domain: XrcDomain) -> Result<u32, FabricError> {
        let number = number_of(domain.0);
        self.core.xrc_domains.get(number).map(|()| number).ok_or(FabricError::NoSuch("XRC domain"))
    }

    fn completion_queue(&self, queue: CompletionQueue) -> Result<&Completions, FabricError> {
        self.core.completions.get(number_of(queue.0)).ok_or(NO_COMPLETION_QUEUE)
    }

    fn queue_pair(&self, qp: QueuePair) -> Result<&QueuePairObject, FabricError> {
        self.core.queue_pairs.get(number_of(qp.0)).ok_or(NO_QUEUE_PAIR)
    }

    fn multicast(&self) -> Result<(), FabricError> {
        let reason = "its link reaches one peer at a time";
        if self.capabilities.multicast {
            Ok(())
        } else {
            Err(FabricError::Unsupported { operation: "multicast", reason })
        }
    }

    fn resolve(&mut self, endpoint: &Endpoint) -> Result<LinkPeer, FabricError> {
        let address = endpoint.address_for(self.capabilities.kind)?;
        if address == self.address { Ok(OWN) } else { self.link.resolve(address) }
    }

    /// The peer of a queue pair that is about to take messages; `None` for datagrams.
    fn find_peer(&mut self, qp: QueuePair, remote: Option<&Endpoint>) -> Result<Option<(LinkPeer, u32)>, FabricError> {
        match (self.queue_pair(qp)?.attributes.transport.is_connected(), remote) {
            (true, Some(endpoint)) => Ok(Some((self.resolve(endpoint)?, endpoint.qp().0))),
            (false, None) => Ok(None),
            (connected, _) => Err(FabricError::InvalidRequest {
                operation: "modify",
                reason: if connected { "the remote queue pair is missing" } else { "datagrams have no remote" },
            }),
        }
    }

    /// Shows a connected queue pair to peers that do this adapter's work.
    fn publish(&mut self, number: u32, peer: LinkPeer, remote: u32) {
        let Some(direct) = self.link.direct() else { return };
        if let Some(object) = self.core.queue_pairs.get_mut(number) {
            let domain = object.domain();
            let xrc = match object.attributes.transport {
                Transport::XrcTarget(domain) => Some(number_of(domain.0)),
                _ => None,
            };
            direct.publish_queue_pair(&DirectQueuePair { number, peer, remote, access: object.access, domain, xrc });
            object.published = true;
        }
    }

    /// Tells peers that wait for receives, now.
    fn call(&mut self, shared: Option<u32>, waiting: &[u32]) {
        if !waiting.is_empty() {
            self.core.call_waiting(shared, waiting);
            self.push();
        }
    }
}

/// The first `count` of those who wait at a queue.
fn call(receives: &mut ReceiveQueue, count: usize) -> Vec<u32> {
    if receives.waiting.is_empty() {
        return Vec::new();
    }
    let count = count.min(receives.waiting.len());
    receives.waiting.drain(..count).collect()
}

fn within(what: &'static str, asked: u32, max: u32) -> Result<(), FabricError> {
    if asked > max {
        return Err(FabricError::BeyondLimit { what, asked: asked.into(), max: max.into() });
    }
    Ok(())
}
