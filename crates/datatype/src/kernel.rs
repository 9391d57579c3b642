//! The copying loops: blocks of one size from one stride to another, blocks at a list of places.
//!
//! At strides, a block of up to 256 bytes is copied without a call: whole when its size is one that numbers have, else as
//! its two ends, which overlap in the middle, or in steps of 32 bytes. Blocks of 32 bytes and more use the widest registers
//! that the processor has. At listed places that holds for the sizes of numbers and for most blocks of up to 64 bytes.

/// A loop over blocks: source and its stride, target and its stride, bytes of a block, how many.
type Strided = unsafe fn(*const u8, i64, *mut u8, i64, u64, u64);

/// Longest block that is copied without calling a function, at strides.
const INLINE_MAX_BYTES: u64 = 256;

/// Copies `count` blocks of `bytes` each; the block after the one at `from` lies `from_stride` bytes further on, the one
/// after `to` lies `to_stride` further on.
///
/// # Safety
/// Each block must be readable at its source and writable at its target, and no source may overlap a target.
pub(crate) unsafe fn strided(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    let kernel: Strided = match bytes {
        1 => strided_whole::<1>,
        2 => strided_whole::<2>,
        4 => strided_whole::<4>,
        8 => strided_whole::<8>,
        12 => strided_whole::<12>,
        16 => strided_whole::<16>,
        20 => strided_whole::<20>,
        24 => strided_whole::<24>,
        28 => strided_whole::<28>,
        3 => strided_ends::<2>,
        5..=7 => strided_ends::<4>,
        9..=15 => strided_ends::<8>,
        17..=31 => strided_ends::<16>,
        32..=INLINE_MAX_BYTES => strided_wide(bytes),
        _ => strided_long,
    };
    // SAFETY: the caller's promise is the kernel's, and the kernel was chosen for this size.
    unsafe { kernel(from, from_stride, to, to_stride, bytes, count) };
}

/// The loop for blocks of 32 to [`INLINE_MAX_BYTES`] bytes.
fn strided_wide(bytes: u64) -> Strided {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        return match bytes {
            32 => avx::strided_whole::<32>,
            64 => avx::strided_whole::<64>,
            96 => avx::strided_whole::<96>,
            128 => avx::strided_whole::<128>,
            33..=63 => avx::strided_ends::<32>,
            _ => avx::strided_steps,
        };
    }
    match bytes {
        32 => strided_whole::<32>,
        64 => strided_whole::<64>,
        96 => strided_whole::<96>,
        128 => strided_whole::<128>,
        33..=63 => strided_ends::<32>,
        _ => strided_steps,
    }
}

/// The same loops, compiled for processors with registers of 32 bytes.
#[cfg(target_arch = "x86_64")]
mod avx {
    /// # Safety
    /// As [`super::strided_whole`], on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub unsafe fn strided_whole<const N: usize>(
        from: *const u8,
        from_stride: i64,
        to: *mut u8,
        to_stride: i64,
        bytes: u64,
        count: u64,
    ) {
        // SAFETY: the caller's promise.
        unsafe { super::strided_whole::<N>(from, from_stride, to, to_stride, bytes, count) };
    }

    /// # Safety
    /// As [`super::strided_ends`], on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub unsafe fn strided_ends<const N: usize>(
        from: *const u8,
        from_stride: i64,
        to: *mut u8,
        to_stride: i64,
        bytes: u64,
        count: u64,
    ) {
        // SAFETY: the caller's promise.
        unsafe { super::strided_ends::<N>(from, from_stride, to, to_stride, bytes, count) };
    }

    /// # Safety
    /// As [`super::strided_steps`], on a processor with AVX.
    #[target_feature(enable = "avx")]
    pub unsafe fn strided_steps(
        from: *const u8,
        from_stride: i64,
        to: *mut u8,
        to_stride: i64,
        bytes: u64,
        count: u64,
    ) {
        // SAFETY: the caller's promise.
        unsafe { super::strided_steps(from, from_stride, to, to_stride, bytes, count) };
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
/// As [`std::ptr::copy_nonoverlapping`] for `bytes`, which is at least 32.
#[inline(always)]
unsafe fn copy_steps(from: *const u8, to: *mut u8, bytes: usize) {
    debug_assert!(bytes >= 32);
    for at in (0..bytes - 31).step_by(32) {
        // SAFETY: 32 of the caller's bytes.
        unsafe { copy_whole::<32>(from.wrapping_add(at), to.wrapping_add(at)) };
    }
    let last = bytes - 32;
    // SAFETY: the last 32 of them, some of which may have been copied before.
    unsafe { copy_whole::<32>(from.wrapping_add(last), to.wrapping_add(last)) };
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
#[inline(always)]
unsafe fn strided_whole<const N: usize>(
    from: *const u8,
    from_stride: i64,
    to: *mut u8,
    to_stride: i64,
    bytes: u64,
    count: u64,
) {
    debug_assert_eq!(bytes, N as u64);
    // SAFETY: each pair of addresses is a block of the caller's.
    let copy = |from, to| unsafe { copy_whole::<N>(from, to) };
    over_strides(from, from_stride, to, to_stride, count, copy);
}

/// # Safety
/// As [`strided`] with `bytes` from `N` to `2 * N`.
#[inline(always)]
unsafe fn strided_ends<const N: usize>(
    from: *const u8,
    from_stride: i64,
    to: *mut u8,
    to_stride: i64,
    bytes: u64,
    count: u64,
) {
    // SAFETY: each pair of addresses is a block of the caller's.
    let copy = |from, to| unsafe { copy_ends::<N>(from, to, bytes as usize) };
    over_strides(from, from_stride, to, to_stride, count, copy);
}

/// # Safety
/// As [`strided`] with `bytes` of at least 32.
#[inline(always)]
unsafe fn strided_steps(from: *const u8, from_stride: i64, to: *mut u8, to_stride: i64, bytes: u64, count: u64) {
    // SAFETY: each pair of addresses is a block of the caller's.
    let copy = |from, to| unsafe { copy_steps(from, to, bytes as usize) };
    over_strides(from, from_stride, to, to_stride, count, copy);
}

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

    /// Blocks of `bytes` at two strides, against a loop over bytes; what lies between them stays.
    fn check_strided(bytes: usize, from_stride: usize, to_stride: usize) {
        let count = 7;
        let source: Vec<u8> = (0..from_stride * count + bytes).map(|at| (at * 7 + at / 256 + 1) as u8).collect();
        let mut expected = vec![0; to_stride * count + bytes];
        let mut target = expected.clone();
        for (block, at) in (0..count).flat_map(|block| (0..bytes).map(move |at| (block, at))) {
            expected[block * to_stride + at] = source[block * from_stride + at];
        }
        let (from, to) = (source.as_ptr(), target.as_mut_ptr());
        // SAFETY: both vectors hold `count` blocks at their strides.
        unsafe { strided(from, from_stride as i64, to, to_stride as i64, bytes as u64, count as u64) };
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
            check_strided(bytes, bytes + 5, bytes);
            check_strided(bytes, bytes, bytes + 3);
            check_strided(bytes, 2 * bytes, bytes + 1);
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
