//! Reduction up a binomial tree.
//!
//! ```text
//! vertex   0 1 2 3 4 5 6 7
//!          0<1 2<3 4<5 6<7      subtrees are consecutive vertices, and a vertex takes them
//!          0<--2   4<--6        nearest first: operands stay in order
//!          0<------4
//! ```
//!
//! The tree stands on the root; for a non-commutative operation on rank 0, which then passes the
//! result on. One message is received while another is reduced.
//!
//! Cost: `⌈log2 p⌉ (α + n β + n γ)`, and `α + n β` more where the result is passed on.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.4.

use smallvec::SmallVec;

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::tree::Tree;
use crate::builder::Builder;
use crate::call::Reduce;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Reduce> = Algorithm {
    name: "binomial",
    summary: "up a binomial tree, whole",
    cost: "ceil(log2 p) (a + n b + n g)",
    fits: |_, _| true,
    build: |b, call| append(b, call, false),
};

/// Messages received or reduced at once.
const AHEAD: usize = 2;

/// `everywhere` says that the receive buffers of all ranks may be used, and that all input stands
/// there when in place.
pub(crate) fn append(b: &mut Builder, call: &Reduce, everywhere: bool) {
    let tree_root = if call.commutative { call.root } else { 0 };
    let order = if call.commutative { Order::Any } else { Order::ValueFirst };
    let has_result = b.rank() == call.root || everywhere;
    let mut value = Accumulator::new(call.data, call.in_place && has_result, has_result);
    up_tree(b, tree_root, &mut value, order);
    if b.rank() == tree_root && has_result {
        value.settle(b);
    }
    if tree_root == call.root {
        return;
    }
    b.phase();
    if b.rank() == tree_root {
        b.send(call.root, value.whole());
    } else if b.rank() == call.root {
        // The receive buffer was room to work in until now.
        b.wait_all();
        b.recv(tree_root, element_range(&call.data, BufferId::Recv, 0, call.data.count()));
    }
}

/// Reduces `value` to `root`, whatever buffers it is in. `order` is `ValueFirst`, for which the root
/// must be rank 0, or `Any`.
pub(crate) fn up_tree(b: &mut Builder, root: u32, value: &mut Accumulator, order: Order) {
    let tree = Tree::binomial(b, root);
    let nearest_first: SmallVec<[u32; 16]> = tree.children.iter().rev().copied().collect();
    let mut coming = SmallVec::<[_; 16]>::new();
    for at in 0..nearest_first.len() {
        while coming.len() < nearest_first.len().min(at + AHEAD) {
            let buffer = value.take(b);
            let whole = element_range(value.data(), buffer, 0, value.data().count());
            let arriving = b.recv(nearest_first[coming.len()], whole);
            coming.push((buffer, arriving));
        }
        let (buffer, arriving) = coming[at];
        b.wait(arriving);
        value.combine(b, buffer, order);
    }
    if let Some(parent) = tree.parent {
        b.send(parent, value.whole());
    }
}
