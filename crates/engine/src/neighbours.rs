//! Where a job has several ways: the peers of this host, whose memory is mapped, under the numbers they have in the world.
//!
//! ```text
//!   world        0   1   2   3   4   5         (this process is 4)
//!   place here           0       1   2
//!   way          port  mapped port  –  mapped
//! ```

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::Config;
use fabric::{
    Access, DirectCopy, DirectCopyError, FabricError, LocalMemory, MappedArea, MappedPeers, MemoryRegion, PeerIndex,
    PieceCopy, SharedMemory, Translation, Wakeup,
};

use crate::EngineError;
use crate::core::Engine;
use crate::port::Port;
use crate::request::PeerId;
use crate::wait::WaitPolicy;

impl Engine {
    /// An engine whose peers are reached over verbs, but for those of this host: they are mapped, and `numbers` are
    /// theirs in the world, by place. The port has no cards of these.
    ///
    /// # Errors
    /// When the port does not know the others, when numbers and places do not fit, or when mapped peers have no bells:
    /// whoever waits sleeps on descriptors.
    pub fn with_neighbours(
        context: Box<dyn MappedPeers>,
        numbers: Vec<PeerId>,
        port: Port,
        config: &Config,
        policy: WaitPolicy,
    ) -> Result<Self, EngineError> {
        let neighbours = Neighbours::new(context, numbers, port.size())?;
        let me = neighbours.local_peer().0;
        let is_known = |peer| port.reaches(peer) != neighbours.place(PeerIndex(peer)).is_some();
        if port.rank() != me {
            return Err(EngineError::NoSuchPeer(me));
        }
        if let Some(unknown) = (0..port.size()).find(|peer| !is_known(*peer)) {
            return Err(EngineError::NoSuchPeer(unknown));
        }
        let bell = neighbours.bell().ok_or(EngineError::NoMappedPeers(neighbours.name()))?;
        port.wakeup().join(bell, neighbours.wakeup())?;
        let wakeup: Arc<dyn Wakeup> = port.wakeup();
        Self::assemble(Box::new(neighbours), Some(Box::new(port)), wakeup, config, policy)
    }
}

/// Mapped peers that are some of a world's processes.
pub(crate) struct Neighbours {
    inner: Box<dyn MappedPeers>,
    /// By place, in ascending order.
    numbers: Vec<PeerId>,
    /// By number: the place, or [`ELSEWHERE`].
    places: Vec<u32>,
}

/// No place: the process is on another host.
const ELSEWHERE: u32 = u32::MAX;

impl Neighbours {
    /// `inner` under the numbers that its peers have, by place, in a world of `size` processes.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPeer`] if a number is not of this world, or a peer has none or two.
    pub(crate) fn new(inner: Box<dyn MappedPeers>, numbers: Vec<PeerId>, size: u32) -> Result<Self, FabricError> {
        let mut places = vec![ELSEWHERE; size as usize];
        for (place, number) in (0..).zip(&numbers) {
            match places.get_mut(*number as usize) {
                Some(entry) if *entry == ELSEWHERE => *entry = place,
                _ => return Err(FabricError::NoSuchPeer(*number)),
            }
        }
        if numbers.len() != inner.peer_count() as usize {
            return Err(FabricError::NoSuchPeer(inner.peer_count()));
        }
        Ok(Self { inner, numbers, places })
    }

    #[inline]
    fn near(&self, peer: PeerIndex) -> Option<PeerIndex> {
        self.places.get(peer.0 as usize).filter(|place| **place != ELSEWHERE).map(|place| PeerIndex(*place))
    }

    /// The same area under the places of this host; `None` if it is of a process elsewhere.
    fn near_area(&self, area: MappedArea) -> Option<MappedArea> {
        Some(match area {
            MappedArea::Channel { from, to } => MappedArea::Channel { from: self.near(from)?, to: self.near(to)? },
            MappedArea::Announcements { owner } => MappedArea::Announcements { owner: self.near(owner)? },
            MappedArea::Mailbox { owner } => MappedArea::Mailbox { owner: self.near(owner)? },
            MappedArea::ClaimCell { owner, cell } => MappedArea::ClaimCell { owner: self.near(owner)?, cell },
            MappedArea::Shuttle { owner, with } => {
                MappedArea::Shuttle { owner: self.near(owner)?, with: self.near(with)? }
            }
            MappedArea::Board { owner, board } => MappedArea::Board { owner: self.near(owner)?, board },
        })
    }
}

impl MappedPeers for Neighbours {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn local_peer(&self) -> PeerIndex {
        PeerIndex(self.numbers[self.inner.local_peer().0 as usize])
    }

    fn peer_count(&self) -> u32 {
        self.places.len() as u32
    }

    fn place_count(&self) -> u32 {
        self.inner.place_count()
    }

    fn place(&self, peer: PeerIndex) -> Option<u32> {
        self.inner.place(self.near(peer)?)
    }

    fn peer_at(&self, place: u32) -> Option<PeerIndex> {
        let near = self.inner.peer_at(place)?;
        self.numbers.get(near.0 as usize).copied().map(PeerIndex)
    }

    fn given_up(&self) -> Option<(PeerIndex, String)> {
        let (near, why) = self.inner.given_up()?;
        Some((PeerIndex(*self.numbers.get(near.0 as usize)?), why))
    }

    fn direct_copies(&self) -> Result<(), String> {
        self.inner.direct_copies()
    }

    fn translation(&self) -> Translation {
        self.inner.translation()
    }

    fn register(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        self.inner.register(memory, access)
    }

    fn deregister(&mut self, region: MemoryRegion) {
        self.inner.deregister(region);
    }

    fn copy(&mut self, peer: PeerIndex, copy: &DirectCopy) -> Result<(), DirectCopyError> {
        let near = self.near(peer).ok_or(DirectCopyError::Refused)?;
        self.inner.copy(near, copy)
    }

    fn copy_pieces(&mut self, peer: PeerIndex, copy: &PieceCopy<'_>) -> Result<(), DirectCopyError> {
        let near = self.near(peer).ok_or(DirectCopyError::Refused)?;
        self.inner.copy_pieces(near, copy)
    }

    fn mapped(&self, area: MappedArea) -> Option<SharedMemory> {
        self.inner.mapped(self.near_area(area)?)
    }

    fn give_back(&self, area: MappedArea, offset: usize) -> Option<usize> {
        self.inner.give_back(self.near_area(area)?, offset)
    }

    fn wakeup(&self) -> Arc<dyn Wakeup> {
        self.inner.wakeup()
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.inner.bell()
    }

    #[inline]
    fn notify(&self, peer: PeerIndex) {
        if let Some(near) = self.near(peer) {
            self.inner.notify(near);
        }
    }
}
