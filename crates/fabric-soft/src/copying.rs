//! Copies between ranges that were promised: the only places where payload bytes are touched in this process.

use base::memory::{ReadRange, WriteRange};
use base::sync::{AtomicU64, Ordering};
use smallvec::SmallVec;

/// Copies `from` to `to`, in order, until either ends; returns the bytes copied. The ranges may overlap.
pub fn copy(from: &[ReadRange], to: &[WriteRange]) -> u64 {
    let mut total = 0;
    let (mut sources, mut targets) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut target) = (sources.next(), targets.next());
    while let (Some(here), Some(there)) = (source, target) {
        let step = here.len_bytes().min(there.len_bytes());
        let (source_start, target_start) = (here.address() as *const u8, there.address() as *mut u8);
        if here.address().abs_diff(there.address()) >= step {
            // SAFETY: both ranges were promised valid for at least `step` bytes while the request that named them lives,
            // and so many bytes of them do not overlap.
            unsafe { base::copy::copy_raw(source_start, target_start, step) };
        } else {
            // SAFETY: as above, but for overlapping, which is allowed here.
            unsafe { std::ptr::copy(source_start, target_start, step) };
        }
        total += step as u64;
        source = rest(here.part(step, here.len_bytes() - step), ReadRange::len_bytes).or_else(|| sources.next());
        target = rest(there.part(step, there.len_bytes() - step), WriteRange::len_bytes).or_else(|| targets.next());
    }
    total
}

/// The bytes of `from`, copied.
pub fn gather(from: &[ReadRange]) -> Vec<u8> {
    let mut bytes = vec![0u8; from.iter().map(|range| range.len_bytes()).sum()];
    gather_into(from, &mut bytes);
    bytes
}

/// Fills `space` with the bytes of `from`.
#[inline]
pub fn gather_into(from: &[ReadRange], space: &mut [u8]) {
    // SAFETY: the space is borrowed through the copy, which is over when this returns.
    let target = unsafe { WriteRange::new(space.as_mut_ptr(), space.len()) };
    copy(from, &[target]);
}

/// Adds the bytes of `from` to `to`.
pub fn append(from: &[ReadRange], to: &mut Vec<u8>) {
    for range in from {
        let (len, more) = (to.len(), range.len_bytes());
        to.reserve(more);
        // SAFETY: so much room was made behind what is there.
        let end = unsafe { to.as_mut_ptr().add(len) };
        // SAFETY: the range was promised valid while the request that named it lives, and the room is nobody else's.
        unsafe { base::copy::copy_raw(range.address() as *const u8, end, more) };
        // SAFETY: so many bytes have just been written.
        unsafe { to.set_len(len + more) };
    }
}

/// Copies `bytes` to `to`, as far as they fit.
pub fn scatter(bytes: &[u8], to: &[WriteRange]) -> u64 {
    copy(&[borrowed(bytes)], to)
}

/// As [`scatter`], for bytes that whoever owns the place may be polling: the last eight, where they are aligned, are seen
/// all at once and after the others.
#[inline]
pub fn scatter_in_order(bytes: &[u8], to: &[WriteRange]) -> u64 {
    let (Some((body, word)), [range]) = (bytes.split_last_chunk::<8>(), to) else { return scatter(bytes, to) };
    let (len, end) = (bytes.len(), range.address() + bytes.len());
    if len > range.len_bytes() || !end.is_multiple_of(8) {
        return scatter(bytes, to);
    }
    if !body.is_empty() {
        scatter(body, to);
    }
    // SAFETY: 8 aligned bytes inside a range that was promised valid; whoever shares them uses atomics.
    let last = unsafe { &*((end - 8) as *const AtomicU64) };
    // Release: what was written before is seen by who sees this.
    last.store(u64::from_ne_bytes(*word), Ordering::Release);
    len as u64
}

/// Fills `space` with the bytes of `from` behind the first `skip`.
pub fn read_behind(from: &[ReadRange], mut skip: usize, space: &mut [u8]) {
    let mut rest: SmallVec<[ReadRange; 4]> = SmallVec::new();
    for range in from {
        let here = skip.min(range.len_bytes());
        skip -= here;
        rest.extend(range.part(here, range.len_bytes() - here));
    }
    gather_into(&rest, space);
}

/// What is left of `ranges` behind their first `skip` bytes.
pub fn behind(ranges: &[WriteRange], mut skip: usize) -> SmallVec<[WriteRange; 4]> {
    let mut rest = SmallVec::new();
    for range in ranges {
        let here = skip.min(range.len_bytes());
        skip -= here;
        rest.extend(range.part(here, range.len_bytes() - here).filter(|range| range.len_bytes() > 0));
    }
    rest
}

/// `bytes` as a range, for a link that copies before `send` returns.
pub(crate) fn borrowed(bytes: &[u8]) -> ReadRange {
    // SAFETY: whoever is given the range uses it while `bytes` is borrowed: links copy what is not lent.
    unsafe { ReadRange::new(bytes.as_ptr(), bytes.len()) }
}

fn rest<T>(range: Option<T>, len: impl Fn(T) -> usize) -> Option<T>
where
    T: Copy,
{
    range.filter(|range| len(*range) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the naive way: all bytes one after the other.
        #[test]
        fn pieces_of_any_length_are_copied_in_order(
            from in prop::collection::vec(0usize..9, 0..6), to in prop::collection::vec(0usize..9, 0..6),
        ) {
            let source: Vec<u8> = (0..from.iter().sum::<usize>()).map(|at| at as u8 + 1).collect();
            let mut target = vec![0u8; to.iter().sum()];
            let mut at = 0;
            let from: Vec<_> = from.into_iter().map(|len| { at += len; borrowed(&source[at - len..at]) }).collect();
            let mut at = 0;
            let start = target.as_mut_ptr();
            let to: Vec<_> = to.into_iter().map(|len| {
                at += len;
                // SAFETY: the pieces lie one behind the other inside `target`.
                unsafe { WriteRange::new(start.add(at - len), len) }
            }).collect();
            let moved = copy(&from, &to) as usize;
            prop_assert_eq!(moved, source.len().min(target.len()));
            prop_assert_eq!(&target[..moved], &source[..moved]);
            prop_assert!(target[moved..].iter().all(|byte| *byte == 0));
            prop_assert_eq!(gather(&from), &source[..]);
            for skip in 0..=source.len() {
                let mut rest = vec![0; source.len() - skip];
                read_behind(&from, skip, &mut rest);
                prop_assert_eq!(&rest, &source[skip..]);
            }
            let mut again = vec![0u8; target.len()];
            // SAFETY: the vector lives through the copy.
            let whole = unsafe { WriteRange::new(again.as_mut_ptr(), again.len()) };
            prop_assert_eq!(scatter_in_order(&source[..moved], &[whole]) as usize, moved);
            prop_assert_eq!(&again[..], &target[..]);
            let skip = target.len() / 2;
            scatter(&vec![0xee; target.len()], &behind(&to, skip));
            prop_assert!(target[skip..].iter().all(|byte| *byte == 0xee));
            prop_assert!(target[..skip].iter().all(|byte| *byte != 0xee));
        }
    }
}
