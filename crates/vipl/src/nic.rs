//! A NIC: protection tags, registered memory, VIs, completion queues, the error handler, and its two threads.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use base::memory::WriteRange;
use fabric_soft::shm;
use lockfree::Doorbell;
use parking_lot::{Mutex, ReentrantMutex, RwLock};

use crate::channel::DESCRIPTORS_MAX;
use crate::counters::{Counters, Counts};
use crate::descriptor::{MemoryHandle, SEGMENTS_PER_DESCRIPTOR_MAX};
use crate::manager::Manager;
use crate::memory::{MemoryAttributes, ProtectionTag, Region, Registry};
use crate::queue::QueueCore;
use crate::segments::{Bell, Node, SegmentError};
use crate::status::{Error, ErrorCode};
use crate::vi::ViCore;
use crate::waiting::WaitPolicy;
use crate::watch::Watch;

/// What a NIC can do; asked for before anything is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes registered at once, all together.
    pub register_max_bytes: u64,
    /// Registrations.
    pub regions_max: usize,
    /// Bytes of one registration.
    pub region_max_bytes: u64,
    /// VIs.
    pub vis_max: usize,
    /// Descriptors in a work queue, complete or not.
    pub descriptors_max: usize,
    /// Data segments of a descriptor.
    pub segments_max: usize,
    /// Completion queues.
    pub queues_max: usize,
    /// Entries of a completion queue.
    pub queue_entries_max: usize,
    /// Bytes of a transfer.
    pub transfer_max_bytes: u64,
    /// Protection tags.
    pub ptags_max: usize,
    /// Bytes of a discriminator.
    pub discriminator_max_bytes: usize,
}

/// The limits of every NIC.
pub const LIMITS: Limits = Limits {
    register_max_bytes: 1 << 40,
    regions_max: 512,
    region_max_bytes: 1 << 36,
    vis_max: 256,
    descriptors_max: 1024,
    segments_max: SEGMENTS_PER_DESCRIPTOR_MAX,
    queues_max: 256,
    queue_entries_max: 1 << 16,
    transfer_max_bytes: (1 << 32) - 1,
    ptags_max: 1 << 16,
    discriminator_max_bytes: 32,
};

/// How a NIC goes about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Receive descriptors that are pushed to the other side at once, at most; the paper's library takes 32.
    pub push_max: usize,
    /// How threads wait.
    pub waiting: WaitPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self { push_max: 32, waiting: WaitPolicy::for_host() }
    }
}

impl Settings {
    /// The most descriptors that can be pushed at once.
    pub const PUSH_MAX: usize = DESCRIPTORS_MAX;
}

/// Something that no descriptor tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorEvent {
    /// What happened.
    pub code: ErrorCode,
    /// To which VI, as [`crate::Vi::number`] gives it.
    pub vi: u64,
}

pub(crate) type ErrorHandler = Arc<dyn Fn(ErrorEvent) + Send + Sync>;

/// An opened NIC; copies are the same one. It is closed when the last copy and everything made of it are gone.
#[derive(Clone)]
pub struct Nic {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) node: Node,
    pub(crate) bell: Doorbell,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) registry: RwLock<Registry>,
    ptags: Mutex<Vec<ProtectionTag>>,
    pub(crate) vis: Mutex<Vec<Weak<ViCore>>>,
    pub(crate) queues: Mutex<Vec<Weak<QueueCore>>>,
    pub(crate) errors: Mutex<VecDeque<ErrorEvent>>,
    pub(crate) error_handler: Mutex<Option<ErrorHandler>>,
    /// Held while a handler is chosen and called: whoever takes away what handlers use holds it as well, on any thread but
    /// the handler's own.
    pub(crate) calling: ReentrantMutex<()>,
    pub(crate) manager: Manager,
    pub(crate) watch: Watch,
    numbers: AtomicU64,
}

impl Nic {
    /// Opens a NIC.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if a setting is out of bounds, [`Error::Resource`] if the system has no memory or no
    /// descriptors for it.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        const CALL: &str = "VipOpenNic";
        if !(1..=Settings::PUSH_MAX).contains(&settings.push_max) {
            return Err(Error::InvalidParameter { call: CALL, what: "the number of descriptors pushed at once" });
        }
        let node = Node::create().map_err(|_| Error::Resource { call: CALL, what: "no memory for the node" })?;
        let watch = Watch::new(node.bell(Bell::Events))
            .map_err(|_| Error::Resource { call: CALL, what: "no descriptor for the watch over connections" })?;
        let core = Arc::new_cyclic(|core| Core {
            bell: node.bell(Bell::Waiters),
            manager: Manager::new(node.bell(Bell::Events), node.bell(Bell::Callbacks), core.clone()),
            node,
            settings,
            counters: Counters::default(),
            registry: RwLock::default(),
            ptags: Mutex::default(),
            vis: Mutex::default(),
            queues: Mutex::default(),
            errors: Mutex::default(),
            error_handler: Mutex::default(),
            calling: ReentrantMutex::new(()),
            watch,
            numbers: AtomicU64::new(1),
        });
        Ok(Self { core })
    }

    /// What it can do.
    pub fn limits(&self) -> Limits {
        LIMITS
    }

    /// How it goes about its work.
    pub fn settings(&self) -> Settings {
        self.core.settings
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        self.core.counters.counts()
    }

    /// Whether nothing that was made of it is left.
    pub fn is_unused(&self) -> bool {
        let queues = self.core.queues.lock().iter().any(QueueCore::is_alive);
        let vis = self.core.vis.lock().iter().any(ViCore::is_alive);
        !queues && !vis && self.core.registry.read().len() == 0
    }

    /// Makes a protection tag.
    ///
    /// # Errors
    /// [`Error::Resource`] if there are as many as there may be.
    pub fn create_ptag(&self) -> Result<ProtectionTag, Error> {
        let mut ptags = self.core.ptags.lock();
        if ptags.len() >= LIMITS.ptags_max {
            return Err(Error::Resource { call: "VipCreatePtag", what: "there are no more protection tags" });
        }
        let tag = ProtectionTag(self.core.number());
        ptags.push(tag);
        Ok(tag)
    }

    /// Takes a protection tag back.
    ///
    /// # Errors
    /// [`Error::InvalidPtag`] if there is no such tag, [`Error::Resource`] while a VI or memory has it.
    pub fn destroy_ptag(&self, tag: ProtectionTag) -> Result<(), Error> {
        const CALL: &str = "VipDestroyPtag";
        if !self.core.has_ptag(tag) {
            return Err(Error::InvalidPtag(CALL));
        }
        let of_vi = self.core.vis().iter().any(|vi| vi.queues.lock().attributes.ptag == tag);
        if of_vi || self.core.registry.read().uses(tag) {
            return Err(Error::Resource { call: CALL, what: "a VI or registered memory has the tag" });
        }
        self.core.ptags.lock().retain(|other| *other != tag);
        Ok(())
    }

    /// Registers memory of the caller, who promised by making the range that it stays valid until it is deregistered, and is
    /// left alone while a transfer uses it (way 2: it gets a shadow segment).
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for no bytes, [`Error::InvalidPtag`], or [`Error::Resource`] beyond the limits.
    pub fn register(&self, memory: WriteRange, attributes: MemoryAttributes) -> Result<MemoryHandle, Error> {
        self.add_region("VipRegisterMem", memory.len_bytes(), Some(memory), attributes)
    }

    /// Allocates memory inside a segment (way 3: nothing is copied but the transfer itself).
    ///
    /// # Errors
    /// As [`Nic::register`].
    pub fn allocate(&self, len_bytes: usize, attributes: MemoryAttributes) -> Result<SegmentMemory, Error> {
        let handle = self.add_region("VipAllocateMem", len_bytes, None, attributes)?;
        let registry = self.core.registry.read();
        let region = registry.at(handle).expect("it was just added");
        Ok(SegmentMemory { handle, base: region.base(), mapping: region.mapping().clone() })
    }

    fn add_region(
        &self,
        call: &'static str,
        len_bytes: usize,
        caller: Option<WriteRange>,
        attributes: MemoryAttributes,
    ) -> Result<MemoryHandle, Error> {
        if len_bytes == 0 {
            return Err(Error::InvalidParameter { call, what: "a length of 0" });
        }
        self.core.check_ptag(call, attributes.ptag)?;
        let beyond = Error::Resource { call, what: "more memory than can be registered" };
        if len_bytes as u64 > LIMITS.region_max_bytes {
            return Err(beyond);
        }
        let segment = self.core.node.create_segment(len_bytes).map_err(|error| match error {
            SegmentError::BeyondLimit { .. } => beyond,
            _ => Error::Resource { call, what: "the system has no memory or no descriptor for a segment" },
        })?;
        let mut registry = self.core.registry.write();
        if registry.len() >= LIMITS.regions_max || (registry.bytes() + len_bytes) as u64 > LIMITS.register_max_bytes {
            return Err(beyond);
        }
        Ok(registry.insert(Region::new(segment, caller, attributes)))
    }

    /// Takes a registration, or an allocation, back. The memory of an allocation stays readable while a copy of its
    /// [`SegmentMemory`] lives.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if there is none of this handle at this address, [`Error::Resource`] while a descriptor
    /// that is not complete uses it.
    pub fn deregister(&self, address: u64, handle: MemoryHandle) -> Result<(), Error> {
        const CALL: &str = "VipDeregisterMem";
        let mut registry = self.core.registry.write();
        if registry.find(address, handle).is_none() {
            return Err(Error::InvalidParameter { call: CALL, what: "the memory handle" });
        }
        let removed = registry.remove(handle);
        removed.map(drop).ok_or(Error::Resource { call: CALL, what: "a descriptor that was posted uses the memory" })
    }

    /// What may be done with registered memory.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] if there is none of this handle at this address.
    pub fn query_memory(&self, address: u64, handle: MemoryHandle) -> Result<MemoryAttributes, Error> {
        let registry = self.core.registry.read();
        let region = registry.find(address, handle);
        region
            .map(|region| region.attributes())
            .ok_or(Error::InvalidParameter { call: "VipQueryMem", what: "the memory handle" })
    }

    /// Changes what may be done with registered memory; descriptors that were posted keep to what was.
    ///
    /// # Errors
    /// As [`Nic::query_memory`], and [`Error::InvalidPtag`].
    pub fn set_memory_attributes(
        &self,
        address: u64,
        handle: MemoryHandle,
        attributes: MemoryAttributes,
    ) -> Result<(), Error> {
        const CALL: &str = "VipSetMemAttributes";
        self.core.check_ptag(CALL, attributes.ptag)?;
        let registry = self.core.registry.read();
        let region = registry.find(address, handle);
        let region = region.ok_or(Error::InvalidParameter { call: CALL, what: "the memory handle" })?;
        region.set_attributes(attributes);
        Ok(())
    }

    /// Whether `len_bytes` bytes at `address` are registered under `handle`.
    pub fn is_registered(&self, address: u64, handle: MemoryHandle, len_bytes: usize) -> bool {
        self.core.region(address, handle, len_bytes).is_some()
    }

    /// Has `handler` called, on a thread of the NIC, when something happens that no descriptor tells of; `None`: nobody is
    /// told. What happened before is told first. The handler before it is not called any more when this returns, unless it
    /// is that handler who calls.
    pub fn set_error_handler(&self, handler: Option<Box<dyn Fn(ErrorEvent) + Send + Sync>>) {
        let is_set = handler.is_some();
        let calling = self.core.calling.lock();
        *self.core.error_handler.lock() = handler.map(Arc::from);
        drop(calling);
        if is_set {
            self.core.manager.start();
            self.core.wake_manager();
        }
    }
}

/// Most events that are kept for a handler that was not set, or is slow; the newest are dropped.
const EVENTS_MAX: usize = 1024;

impl Core {
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    pub(crate) fn has_ptag(&self, tag: ProtectionTag) -> bool {
        self.ptags.lock().contains(&tag)
    }

    /// The registration that so many bytes lie in, which is not taken back while the copy lives.
    pub(crate) fn region(&self, address: u64, handle: MemoryHandle, len_bytes: usize) -> Option<Arc<Region>> {
        let registry = self.registry.read();
        let region = registry.at(handle)?;
        let end = address.checked_sub(region.base())?.checked_add(len_bytes as u64)?;
        (end <= region.len_bytes() as u64).then(|| Arc::clone(region))
    }

    pub(crate) fn check_ptag(&self, call: &'static str, tag: ProtectionTag) -> Result<(), Error> {
        if self.has_ptag(tag) { Ok(()) } else { Err(Error::InvalidPtag(call)) }
    }

    /// The VIs that exist.
    pub(crate) fn vis(&self) -> Vec<Arc<ViCore>> {
        let mut vis = self.vis.lock();
        vis.retain(ViCore::is_alive);
        vis.iter().filter_map(Weak::upgrade).collect()
    }

    /// Something was completed here: threads of this process that wait look, and so does whoever wants callbacks.
    pub(crate) fn completed(&self) {
        shm::ring(&self.bell);
        if self.manager.wants_callbacks() {
            self.wake_manager();
        }
    }

    pub(crate) fn report(&self, events: impl Iterator<Item = ErrorEvent>) {
        let mut kept = self.errors.lock();
        let before = kept.len();
        kept.extend(events.take(EVENTS_MAX.saturating_sub(before)));
        let grown = kept.len() > before;
        drop(kept);
        if grown {
            self.wake_manager();
        }
    }

    pub(crate) fn wake_manager(&self) {
        self.manager.wake();
    }
}

/// Memory inside a segment of this NIC (way 3).
#[derive(Clone)]
pub struct SegmentMemory {
    handle: MemoryHandle,
    base: u64,
    mapping: crate::segments::Mapping,
}

impl SegmentMemory {
    /// Its handle.
    pub fn handle(&self) -> MemoryHandle {
        self.handle
    }

    /// The virtual address of its first byte.
    pub fn address(&self) -> u64 {
        self.base
    }

    /// Its length.
    pub fn len_bytes(&self) -> usize {
        self.mapping.len_bytes()
    }

    /// `len_bytes` bytes from `offset` on, as a data segment.
    pub fn segment(&self, offset: usize, len_bytes: u32) -> crate::descriptor::DataSegment {
        crate::descriptor::DataSegment { address: self.base + offset as u64, handle: self.handle, len_bytes }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), SegmentError> {
        self.mapping.write(offset, bytes)
    }

    /// Copies from `offset` to `bytes`.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), SegmentError> {
        self.mapping.read(offset, bytes)
    }

    /// The memory as words that are loaded and stored.
    pub fn mapping(&self) -> &crate::segments::Mapping {
        &self.mapping
    }
}
