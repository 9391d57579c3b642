//! What arrives: matching it and putting it where it belongs.

use base::SlabKey;
use datatype::{RecvBuf, SendBuf};
use fabric::{Access, LocalMemory, MappedArea, PeerIndex};
use lockfree::{ClaimCell, Record};
use protocol::registration::Registration;
use protocol::rendezvous::Chunks;
use protocol::wire::{self, Message};
use protocol::{RendezvousOffer, SharedCopy, SourceLayout};

use crate::core::{Core, match_key};
use crate::inbound::Turn;
use crate::progress::Helping;
use crate::request::{
    Completion, ContextId, Envelope, Incoming, IncomingWay, Outcome, OutgoingSend, PeerId, Request, RequestId, State,
    Tag,
};
use crate::scattered::Place;
use crate::streams::Stream;
use crate::watch::EventKind;

/// Turns in which a long message without a receive stays in its channel where processes share processors: who takes it out at
/// once copies it twice, and its receive is often posted a few turns of the others later.
pub(crate) const PATIENCE_TURNS: u32 = 16;

/// A message that came before its receive.
pub(crate) struct Unexpected {
    pub(crate) envelope: Envelope,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    /// Its bytes, stored at exact size; with the sender's request if it waits for the match.
    Eager { data: Box<[u8]>, acknowledge: Option<u64> },
    /// It comes, or came, in pieces.
    Coming { kept: SlabKey },
    /// It waits at the sender.
    Rendezvous { send: u64, offer: RendezvousOffer },
    /// It waits in a request of this process.
    Own { send: SlabKey },
    /// The device holds it, for the queue of its tuple.
    Announced { send: u64, key: u64 },
    /// It is on its way out of the queue of its tuple, for this request, which its receive takes over.
    Fetched { request: SlabKey },
    /// The device held it, and does not give it out.
    Lost,
}

impl Unexpected {
    /// A message that the device holds.
    pub(crate) fn announced(envelope: Envelope, send: u64, key: u64) -> Self {
        Self { envelope, content: Content::Announced { send, key } }
    }

    /// True if the device holds it for this request of its sender.
    pub(crate) fn is_announced_by(&self, wanted: u64) -> bool {
        matches!(self.content, Content::Announced { send, .. } if send == wanted)
    }
}

impl Content {
    /// True if the sender's request `wanted` waits for this message to be matched.
    fn is_awaited_by(&self, wanted: u64) -> bool {
        match self {
            Content::Eager { acknowledge, .. } => *acknowledge == Some(wanted),
            Content::Rendezvous { send, .. } => *send == wanted,
            // What the device holds is not taken back so.
            Content::Coming { .. } | Content::Announced { .. } | Content::Fetched { .. } | Content::Lost => false,
            Content::Own { send } => send.to_bits() == wanted,
        }
    }
}

/// User data as it lies in a channel.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a> {
    bytes: &'a [u8],
    /// See [`Record::streamed`] and [`Record::by_instruction`].
    streamed: bool,
    by_instruction: bool,
}

impl<'a> Written<'a> {
    /// These bytes of the payload of a record.
    #[inline]
    fn of(record: Record, bytes: &'a [u8]) -> Self {
        Self { bytes, streamed: record.streamed, by_instruction: record.by_instruction }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The first `most` bytes of it.
    pub(crate) fn up_to(self, most: u64) -> Self {
        Self { bytes: &self.bytes[..self.bytes.len().min(most as usize)], ..self }
    }

    pub(crate) fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.bytes);
    }

    /// Puts it into `buf` from the packed byte `offset` on, or as much of it as there is room for.
    #[inline]
    pub(crate) fn read_into(self, buf: &mut RecvBuf, offset: u64) {
        if self.streamed && self.bytes.len() >= base::copy::DOWNWARDS_MIN_BYTES {
            buf.unpack_downwards_at(offset, self.bytes);
        } else if let Some(space) = buf.contiguous_mut() {
            let space = space.get_mut(offset as usize..).unwrap_or_default();
            let len = self.bytes.len().min(space.len());
            let (space, bytes) = (&mut space[..len], &self.bytes[..len]);
            if self.by_instruction {
                base::copy::copy_by_instruction(space, bytes);
            } else {
                base::copy::copy(space, bytes);
            }
        } else {
            buf.unpack_at(offset, self.bytes);
        }
    }
}

impl Core {
    /// One record from `peer`.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, peer: PeerId, record: Record, payload: &[u8]) {
        match wire::parse_eager(record) {
            Some(key) => self.arrive_eager(peer, key, Written::of(record, payload), None),
            None => self.arrive_of_other_kinds(peer, record, payload),
        }
    }

    #[inline(never)]
    fn arrive_of_other_kinds(&mut self, peer: PeerId, record: Record, payload: &[u8]) {
        let written = |bytes| Written::of(record, bytes);
        match wire::parse(record, payload) {
            Some(Message::EagerSync { key, send, data }) => self.arrive_eager(peer, key, written(data), Some(send)),
            Some(Message::Request { key, send, offer }) => self.arrive_request(peer, key, send, offer),
            Some(Message::Data { receive, offset, last, data }) => {
                self.arrive_data(peer, receive, offset, last, written(data));
            }
            Some(Message::Clear { send, receive, took_ahead, whole }) => {
                self.arrive_clear(peer, send, receive, took_ahead, whole);
            }
            Some(Message::Ahead { send, offset, data }) => self.arrive_ahead(peer, send, offset, written(data)),
            Some(Message::First { key, len_bytes, data }) => self.arrive_first(peer, key, len_bytes, written(data)),
            Some(Message::More { offset, data }) => self.arrive_more(peer, offset, written(data)),
            Some(Message::ClearShared { send, receive, copy }) => self.arrive_clear_shared(peer, send, receive, copy),
            Some(Message::ClearWrite { send, number, target, packed }) => {
                self.arrive_clear_write(peer, send, number, target, (None, packed));
            }
            Some(Message::ClearSegment { send, number, target, len_bytes, packed }) => {
                self.arrive_clear_write(peer, send, number, target, (Some(len_bytes), packed));
            }
            Some(Message::ClearBlocks { send, receive, blocks }) => {
                self.arrive_clear_blocks(peer, send, receive, blocks);
            }
            Some(Message::Finished { send }) => {
                let sent = self.outgoing_to(peer, SlabKey::from_bits(send)).map(|send| send.envelope.len_bytes);
                if let Some(len_bytes) = sent {
                    self.other_takes(peer, len_bytes, false);
                }
                self.arrive_finished(peer, send);
            }
            Some(Message::Acknowledge { send }) => self.arrive_finished(peer, send),
            Some(Message::Withdraw { key, send }) => self.arrive_withdraw(peer, key, send),
            Some(Message::Withdrawn { send }) => self.arrive_withdrawn(peer, send),
            Some(Message::Open) => self.turned.push((peer, Turn::Opened)),
            Some(Message::Close) => self.turned.push((peer, Turn::Closed)),
            Some(Message::Want { geometry, control }) => self.arrive_want(peer, geometry, control),
            Some(Message::Grant(memory)) => self.arrive_grant(peer, memory),
            Some(Message::Closed) => self.arrive_closed(peer),
            // Whoever took it out of the channel keeps what came with it.
            Some(Message::Home) => {}
            None => self.arrive_other(peer, record, payload),
        }
    }

    /// A record of another kind.
    #[cold]
    fn arrive_other(&mut self, peer: PeerId, record: Record, payload: &[u8]) {
        if record.kind != protocol::tupleq::KIND {
            self.arrive_otherwise(peer, record, payload);
        } else if !self.arrive_about_tuples(peer, record, payload) {
            self.refuse();
        }
    }

    /// Drops a record that makes no sense.
    #[cold]
    pub(crate) fn refuse(&mut self) {
        self.stats.refused_records += 1;
        if let Some(watch) = &mut self.watch {
            watch.note(EventKind::RecordRefused, None, 0);
        }
    }

    #[inline]
    fn arrive_eager(&mut self, peer: PeerId, key: u64, data: Written<'_>, acknowledge: Option<u64>) {
        let (context, tag) = split(key);
        let envelope = Envelope { peer, tag, len_bytes: data.bytes.len() as u64 };
        match self.posted.arrive(context, peer, tag) {
            Some(receive) => {
                self.fill_posted(receive, envelope, |buf| data.read_into(buf, 0));
                if envelope.len_bytes > self.thresholds.eager_max_bytes as u64 {
                    self.note_whole(peer, envelope.len_bytes);
                }
                // The next one has no receive yet. Even to look whether it is there would take its line from whoever writes it.
                self.ends_turn |= self.posted.is_empty() && !self.thresholds.is_crowded;
                if let Some(send) = acknowledge {
                    self.send_control(peer, Message::Acknowledge { send });
                }
            }
            None => {
                if envelope.len_bytes > self.thresholds.eager_max_bytes as u64 {
                    self.note_early(peer);
                }
                let data = data.bytes.into();
                self.store(context, Unexpected { envelope, content: Content::Eager { data, acknowledge } })
            }
        }
    }

    /// Whether there is a receive for what would have to be stored without one and is long, half of the longest eager message
    /// or more; `None` if the record is no such.
    pub(crate) fn has_receive(&mut self, peer: PeerId, record: Record, len_bytes: usize) -> Option<bool> {
        let (context, tag) =
            split(wire::key_of_eager(record).filter(|_| len_bytes >= self.thresholds.eager_max_bytes / 2)?);
        Some(self.posted.would_match(context, peer, tag))
    }

    /// True if a record asks or answers: no message in one record, nor what asks for a receive that is not there yet.
    pub(crate) fn is_talk(&mut self, peer: PeerId, record: Record) -> bool {
        let is_waited_for = |core: &mut Self, key| {
            let (context, tag) = split(key);
            core.posted.would_match(context, peer, tag)
        };
        wire::key_of_eager(record).is_none() && wire::key_of_request(record).is_none_or(|key| is_waited_for(self, key))
    }

    fn arrive_request(&mut self, peer: PeerId, key: u64, send: u64, offer: RendezvousOffer) {
        let (context, tag) = split(key);
        let envelope = Envelope { peer, tag, len_bytes: offer.len_bytes };
        if let Some(Some(peer)) = self.peers.get_mut(peer as usize) {
            peer.ahead_into = None;
        }
        match self.posted.arrive(context, peer, tag) {
            Some(receive) => {
                if let Some(buf) = self.take_posted_buf(receive) {
                    self.start_incoming(receive, Incoming::new(buf, envelope, send, true), offer);
                }
            }
            None => self.store(context, Unexpected { envelope, content: Content::Rendezvous { send, offer } }),
        }
    }

    /// Completes a posted receive with a message that is here.
    #[inline]
    fn fill_posted(&mut self, receive: SlabKey, envelope: Envelope, fill: impl FnOnce(&mut RecvBuf)) {
        let Some(request) = self.requests.get_mut(receive) else { return };
        let State::Posted { buf, .. } = &mut request.state else { return };
        let capacity_bytes = buf.len_bytes();
        fill(buf);
        if envelope.len_bytes > capacity_bytes || request.detached || self.watch.is_some() {
            let outcome = outcome(envelope.len_bytes, capacity_bytes);
            return self.complete(receive, Completion { envelope, outcome });
        }
        // As `complete` does it.
        let over = State::Complete(Completion { envelope, outcome: Outcome::Done });
        if buf.is_plain() {
            // Nothing is left of it: it is not even looked at, which is a call.
            std::mem::forget(std::mem::replace(&mut request.state, over));
        } else {
            request.state = over;
        }
    }

    /// Takes the buffer out of a posted receive that has matched; the request stays.
    pub(crate) fn take_posted_buf(&mut self, receive: SlabKey) -> Option<RecvBuf> {
        let request = self.requests.get_mut(receive)?;
        let envelope = Envelope { peer: self.me, tag: 0, len_bytes: 0 };
        let over = State::Complete(Completion { envelope, outcome: Outcome::Done });
        match std::mem::replace(&mut request.state, over) {
            State::Posted { buf, .. } => Some(buf),
            other => {
                request.state = other;
                None
            }
        }
    }

    /// Keeps a message until it is asked for.
    pub(crate) fn store(&mut self, context: ContextId, message: Unexpected) {
        if let Content::Eager { .. } | Content::Coming { .. } = &message.content {
            self.unexpected_bytes += message.envelope.len_bytes as usize;
            self.stats.unexpected_peak_bytes = self.stats.unexpected_peak_bytes.max(self.unexpected_bytes as u64);
            self.recent_peak_bytes = self.recent_peak_bytes.max(self.unexpected_bytes);
        }
        self.stats.unexpected += 1;
        self.note(EventKind::MessageUnexpected, message.envelope);
        self.unexpected.push(context, message.envelope.peer, message.envelope.tag, message);
    }

    /// A message that a probe has taken out of matching: what the device holds is fetched, for receives posted to the
    /// queue would take it otherwise.
    pub(crate) fn fetch_probed(&mut self, message: Unexpected) -> Unexpected {
        let Content::Announced { key, .. } = message.content else { return message };
        let envelope = message.envelope;
        let Some(request) = self.fetch_kept(envelope, key) else {
            return Unexpected { envelope, content: Content::Lost };
        };
        self.unexpected_bytes += envelope.len_bytes as usize;
        Unexpected { envelope, content: Content::Fetched { request } }
    }

    /// A receive meets a message that came before.
    pub(crate) fn receive_unexpected(&mut self, message: Unexpected, mut buf: RecvBuf) -> RequestId {
        let Unexpected { envelope, content } = message;
        let mut outcome = outcome(envelope.len_bytes, buf.len_bytes());
        match content {
            Content::Eager { data, acknowledge } => {
                self.unexpected_bytes -= data.len();
                read_all(&mut buf, &data);
                if let Some(send) = acknowledge {
                    self.send_control(envelope.peer, Message::Acknowledge { send });
                }
            }
            Content::Coming { kept } => return self.receive_kept(kept, buf, envelope),
            Content::Rendezvous { send, offer } => {
                let envelope_done = self.completed(envelope);
                self.start_incoming(envelope_done.0, Incoming::new(buf, envelope, send, false), offer);
                self.fail_if_lost(envelope_done.0, envelope);
                return envelope_done;
            }
            Content::Own { send } => self.copy_own(send, &mut buf),
            Content::Announced { key, .. } => {
                let receive = self.completed(envelope);
                self.fetch_announced(receive.0, buf, envelope, key);
                return receive;
            }
            Content::Fetched { request } => {
                self.unexpected_bytes -= envelope.len_bytes as usize;
                return self.receive_fetched(request, buf);
            }
            Content::Lost => outcome = Outcome::Failed(self.not_fetched(envelope.peer)),
        }
        let completion = Completion { envelope, outcome };
        RequestId(self.requests.insert(Request { state: State::Complete(completion), detached: false }))
    }

    /// A long message has met its receive: decides who moves the bytes.
    fn start_incoming(&mut self, receive: SlabKey, mut incoming: Incoming, offer: RendezvousOffer) {
        let Incoming { buf, envelope, send, .. } = &mut incoming;
        let (envelope, send, capacity_bytes) = (*envelope, *send, buf.len_bytes());
        if offer.len_bytes > capacity_bytes || offer.len_bytes == 0 {
            // Nothing is moved: a message that is too long is an error of the receive, not of the send.
            self.send_control(envelope.peer, Message::Finished { send });
            let outcome = outcome(offer.len_bytes, capacity_bytes);
            return self.complete(receive, Completion { envelope, outcome });
        }
        let Ok(peer) = self.peer(envelope.peer) else { return };
        peer.traffic.rendezvous_received += 1;
        peer.traffic.rendezvous_received_bytes += offer.len_bytes;
        let (reach, is_port) = (peer.reach, peer.link.is_port());
        if offer.layout != SourceLayout::InOnePiece || buf.as_contiguous().is_none() {
            return match is_port {
                true => self.start_blocks(receive, incoming, offer),
                false => self.start_scattered(receive, incoming, offer, reach),
            };
        }
        let range = buf.range().and_then(|range| range.part(0, offer.len_bytes as usize));
        let has_range = range.is_some();
        if is_port && let Some(way) = self.start_rdma(envelope.peer, receive, send, range, offer.memory) {
            if let Some(request) = self.requests.get_mut(receive) {
                request.state = State::Incoming(Box::new(Incoming { way, ..incoming }));
            }
            return;
        }
        let source = offer.memory.filter(|_| has_range).map(Place::Flat);
        self.begin_whole(receive, incoming, source, reach, offer.channel, None);
    }

    /// Opens a claim cell for a receive that both sides copy; `None` if cells or regions are used up.
    pub(crate) fn open_shared(
        &mut self,
        range: base::memory::WriteRange,
        len_bytes: u64,
        chunk_bytes: u32,
    ) -> Option<(Registration, u32, u32, Chunks)> {
        let chunks = Chunks::new(len_bytes, chunk_bytes)?;
        let cell = self.free_cells.pop()?;
        let wanted = LocalMemory::Target(range);
        let Ok(region) = self.registrations.acquire(&mut *self.context, wanted, Access::REMOTE_WRITE) else {
            self.free_cells.push(cell);
            return None;
        };
        let generation = self.claim_cell(self.me, cell)?.open();
        Some((region, cell, generation, chunks))
    }

    /// The claim cell `cell` of `owner`.
    pub(crate) fn claim_cell(&self, owner: PeerId, cell: u32) -> Option<ClaimCell> {
        self.context.mapped(MappedArea::ClaimCell { owner: PeerIndex(owner), cell }).map(ClaimCell::new)
    }

    /// A piece of a long message that came before its sender was answered: of use if its receive was there.
    fn arrive_ahead(&mut self, peer: PeerId, send: u64, offset: u64, data: Written<'_>) {
        let Some(Some(entry)) = self.peers.get(peer as usize) else { return };
        let into = entry.ahead_into.and_then(|receive| Some((receive, self.requests.get(receive)?)));
        match into {
            Some((receive, Request { state: State::Incoming(incoming), .. })) if incoming.send == send => {
                self.stats.ahead_taken_bytes += data.bytes.len() as u64;
                self.arrive_data(peer, receive.to_bits(), offset, false, data);
            }
            _ => self.stats.ahead_dropped_bytes += data.bytes.len() as u64,
        }
    }

    /// A piece of a long message.
    fn arrive_data(&mut self, peer: PeerId, receive: u64, offset: u64, last: bool, data: Written<'_>) {
        let (key, len) = (SlabKey::from_bits(receive), data.bytes.len() as u64);
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else {
            self.refuse();
            return;
        };
        let total = incoming.envelope.len_bytes;
        let fits = offset.checked_add(len).is_some_and(|end| end <= total);
        if incoming.envelope.peer != peer || !fits {
            self.refuse();
            return;
        }
        if matches!(incoming.way, IncomingWay::PutBlocks { .. }) {
            self.stage_blocks(key);
        }
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else { return };
        data.read_into(&mut incoming.buf, offset);
        match &mut incoming.way {
            IncomingWay::Staged { received } => {
                *received += len;
                if *received >= total {
                    Self::unpack_arrived(incoming, total);
                    self.stats.staged_received += 1;
                    self.ends_turn = true;
                    self.shuttles.note_came(peer, total);
                    self.finish_incoming(key, Outcome::Done);
                }
            }
            // A chunk that the sender claimed but could not write itself.
            IncomingWay::Shared { cell, .. } if last => {
                let cell = *cell;
                if let Some(cell) = self.claim_cell(self.me, cell) {
                    cell.finish();
                }
            }
            IncomingWay::Shared { .. } => {}
            _ => self.refuse(),
        }
    }

    /// The receiver wants a message through the channel, what went ahead once more unless it `took_ahead`. So many like
    /// it may come `whole`.
    fn arrive_clear(&mut self, peer: PeerId, send: u64, receive: u64, took_ahead: bool, whole: u8) {
        let key = SlabKey::from_bits(send);
        let Some(send) = self.outgoing_to(peer, key) else {
            self.refuse();
            return;
        };
        let end = send.envelope.len_bytes;
        let next = if took_ahead { send.ahead_bytes } else { 0 };
        if let Some(Some(peer)) = self.peers.get_mut(peer as usize) {
            peer.takes_ahead = took_ahead;
            peer.whole.give(end, whole);
        }
        self.other_takes(peer, end, true);
        self.streams.push(Stream::of(peer, key, receive, next..end));
    }

    /// The receiver lets us copy along.
    fn arrive_clear_shared(&mut self, peer: PeerId, send: u64, receive: u64, copy: SharedCopy) {
        let key = SlabKey::from_bits(send);
        let len_bytes = self.outgoing_to(peer, key).map(|send| send.envelope.len_bytes);
        let chunks = len_bytes.and_then(|len_bytes| Chunks::new(len_bytes, copy.chunk_bytes));
        let (Some(len_bytes), Some(chunks), Some(cell)) = (len_bytes, chunks, self.claim_cell(peer, copy.cell)) else {
            return self.refuse();
        };
        let target = match copy.scattered {
            None => Some(Place::Flat(copy.target)),
            Some(scattered) => self.scattered_place(peer, copy.target, scattered, len_bytes),
        };
        let (generation, alone) = (copy.generation, copy.alone);
        match target {
            Some(target) => {
                self.helping.push(Helping { to: peer, send: key, receive, target, cell, generation, chunks, alone });
            }
            // Where it is to go cannot be known: through the channel, or all by the receiver.
            None if alone => {
                let chunk_bytes = copy.chunk_bytes.into();
                self.streams.push(Stream::of_chunks(peer, key, receive, 0..len_bytes, chunk_bytes));
            }
            None => {}
        }
    }

    fn arrive_finished(&mut self, peer: PeerId, send: u64) {
        let key = SlabKey::from_bits(send);
        let Some(send) = self.outgoing_to(peer, key) else {
            self.refuse();
            return;
        };
        let envelope = send.envelope;
        self.helping.retain(|helping| helping.send != key);
        if self.ends_now(key, &Outcome::Done) {
            self.finish_send(key, Completion { envelope, outcome: Outcome::Done });
        }
    }

    /// Asks for a send to be cancelled; a message of this process to itself is cancelled at once.
    pub(crate) fn cancel_send(&mut self, to: PeerId, key: u64, send: SlabKey) {
        if to != self.me {
            return self.send_control(to, Message::Withdraw { key, send: send.to_bits() });
        }
        if self.drop_unmatched(to, key, send.to_bits()) {
            self.arrive_withdrawn(to, send.to_bits());
        }
    }

    /// The sender cancels: if its message was matched meanwhile it hears of that anyway.
    fn arrive_withdraw(&mut self, peer: PeerId, key: u64, send: u64) {
        if self.drop_unmatched(peer, key, send) {
            self.send_control(peer, Message::Withdrawn { send });
        }
    }

    fn arrive_withdrawn(&mut self, peer: PeerId, send: u64) {
        let key = SlabKey::from_bits(send);
        let Some(send) = self.outgoing_to(peer, key) else {
            return self.refuse();
        };
        let envelope = send.envelope;
        if self.ends_now(key, &Outcome::Cancelled) {
            self.finish_send(key, Completion { envelope, outcome: Outcome::Cancelled });
        }
    }

    /// Drops a message that nothing has matched; false if there is none of that sender's request.
    fn drop_unmatched(&mut self, peer: PeerId, key: u64, send: u64) -> bool {
        let (context, tag) = split(key);
        let dropped = self.unexpected.take_one(context, peer, tag, |message| message.content.is_awaited_by(send));
        if let Some(Unexpected { content: Content::Eager { data, .. }, .. }) = &dropped {
            self.unexpected_bytes -= data.len();
        }
        dropped.is_some()
    }

    pub(crate) fn outgoing_to(&self, peer: PeerId, key: SlabKey) -> Option<&OutgoingSend> {
        match self.requests.get(key) {
            Some(Request { state: State::Outgoing(send), .. }) if send.envelope.peer == peer => Some(send),
            _ => None,
        }
    }

    /// A short message to this process itself: straight into its receive, or stored.
    pub(crate) fn send_to_self(&mut self, context: ContextId, tag: Tag, buf: &SendBuf) -> bool {
        let envelope = Envelope { peer: self.me, tag, len_bytes: buf.len_bytes() };
        if let Some(receive) = self.posted.arrive(context, self.me, tag) {
            self.fill_posted(receive, envelope, |into| copy(buf, into));
        } else if self.unexpected_bytes >= self.unexpected_max_bytes {
            return false;
        } else {
            let mut data = vec![0; buf.len_bytes() as usize].into_boxed_slice();
            crate::core::pack_all(buf, 0, &mut data);
            self.store(context, Unexpected { envelope, content: Content::Eager { data, acknowledge: None } });
        }
        self.stats.self_sent += 1;
        true
    }

    /// A long or synchronous message to this process itself: it stays where it is until it is received.
    pub(crate) fn start_send_to_self(&mut self, context: ContextId, envelope: Envelope, buf: SendBuf) -> RequestId {
        self.stats.self_sent += 1;
        if let Some(receive) = self.posted.arrive(context, self.me, envelope.tag) {
            self.fill_posted(receive, envelope, |into| copy(&buf, into));
            return self.completed(envelope);
        }
        let key = match_key(context, envelope.tag);
        let id = self.insert_send(OutgoingSend::new(buf, envelope, key, true));
        self.store(context, Unexpected { envelope, content: Content::Own { send: id } });
        RequestId(id)
    }

    /// Receives from a send of this process.
    fn copy_own(&mut self, send: SlabKey, into: &mut RecvBuf) {
        let Some(Request { state: State::Outgoing(outgoing), .. }) = self.requests.get(send) else { return };
        copy(&outgoing.buf, into);
        let envelope = outgoing.envelope;
        self.finish_send(send, Completion { envelope, outcome: Outcome::Done });
    }
}

#[inline]
pub(crate) fn split(key: u64) -> (ContextId, Tag) {
    // The top bit of a tag is never set by a sender of ours; a negative tag would look like a wildcard.
    (ContextId((key >> 32) as u32), (key as u32 & 0x7fff_ffff) as Tag)
}

#[inline]
pub(crate) fn outcome(sent_bytes: u64, capacity_bytes: u64) -> Outcome {
    if sent_bytes > capacity_bytes { Outcome::Truncated { sent_bytes, capacity_bytes } } else { Outcome::Done }
}

/// Puts `data`, or as much of it as there is room for, into `buf`.
#[inline]
pub(crate) fn read_all(buf: &mut RecvBuf, data: &[u8]) {
    match buf.contiguous_mut() {
        Some(space) => {
            let len = data.len().min(space.len());
            base::copy::copy(&mut space[..len], &data[..len]);
        }
        None => {
            let len = data.len().min(buf.len_bytes() as usize);
            buf.unpack_at(0, &data[..len]);
        }
    }
}

/// Copies a message within this process.
fn copy(from: &SendBuf, into: &mut RecvBuf) {
    match from.as_contiguous() {
        Some(bytes) => read_all(into, bytes),
        None => {
            let mut piece = [0; 4096];
            let total = from.len_bytes().min(into.len_bytes());
            let mut done = 0;
            while done < total {
                let len = piece.len().min((total - done) as usize);
                from.pack_at(done, &mut piece[..len]);
                into.unpack_at(done, &piece[..len]);
                done += len as u64;
            }
        }
    }
}
