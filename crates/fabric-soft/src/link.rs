//! What a software adapter needs of a way to other adapters: ordered packets, and time.
//!
//! ```text
//!              SoftContext  (queues, keys, matching, retries, completions: no I/O)
//!               │  ▲
//!   Link::send  │  │  Responder::begin ─ where does it go? ─▶ Placement
//!               ▼  │  Responder::finish      Responder::lost
//!                Link      loopback, shm, tcp, sim
//! ```
//!
//! A packet is a header of [`HEADER_BYTES`] bytes, opaque to the link, and a payload of any length. A link carries
//! packets between two adapters **reliably and in order**, or reports the peer lost and carries nothing more. How the
//! payload travels is the link's own affair: copied through a ring, read from a socket straight into its
//! [`Placement`], fetched from the sender's memory by the receiver. The adapter holds back by itself: it leaves no more
//! than [`WINDOW_MAX`](crate::adapter::WINDOW_MAX) requests of a queue pair unanswered.
//!
//! # The life of a payload
//! *Sending.* The ranges given to [`Link::send`] are registered memory when [`Outgoing::lent`] is true: the link may
//! keep reading them after `send` has returned, until the packet is delivered or [`Link::recall`] names them. When it
//! is false, they must be copied before `send` returns.
//!
//! *Receiving.* Once the header has come, the link calls [`Responder::begin`] and writes the payload into the ranges
//! of the placement, in order, bytes beyond their end being thrown away; then it calls [`Responder::finish`]. Packets
//! of one peer are begun and finished one after the other; those of different peers may overlap. Between the two, the
//! ranges are the link's, unless `recall` names them or the peer is lost.
//!
//! # Lost peers
//! A link that gives a peer up forgets what it was sending to it and receiving from it, then calls
//! [`Responder::lost`] once. Reconnecting, when a link can, happens below this interface and is not seen here.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Access, DeviceKind, FabricError, MemoryRegion, Operation, RemoteMemory, SharedMemory, Translation, WriteOrder,
};
use smallvec::{SmallVec, smallvec};

use crate::copying;

/// Bytes of every packet's header: one cache line.
pub const HEADER_BYTES: usize = 64;

/// A peer as a link numbers it, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct LinkPeer(pub u32);

/// What a link is and can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkProperties {
    /// Which device it makes.
    pub kind: DeviceKind,
    /// Which of them, for people.
    pub description: String,
    /// Longest payload, in bytes.
    pub message_max_bytes: u64,
    /// Longest payload of a datagram, in bytes.
    pub datagram_max_bytes: u32,
    /// Work goes on without this process polling; the reason if it does not.
    pub asynchronous: Result<(), String>,
    /// A large payload is copied once; the reason if it is staged.
    pub single_copy: Result<(), String>,
    /// [`Link::everyone`] reaches all adapters.
    pub multicast: bool,
    /// [`Link::allocate`] gives memory that peers map.
    pub mapped_memory: bool,
    /// A packet alone is dear: acknowledgements do well to wait for one they can ride with.
    pub answers_ride: bool,
    /// In which order writes are seen.
    pub write_order: WriteOrder,
    /// A write makes the descriptor readable while the link is prepared for sleep.
    pub writes_wake: bool,
    /// Memory a peer costs, in bytes.
    pub peer_bytes: u64,
}

/// The payload of a packet to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Gathered in order.
    pub ranges: &'a [ReadRange],
    /// True if they may be read after `send` has returned; see the module.
    pub lent: bool,
    /// True if they are what a peer's read asked for: their owner may deregister them at any moment, and is right.
    pub is_answer: bool,
    /// More packets may follow at once; a link that gains by it sends them together. [`Link::flush`] is called when all
    /// have been given to it.
    pub more: bool,
}

impl Outgoing<'_> {
    /// No payload.
    pub const NONE: Self = Self { ranges: &[], lent: false, is_answer: false, more: false };

    /// Bytes in all.
    pub fn len_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.len_bytes() as u64).sum()
    }
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// It is the link's to deliver.
    Taken,
    /// No room now: offered again after the next progress. The link took nothing.
    Full,
    /// The peer is lost. [`Responder::lost`] was called, or will be in the next progress.
    Gone,
}

/// Where an arriving payload goes.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Scattered in order; what does not fit is thrown away.
    pub ranges: SmallVec<[WriteRange; 4]>,
}

impl Placement {
    /// All of it here.
    #[inline]
    pub fn of(range: WriteRange) -> Self {
        Self { ranges: smallvec![range] }
    }

    /// Read and thrown away.
    pub fn discard() -> Self {
        Self::default()
    }
}

/// The adapter, as a link sees it.
pub trait Responder {
    /// A packet of `from` has come, with `payload_bytes` bytes behind its header.
    fn begin(&mut self, from: LinkPeer, header: &[u8; HEADER_BYTES], payload_bytes: u64) -> Placement;
    /// The payload of the packet begun last from this peer is where it belongs. Called for every packet, also for one
    /// without payload.
    fn finish(&mut self, from: LinkPeer);
    /// A packet that has come whole, which a link may hand over at once: what [`Responder::begin`] and
    /// [`Responder::finish`] do, and the link between them.
    fn bring(&mut self, from: LinkPeer, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        let placement = self.begin(from, header, payload.len() as u64);
        copying::scatter_in_order(payload, &placement.ranges);
        self.finish(from);
    }
    /// The peer is gone for good.
    fn lost(&mut self, peer: LinkPeer);
    /// Whether somebody may sleep on the link's descriptor without calling [`Link::prepare_sleep`] again.
    fn is_armed(&self) -> bool;
    /// Connections to the peer have failed, although it can be reached.
    fn broken(&mut self, _peer: LinkPeer) {}
}

/// A way to other adapters.
pub trait Link: Send {
    /// What it is.
    fn properties(&self) -> &LinkProperties;

    /// This adapter's address, for its endpoints; at most [`fabric::Endpoint::ADDRESS_MAX_BYTES`].
    fn address(&self) -> Vec<u8>;

    /// The peer behind an address, which another process sent and which may be anything. The same address leads to the
    /// same peer. Never called with this adapter's own address: an adapter reaches itself without its link.
    ///
    /// # Errors
    /// [`FabricError::BadEndpoint`], [`FabricError::NoSuchPeer`], [`FabricError::Exhausted`], [`FabricError::System`].
    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError>;

    /// Sends one packet.
    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome;

    /// Sends what [`Outgoing::more`] let it hold back.
    fn flush(&mut self) {}

    /// Moves what can be moved without waiting, and hands over what has come.
    fn progress(&mut self, responder: &mut dyn Responder);

    /// Time since some fixed moment; virtual in a simulation.
    fn now(&self) -> Duration;

    /// When [`Link::progress`] found last what it handed over, or somewhat earlier, for those to whom that is exact enough:
    /// a link whose clock is dear to read need not read it again.
    fn found_at(&self) -> Duration {
        self.now()
    }

    /// The process has registered memory, or deregistered some: a link whose time is its own counts what that takes.
    fn spend_on_registering(&mut self, _deregisters: bool) {}

    /// What an old key means to those who keep memory registered.
    fn translation(&self) -> Translation {
        Translation::Unchecked
    }

    /// `len_bytes` bytes at `address` of this process are about to be their owner's again. Payload that is still to be
    /// sent from there is copied now; payload that would still be placed there is thrown away. Links that keep nothing
    /// have nothing to do.
    fn recall(&mut self, address: u64, len_bytes: u64);

    /// Zeroed memory that peers map; `None` if this link has no such thing.
    ///
    /// # Errors
    /// [`FabricError::Exhausted`].
    fn allocate(&mut self, _len_bytes: usize) -> Result<Option<SharedMemory>, FabricError> {
        Ok(None)
    }

    /// The next moment at which [`Link::progress`] should be called though nothing has come, to look after peers.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Every other adapter that a multicast reaches; `None` if there is no such thing.
    fn everyone(&mut self) -> Option<Vec<LinkPeer>> {
        None
    }

    /// Readable when [`Link::progress`] may have something to do that came after [`Link::prepare_sleep`].
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// From now on an arrival makes the descriptor readable. The caller calls [`Link::progress`] once more before it
    /// sleeps, so nothing that came earlier is missed.
    ///
    /// # Errors
    /// [`FabricError::System`].
    fn prepare_sleep(&mut self) -> Result<(), FabricError> {
        Ok(())
    }

    /// The sleeper is awake: the descriptor is reset.
    fn woken(&mut self) {}

    /// The process ends without dropping the link: peers that would look for it are told.
    fn part(&mut self) {}

    /// Where receives of shared queues are shown to senders, for links on which whoever comes second moves the data.
    fn board(&mut self) -> Option<Box<dyn Board>> {
        None
    }

    /// The shortcut for links on which the initiator's processor can do the target's part.
    fn direct(&mut self) -> Option<&mut dyn Direct> {
        None
    }
}

/// What a direct operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectOutcome {
    /// Done, at both ends.
    Done,
    /// Not this way, or not now: the request goes as a packet.
    NotHere,
}

/// A queue pair that peers may use directly, as it is shown to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectQueuePair {
    /// Its number here.
    pub number: u32,
    /// Its peer.
    pub peer: LinkPeer,
    /// Its peer's number for its own end.
    pub remote: u32,
    /// What the peer may do through it.
    pub access: Access,
    /// The protection domain it works in.
    pub domain: u32,
    /// The XRC domain whose queues it reaches.
    pub xrc: Option<u32>,
}

/// Reads, writes and atomics done by the initiator's processor, where it reaches the target's memory.
///
/// Rights are checked in tables that the target keeps where initiators can read them. A check that fails is not
/// decided here: the request then goes as a packet and the target itself refuses it, so that both ends learn of it.
pub trait Direct {
    /// A region peers may reach; `domain` is its protection domain.
    fn publish_region(&mut self, region: &MemoryRegion, access: Access, domain: u32);
    /// Not any more. When this returns, no peer that keeps to the protocol begins to use it.
    fn withdraw_region(&mut self, region: &MemoryRegion);
    /// A connected queue pair that takes requests.
    fn publish_queue_pair(&mut self, qp: &DirectQueuePair);
    /// Not any more.
    fn withdraw_queue_pair(&mut self, number: u32);
    /// A write to this memory through our `local_qp` may follow at once: what can be begun for it may be.
    fn expect_write(&self, _local_qp: u32, _memory: &RemoteMemory) {}
    /// Copies to a peer's region through its queue pair `remote_qp`, which must be connected to our `local_qp`.
    fn write(&mut self, target: &DirectTarget, from: &[ReadRange]) -> DirectOutcome;
    /// Copies from a peer's region.
    fn read(&mut self, target: &DirectTarget, to: &[WriteRange]) -> DirectOutcome;
    /// Does a fetch-add or compare-swap and returns what was there; `None`: not this way, or not now.
    fn atomic(&mut self, target: &DirectTarget, operation: Operation) -> Option<u64>;
}

/// The far end of a direct operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectTarget {
    /// The peer.
    pub peer: LinkPeer,
    /// Its queue pair.
    pub remote_qp: u32,
    /// Ours.
    pub local_qp: u32,
    /// Its memory.
    pub memory: fabric::RemoteMemory,
    /// How much of it.
    pub len_bytes: u64,
}

/// What goes with the data of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// Immediate data.
    pub immediate: Option<u32>,
    /// The receiver is to be woken.
    pub solicited: bool,
    /// A receive that is too short for it is not an error of both sides: it waits for one that is not.
    pub patient: bool,
    /// The queue pair it comes through, at the receiver.
    pub qp: u32,
}

/// A receive that was filled without its owner's help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Bytes of the message.
    pub len_bytes: u64,
    /// What came with them.
    pub note: Note,
    /// False if the sender took it and could not write to it: the message comes as a packet.
    pub is_whole: bool,
}

/// What became of a send that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It is in its receive.
    Done,
    /// It waits under this number, and whoever posts a receive fetches it.
    Waits(u32),
    /// Not this way: it goes as a packet, and its target decides.
    NotHere,
}

/// The far end of a send to a shared queue, through connected queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoardTarget {
    /// The peer.
    pub peer: LinkPeer,
    /// Its queue pair.
    pub remote_qp: u32,
    /// Ours.
    pub local_qp: u32,
    /// Its shared receive queue.
    pub queue: u32,
}

/// Receives shown to senders, and sends left for receivers: the second to arrive moves the data.
///
/// Slots have numbers, the caller's until their end was told: of a receive by [`Board::filled`], [`Board::hide`] or
/// [`Board::settle`], of a send by [`Board::sent`] or [`Board::withdraw`].
pub trait Board: Send {
    /// Shows a queue of the XRC domain `domain`, with `depth` receives at most; false if it can not be shown.
    fn open(&mut self, queue: u32, domain: u32, depth: u32) -> bool;
    /// Hides it. Sends that wait come as packets; receives not taken are the caller's again.
    fn close(&mut self, queue: u32, depth: u32);
    /// A receive whose memory was checked; `None` if it can not be shown. True with its slot if it met a send that waited.
    fn show(&mut self, queue: u32, into: &[WriteRange]) -> Option<(u32, bool)>;
    /// Takes it back; false if a sender took it first.
    fn hide(&mut self, queue: u32, slot: u32) -> bool;
    /// Queues in which receives were filled since this was asked last.
    fn queues_filled(&mut self, into: &mut Vec<u32>);
    /// How a receive of `queue` ended, if it has. Its length is what the sender says.
    fn filled(&mut self, queue: u32, slot: u32) -> Option<Filled>;
    /// True if `peer` was filling the receive; the peer is gone, and the slot is free.
    fn is_abandoned(&mut self, slot: u32, peer: LinkPeer) -> bool;
    /// Waits until a receive that was taken is filled, which is short; `None` if its sender died over it.
    fn settle(&mut self, slot: u32) -> Option<Filled>;
    /// Offers a send.
    fn offer(&mut self, to: &BoardTarget, from: &[ReadRange], note: Note) -> Offered;
    /// How a send that waited ended, if it has: true if it was taken whole, false if it must come as a packet.
    fn sent(&mut self, slot: u32) -> Option<bool>;
    /// Takes a send back; if somebody has taken it, waits for the end of that, which is short, and returns false.
    fn withdraw(&mut self, to: &BoardTarget, slot: u32) -> bool;
    /// False if the queue pair at the far end takes nothing any more.
    fn is_connected(&self, to: &BoardTarget) -> bool;
}
