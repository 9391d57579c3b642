//! Recursive halving: vertices at distance 1, 2, 4, ... divide what they share, and back.
//!
//! Cuts depend on the count alone, so all vertices agree on them.

use smallvec::SmallVec;

use crate::algorithms::common::accumulator::{Accumulator, Order, element_range};
use crate::algorithms::common::even_cut;
use crate::algorithms::common::fold::Fold;
use crate::builder::Builder;
use crate::schedule::Region;

/// The blocks a vertex is still concerned with, of `vertices` even blocks of `count` elements.
#[derive(Debug)]
pub(crate) struct Halving {
    fold: Fold,
    vertex: u32,
    count: u64,
    blocks: (u32, u32),
    /// Per halving so far: the peer's blocks.
    given: SmallVec<[(u32, u32); 32]>,
}

impl Halving {
    pub(crate) fn new(fold: &Fold, vertex: u32, count: u64) -> Halving {
        Halving { fold: *fold, vertex, count, blocks: (0, fold.vertices), given: SmallVec::new() }
    }

    /// The elements this vertex is concerned with: first, and one past the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        self.elements(self.blocks)
    }

    /// Halves down to one block, reduced over all vertices.
    pub(crate) fn reduce(&mut self, b: &mut Builder, value: &mut Accumulator, commutative: bool) {
        while self.blocks.1 - self.blocks.0 > 1 {
            let (peer, upper) = self.halve();
            let (kept_first, kept_end) = self.range();
            let (given_first, given_end) = self.elements(self.last_given());
            let arrived = value.take(b);
            let kept_count = kept_end - kept_first;
            b.recv(peer, element_range(value.data(), arrived, kept_first, kept_count));
            b.send(peer, value.range(given_first, given_end - given_first));
            b.wait_all();
            let order = if commutative { Order::Any } else { Order::of_ranks(upper) };
            value.combine_range(b, arrived, kept_first, kept_count, order);
        }
    }

    /// Undoes the halvings, last first: partners give each other their blocks of `result`.
    pub(crate) fn gather(&mut self, b: &mut Builder, result: impl Fn(u64, u64) -> Region) {
        while let Some(given) = self.given.pop() {
            let peer = self.fold.rank(self.vertex ^ (1 << self.given.len()));
            let (own_first, own_end) = self.range();
            let (peer_first, peer_end) = self.elements(given);
            let arriving = b.recv(peer, result(peer_first, peer_end - peer_first));
            b.send(peer, result(own_first, own_end - own_first));
            b.wait(arriving);
            self.blocks = (self.blocks.0.min(given.0), self.blocks.1.max(given.1));
        }
    }

    /// Undoes the halvings towards one vertex: of each pair, the vertex that has more bits in common
    /// with `root` takes what the other has. Ends with all elements there.
    pub(crate) fn gather_to(&mut self, b: &mut Builder, root: u32, value: impl Fn(u64, u64) -> Region) {
        while let Some(given) = self.given.pop() {
            let distance = 1 << self.given.len();
            let peer = self.fold.rank(self.vertex ^ distance);
            if (self.vertex ^ root) & distance != 0 {
                let (first, end) = self.range();
                b.send(peer, value(first, end - first));
                return;
            }
            let (first, end) = self.elements(given);
            b.recv(peer, value(first, end - first));
            b.wait_all();
            self.blocks = (self.blocks.0.min(given.0), self.blocks.1.max(given.1));
        }
    }

    /// Keeps one half; gives the rank that keeps the other, and whether ours is the upper.
    fn halve(&mut self) -> (u32, bool) {
        let distance = 1 << self.given.len();
        let (low, high) = self.blocks;
        let middle = (low + high) / 2;
        let upper = self.vertex & distance != 0;
        let (kept, given) = if upper { ((middle, high), (low, middle)) } else { ((low, middle), (middle, high)) };
        self.blocks = kept;
        self.given.push(given);
        (self.fold.rank(self.vertex ^ distance), upper)
    }

    fn last_given(&self) -> (u32, u32) {
        *self.given.last().expect("asked for after a halving")
    }

    fn elements(&self, (low, high): (u32, u32)) -> (u64, u64) {
        let cut = |block| even_cut(self.count, self.fold.vertices, block);
        (cut(low), cut(high))
    }
}
