//! The processes of this host as mapped peers: copies are made by whoever asks for them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::sync::Ordering;
use fabric::{
    Access, DirectCopy, DirectCopyError, FabricError, LocalMemory, LocalPieces, MappedArea, MappedPeers, MemoryRegion,
    PeerIndex, PieceCopy, RemoteMemory, SharedMemory, Translation, Wakeup,
};
use lockfree::Doorbell;

use super::cross_memory;
use super::lookout::Lookout;
use super::placement::Placement;
use super::region_table::{self, RegionTable};
use super::segment::Segment;
use super::wakeup::{ShmWakeup, imposed_barrier, wake};
use super::watch::StopPolicy;

/// Longest single copy, in bytes; longer ones are the protocol's to cut.
const COPY_MAX_BYTES: u64 = 1 << 30;

/// The peers of one host, through the segment they share.
pub struct ShmPeers {
    segment: Segment,
    me: PeerIndex,
    cross_memory: Result<(), String>,
    table: RegionTable,
    doorbells: Vec<Doorbell>,
    /// Where its peers sleep on descriptors: a bell for each.
    bells: Option<Arc<[OwnedFd]>>,
    wakeup: Arc<ShmWakeup>,
}

impl ShmPeers {
    /// This process, as number `me`, in `segment`. `cross_memory` says whether to reach private memory at all.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPeer`] if the segment has no place for `me`.
    pub fn join(segment: Segment, me: PeerIndex, cross_memory: Result<(), String>) -> Result<Self, FabricError> {
        if cross_memory.is_ok() {
            cross_memory::allow_peers();
        }
        let table = RegionTable::new(segment.region_table(me.0).ok_or(FabricError::NoSuchPeer(me.0))?);
        segment.claim_to_be(me, std::process::id());
        let barrier = imposed_barrier();
        let doorbells: Vec<_> =
            (0..segment.shape().process_count).filter_map(|peer| segment.doorbell(peer, barrier)).collect();
        doorbells[me.0 as usize].own();
        let identities = (0..segment.shape().process_count).filter_map(|peer| segment.identity(peer)).collect();
        let wakeup = Arc::new(ShmWakeup::new(doorbells[me.0 as usize].clone(), Placement::new(me.0, identities)));
        let bells = segment.bells().cloned();
        Ok(Self { segment, me, cross_memory, table, doorbells, bells, wakeup })
    }

    /// Says that others share the processors with these peers: nobody is moved out of another's way.
    pub fn share_processors(&mut self) {
        self.own_wakeup().stay();
    }

    /// With this done about processes that are stopped; whoever waits looks for them.
    #[must_use]
    pub fn with_stop_policy(mut self, policy: StopPolicy) -> Self {
        let lookout = Lookout::new(self.segment.clone(), self.me.0, policy);
        self.own_wakeup().look_out(lookout);
        self
    }

    fn own_wakeup(&mut self) -> &mut ShmWakeup {
        Arc::get_mut(&mut self.wakeup).expect("nobody waits before these peers belong to an engine")
    }

    fn allowed(&self, peer: PeerIndex, remote: &RemoteMemory, len: u64, write: bool) -> bool {
        len <= COPY_MAX_BYTES && region_table_allows(&self.segment, peer, remote, len, write)
    }

    /// Wakes a peer that sleeps.
    #[cold]
    fn wake(&self, peer: PeerIndex, doorbell: &Doorbell) {
        match &self.bells {
            None => wake(doorbell),
            // One whose count is full is readable already.
            Some(bells) => drop(rustix::io::write(&bells[peer.0 as usize], &1u64.to_ne_bytes())),
        }
    }

    fn process_id(&self, peer: PeerIndex) -> Option<i32> {
        // Acquire pairs with the store in `ProcessMark::publish`.
        let pid = self.segment.identity(peer.0)?.half(0).load(Ordering::Acquire);
        i32::try_from(pid).ok().filter(|pid| *pid > 0)
    }
}

/// What the peer's own table says.
fn region_table_allows(segment: &Segment, peer: PeerIndex, remote: &RemoteMemory, len: u64, write: bool) -> bool {
    let table = segment.region_table(peer.0);
    table.is_some_and(|table| region_table::check(table, remote.rkey, remote.address, len, write))
}

impl MappedPeers for ShmPeers {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn local_peer(&self) -> PeerIndex {
        self.me
    }

    fn peer_count(&self) -> u32 {
        self.segment.shape().process_count
    }

    fn direct_copies(&self) -> Result<(), String> {
        self.cross_memory.clone()
    }

    fn translation(&self) -> Translation {
        // Copies are made by cross-memory attach.
        Translation::Checked
    }

    fn register(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        self.table.register(memory.address(), memory.len_bytes(), access)
    }

    fn copy_pieces(&mut self, peer: PeerIndex, copy: &PieceCopy<'_>) -> Result<(), DirectCopyError> {
        if self.cross_memory.is_err() {
            return Err(DirectCopyError::Refused);
        }
        let pid = self.process_id(peer).ok_or(DirectCopyError::PeerGone)?;
        let mut ends = copy.remote.iter().map(|piece| piece.address.checked_add(piece.len_bytes));
        let end = ends.try_fold(0, |last, end| Some(end?.max(last)));
        let start = copy.remote.iter().map(|piece| piece.address).min();
        let (Some(start), Some(end)) = (start, end) else { return Err(DirectCopyError::AccessError) };
        let write = matches!(copy.local, LocalPieces::From(_));
        // All pieces lie in one region exactly if everything from the first to the last does.
        let around = RemoteMemory { address: start, rkey: copy.rkey };
        if !region_table_allows(&self.segment, peer, &around, end - start, write) {
            return Err(DirectCopyError::AccessError);
        }
        // SAFETY: the ranges were promised readable or writable, and left alone then, until this copy is over.
        unsafe { cross_memory::copy_pieces(pid, copy.local, copy.remote, copy.list_max) }
    }

    fn deregister(&mut self, region: MemoryRegion) {
        self.table.deregister(region.rkey);
    }

    fn copy(&mut self, peer: PeerIndex, copy: &DirectCopy) -> Result<(), DirectCopyError> {
        if self.cross_memory.is_err() {
            return Err(DirectCopyError::Refused);
        }
        let pid = self.process_id(peer).ok_or(DirectCopyError::PeerGone)?;
        let (remote, len, write) = match copy {
            DirectCopy::Write { local, remote } => (remote, local.len_bytes(), true),
            DirectCopy::Read { local, remote } => (remote, local.len_bytes(), false),
        };
        if !self.allowed(peer, remote, len as u64, write) {
            return Err(DirectCopyError::AccessError);
        }
        match copy {
            // SAFETY: the range was promised readable until this copy is over.
            DirectCopy::Write { local, .. } => unsafe {
                cross_memory::write(pid, local.address(), remote.address, len)
            },
            // SAFETY: the range was promised writable, and left alone, until this copy is over.
            DirectCopy::Read { local, .. } => unsafe { cross_memory::read(pid, local.address(), remote.address, len) },
        }
    }

    fn mapped(&self, area: MappedArea) -> Option<SharedMemory> {
        self.segment.area(area)
    }

    fn give_back(&self, area: MappedArea, offset: usize) -> Option<usize> {
        self.segment.give_back(area, offset)
    }

    fn wakeup(&self) -> Arc<dyn Wakeup> {
        self.wakeup.clone()
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bells.as_ref().map(|bells| bells[self.me.0 as usize].as_fd())
    }

    fn given_up(&self) -> Option<(PeerIndex, String)> {
        self.wakeup.given_up().map(|(place, why)| (PeerIndex(place), why))
    }

    #[inline]
    fn runs_here(&self, peer: PeerIndex) -> bool {
        self.wakeup.runs_here(peer.0)
    }

    fn notify(&self, peer: PeerIndex) {
        if let Some(doorbell) = self.doorbells.get(peer.0 as usize)
            && doorbell.must_ring()
        {
            self.wake(peer, doorbell);
        }
    }
}
