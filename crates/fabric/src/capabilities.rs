//! What a device can do, and how much of it.

use crate::{DeviceKind, Translation};

/// What a device can do here and now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Which device.
    pub kind: DeviceKind,
    /// Which of them: an adapter and port, a host's shared memory, addresses.
    pub description: String,
    /// RC queue pairs.
    pub reliable_connections: bool,
    /// XRC queue pairs, or the same by other means.
    pub xrc: bool,
    /// UD queue pairs.
    pub datagrams: bool,
    /// Datagrams to multicast groups.
    pub multicast: bool,
    /// Fetch-add and compare-swap.
    pub atomics: bool,
    /// A file descriptor tells of completions.
    pub completion_descriptor: bool,
    /// One receive posted to many queues, claimed once.
    pub multi_queue_receives: bool,
    /// XRC sends that wait for receives of one queue need not hold up those to others; see
    /// [`QueuePairAttributes::independent_queues`](crate::QueuePairAttributes::independent_queues).
    pub independent_queues: bool,
    /// [`Context::allocate`](crate::Context::allocate) gives memory that peers on this host map.
    pub mapped_memory: bool,
    /// What keys mean whose memory has been unmapped.
    pub translation: Translation,
    /// RDMA runs on without this process polling; the reason if it does not.
    pub asynchronous: Result<(), String>,
    /// Private memory of peers is reached in one copy; the reason if it is staged.
    pub single_copy: Result<(), String>,
    /// What a process that polls its memory may conclude from what an RDMA write has put there.
    pub write_order: WriteOrder,
    /// An RDMA write makes the descriptor of an armed completion queue readable, though nothing completes there: whoever
    /// sleeps on it may poll memory.
    pub writes_wake: bool,
    /// How much.
    pub limits: Limits,
}

/// In which order RDMA writes to memory of [`Context::allocate`](crate::Context::allocate) are seen by its owner, who
/// polls that memory and the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// In none: what is seen may be damaged, and come again.
    Unknown,
    /// Writes of one queue pair one after the other, eight aligned bytes at once.
    ByWrite,
    /// And of a write of at most [`WriteOrder::BY_WORD_MAX_BYTES`] that ends on eight aligned bytes, these last.
    ByWord,
}

impl WriteOrder {
    /// Longest write whose last word is seen last, in bytes.
    pub const BY_WORD_MAX_BYTES: u64 = 64 << 10;
}

/// The limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub queue_pairs_max: u32,
    /// Completion queues.
    pub completion_queues_max: u32,
    /// Shared receive queues.
    pub shared_receive_queues_max: u32,
    /// Protection domains.
    pub protection_domains_max: u32,
    /// Memory regions registered at once.
    pub memory_regions_max: u32,
    /// Address handles.
    pub address_handles_max: u32,
    /// Entries of a send queue.
    pub send_depth_max: u32,
    /// Entries of a receive queue, shared or not.
    pub receive_depth_max: u32,
    /// Entries of a completion queue.
    pub completion_depth_max: u32,
    /// Entries of a scatter/gather list.
    pub scatter_gather_max: u32,
    /// Bytes of an inline payload.
    pub inline_max_bytes: u32,
    /// Bytes of a message on a connection.
    pub message_max_bytes: u64,
    /// Bytes of a datagram.
    pub datagram_max_bytes: u32,
    /// Bytes in front of a datagram in the receive it fills (the global route header).
    pub datagram_header_bytes: u32,
    /// Bytes of a memory region.
    pub memory_region_max_bytes: u64,
    /// Reads and atomics of one queue pair under way at once.
    pub reads_in_flight_max: u32,
    /// Queues one receive may be posted to.
    pub multi_queue_max: u32,
    /// Memory of this process that a queue pair takes while its queues hold 64 requests each, in bytes, without what an
    /// adapter and the kernel have of it.
    pub queue_pair_full_bytes: u64,
    /// Memory it takes for a peer once all buffers kept for it have been used, in bytes.
    pub peer_full_bytes: u64,
}

/// One line of `ferrovia info --fabric`: a limit and its value.
pub type LimitRow = (&'static str, u64);

impl Limits {
    /// Every limit by name, in the order in which people ask for them.
    pub fn rows(&self) -> [LimitRow; 19] {
        [
            ("queue_pairs_max", self.queue_pairs_max.into()),
            ("completion_queues_max", self.completion_queues_max.into()),
            ("shared_receive_queues_max", self.shared_receive_queues_max.into()),
            ("protection_domains_max", self.protection_domains_max.into()),
            ("memory_regions_max", self.memory_regions_max.into()),
            ("address_handles_max", self.address_handles_max.into()),
            ("send_depth_max", self.send_depth_max.into()),
            ("receive_depth_max", self.receive_depth_max.into()),
            ("completion_depth_max", self.completion_depth_max.into()),
            ("scatter_gather_max", self.scatter_gather_max.into()),
            ("inline_max_bytes", self.inline_max_bytes.into()),
            ("message_max_bytes", self.message_max_bytes),
            ("datagram_max_bytes", self.datagram_max_bytes.into()),
            ("datagram_header_bytes", self.datagram_header_bytes.into()),
            ("memory_region_max_bytes", self.memory_region_max_bytes),
            ("reads_in_flight_max", self.reads_in_flight_max.into()),
            ("multi_queue_max", self.multi_queue_max.into()),
            ("queue_pair_full_bytes", self.queue_pair_full_bytes),
            ("peer_full_bytes", self.peer_full_bytes),
        ]
    }
}
