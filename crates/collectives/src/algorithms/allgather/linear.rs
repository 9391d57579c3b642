//! Allgather at rank 0: all send it their block, and it sends everyone all blocks.
//!
//! ```text
//! 1 2 3 ... p-1          0
//!  \ | |    /      then /| \ ...
//!      0               1 2 3
//! ```
//!
//! `2 (p - 1)` messages, the fewest there can be, and every other rank waits exactly once: for short
//! blocks where ranks outnumber cores, each wait being a change of context.
//!
//! Cost: `2 (p - 1) α + (p - 1) (p + 1) n β` at rank 0, with `n` bytes per block.
//!
//! Source: textbook.

use crate::algorithms::allgather::gather_bcast::pass_down;
use crate::algorithms::common::gathered::Gathered;
use crate::algorithms::common::layout::Layout;
use crate::algorithms::common::tree::Tree;
use crate::builder::Builder;
use crate::call::{Allgather, Allgatherv};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allgather> = Algorithm {
    name: "linear",
    summary: "everyone sends to rank 0, which sends all blocks to everyone",
    cost: "2 (p - 1) a + (p - 1) (p + 1) n b",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), call.blocks()),
};

pub(crate) const ALGORITHM_V: Algorithm<Allgatherv> = Algorithm {
    name: "linear",
    summary: "everyone sends to rank 0, which sends all blocks to everyone",
    cost: "2 (p - 1) a + (p - 1) (p + 1) n b",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), call.blocks()),
};

fn append(b: &mut Builder, own: Option<Region>, blocks: Layout<'_>) {
    let gathered = Gathered::open(b, blocks, own);
    let rank = b.rank();
    if rank > 0 {
        b.send(0, gathered.run(rank, rank + 1));
    } else {
        for peer in 1..b.size() {
            b.recv(peer, gathered.run(peer, peer + 1));
        }
    }
    let tree = Tree::flat(b, 0);
    pass_down(b, &tree, &gathered);
}
