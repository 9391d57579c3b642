//! Objects and traits of the verbs.

use std::fmt;
use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use lockfree::{SharedMemory, Ticket};

/// A peer of a context, numbered from 0 as the process manager numbers the job's processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct PeerIndex(pub u32);

/// Key by which the owner of a memory region names it in its own work requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lkey(pub u32);

/// Key by which a peer names a memory region of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rkey(pub u32);

/// A queue pair of a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QpNumber(pub u32);

/// What peers may do to a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// RDMA read by a peer.
    pub remote_read: bool,
    /// RDMA write by a peer.
    pub remote_write: bool,
}

/// Registered memory: the caller's own bytes, known to the device under two keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    /// First byte, as an address of the owner.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Local key.
    pub lkey: Lkey,
    /// Remote key.
    pub rkey: Rkey,
}

/// Memory of a peer, as the peer described it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// First byte, as an address of the peer.
    pub address: u64,
    /// The peer's key for the region around it.
    pub rkey: Rkey,
}

/// Local memory of a work request.
#[derive(Clone, Copy, Debug)]
pub enum LocalMemory {
    /// Gathered from.
    Source(ReadRange),
    /// Scattered into.
    Target(WriteRange),
}

/// What a work request does.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Copies local bytes into a peer's region.
    RdmaWrite {
        /// From here.
        local: ReadRange,
        /// To there.
        remote: RemoteMemory,
    },
    /// Copies a peer's bytes into local memory.
    RdmaRead {
        /// To here.
        local: WriteRange,
        /// From there.
        remote: RemoteMemory,
    },
}

/// One entry of a send queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
}

/// How a work request ended; the names are the verbs' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WcStatus {
    /// Done.
    Success,
    /// The key, the bounds or the rights did not hold at the target.
    RemoteAccessError,
    /// The operating system refused to reach the peer's memory at all; other ways must be taken.
    RemoteOperationRefused,
    /// The peer is gone.
    TransportRetryExceeded,
    /// The queue pair was in the error state.
    WorkRequestFlushed,
}

/// What a completion queue yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkCompletion {
    /// The work request's id.
    pub id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// Bytes moved.
    pub bytes: u64,
    /// The queue pair it was posted to.
    pub qp: QpNumber,
}

/// Life of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairState {
    /// Work may be posted.
    ReadyToSend,
    /// Something failed; everything posted is flushed.
    Error,
}

/// What a device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Short name: `shm`, `tcp`, `verbs`, `sim`.
    pub name: &'static str,
    /// Memory of peers can be stored to directly.
    pub mapped_peers: bool,
    /// Private memory of peers can be reached by RDMA read and write; the reason if it can not.
    pub rdma: Result<(), String>,
    /// Longest RDMA operation, in bytes.
    pub message_max_bytes: u64,
    /// Memory regions that can be registered at once.
    pub memory_regions_max: u32,
}

/// What went wrong below a work request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// All memory regions of the context are in use.
    #[error("no memory region left: {max} are registered already")]
    MemoryRegionsExhausted {
        /// The device's limit.
        max: u32,
    },
    /// There is no such peer on this device.
    #[error("peer {0} is not reachable by this device")]
    NoSuchPeer(u32),
    /// There is no such queue pair.
    #[error("queue pair {0} does not exist")]
    NoSuchQueuePair(u32),
    /// The operating system refused something at start.
    #[error("{operation}: {reason}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        reason: String,
    },
}

/// One kind of interconnect.
pub trait Device: Send {
    /// What it can do here and now.
    fn capabilities(&self) -> Capabilities;
    /// Joins the peers; the context is ready to post.
    ///
    /// # Errors
    /// When the operating system or a peer refuses.
    fn open(self: Box<Self>) -> Result<Box<dyn Context>, FabricError>;
}

/// An opened device: the protection domain and completion queue of one engine.
pub trait Context: Send {
    /// What the device can do.
    fn capabilities(&self) -> Capabilities;

    /// This process among the peers.
    fn local_peer(&self) -> PeerIndex;

    /// Number of peers, this process included.
    fn peer_count(&self) -> u32;

    /// Registers memory to be read or written by peers.
    ///
    /// # Errors
    /// [`FabricError::MemoryRegionsExhausted`].
    fn register(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError>;

    /// Takes the keys of a region back; peers that still use them get [`WcStatus::RemoteAccessError`].
    fn deregister(&mut self, region: MemoryRegion);

    /// A reliable connection to `peer`.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPeer`].
    fn create_queue_pair(&mut self, peer: PeerIndex) -> Result<QpNumber, FabricError>;

    /// The state of a queue pair.
    ///
    /// # Errors
    /// [`FabricError::NoSuchQueuePair`].
    fn queue_pair_state(&self, qp: QpNumber) -> Result<QueuePairState, FabricError>;

    /// Posts work requests in order; returns how many were taken (fewer when the queue is full).
    ///
    /// # Errors
    /// [`FabricError::NoSuchQueuePair`].
    fn post_send(&mut self, qp: QpNumber, requests: &[WorkRequest]) -> Result<usize, FabricError>;

    /// Moves completions into `into`; returns how many.
    fn poll(&mut self, into: &mut Vec<WorkCompletion>) -> usize;

    /// The part of `peer`'s memory that it keeps for `from` (a channel, a cell …), if this device maps peers.
    fn mapped(&self, area: MappedArea) -> Option<SharedMemory>;

    /// How this process sleeps until a peer brings something.
    fn wakeup(&self) -> std::sync::Arc<dyn Wakeup>;

    /// Tells `peer` that something was stored in its mapped memory; wakes it if it sleeps.
    fn notify(&self, peer: PeerIndex);
}

/// What a mapped peer offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappedArea {
    /// The channel in `to`'s memory that `from` writes.
    Channel {
        /// Who writes.
        from: PeerIndex,
        /// In whose memory.
        to: PeerIndex,
    },
    /// One bit per peer in `owner`'s memory: a peer sets its own when it uses its channel for the first time.
    Introductions {
        /// In whose memory.
        owner: PeerIndex,
    },
    /// Cell number `cell` of `owner`, by which two sides share the copying of a message.
    ClaimCell {
        /// In whose memory.
        owner: PeerIndex,
        /// Which, below [`MappedArea::CLAIM_CELLS_MAX`].
        cell: u32,
    },
}

impl MappedArea {
    /// Claim cells of one process.
    pub const CLAIM_CELLS_MAX: u32 = 64;
}

/// Completion by notification instead of polling; see [`lockfree::Doorbell`] for the order of things.
pub trait Wakeup: Send + Sync {
    /// From now on peers wake us; look for work once more after this.
    fn announce(&self) -> Ticket;
    /// Takes an announcement back.
    fn withdraw(&self);
    /// Sleeps until woken or until `timeout` is over, and withdraws.
    fn sleep(&self, ticket: Ticket, timeout: Duration);
    /// Wakes the other threads of this process.
    fn wake_local(&self);
}

impl fmt::Display for PeerIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
