//! `MPI_Allreduce`.

pub(crate) mod direct;
pub(crate) mod linear;
pub(crate) mod rabenseifner;
pub(crate) mod recursive_doubling;
pub(crate) mod reduce_bcast;
pub(crate) mod ring;

use crate::call::Allreduce;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Allreduce {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const MEASURE: &'static str = "the buffer";
    const ALGORITHMS: &'static [&'static Algorithm<Allreduce>] = &[
        &recursive_doubling::ALGORITHM,
        &rabenseifner::ALGORITHM,
        &ring::ALGORITHM,
        &reduce_bcast::ALGORITHM,
        &direct::ALGORITHM,
        &linear::ALGORITHM,
    ];
    const TABLE: &'static [Row<Allreduce>] = &[
        Row::of(&recursive_doubling::ALGORITHM).up_to_ranks(2).up_to_bytes(32 << 10),
        Row::of(&ring::ALGORITHM).up_to_ranks(2).up_to_bytes(1 << 20),
        Row::of(&rabenseifner::ALGORITHM).up_to_ranks(2),
        Row::of(&direct::ALGORITHM).up_to_ranks(4).up_to_bytes(1 << 10),
        Row::of(&linear::ALGORITHM).up_to_ranks(64).up_to_bytes(8 << 10).oversubscribed(true),
        Row::of(&reduce_bcast::ALGORITHM).up_to_bytes(8 << 10).oversubscribed(true),
        Row::of(&recursive_doubling::ALGORITHM).up_to_bytes(8 << 10),
        Row::of(&rabenseifner::ALGORITHM).up_to_bytes(512 << 10),
        Row::of(&ring::ALGORITHM).up_to_ranks(16).oversubscribed(false),
        Row::of(&rabenseifner::ALGORITHM),
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}
