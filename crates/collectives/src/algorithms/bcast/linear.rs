//! Broadcast by the root alone: every other rank waits once and passes nothing on.
//!
//! ```text
//!      0
//!    / | \ ...
//!   1  2  3
//! ```
//!
//! Cost: `(p - 1) (α + n β)` at the root.
//!
//! Source: textbook.

use crate::algorithms::bcast::pass_down;
use crate::algorithms::common::tree::Tree;
use crate::call::Bcast;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Bcast> = Algorithm {
    name: "linear",
    summary: "the root sends to everyone",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| {
        let tree = Tree::flat(b, call.root);
        pass_down(b, &tree, &call.data);
    },
};
