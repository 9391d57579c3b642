//! All-to-all in place: in each step every rank exchanges one block with one partner.
//!
//! ```text
//! partner of r in step k: (k - r) mod p, its own in turn
//!
//! p = 4    k = 0    0-0  1-3  2-2        who is its own partner rests
//!          k = 1    0-1  2-3
//!          k = 2    0-2  1-1  3-3
//!          k = 3    0-3  1-2
//! ```
//!
//! The incoming block waits in temporary memory until the outgoing has left.
//!
//! Cost: `p (α + n β)`, and a copy of all blocks.
//!
//! Source: textbook (round-robin tournament).

use crate::algorithms::alltoall::Transposition;
use crate::builder::{Builder, ring};
use crate::call::{Alltoall, Alltoallv, Alltoallw};
use crate::schedule::Region;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Alltoall> = algorithm();
pub(crate) const ALGORITHM_V: Algorithm<Alltoallv> = algorithm();
pub(crate) const ALGORITHM_W: Algorithm<Alltoallw> = algorithm();

const fn algorithm<C: Transposition>() -> Algorithm<C> {
    Algorithm {
        name: "exchange",
        summary: "in place: partners exchange one block per step",
        cost: "p (a + n b)",
        fits: |_, call| call.in_place(),
        build,
    }
}

fn build<C: Transposition>(b: &mut Builder, call: &C) {
    let (recv, rank, size) = (call.recv(), b.rank(), b.size());
    let partners = (0..size).map(|step| ring(step, -i64::from(rank), size)).filter(|&partner| partner != rank);
    let largest_bytes = partners.clone().map(|partner| recv.len_bytes(partner)).max().unwrap_or(0);
    if largest_bytes == 0 {
        return;
    }
    let room = b.temp_bytes(largest_bytes);
    for partner in partners {
        let incoming = Region::bytes(room, 0, recv.len_bytes(partner));
        b.recv(partner, incoming);
        b.send(partner, recv.block(partner));
        b.wait_all();
        b.copy(incoming, recv.block(partner));
    }
}
