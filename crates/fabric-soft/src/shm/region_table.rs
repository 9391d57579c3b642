//! The table of registered memory that a process keeps where its peers can read it.
//!
//! ```text
//!   entry = state | address | length | unused          4 words
//!   state = generation:32 | rights:8, 0 when free      rkey = generation:20 | index:12
//! ```
//! The owner writes; an initiator, playing the adapter, reads an entry between two loads of its state and believes
//! it only if they agree.

use base::sync::{Ordering, fence};
use fabric::{Access, FabricError, Lkey, MemoryRegion, Rkey, SharedMemory};

const ENTRIES: usize = 1024;
const ENTRY_BYTES: usize = 32;
const INDEX_BITS: u32 = 12;
const GENERATION_MASK: u32 = (1 << 20) - 1;
const REMOTE_READ: u64 = 1;
const REMOTE_WRITE: u64 = 2;
const LIVE: u64 = 4;

/// Bytes of the table in a part.
pub(super) const FOOTPRINT: usize = ENTRIES * ENTRY_BYTES;
/// Regions a process may have registered at once.
pub(super) const REGIONS_MAX: u32 = ENTRIES as u32;

/// The owner's side.
pub(super) struct RegionTable {
    memory: SharedMemory,
    free: Vec<u16>,
    generations: Vec<u32>,
}

impl RegionTable {
    pub(super) fn new(memory: SharedMemory) -> Self {
        Self { memory, free: (0..ENTRIES as u16).rev().collect(), generations: vec![0; ENTRIES] }
    }

    pub(super) fn register(&mut self, address: usize, len: usize, access: Access) -> Result<MemoryRegion, FabricError> {
        let index = self.free.pop().ok_or(FabricError::Exhausted { object: "memory regions", max: REGIONS_MAX })?;
        let generation = (self.generations[usize::from(index)] + 1) & GENERATION_MASK;
        self.generations[usize::from(index)] = generation;
        let offset = usize::from(index) * ENTRY_BYTES;
        let rights = LIVE
            | if access.remote_read { REMOTE_READ } else { 0 }
            | if access.remote_write { REMOTE_WRITE } else { 0 };
        self.memory.word(offset + 8).store(address as u64, Ordering::Relaxed);
        self.memory.word(offset + 16).store(len as u64, Ordering::Relaxed);
        // Release: whoever sees the state sees address and length. Pairs with the first load in `check`.
        self.memory.word(offset).store(u64::from(generation) << 32 | rights, Ordering::Release);
        let key = generation << INDEX_BITS | u32::from(index);
        Ok(MemoryRegion { address: address as u64, len_bytes: len as u64, lkey: Lkey(key), rkey: Rkey(key) })
    }

    pub(super) fn deregister(&mut self, rkey: Rkey) {
        let index = rkey.0 & ((1 << INDEX_BITS) - 1);
        let live = self.generations.get(index as usize).is_some_and(|generation| *generation == rkey.0 >> INDEX_BITS);
        let state = self.memory.word((index as usize % ENTRIES) * ENTRY_BYTES);
        if live && state.load(Ordering::Relaxed) != 0 {
            state.store(0, Ordering::Release);
            fence(Ordering::SeqCst);
            self.free.push(index as u16);
        }
    }
}

/// What the adapter does for an initiator: true if `rkey` allows `len` bytes at `address` of the table's owner.
pub(super) fn check(table: &SharedMemory, rkey: Rkey, address: u64, len: u64, write: bool) -> bool {
    let index = (rkey.0 & ((1 << INDEX_BITS) - 1)) as usize;
    if index >= ENTRIES {
        return false;
    }
    let offset = index * ENTRY_BYTES;
    let state = table.word(offset).load(Ordering::Acquire);
    let start = table.word(offset + 8).load(Ordering::Relaxed);
    let total = table.word(offset + 16).load(Ordering::Relaxed);
    // The loads above are done before the state is looked at again.
    fence(Ordering::Acquire);
    let right = if write { REMOTE_WRITE } else { REMOTE_READ };
    state == table.word(offset).load(Ordering::Relaxed)
        && state & LIVE != 0
        && state & right != 0
        && (state >> 32) as u32 == rkey.0 >> INDEX_BITS
        && address >= start
        && (address - start).checked_add(len).is_some_and(|end| end <= total)
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
            assert_eq!(check(&memory, region.rkey, address, len, write), expected, "{address} {len} {write}");
        }
        table.deregister(region.rkey);
        assert!(!check(&memory, region.rkey, 1000, 1, false));
        let next = table.register(1000, 100, readable).expect("there is room");
        assert_ne!(next.rkey, region.rkey);
        table.deregister(region.rkey);
        assert!(check(&memory, next.rkey, 1000, 1, false), "an old key does not end a new registration");
        assert!(!check(&memory, Rkey(u32::MAX), 1000, 1, false));
    }

    #[test]
    fn a_full_table_says_so() {
        let mut table = RegionTable::new(SharedMemory::private(FOOTPRINT));
        let regions: Vec<_> =
            (0..ENTRIES).map(|_| table.register(1, 1, Access::default()).expect("within the limit")).collect();
        assert_eq!(
            table.register(1, 1, Access::default()),
            Err(FabricError::Exhausted { object: "memory regions", max: REGIONS_MAX })
        );
        table.deregister(regions[7].rkey);
        assert!(table.register(1, 1, Access::default()).is_ok());
    }
}
