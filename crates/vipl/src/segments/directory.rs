//! The directory of a node: which segments it publishes, in memory that its peers map.
//!
//! An entry is 64 bytes: number, descriptor and rights, length, address, tag, version. Its owner alone writes it, and never
//! reads it back. A number of 0 says that nothing is published there. The version is odd while the entry is written, and a
//! reader looks at it before and after: an entry that is published again has the same number.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use lockfree::SharedMemory;

use super::{SEGMENTS_MAX, SegmentError};

const ENTRY_BYTES: usize = 64;
/// Which word of an entry.
const VERSION: usize = 5;
const INDEX_BITS: u32 = SEGMENTS_MAX.trailing_zeros();

/// What others may do with a segment; kept by whoever reads or writes, as memory that is shared protects nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rights {
    /// RDMA writes.
    pub write: bool,
    /// RDMA reads.
    pub read: bool,
    /// It shadows memory of its owner, who must copy before a read and after a write.
    pub shadow: bool,
}

/// What a node says of a segment that it publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Published {
    /// The address that its first byte has for its owner.
    pub base: u64,
    /// The number of its protection tag.
    pub tag: u64,
    /// What others may do.
    pub rights: Rights,
}

impl Rights {
    fn bits(self) -> u64 {
        u64::from(self.write) | u64::from(self.read) << 1 | u64::from(self.shadow) << 2
    }

    fn of_bits(bits: u64) -> Self {
        Self { write: bits & 1 != 0, read: bits & 2 != 0, shadow: bits & 4 != 0 }
    }
}

/// The owner's side.
pub struct Directory {
    memory: SharedMemory,
    /// By place: the number that the segment there has, or the last one had.
    numbers: Vec<(u32, bool)>,
    /// By place, even: how often something was published there, twice.
    versions: Vec<u64>,
    free: VecDeque<usize>,
}

impl Directory {
    pub const FOOTPRINT: usize = SEGMENTS_MAX * ENTRY_BYTES;

    pub fn new(memory: SharedMemory) -> Self {
        let numbers = (0..SEGMENTS_MAX as u32).map(|place| (place, false)).collect();
        Self { memory, numbers, versions: vec![0; SEGMENTS_MAX], free: (0..SEGMENTS_MAX).collect() }
    }

    /// A number for a segment, not 0: its place and behind it how often the place was used.
    pub fn reserve(&mut self) -> Result<u32, SegmentError> {
        let full = SegmentError::BeyondLimit { what: "segments", asked: SEGMENTS_MAX + 1, max: SEGMENTS_MAX };
        let place = self.free.pop_front().ok_or(full)?;
        let (number, in_use) = &mut self.numbers[place];
        *number = number.wrapping_add(1 << INDEX_BITS);
        if *number >> INDEX_BITS == 0 {
            *number = number.wrapping_add(1 << INDEX_BITS);
        }
        *in_use = true;
        Ok(*number)
    }

    pub fn publish(&mut self, id: u32, descriptor: u32, len_bytes: usize, published: &Published) {
        let place = self.place(id);
        let version = &mut self.versions[place];
        *version += 2;
        let version = *version;
        self.word(place, VERSION).store(version - 1, Relaxed);
        // What follows must not be seen before the odd version by who checks it afterwards.
        fence(Release);
        let words =
            [u64::from(descriptor) | published.rights.bits() << 32, len_bytes as u64, published.base, published.tag];
        for (index, word) in words.into_iter().enumerate() {
            self.word(place, index + 1).store(word, Relaxed);
        }
        self.word(place, 0).store(id.into(), Relaxed);
        self.word(place, VERSION).store(version, Release);
    }

    pub fn withdraw(&mut self, id: u32) {
        self.word(self.place(id), 0).store(0, Release);
    }

    /// Withdraws it, and its place may be another's.
    pub fn release(&mut self, id: u32) {
        self.withdraw(id);
        let place = self.place(id);
        self.numbers[place].1 = false;
        self.free.push_back(place);
    }

    fn place(&self, id: u32) -> usize {
        let place = id as usize % SEGMENTS_MAX;
        assert_eq!(self.numbers[place], (id, true), "a segment has its number until it is dropped");
        place
    }

    fn word(&self, place: usize, index: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(place * ENTRY_BYTES + index * 8)
    }
}

/// How often a look is begun again while the owner writes the entry; one that always does is as one that publishes nothing.
const LOOKS_MAX: usize = 1000;

/// The descriptor, the length and the rest of what a peer's directory says of a segment; nothing of it is checked.
pub fn look(directory: &SharedMemory, id: u32) -> Option<(u32, usize, Published)> {
    let found = (0..LOOKS_MAX).find_map(|_| look_once(directory, id, || {}));
    let [first, len, base, tag] = found??;
    let published = Published { base, tag, rights: Rights::of_bits(first >> 32) };
    Some((first as u32, usize::try_from(len).ok()?, published))
}

/// The words of an entry, or that it is another's; `None` if it was written meanwhile. `meanwhile` is what a test does then.
fn look_once(directory: &SharedMemory, id: u32, meanwhile: impl FnOnce()) -> Option<Option<[u64; 4]>> {
    let place = id as usize % SEGMENTS_MAX;
    let word = |index: usize| directory.word(place * ENTRY_BYTES + index * 8);
    let version = word(VERSION).load(Acquire);
    if id == 0 || word(0).load(Relaxed) != u64::from(id) {
        return Some(None);
    }
    let first = word(1).load(Relaxed);
    meanwhile();
    let [len, base, tag] = [2, 3, 4].map(|index| word(index).load(Relaxed));
    // Pairs with the fence in `publish`.
    fence(Acquire);
    let is_whole = version.is_multiple_of(2) && word(VERSION).load(Relaxed) == version;
    is_whole.then_some(Some([first, len, base, tag]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_last_and_under_other_numbers() {
        let mut directory = Directory::new(SharedMemory::private(Directory::FOOTPRINT));
        let first = directory.reserve().unwrap();
        directory.release(first);
        let all: Vec<u32> = (0..SEGMENTS_MAX).map(|_| directory.reserve().unwrap()).collect();
        assert!(!all.contains(&first) && !all.contains(&0));
        assert!(matches!(directory.reserve(), Err(SegmentError::BeyondLimit { .. })));
        assert_eq!(all.last().map(|id| id % SEGMENTS_MAX as u32), Some(first % SEGMENTS_MAX as u32));
    }

    #[test]
    fn what_is_published_again_is_seen_as_it_was_or_as_it_is() {
        let memory = SharedMemory::private(Directory::FOOTPRINT);
        let mut directory = Directory::new(memory.clone());
        let id = directory.reserve().unwrap();
        let rights = Rights { write: true, ..Rights::default() };
        directory.publish(id, 9, 100, &Published { base: 1 << 40, tag: 1, rights });
        let found = look_once(&memory, id, || {
            directory.publish(id, 9, 100, &Published { base: 1 << 40, tag: 2, rights: Rights::default() });
        });
        assert_eq!(found, None, "the old rights with the new tag");
        assert_eq!(look(&memory, id).unwrap().2.tag, 2);
    }

    #[test]
    fn who_looks_sees_what_was_published_last() {
        let memory = SharedMemory::private(Directory::FOOTPRINT);
        let mut directory = Directory::new(memory.clone());
        let id = directory.reserve().unwrap();
        assert_eq!(look(&memory, id), None);
        let mut published = Published { base: 1 << 40, tag: 3, rights: Rights { read: true, ..Rights::default() } };
        for tag in 0..3 {
            published.tag = tag;
            directory.publish(id, 9, 100, &published);
            assert_eq!(look(&memory, id), Some((9, 100, published)));
        }
        assert_eq!(look(&memory, id ^ 1 << INDEX_BITS), None);
        directory.withdraw(id);
        assert_eq!(look(&memory, id), None);
        assert_eq!(look(&memory, 0), None);
    }
}
