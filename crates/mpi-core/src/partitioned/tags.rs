//! Ranges of tags that a process hands out for messages on their way to it.
//!
//! A tag names a message only together with its sender and its context, so what one process hands out
//! need differ from its own handing out only.

use std::collections::BTreeMap;

use crate::constants::TAG_UB;

/// Tags above all others belong to the pool; on the collective context nobody else uses them.
const FIRST: i32 = 3 << 29;
/// Number of tags of the pool.
const COUNT: u32 = TAG_UB as u32 + 1;

/// The tags of one process that are not in use.
#[derive(Debug)]
pub(crate) struct TagPool {
    /// Length of each free range by its first number; no two of them touch.
    free: BTreeMap<u32, u32>,
}

impl Default for TagPool {
    fn default() -> Self {
        TagPool { free: BTreeMap::from([(0, COUNT)]) }
    }
}

impl TagPool {
    /// The first of `count` consecutive tags; `None` if there are not that many in a row.
    pub fn take(&mut self, count: u32) -> Option<i32> {
        if count == 0 {
            return Some(FIRST);
        }
        let (start, len) = self.free.iter().find(|(_, len)| **len >= count).map(|(start, len)| (*start, *len))?;
        self.free.remove(&start);
        if len > count {
            self.free.insert(start + count, len - count);
        }
        Some(FIRST + start as i32)
    }

    /// Takes tags back that [`TagPool::take`] has given.
    pub fn give_back(&mut self, first: i32, count: u32) {
        if count == 0 {
            return;
        }
        let (mut start, mut len) = ((first - FIRST) as u32, count);
        if let Some(after) = self.free.remove(&(start + len)) {
            len += after;
        }
        if let Some((before, before_len)) = self.free.range(..start).next_back().map(|(start, len)| (*start, *len))
            && before + before_len == start
        {
            (start, len) = (before, before_len + len);
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_use_never_overlap_and_all_come_back() {
        let mut pool = TagPool::default();
        let mut held: Vec<(i32, u32)> = Vec::new();
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        for _ in 0..2000 {
            if random() % 3 > 0 {
                let count = random() % 9;
                let first = pool.take(count).unwrap();
                let overlaps = |(other, len): &(i32, u32)| first < other + *len as i32 && *other < first + count as i32;
                assert!(count == 0 || !held.iter().any(overlaps), "{first} {count} {held:?}");
                held.push((first, count));
            } else if !held.is_empty() {
                let (first, count) = held.swap_remove(random() as usize % held.len());
                pool.give_back(first, count);
            }
        }
        held.into_iter().for_each(|(first, count)| pool.give_back(first, count));
        assert_eq!(pool.free, BTreeMap::from([(0, COUNT)]));
    }

    #[test]
    fn the_pool_ends_where_tags_end() {
        let mut pool = TagPool::default();
        assert_eq!(pool.take(COUNT + 1), None);
        assert_eq!(pool.take(COUNT), Some(FIRST));
        assert_eq!(i64::from(FIRST) + i64::from(COUNT) - 1, i64::from(i32::MAX));
        assert_eq!(pool.take(1), None);
    }
}
