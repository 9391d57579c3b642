//! What the interface says of descriptors, calls and connections; the numbers are those of VIPL 1.0.

/// What became of a descriptor: the status word of its control segment.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Status(u32);

impl Status {
    /// It is complete.
    pub const DONE: Self = Self(0x1);
    /// It was not well formed.
    pub const FORMAT_ERROR: Self = Self(0x2);
    /// It names memory that it may not.
    pub const PROTECTION_ERROR: Self = Self(0x4);
    /// It was too short for what arrived, or longer than the VI allows.
    pub const LENGTH_ERROR: Self = Self(0x8);
    /// Some of the data was transferred, and no more.
    pub const PARTIAL_ERROR: Self = Self(0x10);
    /// The connection ended first.
    pub const FLUSHED_ERROR: Self = Self(0x20);
    /// The other side took nothing.
    pub const TRANSPORT_ERROR: Self = Self(0x40);
    /// The other side's memory may not be reached so.
    pub const RDMA_PROTECTION_ERROR: Self = Self(0x80);
    /// The other side's descriptor had an error.
    pub const REMOTE_DESCRIPTOR_ERROR: Self = Self(0x100);
    /// All bits that are errors.
    pub const ERROR_MASK: u32 = 0x1FE;
    /// A receive.
    pub const OP_RECEIVE: Self = Self(0x10000);
    /// An RDMA write.
    pub const OP_RDMA_WRITE: Self = Self(0x20000);
    /// A receive that an RDMA write of the other side consumed.
    pub const OP_REMOTE_RDMA_WRITE: Self = Self(0x30000);
    /// An RDMA read.
    pub const OP_RDMA_READ: Self = Self(0x40000);
    /// The bits that tell the operation; 0 is a send.
    pub const OP_MASK: u32 = 0x70000;
    /// Immediate data came with it.
    pub const IMMEDIATE: Self = Self(0x80000);

    /// The word.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Of a word that somebody else wrote: bits without a meaning are left out.
    pub const fn of_bits(bits: u32) -> Self {
        Self(bits & (1 | Self::ERROR_MASK | Self::OP_MASK | Self::IMMEDIATE.0))
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it ended in an error.
    pub const fn is_error(self) -> bool {
        self.0 & Self::ERROR_MASK != 0
    }

    /// The error bits alone.
    #[must_use]
    pub const fn errors(self) -> Self {
        Self(self.0 & Self::ERROR_MASK)
    }
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Status({:#x})", self.0)
    }
}

/// Why a call did nothing, as its return code says; the numbers are those of `VIP_RETURN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter makes no sense.
    #[error("{call}: {what} is not valid")]
    InvalidParameter {
        /// The call.
        call: &'static str,
        /// Which parameter, and what of it.
        what: &'static str,
    },
    /// There is no more of something, or it is still in use.
    #[error("{call}: {what}")]
    Resource {
        /// The call.
        call: &'static str,
        /// What is short.
        what: &'static str,
    },
    /// It took too long.
    #[error("{0}: the time was up")]
    Timeout(&'static str),
    /// The other side rejected the connection.
    #[error("{0}: the other side rejected the connection")]
    Reject(&'static str),
    /// The level is not supported, or the other side has another.
    #[error("{0}: the reliability level is not supported or not that of the other side")]
    InvalidReliabilityLevel(&'static str),
    /// The transfer size is not supported, or the other side has another.
    #[error("{0}: the maximum transfer size is not supported or not that of the other side")]
    InvalidMtu(&'static str),
    /// There is no quality of service to choose.
    #[error("{0}: quality of service is not supported")]
    InvalidQos(&'static str),
    /// The protection tag names nothing.
    #[error("{0}: there is no such protection tag")]
    InvalidPtag(&'static str),
    /// RDMA reads need a reliable level.
    #[error("{0}: RDMA reads are not supported at this reliability level")]
    InvalidRdmaRead(&'static str),
    /// The VI is not in the state for it.
    #[error("{call}: the VI is {state:?}")]
    InvalidState {
        /// The call.
        call: &'static str,
        /// The state it is in.
        state: State,
    },
    /// The name service does not know it, or was not started.
    #[error("{call}: {what}")]
    NameService {
        /// The call.
        call: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// Nobody there waits for such a connection.
    #[error("{0}: nobody waits there for such a connection")]
    NoMatch(&'static str),
    /// There is no way to the other side.
    #[error("{0}: there is no way to that address")]
    NotReachable(&'static str),
}

impl Error {
    /// Its number in `VIP_RETURN`.
    pub const fn code(self) -> u32 {
        match self {
            Self::InvalidParameter { .. } => 2,
            Self::Resource { .. } => 3,
            Self::Timeout(_) => 4,
            Self::Reject(_) => 5,
            Self::InvalidReliabilityLevel(_) => 6,
            Self::InvalidMtu(_) => 7,
            Self::InvalidQos(_) => 8,
            Self::InvalidPtag(_) => 9,
            Self::InvalidRdmaRead(_) => 10,
            Self::InvalidState { .. } => 12,
            Self::NameService { .. } => 13,
            Self::NoMatch(_) => 14,
            Self::NotReachable(_) => 15,
        }
    }
}

/// Where a VI stands, with the numbers of `VIP_VI_STATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Not connected.
    Idle = 0,
    /// Connected.
    Connected = 1,
    /// A connection is being made.
    ConnectPending = 2,
    /// The connection was lost, or an error ended it; disconnecting makes it idle.
    Error = 3,
}

/// What becomes of messages that go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Reliability {
    /// A message without a receive is dropped; an error concerns its descriptor only.
    Unreliable = 1,
    /// An error ends the connection; a send is complete when it was delivered.
    Delivery = 2,
    /// As before, and a send is complete when it is in the other side's memory; here the same.
    Reception = 4,
}

impl Reliability {
    /// Of its bit.
    pub const fn of_bits(bits: u16) -> Option<Self> {
        match bits {
            1 => Some(Self::Unreliable),
            2 => Some(Self::Delivery),
            4 => Some(Self::Reception),
            _ => None,
        }
    }

    /// Whether an error ends the connection.
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable)
    }
}

/// What happened beside the descriptors, with the numbers of `VIP_ERROR_CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// A descriptor that was posted could not be taken.
    PostDescriptor = 0,
    /// The other side is gone, or disconnected.
    ConnectionLost = 1,
    /// A message came and no receive was posted.
    ReceiveQueueEmpty = 2,
    /// An RDMA write of the other side went where it may not.
    RdmaWriteProtection = 4,
    /// The other side wrote what makes no sense into the shared memory.
    Transport = 9,
}

/// How a transfer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// To a receive of the other side.
    Send,
    /// To memory of the other side.
    RdmaWrite,
    /// From memory of the other side.
    RdmaRead,
}
