//! The device and its context: queue pairs whose work is done at posting.

use std::collections::VecDeque;
use std::sync::Arc;

use base::sync::Ordering;
use fabric::{
    Access, Capabilities, Context, Device, FabricError, LocalMemory, MappedArea, MemoryRegion, Operation, PeerIndex,
    QpNumber, QueuePairState, RemoteMemory, SharedMemory, Wakeup, WcStatus, WorkCompletion, WorkRequest,
};
use lockfree::Doorbell;

use super::cross_memory;
use super::region_table::{self, RegionTable};
use super::segment::Segment;
use super::wakeup::{ShmWakeup, ring};

/// Longest single copy, in bytes; longer work requests are the protocol's to cut.
const MESSAGE_MAX_BYTES: u64 = 1 << 30;

/// Shared memory between the processes of one host.
pub struct ShmDevice {
    segment: Segment,
    me: PeerIndex,
    cross_memory: Result<(), String>,
}

impl ShmDevice {
    /// This process, as number `me`, in `segment`. `cross_memory` says whether to reach private memory at all.
    pub fn new(segment: Segment, me: PeerIndex, cross_memory: Result<(), String>) -> Self {
        Self { segment, me, cross_memory }
    }
}

fn capabilities(cross_memory: &Result<(), String>) -> Capabilities {
    Capabilities {
        name: "shm",
        mapped_peers: true,
        rdma: cross_memory.clone(),
        message_max_bytes: MESSAGE_MAX_BYTES,
        memory_regions_max: region_table::REGIONS_MAX,
    }
}

impl Device for ShmDevice {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.cross_memory)
    }

    fn open(self: Box<Self>) -> Result<Box<dyn Context>, FabricError> {
        let Self { segment, me, cross_memory } = *self;
        if cross_memory.is_ok() {
            cross_memory::allow_peers();
        }
        let mine = |memory: Option<SharedMemory>| memory.ok_or(FabricError::NoSuchPeer(me.0));
        let table = RegionTable::new(mine(segment.region_table(me.0))?);
        segment.claim_to_be(me, std::process::id());
        let doorbells: Vec<_> = (0..segment.shape().process_count).filter_map(|peer| segment.doorbell(peer)).collect();
        let wakeup = Arc::new(ShmWakeup::new(doorbells[me.0 as usize].clone()));
        Ok(Box::new(ShmContext {
            segment,
            me,
            cross_memory,
            table,
            doorbells,
            wakeup,
            queue_pairs: Vec::new(),
            completions: VecDeque::new(),
        }))
    }
}

struct QueuePair {
    peer: PeerIndex,
    state: QueuePairState,
}

struct ShmContext {
    segment: Segment,
    me: PeerIndex,
    cross_memory: Result<(), String>,
    table: RegionTable,
    doorbells: Vec<Doorbell>,
    wakeup: Arc<ShmWakeup>,
    queue_pairs: Vec<QueuePair>,
    completions: VecDeque<WorkCompletion>,
}

impl ShmContext {
    /// Plays the adapter: checks the target's table, then copies.
    fn perform(&self, peer: PeerIndex, operation: &Operation) -> (WcStatus, u64) {
        if self.cross_memory.is_err() {
            return (WcStatus::RemoteOperationRefused, 0);
        }
        let Some(pid) = self.process_id(peer) else { return (WcStatus::TransportRetryExceeded, 0) };
        let (remote, len, write) = match operation {
            Operation::RdmaWrite { local, remote } => (remote, local.len_bytes(), true),
            Operation::RdmaRead { local, remote } => (remote, local.len_bytes(), false),
        };
        if !self.allowed(peer, remote, len as u64, write) {
            return (WcStatus::RemoteAccessError, 0);
        }
        let status = match operation {
            // SAFETY: the range was promised readable until this request completes.
            Operation::RdmaWrite { local, .. } => unsafe {
                cross_memory::write(pid, local.address(), remote.address, len)
            },
            // SAFETY: the range was promised writable, and left alone, until this request completes.
            Operation::RdmaRead { local, .. } => unsafe {
                cross_memory::read(pid, local.address(), remote.address, len)
            },
        };
        (status, if status == WcStatus::Success { len as u64 } else { 0 })
    }

    fn allowed(&self, peer: PeerIndex, remote: &RemoteMemory, len: u64, write: bool) -> bool {
        len <= MESSAGE_MAX_BYTES
            && self
                .segment
                .region_table(peer.0)
                .is_some_and(|table| region_table::check(&table, remote.rkey, remote.address, len, write))
    }

    fn process_id(&self, peer: PeerIndex) -> Option<i32> {
        // Acquire pairs with the store in `claim_to_be`.
        let pid = self.segment.identity(peer.0)?.half(0).load(Ordering::Acquire);
        i32::try_from(pid).ok().filter(|pid| *pid > 0)
    }
}

impl Context for ShmContext {
    fn capabilities(&self) -> Capabilities {
        capabilities(&self.cross_memory)
    }

    fn local_peer(&self) -> PeerIndex {
        self.me
    }

    fn peer_count(&self) -> u32 {
        self.segment.shape().process_count
    }

    fn register(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        match memory {
            LocalMemory::Source(range) => self.table.register(range.address(), range.len_bytes(), access),
            LocalMemory::Target(range) => self.table.register(range.address(), range.len_bytes(), access),
        }
    }

    fn deregister(&mut self, region: MemoryRegion) {
        self.table.deregister(region.rkey);
    }

    fn create_queue_pair(&mut self, peer: PeerIndex) -> Result<QpNumber, FabricError> {
        if peer.0 >= self.peer_count() {
            return Err(FabricError::NoSuchPeer(peer.0));
        }
        self.queue_pairs.push(QueuePair { peer, state: QueuePairState::ReadyToSend });
        Ok(QpNumber(self.queue_pairs.len() as u32 - 1))
    }

    fn queue_pair_state(&self, qp: QpNumber) -> Result<QueuePairState, FabricError> {
        self.queue_pairs.get(qp.0 as usize).map(|pair| pair.state).ok_or(FabricError::NoSuchQueuePair(qp.0))
    }

    fn post_send(&mut self, qp: QpNumber, requests: &[WorkRequest]) -> Result<usize, FabricError> {
        for request in requests {
            let pair = self.queue_pairs.get(qp.0 as usize).ok_or(FabricError::NoSuchQueuePair(qp.0))?;
            let (status, bytes) = match pair.state {
                QueuePairState::ReadyToSend => self.perform(pair.peer, &request.operation),
                QueuePairState::Error => (WcStatus::WorkRequestFlushed, 0),
            };
            // A refusal says what this host allows, not that the connection is broken.
            if !matches!(status, WcStatus::Success | WcStatus::RemoteOperationRefused) {
                self.queue_pairs[qp.0 as usize].state = QueuePairState::Error;
            }
            self.completions.push_back(WorkCompletion { id: request.id, status, bytes, qp });
        }
        Ok(requests.len())
    }

    fn poll(&mut self, into: &mut Vec<WorkCompletion>) -> usize {
        let count = self.completions.len();
        into.extend(self.completions.drain(..));
        count
    }

    fn mapped(&self, area: MappedArea) -> Option<SharedMemory> {
        self.segment.area(area)
    }

    fn wakeup(&self) -> Arc<dyn Wakeup> {
        self.wakeup.clone()
    }

    #[inline]
    fn notify(&self, peer: PeerIndex) {
        if let Some(doorbell) = self.doorbells.get(peer.0 as usize) {
            ring(doorbell);
        }
    }
}
