//! The tool information interface: its beginning and end, control variables, enumerations, categories.
//!
//! Performance variables and events are in files of their own.
//!
//! MPI: §15.3

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use base::config::Kind;
use datatype::Datatype;
use mpi_core::info::Info;
use mpi_core::tool::{CATEGORIES, ControlValue, Members, Scope, TEXT_MAX_BYTES, Tool, Verbosity};
use mpi_core::{Comm, ErrorClass, Result, World};

use crate::constants::*;
use crate::face::objects::Object;
use crate::face::{Face, Handle, OptionalOut, Out, StringOut};
use crate::types::ToolHandle;

pub(super) fn tool(face: &Face) -> &'static Tool {
    &face.process().tool
}

/// The world whose counters are read, also when nobody uses MPI any more.
pub(super) fn world(face: &Face) -> Option<&'static World> {
    face.process().world_even_if_closed()
}

/// A handle as the program holds it.
pub(super) fn shown(handle: u64) -> ToolHandle {
    handle as usize as *mut c_void
}

pub(super) fn verbosity_value(verbosity: Verbosity) -> c_int {
    match verbosity {
        Verbosity::UserBasic => MPI_T_VERBOSITY_USER_BASIC,
        Verbosity::TunerBasic => MPI_T_VERBOSITY_TUNER_BASIC,
        Verbosity::TunerDetail => MPI_T_VERBOSITY_TUNER_DETAIL,
        Verbosity::DeveloperBasic => MPI_T_VERBOSITY_MPIDEV_BASIC,
    }
}

/// The communicator whose handle stands where the program says.
///
/// # Safety
/// `place` is null or the address of a communicator's handle.
pub(super) unsafe fn comm_at(face: &Face, place: *mut c_void) -> Result<Arc<Comm>> {
    // SAFETY: promised by the caller.
    let Some(handle) = (unsafe { place.cast::<Handle<Comm>>().as_ref() }) else {
        return ErrorClass::ToolInvalidHandle.fail("obj_handle is a null pointer, not the address of a communicator");
    };
    match <Comm as Object>::table(face.process()).hold(handle.value) {
        Ok(comm) => Ok(Arc::clone(&comm)),
        Err(_) => ErrorClass::ToolInvalidHandle.fail("obj_handle is not the address of a communicator's handle"),
    }
}

/// An info object that says nothing: no hint is understood.
pub(super) fn no_hints(face: &Face, place: &OptionalOut<Handle<Info>>) -> Result<()> {
    if !place.is_null() {
        place.set(Handle::new(face.handle_for::<Info>(Arc::new(Info::new()))?));
    }
    Ok(())
}

pub(crate) fn t_init_thread(face: &Face, required: i32, provided: OptionalOut<i32>) -> Result<()> {
    if !(MPI_THREAD_SINGLE..=MPI_THREAD_MULTIPLE).contains(&required) {
        return ErrorClass::ToolCannotInit.fail(format!("required {required} is none of the thread levels"));
    }
    let settings = boot::configuration_with(&tool(face).overrides());
    tool(face).initialize(settings.map_err(|error| ErrorClass::ToolCannotInit.error(error.to_string()))?)?;
    // A program that has started below MPI_THREAD_MULTIPLE takes no lock that a tool's threads could rely on.
    let has_threads = required == MPI_THREAD_MULTIPLE && face.process().promise_threads_to_tool();
    provided.set(if has_threads { MPI_THREAD_MULTIPLE } else { required.min(MPI_THREAD_SERIALIZED) });
    Ok(())
}

pub(crate) fn t_finalize(face: &Face) -> Result<()> {
    tool(face).finalize(world(face))
}

pub(crate) fn t_cvar_get_num(face: &Face, num_cvar: OptionalOut<i32>) -> Result<()> {
    num_cvar.set(tool(face).control_count()? as i32);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the parameters of the call")]
pub(crate) fn t_cvar_get_info(
    face: &Face,
    cvar_index: i32,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
    verbosity: OptionalOut<i32>,
    datatype: OptionalOut<Handle<Datatype>>,
    enumtype: OptionalOut<ToolHandle>,
    desc: StringOut<'_>,
    desc_len: OptionalOut<i32>,
    bind: OptionalOut<i32>,
    scope: OptionalOut<i32>,
) -> Result<()> {
    let control = tool(face).control(cvar_index)?;
    name_len.set_text(&name, control.name);
    desc_len.set_text(&desc, &control.help);
    verbosity.set(verbosity_value(control.verbosity));
    datatype.set(Handle::new(match control.kind {
        Kind::Bytes => MPI_UNSIGNED_LONG_LONG,
        Kind::Number | Kind::Choice(_) => MPI_INT,
        Kind::Text => MPI_CHAR,
    }));
    enumtype.set(shown(tool(face).enumeration(cvar_index)?.unwrap_or(MPI_T_ENUM_NULL as u64)));
    bind.set(MPI_T_BIND_NO_OBJECT);
    scope.set(match control.scope {
        Scope::Local => MPI_T_SCOPE_LOCAL,
        Scope::AllEqual => MPI_T_SCOPE_ALL_EQ,
    });
    Ok(())
}

pub(crate) fn t_cvar_get_index(face: &Face, name: &CStr, cvar_index: OptionalOut<i32>) -> Result<()> {
    cvar_index.set(tool(face).control_index(&name.to_string_lossy())?);
    Ok(())
}

pub(crate) fn t_cvar_handle_alloc(
    face: &Face,
    cvar_index: i32,
    _obj_handle: *mut c_void,
    handle: OptionalOut<ToolHandle>,
    count: OptionalOut<i32>,
) -> Result<()> {
    if handle.is_null() {
        return ErrorClass::ToolInvalid.fail("handle is a null pointer");
    }
    let made = tool(face).allocate_control(cvar_index)?;
    handle.set(shown(made));
    let is_text = tool(face).control_kind(made)? == Kind::Text;
    count.set(if is_text { TEXT_MAX_BYTES as i32 } else { 1 });
    Ok(())
}

pub(crate) fn t_cvar_handle_free(face: &Face, handle: OptionalOut<ToolHandle>) -> Result<()> {
    tool(face).free_control(given(&handle))?;
    handle.set(shown(MPI_T_CVAR_HANDLE_NULL as u64));
    Ok(())
}

/// # Safety
/// `buf` has room for the variable's elements.
pub(crate) unsafe fn t_cvar_read(face: &Face, handle: ToolHandle, buf: *mut u8) -> Result<()> {
    not_null(buf)?;
    match tool(face).read_control(handle as u64)? {
        // SAFETY: the program has made room for the variable's one element.
        ControlValue::Bytes(bytes) => unsafe { Out::new(buf.cast()) }.set(bytes),
        // SAFETY: as above.
        ControlValue::Int(number) => unsafe { Out::new(buf.cast()) }.set(number),
        ControlValue::Text(text) => {
            // SAFETY: the program has made room for as many bytes as the allocation said.
            unsafe { StringOut::new(buf.cast(), TEXT_MAX_BYTES) }.set(&text);
        }
    }
    Ok(())
}

/// # Safety
/// `buf` holds the variable's elements.
pub(crate) unsafe fn t_cvar_write(face: &Face, handle: ToolHandle, buf: *const u8) -> Result<()> {
    not_null(buf)?;
    let handle = handle as u64;
    let value = match tool(face).control_kind(handle)? {
        // SAFETY: the program holds the variable's one element there.
        Kind::Bytes => ControlValue::Bytes(unsafe { buf.cast::<u64>().read_unaligned() }),
        // SAFETY: as above.
        Kind::Number | Kind::Choice(_) => ControlValue::Int(unsafe { buf.cast::<i32>().read_unaligned() }),
        Kind::Text => {
            // SAFETY: the program holds as many bytes there as the allocation said.
            let bytes = unsafe { std::slice::from_raw_parts(buf, TEXT_MAX_BYTES) };
            let Ok(text) = CStr::from_bytes_until_nul(bytes) else {
                return ErrorClass::ToolInvalid.fail("the text does not end");
            };
            ControlValue::Text(text.to_string_lossy().into_owned())
        }
    };
    tool(face).write_control(handle, value, world(face))
}

pub(crate) fn t_enum_get_info(
    face: &Face,
    enumtype: ToolHandle,
    num: OptionalOut<i32>,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
) -> Result<()> {
    let (known, words) = tool(face).enumeration_items(enumtype as u64)?;
    num.set(words.len() as i32);
    name_len.set_text(&name, known);
    Ok(())
}

pub(crate) fn t_enum_get_item(
    face: &Face,
    enumtype: ToolHandle,
    index: i32,
    value: OptionalOut<i32>,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
) -> Result<()> {
    let (_, words) = tool(face).enumeration_items(enumtype as u64)?;
    let Some(word) = usize::try_from(index).ok().and_then(|at| words.get(at)) else {
        return ErrorClass::ToolInvalidItem.fail(format!("the enumeration has no item {index}"));
    };
    value.set(index);
    name_len.set_text(&name, word);
    Ok(())
}

pub(crate) fn t_category_get_num(face: &Face, num_cat: OptionalOut<i32>) -> Result<()> {
    tool(face).check_initialized()?;
    num_cat.set(CATEGORIES.len() as i32);
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the parameters of the call")]
pub(crate) fn t_category_get_info(
    face: &Face,
    cat_index: i32,
    name: StringOut<'_>,
    name_len: OptionalOut<i32>,
    desc: StringOut<'_>,
    desc_len: OptionalOut<i32>,
    num_cvars: OptionalOut<i32>,
    num_pvars: OptionalOut<i32>,
    num_categories: OptionalOut<i32>,
) -> Result<()> {
    let (category, members) = tool(face).category(cat_index)?;
    name_len.set_text(&name, category.name);
    desc_len.set_text(&desc, category.help);
    num_cvars.set(members.controls.len() as i32);
    num_pvars.set(members.performance.len() as i32);
    num_categories.set(members.categories.len() as i32);
    Ok(())
}

pub(crate) fn t_category_get_num_events(face: &Face, cat_index: i32, num_events: OptionalOut<i32>) -> Result<()> {
    num_events.set(tool(face).category(cat_index)?.1.events.len() as i32);
    Ok(())
}

pub(crate) fn t_category_get_index(face: &Face, name: &CStr, cat_index: OptionalOut<i32>) -> Result<()> {
    cat_index.set(tool(face).category_index(&name.to_string_lossy())?);
    Ok(())
}

pub(crate) fn t_category_get_cvars(face: &Face, cat_index: i32, len: i32, indices: OptionalOut<i32>) -> Result<()> {
    list(face, cat_index, len, &indices, |members| members.controls)
}

pub(crate) fn t_category_get_pvars(face: &Face, cat_index: i32, len: i32, indices: OptionalOut<i32>) -> Result<()> {
    list(face, cat_index, len, &indices, |members| members.performance)
}

pub(crate) fn t_category_get_events(face: &Face, cat_index: i32, len: i32, indices: OptionalOut<i32>) -> Result<()> {
    list(face, cat_index, len, &indices, |members| members.events)
}

pub(crate) fn t_category_get_categories(
    face: &Face,
    cat_index: i32,
    len: i32,
    indices: OptionalOut<i32>,
) -> Result<()> {
    list(face, cat_index, len, &indices, |members| members.categories)
}

/// Categories never change.
pub(crate) fn t_category_changed(_face: &Face, update_number: OptionalOut<i32>) -> Result<()> {
    update_number.set(0);
    Ok(())
}

/// Writes as many of a category's members as there is room for.
fn list(face: &Face, category: i32, len: i32, indices: &OptionalOut<i32>, of: fn(Members) -> Vec<i32>) -> Result<()> {
    let members = of(tool(face).category(category)?.1);
    for (place, index) in members.into_iter().take(usize::try_from(len).unwrap_or(0)).enumerate() {
        indices.set_at(place, index);
    }
    Ok(())
}

/// The handle a freeing call was given; 0 where there is none.
pub(super) fn given(handle: &OptionalOut<ToolHandle>) -> u64 {
    handle.value().map_or(0, |handle| handle as u64)
}

pub(super) fn not_null(buffer: *const u8) -> Result<()> {
    if buffer.is_null() { ErrorClass::ToolInvalid.fail("buf is a null pointer") } else { Ok(()) }
}
