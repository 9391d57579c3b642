//! Functions that MPI 3.0 removed and that no other one replaces as it stands. Those that have such a
//! replacement are further names of it (`build/removed.rs`).
//!
//! MPI: §17.1

use std::ffi::c_int;

use datatype::Datatype;

use crate::entries::PMPI_Type_get_extent;
use crate::face::Handle;

/// `int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent)`
///
/// # Safety
/// As `MPI_Type_get_extent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Type_extent(datatype: Handle<Datatype>, extent: *mut i64) -> c_int {
    let mut lower = 0;
    // SAFETY: promised by the caller.
    unsafe { PMPI_Type_get_extent(datatype, &mut lower, extent) }
}

/// `int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint *displacement)`
///
/// # Safety
/// As `MPI_Type_get_extent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Type_lb(datatype: Handle<Datatype>, displacement: *mut i64) -> c_int {
    let mut extent = 0;
    // SAFETY: promised by the caller.
    unsafe { PMPI_Type_get_extent(datatype, displacement, &mut extent) }
}

/// `int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement)`
///
/// # Safety
/// As `MPI_Type_get_extent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Type_ub(datatype: Handle<Datatype>, displacement: *mut i64) -> c_int {
    let mut extent = 0;
    // SAFETY: promised by the caller.
    let code = unsafe { PMPI_Type_get_extent(datatype, displacement, &mut extent) };
    if code == 0 {
        // SAFETY: the lower bound was written there just now.
        unsafe { *displacement += extent };
    }
    code
}
