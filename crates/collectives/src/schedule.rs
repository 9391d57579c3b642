//! What a collective does on one rank, as plain data.
//!
//! A schedule is a straight program: messages are *posted* one after another, `Wait` steps say how
//! many of the newest may still be under way, local steps run in between. Buffers and datatypes are
//! symbols bound when the schedule is started, so one schedule serves any number of starts.

use std::fmt;

/// Which memory a region lies in; bound when a schedule starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferId {
    /// The caller's send buffer; never written.
    Send,
    /// The caller's receive buffer (the only buffer of a broadcast; input and output when in place).
    Recv,
    /// Temporary memory number `n` of [`Schedule::temps`].
    Temp(u16),
}

/// Which datatype a region is seen through; bound when a schedule starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TypeSlot {
    /// The caller's send type.
    Send,
    /// The caller's receive type; the only type of a broadcast and of a reduction.
    Recv,
    /// The send type at this index of the caller's list (`MPI_Alltoallw`).
    PerPeerSend(u32),
    /// The receive type at this index of the caller's list (`MPI_Alltoallw`).
    PerPeerRecv(u32),
    /// Plain bytes: packed data of a temporary, or a caller's buffer whose type is contiguous.
    Bytes,
}

/// `count` elements of a datatype, from `offset_bytes` past the address of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The memory.
    pub buffer: BufferId,
    /// The type of its elements.
    pub datatype: TypeSlot,
    /// Distance from the buffer's address to the origin of the first element.
    pub offset_bytes: i64,
    /// Number of elements; of bytes for [`TypeSlot::Bytes`].
    pub count: u64,
}

impl Region {
    /// An empty region, for messages that carry nothing but their arrival.
    pub const NOTHING: Region = Region { buffer: BufferId::Recv, datatype: TypeSlot::Bytes, offset_bytes: 0, count: 0 };

    /// `len_bytes` plain bytes of `buffer` from `offset_bytes`.
    pub fn bytes(buffer: BufferId, offset_bytes: u64, len_bytes: u64) -> Region {
        Region { buffer, datatype: TypeSlot::Bytes, offset_bytes: offset_bytes as i64, count: len_bytes }
    }
}

/// Temporary memory a schedule needs from its host while it runs; contents start undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Temp {
    /// Packed bytes, addressed through [`TypeSlot::Bytes`].
    Bytes {
        /// Length.
        len_bytes: u64,
    },
    /// Elements laid out as in memory, addressed through [`TypeSlot::Recv`]. Offset 0 is the origin
    /// of element 0: where the type's lower bound is negative, memory before it is addressed too.
    Elements {
        /// Number of elements of the receive type.
        count: u64,
    },
}

/// One step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Start a message to `peer`.
    Send {
        /// Rank in the communicator.
        peer: u32,
        /// Added by the host to the tag of this start; below [`TAG_OFFSETS_MAX`].
        tag_offset: u32,
        /// What is sent; unchanged until the message has completed.
        region: Region,
    },
    /// Start the receive of a message from `peer` of exactly the region's packed size.
    Recv {
        /// Rank in the communicator.
        peer: u32,
        /// As in the matching send.
        tag_offset: u32,
        /// Where it goes; untouched until the message has completed.
        region: Region,
    },
    /// Go on once all messages started so far, but for the newest `leaving`, have completed.
    Wait {
        /// How many may still be under way.
        leaving: u32,
    },
    /// Copy between regions of equal packed size, of the same or of different types.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
    },
    /// `into = from op into`, element by element: `from` is the left operand.
    Reduce {
        /// Left operand.
        from: Region,
        /// Right operand, and the result.
        into: Region,
    },
}

/// Schedules are kept per communicator: a step has a budget.
const _: () = assert!(size_of::<Step>() <= 80);

/// Tag offsets are below this: starts whose tags are this far apart never meet.
pub const TAG_OFFSETS_MAX: u32 = 256;

/// A collective operation on one rank, ready to be executed any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) algorithm: &'static str,
    pub(crate) steps: Box<[Step]>,
    pub(crate) temps: Box<[Temp]>,
    pub(crate) outstanding_max: u32,
}

impl Schedule {
    /// Name of the algorithm that wrote it.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// The program, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Temporary memory to provide at a start; `BufferId::Temp(n)` is the `n`-th.
    pub fn temps(&self) -> &[Temp] {
        &self.temps
    }

    /// Most messages under way at once.
    pub fn outstanding_max(&self) -> u32 {
        self.outstanding_max
    }

    /// True if nothing is left to do on this rank.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Number of messages this rank sends.
    pub fn messages_sent(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Send { .. })).count()
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{:+}; {} x {:?}]", self.buffer, self.offset_bytes, self.count, self.datatype)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({} steps, temps {:?})", self.algorithm, self.steps.len(), self.temps)?;
        for (at, step) in self.steps.iter().enumerate() {
            match step {
                Step::Send { peer, tag_offset, region } => {
                    writeln!(f, "{at:4} send   {region} -> {peer} tag+{tag_offset}")?
                }
                Step::Recv { peer, tag_offset, region } => {
                    writeln!(f, "{at:4} recv   {region} <- {peer} tag+{tag_offset}")?
                }
                Step::Wait { leaving } => writeln!(f, "{at:4} wait   leaving {leaving}")?,
                Step::Copy { from, to } => writeln!(f, "{at:4} copy   {from} -> {to}")?,
                Step::Reduce { from, into } => writeln!(f, "{at:4} reduce {from} op {into}")?,
            }
        }
        Ok(())
    }
}
