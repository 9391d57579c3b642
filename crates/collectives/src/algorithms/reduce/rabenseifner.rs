//! Reduction by recursive halving and a gather (Rabenseifner): partners at distance 1, 2, 4, ...
//! each reduce one half of what they share, then the pieces go to the root the way back.
//!
//! ```text
//! rank         0      1      2      3        root 0
//!              abcd   abcd   abcd   abcd
//! distance 1   ab     cd     ab     cd       over ranks 01, 01, 23, 23
//! distance 2   a      c      b      d        over all
//! distance 2   ab <---------'
//!                     cd <--------- '
//! distance 1   abcd <-'
//! ```
//!
//! Near partners come first, so a piece always covers consecutive ranks: operands stay in order and
//! any associative operation is served.
//!
//! Cost: `2 log2 p α + 2 (p - 1)/p n β + (p - 1)/p n γ`, and `2 α + 2 n β + n γ` more where `p` is
//! no power of two.
//!
//! Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, §3.

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::fold::{Fold, Role};
use crate::algorithms::common::halving::Halving;
use crate::builder::Builder;
use crate::call::Reduce;
use crate::data::Place;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Reduce> = Algorithm {
    name: "rabenseifner",
    summary: "recursive halving, then a gather: each rank reduces a piece",
    cost: "2 log2 p a + 2 (p - 1)/p n b + (p - 1)/p n g",
    fits: |_, _| true,
    build,
};

fn build(b: &mut Builder, call: &Reduce) {
    let fold = Fold::of(b);
    let count = call.data.count();
    let is_root = b.rank() == call.root;
    // The vertex that the root belongs to, and whether the root itself is idle.
    let (root_vertex, idle_root) = match fold.role(Place { rank: call.root, ..b.place() }) {
        Role::Active { vertex, .. } => (vertex, None),
        Role::Idle { partner } => (call.root / 2, Some((call.root, partner))),
    };
    let mut value = Accumulator::new(call.data, call.in_place && is_root, is_root);
    match fold.role(b.place()) {
        Role::Idle { partner } => {
            b.send(partner, value.whole());
        }
        Role::Active { vertex, partner } => {
            if let Some(partner) = partner {
                let arrived = value.take(b);
                b.recv(partner, element_range(&call.data, arrived, 0, count));
                b.wait_all();
                let order = if call.commutative { Order::Any } else { Order::ArrivedFirst };
                value.combine(b, arrived, order);
            }
            let mut halving = Halving::new(&fold, vertex, count);
            halving.reduce(b, &mut value, call.commutative);
            if is_root {
                let (first, end) = halving.range();
                value.settle_range(b, first, end - first);
                value.continue_in_result();
            }
            halving.gather_to(b, root_vertex, |first, count| value.range(first, count));
        }
    }
    let Some((root, partner)) = idle_root else {
        return;
    };
    b.wait_all();
    b.phase();
    if b.rank() == partner {
        b.send(root, value.whole());
    } else if b.rank() == root {
        b.recv(partner, element_range(&call.data, BufferId::Recv, 0, count));
    }
}
