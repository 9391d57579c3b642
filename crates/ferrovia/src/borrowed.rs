//! Memory of the caller, lent to the library for a lifetime.
//!
//! The library below keeps addresses. Here an address comes with the lifetime of the slice it was taken from, and only
//! an unsafe step parts the two: whoever takes it answers for the library being done with the memory in time.

use std::marker::PhantomData;
use std::ptr::NonNull;

use datatype::{RecvBuf, SendBuf, UserMemory, UserMemoryMut};

use crate::element::{Element, size_bytes};

/// A value of the library below that holds addresses good for `'b`.
pub(crate) struct Borrowed<'b, A> {
    inner: A,
    _memory: PhantomData<&'b mut [u8]>,
}

impl<'b, A> Borrowed<'b, A> {
    /// A value without addresses.
    pub fn none(inner: A) -> Self {
        Borrowed { inner, _memory: PhantomData }
    }

    /// Makes a greater value of this one; `make` keeps nothing back.
    pub fn map<B>(self, make: impl FnOnce(A) -> B) -> Borrowed<'b, B> {
        Borrowed::none(make(self.inner))
    }

    /// Two values as one.
    pub fn with<B>(self, other: Borrowed<'b, B>) -> Borrowed<'b, (A, B)> {
        Borrowed::none((self.inner, other.inner))
    }

    /// The value without its lifetime.
    ///
    /// # Safety
    /// The value, and everything that took addresses from it, must be gone before `'b` ends.
    pub unsafe fn into_inner(self) -> A {
        self.inner
    }
}

/// Elements to send.
pub(crate) fn outgoing<'b, T: Element>(elements: &'b [T]) -> Borrowed<'b, SendBuf> {
    let len_bytes = elements.len() * size_bytes::<T>();
    // SAFETY: the slice has these bytes, all of them data, and nobody writes to them during `'b`.
    Borrowed::none(unsafe { SendBuf::bytes(elements.as_ptr().cast(), len_bytes as u64) })
}

/// Room for elements to receive.
pub(crate) fn incoming<'b, T: Element>(elements: &'b mut [T]) -> Borrowed<'b, RecvBuf> {
    let len_bytes = elements.len() * size_bytes::<T>();
    // SAFETY: the slice has these bytes, any of which make good elements, and nobody else uses them during `'b`.
    Borrowed::none(unsafe { RecvBuf::bytes(elements.as_mut_ptr().cast(), len_bytes as u64) })
}

/// Elements from which a collective reads; the counts beside them must stay within the slice.
pub(crate) fn reading<'b, T: Element>(elements: &'b [T]) -> Borrowed<'b, UserMemory> {
    // SAFETY: nobody writes to the slice during `'b`.
    Borrowed::none(unsafe { UserMemory::new(elements.as_ptr().cast()) })
}

/// Elements to which a collective writes; the counts beside them must stay within the slice.
pub(crate) fn writing<'b, T: Element>(elements: &'b mut [T]) -> Borrowed<'b, UserMemoryMut> {
    // SAFETY: nobody else uses the slice during `'b`.
    Borrowed::none(unsafe { UserMemoryMut::new(elements.as_mut_ptr().cast()) })
}

/// A slice that an operation under way writes to; its owner gets it back afterwards.
pub(crate) struct Loan<'b, T> {
    start: NonNull<T>,
    len: usize,
    _slice: PhantomData<&'b mut [T]>,
}

impl<'b, T: Element> Loan<'b, T> {
    /// Lends a slice out: what `lend` makes of it, with its addresses still bound to `'b`, and what its owner keeps.
    /// `lend` uses the slice for that only.
    pub fn new<A>(slice: &'b mut [T], lend: impl FnOnce(&'b mut [T]) -> A) -> (A, Loan<'b, T>) {
        let len = slice.len();
        let start = NonNull::from(&mut *slice).cast();
        // SAFETY: address and length of the slice; the loan does not touch it before it is given back.
        let again = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) };
        (lend(again), Loan { start, len, _slice: PhantomData })
    }

    /// The slice again.
    ///
    /// # Safety
    /// What the operation was given must be gone.
    pub unsafe fn give_back(mut self) -> &'b mut [T] {
        // SAFETY: address and length of the slice lent for `'b`, which nobody else uses any more.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_mut(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_comes_back_with_what_was_written() {
        let mut numbers = [1_u16, 2, 3];
        let (lent, loan) = Loan::new(&mut numbers, incoming::<u16>);
        // SAFETY: the buffer is dropped before the slice is used again.
        let mut buf = unsafe { lent.into_inner() };
        assert_eq!(buf.unpack_at(2, &[9, 0]), 2);
        drop(buf);
        // SAFETY: the buffer is gone.
        let back = unsafe { loan.give_back() };
        assert_eq!(back, [1, 9, 3]);
    }

    #[test]
    fn bytes_are_counted() {
        // SAFETY: the buffers end with their statements, before the slices.
        assert_eq!(unsafe { outgoing(&[0_u64; 3]).into_inner() }.len_bytes(), 24);
        // SAFETY: as above.
        assert_eq!(unsafe { incoming::<[u8; 3]>(&mut []).into_inner() }.len_bytes(), 0);
    }
}
