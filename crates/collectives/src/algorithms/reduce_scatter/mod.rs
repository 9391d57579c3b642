//! `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`: the same algorithms over listed or equal
//! blocks.

pub(crate) mod pairwise;
pub(crate) mod recursive_halving;
pub(crate) mod reduce_then_scatter;

use crate::call::{ReduceScatter, ReduceScatterBlock};
use crate::collective::Collective;
use crate::data::{Data, Place};
use crate::error::BuildError;
use crate::selection::{Algorithm, CollectiveCall, Row};

/// What the algorithms see of a call.
pub(crate) trait ScatteredReduction: CollectiveCall {
    fn in_place(&self) -> bool;
    fn commutative(&self) -> bool;
    /// All blocks together, as one buffer.
    fn whole(&self, size: u32) -> Data;
    /// Where the block of each rank begins, in elements, and the end.
    fn offsets(&self, size: u32) -> Vec<u64>;
}

impl CollectiveCall for ReduceScatter {
    const COLLECTIVE: Collective = Collective::ReduceScatter;
    const MEASURE: &'static str = "all blocks";
    const ALGORITHMS: &'static [&'static Algorithm<ReduceScatter>] =
        &[&recursive_halving::ALGORITHM_V, &pairwise::ALGORITHM_V, &reduce_then_scatter::ALGORITHM_V];
    const TABLE: &'static [Row<ReduceScatter>] = &[
        Row::of(&recursive_halving::ALGORITHM_V).up_to_bytes(512 << 10),
        Row::of(&pairwise::ALGORITHM_V),
        Row::of(&reduce_then_scatter::ALGORITHM_V),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        let (collective, actual_count, expected_count) = (Self::COLLECTIVE, self.counts.len(), place.size as usize);
        let list = "receive counts";
        if actual_count != expected_count {
            return Err(BuildError::ListLength { collective, list, actual_count, expected_count });
        }
        let total = self.counts.iter().try_fold(0u64, |sum, &count| sum.checked_add(count));
        let total = total.ok_or(BuildError::TooLarge { collective, list })?;
        Data::new(total, self.shape).check(collective, list, 1)
    }

    /// All blocks together.
    fn len_bytes(&self, place: Place) -> u64 {
        self.whole(place.size).len_bytes()
    }
}

impl ScatteredReduction for ReduceScatter {
    fn in_place(&self) -> bool {
        self.in_place
    }

    fn commutative(&self) -> bool {
        self.commutative
    }

    fn whole(&self, _size: u32) -> Data {
        Data::new(self.counts.iter().sum(), self.shape)
    }

    fn offsets(&self, _size: u32) -> Vec<u64> {
        let mut end = 0;
        let ends = self.counts.iter().map(|count| {
            end += if self.shape.size_bytes == 0 { 0 } else { *count };
            end
        });
        std::iter::once(0).chain(ends).collect()
    }
}

impl CollectiveCall for ReduceScatterBlock {
    const COLLECTIVE: Collective = Collective::ReduceScatterBlock;
    const MEASURE: &'static str = "all blocks";
    const ALGORITHMS: &'static [&'static Algorithm<ReduceScatterBlock>] =
        &[&recursive_halving::ALGORITHM, &pairwise::ALGORITHM, &reduce_then_scatter::ALGORITHM];
    const TABLE: &'static [Row<ReduceScatterBlock>] = &[
        Row::of(&recursive_halving::ALGORITHM).up_to_bytes(512 << 10),
        Row::of(&pairwise::ALGORITHM),
        Row::of(&reduce_then_scatter::ALGORITHM),
    ];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.data.check(Self::COLLECTIVE, "the buffer", place.size)
    }

    /// All blocks together.
    fn len_bytes(&self, place: Place) -> u64 {
        self.whole(place.size).len_bytes()
    }
}

impl ScatteredReduction for ReduceScatterBlock {
    fn in_place(&self) -> bool {
        self.in_place
    }

    fn commutative(&self) -> bool {
        self.commutative
    }

    fn whole(&self, size: u32) -> Data {
        Data::new(self.data.count() * u64::from(size), self.data.shape())
    }

    fn offsets(&self, size: u32) -> Vec<u64> {
        (0..=u64::from(size)).map(|rank| rank * self.data.count()).collect()
    }
}
