//! The checks of [`check`](super::check), for what is tried before the whole of a call.
//!
//! Such a call takes a few nanoseconds, most of which would go into preparing for what may go wrong. Here it is tried without
//! that first: whatever is wrong is `None`, and the call is made again as every other one, which finds out what it was.

use std::sync::Arc;

use datatype::{Basic, Datatype};
use mpi_core::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL, TAG_UB};
use mpi_core::{Comm, Request};

use super::entry::Face;
use super::handle::Handle;
use super::objects::Object;
use super::values::is_in_place;
use crate::constants::MPI_REQUEST_NULL;

/// The object of a handle, not held.
///
/// # Safety
/// While the result is used the call runs no code of the user and frees nothing.
#[inline(always)]
pub(crate) unsafe fn object<K: Object>(face: &Face, _n: usize, handle: Handle<K>) -> Option<&'static K::Value> {
    // SAFETY: promised by the caller; the face of such a call is that of the only thread.
    unsafe { K::table(face.process()).peek(handle.value) }
}

/// The datatype of `count` elements, not held; see [`check::datatype`](super::check::datatype).
///
/// # Safety
/// As [`object`].
#[inline(always)]
pub(crate) unsafe fn datatype(
    face: &Face,
    n: usize,
    handle: Handle<Datatype>,
    count: i64,
) -> Option<&'static Arc<Datatype>> {
    let handle = if is_null_of_none(handle, count) { Handle::new(Basic::Byte.abi_handle()) } else { handle };
    // SAFETY: promised by the caller.
    unsafe { object(face, n, handle) }
}

/// True for the datatype of no elements that programs pass although it is none.
#[inline(always)]
pub(super) fn is_null_of_none(handle: Handle<Datatype>, count: i64) -> bool {
    count == 0 && handle.value == <Datatype as Object>::NULL
}

/// A communicator of this process alone.
#[inline(always)]
pub(crate) fn alone(comm: &Comm) -> Option<()> {
    comm.is_alone().then_some(())
}

/// A pointer that may not be null.
#[inline(always)]
pub(crate) fn pointer<T>(_face: &Face, _n: usize, pointer: *const T) -> Option<()> {
    (!pointer.is_null()).then_some(())
}

/// A datatype used in communication.
#[inline(always)]
pub(crate) fn committed(_face: &Face, _n: usize, datatype: &Datatype) -> Option<()> {
    datatype.is_committed().then_some(())
}

/// A count or length, not negative.
#[inline(always)]
pub(crate) fn not_negative(_face: &Face, _n: usize, value: i64) -> Option<()> {
    (value >= 0).then_some(())
}

/// The length of an array as an `usize`.
#[inline(always)]
pub(crate) fn length(_face: &Face, _n: usize, value: i64) -> Option<usize> {
    (value >= 0).then_some(value as usize)
}

/// The start of a buffer: null only if nothing is there, or if displacements are absolute.
#[inline(always)]
pub(crate) fn buffer(_face: &Face, _n: usize, buffer: *const u8, count: i64, datatype: &Datatype) -> Option<()> {
    let must_be_somewhere = || count > 0 && datatype.is_contiguous() && datatype.size() > 0;
    (!(buffer.is_null() && must_be_somewhere())).then_some(())
}

/// A buffer address that may not be `MPI_IN_PLACE` here.
#[inline(always)]
pub(crate) fn not_in_place(_face: &Face, _n: usize, buffer: *const u8) -> Option<()> {
    (!is_in_place(buffer)).then_some(())
}

/// The rank a message goes to.
#[inline(always)]
pub(crate) fn destination(_face: &Face, _n: usize, rank: i32, comm: &Comm) -> Option<()> {
    (rank == PROC_NULL || is_peer(rank, comm)).then_some(())
}

/// The rank a message comes from.
#[inline(always)]
pub(crate) fn source(_face: &Face, _n: usize, rank: i32, comm: &Comm) -> Option<()> {
    (rank == PROC_NULL || rank == ANY_SOURCE || is_peer(rank, comm)).then_some(())
}

/// True for a rank of those that messages and data are exchanged with.
#[inline(always)]
pub(super) fn is_peer(rank: i32, comm: &Comm) -> bool {
    rank >= 0 && (rank as u32) < comm.peer_count()
}

/// The tag of a message to be sent.
#[inline(always)]
pub(crate) fn tag(_face: &Face, _n: usize, tag: i32) -> Option<()> {
    (0..=TAG_UB).contains(&tag).then_some(())
}

/// The tag of a message to be received.
#[inline(always)]
pub(crate) fn tag_or_any(_face: &Face, _n: usize, tag: i32) -> Option<()> {
    (tag == ANY_TAG || (0..=TAG_UB).contains(&tag)).then_some(())
}

/// An array given by the program; null is the same as empty.
///
/// # Safety
/// `len` values at `start` must be readable for as long as the result is used.
#[inline(always)]
pub(crate) unsafe fn array<'a, T>(face: &Face, n: usize, start: *const T, len: usize) -> Option<&'a [T]> {
    if len == 0 {
        return Some(&[]);
    }
    pointer(face, n, start)?;
    // SAFETY: promised by the caller.
    Some(unsafe { std::slice::from_raw_parts(start, len) })
}

/// Requests, each of them null: where there are others, the call has more to do than can be tried.
#[inline(always)]
pub(crate) fn requests(_face: &Face, _n: usize, handles: &[Handle<Request>]) -> Option<()> {
    handles.iter().all(|handle| handle.value == MPI_REQUEST_NULL).then_some(())
}
