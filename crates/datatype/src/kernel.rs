//! The copying loops: blocks of one size from one stride to another, blocks at a list of places.
//!
//! At strides, a block of up to 256 bytes is copied without a call: whole when its size is one that numbers have, else as
//! its two ends, which overlap in the middle, or in steps of 64 bytes. At listed places that holds for the sizes of numbers
//! and for most blocks of up to 64 bytes.
//!
//! Registers are of 16 bytes. Wider ones often lie across two lines where memory is as malloc gives it, which is slow where
//! lines push each other out of a cache; elsewhere they save a fraction of a ns a block. Lines do that at strides of whole
//! pages, as the columns of many a matrix have: all blocks meet in one set of the first-level cache. The more accesses are
//! under way then, the more lines are gone before they were used, so that it is faster to let none overtake another.

use std::sync::atomic::{Ordering, compiler_fence};

/// A loop over blocks: source and its stride, target and its stride, bytes of a block, how many.
type Strided = unsafe fn(*const u8, i64, *mut u8, i64, u64, u64);

/// Longest block that is copied without calling a function, at strides.
const INLINE_MAX_BYTES: u64 = 256;

/// Blocks at a multiple of this stride meet in one set of the first-level cache.
const MEETING_BYTES: i64 = 4096;
/// So many blocks that meet do not fit in their set, by far.
const MEETING_MIN: u64 = 64;

/// Consecutive memory that is to hold at least so many bytes is written past the caches: they would push out what is read, and
/// each of its lines would be fetched first.
const STREAMED_MIN_BYTES: u64 = 16 << 20;
/// Longest block of which it is made so. On a Zen 4 that takes 15 to 30 % less time up to here, and up to 50 % more beyond.
const STREAMED_MAX_BYTES: u64 = 64;

/// Copies `count` blocks of `bytes` each; the block after the one at `from` lies `from_stride` bytes further on, the one
/// after `to` lies `to_stride` further on.
///
/// # Safety
/// Each block must be readable at its source and writable at its target, and no source may overlap a target.
pub(crate) unsafe fn strided(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    let meet = |stride: i64| stride % MEETING_BYTES == 0 && count >= MEETING_MIN;
    let fills = to_stride == bytes as i64 && bytes.saturating_mul(count) >= STREAMED_MIN_BYTES;
    let kernel = match bytes {
        8 | 16..=STREAMED_MAX_BYTES if fills && streams(to, bytes) => strided_streamed,
        ..=32 if meet(to_stride) && has_quick_fence() => strided_short::<true>(bytes),
        ..=32 => strided_short::<false>(bytes),
        33..=64 if meet(from_stride) || meet(to_stride) => strided_in_order,
        64 => strided_whole::<64, false>,
        96 => strided_whole::<96, false>,
        128 => strided_whole::<128, false>,
        33..=INLINE_MAX_BYTES => strided_steps,
        _ => strided_long,
    };
    // SAFETY: the caller's promise is the kernel's, and the kernel was chosen for this size.
    unsafe { kernel(from, from_stride, to, to_stride, bytes, count) };
}

/// True if blocks of `bytes` behind each other from `to` on can be written past the caches: by whole registers.
fn streams(to: *mut u8, bytes: u64) -> bool {
    let register = if bytes == 8 { 8 } else { 16 };
    // Interpreters know no such stores.
    cfg!(all(target_arch = "x86_64", not(miri)))
        && bytes.is_multiple_of(register)
        && (to.addr() as u64).is_multiple_of(register)
}

/// The loop for blocks of up to 32 bytes, with a fence behind each if `FENCED`.
fn strided_short<const FENCED: bool>(bytes: u64) -> Strided {
    match bytes {
        1 => strided_whole::<1, FENCED>,
        2 => strided_whole::<2, FENCED>,
        4 => strided_whole::<4, FENCED>,
        8 => strided_whole::<8, FENCED>,
        12 => strided_whole::<12, FENCED>,
        16 => strided_whole::<16, FENCED>,
        20 => strided_whole::<20, FENCED>,
        24 => strided_whole::<24, FENCED>,
        28 => strided_whole::<28, FENCED>,
        32 => strided_whole::<32, FENCED>,
        3 => strided_ends::<2, FENCED>,
        5..=7 => strided_ends::<4, FENCED>,
        9..=15 => strided_ends::<8, FENCED>,
        17..=31 => strided_ends::<16, FENCED>,
        _ => strided_long,
    }
}

/// True if a fence between stores costs next to nothing, as on AMD's processors: on a Zen 4 stores behind one only fetch no line
/// early, and nobody waits. A processor may wait instead until all before it are done, so there is none on others.
#[cfg(target_arch = "x86_64")]
fn has_quick_fence() -> bool {
    static IS_AMD: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        // Interpreters have no such processor.
        !cfg!(miri) && {
            let vendor = std::arch::x86_64::__cpuid(0);
            [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
        }
    });
    *IS_AMD
}

#[cfg(not(target_arch = "x86_64"))]
fn has_quick_fence() -> bool {
    false
}

/// No store behind it fetches its line before those before it are done.
#[inline(always)]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every such processor has the instruction, and it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies a block of `bytes` from each of the `places`, relative to `from`, to consecutive memory at `to`.
///
/// # Safety
/// Each block must be readable, `to` writable for all of them, and no block may overlap it.
pub(crate) unsafe fn gather(from: *const u8, places: &[i64], to: *mut u8, bytes: u64) {
    let kernel = match bytes {
        1 => gather_whole::<1>,
        2 => gather_whole::<2>,
        4 => gather_whole::<4>,
        8 => gather_whole::<8>,
        12 => gather_whole::<12>,
        16 => gather_whole::<16>,
        24 => gather_whole::<24>,
        32 => gather_whole::<32>,
        _ => gather_any,
    };
    // SAFETY: the caller's promise is the kernel's, and the kernel was chosen for this size.
    unsafe { kernel(from, places, to, bytes) };
}

/// Copies consecutive blocks of `bytes` at `from` to each of the `places`, relative to `to`.
///
/// # Safety
/// As [`gather`], the other way round.
pub(crate) unsafe fn scatter(from: *const u8, to: *mut u8, places: &[i64], bytes: u64) {
    let kernel = match bytes {
        1 => scatter_whole::<1>,
        2 => scatter_whole::<2>,
        4 => scatter_whole::<4>,
        8 => scatter_whole::<8>,
        12 => scatter_whole::<12>,
        16 => scatter_whole::<16>,
        24 => scatter_whole::<24>,
        32 => scatter_whole::<32>,
        _ => scatter_any,
    };
    // SAFETY: the caller's promise is the kernel's, and the kernel was chosen for this size.
    unsafe { kernel(from, to, places, bytes) };
}

/// Copies one block; most of up to 64 bytes without calling a function.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: u64) {
    match bytes {
        // SAFETY: the caller's promise; the arm fits the size, here and in the arms below.
        4 => unsafe { copy_whole::<4>(from, to) },
        // SAFETY: as above.
        8 => unsafe { copy_whole::<8>(from, to) },
        // SAFETY: as above.
        16 => unsafe { copy_whole::<16>(from, to) },
        // SAFETY: as above.
        9..=15 => unsafe { copy_ends::<8>(from, to, bytes as usize) },
        // SAFETY: as above.
        17..=32 => unsafe { copy_ends::<16>(from, to, bytes as usize) },
        // SAFETY: as above.
        33..=64 => unsafe { copy_ends::<32>(from, to, bytes as usize) },
        // SAFETY: as above.
        _ => unsafe { base::copy::copy_raw(from, to, bytes as usize) },
    }
}

/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for `N` bytes.
#[inline(always)]
unsafe fn copy_whole<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; a byte array needs no alignment.
    let block = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: as above.
    unsafe { to.cast::<[u8; N]>().write(block) };
}

/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for `bytes`, which is `N` to `2 * N`.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    debug_assert!((N..=2 * N).contains(&bytes));
    let behind = bytes - N;
    // SAFETY: the first `N` of the caller's bytes.
    let head = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: the last `N` of them.
    let tail = unsafe { from.wrapping_add(behind).cast::<[u8; N]>().read() };
    // SAFETY: the first `N` bytes of the target.
    unsafe { to.cast::<[u8; N]>().write(head) };
    // SAFETY: the last `N` of them.
    unsafe { to.wrapping_add(behind).cast::<[u8; N]>().write(tail) };
}

/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for `bytes`, which is more than 32.
#[inline(always)]
unsafe fn copy_steps(from: *const u8, to: *mut u8, bytes: usize) {
    debug_assert!(bytes > 32);
    let mut at = 0;
    while bytes - at > 64 {
        // SAFETY: 64 of the caller's bytes.
        unsafe { copy_whole::<64>(from.wrapping_add(at), to.wrapping_add(at)) };
        at += 64;
    }
    if bytes - at > 32 {
        // SAFETY: 32 of them.
        unsafe { copy_whole::<32>(from.wrapping_add(at), to.wrapping_add(at)) };
        at += 32;
    }
    if bytes - at > 16 {
        // SAFETY: the last 32 of them, some of which may have been copied before.
        unsafe { copy_whole::<32>(from.wrapping_add(bytes - 32), to.wrapping_add(bytes - 32)) };
    } else {
        // SAFETY: the last 16 of them, as above.
        unsafe { copy_whole::<16>(from.wrapping_add(bytes - 16), to.wrapping_add(bytes - 16)) };
    }
}

/// One register after the other.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for `bytes`, which is at least 16.
#[inline(always)]
unsafe fn copy_in_order(from: *const u8, to: *mut u8, bytes: usize) {
    debug_assert!(bytes >= 16);
    for at in (0..bytes - 15).step_by(16) {
        // SAFETY: 16 of the caller's bytes.
        unsafe { copy_whole::<16>(from.wrapping_add(at), to.wrapping_add(at)) };
        // No load moves before the store.
        compiler_fence(Ordering::SeqCst);
    }
    if !bytes.is_multiple_of(16) {
        // SAFETY: the last 16 of them, some of which have been copied before.
        unsafe { copy_whole::<16>(from.wrapping_add(bytes - 16), to.wrapping_add(bytes - 16)) };
    }
}

/// Calls `copy` with pairs of addresses, each a stride after the one before.
#[inline(always)]
fn over_strides(
    mut from: *const u8,
    from_stride: i64,
    mut to: *mut u8,
    to_stride: i64,
    count: u64,
    copy: impl Fn(*const u8, *mut u8),
) {
    let (from_stride, to_stride) = (from_stride as isize, to_stride as isize);
    // Four a turn: what a turn costs besides is as much as copying a number.
    for _ in 0..count / 4 {
        let (from_third, to_third) = (from.wrapping_offset(2 * from_stride), to.wrapping_offset(2 * to_stride));
        copy(from, to);
        copy(from.wrapping_offset(from_stride), to.wrapping_offset(to_stride));
        copy(from_third, to_third);
        copy(from_third.wrapping_offset(from_stride), to_third.wrapping_offset(to_stride));
        from = from_third.wrapping_offset(2 * from_stride);
        to = to_third.wrapping_offset(2 * to_stride);
    }
    for _ in 0..count % 4 {
        copy(from, to);
        from = from.wrapping_offset(from_stride);
        to = to.wrapping_offset(to_stride);
    }
}

/// # Safety
/// As [`strided`] with `bytes == N`.
unsafe fn strided_whole<const N: usize, const FENCED: bool>(
    from: *const u8,
    from_stride: i64,
    to: *mut u8,
    to_stride: i64,
    bytes: u64,
    count: u64,
) {
    debug_assert_eq!(bytes, N as u64);
    over_strides(from, from_stride, to, to_stride, count, |from, to| {
        // SAFETY: each pair of addresses is a block of the caller's.
        unsafe { copy_whole::<N>(from, to) };
        if FENCED {
            fence();
        }
    });
}

/// # Safety
/// As [`strided`] with `bytes` from `N` to `2 * N`.
unsafe fn strided_ends<const N: usize, const FENCED: bool>(
    from: *const u8,
    from_stride: i64,
    to: *mut u8,
    to_stride: i64,
    bytes: u64,
    count: u64,
) {
    over_strides(from, from_stride, to, to_stride, count, |from, to| {
        // SAFETY: each pair of addresses is a block of the caller's.
        unsafe { copy_ends::<N>(from, to, bytes as usize) };
        if FENCED {
            fence();
        }
    });
}

/// # Safety
/// As [`strided`] with `bytes` of more than 32.
unsafe fn strided_steps(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    // SAFETY: each pair of addresses is a block of the caller's.
    let copy = |from, to| unsafe { copy_steps(from, to, bytes as usize) };
    over_strides(from, from_stride, to, to_stride, count, copy);
}

/// # Safety
/// As [`strided`] with `bytes` of at least 16.
unsafe fn strided_in_order(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    // SAFETY: each pair of addresses is a block of the caller's.
    let copy = |from, to| unsafe { copy_in_order(from, to, bytes as usize) };
    over_strides(from, from_stride, to, to_stride, count, copy);
}

/// # Safety
/// As [`strided`], where [`streams`] says so.
#[cfg(target_arch = "x86_64")]
unsafe fn strided_streamed(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si64, _mm_stream_si128};
    over_strides(from, from_stride, to, to_stride, count, |from, to| {
        if bytes == 8 {
            // SAFETY: each pair of addresses is a block of the caller's; what is read needs no alignment, and what is
            // written has it.
            unsafe { _mm_stream_si64(to.cast(), from.cast::<i64>().read_unaligned()) };
        }
        for at in (0..bytes as usize & !15).step_by(16) {
            // SAFETY: as above, 16 bytes of the block.
            unsafe { _mm_stream_si128(to.wrapping_add(at).cast(), _mm_loadu_si128(from.wrapping_add(at).cast())) };
        }
    });
    base::streaming::finish();
}

#[cfg(not(target_arch = "x86_64"))]
use strided_long as strided_streamed;

/// # Safety
/// As [`strided`].
unsafe fn strided_long(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    // SAFETY: each pair of addresses is a block of the caller's.
    let copy = |from: *const u8, to| unsafe { base::copy::copy_raw(from, to, bytes as usize) };
    over_strides(from, from_stride, to, to_stride, count, copy);
}

/// # Safety
/// As [`gather`] with `bytes == N`.
unsafe fn gather_whole<const N: usize>(from: *const u8, places: &[i64], to: *mut u8, bytes: u64) {
    debug_assert_eq!(bytes, N as u64);
    for (index, place) in places.iter().enumerate() {
        // SAFETY: this block is the caller's, and so is its place behind those before.
        unsafe { copy_whole::<N>(from.wrapping_offset(*place as isize), to.wrapping_add(index * N)) };
    }
}

/// # Safety
/// As [`gather`].
unsafe fn gather_any(from: *const u8, places: &[i64], to: *mut u8, bytes: u64) {
    for (index, place) in places.iter().enumerate() {
        let behind = index * bytes as usize;
        // SAFETY: this block is the caller's, and so is its place behind those before.
        unsafe { copy(from.wrapping_offset(*place as isize), to.wrapping_add(behind), bytes) };
    }
}

/// # Safety
/// As [`scatter`] with `bytes == N`.
unsafe fn scatter_whole<const N: usize>(from: *const u8, to: *mut u8, places: &[i64], bytes: u64) {
    debug_assert_eq!(bytes, N as u64);
    for (index, place) in places.iter().enumerate() {
        // SAFETY: this block is the caller's, and so is its place behind those before.
        unsafe { copy_whole::<N>(from.wrapping_add(index * N), to.wrapping_offset(*place as isize)) };
    }
}

/// # Safety
/// As [`scatter`].
unsafe fn scatter_any(from: *const u8, to: *mut u8, places: &[i64], bytes: u64) {
    for (index, place) in places.iter().enumerate() {
        let behind = index * bytes as usize;
        // SAFETY: this block is the caller's, and so is its place behind those before.
        unsafe { copy(from.wrapping_add(behind), to.wrapping_offset(*place as isize), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` blocks of `bytes` at two strides, against a loop over bytes; what lies between them stays.
    fn check_strided(kernel: Strided, bytes: usize, from_stride: usize, to_stride: usize, count: usize) {
        let source: Vec<u8> = (0..from_stride * count + bytes).map(|at| (at * 7 + at / 256 + 1) as u8).collect();
        let mut expected = vec![0; to_stride * count + bytes];
        let mut target = expected.clone();
        for (block, at) in (0..count).flat_map(|block| (0..bytes).map(move |at| (block, at))) {
            expected[block * to_stride + at] = source[block * from_stride + at];
        }
        let (from, to) = (source.as_ptr(), target.as_mut_ptr());
        // SAFETY: both vectors hold `count` blocks at their strides.
        unsafe { kernel(from, from_stride as i64, to, to_stride as i64, bytes as u64, count as u64) };
        assert_eq!(target, expected, "{bytes} bytes from every {from_stride} to every {to_stride}");
    }

    /// All sizes, and under miri, which is slow, those where another kernel begins, with their neighbours.
    fn under_miri_around_the_kernels(bytes: &usize) -> bool {
        let next_to = |bytes: usize| (bytes + 1).is_power_of_two() || (bytes - 1).is_power_of_two();
        !cfg!(miri) || *bytes < 135 && (bytes.is_power_of_two() || next_to(*bytes) || bytes.is_multiple_of(24))
    }

    #[test]
    fn every_block_size_at_several_strides() {
        for bytes in (1..=300).filter(under_miri_around_the_kernels) {
            check_strided(strided, bytes, bytes + 5, bytes, 7);
            check_strided(strided, bytes, bytes, bytes + 3, 7);
            check_strided(strided, bytes, 2 * bytes, bytes + 1, 7);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes; the interpreter knows no fence")]
    fn blocks_at_whole_pages() {
        let (page, count) = (MEETING_BYTES as usize, MEETING_MIN as usize + 3);
        for bytes in (1..=130).step_by(3).chain([2, 4, 8, 12, 16, 20, 24, 32, 33, 48, 63, 64, 65]) {
            check_strided(strided, bytes, page, bytes, count);
            check_strided(strided, bytes, bytes, 2 * page, count);
            if bytes <= 32 && cfg!(target_arch = "x86_64") {
                check_strided(strided_short::<true>(bytes as u64), bytes, bytes, page, count);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes; the interpreter knows no such stores")]
    fn what_no_cache_holds_is_whole_too() {
        for bytes in [8, 16, 32, 48, 64] {
            check_strided(strided_streamed, bytes, bytes + 8, bytes, 7);
        }
        let places = [0u128; 4];
        let at = |bytes: usize| places.as_ptr().cast::<u8>().wrapping_add(bytes).cast_mut();
        assert_eq!(streams(at(0), 32), cfg!(target_arch = "x86_64"));
        assert!(!streams(at(0), 24) && !streams(at(8), 32) && !streams(at(4), 8), "only whole registers");
        for bytes in [8, 24, 64] {
            check_strided(strided, bytes, bytes + 8, bytes, STREAMED_MIN_BYTES as usize / bytes + 3);
        }
    }

    #[test]
    fn every_block_size_at_listed_places() {
        for bytes in (1..=200).filter(under_miri_around_the_kernels) {
            let places: Vec<i64> = [3, 0, 1, 5, 2].iter().map(|place| (place * (bytes + 2)) as i64).collect();
            let memory: Vec<u8> = (0..6 * (bytes + 2)).map(|at| (at * 11 + 5) as u8).collect();
            let mut packed = vec![0; 5 * bytes];
            // SAFETY: all places lie in the memory; the packed vector holds five blocks.
            unsafe { gather(memory.as_ptr(), &places, packed.as_mut_ptr(), bytes as u64) };
            let expected: Vec<u8> = places.iter().flat_map(|at| &memory[*at as usize..][..bytes]).copied().collect();
            assert_eq!(packed, expected, "{bytes} bytes gathered");
            let mut again = vec![0; memory.len()];
            // SAFETY: as above, the other way round.
            unsafe { scatter(packed.as_ptr(), again.as_mut_ptr(), &places, bytes as u64) };
            let mut kept = vec![0; memory.len()];
            places.iter().for_each(|at| {
                let block = *at as usize..*at as usize + bytes;
                kept[block.clone()].copy_from_slice(&memory[block]);
            });
            assert_eq!(again, kept, "{bytes} bytes scattered");
        }
    }
}
