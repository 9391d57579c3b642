//! One queue pair: its attributes, its state, and what is under way.

use std::collections::VecDeque;
use std::time::Duration;

use base::memory::ReadRange;
use fabric::{
    Access, Destination, FabricError, MulticastGroup, Operation, Payload, Qkey, QueuePairAttributes, QueuePairState,
    ReceiverNotReadyRetry, SendFlags, SendRequest, SrqNumber, Transport,
};

use super::lines::Lines;
use super::receive::{List, ReceiveQueue};
use super::regions::{Regions, Sources};
use super::shown::OfferedSend;
use crate::copying;
use crate::link::LinkPeer;

/// Requests of a queue pair sent and not answered, at most.
pub const WINDOW_MAX: usize = 1024;
/// Reads and atomics among them, at most.
pub(super) const READS_MAX: u32 = 64;

/// An entry of a send queue.
pub(super) struct Send {
    pub(super) id: u64,
    pub(super) operation: Operation,
    pub(super) list: List,
    pub(super) inline: Option<Box<[u8]>>,
    /// Instead of both: memory that is this send's alone until it is complete.
    pub(super) own: Option<ReadRange>,
    pub(super) destination: Destination,
    pub(super) flags: SendFlags,
    pub(super) len_bytes: u64,
}

impl Send {
    pub(super) fn of(request: &SendRequest<'_>) -> Self {
        let (list, inline) = match request.payload {
            Payload::Memory(list) => (List::from_slice(list), None),
            Payload::Inline(bytes) => (List::new(), Some(bytes.into())),
        };
        Self {
            id: request.id,
            operation: request.operation,
            list,
            inline,
            own: None,
            destination: request.destination,
            flags: request.flags,
            len_bytes: request.payload.len_bytes(),
        }
    }

    /// One to a shared queue that brings its memory along.
    pub(super) fn lone(id: u64, queue: SrqNumber, memory: ReadRange) -> Self {
        Self {
            id,
            operation: Operation::Send,
            list: List::new(),
            inline: None,
            own: Some(memory),
            destination: Destination::SharedReceiveQueue(queue),
            flags: SendFlags::SIGNALLED,
            len_bytes: memory.len_bytes() as u64,
        }
    }

    /// Where its bytes are; `None` if a key, a bound or the domain is wrong.
    pub(super) fn sources(&self, regions: &Regions, domain: u32) -> Option<Sources> {
        match (&self.inline, self.own) {
            (Some(bytes), _) => Some(Sources::from_iter([copying::borrowed(bytes)])),
            (None, Some(memory)) => Some(Sources::from_iter([memory])),
            (None, None) => regions.sources(domain, &self.list),
        }
    }

    /// True if links may read its bytes where they are after it was sent: a region that goes is called back from them.
    pub(super) const fn is_lent(&self) -> bool {
        self.inline.is_none() && self.own.is_none()
    }
}

/// How long nothing is sent, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// The peer has no receive; it tells when it has.
    UntilReady(Duration),
    /// The peer is not connected yet.
    Until(Duration),
}

impl Hold {
    pub(super) const fn deadline(self) -> Duration {
        match self {
            Self::UntilReady(deadline) | Self::Until(deadline) => deadline,
        }
    }
}

/// A queue pair.
pub(super) struct QueuePairObject {
    pub(super) attributes: QueuePairAttributes,
    /// The number of the shared queue among the attributes. Each message asks for it; and made of the handle anew each time,
    /// compilers make it whether there is a handle or not, of which Valgrind complains.
    pub(super) shared: Option<u32>,
    pub(super) state: QueuePairState,
    /// Counts resets, so that what was under way before one is not taken for what came after.
    pub(super) epoch: u32,
    pub(super) access: Access,
    pub(super) qkey: Qkey,
    pub(super) peer: Option<LinkPeer>,
    pub(super) remote: u32,
    pub(super) receiver_not_ready_timer: Duration,
    pub(super) timeout: Duration,
    pub(super) retry_count: u8,
    pub(super) receiver_not_ready_retry: ReceiverNotReadyRetry,
    pub(super) groups: Vec<MulticastGroup>,

    /// Posted and not complete; the first `started` are sent.
    pub(super) sends: VecDeque<Send>,
    pub(super) started: usize,
    /// Sequence number of the first of `sends`.
    pub(super) first_sequence: u32,
    pub(super) reads_in_flight: u32,
    pub(super) hold: Option<Hold>,
    pub(super) retries: u8,
    /// It stands in the adapter's list of queue pairs with something to send.
    pub(super) listed: bool,

    pub(super) receives: ReceiveQueue,
    /// Sequence number of the next request of the peer.
    pub(super) expected: u32,
    /// Answers made and not sent yet.
    pub(super) unsent_answers: usize,
    /// Peers see it in the link's table.
    pub(super) published: bool,

    /// Sends on the link's board, all posted before those in `sends`.
    pub(super) offered: VecDeque<OfferedSend>,
    /// Nothing is offered any more.
    pub(super) by_packets: bool,
    /// Sends that wait for one queue each, and what is parked of those of the peer.
    pub(super) lines: Option<Box<Lines>>,
}

impl QueuePairObject {
    /// `shared` is the number of the shared queue among the attributes.
    pub(super) fn new(attributes: QueuePairAttributes, shared: Option<u32>) -> Self {
        Self {
            attributes,
            shared,
            state: QueuePairState::Reset,
            epoch: 0,
            access: Access::LOCAL,
            qkey: Qkey(0),
            peer: None,
            remote: 0,
            receiver_not_ready_timer: Duration::ZERO,
            timeout: Duration::ZERO,
            retry_count: 0,
            receiver_not_ready_retry: ReceiverNotReadyRetry::Forever,
            groups: Vec::new(),
            sends: VecDeque::new(),
            started: 0,
            first_sequence: 0,
            reads_in_flight: 0,
            hold: None,
            retries: 0,
            listed: false,
            receives: ReceiveQueue::new(attributes.receive_depth, attributes.receive_entries_max),
            expected: 0,
            unsent_answers: 0,
            published: false,
            offered: VecDeque::new(),
            by_packets: false,
            lines: None,
        }
    }

    /// Back to the beginning; requests vanish.
    pub(super) fn reset(&mut self) {
        let (epoch, listed, unsent_answers) = (self.epoch.wrapping_add(1), self.listed, self.unsent_answers);
        *self = Self { epoch, listed, unsent_answers, ..Self::new(self.attributes, self.shared) };
    }

    /// True if it takes what peers send.
    pub(super) fn is_taking(&self) -> bool {
        use QueuePairState::{ReadyToReceive, ReadyToSend, SendQueueDrained};
        matches!(self.state, ReadyToReceive | ReadyToSend | SendQueueDrained)
    }

    /// True if it is connected to queue pair `remote` of `peer`.
    pub(super) fn is_connected_to(&self, peer: LinkPeer, remote: u32) -> bool {
        self.peer == Some(peer) && self.remote == remote
    }

    pub(super) fn domain(&self) -> u32 {
        crate::numbered::number_of(self.attributes.protection_domain.0)
    }

    /// True if a request that needs no receive may be begun here and now: there is nothing before it.
    #[inline]
    pub(super) fn may_begin(&self, destination: &Destination) -> bool {
        self.state == QueuePairState::ReadyToSend
            && self.sends.is_empty()
            && self.offered.is_empty()
            && self.hold.is_none()
            && matches!(self.attributes.transport, Transport::ReliableConnection | Transport::XrcInitiator)
            && matches!(destination, Destination::Connected)
    }

    /// True if a send to a shared queue may go on the link's board without being posted: there is room for it, and nothing
    /// before it but what stands there.
    pub(super) fn may_offer_lone(&self) -> bool {
        self.state == QueuePairState::ReadyToSend
            && self.attributes.transport == Transport::XrcInitiator
            && self.attributes.independent_queues
            && !self.by_packets
            && self.sends.is_empty()
            && self.lines.as_ref().is_none_or(|lines| lines.len() == 0)
            && self.hold.is_none()
            && self.offered.len() < self.attributes.send_depth as usize
    }

    /// Whether a request can be posted at all; that it may still fail is another matter.
    pub(super) fn check(&self, request: &SendRequest<'_>, datagram_max_bytes: u32) -> Result<(), FabricError> {
        let refuse = |reason| Err(FabricError::InvalidRequest { operation: "post_send", reason });
        let limit = |what, asked: u64, max: u64| {
            if asked > max { Err(FabricError::BeyondLimit { what, asked, max }) } else { Ok(()) }
        };
        match request.payload {
            Payload::Memory(list) => {
                limit("entries of a send", list.len() as u64, self.attributes.send_entries_max.into())?;
            }
            Payload::Inline(bytes) => {
                limit("bytes of an inline payload", bytes.len() as u64, self.attributes.inline_max_bytes.into())?;
                if request.operation.returns_data() {
                    return refuse("what a read or an atomic brings needs registered memory");
                }
            }
        }
        if matches!(request.operation, Operation::FetchAdd { .. } | Operation::CompareSwap { .. })
            && request.payload.len_bytes() != 8
        {
            return refuse("an atomic brings 8 bytes");
        }
        match (self.attributes.transport, request.destination) {
            (Transport::ReliableConnection, Destination::Connected) => Ok(()),
            (Transport::ReliableConnection, _) => refuse("a connected queue pair has one destination"),
            (Transport::XrcInitiator, Destination::SharedReceiveQueue(_)) => Ok(()),
            (Transport::XrcInitiator, Destination::Connected) if !request.operation.takes_receive() => Ok(()),
            (Transport::XrcInitiator, _) => refuse("XRC sends name a shared receive queue"),
            (Transport::XrcTarget(_), _) => refuse("the receiving half of XRC does not send"),
            (Transport::UnreliableDatagram, Destination::Datagram { .. }) => {
                if !matches!(request.operation, Operation::Send | Operation::SendWithImmediate(_)) {
                    return refuse("datagrams are sent, nothing else");
                }
                limit("bytes of a datagram", request.payload.len_bytes(), datagram_max_bytes.into())
            }
            (Transport::UnreliableDatagram, _) => refuse("a datagram has an address"),
        }
    }

    /// Sends that are not complete.
    pub(super) fn send_count(&self) -> usize {
        self.sends.len() + self.offered.len() + self.lines.as_ref().map_or(0, |lines| lines.len())
    }

    /// The index of request `sequence` among those sent, if it is one.
    pub(super) fn in_flight(&self, sequence: u32) -> Option<usize> {
        let offset = sequence.wrapping_sub(self.first_sequence) as usize;
        (offset < self.started).then_some(offset)
    }
}
