//! The segment: a sealed memfd, mapped once, and where things are in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric::{FabricError, MappedArea, PeerIndex, SharedMemory};
use lockfree::{
    Announcements, Barrier, BlockSender, Board, CACHE_LINE_BYTES, ClaimCell, Doorbell, Engagement, Meeting,
    PublishedTable, mailbox,
};
use rustix::event::{EventfdFlags, eventfd};

use super::life::ProcessMark;
use super::region_table;
use super::sealed::{self, system};

const MAGIC: u64 = u64::from_le_bytes(*b"ferrovia");
/// Changes with the layout, so that two builds that differ never share a segment.
const LAYOUT_VERSION: u64 = 5;
/// Where the header holds the segment's random number.
const ID: usize = 32;
/// And the size of the arenas.
const ARENA_BYTES: usize = 40;
/// And that of the shuttles.
const SHUTTLE_BYTES: usize = 48;
const HEADER_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;

/// What all processes of a segment must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Processes on this host.
    pub process_count: u32,
    /// Bytes of the block, or the slots, of each channel.
    pub channel_bytes: usize,
    /// Bytes of each shuttle between two processes; 0: there are none.
    pub shuttle_bytes: usize,
    /// Bytes each process can give out to be mapped by its peers; whole pages.
    pub arena_bytes: usize,
}

impl Shape {
    const IDENTITY: usize = Doorbell::FOOTPRINT;
    const REGIONS: usize = Self::IDENTITY + CACHE_LINE_BYTES;
    const CELLS: usize = Self::REGIONS + region_table::FOOTPRINT;
    /// Regions and queue pairs of a software adapter that its peers may use directly, each.
    pub(super) const PUBLISHED_MAX: u32 = 1 << 12;
    const ANNOUNCEMENTS: usize = Self::CELLS + MappedArea::CLAIM_CELLS_MAX as usize * ClaimCell::FOOTPRINT;

    /// Channels begin on pages, so that one can be given back to the system.
    fn channel_stride(&self) -> usize {
        BlockSender::footprint(self.channel_bytes).next_multiple_of(PAGE_BYTES)
    }

    fn announcements_bytes(&self) -> usize {
        Announcements::footprint(self.process_count as usize + 1)
    }

    /// What this process can reach of each other: a word per process.
    fn reach(&self) -> usize {
        Self::ANNOUNCEMENTS + self.announcements_bytes()
    }

    fn reach_bytes(&self) -> usize {
        (self.process_count as usize * 8).next_multiple_of(CACHE_LINE_BYTES)
    }

    fn engagement(&self) -> usize {
        self.reach() + self.reach_bytes()
    }

    fn published(&self) -> usize {
        self.engagement() + Engagement::FOOTPRINT
    }

    fn meeting(&self) -> usize {
        self.published() + 2 * PublishedTable::footprint(Self::PUBLISHED_MAX)
    }

    fn channels(&self) -> usize {
        (self.mailbox() + mailbox::FOOTPRINT).next_multiple_of(PAGE_BYTES)
    }

    fn mailbox(&self) -> usize {
        (self.meeting() + Meeting::FOOTPRINT).next_multiple_of(CACHE_LINE_BYTES)
    }

    fn shuttles(&self) -> usize {
        self.channels() + self.process_count as usize * self.channel_stride()
    }

    fn shuttle_stride(&self) -> usize {
        self.shuttle_bytes.next_multiple_of(PAGE_BYTES)
    }

    fn arena(&self) -> usize {
        (self.shuttles() + self.process_count as usize * self.shuttle_stride()).next_multiple_of(PAGE_BYTES)
    }

    fn boards(&self) -> usize {
        (self.arena() + self.arena_bytes).next_multiple_of(PAGE_BYTES)
    }

    const BOARD_BYTES: usize = Board::FOOTPRINT.next_multiple_of(PAGE_BYTES);

    fn part_bytes(&self) -> usize {
        self.boards() + MappedArea::BOARDS_MAX as usize * Self::BOARD_BYTES
    }

    fn segment_bytes(&self) -> usize {
        HEADER_BYTES + self.process_count as usize * self.part_bytes()
    }
}

/// A mapped segment.
#[derive(Clone)]
pub struct Segment {
    shape: Shape,
    memory: SharedMemory,
    fd: Option<Arc<OwnedFd>>,
    bells: Option<Arc<[OwnedFd]>>,
}

impl Segment {
    /// Makes the segment of a host.
    ///
    /// # Errors
    /// When the system has no memory or no descriptor for it.
    pub fn create(shape: Shape) -> Result<Self, FabricError> {
        let (fd, memory) = sealed::create(shape.segment_bytes())?;
        use base::sync::Ordering::Relaxed;
        memory.word(8).store(LAYOUT_VERSION, Relaxed);
        memory.word(16).store(shape.process_count.into(), Relaxed);
        memory.word(24).store(shape.channel_bytes as u64, Relaxed);
        memory.word(ARENA_BYTES).store(shape.arena_bytes as u64, Relaxed);
        memory.word(SHUTTLE_BYTES).store(shape.shuttle_bytes as u64, Relaxed);
        memory.word(ID).store(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0), Relaxed);
        memory.word(0).store(MAGIC, base::sync::Ordering::Release);
        Ok(Self { shape, memory, fd: Some(Arc::new(fd)), bells: None })
    }

    /// As [`Segment::create`], for processes that sleep on other descriptors as well: a descriptor for each of them, by
    /// which all others wake it.
    ///
    /// # Errors
    /// As [`Segment::create`].
    pub fn create_with_bells(shape: Shape) -> Result<Self, FabricError> {
        let bell = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bells: Result<Arc<[OwnedFd]>, _> = (0..shape.process_count).map(bell).collect();
        let bells = bells.map_err(|error| system("making bells for the processes of a host (eventfd)", error))?;
        Ok(Self { bells: Some(bells), ..Self::create(shape)? })
    }

    /// Maps a segment that another process made; `bells`: none, or one for each process.
    ///
    /// # Errors
    /// When it is not sealed, or was made by another build or with another shape.
    pub fn attach(fd: OwnedFd, bells: Vec<OwnedFd>, shape: Shape) -> Result<Self, FabricError> {
        let refuse = |reason: String| FabricError::System { operation: "joining the shared segment", reason };
        if !bells.is_empty() && bells.len() != shape.process_count as usize {
            return Err(refuse(format!("expected {} bells, found {}", shape.process_count, bells.len())));
        }
        let memory = sealed::attach(&fd, shape.segment_bytes())?;
        use base::sync::Ordering::Acquire;
        let found = [0, 8, 16, 24, ARENA_BYTES, SHUTTLE_BYTES].map(|offset| memory.word(offset).load(Acquire));
        let sizes = [shape.channel_bytes, shape.arena_bytes, shape.shuttle_bytes].map(|bytes| bytes as u64);
        if found != [MAGIC, LAYOUT_VERSION, shape.process_count.into(), sizes[0], sizes[1], sizes[2]] {
            return Err(refuse("the processes of this job run different builds or settings of Ferrovia".into()));
        }
        let bells = if bells.is_empty() { None } else { Some(bells.into()) };
        Ok(Self { shape, memory, fd: None, bells })
    }

    /// What the processes agreed on.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Says that process `process_id`, which runs, plays `peer`; what opening a device does for this process.
    pub fn claim_to_be(&self, peer: PeerIndex, process_id: u32) {
        if let Some(identity) = self.identity(peer.0) {
            // With the moment it started: elsewhere, or later, its number may be another's.
            ProcessMark::of_process(process_id).publish(&identity);
        }
    }

    /// A random number that no other segment has.
    pub(super) fn id(&self) -> u64 {
        self.memory.word(ID).load(base::sync::Ordering::Relaxed)
    }

    /// The memory that `process` gives out.
    pub(super) fn arena(&self, process: u32) -> Option<SharedMemory> {
        self.part(process, self.shape.arena(), self.shape.arena_bytes)
    }

    /// Where the arena of `process` is mapped here; `None` if it has none.
    pub(super) fn arena_address(&self, process: u32) -> Option<usize> {
        let part = self.part(process, 0, CACHE_LINE_BYTES).filter(|_| self.shape.arena_bytes > 0)?;
        Some(part.start().as_ptr().expose_provenance() + self.shape.arena())
    }

    /// What `process` found out about reaching others: a word each.
    pub(super) fn reach(&self, process: u32) -> Option<SharedMemory> {
        self.part(process, self.shape.reach(), self.shape.reach_bytes())
    }

    /// What `process` is engaged with.
    pub(super) fn engagement(&self, process: u32) -> Option<Engagement> {
        self.part(process, self.shape.engagement(), Engagement::FOOTPRINT).map(|memory| Engagement::new(&memory))
    }

    /// The regions that `process` shows.
    pub(super) fn published_regions(&self, process: u32) -> Option<PublishedTable> {
        self.published(process, 0)
    }

    /// The queue pairs that `process` shows.
    pub(super) fn published_queue_pairs(&self, process: u32) -> Option<PublishedTable> {
        self.published(process, 1)
    }

    /// Where shared receives and sends to them meet, as process `me` uses it.
    pub(super) fn meeting(&self, me: u32) -> Option<Meeting> {
        let part = |process| self.part(process, self.shape.meeting(), Meeting::FOOTPRINT);
        let parts: Option<Vec<_>> = (0..self.shape.process_count).map(part).collect();
        parts.filter(|_| me < self.shape.process_count).map(|parts| Meeting::new(parts, me))
    }

    fn published(&self, process: u32, which: usize) -> Option<PublishedTable> {
        let len = PublishedTable::footprint(Shape::PUBLISHED_MAX);
        let memory = self.part(process, self.shape.published() + which * len, len)?;
        Some(PublishedTable::new(memory, Shape::PUBLISHED_MAX))
    }

    /// The descriptor, while this process hands it out.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    /// A bell for each process, if there are any.
    pub(super) fn bells(&self) -> Option<&Arc<[OwnedFd]>> {
        self.bells.as_ref()
    }

    /// Closes the descriptor; the mapping stays.
    pub(super) fn close_fd(&mut self) {
        self.fd = None;
    }

    fn part(&self, process: u32, offset: usize, len_bytes: usize) -> Option<SharedMemory> {
        if process >= self.shape.process_count {
            return None;
        }
        self.memory.part(HEADER_BYTES + process as usize * self.shape.part_bytes() + offset, len_bytes)
    }

    pub(super) fn doorbell(&self, process: u32, barrier: Barrier) -> Option<Doorbell> {
        self.part(process, 0, Doorbell::FOOTPRINT).map(|memory| Doorbell::new(memory, barrier))
    }

    pub(super) fn identity(&self, process: u32) -> Option<SharedMemory> {
        self.part(process, Shape::IDENTITY, CACHE_LINE_BYTES)
    }

    pub(super) fn region_table(&self, process: u32) -> Option<SharedMemory> {
        self.part(process, Shape::REGIONS, region_table::FOOTPRINT)
    }

    /// Gives the pages of a channel, but not its first, or of a shuttle from `offset` on back to the system, which hands out
    /// zeroed ones from then on. Where that begins; `None` if it is neither, or there are none, or the system refused.
    pub(super) fn give_back(&self, area: MappedArea, offset: usize) -> Option<usize> {
        let (stride, least) = match area {
            MappedArea::Channel { .. } => (self.shape.channel_stride(), PAGE_BYTES),
            MappedArea::Shuttle { .. } => (self.shape.shuttle_stride(), 0),
            _ => return None,
        };
        let memory = self.area(area)?;
        let from = offset.next_multiple_of(PAGE_BYTES).max(least);
        let len = stride.checked_sub(from).filter(|len| *len > 0)?;
        let start = memory.start().as_ptr();
        // SAFETY: channels and shuttles begin on pages of the mapping and are a whole number of them apart.
        let start = unsafe { start.add(from) };
        // SAFETY: whole pages of this mapping that belong to this area alone and are reached through atomics, or as a
        // shuttle by whoever has it.
        unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxRemove) }.ok()?;
        Some(from)
    }

    pub(super) fn area(&self, area: MappedArea) -> Option<SharedMemory> {
        match area {
            MappedArea::Channel { from, to } if from.0 < self.shape.process_count => {
                let stride = self.shape.channel_stride();
                let len = BlockSender::footprint(self.shape.channel_bytes);
                self.part(to.0, self.shape.channels() + from.0 as usize * stride, len)
            }
            MappedArea::Shuttle { owner, with }
                if with.0 < self.shape.process_count && self.shape.shuttle_bytes > 0 =>
            {
                let at = self.shape.shuttles() + with.0 as usize * self.shape.shuttle_stride();
                self.part(owner.0, at, self.shape.shuttle_bytes)
            }
            MappedArea::Announcements { owner } => {
                self.part(owner.0, Shape::ANNOUNCEMENTS, self.shape.announcements_bytes())
            }
            MappedArea::Mailbox { owner } => self.part(owner.0, self.shape.mailbox(), mailbox::FOOTPRINT),
            MappedArea::ClaimCell { owner, cell } if cell < MappedArea::CLAIM_CELLS_MAX => {
                self.part(owner.0, Shape::CELLS + cell as usize * ClaimCell::FOOTPRINT, ClaimCell::FOOTPRINT)
            }
            MappedArea::Board { owner, board } if board < MappedArea::BOARDS_MAX => {
                let offset = self.shape.boards() + board as usize * Shape::BOARD_BYTES;
                self.part(owner.0, offset, Shape::BOARD_BYTES)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::sync::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_channel_is_given_back_from_an_offset_and_nothing_before_it_or_beside_it() {
        let shape = Shape { process_count: 2, channel_bytes: 64 << 10, ..Shape::default() };
        let segment = Segment::create(shape).expect("memory");
        let channel = |from| MappedArea::Channel { from: PeerIndex(from), to: PeerIndex(0) };
        let len = BlockSender::footprint(shape.channel_bytes);
        for (offset, expected) in [(0, PAGE_BYTES), (20_000, 5 * PAGE_BYTES), (len, 17 * PAGE_BYTES)] {
            let [mine, other] = [0, 1].map(|from| segment.area(channel(from)).expect("a channel"));
            for at in (0..len).step_by(8) {
                mine.word(at).store(7, Relaxed);
                other.word(at).store(7, Relaxed);
            }
            let from = segment.give_back(channel(0), offset).unwrap_or(17 * PAGE_BYTES);
            assert_eq!(from, expected);
            assert!((0..len).step_by(8).all(|at| mine.word(at).load(Relaxed) == if at < from { 7 } else { 0 }));
            assert!((0..len).step_by(8).all(|at| other.word(at).load(Relaxed) == 7));
        }
        assert_eq!(segment.give_back(MappedArea::Mailbox { owner: PeerIndex(0) }, 0), None);
    }

    #[test]
    fn shuttles_lie_apart_from_each_other_and_from_everything_else() {
        let shape = Shape { process_count: 2, channel_bytes: 16 << 10, shuttle_bytes: 5000, arena_bytes: 4096 };
        let segment = Segment::create(shape).expect("memory");
        let peers = [0, 1].map(PeerIndex);
        let pairs = peers.map(|owner| peers.map(|with| (owner, with))).concat();
        let shuttle = |&(owner, with)| segment.area(MappedArea::Shuttle { owner, with });
        let channel = |&(to, from)| segment.area(MappedArea::Channel { from, to });
        let board = |&(owner, _)| segment.area(MappedArea::Board { owner, board: 0 });
        let arenas = [0, 1].map(|owner| segment.arena(owner)).into_iter();
        let areas = pairs.iter().map(shuttle).chain(pairs.iter().map(channel)).chain(pairs[1..3].iter().map(board));
        let span = |memory: SharedMemory| {
            let start = memory.start().as_ptr() as usize;
            start..start + memory.len_bytes()
        };
        let mut spans: Vec<_> = areas.chain(arenas).map(|memory| span(memory.expect("an area"))).collect();
        spans.sort_by_key(|span| span.start);
        assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].start), "{spans:?}");
        let (mine, other) = (&pairs[1], &pairs[2]);
        for pair in [mine, other] {
            shuttle(pair).expect("a shuttle").word(4992).store(7, Relaxed);
        }
        assert_eq!(segment.give_back(MappedArea::Shuttle { owner: mine.0, with: mine.1 }, 0), Some(0));
        let found = [mine, other].map(|pair| shuttle(pair).map(|memory| memory.word(4992).load(Relaxed)));
        assert_eq!(found, [Some(0), Some(7)]);
        let nobody = MappedArea::Shuttle { owner: peers[0], with: PeerIndex(2) };
        assert!(segment.area(nobody).is_none());
        let without = Segment::create(Shape { shuttle_bytes: 0, ..shape }).expect("memory");
        assert!(without.area(MappedArea::Shuttle { owner: mine.0, with: mine.1 }).is_none());
    }
}
