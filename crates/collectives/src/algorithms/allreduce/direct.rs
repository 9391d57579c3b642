//! Allreduce by telling everyone: each rank sends its input to all others and reduces all inputs by
//! itself.
//!
//! ```text
//! rank     0        1        2        3
//!          a>1 2 3  b>2 3 0  c>3 0 1  d>0 1 2    then the value on every rank
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
use crate::algorithms::common::inputs::{self, Inputs};
use crate::builder::Builder;
use crate::call::Allreduce;
use crate::collective::Collective;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "direct",
    summary: "everyone sends to everyone and reduces by itself",
    cost: "(p - 1) (a + n b + n g), overlapped",
    fits: |place, call| inputs::fit(place, &call.data, Collective::Allreduce),
    build,
};

fn build(b: &mut Builder, call: &Allreduce) {
    let input = if call.in_place { BufferId::Recv } else { BufferId::Send };
    let own = element_range(&call.data, input, 0, call.data.count());
    let inputs = Inputs::post(b, &call.data, call.in_place, call.commutative);
    for distance in 1..b.size() {
        let after = b.after(distance);
        b.send(after, own);
    }
    inputs.fold(b);
}
