//! Broadcast down a binomial tree: each round doubles the ranks that have the data.
//!
//! ```text
//! vertex   0 1 2 3 4 5 6 7
//!          0------>4            distance 4
//!          0-->2   4-->6        distance 2
//!          0>1 2>3 4>5 6>7      distance 1
//! ```
//!
//! Cost: `⌈log2 p⌉ (α + n β)`.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.2.

use crate::algorithms::bcast::pass_down;
use crate::algorithms::common::tree::Tree;
use crate::builder::Builder;
use crate::call::Bcast;
use crate::data::Data;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Bcast> = Algorithm {
    name: "binomial",
    summary: "down a binomial tree, whole",
    cost: "ceil(log2 p) (a + n b)",
    fits: |_, _| true,
    build: |b, call| append(b, call.root, &call.data),
};

pub(crate) fn append(b: &mut Builder, root: u32, data: &Data) {
    let tree = Tree::binomial(b, root);
    pass_down(b, &tree, data);
}
