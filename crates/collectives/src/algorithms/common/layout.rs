//! Blocks of a caller's buffer, one per peer, however they were described.

use crate::data::{Data, Part, Vector};
use crate::schedule::{BufferId, Region, TypeSlot};

/// The blocks of the send or the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'a> {
    buffer: BufferId,
    blocks: Blocks<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Blocks<'a> {
    Even(&'a Data),
    Listed(&'a Vector),
    Typed(&'a [Part]),
}

impl<'a> Layout<'a> {
    /// Equal blocks, one after the other.
    pub(crate) fn even(buffer: BufferId, block: &'a Data) -> Layout<'a> {
        Layout { buffer, blocks: Blocks::Even(block) }
    }

    /// Blocks of one type, each with its count and place.
    pub(crate) fn listed(buffer: BufferId, blocks: &'a Vector) -> Layout<'a> {
        Layout { buffer, blocks: Blocks::Listed(blocks) }
    }

    /// Blocks each with its own type.
    pub(crate) fn typed(buffer: BufferId, blocks: &'a [Part]) -> Layout<'a> {
        Layout { buffer, blocks: Blocks::Typed(blocks) }
    }

    /// One block.
    pub(crate) fn block(&self, index: u32) -> Region {
        match self.blocks {
            Blocks::Even(block) => block.blocks(self.buffer, self.slot(index), index, 1),
            Blocks::Listed(blocks) => blocks.block(self.buffer, self.slot(index), index),
            Blocks::Typed(parts) => parts[index as usize].region(self.buffer, self.slot(index)),
        }
    }

    /// Packed size of one block.
    pub(crate) fn len_bytes(&self, index: u32) -> u64 {
        match self.blocks {
            Blocks::Even(block) => block.len_bytes(),
            Blocks::Listed(blocks) => blocks.block_len_bytes(index),
            Blocks::Typed(parts) => parts[index as usize].len_bytes(),
        }
    }

    /// Blocks `from..to` as one region, where they follow each other.
    pub(crate) fn run(&self, from: u32, to: u32) -> Option<Region> {
        match self.blocks {
            Blocks::Even(block) => Some(block.blocks(self.buffer, self.slot(from), from, to - from)),
            Blocks::Listed(blocks) => blocks.run(self.buffer, self.slot(from), from, to),
            Blocks::Typed(_) => (to == from + 1).then(|| self.block(from)),
        }
    }

    fn slot(&self, index: u32) -> TypeSlot {
        match (self.blocks, self.buffer) {
            (Blocks::Typed(_), BufferId::Send) => TypeSlot::PerPeerSend(index),
            (Blocks::Typed(_), _) => TypeSlot::PerPeerRecv(index),
            (_, BufferId::Send) => TypeSlot::Send,
            (_, _) => TypeSlot::Recv,
        }
    }
}
