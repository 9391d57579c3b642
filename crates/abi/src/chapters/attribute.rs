//! Attributes of communicators and datatypes, and their keys.
//!
//! MPI: §7.7, §16.1 (deprecated names)

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use datatype::Datatype;
use mpi_core::attribute::{CopyRule, DeleteRule, Key, PredefinedAttribute, Value};
use mpi_core::{Comm, Error, ErrorClass, Result};

use crate::constants::MPI_KEYVAL_INVALID;
use crate::face::objects::{Object, shown_handle};
use crate::face::{CountInOut, Face, Handle, Out};
use crate::types::{
    MPI_Comm_copy_attr_function, MPI_Comm_delete_attr_function, MPI_Copy_function, MPI_Delete_function,
    MPI_Type_copy_attr_function, MPI_Type_delete_attr_function,
};

/// `MPI_COMM_DUP_FN` and the like; the functions that do nothing are null.
const DUP_FN: usize = 1;

type CopyPointer<K> =
    unsafe extern "C" fn(Handle<K>, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
type DeletePointer<K> = unsafe extern "C" fn(Handle<K>, c_int, *mut c_void, *mut c_void) -> c_int;

/// Where programs find the values of predefined attributes: they are given addresses.
static PREDEFINED: [AtomicI32; PredefinedAttribute::ALL.len()] = [const { AtomicI32::new(0) }; _];

pub(crate) fn comm_create_keyval(
    face: &Face,
    comm_copy_attr_fn: Option<MPI_Comm_copy_attr_function>,
    comm_delete_attr_fn: Option<MPI_Comm_delete_attr_function>,
    comm_keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    let copy = copy_rule::<Comm>(comm_copy_attr_fn, extra_state);
    let delete = delete_rule::<Comm>(comm_delete_attr_fn, extra_state);
    comm_keyval.set(face.process().comm_keys.create(copy, delete)?);
    Ok(())
}

pub(crate) fn comm_free_keyval(face: &Face, comm_keyval: CountInOut) -> Result<()> {
    face.process().comm_keys.free(comm_keyval.value() as i32)?;
    comm_keyval.set(i64::from(MPI_KEYVAL_INVALID));
    Ok(())
}

pub(crate) fn comm_set_attr(face: &Face, comm: &Arc<Comm>, comm_keyval: i32, attribute_val: *mut c_void) -> Result<()> {
    comm.attributes.set(comm, &own_key(face, comm_keyval)?, value_of(attribute_val))
}

#[inline]
pub(crate) fn comm_get_attr(
    face: &Face,
    comm: &Arc<Comm>,
    comm_keyval: i32,
    attribute_val: Out<*mut c_void>,
    flag: Out<i32>,
) -> Result<()> {
    let value = match PredefinedAttribute::from_key(comm_keyval) {
        Some(attribute) => predefined_value(face, attribute),
        None => {
            let value = comm.attributes.get(comm_keyval);
            if value.is_none() {
                // Not even such a key?
                own_key(face, comm_keyval)?;
            }
            value.map(pointer_of)
        }
    };
    give(value, attribute_val, flag);
    Ok(())
}

pub(crate) fn comm_delete_attr(face: &Face, comm: &Arc<Comm>, comm_keyval: i32) -> Result<()> {
    comm.attributes.delete(comm, &*own_key(face, comm_keyval)?)
}

pub(crate) fn type_create_keyval(
    face: &Face,
    type_copy_attr_fn: Option<MPI_Type_copy_attr_function>,
    type_delete_attr_fn: Option<MPI_Type_delete_attr_function>,
    type_keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    let copy = copy_rule::<Datatype>(type_copy_attr_fn, extra_state);
    let delete = delete_rule::<Datatype>(type_delete_attr_fn, extra_state);
    type_keyval.set(face.process().type_keys.create(copy, delete)?);
    Ok(())
}

pub(crate) fn type_free_keyval(face: &Face, type_keyval: CountInOut) -> Result<()> {
    face.process().type_keys.free(type_keyval.value() as i32)?;
    type_keyval.set(i64::from(MPI_KEYVAL_INVALID));
    Ok(())
}

pub(crate) fn type_set_attr(
    face: &Face,
    datatype: &Arc<Datatype>,
    type_keyval: i32,
    attribute_val: *mut c_void,
) -> Result<()> {
    let process = face.process();
    process.type_attributes.set(datatype, &process.type_keys.find(type_keyval)?, value_of(attribute_val))
}

pub(crate) fn type_get_attr(
    face: &Face,
    datatype: &Arc<Datatype>,
    type_keyval: i32,
    attribute_val: Out<*mut c_void>,
    flag: Out<i32>,
) -> Result<()> {
    let process = face.process();
    let value = process.type_attributes.get(datatype, type_keyval);
    if value.is_none() {
        process.type_keys.find(type_keyval)?;
    }
    give(value.map(pointer_of), attribute_val, flag);
    Ok(())
}

pub(crate) fn type_delete_attr(face: &Face, datatype: &Arc<Datatype>, type_keyval: i32) -> Result<()> {
    let process = face.process();
    process.type_attributes.delete(datatype, &*process.type_keys.find(type_keyval)?)
}

pub(crate) fn keyval_create(
    face: &Face,
    copy_fn: Option<MPI_Copy_function>,
    delete_fn: Option<MPI_Delete_function>,
    keyval: Out<i32>,
    extra_state: *mut c_void,
) -> Result<()> {
    comm_create_keyval(face, copy_fn, delete_fn, keyval, extra_state)
}

pub(crate) fn keyval_free(face: &Face, keyval: CountInOut) -> Result<()> {
    comm_free_keyval(face, keyval)
}

pub(crate) fn attr_put(face: &Face, comm: &Arc<Comm>, keyval: i32, attribute_val: *mut c_void) -> Result<()> {
    comm_set_attr(face, comm, keyval, attribute_val)
}

pub(crate) fn attr_get(
    face: &Face,
    comm: &Arc<Comm>,
    keyval: i32,
    attribute_val: Out<*mut c_void>,
    flag: Out<i32>,
) -> Result<()> {
    comm_get_attr(face, comm, keyval, attribute_val, flag)
}

pub(crate) fn attr_delete(face: &Face, comm: &Arc<Comm>, keyval: i32) -> Result<()> {
    comm_delete_attr(face, comm, keyval)
}

/// A key of the user for communicators.
fn own_key(face: &Face, number: i32) -> Result<Arc<Key<Comm>>> {
    if PredefinedAttribute::from_key(number).is_some() {
        return ErrorClass::Keyval.fail(format!("attribute {number} is predefined and cannot be changed"));
    }
    face.process().comm_keys.find(number)
}

fn copy_rule<K: Object<Value = Arc<K>>>(function: Option<CopyPointer<K>>, extra_state: *mut c_void) -> CopyRule<K> {
    let Some(function) = function else { return CopyRule::Never };
    if function as usize == DUP_FN {
        return CopyRule::Duplicate;
    }
    let extra_state = extra_state.expose_provenance();
    CopyRule::Call(Box::new(move |original, key, value| {
        let (mut copy, mut flag) = (ptr::null_mut::<c_void>(), 0);
        let extra_state = ptr::with_exposed_provenance_mut(extra_state);
        let (original, place) = (shown_handle::<K>(original), (&raw mut copy).cast());
        // SAFETY: the program's own function, called as the standard says.
        let code = unsafe { function(original, key, extra_state, pointer_of(value), place, &mut flag) };
        accepted(code, "copy", key)?;
        Ok((flag != 0).then(|| value_of(copy)))
    }))
}

fn delete_rule<K: Object<Value = Arc<K>>>(
    function: Option<DeletePointer<K>>,
    extra_state: *mut c_void,
) -> DeleteRule<K> {
    let Some(function) = function else { return DeleteRule::Nothing };
    let extra_state = extra_state.expose_provenance();
    DeleteRule::Call(Box::new(move |object, key, value| {
        let extra_state = ptr::with_exposed_provenance_mut(extra_state);
        // SAFETY: the program's own function, called as the standard says.
        let code = unsafe { function(shown_handle::<K>(object), key, pointer_of(value), extra_state) };
        accepted(code, "delete", key)
    }))
}

fn accepted(code: c_int, what: &str, key: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::from_code(code, format!("the {what} function of attribute key {key} returned {code}"))),
    }
}

fn predefined_value(face: &Face, attribute: PredefinedAttribute) -> Option<*mut c_void> {
    let value = attribute.value(face.world(), &face.process().registry)?;
    let place = PredefinedAttribute::ALL.iter().position(|known| *known == attribute);
    let place = &PREDEFINED[place.expect("the list names every attribute")];
    // Relaxed: a program that asks at the same time in two threads sees one value or the other.
    place.store(value, Ordering::Relaxed);
    Some(place.as_ptr().cast())
}

fn give(value: Option<*mut c_void>, attribute_val: Out<*mut c_void>, flag: Out<i32>) {
    if let Some(value) = value {
        attribute_val.set(value);
    }
    flag.set_flag(value.is_some());
}

fn value_of(pointer: *mut c_void) -> Value {
    Value(pointer.expose_provenance())
}

fn pointer_of(value: Value) -> *mut c_void {
    ptr::with_exposed_provenance_mut(value.0)
}
