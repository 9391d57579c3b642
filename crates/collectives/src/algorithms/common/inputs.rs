//! All inputs of a reduction on one rank, folded in rank order.
//!
//! The fold goes from the last rank to the first, `a (b (c d))`, as each step writes its right
//! operand. If the operation commutes it goes from the first to the last, `((a b) c) d`: a sum of
//! floating-point numbers is what a loop over them gives. Inputs are received in that order, so one
//! is reduced while others come.

use crate::algorithms::common::accumulator::element_range;
use crate::builder::{Builder, Posted};
use crate::data::{Data, Place};
use crate::schedule::{BufferId, Region};

/// The inputs of all other ranks, on their way here.
pub(crate) struct Inputs {
    place: Place,
    data: Data,
    in_place: bool,
    commutative: bool,
    room: BufferId,
    /// In the order of the fold, without this one.
    coming: Vec<(u32, Posted)>,
}

impl Inputs {
    /// Posts a receive from every other rank.
    pub(crate) fn post(b: &mut Builder, data: &Data, in_place: bool, commutative: bool) -> Inputs {
        let place = b.place();
        let room = b.temp_elements(data.count() * u64::from(place.size));
        let mut inputs = Inputs { place, data: *data, in_place, commutative, room, coming: Vec::new() };
        for peer in inputs.order().filter(|&peer| peer != place.rank) {
            let arriving = b.recv(peer, inputs.input(peer));
            inputs.coming.push((peer, arriving));
        }
        inputs
    }

    /// Folds all inputs into the receive buffer. Messages from this rank's input may be under way.
    pub(crate) fn fold(self, b: &mut Builder) {
        let first = self.first();
        let result = self.range(BufferId::Recv, 0);
        let value = if self.place.rank == first { result } else { self.input(first) };
        if self.in_place {
            // The result goes where our input is sent from.
            b.wait_all();
        }
        let mut coming = self.coming.iter();
        for peer in self.order() {
            if peer != self.place.rank
                && let Some((_, arriving)) = coming.next()
            {
                b.wait(*arriving);
            }
            if peer == first {
                b.copy(self.input(first), value);
            } else {
                b.reduce(self.input(peer), value);
            }
        }
        b.copy(value, result);
    }

    /// The ranks in the order of the fold.
    fn order(&self) -> impl Iterator<Item = u32> + use<> {
        let (size, commutative) = (self.place.size, self.commutative);
        (0..size).map(move |index| if commutative { index } else { size - 1 - index })
    }

    /// The rank that the fold begins with.
    fn first(&self) -> u32 {
        if self.commutative { 0 } else { self.place.size - 1 }
    }

    /// Where the input of a rank stands. That of the first becomes the value: it comes where the result
    /// goes, unless our input is there.
    fn input(&self, peer: u32) -> Region {
        match peer {
            _ if peer == self.place.rank => self.range(if self.in_place { BufferId::Recv } else { BufferId::Send }, 0),
            _ if peer == self.first() && !self.in_place => self.range(BufferId::Recv, 0),
            _ => self.range(self.room, u64::from(peer)),
        }
    }

    fn range(&self, buffer: BufferId, block: u64) -> Region {
        element_range(&self.data, buffer, block * self.data.count(), self.data.count())
    }
}

/// That the inputs of all ranks can be held at once.
pub(crate) fn fit(place: Place, data: &Data, collective: crate::collective::Collective) -> bool {
    data.check(collective, "the inputs", place.size).is_ok()
}
