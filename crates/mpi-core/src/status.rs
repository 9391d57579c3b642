//! What is known about a message that was received, found or sent.
//!
//! MPI: §3.2.5

use crate::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL};

/// The status of one finished (or found) operation; its error travels beside it, in a `Result`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Rank of the sender in the communicator of the operation.
    pub source: i32,
    /// Tag of the message.
    pub tag: i32,
    /// Packed length of the message in bytes.
    pub len_bytes: u64,
    /// Not 0 if the operation was cancelled. A word, not a `bool`: results of waiting calls are enums around a status,
    /// and those are moved by words only if nothing smaller is left to put their variants into.
    cancelled: u64,
}

impl Status {
    /// The status of a message.
    #[inline]
    pub const fn of_message(source: i32, tag: i32, len_bytes: u64) -> Status {
        Status { source, tag, len_bytes, cancelled: 0 }
    }

    /// True if the operation was cancelled; the fields then mean nothing.
    #[inline]
    pub const fn is_cancelled(&self) -> bool {
        self.cancelled != 0
    }

    /// The same, cancelled or not.
    pub const fn with_cancelled(self, is_cancelled: bool) -> Status {
        Status { cancelled: is_cancelled as u64, ..self }
    }

    /// The empty status: any source, any tag, nothing received.
    ///
    /// MPI: §3.7.3
    pub const EMPTY: Status = Status::of_message(ANY_SOURCE, ANY_TAG, 0);

    /// The status of a receive from `MPI_PROC_NULL`.
    ///
    /// MPI: §3.10
    pub const PROC_NULL: Status = Status::of_message(PROC_NULL, ANY_TAG, 0);

    /// The status of an operation that was cancelled.
    pub const CANCELLED: Status = Status::EMPTY.with_cancelled(true);
}
