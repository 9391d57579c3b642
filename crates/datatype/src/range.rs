//! Buffers as ranges of memory, for devices that move bytes themselves.

use base::memory::{ReadRange, WriteRange};

use crate::buffer::{RecvBuf, SendBuf};
use crate::copy::Segment;

/// Stretches of memory looked up at a time.
const SEGMENTS: usize = 128;

impl SendBuf {
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
    /// The memory of a buffer that lies in one piece.
    pub fn range(&mut self) -> Option<WriteRange> {
        let bytes = self.contiguous_mut()?;
        // SAFETY: as for `SendBuf::range`.
        Some(unsafe { WriteRange::new(bytes.as_mut_ptr(), bytes.len()) })
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
