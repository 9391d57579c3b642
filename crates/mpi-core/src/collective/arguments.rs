//! The arguments of a collective call as the user gave them.

use std::sync::Arc;

use datatype::{Datatype, Memory, Op, RecvBuf, SendBuf, UserMemory, UserMemoryMut};

/// `count` elements of one type: a whole buffer, or one block of a buffer of equal blocks.
#[derive(Clone)]
pub struct Buffer<M> {
    /// Where it starts.
    pub memory: M,
    /// Number of elements; of one block where there are several.
    pub count: u64,
    /// Their type.
    pub datatype: Arc<Datatype>,
}

/// Blocks of one type, each with a count and a displacement of its own.
#[derive(Clone)]
pub struct Blocks<M> {
    /// Where displacements count from.
    pub memory: M,
    /// Elements per block.
    pub counts: Vec<u64>,
    /// Where each block starts, in extents of the type.
    pub displacements: Vec<i64>,
    /// The type of all elements.
    pub datatype: Arc<Datatype>,
}

/// Blocks that differ in type, too.
#[derive(Clone)]
pub struct Parts<M> {
    /// Where displacements count from.
    pub memory: M,
    /// Elements per block.
    pub counts: Vec<u64>,
    /// Where each block starts, in bytes.
    pub displacements_bytes: Vec<i64>,
    /// The type of each block.
    pub datatypes: Vec<Arc<Datatype>>,
}

impl<M> Buffer<M> {
    /// Bytes of one block.
    pub fn block_bytes(&self) -> u64 {
        self.count * self.datatype.size()
    }

    /// Where a block begins, in bytes.
    fn offset_of(&self, block: usize) -> i64 {
        block as i64 * self.count as i64 * self.datatype.extent()
    }
}

impl Buffer<UserMemory> {
    /// One of several equal blocks.
    pub fn block(&self, block: usize) -> SendBuf {
        self.memory.send(self.offset_of(block), self.count, &self.datatype)
    }
}

impl Buffer<UserMemoryMut> {
    /// One of several equal blocks.
    pub fn block(&self, block: usize) -> RecvBuf {
        self.memory.recv(self.offset_of(block), self.count, &self.datatype)
    }
}

impl<M: Memory> Buffer<M> {
    /// The address of the first byte of a block, if it has any.
    #[inline]
    pub(super) fn first_byte(&self, block: usize) -> Option<usize> {
        let elements = (block as i64).wrapping_mul(self.count as i64);
        self.memory.first_byte(elements.wrapping_mul(self.datatype.extent()), self.count, &self.datatype)
    }
}

impl<M: Memory> Blocks<M> {
    /// The address of the first byte of a block, if it has any.
    #[inline]
    pub(super) fn first_byte(&self, block: usize) -> Option<usize> {
        let displacement_bytes = self.displacements.get(block)?.wrapping_mul(self.datatype.extent());
        self.memory.first_byte(displacement_bytes, *self.counts.get(block)?, &self.datatype)
    }
}

impl<M: Memory> Parts<M> {
    /// The address of the first byte of a block, if it has any.
    #[inline]
    pub(super) fn first_byte(&self, block: usize) -> Option<usize> {
        let displacement_bytes = *self.displacements_bytes.get(block)?;
        self.memory.first_byte(displacement_bytes, *self.counts.get(block)?, self.datatypes.get(block)?)
    }
}

/// Input and result of a reduction.
#[derive(Clone)]
pub struct Reduction {
    /// The input; `None` if it stands in the result's place (`MPI_IN_PLACE`).
    pub input: Option<UserMemory>,
    /// Where the result goes; `None` where it is not significant.
    pub result: Option<UserMemoryMut>,
    /// Number of elements of the result (of one block for reduce-scatter-block).
    pub count: u64,
    /// Their type.
    pub datatype: Arc<Datatype>,
    /// What combines them.
    pub op: Op,
}

/// What a reduction is of, lent for the length of a call: counting the users of a datatype takes longer than to reduce a
/// few numbers.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    /// The input; `None` if it stands in the result's place (`MPI_IN_PLACE`).
    pub input: Option<&'a UserMemory>,
    /// Where the result goes.
    pub result: &'a UserMemoryMut,
    /// Number of elements of the result.
    pub count: u64,
    /// Their type.
    pub datatype: &'a Arc<Datatype>,
    /// What combines them.
    pub op: &'a Op,
}

impl Reduction {
    /// What it is of, where a result is significant.
    #[inline]
    pub(super) fn operands(&self) -> Option<Operands<'_>> {
        let Reduction { input, result, count, datatype, op } = self;
        Some(Operands { input: input.as_ref(), result: result.as_ref()?, count: *count, datatype, op })
    }

    /// `count` elements of the input from `first` on, wherever it stands.
    #[inline]
    pub(super) fn elements(&self, first: u64, count: u64) -> SendBuf {
        let offset_bytes = first as i64 * self.datatype.extent();
        match (&self.input, &self.result) {
            (Some(input), _) => input.send(offset_bytes, count, &self.datatype),
            (None, Some(result)) => result.send(offset_bytes, count, &self.datatype),
            (None, None) => SendBuf::empty(),
        }
    }
}

impl Operands<'_> {
    /// The addresses of the first bytes of input and result, if they are two; of no bytes, none.
    #[inline]
    pub(super) fn first_bytes(&self) -> Option<(Option<usize>, Option<usize>)> {
        let Operands { result, count, datatype, .. } = self;
        Some((self.input?.first_byte(0, *count, datatype), result.first_byte(0, *count, datatype)))
    }
}

/// One collective call. Send sides that are `None` mean `MPI_IN_PLACE`; arguments that are not
/// significant on this rank are `None` where they are optional and ignored elsewhere.
///
/// MPI: §6
#[derive(Clone)]
#[allow(missing_docs, reason = "the fields are the arguments of the call, by their standard names")]
pub enum Arguments {
    /// `MPI_Barrier`
    Barrier,
    /// `MPI_Bcast`
    Bcast { root: i32, buffer: Buffer<UserMemoryMut> },
    /// `MPI_Gather`; `recv` at the root
    Gather { root: i32, send: Option<Buffer<UserMemory>>, recv: Option<Buffer<UserMemoryMut>> },
    /// `MPI_Gatherv`; `recv` at the root
    Gatherv { root: i32, send: Option<Buffer<UserMemory>>, recv: Option<Blocks<UserMemoryMut>> },
    /// `MPI_Scatter`; `send` at the root; no `recv` at the root means `MPI_IN_PLACE`
    Scatter { root: i32, send: Option<Buffer<UserMemory>>, recv: Option<Buffer<UserMemoryMut>> },
    /// `MPI_Scatterv`; as `Scatter`
    Scatterv { root: i32, send: Option<Blocks<UserMemory>>, recv: Option<Buffer<UserMemoryMut>> },
    /// `MPI_Allgather`
    Allgather { send: Option<Buffer<UserMemory>>, recv: Buffer<UserMemoryMut> },
    /// `MPI_Allgatherv`
    Allgatherv { send: Option<Buffer<UserMemory>>, recv: Blocks<UserMemoryMut> },
    /// `MPI_Alltoall`
    Alltoall { send: Option<Buffer<UserMemory>>, recv: Buffer<UserMemoryMut> },
    /// `MPI_Alltoallv`
    Alltoallv { send: Option<Blocks<UserMemory>>, recv: Blocks<UserMemoryMut> },
    /// `MPI_Alltoallw`
    Alltoallw { send: Option<Parts<UserMemory>>, recv: Parts<UserMemoryMut> },
    /// `MPI_Reduce`
    Reduce { root: i32, data: Reduction },
    /// `MPI_Allreduce`
    Allreduce { data: Reduction },
    /// `MPI_Reduce_scatter`; `data.count` is ignored
    ReduceScatter { counts: Vec<u64>, data: Reduction },
    /// `MPI_Reduce_scatter_block`
    ReduceScatterBlock { data: Reduction },
    /// `MPI_Scan`
    Scan { data: Reduction },
    /// `MPI_Exscan`
    Exscan { data: Reduction },
    /// `MPI_Neighbor_allgather`
    NeighborAllgather { send: Buffer<UserMemory>, recv: Buffer<UserMemoryMut> },
    /// `MPI_Neighbor_allgatherv`
    NeighborAllgatherv { send: Buffer<UserMemory>, recv: Blocks<UserMemoryMut> },
    /// `MPI_Neighbor_alltoall`
    NeighborAlltoall { send: Buffer<UserMemory>, recv: Buffer<UserMemoryMut> },
    /// `MPI_Neighbor_alltoallv`
    NeighborAlltoallv { send: Blocks<UserMemory>, recv: Blocks<UserMemoryMut> },
    /// `MPI_Neighbor_alltoallw`
    NeighborAlltoallw { send: Parts<UserMemory>, recv: Parts<UserMemoryMut> },
}

impl Arguments {
    /// The memory that is sent from, unless in place.
    pub(crate) fn send_memory(&self) -> Option<&UserMemory> {
        match self {
            Arguments::Barrier | Arguments::Bcast { .. } => None,
            Arguments::Gather { send, .. }
            | Arguments::Gatherv { send, .. }
            | Arguments::Scatter { send, .. }
            | Arguments::Allgather { send, .. }
            | Arguments::Allgatherv { send, .. }
            | Arguments::Alltoall { send, .. } => send.as_ref().map(|send| &send.memory),
            Arguments::Scatterv { send, .. } | Arguments::Alltoallv { send, .. } => {
                send.as_ref().map(|send| &send.memory)
            }
            Arguments::Alltoallw { send, .. } => send.as_ref().map(|send| &send.memory),
            Arguments::NeighborAllgather { send, .. }
            | Arguments::NeighborAllgatherv { send, .. }
            | Arguments::NeighborAlltoall { send, .. } => Some(&send.memory),
            Arguments::NeighborAlltoallv { send, .. } => Some(&send.memory),
            Arguments::NeighborAlltoallw { send, .. } => Some(&send.memory),
            _ => self.reduction().and_then(|data| data.input.as_ref()),
        }
    }

    /// The memory that is received into, where it is significant.
    pub(crate) fn recv_memory(&self) -> Option<&UserMemoryMut> {
        match self {
            Arguments::Barrier => None,
            Arguments::Bcast { buffer, .. } => Some(&buffer.memory),
            Arguments::Gather { recv, .. } | Arguments::Scatter { recv, .. } | Arguments::Scatterv { recv, .. } => {
                recv.as_ref().map(|recv| &recv.memory)
            }
            Arguments::Gatherv { recv, .. } => recv.as_ref().map(|recv| &recv.memory),
            Arguments::Allgather { recv, .. } | Arguments::Alltoall { recv, .. } => Some(&recv.memory),
            Arguments::Allgatherv { recv, .. } | Arguments::Alltoallv { recv, .. } => Some(&recv.memory),
            Arguments::Alltoallw { recv, .. } | Arguments::NeighborAlltoallw { recv, .. } => Some(&recv.memory),
            Arguments::NeighborAllgather { recv, .. } | Arguments::NeighborAlltoall { recv, .. } => Some(&recv.memory),
            Arguments::NeighborAllgatherv { recv, .. } | Arguments::NeighborAlltoallv { recv, .. } => {
                Some(&recv.memory)
            }
            _ => self.reduction().and_then(|data| data.result.as_ref()),
        }
    }

    /// The type of what is sent, where it is significant.
    pub(crate) fn send_type(&self) -> Option<&Arc<Datatype>> {
        match self {
            Arguments::Gather { send, .. }
            | Arguments::Gatherv { send, .. }
            | Arguments::Scatter { send, .. }
            | Arguments::Allgather { send, .. }
            | Arguments::Allgatherv { send, .. }
            | Arguments::Alltoall { send, .. } => send.as_ref().map(|send| &send.datatype),
            Arguments::Scatterv { send, .. } | Arguments::Alltoallv { send, .. } => {
                send.as_ref().map(|send| &send.datatype)
            }
            Arguments::NeighborAllgather { send, .. }
            | Arguments::NeighborAllgatherv { send, .. }
            | Arguments::NeighborAlltoall { send, .. } => Some(&send.datatype),
            Arguments::NeighborAlltoallv { send, .. } => Some(&send.datatype),
            _ => None,
        }
    }

    /// The type of what is received, where it is significant; of all elements of a reduction.
    pub(crate) fn recv_type(&self) -> Option<&Arc<Datatype>> {
        match self {
            Arguments::Barrier | Arguments::Alltoallw { .. } | Arguments::NeighborAlltoallw { .. } => None,
            Arguments::Bcast { buffer, .. } => Some(&buffer.datatype),
            Arguments::Gather { recv, .. } | Arguments::Scatter { recv, .. } | Arguments::Scatterv { recv, .. } => {
                recv.as_ref().map(|recv| &recv.datatype)
            }
            Arguments::Gatherv { recv, .. } => recv.as_ref().map(|recv| &recv.datatype),
            Arguments::Allgather { recv, .. } | Arguments::Alltoall { recv, .. } => Some(&recv.datatype),
            Arguments::Allgatherv { recv, .. } | Arguments::Alltoallv { recv, .. } => Some(&recv.datatype),
            Arguments::NeighborAllgather { recv, .. } | Arguments::NeighborAlltoall { recv, .. } => {
                Some(&recv.datatype)
            }
            Arguments::NeighborAllgatherv { recv, .. } | Arguments::NeighborAlltoallv { recv, .. } => {
                Some(&recv.datatype)
            }
            _ => self.reduction().map(|data| &data.datatype),
        }
    }

    /// The types of what goes to and comes from each rank, if they differ: sent, received.
    pub(crate) fn part_types(&self) -> (&[Arc<Datatype>], &[Arc<Datatype>]) {
        match self {
            Arguments::Alltoallw { send, recv } => (send.as_ref().map_or(&[], |send| &send.datatypes), &recv.datatypes),
            Arguments::NeighborAlltoallw { send, recv } => (&send.datatypes, &recv.datatypes),
            _ => (&[], &[]),
        }
    }

    /// Input, result and operation of a reduction.
    pub(crate) fn reduction(&self) -> Option<&Reduction> {
        match self {
            Arguments::Reduce { data, .. }
            | Arguments::Allreduce { data }
            | Arguments::ReduceScatter { data, .. }
            | Arguments::ReduceScatterBlock { data }
            | Arguments::Scan { data }
            | Arguments::Exscan { data } => Some(data),
            _ => None,
        }
    }

    /// The root as the user gave it, if the call has one.
    pub(crate) fn root(&self) -> Option<i32> {
        match self {
            Arguments::Bcast { root, .. }
            | Arguments::Gather { root, .. }
            | Arguments::Gatherv { root, .. }
            | Arguments::Scatter { root, .. }
            | Arguments::Scatterv { root, .. }
            | Arguments::Reduce { root, .. } => Some(*root),
            _ => None,
        }
    }

    /// True if the data of this rank is said to stand in place. Only a root's may do so in calls that have one; between groups
    /// nobody's may where it is significant.
    pub(crate) fn is_in_place(&self, at_root: bool) -> bool {
        match self {
            Arguments::Gather { send, .. } => !at_root && send.is_none(),
            Arguments::Gatherv { send, .. } => !at_root && send.is_none(),
            Arguments::Scatter { recv, .. } | Arguments::Scatterv { recv, .. } => !at_root && recv.is_none(),
            Arguments::Allgather { send, .. } | Arguments::Alltoall { send, .. } => send.is_none(),
            Arguments::Allgatherv { send, .. } => send.is_none(),
            Arguments::Alltoallv { send, .. } => send.is_none(),
            Arguments::Alltoallw { send, .. } => send.is_none(),
            _ => !at_root && self.reduction().is_some_and(|data| data.input.is_none()),
        }
    }

    /// Names of the call: blocking, non-blocking, persistent.
    #[inline]
    pub(crate) fn names(&self) -> [&'static str; 3] {
        match self {
            Arguments::Barrier => ["MPI_Barrier", "MPI_Ibarrier", "MPI_Barrier_init"],
            Arguments::Bcast { .. } => ["MPI_Bcast", "MPI_Ibcast", "MPI_Bcast_init"],
            Arguments::Gather { .. } => ["MPI_Gather", "MPI_Igather", "MPI_Gather_init"],
            Arguments::Gatherv { .. } => ["MPI_Gatherv", "MPI_Igatherv", "MPI_Gatherv_init"],
            Arguments::Scatter { .. } => ["MPI_Scatter", "MPI_Iscatter", "MPI_Scatter_init"],
            Arguments::Scatterv { .. } => ["MPI_Scatterv", "MPI_Iscatterv", "MPI_Scatterv_init"],
            Arguments::Allgather { .. } => ["MPI_Allgather", "MPI_Iallgather", "MPI_Allgather_init"],
            Arguments::Allgatherv { .. } => ["MPI_Allgatherv", "MPI_Iallgatherv", "MPI_Allgatherv_init"],
            Arguments::Alltoall { .. } => ["MPI_Alltoall", "MPI_Ialltoall", "MPI_Alltoall_init"],
            Arguments::Alltoallv { .. } => ["MPI_Alltoallv", "MPI_Ialltoallv", "MPI_Alltoallv_init"],
            Arguments::Alltoallw { .. } => ["MPI_Alltoallw", "MPI_Ialltoallw", "MPI_Alltoallw_init"],
            Arguments::Reduce { .. } => ["MPI_Reduce", "MPI_Ireduce", "MPI_Reduce_init"],
            Arguments::Allreduce { .. } => ["MPI_Allreduce", "MPI_Iallreduce", "MPI_Allreduce_init"],
            Arguments::ReduceScatter { .. } => ["MPI_Reduce_scatter", "MPI_Ireduce_scatter", "MPI_Reduce_scatter_init"],
            Arguments::ReduceScatterBlock { .. } => {
                ["MPI_Reduce_scatter_block", "MPI_Ireduce_scatter_block", "MPI_Reduce_scatter_block_init"]
            }
            Arguments::Scan { .. } => ["MPI_Scan", "MPI_Iscan", "MPI_Scan_init"],
            Arguments::Exscan { .. } => ["MPI_Exscan", "MPI_Iexscan", "MPI_Exscan_init"],
            Arguments::NeighborAllgather { .. } => {
                ["MPI_Neighbor_allgather", "MPI_Ineighbor_allgather", "MPI_Neighbor_allgather_init"]
            }
            Arguments::NeighborAllgatherv { .. } => {
                ["MPI_Neighbor_allgatherv", "MPI_Ineighbor_allgatherv", "MPI_Neighbor_allgatherv_init"]
            }
            Arguments::NeighborAlltoall { .. } => {
                ["MPI_Neighbor_alltoall", "MPI_Ineighbor_alltoall", "MPI_Neighbor_alltoall_init"]
            }
            Arguments::NeighborAlltoallv { .. } => {
                ["MPI_Neighbor_alltoallv", "MPI_Ineighbor_alltoallv", "MPI_Neighbor_alltoallv_init"]
            }
            Arguments::NeighborAlltoallw { .. } => {
                ["MPI_Neighbor_alltoallw", "MPI_Ineighbor_alltoallw", "MPI_Neighbor_alltoallw_init"]
            }
        }
    }
}
