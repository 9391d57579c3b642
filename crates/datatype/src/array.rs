//! Subarrays and distributed arrays.
//!
//! Both are nested loops, one for each dimension, from the fastest to the slowest. MPI: §5.1.3, §5.1.4

use std::sync::Arc;

use smallvec::smallvec;

use crate::construct::check_dimensions;
use crate::contents::{ArrayOrder, Construction, DISTRIBUTE_DEFAULT_ARGUMENT, Distribution};
use crate::datatype::{Datatype, Parent};
use crate::error::{Argument, TypeError, check_length, check_range};
use crate::shape::{Block, Shape};

/// The arguments of [`Datatype::darray`] but for the old type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Darray {
    /// Processes in the grid.
    pub size: i64,
    /// The process whose part is meant; grids are numbered in row-major order.
    pub rank: i64,
    /// Elements of the global array, for each dimension.
    pub gsizes: Vec<i64>,
    /// How each dimension is dealt out.
    pub distributions: Vec<Distribution>,
    /// The block size of each dimension, or [`DISTRIBUTE_DEFAULT_ARGUMENT`].
    pub dargs: Vec<i64>,
    /// Processes along each dimension.
    pub psizes: Vec<i64>,
    /// Which dimension is contiguous in memory.
    pub order: ArrayOrder,
}

impl Datatype {
    /// A box of `subsizes` elements at `starts` inside an array of `sizes`, with the extent of the whole array.
    ///
    /// # Errors
    /// A box that is empty or not inside the array, arrays of different length, or a size beyond 64 bits.
    ///
    /// MPI: §5.1.3, `MPI_Type_create_subarray`
    pub fn subarray(
        sizes: &[i64],
        subsizes: &[i64],
        starts: &[i64],
        order: ArrayOrder,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>, TypeError> {
        check_dimensions(sizes.len())?;
        check_length("array_of_subsizes", subsizes.len(), sizes.len())?;
        check_length("array_of_starts", starts.len(), sizes.len())?;
        for (index, ((size, subsize), start)) in sizes.iter().zip(subsizes).zip(starts).enumerate() {
            check_range(Argument::entry("array_of_sizes", index), *size, 1, i64::MAX)?;
            check_range(Argument::entry("array_of_subsizes", index), *subsize, 1, *size)?;
            check_range(Argument::entry("array_of_starts", index), *start, 0, size - subsize)?;
        }
        let mut nest = Nest::new(old);
        for dimension in fastest_first(order, sizes.len()) {
            nest.range(starts[dimension], subsizes[dimension])?;
            nest.widen(sizes[dimension])?;
        }
        let construction =
            Construction::Subarray { sizes: sizes.into(), subsizes: subsizes.into(), starts: starts.into(), order };
        Datatype::build(nest.finish()?, construction, smallvec![Parent::of(old)])
    }

    /// One process's part of a global array dealt out over a grid, with the extent of the whole array.
    ///
    /// # Errors
    /// A rank outside the grid, a grid that is not of `size` processes, blocks that do not cover the array, arrays of
    /// different length, or a size beyond 64 bits.
    ///
    /// MPI: §5.1.4, `MPI_Type_create_darray`
    pub fn darray(array: &Darray, old: &Arc<Datatype>) -> Result<Arc<Datatype>, TypeError> {
        let blocks = check_darray(array)?;
        let coordinates = grid_coordinates(array.rank, &array.psizes);
        let mut nest = Nest::new(old);
        for dimension in fastest_first(array.order, array.gsizes.len()) {
            let (global, coordinate) = (array.gsizes[dimension], coordinates[dimension]);
            let (processes, block) = (array.psizes[dimension], blocks[dimension]);
            match array.distributions[dimension] {
                Distribution::None => nest.range(0, global)?,
                Distribution::Block => {
                    let start = block.saturating_mul(coordinate).min(global);
                    nest.range(start, block.min(global - start))?;
                }
                Distribution::Cyclic => nest.cyclic(global, coordinate, processes, block)?,
            }
            nest.widen(global)?;
        }
        let construction = Construction::Darray(Box::new(array.clone()));
        Datatype::build(nest.finish()?, construction, smallvec![Parent::of(old)])
    }
}

/// Loops around an element, one for each dimension so far.
struct Nest {
    shape: Shape,
    /// The distance between neighbours along the next dimension.
    stride_bytes: i64,
}

impl Nest {
    fn new(old: &Datatype) -> Self {
        // Explicit bounds inside would count for the whole; the whole gets its own at the end.
        Nest { shape: Shape { marks: None, ..old.shape().clone() }, stride_bytes: old.extent() }
    }

    /// Loops over `count` indices from `start`.
    fn range(&mut self, start: i64, count: i64) -> Result<(), TypeError> {
        self.shape = self.shape.repeated(self.at(start)?, count as u64, self.stride_bytes)?;
        Ok(())
    }

    /// Loops over every `processes`-th block of `block` indices below `global`, from block `coordinate` on.
    fn cyclic(&mut self, global: i64, coordinate: i64, processes: i64, block: i64) -> Result<(), TypeError> {
        let turn = block.saturating_mul(processes);
        let start = block.saturating_mul(coordinate).min(global);
        let mine = global - start;
        let whole = if mine < block { 0 } else { (mine - block) / turn + 1 };
        let rest_start = start.saturating_add(whole.saturating_mul(turn)).min(global);
        let rest = (global - rest_start).min(block);
        let one = self.shape.repeated(0, block.min(global) as u64, self.stride_bytes)?;
        let turn_bytes = if whole > 1 { self.at(turn)? } else { 0 };
        let whole = one.repeated(self.at(start)?, whole as u64, turn_bytes)?;
        let rest = self.shape.repeated(self.at(rest_start)?, rest as u64, self.stride_bytes)?;
        let once = |shape| Block { displacement: 0, count: 1, shape };
        self.shape = Shape::sequence([once(&whole), once(&rest)].into_iter())?;
        Ok(())
    }

    /// Ends a dimension of `size` elements.
    fn widen(&mut self, size: i64) -> Result<(), TypeError> {
        self.stride_bytes = self.at(size)?;
        Ok(())
    }

    fn finish(self) -> Result<Shape, TypeError> {
        self.shape.with_bounds(0, self.stride_bytes)
    }

    fn at(&self, index: i64) -> Result<i64, TypeError> {
        index.checked_mul(self.stride_bytes).ok_or(TypeError::Overflow { what: "extent" })
    }
}

fn fastest_first(order: ArrayOrder, ndims: usize) -> Vec<usize> {
    match order {
        ArrayOrder::Fortran => (0..ndims).collect(),
        ArrayOrder::C => (0..ndims).rev().collect(),
    }
}

/// Checks the arguments and gives the block size of each dimension.
fn check_darray(array: &Darray) -> Result<Vec<i64>, TypeError> {
    let ndims = array.gsizes.len();
    check_dimensions(ndims)?;
    check_length("array_of_distribs", array.distributions.len(), ndims)?;
    check_length("array_of_dargs", array.dargs.len(), ndims)?;
    check_length("array_of_psizes", array.psizes.len(), ndims)?;
    check_range(Argument::one("size"), array.size, 1, i64::MAX)?;
    check_range(Argument::one("rank"), array.rank, 0, array.size - 1)?;
    let mut product: i64 = 1;
    let mut blocks = Vec::with_capacity(ndims);
    for dimension in 0..ndims {
        let (global, processes) = (array.gsizes[dimension], array.psizes[dimension]);
        let darg = array.dargs[dimension];
        check_range(Argument::entry("array_of_gsizes", dimension), global, 1, i64::MAX)?;
        check_range(Argument::entry("array_of_psizes", dimension), processes, 1, i64::MAX)?;
        product = product.saturating_mul(processes);
        let default = darg == DISTRIBUTE_DEFAULT_ARGUMENT;
        if !default && array.distributions[dimension] != Distribution::None {
            check_range(Argument::entry("array_of_dargs", dimension), darg, 1, i64::MAX)?;
        }
        blocks.push(match array.distributions[dimension] {
            Distribution::None => {
                check_range(Argument::entry("array_of_psizes", dimension), processes, 1, 1)?;
                global
            }
            Distribution::Block if default => (global - 1) / processes + 1,
            Distribution::Block => {
                if darg.saturating_mul(processes) < global {
                    return Err(TypeError::BlockTooSmall { dimension, block: darg, processes, global });
                }
                darg
            }
            Distribution::Cyclic if default => 1,
            Distribution::Cyclic => darg,
        });
    }
    if product != array.size {
        return Err(TypeError::ProcessGrid { product, size: array.size });
    }
    Ok(blocks)
}

/// The place of a rank in a row-major grid.
fn grid_coordinates(rank: i64, psizes: &[i64]) -> Vec<i64> {
    let mut rest = rank;
    let mut coordinates: Vec<i64> = psizes
        .iter()
        .rev()
        .map(|processes| {
            let coordinate = rest % processes;
            rest /= processes;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}
