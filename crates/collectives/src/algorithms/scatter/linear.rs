//! Scatter by the root alone: it sends every other rank its block.
//!
//! ```text
//!      0
//!    / | \
//!   1  2  3 ...    blocks come straight from their place
//! ```
//!
//! Cost: `(p - 1) (α + n β)` at the root, with `n` bytes per block.
//!
//! Source: textbook.

use crate::algorithms::common::layout::Layout;
use crate::builder::Builder;
use crate::call::{Scatter, Scatterv};
use crate::schedule::{BufferId, Region};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Scatter> = Algorithm {
    name: "linear",
    summary: "the root sends to everyone",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| {
        let own = call.own(b.place());
        append(b, call.root, own, &Layout::even(BufferId::Send, &call.send));
    },
};

pub(crate) const ALGORITHM_V: Algorithm<Scatterv> = Algorithm {
    name: "linear",
    summary: "the root sends to everyone",
    cost: "(p - 1) (a + n b)",
    fits: |_, _| true,
    build: |b, call| {
        let own = call.own(b.place());
        append(b, call.root, own, &call.blocks());
    },
};

/// Sends under way at once.
const WINDOW: u64 = 256;

fn append(b: &mut Builder, root: u32, own: Option<Region>, blocks: &Layout<'_>) {
    if b.rank() != root {
        if let Some(own) = own {
            b.recv(root, own);
        }
        return;
    }
    for distance in 1..b.size() {
        let peer = b.after(distance);
        b.send(peer, blocks.block(peer));
        b.wait_window(WINDOW);
    }
    if let Some(own) = own {
        b.copy(blocks.block(root), own);
    }
}
