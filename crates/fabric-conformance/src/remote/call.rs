//! What is asked of the other process, and how it travels: a length of four bytes, then as many.

use std::io::{self, Read, Write};

use fabric::{
    Access, AddressHandle, CompletionQueue, DatagramAddress, Destination, Endpoint, MemoryRegion, MultiQueueReceive,
    MulticastGroup, NotifyOn, Operation, Payload, ProtectionDomain, QueuePair, QueuePairAttributes, ReceiveRequest,
    ScatterGather, SendFlags, SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes, Transition, XrcDomain,
};

use super::wire::{Wire, fields, malformed, variants};

/// Longest message, in bytes: a case reads a few megabytes at once.
const MESSAGE_MAX_BYTES: u32 = 64 << 20;

/// A call. The answer is what the method of [`fabric::Context`] with that name returns, where no other is named.
#[derive(Debug)]
pub(super) enum Call {
    /// Opens a context, as the text says; answers with its capabilities, or why there is none.
    Open(String),
    /// Drops it. Answers with nothing.
    Close,
    AllocateProtectionDomain,
    DeallocateProtectionDomain(ProtectionDomain),
    Deregister(MemoryRegion),
    CreateCompletionQueue(u32),
    DestroyCompletionQueue(CompletionQueue),
    /// Answers with the completions, so many at most.
    Poll(CompletionQueue, usize),
    /// As [`Call::Poll`].
    PollAtHand(CompletionQueue, usize),
    Arm(CompletionQueue, NotifyOn),
    Acknowledge(CompletionQueue),
    /// True if the descriptor of the queue is readable now.
    IsReadable(CompletionQueue),
    OpenXrcDomain,
    CloseXrcDomain(XrcDomain),
    CreateSharedReceiveQueue(SharedReceiveQueueAttributes),
    DestroySharedReceiveQueue(SharedReceiveQueue),
    SharedReceiveQueueNumber(SharedReceiveQueue),
    SetReceiveLimit(SharedReceiveQueue, u32),
    PostSharedReceive(SharedReceiveQueue, Vec<OwnedReceive>),
    PostMultiQueueReceive(Vec<SharedReceiveQueue>, OwnedReceive),
    WithdrawReceive(MultiQueueReceive),
    CreateQueuePair(QueuePairAttributes),
    DestroyQueuePair(QueuePair),
    Endpoint(QueuePair),
    Modify(QueuePair, Transition),
    QueuePairState(QueuePair),
    PostSend(QueuePair, Vec<OwnedSend>),
    PostReceive(QueuePair, Vec<OwnedReceive>),
    CreateAddressHandle(ProtectionDomain, OwnedAddress),
    DestroyAddressHandle(AddressHandle),
    AttachMulticast(QueuePair, MulticastGroup),
    DetachMulticast(QueuePair, MulticastGroup),
    NextEvent,
    /// Registers so many bytes of the other process; answers with the number of this memory there and its region.
    Register(ProtectionDomain, usize, Access),
    /// The same with memory that the device gives out.
    Allocate(ProtectionDomain, usize, Access),
    /// Writes to a memory from an offset on. Answers with nothing.
    Write(MemoryNumber, usize, Box<[u8]>),
    /// Gives all bytes of a memory one value. Answers with nothing.
    Fill(MemoryNumber, u8),
    /// Answers with bytes of a memory, from an offset on so many.
    Read(MemoryNumber, usize, usize),
}

/// Which memory of the other process, in the order of registration.
pub(super) type MemoryNumber = usize;

variants! {
    Call {
        0 => Open(how),
        1 => Close,
        2 => AllocateProtectionDomain,
        3 => DeallocateProtectionDomain(domain),
        4 => Deregister(region),
        5 => CreateCompletionQueue(depth),
        6 => DestroyCompletionQueue(queue),
        7 => Poll(queue, count_max),
        8 => PollAtHand(queue, count_max),
        9 => Arm(queue, on),
        10 => Acknowledge(queue),
        11 => IsReadable(queue),
        12 => OpenXrcDomain,
        13 => CloseXrcDomain(domain),
        14 => CreateSharedReceiveQueue(attributes),
        15 => DestroySharedReceiveQueue(queue),
        16 => SharedReceiveQueueNumber(queue),
        17 => SetReceiveLimit(queue, limit),
        18 => PostSharedReceive(queue, requests),
        19 => PostMultiQueueReceive(queues, request),
        20 => WithdrawReceive(receive),
        21 => CreateQueuePair(attributes),
        22 => DestroyQueuePair(qp),
        23 => Endpoint(qp),
        24 => Modify(qp, transition),
        25 => QueuePairState(qp),
        26 => PostSend(qp, requests),
        27 => PostReceive(qp, requests),
        28 => CreateAddressHandle(domain, to),
        29 => DestroyAddressHandle(address),
        30 => AttachMulticast(qp, group),
        31 => DetachMulticast(qp, group),
        32 => NextEvent,
        33 => Register(domain, len, access),
        34 => Allocate(domain, len, access),
        35 => Write(memory, offset, bytes),
        36 => Fill(memory, byte),
        37 => Read(memory, offset, len),
    }
}

/// A [`SendRequest`] that owns what it names.
#[derive(Debug)]
pub(super) struct OwnedSend {
    id: u64,
    operation: Operation,
    payload: OwnedPayload,
    destination: Destination,
    flags: SendFlags,
}

/// A [`Payload`].
#[derive(Debug)]
enum OwnedPayload {
    Memory(Vec<ScatterGather>),
    Inline(Box<[u8]>),
}

fields! { OwnedSend { id, operation, payload, destination, flags } }
variants! { OwnedPayload { 0 => Memory(list), 1 => Inline(bytes), } }

impl OwnedSend {
    pub(super) fn new(request: &SendRequest<'_>) -> Self {
        let SendRequest { id, operation, payload, destination, flags } = *request;
        let payload = match payload {
            Payload::Memory(list) => OwnedPayload::Memory(list.to_vec()),
            Payload::Inline(bytes) => OwnedPayload::Inline(bytes.into()),
        };
        Self { id, operation, payload, destination, flags }
    }

    pub(super) fn request(&self) -> SendRequest<'_> {
        let payload = match &self.payload {
            OwnedPayload::Memory(list) => Payload::Memory(list),
            OwnedPayload::Inline(bytes) => Payload::Inline(bytes),
        };
        let Self { id, operation, destination, flags, .. } = *self;
        SendRequest { id, operation, payload, destination, flags }
    }
}

/// A [`ReceiveRequest`] that owns its list.
#[derive(Debug)]
pub(super) struct OwnedReceive {
    id: u64,
    list: Vec<ScatterGather>,
}

fields! { OwnedReceive { id, list } }

impl OwnedReceive {
    pub(super) fn new(request: &ReceiveRequest<'_>) -> Self {
        Self { id: request.id, list: request.list.to_vec() }
    }

    pub(super) fn request(&self) -> ReceiveRequest<'_> {
        ReceiveRequest { id: self.id, list: &self.list }
    }
}

/// A [`DatagramAddress`] that owns its endpoint.
#[derive(Debug)]
pub(super) enum OwnedAddress {
    Endpoint(Endpoint),
    Multicast(MulticastGroup),
}

variants! { OwnedAddress { 0 => Endpoint(endpoint), 1 => Multicast(group), } }

impl OwnedAddress {
    pub(super) fn new(address: DatagramAddress<'_>) -> Self {
        match address {
            DatagramAddress::Endpoint(endpoint) => Self::Endpoint(endpoint.clone()),
            DatagramAddress::Multicast(group) => Self::Multicast(group),
        }
    }

    pub(super) fn address(&self) -> DatagramAddress<'_> {
        match self {
            Self::Endpoint(endpoint) => DatagramAddress::Endpoint(endpoint),
            Self::Multicast(group) => DatagramAddress::Multicast(*group),
        }
    }
}

/// Sends one message.
pub(super) fn send(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len()).ok().filter(|len| *len <= MESSAGE_MAX_BYTES);
    let len = len.ok_or_else(|| malformed("a message that is too long"))?;
    // At once: half a message would be a packet of its own.
    stream.write_all(&[&len.to_le_bytes(), body].concat())?;
    stream.flush()
}

/// The next message; `None` if the stream has ended before it.
pub(super) fn receive(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    match stream.read(&mut len)? {
        0 => return Ok(None),
        had => stream.read_exact(&mut len[had..])?,
    }
    let len = u32::from_le_bytes(len);
    if len > MESSAGE_MAX_BYTES {
        return Err(malformed("a message that is too long"));
    }
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::super::wire::{from_bytes, to_bytes};
    use super::*;
    use base::SlabKey;
    use fabric::{
        ConnectOptions, DeviceKind, FabricError, Lkey, Qkey, QpNumber, RemoteMemory, Rkey, SrqNumber, Transport,
        WcStatus, WorkCompletion,
    };
    use std::fmt::Debug;

    /// It comes out as it went in; what is cut off or followed by more is refused.
    fn check<T: Wire + Debug>(value: T) {
        let bytes = to_bytes(&value);
        assert_eq!(format!("{:?}", from_bytes::<T>(&bytes).expect("the value")), format!("{value:?}"));
        (0..bytes.len()).for_each(|len| assert!(from_bytes::<T>(&bytes[..len]).is_err(), "{value:?} cut to {len}"));
        assert!(from_bytes::<T>(&[&bytes[..], &[0]].concat()).is_err(), "{value:?} and more");
    }

    #[test]
    fn calls_come_out_as_they_went_in() {
        let key = SlabKey::from_bits(0x0102_0304_0506_0708);
        let (qp, domain, queue) = (QueuePair(key), ProtectionDomain(key), SharedReceiveQueue(key));
        let endpoint = Endpoint::new(DeviceKind::Tcp, QpNumber(7), b"somewhere");
        let list = [ScatterGather { address: 1, len_bytes: 2, lkey: Lkey(3) }; 2];
        let remote = RemoteMemory { address: u64::MAX, rkey: Rkey(4) };
        let datagram = Destination::Datagram { address: AddressHandle(key), qp: QpNumber(5), qkey: Qkey(6) };
        let mut sends = crate::operations_of_every_kind(remote)
            .map(|operation| SendRequest::new(1, operation, Payload::Memory(&list)));
        sends[0].payload = Payload::Inline(b"bytes");
        sends[1].destination = datagram;
        sends[2].destination = Destination::SharedReceiveQueue(SrqNumber(8));
        check(Call::PostSend(qp, sends.iter().map(OwnedSend::new).collect()));
        check(Call::PostReceive(qp, vec![OwnedReceive::new(&ReceiveRequest { id: 1, list: &list })]));
        for transition in ConnectOptions::default().transitions(Some(endpoint.clone())) {
            check(Call::Modify(qp, transition));
        }
        let mut attributes = QueuePairAttributes::new(domain, CompletionQueue(key));
        (attributes.transport, attributes.shared_receives) = (Transport::XrcTarget(XrcDomain(key)), Some(queue));
        check(Call::CreateQueuePair(attributes));
        check(Call::CreateAddressHandle(domain, OwnedAddress::new(DatagramAddress::Endpoint(&endpoint))));
        check(Call::AttachMulticast(qp, MulticastGroup([9; 16])));
        check(Call::Write(1, 2, b"bytes".as_slice().into()));
        check(Call::Open("as the text says".into()));
    }

    #[test]
    fn answers_come_out_as_they_went_in() {
        check(Ok::<_, FabricError>(vec![WorkCompletion {
            status: WcStatus::GeneralError,
            ..WorkCompletion::default()
        }]));
        check(Err::<(), _>(FabricError::System { operation: "opening", reason: "no".into() }));
        check(Err::<usize, _>(FabricError::InUse { object: "queue", by: "queue pair" }));
    }

    #[test]
    fn no_number_stands_for_what_is_not_there() {
        assert!(from_bytes::<Call>(&[200]).is_err() && from_bytes::<bool>(&[2]).is_err());
        assert!(from_bytes::<Vec<u8>>(&u64::MAX.to_le_bytes()).is_err(), "a length beyond what came");
    }

    #[test]
    fn messages_keep_their_bounds_and_the_end_is_seen() {
        let mut stream = Vec::new();
        send(&mut stream, b"one").and_then(|()| send(&mut stream, b"")).expect("written");
        let mut from = stream.as_slice();
        assert_eq!([(); 3].map(|()| receive(&mut from).expect("read")), [Some(b"one".to_vec()), Some(vec![]), None]);
        assert!(receive(&mut &stream[..5]).is_err(), "it ends in a message");
        assert!(receive(&mut &u32::MAX.to_le_bytes()[..]).is_err(), "too long");
    }
}
