//! Blocks of different lengths in one slice.

use mpi_core::collective::Blocks as Raw;
use mpi_core::{Comm, ErrorClass};

use crate::borrowed::{Borrowed, reading, writing};
use crate::element::Element;
use crate::shared::{Checked, Shared};
use datatype::{UserMemory, UserMemoryMut};

/// Where the block of each rank lies in a slice, in elements.
///
/// ```
/// use ferrovia::Blocks;
/// assert_eq!(Blocks::adjacent(&[2, 0, 3]), Blocks::at(&[2, 0, 3], &[0, 2, 2]));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocks {
    counts: Vec<usize>,
    starts: Vec<usize>,
}

impl Blocks {
    /// Blocks of these lengths, one after the other.
    pub fn adjacent(counts: &[usize]) -> Blocks {
        let mut end = 0_usize;
        let starts = counts.iter().map(|count| {
            let start = end;
            end = end.saturating_add(*count);
            start
        });
        Blocks { starts: starts.collect(), counts: counts.to_vec() }
    }

    /// Blocks of these lengths that begin at these places.
    pub fn at(counts: &[usize], starts: &[usize]) -> Blocks {
        Blocks { counts: counts.to_vec(), starts: starts.to_vec() }
    }

    /// Elements in all blocks together.
    pub fn total(&self) -> usize {
        self.counts.iter().fold(0, |total, count| total.saturating_add(*count))
    }

    /// The blocks of a slice that is read.
    pub(crate) fn of<'b, T: Element>(
        &self,
        shared: &Shared,
        comm: &Comm,
        slice: &'b [T],
    ) -> Checked<Borrowed<'b, Raw<UserMemory>>> {
        self.check(comm, slice.len())?;
        let raw = self.raw::<T, _>(shared)?;
        Ok(reading(slice).map(raw))
    }

    /// The blocks of a slice that is written, which do not overlap.
    pub(crate) fn of_mut<'b, T: Element>(
        &self,
        shared: &Shared,
        comm: &Comm,
        slice: &'b mut [T],
    ) -> Checked<Borrowed<'b, Raw<UserMemoryMut>>> {
        self.check(comm, slice.len())?;
        self.check_overlaps()?;
        let raw = self.raw::<T, _>(shared)?;
        Ok(writing(slice).map(raw))
    }

    /// One block per rank, each within a slice of `len` elements.
    fn check(&self, comm: &Comm, len: usize) -> Checked<()> {
        let (counts, starts, size) = (self.counts.len(), self.starts.len(), comm.size());
        if counts != size as usize || starts != counts {
            return ErrorClass::Arg
                .fail(format!("{counts} block lengths and {starts} places for the {size} ranks of {comm}"));
        }
        for (rank, (count, start)) in self.counts.iter().zip(&self.starts).enumerate() {
            if start.checked_add(*count).is_none_or(|end| end > len) {
                return ErrorClass::Count.fail(format!(
                    "the block of rank {rank} on {comm}, {count} elements from place {start} on, does not fit a slice \
                     of {len}"
                ));
            }
        }
        Ok(())
    }

    fn check_overlaps(&self) -> Checked<()> {
        let mut ranges: Vec<_> = self.counts.iter().zip(&self.starts).map(|(count, start)| (*start, *count)).collect();
        ranges.retain(|(_, count)| *count > 0);
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            None => Ok(()),
            Some(pair) => ErrorClass::Arg.fail(format!(
                "blocks to receive into overlap: {} elements from place {} on, and {} from place {} on",
                pair[0].1, pair[0].0, pair[1].1, pair[1].0
            )),
        }
    }

    fn raw<T: Element, M>(&self, shared: &Shared) -> Checked<impl FnOnce(M) -> Raw<M> + use<T, M>> {
        let datatype = shared.leaf_type::<T>()?;
        let counts = self.counts.iter().map(|count| (count * T::LEAVES) as u64).collect();
        let displacements = self.starts.iter().map(|start| (start * T::LEAVES) as i64).collect();
        Ok(move |memory| Raw { memory, counts, displacements, datatype })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_blocks_are_found() {
        assert!(Blocks::at(&[2, 2], &[2, 0]).check_overlaps().is_ok());
        assert!(Blocks::at(&[2, 0, 2], &[0, 1, 2]).check_overlaps().is_ok());
        assert!(Blocks::at(&[2, 3], &[2, 0]).check_overlaps().is_err());
        assert!(Blocks::at(&[1, 1, 1], &[4, 0, 4]).check_overlaps().is_err());
    }

    #[test]
    fn totals_are_sums() {
        assert_eq!(Blocks::adjacent(&[3, 0, 4]).total(), 7);
        assert_eq!(Blocks::adjacent(&[]).total(), 0);
    }
}
