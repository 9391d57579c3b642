//! Barrier by dissemination: in round `k` every rank tells the rank `2^k` after it.
//!
//! ```text
//! rank      0     1     2     3     4
//! k = 0     >1    >2    >3    >4    >0     everyone knows of the 1 before
//! k = 1     >2    >3    >4    >0    >1     ... of the 3 before
//! k = 2     >4    >0    >1    >2    >3     ... of the 7 before: all
//! ```
//!
//! Cost: `⌈log2 p⌉ α`; `p ⌈log2 p⌉` messages in all.
//!
//! Source: D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization",
//! International Journal of Parallel Programming 17(1), 1988.

use crate::builder::Builder;
use crate::call::Barrier;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Barrier> = Algorithm {
    name: "dissemination",
    summary: "everyone tells the rank 2^k after it, in rounds",
    cost: "ceil(log2 p) a",
    fits: |_, _| true,
    build,
};

fn build(b: &mut Builder, _call: &Barrier) {
    let mut distance = 1;
    while distance < b.size() {
        let (before, after) = (b.before(distance), b.after(distance));
        let told = b.await_signal(before);
        b.signal(after);
        b.wait(told);
        b.phase();
        distance *= 2;
    }
}
