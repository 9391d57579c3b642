//! What a Fortran program tells the C library about its compiler.
//!
//! MPI: §20.4

use std::sync::Arc;

use mpi_core::info::Info;
use mpi_core::{ErrorClass, Result};

use super::environment::fortran_facts;
use crate::face::{Face, Out};

/// Sizes of `LOGICAL` that compilers offer, in bytes.
const LOGICAL_SIZES_BYTES: [i32; 5] = [1, 2, 4, 8, 16];

/// The literals of `LOGICAL` as one Fortran compiler writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FortranBooleans {
    size_bytes: usize,
    /// `.TRUE.` and `.FALSE.`; `size_bytes` of each count.
    literals: [[u8; 16]; 2],
}

/// The sizes of Fortran types are fixed here: facts that agree are accepted, others are not.
pub(crate) fn abi_set_fortran_info(_face: &Face, info: Option<&Arc<Info>>) -> Result<()> {
    let ours = fortran_facts()?;
    let Some(info) = info else { return Ok(()) };
    for n in 0..info.len() {
        let key = info.nth_key(n as i32)?;
        let (given, known) = (info.value(&key), ours.value(&key));
        if known.is_some() && given != known {
            let [given, known] = [given, known].map(Option::unwrap_or_default);
            return ErrorClass::Abi.fail(format!("{key} = {given} cannot be had: it is {known} in this library"));
        }
    }
    Ok(())
}

/// # Safety
/// Both literals have `logical_size` bytes.
pub(crate) unsafe fn abi_set_fortran_booleans(
    face: &Face,
    logical_size: i32,
    logical_true: *mut u8,
    logical_false: *mut u8,
) -> Result<()> {
    let size_bytes = checked(logical_size, logical_true, logical_false)?;
    let mut literals = [[0; 16]; 2];
    for (literal, source) in literals.iter_mut().zip([logical_true, logical_false]) {
        // SAFETY: `size_bytes` bytes, at most 16, by the contract of the caller.
        unsafe { std::ptr::copy_nonoverlapping(source, literal.as_mut_ptr(), size_bytes) };
    }
    let given = FortranBooleans { size_bytes, literals };
    match face.process().fortran_booleans.get() {
        Some(known) if known != given => {
            ErrorClass::Abi.fail("the Fortran literals have been set before, to other values")
        }
        _ => {
            face.process().fortran_booleans.set(Some(given));
            Ok(())
        }
    }
}

/// # Safety
/// Both places have room for `logical_size` bytes.
pub(crate) unsafe fn abi_get_fortran_booleans(
    face: &Face,
    logical_size: i32,
    logical_true: *mut u8,
    logical_false: *mut u8,
    is_set: Out<i32>,
) -> Result<()> {
    let size_bytes = checked(logical_size, logical_true, logical_false)?;
    let known = face.process().fortran_booleans.get().filter(|known| known.size_bytes == size_bytes);
    is_set.set_flag(known.is_some());
    let Some(known) = known else { return Ok(()) };
    for (literal, target) in known.literals.iter().zip([logical_true, logical_false]) {
        // SAFETY: room for `size_bytes` bytes by the contract of the caller.
        unsafe { std::ptr::copy_nonoverlapping(literal.as_ptr(), target, size_bytes) };
    }
    Ok(())
}

fn checked(logical_size: i32, logical_true: *mut u8, logical_false: *mut u8) -> Result<usize> {
    if !LOGICAL_SIZES_BYTES.contains(&logical_size) {
        return ErrorClass::Arg.fail(format!("parameter 1 (logical_size) = {logical_size} is no size of a LOGICAL"));
    }
    if logical_true.is_null() || logical_false.is_null() {
        return ErrorClass::Arg.fail("a literal is a null pointer");
    }
    Ok(logical_size as usize)
}
