//! Queue pairs: kinds, states, and the way from one state to the next.
//!
//! ```text
//!   Reset ──▶ Init ──▶ ReadyToReceive ──▶ ReadyToSend ◀──▶ SendQueueDrained
//!     ▲         any state ──▶ Error            any state ──▶ Reset
//!     └───────────────────────┘
//! ```

use std::time::Duration;

use crate::{Access, CompletionQueue, Endpoint, ProtectionDomain, Qkey, SharedReceiveQueue, XrcDomain};

/// What a queue pair carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// RC: one peer, everything arrives, once and in order.
    ReliableConnection,
    /// XRC, sending half: as RC, and each request names a shared receive queue of the peer.
    XrcInitiator,
    /// XRC, receiving half: takes what its peer sends into the shared receive queues of a domain.
    XrcTarget(XrcDomain),
    /// UD: datagrams to anybody, which may be lost. One that is too long for the receive it meets, with the place in front
    /// of it, is not cut off: an adapter drops it, or ends that receive with [`WcStatus::LocalLengthError`] and the
    /// receiving queue pair with it, as the software adapter does. Its sender learns of neither.
    ///
    /// [`WcStatus::LocalLengthError`]: crate::WcStatus::LocalLengthError
    UnreliableDatagram,
}

impl Transport {
    /// True if requests may be posted to its send queue.
    pub const fn sends(self) -> bool {
        !matches!(self, Self::XrcTarget(_))
    }

    /// True if it has a receive queue, its own or a shared one.
    pub const fn receives(self) -> bool {
        matches!(self, Self::ReliableConnection | Self::UnreliableDatagram)
    }

    /// True if it has one peer.
    pub const fn is_connected(self) -> bool {
        !matches!(self, Self::UnreliableDatagram)
    }
}

/// Life of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueuePairState {
    /// Made; nothing may be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// Messages are taken.
    ReadyToReceive,
    /// Work may be posted and is done.
    ReadyToSend,
    /// Sends may be posted and wait; those before have ended.
    SendQueueDrained,
    /// Something failed: everything posted is flushed.
    Error,
}

impl QueuePairState {
    /// True if a queue pair may be moved from here to `next` by its owner.
    pub const fn may_become(self, next: Self) -> bool {
        use QueuePairState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained};
        matches!(
            (self, next),
            (_, Reset | Error)
                | (Reset | Init, Init)
                | (Init, ReadyToReceive)
                | (ReadyToReceive, ReadyToSend)
                | (ReadyToSend, SendQueueDrained)
                | (SendQueueDrained, ReadyToSend)
        )
    }
}

/// How often a send is tried again when the peer has posted no receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverNotReadyRetry {
    /// So many times, at most 6; then the request fails.
    Count(u8),
    /// The device holds the send until there is a receive.
    Forever,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePairAttributes {
    /// What it carries.
    pub transport: Transport,
    /// Where its memory is registered.
    pub protection_domain: ProtectionDomain,
    /// Where its sends complete.
    pub send_completions: CompletionQueue,
    /// Where its receives complete.
    pub receive_completions: CompletionQueue,
    /// Takes receives from here instead of from a queue of its own.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Sends posted and not yet complete, at most.
    pub send_depth: u32,
    /// Receives posted and not yet complete, at most; 0 with a shared queue.
    pub receive_depth: u32,
    /// Entries of a scatter/gather list, at most, of a send.
    pub send_entries_max: u32,
    /// Entries of a scatter/gather list, at most, of a receive.
    pub receive_entries_max: u32,
    /// Bytes of an inline payload, at most.
    pub inline_max_bytes: u32,
    /// Beyond verbs, XRC only: a send that waits for a receive of its queue does not hold up those to other queues.
    /// Requests complete in order per queue then, and a message longer than the receive that is next waits for one that
    /// is long enough, instead of failing at both sides. Such a send waits for as long as it takes, whatever
    /// [`ReceiverNotReadyRetry`] says. Writes with immediate data stay in the line of the queue pair. Needs
    /// [`Capabilities::independent_queues`](crate::Capabilities::independent_queues).
    pub independent_queues: bool,
}

impl QueuePairAttributes {
    /// A reliable connection with queues of 64 and one completion queue.
    pub fn new(protection_domain: ProtectionDomain, completions: CompletionQueue) -> Self {
        Self {
            transport: Transport::ReliableConnection,
            protection_domain,
            send_completions: completions,
            receive_completions: completions,
            shared_receives: None,
            send_depth: 64,
            receive_depth: 64,
            send_entries_max: 4,
            receive_entries_max: 4,
            inline_max_bytes: 64,
            independent_queues: false,
        }
    }
}

/// What a shared receive queue is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedReceiveQueueAttributes {
    /// Where its memory is registered.
    pub protection_domain: ProtectionDomain,
    /// Receives posted and not yet complete, at most.
    pub depth: u32,
    /// Entries of a scatter/gather list, at most.
    pub entries_max: u32,
    /// Addressed by number through the target queue pairs of this domain; completions go to this queue.
    pub xrc: Option<(XrcDomain, CompletionQueue)>,
}

/// A step of a queue pair's life, as `ibv_modify_qp` takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transition {
    /// To [`QueuePairState::Reset`]: queues are emptied without completions.
    Reset,
    /// To [`QueuePairState::Init`].
    Init {
        /// What the peer may do through it, on top of what regions allow.
        access: Access,
        /// The key datagrams must carry; UD only.
        qkey: Qkey,
    },
    /// To [`QueuePairState::ReadyToReceive`].
    ReadyToReceive {
        /// The peer's queue pair; `None` for UD.
        remote: Option<Endpoint>,
        /// How long a sender waits before it tries a receiver again that was not ready.
        receiver_not_ready_timer: Duration,
    },
    /// To [`QueuePairState::ReadyToSend`], for the first time.
    ReadyToSend {
        /// How long an answer may take before a request is sent again.
        timeout: Duration,
        /// How often it is sent again, at most 7.
        retry_count: u8,
        /// And how often if the peer is not ready.
        receiver_not_ready_retry: ReceiverNotReadyRetry,
    },
    /// From [`QueuePairState::SendQueueDrained`] back to [`QueuePairState::ReadyToSend`].
    Resume,
    /// To [`QueuePairState::SendQueueDrained`], once what is under way has ended.
    Drain,
    /// To [`QueuePairState::Error`]: everything posted is flushed.
    Error,
}

impl Transition {
    /// Where it leads.
    pub const fn state(&self) -> QueuePairState {
        match self {
            Self::Reset => QueuePairState::Reset,
            Self::Init { .. } => QueuePairState::Init,
            Self::ReadyToReceive { .. } => QueuePairState::ReadyToReceive,
            Self::ReadyToSend { .. } | Self::Resume => QueuePairState::ReadyToSend,
            Self::Drain => QueuePairState::SendQueueDrained,
            Self::Error => QueuePairState::Error,
        }
    }

    /// True if a queue pair in `state` may take it.
    pub const fn fits(&self, state: QueuePairState) -> bool {
        match self {
            Self::Resume => matches!(state, QueuePairState::SendQueueDrained),
            Self::ReadyToSend { .. } => matches!(state, QueuePairState::ReadyToReceive),
            _ => state.may_become(self.state()),
        }
    }
}

/// The usual values on the way from [`QueuePairState::Reset`] to [`QueuePairState::ReadyToSend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// What the peer may do.
    pub access: Access,
    /// UD only.
    pub qkey: Qkey,
    /// See [`Transition::ReadyToReceive`].
    pub receiver_not_ready_timer: Duration,
    /// See [`Transition::ReadyToSend`].
    pub timeout: Duration,
    /// See [`Transition::ReadyToSend`].
    pub retry_count: u8,
    /// See [`Transition::ReadyToSend`].
    pub receiver_not_ready_retry: ReceiverNotReadyRetry,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            access: Access::REMOTE_ALL,
            qkey: Qkey(0),
            receiver_not_ready_timer: Duration::from_micros(640),
            timeout: Duration::from_millis(67),
            retry_count: 7,
            receiver_not_ready_retry: ReceiverNotReadyRetry::Forever,
        }
    }
}

impl ConnectOptions {
    /// The three transitions that connect a fresh queue pair to `remote` (`None`: a datagram queue pair).
    pub fn transitions(&self, remote: Option<Endpoint>) -> [Transition; 3] {
        [
            Transition::Init { access: self.access, qkey: self.qkey },
            Transition::ReadyToReceive { remote, receiver_not_ready_timer: self.receiver_not_ready_timer },
            Transition::ReadyToSend {
                timeout: self.timeout,
                retry_count: self.retry_count,
                receiver_not_ready_retry: self.receiver_not_ready_retry,
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_ready_is_the_only_way() {
        use QueuePairState::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained};
        let all = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, Error];
        let allowed = |from| all.into_iter().filter(move |to| QueuePairState::may_become(from, *to));
        assert!(allowed(Reset).eq([Reset, Init, Error]));
        assert!(allowed(Init).eq([Reset, Init, ReadyToReceive, Error]));
        assert!(allowed(ReadyToReceive).eq([Reset, ReadyToSend, Error]));
        assert!(allowed(ReadyToSend).eq([Reset, SendQueueDrained, Error]));
        assert!(allowed(SendQueueDrained).eq([Reset, ReadyToSend, Error]));
        assert!(allowed(Error).eq([Reset, Error]));
        let [init, receive, send] = ConnectOptions::default().transitions(None);
        assert!(init.fits(Reset) && receive.fits(Init) && send.fits(ReadyToReceive));
        assert!(!send.fits(SendQueueDrained) && Transition::Resume.fits(SendQueueDrained));
    }
}
