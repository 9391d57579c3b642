//! Gather by the root alone: every other rank sends its block to it.
//!
//! ```text
//!   1  2  3 ...
//!    \ | /
//!      0        blocks go straight to their place
//! ```
//!
//! Cost: `(p - 1) (α + n β)` at the root, with `n` bytes per block.
//!
//! Source: textbook.

use crate::algorithms::common::layout::Layout;
use crate::builder::Builder;
use crate::call::{Gather, Gatherv};
use crate::schedule::{BufferId, Region};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Gather> = Algorithm {
    name: "linear",
    summary: "everyone sends to the root",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| {
        let own = call.own(b.place());
        append(b, call.root, own, &Layout::even(BufferId::Recv, &call.recv));
    },
};

pub(crate) const ALGORITHM_V: Algorithm<Gatherv> = Algorithm {
    name: "linear",
    summary: "everyone sends to the root",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| {
        let own = call.own(b.place());
        append(b, call.root, own, &call.blocks());
    },
};

/// Receives posted at once: enough to hide latencies, few enough to match quickly.
const WINDOW: u64 = 256;

fn append(b: &mut Builder, root: u32, own: Option<Region>, blocks: &Layout<'_>) {
    if b.rank() != root {
        if let Some(own) = own {
            b.send(root, own);
        }
        return;
    }
    for distance in 1..b.size() {
        let peer = b.after(distance);
        b.recv(peer, blocks.block(peer));
        b.wait_window(WINDOW);
    }
    if let Some(own) = own {
        b.copy(own, blocks.block(root));
    }
}
