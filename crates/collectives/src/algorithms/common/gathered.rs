//! Blocks of all ranks in one piece, so that several travel in one message.

use crate::algorithms::common::layout::Layout;
use crate::builder::Builder;
use crate::schedule::{BufferId, Region};

/// Where blocks are collected: the receive buffer if they follow each other there, packed
/// temporary memory otherwise. Both have the same size, so ranks may differ in this.
pub(crate) struct Gathered<'a> {
    layout: Layout<'a>,
    packed: Option<BufferId>,
    /// Packed offsets of the blocks, and the end.
    offsets: Vec<u64>,
}

impl<'a> Gathered<'a> {
    /// Chooses the place, and puts this rank's block there. `own` is none if it is in place already.
    pub(crate) fn open(b: &mut Builder, layout: Layout<'a>, own: Option<Region>) -> Gathered<'a> {
        let mut offsets = vec![0];
        for index in 0..b.size() {
            offsets.push(offsets[index as usize] + layout.len_bytes(index));
        }
        let adjacent = layout.run(0, b.size()).is_some();
        let packed = (!adjacent).then(|| b.temp_bytes(offsets[b.size() as usize]));
        let gathered = Gathered { layout, packed, offsets };
        let block = gathered.run(b.rank(), b.rank() + 1);
        b.copy(own.unwrap_or(layout.block(b.rank())), block);
        gathered
    }

    /// Blocks `from..to`.
    pub(crate) fn run(&self, from: u32, to: u32) -> Region {
        match self.packed {
            Some(buffer) => {
                let (first, end) = (self.offsets[from as usize], self.offsets[to as usize]);
                Region::bytes(buffer, first, end - first)
            }
            None => self.layout.run(from, to).expect("all blocks follow each other"),
        }
    }

    /// Packed size of the block of one rank.
    pub(crate) fn len_bytes(&self, index: u32) -> u64 {
        self.layout.len_bytes(index)
    }

    /// Brings all blocks to the receive buffer.
    pub(crate) fn close(&self, b: &mut Builder) {
        if self.packed.is_some() {
            for index in 0..b.size() {
                b.copy(self.run(index, index + 1), self.layout.block(index));
            }
        }
    }
}
