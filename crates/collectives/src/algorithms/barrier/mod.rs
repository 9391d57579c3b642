//! `MPI_Barrier`.

pub(crate) mod direct;
pub(crate) mod dissemination;
pub(crate) mod linear;
pub(crate) mod tree;

use crate::call::Barrier;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{Algorithm, CollectiveCall, Row};

impl CollectiveCall for Barrier {
    const COLLECTIVE: Collective = Collective::Barrier;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Barrier>] =
        &[&dissemination::ALGORITHM, &tree::ALGORITHM, &linear::ALGORITHM, &direct::ALGORITHM];
    const TABLE: &'static [Row<Barrier>] = &[
        Row::of(&direct::ALGORITHM).up_to_ranks(4),
        Row::of(&linear::ALGORITHM).up_to_ranks(64).oversubscribed(true),
        Row::of(&tree::ALGORITHM).oversubscribed(true),
        Row::of(&dissemination::ALGORITHM),
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        Ok(())
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}
