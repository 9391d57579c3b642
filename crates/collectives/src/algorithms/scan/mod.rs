//! `MPI_Scan` and `MPI_Exscan`.

pub(crate) mod chain;
pub(crate) mod recursive_doubling;

use crate::call::{Exscan, Scan};
use crate::collective::Collective;
use crate::data::Place;
use crate::error::BuildError;
use crate::selection::{ANY_BYTES, ANY_RANKS, Algorithm, CollectiveCall, Row};

impl CollectiveCall for Scan {
    const COLLECTIVE: Collective = Collective::Scan;
    const ALGORITHMS: &'static [&'static Algorithm<Scan>] = &[&recursive_doubling::ALGORITHM, &chain::ALGORITHM];
    const TABLE: &'static [Row<Scan>] = &[
        Row { ranks_max: ANY_RANKS, bytes_max: ANY_BYTES, oversubscribed: Some(true), algorithm: &chain::ALGORITHM },
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: 256 << 10,
            oversubscribed: None,
            algorithm: &recursive_doubling::ALGORITHM,
        },
        Row { ranks_max: 64, bytes_max: ANY_BYTES, oversubscribed: None, algorithm: &chain::ALGORITHM },
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: ANY_BYTES,
            oversubscribed: None,
            algorithm: &recursive_doubling::ALGORITHM,
        },
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
    const ALGORITHMS: &'static [&'static Algorithm<Exscan>] =
        &[&recursive_doubling::ALGORITHM_EXCLUSIVE, &chain::ALGORITHM_EXCLUSIVE];
    const TABLE: &'static [Row<Exscan>] = &[
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: ANY_BYTES,
            oversubscribed: Some(true),
            algorithm: &chain::ALGORITHM_EXCLUSIVE,
        },
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: 256 << 10,
            oversubscribed: None,
            algorithm: &recursive_doubling::ALGORITHM_EXCLUSIVE,
        },
        Row { ranks_max: 64, bytes_max: ANY_BYTES, oversubscribed: None, algorithm: &chain::ALGORITHM_EXCLUSIVE },
        Row {
            ranks_max: ANY_RANKS,
            bytes_max: ANY_BYTES,
            oversubscribed: None,
            algorithm: &recursive_doubling::ALGORITHM_EXCLUSIVE,
        },
    ];

    fn check(&self, _place: Place) -> Result<(), BuildError> {
        self.data.check(Self::COLLECTIVE, "the buffer", 1)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        self.data.len_bytes()
    }
}
