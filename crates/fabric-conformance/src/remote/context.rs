//! This side of the stream: a context whose every call is made in the other process.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::{
    Access, AddressHandle, AsynchronousEvent, Capabilities, CompletionQueue, Context, DatagramAddress, Endpoint,
    FabricError, LocalMemory, MemoryRegion, MultiQueueReceive, MulticastGroup, NotifyOn, ProtectionDomain, QueuePair,
    QueuePairAttributes, QueuePairState, ReceiveRequest, SendRequest, SharedMemory, SharedReceiveQueue,
    SharedReceiveQueueAttributes, SrqNumber, Transition, WorkCompletion, XrcDomain,
};

use super::call::{self, Call, MemoryNumber, OwnedAddress, OwnedReceive, OwnedSend};
use super::wire::{Wire, from_bytes, to_bytes};

/// Something to read from and write to.
trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A process at the other end of a stream, where [`serve`](super::serve) opens contexts.
#[derive(Clone)]
pub struct Remote {
    /// Until it fails: an answer that comes late would be taken for the next one.
    stream: Arc<Mutex<Option<Box<dyn Stream>>>>,
}

/// Of a call that is not answered so much is shown, in characters.
const SHOWN_MAX: usize = 200;

impl Remote {
    /// The process at the other end of `stream`; over TCP, set `TCP_NODELAY`.
    pub fn new(stream: impl Read + Write + Send + 'static) -> Self {
        Self { stream: Arc::new(Mutex::new(Some(Box::new(stream)))) }
    }

    /// Has a context opened there, one at a time; `how` is what the opener there is given.
    ///
    /// # Errors
    /// What the opener says.
    ///
    /// # Panics
    /// If the other process has gone.
    pub fn open(&self, how: &str) -> Result<RemoteContext, String> {
        let capabilities = self.call::<Result<Capabilities, String>>(&Call::Open(how.to_owned()))?;
        Ok(RemoteContext { remote: self.clone(), capabilities })
    }

    /// Memory of the other process, registered in its context.
    pub(crate) fn registered(
        &self,
        domain: ProtectionDomain,
        len: usize,
        access: Access,
    ) -> Result<(RemoteBytes, MemoryRegion), FabricError> {
        self.memory(&Call::Register(domain, len, access), len)
    }

    /// The same, given out by its device.
    pub(crate) fn allocated(
        &self,
        domain: ProtectionDomain,
        len: usize,
        access: Access,
    ) -> Result<(RemoteBytes, MemoryRegion), FabricError> {
        self.memory(&Call::Allocate(domain, len, access), len)
    }

    fn memory(&self, make: &Call, len: usize) -> Result<(RemoteBytes, MemoryRegion), FabricError> {
        let (number, region) = self.call::<Result<_, FabricError>>(make)?;
        Ok((RemoteBytes { remote: self.clone(), number, len }, region))
    }

    /// True if the descriptor of the queue is readable now.
    pub(crate) fn is_readable(&self, queue: CompletionQueue) -> Result<bool, FabricError> {
        self.call(&Call::IsReadable(queue))
    }

    /// Has a call made and returns its answer.
    fn call<T: Wire>(&self, call: &Call) -> T {
        match self.exchange(call) {
            Ok(answer) => answer,
            Err(why) => {
                let shown: String = format!("{call:?}").chars().take(SHOWN_MAX).collect();
                panic!("the other process does not answer {shown}: {why}")
            }
        }
    }

    fn exchange<T: Wire>(&self, call: &Call) -> io::Result<T> {
        // A context is dropped in the middle of a panic, too.
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = stream.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
        let answer = ask(open, call);
        if answer.is_err() {
            *stream = None;
        }
        answer
    }
}

/// Sends a call and waits for its answer.
fn ask<T: Wire>(stream: &mut (impl Read + Write), call: &Call) -> io::Result<T> {
    call::send(stream, &to_bytes(call))?;
    match call::receive(stream)? {
        Some(answer) => from_bytes(&answer),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A context in another process.
///
/// Everything works but what concerns this process: it registers none of its memory, gives none out, and has no
/// descriptor here. The cases have memory of the other process, and ask there whether a descriptor is readable.
pub struct RemoteContext {
    remote: Remote,
    capabilities: Capabilities,
}

/// Registered bytes of the other process.
pub(crate) struct RemoteBytes {
    remote: Remote,
    number: MemoryNumber,
    len: usize,
}

impl RemoteContext {
    /// Where it is.
    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    fn call<T: Wire>(&self, call: &Call) -> T {
        self.remote.call(call)
    }
}

impl RemoteBytes {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        self.remote.call(&Call::Write(self.number, offset, bytes.into()))
    }

    pub(crate) fn fill(&self, byte: u8) {
        self.remote.call(&Call::Fill(self.number, byte))
    }

    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.remote.call::<Box<[u8]>>(&Call::Read(self.number, offset, len)).into()
    }
}

impl Drop for RemoteContext {
    fn drop(&mut self) {
        // The other process may have gone, which is what made a case fail.
        let _ = self.remote.exchange::<()>(&Call::Close);
    }
}

fn of_another_process<T>(operation: &'static str) -> Result<T, FabricError> {
    Err(FabricError::Unsupported { operation, reason: "the context is in another process" })
}

fn receives(requests: &[ReceiveRequest<'_>]) -> Vec<OwnedReceive> {
    requests.iter().map(OwnedReceive::new).collect()
}

/// Puts the completions of an answer where they are wanted.
fn polled(answer: Result<Vec<WorkCompletion>, FabricError>, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
    let found = answer?;
    into[..found.len()].copy_from_slice(&found);
    Ok(found.len())
}

impl Context for RemoteContext {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn allocate_protection_domain(&mut self) -> Result<ProtectionDomain, FabricError> {
        self.call(&Call::AllocateProtectionDomain)
    }

    fn deallocate_protection_domain(&mut self, domain: ProtectionDomain) -> Result<(), FabricError> {
        self.call(&Call::DeallocateProtectionDomain(domain))
    }

    fn register(&mut self, _: ProtectionDomain, _: LocalMemory, _: Access) -> Result<MemoryRegion, FabricError> {
        of_another_process("register")
    }

    fn allocate(
        &mut self,
        _: ProtectionDomain,
        _: usize,
        _: Access,
    ) -> Result<(MemoryRegion, SharedMemory), FabricError> {
        of_another_process("allocate")
    }

    fn deregister(&mut self, region: MemoryRegion) -> Result<(), FabricError> {
        self.call(&Call::Deregister(region))
    }

    fn create_completion_queue(&mut self, depth: u32) -> Result<CompletionQueue, FabricError> {
        self.call(&Call::CreateCompletionQueue(depth))
    }

    fn destroy_completion_queue(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        self.call(&Call::DestroyCompletionQueue(queue))
    }

    fn poll(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        polled(self.call(&Call::Poll(queue, into.len())), into)
    }

    fn poll_at_hand(&mut self, queue: CompletionQueue, into: &mut [WorkCompletion]) -> Result<usize, FabricError> {
        polled(self.call(&Call::PollAtHand(queue, into.len())), into)
    }

    fn arm(&mut self, queue: CompletionQueue, on: NotifyOn) -> Result<(), FabricError> {
        self.call(&Call::Arm(queue, on))
    }

    fn descriptor(&self, _: CompletionQueue) -> Result<BorrowedFd<'_>, FabricError> {
        of_another_process("descriptor")
    }

    fn acknowledge(&mut self, queue: CompletionQueue) -> Result<(), FabricError> {
        self.call(&Call::Acknowledge(queue))
    }

    fn open_xrc_domain(&mut self) -> Result<XrcDomain, FabricError> {
        self.call(&Call::OpenXrcDomain)
    }

    fn close_xrc_domain(&mut self, domain: XrcDomain) -> Result<(), FabricError> {
        self.call(&Call::CloseXrcDomain(domain))
    }

    fn create_shared_receive_queue(
        &mut self,
        attributes: &SharedReceiveQueueAttributes,
    ) -> Result<SharedReceiveQueue, FabricError> {
        self.call(&Call::CreateSharedReceiveQueue(*attributes))
    }

    fn destroy_shared_receive_queue(&mut self, queue: SharedReceiveQueue) -> Result<(), FabricError> {
        self.call(&Call::DestroySharedReceiveQueue(queue))
    }

    fn shared_receive_queue_number(&self, queue: SharedReceiveQueue) -> Result<SrqNumber, FabricError> {
        self.call(&Call::SharedReceiveQueueNumber(queue))
    }

    fn set_receive_limit(&mut self, queue: SharedReceiveQueue, limit: u32) -> Result<(), FabricError> {
        self.call(&Call::SetReceiveLimit(queue, limit))
    }

    fn post_shared_receive(
        &mut self,
        queue: SharedReceiveQueue,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<usize, FabricError> {
        self.call(&Call::PostSharedReceive(queue, receives(requests)))
    }

    fn post_multi_queue_receive(
        &mut self,
        queues: &[SharedReceiveQueue],
        request: &ReceiveRequest<'_>,
    ) -> Result<MultiQueueReceive, FabricError> {
        self.call(&Call::PostMultiQueueReceive(queues.to_vec(), OwnedReceive::new(request)))
    }

    fn withdraw_receive(&mut self, receive: MultiQueueReceive) -> Result<bool, FabricError> {
        self.call(&Call::WithdrawReceive(receive))
    }

    fn create_queue_pair(&mut self, attributes: &QueuePairAttributes) -> Result<QueuePair, FabricError> {
        self.call(&Call::CreateQueuePair(*attributes))
    }

    fn destroy_queue_pair(&mut self, qp: QueuePair) -> Result<(), FabricError> {
        self.call(&Call::DestroyQueuePair(qp))
    }

    fn endpoint(&self, qp: QueuePair) -> Result<Endpoint, FabricError> {
        self.call(&Call::Endpoint(qp))
    }

    fn modify(&mut self, qp: QueuePair, transition: &Transition) -> Result<(), FabricError> {
        self.call(&Call::Modify(qp, transition.clone()))
    }

    fn queue_pair_state(&self, qp: QueuePair) -> Result<QueuePairState, FabricError> {
        self.call(&Call::QueuePairState(qp))
    }

    fn post_send(&mut self, qp: QueuePair, requests: &[SendRequest<'_>]) -> Result<usize, FabricError> {
        self.call(&Call::PostSend(qp, requests.iter().map(OwnedSend::new).collect()))
    }

    fn post_receive(&mut self, qp: QueuePair, requests: &[ReceiveRequest<'_>]) -> Result<usize, FabricError> {
        self.call(&Call::PostReceive(qp, receives(requests)))
    }

    fn create_address_handle(
        &mut self,
        domain: ProtectionDomain,
        to: DatagramAddress<'_>,
    ) -> Result<AddressHandle, FabricError> {
        self.call(&Call::CreateAddressHandle(domain, OwnedAddress::new(to)))
    }

    fn destroy_address_handle(&mut self, address: AddressHandle) -> Result<(), FabricError> {
        self.call(&Call::DestroyAddressHandle(address))
    }

    fn attach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        self.call(&Call::AttachMulticast(qp, group))
    }

    fn detach_multicast(&mut self, qp: QueuePair, group: MulticastGroup) -> Result<(), FabricError> {
        self.call(&Call::DetachMulticast(qp, group))
    }

    fn next_event(&mut self) -> Option<AsynchronousEvent> {
        self.call(&Call::NextEvent)
    }
}
