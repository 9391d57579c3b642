//! Tuple queues on the device: queue pairs, queues, and what is posted to them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use base::Slab;
use base::SlabKey;
use base::memory::{ReadRange, WriteRange};
use datatype::{RecvBuf, SendBuf};
use fabric::{
    Access, ConnectOptions, Context, Destination, Endpoint, FabricError, LocalMemory, LoneSend, MemoryRegion,
    MultiQueueReceive, NotifyOn, Operation, Payload, QueuePair, QueuePairAttributes, ReceiveRequest, SendFlags,
    SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber, Transition, Transport,
};
use protocol::tupleq::{ReceiveTuples, SendTuples, Tuple};
use rustc_hash::FxHashMap;

use super::{
    COMPLETIONS_MAX, FLIGHTS_MAX, Flight, INLINE_MAX_BYTES, InQueue, MESSAGE_MAX_BYTES, QUEUE_DEPTH, TupleSetup,
    Tuples, Way,
};
use crate::request::{OutgoingSend, PeerId};

/// Receives that one queue holds: few, where whoever comes second moves the data at once and all queues share the room
/// to be shown; where that takes a while, as many as there may be messages that were matched and are on their way.
const fn depth(second_moves: bool) -> u32 {
    if second_moves { QUEUE_DEPTH } else { QUEUE_DEPTH + FLIGHTS_MAX as u32 }
}

/// A message on the device.
#[derive(Clone, Copy)]
pub(super) struct Launched {
    pub(super) flight: SlabKey,
    /// Its bytes are its caller's again.
    pub(super) is_copied: bool,
}

/// What became of a message that was to go on the device.
pub(super) enum Launch {
    /// It has met its receive, and is over.
    Done,
    /// It may be over, as polling tells.
    Posted(Launched),
    /// It is not over.
    Waits(Launched),
    /// The device has no room.
    NoRoom,
}

/// Posts a send to a queue; false if there is no room.
fn post(
    device: &mut dyn Context,
    qp: QueuePair,
    queue: SrqNumber,
    flight: SlabKey,
    payload: Payload<'_>,
) -> Result<bool, FabricError> {
    let request = SendRequest {
        id: flight.to_bits(),
        operation: Operation::Send,
        payload,
        destination: Destination::SharedReceiveQueue(queue),
        flags: SendFlags::SIGNALLED,
    };
    Ok(device.post_send(qp, &[request])? == 1)
}

impl Tuples {
    pub(crate) fn new(device: &mut dyn Context, setup: TupleSetup) -> Result<Self, FabricError> {
        if !device.capabilities().independent_queues {
            let reason = "its sends to shared queues wait in one line";
            return Err(FabricError::Unsupported { operation: "tuple queues", reason });
        }
        let domain = device.allocate_protection_domain()?;
        let completions = device.create_completion_queue(COMPLETIONS_MAX)?;
        let xrc = device.open_xrc_domain()?;
        let second_moves = device.capabilities().single_copy.is_ok();
        Ok(Self {
            setup,
            second_moves,
            depth: depth(second_moves),
            domain,
            completions,
            xrc,
            sending: SendTuples::default(),
            receiving: ReceiveTuples::new(setup.queues_max, setup.retreat_after),
            ways: FxHashMap::default(),
            targets: FxHashMap::default(),
            flights: Slab::new(),
            cancelling: FxHashMap::default(),
            stuck: Vec::new(),
            kept: FxHashMap::default(),
            boxes: Vec::new(),
        })
    }

    /// What is readable when the device has something to tell, after [`Tuples::arm`].
    pub(crate) fn descriptor(&self, device: &dyn Context) -> Result<OwnedFd, FabricError> {
        device.descriptor(self.completions)?.try_clone_to_owned().map_err(|why| FabricError::System {
            operation: "duplicating the completion descriptor",
            reason: why.to_string(),
        })
    }

    /// Whoever wants to sleep has said so: the descriptor tells of what comes from now on.
    #[cold]
    pub(crate) fn arm(&self, device: &mut dyn Context) {
        // A device that refuses is looked at when the sleep ends by itself.
        let _ = device.acknowledge(self.completions).and_then(|()| device.arm(self.completions, NotifyOn::Any));
    }

    /// Messages on the device that are not complete.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Sends that are being cancelled.
    pub(crate) fn cancelling(&self) -> usize {
        self.cancelling.len()
    }

    /// A send is over, whether its receiver has thrown the message away or not.
    #[cold]
    pub(crate) fn forget_cancel(&mut self, send: SlabKey) {
        if !self.cancelling.is_empty() {
            self.cancelling.remove(&send);
        }
    }

    /// True while the device has the message of a send.
    pub(super) fn is_in_flight(&self, send: SlabKey) -> bool {
        self.flights.iter().any(|(_, flight)| flight.send == Some(send))
    }

    pub(super) fn holds(&self, to: PeerId) -> bool {
        self.ways.get(&to).is_some_and(|way| !way.held.is_empty())
    }

    /// The device has no room for messages to a peer now.
    pub(super) fn wait_for_room(&mut self, to: PeerId) {
        if !self.is_stuck(to) {
            self.stuck.push(to);
        }
    }

    pub(super) fn is_stuck(&self, to: PeerId) -> bool {
        self.stuck.contains(&to)
    }

    pub(super) fn attributes(&self, transport: Transport) -> QueuePairAttributes {
        QueuePairAttributes {
            transport,
            receive_depth: 0,
            independent_queues: transport == Transport::XrcInitiator,
            send_depth: FLIGHTS_MAX as u32,
            inline_max_bytes: INLINE_MAX_BYTES as u32,
            ..QueuePairAttributes::new(self.domain, self.completions)
        }
    }

    /// The queue pair for messages to a peer, and where it is.
    pub(super) fn way(&mut self, device: &mut dyn Context, to: PeerId) -> Result<Vec<u8>, FabricError> {
        if !self.ways.contains_key(&to) {
            let qp = device.create_queue_pair(&self.attributes(Transport::XrcInitiator))?;
            self.ways.insert(to, Way { qp, is_connected: false, held: VecDeque::new() });
        }
        let qp = self.ways.get(&to).map(|way| way.qp).ok_or(FabricError::NoSuch("way"))?;
        Ok(device.endpoint(qp)?.to_bytes())
    }

    /// The queue pair for messages from a peer, connected to its `remote`, and where it is.
    pub(super) fn target(
        &mut self,
        device: &mut dyn Context,
        from: PeerId,
        remote: &[u8],
    ) -> Result<Vec<u8>, FabricError> {
        if let Some(qp) = self.targets.get(&from) {
            return Ok(device.endpoint(*qp)?.to_bytes());
        }
        let remote = Endpoint::parse(remote)?;
        let attributes = self.attributes(Transport::XrcTarget(self.xrc));
        let qp = device.create_queue_pair(&QueuePairAttributes { send_depth: 0, ..attributes })?;
        fabric::connect(device, qp, Some(remote), &ConnectOptions::default())?;
        self.targets.insert(from, qp);
        Ok(device.endpoint(qp)?.to_bytes())
    }

    pub(super) fn connect(&mut self, device: &mut dyn Context, to: PeerId, remote: &[u8]) -> Result<(), FabricError> {
        let way = self.ways.get_mut(&to).ok_or(FabricError::NoSuch("way"))?;
        if !way.is_connected {
            let remote = Endpoint::parse(remote)?;
            fabric::connect(device, way.qp, Some(remote), &ConnectOptions::default())?;
            way.is_connected = true;
        }
        Ok(())
    }

    pub(super) fn open_queue(&mut self, device: &mut dyn Context, tuple: Tuple) -> Result<SrqNumber, FabricError> {
        let queue = device.create_shared_receive_queue(&SharedReceiveQueueAttributes {
            protection_domain: self.domain,
            depth: self.depth,
            entries_max: 1,
            xrc: Some((self.xrc, self.completions)),
        })?;
        self.receiving.open(tuple, queue);
        device.shared_receive_queue_number(queue)
    }

    pub(super) fn close_if_over(&mut self, device: &mut dyn Context, tuple: Tuple) {
        if let Some(queue) = self.receiving.close_if_over(tuple) {
            // Nothing is in it, and nobody sends to it.
            let _ = device.destroy_shared_receive_queue(queue);
        }
    }

    /// A peer is lost: its queues and the ways to and from it are given back, now or when what is under way there has
    /// ended. `flush`: what the device has for it is to end now.
    #[cold]
    pub(super) fn forget(&mut self, device: &mut dyn Context, peer: PeerId, flush: bool) {
        self.sending.forget(peer);
        for queue in self.receiving.forget(peer) {
            // Nothing is in it.
            let _ = device.destroy_shared_receive_queue(queue);
        }
        if let Some(way) = self.ways.get(&peer).filter(|_| flush) {
            // It may be in that state already, or was never connected.
            let _ = device.modify(way.qp, &Transition::Error);
        }
        self.drop_ways(device, peer);
    }

    /// Gives the queue pairs of a lost peer back that nothing is under way in.
    #[cold]
    pub(super) fn drop_ways(&mut self, device: &mut dyn Context, peer: PeerId) {
        let is_used = self.flights.iter().any(|(_, flight)| flight.to == peer);
        let way = if is_used { None } else { self.ways.remove(&peer).map(|way| way.qp) };
        let target = if self.receiving.has(peer) { None } else { self.targets.remove(&peer) };
        for qp in [way, target].into_iter().flatten() {
            // It was there, and nothing else can be wrong with it.
            let _ = device.destroy_queue_pair(qp);
        }
    }

    /// True if queues or queue pairs are kept for a peer.
    pub(crate) fn knows(&self, peer: PeerId) -> bool {
        self.ways.contains_key(&peer) || self.targets.contains_key(&peer) || self.receiving.has(peer)
    }

    /// Puts a message on the device.
    pub(super) fn launch(
        &mut self,
        device: &mut dyn Context,
        to: PeerId,
        queue: SrqNumber,
        id: SlabKey,
        send: &OutgoingSend,
    ) -> Result<Launch, FabricError> {
        let qp = self.ways.get(&to).filter(|way| way.is_connected).map(|way| way.qp);
        let qp = qp.ok_or(FabricError::NoSuch("way"))?;
        if self.flights.len() >= FLIGHTS_MAX {
            return Ok(Launch::NoRoom);
        }
        if self.second_moves
            && let Some(launch) = self.launch_lone(device, qp, to, queue, id, send)?
        {
            return Ok(launch);
        }
        let len = send.envelope.len_bytes;
        if len <= INLINE_MAX_BYTES {
            let mut inline = [0; INLINE_MAX_BYTES as usize];
            let inline = &mut inline[..len as usize];
            send.buf.pack_at(0, inline);
            let flight = self.flights.insert(Flight { send: Some(id), to, region: None, _copy: None });
            let is_posted = post(device, qp, queue, flight, Payload::Inline(inline));
            return self.launched(Launched { flight, is_copied: true }, is_posted);
        }
        let (range, copy) = self.source(send)?;
        let is_copied = copy.is_some();
        let region = device.register(self.domain, LocalMemory::Source(range), Access::LOCAL)?;
        let list = [region.part(0, len as u32)];
        let flight = self.flights.insert(Flight { send: Some(id), to, region: Some(region), _copy: copy });
        let is_posted = post(device, qp, queue, flight, Payload::Memory(&list));
        let launch = self.launched(Launched { flight, is_copied }, is_posted);
        if !matches!(launch, Ok(Launch::Posted(_))) {
            // It was registered above.
            let _ = device.deregister(region);
        }
        launch
    }

    /// Puts a message on the device with its memory; `None` if it must be posted.
    fn launch_lone(
        &mut self,
        device: &mut dyn Context,
        qp: QueuePair,
        to: PeerId,
        queue: SrqNumber,
        id: SlabKey,
        send: &OutgoingSend,
    ) -> Result<Option<Launch>, FabricError> {
        let (range, copy) = self.source(send)?;
        let is_copied = copy.is_some();
        let flight = self.flights.insert(Flight { send: Some(id), to, region: None, _copy: copy });
        match device.post_lone_send(qp, queue, flight.to_bits(), range) {
            Ok(LoneSend::Posted) => Ok(Some(Launch::Waits(Launched { flight, is_copied }))),
            Ok(LoneSend::Done) => {
                self.flights.remove(flight);
                Ok(Some(Launch::Done))
            }
            Err(_) => {
                self.flights.remove(flight);
                Ok(None)
            }
        }
    }

    /// The bytes of a message, or a copy of them: of what lies in pieces, and of what its sender is to have back at once.
    fn source(&self, send: &OutgoingSend) -> Result<(ReadRange, Option<SendBuf>), FabricError> {
        let len = send.envelope.len_bytes;
        let stays = len > INLINE_MAX_BYTES && len >= self.setup.copy_below_bytes;
        if let Some(range) = send.buf.range().filter(|_| stays) {
            return Ok((range, None));
        }
        let mut bytes = vec![0; len as usize].into_boxed_slice();
        send.buf.pack_at(0, &mut bytes);
        let copy = SendBuf::from_owned(bytes);
        let range = copy.range().ok_or(FabricError::NoSuch("range"))?;
        Ok((range, Some(copy)))
    }

    /// A message was posted, or was not.
    fn launched(&mut self, message: Launched, is_posted: Result<bool, FabricError>) -> Result<Launch, FabricError> {
        if is_posted != Ok(true) {
            self.flights.remove(message.flight);
        }
        is_posted.map(|is_posted| if is_posted { Launch::Posted(message) } else { Launch::NoRoom })
    }

    /// A receive in a box, one that was used before if there is one.
    #[inline]
    pub(super) fn boxed(&mut self, in_queue: InQueue) -> Box<InQueue> {
        match self.boxes.pop() {
            Some(mut boxed) => {
                *boxed = in_queue;
                boxed
            }
            None => Box::new(in_queue),
        }
    }

    /// The receive is over: its box takes another one. Nothing is kept of it but that.
    #[inline]
    pub(super) fn unbox(&mut self, mut boxed: Box<InQueue>) {
        if self.boxes.len() < QUEUE_DEPTH as usize {
            (boxed.buf, boxed.staging) = (RecvBuf::empty(), None);
            self.boxes.push(boxed);
        }
    }

    /// Puts a receive into a queue, for a message of up to `len_bytes` bytes; gives the buffer back if it can not go there.
    pub(super) fn post(
        &mut self,
        device: &mut dyn Context,
        tuple: Tuple,
        queue: SharedReceiveQueue,
        receive: SlabKey,
        mut buf: RecvBuf,
        len_bytes: u64,
    ) -> Result<InQueue, RecvBuf> {
        if len_bytes > MESSAGE_MAX_BYTES {
            return Err(buf);
        }
        let mut staging = None;
        let range = match buf.range().filter(|_| buf.len_bytes() >= len_bytes) {
            Some(range) => Some(range),
            None => staging.insert(RecvBuf::from_owned(vec![0; len_bytes as usize].into_boxed_slice())).range(),
        };
        let memory = range.filter(|_| len_bytes > 0).and_then(|range| range.part(0, len_bytes as usize));
        match self.post_memory(device, queue, receive, memory) {
            Ok((handle, region)) => {
                self.receiving.posted(tuple, receive.to_bits());
                let is_met = false;
                Ok(InQueue {
                    buf,
                    tuple,
                    handle,
                    room_bytes: len_bytes,
                    region,
                    staging,
                    is_met,
                    is_kept: false,
                    announced_bytes: 0,
                    has_failed: false,
                })
            }
            Err(_) => Err(buf),
        }
    }

    /// Posts a receive into `memory`, or of no bytes: without a region where the device needs none.
    fn post_memory(
        &self,
        device: &mut dyn Context,
        queue: SharedReceiveQueue,
        receive: SlabKey,
        memory: Option<WriteRange>,
    ) -> Result<(MultiQueueReceive, Option<MemoryRegion>), FabricError> {
        let id = receive.to_bits();
        let Some(memory) = memory else {
            let handle = device.post_multi_queue_receive(&[queue], &ReceiveRequest { id, list: &[] })?;
            return Ok((handle, None));
        };
        match device.post_lone_receive(queue, id, memory) {
            Ok(handle) => return Ok((handle, None)),
            Err(FabricError::Unsupported { .. }) => {}
            Err(refused) => return Err(refused),
        }
        let region = device.register(self.domain, LocalMemory::Target(memory), Access::LOCAL)?;
        let list = [region.part(0, memory.len_bytes() as u32)];
        match device.post_multi_queue_receive(&[queue], &ReceiveRequest { id, list: &list }) {
            Ok(handle) => Ok((handle, Some(region))),
            Err(refused) => {
                // It was registered above.
                let _ = device.deregister(region);
                Err(refused)
            }
        }
    }

    /// Takes a receive out of its queue; false if a message took it first.
    pub(super) fn withdraw(&mut self, device: &mut dyn Context, receive: SlabKey, in_queue: &mut InQueue) -> bool {
        if device.withdraw_receive(in_queue.handle) != Ok(true) {
            return false;
        }
        self.receiving.withdrawn(in_queue.tuple, receive.to_bits());
        if let Some(region) = in_queue.region.take() {
            // It was registered with the receive.
            let _ = device.deregister(region);
        }
        true
    }
}
