//! Reduce-scatter by recursive halving: partners at distance p/2, p/4, ... 1 each keep the half that
//! their own block is in.
//!
//! ```text
//! rank         0      1      2      3
//!              abcd   abcd   abcd   abcd
//! distance 2   ab     ab     cd     cd       over ranks 02, 13, 02, 13
//! distance 1   a      b      c      d        over all
//! ```
//!
//! Far partners come first, so that each ends with its own block; operands get out of order:
//! commutative operations only. Ranks beyond a power of two fold first.
//!
//! Cost: `log2 p α + (p - 1)/p n (β + γ)`, and `2 α + (1 + 1/p) n β + n γ` more where `p` is no power
//! of two; `n` bytes in all.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.4.

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::fold::{Fold, Role};
use crate::algorithms::reduce_scatter::ScatteredReduction;
use crate::builder::Builder;
use crate::call::{ReduceScatter, ReduceScatterBlock};
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<ReduceScatterBlock> = algorithm();
pub(crate) const ALGORITHM_V: Algorithm<ReduceScatter> = algorithm();

const fn algorithm<C: ScatteredReduction>() -> Algorithm<C> {
    Algorithm {
        name: "recursive_halving",
        summary: "partners at distance p/2, ..., 1 keep half each",
        cost: "log2 p a + (p - 1)/p n (b + g)",
        fits: |_, call| call.commutative(),
        build,
    }
}

fn build<C: ScatteredReduction>(b: &mut Builder, call: &C) {
    let (data, offsets) = (call.whole(b.size()), call.offsets(b.size()));
    let fold = Fold::of(b);
    let rank = b.rank() as usize;
    let own_count = offsets[rank + 1] - offsets[rank];
    let result = element_range(&data, BufferId::Recv, 0, own_count);
    // The receive buffer has room for our block only, unless it holds the input.
    let mut value = Accumulator::new(data, call.in_place(), false);
    match fold.role(b.place()) {
        Role::Idle { partner } => {
            b.send(partner, value.whole());
            b.wait_all();
            b.phase();
            b.recv(partner, result);
        }
        Role::Active { vertex, partner } => {
            if let Some(partner) = partner {
                let arrived = value.take(b);
                b.recv(partner, element_range(&data, arrived, 0, data.count()));
                b.wait_all();
                value.combine(b, arrived, Order::Any);
            }
            // A vertex stands for one rank or two: elements of vertices `from..to`.
            let elements = |from: u32, to: u32| {
                let first_rank = |vertex: u32| (vertex + vertex.min(fold.pairs())) as usize;
                let (first, end) = (offsets[first_rank(from)], offsets[first_rank(to)]);
                (first, end - first)
            };
            let (mut low, mut high) = (0, fold.vertices);
            while high - low > 1 {
                let distance = (high - low) / 2;
                let middle = low + distance;
                let peer = fold.rank(vertex ^ distance);
                let (kept, given) =
                    if vertex < middle { ((low, middle), (middle, high)) } else { ((middle, high), (low, middle)) };
                let (given_first, given_count) = elements(given.0, given.1);
                let (kept_first, kept_count) = elements(kept.0, kept.1);
                let arrived = value.take(b);
                b.recv(peer, element_range(&data, arrived, kept_first, kept_count));
                b.send(peer, value.range(given_first, given_count));
                b.wait_all();
                value.combine_range(b, arrived, kept_first, kept_count, Order::Any);
                (low, high) = kept;
            }
            b.phase();
            if let Some(partner) = partner {
                let first = offsets[partner as usize];
                b.send(partner, value.range(first, offsets[rank] - first));
            }
            let own = value.range(offsets[rank], own_count);
            if own == result {
                return;
            }
            // In place, our block may overlap the place it goes to, and the partner's with it.
            b.wait_all();
            if own.buffer == BufferId::Recv && offsets[rank] < own_count {
                let aside = b.temp_elements(own_count);
                let aside = element_range(&data, aside, 0, own_count);
                b.copy(own, aside);
                b.copy(aside, result);
            } else {
                b.copy(own, result);
            }
        }
    }
}
