//! What is known about a message that was received, found or sent.
//!
//! MPI: §3.2.5

use crate::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL};

/// The status of one finished (or found) operation; its error travels beside it, in a `Result`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Rank of the sender above, tag of the message below. One word, not two halves: a status is handed on through
    /// memory, and a processor waits when it reads together what was just written in parts.
    label: u64,
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
        Status { label: (source as u32 as u64) << 32 | tag as u32 as u64, len_bytes, cancelled: 0 }
    }

    /// Rank of the sender in the communicator of the operation.
    #[inline]
    pub const fn source(&self) -> i32 {
        (self.label >> 32) as i32
    }

    /// Tag of the message.
    #[inline]
    pub const fn tag(&self) -> i32 {
        self.label as i32
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

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Status { len_bytes, cancelled, .. } = self;
        let (source, tag) = (self.source(), self.tag());
        write!(f, "Status {{ source: {source}, tag: {tag}, len_bytes: {len_bytes}, cancelled: {cancelled} }}")
    }
}
