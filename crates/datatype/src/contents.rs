//! How a datatype was made: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` give back.
//!
//! MPI: §5.1.13

use std::sync::Arc;

use crate::basic::Basic;
use crate::datatype::Datatype;

/// The call that made a datatype; the values are those of the standard ABI.
///
/// MPI: §5.1.13
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Combiner {
    /// A predefined datatype.
    Named = 101,
    /// `MPI_Type_dup`
    Dup = 102,
    /// `MPI_Type_contiguous`
    Contiguous = 103,
    /// `MPI_Type_vector`
    Vector = 104,
    /// `MPI_Type_create_hvector`
    Hvector = 105,
    /// `MPI_Type_indexed`
    Indexed = 106,
    /// `MPI_Type_create_hindexed`
    Hindexed = 107,
    /// `MPI_Type_create_indexed_block`
    IndexedBlock = 108,
    /// `MPI_Type_create_hindexed_block`
    HindexedBlock = 109,
    /// `MPI_Type_create_struct`
    Struct = 110,
    /// `MPI_Type_create_subarray`
    Subarray = 111,
    /// `MPI_Type_create_darray`
    Darray = 112,
    /// `MPI_Type_create_f90_real`
    F90Real = 113,
    /// `MPI_Type_create_f90_complex`
    F90Complex = 114,
    /// `MPI_Type_create_f90_integer`
    F90Integer = 115,
    /// `MPI_Type_create_resized`
    Resized = 116,
}

impl Combiner {
    /// True for the calls whose types the library provides.
    pub fn is_predefined(self) -> bool {
        matches!(self, Combiner::Named | Combiner::F90Real | Combiner::F90Complex | Combiner::F90Integer)
    }

    /// The name of the call; of named types, which no call made, `None`.
    pub fn call(self) -> Option<&'static str> {
        Some(match self {
            Combiner::Named => return None,
            Combiner::Dup => "MPI_Type_dup",
            Combiner::Contiguous => "MPI_Type_contiguous",
            Combiner::Vector => "MPI_Type_vector",
            Combiner::Hvector => "MPI_Type_create_hvector",
            Combiner::Indexed => "MPI_Type_indexed",
            Combiner::Hindexed => "MPI_Type_create_hindexed",
            Combiner::IndexedBlock => "MPI_Type_create_indexed_block",
            Combiner::HindexedBlock => "MPI_Type_create_hindexed_block",
            Combiner::Struct => "MPI_Type_create_struct",
            Combiner::Subarray => "MPI_Type_create_subarray",
            Combiner::Darray => "MPI_Type_create_darray",
            Combiner::F90Real => "MPI_Type_create_f90_real",
            Combiner::F90Complex => "MPI_Type_create_f90_complex",
            Combiner::F90Integer => "MPI_Type_create_f90_integer",
            Combiner::Resized => "MPI_Type_create_resized",
        })
    }
}

/// The order of an array's dimensions in memory; the values are those of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ArrayOrder {
    /// The last dimension is contiguous.
    C = 12,
    /// The first dimension is contiguous.
    Fortran = 15,
}

/// How one dimension of a global array is dealt to processes; the values are those of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Distribution {
    /// Not dealt out at all.
    None = 16,
    /// One block for each process.
    Block = 17,
    /// Blocks in turn.
    Cyclic = 18,
}

/// The value of `MPI_DISTRIBUTE_DFLT_DARG` in the standard ABI.
pub const DISTRIBUTE_DEFAULT_ARGUMENT: i64 = 19;

/// How many arguments of each kind [`Contents`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The call that made the type.
    pub combiner: Combiner,
    /// Length of [`Contents::integers`].
    pub integers: usize,
    /// Length of [`Contents::addresses`].
    pub addresses: usize,
    /// Length of [`Contents::large_counts`].
    pub large_counts: usize,
    /// Length of [`Contents::datatypes`].
    pub datatypes: usize,
}

/// The arguments of the call that made a datatype, in the order of the standard's tables.
///
/// MPI: §5.1.13
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Arguments that `MPI_Type_get_contents` returns as integers.
    pub integers: Vec<i64>,
    /// Arguments it returns as addresses.
    pub addresses: Vec<i64>,
    /// Arguments it returns as large counts; only for types made by a large-count (`_c`) call.
    pub large_counts: Vec<i64>,
    /// The datatypes the call was given.
    pub datatypes: Vec<Arc<Datatype>>,
}

/// The constructor of a datatype with its arguments.
#[derive(Debug)]
pub(crate) enum Construction {
    Named(Basic),
    Dup,
    Contiguous { count: i64 },
    Vector { count: i64, blocklength: i64, stride: i64 },
    Hvector { count: i64, blocklength: i64, stride_bytes: i64 },
    Indexed { blocklengths: Box<[i64]>, displacements: Box<[i64]> },
    Hindexed { blocklengths: Box<[i64]>, displacements: Box<[i64]> },
    IndexedBlock { blocklength: i64, displacements: Box<[i64]> },
    HindexedBlock { blocklength: i64, displacements: Box<[i64]> },
    Struct { blocklengths: Box<[i64]>, displacements: Box<[i64]> },
    Subarray { sizes: Box<[i64]>, subsizes: Box<[i64]>, starts: Box<[i64]>, order: ArrayOrder },
    Darray(Box<crate::array::Darray>),
    F90Real { precision: i64, range: i64 },
    F90Complex { precision: i64, range: i64 },
    F90Integer { range: i64 },
    Resized { lb: i64, extent: i64 },
}

impl Construction {
    pub fn combiner(&self) -> Combiner {
        match self {
            Construction::Named(_) => Combiner::Named,
            Construction::Dup => Combiner::Dup,
            Construction::Contiguous { .. } => Combiner::Contiguous,
            Construction::Vector { .. } => Combiner::Vector,
            Construction::Hvector { .. } => Combiner::Hvector,
            Construction::Indexed { .. } => Combiner::Indexed,
            Construction::Hindexed { .. } => Combiner::Hindexed,
            Construction::IndexedBlock { .. } => Combiner::IndexedBlock,
            Construction::HindexedBlock { .. } => Combiner::HindexedBlock,
            Construction::Struct { .. } => Combiner::Struct,
            Construction::Subarray { .. } => Combiner::Subarray,
            Construction::Darray(_) => Combiner::Darray,
            Construction::F90Real { .. } => Combiner::F90Real,
            Construction::F90Complex { .. } => Combiner::F90Complex,
            Construction::F90Integer { .. } => Combiner::F90Integer,
            Construction::Resized { .. } => Combiner::Resized,
        }
    }

    /// The arguments, without the datatypes, as the call with or without large counts was given them.
    pub fn arguments(&self, large: bool) -> Contents {
        let mut contents = Contents::default();
        let Contents { integers, addresses, large_counts, .. } = &mut contents;
        // A large-count call takes every count and displacement as a large count.
        let (mut counts, mut places) = (Vec::new(), Vec::new());
        match self {
            Construction::Named(_) | Construction::Dup => {}
            Construction::Contiguous { count } => counts.push(*count),
            Construction::Vector { count, blocklength, stride } => counts.extend([count, blocklength, stride]),
            Construction::Hvector { count, blocklength, stride_bytes } => {
                counts.extend([count, blocklength]);
                places.push(*stride_bytes);
            }
            Construction::Indexed { blocklengths, displacements } => {
                counts.push(blocklengths.len() as i64);
                counts.extend(blocklengths);
                counts.extend(displacements);
            }
            Construction::Hindexed { blocklengths, displacements }
            | Construction::Struct { blocklengths, displacements } => {
                counts.push(blocklengths.len() as i64);
                counts.extend(blocklengths);
                places.extend(displacements);
            }
            Construction::IndexedBlock { blocklength, displacements } => {
                counts.extend([displacements.len() as i64, *blocklength]);
                counts.extend(displacements);
            }
            Construction::HindexedBlock { blocklength, displacements } => {
                counts.extend([displacements.len() as i64, *blocklength]);
                places.extend(displacements);
            }
            Construction::Subarray { sizes, subsizes, starts, order } => {
                integers.push(sizes.len() as i64);
                let into = if large { &mut *large_counts } else { &mut *integers };
                into.extend(sizes.iter().chain(subsizes).chain(starts));
                integers.push(*order as i64);
            }
            Construction::Darray(darray) => {
                integers.extend([darray.size, darray.rank, darray.gsizes.len() as i64]);
                let into = if large { &mut *large_counts } else { &mut *integers };
                into.extend(&darray.gsizes);
                integers.extend(darray.distributions.iter().map(|d| *d as i64));
                integers.extend(darray.dargs.iter().chain(&darray.psizes));
                integers.push(darray.order as i64);
            }
            Construction::F90Real { precision, range } | Construction::F90Complex { precision, range } => {
                integers.extend([precision, range]);
            }
            Construction::F90Integer { range } => integers.push(*range),
            Construction::Resized { lb, extent } => places.extend([lb, extent]),
        }
        if large {
            large_counts.append(&mut counts);
            large_counts.append(&mut places);
        } else {
            integers.append(&mut counts);
            addresses.append(&mut places);
        }
        contents
    }
}
