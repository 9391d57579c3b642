//! Scatter down a binomial tree: a vertex is handed the blocks of its subtree and passes on those
//! of its children's, the largest subtree first.
//!
//! ```text
//! vertex   0 1 2 3 4 5 6 7
//!          0------>4            4 blocks
//!          0-->2   4-->6        2 blocks each
//!          0>1 2>3 4>5 6>7      1 block
//! ```
//!
//! Cost: `⌈log2 p⌉ α + (p - 1) n β`, with `n` bytes per block.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.

use crate::algorithms::common::tree;
use crate::algorithms::gather::binomial::Subtree;
use crate::builder::{Builder, ring};
use crate::call::Scatter;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall};

pub(crate) const ALGORITHM: Algorithm<Scatter> = Algorithm {
    name: "binomial",
    summary: "down a binomial tree",
    cost: "ceil(log2 p) a + (p - 1) n b",
    fits: |_, _| true,
    build: |b, call| {
        let place = b.place();
        let block_bytes = call.len_bytes(place);
        let blocks = |from: u32, to: u32| call.send.blocks(BufferId::Send, TypeSlot::Send, from, to - from);
        append(b, call.root, call.own(place), &|_| block_bytes, &blocks);
    },
};

/// Scatters blocks whose packed sizes all ranks know. `own` is none where the root's block stays in
/// place; `blocks(from, to)` is where the root has the blocks of these ranks.
pub(crate) fn append(
    b: &mut Builder,
    root: u32,
    own: Option<Region>,
    len_bytes: &dyn Fn(u32) -> u64,
    blocks: &dyn Fn(u32, u32) -> Region,
) {
    let subtree = Subtree::of(b, root);
    let place = b.place();
    let rank_of = |vertex: u32| ring(root, i64::from(vertex), place.size);
    let total = |from: u32, to: u32| (from..to).map(|v| len_bytes(rank_of(v))).sum::<u64>();
    let farthest_first = subtree.children.iter().rev();
    if subtree.vertex == 0 {
        for &(child, end) in farthest_first {
            let (first, last) = (rank_of(child), rank_of(end - 1));
            if first <= last {
                b.send(first, blocks(first, last + 1));
                continue;
            }
            // The ranks of this subtree go round past the last: two runs of blocks in one message.
            let before_zero = total(child, child + place.size - first);
            let all = total(child, end);
            let packed = b.temp_bytes(all);
            b.copy(blocks(first, place.size), Region::bytes(packed, 0, before_zero));
            b.copy(blocks(0, last + 1), Region::bytes(packed, before_zero, all - before_zero));
            b.send(first, Region::bytes(packed, 0, all));
        }
        if let Some(own) = own {
            b.copy(blocks(root, root + 1), own);
        }
        return;
    }
    let parent = tree::rank(b, root, subtree.vertex & (subtree.vertex - 1));
    let own = own.expect("only the root's block can stay in place");
    if subtree.children.is_empty() {
        b.recv(parent, own);
        return;
    }
    let all = total(subtree.vertex, subtree.end);
    let handed = b.temp_bytes(all);
    b.recv(parent, Region::bytes(handed, 0, all));
    b.wait_all();
    for &(child, end) in farthest_first {
        let (offset_bytes, child_bytes) = (total(subtree.vertex, child), total(child, end));
        b.send(rank_of(child), Region::bytes(handed, offset_bytes, child_bytes));
    }
    b.copy(Region::bytes(handed, 0, total(subtree.vertex, subtree.vertex + 1)), own);
}
