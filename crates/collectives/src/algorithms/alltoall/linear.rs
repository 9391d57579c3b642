//! All-to-all at once: everyone posts all its messages, within a sliding window, beginning with the
//! ranks next to it so that no rank is everybody's first.
//!
//! ```text
//! rank 0   recv from 4, send to 1, recv from 3, send to 2, ...   window
//! rank 1   recv from 0, send to 2, recv from 4, send to 3, ...   [------>
//! ```
//!
//! Cost: `(p - 1) (α + n β)`, with latencies overlapped.
//!
//! Source: textbook (spread-out or scattered, Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005,
//! §4.3).

use crate::algorithms::alltoall::Transposition;
use crate::builder::Builder;
use crate::call::{Alltoall, Alltoallv, Alltoallw};
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Alltoall> = algorithm();
pub(crate) const ALGORITHM_V: Algorithm<Alltoallv> = algorithm();
pub(crate) const ALGORITHM_W: Algorithm<Alltoallw> = algorithm();

/// Messages under way at once: enough to hide latencies, few enough to match quickly.
const WINDOW: u64 = 64;

const fn algorithm<C: Transposition>() -> Algorithm<C> {
    Algorithm {
        name: "linear",
        summary: "all messages at once, within a window",
        cost: "(p - 1) (a + n b)",
        fits: |_, call| !call.in_place(),
        build,
    }
}

fn build<C: Transposition>(b: &mut Builder, call: &C) {
    let (send, recv, rank) = (call.send(), call.recv(), b.rank());
    for distance in 1..b.size() {
        let (before, after) = (b.before(distance), b.after(distance));
        b.recv(before, recv.block(before));
        b.send(after, send.block(after));
        b.wait_window(WINDOW);
    }
    // While messages are under way.
    b.copy(send.block(rank), recv.block(rank));
}
