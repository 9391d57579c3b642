//! Allgather round a ring: each rank passes on what it last got.
//!
//! ```text
//! rank     0     1     2     3
//!          a >   b >   c >   d >
//!          da >  ab >  bc >  cd >
//!          cda > dab > abc > bcd >
//! ```
//!
//! Blocks go straight to their place, one message each. Cost: `(p - 1) (α + n β)`, with `n` bytes
//! per block.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.1.

use crate::algorithms::common::layout::Layout;
use crate::builder::{Builder, ring};
use crate::call::{Allgather, Allgatherv};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allgather> = Algorithm {
    name: "ring",
    summary: "round a ring, block by block",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), &call.blocks()),
};

pub(crate) const ALGORITHM_V: Algorithm<Allgatherv> = Algorithm {
    name: "ring",
    summary: "round a ring, block by block",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), &call.blocks()),
};

fn append(b: &mut Builder, own: Option<Region>, blocks: &Layout<'_>) {
    let (rank, size) = (b.rank(), b.size());
    let (before, after) = (b.before(1), b.after(1));
    let own_block = blocks.block(rank);
    for step in 0..size - 1 {
        let outgoing = ring(rank, -i64::from(step), size);
        let incoming = ring(rank, -i64::from(step) - 1, size);
        let arriving = b.recv(before, blocks.block(incoming));
        let from = if step == 0 { own.unwrap_or(own_block) } else { blocks.block(outgoing) };
        b.send(after, from);
        b.wait(arriving);
    }
    if let Some(own) = own {
        b.copy(own, own_block);
    }
}
