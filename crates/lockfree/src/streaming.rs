//! Copying into memory that another core reads next.
//!
//! Measured between two cores that do not share a cache, a pass of 8 KiB through shared memory falls from 3.6 to 1.2 µs by
//! streaming stores ([`base::streaming`]); between cores that do share one, short copies lose by them.

/// Shortest copy that streams, in bytes.
pub const STREAMING_MIN_BYTES: usize = 2048;

/// Shortest record of which a block may be better off long, in bytes.
pub const MEDIUM_MIN_BYTES: usize = 512;

/// How a copy is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    /// As [`copy_to_shared`].
    Streaming,
    /// As [`base::copy::copy`]. For memory that is used in turns so long that its lines are with nobody when they are
    /// written again: fetching them is cheap then, and the reader finds them nearer than in main memory.
    Ordinary,
}

impl Stores {
    /// Copies `from` to `into`; both have the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy(self, into: &mut [u8], from: &[u8]) {
        match self {
            Self::Streaming => copy_to_shared(into, from),
            Self::Ordinary => base::copy::copy(into, from),
        }
    }
}

/// Copies `from` to `into`, which another core is about to read; both have the same length.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_to_shared(into: &mut [u8], from: &[u8]) {
    if from.len() < STREAMING_MIN_BYTES {
        into.copy_from_slice(from);
    } else {
        base::streaming::copy(into, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_whole_and_nothing_beside_it() {
        let source: Vec<u8> = (0..5000u32).map(|n| (n * 7 + n / 256) as u8).collect();
        let (starts, lens): (&[usize], &[usize]) = match cfg!(miri) {
            true => (&[0, 15], &[2047, 2048, 2111]),
            false => (&[0, 1, 15, 63, 64], &[0, 1, 2047, 2048, 2049, 2111, 2112, 3000, 4096, 4097]),
        };
        for start in starts.iter().copied() {
            for len in lens.iter().copied() {
                let mut target = vec![0xaa; 5000];
                copy_to_shared(&mut target[start..start + len], &source[3..3 + len]);
                assert_eq!(target[start..start + len], source[3..3 + len], "{start} {len}");
                assert!(target[..start].iter().chain(&target[start + len..]).all(|byte| *byte == 0xaa));
            }
        }
    }
}
