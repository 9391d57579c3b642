//! What is asked of the engine and what comes back.

use std::sync::Arc;

use base::SlabKey;
use datatype::{RecvBuf, SendBuf};
use protocol::experience::CopyWay;
use protocol::registration::Registration;
use protocol::rendezvous::Chunks;

use crate::EngineError;
use crate::blocks::{BlockRegions, Segments};
use crate::layouts::ShownLayout;
use crate::matching::Links;
use crate::packed::PackedForm;
use crate::scattered::{Held, Place};
use crate::shuttles::Ride;
use crate::tuples::InQueue;
use crate::ways::Judged;

/// A process of the world, numbered from 0.
pub type PeerId = u32;

/// The label of a message; 0 or greater.
pub type Tag = i32;

/// Separates communicators: messages match only within one context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// Whose messages a receive or probe accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Anybody's.
    Any,
    /// Those of one process.
    Peer(PeerId),
}

/// Which tags a receive or probe accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagPattern {
    /// All.
    Any,
    /// One.
    Exact(Tag),
}

/// When a send is complete. MPI: §3.4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// When the buffer may be reused.
    Standard,
    /// When the receive has been matched as well.
    Synchronous,
    /// As standard; the caller promises that the receive is posted.
    Ready,
}

/// A request of an engine; stale ones are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub(crate) SlabKey);

/// A message taken out of matching by a matched probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageId(pub(crate) SlabKey);

/// Who sent a message, with which tag, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender.
    pub peer: PeerId,
    /// Its tag.
    pub tag: Tag,
    /// Its length in bytes.
    pub len_bytes: u64,
}

/// How a request ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// For a receive, the message's; for a send, the destination, tag and length.
    pub envelope: Envelope,
    /// How it went.
    pub outcome: Outcome,
}

/// How a request went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As asked.
    Done,
    /// It was cancelled before anything matched it.
    Cancelled,
    /// The message is longer than the receive's memory.
    Truncated {
        /// Bytes sent.
        sent_bytes: u64,
        /// Bytes the receive has room for.
        capacity_bytes: u64,
    },
    /// It failed.
    Failed(Fault),
}

/// What went wrong with a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Fault {
    /// In words.
    pub why: String,
    /// The other process is lost.
    pub is_loss: bool,
}

impl Fault {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_loss: false }
    }

    /// The other process, `peer`, is lost; `why`: what was seen of it last.
    pub(crate) fn loss(peer: PeerId, why: impl Into<String>) -> Self {
        Self { why: EngineError::PeerLost { peer, why: why.into() }.to_string(), is_loss: true }
    }
}

/// One request in flight.
pub(crate) struct Request {
    pub(crate) state: State,
    /// Nobody will ask for the completion.
    pub(crate) detached: bool,
}

pub(crate) enum State {
    /// A receive that waits for its message.
    Posted { buf: RecvBuf, links: Links },
    /// A receive in the queue of its tuple.
    InQueue(Box<InQueue>),
    /// A long message on its way in.
    Incoming(Box<Incoming>),
    /// A send whose data has not left.
    Outgoing(Box<OutgoingSend>),
    /// Over.
    Complete(Completion),
}

impl State {
    /// Of a receive whose way is not decided.
    pub(crate) fn placeholder() -> Self {
        State::Posted { buf: RecvBuf::empty(), links: Links::InLine(0) }
    }
}

/// A long message on its way in.
pub(crate) struct Incoming {
    pub(crate) buf: RecvBuf,
    /// Where `buf`, a packed form, is to be unpacked to.
    pub(crate) unpack_into: Option<Unpacking>,
    pub(crate) envelope: Envelope,
    /// The sender's request.
    pub(crate) send: u64,
    /// The receive was there before the message.
    pub(crate) waited: bool,
    pub(crate) way: IncomingWay,
    /// What this way takes is to be noted.
    pub(crate) judged: Option<Judged>,
}

impl Incoming {
    /// Into `buf`, which `waited` for it or came later: by pieces, unless another way is chosen.
    pub(crate) fn new(buf: RecvBuf, envelope: Envelope, send: u64, waited: bool) -> Self {
        let way = IncomingWay::Staged { received: 0 };
        Self { buf, unpack_into: None, envelope, send, waited, way, judged: None }
    }
}

/// Where a packed form goes.
pub(crate) struct Unpacking {
    pub(crate) target: RecvBuf,
    /// Bytes of it that have been unpacked.
    pub(crate) done_bytes: u64,
    pub(crate) _form: PackedForm,
}

pub(crate) enum IncomingWay {
    /// This side reads, from here on.
    Read { remote: Place, next: u64 },
    /// Both sides copy; the sender alone if this side does not know where the data lies there.
    Shared { remote: Option<Place>, region: Held, cell: u32, generation: u32, chunks: Chunks },
    /// This side reads over verbs, into registered memory.
    Get { held: Registration },
    /// The sender writes over verbs, into registered memory.
    Put { held: Registration },
    /// This side reads over verbs, into blocks.
    GetBlocks { held: Arc<BlockRegions> },
    /// The sender writes over verbs, into blocks that lie as shown.
    PutBlocks { held: Arc<BlockRegions>, shown: ShownLayout },
    /// The sender writes segments over verbs, to be unpacked.
    Segments(Box<Segments>),
    /// Pieces come through the channel; this many bytes have.
    Staged { received: u64 },
}

impl IncomingWay {
    /// What it is called where a person reads it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Shared { .. } => "copied by both",
            Self::Get { .. } => "read over verbs",
            Self::Put { .. } => "written over verbs",
            Self::GetBlocks { .. } => "read into blocks",
            Self::PutBlocks { .. } => "written to blocks",
            Self::Segments(_) => "written to segments",
            Self::Staged { .. } => "by pieces",
        }
    }

    /// How the bytes get here, if processors copy them.
    pub(crate) fn copied(&self) -> Option<CopyWay> {
        match self {
            Self::Read { .. } => Some(CopyWay::Read),
            Self::Shared { .. } => Some(CopyWay::Shared),
            Self::Staged { .. } => Some(CopyWay::Staged),
            _ => None,
        }
    }
}

/// A send whose data has not left.
pub(crate) struct OutgoingSend {
    pub(crate) buf: SendBuf,
    pub(crate) envelope: Envelope,
    pub(crate) key: u64,
    pub(crate) region: Option<Held>,
    /// The blocks it consists of, registered at the port.
    pub(crate) blocks: Option<Arc<BlockRegions>>,
    /// Bytes that have followed the request, before an answer.
    pub(crate) ahead_bytes: u64,
    /// Bytes that the receiver wants written over verbs, and those that are.
    pub(crate) cleared: u64,
    pub(crate) written: u64,
    /// Its packed form, if `buf` is that.
    pub(crate) packed: Option<PackedForm>,
    /// Its bytes go aboard a shuttle.
    pub(crate) ride: Option<Ride>,
    /// Synchronous: the receiver must say that it matched.
    pub(crate) synchronous: bool,
}

impl OutgoingSend {
    /// A send of which nothing has been said or moved.
    pub(crate) fn new(buf: SendBuf, envelope: Envelope, key: u64, synchronous: bool) -> Self {
        let (region, blocks, packed, ride) = (None, None, None, None);
        let (ahead_bytes, cleared, written) = (0, 0, 0);
        Self { buf, envelope, key, region, blocks, ahead_bytes, cleared, written, packed, ride, synchronous }
    }
}
