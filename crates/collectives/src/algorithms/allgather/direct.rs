//! Allgather by telling everyone: each rank sends its block to all others.
//!
//! ```text
//! rank     0        1        2        3
//!          a>1 2 3  b>2 3 0  c>3 0 1  d>0 1 2    and waits once
//! ```
//!
//! Blocks go straight to their place and nothing is passed on. For few ranks, and where ranks
//! outnumber cores.
//!
//! Cost: `(p - 1) (α + n β)`, with latencies overlapped; `n` bytes per block.
//!
//! Source: textbook (spread-out).

use crate::algorithms::common::layout::Layout;
use crate::builder::Builder;
use crate::call::{Allgather, Allgatherv};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allgather> = Algorithm {
    name: "direct",
    summary: "everyone sends to everyone, within a window",
    cost: "(p - 1) (a + n b), overlapped",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), &call.blocks()),
};

pub(crate) const ALGORITHM_V: Algorithm<Allgatherv> = Algorithm {
    name: "direct",
    summary: "everyone sends to everyone, within a window",
    cost: "(p - 1) (a + n b), overlapped",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), &call.blocks()),
};

/// Messages under way at once.
const WINDOW: u64 = 64;

fn append(b: &mut Builder, own: Option<Region>, blocks: &Layout<'_>) {
    let own_block = blocks.block(b.rank());
    for distance in 1..b.size() {
        let (before, after) = (b.before(distance), b.after(distance));
        b.recv(before, blocks.block(before));
        b.send(after, own.unwrap_or(own_block));
        b.wait_window(WINDOW);
    }
    if let Some(own) = own {
        b.copy(own, own_block);
    }
}
