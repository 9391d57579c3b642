//! Barrier at rank 0: all report to it, then it releases all. Each other rank waits exactly once.
//!
//! ```text
//! 1 2 3 ... p-1          0
//!  \ | |    /      then /| \ ...
//!      0               1 2 3
//! ```
//!
//! Cost: `2 (p - 1) α` at rank 0; `2 (p - 1)` messages in all.
//!
//! Source: textbook (central counter barrier).

use crate::algorithms::barrier::tree::gather_and_release;
use crate::algorithms::common::tree::Tree;
use crate::call::Barrier;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Barrier> = Algorithm {
    name: "linear",
    summary: "all report to rank 0, which releases all",
    cost: "2 (p - 1) a",
    fits: |_, _| true,
    build: |b, _| {
        let tree = Tree::flat(b, 0);
        gather_and_release(b, &tree);
    },
};
