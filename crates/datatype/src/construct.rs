//! The constructors of derived datatypes, but for arrays.
//!
//! Counts and block lengths are checked here; bounds and sizes are checked as shapes combine.

use std::sync::Arc;

use smallvec::smallvec;

use crate::basic::Basic;
use crate::contents::Construction;
use crate::datatype::{Datatype, Parent, Parents};
use crate::error::{Argument, TypeError, check_count, check_length, check_range};
use crate::shape::{Block, Loop, Shape};

impl Datatype {
    /// `count` elements, one after the other.
    ///
    /// # Errors
    /// A negative count, or a size or bound beyond 64 bits.
    ///
    /// MPI: §5.1.2, `MPI_Type_contiguous`
    pub fn contiguous(count: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>, TypeError> {
        let times = check_count(Argument::one("count"), count)?;
        let shape = old.shape().repeated(0, times, old.extent())?;
        derived(shape, Construction::Contiguous { count }, old)
    }

    /// `count` blocks of `blocklength` elements, the blocks `stride` elements apart.
    ///
    /// # Errors
    /// A negative count or block length, or a size or bound beyond 64 bits.
    ///
    /// MPI: §5.1.2, `MPI_Type_vector`
    pub fn vector(count: i64, blocklength: i64, stride: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>, TypeError> {
        let stride_bytes = match in_bytes(stride, old) {
            // One block has no stride to overflow.
            Err(_) if count <= 1 => 0,
            stride_bytes => stride_bytes?,
        };
        let shape = blocks_at_stride(count, blocklength, stride_bytes, old)?;
        derived(shape, Construction::Vector { count, blocklength, stride }, old)
    }

    /// `count` blocks of `blocklength` elements, the blocks `stride_bytes` apart.
    ///
    /// # Errors
    /// As [`Datatype::vector`].
    ///
    /// MPI: §5.1.2, `MPI_Type_create_hvector`
    pub fn hvector(
        count: i64,
        blocklength: i64,
        stride_bytes: i64,
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>, TypeError> {
        let shape = blocks_at_stride(count, blocklength, stride_bytes, old)?;
        derived(shape, Construction::Hvector { count, blocklength, stride_bytes }, old)
    }

    /// Blocks of different lengths at displacements counted in elements.
    ///
    /// # Errors
    /// A negative block length, arrays of different length, or a size or bound beyond 64 bits.
    ///
    /// MPI: §5.1.2, `MPI_Type_indexed`
    pub fn indexed(
        blocklengths: &[i64],
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>, TypeError> {
        let in_bytes = elements_to_bytes(displacements, old)?;
        let shape = blocks_at(blocklengths, &in_bytes, old)?;
        let construction =
            Construction::Indexed { blocklengths: blocklengths.into(), displacements: displacements.into() };
        derived(shape, construction, old)
    }

    /// Blocks of different lengths at displacements in bytes.
    ///
    /// # Errors
    /// As [`Datatype::indexed`].
    ///
    /// MPI: §5.1.2, `MPI_Type_create_hindexed`
    pub fn hindexed(
        blocklengths: &[i64],
        displacements_bytes: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>, TypeError> {
        let shape = blocks_at(blocklengths, displacements_bytes, old)?;
        let construction =
            Construction::Hindexed { blocklengths: blocklengths.into(), displacements: displacements_bytes.into() };
        derived(shape, construction, old)
    }

    /// Blocks of one length at displacements counted in elements.
    ///
    /// # Errors
    /// As [`Datatype::indexed`].
    ///
    /// MPI: §5.1.2, `MPI_Type_create_indexed_block`
    pub fn indexed_block(
        blocklength: i64,
        displacements: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>, TypeError> {
        let shape = equal_blocks_at(blocklength, &elements_to_bytes(displacements, old)?, old)?;
        derived(shape, Construction::IndexedBlock { blocklength, displacements: displacements.into() }, old)
    }

    /// Blocks of one length at displacements in bytes.
    ///
    /// # Errors
    /// As [`Datatype::indexed`].
    ///
    /// MPI: §5.1.2, `MPI_Type_create_hindexed_block`
    pub fn hindexed_block(
        blocklength: i64,
        displacements_bytes: &[i64],
        old: &Arc<Datatype>,
    ) -> Result<Arc<Datatype>, TypeError> {
        let shape = equal_blocks_at(blocklength, displacements_bytes, old)?;
        derived(shape, Construction::HindexedBlock { blocklength, displacements: displacements_bytes.into() }, old)
    }

    /// Blocks of different types at displacements in bytes.
    ///
    /// # Errors
    /// A negative block length, arrays of different length, or a size or bound beyond 64 bits.
    ///
    /// MPI: §5.1.2, `MPI_Type_create_struct`
    pub fn create_struct(
        blocklengths: &[i64],
        displacements_bytes: &[i64],
        types: &[Arc<Datatype>],
    ) -> Result<Arc<Datatype>, TypeError> {
        check_length("array_of_displacements", displacements_bytes.len(), blocklengths.len())?;
        check_length("array_of_types", types.len(), blocklengths.len())?;
        let counts = check_blocklengths(blocklengths)?;
        let places = counts.iter().zip(displacements_bytes).zip(types);
        let shape = Shape::sequence(places.map(|((count, displacement), old)| Block {
            displacement: *displacement,
            count: *count,
            shape: old.shape(),
        }))?;
        let construction =
            Construction::Struct { blocklengths: blocklengths.into(), displacements: displacements_bytes.into() };
        Datatype::build(shape, construction, types.iter().map(Parent::of).collect())
    }

    /// The same data with another lower bound and extent.
    ///
    /// # Errors
    /// A bound beyond 64 bits.
    ///
    /// MPI: §5.1.7, `MPI_Type_create_resized`
    pub fn resized(lb: i64, extent: i64, old: &Arc<Datatype>) -> Result<Arc<Datatype>, TypeError> {
        let shape = old.shape().with_bounds(lb, extent)?;
        derived(shape, Construction::Resized { lb, extent }, old)
    }

    /// A new object for the same type map, committed if the old one is.
    ///
    /// # Errors
    /// None today; the type is that of all constructors.
    ///
    /// MPI: §5.1.10, `MPI_Type_dup`
    pub fn dup(old: &Arc<Datatype>) -> Result<Arc<Datatype>, TypeError> {
        let new = derived(old.shape().clone(), Construction::Dup, old)?;
        if old.is_committed() {
            new.commit();
        }
        Ok(new)
    }

    /// The real type of at least `precision` decimal digits and exponent `range`; `None` where the caller leaves one open.
    ///
    /// # Errors
    /// [`TypeError::NoSuchPrecision`]
    ///
    /// MPI: §19.1.9, `MPI_Type_create_f90_real`
    pub fn f90_real(precision: Option<i64>, range: Option<i64>) -> Result<Arc<Datatype>, TypeError> {
        let basic = fortran_real(precision, range)?;
        let (precision, range) = (precision.unwrap_or(UNDEFINED), range.unwrap_or(UNDEFINED));
        let construction = Construction::F90Real { precision, range };
        Ok(Datatype::build(Shape::basic(basic), construction, Parents::new())?.into_committed())
    }

    /// The complex type whose parts are those of [`Datatype::f90_real`].
    ///
    /// # Errors
    /// [`TypeError::NoSuchPrecision`]
    ///
    /// MPI: §19.1.9, `MPI_Type_create_f90_complex`
    pub fn f90_complex(precision: Option<i64>, range: Option<i64>) -> Result<Arc<Datatype>, TypeError> {
        let basic = match fortran_real(precision, range)? {
            Basic::Real4 => Basic::Complex8,
            Basic::Real8 => Basic::Complex16,
            Basic::LongDouble => Basic::CLongDoubleComplex,
            _ => Basic::Complex32,
        };
        let (precision, range) = (precision.unwrap_or(UNDEFINED), range.unwrap_or(UNDEFINED));
        let construction = Construction::F90Complex { precision, range };
        Ok(Datatype::build(Shape::basic(basic), construction, Parents::new())?.into_committed())
    }

    /// The integer type of at least `range` decimal digits.
    ///
    /// # Errors
    /// [`TypeError::NoSuchPrecision`]
    ///
    /// MPI: §19.1.9, `MPI_Type_create_f90_integer`
    pub fn f90_integer(range: i64) -> Result<Arc<Datatype>, TypeError> {
        let kinds = [
            (2, Basic::Integer1),
            (4, Basic::Integer2),
            (9, Basic::Integer4),
            (18, Basic::Integer8),
            (38, Basic::Integer16),
        ];
        let none = TypeError::NoSuchPrecision { precision: None, range: Some(range) };
        let (_, basic) = kinds.into_iter().find(|(digits, _)| range <= *digits).ok_or(none)?;
        let construction = Construction::F90Integer { range };
        Ok(Datatype::build(Shape::basic(basic), construction, Parents::new())?.into_committed())
    }
}

/// The value of `MPI_UNDEFINED` in the standard ABI.
const UNDEFINED: i64 = -32766;

/// The smallest Fortran kind that suffices, as `selected_real_kind` chooses it.
fn fortran_real(precision: Option<i64>, range: Option<i64>) -> Result<Basic, TypeError> {
    // x86-64 compilers have a kind of 18 digits, the x87 format, between double and quadruple precision.
    let extended = if cfg!(target_arch = "x86_64") { Basic::LongDouble } else { Basic::Real16 };
    let kinds = [(6, 37, Basic::Real4), (15, 307, Basic::Real8), (18, 4931, extended), (33, 4931, Basic::Real16)];
    let fits =
        |digits: i64, exponent: i64| precision.is_none_or(|p| p <= digits) && range.is_none_or(|r| r <= exponent);
    let found = kinds.into_iter().find(|(digits, exponent, _)| fits(*digits, *exponent));
    let asked = precision.is_some() || range.is_some();
    found.filter(|_| asked).map(|(_, _, basic)| basic).ok_or(TypeError::NoSuchPrecision { precision, range })
}

#[inline(always)]
fn derived(shape: Shape, construction: Construction, old: &Arc<Datatype>) -> Result<Arc<Datatype>, TypeError> {
    Datatype::build(shape, construction, smallvec![Parent::of(old)])
}

#[inline(always)]
fn blocks_at_stride(count: i64, blocklength: i64, stride_bytes: i64, old: &Datatype) -> Result<Shape, TypeError> {
    let count = check_count(Argument::one("count"), count)?;
    let blocklength = check_count(Argument::one("blocklength"), blocklength)?;
    let one = |count, stride_bytes| Loop { displacement: 0, count, stride_bytes };
    old.shape().looped([one(blocklength, old.extent()), one(count, stride_bytes)])
}

fn blocks_at(blocklengths: &[i64], displacements_bytes: &[i64], old: &Arc<Datatype>) -> Result<Shape, TypeError> {
    check_length("array_of_displacements", displacements_bytes.len(), blocklengths.len())?;
    let counts = check_blocklengths(blocklengths)?;
    let shape = old.shape();
    let block = |(count, displacement): (&u64, &i64)| Block { displacement: *displacement, count: *count, shape };
    Shape::sequence(counts.iter().zip(displacements_bytes).map(block))
}

fn equal_blocks_at(blocklength: i64, displacements_bytes: &[i64], old: &Datatype) -> Result<Shape, TypeError> {
    let count = check_count(Argument::one("blocklength"), blocklength)?;
    let shape = old.shape();
    Shape::sequence(displacements_bytes.iter().map(|displacement| Block { displacement: *displacement, count, shape }))
}

fn check_blocklengths(blocklengths: &[i64]) -> Result<Vec<u64>, TypeError> {
    let check = |(index, value): (usize, &i64)| check_count(Argument::entry("array_of_blocklengths", index), *value);
    blocklengths.iter().enumerate().map(check).collect()
}

fn elements_to_bytes(displacements: &[i64], old: &Datatype) -> Result<Vec<i64>, TypeError> {
    displacements.iter().map(|displacement| in_bytes(*displacement, old)).collect()
}

fn in_bytes(elements: i64, old: &Datatype) -> Result<i64, TypeError> {
    elements.checked_mul(old.extent()).ok_or(TypeError::Overflow { what: "displacement" })
}

/// Refuses a number of dimensions that no array has.
pub(crate) fn check_dimensions(ndims: usize) -> Result<(), TypeError> {
    check_range(Argument::one("ndims"), ndims as i64, 1, i64::from(i32::MAX))
}
