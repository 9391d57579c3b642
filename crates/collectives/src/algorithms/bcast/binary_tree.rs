//! Broadcast down a binary tree in segments: short paths, and all links busy.
//!
//! ```text
//!          0
//!        /   \        s0, s1, s2 ... follow each other down
//!       1     2
//!      / \   / \
//!     3   4 5   6
//! ```
//!
//! Cost: `(⌈log2 (p + 1)⌉ - 2 + S) 2 (α + n/S β)` with `S` segments.
//!
//! Source: Pješivac-Grbović et al., Cluster Computing 10, 2007, §3.2 (binary).

use crate::algorithms::bcast::pipeline_down;
use crate::algorithms::common::tree::Tree;
use crate::call::Bcast;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Bcast> = Algorithm {
    name: "binary_tree",
    summary: "down a binary tree, in segments",
    cost: "2 (ceil(log2 (p + 1)) - 2 + S) (a + n/S b)",
    fits: |_, _| true,
    build: |b, call| {
        let tree = Tree::binary(b, call.root);
        pipeline_down(b, &tree, &call.data);
    },
};
