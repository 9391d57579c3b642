//! Registered memory: keys to ranges, with bounds and rights.

use base::memory::{ReadRange, WriteRange};
use base::sync::AtomicU64;
use fabric::{Access, FabricError, Lkey, LocalMemory, MemoryRegion, Rkey, ScatterGather, SharedMemory};
use smallvec::{SmallVec, smallvec};

use crate::numbered::Numbered;

/// Memory regions of one adapter, at most.
pub(super) const REGIONS_MAX: u32 = 1 << 12;

/// Local memory to gather from.
pub(super) type Sources = SmallVec<[ReadRange; 4]>;
/// Local memory to scatter into.
pub(super) type Targets = SmallVec<[WriteRange; 4]>;

pub(super) struct Region {
    pub(super) memory: LocalMemory,
    pub(super) access: Access,
    pub(super) domain: u32,
    /// Receives and sends on the board that name it, and have not ended there, at most.
    on_board: u32,
    /// Keeps memory of the adapter's own alive.
    _keep: Option<SharedMemory>,
}

/// One use of a region by a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteUse {
    pub(super) domain: u32,
    pub(super) rkey: u32,
    pub(super) address: u64,
    pub(super) len_bytes: u64,
}

/// All regions; lkey and rkey are both the region's number.
pub(super) struct Regions {
    table: Numbered<Region>,
}

impl Regions {
    pub(super) const fn new() -> Self {
        Self { table: Numbered::new("memory regions", REGIONS_MAX) }
    }

    pub(super) fn register(
        &mut self,
        domain: u32,
        memory: LocalMemory,
        access: Access,
        keep: Option<SharedMemory>,
    ) -> Result<MemoryRegion, FabricError> {
        if access.changes() && matches!(memory, LocalMemory::Source(_)) {
            let reason = "peers cannot be allowed to change memory that is only read";
            return Err(FabricError::InvalidRequest { operation: "register", reason });
        }
        if matches!(memory, LocalMemory::Span { .. }) {
            let reason = "this processor copies unchecked, and the memory between blocks was not promised";
            return Err(FabricError::Unsupported { operation: "register", reason });
        }
        let key = self.table.insert(Region { memory, access, domain, on_board: 0, _keep: keep })?;
        Ok(MemoryRegion {
            address: memory.address() as u64,
            len_bytes: memory.len_bytes() as u64,
            lkey: Lkey(key),
            rkey: Rkey(key),
        })
    }

    pub(super) fn remove(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        self.table.remove(lkey.0).ok_or(FabricError::NoSuch("memory region"))
    }

    /// Something on the board names these pieces of memory, once more.
    pub(super) fn board(&mut self, list: &[ScatterGather]) {
        for entry in list {
            if let Some(region) = self.table.get_mut(entry.lkey.0) {
                region.on_board = region.on_board.saturating_add(1);
            }
        }
    }

    /// Something that [`Regions::board`] was told of has ended.
    pub(super) fn leave_board(&mut self, list: &[ScatterGather]) {
        for entry in list {
            // A count that came to its end stays there: too many is safe, too few is not.
            if let Some(region) = self.table.get_mut(entry.lkey.0).filter(|region| region.on_board < u32::MAX) {
                region.on_board = region.on_board.saturating_sub(1);
            }
        }
    }

    /// False if nothing on the board names this memory.
    pub(super) fn may_be_on_board(&self, lkey: Lkey) -> bool {
        self.table.get(lkey.0).is_some_and(|region| region.on_board > 0)
    }

    pub(super) fn is_used(&self, domain: u32) -> bool {
        self.table.iter().any(|(_, region)| region.domain == domain)
    }

    /// The bytes a list names, to be read; `None` if a key, a bound or the domain is wrong.
    #[inline]
    pub(super) fn sources(&self, domain: u32, list: &[ScatterGather]) -> Option<Sources> {
        if let [entry] = list {
            // The usual case.
            return self.source(domain, entry).map(|source| smallvec![source]);
        }
        list.iter().map(|entry| self.source(domain, entry)).collect()
    }

    /// The bytes of one entry of a list, to be read.
    #[inline]
    pub(super) fn source(&self, domain: u32, entry: &ScatterGather) -> Option<ReadRange> {
        self.range(domain, entry.lkey.0, entry.address, entry.len_bytes.into())
    }

    /// The bytes a list names, to be written.
    #[inline]
    pub(super) fn targets(&self, domain: u32, list: &[ScatterGather]) -> Option<Targets> {
        if let [entry] = list {
            return self.target(domain, entry).map(|target| smallvec![target]);
        }
        list.iter().map(|entry| self.target(domain, entry)).collect()
    }

    /// The bytes of one entry of a list, to be written.
    #[inline]
    pub(super) fn target(&self, domain: u32, entry: &ScatterGather) -> Option<WriteRange> {
        let region = self.table.get(entry.lkey.0).filter(|region| region.domain == domain)?;
        target(region, entry.address, entry.len_bytes.into())
    }

    /// What a peer wants to read.
    pub(super) fn remote_source(&self, wanted: RemoteUse) -> Option<ReadRange> {
        self.table.get(wanted.rkey).filter(|region| region.access.remote_read)?;
        self.range(wanted.domain, wanted.rkey, wanted.address, wanted.len_bytes)
    }

    /// What a peer wants to write.
    pub(super) fn remote_target(&self, wanted: RemoteUse) -> Option<WriteRange> {
        let region = self.table.get(wanted.rkey)?;
        let allowed = region.access.remote_write && region.domain == wanted.domain;
        if allowed { target(region, wanted.address, wanted.len_bytes) } else { None }
    }

    /// What a peer wants to change atomically; the address is aligned.
    pub(super) fn remote_word(&self, wanted: RemoteUse) -> Option<&AtomicU64> {
        let region = self.table.get(wanted.rkey)?;
        if !region.access.remote_atomic || region.domain != wanted.domain || !wanted.address.is_multiple_of(8) {
            return None;
        }
        let range = target(region, wanted.address, 8)?;
        // SAFETY: 8 aligned bytes inside a registered region, which lives as long as the table holds it, and whose
        // owner expects peers to change them at any moment.
        Some(unsafe { &*(range.address() as *const AtomicU64) })
    }

    #[inline]
    fn range(&self, domain: u32, key: u32, address: u64, len: u64) -> Option<ReadRange> {
        let region = self.table.get(key).filter(|region| region.domain == domain)?;
        let (offset, len) = inside(region, address, len)?;
        match region.memory {
            LocalMemory::Source(range) => range.part(offset, len),
            LocalMemory::Span { .. } => None,
            LocalMemory::Target(range) => {
                let part = range.part(offset, len)?;
                // SAFETY: registered memory is valid until it is deregistered, and writable memory is readable.
                Some(unsafe { ReadRange::new(part.address() as *const u8, len) })
            }
        }
    }
}

#[inline]
fn target(region: &Region, address: u64, len: u64) -> Option<WriteRange> {
    let (offset, len) = inside(region, address, len)?;
    match region.memory {
        LocalMemory::Source(_) | LocalMemory::Span { .. } => None,
        LocalMemory::Target(range) => range.part(offset, len),
    }
}

/// Offset and length in the region; `part` checks the end.
#[inline]
fn inside(region: &Region, address: u64, len: u64) -> Option<(usize, usize)> {
    let offset = address.checked_sub(region.memory.address() as u64)?;
    Some((usize::try_from(offset).ok()?, usize::try_from(len).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_bounds_rights_and_domains_hold() {
        let mut memory = [0u64; 4];
        let address = memory.as_mut_ptr() as u64;
        // SAFETY: `memory` outlives the table.
        let range = unsafe { WriteRange::new(memory.as_mut_ptr().cast(), 32) };
        let mut regions = Regions::new();
        let all = regions.register(1, LocalMemory::Target(range), Access::REMOTE_ALL, None).unwrap();
        let wanted = |offset: u64, len_bytes| RemoteUse {
            domain: 1,
            rkey: all.rkey.0,
            address: address.wrapping_add(offset),
            len_bytes,
        };
        for (name, used, expected) in [
            ("all of it", wanted(0, 32), true),
            ("nothing at its end", wanted(32, 0), true),
            ("past the end", wanted(25, 8), false),
            ("before it", wanted(u64::MAX, 8), false),
            ("a length that wraps", wanted(8, u64::MAX), false),
            ("another domain", RemoteUse { domain: 2, ..wanted(0, 8) }, false),
            ("another key", RemoteUse { rkey: all.rkey.0 ^ 1, ..wanted(0, 8) }, false),
        ] {
            assert_eq!(regions.remote_source(used).is_some(), expected, "read {name}");
            assert_eq!(regions.remote_target(used).is_some(), expected, "write {name}");
        }
        assert!(regions.remote_word(wanted(24, 8)).is_some() && regions.remote_word(wanted(28, 8)).is_none());
        assert!(regions.remote_word(wanted(4, 8)).is_none(), "not aligned");
        let read = regions.register(1, LocalMemory::Target(range), Access::REMOTE_READ, None).unwrap();
        let read = RemoteUse { rkey: read.rkey.0, ..wanted(0, 8) };
        assert!(regions.remote_source(read).is_some());
        assert!(regions.remote_target(read).is_none() && regions.remote_word(read).is_none());
        assert!(regions.targets(1, &[all.part(0, 32), all.part(8, 8)]).is_some());
        assert!(regions.targets(1, &[all.part(0, 32), all.part(8, 25)]).is_none());
        regions.remove(all.lkey).unwrap();
        assert!(regions.sources(1, &[all.part(0, 1)]).is_none(), "gone");
        assert!(regions.remove(all.lkey).is_err());
    }

    #[test]
    fn memory_that_is_only_read_cannot_be_written_by_anybody() {
        let memory = [0u8; 8];
        // SAFETY: `memory` outlives the table.
        let source = LocalMemory::Source(unsafe { ReadRange::new(memory.as_ptr(), 8) });
        let mut regions = Regions::new();
        assert!(regions.register(1, source, Access::REMOTE_WRITE, None).is_err());
        let region = regions.register(1, source, Access::REMOTE_READ, None).unwrap();
        assert!(regions.sources(1, &[region.part(0, 8)]).is_some());
        assert!(regions.targets(1, &[region.part(0, 8)]).is_none());
    }
}
