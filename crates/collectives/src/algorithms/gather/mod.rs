//! `MPI_Gather` and `MPI_Gatherv`.

pub(crate) mod binomial;
pub(crate) mod linear;

use crate::algorithms::common::layout::Layout;
use crate::call::{Gather, Gatherv};
use crate::collective::Collective;
use crate::data::{Data, Place};
use crate::error::BuildError;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Gather {
    const COLLECTIVE: Collective = Collective::Gather;
    const MEASURE: &'static str = "one block";
    const ALGORITHMS: &'static [&'static Algorithm<Gather>] = &[&binomial::ALGORITHM, &linear::ALGORITHM];
    const TABLE: &'static [Row<Gather>] = &[
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

impl Gather {
    /// The block that is significant on this rank.
    fn own_data(&self, place: Place) -> &Data {
        if place.rank == self.root { &self.recv } else { &self.send }
    }

    /// This rank's block, unless it is in its place already.
    fn own(&self, place: Place) -> Option<Region> {
        let in_place = self.in_place && place.rank == self.root;
        (!in_place).then(|| self.send.blocks(BufferId::Send, TypeSlot::Send, 0, 1))
    }
}

impl CollectiveCall for Gatherv {
    const COLLECTIVE: Collective = Collective::Gatherv;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Gatherv>] = &[&linear::ALGORITHM_V];
    const TABLE: &'static [Row<Gatherv>] = &[Row::of(&linear::ALGORITHM_V)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        Self::COLLECTIVE.check_root(self.root, place)?;
        self.send.check(Self::COLLECTIVE, "the send buffer", 1)?;
        if place.rank != self.root {
            return Ok(());
        }
        self.recv.check(Self::COLLECTIVE, ["receive counts", "receive displacements"], place.size as usize)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Gatherv {
    /// This rank's block, unless it is in its place already.
    fn own(&self, place: Place) -> Option<Region> {
        let in_place = self.in_place && place.rank == self.root;
        (!in_place).then(|| self.send.blocks(BufferId::Send, TypeSlot::Send, 0, 1))
    }

    fn blocks(&self) -> Layout<'_> {
        Layout::listed(BufferId::Recv, &self.recv)
    }
}
