//! Reduce-scatter as a reduction to rank 0 and a scatter from it, both along a binomial tree.
//!
//! ```text
//!        0            0
//!      / | \        / | \
//!     4  2  1  ^   4  2  1  v      everything up, blocks down
//! ```
//!
//! Operands stay in rank order: for non-commutative operations.
//!
//! Cost: `2 ⌈log2 p⌉ α + (⌈log2 p⌉ + (p - 1)/p) n β + ⌈log2 p⌉ n γ`; `n` bytes in all.
//!
//! Source: textbook.

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::reduce_scatter::ScatteredReduction;
use crate::algorithms::{reduce, scatter};
use crate::builder::Builder;
use crate::call::{ReduceScatter, ReduceScatterBlock};
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<ReduceScatterBlock> = algorithm();
pub(crate) const ALGORITHM_V: Algorithm<ReduceScatter> = algorithm();

const fn algorithm<C: ScatteredReduction>() -> Algorithm<C> {
    Algorithm {
        name: "reduce_then_scatter",
        summary: "reduced to rank 0 and scattered, along a binomial tree",
        cost: "2 ceil(log2 p) a + (ceil(log2 p) + (p - 1)/p) n b + ceil(log2 p) n g",
        fits: |_, _| true,
        build,
    }
}

fn build<C: ScatteredReduction>(b: &mut Builder, call: &C) {
    let (data, offsets) = (call.whole(b.size()), call.offsets(b.size()));
    let mut value = Accumulator::new(data, call.in_place(), false);
    reduce::binomial::up_tree(b, 0, &mut value, Order::ValueFirst);
    b.wait_all();
    b.phase();

    let rank = b.rank() as usize;
    let own = element_range(&data, BufferId::Recv, 0, offsets[rank + 1] - offsets[rank]);
    let count = |from: u32, to: u32| offsets[to as usize] - offsets[from as usize];
    let len_bytes = |rank: u32| count(rank, rank + 1) * data.shape().size_bytes;
    let blocks = |from: u32, to: u32| value.range(offsets[from as usize], count(from, to));
    scatter::binomial::append(b, 0, Some(own), &len_bytes, &blocks);
}
