//! Beyond verbs: the peers of a job whose memory is mapped.
//!
//! On one host a message needs no adapter: a peer's channel is stored to directly, and a large message is copied by
//! whichever side gets to it. [`MappedPeers`] is what an engine asks of such a host.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use base::memory::{ReadRange, WriteRange};
use lockfree::{SharedMemory, Ticket};

use crate::{Access, FabricError, LocalMemory, MemoryRegion, PeerIndex, RemoteMemory, Rkey, Translation};

/// One copy between this process and a peer, done by this process.
#[derive(Clone, Copy, Debug)]
pub enum DirectCopy {
    /// From here to there.
    Write {
        /// From here.
        local: ReadRange,
        /// To there.
        remote: RemoteMemory,
    },
    /// From there to here.
    Read {
        /// To here.
        local: WriteRange,
        /// From there.
        remote: RemoteMemory,
    },
}

/// Consecutive memory of a peer, inside a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemotePiece {
    /// First byte, as an address of the peer.
    pub address: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// One copy between many pieces of this process and many pieces of a peer, all in one region there; as many bytes here
/// as there, cut in any way.
#[derive(Clone, Copy, Debug)]
pub struct PieceCopy<'a> {
    /// This side.
    pub local: LocalPieces<'a>,
    /// That side.
    pub remote: &'a [RemotePiece],
    /// The peer's key for the region around its pieces.
    pub rkey: Rkey,
    /// Pieces of a side that are handed to the device at once; more is faster.
    pub list_max: usize,
}

/// This side of a [`PieceCopy`]: which way it goes.
#[derive(Clone, Copy, Debug)]
pub enum LocalPieces<'a> {
    /// From here to there.
    From(&'a [ReadRange]),
    /// From there to here.
    To(&'a [WriteRange]),
}

/// Why a direct copy was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectCopyError {
    /// The operating system refuses to reach the peer's memory at all; other ways must be taken.
    #[error("the operating system refuses to reach the peer's memory")]
    Refused,
    /// The key, the bounds or the rights did not hold at the target.
    #[error("the peer's memory is not registered so")]
    AccessError,
    /// The peer is gone.
    #[error("the peer is gone")]
    PeerGone,
}

/// The processes of a job on this host.
pub trait MappedPeers: Send {
    /// Short name of the device: `shm`.
    fn name(&self) -> &'static str;

    /// This process among the peers.
    fn local_peer(&self) -> PeerIndex;

    /// Number of peers, this process included.
    fn peer_count(&self) -> u32;

    /// Number of those that are mapped, this process included: the places in [`MappedArea::Announcements`], counted from 0.
    fn place_count(&self) -> u32 {
        self.peer_count()
    }

    /// The place of a peer; `None` if it is not mapped.
    fn place(&self, peer: PeerIndex) -> Option<u32> {
        Some(peer.0).filter(|place| *place < self.place_count())
    }

    /// Whose place this is.
    fn peer_at(&self, place: u32) -> Option<PeerIndex> {
        Some(PeerIndex(place)).filter(|_| place < self.place_count())
    }

    /// Whether private memory of peers can be copied to and from; the reason if it can not.
    fn direct_copies(&self) -> Result<(), String>;

    /// What keys mean whose memory has been unmapped.
    fn translation(&self) -> Translation;

    /// Registers memory to be copied to or from by peers.
    ///
    /// # Errors
    /// [`FabricError::Exhausted`].
    fn register(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError>;

    /// Takes the keys of a region back; peers that still use them get [`DirectCopyError::AccessError`].
    fn deregister(&mut self, region: MemoryRegion);

    /// Copies now; done when it returns.
    ///
    /// # Errors
    /// Why nothing, or not everything, was copied.
    fn copy(&mut self, peer: PeerIndex, copy: &DirectCopy) -> Result<(), DirectCopyError>;

    /// Copies many pieces now; done when it returns.
    ///
    /// # Errors
    /// Why nothing, or not everything, was copied.
    fn copy_pieces(&mut self, peer: PeerIndex, copy: &PieceCopy<'_>) -> Result<(), DirectCopyError> {
        let _ = (peer, copy);
        Err(DirectCopyError::Refused)
    }

    /// The part of a peer's memory that it keeps for a purpose (a channel, a cell …).
    fn mapped(&self, area: MappedArea) -> Option<SharedMemory>;

    /// Gives memory of this process's own `area` from `offset` on back to the system. From the offset that is returned on
    /// it reads 0; `None` if nothing was given back.
    fn give_back(&self, area: MappedArea, offset: usize) -> Option<usize> {
        let _ = (area, offset);
        None
    }

    /// How this process sleeps until a peer brings something.
    fn wakeup(&self) -> Arc<dyn Wakeup>;

    /// A descriptor that is readable once a peer has rung for this process after an announcement to [`Self::wakeup`], for
    /// those who sleep on other descriptors as well; reading 8 bytes empties it. `None`: peers wake sleepers of `wakeup` only.
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// A peer that was given up since this was asked last though its process has not ended, and why. Found by those who
    /// sleep at [`Self::wakeup`].
    fn given_up(&self) -> Option<(PeerIndex, String)> {
        None
    }

    /// True if `peer` was last seen on the processor that the caller runs on. Processes of which each has a processor of its own
    /// need not know.
    fn runs_here(&self, peer: PeerIndex) -> bool {
        let _ = peer;
        false
    }

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
    /// What peers say to `owner` so that it need not ask: a [`lockfree::Announcements`] with a place for each of them
    /// and one more.
    Announcements {
        /// In whose memory.
        owner: PeerIndex,
    },
    /// The queue in `owner`'s memory that all peers write into: a [`lockfree::mailbox`].
    Mailbox {
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
    /// The shuttle between `owner` and `with`: a [`lockfree::shuttle`].
    Shuttle {
        /// In whose memory.
        owner: PeerIndex,
        /// The other process.
        with: PeerIndex,
    },
    /// Board number `board` of `owner`, where it shows a group of peers what it has.
    Board {
        /// In whose memory.
        owner: PeerIndex,
        /// Which, below [`MappedArea::BOARDS_MAX`].
        board: u32,
    },
}

impl MappedArea {
    /// Claim cells of one process.
    pub const CLAIM_CELLS_MAX: u32 = 64;

    /// Boards of one process.
    pub const BOARDS_MAX: u32 = 8;
}

/// Completion by notification instead of polling; see [`lockfree::Doorbell`] for the order of things.
pub trait Wakeup: Send + Sync {
    /// From now on peers wake us; look for work once more after this.
    fn announce(&self) -> Ticket;
    /// Takes an announcement back.
    fn withdraw(&self);
    /// Sleeps until woken or until `timeout` is over, and withdraws.
    fn sleep(&self, ticket: Ticket, timeout: Duration);
    /// A sleep elsewhere is over, or what was as good as one; `in_vain`: nobody woke it.
    fn slept(&self, in_vain: bool) {
        let _ = in_vain;
    }
    /// Lets others run for a moment, awake; called again and again by whoever waits.
    fn rest(&self) {
        std::thread::yield_now();
    }
    /// Wakes the other threads of this process.
    fn wake_local(&self);
}
