//! Work completions: how requests end.

use crate::QpNumber;

/// How a work request ended; the names are the verbs' own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum WcStatus {
    /// Done.
    #[default]
    Success,
    /// The message was longer than the receive it met, or than the device moves at once.
    LocalLengthError,
    /// The request does not fit the queue pair.
    LocalQueuePairOperationError,
    /// The scatter/gather list names memory that is not registered so.
    LocalProtectionError,
    /// The queue pair was in the error state, or went there first.
    WorkRequestFlushed,
    /// The peer answered something that makes no sense.
    BadResponse,
    /// Local memory refused an incoming operation.
    LocalAccessError,
    /// The peer could not take this message: too long for its receive, or not a kind it serves.
    RemoteInvalidRequest,
    /// Key, bounds or rights did not hold at the target.
    RemoteAccessError,
    /// The peer failed while it carried the request out.
    RemoteOperationError,
    /// The peer is gone, or does not answer.
    TransportRetryExceeded,
    /// The peer posted no receive in the time the retries give.
    ReceiverNotReadyRetryExceeded,
    /// The device itself failed.
    GeneralError,
}

/// What a completion completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompletionOpcode {
    /// A send, with or without immediate data.
    #[default]
    Send,
    /// An RDMA write, with or without immediate data.
    RdmaWrite,
    /// An RDMA read.
    RdmaRead,
    /// A fetch-add.
    FetchAdd,
    /// A compare-swap.
    CompareSwap,
    /// A receive that a send filled.
    Receive,
    /// A receive that an RDMA write with immediate data consumed; its memory is untouched.
    ReceiveRdmaWithImmediate,
}

/// What a completion queue yields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkCompletion {
    /// The work request's id.
    pub id: u64,
    /// How it ended. When it is not [`WcStatus::Success`], only `id`, `status` and `qp` mean something.
    pub status: WcStatus,
    /// What ended.
    pub opcode: CompletionOpcode,
    /// Bytes moved; for datagrams received, the header in front of the message is counted.
    pub bytes: u64,
    /// Immediate data of a receive.
    pub immediate: Option<u32>,
    /// The queue pair it was posted to or, for a receive of a shared queue, came through.
    pub qp: QpNumber,
    /// The sender of a received datagram.
    pub source: Option<QpNumber>,
}

/// Which completions ring an armed completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotifyOn {
    /// The next of any kind.
    Any,
    /// The next receive whose sender asked for it, or the next failure.
    Solicited,
}
