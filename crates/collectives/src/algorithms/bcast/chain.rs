//! Broadcast down a chain in segments: every link is busy with a different segment.
//!
//! ```text
//! vertex  0 ---> 1 ---> 2 ---> 3
//! t = 0     s0
//! t = 1     s1     s0
//! t = 2     s2     s1     s0
//! ```
//!
//! Cost: `(p - 2 + S) (α + n/S β)` with `S` segments: close to `n β` for long messages.
//!
//! Source: J. Pješivac-Grbović et al., "Performance analysis of MPI collective operations",
//! Cluster Computing 10, 2007, §3.2 (pipeline).

use crate::algorithms::bcast::pipeline_down;
use crate::algorithms::common::tree::Tree;
use crate::call::Bcast;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Bcast> = Algorithm {
    name: "chain",
    summary: "down a chain, in segments",
    cost: "(p - 2 + S) (a + n/S b)",
    fits: |_, _| true,
    build: |b, call| {
        let tree = Tree::chain(b, call.root);
        pipeline_down(b, &tree, &call.data);
    },
};
