//! Connections made on demand: hellos over datagrams.
//!
//! ```text
//!   A (has a record for B)                  B
//!   queue pair a ── hello a ──────────────▶ queue pair b, connected to a
//!   connected to b, open ◀── hello b ────── ("I have yours")
//!                 ── hello a ─────────────▶ open             ("I have yours")
//! ```
//! If both begin at once each has the other's first hello, and the same rules lead to the same end. A hello that is lost
//! is said again after [`FIRST_PAUSE`], and later ones at twice the distance each. The last one is not: who began has a
//! record to send, which opens the other's end as well.

use std::time::Duration;

use fabric::{
    Access, AddressHandle, CompletionQueue, ConnectOptions, Context, DatagramAddress, Destination, Endpoint,
    FabricError, MemoryRegion, Operation, Payload, ProtectionDomain, Qkey, QueuePair, QueuePairAttributes,
    QueuePairState, ReceiveRequest, SendFlags, SendRequest, Transport, WcStatus, WorkCompletion,
};
use lockfree::{Slot, SlotStore};
use protocol::verbs_channel::{Credits, HELLO_MAX_BYTES, Hello, RESERVED};

use super::{Connection, Port, SEND_DEPTH, Stage, Work};
use crate::request::PeerId;

/// Hellos that may arrive between two polls; more are lost, and said again.
const RECEIVES: u32 = 64;
/// Hellos on their way out at once.
const SENDS: u32 = 64;
/// When a hello is said for the second time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause between two hellos.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The datagram queue pair of a process, and whom it can greet.
pub(super) struct Greeter {
    qp: QueuePair,
    domain: ProtectionDomain,
    card: Endpoint,
    cards: Vec<Option<Endpoint>>,
    addresses: Vec<Address>,
    /// Hellos on their way out, by slot, and to whom.
    leaving: Vec<(u32, PeerId)>,
    /// The queue pair has failed: nobody is greeted any more.
    has_failed: bool,
    slots: SlotStore,
    region: MemoryRegion,
    /// Bytes the device puts in front of a datagram it receives.
    prefix_bytes: usize,
    me: PeerId,
    job: u64,
}

/// The way to a peer's hello queue pair.
struct Address {
    peer: PeerId,
    handle: AddressHandle,
    /// The peer has been greeted: it goes with the last hello that uses it.
    over: bool,
}

impl Greeter {
    pub(super) fn new(
        context: &mut dyn Context,
        domain: ProtectionDomain,
        completions: CompletionQueue,
        me: PeerId,
        job: u64,
    ) -> Result<Self, FabricError> {
        let attributes = QueuePairAttributes {
            transport: Transport::UnreliableDatagram,
            send_depth: SENDS,
            receive_depth: RECEIVES,
            send_entries_max: 1,
            receive_entries_max: 1,
            inline_max_bytes: 0,
            ..QueuePairAttributes::new(domain, completions)
        };
        let qp = context.create_queue_pair(&attributes)?;
        let options = ConnectOptions { access: Access::LOCAL, qkey: qkey(job), ..ConnectOptions::default() };
        fabric::connect(context, qp, None, &options)?;
        let prefix_bytes = context.capabilities().limits.datagram_header_bytes as usize;
        let slot_bytes = (prefix_bytes + HELLO_MAX_BYTES).next_multiple_of(lockfree::CACHE_LINE_BYTES);
        let mut slots = SlotStore::new(slot_bytes, RECEIVES + SENDS);
        let (region, memory) = context.allocate(domain, slots.chunk_bytes(), Access::LOCAL)?;
        slots.add(memory);
        let card = context.endpoint(qp)?;
        let mut greeter = Self {
            qp,
            domain,
            card,
            cards: Vec::new(),
            addresses: Vec::new(),
            leaving: Vec::new(),
            has_failed: false,
            slots,
            region,
            prefix_bytes,
            me,
            job,
        };
        for _ in 0..RECEIVES {
            if let Some(slot) = greeter.slots.take() {
                greeter.post(context, slot)?;
            }
        }
        Ok(greeter)
    }

    pub(super) fn card(&self) -> &Endpoint {
        &self.card
    }

    pub(super) fn meet(&mut self, cards: Vec<Option<Endpoint>>) {
        self.cards = cards;
    }

    pub(super) fn knows(&self, peer: PeerId) -> bool {
        matches!(self.cards.get(peer as usize), Some(Some(_)))
    }

    fn post(&mut self, context: &mut dyn Context, slot: Slot) -> Result<(), FabricError> {
        let list = [self.region.part(self.slots.place(&slot).1 as u64, self.slots.slot_bytes() as u32)];
        let number = self.slots.lend(slot);
        let posted =
            context.post_receive(self.qp, &[ReceiveRequest { id: Work::ReceiveHello(number).id(), list: &list }]);
        if posted != Ok(1)
            && let Some(slot) = self.slots.reclaim(number)
        {
            self.slots.give_back(slot);
        }
        posted.map(|_| ())
    }

    /// The hello in a slot that came back, if it is one for us; the slot is posted again, unless the queue pair has
    /// failed: it would come back at once and for ever.
    pub(super) fn take(
        &mut self,
        context: &mut dyn Context,
        number: u32,
        completion: &WorkCompletion,
    ) -> Option<Hello> {
        let slot = self.slots.reclaim(number)?;
        if completion.status == WcStatus::WorkRequestFlushed {
            self.slots.give_back(slot);
            self.has_failed = true;
            return None;
        }
        let prefix = self.prefix_bytes;
        let bytes = usize::try_from(completion.bytes).unwrap_or(usize::MAX);
        let hello = (completion.status == WcStatus::Success)
            .then(|| self.slots.read(&slot, bytes, |bytes| Hello::parse(bytes.get(prefix..)?).ok()))
            .flatten();
        // A receive that cannot be posted is one less; hellos are repeated.
        let _ = self.post(context, slot);
        hello.filter(|hello| hello.job == self.job && hello.to == self.me && self.knows(hello.from))
    }

    /// True if the queue pair for hellos has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// A hello has left, or is lost.
    pub(super) fn said(&mut self, context: &mut dyn Context, number: u32) {
        if let Some(slot) = self.slots.reclaim(number) {
            self.slots.give_back(slot);
        }
        if let Some(at) = self.leaving.iter().position(|(one, _)| *one == number) {
            let (_, to) = self.leaving.swap_remove(at);
            self.drop_address(context, to);
        }
    }

    /// Tells a peer that the connection to it has failed.
    pub(super) fn say_failed(&mut self, context: &mut dyn Context, to: PeerId, has_yours: bool) {
        let (from, job, endpoint) = (self.me, self.job, self.card.clone());
        let hello = Hello { from, to, job, has_yours, has_failed: true, credits: 0, endpoint };
        // It is said again; and whoever cannot be told finds out when it uses the connection.
        let _ = self.say(context, &hello);
        self.forget_address(context, to);
    }

    /// Says hello once; without room for it, it is as lost as one on the wire may be.
    fn say(&mut self, context: &mut dyn Context, hello: &Hello) -> Result<(), FabricError> {
        if self.has_failed {
            let state = QueuePairState::Error;
            return Err(FabricError::InvalidState { operation: "greeting a process", state });
        }
        let address = self.address(context, hello.to)?;
        let Some(Some(card)) = self.cards.get(hello.to as usize) else { return Ok(()) };
        let destination = Destination::Datagram { address, qp: card.qp(), qkey: qkey(self.job) };
        let Some(mut slot) = self.slots.take() else { return Ok(()) };
        let bytes = hello.to_bytes();
        self.slots.fill(&mut slot, bytes.len(), |space| space.copy_from_slice(&bytes));
        let list = [self.region.part(self.slots.place(&slot).1 as u64, bytes.len() as u32)];
        let number = self.slots.lend(slot);
        let request = SendRequest {
            id: Work::SendHello(number).id(),
            operation: Operation::Send,
            payload: Payload::Memory(&list),
            destination,
            flags: SendFlags::SIGNALLED,
        };
        self.leaving.push((number, hello.to));
        let posted = context.post_send(self.qp, &[request]);
        if posted != Ok(1) {
            self.said(context, number);
        }
        posted.map(|_| ())
    }

    /// The way to a peer's hello queue pair, to be forgotten anew.
    fn address(&mut self, context: &mut dyn Context, to: PeerId) -> Result<AddressHandle, FabricError> {
        if let Some(address) = self.addresses.iter_mut().find(|address| address.peer == to) {
            address.over = false;
            return Ok(address.handle);
        }
        let Some(Some(card)) = self.cards.get(to as usize) else { return Err(FabricError::NoSuchPeer(to)) };
        let handle = context.create_address_handle(self.domain, DatagramAddress::Endpoint(card))?;
        self.addresses.push(Address { peer: to, handle, over: false });
        Ok(handle)
    }

    /// The address of a peer that has been greeted is not needed any more.
    fn forget_address(&mut self, context: &mut dyn Context, peer: PeerId) {
        if let Some(address) = self.addresses.iter_mut().find(|address| address.peer == peer) {
            address.over = true;
            self.drop_address(context, peer);
        }
    }

    /// Gives an address back that is over, unless a hello that was not sent yet still needs it.
    fn drop_address(&mut self, context: &mut dyn Context, peer: PeerId) {
        let is_used = self.leaving.iter().any(|(_, to)| *to == peer);
        let is_over = |address: &Address| address.peer == peer && address.over;
        if !is_used && let Some(at) = self.addresses.iter().position(is_over) {
            let address = self.addresses.swap_remove(at);
            // It exists, and nothing else can be wrong with it.
            let _ = context.destroy_address_handle(address.handle);
        }
    }
}

/// Key of the datagrams of a job; the top bit would make it a privileged one.
fn qkey(job: u64) -> Qkey {
    Qkey(job as u32 & 0x7fff_ffff)
}

impl Port {
    /// Begins to connect to a peer.
    pub(super) fn connect(&mut self, to: PeerId) {
        if let Err(error) = self.make_connection(to).and_then(|()| self.say_hello(to)) {
            self.lose(to, error.to_string());
        }
    }

    /// Our end of the connection to a peer: a queue pair, and buffers for what it may send.
    fn make_connection(&mut self, to: PeerId) -> Result<(), FabricError> {
        let attributes = QueuePairAttributes {
            shared_receives: Some(self.queue),
            send_depth: SEND_DEPTH + RESERVED,
            receive_depth: 0,
            send_entries_max: self.entries_max,
            receive_entries_max: 1,
            inline_max_bytes: 0,
            ..QueuePairAttributes::new(self.domain, self.completions)
        };
        let qp = self.context.create_queue_pair(&attributes)?;
        let number = self.context.endpoint(qp)?.qp();
        let granted = self.credits_initial;
        self.by_number.insert(number.0, to);
        let again = (self.clock)() + FIRST_PAUSE;
        let connection = Connection {
            qp: Some(qp),
            stage: Stage::Greeting { again, pause: 2 * FIRST_PAUSE },
            credits: Credits::new(granted),
            ..Connection::default()
        };
        let slot = self.connections.get_mut(to as usize).ok_or(FabricError::NoSuchPeer(to))?;
        *slot = Some(Box::new(connection));
        self.greeting.push(to);
        self.counters.connections += 1;
        let posted = self.pool.post_more(self.context.as_mut(), granted + RESERVED, true)?;
        if posted < granted + RESERVED {
            // Those that it would have had are not given back twice.
            self.pool.retire(posted);
            self.connections[to as usize].iter_mut().for_each(|connection| connection.qp = None);
            let _ = self.context.destroy_queue_pair(qp);
            return Err(FabricError::Exhausted { object: "buffers for messages", max: posted });
        }
        Ok(())
    }

    fn say_hello(&mut self, to: PeerId) -> Result<(), FabricError> {
        let Some(Some(connection)) = self.connections.get(to as usize) else { return Ok(()) };
        let Some(qp) = connection.qp else { return Ok(()) };
        let hello = Hello {
            from: self.me,
            to,
            job: self.greeter.job,
            has_yours: connection.connected,
            has_failed: false,
            credits: self.credits_initial,
            endpoint: self.context.endpoint(qp)?,
        };
        let is_last = connection.stage == Stage::Open;
        self.greeter.say(self.context.as_mut(), &hello)?;
        if is_last {
            self.greeter.forget_address(self.context.as_mut(), to);
        }
        Ok(())
    }

    /// A peer has said hello.
    pub(super) fn hear(&mut self, hello: Hello) {
        let from = hello.from;
        if let Err(error) = self.try_hear(hello) {
            self.lose(from, error.to_string());
        }
    }

    fn try_hear(&mut self, hello: Hello) -> Result<(), FabricError> {
        let from = hello.from;
        if hello.has_failed {
            self.hear_of_failure(&hello);
            return Ok(());
        }
        if matches!(self.connections.get(from as usize), Some(None)) {
            self.make_connection(from)?;
        }
        let Some(Some(connection)) = self.connections.get_mut(from as usize) else { return Ok(()) };
        if matches!(connection.stage, Stage::Lost { .. }) {
            // It did not hear of that, or could not be told before it said hello: it would say so for ever.
            self.greeter.say_failed(self.context.as_mut(), from, true);
            return Ok(());
        }
        let (Some(qp), is_news) = (connection.qp, !connection.connected) else { return Ok(()) };
        if is_news {
            fabric::connect(self.context.as_mut(), qp, Some(hello.endpoint), &ConnectOptions::default())?;
            connection.connected = true;
            connection.credits.begin(hello.credits);
        }
        if hello.has_yours && connection.stage != Stage::Open {
            connection.stage = Stage::Open;
        }
        // Whoever does not know yet that we are connected is told.
        if is_news || !hello.has_yours {
            self.say_hello(from)?;
        }
        Ok(())
    }

    /// Says hellos again that are due.
    pub(super) fn repeat_hellos(&mut self) {
        self.repeat_partings();
        let connections = &self.connections;
        let is_open = |peer: &PeerId| !matches!(&connections[*peer as usize], Some(one) if matches!(one.stage, Stage::Greeting { .. }));
        let opened: Vec<PeerId> = self.greeting.iter().copied().filter(is_open).collect();
        for peer in opened {
            self.greeting.retain(|one| *one != peer);
            self.greeter.forget_address(self.context.as_mut(), peer);
        }
        if self.greeting.is_empty() {
            return;
        }
        let now = (self.clock)();
        for peer in self.greeting.clone() {
            if let Some(Some(connection)) = self.connections.get_mut(peer as usize)
                && let Stage::Greeting { again, pause } = &mut connection.stage
                && *again <= now
            {
                *again = now + *pause;
                *pause = (2 * *pause).min(PAUSE_MAX);
                if let Err(error) = self.say_hello(peer) {
                    self.lose(peer, error.to_string());
                }
            }
        }
    }

    /// When the next hello is due.
    pub(super) fn next_hello(&self) -> Option<Duration> {
        let due = |peer: &PeerId| match &self.connections[*peer as usize].as_ref()?.stage {
            Stage::Greeting { again, .. } => Some(*again),
            _ => None,
        };
        self.greeting.iter().filter_map(due).chain(self.partings.iter().map(|parting| parting.again)).min()
    }
}
