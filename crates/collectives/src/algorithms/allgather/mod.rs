//! `MPI_Allgather` and `MPI_Allgatherv`: the same algorithms over equal or listed blocks.

pub(crate) mod bruck;
pub(crate) mod direct;
pub(crate) mod gather_bcast;
pub(crate) mod linear;
pub(crate) mod recursive_doubling;
pub(crate) mod ring;

use crate::algorithms::common::layout::Layout;
use crate::call::{Allgather, Allgatherv};
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Allgather {
    const COLLECTIVE: Collective = Collective::Allgather;
    const MEASURE: &'static str = "all blocks";
    const ALGORITHMS: &'static [&'static Algorithm<Allgather>] = &[
        &recursive_doubling::ALGORITHM,
        &bruck::ALGORITHM,
        &ring::ALGORITHM,
        &gather_bcast::ALGORITHM,
        &direct::ALGORITHM,
        &linear::ALGORITHM,
    ];
    const TABLE: &'static [Row<Allgather>] = &[
        Row::of(&linear::ALGORITHM).up_to_ranks(64).up_to_bytes(8 << 10).oversubscribed(true),
        Row::of(&gather_bcast::ALGORITHM).up_to_bytes(8 << 10).oversubscribed(true),
        Row::of(&direct::ALGORITHM).up_to_ranks(8),
        Row::of(&recursive_doubling::ALGORITHM).up_to_bytes(256 << 10),
        Row::of(&bruck::ALGORITHM).up_to_bytes(32 << 10),
        Row::of(&direct::ALGORITHM).oversubscribed(true),
        Row::of(&ring::ALGORITHM),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.send.check(Self::COLLECTIVE, "the send buffer", place.size)?;
        self.recv.check(Self::COLLECTIVE, "the receive buffer", place.size)
    }

    /// All blocks together.
    fn len_bytes(&self, place: Place) -> u64 {
        self.recv.len_bytes() * u64::from(place.size)
    }
}

impl Allgather {
    fn own(&self) -> Option<Region> {
        (!self.in_place).then(|| self.send.blocks(BufferId::Send, TypeSlot::Send, 0, 1))
    }

    fn blocks(&self) -> Layout<'_> {
        Layout::even(BufferId::Recv, &self.recv)
    }
}

impl CollectiveCall for Allgatherv {
    const COLLECTIVE: Collective = Collective::Allgatherv;
    const MEASURE: &'static str = "all blocks";
    const ALGORITHMS: &'static [&'static Algorithm<Allgatherv>] = &[
        &recursive_doubling::ALGORITHM_V,
        &bruck::ALGORITHM_V,
        &ring::ALGORITHM_V,
        &gather_bcast::ALGORITHM_V,
        &direct::ALGORITHM_V,
        &linear::ALGORITHM_V,
    ];
    const TABLE: &'static [Row<Allgatherv>] = &[
        Row::of(&linear::ALGORITHM_V).up_to_ranks(64).up_to_bytes(8 << 10).oversubscribed(true),
        Row::of(&gather_bcast::ALGORITHM_V).up_to_bytes(8 << 10).oversubscribed(true),
        Row::of(&direct::ALGORITHM_V).up_to_ranks(8),
        Row::of(&recursive_doubling::ALGORITHM_V).up_to_bytes(256 << 10),
        Row::of(&bruck::ALGORITHM_V).up_to_bytes(32 << 10),
        Row::of(&direct::ALGORITHM_V).oversubscribed(true),
        Row::of(&ring::ALGORITHM_V),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.send.check(Self::COLLECTIVE, "the send buffer", 1)?;
        self.recv.check(Self::COLLECTIVE, ["receive counts", "receive displacements"], place.size as usize)
    }

    /// All blocks together.
    fn len_bytes(&self, _place: Place) -> u64 {
        self.recv.len_bytes()
    }
}

impl Allgatherv {
    fn own(&self) -> Option<Region> {
        (!self.in_place).then(|| self.send.blocks(BufferId::Send, TypeSlot::Send, 0, 1))
    }

    fn blocks(&self) -> Layout<'_> {
        Layout::listed(BufferId::Recv, &self.recv)
    }
}
