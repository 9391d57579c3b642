//! Info objects.
//!
//! MPI: §10

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use mpi_core::environment::Launch;
use mpi_core::info::{INFO_VALUE_MAX_BYTES, Info, valid_key};
use mpi_core::{ErrorClass, Result};

use crate::face::{CountInOut, Face, InOutHandle, Out, OutHandle, StringOut};

/// Arguments of a command line beyond these are not looked at.
const ARGUMENTS_MAX: usize = 1 << 16;

pub(crate) fn info_create(face: &Face, info: OutHandle<Info>) -> Result<()> {
    info.set(face, Arc::new(Info::new()))
}

/// # Safety
/// `argv` is null or holds `argc` strings.
pub(crate) unsafe fn info_create_env(
    face: &Face,
    argc: i32,
    argv: *mut *mut c_char,
    info: OutHandle<Info>,
) -> Result<()> {
    let count = usize::try_from(argc).unwrap_or(0).min(ARGUMENTS_MAX);
    let mut arguments = Vec::new();
    for index in 0..if argv.is_null() { 0 } else { count } {
        // SAFETY: less than the number of strings the caller promises.
        let place = unsafe { argv.add(index) };
        // SAFETY: as above.
        let argument = unsafe { place.read() };
        if argument.is_null() {
            break;
        }
        // SAFETY: a string by the promise of the caller.
        arguments.push(unsafe { CStr::from_ptr(argument) }.to_string_lossy().into_owned());
    }
    let given = Some(arguments).filter(|arguments| !arguments.is_empty());
    let mut launch = Launch::of_this_process(given);
    if let Some(world) = face.world_if_running() {
        launch = launch.within(world);
    }
    info.set(face, Arc::new(launch.info().duplicate()))
}

pub(crate) fn info_set(_face: &Face, info: &Arc<Info>, key: &CStr, value: &CStr) -> Result<()> {
    let Ok(value) = value.to_str() else {
        return ErrorClass::InfoValue.fail("the value is not UTF-8 text");
    };
    info.set(text_of(key)?, value)
}

pub(crate) fn info_delete(_face: &Face, info: &Arc<Info>, key: &CStr) -> Result<()> {
    info.delete(text_of(key)?)
}

pub(crate) fn info_dup(face: &Face, info: &Arc<Info>, newinfo: OutHandle<Info>) -> Result<()> {
    newinfo.set(face, Arc::new(info.duplicate()))
}

pub(crate) fn info_free(face: &Face, info: InOutHandle<Info>) -> Result<()> {
    info.release(face)
}

pub(crate) fn info_get(
    _face: &Face,
    info: &Arc<Info>,
    key: &CStr,
    valuelen: i32,
    value: StringOut<'_>,
    flag: Out<i32>,
) -> Result<()> {
    let Ok(length) = usize::try_from(valuelen) else {
        return ErrorClass::Arg.fail(format!("valuelen is {valuelen}"));
    };
    let known = known_value(info, key)?;
    if let Some(text) = &known {
        // The program has room for one byte more than it says: the terminating zero.
        value.set_within(text, length + 1);
    }
    flag.set_flag(known.is_some());
    Ok(())
}

pub(crate) fn info_get_string(
    _face: &Face,
    info: &Arc<Info>,
    key: &CStr,
    buflen: CountInOut,
    value: StringOut<'_>,
    flag: Out<i32>,
) -> Result<()> {
    let Ok(room) = usize::try_from(buflen.value()) else {
        return ErrorClass::Arg.fail(format!("buflen is {}", buflen.value()));
    };
    let known = known_value(info, key)?;
    if let Some(text) = &known {
        value.set_within(text, room);
        buflen.set(text.len() as i64 + 1);
    }
    flag.set_flag(known.is_some());
    Ok(())
}

pub(crate) fn info_get_valuelen(
    _face: &Face,
    info: &Arc<Info>,
    key: &CStr,
    valuelen: Out<i32>,
    flag: Out<i32>,
) -> Result<()> {
    let known = known_value(info, key)?;
    if let Some(text) = &known {
        debug_assert!(text.len() <= INFO_VALUE_MAX_BYTES);
        valuelen.set(text.len() as i32);
    }
    flag.set_flag(known.is_some());
    Ok(())
}

pub(crate) fn info_get_nkeys(_face: &Face, info: &Arc<Info>, nkeys: Out<i32>) -> Result<()> {
    nkeys.set(info.len() as i32);
    Ok(())
}

pub(crate) fn info_get_nthkey(_face: &Face, info: &Arc<Info>, n: i32, key: StringOut<'_>) -> Result<()> {
    key.set(&info.nth_key(n)?);
    Ok(())
}

fn known_value(info: &Info, key: &CStr) -> Result<Option<String>> {
    Ok(info.value(text_of(key)?))
}

fn text_of(key: &CStr) -> Result<&str> {
    let Ok(text) = key.to_str() else {
        return ErrorClass::InfoKey.fail("the key is not UTF-8 text");
    };
    valid_key(text).map(|()| text)
}
