//! Allreduce by telling everyone: each rank sends its input to all others and reduces all inputs by
//! itself.
//!
//! ```text
//! rank     0        1        2        3
//!          a>1 2 3  b>2 3 0  c>3 0 1  d>0 1 2    then a (b (c d)) on every rank
//! ```
//!
//! One step however many ranks, and no rank has to run between two others: for few ranks and few
//! bytes. Operands stay in rank order and all ranks evaluate the same expression: any associative
//! operation is served and results are equal to the bit.
//!
//! Cost: `(p - 1) (α + n β + n γ)`, with latencies overlapped, and room for `p` inputs.
//!
//! Source: textbook (all-to-all exchange).

use crate::algorithms::common::accumulator::element_range;
use crate::builder::Builder;
use crate::call::Allreduce;
use crate::schedule::BufferId;
use crate::selection::{Algorithm, CollectiveCall};

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "direct",
    summary: "everyone sends to everyone and reduces by itself",
    cost: "(p - 1) (a + n b + n g), overlapped",
    fits: |place, call| call.data.check(Allreduce::COLLECTIVE, "the inputs", place.size).is_ok(),
    build,
};

fn build(b: &mut Builder, call: &Allreduce) {
    let (rank, size, count) = (b.rank(), b.size(), call.data.count());
    let result = element_range(&call.data, BufferId::Recv, 0, count);
    let own = if call.in_place { result } else { element_range(&call.data, BufferId::Send, 0, count) };
    if size == 1 {
        b.copy(own, result);
        return;
    }
    let last = size - 1;
    // The last input becomes the value. It comes where the result goes, unless our input is there.
    let inputs = b.temp_elements(count * u64::from(size));
    let input = |peer: u32| match peer {
        _ if peer == rank => own,
        _ if peer == last && !call.in_place => result,
        _ => element_range(&call.data, inputs, u64::from(peer) * count, count),
    };
    for distance in 1..size {
        let (before, after) = (b.before(distance), b.after(distance));
        b.recv(before, input(before));
        b.send(after, own);
    }
    b.wait_all();
    let value = if rank == last { result } else { input(last) };
    b.copy(input(last), value);
    for peer in (0..last).rev() {
        b.reduce(input(peer), value);
    }
    b.copy(value, result);
}
