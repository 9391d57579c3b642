//! Allreduce as a reduction to rank 0 and a broadcast from it, both along a binomial tree.
//!
//! ```text
//!        0            0
//!      / | \        / | \
//!     4  2  1  ^   4  2  1  v
//!    / \ |        / \ |
//!   6  5 3       6  5 3
//! ```
//!
//! `2 (p - 1)` messages, the fewest there can be, where recursive doubling needs `p log2 p`: the
//! way to go where ranks outnumber cores.
//!
//! Cost: `2 ⌈log2 p⌉ (α + n β) + ⌈log2 p⌉ n γ`.
//!
//! Source: textbook; Pješivac-Grbović et al., Cluster Computing 10, 2007.

use crate::algorithms::{bcast, reduce};
use crate::call::{Allreduce, Reduce};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "reduce_bcast",
    summary: "reduced to rank 0 and broadcast, along a binomial tree: fewest messages",
    cost: "2 ceil(log2 p) (a + n b) + ceil(log2 p) n g",
    fits: |_, _| true,
    build: |b, call| {
        let Allreduce { in_place, commutative, data } = *call;
        // Every rank has a receive buffer here, which may serve as room to work in.
        reduce::binomial::append(b, &Reduce { root: 0, in_place, commutative, data }, true);
        b.phase();
        // The result comes where the value may have been: that must have gone before.
        b.wait_all();
        bcast::binomial::append(b, 0, &data);
    },
};
