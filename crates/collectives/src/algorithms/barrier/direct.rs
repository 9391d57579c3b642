//! Barrier by telling everyone: each rank sends to all others, then hears all others.
//!
//! ```text
//! rank     0        1        2        3
//!          >1 2 3   >2 3 0   >3 0 1   >0 1 2    and waits once
//! ```
//!
//! Nothing depends on anything but the arrivals: one step however many ranks, and no rank has to
//! run between two others. For few ranks.
//!
//! Cost: `(p - 1) α`, overlapped; `p (p - 1)` messages in all.
//!
//! Source: textbook (dissemination of radix `p`).

use crate::builder::Builder;
use crate::call::Barrier;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Barrier> = Algorithm {
    name: "direct",
    summary: "everyone tells everyone, in one step",
    cost: "(p - 1) a, overlapped",
    fits: |_, _| true,
    build,
};

fn build(b: &mut Builder, _call: &Barrier) {
    for distance in 1..b.size() {
        let after = b.after(distance);
        b.signal(after);
    }
    for distance in 1..b.size() {
        let before = b.before(distance);
        b.await_signal(before);
    }
}
