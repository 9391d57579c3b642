//! The table of registered memory that a process keeps where its peers can read it.
//!
//! ```text
//!   address | length | rights
//! ```
//! The owner writes; an initiator, playing the adapter, looks up what its key names.

use fabric::{Access, FabricError, Lkey, MemoryRegion, Rkey, SharedMemory};
use lockfree::PublishedTable;

use crate::numbered::{Numbered, split};

/// Regions a process may have registered at once.
pub(super) const REGIONS_MAX: u32 = 1024;
const REMOTE_READ: u64 = 1;
const REMOTE_WRITE: u64 = 2;

/// Bytes of the table in a part.
pub(super) const FOOTPRINT: usize = PublishedTable::footprint(REGIONS_MAX);

/// The owner's side.
pub(super) struct RegionTable {
    keys: Numbered<()>,
    shown: PublishedTable,
}

impl RegionTable {
    pub(super) fn new(memory: SharedMemory) -> Self {
        let shown = PublishedTable::new(memory, REGIONS_MAX);
        Self { keys: Numbered::new("memory regions", REGIONS_MAX), shown }
    }

    pub(super) fn register(&mut self, address: usize, len: usize, access: Access) -> Result<MemoryRegion, FabricError> {
        let key = self.keys.insert(())?;
        let (index, generation) = split(key);
        let right = |granted, right| if granted { right } else { 0 };
        let rights = right(access.remote_read, REMOTE_READ) | right(access.remote_write, REMOTE_WRITE);
        self.shown.publish(index, generation, [address as u64, len as u64, rights]);
        Ok(MemoryRegion { address: address as u64, len_bytes: len as u64, lkey: Lkey(key), rkey: Rkey(key) })
    }

    pub(super) fn deregister(&mut self, rkey: Rkey) {
        if self.keys.remove(rkey.0).is_some() {
            self.shown.withdraw(split(rkey.0).0);
        }
    }
}

/// What the adapter does for an initiator: true if `rkey` allows `len` bytes at `address` of the table's owner.
pub(super) fn check(memory: SharedMemory, rkey: Rkey, address: u64, len: u64, write: bool) -> bool {
    let (index, generation) = split(rkey.0);
    let Some(look) = PublishedTable::new(memory, REGIONS_MAX).look(index, generation) else { return false };
    let [start, total, rights] = look.words;
    let right = if write { REMOTE_WRITE } else { REMOTE_READ };
    rights & right != 0 && address >= start && (address - start).checked_add(len).is_some_and(|end| end <= total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_bounds_and_rights_hold_and_end_with_the_registration() {
        let memory = SharedMemory::private(FOOTPRINT);
        let mut table = RegionTable::new(memory.clone());
        let readable = Access::REMOTE_READ;
        let region = table.register(1000, 100, readable).expect("there is room");
        let cases = [
            (1000, 100, false, true),
            (1050, 50, false, true),
            (1050, 51, false, false),
            (999, 10, false, false),
            (1000, 100, true, false),
            (1000, u64::MAX, false, false),
        ];
        for (address, len, write, expected) in cases {
            assert_eq!(check(memory.clone(), region.rkey, address, len, write), expected, "{address} {len} {write}");
        }
        table.deregister(region.rkey);
        assert!(!check(memory.clone(), region.rkey, 1000, 1, false));
        let next = table.register(1000, 100, readable).expect("there is room");
        assert_ne!(next.rkey, region.rkey);
        table.deregister(region.rkey);
        assert!(check(memory.clone(), next.rkey, 1000, 1, false), "an old key does not end a new registration");
        assert!(!check(memory.clone(), Rkey(u32::MAX), 1000, 1, false));
    }

    #[test]
    fn a_full_table_says_so() {
        let mut table = RegionTable::new(SharedMemory::private(FOOTPRINT));
        let regions: Vec<_> =
            (0..REGIONS_MAX).map(|_| table.register(1, 1, Access::default()).expect("within the limit")).collect();
        assert_eq!(
            table.register(1, 1, Access::default()),
            Err(FabricError::Exhausted { object: "memory regions", max: REGIONS_MAX })
        );
        table.deregister(regions[7].rkey);
        assert!(table.register(1, 1, Access::default()).is_ok());
    }
}
