//! Allreduce by recursive halving and doubling (Rabenseifner): partners at distance 1, 2, 4, ...
//! each reduce one half of what they share, then the pieces are gathered the way back.
//!
//! ```text
//! rank         0      1      2      3
//!              abcd   abcd   abcd   abcd
//! distance 1   ab     cd     ab     cd      over ranks 01, 01, 23, 23
//! distance 2   a      c      b      d       over all
//! distance 2   ab     cd     ab     cd      gathered back
//! distance 1   abcd   abcd   abcd   abcd
//! ```
//!
//! Near partners come first, so a piece always covers consecutive ranks: operands stay in order and
//! any associative operation is served. Each piece is reduced once: results are equal to the bit.
//!
//! Cost: `2 log2 p α + 2 (p - 1)/p n β + (p - 1)/p n γ`, and `2 α + 2 n β + n γ` more where `p` is
//! no power of two.
//!
//! Source: R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, §3.

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::fold::{Fold, Role};
use crate::algorithms::common::halving::Halving;
use crate::builder::Builder;
use crate::call::Allreduce;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "rabenseifner",
    summary: "recursive halving, then doubling: each rank reduces a piece",
    cost: "2 log2 p a + 2 (p - 1)/p n b + (p - 1)/p n g",
    fits: |_, _| true,
    build,
};

fn build(b: &mut Builder, call: &Allreduce) {
    let fold = Fold::of(b);
    let count = call.data.count();
    let result = |first: u64, count: u64| element_range(&call.data, BufferId::Recv, first, count);
    let mut value = Accumulator::new(call.data, call.in_place, true);
    match fold.role(b.place()) {
        Role::Idle { partner } => {
            b.send(partner, value.whole());
            if call.in_place {
                b.wait_all();
            }
            b.phase();
            b.recv(partner, result(0, count));
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
            let (first, end) = halving.range();
            value.settle_range(b, first, end - first);
            b.phase();
            halving.gather(b, result);
            if let Some(partner) = partner {
                b.send(partner, result(0, count));
            }
        }
    }
}
