//! An open adapter: its objects by handle.
//!
//! What may be asked of an object lies in files by subject: states in `connect`, requests in `posting`, completions
//! and events in `completions`, groups in `multicast`.

use crate::address::{Address, sequence_number};
use crate::choice::PortOffer;
use crate::ffi::numbers::{QPT_RC, QPT_UD, QPT_XRC_RECV, QPT_XRC_SEND, access};
use crate::ffi::{IbvQpCap, IbvRecvWr, IbvSendWr, IbvSge, IbvWc};
use crate::limits::has_own_xrc;
use crate::multicast::{Groups, Membership, Way};
use crate::objects::{Adapter, Completions, Domain, ExtendedDomain, Pair, PairParts, Region, Route, SharedQueue};
use crate::queues::{QueueName, ReceiveQueue, Registry, SendQueue, WorkQueue};
use crate::substitute::{Service, Signal, Substitute};
use base::{Slab, SlabKey};
use fabric::{
    Access, AddressHandle, AsynchronousEvent, Capabilities, CompletionQueue, Context, DatagramAddress, DeviceKind,
    Endpoint, FabricError, Lkey, LocalMemory, MemoryRegion, MultiQueueReceive, MulticastGroup, NotifyOn,
    ProtectionDomain, QpNumber, QueuePair, QueuePairAttributes, QueuePairState, ReceiveRequest, Rkey, SendRequest,
    SharedMemory, SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber, Transition, Transport, WorkCompletion,
    XrcDomain,
};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A completion queue.
pub(crate) struct CompletionEntry {
    pub(crate) completions: Arc<Completions>,
    pub(crate) depth: u32,
    /// There once substitutes complete here; see [`crate::substitute`].
    pub(crate) signal: Option<Signal>,
    pub(crate) armed: bool,
    /// Polled off the adapter already, for a reason of ours.
    pub(crate) backlog: VecDeque<WorkCompletion>,
    pub(crate) overrun: bool,
    /// Empty polls since we last looked for events.
    pub(crate) empty_polls: u32,
}

/// A shared receive queue.
pub(crate) struct SharedEntry {
    pub(crate) queue: Arc<SharedQueue>,
    pub(crate) name: QueueName,
    pub(crate) entries_max: u32,
    /// Where it completes, if it does so by itself: if XRC sends address it.
    pub(crate) completions: Option<CompletionQueue>,
    /// Its place where the adapter has no XRC of its own.
    pub(crate) xrc: Option<XrcPlace>,
}

/// Where a shared receive queue stands in the substitute for XRC.
pub(crate) struct XrcPlace {
    pub(crate) domain: XrcDomain,
    pub(crate) number: u32,
    pub(crate) completions: CompletionQueue,
    pub(crate) held: Arc<Completions>,
}

/// An XRC domain: the adapter's, or in name only.
enum DomainOfXrc {
    Own(Arc<ExtendedDomain>),
    Substitute,
}

/// A queue pair.
pub(crate) struct PairEntry {
    pub(crate) pair: Pair,
    pub(crate) attributes: QueuePairAttributes,
    /// As last asked for; the adapter may have moved it to the error state since.
    pub(crate) state: QueuePairState,
    /// Something failed, and the adapter was told to flush the rest.
    pub(crate) failed: bool,
    pub(crate) sends: QueueName,
    /// `None` if its receives come from a shared queue, or it has none.
    pub(crate) receives: Option<QueueName>,
    pub(crate) sequence_number: u32,
    /// Reads and atomics under way at once, as both sides allow.
    pub(crate) reads_in_flight: u8,
    /// The peer's queue that reads, writes and atomics name, if it is an XRC target, else 0; see
    /// [`VerbsContext::memory_queue`].
    pub(crate) memory_queue: u32,
    /// Dropped after the pair, which is attached to them.
    pub(crate) groups: Vec<(MulticastGroup, Arc<Membership>)>,
    /// Stands in for XRC that the adapter does not have; `pair` is its control connection then.
    pub(crate) substitute: Option<Box<Substitute>>,
}

/// Registered memory.
struct RegionEntry {
    handle: MemoryRegion,
    domain: SlabKey,
    /// Dropped, and so deregistered, before the memory that it may own.
    region: Region,
    _memory: Option<SharedMemory>,
}

/// The way to a datagram's receiver.
pub(crate) struct RouteEntry {
    pub(crate) route: Route,
    /// The group at its end, if it leads to one.
    pub(crate) group: Option<Arc<Membership>>,
}

/// The arrays that a post or a poll hands to the library, kept to be filled again.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) sends: Vec<IbvSendWr>,
    pub(crate) receives: Vec<IbvRecvWr>,
    pub(crate) entries: Vec<IbvSge>,
    pub(crate) completions: Vec<IbvWc>,
}

// SAFETY: the pointers inside mean something only during the call that filled them.
unsafe impl Send for Scratch {}

/// An open adapter.
pub struct VerbsContext {
    // What depends on others stands before them: fields are dropped in this order.
    pub(crate) pairs: Slab<PairEntry>,
    /// By the adapter's number.
    pub(crate) pair_numbers: HashMap<u32, SlabKey>,
    pub(crate) routes: Slab<RouteEntry>,
    pub(crate) shared: Slab<SharedEntry>,
    regions: HashMap<u32, RegionEntry>,
    pub(crate) completion_queues: Slab<CompletionEntry>,
    xrc_domains: Slab<DomainOfXrc>,
    domains: Slab<Arc<Domain>>,
    pub(crate) registry: Registry,
    pub(crate) groups: Groups,
    pub(crate) scratch: Scratch,
    pub(crate) events: VecDeque<AsynchronousEvent>,
    pub(crate) offer: PortOffer,
    pub(crate) capabilities: Capabilities,
    own_xrc: bool,
    pub(crate) service: Option<Service>,
    pub(crate) adapter: Arc<Adapter>,
}

impl VerbsContext {
    pub(crate) fn new(
        adapter: Arc<Adapter>,
        offer: PortOffer,
        capabilities: Capabilities,
        way_to_groups: Result<Way, &'static str>,
    ) -> Result<Self, FabricError> {
        adapter.do_not_block()?;
        Ok(Self {
            pairs: Slab::new(),
            pair_numbers: HashMap::new(),
            routes: Slab::new(),
            shared: Slab::new(),
            regions: HashMap::new(),
            completion_queues: Slab::new(),
            xrc_domains: Slab::new(),
            domains: Slab::new(),
            registry: Registry::default(),
            groups: Groups::new(way_to_groups),
            scratch: Scratch::default(),
            events: VecDeque::new(),
            own_xrc: has_own_xrc(&adapter),
            service: None,
            offer,
            capabilities,
            adapter,
        })
    }

    pub(crate) fn pair(&self, qp: QueuePair) -> Result<&PairEntry, FabricError> {
        self.pairs.get(qp.0).ok_or(FabricError::NoSuch("queue pair"))
    }

    pub(crate) fn shared_entry(&self, queue: SharedReceiveQueue) -> Result<&SharedEntry, FabricError> {
        self.shared.get(queue.0).ok_or(FabricError::NoSuch("shared receive queue"))
    }

    pub(crate) fn completion_entry(&self, queue: CompletionQueue) -> Result<&CompletionEntry, FabricError> {
        self.completion_queues.get(queue.0).ok_or(FabricError::NoSuch("completion queue"))
    }

    pub(crate) fn domain(&self, domain: ProtectionDomain) -> Result<&Arc<Domain>, FabricError> {
        self.domains.get(domain.0).ok_or(FabricError::NoSuch("protection domain"))
    }

    fn register_bytes(
        &mut self,
        domain: ProtectionDomain,
        address: usize,
        len_bytes: usize,
        access: c_int,
        memory: Option<SharedMemory>,
    ) -> Result<MemoryRegion, FabricError> {
        let max = self.capabilities.limits.memory_region_max_bytes;
        within("bytes of a memory region", len_bytes as u64, max)?;
        // The kernel registers no empty range: a line of our own stands for it, which nothing can reach by its address.
        let (memory, start, length) = match len_bytes {
            0 => {
                let line = SharedMemory::private(64);
                let start = line.start().as_ptr().expose_provenance();
                (Some(line), start, 1)
            }
            _ => (memory, address, len_bytes),
        };
        let region = Region::new(self.domain(domain)?, start, length, access)
            .map_err(|error| self.refused(error, "memory regions", self.capabilities.limits.memory_regions_max))?;
        let (lkey, rkey) = region.keys();
        let handle =
            MemoryRegion { address: address as u64, len_bytes: len_bytes as u64, lkey: Lkey(lkey), rkey: Rkey(rkey) };
        self.regions.insert(lkey, RegionEntry { handle, domain: domain.0, region, _memory: memory });
        Ok(handle)
    }

    /// The library's flags. An adapter without atomic operations refuses the right to them, which nobody can use.
    pub(crate) fn remote_access(&self, access: Access) -> c_int {
        let flag = |wanted, flag| if wanted { flag } else { 0 };
        flag(access.remote_read, access::REMOTE_READ)
            | flag(access.remote_write, access::REMOTE_WRITE)
            | flag(access.remote_atomic && self.capabilities.atomics, access::REMOTE_ATOMIC)
    }

    /// An error of the library, as "no more of these" where it means that.
    fn refused(&self, error: FabricError, object: &'static str, max: u32) -> FabricError {
        let out_of_memory = std::io::Error::from_raw_os_error(libc::ENOMEM).to_string();
        match error {
            FabricError::System { reason, .. } if reason == out_of_memory => FabricError::Exhausted { object, max },
            other => other,
        }
    }

    fn make_pair(&mut self, attributes: &QueuePairAttributes) -> Result<PairEntry, FabricError> {
        check_attributes(attributes, &self.capabilities)?;
        let is_xrc = matches!(attributes.transport, Transport::XrcInitiator | Transport::XrcTarget(_));
        if is_xrc && !self.own_xrc {
            return self.make_substitute(attributes);
        }
        let completions = |queue| Ok::<_, FabricError>(Arc::clone(&self.completion_entry(queue)?.completions));
        let extended = match attributes.transport {
            Transport::XrcTarget(domain) => match self.xrc_domains.get(domain.0) {
                Some(DomainOfXrc::Own(domain)) => Some(Arc::clone(domain)),
                _ => return Err(FabricError::NoSuch("XRC domain")),
            },
            _ => None,
        };
        let shared = match (&extended, attributes.shared_receives) {
            (Some(extended), _) => Some(self.memory_queue(attributes, extended)?),
            (None, Some(queue)) => Some(Arc::clone(&self.shared_entry(queue)?.queue)),
            (None, None) => None,
        };
        let parts = PairParts {
            domain: Arc::clone(self.domain(attributes.protection_domain)?),
            send: completions(attributes.send_completions)?,
            receive: completions(attributes.receive_completions)?,
            shared,
            extended,
        };
        let own_receives = attributes.transport.receives() && attributes.shared_receives.is_none();
        let cap = IbvQpCap {
            max_send_wr: if attributes.transport.sends() { attributes.send_depth.max(1) } else { 0 },
            max_recv_wr: if own_receives { attributes.receive_depth.max(1) } else { 0 },
            max_send_sge: attributes.send_entries_max.max(1),
            max_recv_sge: if own_receives { attributes.receive_entries_max.max(1) } else { 0 },
            max_inline_data: attributes.inline_max_bytes,
        };
        let qp_type = match attributes.transport {
            Transport::ReliableConnection => QPT_RC,
            Transport::XrcInitiator => QPT_XRC_SEND,
            Transport::XrcTarget(_) => QPT_XRC_RECV,
            Transport::UnreliableDatagram => QPT_UD,
        };
        let pair = Pair::new(parts, qp_type, cap)
            .map_err(|error| self.refused(error, "queue pairs", self.capabilities.limits.queue_pairs_max))?;
        // The key is not known yet; the caller names the queues once it is.
        let nobody = SlabKey::from_bits(0);
        let sends = self.registry.insert(WorkQueue::Send(nobody, SendQueue::new(attributes.send_depth)));
        let receives = own_receives
            .then(|| self.registry.insert(WorkQueue::Receive(nobody, ReceiveQueue::new(attributes.receive_depth))));
        Ok(PairEntry {
            pair,
            attributes: *attributes,
            state: QueuePairState::Reset,
            failed: false,
            sends,
            receives,
            sequence_number: sequence_number(),
            reads_in_flight: 0,
            memory_queue: 0,
            groups: Vec::new(),
            substitute: None,
        })
    }

    /// A queue of the protection domain of an XRC target, in which no receive is ever posted.
    ///
    /// Each request of XRC names a shared receive queue, whether it takes a receive or not: the protection domain of
    /// that queue is the one that the keys of reads, writes and atomics must be of, for the target has none itself. So
    /// a target that grants its memory keeps such a queue, and tells its number in its endpoint. Targets that are alike
    /// share one.
    fn memory_queue(
        &self,
        attributes: &QueuePairAttributes,
        extended: &Arc<ExtendedDomain>,
    ) -> Result<Arc<SharedQueue>, FabricError> {
        let is_alike = |entry: &&PairEntry| {
            let theirs = &entry.attributes;
            theirs.transport == attributes.transport
                && theirs.protection_domain == attributes.protection_domain
                && theirs.receive_completions == attributes.receive_completions
        };
        let others = self.pairs.iter().map(|(_, entry)| entry).find(is_alike);
        if let Some(queue) = others.and_then(|entry| entry.pair.shared()) {
            return Ok(Arc::clone(queue));
        }
        let domain = self.domain(attributes.protection_domain)?;
        let completions = &self.completion_entry(attributes.receive_completions)?.completions;
        let queue = SharedQueue::extended(domain, extended, completions, 1, 1).map_err(|error| {
            self.refused(error, "shared receive queues", self.capabilities.limits.shared_receive_queues_max)
        })?;
        Ok(Arc::new(queue))
    }

    fn make_substitute(&mut self, attributes: &QueuePairAttributes) -> Result<PairEntry, FabricError> {
        self.domain(attributes.protection_domain)?;
        self.completion_entry(attributes.send_completions)?;
        self.completion_entry(attributes.receive_completions)?;
        if let Transport::XrcTarget(domain) = attributes.transport {
            self.xrc_domains.get(domain.0).ok_or(FabricError::NoSuch("XRC domain"))?;
        }
        self.start_service()?;
        let service = self.service.as_ref().expect("just started");
        let (substitute, pair) = Substitute::new(attributes.transport, &service.domain, &service.completions)
            .map_err(|error| self.refused(error, "queue pairs", self.capabilities.limits.queue_pairs_max))?;
        Ok(PairEntry {
            pair,
            attributes: *attributes,
            state: QueuePairState::Reset,
            failed: false,
            sends: self.registry.insert(WorkQueue::Control(SlabKey::from_bits(0))),
            receives: None,
            sequence_number: sequence_number(),
            reads_in_flight: 0,
            memory_queue: 0,
            groups: Vec::new(),
            substitute: Some(Box::new(substitute)),
        })
    }

    /// True if a substitute's queue or queue pair needs the object that `needs` looks for.
    fn substitute_needs(&self, needs: impl Fn(&QueuePairAttributes) -> bool) -> bool {
        self.pairs.iter().any(|(_, entry)| entry.substitute.is_some() && needs(&entry.attributes))
    }

    /// Completions that an adapter purges with a pair would leave receives of a shared queue counted for ever.
    pub(crate) fn save_shared_receives(&mut self, of_pair: &QueuePairAttributes) {
        if of_pair.shared_receives.is_some() {
            self.save_completions(of_pair.receive_completions);
        }
    }

    /// Empties the queues of a pair and gives them new names, so that what the adapter still reports means nothing.
    pub(crate) fn renew_queues(&mut self, key: SlabKey) {
        let Some(entry) = self.pairs.get_mut(key) else { return };
        self.registry.remove(entry.sends);
        let sends = match entry.substitute {
            Some(_) => WorkQueue::Control(key),
            None => WorkQueue::Send(key, SendQueue::new(entry.attributes.send_depth)),
        };
        entry.sends = self.registry.insert(sends);
        if let Some(receives) = entry.receives {
            self.registry.remove(receives);
            let queue = ReceiveQueue::new(entry.attributes.receive_depth);
            entry.receives = Some(self.registry.insert(WorkQueue::Receive(key, queue)));
        }
    }
}

impl Context for VerbsContext {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn allocate_protection_domain(&mut self) -> Result<ProtectionDomain, FabricError> {
        let max = self.capabilities.limits.protection_domains_max;
        let domain = Domain::new(&self.adapter).map_err(|error| self.refused(error, "protection domains", max))?;
        Ok(ProtectionDomain(self.domains.insert(Arc::new(domain))))
    }

    fn deallocate_protection_domain(&mut self, domain: ProtectionDomain) -> Result<(), FabricError> {
        let held = self.domain(domain)?;
        let by_substitute = self.substitute_needs(|attributes| attributes.protection_domain == domain);
        if Arc::strong_count(held) > 1 || by_substitute {
            let has_region = self.regions.values().any(|region| region.domain == domain.0);
            let by = if has_region { "memory region" } else { "queue or queue pair" };
            return Err(FabricError::InUse { object: "protection domain", by });
        }
        self.domains.remove(domain.0);
        Ok(())
    }

    fn register(
        &mut self,
        domain: ProtectionDomain,
        memory: LocalMemory,
        access: Access,
    ) -> Result<MemoryRegion, FabricError> {
        if access.changes() && !memory.is_target() {
            let reason = "peers may not change memory that is only a source";
            return Err(FabricError::InvalidRequest { operation: "register", reason });
        }
        let writable = if memory.is_target() { access::LOCAL_WRITE } else { 0 };
        self.register_bytes(domain, memory.address(), memory.len_bytes(), writable | self.remote_access(access), None)
    }

    fn allocate(
        &mut self,
        domain: ProtectionDomain,
        len_bytes: usize,
        access: Access,
    ) -> Result<(MemoryRegion, SharedMemory), FabricError> {
        let memory = SharedMemory::private(len_bytes.max(1));
        let address = memory.start().as_ptr().expose_provenance();
        let flags = access::LOCAL_WRITE | self.remote_access(access);
        let region = self.register_bytes(domain, address, len_bytes, flags, Some(memory.clone()))?;
        Ok((region, memory))
    }

    fn deregister(&mut self, region: MemoryRegion) -> Result<(), FabricError> {
        match self.regions.get(&region.lkey.0) {
            Some(entry) if entry.handle == region => {
                let entry = self.regions.remove(&region.lkey.0).expect("looked up above");
                entry.region.deregister()
            }
            _ => Err(FabricError::NoSuch("memory region")),
        }
    }

    fn create_completion_queue(&mut self, depth: u32) -> Result<CompletionQueue, FabricError> {
        let limits = &self.capabilities.limits;
        within("entries of a completion queue", depth.into(), limits.completion_depth_max.into())?;
        // Room for the sends that are reported only to us.
        let with_ours = depth.saturating_mul(2).saturating_add(64).min(limits.completion_depth_max);
        let completions = Completions::new(&self.adapter, with_ours)
            .map_err(|error| self.refused(error, "completion queues", limits.completion_queues_max))?;
        let entry = CompletionEntry {
            depth,
            signal: match &self.service {
                Some(service) => Some(Signal::new(completions.as_fd(), service.completions.as_fd())?),
                None => None,
            },
            completions: Arc::new(completions),
            armed: false,
            backlog: VecDeque::new(),
            overrun: false,
            empty_polls: 0,
        };
        Ok(CompletionQueue(self.completion_queues.insert(entry)))
    }

    fn destroy_completion_queue(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        let by_substitute = self.substitute_needs(|attributes| {
            attributes.send_completions == queue || attributes.receive_completions == queue
        });
        if Arc::strong_count(&self.completion_entry(queue)?.completions) > 1 || by_substitute {
            return Err(FabricError::InUse { object: "completion queue", by: "queue pair or shared receive queue" });
        }
        self.completion_queues.remove(queue.0);
        Ok(())
    }

    fn poll(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        self.poll_completions(queue, into)
    }

    fn arm(&mut self, queue: CompletionQueue, on: NotifyOn) -> Result<(), FabricError> {
        let entry = self.completion_queues.get_mut(queue.0).ok_or(FabricError::NoSuch("completion queue"))?;
        entry.armed = true;
        entry.completions.arm(on == NotifyOn::Solicited)?;
        // What the service has to do may bring completions here.
        self.service.as_ref().map_or(Ok(()), |service| service.completions.arm(false))
    }

    fn descriptor(&self, queue: CompletionQueue) -> Result<BorrowedFd<'_>, FabricError> {
        let entry = self.completion_entry(queue)?;
        Ok(entry.signal.as_ref().map_or(entry.completions.as_fd(), Signal::descriptor))
    }

    fn acknowledge(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        let entry = self.completion_entry(queue)?;
        entry.completions.acknowledge();
        if let (Some(signal), Some(service)) = (&entry.signal, &self.service) {
            signal.lower();
            service.completions.acknowledge();
        }
        Ok(())
    }

    fn open_xrc_domain(&mut self) -> Result<XrcDomain, FabricError> {
        let domain = match self.own_xrc {
            true => DomainOfXrc::Own(Arc::new(ExtendedDomain::new(&self.adapter)?)),
            false => DomainOfXrc::Substitute,
        };
        Ok(XrcDomain(self.xrc_domains.insert(domain)))
    }

    fn close_xrc_domain(&mut self, domain: XrcDomain) -> Result<(), FabricError> {
        let used = match self.xrc_domains.get(domain.0).ok_or(FabricError::NoSuch("XRC domain"))? {
            DomainOfXrc::Own(held) => Arc::strong_count(held) > 1,
            DomainOfXrc::Substitute => {
                let has_queue =
                    self.shared.iter().any(|(_, entry)| entry.xrc.as_ref().is_some_and(|xrc| xrc.domain == domain));
                has_queue || self.substitute_needs(|attributes| attributes.transport == Transport::XrcTarget(domain))
            }
        };
        if used {
            return Err(FabricError::InUse { object: "XRC domain", by: "queue pair or shared receive queue" });
        }
        self.xrc_domains.remove(domain.0);
        Ok(())
    }

    fn create_shared_receive_queue(
        &mut self,
        attributes: &SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue, FabricError> {
        let limits = &self.capabilities.limits;
        let (depth, entries) = (attributes.depth.max(1), attributes.entries_max.max(1));
        within("entries of a receive queue", attributes.depth.into(), limits.receive_depth_max.into())?;
        within("entries of a scatter list", attributes.entries_max.into(), limits.scatter_gather_max.into())?;
        let domain = self.domain(attributes.protection_domain)?;
        let mut place = None;
        let made = match attributes.xrc {
            None => SharedQueue::new(domain, depth, entries),
            Some((xrc, completions)) => {
                let held = &self.completion_entry(completions)?.completions;
                match self.xrc_domains.get(xrc.0).ok_or(FabricError::NoSuch("XRC domain"))? {
                    DomainOfXrc::Own(xrc) => SharedQueue::extended(domain, xrc, held, depth, entries),
                    DomainOfXrc::Substitute => {
                        place = Some(XrcPlace { domain: xrc, number: 0, completions, held: Arc::clone(held) });
                        SharedQueue::new(domain, depth, entries)
                    }
                }
            }
        };
        let queue =
            made.map_err(|error| self.refused(error, "shared receive queues", limits.shared_receive_queues_max))?;
        if let Some(place) = &mut place {
            self.start_service()?;
            let service = self.service.as_mut().expect("just started");
            service.last_queue_number += 1;
            place.number = service.last_queue_number;
        }
        let name = self.registry.insert(WorkQueue::Shared(ReceiveQueue::new(attributes.depth)));
        let entry = SharedEntry {
            queue: Arc::new(queue),
            name,
            entries_max: attributes.entries_max,
            completions: attributes.xrc.map(|(_, completions)| completions),
            xrc: place,
        };
        Ok(SharedReceiveQueue(self.shared.insert(entry)))
    }

    fn destroy_shared_receive_queue(&mut self, queue: SharedReceiveQueue) -> Result<(), FabricError> {
        self.shared_entry(queue)?;
        self.close_lanes_to(queue.0);
        if Arc::strong_count(&self.shared_entry(queue)?.queue) > 1 {
            return Err(FabricError::InUse { object: "shared receive queue", by: "queue pair" });
        }
        // Adapters purge the completions of a queue that goes.
        if let Some(completions) = self.shared_entry(queue)?.completions {
            self.save_completions(completions);
        }
        if let Some(entry) = self.shared.remove(queue.0) {
            self.registry.remove(entry.name);
        }
        Ok(())
    }

    fn shared_receive_queue_number(&self, queue: SharedReceiveQueue) -> Result<SrqNumber, FabricError> {
        let entry = self.shared_entry(queue)?;
        let number = entry.xrc.as_ref().map(|xrc| xrc.number).or_else(|| entry.queue.number());
        number.map(SrqNumber).ok_or(FabricError::InvalidRequest {
            operation: "shared_receive_queue_number",
            reason: "the queue is in no XRC domain",
        })
    }

    fn set_receive_limit(&mut self, queue: SharedReceiveQueue, limit: u32) -> Result<(), FabricError> {
        let (name, shared) = {
            let entry = self.shared_entry(queue)?;
            (entry.name, Arc::clone(&entry.queue))
        };
        within("receives", limit.into(), self.registry.receive(name).depth.into())?;
        shared.set_limit(limit)
    }

    fn post_shared_receive(
        &mut self,
        queue: SharedReceiveQueue,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError> {
        self.post_to_shared(queue, requests)
    }

    fn post_multi_queue_receive(
        &mut self,
        _queues: &[SharedReceiveQueue],
        _request: &ReceiveRequest<'_>,
    ) -> Result<MultiQueueReceive, FabricError> {
        Err(FabricError::Unsupported { operation: "post_multi_queue_receive", reason: "adapters have no such thing" })
    }

    fn withdraw_receive(&mut self, _receive: MultiQueueReceive) -> Result<bool, FabricError> {
        Err(FabricError::Unsupported { operation: "withdraw_receive", reason: "adapters have no such thing" })
    }

    fn create_queue_pair(&mut self, attributes: &QueuePairAttributes) -> Result<QueuePair, FabricError> {
        if attributes.independent_queues {
            let reason = "an adapter's sends wait in line";
            return Err(FabricError::Unsupported { operation: "create_queue_pair", reason });
        }
        let entry = self.make_pair(attributes)?;
        let (is_substitute, number) = (entry.substitute.is_some(), entry.pair.number());
        let key = self.pairs.insert(entry);
        self.pair_numbers.insert(number, key);
        self.renew_queues(key);
        if let (true, Some(service)) = (is_substitute, &mut self.service) {
            service.users.push(key);
        }
        Ok(QueuePair(key))
    }

    fn destroy_queue_pair(&mut self, qp: QueuePair) -> Result<(), FabricError> {
        self.remove_lanes(qp.0);
        if let Some(service) = &mut self.service {
            service.users.retain(|user| *user != qp.0);
        }
        let entry = self.pair(qp)?;
        let attributes = entry.attributes;
        self.save_shared_receives(&attributes);
        let entry = self.pairs.remove(qp.0).expect("looked up above");
        self.pair_numbers.remove(&entry.pair.number());
        self.registry.remove(entry.sends);
        entry.receives.and_then(|receives| self.registry.remove(receives));
        Ok(())
    }

    fn endpoint(&self, qp: QueuePair) -> Result<Endpoint, FabricError> {
        let entry = self.pair(qp)?;
        let address = Address {
            link_layer: self.offer.link_layer,
            mtu: self.offer.mtu,
            reads_in_flight: self.reads_in_flight_max(),
            substitute: entry.substitute.is_some(),
            lid: self.offer.lid,
            partition: self.offer.partition,
            sequence_number: entry.sequence_number,
            gid: self.offer.gid.bytes,
            memory_queue: entry.pair.shared().and_then(|queue| queue.number()).unwrap_or(0),
        };
        Ok(Endpoint::new(DeviceKind::Verbs, QpNumber(entry.pair.number()), &address.to_bytes()))
    }

    fn modify(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError> {
        self.modify_pair(qp, transition)
    }

    fn queue_pair_state(&self, qp: QueuePair) -> Result<QueuePairState, FabricError> {
        self.state_of(self.pair(qp)?)
    }

    fn post_send(&mut self, qp: QueuePair, requests: &[SendRequest<'_>]) -> Result<usize, FabricError> {
        self.post_sends(qp, requests)
    }

    fn post_receive(&mut self, qp: QueuePair, requests: &[ReceiveRequest<'_>]) -> Result<usize, FabricError> {
        self.post_receives(qp, requests)
    }

    fn create_address_handle(
        &mut self,
        domain: ProtectionDomain,
        to: DatagramAddress<'_>,
    ) -> Result<AddressHandle, FabricError> {
        let domain = Arc::clone(self.domain(domain)?);
        let (attributes, group) = match to {
            DatagramAddress::Endpoint(endpoint) => {
                let address = Address::parse(endpoint.address_for(DeviceKind::Verbs)?)?;
                (self.route_to(&address)?, None)
            }
            DatagramAddress::Multicast(group) => {
                let membership = self.route_to_group(group)?;
                (membership.route, Some(membership))
            }
        };
        let max = self.capabilities.limits.address_handles_max;
        let route = Route::new(&domain, &attributes).map_err(|error| self.refused(error, "address handles", max))?;
        Ok(AddressHandle(self.routes.insert(RouteEntry { route, group })))
    }

    fn destroy_address_handle(&mut self, address: AddressHandle) -> Result<(), FabricError> {
        self.routes.remove(address.0).map(drop).ok_or(FabricError::NoSuch("address handle"))
    }

    fn attach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        self.join_group(qp, group)
    }

    fn detach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        self.leave_group(qp, group)
    }

    fn next_event(&mut self) -> Option<AsynchronousEvent> {
        self.take_events();
        self.events.pop_front()
    }
}

/// What a work request or an object asks for, against what there is.
pub(crate) fn within(what: &'static str, asked: u64, max: u64) -> Result<(), FabricError> {
    if asked <= max { Ok(()) } else { Err(FabricError::BeyondLimit { what, asked, max }) }
}

fn check_attributes(attributes: &QueuePairAttributes, capabilities: &Capabilities) -> Result<(), FabricError> {
    let limits = &capabilities.limits;
    within("entries of a send queue", attributes.send_depth.into(), limits.send_depth_max.into())?;
    within("entries of a receive queue", attributes.receive_depth.into(), limits.receive_depth_max.into())?;
    within("entries of a gather list", attributes.send_entries_max.into(), limits.scatter_gather_max.into())?;
    within("entries of a scatter list", attributes.receive_entries_max.into(), limits.scatter_gather_max.into())?;
    within("bytes of an inline payload", attributes.inline_max_bytes.into(), limits.inline_max_bytes.into())?;
    if attributes.shared_receives.is_some() && !attributes.transport.receives() {
        let reason = "XRC addresses shared receive queues by number, it takes from none";
        return Err(FabricError::InvalidRequest { operation: "create_queue_pair", reason });
    }
    Ok(())
}
