//! `MPI_Reduce`.

pub(crate) mod binomial;
pub(crate) mod linear;
pub(crate) mod rabenseifner;

use crate::call::Reduce;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Reduce {
    const COLLECTIVE: Collective = Collective::Reduce;
    const MEASURE: &'static str = "the buffer";
    const ALGORITHMS: &'static [&'static Algorithm<Reduce>] =
        &[&binomial::ALGORITHM, &rabenseifner::ALGORITHM, &linear::ALGORITHM];
    const TABLE: &'static [Row<Reduce>] = &[
        Row::of(&binomial::ALGORITHM).up_to_ranks(2),
        Row::of(&linear::ALGORITHM).up_to_ranks(8).up_to_bytes(256 << 10),
        Row::of(&linear::ALGORITHM).up_to_ranks(64).up_to_bytes(1 << 10).oversubscribed(true),
        Row::of(&binomial::ALGORITHM).up_to_bytes(16 << 10),
        Row::of(&rabenseifner::ALGORITHM),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        Self::COLLECTIVE.check_root(self.root, place)?;
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}
