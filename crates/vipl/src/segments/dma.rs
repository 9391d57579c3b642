//! A DMA queue: blocks are specified one by one and transferred all at once. Paper: via2sisci §1.4.3.
//!
//! The paper's adapter has an engine of its own; here the processor of who posts plays it, so a queue that is posted is
//! done when `post` returns. What is left of the mechanism is its form: nothing moves before all is specified and checked.

use fabric_soft::copying;

use super::{Mapping, SegmentError};

/// Where a queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaState {
    /// Nothing was specified.
    Idle,
    /// Blocks are being specified.
    Gather,
    /// All blocks were transferred.
    Done,
    /// What was specified was dropped.
    Aborted,
}

/// Blocks to be transferred together.
pub struct DmaQueue {
    blocks: Vec<(Mapping, usize, Mapping, usize, usize)>,
    entries_max: usize,
    state: DmaState,
}

impl DmaQueue {
    /// A queue for at most `entries_max` blocks.
    pub fn new(entries_max: usize) -> Self {
        Self { blocks: Vec::new(), entries_max, state: DmaState::Idle }
    }

    /// Where it stands.
    pub fn state(&self) -> DmaState {
        self.state
    }

    /// Specifies a block: `len_bytes` bytes at an offset of one segment to an offset of another.
    ///
    /// # Errors
    /// If it is outside of either, or the queue is full; the queue stays as it was.
    pub fn enqueue(
        &mut self,
        (from, offset): (&Mapping, usize),
        (to, to_offset): (&Mapping, usize),
        len_bytes: usize,
    ) -> Result<(), SegmentError> {
        if self.blocks.len() == self.entries_max {
            return Err(SegmentError::Dma { operation: "take another block", state: self.state });
        }
        from.source(offset, len_bytes)?;
        to.target(to_offset, len_bytes)?;
        self.blocks.push((from.clone(), offset, to.clone(), to_offset, len_bytes));
        self.state = DmaState::Gather;
        Ok(())
    }

    /// Transfers all blocks, in order; returns how many bytes.
    ///
    /// # Errors
    /// If no block was specified.
    pub fn post(&mut self) -> Result<u64, SegmentError> {
        if self.state != DmaState::Gather {
            return Err(SegmentError::Dma { operation: "start", state: self.state });
        }
        let mut total = 0;
        for (from, offset, to, to_offset, len_bytes) in self.blocks.drain(..) {
            total += copying::copy(&[from.source(offset, len_bytes)?], &[to.target(to_offset, len_bytes)?]);
        }
        self.state = DmaState::Done;
        Ok(total)
    }

    /// Drops what was specified.
    pub fn abort(&mut self) {
        self.blocks.clear();
        self.state = DmaState::Aborted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::Node;

    #[test]
    fn nothing_moves_before_it_is_posted_and_then_everything() {
        let node = Node::create().unwrap();
        let [from, to] = [100, 100].map(|len| node.create_segment(len).unwrap());
        from.mapping().write(0, &(0..100).collect::<Vec<u8>>()).unwrap();
        let mut queue = DmaQueue::new(2);
        assert!(queue.post().is_err());
        queue.enqueue((from.mapping(), 10), (to.mapping(), 0), 5).unwrap();
        assert!(queue.enqueue((from.mapping(), 96), (to.mapping(), 0), 5).is_err());
        queue.enqueue((from.mapping(), 90), (to.mapping(), 95), 5).unwrap();
        assert!(matches!(
            queue.enqueue((from.mapping(), 0), (to.mapping(), 0), 1),
            Err(SegmentError::Dma { state: DmaState::Gather, .. })
        ));
        let bytes = || {
            let mut bytes = [0; 100];
            to.mapping().read(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(), [0; 100]);
        assert_eq!(queue.post(), Ok(10));
        assert_eq!(queue.state(), DmaState::Done);
        assert_eq!((&bytes()[..5], &bytes()[95..]), (&[10, 11, 12, 13, 14][..], &[90, 91, 92, 93, 94][..]));
        queue.enqueue((from.mapping(), 0), (to.mapping(), 0), 1).unwrap();
        queue.abort();
        assert!(queue.post().is_err() && queue.state() == DmaState::Aborted);
    }
}
