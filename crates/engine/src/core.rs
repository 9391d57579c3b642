//! The engine: what a process asks of it.

use std::collections::VecDeque;
use std::sync::Arc;

use base::config::{DatatypeSettings, FastPath, Medium, ShuttleCopy};
use base::{Config, Slab, SlabKey};
use datatype::SendBuf;
use fabric::{MappedArea, MappedPeers, Wakeup};
use lockfree::{Allowance, Announcements, Stores};
use protocol::fastpath::Geometry;
use protocol::registration::RegistrationCache;
use protocol::wire::{self, Message, OfferedChannel};
use protocol::{RendezvousOffer, SourceLayout, Thresholds};

use crate::EngineError;
use crate::arrivals::Inbox;
use crate::channels::announced_places;
use crate::coming::Kept;
use crate::deliver::Unexpected;
use crate::inbound::{Inbound, Turn};
use crate::layouts::{Layouts, PortLayouts};
use crate::matching::{Pattern, PostedQueue, UnexpectedQueue};
use crate::packed::PackedForms;
use crate::peer::{Peer, Unmapped, Whole};
use crate::port::Port;
use crate::progress::Helping;
use crate::request::{
    Completion, ContextId, Envelope, Outcome, OutgoingSend, PeerId, Request, RequestId, SendMode, Source, State, Tag,
};
use crate::shuttles::ShuttleTable;
use crate::stats::{PeerStats, Stats};
use crate::streams::Streams;
use crate::transfer::Transfer;
use crate::tuples::TupleQueues;
use crate::wait::{WaitPolicy, Waiter};
use crate::watch::{EventKind, Watch};

/// The engine of one process.
pub struct Engine {
    /// Takes in what comes through the port.
    pub(crate) inbox: Option<Box<Inbox>>,
    /// Takes in what mapped peers write.
    pub(crate) inbound: Inbound,
    /// Turns of progress until channels that are not used are looked after, and such looks.
    pub(crate) turns_left: u32,
    pub(crate) looks: u32,
    pub(crate) core: Core,
    waiter: Arc<Waiter>,
}

/// Everything but the receiving channels, so that a record can be handled while it lies in one.
pub(crate) struct Core {
    /// Peers whose memory is mapped.
    pub(crate) context: Box<dyn MappedPeers>,
    /// The way to the others.
    pub(crate) port: Option<Box<Port>>,
    /// Peers that are lost without having said that they would leave, and why.
    pub(crate) losses: Vec<(PeerId, String)>,
    pub(crate) me: PeerId,
    pub(crate) size: u32,
    /// Where this process announces to mapped peers that there is something in its channel, or in their mailbox.
    pub(crate) place: u32,
    pub(crate) mailbox_place: u32,
    /// Sources below this are processes of the world; 0 as soon as one is lost, so that they are looked at more closely.
    pub(crate) sources_end: u32,
    /// What channels to mapped peers are like.
    pub(crate) geometry: Geometry,
    /// Channels that a peer grants at most.
    pub(crate) channels_max: u32,
    /// Turns of progress from one look after channels to the next, and looks after which an unused one is given up.
    pub(crate) look_turns: u32,
    pub(crate) idle_looks_max: u32,
    /// Bytes that senders of channels keep for themselves.
    pub(crate) held_bytes: u64,
    /// Somebody here may wait for what was just taken in and nothing else, and no turn of a channel has been ended for that yet.
    pub(crate) ends_turn: bool,
    /// Long messages without a receive may stay in their channels; not in a turn that takes in all there is.
    pub(crate) is_patient: bool,
    /// What peers said of their channels in this turn.
    pub(crate) turned: Vec<(PeerId, Turn)>,
    pub(crate) thresholds: Thresholds,
    pub(crate) requests: Slab<Request>,
    pub(crate) posted: PostedQueue<SlabKey>,
    pub(crate) unexpected: UnexpectedQueue<Unexpected>,
    pub(crate) matched: Slab<Unexpected>,
    /// Messages that came, or come, in pieces before their receives.
    pub(crate) kept: Slab<Kept>,
    pub(crate) peers: Vec<Option<Box<Peer>>>,
    pub(crate) shuttles: ShuttleTable,
    pub(crate) shuttle_copy: ShuttleCopy,
    /// Peers who have not read yet to the end of a channel that was given up.
    pub(crate) closing: Vec<PeerId>,
    /// Whose channel to ready for the next message while there is nothing else to do ([`lockfree::BlockSender::ready`]).
    pub(crate) readying: Option<PeerId>,
    /// Peers with records that wait for room.
    pub(crate) crowded: VecDeque<PeerId>,
    /// Messages that leave through the channel piece by piece.
    pub(crate) streams: Streams,
    /// Nobody waits yet for what is being taken in; and the messages that met their receives so since the last turn of progress,
    /// for which nobody has waited yet either.
    pub(crate) is_beside_work: bool,
    pub(crate) met_beside_work: Vec<SlabKey>,
    /// Messages of ours that a receiver lets us copy along.
    pub(crate) helping: Vec<Helping>,
    /// Long messages that this side moves over verbs, and those of which something is not posted.
    pub(crate) transfers: Slab<Transfer>,
    pub(crate) posting: VecDeque<SlabKey>,
    /// Receives that this side copies.
    pub(crate) copying: Vec<SlabKey>,
    pub(crate) free_cells: Vec<u32>,
    /// How data that does not lie in one piece gets across.
    pub(crate) datatypes: DatatypeSettings,
    pub(crate) packed: PackedForms,
    pub(crate) layouts: Layouts,
    pub(crate) port_layouts: PortLayouts,
    /// Memory that peers may copy from or to.
    pub(crate) registrations: RegistrationCache,
    /// Sends that are not complete.
    pub(crate) unfinished_sends: usize,
    pub(crate) unexpected_bytes: usize,
    pub(crate) unexpected_max_bytes: usize,
    pub(crate) holding_back: bool,
    pub(crate) stats: Stats,
    /// Most unexpected bytes held at once since this was asked last.
    pub(crate) recent_peak_bytes: usize,
    /// Set while somebody watches.
    pub(crate) watch: Option<Box<Watch>>,
    /// Where messages go to queues of their tuples.
    pub(crate) tuples: TupleQueues,
}

/// The sizes at which protocols change, as configured; an eager message fits each of the ways there are.
fn thresholds(config: &Config, geometry: &Geometry, context: &dyn MappedPeers, port: Option<&Port>) -> Thresholds {
    let eager_max = |medium, record_max: usize| config.sizes(medium).eager_max_bytes.min(record_max);
    let mapped = eager_max(Medium::Memory, geometry.payload_max_bytes());
    let posted = port.map_or(mapped, |port| eager_max(port.medium(), port.payload_max_bytes()));
    Thresholds::configured(config, if context.place_count() == 1 { posted } else { mapped }, posted)
}

/// How much longer than in the beginning the channels into a process may be, all together, where nothing else is set.
pub const CHANNEL_MEMORY_MAX_BYTES: usize = 16 << 20;

/// The match key on the wire: context and tag. The source is whose channel it came through.
#[inline]
pub(crate) fn match_key(context: ContextId, tag: Tag) -> u64 {
    u64::from(context.0) << 32 | u64::from(tag as u32)
}

impl Engine {
    /// An engine whose peers are mapped.
    ///
    /// # Errors
    /// When the device does not map its peers.
    pub fn new(context: Box<dyn MappedPeers>, config: &Config, policy: WaitPolicy) -> Result<Self, EngineError> {
        let wakeup = context.wakeup();
        Self::assemble(context, None, wakeup, config, policy)
    }

    /// An engine whose peers are reached over verbs.
    ///
    /// # Errors
    /// When the port does not know its peers.
    pub fn over_port(port: Port, config: &Config, policy: WaitPolicy) -> Result<Self, EngineError> {
        if port.rank() >= port.size() {
            return Err(EngineError::NoSuchPeer(port.rank()));
        }
        let wakeup: Arc<dyn Wakeup> = port.wakeup();
        let nobody = Unmapped::new(port.name(), port.rank(), port.size(), Arc::clone(&wakeup));
        Self::assemble(Box::new(nobody), Some(Box::new(port)), wakeup, config, policy)
    }

    pub(crate) fn assemble(
        context: Box<dyn MappedPeers>,
        port: Option<Box<Port>>,
        wakeup: Arc<dyn Wakeup>,
        config: &Config,
        policy: WaitPolicy,
    ) -> Result<Self, EngineError> {
        let me = context.local_peer();
        let size = context.peer_count();
        let announcements = context
            .mapped(MappedArea::Announcements { owner: me })
            .ok_or(EngineError::NoMappedPeers(context.name()))?;
        let mailbox_place = context.place_count();
        let announcements = Announcements::new(announcements, announced_places(mailbox_place));
        let mailbox = context.mapped(MappedArea::Mailbox { owner: me });
        let channel_memory_bytes = config.channel_memory_bytes.unwrap_or(CHANNEL_MEMORY_MAX_BYTES);
        let geometry = Geometry::new(config).sharing(channel_memory_bytes, mailbox_place - 1);
        let allowance = Allowance::new(channel_memory_bytes as u64);
        let mut port = port;
        port.iter_mut().for_each(|port| port.spend_from(&allowance));
        let limits = (config.channels_polled_min as usize, allowance.clone());
        let inbound = Inbound::new(geometry, limits, (me.0, size, mailbox_place), announcements, mailbox);
        let waiter = Arc::new(Waiter::new(wakeup, policy));
        let packed = match &port {
            Some(port) => port.packed.clone(),
            None => PackedForms::new(config.datatypes.pool_max_bytes, false),
        };
        let core = Core {
            me: me.0,
            size,
            place: context.place(me).unwrap_or(mailbox_place),
            mailbox_place,
            sources_end: size,
            geometry,
            channels_max: if geometry.design() == FastPath::Off { 0 } else { config.channels_max },
            look_turns: config.channel_look_turns.max(1),
            idle_looks_max: config.channel_idle_looks.unwrap_or(u32::MAX),
            held_bytes: 0,
            turned: Vec::new(),
            thresholds: thresholds(config, &geometry, &*context, port.as_deref()),
            requests: Slab::new(),
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
            matched: Slab::new(),
            ends_turn: false,
            is_patient: false,
            kept: Slab::new(),
            peers: (0..size).map(|_| None).collect(),
            shuttle_copy: config.shuttle_copy,
            shuttles: ShuttleTable::new(size, geometry.shuttle_bytes(), allowance.clone()),
            closing: Vec::new(),
            readying: None,
            crowded: VecDeque::new(),
            streams: Streams::default(),
            is_beside_work: false,
            met_beside_work: Vec::new(),
            helping: Vec::new(),
            transfers: Slab::new(),
            posting: VecDeque::new(),
            copying: Vec::new(),
            losses: Vec::new(),
            free_cells: (0..MappedArea::CLAIM_CELLS_MAX).rev().collect(),
            datatypes: config.datatypes,
            packed,
            layouts: Layouts::default(),
            port_layouts: PortLayouts::default(),
            registrations: RegistrationCache::configured(config, context.translation()),
            unfinished_sends: 0,
            unexpected_bytes: 0,
            unexpected_max_bytes: config.unexpected_max_bytes,
            holding_back: false,
            stats: Stats::default(),
            recent_peak_bytes: 0,
            watch: None,
            tuples: TupleQueues::default(),
            context,
            port,
        };
        let is_beside = mailbox_place > 1;
        let inbox = core.port.is_some().then(|| Box::new(Inbox::new(is_beside)));
        Ok(Self { inbox, inbound, turns_left: core.look_turns, looks: 0, core, waiter })
    }

    /// This process's number in the world.
    pub fn rank(&self) -> PeerId {
        self.core.me
    }

    /// Processes of the world.
    pub fn size(&self) -> u32 {
        self.core.size
    }

    /// What took which way so far.
    pub fn stats(&self) -> Stats {
        let peers = self.core.peers.iter().flatten().map(|peer| &peer.traffic);
        let layouts_read = self.core.layouts.read_count + self.core.port_layouts.learnt_count;
        let stats = Stats { registrations: self.core.registrations.stats(), layouts_read, ..self.core.stats };
        let stats = stats.with_peers(peers);
        let stats = self.with_channels(stats);
        match &self.core.port {
            Some(port) => port.stats(stats),
            None => stats,
        }
    }

    /// What went to and came from each peer that was sent something, in order of their numbers.
    pub fn peer_stats(&self) -> impl Iterator<Item = (PeerId, PeerStats)> {
        (0..).zip(&self.core.peers).filter_map(|(id, peer)| {
            let channel_bytes = self.inbound.held_from(id) + self.core.copy_bytes_to(id);
            let held_bytes = channel_bytes + self.core.shuttles.held_bytes(id);
            Some((id, PeerStats { held_bytes, ..peer.as_ref()?.traffic }))
        })
    }

    /// Gives up registered memory that is only kept for later messages.
    pub fn release_registrations(&mut self) {
        self.core.registrations.clear(&mut *self.core.context);
        if let Some(port) = &mut self.core.port {
            port.release_unused();
        }
    }

    /// Whether large messages are copied straight between processes; the reason if not.
    pub fn direct_copies(&self) -> Result<(), String> {
        self.core.context.direct_copies()
    }

    /// The sizes at which protocols change.
    pub fn thresholds(&self) -> Thresholds {
        self.core.thresholds
    }

    /// Says whether processes outnumber processors, which decides who copies long messages.
    pub fn set_crowded(&mut self, is_crowded: bool) {
        self.core.thresholds.is_crowded = is_crowded;
        self.core.is_patient = is_crowded;
    }

    /// Takes over the settings that can change while messages are under way: sizes, budget, who copies.
    pub fn adopt(&mut self, config: &Config) {
        let core = &mut self.core;
        let is_crowded = core.thresholds.is_crowded;
        let adopted = thresholds(config, &core.geometry, &*core.context, core.port.as_deref());
        core.thresholds = Thresholds { is_crowded, ..adopted };
        core.unexpected_max_bytes = config.unexpected_max_bytes;
        core.datatypes = config.datatypes;
        // What receivers gave leave to as things were.
        core.peers.iter_mut().flatten().for_each(|peer| peer.whole = Whole::default());
    }

    /// Has the next turn of progress take in everything: who is about to sleep must not leave anything behind.
    pub fn hurry(&mut self) {
        self.core.is_patient = false;
        self.core.streams.hurry();
    }

    /// Bytes of unexpected data held now.
    pub fn unexpected_bytes(&self) -> u64 {
        self.core.unexpected_bytes as u64
    }

    /// Most bytes of unexpected data held at once since this was asked last.
    pub fn take_unexpected_peak(&mut self) -> u64 {
        std::mem::replace(&mut self.core.recent_peak_bytes, self.core.unexpected_bytes) as u64
    }

    /// How to wait for this engine without holding it.
    pub fn waiter(&self) -> Arc<Waiter> {
        Arc::clone(&self.waiter)
    }

    /// Sends a short message if that can be done at once; true if it is gone and no request is needed.
    #[inline]
    pub fn try_send(&mut self, to: PeerId, context: ContextId, tag: Tag, buf: &SendBuf) -> bool {
        !self.has_tuples() && self.core.try_eager(to, context, tag, buf)
    }

    #[inline]
    pub(crate) fn has_tuples(&self) -> bool {
        self.core.tuples.are_in_use()
    }

    /// Starts a send.
    ///
    /// # Errors
    /// [`EngineError::NoSuchPeer`].
    pub fn send(
        &mut self,
        mode: SendMode,
        to: PeerId,
        context: ContextId,
        tag: Tag,
        buf: SendBuf,
    ) -> Result<RequestId, EngineError> {
        let envelope = Envelope { peer: to, tag, len_bytes: buf.len_bytes() };
        if self.has_tuples() {
            return self.core.send_by_tuple(mode == SendMode::Synchronous, context, envelope, buf);
        }
        self.core.send_classic(mode == SendMode::Synchronous, context, envelope, buf)
    }

    /// True if the request is over (or is unknown).
    #[inline]
    pub fn is_complete(&self, request: RequestId) -> bool {
        !matches!(self.core.requests.get(request.0), Some(Request { state, .. }) if !matches!(state, State::Complete(_)))
    }

    /// How the request ended, without freeing it; `None` while it is pending.
    pub fn peek(&self, request: RequestId) -> Option<&Completion> {
        match self.core.requests.get(request.0) {
            Some(Request { state: State::Complete(completion), .. }) => Some(completion),
            _ => None,
        }
    }

    /// How the request ended; it is freed. `None` while it is pending.
    pub fn take(&mut self, request: RequestId) -> Option<Completion> {
        self.take_with(request, Completion::clone)
    }

    /// As [`Engine::take`], for those who only look.
    #[inline]
    pub fn take_with<R>(&mut self, request: RequestId, look: impl FnOnce(&Completion) -> R) -> Option<R> {
        let requests = &mut self.core.requests;
        let State::Complete(completion) = &requests.get(request.0)?.state else { return None };
        let found = look(completion);
        match completion.outcome {
            Outcome::Failed(_) => drop(requests.remove(request.0)),
            // Nothing is left of it: it is not even looked at, which is a call.
            _ => requests.forget(request.0),
        }
        Some(found)
    }

    /// Nobody will ask for this request again: it frees itself when it is over. MPI: §3.7.3 (`MPI_Request_free`).
    pub fn detach(&mut self, request: RequestId) {
        if self.take(request).is_none()
            && let Some(request) = self.core.requests.get_mut(request.0)
        {
            request.detached = true;
        }
    }

    /// Cancels a receive or send that nothing has matched; anything else goes on as before. The receiver of a
    /// send is asked, and the request is over once it has answered. MPI: §3.8.4.
    pub fn cancel(&mut self, request: RequestId) {
        if self.has_tuples() && self.core.cancel_tuple_send(request.0) {
            return;
        }
        match self.core.requests.get(request.0) {
            Some(Request { state: State::Posted { links, .. }, .. }) => {
                self.core.posted.remove(*links);
                let envelope = Envelope { peer: self.core.me, tag: 0, len_bytes: 0 };
                self.core.complete(request.0, Completion { envelope, outcome: Outcome::Cancelled });
            }
            Some(Request { state: State::InQueue(_), .. }) => self.core.cancel_in_queue(request.0),
            Some(Request { state: State::Outgoing(send), .. }) => {
                let (to, key) = (send.envelope.peer, send.key);
                self.core.cancel_send(to, key, request.0);
            }
            _ => {}
        }
    }

    /// Tells peers that this process asks for nothing more; whoever loses it from now on is not alarmed.
    pub fn say_farewell(&mut self) {
        if let Some(port) = &mut self.core.port {
            port.say_farewell();
        }
    }

    /// Sends whose data others still need from us; a process must not end before there are none.
    pub fn pending_sends(&self) -> usize {
        let posted = self.core.port.as_ref().map_or(0, |port| port.in_flight());
        let in_flight = self.core.tuples.each().map(|tuples| tuples.in_flight()).sum::<usize>();
        let crowded = self.core.crowded.iter().filter(|to| !self.core.has_left(**to)).count();
        self.core.unfinished_sends + crowded + self.core.streams.len() + posted + in_flight
    }

    /// Messages that came and were not received.
    pub fn unexpected_count(&self) -> usize {
        self.core.unexpected.len()
    }
}

impl Core {
    #[inline]
    pub(crate) fn check_source(&mut self, from: Source, pattern: Pattern) -> Result<(), EngineError> {
        match from {
            Source::Peer(peer) if peer >= self.sources_end => self.check_peer(peer, pattern),
            _ => Ok(()),
        }
    }

    /// What a lost process had sent before can still be received.
    #[cold]
    fn check_peer(&mut self, peer: PeerId, pattern: Pattern) -> Result<(), EngineError> {
        if peer >= self.size {
            return Err(EngineError::NoSuchPeer(peer));
        }
        match self.lost(peer) {
            Some(lost) if self.unexpected.peek(pattern).is_none() => Err(lost),
            _ => Ok(()),
        }
    }

    /// A request that is over already.
    pub(crate) fn completed(&mut self, envelope: Envelope) -> RequestId {
        let state = State::Complete(Completion { envelope, outcome: Outcome::Done });
        RequestId(self.requests.insert(Request { state, detached: false }))
    }

    /// Counts something for a peer that is talked to.
    pub(crate) fn count_for(&mut self, peer: PeerId, count: impl FnOnce(&mut PeerStats)) {
        if let Some(Some(entry)) = self.peers.get_mut(peer as usize) {
            count(&mut entry.traffic);
        }
    }

    /// Notes an event if somebody watches.
    #[inline]
    pub(crate) fn note(&mut self, kind: EventKind, envelope: Envelope) {
        if let Some(watch) = &mut self.watch {
            watch.note(kind, Some(envelope), envelope.len_bytes);
        }
    }

    /// Ends a request. What comes here has to come to `fill_posted`, too, which does this in its place.
    #[inline(always)]
    pub(crate) fn complete(&mut self, key: SlabKey, completion: Completion) {
        self.note(EventKind::RequestCompleted, completion.envelope);
        let Some(request) = self.requests.get_mut(key) else { return };
        if request.detached {
            self.requests.remove(key);
        } else {
            request.state = State::Complete(completion);
        }
    }

    /// The peer, connected if this is the first time.
    #[inline]
    pub(crate) fn peer(&mut self, to: PeerId) -> Result<&mut Peer, EngineError> {
        if self.peers.get(to as usize).ok_or(EngineError::NoSuchPeer(to))?.is_none() {
            self.connect(to)?;
        }
        Ok(self.peers[to as usize].as_deref_mut().expect("connected above"))
    }

    #[cold]
    fn connect(&mut self, to: PeerId) -> Result<(), EngineError> {
        let peer = match &self.port {
            Some(port) if port.reaches(to) => Peer::over_port(port.payload_max_bytes()),
            _ => Peer::mapped(self.link_to(to)?, self.context.direct_copies().is_ok()),
        };
        self.peers[to as usize] = Some(Box::new(peer));
        Ok(())
    }

    /// A send by the protocols of channels: eagerly at once if that can be.
    #[inline]
    pub(crate) fn send_classic(
        &mut self,
        synchronous: bool,
        context: ContextId,
        envelope: Envelope,
        buf: SendBuf,
    ) -> Result<RequestId, EngineError> {
        if !synchronous && self.try_eager(envelope.peer, context, envelope.tag, &buf) {
            return Ok(self.completed(envelope));
        }
        self.start_send(synchronous, context, envelope, buf)
    }

    /// Starts a send that could not, or must not, go eagerly at once.
    pub(crate) fn start_send(
        &mut self,
        synchronous: bool,
        context: ContextId,
        envelope: Envelope,
        buf: SendBuf,
    ) -> Result<RequestId, EngineError> {
        let key = match_key(context, envelope.tag);
        let to = envelope.peer;
        if to == self.me {
            return Ok(self.start_send_to_self(context, envelope, buf));
        }
        if let Some(lost) = self.lost(to) {
            return Err(lost);
        }
        self.peer(to)?;
        let id = self.insert_send(OutgoingSend::new(buf, envelope, key, synchronous));
        self.dispatch(id);
        Ok(RequestId(id))
    }

    /// A request for a send that is not over.
    pub(crate) fn insert_send(&mut self, send: OutgoingSend) -> SlabKey {
        self.unfinished_sends += 1;
        self.requests.insert(Request { state: State::Outgoing(Box::new(send)), detached: false })
    }

    /// Sends the message of a request, or what announces it.
    pub(crate) fn dispatch(&mut self, id: SlabKey) {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(id) else { return };
        let (envelope, key) = (send.envelope, send.key);
        let to = envelope.peer;
        let buf = std::mem::replace(&mut send.buf, SendBuf::empty());
        let Ok(peer) = self.peer(to) else { return };
        let (holds_back, is_port) = (peer.link.holds_back_eager(), peer.link.is_port());
        let record_max = peer.link.payload_max_bytes();
        let holds_back = holds_back || self.port.as_ref().is_some_and(|port| port.holds_back(to));
        let eager_max = if is_port { self.thresholds.posted_eager_max_bytes } else { self.thresholds.eager_max_bytes };
        let short = envelope.len_bytes as usize <= eager_max.min(record_max);
        let eager = short && (!holds_back || envelope.len_bytes == 0);
        let (buf, packed) = if eager { (buf, None) } else { self.packed_first(is_port, buf) };
        let (region, layout) = match () {
            () if eager => (None, SourceLayout::InOnePiece),
            () if is_port && buf.as_contiguous().is_some() => {
                (self.register_posted(to, &buf), SourceLayout::InOnePiece)
            }
            () if is_port => (None, Self::offer_blocks(&buf)),
            () => self.register_source(to, &buf),
        };
        if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(id) {
            (send.buf, send.region, send.packed) = (buf, region, packed);
        }
        if eager {
            return self.push_or_queue_eager(to, id);
        }
        let mut channel = OfferedChannel::default();
        if let Ok(peer) = self.peer(to) {
            peer.traffic.rendezvous_sent += 1;
            peer.traffic.rendezvous_sent_bytes += envelope.len_bytes;
            channel = peer.link.offer(envelope.len_bytes);
        }
        channel.awaits = !self.posted.is_empty();
        self.note(EventKind::RendezvousStarted, envelope);
        let memory = region.map(|held| held.remote());
        let offer = RendezvousOffer { len_bytes: envelope.len_bytes, memory, layout, channel };
        self.send_control(to, Message::Request { key, send: id.to_bits(), offer });
        self.push_ahead(to, id);
    }

    fn push_or_queue_eager(&mut self, to: PeerId, id: SlabKey) {
        let pushed = self.push_eager_request(to, id, false);
        if !pushed {
            if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) {
                self.note(EventKind::EagerWaited, send.envelope);
            }
            if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
                peer.traffic.eager_waited += 1;
                peer.link.queue_eager(id.to_bits());
            }
            self.list_crowded(to);
        }
    }

    /// Pushes the eager record of a request; `first` if it stands at the head of the queue.
    pub(crate) fn push_eager_request(&mut self, to: PeerId, id: SlabKey, first: bool) -> bool {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return true };
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return true };
        let record = wire::eager(send.key, send.synchronous.then(|| id.to_bits()));
        let len = send.envelope.len_bytes as usize;
        let (synchronous, envelope) = (send.synchronous, send.envelope);
        let pushed = match self.port.as_mut().filter(|_| peer.link.is_port()) {
            Some(port) => {
                let may = first || peer.link.is_clear();
                may && port.push(to, record, len, |space| pack_all(&send.buf, 0, space))
            }
            None => {
                let fill = |space: &mut [u8], stores| write_all(&send.buf, 0, space, stores);
                if first { peer.link.push_first(record, len, fill) } else { peer.link.try_push(record, len, fill) }
            }
        };
        if !pushed {
            return false;
        }
        if peer.link.is_port() {
            if first {
                peer.link.skip_first();
            }
            peer.traffic.count_eager(len as u64);
            // What waited is counted as that.
            let slow = !first && self.port.as_ref().is_some_and(|port| !port.is_fast(to));
            peer.traffic.slow_sent += u64::from(slow);
        } else {
            self.eager_left(to, len as u64);
        }
        if !synchronous {
            self.finish_send(id, Completion { envelope, outcome: Outcome::Done });
        }
        true
    }

    /// Ends a send: its registration goes, too.
    pub(crate) fn finish_send(&mut self, id: SlabKey, completion: Completion) {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return };
        let (region, blocks, ride, to) = (send.region, send.blocks.clone(), send.ride, send.envelope.peer);
        if let Some(held) = region {
            self.release(held);
        }
        if let (Some(blocks), Some(port)) = (blocks, &mut self.port) {
            blocks.release(port);
        }
        // Not all of it went aboard, and nobody wants what did.
        ride.into_iter().for_each(|ride| self.shuttles.keep(to, ride.shuttle));
        self.tuples.each_mut().for_each(|tuples| tuples.forget_cancel(id));
        self.unfinished_sends -= 1;
        self.complete(id, completion);
    }

    /// Sends a control record, or queues it behind what waits already.
    pub(crate) fn send_control(&mut self, to: PeerId, message: Message<'_>) {
        self.send_record(to, wire::control(message));
    }

    /// As [`Core::send_control`], for records of any kind.
    pub(crate) fn send_record(&mut self, to: PeerId, control: wire::Control) {
        if self.peer(to).is_err() {
            return;
        }
        let payload = control.payload();
        if self.push(to, control.record, payload.len(), false, |space| space.copy_from_slice(payload)) {
            return;
        }
        if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
            peer.link.queue_control(control);
        }
        self.list_crowded(to);
    }

    /// Something waits for room on the way to a peer. To one that is lost nothing ever leaves, and nobody waits for that.
    pub(crate) fn list_crowded(&mut self, to: PeerId) {
        if self.has_lost(to) {
            self.peers[to as usize].iter_mut().for_each(|peer| peer.link.clear());
            return;
        }
        if let Some(Some(peer)) = self.peers.get_mut(to as usize)
            && !std::mem::replace(&mut peer.listed, true)
        {
            self.crowded.push_back(to);
        }
    }
}

/// Fills `space`, which another processor reads next, with the bytes of `buf` from `offset` on.
#[inline]
pub(crate) fn write_all(buf: &SendBuf, offset: u64, space: &mut [u8], stores: Stores) {
    match buf.as_contiguous() {
        Some(bytes) => stores.copy(space, &bytes[offset as usize..offset as usize + space.len()]),
        None if stores != Stores::Streaming => pack_all(buf, offset, space),
        None => {
            let packed = buf.pack_streaming_at(offset, space);
            debug_assert_eq!(packed, space.len());
        }
    }
}

/// As [`write_all`], to where no other processor reads it next.
#[inline]
pub(crate) fn pack_all(buf: &SendBuf, offset: u64, space: &mut [u8]) {
    match buf.as_contiguous() {
        Some(bytes) => base::copy::copy(space, &bytes[offset as usize..offset as usize + space.len()]),
        None => {
            let packed = buf.pack_at(offset, space);
            debug_assert_eq!(packed, space.len());
        }
    }
}
