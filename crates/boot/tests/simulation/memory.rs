//! Memory of messages, in one piece or in blocks, in which every byte that is not a message's is watched.

use std::sync::Arc;

use datatype::{Basic, Datatype, RecvBuf, Scratch, SendBuf};

use crate::program::Random;

/// Bytes behind the memory, and between its blocks, that nobody may touch.
const GUARD: usize = 16;
const UNTOUCHED: u8 = 0xee;

/// Memory of one message.
pub struct Memory {
    bytes: Scratch,
    datatype: Arc<Datatype>,
    /// Offset and length of each block, in the order of the message.
    blocks: Vec<(usize, usize)>,
}

impl Memory {
    /// Room for so many bytes, one behind the other.
    pub fn in_one_piece(len: u64) -> Self {
        Self::of(vec![(0, len as usize)])
    }

    /// Room for so many bytes in blocks of lengths and at places that the seed draws, not all in order of address.
    pub fn scattered(random: &mut Random, len: u64) -> Self {
        // A hundred blocks or so at most: some schemes take an operation for each.
        let block_max = (*random.one_of(&[8, 100, 5000])).max(len / 50);
        let gap_max = *random.one_of(&[1, 40, 6000]);
        let (mut blocks, mut at, mut left) = (Vec::new(), 0, len);
        while left > 0 {
            let block = left.min(1 + random.below(block_max));
            blocks.push((at as usize, block as usize));
            at += block + random.below(gap_max + 1);
            left -= block;
        }
        if random.chance(3) {
            blocks.reverse();
        }
        Self::of(blocks)
    }

    fn of(blocks: Vec<(usize, usize)>) -> Self {
        let byte = Datatype::predefined(Basic::Byte);
        let end = blocks.iter().map(|(at, len)| at + len).max().unwrap_or_default();
        let (places, lengths): (Vec<i64>, Vec<i64>) = blocks.iter().map(|(at, len)| (*at as i64, *len as i64)).unzip();
        let datatype = Datatype::hindexed(&lengths, &places, &byte).expect("small");
        let mut bytes = Scratch::new((end + GUARD) as u64, &byte).expect("memory");
        bytes.recv().contiguous_mut().expect("in one piece").fill(UNTOUCHED);
        Self { bytes, datatype, blocks }
    }

    /// What a message is received into.
    pub fn window(&mut self) -> RecvBuf {
        self.bytes.memory().recv(0, 1, &self.datatype)
    }

    /// The message `payload`, laid out here.
    pub fn holding(mut self, payload: &[u8]) -> SendBuf {
        let mut all = self.bytes.recv();
        let all = all.contiguous_mut().expect("in one piece");
        let mut rest = payload;
        for (at, len) in &self.blocks {
            let (first, behind) = rest.split_at(*len);
            all[*at..at + len].copy_from_slice(first);
            rest = behind;
        }
        self.bytes.memory().send(0, 1, &self.datatype)
    }

    /// The bytes of the message, once it is seen that nothing else was touched.
    pub fn received(&self) -> Vec<u8> {
        let all = self.bytes.send();
        let mut beside = all.as_contiguous().expect("in one piece").to_vec();
        let mut message = Vec::new();
        for (at, len) in &self.blocks {
            message.extend_from_slice(&beside[*at..at + len]);
            beside[*at..at + len].fill(UNTOUCHED);
        }
        assert!(beside.iter().all(|byte| *byte == UNTOUCHED), "nothing is written beside a receive");
        message
    }
}
