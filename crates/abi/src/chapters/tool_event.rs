//! The tool information interface: events and their sources.
//!
//! MPI: §15.3.8

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use datatype::Datatype;
use mpi_core::info::Info;
use mpi_core::tool::{Callback, Dropped, ELEMENTS, SOURCE_HELP, SOURCE_NAME, TICKS_PER_SECOND, ticks};
use mpi_core::{ErrorClass, Result};

use super::tool::{no_hints, not_null, shown, tool, verbosity_value, world};
use crate::constants::*;
use crate::face::{Face, Handle, OptionalOut, StringOut};
use crate::types::{
    MPI_T_event_cb_function, MPI_T_event_dropped_cb_function, MPI_T_event_free_cb_function, ToolHandle,
};

/// The levels in the order in which callbacks are chosen.
const SAFETY_LEVELS: [c_int; mpi_core::tool::SAFETIES] = [
    MPI_T_CB_REQUIRE_NONE,
    MPI_T_CB_REQUIRE_MPI_RESTRICTED,
    MPI_T_CB_REQUIRE_THREAD_SAFE,
    MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE,
];

/// Callbacks run inside a call of MPI, where they may call MPI themselves.
const SAFETY_OF_CALLS: c_int = MPI_T_CB_REQUIRE_NONE;

fn safety_index(cb_safety: c_int) -> Result<usize> {
    let found = SAFETY_LEVELS.iter().position(|level| *level == cb_safety);
    found.ok_or_else(|| ErrorClass::ToolInvalid.error(format!("cb_safety {cb_safety} is no safety level")))
}

pub(crate) fn t_source_get_num(_face: &Face, num_sources: OptionalOut<i32>) -> Result<()> {
    num_sources.set(1);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the parameters of the call")]
pub(crate) fn t_source_get_info(
    face: &Face,
    source_index: i32,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
    desc: StringOut<'_>,
    desc_len: OptionalOut<i32>,
    ordering: OptionalOut<i32>,
    ticks_per_second: OptionalOut<i64>,
    max_ticks: OptionalOut<i64>,
    info: OptionalOut<Handle<Info>>,
) -> Result<()> {
    tool(face).check_source(source_index)?;
    name_len.set_text(&name, SOURCE_NAME);
    desc_len.set_text(&desc, SOURCE_HELP);
    ordering.set(MPI_T_SOURCE_ORDERED);
    ticks_per_second.set(TICKS_PER_SECOND);
    max_ticks.set(i64::MAX);
    no_hints(face, &info)
}

pub(crate) fn t_source_get_timestamp(face: &Face, source_index: i32, timestamp: OptionalOut<i64>) -> Result<()> {
    tool(face).check_source(source_index)?;
    timestamp.set(ticks() as i64);
    Ok(())
}

pub(crate) fn t_event_get_num(face: &Face, num_events: OptionalOut<i32>) -> Result<()> {
    num_events.set(tool(face).event_count()? as i32);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the parameters of the call")]
pub(crate) fn t_event_get_info(
    face: &Face,
    event_index: i32,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
    verbosity: OptionalOut<i32>,
    datatypes: OptionalOut<Handle<Datatype>>,
    displacements: OptionalOut<i64>,
    num_elements: OptionalOut<i32>,
    enumtype: OptionalOut<ToolHandle>,
    info: OptionalOut<Handle<Info>>,
    desc: StringOut<'_>,
    desc_len: OptionalOut<i32>,
    bind: OptionalOut<i32>,
) -> Result<()> {
    let event = tool(face).event(event_index)?;
    name_len.set_text(&name, event.name);
    desc_len.set_text(&desc, event.help);
    verbosity.set(verbosity_value(event.verbosity));
    let room = usize::try_from(num_elements.value().unwrap_or(0)).unwrap_or(0);
    for (place, element) in ELEMENTS.iter().take(room).enumerate() {
        datatypes.set_at(place, Handle::new(if element.is_wide { MPI_UNSIGNED_LONG_LONG } else { MPI_INT }));
        displacements.set_at(place, element.displacement_bytes as i64);
    }
    num_elements.set(ELEMENTS.len() as i32);
    enumtype.set(shown(MPI_T_ENUM_NULL as u64));
    bind.set(MPI_T_BIND_NO_OBJECT);
    no_hints(face, &info)
}

pub(crate) fn t_event_get_index(face: &Face, name: &CStr, event_index: OptionalOut<i32>) -> Result<()> {
    event_index.set(tool(face).event_index(&name.to_string_lossy())?);
    Ok(())
}

pub(crate) fn t_event_handle_alloc(
    face: &Face,
    event_index: i32,
    _obj_handle: *mut c_void,
    _info: Option<&Arc<Info>>,
    registration: OptionalOut<ToolHandle>,
) -> Result<()> {
    if registration.is_null() {
        return ErrorClass::ToolInvalid.fail("event_registration is a null pointer");
    }
    registration.set(shown(tool(face).register(event_index)?));
    Ok(())
}

pub(crate) fn t_event_handle_set_info(face: &Face, registration: ToolHandle, _info: Option<&Arc<Info>>) -> Result<()> {
    tool(face).check_registration(registration as u64)
}

pub(crate) fn t_event_handle_get_info(
    face: &Face,
    registration: ToolHandle,
    info_used: OptionalOut<Handle<Info>>,
) -> Result<()> {
    tool(face).check_registration(registration as u64)?;
    no_hints(face, &info_used)
}

pub(crate) fn t_event_register_callback(
    face: &Face,
    registration: ToolHandle,
    cb_safety: c_int,
    _info: Option<&Arc<Info>>,
    user_data: *mut c_void,
    event_cb_function: Option<MPI_T_event_cb_function>,
) -> Result<()> {
    let safety = safety_index(cb_safety)?;
    let callback = event_cb_function.map(|function| -> Callback {
        Arc::new(move |instance, registration, user_data| {
            let (instance, registration) = (shown(instance), shown(registration));
            // SAFETY: the tool's own function, called as the standard says.
            unsafe { function(instance, registration, SAFETY_OF_CALLS, user_data as *mut c_void) };
        })
    });
    let callback = callback.map(|callback| (callback, user_data as usize));
    tool(face).set_callback(registration as u64, safety, callback, world(face))
}

pub(crate) fn t_event_callback_set_info(
    face: &Face,
    registration: ToolHandle,
    cb_safety: c_int,
    _info: Option<&Arc<Info>>,
) -> Result<()> {
    safety_index(cb_safety)?;
    tool(face).check_registration(registration as u64)
}

pub(crate) fn t_event_callback_get_info(
    face: &Face,
    registration: ToolHandle,
    cb_safety: c_int,
    info_used: OptionalOut<Handle<Info>>,
) -> Result<()> {
    safety_index(cb_safety)?;
    tool(face).check_registration(registration as u64)?;
    no_hints(face, &info_used)
}

pub(crate) fn t_event_handle_free(
    face: &Face,
    registration: ToolHandle,
    user_data: *mut c_void,
    free_cb_function: Option<MPI_T_event_free_cb_function>,
) -> Result<()> {
    tool(face).unregister(registration as u64, world(face))?;
    // No callback comes after this: events are handed over to live registrations only.
    if let Some(function) = free_cb_function {
        // SAFETY: the tool's own function, called as the standard says.
        unsafe { function(registration, SAFETY_OF_CALLS, user_data) };
    }
    Ok(())
}

pub(crate) fn t_event_set_dropped_handler(
    face: &Face,
    registration: ToolHandle,
    dropped_cb_function: Option<MPI_T_event_dropped_cb_function>,
) -> Result<()> {
    let dropped = dropped_cb_function.map(|function| -> Dropped {
        Arc::new(move |count, registration, user_data| {
            let (registration, user_data) = (shown(registration), user_data as *mut c_void);
            // SAFETY: the tool's own function, called as the standard says.
            unsafe { function(count as i64, registration, 0, SAFETY_OF_CALLS, user_data) };
        })
    });
    tool(face).set_dropped(registration as u64, dropped)
}

/// # Safety
/// `buffer` has room for the element.
pub(crate) unsafe fn t_event_read(
    face: &Face,
    instance: ToolHandle,
    element_index: i32,
    buffer: *mut u8,
) -> Result<()> {
    let copy = tool(face).copy_event(instance as u64)?;
    let Some(element) = usize::try_from(element_index).ok().and_then(|at| ELEMENTS.get(at)) else {
        return ErrorClass::ToolInvalidIndex.fail(format!("the event has no element {element_index}"));
    };
    let end = element.displacement_bytes + if element.is_wide { 8 } else { 4 };
    // SAFETY: promised by the caller.
    unsafe { write(buffer, &copy[element.displacement_bytes..end]) }
}

/// # Safety
/// `buffer` has room for the event.
pub(crate) unsafe fn t_event_copy(face: &Face, instance: ToolHandle, buffer: *mut u8) -> Result<()> {
    let copy = tool(face).copy_event(instance as u64)?;
    // SAFETY: promised by the caller.
    unsafe { write(buffer, &copy) }
}

pub(crate) fn t_event_get_timestamp(face: &Face, instance: ToolHandle, timestamp: OptionalOut<i64>) -> Result<()> {
    timestamp.set(tool(face).event_ticks(instance as u64)? as i64);
    Ok(())
}

pub(crate) fn t_event_get_source(face: &Face, instance: ToolHandle, source_index: OptionalOut<i32>) -> Result<()> {
    tool(face).event_ticks(instance as u64)?;
    source_index.set(0);
    Ok(())
}

/// # Safety
/// `buffer` is null or has room for the bytes.
unsafe fn write(buffer: *mut u8, bytes: &[u8]) -> Result<()> {
    not_null(buffer)?;
    // SAFETY: promised by the caller, and not null.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len()) };
    Ok(())
}
