//! Distributed shared memory: segments that processes publish, connect to and map. Paper: via2sisci §1.3, SISCI.
//!
//! ```text
//!   owner                                   other process
//!   Node::create ─ reference ─────────────▶ PeerNode::connect
//!   LocalSegment: create, prepare
//!   publish ── entry in the directory ────▶ connect ▶ map ▶ loads, stores, copies, DMA
//!   withdraw ─ no entry: no new connections ▶ unmap, disconnect (drop)
//!   remove (drop)
//! ```
//! The paper's adapters map memory of other hosts. Here a segment is a sealed memfd, and whoever may look into the owner's
//! `/proc/PID/fd` (the same user) may map it. A mapping stays valid when its owner removes the segment or dies.

mod directory;
mod dma;

pub use directory::{Published, Rights};
pub use dma::{DmaQueue, DmaState};

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use base::memory::{ReadRange, WriteRange};
use fabric_soft::{copying, shm};
use lockfree::{Barrier, CACHE_LINE_BYTES, Doorbell, SharedMemory};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};

use directory::Directory;

/// Most segments that a node publishes.
pub const SEGMENTS_MAX: usize = 1024;
/// Longest segment, in bytes.
pub const SEGMENT_BYTES_MAX: usize = 1 << 36;

const MAGIC: u64 = u64::from_le_bytes(*b"ferrVIPL");
/// Changes with the layout of what nodes share.
const LAYOUT_VERSION: u64 = 2;
const NUMBER: usize = 16;
const BELLS: usize = 64;
const BELL_COUNT: usize = 3;
const DIRECTORY: usize = BELLS + BELL_COUNT * Doorbell::FOOTPRINT;
const NODE_BYTES: usize = (DIRECTORY + Directory::FOOTPRINT).next_multiple_of(4096);

/// What goes wrong with segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The system refused something.
    #[error("{operation}: {reason}")]
    System {
        /// What was to be done.
        operation: &'static str,
        /// What the system said.
        reason: String,
    },
    /// More segments than a node has places for, or a longer one than there may be.
    #[error("{what}: {asked} is beyond the limit of {max}")]
    BeyondLimit {
        /// Of what.
        what: &'static str,
        /// How much.
        asked: usize,
        /// The limit.
        max: usize,
    },
    /// The owner publishes no segment of this number.
    #[error("segment {0:#x} is not published")]
    NotPublished(u32),
    /// What the peer offers is no node of this library.
    #[error("the other process is no node of this library: {0}")]
    NotANode(&'static str),
    /// The bytes are not inside the segment.
    #[error("{len_bytes} bytes at {offset} are not inside a segment of {segment_bytes}")]
    OutOfBounds {
        /// Where they begin.
        offset: usize,
        /// How many.
        len_bytes: usize,
        /// What there is.
        segment_bytes: usize,
    },
    /// A DMA queue is full, or not in a state for it.
    #[error("the DMA queue cannot {operation} while it is {state:?}")]
    Dma {
        /// What was asked of it.
        operation: &'static str,
        /// Its state.
        state: DmaState,
    },
}

/// Which doorbell of a node.
#[derive(Clone, Copy, Debug)]
pub enum Bell {
    /// Threads of the program that wait.
    Waiters,
    /// Nobody sleeps here: who is announced wants the event manager to look.
    Callbacks,
    /// The event manager.
    Events,
}

/// By what another process finds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeReference {
    /// Its process.
    pub process: u32,
    /// The descriptor of its directory there.
    pub descriptor: u32,
    /// A random number, so that a reused process number is noticed.
    pub number: u64,
}

/// This process's side: the segments it makes and their directory.
#[derive(Clone)]
pub struct Node {
    shared: Arc<NodeShared>,
}

struct NodeShared {
    descriptor: OwnedFd,
    memory: SharedMemory,
    directory: Mutex<Directory>,
    number: u64,
    barrier: Barrier,
}

impl Node {
    /// Makes a node without segments.
    ///
    /// # Errors
    /// When the system has no memory or no descriptor for it.
    pub fn create() -> Result<Self, SegmentError> {
        let (descriptor, memory) = shm::sealed::create(NODE_BYTES).map_err(refused("making a node"))?;
        let number = random();
        memory.word(8).store(LAYOUT_VERSION, Relaxed);
        memory.word(NUMBER).store(number, Relaxed);
        memory.word(0).store(MAGIC, Release);
        let barrier = shm::imposed_barrier();
        let directory = Directory::new(directory_part(&memory));
        let shared = NodeShared { descriptor, memory, directory: Mutex::new(directory), number, barrier };
        let node = Self { shared: Arc::new(shared) };
        [Bell::Waiters, Bell::Callbacks, Bell::Events].into_iter().for_each(|bell| node.bell(bell).own());
        Ok(node)
    }

    /// By what others find it.
    pub fn reference(&self) -> NodeReference {
        let descriptor = self.shared.descriptor.as_raw_fd() as u32;
        NodeReference { process: std::process::id(), descriptor, number: self.shared.number }
    }

    /// One of its doorbells.
    pub fn bell(&self, bell: Bell) -> Doorbell {
        bell_in(&self.shared.memory, bell, self.shared.barrier)
    }

    /// Makes a segment that nobody else knows of yet; its memory is zeroed and provided when it is first touched.
    ///
    /// # Errors
    /// When it is too long, or the system refuses.
    pub fn create_segment(&self, len_bytes: usize) -> Result<LocalSegment, SegmentError> {
        if len_bytes == 0 || len_bytes > SEGMENT_BYTES_MAX {
            return Err(SegmentError::BeyondLimit {
                what: "bytes of a segment",
                asked: len_bytes,
                max: SEGMENT_BYTES_MAX,
            });
        }
        let (descriptor, memory) = shm::sealed::create(whole_lines(len_bytes)).map_err(refused("making a segment"))?;
        let id = self.shared.directory.lock().reserve()?;
        Ok(LocalSegment { id, mapping: Mapping { memory, len_bytes }, descriptor, node: self.clone() })
    }
}

/// A segment of this process.
pub struct LocalSegment {
    id: u32,
    mapping: Mapping,
    descriptor: OwnedFd,
    node: Node,
}

impl LocalSegment {
    /// Its number, which no other segment of the node has had for a long time.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Has the system provide all its memory now.
    ///
    /// # Errors
    /// When there is not so much.
    pub fn prepare(&self) -> Result<(), SegmentError> {
        rustix::fs::fallocate(&self.descriptor, FallocateFlags::empty(), 0, self.mapping.len_bytes() as u64)
            .map_err(system("providing the memory of a segment (fallocate)"))
    }

    /// From now on others may connect to it, or find what has changed about it.
    pub fn publish(&self, published: &Published) {
        let descriptor = self.descriptor.as_raw_fd() as u32;
        self.node.shared.directory.lock().publish(self.id, descriptor, self.mapping.len_bytes(), published);
    }

    /// No new connections; those that exist stay.
    pub fn withdraw(&self) {
        self.node.shared.directory.lock().withdraw(self.id);
    }

    /// Its memory.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for LocalSegment {
    fn drop(&mut self) {
        self.node.shared.directory.lock().release(self.id);
    }
}

/// Another process's side.
pub struct PeerNode {
    reference: NodeReference,
    /// Its open descriptors; of no other process, even if that has its number later.
    descriptors: OwnedFd,
    memory: SharedMemory,
    barrier: Barrier,
}

impl PeerNode {
    /// Connects to the node of another process, or of this one.
    ///
    /// # Errors
    /// When it cannot be looked into (it is gone, another user's, on another host) or is no node.
    pub fn connect(reference: NodeReference) -> Result<Self, SegmentError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = rustix::fs::open(format!("/proc/{}/fd", reference.process), flags, Mode::empty())
            .map_err(system("looking into the other process"))?;
        let descriptor = open(&descriptors, reference.descriptor)?;
        let memory = shm::sealed::attach(&descriptor, NODE_BYTES).map_err(refused("mapping the node of a peer"))?;
        if memory.word(0).load(Acquire) != MAGIC || memory.word(8).load(Relaxed) != LAYOUT_VERSION {
            return Err(SegmentError::NotANode("it has another layout"));
        }
        if memory.word(NUMBER).load(Relaxed) != reference.number {
            return Err(SegmentError::NotANode("it is another one than the one that was named"));
        }
        Ok(Self { reference, descriptors, memory, barrier: shm::imposed_barrier() })
    }

    /// By what it was found.
    pub fn reference(&self) -> NodeReference {
        self.reference
    }

    /// One of its doorbells.
    pub fn bell(&self, bell: Bell) -> Doorbell {
        bell_in(&self.memory, bell, self.barrier)
    }

    /// What it publishes under a number just now.
    pub fn published(&self, id: u32) -> Option<Published> {
        directory::look(&directory_part(&self.memory), id).map(|(_, _, published)| published)
    }

    /// Connects to a segment.
    ///
    /// # Errors
    /// When it is not published, or is not what the directory says.
    pub fn connect_segment(&self, id: u32) -> Result<RemoteSegment, SegmentError> {
        let look = || directory::look(&directory_part(&self.memory), id).ok_or(SegmentError::NotPublished(id));
        let (number, len_bytes, _) = look()?;
        if len_bytes == 0 || len_bytes > SEGMENT_BYTES_MAX {
            return Err(SegmentError::BeyondLimit {
                what: "bytes of a segment",
                asked: len_bytes,
                max: SEGMENT_BYTES_MAX,
            });
        }
        let descriptor = open(&self.descriptors, number)?;
        // A segment keeps its descriptor for as long as it is published: if it still is, that one was opened.
        let (same, _, published) = look()?;
        if same != number {
            return Err(SegmentError::NotPublished(id));
        }
        Ok(RemoteSegment { id, descriptor, len_bytes, published })
    }
}

/// A segment of another process, connected and not necessarily mapped.
pub struct RemoteSegment {
    id: u32,
    descriptor: OwnedFd,
    len_bytes: usize,
    published: Published,
}

impl RemoteSegment {
    /// Its number there.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// What its owner said of it when it was connected to.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// Maps it; unmapped when the last copy of the mapping is dropped.
    ///
    /// # Errors
    /// When it could be shrunk behind our back, is of another length than its owner said, or the system refuses.
    pub fn map(&self) -> Result<Mapping, SegmentError> {
        let (descriptor, len_bytes) = (&self.descriptor, self.len_bytes);
        let memory = shm::sealed::attach(descriptor, whole_lines(len_bytes)).map_err(refused("mapping a segment"))?;
        Ok(Mapping { memory, len_bytes })
    }
}

/// The memory of a segment. Others may write to it at any time: what is read is only bytes.
#[derive(Clone)]
pub struct Mapping {
    memory: SharedMemory,
    len_bytes: usize,
}

impl Mapping {
    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Where it lies in this process.
    pub fn address(&self) -> usize {
        self.memory.start().as_ptr().expose_provenance()
    }

    /// The memory, for what is laid out in it.
    pub fn shared(&self) -> &SharedMemory {
        &self.memory
    }

    /// Loads the word at `offset`, a multiple of 8.
    ///
    /// # Errors
    /// If it is not inside or not aligned.
    pub fn load(&self, offset: usize) -> Result<u64, SegmentError> {
        self.check_word(offset)?;
        Ok(self.memory.word(offset).load(Acquire))
    }

    /// Stores a word at `offset`, a multiple of 8; who loads it sees what was stored before.
    ///
    /// # Errors
    /// If it is not inside or not aligned.
    pub fn store(&self, offset: usize, value: u64) -> Result<(), SegmentError> {
        self.check_word(offset)?;
        self.memory.word(offset).store(value, Release);
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        copying::scatter(bytes, &[self.target(offset, bytes.len())?]);
        Ok(())
    }

    /// Copies from `offset` to `bytes`.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), SegmentError> {
        copying::read_behind(&[self.source(offset, bytes.len())?], 0, bytes);
        Ok(())
    }

    /// Copies `len_bytes` bytes from `offset` to another segment.
    ///
    /// # Errors
    /// If they are not inside either.
    pub fn copy(&self, offset: usize, to: &Self, to_offset: usize, len_bytes: usize) -> Result<(), SegmentError> {
        copying::copy(&[self.source(offset, len_bytes)?], &[to.target(to_offset, len_bytes)?]);
        Ok(())
    }

    /// Bytes to be read, valid while the mapping lives.
    pub(crate) fn source(&self, offset: usize, len_bytes: usize) -> Result<ReadRange, SegmentError> {
        self.check(offset, len_bytes)?;
        // SAFETY: inside the mapping, which `self` keeps; users of the range keep a copy of `self` until they are done. Other
        // processes may write the bytes meanwhile, and then they are any bytes: nothing is concluded from them.
        Ok(unsafe { ReadRange::new((self.address() + offset) as *const u8, len_bytes) })
    }

    /// Bytes to be written, valid while the mapping lives.
    pub(crate) fn target(&self, offset: usize, len_bytes: usize) -> Result<WriteRange, SegmentError> {
        self.check(offset, len_bytes)?;
        // SAFETY: as in `source`; no reference into the mapping exists but those to atomics, which lie where no payload goes.
        Ok(unsafe { WriteRange::new((self.address() + offset) as *mut u8, len_bytes) })
    }

    fn check(&self, offset: usize, len_bytes: usize) -> Result<(), SegmentError> {
        let segment_bytes = self.len_bytes();
        match offset.checked_add(len_bytes) {
            Some(end) if end <= segment_bytes => Ok(()),
            _ => Err(SegmentError::OutOfBounds { offset, len_bytes, segment_bytes }),
        }
    }

    fn check_word(&self, offset: usize) -> Result<(), SegmentError> {
        self.check(offset, 8)?;
        match offset.is_multiple_of(8) {
            true => Ok(()),
            false => Err(SegmentError::OutOfBounds { offset, len_bytes: 8, segment_bytes: self.len_bytes() }),
        }
    }
}

/// Segments are mapped by whole cache lines; what lies behind their last byte is nobody's.
fn whole_lines(len_bytes: usize) -> usize {
    len_bytes.next_multiple_of(CACHE_LINE_BYTES)
}

/// A number that others do not guess by chance.
fn random() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id())
}

fn directory_part(memory: &SharedMemory) -> SharedMemory {
    memory.part(DIRECTORY, Directory::FOOTPRINT).expect("the directory is inside the node")
}

fn bell_in(memory: &SharedMemory, bell: Bell, barrier: Barrier) -> Doorbell {
    let offset = BELLS + bell as usize * Doorbell::FOOTPRINT;
    Doorbell::new(memory.part(offset, Doorbell::FOOTPRINT).expect("bells are inside the node"), barrier)
}

/// A descriptor that another process has open, of its directory of them.
fn open(descriptors: &OwnedFd, descriptor: u32) -> Result<OwnedFd, SegmentError> {
    let operation = "opening a segment of the other process";
    // Only a name at first: what a stranger names may be a device, and opening one may do something.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let named = rustix::fs::openat(descriptors, descriptor.to_string(), flags, Mode::empty());
    let named = named.map_err(system(operation))?;
    let what = rustix::fs::fstat(&named).map_err(system(operation))?;
    if FileType::from_raw_mode(what.st_mode) != FileType::RegularFile {
        return Err(SegmentError::NotANode("what it names is no memory"));
    }
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).map_err(system(operation))
}

fn system(operation: &'static str) -> impl FnOnce(rustix::io::Errno) -> SegmentError {
    move |error| SegmentError::System { operation, reason: error.to_string() }
}

fn refused<E: std::fmt::Display>(operation: &'static str) -> impl FnOnce(E) -> SegmentError {
    move |error| SegmentError::System { operation, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Published {
        Published { base: 0x1000, tag: 7, rights: Rights { write: true, read: false, shadow: true } }
    }

    #[test]
    fn a_segment_is_found_while_it_is_published_and_stays_mapped_after_its_end() {
        let node = Node::create().unwrap();
        let peer = PeerNode::connect(node.reference()).unwrap();
        let segment = node.create_segment(10_000).unwrap();
        segment.prepare().unwrap();
        let id = segment.id();
        assert!(matches!(peer.connect_segment(id), Err(SegmentError::NotPublished(_))));
        segment.publish(&published());
        let remote = peer.connect_segment(id).unwrap();
        assert_eq!((remote.len_bytes(), *remote.published(), remote.id()), (10_000, published(), id));
        let mapping = remote.map().unwrap();
        mapping.store(8, 42).unwrap();
        mapping.write(9_990, b"0123456789").unwrap();
        assert_eq!(segment.mapping().load(8).unwrap(), 42);
        let mut found = [0; 10];
        segment.mapping().read(9_990, &mut found).unwrap();
        assert_eq!(&found, b"0123456789");
        segment.withdraw();
        assert!(peer.connect_segment(id).is_err());
        drop(segment);
        assert_eq!(mapping.load(8).unwrap(), 42);
        let next = node.create_segment(1).unwrap();
        assert_ne!(next.id(), id, "a number is not given again at once");
    }

    #[test]
    fn nothing_outside_is_touched() {
        let node = Node::create().unwrap();
        let segment = node.create_segment(64).unwrap();
        let mapping = segment.mapping();
        for (offset, len) in [(0, 65), (64, 1), (usize::MAX, 2), (1, usize::MAX)] {
            assert!(matches!(mapping.source(offset, len), Err(SegmentError::OutOfBounds { .. })));
            assert!(mapping.target(offset, len).is_err());
        }
        assert!(mapping.load(60).is_err() && mapping.load(4).is_err() && mapping.store(64, 0).is_err());
        assert!(mapping.write(60, &[0; 5]).is_err() && mapping.read(60, &mut [0; 5]).is_err());
        assert!(mapping.copy(0, mapping, 32, 33).is_err());
        assert!(node.create_segment(0).is_err() && node.create_segment(SEGMENT_BYTES_MAX + 1).is_err());
    }

    #[test]
    fn who_is_no_node_is_refused() {
        let node = Node::create().unwrap();
        let named = node.reference();
        let other = NodeReference { number: named.number ^ 1, ..named };
        assert!(matches!(PeerNode::connect(other), Err(SegmentError::NotANode(_))));
        let segment = node.create_segment(NODE_BYTES).unwrap();
        let descriptor = segment.descriptor.as_raw_fd() as u32;
        assert!(matches!(PeerNode::connect(NodeReference { descriptor, ..named }), Err(SegmentError::NotANode(_))));
        let file = tempfile();
        let descriptor = file.as_raw_fd() as u32;
        assert!(PeerNode::connect(NodeReference { descriptor, ..named }).is_err(), "what can be shrunk is not mapped");
        let device = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let descriptor = device.as_raw_fd() as u32;
        assert!(matches!(PeerNode::connect(NodeReference { descriptor, ..named }), Err(SegmentError::NotANode(_))));
        assert!(PeerNode::connect(NodeReference { descriptor: 1 << 30, ..named }).is_err());
        assert!(PeerNode::connect(NodeReference { process: u32::MAX, ..named }).is_err());
    }

    /// A memfd of the right length that is not sealed.
    fn tempfile() -> OwnedFd {
        let file = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, NODE_BYTES as u64).unwrap();
        file
    }
}
