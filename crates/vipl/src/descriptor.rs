//! Descriptors as values: what is to be transferred, and what became of it.

use std::sync::Arc;

use crate::memory::Region;
use crate::status::{Operation, Status};

/// Most data segments of a descriptor.
pub const SEGMENTS_PER_DESCRIPTOR_MAX: usize = 252;

/// A piece of registered memory: a data segment, or the address segment of an RDMA operation without its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DataSegment {
    /// Its virtual address, in the process that registered it.
    pub address: u64,
    /// The handle of the registration.
    pub handle: MemoryHandle,
    /// Bytes.
    pub len_bytes: u32,
}

/// Names a registration: the number of the segment that holds, or shadows, the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct MemoryHandle(pub u32);

/// What is to be done: the control segment, the address segment and the data segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What kind of transfer; a receive is posted with [`Operation::Send`].
    pub operation: Operation,
    /// The gather or scatter list.
    pub segments: Vec<DataSegment>,
    /// Where an RDMA operation goes; its length is that of the list.
    pub remote: Option<(u64, MemoryHandle)>,
    /// Immediate data, which comes out with the receive; an RDMA write that has some consumes a receive.
    pub immediate: Option<u32>,
    /// Comes back with the completion.
    pub context: u64,
    /// Where the status goes as soon as it is known, beside the completion.
    pub(crate) place: StatusPlace,
}

/// A control segment in the caller's memory that status and length are written to, with the registration that it lies in,
/// which stays while the descriptor is posted.
#[derive(Clone, Default)]
pub(crate) struct StatusPlace(Option<(usize, Arc<Region>)>);

impl StatusPlace {
    /// The control segment at `address`, inside of `region`.
    pub(crate) fn new(address: usize, region: Arc<Region>) -> Self {
        Self(Some((address, region)))
    }

    /// Where it is, if there is one.
    pub(crate) fn address(&self) -> Option<usize> {
        self.0.as_ref().map(|(address, _)| *address)
    }
}

impl PartialEq for StatusPlace {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for StatusPlace {}

impl std::fmt::Debug for StatusPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StatusPlace").field(&self.address()).finish()
    }
}

impl Descriptor {
    /// A send, or a receive, of this list.
    pub fn of(segments: Vec<DataSegment>, context: u64) -> Self {
        let (remote, immediate, place) = (None, None, StatusPlace::default());
        Self { operation: Operation::Send, segments, remote, immediate, context, place }
    }

    /// An RDMA write of this list to `remote`.
    pub fn rdma_write(segments: Vec<DataSegment>, remote: (u64, MemoryHandle), context: u64) -> Self {
        Self { operation: Operation::RdmaWrite, remote: Some(remote), ..Self::of(segments, context) }
    }

    /// An RDMA read from `remote` to this list.
    pub fn rdma_read(segments: Vec<DataSegment>, remote: (u64, MemoryHandle), context: u64) -> Self {
        Self { operation: Operation::RdmaRead, remote: Some(remote), ..Self::of(segments, context) }
    }

    /// With immediate data.
    #[must_use]
    pub fn with_immediate(self, immediate: u32) -> Self {
        Self { immediate: Some(immediate), ..self }
    }

    /// Bytes of the list.
    pub fn len_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.len_bytes)).sum()
    }

    /// The operation as the status tells it, and the error of a form that no queue takes, if there is one.
    pub(crate) fn status(&self) -> Result<Status, Status> {
        let op = match self.operation {
            Operation::Send => Status::default(),
            Operation::RdmaWrite => Status::OP_RDMA_WRITE,
            Operation::RdmaRead => Status::OP_RDMA_READ,
        };
        let fits = match self.operation {
            Operation::Send => self.remote.is_none(),
            Operation::RdmaWrite => self.remote.is_some(),
            Operation::RdmaRead => self.remote.is_some() && self.immediate.is_none(),
        };
        let well_formed = fits && self.segments.len() <= SEGMENTS_PER_DESCRIPTOR_MAX;
        if well_formed { Ok(op) } else { Err(op.and(Status::FORMAT_ERROR)) }
    }
}

/// What became of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The descriptor's own.
    pub context: u64,
    /// Done, with the operation, errors, and whether immediate data came.
    pub status: Status,
    /// Bytes that were transferred.
    pub len_bytes: u32,
    /// What came with the message, if the status says that something did.
    pub immediate: u32,
}
