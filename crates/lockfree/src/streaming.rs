//! Copying into memory that another core reads next.
//!
//! An ordinary store first fetches the line it writes, and a line that the reader used last comes from the reader's
//! cache: one transfer per line before the first byte is written. Streaming stores write whole lines without fetching
//! them. Measured between two cores that do not share a cache, a pass of 8 KiB through shared memory falls from 3.6 to
//! 1.2 µs; between cores that do share one, short copies lose by it.

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
        stream(into, from);
    }
}

#[cfg(target_arch = "x86_64")]
fn stream(into: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128};
    // Miri knows no streaming stores: ordinary ones to the same aligned places stand for them.
    #[cfg(miri)]
    use std::arch::x86_64::_mm_store_si128 as _mm_stream_si128;
    #[cfg(not(miri))]
    use std::arch::x86_64::{_mm_sfence, _mm_stream_si128};
    assert_eq!(into.len(), from.len(), "a copy has one length");
    // Bytes before the first whole line of the target.
    let head = into.as_ptr().align_offset(crate::CACHE_LINE_BYTES).min(into.len());
    let lines = (into.len() - head) / crate::CACHE_LINE_BYTES;
    let body = head + lines * crate::CACHE_LINE_BYTES;
    into[..head].copy_from_slice(&from[..head]);
    let target = into[head..body].as_mut_ptr().cast::<__m128i>();
    let source = from[head..body].as_ptr().cast::<__m128i>();
    for at in 0..lines * 4 {
        // SAFETY: both ranges are 64 * lines bytes; the source is read without alignment.
        let value = unsafe { _mm_loadu_si128(source.add(at)) };
        // SAFETY: as above; the target starts on a line, so each 16 bytes are aligned.
        unsafe { _mm_stream_si128(target.add(at), value) };
    }
    into[body..].copy_from_slice(&from[body..]);
    // Streaming stores are not ordered with later ones: the flag that follows must not overtake them.
    #[cfg(not(miri))]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        _mm_sfence()
    };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream(into: &mut [u8], from: &[u8]) {
    into.copy_from_slice(from);
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
