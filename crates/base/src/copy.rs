//! Copying payload within reach of this process.
//!
//! C libraries copy more than some 2 KiB with the processor's own instruction for that (`rep movsb`). Some processors
//! take twenty times as long for it where the target lies less than 32 bytes behind the source, by their places in a page:
//! 2 GB/s instead of 45 on an AMD EPYC of the third generation. That is no rare case. What `malloc` gives begins 16 bytes
//! into a page, and shared memory that is copied from begins with one. So long copies are loops of wide registers here,
//! which store to whole registers' places of the target: a store across two lines costs more than a load.

/// Shortest copy that is not left to the C library, in bytes: below, it uses no such instruction.
const LONG_MIN_BYTES: usize = 2048;
/// Shortest piece that is better read from its end if the next one lies below it, in bytes: a shorter one is over before the
/// processor sees in which direction that goes.
pub const DOWNWARDS_MIN_BYTES: usize = 8 << 10;
/// Shortest copy by the processor's own instruction, where that is asked for, in bytes.
pub const BY_INSTRUCTION_MIN_BYTES: usize = 8 << 10;
/// Shortest copy that begins at its end where that is asked for, in bytes.
const DOWNWARDS_LONG_MIN_BYTES: usize = 256;
/// Shortest copy from the end of which both halves are read at once, in bytes: lines come from main memory sooner if they are
/// asked for in two places. Measured on an AMD EPYC of the third generation, whose registers are those of AVX: messages of 128
/// and 512 KiB in pieces of up to 32 that another core streams into memory are passed on in 5 to 6 % less time; by hand, pieces
/// of 8 KiB gained nothing.
#[cfg(target_arch = "x86_64")]
const HALVES_MIN_BYTES: usize = 16 << 10;
/// Longest one. The C library writes what is much longer than the caches past them, without that instruction; where it
/// begins to depends on the processor.
const LONG_MAX_BYTES: usize = 4 << 20;

/// Places are compared within so many bytes.
pub const PAGE_BYTES: usize = 4096;
/// A target fewer bytes than this behind its source is copied slowly.
const CONFLICT_BYTES: usize = 32;

/// True if somebody else who copies `len_bytes` from one address to another, such as the kernel, may be slow at it.
pub fn are_places_in_conflict(from: usize, to: usize, len_bytes: usize) -> bool {
    cfg!(target_arch = "x86_64")
        && len_bytes >= PAGE_BYTES
        && (1..CONFLICT_BYTES).contains(&(to.wrapping_sub(from) % PAGE_BYTES))
}

/// Copies `from` to `into`; both have the same length.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy has one length");
    // SAFETY: as many bytes are borrowed of each; a mutable borrow overlaps no other.
    unsafe { copy_raw(from.as_ptr(), into.as_mut_ptr(), from.len()) };
}

/// As [`copy`], from the end to the beginning: for one of many pieces each of which lies below the one before it. The
/// processor, that fetches ahead of who reads, finds the next piece by that. Measured on an AMD EPYC of the fourth
/// generation, pieces of 16 KiB that another core streams into memory are passed on in 16 to 27 % less time.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_downwards(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy has one length");
    // SAFETY: as many bytes are borrowed of each; a mutable borrow overlaps no other.
    unsafe { copy_raw_downwards(from.as_ptr(), into.as_mut_ptr(), from.len()) };
}

/// As [`copy`], by the processor's own instruction for that, unless its places make it slow: what lies in the cache of a core
/// with which none is shared may come sooner so. It is for whoever has found out that it does.
///
/// # Panics
/// If the lengths differ.
pub fn copy_by_instruction(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "a copy has one length");
    let is_slow = are_places_in_conflict(from.as_ptr().addr(), into.as_ptr().addr(), from.len());
    if is_slow || from.len() < BY_INSTRUCTION_MIN_BYTES {
        return copy(into, from);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as many bytes are borrowed of each, a mutable borrow overlaps no other, and the direction flag is clear, as it has
    // to be where functions begin.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") from.len() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    copy(into, from);
}

/// As [`copy`], by addresses.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn copy_raw(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes < LONG_MIN_BYTES {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    } else {
        // SAFETY: as above.
        unsafe { copy_long(from, to, bytes) };
    }
}

/// As [`copy_downwards`], by addresses.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
pub unsafe fn copy_raw_downwards(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= DOWNWARDS_LONG_MIN_BYTES {
        if prefers_avx512() {
            // SAFETY: the caller's promise, and the processor has these instructions.
            return unsafe { avx512::copy_downwards(from, to, bytes) };
        }
        if std::arch::is_x86_feature_detected!("avx") {
            let copy = if bytes < HALVES_MIN_BYTES { avx::copy_downwards } else { avx::copy_halves_downwards };
            // SAFETY: as above.
            return unsafe { copy(from, to, bytes) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { copy_raw(from, to, bytes) };
}

/// True if registers of 64 bytes are worth using: processors that have these instructions but not those of the next
/// generation (VBMI) lower their clock for them.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefers_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vbmi")
}

/// # Safety
/// As [`copy_raw`].
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes <= LONG_MAX_BYTES && prefers_avx512() {
        // SAFETY: the caller's promise, and the processor has these instructions.
        unsafe { avx512::copy(from, to, bytes) };
    } else if bytes <= LONG_MAX_BYTES && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: as above.
        unsafe { avx::copy(from, to, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// # Safety
/// As [`copy_raw`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_long(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// The loops with registers of one width.
#[cfg(target_arch = "x86_64")]
macro_rules! loops {
    ($feature:literal, $register:ident, $load:ident, $store:ident) => {
        use std::arch::x86_64::{$load, $register, $store};

        const REGISTER: usize = size_of::<$register>();

        /// # Safety
        /// As [`std::ptr::copy_nonoverlapping`], of at least two registers, on a processor that has them.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
            debug_assert!(bytes >= 2 * REGISTER);
            let last = bytes - REGISTER;
            // SAFETY: the first register's bytes.
            unsafe { store(to, load(from)) };
            // From here on a store is to the place of a whole register.
            let mut at = REGISTER - to.addr() % REGISTER;
            while at + 4 * REGISTER <= bytes {
                let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                let place = |index: usize| index * REGISTER;
                // SAFETY: four registers' bytes from here on are there.
                let (first, second) = unsafe { (load(from), load(from.wrapping_add(place(1)))) };
                // SAFETY: as above.
                let (third, fourth) = unsafe { (load(from.wrapping_add(place(2))), load(from.wrapping_add(place(3)))) };
                // SAFETY: as above, of the target.
                unsafe {
                    store(to, first);
                    store(to.wrapping_add(place(1)), second);
                    store(to.wrapping_add(place(2)), third);
                    store(to.wrapping_add(place(3)), fourth);
                }
                at += place(4);
            }
            while at < last {
                // SAFETY: a register's bytes from here on end before the last of them.
                unsafe { store(to.wrapping_add(at), load(from.wrapping_add(at))) };
                at += REGISTER;
            }
            // SAFETY: the last register's bytes, some of which may have been copied before.
            unsafe { store(to.wrapping_add(last), load(from.wrapping_add(last))) };
        }

        /// As [`copy`], from the end to the beginning.
        ///
        /// # Safety
        /// As [`copy`].
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn copy_downwards(from: *const u8, to: *mut u8, bytes: usize) {
            debug_assert!(bytes >= 2 * REGISTER);
            let last = bytes - REGISTER;
            // SAFETY: the last register's bytes.
            unsafe { store(to.wrapping_add(last), load(from.wrapping_add(last))) };
            // From here on a store is to the place of a whole register.
            let mut end = bytes - to.addr().wrapping_add(bytes) % REGISTER;
            while end >= 4 * REGISTER {
                let (from, to) = (from.wrapping_add(end), to.wrapping_add(end));
                let place = |index: usize| index * REGISTER;
                // SAFETY: four registers' bytes before here are there.
                let (first, second) = unsafe { (load(from.wrapping_sub(place(1))), load(from.wrapping_sub(place(2)))) };
                // SAFETY: as above.
                let (third, fourth) = unsafe { (load(from.wrapping_sub(place(3))), load(from.wrapping_sub(place(4)))) };
                // SAFETY: as above, of the target.
                unsafe {
                    store(to.wrapping_sub(place(1)), first);
                    store(to.wrapping_sub(place(2)), second);
                    store(to.wrapping_sub(place(3)), third);
                    store(to.wrapping_sub(place(4)), fourth);
                }
                end -= place(4);
            }
            while end > REGISTER {
                end -= REGISTER;
                // SAFETY: a register's bytes from here on end where the one before began.
                unsafe { store(to.wrapping_add(end), load(from.wrapping_add(end))) };
            }
            // SAFETY: the first register's bytes, some of which may have been copied before.
            unsafe { store(to, load(from)) };
        }

        /// # Safety
        /// A register's bytes are readable; no alignment is asked.
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn load(from: *const u8) -> $register {
            // SAFETY: the caller's promise.
            unsafe { $load(from.cast()) }
        }

        /// # Safety
        /// A register's bytes are writable; no alignment is asked.
        #[inline]
        #[target_feature(enable = $feature)]
        unsafe fn store(to: *mut u8, value: $register) {
            // SAFETY: the caller's promise.
            unsafe { $store(to.cast(), value) };
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx {
    loops!("avx", __m256i, _mm256_loadu_si256, _mm256_storeu_si256);

    /// As [`copy_downwards`], of both halves at once.
    ///
    /// # Safety
    /// As [`copy`], of at least eight registers.
    #[target_feature(enable = "avx")]
    pub(super) unsafe fn copy_halves_downwards(from: *const u8, to: *mut u8, bytes: usize) {
        /// A line.
        const STEP: usize = 2 * REGISTER;
        debug_assert!(bytes >= 8 * REGISTER);
        // Both end with a line of the source, but for a rest of the upper one: what is waited for are the loads.
        let half = bytes / 2 - from.addr().wrapping_add(bytes / 2) % STEP;
        let end = bytes - from.addr().wrapping_add(bytes) % STEP;
        // SAFETY: that rest.
        unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(end), to.wrapping_add(end), bytes - end) };
        let (mut upper, mut lower) = (end, half);
        while lower >= STEP && upper >= half + STEP {
            (upper, lower) = (upper - STEP, lower - STEP);
            // SAFETY: these two registers' bytes lie in the upper half.
            let (first, second) =
                unsafe { (load(from.wrapping_add(upper + REGISTER)), load(from.wrapping_add(upper))) };
            // SAFETY: and these in the lower one.
            let (third, fourth) =
                unsafe { (load(from.wrapping_add(lower + REGISTER)), load(from.wrapping_add(lower))) };
            // SAFETY: as above, of the target.
            unsafe {
                store(to.wrapping_add(upper + REGISTER), first);
                store(to.wrapping_add(upper), second);
                store(to.wrapping_add(lower + REGISTER), third);
                store(to.wrapping_add(lower), fourth);
            }
        }
        // The halves differ by less than two lines, so that little is left of either.
        // SAFETY: the beginning of the upper half.
        unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(half), to.wrapping_add(half), upper - half) };
        // SAFETY: and of the lower one.
        unsafe { std::ptr::copy_nonoverlapping(from, to, lower) };
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    loops!("avx512f", __m512i, _mm512_loadu_si512, _mm512_storeu_si512);
}

#[cfg(test)]
mod tests {
    use super::*;

    type Copying = fn(&mut [u8], &[u8]);

    /// The ways that a copy may take, also those that this processor has better ones than, and the shortest copy of each.
    fn ways() -> Vec<(usize, Copying)> {
        let mut ways: Vec<(usize, Copying)> = Vec::from([(0, copy as Copying), (0, copy_downwards)]);
        #[cfg(target_arch = "x86_64")]
        {
            /// Copies by a loop, which this processor has the instructions for, as many bytes as both are long.
            macro_rules! by {
                ($loop:path) => {
                    |into, from| {
                        assert_eq!(into.len(), from.len());
                        // SAFETY: as many bytes are borrowed of each, and who calls this knows the shortest copy.
                        unsafe { $loop(from.as_ptr(), into.as_mut_ptr(), from.len()) };
                    }
                };
            }
            if std::arch::is_x86_feature_detected!("avx") {
                ways.extend([(64, by!(avx::copy) as Copying), (64, by!(avx::copy_downwards))]);
                ways.push((256, by!(avx::copy_halves_downwards)));
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                ways.extend([(128, by!(avx512::copy) as Copying), (128, by!(avx512::copy_downwards))]);
            }
        }
        ways
    }

    #[test]
    fn every_length_and_alignment_is_copied_whole_and_nothing_beside_it() {
        const ROOM: usize = 2500;
        let source: Vec<u8> = (0..ROOM as u32).map(|n| (n * 7 + n / 256) as u8).collect();
        let (intos, froms, lens): (Vec<usize>, &[usize], Vec<usize>) = match cfg!(miri) {
            true => (vec![0, 15], &[3], vec![255, 256, 319, 2047, 2048, 2111]),
            // All that a turn of the loop and what is before and behind it can come to.
            false => {
                let lens = (0..4).chain(254..256 + 4 * 64 + 2).chain(2046..2048 + 4 * 64 + 2);
                ((0..=64).collect(), &[0, 1, 31, 63], lens.collect())
            }
        };
        for into in intos {
            for from in froms.iter().copied() {
                for len in lens.iter().copied() {
                    for (_, copy) in ways().into_iter().filter(|(least, _)| len >= *least) {
                        let mut target = vec![0xaa; ROOM];
                        copy(&mut target[into..into + len], &source[from..from + len]);
                        assert_eq!(target[into..into + len], source[from..from + len], "{into} {from} {len}");
                        assert!(target[..into].iter().chain(&target[into + len..]).all(|byte| *byte == 0xaa));
                    }
                }
            }
        }
    }

    #[test]
    fn copies_by_the_instruction_are_whole() {
        let source: Vec<u8> = (0..BY_INSTRUCTION_MIN_BYTES as u32 + 200).map(|n| (n * 7 + n / 256) as u8).collect();
        for len in [100, BY_INSTRUCTION_MIN_BYTES - 1, BY_INSTRUCTION_MIN_BYTES, BY_INSTRUCTION_MIN_BYTES + 129] {
            for from in [0, 1, 40] {
                let mut target = vec![0; len + 2];
                copy_by_instruction(&mut target[1..=len], &source[from..][..len]);
                assert!(target[1..=len] == source[from..][..len] && target[0] == 0 && target[len + 1] == 0, "{len}");
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn long_copies_from_the_end_are_whole() {
        let source: Vec<u8> = (0..HALVES_MIN_BYTES as u32 + 200).map(|n| (n * 7 + n / 256) as u8).collect();
        for len in [HALVES_MIN_BYTES - 1, HALVES_MIN_BYTES, HALVES_MIN_BYTES + 129] {
            let mut target = vec![0; len + 2];
            copy_downwards(&mut target[1..=len], &source[9..][..len]);
            assert!(target[1..=len] == source[9..][..len] && target[0] == 0 && target[len + 1] == 0, "{len}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of bytes")]
    fn the_longest_copies_are_whole_too() {
        for len in [LONG_MAX_BYTES - 1, LONG_MAX_BYTES, LONG_MAX_BYTES + 1] {
            let source: Vec<u8> = (0..len).map(|n| (n * 7 + n / 256) as u8).collect();
            let mut target = vec![0; len + 1];
            copy(&mut target[1..], &source);
            assert!(target[1..] == source && target[0] == 0, "{len}");
        }
    }

    #[test]
    #[should_panic(expected = "a copy has one length")]
    fn two_lengths_are_refused() {
        copy(&mut [0; 2], &[0; 3]);
    }
}
