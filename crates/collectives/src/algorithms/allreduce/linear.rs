//! Allreduce at rank 0: all send it their input, it reduces all and sends everyone the result.
//!
//! ```text
//! 1 2 3 ... p-1          0
//!  \ | |    /      then /| \ ...
//!      0               1 2 3
//! ```
//!
//! `2 (p - 1)` messages, the fewest there can be, and every other rank waits exactly once: for few
//! bytes where ranks outnumber cores, each wait being a change of context. Any associative operation
//! is served.
//!
//! Cost: `(p - 1) (2 α + 2 n β + n γ)` at rank 0, and room for `p` inputs there.
//!
//! Source: textbook.

use crate::algorithms::bcast;
use crate::algorithms::common::tree::Tree;
use crate::algorithms::{common::inputs, reduce};
use crate::call::Allreduce;
use crate::collective::Collective;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "linear",
    summary: "rank 0 reduces all and sends everyone the result",
    cost: "(p - 1) (2 a + 2 n b + n g)",
    fits: |place, call| inputs::fit(place, &call.data, Collective::Allreduce),
    build: |b, call| {
        reduce::linear::append(b, 0, &call.data, call.in_place, call.commutative);
        // In place, the result comes where the input was sent from.
        b.wait_all();
        b.phase();
        let tree = Tree::flat(b, 0);
        bcast::pass_down(b, &tree, &call.data);
    },
};
