//! Allgather as a gather to rank 0 and a broadcast from it, both along a binomial tree.
//!
//! ```text
//!        0            0
//!      / | \        / | \
//!     4  2  1  ^   4  2  1  v      blocks up, everything down
//! ```
//!
//! `2 (p - 1)` messages, the fewest there can be: for short blocks where ranks outnumber cores.
//!
//! Cost: `2 ⌈log2 p⌉ α + (p - 1) n β + ⌈log2 p⌉ p n β`, with `n` bytes per block.
//!
//! Source: textbook.

use crate::algorithms::common::gathered::Gathered;
use crate::algorithms::common::layout::Layout;
use crate::algorithms::common::tree::Tree;
use crate::algorithms::gather;
use crate::builder::Builder;
use crate::call::{Allgather, Allgatherv};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allgather> = Algorithm {
    name: "gather_bcast",
    summary: "gathered at rank 0 and broadcast: fewest messages",
    cost: "2 ceil(log2 p) a + (p - 1 + p ceil(log2 p)) n b",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), call.blocks()),
};

pub(crate) const ALGORITHM_V: Algorithm<Allgatherv> = Algorithm {
    name: "gather_bcast",
    summary: "gathered at rank 0 and broadcast: fewest messages",
    cost: "2 ceil(log2 p) a + (p - 1 + p ceil(log2 p)) n b",
    fits: |_, _| true,
    build: |b, call| append(b, call.own(), call.blocks()),
};

fn append(b: &mut Builder, own: Option<Region>, blocks: Layout<'_>) {
    let gathered = Gathered::open(b, blocks, own);
    let rank = b.rank();
    let own = (rank > 0).then(|| gathered.run(rank, rank + 1));
    gather::binomial::append(b, 0, own, &|rank| gathered.len_bytes(rank), &|from, to| gathered.run(from, to));
    let tree = Tree::binomial(b, 0);
    pass_down(b, &tree, &gathered);
}

/// Sends all blocks, gathered at rank 0, down a tree.
pub(crate) fn pass_down(b: &mut Builder, tree: &Tree, gathered: &Gathered<'_>) {
    b.wait_all();
    b.phase();
    let everything = gathered.run(0, b.size());
    if let Some(parent) = tree.parent {
        b.recv(parent, everything);
        b.wait_all();
    }
    for &child in &tree.children {
        b.send(child, everything);
    }
    gathered.close(b);
}
