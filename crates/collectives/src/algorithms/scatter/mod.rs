//! `MPI_Scatter` and `MPI_Scatterv`.

pub(crate) mod binomial;
pub(crate) mod linear;

use crate::algorithms::common::layout::Layout;
use crate::call::{Scatter, Scatterv};
use crate::collective::Collective;
use crate::data::{Data, Place};
use crate::error::BuildError;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Scatter {
    const COLLECTIVE: Collective = Collective::Scatter;
    const MEASURE: &'static str = "one block";
    const ALGORITHMS: &'static [&'static Algorithm<Scatter>] = &[&binomial::ALGORITHM, &linear::ALGORITHM];
    const TABLE: &'static [Row<Scatter>] = &[
        Row::of(&linear::ALGORITHM).up_to_ranks(8),
        Row::of(&binomial::ALGORITHM).up_to_bytes(4 << 10),
        Row::of(&linear::ALGORITHM),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        Self::COLLECTIVE.check_root(self.root, place)?;
        // A block goes through temporary memory together with those of a whole subtree.
        self.own_data(place).check(Self::COLLECTIVE, "the blocks", place.size)
    }

    /// One block.
    fn len_bytes(&self, place: Place) -> u64 {
        self.own_data(place).len_bytes()
    }
}

impl Scatter {
    /// The block that is significant on this rank.
    fn own_data(&self, place: Place) -> &Data {
        if place.rank == self.root { &self.send } else { &self.recv }
    }

    /// Where this rank wants its block, unless it stays where it is.
    fn own(&self, place: Place) -> Option<Region> {
        own(&self.recv, self.in_place && place.rank == self.root)
    }
}

impl CollectiveCall for Scatterv {
    const COLLECTIVE: Collective = Collective::Scatterv;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Scatterv>] = &[&linear::ALGORITHM_V];
    const TABLE: &'static [Row<Scatterv>] = &[Row::of(&linear::ALGORITHM_V)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        Self::COLLECTIVE.check_root(self.root, place)?;
        self.recv.check(Self::COLLECTIVE, "the receive buffer", 1)?;
        if place.rank != self.root {
            return Ok(());
        }
        self.send.check(Self::COLLECTIVE, ["send counts", "send displacements"], place.size as usize)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Scatterv {
    /// Where this rank wants its block, unless it stays where it is.
    fn own(&self, place: Place) -> Option<Region> {
        own(&self.recv, self.in_place && place.rank == self.root)
    }

    fn blocks(&self) -> Layout<'_> {
        Layout::listed(BufferId::Send, &self.send)
    }
}

fn own(recv: &Data, in_place: bool) -> Option<Region> {
    (!in_place).then(|| recv.blocks(BufferId::Recv, TypeSlot::Recv, 0, 1))
}
