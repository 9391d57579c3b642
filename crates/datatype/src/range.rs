//! Buffers as ranges of memory, for devices that move bytes themselves.
//!
//! A device must know memory before it moves it, and many blocks are many regions to know. Blocks that lie near each other
//! go into one *group*, with the gaps between them. Paper: datatypes §5.4.1 (Optimistic Group Registration).

use base::memory::{ReadRange, WriteRange};

use crate::buffer::{RecvBuf, SendBuf};
use crate::copy::Segment;

/// Stretches of memory looked up at a time.
const SEGMENTS: usize = 128;

/// A gap shorter than this lies on pages that hold bytes of the blocks beside it.
const PAGE_BYTES: usize = 4096;
/// Blocks of a buffer that are looked at for groups.
const BLOCKS_MAX: usize = 1 << 16;

/// How the blocks of a buffer are put into groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Longest gap inside a group, in bytes.
    pub gap_max_bytes: usize,
    /// Most groups.
    pub groups_max: usize,
}

/// Blocks of a buffer, with the gaps between them.
#[derive(Clone, Copy, Debug)]
pub struct Group<R> {
    /// Where it starts.
    pub address: usize,
    /// Its length in bytes.
    pub len_bytes: usize,
    /// The same as a range; none if it has a gap in which there may be no memory.
    pub range: Option<R>,
}

impl SendBuf {
    /// Groups of the blocks of the first `len_bytes` packed bytes, in order of address; `None` if there are too many.
    pub fn groups(&self, len_bytes: u64, grouping: Grouping) -> Option<Vec<Group<ReadRange>>> {
        let list = |offset_bytes, segments: &mut [Segment]| self.segments_at(offset_bytes, segments);
        let groups = groups(len_bytes, list, grouping)?.into_iter().map(|group| {
            let Group { address, len_bytes, range } = group;
            // SAFETY: as for `range`; between the blocks lie bytes of the same pages, which nobody names in a request.
            let range = range.map(|()| unsafe { ReadRange::new(address as *const u8, len_bytes) });
            Group { address, len_bytes, range }
        });
        Some(groups.collect())
    }

    /// The memory of a buffer that lies in one piece.
    pub fn range(&self) -> Option<ReadRange> {
        let bytes = self.as_contiguous()?;
        // SAFETY: whoever made the buffer promised its memory until the operation that holds it has completed, and a
        // device's work request is over before that.
        Some(unsafe { ReadRange::new(bytes.as_ptr(), bytes.len()) })
    }

    /// The memory of the packed bytes `offset_bytes..offset_bytes + len_bytes`, as far as there are any, in order.
    pub fn ranges_at(&self, offset_bytes: u64, len_bytes: u64) -> Vec<ReadRange> {
        let mut ranges = Vec::new();
        let list = |offset_bytes, segments: &mut [Segment]| self.segments_at(offset_bytes, segments);
        each_segment(offset_bytes, len_bytes, list, |segment| {
            // SAFETY: as for `range`; the layout lists only memory that the maker promised.
            ranges.push(unsafe { ReadRange::new(segment.address as *const u8, segment.len_bytes as usize) });
        });
        ranges
    }
}

impl RecvBuf {
    /// As [`SendBuf::groups`].
    pub fn groups(&mut self, len_bytes: u64, grouping: Grouping) -> Option<Vec<Group<WriteRange>>> {
        let list = |offset_bytes, segments: &mut [Segment]| self.segments_at(offset_bytes, segments);
        let groups = groups(len_bytes, list, grouping)?.into_iter().map(|group| {
            let Group { address, len_bytes, range } = group;
            // SAFETY: as for `SendBuf::groups`.
            let range = range.map(|()| unsafe { WriteRange::new(address as *mut u8, len_bytes) });
            Group { address, len_bytes, range }
        });
        Some(groups.collect())
    }

    /// The memory of a buffer that lies in one piece.
    pub fn range(&mut self) -> Option<WriteRange> {
        let bytes = self.contiguous_mut()?;
        // SAFETY: as for `SendBuf::range`.
        Some(unsafe { WriteRange::new(bytes.as_mut_ptr(), bytes.len()) })
    }

    /// Another process may have written the first `len_bytes` packed bytes, of which a tool that watches this one knows
    /// nothing.
    #[inline]
    pub fn written_by_others(&mut self, len_bytes: u64) {
        if base::watched::is_watched() {
            let len_bytes = len_bytes.min(self.len_bytes());
            self.ranges_at(0, len_bytes).into_iter().for_each(base::watched::written_by_others);
        }
    }

    /// The memory of the packed bytes `offset_bytes..offset_bytes + len_bytes`, as far as there are any, in order.
    pub fn ranges_at(&mut self, offset_bytes: u64, len_bytes: u64) -> Vec<WriteRange> {
        let mut ranges = Vec::new();
        let list = |offset_bytes, segments: &mut [Segment]| self.segments_at(offset_bytes, segments);
        each_segment(offset_bytes, len_bytes, list, |segment| {
            // SAFETY: as for `SendBuf::range`; the layout lists only memory that the maker promised.
            ranges.push(unsafe { WriteRange::new(segment.address as *mut u8, segment.len_bytes as usize) });
        });
        ranges
    }
}

/// Hands on the segments that `list` finds, up to `len_bytes` bytes of them.
fn each_segment(
    mut offset_bytes: u64,
    len_bytes: u64,
    list: impl Fn(u64, &mut [Segment]) -> usize,
    mut take: impl FnMut(Segment),
) {
    let mut left = len_bytes;
    let mut segments = [Segment::default(); SEGMENTS];
    while left > 0 {
        let used = list(offset_bytes, &mut segments);
        if used == 0 {
            return;
        }
        for segment in &segments[..used] {
            let len_bytes = segment.len_bytes.min(left);
            if len_bytes == 0 {
                return;
            }
            take(Segment { address: segment.address, len_bytes });
            left -= len_bytes;
            offset_bytes += len_bytes;
        }
    }
}

/// The blocks that `list` finds in the first `len_bytes` bytes, in groups; those with gaps of a page or more are not marked
/// as ranges.
fn groups(len_bytes: u64, list: impl Fn(u64, &mut [Segment]) -> usize, grouping: Grouping) -> Option<Vec<Group<()>>> {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    each_segment(0, len_bytes, list, |segment| {
        let end = segment.address + segment.len_bytes as usize;
        let too_many = blocks.len() > BLOCKS_MAX;
        if let Some(last) = blocks.last_mut().filter(|last| too_many || last.1 == segment.address) {
            last.1 = end;
        } else {
            blocks.push((segment.address, end));
        }
    });
    if blocks.len() > BLOCKS_MAX {
        return None;
    }
    if !blocks.is_sorted() {
        blocks.sort_unstable();
    }
    let mut groups: Vec<Group<()>> = Vec::new();
    for (start, end) in blocks {
        if let Some(last) = groups.last_mut() {
            let gap = start.saturating_sub(last.address + last.len_bytes);
            if gap <= grouping.gap_max_bytes {
                last.len_bytes = last.len_bytes.max(end - last.address);
                last.range = last.range.filter(|()| gap < PAGE_BYTES);
                continue;
            }
        }
        if groups.len() == grouping.groups_max {
            return None;
        }
        groups.push(Group { address: start, len_bytes: end - start, range: Some(()) });
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Basic, Datatype, Scratch};

    fn columns(rows: i64, ints: i64, stride: i64) -> Arc<Datatype> {
        Datatype::vector(rows, ints, stride, &Datatype::predefined(Basic::Int)).expect("small")
    }

    fn check(datatype: &Arc<Datatype>, count: u64, grouping: Grouping, expected: Option<(usize, bool)>) {
        let mut scratch = Scratch::new(count, datatype).expect("memory");
        let len_bytes = scratch.send().len_bytes();
        let blocks = scratch.send().ranges_at(0, len_bytes);
        let found = scratch.recv().groups(len_bytes, grouping);
        let groups = scratch.send().groups(len_bytes, grouping);
        let outcome = groups.as_ref().map(|groups| (groups.len(), groups.iter().all(|group| group.range.is_some())));
        assert_eq!(outcome, expected, "{datatype:?} {grouping:?}");
        let Some(groups) = groups else { return assert!(found.is_none()) };
        assert_eq!(found.expect("the same").len(), groups.len());
        for block in blocks {
            let covers = |group: &&Group<ReadRange>| {
                group.address <= block.address()
                    && block.address() + block.len_bytes() <= group.address + group.len_bytes
            };
            assert_eq!(groups.iter().filter(covers).count(), 1, "each block lies in one group");
        }
        assert!(groups.windows(2).all(|pair| pair[0].address + pair[0].len_bytes < pair[1].address), "in order, apart");
    }

    #[test]
    fn blocks_with_small_gaps_are_one_group_and_large_gaps_part_them() {
        let grouping = |gap_max_bytes, groups_max| Grouping { gap_max_bytes, groups_max };
        let near = columns(16, 4, 8);
        check(&near, 1, grouping(16, 1), Some((1, true)));
        check(&near, 1, grouping(15, 16), Some((16, true)));
        check(&near, 1, grouping(15, 15), None);
        // The last block of an element and the first of the next lie beside each other.
        check(&near, 3, grouping(0, 100), Some((46, true)));
        let far = columns(4, 1024, 4096);
        check(&far, 1, grouping(4095, 8), Some((4, true)));
        check(&far, 1, grouping(1 << 20, 8), Some((1, false)));
        check(&columns(8, 2, -5), 2, grouping(12, 2), Some((1, true)));
        check(&columns(8, 2, -5), 1, grouping(11, 8), Some((8, true)));
    }
}
