//! Gather up a binomial tree: a vertex collects the blocks of its subtree, then passes them on.
//!
//! ```text
//! vertex   0 1 2 3 4 5 6 7
//!          0<1 2<3 4<5 6<7      1 block each
//!          0<--2   4<--6        2 blocks
//!          0<------4            4 blocks: all consecutive
//! ```
//!
//! Cost: `⌈log2 p⌉ α + (p - 1) n β`, with `n` bytes per block.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.

use smallvec::SmallVec;

use crate::algorithms::common::tree;
use crate::builder::{Builder, ring};
use crate::call::Gather;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall};

pub(crate) const ALGORITHM: Algorithm<Gather> = Algorithm {
    name: "binomial",
    summary: "up a binomial tree",
    cost: "ceil(log2 p) a + (p - 1) n b",
    fits: |_, _| true,
    build: |b, call| {
        let place = b.place();
        let block_bytes = call.len_bytes(place);
        let blocks = |from: u32, to: u32| call.recv.blocks(BufferId::Recv, TypeSlot::Recv, from, to - from);
        append(b, call.root, call.own(place), &|_| block_bytes, &blocks);
    },
};

/// Gathers blocks whose packed sizes all ranks know. `own` is none where the root has its block in
/// place; `blocks(from, to)` is where the root wants the blocks of these ranks.
pub(crate) fn append(
    b: &mut Builder,
    root: u32,
    own: Option<Region>,
    len_bytes: &dyn Fn(u32) -> u64,
    blocks: &dyn Fn(u32, u32) -> Region,
) {
    let subtree = Subtree::of(b, root);
    let size = b.size();
    let rank_of = |vertex: u32| ring(root, i64::from(vertex), size);
    let total = |from: u32, to: u32| (from..to).map(|v| len_bytes(rank_of(v))).sum::<u64>();
    if subtree.vertex == 0 {
        append_root(b, root, own, &subtree, total, blocks);
        return;
    }
    let parent = tree::rank(b, root, subtree.vertex & (subtree.vertex - 1));
    let own = own.expect("only the root's block can be in place");
    if subtree.end == subtree.vertex + 1 {
        b.send(parent, own);
        return;
    }
    let collected_bytes = total(subtree.vertex, subtree.end);
    let parts: SmallVec<[_; 32]> = (subtree.children.iter())
        .map(|&(child, end)| (child, total(subtree.vertex, child), total(child, end)))
        .collect();
    let own_bytes = total(subtree.vertex, subtree.vertex + 1);
    let collected = b.temp_bytes(collected_bytes);
    for (child, offset_bytes, child_bytes) in parts {
        let child = tree::rank(b, root, child);
        b.recv(child, Region::bytes(collected, offset_bytes, child_bytes));
    }
    b.copy(own, Region::bytes(collected, 0, own_bytes));
    b.wait_all();
    b.send(parent, Region::bytes(collected, 0, collected_bytes));
}

fn append_root(
    b: &mut Builder,
    root: u32,
    own: Option<Region>,
    subtree: &Subtree,
    total: impl Fn(u32, u32) -> u64,
    blocks: &dyn Fn(u32, u32) -> Region,
) {
    let mut unpacking = SmallVec::<[_; 2]>::new();
    for &(child, end) in &subtree.children {
        let (first, last) = (tree::rank(b, root, child), tree::rank(b, root, end - 1));
        if first <= last {
            b.recv(first, blocks(first, last + 1));
            continue;
        }
        // The ranks of this subtree go round past the last: two runs of blocks in one message.
        let before_zero = total(child, child + b.size() - first);
        let all = total(child, end);
        let packed = b.temp_bytes(all);
        b.recv(first, Region::bytes(packed, 0, all));
        unpacking.push((Region::bytes(packed, 0, before_zero), blocks(first, b.size())));
        unpacking.push((Region::bytes(packed, before_zero, all - before_zero), blocks(0, last + 1)));
    }
    if let Some(own) = own {
        b.copy(own, blocks(root, root + 1));
    }
    if !unpacking.is_empty() {
        b.wait_all();
    }
    for (from, to) in unpacking {
        b.copy(from, to);
    }
}

/// The consecutive vertices below one, in a binomial tree.
pub(crate) struct Subtree {
    pub(crate) vertex: u32,
    /// One past its last vertex.
    pub(crate) end: u32,
    /// Children and the ends of their subtrees, nearest first.
    pub(crate) children: SmallVec<[(u32, u32); 32]>,
}

impl Subtree {
    pub(crate) fn of(b: &Builder, root: u32) -> Subtree {
        let (vertex, size) = (tree::vertex(b, root), b.size());
        let lowest_bit = if vertex == 0 { size.next_power_of_two() } else { vertex & vertex.wrapping_neg() };
        let mut children = SmallVec::new();
        let mut bit = 1;
        while bit < lowest_bit && vertex + bit < size {
            children.push((vertex + bit, (vertex + 2 * bit).min(size)));
            bit *= 2;
        }
        Subtree { vertex, end: (vertex + lowest_bit).min(size), children }
    }
}
