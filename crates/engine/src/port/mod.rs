//! The port: all that stands on a device's verbs.
//!
//! ```text
//!   process                                        peer
//!   hello queue pair (UD) ──── hellos ───────────▶ hello queue pair      whose endpoints are the business cards
//!   queue pair ◀────────────── connection (RC) ──▶ queue pair            made when the first record leaves
//!   pool ── shared receive queue                   pool ── shared receive queue
//!   one completion queue                           one completion queue
//! ```
//! Records are messages of the connections, see [`protocol::verbs_channel`]. A record is written into a buffer of the pool
//! and posted; when its completion comes the buffer is free again. What arrives is shown to the engine where it lies.
//!
//! Memory: the pool, as much as is used ([`shrinking`]); for each peer in the world a business card (about 100 bytes); for
//! each peer talked to a [`Connection`], a queue pair, and buffers of the pool for its credits.

mod buffers;
mod channels;
mod greeting;
mod losses;
mod pool;
mod posting;
mod segments;
mod shrinking;
mod standing;
mod work;

use std::sync::Arc;
use std::time::Duration;

use base::Config;
use base::config::{Medium, Sizes};
use fabric::{
    Access, CompletionQueue, Context, Endpoint, FabricError, LocalMemory, NotifyOn, Operation, Payload,
    ProtectionDomain, QueuePair, SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes, WcStatus,
    WorkCompletion,
};
use lockfree::fastpath::carried;
use lockfree::{Record, Slot, SlotMemory};
use protocol::fastpath::{Geometry, medium_of};
use protocol::registration::{DomainRegistrar, Registration, RegistrationCache};
use protocol::schemes;
use protocol::verbs_channel::{Credits, HEADER_BYTES, Header};
use protocol::wire;
use rustc_hash::FxHashMap;

use self::channels::{Channels, Pair};
use self::greeting::Greeter;
pub(crate) use self::losses::Loss;
use self::losses::{Parting, status_text};
use self::pool::Pool;
pub(crate) use self::posting::Posted;
pub(crate) use self::segments::{SegmentPool, SegmentUse};
pub(crate) use self::work::Work;
use crate::descriptor::DescriptorWakeup;
use crate::packed::PackedForms;
use crate::request::PeerId;
use crate::stats::Stats;

/// Completions taken at once.
pub(crate) const COMPLETIONS_MAX: usize = 32;
/// Shortest longest payload of a record, in bytes: pieces of long messages are not shorter.
const PAYLOAD_MIN_BYTES: usize = 4 << 10;
/// Requests of one connection posted and not complete, at most.
const SEND_DEPTH: u32 = 128;
/// Nobody waits for the completion of a record until so many requests are not complete.
const HURRIED_FROM: u32 = SEND_DEPTH / 2;
/// Pieces of memory that one request gathers or scatters, at most.
const ENTRIES_MAX: u32 = 32;

/// How far a connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Hellos are exchanged; the next is said at `again`, and later ones `pause` apart.
    Greeting { again: Duration, pause: Duration },
    /// Both sides are connected.
    Open,
    /// It failed, for this reason; the engine is told after a while.
    Lost { why: String, told: bool },
}

/// The connection to one peer.
struct Connection {
    /// `None`: the device refused one.
    qp: Option<QueuePair>,
    stage: Stage,
    /// Its end has the peer's endpoint.
    connected: bool,
    credits: Credits,
    /// Records posted and not complete.
    in_flight: u32,
    /// Credits that the peer asked for and has not got yet.
    giving_back: u16,
    /// It stands in the list of those to be told something.
    listed: bool,
    /// What the peer knows of this side's holding back.
    told_hold: bool,
    /// The peer asks for no eager data now.
    holds_back: bool,
    /// The peer says that it ends.
    leaves: bool,
    /// Channels that are written by RDMA.
    channels: Option<Box<Pair>>,
}

// A budget: this is paid once per peer talked to, besides the queue pair and the buffers of its credits.
const _: () = assert!(size_of::<Connection>() <= 128);

/// An opened device at work for an engine.
pub struct Port {
    context: Box<dyn Context>,
    me: PeerId,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    queue: SharedReceiveQueue,
    pool: Pool,
    greeter: Greeter,
    /// `None`: all records go by queue pairs.
    channels: Option<Channels>,
    connections: Vec<Option<Box<Connection>>>,
    /// Whose connection a queue pair is, by its number.
    by_number: FxHashMap<u32, PeerId>,
    /// Peers that are connected or being greeted, and not open.
    greeting: Vec<PeerId>,
    /// Whose records this poll has taken, one by one: credits to return once their buffers are posted.
    freed: Vec<PeerId>,
    /// Peers that must be told of credits, or of holding back, and those that wait for an answer about a channel.
    to_tell: Vec<PeerId>,
    to_answer: Vec<PeerId>,
    /// By slot: to whom it is on its way; the credit-only records among them are not waited for.
    sends: Vec<(PeerId, bool)>,
    /// Records on their way that somebody may wait for.
    in_flight: usize,
    losses: Vec<Loss>,
    /// Peers that are told of a failure.
    partings: Vec<Parting>,
    holding_back: bool,
    /// A farewell was said, or is: every message says so, and what nobody asked for is left alone.
    has_left: bool,
    payload_max_bytes: usize,
    medium: Medium,
    credits_initial: u32,
    /// Buffers that were not used for so long are given back; when this period ends, and whether that may find something.
    pool_idle: Option<Duration>,
    period_ends: Duration,
    may_shrink: bool,
    registrations: RegistrationCache,
    /// Segments for data that does not lie in one piece.
    pub(crate) packing: SegmentPool,
    pub(crate) unpacking: SegmentPool,
    pub(crate) packed: PackedForms,
    entries_max: u32,
    prefers_reads: bool,
    clock: fn() -> Duration,
    wakeup: Arc<DescriptorWakeup>,
    /// Counts of the port; those of the rest of the engine stay zero here.
    counters: Stats,
}

/// A message that arrived.
pub(crate) struct Arrival<'a> {
    pub(crate) peer: PeerId,
    /// `None`: it brought news alone.
    pub(crate) record: Option<Record>,
    pub(crate) payload: &'a [u8],
    /// Something lies in a channel that is not polled.
    pub(crate) announces: bool,
}

impl Port {
    /// Prepares an opened device for process `me` of the job with number `job`, which its processes share and others do
    /// not know. `clock` tells the time since some fixed moment.
    ///
    /// # Errors
    /// What the device refuses: it must have reliable connections, datagrams, shared receive queues and a descriptor.
    pub fn open(
        mut context: Box<dyn Context>,
        me: PeerId,
        job: u64,
        config: &Config,
        clock: fn() -> Duration,
    ) -> Result<Self, FabricError> {
        let limits = context.capabilities().limits;
        let domain = context.allocate_protection_domain()?;
        let (kind, order) = (context.capabilities().kind, context.capabilities().write_order);
        let channels = Channels::new(Geometry::by_rdma(config, kind), order);
        let medium = medium_of(kind);
        let Sizes { eager_max_bytes, pool_max_bytes, .. } = config.sizes(medium);
        let usual_bytes = Config::default().sizes(medium).eager_max_bytes;
        let payload_max_bytes = eager_max_bytes.max(PAYLOAD_MIN_BYTES);
        let (payload_max_bytes, extra_bytes) = match &channels {
            Some(channels) => (channels.payload_max_bytes().min(payload_max_bytes), carried::STAGING_EXTRA_BYTES),
            None => (payload_max_bytes, 0),
        };
        // A peer may be set otherwise.
        let message_max_bytes = HEADER_BYTES + payload_max_bytes.max(usual_bytes) + extra_bytes;
        let depth = ((pool_max_bytes / message_max_bytes) as u32).max(1024).min(limits.receive_depth_max);
        let completions = context.create_completion_queue((4 * depth).min(limits.completion_depth_max))?;
        let attributes = SharedReceiveQueueAttributes { protection_domain: domain, depth, entries_max: 1, xrc: None };
        let queue = context.create_shared_receive_queue(&attributes)?;
        let greeter = Greeter::new(context.as_mut(), domain, completions, me, job)?;
        let descriptor = context.descriptor(completions)?.try_clone_to_owned().map_err(|why| FabricError::System {
            operation: "duplicating the completion descriptor",
            reason: why.to_string(),
        })?;
        let segments = |access| {
            let segment_bytes = schemes::port_segment_max_bytes(medium) as usize;
            SegmentPool::new(domain, access, segment_bytes, config.datatypes.pool_max_bytes)
        };
        Ok(Self {
            me,
            domain,
            completions,
            queue,
            pool: Pool::new(domain, queue, message_max_bytes, pool_max_bytes),
            greeter,
            channels,
            connections: Vec::new(),
            by_number: FxHashMap::default(),
            greeting: Vec::new(),
            freed: Vec::new(),
            to_tell: Vec::new(),
            to_answer: Vec::new(),
            has_left: false,
            sends: Vec::new(),
            in_flight: 0,
            losses: Vec::new(),
            partings: Vec::new(),
            holding_back: false,
            payload_max_bytes,
            medium,
            credits_initial: config.credits_initial,
            pool_idle: config.pool_idle,
            period_ends: Duration::ZERO,
            may_shrink: false,
            registrations: RegistrationCache::configured(config, context.capabilities().translation),
            packing: segments(Access::LOCAL),
            unpacking: segments(Access::REMOTE_WRITE),
            packed: PackedForms::new(config.datatypes.pool_max_bytes, true),
            entries_max: limits.scatter_gather_max.clamp(1, ENTRIES_MAX),
            prefers_reads: context.capabilities().single_copy.is_ok(),
            clock,
            wakeup: Arc::new(DescriptorWakeup::new(descriptor)?),
            counters: Stats::default(),
            context,
        })
    }

    /// This process's business card: what its peers need to greet it.
    pub fn card(&self) -> &Endpoint {
        self.greeter.card()
    }

    /// Makes the cards of all processes of the world known, by number; `None`: reached otherwise.
    ///
    /// # Errors
    /// [`FabricError::NoSuchPeer`] if this process is not among them.
    pub fn meet(&mut self, cards: Vec<Option<Endpoint>>) -> Result<(), FabricError> {
        if self.me as usize >= cards.len() {
            return Err(FabricError::NoSuchPeer(self.me));
        }
        self.connections = cards.iter().map(|_| None).collect();
        self.greeter.meet(cards);
        Ok(())
    }

    /// This process's number.
    pub fn rank(&self) -> PeerId {
        self.me
    }

    /// Processes of the world.
    pub(crate) fn size(&self) -> u32 {
        self.connections.len() as u32
    }

    /// True if a peer is reached through this port.
    pub(crate) fn reaches(&self, peer: PeerId) -> bool {
        self.greeter.knows(peer)
    }

    /// Short name of the device.
    pub(crate) fn name(&self) -> &'static str {
        self.context.capabilities().kind.name()
    }

    /// Longest payload of one record, in bytes.
    pub(crate) fn payload_max_bytes(&self) -> usize {
        self.payload_max_bytes
    }

    /// What its records go through.
    pub(crate) fn medium(&self) -> Medium {
        self.medium
    }

    /// Bytes of a segment of a message of `len_bytes` that is packed.
    pub(crate) fn segment_bytes(&self, len_bytes: u64) -> u32 {
        schemes::port_segment_bytes(len_bytes, self.medium)
    }

    /// The most bytes of a segment.
    pub(crate) fn segment_max_bytes(&self) -> u64 {
        schemes::port_segment_max_bytes(self.medium)
    }

    pub(crate) fn wakeup(&self) -> Arc<DescriptorWakeup> {
        Arc::clone(&self.wakeup)
    }

    /// The time, as this port was told to tell it.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// True if somebody has announced that it will sleep: a poll is awaited.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.wakeup.is_announced()
    }

    /// True, once, if somebody has announced that it will sleep.
    #[inline]
    pub(crate) fn wakeup_announced(&self) -> bool {
        self.wakeup.take_announced()
    }

    /// Records on their way whose arrival is not certain yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight + self.unannounced() + self.to_answer.len()
    }

    /// Adds what happened here to `stats`.
    pub(crate) fn stats(&self, stats: Stats) -> Stats {
        let Stats { connections, credit_stalls, credits_alone, credits_granted, written_sent, .. } = self.counters;
        let registrations = self.registrations.stats() + stats.registrations;
        let Stats { credits_returned, .. } = self.counters;
        let pools = [self.pool.buffers(), self.packing.buffers(), self.unpacking.buffers()];
        let pool_bytes = pools.iter().map(|pool| pool.held_bytes()).sum();
        let pool_peak_bytes = pools.iter().map(|pool| pool.held_peak_bytes()).sum();
        let pool_given_back_bytes = pools.iter().map(|pool| pool.given_back_bytes()).sum();
        let packed_peak_bytes = stats.packed_peak_bytes + self.packing.peak_bytes() + self.unpacking.peak_bytes();
        Stats {
            connections,
            credit_stalls,
            credits_alone,
            credits_granted,
            credits_returned,
            written_sent,
            pool_bytes,
            pool_peak_bytes,
            pool_given_back_bytes,
            packed_peak_bytes,
            packed_kept_bytes: self.packed.kept_bytes(),
            registrations,
            channels_opened: stats.channels_opened + self.counters.channels_opened,
            channels_closed: stats.channels_closed + self.counters.channels_closed,
            blocks_resized: stats.blocks_resized + self.counters.blocks_resized,
            channel_bytes: stats.channel_bytes + self.counters.channel_bytes,
            ..stats
        }
    }

    /// The device, for queues of tuples beside the connections.
    pub(crate) fn context(&mut self) -> &mut (dyn Context + 'static) {
        self.context.as_mut()
    }

    /// Handles to the bytes of received records, unless they are as they were at the time of `known`.
    #[inline]
    pub(crate) fn memory_unless(&self, known: u64) -> Option<(SlotMemory, u64)> {
        self.pool.memory_unless(known)
    }

    /// Why nothing goes to a peer any more.
    pub(crate) fn lost(&self, peer: PeerId) -> Option<&str> {
        match self.connections.get(peer as usize)?.as_ref()?.stage {
            Stage::Lost { ref why, told: true } => Some(why),
            _ => None,
        }
    }

    /// True if a peer asks for no eager data now: its store of unexpected messages is full.
    #[inline]
    pub(crate) fn holds_back(&self, peer: PeerId) -> bool {
        matches!(self.connections.get(peer as usize), Some(Some(connection)) if connection.holds_back)
    }

    /// Posts a record whose payload `fill` writes; false if that cannot be done now.
    pub(crate) fn push(&mut self, to: PeerId, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else {
            self.connect(to);
            return false;
        };
        if connection.stage != Stage::Open || connection.in_flight >= SEND_DEPTH {
            return false;
        }
        if self.channels.is_none() {
            return self.post_with_credit(to, record, len_bytes, fill);
        }
        if !self.advance_way(to) {
            return false;
        }
        let credits = self.take_credits(to, len_bytes);
        let pushed = match credits {
            None => self.push_either_way(to, record, len_bytes, fill),
            Some(count) => {
                let len_with = len_bytes + wire::CREDITS_BYTES;
                self.push_either_way(to, wire::with_credits(record), len_with, |space| {
                    wire::put_credits(space, count.word(), fill);
                })
            }
        };
        if pushed {
            self.note_pushed(to);
        } else if credits.is_some() {
            self.keep_credits(to, credits);
        }
        pushed
    }

    fn push_either_way(&mut self, to: PeerId, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        match self.push_by_channel(to, record, len_bytes, fill) {
            Ok(pushed) => pushed,
            Err(fill) => self.post_with_credit(to, record, len_bytes, fill),
        }
    }

    /// Posts a record if there is a credit for it.
    fn post_with_credit(&mut self, to: PeerId, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return false };
        if !connection.credits.spend() {
            self.counters.credit_stalls += 1;
            return false;
        }
        let posted = self.post_with_header(to, Header { record: Some(record), ..Header::default() }, len_bytes, fill);
        if !posted && let Some(Some(connection)) = self.connections.get_mut(to as usize) {
            connection.credits.unspend();
        }
        posted
    }

    /// Posts a message without a record, whatever the credits.
    fn post_message(&mut self, to: PeerId, alone: Header) -> bool {
        self.post_with_header(to, alone, 0, |_| {})
    }

    /// Writes a message into a slot and posts it, whatever the credits, with what else there is to say to the peer.
    #[inline]
    fn post_with_header(&mut self, to: PeerId, header: Header, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return false };
        let Some(qp) = connection.qp else { return false };
        let Some(mut slot) = self.pool.take(self.context.as_mut()) else { return false };
        let news = connection.credits.take_news();
        connection.told_hold = self.holding_back;
        let (credits, starved) = news;
        let header = Header { credits, starved, holds_back: self.holding_back, leaves: self.has_left, ..header };
        let total = HEADER_BYTES + len_bytes;
        self.pool.fill(&mut slot, total, |space| {
            let (head, payload) = space.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(&header.to_bytes());
            fill(payload);
        });
        let list = [self.pool.part(&slot, total as u32)];
        let id = Work::Send(slot.number()).id();
        let hurry = connection.in_flight >= HURRIED_FROM;
        let request = SendRequest::new(id, Operation::Send, Payload::Memory(&list)).with_hurry(hurry);
        let number = self.pool.lend(slot);
        match self.context.post_send(qp, &[request]) {
            Ok(1) => {
                connection.in_flight += 1;
                self.note_send(number, to, header.record.is_some());
                self.in_flight += usize::from(header.record.is_some());
                true
            }
            outcome => {
                connection.credits.keep_news(news);
                if let Some(slot) = self.pool.reclaim(number) {
                    self.pool.give_back(slot);
                }
                if let Err(error) = outcome {
                    self.lose(to, error.to_string());
                }
                false
            }
        }
    }

    /// Notes whose slot is on its way, and whether it is waited for.
    fn note_send(&mut self, number: u32, to: PeerId, counted: bool) {
        let at = number as usize;
        if at >= self.sends.len() {
            self.sends.resize(at + 1, (0, false));
        }
        self.sends[at] = (to, counted);
    }

    /// Takes completions.
    #[inline]
    pub(crate) fn poll(&mut self, into: &mut [WorkCompletion; COMPLETIONS_MAX]) -> usize {
        match self.context.poll(self.completions, into) {
            Ok(count) => count,
            Err(error) => {
                self.lose_all(&error.to_string());
                0
            }
        }
    }

    /// The slot of a record that has arrived; `None` if the device had no such slot.
    #[inline]
    pub(crate) fn reclaim(&mut self, number: u32) -> Option<Slot> {
        self.pool.reclaim(number)
    }

    /// Understands what came through a connection and takes its news in; `None` if it makes no sense.
    #[inline]
    pub(crate) fn understand<'a>(&mut self, completion: &WorkCompletion, message: &'a [u8]) -> Option<Arrival<'a>> {
        let peer = self.by_number.get(&completion.qp.0).copied()?;
        let connection = self.connections.get_mut(peer as usize)?.as_deref_mut()?;
        let (header, payload) = Header::parse(message)?;
        if matches!(connection.stage, Stage::Greeting { .. }) {
            // Only who is connected sends: the hello that says so is late.
            connection.stage = Stage::Open;
        }
        if matches!(connection.stage, Stage::Lost { .. }) {
            // What it has sent counts; there are no credits any more, and its buffers are given back already.
            return Some(Arrival { peer, record: header.record, payload, announces: header.announces });
        }
        connection.credits.returned(header.credits.into());
        (connection.leaves, connection.holds_back) = (header.leaves, header.holds_back);
        if header.starved {
            let wanted = connection.credits.growth();
            // Without more buffers the credits stay as they are.
            let more = self.pool.post_more(self.context.as_mut(), wanted, false).unwrap_or(0);
            if more > 0 {
                connection.credits.grant(more);
                self.counters.credits_granted += u64::from(more);
                self.may_shrink = true;
            }
        }
        if header.record.is_some() || header.announces {
            self.freed.push(peer);
        } else if header.asks_back > 0 || header.gives_back {
            self.hear_of_credits(peer, &header)?;
        } else if connection.credits.must_tell() {
            list(&mut self.to_tell, connection, peer);
        }
        Some(Arrival { peer, record: header.record, payload, announces: header.announces })
    }

    /// A record has been shown to the engine: its buffer is posted again when all of this poll have been.
    #[inline]
    pub(crate) fn emptied(&mut self, slot: Slot) {
        self.pool.emptied(slot);
    }

    /// A send has ended.
    pub(crate) fn sent(&mut self, number: u32, completion: &WorkCompletion) {
        let Some(slot) = self.pool.reclaim(number) else { return };
        self.pool.give_back(slot);
        let (peer, counted) = self.sends[number as usize];
        self.ended(peer, counted, completion);
    }

    /// Something posted to a peer has ended; `counted` if somebody may wait for it.
    fn ended(&mut self, peer: PeerId, counted: bool, completion: &WorkCompletion) {
        self.in_flight -= usize::from(counted);
        if let Some(Some(connection)) = self.connections.get_mut(peer as usize) {
            connection.in_flight -= 1;
        }
        if completion.status != WcStatus::Success {
            self.lose(peer, status_text(completion.status).to_owned());
        } else if counted && self.channels.is_some() {
            self.look_whether_cold(peer);
        }
    }

    /// Something has been written into a peer's memory.
    pub(crate) fn wrote(&mut self, work: Work, completion: &WorkCompletion) {
        match work {
            Work::Word(peer) => self.ended(peer, false, completion),
            Work::Record(peer) => self.ended(peer, true, completion),
            Work::Show(number) => {
                self.sent(number, completion);
                self.control_written();
            }
            _ => {}
        }
    }

    /// Registers memory of a long message.
    pub(crate) fn register(&mut self, memory: LocalMemory, access: Access) -> Result<Registration, FabricError> {
        let mut registrar = DomainRegistrar { context: self.context.as_mut(), domain: self.domain };
        self.registrations.acquire(&mut registrar, memory, access)
    }

    /// Times registered memory was found in the cache.
    pub(crate) fn registrations_found(&self) -> u64 {
        self.registrations.stats().hits
    }

    /// And gives it back.
    pub(crate) fn release(&mut self, held: Registration) {
        let mut registrar = DomainRegistrar { context: self.context.as_mut(), domain: self.domain };
        self.registrations.release(&mut registrar, held);
    }

    /// Gives up registered memory that is only kept for later messages.
    pub(crate) fn release_unused(&mut self) {
        let mut registrar = DomainRegistrar { context: self.context.as_mut(), domain: self.domain };
        self.registrations.clear(&mut registrar);
    }

    /// True if the receiver reads long messages, unless asked otherwise: where it reaches them in one copy.
    pub(crate) fn prefers_reads(&self) -> bool {
        self.prefers_reads
    }

    /// Who has written the last piece of a message, and the number that came with it.
    pub(crate) fn written(&mut self, completion: &WorkCompletion) -> Option<(PeerId, u32)> {
        let peer = self.by_number.get(&completion.qp.0).copied()?;
        self.freed.push(peer);
        Some((peer, completion.immediate?))
    }

    /// A hello has come, or has left.
    pub(crate) fn greeted(&mut self, work: Work, completion: &WorkCompletion) {
        match work {
            Work::ReceiveHello(number) => {
                if let Some(hello) = self.greeter.take(self.context.as_mut(), number, completion) {
                    self.hear(hello);
                }
                if self.greeter.has_failed() {
                    for peer in self.greeting.clone() {
                        self.lose(peer, "it can not be greeted: the device failed".to_owned());
                    }
                }
            }
            Work::SendHello(number) => self.greeter.said(self.context.as_mut(), number),
            _ => {}
        }
    }

    /// True if [`Port::settle`] has something to do although nothing came.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        let is_idle = self.to_tell.is_empty() && self.to_answer.is_empty();
        !(is_idle && self.greeting.is_empty() && self.partings.is_empty()) || self.has_to_show()
    }

    /// After a poll: posts what was emptied, tells who must be told, repeats hellos that are due.
    pub(crate) fn settle(&mut self) {
        if let Err(error) = self.pool.post_emptied(self.context.as_mut()) {
            self.lose_all(&error.to_string());
        }
        for peer in std::mem::take(&mut self.freed) {
            if let Some(Some(connection)) = self.connections.get_mut(peer as usize) {
                connection.credits.freed();
                if connection.credits.must_tell() {
                    list(&mut self.to_tell, connection, peer);
                }
            }
        }
        for peer in std::mem::take(&mut self.to_tell) {
            self.tell(peer);
        }
        if !(self.greeting.is_empty() && self.partings.is_empty()) {
            self.repeat_hellos();
        }
        if !self.to_answer.is_empty() {
            self.send_answers();
        }
        if self.has_to_show() {
            self.settle_channels();
        }
    }

    /// Tells a peer what it must know, if no record has told it meanwhile.
    fn tell(&mut self, peer: PeerId) {
        let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return };
        connection.listed = false;
        if connection.giving_back > 0 {
            self.give_back(peer);
        }
        let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return };
        let needed = connection.credits.must_tell() || connection.told_hold != self.holding_back;
        if !needed || connection.stage != Stage::Open {
            return;
        }
        if self.post_message(peer, Header::default()) {
            self.counters.credits_alone += 1;
        } else if let Some(Some(connection)) = self.connections.get_mut(peer as usize)
            && connection.stage == Stage::Open
        {
            list(&mut self.to_tell, connection, peer);
        }
    }

    /// Peers are asked for no eager data, or for it again.
    pub(crate) fn hold_back(&mut self, hold: bool) {
        self.holding_back = hold;
        for (peer, connection) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = connection
                && connection.stage == Stage::Open
            {
                list(&mut self.to_tell, connection, peer as PeerId);
            }
        }
        self.settle();
    }

    /// True if a peer has said that it ends.
    pub(crate) fn leaves(&self, peer: PeerId) -> bool {
        matches!(self.connections.get(peer as usize), Some(Some(connection)) if connection.leaves)
    }

    /// Says to all who are connected that this process asks for nothing more. Nobody waits for it to arrive.
    pub(crate) fn say_farewell(&mut self) {
        self.has_left = true;
        for peer in 0..self.connections.len() as PeerId {
            if matches!(&self.connections[peer as usize], Some(connection) if connection.stage == Stage::Open) {
                self.post_message(peer, Header::default());
            }
        }
    }

    /// Whoever wants to sleep has said so: the descriptor tells of what comes from now on.
    pub(crate) fn arm(&mut self) {
        self.tend_buffers();
        let nap = if self.context.capabilities().writes_wake { None } else { self.prepare_nap() };
        let armed =
            self.context.acknowledge(self.completions).and_then(|()| self.context.arm(self.completions, NotifyOn::Any));
        if let Err(error) = armed {
            self.lose_all(&error.to_string());
        }
        let now = (self.clock)();
        let next = self.losses.iter().map(|loss| loss.due).chain(self.next_hello()).chain(self.next_period()).min();
        let next = next.map(|next| next.saturating_sub(now));
        self.wakeup.limit([next, nap].into_iter().flatten().min());
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            qp: None,
            stage: Stage::Greeting { again: Duration::ZERO, pause: Duration::ZERO },
            connected: false,
            credits: Credits::new(0),
            in_flight: 0,
            giving_back: 0,
            listed: false,
            told_hold: false,
            holds_back: false,
            leaves: false,
            channels: None,
        }
    }
}

/// Puts a peer into the list of those to be told something, once.
fn list(to_tell: &mut Vec<PeerId>, connection: &mut Connection, peer: PeerId) {
    if !std::mem::replace(&mut connection.listed, true) {
        to_tell.push(peer);
    }
}
