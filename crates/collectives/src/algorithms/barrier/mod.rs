//! `MPI_Barrier`.

pub(crate) mod dissemination;
pub(crate) mod linear;
pub(crate) mod tree;

use crate::call::Barrier;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{ANY_BYTES, ANY_RANKS, Algorithm, CollectiveCall, Row};

impl CollectiveCall for Barrier {
    const COLLECTIVE: Collective = Collective::Barrier;
    const ALGORITHMS: &'static [&'static Algorithm<Barrier>] =
        &[&dissemination::ALGORITHM, &tree::ALGORITHM, &linear::ALGORITHM];
    const TABLE: &'static [Row<Barrier>] = &[
        Row { ranks_max: ANY_RANKS, bytes_max: ANY_BYTES, oversubscribed: Some(true), algorithm: &tree::ALGORITHM },
        Row { ranks_max: ANY_RANKS, bytes_max: ANY_BYTES, oversubscribed: None, algorithm: &dissemination::ALGORITHM },
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        Ok(())
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}
