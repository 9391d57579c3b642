//! Grids of processes, row by row: the last coordinate changes fastest.
//!
//! MPI: §8.5

use collectives::Neighbours;

use crate::constants::PROC_NULL;
use crate::error::{ErrorClass, Result};

/// One dimension of a grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dimension {
    /// Number of processes along it.
    pub extent: u32,
    /// The last is a neighbour of the first.
    pub is_periodic: bool,
}

/// A grid, seen by one of its processes.
#[derive(Clone, Debug)]
pub struct Cartesian {
    dimensions: Box<[Dimension]>,
    coordinates: Box<[u32]>,
    rank: u32,
    neighbours: Neighbours,
}

impl Cartesian {
    /// The dimensions of a grid, and how many processes it has.
    ///
    /// # Errors
    /// `Dims` for an extent below 1 or a grid of more than `size` processes.
    pub fn check(extents: &[i32], periods: &[bool], size: u32) -> Result<(Vec<Dimension>, u32)> {
        let mut dimensions = Vec::with_capacity(extents.len());
        let mut count = 1_u64;
        for (index, (&extent, &is_periodic)) in extents.iter().zip(periods).enumerate() {
            if extent < 1 {
                return ErrorClass::Dims.fail(format!("dims[{index}] = {extent} is below 1"));
            }
            count = count.saturating_mul(extent as u64);
            dimensions.push(Dimension { extent: extent as u32, is_periodic });
        }
        match u32::try_from(count) {
            Ok(count) if count <= size => Ok((dimensions, count)),
            _ => ErrorClass::Dims
                .fail(format!("a grid of dims {extents:?} needs more processes than the {size} of the communicator")),
        }
    }

    /// The grid as the process with `rank` sees it.
    pub(super) fn new(dimensions: Vec<Dimension>, rank: u32) -> Cartesian {
        let coordinates = coordinates(&dimensions, rank);
        let mut grid = Cartesian {
            dimensions: dimensions.into(),
            coordinates: coordinates.into(),
            rank,
            neighbours: Neighbours::cartesian(&[]),
        };
        let step = |direction, by| u32::try_from(grid.stepped(direction, by)).ok();
        let along: Vec<_> = (0..grid.dimensions.len()).map(|at| (step(at, -1), step(at, 1))).collect();
        grid.neighbours = Neighbours::cartesian(&along);
        grid
    }

    /// The dimensions, in order.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// Coordinates of this process.
    pub fn coordinates(&self) -> &[u32] {
        &self.coordinates
    }

    /// Before and after this process along each dimension.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// The rank at `coordinates`, which wrap round in periodic dimensions.
    ///
    /// # Errors
    /// `Arg` for a coordinate outside of a dimension that is not periodic.
    ///
    /// MPI: §8.5.5 `MPI_Cart_rank`
    pub fn rank_at(&self, coordinates: &[i32]) -> Result<i32> {
        let mut rank = 0;
        for (index, (dimension, &coordinate)) in self.dimensions.iter().zip(coordinates).enumerate() {
            let extent = dimension.extent as i32;
            if !dimension.is_periodic && !(0..extent).contains(&coordinate) {
                return ErrorClass::Arg.fail(format!(
                    "coords[{index}] = {coordinate} is not among 0 to {} of a dimension that is not periodic",
                    extent - 1
                ));
            }
            rank = rank * extent + coordinate.rem_euclid(extent);
        }
        Ok(rank)
    }

    /// The coordinates of `rank`.
    ///
    /// # Errors
    /// `Rank` when the grid has no such rank.
    ///
    /// MPI: §8.5.5 `MPI_Cart_coords`
    pub fn coordinates_of(&self, rank: i32) -> Result<Vec<u32>> {
        let size: u32 = self.dimensions.iter().map(|dimension| dimension.extent).product();
        match u32::try_from(rank) {
            Ok(rank) if rank < size => Ok(coordinates(&self.dimensions, rank)),
            _ => ErrorClass::Rank.fail(format!("rank = {rank} is not a rank of a grid of {size} processes")),
        }
    }

    /// From whom data comes and to whom it goes when all shift it by `by` along a dimension:
    /// source, destination; `MPI_PROC_NULL` where the grid ends.
    ///
    /// # Errors
    /// `Dims` when there is no such dimension.
    ///
    /// MPI: §8.5.6 `MPI_Cart_shift`
    pub fn shift(&self, direction: i32, by: i32) -> Result<(i32, i32)> {
        match usize::try_from(direction) {
            Ok(at) if at < self.dimensions.len() => {
                Ok((self.stepped(at, -i64::from(by)), self.stepped(at, i64::from(by))))
            }
            _ => ErrorClass::Dims
                .fail(format!("direction = {direction} is no dimension of a grid of {}", self.dimensions.len())),
        }
    }

    /// The rank `by` steps along a dimension.
    fn stepped(&self, direction: usize, by: i64) -> i32 {
        let Dimension { extent, is_periodic } = self.dimensions[direction];
        let extent = i64::from(extent);
        let here = i64::from(self.coordinates[direction]);
        let there = here + by;
        if !is_periodic && !(0..extent).contains(&there) {
            return PROC_NULL;
        }
        let stride: i64 =
            self.dimensions[direction + 1..].iter().map(|dimension| i64::from(dimension.extent)).product();
        let rank = i64::from(self.rank) + (there.rem_euclid(extent) - here) * stride;
        i32::try_from(rank).expect("ranks of a grid are those of a communicator")
    }

    /// Which of the grids that remain this process is in, and its grid there: a number for the
    /// coordinates dropped, the dimensions kept, and its rank among them.
    pub(super) fn sub(&self, remain: &[bool]) -> (u64, Vec<Dimension>, u32) {
        let (mut colour, mut rank, mut kept) = (0_u64, 0, Vec::new());
        for ((dimension, coordinate), remains) in self.dimensions.iter().zip(&self.coordinates).zip(remain) {
            if *remains {
                rank = rank * dimension.extent + coordinate;
                kept.push(*dimension);
            } else {
                colour = colour * u64::from(dimension.extent) + u64::from(*coordinate);
            }
        }
        (colour, kept, rank)
    }
}

/// The coordinates of a rank of a grid.
fn coordinates(dimensions: &[Dimension], rank: u32) -> Vec<u32> {
    let mut rest = rank;
    let mut coordinates: Vec<u32> = dimensions
        .iter()
        .rev()
        .map(|dimension| {
            let coordinate = rest % dimension.extent;
            rest /= dimension.extent;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(extents: &[i32], periods: &[bool], rank: u32) -> Cartesian {
        let (dimensions, _) = Cartesian::check(extents, periods, u32::MAX).unwrap();
        Cartesian::new(dimensions, rank)
    }

    #[test]
    fn ranks_and_coordinates_are_inverse() {
        let grid = grid(&[3, 1, 4], &[true, false, false], 7);
        assert_eq!(grid.coordinates(), [1, 0, 3]);
        for rank in 0..12 {
            let coordinates = grid.coordinates_of(rank).unwrap();
            let signed: Vec<i32> = coordinates.iter().map(|c| *c as i32).collect();
            assert_eq!(grid.rank_at(&signed).unwrap(), rank);
        }
        assert_eq!(grid.rank_at(&[-1, 0, 0]).unwrap(), 8, "periodic dimensions wrap");
        assert_eq!(grid.rank_at(&[0, 1, 0]).unwrap_err().class, ErrorClass::Arg);
        assert_eq!(grid.coordinates_of(12).unwrap_err().class, ErrorClass::Rank);
    }

    #[test]
    fn shifts_agree_with_coordinates() {
        for (periods, rank) in [(true, 5_u32), (false, 5), (true, 0), (false, 11)] {
            let grid = grid(&[3, 4], &[periods, periods], rank);
            for direction in 0..2 {
                for by in [-9_i32, -4, -1, 0, 1, 2, 3, 7] {
                    let moved = |by: i32| {
                        let mut at: Vec<i32> = grid.coordinates().iter().map(|c| *c as i32).collect();
                        at[direction] += by;
                        grid.rank_at(&at).unwrap_or(PROC_NULL)
                    };
                    assert_eq!(grid.shift(direction as i32, by).unwrap(), (moved(-by), moved(by)));
                }
            }
        }
        assert_eq!(grid(&[2], &[true], 0).shift(1, 1).unwrap_err().class, ErrorClass::Dims);
        assert_eq!(grid(&[2], &[true], 0).shift(0, i32::MIN).unwrap(), (0, 0));
    }

    #[test]
    fn a_grid_without_dimensions_has_one_process() {
        let (dimensions, count) = Cartesian::check(&[], &[], 4).unwrap();
        assert_eq!(count, 1);
        let grid = Cartesian::new(dimensions, 0);
        assert_eq!((grid.rank_at(&[]).unwrap(), grid.neighbours().sources().len()), (0, 0));
    }

    #[test]
    fn grids_that_do_not_fit_are_refused() {
        for extents in [&[2, 3][..], &[0], &[-1, -5], &[i32::MAX, i32::MAX, i32::MAX]] {
            let periods = vec![false; extents.len()];
            assert_eq!(Cartesian::check(extents, &periods, 5).unwrap_err().class, ErrorClass::Dims, "{extents:?}");
        }
    }
}
