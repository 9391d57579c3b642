//! Registered memory. Paper: via2sisci §1.4.2.
//!
//! ```text
//!   way 2: register             caller's memory ──copy in──▶ shadow segment ──▶ peers
//!                                               ◀─copy out──
//!   way 3: allocate             memory inside a segment ────────────────────▶ peers
//! ```
//! A handle is the number of the segment; a virtual address becomes an offset behind the address that was registered.
//! Paper: via2sisci §1.4.5.

use std::collections::HashMap;
use std::sync::Arc;

use base::memory::{ReadRange, WriteRange};
use fabric_soft::copying;
use parking_lot::Mutex;

use crate::counters::{Counter, Counters};
use crate::descriptor::{DataSegment, MemoryHandle};
use crate::segments::{LocalSegment, Mapping, Published, Rights};
use crate::status::Status;

/// Names a protection tag: a VI may use memory of its own tag only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtectionTag(pub(crate) u64);

/// What may be done with registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAttributes {
    /// VIs of this tag may use it.
    pub ptag: ProtectionTag,
    /// The other sides of these VIs may write to it.
    pub rdma_write: bool,
    /// And read from it.
    pub rdma_read: bool,
}

/// One registration.
pub(crate) struct Region {
    base: u64,
    len_bytes: usize,
    segment: LocalSegment,
    /// The caller's memory, if the segment is its shadow.
    caller: Option<WriteRange>,
    attributes: Mutex<MemoryAttributes>,
}

/// A piece of a registration.
#[derive(Clone)]
pub(crate) struct Block {
    region: Arc<Region>,
    offset: usize,
    len_bytes: usize,
}

impl Region {
    pub(crate) fn new(segment: LocalSegment, caller: Option<WriteRange>, attributes: MemoryAttributes) -> Self {
        let len_bytes = segment.mapping().len_bytes();
        let base = caller.map_or(segment.mapping().address(), WriteRange::address) as u64;
        let region = Self { base, len_bytes, segment, caller, attributes: Mutex::new(attributes) };
        region.publish();
        region
    }

    pub(crate) fn handle(&self) -> MemoryHandle {
        MemoryHandle(self.segment.id())
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        self.segment.mapping()
    }

    pub(crate) fn attributes(&self) -> MemoryAttributes {
        *self.attributes.lock()
    }

    pub(crate) fn set_attributes(&self, attributes: MemoryAttributes) {
        *self.attributes.lock() = attributes;
        self.publish();
    }

    fn publish(&self) {
        let attributes = self.attributes();
        let rights = Rights { write: attributes.rdma_write, read: attributes.rdma_read, shadow: self.caller.is_some() };
        self.segment.publish(&Published { base: self.base, tag: attributes.ptag.0, rights });
    }
}

impl Block {
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Where byte `at` of it lies in its segment.
    pub(crate) fn offset(&self, at: usize) -> usize {
        self.offset + at
    }

    /// Way 2: the first `len_bytes` bytes into the shadow, before a transfer.
    pub(crate) fn copy_in(&self, len_bytes: usize, counters: &Counters) {
        let len_bytes = len_bytes.min(self.len_bytes);
        match self.region.caller.and_then(|caller| caller.part(self.offset, len_bytes)) {
            Some(part) => {
                // SAFETY: whoever registered it promised that it stays readable and is left alone while a transfer uses it.
                let part = unsafe { ReadRange::new(part.address() as *const u8, part.len_bytes()) };
                let shadow = self.region.mapping().target(self.offset, len_bytes);
                copying::copy(&[part], &[shadow.expect("a block is inside its region")]);
                counters.add(Counter::CopiedInBytes, len_bytes as u64);
            }
            None => counters.add(Counter::SparedBytes, len_bytes as u64),
        }
    }

    /// Way 2: the first `len_bytes` bytes out of the shadow, after a transfer.
    pub(crate) fn copy_out(&self, len_bytes: usize, counters: &Counters) {
        let len_bytes = len_bytes.min(self.len_bytes);
        match self.region.caller.and_then(|caller| caller.part(self.offset, len_bytes)) {
            Some(part) => {
                let shadow = self.region.mapping().source(self.offset, len_bytes);
                copying::copy(&[shadow.expect("a block is inside its region")], &[part]);
                counters.add(Counter::CopiedOutBytes, len_bytes as u64);
            }
            None => counters.add(Counter::SparedBytes, len_bytes as u64),
        }
    }
}

/// All registrations of a NIC.
#[derive(Default)]
pub(crate) struct Registry {
    regions: HashMap<MemoryHandle, Arc<Region>>,
    bytes: usize,
}

impl Registry {
    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn insert(&mut self, region: Region) -> MemoryHandle {
        let handle = region.handle();
        self.bytes += region.len_bytes;
        self.regions.insert(handle, Arc::new(region));
        handle
    }

    pub(crate) fn at(&self, handle: MemoryHandle) -> Option<&Arc<Region>> {
        self.regions.get(&handle)
    }

    pub(crate) fn uses(&self, tag: ProtectionTag) -> bool {
        self.regions.values().any(|region| region.attributes().ptag == tag)
    }

    pub(crate) fn find(&self, address: u64, handle: MemoryHandle) -> Option<&Arc<Region>> {
        self.regions.get(&handle).filter(|region| region.base == address)
    }

    /// Takes it away unless a descriptor uses it; `None` if it does.
    pub(crate) fn remove(&mut self, handle: MemoryHandle) -> Option<Arc<Region>> {
        if Arc::strong_count(self.regions.get(&handle)?) > 1 {
            return None;
        }
        let region = self.regions.remove(&handle)?;
        self.bytes -= region.len_bytes;
        Some(region)
    }

    /// The block that a data segment means, for a VI of this tag.
    pub(crate) fn block(&self, segment: &DataSegment, ptag: ProtectionTag) -> Result<Block, Status> {
        let region = self.regions.get(&segment.handle).ok_or(Status::PROTECTION_ERROR)?;
        let len_bytes = segment.len_bytes as usize;
        let offset = segment.address.checked_sub(region.base).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.filter(|offset| offset.checked_add(len_bytes).is_some_and(|end| end <= region.len_bytes));
        match offset {
            Some(offset) if region.attributes().ptag == ptag => {
                Ok(Block { region: Arc::clone(region), offset, len_bytes })
            }
            _ => Err(Status::PROTECTION_ERROR),
        }
    }
}
