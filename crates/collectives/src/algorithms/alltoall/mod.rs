//! `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Alltoallw`: the same algorithms over blocks described in
//! three ways.

pub(crate) mod bruck;
pub(crate) mod exchange;
pub(crate) mod linear;
pub(crate) mod pairwise;

use crate::algorithms::common::layout::Layout;
use crate::call::{Alltoall, Alltoallv, Alltoallw};
use crate::collective::Collective;
use crate::data::{Part, Place};
use crate::error::BuildError;
use crate::schedule::BufferId;
use crate::selection::{Algorithm, CollectiveCall, Row};

/// A call's blocks, send and receive side.
pub(crate) trait Transposition: CollectiveCall {
    fn in_place(&self) -> bool;
    fn send(&self) -> Layout<'_>;
    fn recv(&self) -> Layout<'_>;
}

impl CollectiveCall for Alltoall {
    const COLLECTIVE: Collective = Collective::Alltoall;
    const MEASURE: &'static str = "one block";
    const ALGORITHMS: &'static [&'static Algorithm<Alltoall>] =
        &[&bruck::ALGORITHM, &linear::ALGORITHM, &pairwise::ALGORITHM, &exchange::ALGORITHM];
    const TABLE: &'static [Row<Alltoall>] = &[
        Row::of(&linear::ALGORITHM).up_to_ranks(16),
        Row::of(&exchange::ALGORITHM).up_to_ranks(2),
        Row::of(&bruck::ALGORITHM).up_to_bytes(64).oversubscribed(false),
        Row::of(&linear::ALGORITHM).up_to_bytes(32 << 10),
        Row::of(&linear::ALGORITHM).oversubscribed(true),
        Row::of(&pairwise::ALGORITHM),
        Row::of(&exchange::ALGORITHM),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.send.check(Self::COLLECTIVE, "the send buffer", place.size)?;
        self.recv.check(Self::COLLECTIVE, "the receive buffer", place.size)
    }

    /// One block.
    fn len_bytes(&self, _place: Place) -> u64 {
        self.recv.len_bytes()
    }
}

impl Transposition for Alltoall {
    fn in_place(&self) -> bool {
        self.in_place
    }

    fn send(&self) -> Layout<'_> {
        Layout::even(BufferId::Send, &self.send)
    }

    fn recv(&self) -> Layout<'_> {
        Layout::even(BufferId::Recv, &self.recv)
    }
}

impl CollectiveCall for Alltoallv {
    const COLLECTIVE: Collective = Collective::Alltoallv;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Alltoallv>] =
        &[&linear::ALGORITHM_V, &pairwise::ALGORITHM_V, &exchange::ALGORITHM_V];
    const TABLE: &'static [Row<Alltoallv>] = &[Row::of(&linear::ALGORITHM_V), Row::of(&exchange::ALGORITHM_V)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        let size = place.size as usize;
        if !self.in_place {
            self.send.check(Self::COLLECTIVE, ["send counts", "send displacements"], size)?;
        }
        self.recv.check(Self::COLLECTIVE, ["receive counts", "receive displacements"], size)
    }

    /// Ranks know their own blocks only.
    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Transposition for Alltoallv {
    fn in_place(&self) -> bool {
        self.in_place
    }

    fn send(&self) -> Layout<'_> {
        Layout::listed(BufferId::Send, &self.send)
    }

    fn recv(&self) -> Layout<'_> {
        Layout::listed(BufferId::Recv, &self.recv)
    }
}

impl CollectiveCall for Alltoallw {
    const COLLECTIVE: Collective = Collective::Alltoallw;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Alltoallw>] =
        &[&linear::ALGORITHM_W, &pairwise::ALGORITHM_W, &exchange::ALGORITHM_W];
    const TABLE: &'static [Row<Alltoallw>] = &[Row::of(&linear::ALGORITHM_W), Row::of(&exchange::ALGORITHM_W)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        let size = place.size as usize;
        if !self.in_place {
            Part::check(&self.send, Self::COLLECTIVE, "send counts", size)?;
        }
        Part::check(&self.recv, Self::COLLECTIVE, "receive counts", size)
    }

    /// Ranks know their own blocks only.
    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Transposition for Alltoallw {
    fn in_place(&self) -> bool {
        self.in_place
    }

    fn send(&self) -> Layout<'_> {
        Layout::typed(BufferId::Send, &self.send)
    }

    fn recv(&self) -> Layout<'_> {
        Layout::typed(BufferId::Recv, &self.recv)
    }
}
