//! Making datatypes, asking them, packing by hand.
//!
//! MPI: §5.1, §5.2, §5.3, §19.1.9

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use datatype::{
    ArrayOrder, Basic, Combiner, Darray, Datatype, Distribution, LentSendBuf, RecvBuf, SendBuf, SizedClass, TypeError,
    external32,
};
use mpi_core::constants::UNDEFINED;
use mpi_core::{Comm, Error, ErrorClass, Result};

use crate::constants::{
    MPI_COMBINER_F90_COMPLEX, MPI_COMBINER_F90_INTEGER, MPI_COMBINER_F90_REAL, MPI_ORDER_C, MPI_ORDER_FORTRAN,
    MPI_TYPECLASS_COMPLEX, MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL, MPIX_TYPECLASS_LOGICAL,
};
use crate::face::{CountInOut, CountOut, Counts, Face, Handle, InOutHandle, Out, OutArray, OutHandle, StringOut};

pub(crate) fn type_contiguous(
    face: &Face,
    count: i64,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::contiguous(count, oldtype))
}

pub(crate) fn type_vector(
    face: &Face,
    count: i64,
    blocklength: i64,
    stride: i64,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::vector(count, blocklength, stride, oldtype))
}

pub(crate) fn type_create_hvector(
    face: &Face,
    count: i64,
    blocklength: i64,
    stride_bytes: i64,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::hvector(count, blocklength, stride_bytes, oldtype))
}

pub(crate) fn type_indexed(
    face: &Face,
    _count: i64,
    blocklengths: Counts<'_>,
    displacements: Counts<'_>,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::indexed(&list(blocklengths), &list(displacements), oldtype))
}

pub(crate) fn type_create_hindexed(
    face: &Face,
    _count: i64,
    blocklengths: Counts<'_>,
    displacements: Counts<'_>,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::hindexed(&list(blocklengths), &list(displacements), oldtype))
}

pub(crate) fn type_create_indexed_block(
    face: &Face,
    _count: i64,
    blocklength: i64,
    displacements: Counts<'_>,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::indexed_block(blocklength, &list(displacements), oldtype))
}

pub(crate) fn type_create_hindexed_block(
    face: &Face,
    _count: i64,
    blocklength: i64,
    displacements: Counts<'_>,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::hindexed_block(blocklength, &list(displacements), oldtype))
}

pub(crate) fn type_create_struct(
    face: &Face,
    _count: i64,
    blocklengths: Counts<'_>,
    displacements: Counts<'_>,
    types: &[Arc<Datatype>],
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::create_struct(&list(blocklengths), &list(displacements), types))
}

pub(crate) fn type_create_subarray(
    face: &Face,
    _ndims: i32,
    sizes: Counts<'_>,
    subsizes: Counts<'_>,
    starts: Counts<'_>,
    order: i32,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    let order = array_order(order)?;
    give(face, newtype, Datatype::subarray(&list(sizes), &list(subsizes), &list(starts), order, oldtype))
}

pub(crate) fn type_create_darray(
    face: &Face,
    size: i32,
    rank: i32,
    _ndims: i32,
    gsizes: Counts<'_>,
    distribs: &[i32],
    dargs: &[i32],
    psizes: &[i32],
    order: i32,
    oldtype: &Arc<Datatype>,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    let distributions = distribs.iter().enumerate().map(|(index, value)| distribution(index, *value));
    let array = Darray {
        size: i64::from(size),
        rank: i64::from(rank),
        gsizes: list(gsizes),
        distributions: distributions.collect::<Result<_>>()?,
        dargs: dargs.iter().copied().map(i64::from).collect(),
        psizes: psizes.iter().copied().map(i64::from).collect(),
        order: array_order(order)?,
    };
    give(face, newtype, Datatype::darray(&array, oldtype))
}

pub(crate) fn type_create_resized(
    face: &Face,
    oldtype: &Arc<Datatype>,
    lb: i64,
    extent: i64,
    newtype: OutHandle<Datatype>,
) -> Result<()> {
    give(face, newtype, Datatype::resized(lb, extent, oldtype))
}

pub(crate) fn type_dup(face: &Face, oldtype: &Arc<Datatype>, newtype: OutHandle<Datatype>) -> Result<()> {
    // A program that sees a callback fail may look whether there is a copy.
    newtype.set_null();
    let copy = Datatype::dup(oldtype).map_err(type_error)?;
    face.process().type_attributes.copy(oldtype, &copy)?;
    newtype.set(face, copy)
}

pub(crate) fn type_create_f90_real(face: &Face, p: i32, r: i32, newtype: OutHandle<Datatype>) -> Result<()> {
    give_parametric(face, &newtype, [MPI_COMBINER_F90_REAL, p, r], || Datatype::f90_real(defined(p), defined(r)))
}

pub(crate) fn type_create_f90_complex(face: &Face, p: i32, r: i32, newtype: OutHandle<Datatype>) -> Result<()> {
    give_parametric(face, &newtype, [MPI_COMBINER_F90_COMPLEX, p, r], || Datatype::f90_complex(defined(p), defined(r)))
}

pub(crate) fn type_create_f90_integer(face: &Face, r: i32, newtype: OutHandle<Datatype>) -> Result<()> {
    give_parametric(face, &newtype, [MPI_COMBINER_F90_INTEGER, r, 0], || Datatype::f90_integer(i64::from(r)))
}

/// A type of Fortran that is made once for its parameters, since the program cannot free it.
fn give_parametric(
    face: &Face,
    newtype: &OutHandle<Datatype>,
    parameters: [c_int; 3],
    make: impl FnOnce() -> std::result::Result<Arc<Datatype>, TypeError>,
) -> Result<()> {
    let known = face.process().parametric_types.borrow().get(&parameters).cloned();
    if let Some(datatype) = known {
        newtype.show(face, &datatype);
        return Ok(());
    }
    let datatype = make().map_err(type_error)?;
    newtype.set(face, Arc::clone(&datatype))?;
    face.process().parametric_types.borrow_mut().insert(parameters, datatype);
    Ok(())
}

pub(crate) fn type_match_size(face: &Face, typeclass: i32, size: i32, datatype: OutHandle<Datatype>) -> Result<()> {
    let class = match typeclass {
        MPIX_TYPECLASS_LOGICAL => SizedClass::Logical,
        MPI_TYPECLASS_INTEGER => SizedClass::Integer,
        MPI_TYPECLASS_REAL => SizedClass::Real,
        MPI_TYPECLASS_COMPLEX => SizedClass::Complex,
        other => return ErrorClass::Arg.fail(format!("typeclass {other} is none of MPI_TYPECLASS_…")),
    };
    let found = u64::try_from(size).ok().and_then(|size| Basic::match_size(class, size));
    let Some(basic) = found else {
        return ErrorClass::Arg.fail(format!("there is no datatype of this class with {size} bytes"));
    };
    datatype.set(face, Arc::clone(&face.process().basic_datatype(basic)))
}

pub(crate) fn type_get_value_index(
    face: &Face,
    value_type: &Arc<Datatype>,
    index_type: &Arc<Datatype>,
    pair_type: OutHandle<Datatype>,
) -> Result<()> {
    let pair = match (value_type.as_basic(), index_type.as_basic()) {
        (Some(value), Some(index)) => Basic::pair_of(value, index),
        _ => None,
    };
    pair_type.set_or_null(face, pair.map(|basic| Arc::clone(&face.process().basic_datatype(basic))))
}

pub(crate) fn type_commit(_face: &Face, datatype: InOutHandle<Datatype>) -> Result<()> {
    datatype.object().commit();
    Ok(())
}

pub(crate) fn type_free(face: &Face, datatype: InOutHandle<Datatype>) -> Result<()> {
    if datatype.object().is_predefined() && !datatype.is_predefined() {
        return ErrorClass::Type.fail("the datatype is one of MPI_Type_create_f90_…, which cannot be freed");
    }
    if !datatype.is_predefined() {
        face.process().type_attributes.delete_all(datatype.object())?;
    }
    datatype.release(face)
}

#[inline]
pub(crate) fn type_size(_face: &Face, datatype: &Datatype, size: CountOut) -> Result<()> {
    size.set(datatype.size() as i64);
    Ok(())
}

#[inline]
pub(crate) fn type_size_x(_face: &Face, datatype: &Datatype, size: Out<i64>) -> Result<()> {
    size.set(datatype.size() as i64);
    Ok(())
}

#[inline]
pub(crate) fn type_get_extent(_face: &Face, datatype: &Datatype, lb: CountOut, extent: CountOut) -> Result<()> {
    lb.set(datatype.lb());
    extent.set(datatype.extent());
    Ok(())
}

#[inline]
pub(crate) fn type_get_extent_x(_face: &Face, datatype: &Datatype, lb: Out<i64>, extent: Out<i64>) -> Result<()> {
    lb.set(datatype.lb());
    extent.set(datatype.extent());
    Ok(())
}

#[inline]
pub(crate) fn type_get_true_extent(
    _face: &Face,
    datatype: &Datatype,
    true_lb: CountOut,
    true_extent: CountOut,
) -> Result<()> {
    true_lb.set(datatype.true_lb());
    true_extent.set(datatype.true_extent());
    Ok(())
}

#[inline]
pub(crate) fn type_get_true_extent_x(
    _face: &Face,
    datatype: &Datatype,
    true_lb: Out<i64>,
    true_extent: Out<i64>,
) -> Result<()> {
    true_lb.set(datatype.true_lb());
    true_extent.set(datatype.true_extent());
    Ok(())
}

pub(crate) fn type_get_envelope(
    _face: &Face,
    datatype: &Datatype,
    num_integers: CountOut,
    num_addresses: CountOut,
    num_large_counts: Option<CountOut>,
    num_datatypes: CountOut,
    combiner: Out<i32>,
) -> Result<()> {
    let envelope = datatype.envelope();
    num_integers.set(envelope.integers as i64);
    num_addresses.set(envelope.addresses as i64);
    if let Some(num_large_counts) = num_large_counts {
        num_large_counts.set(envelope.large_counts as i64);
    }
    num_datatypes.set(envelope.datatypes as i64);
    combiner.set(envelope.combiner as i32);
    Ok(())
}

pub(crate) fn type_get_contents(
    face: &Face,
    datatype: &Datatype,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: Option<i64>,
    max_datatypes: i64,
    integers: OutArray<i32>,
    addresses: OutArray<i64>,
    large_counts: Option<OutArray<i64>>,
    datatypes: OutArray<Handle<Datatype>>,
) -> Result<()> {
    let contents = datatype.contents();
    if datatype.envelope().combiner == Combiner::Named {
        return ErrorClass::Type.fail(format!("{} is predefined and has no contents", datatype.name()));
    }
    if max_large_counts.is_none() && !contents.large_counts.is_empty() {
        return ErrorClass::Type.fail("the datatype was made with large counts; ask MPI_Type_get_contents_c for them");
    }
    let rooms = [
        ("max_integers", max_integers, contents.integers.len()),
        ("max_addresses", max_addresses, contents.addresses.len()),
        ("max_large_counts", max_large_counts.unwrap_or(0), contents.large_counts.len()),
        ("max_datatypes", max_datatypes, contents.datatypes.len()),
    ];
    for (name, room, needed) in rooms {
        if room < needed as i64 {
            return ErrorClass::Arg.fail(format!("{name} = {room}, but there are {needed}"));
        }
    }
    for (index, value) in contents.integers.iter().enumerate() {
        let value = i32::try_from(*value);
        integers.set(index, value.map_err(|_| ErrorClass::ValueTooLarge.error("an argument does not fit an int"))?);
    }
    for (index, value) in contents.addresses.iter().enumerate() {
        addresses.set(index, *value);
    }
    for (index, value) in contents.large_counts.iter().enumerate() {
        large_counts.as_ref().expect("asked for where there are any").set(index, *value);
    }
    for (index, value) in contents.datatypes.into_iter().enumerate() {
        datatypes.set(index, Handle::new(face.handle_for::<Datatype>(value)?));
    }
    Ok(())
}

pub(crate) fn type_get_name(
    _face: &Face,
    datatype: Option<&Arc<Datatype>>,
    type_name: StringOut<'_>,
    resultlen: Out<i32>,
) -> Result<()> {
    let name = datatype.map_or_else(|| "MPI_DATATYPE_NULL".to_owned(), |datatype| datatype.name());
    resultlen.set(type_name.set(&name));
    Ok(())
}

pub(crate) fn type_set_name(_face: &Face, datatype: &Datatype, type_name: &CStr) -> Result<()> {
    datatype.set_name(&type_name.to_string_lossy());
    Ok(())
}

pub(crate) fn get_address(_face: &Face, location: *const u8, address: Out<i64>) -> Result<()> {
    address.set(location as i64);
    Ok(())
}

pub(crate) fn aint_add(base: i64, disp: i64) -> i64 {
    base.wrapping_add(disp)
}

pub(crate) fn aint_diff(addr1: i64, addr2: i64) -> i64 {
    addr1.wrapping_sub(addr2)
}

pub(crate) fn pack_size(_face: &Face, incount: i64, datatype: &Datatype, _comm: &Comm, size: CountOut) -> Result<()> {
    size.set((datatype.size() as i64).checked_mul(incount).unwrap_or(i64::from(UNDEFINED)));
    Ok(())
}

/// # Safety
/// `inbuf` holds `incount` elements of `datatype`, `outbuf` has room for `outsize` bytes.
#[inline]
pub(crate) unsafe fn pack(
    _face: &Face,
    inbuf: *const u8,
    incount: i64,
    datatype: &Arc<Datatype>,
    outbuf: *mut u8,
    outsize: i64,
    position: CountInOut,
    _comm: &Comm,
) -> Result<()> {
    // SAFETY: the caller's buffer, for the length of this call.
    let source = unsafe { LentSendBuf::new(inbuf, incount as u64, datatype) };
    // SAFETY: the caller's buffer, which has `outsize` bytes.
    let target = unsafe { packed_room(outbuf, outsize, &position, source.len_bytes(), "outsize") }?;
    let packed = source.pack_at(0, target);
    position.set(position.value() + packed as i64);
    Ok(())
}

/// # Safety
/// `inbuf` holds `insize` bytes, `outbuf` has room for `outcount` elements of `datatype`.
pub(crate) unsafe fn unpack(
    _face: &Face,
    inbuf: *const u8,
    insize: i64,
    position: CountInOut,
    outbuf: *mut u8,
    outcount: i64,
    datatype: &Arc<Datatype>,
    _comm: &Comm,
) -> Result<()> {
    // SAFETY: the caller's buffer, for the length of this call.
    let mut target = unsafe { RecvBuf::new(outbuf, outcount as u64, datatype) };
    // SAFETY: the caller's buffer, which has `insize` bytes and is only read.
    let source = unsafe { packed_room(inbuf.cast_mut(), insize, &position, target.len_bytes(), "insize") }?;
    let unpacked = target.unpack_at(0, source);
    position.set(position.value() + unpacked as i64);
    Ok(())
}

pub(crate) fn pack_external_size(
    _face: &Face,
    datarep: &CStr,
    incount: i64,
    datatype: &Datatype,
    size: CountOut,
) -> Result<()> {
    external32::check_representation(&datarep.to_string_lossy()).map_err(type_error)?;
    size.set(external32::size(incount as u64, datatype).map_err(type_error)? as i64);
    Ok(())
}

/// # Safety
/// As [`pack`].
pub(crate) unsafe fn pack_external(
    _face: &Face,
    datarep: &CStr,
    inbuf: *const u8,
    incount: i64,
    datatype: &Arc<Datatype>,
    outbuf: *mut u8,
    outsize: i64,
    position: CountInOut,
) -> Result<()> {
    external32::check_representation(&datarep.to_string_lossy()).map_err(type_error)?;
    let needed_bytes = external32::size(incount as u64, datatype).map_err(type_error)?;
    // SAFETY: the caller's buffer, for the length of this call.
    let source = unsafe { SendBuf::new(inbuf, incount as u64, datatype) };
    // SAFETY: the caller's buffer, which has `outsize` bytes.
    let target = unsafe { packed_room(outbuf, outsize, &position, needed_bytes, "outsize") }?;
    let packed = external32::pack(datatype, &source, target).map_err(type_error)?;
    position.set(position.value() + packed as i64);
    Ok(())
}

/// # Safety
/// As [`unpack`].
pub(crate) unsafe fn unpack_external(
    _face: &Face,
    datarep: &CStr,
    inbuf: *const u8,
    insize: i64,
    position: CountInOut,
    outbuf: *mut u8,
    outcount: i64,
    datatype: &Arc<Datatype>,
) -> Result<()> {
    external32::check_representation(&datarep.to_string_lossy()).map_err(type_error)?;
    let needed_bytes = external32::size(outcount as u64, datatype).map_err(type_error)?;
    // SAFETY: the caller's buffer, for the length of this call.
    let mut target = unsafe { RecvBuf::new(outbuf, outcount as u64, datatype) };
    // SAFETY: the caller's buffer, which has `insize` bytes and is only read.
    let source = unsafe { packed_room(inbuf.cast_mut(), insize, &position, needed_bytes, "insize") }?;
    let unpacked = external32::unpack(datatype, source, &mut target).map_err(type_error)?;
    position.set(position.value() + unpacked as i64);
    Ok(())
}

/// The `needed_bytes` from `position` on in a packed buffer of `size` bytes.
///
/// # Safety
/// `start` must be valid for `size` bytes for as long as the result is used.
#[inline]
unsafe fn packed_room<'a>(
    start: *mut u8,
    size: i64,
    position: &CountInOut,
    needed_bytes: u64,
    size_name: &str,
) -> Result<&'a mut [u8]> {
    let at = position.value();
    let room = u64::try_from(size - at).ok().filter(|_| at >= 0);
    match room {
        Some(room) if room >= needed_bytes => {}
        _ => return Err(no_packed_room(needed_bytes, at, size, size_name)),
    }
    if needed_bytes == 0 {
        return Ok(&mut []);
    }
    if start.is_null() {
        return ErrorClass::Buffer
            .fail(format!("the packed buffer is a null pointer, but {needed_bytes} bytes are needed"));
    }
    // SAFETY: position and length lie within what the caller has vouched for.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.add(at as usize), needed_bytes as usize) })
}

#[cold]
fn no_packed_room(needed_bytes: u64, at: i64, size: i64, size_name: &str) -> Error {
    ErrorClass::Truncate
        .error(format!("{needed_bytes} bytes from position {at} on are more than {size_name} = {size} has"))
}

fn give(face: &Face, newtype: OutHandle<Datatype>, made: std::result::Result<Arc<Datatype>, TypeError>) -> Result<()> {
    let datatype = made.map_err(type_error)?;
    if face.call().ends_with("_c") {
        datatype.declare_large_count();
    }
    newtype.set(face, datatype)
}

fn type_error(error: TypeError) -> Error {
    let class = match &error {
        TypeError::UnknownRepresentation { .. } => ErrorClass::UnsupportedDatarep,
        TypeError::BufferTooShort { .. } => ErrorClass::Truncate,
        TypeError::Unrepresentable { .. } => ErrorClass::Conversion,
        TypeError::Overflow { .. } | TypeError::TooDeep { .. } => ErrorClass::Type,
        _ => ErrorClass::Arg,
    };
    class.error(error.to_string())
}

fn list(counts: Counts<'_>) -> Vec<i64> {
    counts.iter().collect()
}

fn defined(value: i32) -> Option<i64> {
    (value != UNDEFINED).then_some(i64::from(value))
}

fn array_order(order: i32) -> Result<ArrayOrder> {
    match order {
        MPI_ORDER_C => Ok(ArrayOrder::C),
        MPI_ORDER_FORTRAN => Ok(ArrayOrder::Fortran),
        other => ErrorClass::Arg.fail(format!("order = {other} is neither MPI_ORDER_C nor MPI_ORDER_FORTRAN")),
    }
}

fn distribution(index: usize, value: i32) -> Result<Distribution> {
    let known = [Distribution::None, Distribution::Block, Distribution::Cyclic];
    let found = known.into_iter().find(|distribution| *distribution as i32 == value);
    found.ok_or_else(|| {
        ErrorClass::Arg.error(format!("array_of_distribs[{index}] = {value} is none of MPI_DISTRIBUTE_…"))
    })
}
