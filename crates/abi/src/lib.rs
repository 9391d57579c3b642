//! The C face: `libmpi_abi.so.1`, the MPI-5 standard ABI over `mpi-core`.
//!
//! Floor: faces. Entry points are generated at build time from the standard as data; they decode
//! handles and check arguments, and call the [`chapters`], which translate to `mpi-core`.
//!
//! **Invariants**
//! - Every function of the standard's C binding is exported, `MPI_X` weak over `PMPI_X`; those that
//!   are not implemented say so, and stand in [`COVERAGE`].
//! - The one static of the project is here ([`face::process`]).
//! - No panic crosses into C; no borrow is held while a callback of the user runs.
//! - A handle that was freed, or of another kind of object, is told from a live one.
//!
//! Deliberately absent: what MPI means (in `mpi-core`), devices (in `boot`), Fortran.
//!
//! ```
//! let implemented = mpi_abi::COVERAGE.iter().filter(|(_, implemented)| *implemented).count();
//! println!("{implemented} of {} functions are implemented", mpi_abi::COVERAGE.len());
//! assert!(mpi_abi::MPI_H.contains("int PMPI_Send("));
//! ```

mod chapters;
pub mod face;

/// The constants of the standard ABI: handles as `usize`, everything else as `i32`.
#[allow(missing_docs, reason = "the names are those of the standard")]
pub mod constants {
    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
}

/// The callback types of the standard.
#[allow(non_camel_case_types, reason = "the names are those of the standard")]
pub mod types {
    use std::ffi::{c_int, c_void};

    use datatype::Datatype;
    use mpi_core::Comm;

    use crate::face::{CStatus, File, Handle, Session, Win};

    /// Handles of the tool interface, made by `mpi_core::tool`.
    pub type ToolHandle = *mut c_void;

    include!(concat!(env!("OUT_DIR"), "/types.rs"));
}

mod entries;
#[allow(non_snake_case, reason = "the names are those of the standard")]
mod removed;

pub use entries::{COVERAGE, ferrovia_coverage};

/// `mpi.h` of the standard ABI.
pub const MPI_H: &str = include_str!(concat!(env!("OUT_DIR"), "/mpi.h"));
