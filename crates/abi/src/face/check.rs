//! Arguments, checked with messages that name the parameter and its value.
//!
//! The checks are inlined into the entry points; the messages are made out of the way. `n` is the
//! number of the parameter in the C call, counted from 1. What is right is said in [`brief`](super::brief) where that
//! checks it, too; here is said what is wrong.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use datatype::{Basic, Datatype, Op};
use mpi_core::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL, TAG_UB};
use mpi_core::{Comm, Error, ErrorClass, Request, Result};

use super::brief;
use super::entry::{Face, describe};
use super::handle::{FINISHED_SEND, Handle, PREDEFINED_MAX};
use super::objects::Object;
use super::table::{Held, Lookup};
use crate::constants::{HANDLE_NAMES, MPI_REQUEST_NULL, MPI_ROOT, MPI_SUM};

/// The object of a handle.
#[inline(always)]
pub(crate) fn object<K: Object>(face: &Face, n: usize, handle: Handle<K>) -> Result<Held<K::Value>> {
    match K::table(face.process()).hold(handle.value) {
        Ok(held) => Ok(held),
        Err(why) => object_at_last::<K>(face, n, handle.value, why),
    }
}

/// The object of a handle that did not lead to it before, because the object was being made.
#[cold]
#[inline(never)]
fn object_at_last<K: Object>(face: &Face, n: usize, handle: usize, why: Lookup) -> Result<Held<K::Value>> {
    let table = K::table(face.process());
    let held = match why {
        Lookup::Dormant if table.wake(handle, K::is_ready) => table.hold(handle),
        Lookup::Dormant if LOOKS_ONLY.contains(&face.call()) => table.hold_dormant(handle),
        why => Err(why),
    };
    held.map_err(|why| parameter_object::<K>(face, n, handle, why))
}

/// Calls that need no other process and may look at a communicator that is still being made: programs do,
/// although the standard has them wait.
const LOOKS_ONLY: &[&str] = &[
    "MPI_Comm_rank",
    "MPI_Comm_size",
    "MPI_Comm_remote_size",
    "MPI_Comm_group",
    "MPI_Comm_remote_group",
    "MPI_Comm_test_inter",
    "MPI_Comm_compare",
    "MPI_Comm_get_name",
    "MPI_Comm_set_name",
    "MPI_Comm_get_errhandler",
    "MPI_Comm_set_errhandler",
    "MPI_Comm_get_attr",
    "MPI_Comm_set_attr",
    "MPI_Comm_delete_attr",
    "MPI_Comm_get_info",
    "MPI_Topo_test",
];

/// The object of a handle that may be null.
#[inline]
pub(crate) fn object_or_null<K: Object>(face: &Face, n: usize, handle: Handle<K>) -> Result<Option<Held<K::Value>>> {
    if handle.value == K::NULL {
        return Ok(None);
    }
    object(face, n, handle).map(Some)
}

/// The object of a handle that matters only at the leader of a group.
pub(crate) fn at_leader<K: Object>(
    face: &Face,
    n: usize,
    handle: Handle<K>,
    leader: i32,
    rank: impl Into<Option<u32>>,
) -> Result<Option<Held<K::Value>>> {
    if rank.into().is_none_or(|rank| i64::from(rank) != i64::from(leader)) {
        return Ok(None);
    }
    object(face, n, handle).map(Some)
}

/// A datatype of `count` elements. Of none, programs pass `MPI_DATATYPE_NULL`: it stands for `MPI_BYTE` then.
#[inline]
pub(crate) fn datatype(face: &Face, n: usize, handle: Handle<Datatype>, count: i64) -> Result<Held<Arc<Datatype>>> {
    if brief::is_null_of_none(handle, count) {
        return Ok(face.process().basic_datatype(Basic::Byte));
    }
    object(face, n, handle)
}

/// A datatype that is not significant in this call: `MPI_BYTE` if it is not even one.
pub(crate) fn insignificant_datatype(face: &Face, handle: Handle<Datatype>) -> Held<Arc<Datatype>> {
    let process = face.process();
    process.datatypes.hold(handle.value).unwrap_or_else(|_| process.basic_datatype(Basic::Byte))
}

/// An operation that is not significant in this call: `MPI_SUM` if it is not even one.
pub(crate) fn insignificant_op(face: &Face, handle: Handle<Op>) -> Held<Op> {
    let ops = &face.process().ops;
    ops.hold(handle.value).or_else(|_| ops.hold(MPI_SUM)).expect("the sum is predefined")
}

/// Datatypes of an array; `counts` says which of them matter.
pub(crate) fn datatypes(
    face: &Face,
    n: usize,
    handles: &[Handle<Datatype>],
    matters: impl Fn(usize) -> bool,
    in_communication: bool,
) -> Result<Vec<Arc<Datatype>>> {
    let mut all = Vec::with_capacity(handles.len());
    for (index, handle) in handles.iter().enumerate() {
        if !matters(index) {
            all.push(Arc::clone(&insignificant_datatype(face, *handle)));
            continue;
        }
        let held = face.process().datatypes.hold(handle.value).map_err(|why| {
            bad_object::<Datatype>(handle.value, why).within(format!("{}[{index}]", parameter(face, n)))
        })?;
        if in_communication && !held.is_committed() {
            return ErrorClass::Type
                .fail(format!("{}[{index}] is a datatype that was not committed", parameter(face, n)));
        }
        all.push(Arc::clone(&held));
    }
    Ok(all)
}

/// A datatype used in communication.
#[inline]
pub(crate) fn committed(face: &Face, n: usize, datatype: &Arc<Datatype>) -> Result<()> {
    brief::committed(face, n, datatype).ok_or_else(|| uncommitted(face, n, datatype))
}

/// A count or length, not negative.
#[inline]
pub(crate) fn not_negative(face: &Face, n: usize, value: i64) -> Result<()> {
    brief::not_negative(face, n, value).ok_or_else(|| negative(face, n, value))
}

/// A pointer that may not be null.
#[inline]
pub(crate) fn pointer<T>(face: &Face, n: usize, pointer: *const T) -> Result<()> {
    brief::pointer(face, n, pointer).ok_or_else(|| null(face, n))
}

/// The start of a buffer: null only if nothing is there, or if displacements are absolute.
#[inline]
pub(crate) fn buffer(face: &Face, n: usize, buffer: *const u8, count: i64, datatype: &Datatype) -> Result<()> {
    brief::buffer(face, n, buffer, count, datatype).ok_or_else(|| null_buffer(face, n, count))
}

/// A buffer address that may not be `MPI_IN_PLACE` here.
#[inline]
pub(crate) fn not_in_place(face: &Face, n: usize, buffer: *const u8) -> Result<()> {
    brief::not_in_place(face, n, buffer).ok_or_else(|| in_place(face, n))
}

/// The rank a message goes to.
#[inline]
pub(crate) fn destination(face: &Face, n: usize, rank: i32, comm: &Comm) -> Result<()> {
    brief::destination(face, n, rank, comm).ok_or_else(|| no_rank(face, n, rank, comm, ErrorClass::Rank))
}

/// The rank a message comes from.
#[inline]
pub(crate) fn source(face: &Face, n: usize, rank: i32, comm: &Comm) -> Result<()> {
    brief::source(face, n, rank, comm).ok_or_else(|| no_rank(face, n, rank, comm, ErrorClass::Rank))
}

/// The root of a collective call.
#[inline]
pub(crate) fn root(face: &Face, n: usize, rank: i32, comm: &Comm) -> Result<()> {
    let special = comm.is_inter() && (rank == PROC_NULL || rank == MPI_ROOT);
    if !brief::is_peer(rank, comm) && !special {
        return Err(no_rank(face, n, rank, comm, ErrorClass::Root));
    }
    Ok(())
}

/// True if the arguments that matter at the root only matter here.
#[inline]
pub(crate) fn is_root(rank: i32, comm: &Comm) -> bool {
    if comm.is_inter() { rank == MPI_ROOT } else { rank == comm.rank() as i32 }
}

/// True if the arguments of those who are not the root matter here; the root of an intracommunicator
/// is one of them, too.
#[inline]
pub(crate) fn is_member(root: i32, comm: &Comm) -> bool {
    !comm.is_inter() || root >= 0
}

/// True if any argument matters here.
#[inline]
pub(crate) fn takes_part(root: i32, comm: &Comm) -> bool {
    !comm.is_inter() || root != PROC_NULL
}

/// The tag of a message to be sent.
#[inline]
pub(crate) fn tag(face: &Face, n: usize, tag: i32) -> Result<()> {
    brief::tag(face, n, tag).ok_or_else(|| bad_tag(face, n, tag, ""))
}

/// The tag of a message to be received.
#[inline]
pub(crate) fn tag_or_any(face: &Face, n: usize, tag: i32) -> Result<()> {
    brief::tag_or_any(face, n, tag).ok_or_else(|| bad_tag(face, n, tag, " or MPI_ANY_TAG"))
}

/// Number of processes a collective call exchanges blocks with.
#[inline]
pub(crate) fn peer_count(comm: &Comm) -> u32 {
    comm.peer_count()
}

/// Number of processes that send to this one in a neighbourhood collective.
pub(crate) fn source_count(comm: &Comm) -> Result<usize> {
    Ok(comm.neighbours()?.sources().len())
}

/// Number of processes this one sends to in a neighbourhood collective.
pub(crate) fn destination_count(comm: &Comm) -> Result<usize> {
    Ok(comm.neighbours()?.destinations().len())
}

/// Requests, each null or live.
#[inline]
pub(crate) fn requests(face: &Face, n: usize, handles: &[Handle<Request>]) -> Result<()> {
    for (index, handle) in handles.iter().enumerate() {
        let needs_no_look = handle.value == MPI_REQUEST_NULL || handle.value == FINISHED_SEND;
        if !needs_no_look && !face.process().requests.is_live(handle.value) {
            return Err(bad_request(face, n, index, handles.len(), handle.value));
        }
    }
    Ok(())
}

/// An array given by the program; null is the same as empty.
///
/// # Safety
/// `len` values at `start` must be readable for as long as the result is used.
#[inline]
pub(crate) unsafe fn array<'a, T>(face: &Face, n: usize, start: *const T, len: usize) -> Result<&'a [T]> {
    // SAFETY: promised by the caller.
    unsafe { brief::array(face, n, start, len) }.ok_or_else(|| null(face, n))
}

/// Counts of which none may be negative.
#[inline]
pub(crate) fn none_negative(face: &Face, n: usize, counts: super::Counts<'_>) -> Result<()> {
    for (index, count) in counts.iter().enumerate() {
        if count < 0 {
            let message = format!("parameter {n} ({}[{index}]) = {count} is negative", face.parameter(n));
            return ErrorClass::Count.fail(message);
        }
    }
    Ok(())
}

/// A string given by the program.
///
/// # Safety
/// `text` must be null or terminated, and stay for as long as the result is used.
#[inline]
pub(crate) unsafe fn string<'a>(face: &Face, n: usize, text: *const c_char) -> Result<&'a CStr> {
    pointer(face, n, text)?;
    // SAFETY: promised by the caller, and not null.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// The length of an array as an `usize`; negative ones are an error.
#[inline]
pub(crate) fn length(face: &Face, n: usize, value: i64) -> Result<usize> {
    brief::length(face, n, value).ok_or_else(|| negative(face, n, value))
}

/// The name of a predefined handle, or its bits.
pub(crate) fn handle_name(value: usize) -> String {
    match HANDLE_NAMES.binary_search_by_key(&value, |(handle, _)| *handle) {
        Ok(at) => HANDLE_NAMES[at].1.to_owned(),
        Err(_) => format!("{value:#x}"),
    }
}

/// Why a handle is not one of an object of kind `K`, as a sentence.
#[cold]
pub(crate) fn bad_object<K: Object>(value: usize, why: Lookup) -> Error {
    let wanted = K::KIND.noun();
    let name = handle_name(value);
    K::CLASS.error(match why {
        Lookup::Dormant => {
            format!("{name} is a {wanted} that is still being made; the request of the call that makes it comes first")
        }
        Lookup::Freed => format!("{name} is a {wanted} that was freed"),
        Lookup::OtherKind(kind) => format!("{name} is the handle of a {}, not of a {wanted}", kind.noun()),
        Lookup::NotPredefined if value <= PREDEFINED_MAX => format!("{name} is not a {wanted}"),
        Lookup::NotPredefined | Lookup::Unknown => format!("{name} is not the handle of a {wanted}"),
    })
}

fn parameter(face: &Face, n: usize) -> String {
    format!("parameter {n} ({})", face.parameter(n))
}

#[cold]
#[inline(never)]
fn parameter_object<K: Object>(face: &Face, n: usize, value: usize, why: Lookup) -> Error {
    let mut error = bad_object::<K>(value, why);
    error.message = format!("{} = {}", parameter(face, n), error.message);
    error
}

#[cold]
#[inline(never)]
fn uncommitted(face: &Face, n: usize, datatype: &Datatype) -> Error {
    let name = match datatype.name() {
        name if name.is_empty() => datatype.described(),
        name => format!("the datatype {name}"),
    };
    ErrorClass::Type.error(format!(
        "{} is {name} that was not committed; call MPI_Type_commit before using it in communication",
        parameter(face, n)
    ))
}

#[cold]
#[inline(never)]
fn negative(face: &Face, n: usize, value: i64) -> Error {
    let class = if face.parameter(n).contains("count") { ErrorClass::Count } else { ErrorClass::Arg };
    class.error(format!("{} = {value} is negative", parameter(face, n)))
}

#[cold]
#[inline(never)]
fn null(face: &Face, n: usize) -> Error {
    ErrorClass::Arg.error(format!("{} is a null pointer", parameter(face, n)))
}

#[cold]
#[inline(never)]
fn null_buffer(face: &Face, n: usize, count: i64) -> Error {
    ErrorClass::Buffer.error(format!(
        "{} is a null pointer, but {count} elements of a datatype without absolute addresses are to be there",
        parameter(face, n)
    ))
}

#[cold]
#[inline(never)]
fn in_place(face: &Face, n: usize) -> Error {
    ErrorClass::Buffer.error(format!("{} = MPI_IN_PLACE is not legal here", parameter(face, n)))
}

#[cold]
#[inline(never)]
fn no_rank(face: &Face, n: usize, rank: i32, comm: &Comm, class: ErrorClass) -> Error {
    class.error(format!(
        "{} = {} is not a rank of {}{} (size {})",
        parameter(face, n),
        rank_name(rank),
        if comm.is_inter() { "the remote group of " } else { "" },
        describe(comm),
        comm.peer_count()
    ))
}

/// A rank in a sentence, special values by name.
fn rank_name(rank: i32) -> String {
    match rank {
        ANY_SOURCE => "MPI_ANY_SOURCE".to_owned(),
        PROC_NULL => "MPI_PROC_NULL".to_owned(),
        MPI_ROOT => "MPI_ROOT".to_owned(),
        rank => rank.to_string(),
    }
}

#[cold]
#[inline(never)]
fn bad_tag(face: &Face, n: usize, tag: i32, or: &str) -> Error {
    let tag = if tag == ANY_TAG { "MPI_ANY_TAG".to_owned() } else { tag.to_string() };
    ErrorClass::Tag.error(format!("{} = {tag} is not among 0 to {TAG_UB} (MPI_TAG_UB){or}", parameter(face, n)))
}

#[cold]
#[inline(never)]
fn bad_request(face: &Face, n: usize, index: usize, len: usize, value: usize) -> Error {
    let why = face.process().requests.with(value, |_| ()).err().unwrap_or(Lookup::Unknown);
    let mut error = bad_object::<Request>(value, why);
    let place = if len == 1 { String::new() } else { format!("[{index}]") };
    error.message = format!("parameter {n} ({}{place}) = {}", face.parameter(n), error.message);
    error
}

/// A callback that has to be given.
pub(crate) fn function<F>(face: &Face, n: usize, function: Option<F>) -> Result<F> {
    function.ok_or_else(|| null(face, n))
}
