//! Handles: the integers by which C programs call our objects.
//!
//! ```text
//!  63            32 31 30       27 26         22 21              0
//! ┌────────────────┬──┬───────────┬─────────────┬─────────────────┐
//! │ generation / 32│ 0│   kind    │generation%32│      slot       │   made by us
//! └────────────────┴──┴───────────┴─────────────┴─────────────────┘
//!  0 … 0x0000_0FFF: predefined, values of the standard ABI
//! ```
//! The low 31 bits alone find the object, so that they can serve as a Fortran `INTEGER`.

use std::fmt;
use std::marker::PhantomData;

/// Handles up to this value are predefined by the standard ABI.
pub const PREDEFINED_MAX: usize = 0xFFF;
/// Bits of a slot's number.
pub const SLOT_BITS: u32 = 22;
const GENERATION_LOW_BITS: u32 = 5;
const KIND_SHIFT: u32 = SLOT_BITS + GENERATION_LOW_BITS;
const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// What kind of object a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the kinds are named like the objects")]
pub enum Kind {
    Comm = 1,
    Group,
    Datatype,
    Op,
    Info,
    Errhandler,
    Request,
    Message,
    Session,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Comm,
        Kind::Group,
        Kind::Datatype,
        Kind::Op,
        Kind::Info,
        Kind::Errhandler,
        Kind::Request,
        Kind::Message,
        Kind::Session,
    ];

    /// As one calls it in a sentence.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Comm => "communicator",
            Kind::Group => "group",
            Kind::Datatype => "datatype",
            Kind::Op => "reduction operation",
            Kind::Info => "info object",
            Kind::Errhandler => "error handler",
            Kind::Request => "request",
            Kind::Message => "message",
            Kind::Session => "session",
        }
    }
}

/// A handle as it stands in the C program: an integer the size of a pointer.
#[repr(transparent)]
pub struct Handle<K> {
    /// The bits of the pointer the program holds.
    pub value: usize,
    kind: PhantomData<fn() -> K>,
}

impl<K> Handle<K> {
    /// The handle with these bits.
    pub const fn new(value: usize) -> Self {
        Handle { value, kind: PhantomData }
    }
}

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Handle<K> {}

impl<K> PartialEq for Handle<K> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<K> Eq for Handle<K> {}

impl<K> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.value)
    }
}

/// The request of every send that was over when its call returned: there is nothing to wait for and nothing to tell,
/// so one handle, which is never released, serves them all.
pub(crate) const FINISHED_SEND: usize = Parts { kind: Kind::Request as u8, slot: 0, generation: 0 }.encode();

/// The parts of a handle of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    pub kind: u8,
    pub slot: usize,
    pub generation: u64,
}

impl Parts {
    /// The bits of the handle.
    #[inline]
    pub const fn encode(self) -> usize {
        let low_mask = (1 << GENERATION_LOW_BITS) - 1;
        let high = (self.generation >> GENERATION_LOW_BITS) as usize;
        let low = (self.generation & low_mask) as usize;
        high << 32 | (self.kind as usize) << KIND_SHIFT | low << SLOT_BITS | self.slot
    }

    /// What the bits of a handle that is not predefined say.
    #[inline]
    pub fn decode(value: usize) -> Parts {
        let low = (value >> SLOT_BITS) as u64 & ((1 << GENERATION_LOW_BITS) - 1);
        Parts {
            kind: (value >> KIND_SHIFT) as u8 & 0x1F,
            slot: Parts::slot_of(value),
            generation: (value as u64 >> 32) << GENERATION_LOW_BITS | low,
        }
    }

    /// The slot alone.
    #[inline]
    pub const fn slot_of(value: usize) -> usize {
        value & (SLOTS_MAX - 1)
    }

    /// The handle of the next generation in the same slot.
    #[inline]
    pub const fn next_generation(value: usize) -> usize {
        // The kind stands between the two parts of the generation: ones in its place hand the carry on.
        const KIND_MASK: usize = 0x1F << KIND_SHIFT;
        ((value | KIND_MASK).wrapping_add(1 << SLOT_BITS) & !KIND_MASK) | (value & KIND_MASK)
    }

    /// The kind, if it is one of ours.
    pub fn known_kind(self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == self.kind)
    }
}

/// The integer for a Fortran program: predefined values as they are, ours without the high half.
pub(crate) fn to_int(value: usize) -> i32 {
    value as u32 as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_encoding() {
        for (kind, slot, generation) in
            [(1, 0, 0), (8, SLOTS_MAX - 1, 31), (3, 77, 32), (5, 1, u64::from(u32::MAX)), (2, 4, (1 << 37) - 1)]
        {
            let parts = Parts { kind, slot, generation };
            let value = parts.encode();
            assert_eq!(Parts::decode(value), parts);
            assert!(value > PREDEFINED_MAX);
            assert!(to_int(value) > 0, "positive as a Fortran integer");
            let next = Parts::decode(Parts::next_generation(value));
            assert_eq!(next, Parts { generation: (generation + 1) % (1 << 37), ..parts });
        }
    }

    #[test]
    fn a_kind_has_a_noun() {
        let parts = Parts { kind: Kind::Op as u8, slot: 3, generation: 1 };
        assert_eq!(parts.known_kind().map(Kind::noun), Some("reduction operation"));
        assert_eq!(Parts { kind: 19, ..parts }.known_kind(), None);
    }
}
