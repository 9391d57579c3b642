//! What a process can ask about the library and the machine; memory; profiling.
//!
//! MPI: §9.1, §9.2, §9.6, §15.2, §20

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use datatype::Basic;
use mpi_core::environment::{ABI_VERSION, MPI_VERSION, library_version, processor_name};
use mpi_core::info::Info;
use mpi_core::{ErrorClass, Result};

use crate::face::{Face, Out, OutHandle, StringOut};

/// What `MPI_Alloc_mem` aligns to if it is not asked for more: a cache line.
const ALIGNMENT_BYTES: usize = 64;
/// The greatest alignment that can be asked for.
const ALIGNMENT_MAX_BYTES: usize = 1 << 30;

pub(crate) fn get_version(_face: &Face, version: Out<i32>, subversion: Out<i32>) -> Result<()> {
    version.set(MPI_VERSION.0);
    subversion.set(MPI_VERSION.1);
    Ok(())
}

pub(crate) fn get_library_version(_face: &Face, version: StringOut<'_>, resultlen: Out<i32>) -> Result<()> {
    resultlen.set(version.set(&library_version()));
    Ok(())
}

pub(crate) fn abi_get_version(_face: &Face, abi_major: Out<i32>, abi_minor: Out<i32>) -> Result<()> {
    abi_major.set(ABI_VERSION.0);
    abi_minor.set(ABI_VERSION.1);
    Ok(())
}

/// The sizes of the integer types of the ABI, in bytes.
pub(crate) fn abi_get_info(face: &Face, info: OutHandle<Info>) -> Result<()> {
    let sizes = Info::new();
    for key in ["mpi_aint_size", "mpi_count_size", "mpi_offset_size"] {
        sizes.set(key, "8")?;
    }
    info.set(face, Arc::new(sizes))
}

pub(crate) fn abi_get_fortran_info(face: &Face, info: OutHandle<Info>) -> Result<()> {
    info.set(face, Arc::new(fortran_facts()?))
}

/// The sizes of the plain Fortran types in bytes, and which of the sized ones there are.
pub(super) fn fortran_facts() -> Result<Info> {
    let facts = Info::new();
    for basic in Basic::all() {
        let name = basic.name().to_ascii_lowercase();
        let Some(plain) = name.strip_prefix("mpi_") else { continue };
        let class = plain.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let is_sized = class != plain;
        match (class, is_sized) {
            ("logical" | "integer" | "real" | "double_precision", false) => {
                facts.set(&format!("{name}_size"), &basic.size().to_string())?;
            }
            ("logical" | "integer" | "real" | "complex", true) | ("double_complex", false) => {
                facts.set(&format!("{name}_supported"), &(basic.size() > 0).to_string())?;
            }
            _ => {}
        }
    }
    Ok(facts)
}

pub(crate) fn get_processor_name(face: &Face, name: StringOut<'_>, resultlen: Out<i32>) -> Result<()> {
    let known = face.world_if_running().map(|world| world.process_manager().processor_name());
    resultlen.set(name.set(&known.unwrap_or_else(processor_name)));
    Ok(())
}

pub(crate) fn get_hw_resource_info(face: &Face, hw_info: OutHandle<Info>) -> Result<()> {
    hw_info.set(face, Arc::new(boot::hardware().info()))
}

pub(crate) fn wtime() -> f64 {
    mpi_core::environment::wtime()
}

pub(crate) fn wtick() -> f64 {
    mpi_core::environment::wtick()
}

/// Profiling levels mean nothing here; tools that care stand in front of this call.
pub(crate) fn pcontrol(_face: &Face, _level: i32) -> Result<()> {
    Ok(())
}

pub(crate) fn alloc_mem(_face: &Face, size: i64, info: Option<&Arc<Info>>, baseptr: Out<*mut c_void>) -> Result<()> {
    let Ok(size) = usize::try_from(size) else {
        return ErrorClass::Size.fail(format!("size is {size}"));
    };
    let wanted = info.and_then(|info| info.value("mpi_minimum_memory_alignment"));
    let alignment = wanted.and_then(|text| text.trim().parse().ok()).unwrap_or(ALIGNMENT_BYTES);
    let alignment = alignment.clamp(ALIGNMENT_BYTES, ALIGNMENT_MAX_BYTES).next_power_of_two();
    let mut memory = ptr::null_mut();
    // SAFETY: the result goes to a local variable; the alignment is a power of two.
    let status = unsafe { libc::posix_memalign(&mut memory, alignment, size.max(1)) };
    if status != 0 {
        return ErrorClass::NoMem.fail(format!("there is no memory for {size} bytes aligned to {alignment}"));
    }
    baseptr.set(memory);
    Ok(())
}

/// # Safety
/// `base` is null or comes from [`alloc_mem`].
pub(crate) unsafe fn free_mem(_face: &Face, base: *mut u8) -> Result<()> {
    // SAFETY: allocated by `posix_memalign` by the promise of the caller.
    unsafe { libc::free(base.cast()) };
    Ok(())
}
