//! The requests a call is about, as a set for `mpi-core`.

use mpi_core::{Request, RequestSet};

use super::entry::Face;
use super::handle::{FINISHED_SEND, Handle};
use crate::constants::MPI_REQUEST_NULL;

/// One request or an array of them, where the program keeps their handles.
#[derive(Clone, Copy)]
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

    /// Takes the request at `index` from the program and writes null.
    pub fn take(&self, index: usize) -> Option<Request> {
        let request = match self.handle(index).value {
            FINISHED_SEND => Some(Request::finished_send()),
            value => self.face.process().requests.take(value).ok(),
        };
        self.forget(index);
        request
    }

    /// Writes null at `index`; copies of the handle there stay good.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline]
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
    fn is_null(&self, index: usize) -> bool {
        self.handle(index).value == MPI_REQUEST_NULL
    }

    #[inline]
    fn with<R>(&self, index: usize, look: impl FnOnce(&mut Request) -> R) -> Option<R> {
        match self.handle(index).value {
            MPI_REQUEST_NULL => None,
            FINISHED_SEND => Some(look(&mut Request::finished_send())),
            value => self.face.process().requests.with(value, look).ok(),
        }
    }

    #[inline(always)]
    fn with_and_remove<R>(&self, index: usize, look: impl FnOnce(&mut Request) -> (R, bool)) -> Option<R> {
        let value = self.handle(index).value;
        if value == MPI_REQUEST_NULL {
            return None;
        }
        assert_ne!(value, FINISHED_SEND, "finished sends are taken before they are looked at");
        let (result, is_spent) = self.face.process().requests.with_and_forget(value, look).ok()?;
        if is_spent {
            self.forget(index);
        }
        Some(result)
    }

    fn remove(&self, index: usize) {
        drop(self.take(index));
    }

    #[inline]
    fn take_finished_send(&self, index: usize) -> bool {
        let is_finished = self.handle(index).value == FINISHED_SEND;
        if is_finished {
            self.forget(index);
        }
        is_finished
    }
}
