//! Long messages of which one side at least does not lie in one piece: schemes, and the copies they are made of.
//!
//! The sender says how its data lies ([`Core::offer`]), the receiver decides ([`Core::start_scattered`]), and both copy
//! parts of the message between a buffer here and a [`Place`] there ([`Core::copy_part`]).

use std::sync::Arc;

use base::SlabKey;
use base::config::{DatatypeScheme, Rendezvous};
use datatype::{Layout, RecvBuf, ScatteredData, Segment, SendBuf};
use fabric::{
    Access, DirectCopy, DirectCopyError, LocalMemory, LocalPieces, PeerIndex, PieceCopy, RemoteMemory, RemotePiece,
    Rkey,
};
use protocol::experience::{CopyWay, Kind};
use protocol::registration::Registration;
use protocol::rendezvous::{Chunks, Reach};
use protocol::schemes::{self, Facts, Side};
use protocol::wire::{Message, OfferedChannel};
use protocol::{CopyPlan, RendezvousOffer, ScatteredMemory, SharedCopy, SourceLayout};

use crate::core::Core;
use crate::packed::PackedForm;
use crate::request::{Completion, Envelope, Incoming, IncomingWay, Outcome, PeerId, Request, State, Unpacking};
use crate::ways::{Judged, Leave};

/// Segments of a peer's layout looked up at a time.
const SEGMENTS: usize = 128;
/// Where a peer's side of a message lies.
#[derive(Clone)]
pub(crate) enum Place {
    /// In one piece.
    Flat(RemoteMemory),
    /// Scattered.
    Scattered(Arc<ScatteredPlace>),
}

/// Elements in a peer's memory, and how they lie there.
pub(crate) struct ScatteredPlace {
    rkey: Rkey,
    origin: u64,
    count: u64,
    layout: Arc<Layout>,
}

/// Memory that peers may reach for the time of a message.
#[derive(Clone, Copy)]
pub(crate) enum Held {
    /// In one piece; it may stay registered for later messages.
    Whole(Registration),
    /// The same, at the port.
    Posted(Registration),
}

impl Held {
    /// Where it begins.
    pub(crate) fn remote(&self) -> RemoteMemory {
        match self {
            Held::Whole(registration) | Held::Posted(registration) => registration.region.remote(0),
        }
    }
}

/// The data of a message in this process.
pub(crate) enum Local<'a> {
    /// To be copied from.
    Source(&'a SendBuf),
    /// To be copied to.
    Target(&'a mut RecvBuf),
}

impl Place {
    /// The pieces of the packed bytes `offset..offset + len`.
    fn pieces(&self, offset: u64, len: u64) -> Vec<RemotePiece> {
        let scattered = match self {
            Place::Flat(memory) => {
                return vec![RemotePiece { address: memory.address.wrapping_add(offset), len_bytes: len }];
            }
            Place::Scattered(scattered) => scattered,
        };
        let ScatteredPlace { origin, count, layout, .. } = &**scattered;
        let (mut pieces, mut done) = (Vec::new(), 0);
        let mut segments = [Segment::default(); SEGMENTS];
        while done < len {
            let used = layout.segments_at(*origin, *count, offset + done, len - done, &mut segments);
            if used == 0 {
                break;
            }
            for segment in &segments[..used] {
                pieces.push(RemotePiece { address: segment.address as u64, len_bytes: segment.len_bytes });
                done += segment.len_bytes;
            }
        }
        pieces
    }

    fn rkey(&self) -> Rkey {
        match self {
            Place::Flat(memory) => memory.rkey,
            Place::Scattered(scattered) => scattered.rkey,
        }
    }
}

impl Core {
    /// A buffer to be sent by rendezvous: packed first where the scheme wants that.
    pub(crate) fn packed_first(&mut self, is_port: bool, buf: SendBuf) -> (SendBuf, Option<PackedForm>) {
        // Without a port nothing is packed that nobody asked to be packed.
        let by_adapter = !is_port || self.moves_by_adapter();
        let packs = buf.as_contiguous().is_none()
            && schemes::packs_first(self.datatypes.scheme, buf.len_bytes(), Self::block_count(&buf), by_adapter)
            && !(self.datatypes.scheme == DatatypeScheme::Auto && self.thresholds.rendezvous == Rendezvous::Staged);
        if !packs {
            return (buf, None);
        }
        let Some(mut form) = self.packed_form(buf.len_bytes()) else { return (buf, None) };
        form.recv(buf.len_bytes()).copy_from(&buf);
        (form.send(buf.len_bytes()), Some(form))
    }

    /// Memory for a packed form; `None`, and counted, if there is no room. Who asks for the generic scheme gets memory made
    /// each time.
    pub(crate) fn packed_form(&mut self, len_bytes: u64) -> Option<PackedForm> {
        if self.datatypes.scheme == DatatypeScheme::Generic {
            return PackedForm::apart(len_bytes);
        }
        let form = self.packed.take(len_bytes);
        match form {
            None => self.stats.packed_refused += 1,
            Some(_) => self.stats.packed_peak_bytes = self.stats.packed_peak_bytes.max(self.packed.used_bytes()),
        }
        form
    }

    /// Registers the memory of a long send, if the device can reach it, and says how the data lies there.
    pub(crate) fn register_source(&mut self, to: PeerId, buf: &SendBuf) -> (Option<Held>, SourceLayout) {
        let Some(range) = buf.range() else { return self.offer(to, buf) };
        let len_bytes = range.len_bytes() as u64;
        if len_bytes < self.thresholds.cross_memory_min_bytes {
            return (None, SourceLayout::InOnePiece);
        }
        // Out of regions: the message goes through the channel.
        let wanted = LocalMemory::Source(range);
        let found = self.registrations.stats().hits;
        let registration = self.registrations.acquire(&mut *self.context, wanted, Access::REMOTE_READ).ok();
        let found = self.registrations.stats().hits - found;
        self.count_for(to, |traffic| traffic.registrations_found += found);
        (registration.map(Held::Whole), SourceLayout::InOnePiece)
    }

    /// What is offered of a buffer that does not lie in one piece: where its pieces are, if it pays to copy them so.
    fn offer(&mut self, to: PeerId, buf: &SendBuf) -> (Option<Held>, SourceLayout) {
        let scattered = Self::offer_blocks(buf);
        let Some(data) = buf.scattered() else { return (None, scattered) };
        let len_bytes = buf.len_bytes();
        let worth = schemes::is_worth_describing(self.datatypes.scheme, len_bytes, data.block_count())
            && len_bytes >= self.thresholds.cross_memory_min_bytes
            && !matches!(self.peers.get(to as usize), Some(Some(peer)) if peer.reach == Reach::Refused);
        match worth.then(|| self.describe(data, Access::REMOTE_READ)).flatten() {
            Some((held, scattered)) => (Some(held), SourceLayout::Described(scattered)),
            None => (None, scattered),
        }
    }

    /// Lets peers reach scattered elements and says how they lie.
    fn describe(&mut self, data: ScatteredData<'_>, access: Access) -> Option<(Held, ScatteredMemory)> {
        let layout = self.layouts.publish(&mut *self.context, data.datatype)?;
        // One group: the system looks at each access, so gaps cost nothing.
        let is_target = access.changes();
        let span = LocalMemory::Span { address: data.start, len_bytes: data.span_bytes, is_target };
        let held = self.registrations.acquire(&mut *self.context, span, access).ok()?;
        Some((Held::Whole(held), ScatteredMemory { origin: data.origin as u64, count: data.count, layout }))
    }

    /// Takes back what a message held.
    pub(crate) fn release(&mut self, held: Held) {
        match held {
            Held::Whole(registration) => self.registrations.release(&mut *self.context, registration),
            Held::Posted(registration) => {
                if let Some(port) = &mut self.port {
                    port.release(registration);
                }
            }
        }
    }

    /// Where a peer's memory lies that is registered as `memory` and scattered as described.
    pub(crate) fn scattered_place(
        &mut self,
        peer: PeerId,
        memory: RemoteMemory,
        scattered: ScatteredMemory,
        len_bytes: u64,
    ) -> Option<Place> {
        let layout = self.layouts.resolve(&mut *self.context, peer, scattered.layout);
        self.stats.layouts_forgotten += u64::from(layout.is_none());
        let layout = layout?;
        // A description of less than the message would leave bytes that lie nowhere.
        if layout.size().checked_mul(scattered.count)? < len_bytes {
            return None;
        }
        let ScatteredMemory { origin, count, .. } = scattered;
        Some(Place::Scattered(Arc::new(ScatteredPlace { rkey: memory.rkey, origin, count, layout })))
    }

    /// A long message of which one side at least is scattered has met its receive.
    pub(crate) fn start_scattered(
        &mut self,
        receive: SlabKey,
        incoming: Incoming,
        offer: RendezvousOffer,
        reach: Reach,
    ) {
        let peer = incoming.envelope.peer;
        let source = match (offer.layout, offer.memory) {
            (SourceLayout::Described(scattered), Some(memory)) => {
                self.scattered_place(peer, memory, scattered, offer.len_bytes)
            }
            (SourceLayout::InOnePiece, Some(memory)) => Some(Place::Flat(memory)),
            _ => None,
        };
        let facts = self.facts(&incoming.buf, offer, source.as_ref(), reach);
        let (scheme, is_shared, judged) = self.choose_scheme(peer, &facts, reach, offer.channel);
        let incoming = Incoming { judged, ..incoming };
        match (scheme, source) {
            (DatatypeScheme::Direct, Some(source)) if is_shared => {
                let chunk = Chunks::bytes_for(offer.len_bytes);
                self.begin_shared(receive, incoming, Some(source), chunk, Some(scheme));
            }
            (DatatypeScheme::Direct | DatatypeScheme::PRrs, Some(remote)) => {
                let way = IncomingWay::Read { remote, next: 0 };
                self.begin(receive, Incoming { way, ..incoming }, Some(scheme));
            }
            (DatatypeScheme::MultiW, _) => {
                let chunk = schemes::segment_bytes(offer.len_bytes, false);
                self.begin_shared(receive, incoming, None, chunk, Some(scheme));
            }
            (DatatypeScheme::RwgUp, _) => {
                let chunk = schemes::segment_bytes(offer.len_bytes, !self.datatypes.segment_unpack);
                let Some(form) = self.packed_form(offer.len_bytes) else {
                    return self.begin(receive, incoming, Some(DatatypeScheme::BcSpup));
                };
                self.begin_shared(receive, with_packed_form(incoming, form), None, chunk, Some(scheme));
            }
            (DatatypeScheme::Generic, source) => {
                let Some(form) = self.packed_form(offer.len_bytes) else {
                    return self.begin(receive, incoming, Some(DatatypeScheme::BcSpup));
                };
                let incoming = with_packed_form(incoming, form);
                self.begin_whole(receive, incoming, source, reach, offer.channel, Some(scheme));
            }
            _ => self.begin(receive, incoming, Some(DatatypeScheme::BcSpup)),
        }
    }

    fn facts(&self, buf: &RecvBuf, offer: RendezvousOffer, source: Option<&Place>, reach: Reach) -> Facts {
        let len_bytes = offer.len_bytes;
        let long_enough = len_bytes >= self.thresholds.cross_memory_min_bytes;
        let target = match buf.scattered() {
            Some(data) => Side { block_count: data.block_count(), is_reachable: true },
            // In one piece, or elements of which the first is not whole.
            None => Side { block_count: 1, is_reachable: buf.as_contiguous().is_some() },
        };
        let block_count = match (source, offer.layout) {
            (Some(Place::Scattered(place)), _) => place.layout.block_count().saturating_mul(place.count),
            (_, SourceLayout::InOnePiece) => 1,
            // Packed by a sender that found its blocks short.
            _ => len_bytes.div_ceil(64),
        };
        Facts {
            len_bytes,
            source: Side { block_count, is_reachable: source.is_some() },
            target,
            may_reach: long_enough && reach != Reach::Refused,
            may_share: len_bytes >= self.thresholds.shared_min_bytes,
        }
    }

    /// The scheme of a scattered message that has met its receive, and whether both sides copy if it is a direct one: what
    /// was asked for, or what was the fastest lately of those that could be.
    fn choose_scheme(
        &mut self,
        peer: PeerId,
        facts: &Facts,
        reach: Reach,
        channel: OfferedChannel,
    ) -> (DatatypeScheme, bool, Option<Judged>) {
        let asked = self.datatypes.scheme;
        let is_shared = facts.is_shared() && reach == Reach::Works;
        if asked != DatatypeScheme::Auto || self.thresholds.is_crowded || reach == Reach::Refused {
            return (facts.scheme(asked), is_shared, None);
        }
        let kind = Kind::of(facts.len_bytes, Some(facts.block_bytes()), facts.ways());
        if reach == Reach::Unknown && kind.only_way().is_none() {
            // To see whether the kernel allows it.
            return (DatatypeScheme::Direct, false, None);
        }
        match self.choose_way(peer, kind, facts.len_bytes, channel) {
            (CopyWay::Staged, judged) => (DatatypeScheme::BcSpup, false, judged),
            (way, judged) => (DatatypeScheme::Direct, way == CopyWay::Shared, judged),
        }
    }

    /// The message goes as one long message into memory in one piece; it is counted for the scheme, if there is one.
    pub(crate) fn begin_whole(
        &mut self,
        receive: SlabKey,
        incoming: Incoming,
        source: Option<Place>,
        reach: Reach,
        channel: OfferedChannel,
        scheme: Option<DatatypeScheme>,
    ) {
        let Envelope { peer, len_bytes, .. } = incoming.envelope;
        let possible = self.thresholds.ways(len_bytes, source.is_some(), reach);
        let (way, judged) = match scheme {
            _ if channel.takes_whole && self.thresholds.is_whole_where_crowded(len_bytes) => (CopyWay::Staged, None),
            None => self.choose_way(peer, Kind::of(len_bytes, None, possible), len_bytes, channel),
            // Packed into memory that is new each time: what it takes says nothing about others.
            Some(_) => (self.thresholds.plan(len_bytes, source.is_some(), reach).way(), None),
        };
        let incoming = Incoming { judged, ..incoming };
        match (CopyPlan::of(way, len_bytes), source) {
            (CopyPlan::Shared { chunk_bytes }, Some(source)) => {
                self.begin_shared(receive, incoming, Some(source), chunk_bytes, scheme);
            }
            (CopyPlan::Read, Some(remote)) => {
                let way = IncomingWay::Read { remote, next: 0 };
                self.begin(receive, Incoming { way, ..incoming }, scheme);
            }
            _ => self.begin(receive, incoming, scheme),
        }
    }

    /// Asks the sender to copy chunks; the receiver does so, too, if it knows the `source`.
    fn begin_shared(
        &mut self,
        receive: SlabKey,
        mut incoming: Incoming,
        source: Option<Place>,
        chunk_bytes: u32,
        scheme: Option<DatatypeScheme>,
    ) {
        let (peer, len_bytes, send) = (incoming.envelope.peer, incoming.envelope.len_bytes, incoming.send);
        let opened = match incoming.buf.range() {
            Some(range) => range
                .part(0, len_bytes as usize)
                .and_then(|range| self.open_shared(range, len_bytes, chunk_bytes))
                .map(|(region, cell, generation, chunks)| (Held::Whole(region), None, cell, generation, chunks)),
            None => self.open_shared_span(&incoming.buf, len_bytes, chunk_bytes),
        };
        let Some((held, scattered, cell, generation, chunks)) = opened else {
            // Out of cells or regions.
            let way = match source {
                Some(remote) => IncomingWay::Read { remote, next: 0 },
                None => IncomingWay::Staged { received: 0 },
            };
            return self.begin(receive, Incoming { way, ..incoming }, scheme);
        };
        let alone = source.is_none();
        let copy = SharedCopy { target: held.remote(), scattered, alone, cell, generation, chunk_bytes };
        self.send_control(peer, Message::ClearShared { send, receive: receive.to_bits(), copy });
        let way = IncomingWay::Shared { remote: source, region: held, cell, generation, chunks };
        self.begin(receive, Incoming { way, ..incoming }, scheme);
    }

    fn open_shared_span(
        &mut self,
        buf: &RecvBuf,
        len_bytes: u64,
        chunk_bytes: u32,
    ) -> Option<(Held, Option<ScatteredMemory>, u32, u32, Chunks)> {
        let chunks = Chunks::new(len_bytes, chunk_bytes)?;
        let (region, scattered) = self.describe(buf.scattered()?, Access::REMOTE_WRITE)?;
        let Some(cell) = self.free_cells.pop() else {
            self.release(region);
            return None;
        };
        let generation = self.claim_cell(self.me, cell)?.open();
        Some((region, Some(scattered), cell, generation, chunks))
    }

    /// The receive goes its way from here on.
    pub(crate) fn begin(&mut self, receive: SlabKey, incoming: Incoming, scheme: Option<DatatypeScheme>) {
        let (peer, send) = (incoming.envelope.peer, incoming.send);
        if let Some(scheme) = scheme {
            *self.stats.schemes.of(scheme) += 1;
        }
        if matches!(incoming.way, IncomingWay::Staged { .. }) {
            if let Some(Some(peer)) = self.peers.get_mut(peer as usize) {
                peer.ways.get_or_insert_default().staged = Some(receive);
                if incoming.waited {
                    peer.ahead_into = Some(receive);
                }
            }
            let (receive, took_ahead, whole) = (receive.to_bits(), incoming.waited, self.leave_for_whole(&incoming));
            self.send_control(peer, Message::Clear { send, receive, took_ahead, whole });
        } else {
            self.copying.push(receive);
        }
        if self.is_beside_work && incoming.judged.is_some() {
            self.met_beside_work.push(receive);
        }
        if let Some(request) = self.requests.get_mut(receive) {
            request.state = State::Incoming(Box::new(incoming));
        }
    }

    /// How many messages like this one, which goes through the channel, may come without a request: they need no answer,
    /// but a second copy if they come before their receive.
    fn leave_for_whole(&mut self, incoming: &Incoming) -> u8 {
        let is_short = incoming.envelope.len_bytes <= self.thresholds.whole_max_bytes();
        let goes_on = incoming.judged.is_none_or(|judged| judged.keeps_to_channel);
        let suits = goes_on && (incoming.waited || self.thresholds.is_crowded);
        match self.thresholds.is_crowded {
            _ if !(is_short && suits) => 0,
            true => Leave::MOST,
            false => self.give_leave(incoming.envelope.peer),
        }
    }

    /// Ends a receive that has everything, or has failed.
    pub(crate) fn finish_incoming(&mut self, key: SlabKey, outcome: Outcome) {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else { return };
        let (envelope, judged, way) = (incoming.envelope, incoming.judged, incoming.way.copied());
        if let (Some(judged), Some(way)) = (judged, way) {
            self.note_way(envelope.peer, envelope.len_bytes, way, judged, outcome == Outcome::Done);
        }
        self.complete(key, Completion { envelope, outcome });
    }

    /// Copies the packed bytes `offset..offset + len` between a buffer here and a place of `peer`.
    pub(crate) fn copy_part(
        &mut self,
        peer: PeerId,
        local: Local<'_>,
        place: &Place,
        offset: u64,
        len: u64,
    ) -> Result<(), DirectCopyError> {
        let part = |at: u64| usize::try_from(at).map_err(|_| DirectCopyError::AccessError);
        let (from, to, whole);
        let pieces = match local {
            Local::Source(buf) => match (buf.range(), place) {
                (Some(range), Place::Flat(memory)) => {
                    let local = range.part(part(offset)?, part(len)?).ok_or(DirectCopyError::AccessError)?;
                    whole = DirectCopy::Write { local, remote: behind(*memory, offset) };
                    return self.copy(peer, whole);
                }
                _ => {
                    from = buf.ranges_at(offset, len);
                    LocalPieces::From(&from)
                }
            },
            Local::Target(buf) => match (buf.range(), place) {
                (Some(range), Place::Flat(memory)) => {
                    let local = range.part(part(offset)?, part(len)?).ok_or(DirectCopyError::AccessError)?;
                    whole = DirectCopy::Read { local, remote: behind(*memory, offset) };
                    return self.copy(peer, whole);
                }
                _ => {
                    to = buf.ranges_at(offset, len);
                    LocalPieces::To(&to)
                }
            },
        };
        let remote = place.pieces(offset, len);
        let list_max = if self.datatypes.list_post { usize::MAX } else { 1 };
        self.peer(peer).map_err(|_| DirectCopyError::PeerGone)?;
        let copy = PieceCopy { local: pieces, remote: &remote, rkey: place.rkey(), list_max };
        let outcome = self.context.copy_pieces(PeerIndex(peer), &copy);
        self.note_reach(peer, outcome);
        outcome
    }

    /// Unpacks what has arrived of a packed form: whole chunks, as many as are `done`.
    pub(crate) fn unpack_arrived(incoming: &mut Incoming, done_bytes: u64) -> bool {
        let Incoming { buf, unpack_into: Some(unpacking), .. } = incoming else { return false };
        let unpacked = unpacking.done_bytes;
        let Some(packed) = buf.as_contiguous().and_then(|bytes| bytes.get(unpacked as usize..done_bytes as usize))
        else {
            return false;
        };
        unpacking.target.unpack_at(unpacked, packed);
        unpacking.done_bytes = done_bytes;
        !packed.is_empty()
    }
}

/// The same receive, of which the packed form comes first into memory of our own.
pub(crate) fn with_packed_form(incoming: Incoming, mut form: PackedForm) -> Incoming {
    let packed = form.recv(incoming.envelope.len_bytes);
    let unpacking = Unpacking { target: incoming.buf, done_bytes: 0, _form: form };
    Incoming { buf: packed, unpack_into: Some(unpacking), ..incoming }
}

fn behind(memory: RemoteMemory, offset: u64) -> RemoteMemory {
    RemoteMemory { address: memory.address.wrapping_add(offset), rkey: memory.rkey }
}
