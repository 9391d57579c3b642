//! `MPI_Scan` and `MPI_Exscan`.

pub(crate) mod chain;
pub(crate) mod recursive_doubling;

use crate::call::{Exscan, Scan};
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Scan {
    const COLLECTIVE: Collective = Collective::Scan;
    const MEASURE: &'static str = "the buffer";
    const ALGORITHMS: &'static [&'static Algorithm<Scan>] = &[&recursive_doubling::ALGORITHM, &chain::ALGORITHM];
    const TABLE: &'static [Row<Scan>] = &[
        Row::of(&chain::ALGORITHM).oversubscribed(true),
        Row::of(&recursive_doubling::ALGORITHM).up_to_bytes(256 << 10),
        Row::of(&chain::ALGORITHM).up_to_ranks(64),
        Row::of(&recursive_doubling::ALGORITHM),
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}

impl CollectiveCall for Exscan {
    const COLLECTIVE: Collective = Collective::Exscan;
    const MEASURE: &'static str = "the buffer";
    const ALGORITHMS: &'static [&'static Algorithm<Exscan>] =
        &[&recursive_doubling::ALGORITHM_EXCLUSIVE, &chain::ALGORITHM_EXCLUSIVE];
    const TABLE: &'static [Row<Exscan>] = &[
        Row::of(&chain::ALGORITHM_EXCLUSIVE).oversubscribed(true),
        Row::of(&recursive_doubling::ALGORITHM_EXCLUSIVE).up_to_bytes(256 << 10),
        Row::of(&chain::ALGORITHM_EXCLUSIVE).up_to_ranks(64),
        Row::of(&recursive_doubling::ALGORITHM_EXCLUSIVE),
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}
