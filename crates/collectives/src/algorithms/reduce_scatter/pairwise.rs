//! Reduce-scatter by pairwise exchange: in step `k` everyone sends the rank `k` after it its block
//! of the input, and reduces the block that comes from the rank `k` before it into its own.
//!
//! ```text
//! rank     0    1    2    3
//! k = 1    b>1  c>2  d>3  a>0
//! k = 2    c>2  d>3  a>0  b>1
//! k = 3    d>3  a>0  b>1  c>2
//! ```
//!
//! One block is received while another is reduced. Operands come out of order: commutative
//! operations only.
//!
//! Cost: `(p - 1) α + (p - 1)/p n (β + γ)`; `n` bytes in all.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.4.

use crate::algorithms::common::accumulator::element_range;
use crate::algorithms::reduce_scatter::ScatteredReduction;
use crate::builder::{Builder, Posted};
use crate::call::{ReduceScatter, ReduceScatterBlock};
use crate::schedule::{BufferId, Region};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<ReduceScatterBlock> = algorithm();
pub(crate) const ALGORITHM_V: Algorithm<ReduceScatter> = algorithm();

const fn algorithm<C: ScatteredReduction>() -> Algorithm<C> {
    Algorithm {
        name: "pairwise",
        summary: "step k: a block to the rank k after, one from the rank k before",
        cost: "(p - 1) a + (p - 1)/p n (b + g)",
        fits: |_, call| call.commutative(),
        build,
    }
}

fn build<C: ScatteredReduction>(b: &mut Builder, call: &C) {
    let (data, offsets) = (call.whole(b.size()), call.offsets(b.size()));
    let input = if call.in_place() { BufferId::Recv } else { BufferId::Send };
    let block = |rank: u32| {
        let (first, end) = (offsets[rank as usize], offsets[rank as usize + 1]);
        element_range(&data, input, first, end - first)
    };
    let own = block(b.rank());
    let at_start = |buffer: BufferId| element_range(&data, buffer, 0, own.count);
    let result = at_start(BufferId::Recv);
    if b.size() == 1 {
        b.copy(own, result);
        return;
    }
    // In place, blocks yet to be sent stand where the result goes.
    let value = if call.in_place() { at_start(b.temp_elements(own.count)) } else { result };
    // The first block to come becomes the value; later ones are received into these in turn.
    let rooms = [at_start(b.temp_elements(own.count)), at_start(b.temp_elements(own.count))];
    let into = |distance: u32| if distance == 1 { value } else { rooms[distance as usize % 2] };
    let post = |b: &mut Builder, distance: u32| -> Posted {
        let (before, after) = (b.before(distance), b.after(distance));
        let arriving = b.recv(before, into(distance));
        b.send(after, block(after));
        arriving
    };
    let mut arriving = post(b, 1);
    for distance in 1..b.size() {
        let arrived = arriving;
        if distance + 1 < b.size() {
            arriving = post(b, distance + 1);
        }
        b.wait(arrived);
        let from: Region = if distance == 1 { own } else { into(distance) };
        b.reduce(from, value);
    }
    if call.in_place() {
        b.wait_all();
        b.copy(value, result);
    }
}
