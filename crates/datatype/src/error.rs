//! What can be wrong with a datatype or with a buffer.

use crate::basic::Basic;

/// Why a datatype could not be made or used; names the argument and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// A count or block length is negative.
    #[error("{argument} is {value}, but must not be negative")]
    Negative {
        /// The parameter of the constructor, with its index where it is an array.
        argument: Argument,
        /// What was given.
        value: i64,
    },
    /// A value is outside the range the constructor allows.
    #[error("{argument} is {value}, but must be from {low} to {high}")]
    OutOfRange {
        /// The parameter of the constructor, with its index where it is an array.
        argument: Argument,
        /// What was given.
        value: i64,
        /// The smallest value allowed.
        low: i64,
        /// The greatest value allowed.
        high: i64,
    },
    /// Two arrays that belong together differ in length.
    #[error("{argument} has {actual} entries where {expected} are needed")]
    Length {
        /// The array.
        argument: &'static str,
        /// Its length.
        actual: usize,
        /// The length of the array it must match.
        expected: usize,
    },
    /// The process grid of a distributed array does not hold exactly `size` processes.
    #[error("array_of_psizes multiplies to {product}, but size is {size}")]
    ProcessGrid {
        /// The number of places in the grid.
        product: i64,
        /// The number of processes given.
        size: i64,
    },
    /// A block distribution is too small to cover its dimension.
    #[error("array_of_dargs[{dimension}] is {block}: {block} x {processes} processes do not cover {global} elements")]
    BlockTooSmall {
        /// The dimension, from 0.
        dimension: usize,
        /// The block size given.
        block: i64,
        /// The processes along the dimension.
        processes: i64,
        /// The elements along the dimension.
        global: i64,
    },
    /// The size, an extent or a bound does not fit 64 bits.
    #[error("the {what} of the new datatype does not fit in 64 bits")]
    Overflow {
        /// Which quantity.
        what: &'static str,
    },
    /// Layouts are nested further than the limit.
    #[error("the datatype nests layouts {depth} deep, the limit is {depth_max}")]
    TooDeep {
        /// The depth asked for.
        depth: u32,
        /// The limit.
        depth_max: u32,
    },
    /// No Fortran type has the precision and range asked for.
    #[error("no supported type has decimal precision {precision:?} and exponent range {range:?}")]
    NoSuchPrecision {
        /// Decimal digits, where given.
        precision: Option<i64>,
        /// Decimal exponent range, where given.
        range: Option<i64>,
    },
    /// The data representation is not one that is supported.
    #[error("data representation \"{name}\" is not supported, only \"external32\" is")]
    UnknownRepresentation {
        /// The name given.
        name: String,
    },
    /// A packed buffer is too short.
    #[error("the packed buffer has {available_bytes} bytes where {needed_bytes} are needed")]
    BufferTooShort {
        /// What is needed.
        needed_bytes: u64,
        /// What is there.
        available_bytes: u64,
    },
    /// A value does not fit the external representation of its type.
    #[error("a value of type {} does not fit its {external_bytes}-byte external32 form", basic.name())]
    Unrepresentable {
        /// The type of the value.
        basic: Basic,
        /// The width of the external form.
        external_bytes: u64,
    },
}

/// A parameter of a constructor, and the index in it where it is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name the standard gives the parameter.
    pub name: &'static str,
    /// The entry of an array parameter.
    pub index: Option<usize>,
}

impl Argument {
    /// A parameter that is one value.
    pub(crate) const fn one(name: &'static str) -> Self {
        Self { name, index: None }
    }

    /// One entry of an array parameter.
    pub(crate) const fn entry(name: &'static str, index: usize) -> Self {
        Self { name, index: Some(index) }
    }
}

impl std::fmt::Display for Argument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Refuses a negative count.
pub(crate) fn check_count(argument: Argument, value: i64) -> Result<u64, TypeError> {
    u64::try_from(value).map_err(|_| TypeError::Negative { argument, value })
}

/// Refuses a value outside `low..=high`.
pub(crate) fn check_range(argument: Argument, value: i64, low: i64, high: i64) -> Result<(), TypeError> {
    if value < low || value > high {
        return Err(TypeError::OutOfRange { argument, value, low, high });
    }
    Ok(())
}

/// Refuses an array whose length is not that of its companion.
pub(crate) fn check_length(argument: &'static str, actual: usize, expected: usize) -> Result<(), TypeError> {
    if actual != expected {
        return Err(TypeError::Length { argument, actual, expected });
    }
    Ok(())
}
