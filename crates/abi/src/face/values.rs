//! What the parameters of a C call become for the chapter functions.
//!
//! Each type is made from a raw pointer by an entry point, which vouches for the memory; after that
//! its methods are safe. None outlives the call.

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;

use mpi_core::constants::UNDEFINED;

/// `MPI_IN_PLACE`.
pub const IN_PLACE: usize = 1;

/// True for the buffer address `MPI_IN_PLACE`.
#[inline]
pub fn is_in_place(buffer: *const u8) -> bool {
    buffer as usize == IN_PLACE
}

/// Where one value is to be written.
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `at` must be valid for writing for the length of the call.
    #[inline]
    pub(crate) unsafe fn new(at: *mut T) -> Self {
        Out(at)
    }

    /// Writes the value.
    #[inline]
    pub fn set(&self, value: T) {
        // SAFETY: valid for writing by the contract of `new`.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl Out<i32> {
    /// Writes a truth value as C knows it.
    #[inline]
    pub fn set_flag(&self, value: bool) {
        self.set(i32::from(value));
    }
}

/// Where one value or several may be written, or nothing is wanted; so in the tool interface.
pub struct OptionalOut<T>(*mut T);

impl<T> OptionalOut<T> {
    /// # Safety
    /// `at` must be null or valid for reading and writing, as far as the chapter function does that, for
    /// the length of the call.
    pub(crate) unsafe fn new(at: *mut T) -> Self {
        OptionalOut(at)
    }

    /// True if nothing is wanted.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the value, if it is wanted.
    pub fn set(&self, value: T) {
        self.set_at(0, value);
    }

    /// Writes the value at `index`, if it is wanted.
    pub fn set_at(&self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so valid for what the chapter writes by the contract of `new`.
            unsafe { self.0.add(index).write_unaligned(value) }
        }
    }

    /// The value that stands there.
    pub fn value(&self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: null or valid for reading by the contract of `new`.
        unsafe { self.0.as_ref() }.copied()
    }
}

impl OptionalOut<i32> {
    /// Gives a string the way the tool interface does: cut to what there is room for, its whole length
    /// with the terminating zero in the place of the room.
    pub fn set_text(&self, place: &StringOut<'_>, text: &str) {
        let Some(room) = self.value() else { return };
        if room > 0 {
            place.set_within(text, room as usize);
        }
        self.set(text.len() as i32 + 1);
    }
}

/// Where `len` values may be written.
pub struct OutArray<T> {
    start: *mut T,
    len: usize,
}

impl<T> OutArray<T> {
    /// # Safety
    /// `len` values at `start` must be valid for writing for the length of the call.
    #[inline]
    pub(crate) unsafe fn new(start: *mut T, len: usize) -> Self {
        OutArray { start, len }
    }

    /// Number of values there is room for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is room for nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes one value.
    ///
    /// # Panics
    /// If there is no room for it.
    #[inline]
    pub fn set(&self, index: usize, value: T) {
        assert!(index < self.len, "value {index} of an array with room for {}", self.len);
        // SAFETY: `index` was checked, and the memory is valid by the contract of `new`.
        unsafe { self.start.add(index).write_unaligned(value) }
    }
}

/// An array of counts or displacements, 32 or 64 bits wide each.
#[derive(Clone, Copy)]
pub enum Counts<'a> {
    /// From the small form of a call.
    Small(&'a [i32]),
    /// From the large-count form.
    Large(&'a [i64]),
}

impl Counts<'_> {
    /// Number of values.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Counts::Small(values) => values.len(),
            Counts::Large(values) => values.len(),
        }
    }

    /// True if there are none, also if the array is not significant in this call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One value.
    ///
    /// # Panics
    /// If `index` is not below [`Counts::len`].
    #[inline]
    pub fn at(&self, index: usize) -> i64 {
        match self {
            Counts::Small(values) => i64::from(values[index]),
            Counts::Large(values) => values[index],
        }
    }

    /// All values, widened.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = i64> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }
}

/// A place for one count, 32 or 64 bits wide.
pub enum CountOut {
    /// In the small form of a call.
    Small(Out<i32>),
    /// In the large-count form.
    Large(Out<i64>),
}

impl CountOut {
    /// Writes the count; `MPI_UNDEFINED` if it does not fit.
    #[inline]
    pub fn set(&self, value: i64) {
        match self {
            CountOut::Small(out) => out.set(narrow(value)),
            CountOut::Large(out) => out.set(value),
        }
    }
}

/// A count that is read and written.
pub enum CountInOut {
    /// In the small form of a call.
    Small(*mut i32),
    /// In the large-count form.
    Large(*mut i64),
}

impl CountInOut {
    /// # Safety
    /// `at` must be valid for reading and writing for the length of the call.
    pub(crate) unsafe fn small(at: *mut i32) -> Self {
        CountInOut::Small(at)
    }

    /// # Safety
    /// As [`CountInOut::small`].
    pub(crate) unsafe fn large(at: *mut i64) -> Self {
        CountInOut::Large(at)
    }

    /// What stands there.
    pub fn value(&self) -> i64 {
        match *self {
            // SAFETY: valid by the contract of `small`.
            CountInOut::Small(at) => i64::from(unsafe { at.read_unaligned() }),
            // SAFETY: valid by the contract of `large`.
            CountInOut::Large(at) => unsafe { at.read_unaligned() },
        }
    }

    /// Writes the count; `MPI_UNDEFINED` if it does not fit.
    pub fn set(&self, value: i64) {
        match *self {
            // SAFETY: valid by the contract of `small`.
            CountInOut::Small(at) => unsafe { at.write_unaligned(narrow(value)) },
            // SAFETY: valid by the contract of `large`.
            CountInOut::Large(at) => unsafe { at.write_unaligned(value) },
        }
    }
}

/// Places for several counts.
pub enum CountsOut {
    /// In the small form of a call.
    Small(OutArray<i32>),
    /// In the large-count form.
    Large(OutArray<i64>),
}

impl CountsOut {
    /// Number of counts there is room for.
    pub fn len(&self) -> usize {
        match self {
            CountsOut::Small(out) => out.len(),
            CountsOut::Large(out) => out.len(),
        }
    }

    /// True if there is room for nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes one count; `MPI_UNDEFINED` if it does not fit.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn set(&self, index: usize, value: i64) {
        match self {
            CountsOut::Small(out) => out.set(index, narrow(value)),
            CountsOut::Large(out) => out.set(index, value),
        }
    }
}

fn narrow(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(UNDEFINED)
}

/// Where a string is to be written, terminated by a zero byte.
pub struct StringOut<'a> {
    start: *mut c_char,
    capacity: usize,
    life: PhantomData<&'a mut c_char>,
}

impl StringOut<'_> {
    /// A place for `capacity` bytes, the terminating one included; `usize::MAX` if the chapter knows.
    ///
    /// # Safety
    /// `start` must be null or valid for writing that many bytes (what the chapter function says it
    /// may write, if it knows) for the length of the call.
    pub(crate) unsafe fn new(start: *mut c_char, capacity: usize) -> Self {
        StringOut { start, capacity, life: PhantomData }
    }

    /// True if the program wants no string.
    pub fn is_null(&self) -> bool {
        self.start.is_null()
    }

    /// Writes as much of `text` as there is room for and returns the number of bytes written, the
    /// terminating one not counted.
    pub fn set(&self, text: &str) -> c_int {
        self.set_within(text, usize::MAX)
    }

    /// The same, where the call itself says how many bytes there is room for (the terminating one
    /// included).
    pub fn set_within(&self, text: &str, capacity: usize) -> c_int {
        let room = capacity.min(self.capacity);
        if self.start.is_null() || room == 0 {
            return 0;
        }
        let len = text.floor_char_boundary(room - 1);
        // SAFETY: `len` is less than the room there is by the contract of `new`.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.start.cast::<u8>(), len) };
        // SAFETY: as above; the terminating byte was left room for.
        unsafe { self.start.add(len).write(0) };
        len as c_int
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_do_not_fit_are_undefined() {
        let mut narrow_place = 0i32;
        // SAFETY: a local variable.
        CountOut::Small(unsafe { Out::new(&mut narrow_place) }).set(1 << 40);
        assert_eq!(narrow_place, UNDEFINED);
        let mut position = 5i32;
        // SAFETY: a local variable.
        let in_out = unsafe { CountInOut::small(&mut position) };
        assert_eq!(in_out.value(), 5);
        in_out.set(9);
        assert_eq!(position, 9);
        assert_eq!(Counts::Small(&[1, -2]).iter().collect::<Vec<_>>(), [1, -2]);
    }

    #[test]
    fn strings_are_cut_between_characters() {
        let mut place = [1 as c_char; 8];
        let check = |place: &mut [c_char; 8], text: &str, capacity, expected: &str| {
            // SAFETY: at most `capacity` of 8 bytes are written.
            let out = unsafe { StringOut::new(place.as_mut_ptr(), capacity) };
            assert_eq!(out.set(text) as usize, expected.len());
            // SAFETY: it was terminated.
            let written = unsafe { std::ffi::CStr::from_ptr(place.as_ptr()) };
            assert_eq!(written.to_str(), Ok(expected));
        };
        check(&mut place, "eisen", 8, "eisen");
        check(&mut place, "eisenbahn", 8, "eisenba");
        check(&mut place, "grün", 4, "gr");
        check(&mut place, "x", 1, "");
    }

    #[test]
    #[should_panic(expected = "room for 2")]
    fn arrays_have_ends() {
        let mut place = [0i32; 2];
        // SAFETY: a local array of that length.
        unsafe { OutArray::new(place.as_mut_ptr(), 2) }.set(2, 1);
    }
}
