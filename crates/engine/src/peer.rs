//! What the engine keeps per peer it talks to, made when the first message goes out.

use std::sync::Arc;

use base::SlabKey;
use fabric::{
    Access, DirectCopy, DirectCopyError, FabricError, LocalMemory, MappedArea, MappedPeers, MemoryRegion, PeerIndex,
    SharedMemory, Translation, Wakeup,
};
use lockfree::Announcements;
use protocol::Link;
use protocol::rendezvous::{Reach, WHOLE_MAX_BYTES};

use crate::channels::announced_places;
use crate::coming::Coming;
use crate::request::PeerId;
use crate::stats::PeerStats;
use crate::ways::Ways;

/// One peer: the way to it, and what is known about it.
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) reach: Reach,
    /// What long messages from it took, once there were some.
    pub(crate) ways: Option<Box<Ways>>,
    /// It was ready for the last long message, and has answered it: the first part of the next may go ahead of the answer.
    pub(crate) takes_ahead: bool,
    /// Long messages that may go to it whole, without a request.
    pub(crate) whole: Whole,
    /// Where the pieces go of a message that comes from it whole.
    pub(crate) coming: Option<Coming>,
    /// The receive that takes what comes from it ahead of our answer.
    pub(crate) ahead_into: Option<SlabKey>,
    /// It stands in the list of peers whose records wait for room.
    pub(crate) listed: bool,
    pub(crate) traffic: PeerStats,
}

// A budget: this is paid once per peer talked to, besides the channel itself. A third of it counts what happens.
const _: () = assert!(size_of::<Peer>() <= 320);

impl Peer {
    /// A process whose memory is mapped; whether copying between the processes may work.
    pub(crate) fn mapped(link: Link, copies: bool) -> Self {
        let reach = if copies { Reach::Unknown } else { Reach::Refused };
        Self::new(link, reach)
    }

    /// The way to a process that is reached through the port.
    pub(crate) fn over_port(payload_max_bytes: usize) -> Self {
        let link = Link::over_port(payload_max_bytes);
        Self::new(link, Reach::Refused)
    }

    fn new(link: Link, reach: Reach) -> Self {
        let traffic = PeerStats::default();
        let whole = Whole::default();
        let (coming, ahead_into) = (None, None);
        Self { link, reach, ways: None, takes_ahead: false, whole, coming, ahead_into, listed: false, traffic }
    }
}

/// A receiver's leave to send messages without asking: so many of each kind of length, then it is asked again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Whole {
    left: [u8; Self::KINDS],
}

impl Whole {
    const FIRST_BITS: u32 = 13;
    const KINDS: usize = (WHOLE_MAX_BYTES.ilog2() - Self::FIRST_BITS) as usize + 1;

    /// Lengths of one kind differ by less than two times, but for the shortest: all below 16 KiB are one. None is the kind
    /// of those that never go without a request.
    fn kind_of(len_bytes: u64) -> Option<usize> {
        let bits = len_bytes.checked_ilog2().unwrap_or(0);
        (len_bytes <= WHOLE_MAX_BYTES).then(|| bits.saturating_sub(Self::FIRST_BITS) as usize)
    }

    /// Leave for `count` messages that are about as long as one of `len_bytes`, whatever was left for such.
    pub(crate) fn give(&mut self, len_bytes: u64, count: u8) {
        if let Some(kind) = Self::kind_of(len_bytes) {
            self.left[kind] = count;
        }
    }

    /// True if a message of `len_bytes` may go.
    pub(crate) fn permits(&self, len_bytes: u64) -> bool {
        Self::kind_of(len_bytes).is_some_and(|kind| self.left[kind] > 0)
    }

    /// A message of `len_bytes` has gone.
    pub(crate) fn spend(&mut self, len_bytes: u64) {
        if let Some(kind) = Self::kind_of(len_bytes) {
            self.left[kind] -= 1;
        }
    }
}

/// What stands for mapped peers where there are none.
pub(crate) struct Unmapped {
    name: &'static str,
    me: PeerIndex,
    size: u32,
    wakeup: Arc<dyn Wakeup>,
    announcements: SharedMemory,
}

impl Unmapped {
    pub(crate) fn new(name: &'static str, me: PeerId, size: u32, wakeup: Arc<dyn Wakeup>) -> Self {
        let announcements = SharedMemory::private(Announcements::footprint(announced_places(1)));
        Self { name, me: PeerIndex(me), size, wakeup, announcements }
    }
}

impl MappedPeers for Unmapped {
    fn name(&self) -> &'static str {
        self.name
    }

    fn local_peer(&self) -> PeerIndex {
        self.me
    }

    fn peer_count(&self) -> u32 {
        self.size
    }

    fn place_count(&self) -> u32 {
        // This process alone.
        1
    }

    fn direct_copies(&self) -> Result<(), String> {
        Err(format!("the device is {}", self.name))
    }

    fn translation(&self) -> Translation {
        // Nothing is registered here.
        Translation::Unchecked
    }

    fn register(&mut self, _memory: LocalMemory, _access: Access) -> Result<MemoryRegion, FabricError> {
        Err(FabricError::Unsupported { operation: "register", reason: "no peer is mapped" })
    }

    fn deregister(&mut self, _region: MemoryRegion) {}

    fn copy(&mut self, _peer: PeerIndex, _copy: &DirectCopy) -> Result<(), DirectCopyError> {
        Err(DirectCopyError::Refused)
    }

    fn mapped(&self, area: MappedArea) -> Option<SharedMemory> {
        // Nobody announces anything here; the engine looks all the same.
        matches!(area, MappedArea::Announcements { owner } if owner == self.me).then(|| self.announcements.clone())
    }

    fn wakeup(&self) -> Arc<dyn Wakeup> {
        Arc::clone(&self.wakeup)
    }

    fn notify(&self, _peer: PeerIndex) {}
}
