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
    /// True if the operation was cancelled; the other fields then mean nothing.
    pub cancelled: bool,
}

impl Status {
    /// The empty status: any source, any tag, nothing received.
    ///
    /// MPI: §3.7.3
    pub const EMPTY: Status = Status { source: ANY_SOURCE, tag: ANY_TAG, len_bytes: 0, cancelled: false };

    /// The status of a receive from `MPI_PROC_NULL`.
    ///
    /// MPI: §3.10
    pub const PROC_NULL: Status = Status { source: PROC_NULL, tag: ANY_TAG, len_bytes: 0, cancelled: false };

    /// The status of an operation that was cancelled.
    pub const CANCELLED: Status = Status { cancelled: true, ..Status::EMPTY };
}
