//! All-to-all by pairwise exchange: in step `k` everyone sends to the rank `k` after it and
//! receives from the rank `k` before it, so each rank is the goal of one message at a time.
//!
//! ```text
//! rank     0    1    2    3
//! k = 1    >1   >2   >3   >0
//! k = 2    >2   >3   >0   >1
//! k = 3    >3   >0   >1   >2
//! ```
//!
//! Cost: `(p - 1) (α + n β)`, without contention at the receivers.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.3.

use crate::algorithms::alltoall::Transposition;
use crate::builder::Builder;
use crate::call::{Alltoall, Alltoallv, Alltoallw};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Alltoall> = algorithm();
pub(crate) const ALGORITHM_V: Algorithm<Alltoallv> = algorithm();
pub(crate) const ALGORITHM_W: Algorithm<Alltoallw> = algorithm();

const fn algorithm<C: Transposition>() -> Algorithm<C> {
    Algorithm {
        name: "pairwise",
        summary: "step k: to the rank k after, from the rank k before",
        cost: "(p - 1) (a + n b)",
        fits: |_, call| !call.in_place(),
        build,
    }
}

fn build<C: Transposition>(b: &mut Builder, call: &C) {
    let (send, recv, rank) = (call.send(), call.recv(), b.rank());
    b.copy(send.block(rank), recv.block(rank));
    for distance in 1..b.size() {
        let (before, after) = (b.before(distance), b.after(distance));
        b.recv(before, recv.block(before));
        b.send(after, send.block(after));
        b.wait_all();
    }
}
