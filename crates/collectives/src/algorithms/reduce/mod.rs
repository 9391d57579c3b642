//! `MPI_Reduce`.

pub(crate) mod binomial;
pub(crate) mod rabenseifner;

use crate::call::Reduce;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{ANY_BYTES, ANY_RANKS, Algorithm, CollectiveCall, Row};

impl CollectiveCall for Reduce {
    const COLLECTIVE: Collective = Collective::Reduce;
    const ALGORITHMS: &'static [&'static Algorithm<Reduce>] = &[&binomial::ALGORITHM, &rabenseifner::ALGORITHM];
    const TABLE: &'static [Row<Reduce>] = &[
        Row { ranks_max: 2, bytes_max: ANY_BYTES, oversubscribed: None, algorithm: &binomial::ALGORITHM },
        Row { ranks_max: ANY_RANKS, bytes_max: 16 << 10, oversubscribed: None, algorithm: &binomial::ALGORITHM },
        Row { ranks_max: ANY_RANKS, bytes_max: ANY_BYTES, oversubscribed: None, algorithm: &rabenseifner::ALGORITHM },
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        Self::COLLECTIVE.check_root(self.root, place)?;
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}
