//! Copying into memory that another core reads next.
//!
//! Measured between two cores that do not share a cache, a pass of 8 KiB through shared memory falls from 3.6 to 1.2 µs by
//! streaming stores ([`base::streaming`]); between cores that do share one, short copies lose by them.

/// Shortest copy that streams, in bytes.
pub const STREAMING_MIN_BYTES: usize = base::streaming::MIN_BYTES;

/// Shortest record of which a block may be better off long, in bytes.
pub const MEDIUM_MIN_BYTES: usize = 512;

/// How a copy is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    /// As [`base::streaming::copy`].
    Streaming,
    /// As [`base::copy::copy`]. For memory that is used in turns so long that its lines are with nobody when they are
    /// written again: fetching them is cheap then, and the reader finds them nearer than in main memory.
    Ordinary,
    /// As [`base::copy::copy_by_instruction`], for memory whose lines are with the writer.
    ByInstruction,
}

impl Stores {
    /// Copies `from` to `into`; both have the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy(self, into: &mut [u8], from: &[u8]) {
        match self {
            Self::Streaming => base::streaming::copy(into, from),
            Self::Ordinary => base::copy::copy(into, from),
            Self::ByInstruction => base::copy::copy_by_instruction(into, from),
        }
    }
}
