//! The requests a call is about, as a set for `mpi-core`.

use mpi_core::{Request, RequestSet};

use super::entry::Face;
use super::handle::Handle;
use crate::constants::MPI_REQUEST_NULL;

/// One request or an array of them, where the program keeps their handles.
pub struct Requests<'a> {
    face: &'a Face,
    start: *mut Handle<Request>,
    len: usize,
}

impl<'a> Requests<'a> {
    /// # Safety
    /// `len` handles at `start` must be valid for the length of the call; for writing, too, if the
    /// call can complete requests.
    #[inline]
    pub(crate) unsafe fn new(face: &'a Face, start: *mut Handle<Request>, len: usize) -> Self {
        Requests { face, start, len }
    }

    /// The handle at `index`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
    pub fn handle(&self, index: usize) -> Handle<Request> {
        assert!(index < self.len, "request {index} of {}", self.len);
        // SAFETY: `index` was checked, the array is valid by the contract of `new`.
        unsafe { self.start.add(index).read() }
    }

    /// True if the handle at `index` is `MPI_REQUEST_NULL`.
    pub fn is_null(&self, index: usize) -> bool {
        self.handle(index).value == MPI_REQUEST_NULL
    }

    /// Takes the request at `index` from the program and writes null.
    pub fn take(&self, index: usize) -> Option<Request> {
        let request = self.face.process().requests.take(self.handle(index).value).ok();
        self.forget(index);
        request
    }

    /// Writes null at `index`; copies of the handle there stay good.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn forget(&self, index: usize) {
        assert!(index < self.len, "request {index} of {}", self.len);
        // SAFETY: `index` was checked; valid for writing by the contract of `new`.
        unsafe { self.start.add(index).write(Handle::new(MPI_REQUEST_NULL)) };
    }
}

impl RequestSet for Requests<'_> {
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn with<R>(&self, index: usize, look: impl FnOnce(&mut Request) -> R) -> Option<R> {
        match self.handle(index).value {
            MPI_REQUEST_NULL => None,
            value => self.face.process().requests.with(value, look).ok(),
        }
    }

    fn remove(&self, index: usize) {
        drop(self.take(index));
    }
}
