//! Barrier up and down a binomial tree: `2 (p - 1)` messages, the fewest there can be, and no rank
//! waits more than twice. Where ranks outnumber cores, that is what counts: every wait may cost a
//! change of context.
//!
//! ```text
//!        0            0
//!      / | \        / | \
//!     4  2  1  ^   4  2  1  v      gather, then release
//!    / \ |         |\  \
//!   6  5 3         6 5  3
//! ```
//!
//! Cost: `2 ⌈log2 p⌉ α`; `2 (p - 1)` messages in all.
//!
//! Source: J. Mellor-Crummey, M. Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors", ACM TOCS 9(1), 1991 (tree barriers).

use crate::algorithms::common::tree::Tree;
use crate::builder::Builder;
use crate::call::Barrier;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Barrier> = Algorithm {
    name: "tree",
    summary: "gathered and released along a binomial tree: fewest messages",
    cost: "2 ceil(log2 p) a",
    fits: |_, _| true,
    build: |b, _| {
        let tree = Tree::binomial(b, 0);
        gather_and_release(b, &tree);
    },
};

/// Waits for the children, tells the parent, waits for it, tells the children.
pub(crate) fn gather_and_release(b: &mut Builder, tree: &Tree) {
    for &child in &tree.children {
        b.await_signal(child);
    }
    b.wait_all();
    if let Some(parent) = tree.parent {
        // The parent's release cannot come before our own message, so both may be under way.
        b.signal(parent);
        let released = b.await_signal(parent);
        b.wait(released);
    }
    for &child in &tree.children {
        b.signal(child);
    }
}
