//! Allgather by Bruck's method: everyone collects the blocks of the ranks after it, first its own,
//! and hands its collection to the rank `2^k` before it.
//!
//! ```text
//! rank     0      1      2      3      4
//!          a      b      c      d      e
//! k = 0    ab     bc     cd     de     ea
//! k = 1    abcd   bcde   cdea   deab   eabc
//! k = 2    abcde  bcdea  ...                  only what is missing
//! ```
//!
//! For any number of ranks. Cost: `⌈log2 p⌉ α + (p - 1) n β`, with `n` bytes per block, and a copy
//! of all blocks to their places.
//!
//! Source: J. Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", IEEE TPDS 8(11), 1997, §4.

use crate::algorithms::common::layout::Layout;
use crate::builder::Builder;
use crate::call::{Allgather, Allgatherv};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allgather> = Algorithm {
    name: "bruck",
    summary: "collections handed to the rank 2^k before, in rounds",
    cost: "ceil(log2 p) a + (p - 1) n b",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), &call.blocks()),
};

pub(crate) const ALGORITHM_V: Algorithm<Allgatherv> = Algorithm {
    name: "bruck",
    summary: "collections handed to the rank 2^k before, in rounds",
    cost: "ceil(log2 p) a + (p - 1) n b",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), &call.blocks()),
};

fn append(b: &mut Builder, own: Option<Region>, blocks: &Layout<'_>) {
    let (rank, size) = (b.rank(), b.size());
    // Block `k` of the collection is that of the rank `k` after this one.
    let mut offsets = vec![0];
    for distance in 0..size {
        offsets.push(offsets[distance as usize] + blocks.len_bytes(b.after(distance)));
    }
    let collection = b.temp_bytes(offsets[size as usize]);
    let run = |from: u32, to: u32| {
        let (first, end) = (offsets[from as usize], offsets[to as usize]);
        Region::bytes(collection, first, end - first)
    };
    b.copy(own.unwrap_or(blocks.block(rank)), run(0, 1));
    let mut have = 1;
    while have < size {
        let more = have.min(size - have);
        let (before, after) = (b.before(have), b.after(have));
        let arriving = b.recv(after, run(have, have + more));
        b.send(before, run(0, more));
        b.wait(arriving);
        have += more;
    }
    // In place, our own block stands where it belongs.
    let first_missing = if own.is_some() { 0 } else { 1 };
    match (blocks.run(rank, size), blocks.run(0, rank)) {
        (Some(from_ours), below) if own.is_some() && (below.is_some() || rank == 0) => {
            b.copy(run(0, size - rank), from_ours);
            if let Some(below) = below {
                b.copy(run(size - rank, size), below);
            }
        }
        _ => {
            for distance in first_missing..size {
                b.copy(run(distance, distance + 1), blocks.block(b.after(distance)));
            }
        }
    }
}
