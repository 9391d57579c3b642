//! What can be sent: plain values of one size, all of whose bytes are data.

use num_complex::Complex;

pub use datatype::Basic;

/// A type whose values are their bytes.
///
/// Implemented for integers, floating-point and complex numbers, [`Bool`] and arrays of elements. `bool`, `char` and
/// references are no elements, because a sender could make up bytes that are none of their values.
///
/// A `struct` of yours becomes one so:
///
/// ```
/// use ferrovia::{Basic, Element};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f64,
/// }
///
/// // SAFETY: four `f64` without gaps, for which all bytes are good.
/// unsafe impl Element for Particle {
///     const LEAF: Basic = Basic::Double;
///     const LEAVES: usize = 4;
/// }
/// ```
///
/// `bool` is not an element:
///
/// ```compile_fail,E0277
/// # fn demo(world: ferrovia::Communicator<'_>) -> ferrovia::Result<()> {
/// world.send(&[true, false], 0, 0)
/// # }
/// ```
///
/// # Safety
/// - Every pattern of `size_of::<Self>()` bytes is a value, and no byte of a value is padding.
/// - `LEAF` describes the bytes of `LEAVES` equal parts that fill the type; [`Basic::Byte`] always will, once per byte.
///
/// MPI: §3.2.2, §5.1.2
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The predefined type of each part.
    const LEAF: Basic;
    /// Number of parts.
    const LEAVES: usize = 1;
}

// SAFETY: a plain number.
unsafe impl Element for i8 {
    const LEAF: Basic = Basic::Int8;
}
// SAFETY: a plain number.
unsafe impl Element for i16 {
    const LEAF: Basic = Basic::Int16;
}
// SAFETY: a plain number.
unsafe impl Element for i32 {
    const LEAF: Basic = Basic::Int32;
}
// SAFETY: a plain number.
unsafe impl Element for i64 {
    const LEAF: Basic = Basic::Int64;
}
// SAFETY: a plain number.
unsafe impl Element for u8 {
    const LEAF: Basic = Basic::Uint8;
}
// SAFETY: a plain number.
unsafe impl Element for u16 {
    const LEAF: Basic = Basic::Uint16;
}
// SAFETY: a plain number.
unsafe impl Element for u32 {
    const LEAF: Basic = Basic::Uint32;
}
// SAFETY: a plain number.
unsafe impl Element for u64 {
    const LEAF: Basic = Basic::Uint64;
}
// SAFETY: a plain number, 64 bits wide where this compiles.
#[cfg(target_pointer_width = "64")]
unsafe impl Element for isize {
    const LEAF: Basic = Basic::Int64;
}
// SAFETY: a plain number, 64 bits wide where this compiles.
#[cfg(target_pointer_width = "64")]
unsafe impl Element for usize {
    const LEAF: Basic = Basic::Uint64;
}
// SAFETY: a plain number.
unsafe impl Element for f32 {
    const LEAF: Basic = Basic::Float;
}
// SAFETY: a plain number.
unsafe impl Element for f64 {
    const LEAF: Basic = Basic::Double;
}
// SAFETY: two plain numbers in `repr(C)`.
unsafe impl Element for Complex<f32> {
    const LEAF: Basic = Basic::CFloatComplex;
}
// SAFETY: two plain numbers in `repr(C)`.
unsafe impl Element for Complex<f64> {
    const LEAF: Basic = Basic::CDoubleComplex;
}
// SAFETY: an array is its elements, one after the other.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const LEAF: Basic = T::LEAF;
    const LEAVES: usize = N * T::LEAVES;
}
// SAFETY: a byte, all of whose values are good.
unsafe impl Element for Bool {
    const LEAF: Basic = Basic::CBool;
}

/// A truth value that may come from another process: one byte, anything but 0 is true.
///
/// ```
/// use ferrovia::Bool;
/// assert!(bool::from(Bool::from(true)));
/// assert_eq!(Bool::from(false), Bool::default());
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(u8);

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool(value.into())
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> Self {
        value.0 != 0
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        bool::from(*self) == bool::from(*other)
    }
}

impl Eq for Bool {}

impl std::fmt::Debug for Bool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", bool::from(*self))
    }
}

/// Bytes of one element; a type without any does not compile.
pub(crate) const fn size_bytes<T: Element>() -> usize {
    const { assert!(size_of::<T>() > 0, "an element has at least one byte") };
    size_of::<T>()
}

/// A vector of `len` elements that are all zero bytes.
pub(crate) fn zeroed<T: Element>(len: usize) -> Vec<T> {
    // SAFETY: every pattern of bytes is a value of an element.
    let zero = unsafe { std::mem::zeroed::<T>() };
    vec![zero; len]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>() {
        assert_eq!(T::LEAF.size() as usize * T::LEAVES, size_of::<T>(), "{}", std::any::type_name::<T>());
    }

    #[test]
    fn leaves_fill_their_type() {
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
        check::<isize>();
        check::<usize>();
        check::<f32>();
        check::<f64>();
        check::<Complex<f32>>();
        check::<Complex<f64>>();
        check::<Bool>();
        check::<[[f32; 3]; 5]>();
        check::<[u8; 7]>();
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        assert_eq!(Bool(7), Bool::from(true));
        assert_ne!(Bool(7), Bool::from(false));
        assert_eq!(format!("{:?}", Bool(2)), "true");
    }
}
