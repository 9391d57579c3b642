//! Allreduce by recursive doubling: partners at distance 1, 2, 4, ... exchange all they have.
//!
//! ```text
//! rank        0        1        2        3
//! distance 1  01 <---> 01       23 <---> 23
//! distance 2  0123 <----------> 0123
//!                      0123 <----------> 0123
//! ```
//!
//! Operands stay in rank order, so any associative operation is served, and all ranks evaluate the
//! same expression: results are equal to the bit. Ranks beyond a power of two fold first.
//!
//! Cost: `⌊log2 p⌋ (α + n β + n γ)`, and twice `α + n β` more where `p` is no power of two.
//!
//! Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, §4.5.

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::fold::{Fold, Role};
use crate::builder::Builder;
use crate::call::Allreduce;
use crate::schedule::BufferId;
use crate::selection::Algorithm;

pub(crate) const ALGORITHM: Algorithm<Allreduce> = Algorithm {
    name: "recursive_doubling",
    summary: "partners at distance 1, 2, 4, ... exchange all they have",
    cost: "log2 p (a + n b + n g)",
    fits: |_, _| true,
    build,
};

fn build(b: &mut Builder, call: &Allreduce) {
    let fold = Fold::of(b);
    let mut value = Accumulator::new(call.data, call.in_place, true);
    match fold.role(b.place()) {
        Role::Idle { partner } => {
            b.send(partner, value.whole());
            // In place, the input must have gone before the result comes.
            if call.in_place {
                b.wait_all();
            }
            b.recv(partner, element_range(&call.data, BufferId::Recv, 0, call.data.count()));
        }
        Role::Active { vertex, partner } => {
            let orders = partner.map(|_| Order::ArrivedFirst).into_iter().chain(orders(&fold, vertex));
            value.aim_at_result(b, orders);
            if let Some(partner) = partner {
                let arrived = value.take(b);
                b.recv(partner, element_range(&call.data, arrived, 0, call.data.count()));
                b.wait_all();
                value.combine(b, arrived, Order::ArrivedFirst);
            }
            let mut distance = 1;
            while distance < fold.vertices {
                let peer = fold.rank(vertex ^ distance);
                let arrived = value.take(b);
                b.recv(peer, element_range(&call.data, arrived, 0, call.data.count()));
                b.send(peer, value.whole());
                b.wait_all();
                value.combine(b, arrived, order(vertex, distance));
                distance *= 2;
            }
            value.settle(b);
            if let Some(partner) = partner {
                b.send(partner, value.whole());
            }
        }
    }
}

fn order(vertex: u32, distance: u32) -> Order {
    Order::of_ranks(vertex & distance != 0)
}

fn orders(fold: &Fold, vertex: u32) -> impl Iterator<Item = Order> + use<> {
    (0..fold.vertices.ilog2()).map(move |round| order(vertex, 1 << round))
}
