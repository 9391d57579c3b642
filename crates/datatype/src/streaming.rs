//! Packing past the caches, into memory that another core reads next.
//!
//! What streams is to be written in whole lines. Long blocks go there directly, and where one block ends and the next begins
//! their line is made up in between. Shorter ones are packed near first, for the loops that gather write short pieces.

use base::streaming::{self, LINE_BYTES};

use crate::copy::Visitor;

/// Shortest block, on average, that goes directly.
pub(crate) const LONG_BLOCK_BYTES: u64 = 64;
/// Bytes that are packed near at once: a part of the first-level cache.
const NEAR_BYTES: usize = 4096;

/// Fills `to` by `pack`, that gives the bytes from an offset on, by way of memory near by. Of what is short little is used,
/// for all of it is cleared before.
pub(crate) fn pack_by_way_of_near(to: &mut [u8], pack: impl FnMut(u64, &mut [u8])) {
    match to.len() {
        ..=256 => pack_by_way_of::<256>(to, pack),
        257..=1024 => pack_by_way_of::<1024>(to, pack),
        _ => pack_by_way_of::<NEAR_BYTES>(to, pack),
    }
}

fn pack_by_way_of<const NEAR: usize>(to: &mut [u8], mut pack: impl FnMut(u64, &mut [u8])) {
    let mut near = [0; NEAR];
    let mut done = 0;
    for part in to.chunks_mut(NEAR) {
        let near = &mut near[..part.len()];
        pack(done, near);
        streaming::copy(part, near);
        done += part.len() as u64;
    }
}

/// A line of the target that is not whole yet.
#[repr(align(64))]
struct Line([u8; LINE_BYTES]);

/// Gathers user memory into a slice by streaming stores.
pub(crate) struct PackStreaming<'a> {
    to: &'a mut [u8],
    done: usize,
    line: Line,
    /// The last of the bytes that are done lie in the line, and not in the target yet.
    held: usize,
}

impl<'a> PackStreaming<'a> {
    /// A visitor that fills `to`.
    ///
    /// # Safety
    /// Every run it is handed must be readable memory that nothing writes meanwhile.
    pub unsafe fn new(to: &'a mut [u8]) -> Self {
        PackStreaming { to, done: 0, line: Line([0; LINE_BYTES]), held: 0 }
    }

    /// Writes what is left; how many bytes that makes.
    pub fn finish(self) -> usize {
        let PackStreaming { to, done, line, held } = self;
        to[done - held..done].copy_from_slice(&line.0[..held]);
        streaming::finish();
        done
    }
}

impl Visitor for PackStreaming<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.to.len() - self.done) as u64
    }

    #[inline]
    fn run(&mut self, user: *mut u8, bytes: u64) {
        // SAFETY: `user` is readable for `bytes` bytes, and nothing writes there, by the contract of `new`.
        let mut run = unsafe { std::slice::from_raw_parts(user.cast_const(), bytes as usize) };
        let mut take = |most: usize| run.split_off(..most.min(run.len())).unwrap_or_default();
        let behind = self.to[self.done..].as_ptr().addr() % LINE_BYTES;
        if self.held > 0 {
            let part = take(LINE_BYTES - self.held);
            self.line.0[self.held..][..part.len()].copy_from_slice(part);
            (self.held, self.done) = (self.held + part.len(), self.done + part.len());
            if self.held < LINE_BYTES {
                return;
            }
            let to = &mut self.to[self.done - LINE_BYTES..self.done];
            // SAFETY: both are one line, and where the held bytes begin one of the target does.
            unsafe { streaming::lines(self.line.0.as_ptr(), to.as_mut_ptr(), 1) };
            self.held = 0;
        } else if behind > 0 {
            // Before the first whole line.
            let part = take(LINE_BYTES - behind);
            self.to[self.done..][..part.len()].copy_from_slice(part);
            self.done += part.len();
        }
        let whole = run.len() - run.len() % LINE_BYTES;
        let (whole, rest) = run.split_at(whole);
        let to = &mut self.to[self.done..][..run.len()];
        // SAFETY: as many lines of both; the target is at the beginning of one, or nothing is left of the run.
        unsafe { streaming::lines(whole.as_ptr(), to.as_mut_ptr(), whole.len() / LINE_BYTES) };
        self.line.0[..rest.len()].copy_from_slice(rest);
        (self.held, self.done) = (rest.len(), self.done + run.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of any lengths from a target's any byte on: all of them arrive, one behind the other, and nothing beside them.
    #[test]
    fn runs_of_any_length_are_put_together_into_lines() {
        let source: Vec<u8> = (0..4096u32).map(|n| (n * 7 + n / 256) as u8).collect();
        let mut state = 1u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % limit
        };
        for _ in 0..if cfg!(miri) { 4 } else { 500 } {
            let (start, len) = (below(130), below(3000));
            let mut target = vec![0xa5; start + len + 70];
            let mut expected = target.clone();
            // SAFETY: each run below lies in the source, which nobody writes to.
            let mut pack = unsafe { PackStreaming::new(&mut target[start..start + len]) };
            let most = 1 + [10, 70, 700][below(3)];
            let mut done = 0;
            while pack.room() > 0 {
                let bytes = (1 + below(most)).min(pack.room() as usize);
                let from = below(source.len() - bytes);
                expected[start + done..][..bytes].copy_from_slice(&source[from..][..bytes]);
                pack.run(source[from..][..bytes].as_ptr().cast_mut(), bytes as u64);
                done += bytes;
            }
            assert_eq!(pack.finish(), len);
            assert!(target == expected, "{start} {len} {most}");
        }
    }

    #[test]
    fn what_comes_by_way_of_near_memory_is_whole() {
        for len in [0, 1, 256, 257, 1024, 1025, NEAR_BYTES, NEAR_BYTES + streaming::MIN_BYTES, 3 * NEAR_BYTES - 1] {
            let byte = |at: u64| (at % 251) as u8;
            let mut to = vec![0; len];
            pack_by_way_of_near(&mut to, |done, near| {
                near.iter_mut().zip(done..).for_each(|(to, at)| *to = byte(at));
            });
            assert!(to.iter().zip(0..).all(|(to, at)| *to == byte(at)), "{len}");
        }
    }
}
