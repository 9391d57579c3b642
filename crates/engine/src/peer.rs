//! What the engine keeps per peer it talks to, made when the first message goes out.

use std::sync::Arc;

use base::sync::Ordering;
use fabric::{
    Access, DirectCopy, DirectCopyError, FabricError, LocalMemory, MappedArea, MappedPeers, MemoryRegion, PeerIndex,
    SharedMemory, Translation, Wakeup,
};
use protocol::Link;
use protocol::rendezvous::Reach;

use crate::EngineError;
use crate::request::PeerId;
use crate::stats::PeerStats;

/// One peer: the way to it, and what is known about it.
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) reach: Reach,
    /// It stands in the list of peers whose records wait for room.
    pub(crate) listed: bool,
    pub(crate) traffic: PeerStats,
}

// A budget: this is paid once per peer talked to, besides the channel itself.
const _: () = assert!(size_of::<Peer>() <= 256);

impl Peer {
    /// The way from this process to `to`.
    pub(crate) fn connect(context: &dyn MappedPeers, to: PeerId, channel_bytes: usize) -> Result<Self, EngineError> {
        let area = MappedArea::Channel { from: context.local_peer(), to: PeerIndex(to) };
        let memory = context.mapped(area).ok_or(FabricError::NoSuchPeer(to))?;
        let reach = if context.direct_copies().is_ok() { Reach::Unknown } else { Reach::Refused };
        Ok(Self { link: Link::new(memory, channel_bytes), reach, listed: false, traffic: PeerStats::default() })
    }

    /// The way to a process that is reached through the port.
    pub(crate) fn over_port(payload_max_bytes: usize) -> Self {
        let link = Link::over_port(payload_max_bytes);
        Self { link, reach: Reach::Refused, listed: false, traffic: PeerStats::default() }
    }

    /// Tells the peer that this channel is in use from now on, once.
    #[inline]
    pub(crate) fn introduce(&mut self, context: &dyn MappedPeers, to: PeerId) {
        if self.link.introduced {
            return;
        }
        self.link.introduced = true;
        let me = context.local_peer().0 as usize;
        if let Some(memory) = context.mapped(MappedArea::Introductions { owner: PeerIndex(to) }) {
            // Release: whoever sees the bit finds the channel. Pairs with the load in `discover`.
            memory.word(me / 64 * 8).fetch_or(1 << (me % 64), Ordering::Release);
        }
    }
}

/// What stands for mapped peers where there are none.
pub(crate) struct Unmapped {
    name: &'static str,
    me: PeerIndex,
    size: u32,
    wakeup: Arc<dyn Wakeup>,
    introductions: SharedMemory,
}

impl Unmapped {
    pub(crate) fn new(name: &'static str, me: PeerId, size: u32, wakeup: Arc<dyn Wakeup>) -> Self {
        let introductions = SharedMemory::private((size as usize).div_ceil(64) * 8);
        Self { name, me: PeerIndex(me), size, wakeup, introductions }
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
        // Nobody introduces itself here; the engine looks all the same.
        matches!(area, MappedArea::Introductions { owner } if owner == self.me).then(|| self.introductions.clone())
    }

    fn wakeup(&self) -> Arc<dyn Wakeup> {
        Arc::clone(&self.wakeup)
    }

    fn notify(&self, _peer: PeerIndex) {}
}
