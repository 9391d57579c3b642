//! Work requests: what is posted.

use crate::{AddressHandle, Qkey, QpNumber, RemoteMemory, ScatterGather, SrqNumber};

/// What an entry of a send queue does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Fills a receive of the peer.
    Send,
    /// Fills a receive of the peer and hands it 32 bits in its completion.
    SendWithImmediate(u32),
    /// Copies local bytes into a peer's region; the peer notices nothing.
    RdmaWrite(RemoteMemory),
    /// The same, and consumes a receive of the peer, whose completion carries the 32 bits.
    RdmaWriteWithImmediate(RemoteMemory, u32),
    /// Copies a peer's bytes into local memory.
    RdmaRead(RemoteMemory),
    /// Adds to 8 aligned bytes of a peer; what was there before comes into local memory.
    FetchAdd {
        /// The 8 bytes.
        remote: RemoteMemory,
        /// What is added, wrapping.
        add: u64,
    },
    /// Stores to 8 aligned bytes of a peer if they hold `compare`; what was there before comes into local memory.
    CompareSwap {
        /// The 8 bytes.
        remote: RemoteMemory,
        /// What must be there.
        compare: u64,
        /// What is stored then.
        swap: u64,
    },
}

impl Operation {
    /// True for operations that bring something back: reads and atomics, which a fence waits for.
    pub const fn returns_data(&self) -> bool {
        matches!(self, Self::RdmaRead(_) | Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// True for operations that consume a receive of the peer.
    pub const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send | Self::SendWithImmediate(_) | Self::RdmaWriteWithImmediate(..))
    }

    /// The immediate data, if it carries any.
    pub const fn immediate(&self) -> Option<u32> {
        match self {
            Self::SendWithImmediate(value) | Self::RdmaWriteWithImmediate(_, value) => Some(*value),
            _ => None,
        }
    }

    /// The peer's memory it names, if any.
    pub const fn remote(&self) -> Option<RemoteMemory> {
        match self {
            Self::Send | Self::SendWithImmediate(_) => None,
            Self::RdmaWrite(remote)
            | Self::RdmaWriteWithImmediate(remote, _)
            | Self::RdmaRead(remote)
            | Self::FetchAdd { remote, .. }
            | Self::CompareSwap { remote, .. } => Some(*remote),
        }
    }
}

/// Local bytes of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// Gathered from registered memory or, for reads and atomics, scattered into it.
    Memory(&'a [ScatterGather]),
    /// Taken while posting: the bytes are the caller's again when the call returns.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// Bytes in all.
    pub fn len_bytes(&self) -> u64 {
        match self {
            Self::Memory(list) => list.iter().map(|entry| u64::from(entry.len_bytes)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Whom a send reaches beyond what the queue pair says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Destination {
    /// The queue pair's peer: reliable connections.
    #[default]
    Connected,
    /// A shared receive queue of the peer: XRC.
    SharedReceiveQueue(SrqNumber),
    /// A datagram.
    Datagram {
        /// The way there.
        address: AddressHandle,
        /// The queue pair there; ignored for a multicast group.
        qp: QpNumber,
        /// Its key.
        qkey: Qkey,
    },
}

/// What became of a send of memory without a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoneSend {
    /// It has met its receive and is complete: nothing more is told of it.
    Done,
    /// The device has it, and its completion comes.
    Posted,
}

/// Switches of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendFlags {
    /// A success is reported too; failures always are.
    pub signalled: bool,
    /// Starts after all reads and atomics before it are complete.
    pub fence: bool,
    /// Wakes a receiver that asked for solicited completions only.
    pub solicited: bool,
    /// Nobody waits for its completion: where an acknowledgement costs a message, one may stand for several. No switch of
    /// verbs; adapters have no need of it.
    pub unhurried: bool,
}

impl SendFlags {
    /// Signalled, nothing else.
    pub const SIGNALLED: Self = Self { signalled: true, fence: false, solicited: false, unhurried: false };
}

/// One entry of a send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRequest<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With which bytes here.
    pub payload: Payload<'a>,
    /// To whom.
    pub destination: Destination,
    /// How.
    pub flags: SendFlags,
}

impl<'a> SendRequest<'a> {
    /// A signalled request on a connected queue pair.
    pub fn new(id: u64, operation: Operation, payload: Payload<'a>) -> Self {
        Self { id, operation, payload, destination: Destination::Connected, flags: SendFlags::SIGNALLED }
    }

    /// The same; somebody waits for its completion, or nobody does.
    pub fn with_hurry(self, hurry: bool) -> Self {
        Self { flags: SendFlags { unhurried: !hurry, ..self.flags }, ..self }
    }
}

/// One entry of a receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiveRequest<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// Scattered into, in order.
    pub list: &'a [ScatterGather],
}
