//! Neighbourhood exchange at once: everyone posts a receive per source and a send per destination.
//!
//! ```text
//! sources       1   4          every edge is one message, told from other edges between the
//!                \ /           same ranks by its tag offset, or else by its order
//! rank            0
//!                / \
//! destinations  1   7
//! ```
//!
//! An edge from a rank to itself is a copy.
//!
//! Cost: `degree (α + n β)`, with latencies overlapped.
//!
//! Source: textbook.

use crate::algorithms::neighbor::Neighbourhood;
use crate::builder::Builder;
use crate::call::{NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw};
use crate::selection::Algorithm;

pub(crate) const ALLGATHER: Algorithm<NeighborAllgather> = algorithm();
pub(crate) const ALLGATHERV: Algorithm<NeighborAllgatherv> = algorithm();
pub(crate) const ALLTOALL: Algorithm<NeighborAlltoall> = algorithm();
pub(crate) const ALLTOALLV: Algorithm<NeighborAlltoallv> = algorithm();
pub(crate) const ALLTOALLW: Algorithm<NeighborAlltoallw> = algorithm();

const fn algorithm<C: Neighbourhood>() -> Algorithm<C> {
    Algorithm { name: "linear", summary: "all messages at once", cost: "degree (a + n b)", fits: |_, _| true, build }
}

fn build<C: Neighbourhood>(b: &mut Builder, call: &C) {
    let itself = Some(b.rank());
    // Edges to this rank itself: tag offset and outgoing block, in order.
    let mut loops = Vec::new();
    for (index, source) in (0..).zip(call.neighbours().sources()) {
        if let Some(peer) = source.rank.filter(|_| source.rank != itself) {
            b.recv_tagged(peer, source.tag_offset, call.incoming(index));
        }
    }
    for (index, destination) in (0..).zip(call.neighbours().destinations()) {
        match destination.rank {
            rank if rank == itself => loops.push((destination.tag_offset, index)),
            Some(peer) => {
                b.send_tagged(peer, destination.tag_offset, call.outgoing(index));
            }
            None => {}
        }
    }
    for (index, source) in (0..).zip(call.neighbours().sources()).filter(|(_, source)| source.rank == itself) {
        if let Some(at) = loops.iter().position(|&(tag_offset, _)| tag_offset == source.tag_offset) {
            let (_, outgoing) = loops.remove(at);
            b.copy(call.outgoing(outgoing), call.incoming(index));
        }
    }
}
