//! Blocks of a buffer: equal ones in a row, or any, anywhere.

use collectives::Vector;

use crate::memory::{Chance, Memory, SimType};

/// Counts and displacements in elements.
#[derive(Clone, Debug)]
pub struct Blocks {
    pub counts: Vec<u64>,
    pub starts: Vec<i64>,
}

impl Blocks {
    pub fn even(number: usize, count: u64) -> Blocks {
        let starts = (0..number).map(|index| (index as u64 * count) as i64).collect();
        Blocks { counts: vec![count; number], starts }
    }

    /// In rank order without gaps, or shuffled with gaps and below the buffer's address.
    pub fn spread(counts: &[u64], chance: &mut Chance) -> Blocks {
        let orderly = chance.below(3) == 0;
        let mut order: Vec<usize> = (0..counts.len()).collect();
        if !orderly {
            for at in (1..order.len()).rev() {
                order.swap(at, chance.below(at + 1));
            }
        }
        let mut at = if orderly { 0 } else { -(chance.below(4) as i64) };
        let mut starts = vec![0; counts.len()];
        for index in order {
            starts[index] = at;
            at += counts[index] as i64 + if orderly { 0 } else { chance.below(3) as i64 };
        }
        Blocks { counts: counts.to_vec(), starts }
    }

    pub fn vector(&self, ty: &SimType) -> Vector {
        Vector::new(self.counts.clone(), self.starts.clone(), ty.shape())
    }

    /// Memory for all blocks.
    pub fn memory(&self, ty: &SimType) -> Memory {
        let lowest = self.starts.iter().copied().min().unwrap_or(0);
        let ends = self.starts.iter().zip(&self.counts).map(|(start, &count)| start + count as i64);
        let elements = (ends.max().unwrap_or(0) - lowest).max(0) as u64;
        Memory::new(ty, lowest, elements)
    }

    pub fn write(&self, memory: &mut Memory, ty: &SimType, index: u32, packed: &[u8]) {
        memory.write(ty, self.starts[index as usize] * ty.extent(), packed);
    }
}
