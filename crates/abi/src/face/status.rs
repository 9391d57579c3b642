//! `MPI_Status` of the standard ABI, and places for some.
//!
//! MPI: §3.2.5, §20.2.3

use mpi_core::Status;

use super::values::{Out, OutArray};

/// The 32 bytes of `MPI_Status`. Ours to use are the last five: the packed length of the message in
/// two, whether it was cancelled in one.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_snake_case, missing_docs, reason = "the names of the standard")]
pub struct CStatus {
    pub MPI_SOURCE: i32,
    pub MPI_TAG: i32,
    pub MPI_ERROR: i32,
    internal: [i32; 5],
}

const _: () = assert!(size_of::<CStatus>() == 32 && align_of::<CStatus>() == 4);

const LEN_LOW: usize = 0;
const LEN_HIGH: usize = 1;
const CANCELLED: usize = 2;

impl CStatus {
    /// What a finished operation leaves; the error field says success.
    pub fn new(status: &Status) -> Self {
        let mut this = CStatus { MPI_SOURCE: status.source(), MPI_TAG: status.tag(), MPI_ERROR: 0, internal: [0; 5] };
        this.set_len_bytes(status.len_bytes);
        this.set_cancelled(status.is_cancelled());
        this
    }

    /// Packed length of the message in bytes.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        u64::from(self.internal[LEN_LOW] as u32) | u64::from(self.internal[LEN_HIGH] as u32) << 32
    }

    /// Sets the packed length of the message.
    #[inline]
    pub fn set_len_bytes(&mut self, len_bytes: u64) {
        self.internal[LEN_LOW] = len_bytes as u32 as i32;
        self.internal[LEN_HIGH] = (len_bytes >> 32) as u32 as i32;
    }

    /// True if the operation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.internal[CANCELLED] != 0
    }

    /// Sets whether the operation was cancelled.
    #[inline]
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[CANCELLED] = i32::from(cancelled);
    }

    /// The status of an operation as the inner crates know it.
    pub fn to_status(&self) -> Status {
        Status::of_message(self.MPI_SOURCE, self.MPI_TAG, self.len_bytes()).with_cancelled(self.is_cancelled())
    }
}

/// Where a status is to be written, or nowhere (`MPI_STATUS_IGNORE`).
#[derive(Clone, Copy)]
pub struct StatusOut(*mut CStatus);

impl StatusOut {
    /// # Safety
    /// `at` must be null or valid for writing for the length of the call.
    #[inline]
    pub(crate) unsafe fn new(at: *mut CStatus) -> Self {
        StatusOut(at)
    }

    /// Writes all but the error field, which calls for a single operation leave alone.
    ///
    /// MPI: §3.2.5
    #[inline]
    pub fn set(&self, status: &Status) {
        if self.0.is_null() {
            return;
        }
        let full = CStatus::new(status);
        // SAFETY: valid for writing by the contract of `new`.
        unsafe { (&raw mut (*self.0).MPI_SOURCE).write(full.MPI_SOURCE) };
        // SAFETY: as above.
        unsafe { (&raw mut (*self.0).MPI_TAG).write(full.MPI_TAG) };
        // SAFETY: as above.
        unsafe { (&raw mut (*self.0).internal).write(full.internal) };
    }

    /// Writes the error field.
    pub fn set_error(&self, code: i32) {
        if !self.0.is_null() {
            // SAFETY: valid for writing by the contract of `new`.
            unsafe { (&raw mut (*self.0).MPI_ERROR).write(code) };
        }
    }

    /// Writes a whole status, the error field included.
    pub fn copy(&self, status: &CStatus) {
        if !self.0.is_null() {
            // SAFETY: valid for writing by the contract of `new`.
            unsafe { Out::new(self.0) }.set(*status);
        }
    }
}

/// Where statuses are to be written, or nowhere (`MPI_STATUSES_IGNORE`).
pub struct StatusesOut(OutArray<CStatus>, bool);

impl StatusesOut {
    /// # Safety
    /// `start` must be null or valid for writing `len` statuses for the length of the call.
    #[inline]
    pub(crate) unsafe fn new(start: *mut CStatus, len: usize) -> Self {
        // SAFETY: nothing is written if `start` is null, see `set` and `set_failed`.
        StatusesOut(unsafe { OutArray::new(start, len) }, start.is_null())
    }

    /// True if the program wants no statuses.
    pub fn is_ignored(&self) -> bool {
        self.1
    }

    /// Writes the status of an operation that succeeded.
    ///
    /// # Panics
    /// If there is no room for it.
    #[inline]
    pub fn set(&self, index: usize, status: &Status) {
        if !self.1 {
            self.0.set(index, CStatus::new(status));
        }
    }

    /// Writes what is known of an operation that failed, and the number of its error.
    ///
    /// # Panics
    /// If there is no room for it.
    pub fn set_failed(&self, index: usize, status: &Status, code: i32) {
        if !self.1 {
            self.0.set(index, CStatus { MPI_ERROR: code, ..CStatus::new(status) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_the_c_program() {
        let status = Status::of_message(3, 9, (5 << 32) + 0xFFFF_FFFE).with_cancelled(true);
        assert_eq!(CStatus::new(&status).to_status(), status);
    }

    #[test]
    fn single_calls_leave_the_error_field_alone() {
        let mut place = CStatus { MPI_ERROR: 77, ..CStatus::new(&Status::EMPTY) };
        // SAFETY: a local variable.
        let out = unsafe { StatusOut::new(&mut place) };
        out.set(&Status::of_message(1, Status::EMPTY.tag(), 0));
        assert_eq!((place.MPI_SOURCE, place.MPI_ERROR), (1, 77));
        // SAFETY: null is allowed.
        unsafe { StatusOut::new(std::ptr::null_mut()) }.set(&Status::EMPTY);
    }
}
