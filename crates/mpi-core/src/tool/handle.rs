//! Handles of the tool interface: the key of a slab and the kind of object.

use base::SlabKey;

use crate::error::{ErrorClass, Result};

/// What a handle stands for; never 0 or 1, which the standard uses for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Kind {
    Enumeration = 2,
    Control,
    Session,
    Performance,
    Registration,
    Instance,
}

const KIND_BITS: u32 = 4;

/// The handle of an entry; of its generation the lower 28 bits.
pub(super) fn encode(kind: Kind, key: SlabKey) -> u64 {
    key.to_bits() << KIND_BITS | kind as u64
}

/// The entry of a handle.
///
/// # Errors
/// `class` if it is of another kind.
pub(super) fn decode(kind: Kind, handle: u64, class: ErrorClass) -> Result<SlabKey> {
    if handle & ((1 << KIND_BITS) - 1) == kind as u64 {
        return Ok(SlabKey::from_bits(handle >> KIND_BITS));
    }
    Err(no_such(handle, class))
}

#[cold]
pub(super) fn no_such(handle: u64, class: ErrorClass) -> crate::Error {
    class.error(format!("{handle:#x} is no live handle of this kind"))
}
