//! Reduction by the root alone: all send it their input, and it reduces them in rank order.
//!
//! ```text
//!   1  2  3 ...
//!    \ | /
//!      0        a (b (c d)), the last first, while others come; ((a b) c) d if that is the same
//! ```
//!
//! Every other rank sends and is done. Any associative operation is served.
//!
//! Cost: `(p - 1) (α + n β + n γ)` at the root, and room for `p` inputs there.
//!
//! Source: textbook.

use crate::algorithms::common::accumulator::element_range;
use crate::algorithms::common::inputs::{self, Inputs};
use crate::builder::Builder;
use crate::call::Reduce;
use crate::collective::Collective;
use crate::data::Data;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Reduce> = Algorithm {
    name: "linear",
    summary: "everyone sends to the root, which reduces all",
    cost: "(p - 1) (a + n b + n g)",
    fits: |place, call| inputs::fit(place, &call.data, Collective::Reduce),
    build: |b, call| {
        let in_place = call.in_place && b.rank() == call.root;
        append(b, call.root, &call.data, in_place, call.commutative);
    },
};

/// `in_place` says that this rank's input stands in its receive buffer.
pub(crate) fn append(b: &mut Builder, root: u32, data: &Data, in_place: bool, commutative: bool) {
    if b.rank() == root {
        Inputs::post(b, data, in_place, commutative).fold(b);
        return;
    }
    let input = if in_place { BufferId::Recv } else { BufferId::Send };
    b.send(root, element_range(data, input, 0, data.count()));
}
