//! The checks of [`check`](super::check), for calls that only look at an object and return.
//!
//! Such a call takes a few nanoseconds, most of which would go into preparing for what may go wrong. Here it is tried without
//! that first: whatever is wrong is `None`, and the call is made again as every other one, which finds out what it was.

use super::entry::Face;
use super::handle::Handle;
use super::objects::Object;

/// The object of a handle, not held.
///
/// # Safety
/// While the result is used the call runs no code of the user and frees nothing.
#[inline(always)]
pub(crate) unsafe fn object<K: Object>(face: &Face, _n: usize, handle: Handle<K>) -> Option<&'static K::Value> {
    // SAFETY: promised by the caller; the face of such a call is that of the only thread.
    unsafe { K::table(face.process()).peek(handle.value) }
}

/// A pointer that may not be null.
#[inline(always)]
pub(crate) fn pointer<T>(_face: &Face, _n: usize, pointer: *const T) -> Option<()> {
    (!pointer.is_null()).then_some(())
}
