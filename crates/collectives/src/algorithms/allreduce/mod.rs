//! `MPI_Allreduce`.

pub(crate) mod rabenseifner;
pub(crate) mod recursive_doubling;
pub(crate) mod reduce_bcast;
pub(crate) mod ring;

use crate::call::Allreduce;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{ANY_BYTES, ANY_RANKS, Algorithm, CollectiveCall, Row};

impl CollectiveCall for Allreduce {
    const COLLECTIVE: Collective = Collective::Allreduce;
    const ALGORITHMS: &'static [&'static Algorithm<Allreduce>] =
        &[&recursive_doubling::ALGORITHM, &rabenseifner::ALGORITHM, &ring::ALGORITHM, &reduce_bcast::ALGORITHM];
    const TABLE: &'static [Row<Allreduce>] = &[
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: 8 << 10,
            oversubscribed: Some(true),
            algorithm: &reduce_bcast::ALGORITHM,
        },
        Row { ranks_max: 2, bytes_max: 64 << 10, oversubscribed: None, algorithm: &recursive_doubling::ALGORITHM },
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: 4 << 10,
            oversubscribed: None,
            algorithm: &recursive_doubling::ALGORITHM,
        },
        Row { ranks_max: ANY_RANKS, bytes_max: 512 << 10, oversubscribed: None, algorithm: &rabenseifner::ALGORITHM },
        Row { ranks_max: 16, bytes_max: ANY_BYTES, oversubscribed: Some(false), algorithm: &ring::ALGORITHM },
        Row { ranks_max: ANY_RANKS, bytes_max: ANY_BYTES, oversubscribed: None, algorithm: &rabenseifner::ALGORITHM },
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}
