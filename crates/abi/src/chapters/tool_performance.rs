//! The tool information interface: performance variables.
//!
//! MPI: §15.3.7

use std::ffi::{CStr, c_int, c_void};

use datatype::Datatype;
use mpi_core::tool::PerformanceClass;
use mpi_core::{ErrorClass, Result};

use super::tool::{comm_at, given, not_null, shown, tool, verbosity_value, world};
use crate::constants::*;
use crate::face::{Face, Handle, OptionalOut, Out, StringOut};
use crate::types::ToolHandle;

fn class_value(class: PerformanceClass) -> c_int {
    match class {
        PerformanceClass::Level => MPI_T_PVAR_CLASS_LEVEL,
        PerformanceClass::HighWatermark => MPI_T_PVAR_CLASS_HIGHWATERMARK,
        PerformanceClass::LowWatermark => MPI_T_PVAR_CLASS_LOWWATERMARK,
        PerformanceClass::Counter => MPI_T_PVAR_CLASS_COUNTER,
        PerformanceClass::Timer => MPI_T_PVAR_CLASS_TIMER,
    }
}

pub(crate) fn t_pvar_get_num(face: &Face, num_pvar: OptionalOut<i32>) -> Result<()> {
    num_pvar.set(tool(face).performance_variables()?.len() as i32);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the parameters of the call")]
pub(crate) fn t_pvar_get_info(
    face: &Face,
    pvar_index: i32,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
    verbosity: OptionalOut<i32>,
    var_class: OptionalOut<i32>,
    datatype: OptionalOut<Handle<Datatype>>,
    enumtype: OptionalOut<ToolHandle>,
    desc: StringOut<'_>,
    desc_len: OptionalOut<i32>,
    bind: OptionalOut<i32>,
    readonly: OptionalOut<i32>,
    continuous: OptionalOut<i32>,
    atomic: OptionalOut<i32>,
) -> Result<()> {
    let variable = tool(face).performance_variable(pvar_index)?;
    name_len.set_text(&name, &variable.name);
    desc_len.set_text(&desc, variable.help);
    verbosity.set(verbosity_value(variable.verbosity));
    var_class.set(class_value(variable.class));
    datatype.set(Handle::new(MPI_UNSIGNED_LONG_LONG));
    enumtype.set(shown(MPI_T_ENUM_NULL as u64));
    bind.set(if variable.is_of_communicator() { MPI_T_BIND_MPI_COMM } else { MPI_T_BIND_NO_OBJECT });
    readonly.set(variable.is_read_only().into());
    continuous.set(variable.is_continuous().into());
    atomic.set((!variable.is_read_only()).into());
    Ok(())
}

pub(crate) fn t_pvar_get_index(face: &Face, name: &CStr, var_class: i32, pvar_index: OptionalOut<i32>) -> Result<()> {
    let class = PerformanceClass::ALL.into_iter().find(|class| class_value(*class) == var_class);
    pvar_index.set(tool(face).performance_index(&name.to_string_lossy(), class)?);
    Ok(())
}

pub(crate) fn t_pvar_session_create(face: &Face, session: OptionalOut<ToolHandle>) -> Result<()> {
    if session.is_null() {
        return ErrorClass::ToolInvalid.fail("pe_session is a null pointer");
    }
    session.set(shown(tool(face).create_session()?));
    Ok(())
}

pub(crate) fn t_pvar_session_free(face: &Face, session: OptionalOut<ToolHandle>) -> Result<()> {
    tool(face).free_session(given(&session))?;
    session.set(shown(MPI_T_PVAR_SESSION_NULL as u64));
    Ok(())
}

/// # Safety
/// `obj_handle` is the address of a communicator's handle if the variable belongs to one.
pub(crate) unsafe fn t_pvar_handle_alloc(
    face: &Face,
    session: ToolHandle,
    pvar_index: i32,
    obj_handle: *mut c_void,
    handle: OptionalOut<ToolHandle>,
    count: OptionalOut<i32>,
) -> Result<()> {
    if handle.is_null() {
        return ErrorClass::ToolInvalid.fail("handle is a null pointer");
    }
    let is_bound = tool(face).performance_variable(pvar_index)?.is_of_communicator();
    let comm = match is_bound {
        // SAFETY: promised by the caller.
        true => Some(unsafe { comm_at(face, obj_handle) }?),
        false => None,
    };
    let made = tool(face).allocate_performance(session as u64, pvar_index, comm.as_ref(), world(face))?;
    handle.set(shown(made));
    count.set(1);
    Ok(())
}

pub(crate) fn t_pvar_handle_free(face: &Face, session: ToolHandle, handle: OptionalOut<ToolHandle>) -> Result<()> {
    tool(face).free_performance(session as u64, given(&handle))?;
    handle.set(shown(MPI_T_PVAR_HANDLE_NULL as u64));
    Ok(())
}

pub(crate) fn t_pvar_start(face: &Face, session: ToolHandle, handle: ToolHandle) -> Result<()> {
    tool(face).start_performance(session as u64, one_or_all(handle), world(face))
}

pub(crate) fn t_pvar_stop(face: &Face, session: ToolHandle, handle: ToolHandle) -> Result<()> {
    tool(face).stop_performance(session as u64, one_or_all(handle), world(face))
}

/// # Safety
/// `buf` has room for the variable's element.
pub(crate) unsafe fn t_pvar_read(face: &Face, session: ToolHandle, handle: ToolHandle, buf: *mut u8) -> Result<()> {
    not_null(buf)?;
    let value = tool(face).read_performance(session as u64, handle as u64, world(face))?;
    // SAFETY: the program has made room for the variable's one element.
    unsafe { Out::new(buf.cast::<u64>()) }.set(value);
    Ok(())
}

/// # Safety
/// `buf` holds the variable's element.
pub(crate) unsafe fn t_pvar_write(face: &Face, session: ToolHandle, handle: ToolHandle, buf: *const u8) -> Result<()> {
    not_null(buf)?;
    // SAFETY: the program holds the variable's one element there.
    let value = unsafe { buf.cast::<u64>().read_unaligned() };
    tool(face).write_performance(session as u64, handle as u64, value, world(face))
}

pub(crate) fn t_pvar_reset(face: &Face, session: ToolHandle, handle: ToolHandle) -> Result<()> {
    tool(face).reset_performance(session as u64, one_or_all(handle), world(face))
}

/// # Safety
/// `buf` has room for the variable's element.
pub(crate) unsafe fn t_pvar_readreset(
    face: &Face,
    session: ToolHandle,
    handle: ToolHandle,
    buf: *mut u8,
) -> Result<()> {
    not_null(buf)?;
    let value = tool(face).read_performance(session as u64, handle as u64, world(face))?;
    tool(face).reset_performance(session as u64, Some(handle as u64), world(face))?;
    // SAFETY: the program has made room for the variable's one element.
    unsafe { Out::new(buf.cast::<u64>()) }.set(value);
    Ok(())
}

/// `None` for `MPI_T_PVAR_ALL_HANDLES`.
fn one_or_all(handle: ToolHandle) -> Option<u64> {
    Some(handle as u64).filter(|handle| *handle != MPI_T_PVAR_ALL_HANDLES as u64)
}
