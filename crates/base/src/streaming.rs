//! Writing past the caches, into memory that another core reads next.
//!
//! An ordinary store first fetches the line it writes, and a line that the reader used last comes from the reader's
//! cache: one transfer per line before the first byte is written. Streaming stores write whole lines without fetching
//! them. Where such lines are not whole, or an ordinary store touches them as well, they are slower than ordinary ones.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_loadu_si128, _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512,
    _mm512_stream_si512,
};
// Miri knows no streaming stores, and no wider registers: ordinary ones to the same aligned places stand for them.
#[cfg(all(target_arch = "x86_64", miri))]
use std::arch::x86_64::_mm_store_si128 as _mm_stream_si128;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::x86_64::_mm_stream_si128;

/// Bytes of a line: what a core fetches from another at once.
pub const LINE_BYTES: usize = 64;

/// Asks the processor for the cache line at an address, which will be written; nothing else happens, at no address.
#[inline]
pub fn prefetch_to_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint that touches neither registers nor memory and faults at no address. Written out, because the compiler's
    // own form asks for a shared line unless it is told of a newer processor.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Shortest copy that streams, in bytes.
pub const MIN_BYTES: usize = 2048;

/// Copies `from` to `into`; both have the same length. What is short, or no whole line of the target, is written as usual.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(into: &mut [u8], from: &[u8]) {
    if from.len() < MIN_BYTES {
        into.copy_from_slice(from);
    } else {
        copy_long(into, from);
    }
}

fn copy_long(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy has one length");
    // Bytes before the first whole line of the target.
    let head = into.as_ptr().align_offset(LINE_BYTES).min(into.len());
    let count = (into.len() - head) / LINE_BYTES;
    let body = head + count * LINE_BYTES;
    into[..head].copy_from_slice(&from[..head]);
    // SAFETY: both ranges are that many lines long, a mutable borrow overlaps no other, and the target begins with a line.
    unsafe { lines(from[head..body].as_ptr(), into[head..body].as_mut_ptr(), count) };
    into[body..].copy_from_slice(&from[body..]);
    finish();
}

/// Copies `count` lines. Before anything is written that says that they are there, [`finish`] is to be called.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] of so many lines; if there are any, `to` is the beginning of one.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn lines(from: *const u8, to: *mut u8, count: usize) {
    debug_assert!(count == 0 || to.addr().is_multiple_of(LINE_BYTES));
    if crate::copy::prefers_avx512() {
        // SAFETY: the caller's promise, and the processor has these instructions.
        unsafe { whole_lines(from, to, count) };
    } else if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise, and the processor has these instructions.
        unsafe { half_lines(from, to, count) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { quarter_lines(from, to, count) };
    }
}

/// The loops with registers of one width.
#[cfg(target_arch = "x86_64")]
macro_rules! lines_by {
    ($(#[doc = $doc:literal])* $name:ident, $feature:literal, $register:ident, $load:ident, $stream:ident) => {
        $(#[doc = $doc])*
        ///
        /// # Safety
        /// As [`lines`], on a processor that has such registers.
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn $name(from: *const u8, to: *mut u8, count: usize) {
            let (from, to) = (from.cast::<$register>(), to.cast::<$register>());
            for at in 0..count * (LINE_BYTES / size_of::<$register>()) {
                // SAFETY: inside the lines, by the caller's promise; the source is read without alignment.
                let value = unsafe { $load(from.add(at)) };
                // SAFETY: as above; the target begins with a line, so that each register's place is aligned.
                unsafe { $stream(to.add(at), value) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
lines_by!(
    /// With one store for a line: what is written past the caches leaves as soon as a line is whole.
    whole_lines, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512
);

#[cfg(target_arch = "x86_64")]
lines_by!(
    /// With two: four take a tenth to a sixth longer for 16 to 256 KiB between two cores of an AMD EPYC of the third
    /// generation that share no cache.
    half_lines, "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256
);

#[cfg(target_arch = "x86_64")]
lines_by!(
    /// With four, which every processor can.
    quarter_lines, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128
);

/// As above, with what this processor has.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn lines(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count * LINE_BYTES) };
}

/// Orders what was streamed before later stores, as other stores are: a flag that follows must not overtake it.
#[inline]
pub fn finish() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
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
                copy(&mut target[start..start + len], &source[3..3 + len]);
                assert_eq!(target[start..start + len], source[3..3 + len], "{start} {len}");
                assert!(target[..start].iter().chain(&target[start + len..]).all(|byte| *byte == 0xaa));
            }
        }
    }

    /// Also those that this processor has better ones than.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn lines_are_copied_by_registers_of_each_width() {
        #[repr(align(64))]
        struct Lines([u8; 640]);
        type Copying = unsafe fn(*const u8, *mut u8, usize);
        let mut ways = vec![quarter_lines as Copying];
        if std::arch::is_x86_feature_detected!("avx") {
            ways.push(half_lines);
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            ways.push(whole_lines);
        }
        let source: Vec<u8> = (0..641u32).map(|n| (n * 7 + n / 256) as u8).collect();
        for (way, copy) in ways.into_iter().enumerate() {
            for start in [0, 1] {
                let mut target = Lines([0xaa; 640]);
                // SAFETY: nine lines of ten of each, which do not overlap; the target begins with a line, and the processor
                // has these registers.
                unsafe { copy(source[start..].as_ptr(), target.0.as_mut_ptr(), 9) };
                finish();
                assert_eq!(target.0[..576], source[start..start + 576], "{way}");
                assert!(target.0[576..].iter().all(|byte| *byte == 0xaa), "{way}");
            }
        }
    }
}
