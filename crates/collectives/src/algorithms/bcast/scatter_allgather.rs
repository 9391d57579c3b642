//! Broadcast by scattering the data, then gathering it everywhere round a ring (van de Geijn).
//!
//! ```text
//!            vertex 0   1   2   3
//! scatter         abcd
//!                 ab    .   cd        binomial
//!                 a     b   c   d
//! ring            .     ba  .   dc    each passes on what it last got,
//!                 ...                 but for what the next has from the scatter
//!                 abcd abcd abcd abcd
//! ```
//!
//! Cost: `(⌈log2 p⌉ + p - 1) α + 2 (p - 1)/p n β` at most.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.2.

use crate::algorithms::common::packed::Packed;
use crate::algorithms::common::tree;
use crate::builder::Builder;
use crate::call::Bcast;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Bcast> = Algorithm {
    name: "scatter_allgather",
    summary: "scattered down a binomial tree, gathered round a ring",
    cost: "(ceil(log2 p) + p - 1) a + 2 (p - 1)/p n b",
    fits: |_, _| true,
    build,
};

/// Pieces begin at multiples of this, as memory is moved by cache lines.
const ALIGNMENT_BYTES: u64 = 64;

fn build(b: &mut Builder, call: &Bcast) {
    let (size, vertex) = (b.size(), tree::vertex(b, call.root));
    let packed = Packed::open(b, &call.data, vertex == 0);
    let piece_bytes = call.data.len_bytes().div_ceil(u64::from(size)).next_multiple_of(ALIGNMENT_BYTES);
    let pieces = |from: u32, to: u32| packed.cut(u64::from(from) * piece_bytes, u64::from(to) * piece_bytes);

    // A vertex is handed the pieces of its subtree and hands each child the pieces of the child's.
    let lowest_bit = lowest_bit(vertex, size);
    if vertex > 0 {
        let parent = tree::rank(b, call.root, vertex & (vertex - 1));
        let subtree = pieces(vertex, (vertex + lowest_bit).min(size));
        b.recv(parent, subtree);
        b.wait_all();
    }
    let mut bit = lowest_bit >> 1;
    while bit > 0 {
        if vertex + bit < size {
            let child = tree::rank(b, call.root, vertex + bit);
            b.send(child, pieces(vertex + bit, (vertex + 2 * bit).min(size)));
        }
        bit >>= 1;
    }
    b.phase();

    let (before, after) = (b.before(1), b.after(1));
    let next = (vertex + 1) % size;
    for step in 0..size - 1 {
        let outgoing = (vertex + size - step) % size;
        let incoming = (vertex + size - step - 1) % size;
        let arriving =
            (!has_from_scatter(vertex, incoming, size)).then(|| b.recv(before, pieces(incoming, incoming + 1)));
        if !has_from_scatter(next, outgoing, size) {
            b.send(after, pieces(outgoing, outgoing + 1));
        }
        if let Some(arriving) = arriving {
            b.wait(arriving);
        }
    }
    b.wait_all();
    if vertex > 0 {
        packed.close(b, &call.data);
    }
}

/// The size of a vertex' subtree in the binomial tree, were it complete.
fn lowest_bit(vertex: u32, size: u32) -> u32 {
    if vertex == 0 { size.next_power_of_two() } else { vertex & vertex.wrapping_neg() }
}

fn has_from_scatter(vertex: u32, piece: u32, size: u32) -> bool {
    piece >= vertex && piece - vertex < lowest_bit(vertex, size)
}
