//! Channels that are written by RDMA: made when a peer asks, granted up to a limit, followed by longer or shorter ones,
//! given up when they are not used.
//!
//! ```text
//!   sender                                      receiver
//!   ── want (length, where to show credits) ─▶  memory for a channel, registered
//!   ◀── grant (where the channel is) ──
//!   ── open, the last record the way before ─▶  polls the channel from now on
//!   ══ records, by RDMA write ════════▶
//!   ◀══ control line, by RDMA write ═══         what was consumed, and whether the channel is polled
//!   ── close, by the queue pair ──────▶         takes what is left in the channel, gives its memory back
//!   ◀── closed ──                               writes to the sender's memory no more
//! ```
//! Each change of the way is a record in the way before it, so nothing is overtaken: *open* goes by the queue pair or
//! through the channel that the new one follows, and *close* by the queue pair, which delivers it behind every write. The
//! answers, *grant* and *closed*, go by the queue pair before all that waits for room (`answers`).
//!
//! A sender whose block should have another length (Paper: veloblock §8) asks for a channel of that length and goes on in
//! the old one until it is granted; where it is not, and a record waits that the block is too short for, the channel is
//! closed and the record goes by the queue pair. When it should, when a channel is idle, and what a receiver may spend is
//! decided where it is for mapped memory: `lockfree::growth`, [`Idleness`], [`Allowance`].
//!
//! Memory is given back by whoever owns it, and not before the other side has said that it is through with it. Credits
//! that go along with a record say which channel they are of ([`CreditsOf`]): the sender may have another by then.
//!
//! Paper: veloblock §4.1, §5, §8.

mod answers;
mod showing;
mod standing;

use std::time::Duration;

use fabric::{
    Access, Context, MemoryRegion, Operation, Payload, ProtectionDomain, RemoteMemory, SendRequest, SharedMemory,
    WriteOrder,
};
use lockfree::fastpath::{self, CONTROL_BYTES, Carried, RecordSender, SHOWN_BYTES, carried};
use lockfree::{Allowance, Record};
use protocol::fastpath::{AnySender, Geometry, Idleness, RECORDS_PER_REQUEST, Receiver};
use protocol::wire::{self, Message};
use smallvec::SmallVec;

use self::answers::{Answers, CreditsOf};
use super::{HURRIED_FROM, Port, SEND_DEPTH, Stage, Work};
use crate::request::PeerId;

/// What all channels of a port have in common.
pub(super) struct Channels {
    /// What they are like in the beginning.
    geometry: Geometry,
    last_word_last: bool,
    /// How much longer they may become.
    allowance: Allowance,
    /// Channels that peers write into here.
    inward_count: u32,
    /// Peers that are to be shown a control line, and those to be told that something lies in their channel.
    to_show: Vec<PeerId>,
    to_announce: Vec<PeerId>,
    /// Control lines under way.
    showing: u32,
    /// How long the last sleep could be, if something was uncertain.
    nap: Duration,
}

/// The channels between this process and one peer.
#[derive(Default)]
pub(super) struct Pair {
    /// What records to the peer are written into.
    open: Option<Box<Written>>,
    /// What they will be written into.
    next: Next,
    /// What they were written into: the peer may still show something there.
    before: Option<Box<Written>>,
    /// A record waits for which the open channel is too short, and there will be no other.
    must_close: bool,
    idleness: Idleness,
    inward: Option<Inward>,
    /// Granted, and not used yet.
    inward_next: Option<Inward>,
    /// Records that leave by the queue pair until a channel is asked for.
    ask_in: u64,
    /// Credits to go along with the next record.
    credits: Option<CreditsOf>,
    /// Channels to the peer, and from it, so far.
    outward_count: u64,
    inward_count: u64,
    /// What the peer is to be told of its channels.
    answers: Answers,
    to_show: bool,
    to_announce: bool,
}

/// How far the channel is that a peer has been asked for.
#[derive(Default)]
enum Next {
    #[default]
    Nothing,
    Asked(Box<Asked>),
    /// The peer has not been told that it is used.
    Granted(Box<Written>),
}

/// A channel that a peer has been asked for.
struct Asked {
    geometry: Geometry,
    /// Where the peer is to show credits: at the start of the copy if there is one.
    local: MemoryRegion,
    memory: SharedMemory,
}

/// The sending end of a channel.
struct Written {
    sender: AnySender<Carried>,
    /// The copy, or only the control line.
    local: MemoryRegion,
    remote: RemoteMemory,
    /// Bytes of the copy.
    copy_bytes: u64,
    /// The mark of the receiver for which it has been sent an announcement.
    announced: u64,
    /// A record waits for room.
    is_full: bool,
    /// The receiver has said that it is through with it.
    is_over: bool,
}

/// The receiving end of a channel, but for its design.
struct Inward {
    geometry: Geometry,
    region: MemoryRegion,
    memory: SharedMemory,
    /// Where its sender wants to see the control line.
    control: RemoteMemory,
    shown: [u64; SHOWN_BYTES / 8],
    /// The sender has been told that nobody looks.
    told_cold: bool,
    /// Marks so far.
    marks: u64,
}

impl Channels {
    /// `None` if nobody may poll what the device writes, or no channels are wanted.
    pub(super) fn new(geometry: Option<Geometry>, order: WriteOrder) -> Option<Self> {
        let geometry = geometry.filter(|_| order != WriteOrder::Unknown)?;
        Some(Self {
            geometry,
            last_word_last: order == WriteOrder::ByWord,
            allowance: Allowance::new(0),
            inward_count: 0,
            to_show: Vec::new(),
            to_announce: Vec::new(),
            showing: 0,
            nap: Duration::ZERO,
        })
    }

    pub(super) fn payload_max_bytes(&self) -> usize {
        self.geometry.payload_max_bytes().min(WriteOrder::BY_WORD_MAX_BYTES as usize / 2)
    }

    /// Memory for a channel that a peer asks for by its number; `None` if it does not get it.
    fn make_inward(
        &self,
        context: &mut dyn Context,
        domain: ProtectionDomain,
        number: u64,
        control: RemoteMemory,
    ) -> Option<Inward> {
        let geometry = self.geometry.asked(number)?;
        let beyond_bytes = geometry.beyond(&self.geometry);
        if !self.allowance.change(0, beyond_bytes) {
            return None;
        }
        match context.allocate(domain, geometry.footprint(), Access::REMOTE_WRITE) {
            Ok((region, memory)) => {
                let shown = fastpath::shown(&memory);
                Some(Inward { geometry, region, memory, control, shown, told_cold: false, marks: 0 })
            }
            Err(_) => {
                self.allowance.change(beyond_bytes, 0);
                None
            }
        }
    }

    /// Gives back the memory of a channel into which nothing is written any more.
    fn drop_inward(&self, context: &mut dyn Context, inward: &Inward) {
        self.allowance.change(inward.geometry.beyond(&self.geometry), 0);
        // It was allocated for this, and nothing else can be wrong with it.
        let _ = context.deregister(inward.region);
    }
}

impl Pair {
    /// True if the next record goes the way the last one went, and nothing is to be asked for.
    #[inline]
    fn is_settled(&self) -> bool {
        match (&self.open, &self.next) {
            (Some(written), Next::Nothing) => !self.must_close && written.sender.wanted_bytes().is_none(),
            (_, Next::Asked(_)) => true,
            (None, Next::Nothing) | (_, Next::Granted(_)) => false,
        }
    }

    /// The peer's records come through the channel granted last; the one they came through before. `Err`: none was granted.
    fn follow(&mut self) -> Result<Option<Inward>, ()> {
        let before = self.inward.replace(self.inward_next.take().ok_or(())?);
        self.credits = None;
        self.inward_count += 1;
        Ok(before)
    }

    /// A record has left for the peer. What was tried in vain brings the next request for a channel no nearer: that costs
    /// a credit, too, and would take each one that comes back before the record does.
    fn note_pushed(&mut self) {
        self.ask_in -= u64::from(self.ask_in > 0 && self.open.is_none());
    }

    /// The memory on our side of every channel to the peer.
    fn take_local(&mut self) -> SmallVec<[MemoryRegion; 3]> {
        let next = match std::mem::take(&mut self.next) {
            Next::Nothing => None,
            Next::Asked(asked) => Some(asked.local),
            Next::Granted(written) => Some(written.local),
        };
        let written = [self.open.take(), self.before.take()].into_iter().flatten().map(|written| written.local);
        written.chain(next).collect()
    }
}

impl Port {
    /// The budget for channels that are longer than in the beginning.
    pub(crate) fn spend_from(&mut self, allowance: &Allowance) {
        self.channels.iter_mut().for_each(|channels| channels.allowance = allowance.clone());
    }

    /// True if records to a peer go through a channel.
    pub(crate) fn is_fast(&self, to: PeerId) -> bool {
        self.pair_of(to).is_some_and(|pair| pair.open.is_some())
    }

    /// True if peers write into channels here.
    #[inline]
    pub(crate) fn has_granted(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| channels.inward_count > 0)
    }

    /// Bytes of the copy kept for the channel to a peer.
    pub(crate) fn copy_bytes_to(&self, to: PeerId) -> u64 {
        self.pair_of(to).and_then(|pair| pair.open.as_ref()).map_or(0, |written| written.copy_bytes)
    }

    fn pair_of(&self, peer: PeerId) -> Option<&Pair> {
        self.connections.get(peer as usize)?.as_ref()?.channels.as_deref()
    }

    fn pair(&mut self, peer: PeerId) -> Option<&mut Pair> {
        self.connections.get_mut(peer as usize)?.as_mut()?.channels.as_deref_mut()
    }

    /// Brings the way to a peer on before a record goes it; false if something must go first that finds no room.
    #[inline]
    pub(super) fn advance_way(&mut self, to: PeerId) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return true };
        connection.channels.get_or_insert_default().is_settled() || self.change_way(to)
    }

    /// Begins to use a channel, gives one up that is too short, or asks for one.
    fn change_way(&mut self, to: PeerId) -> bool {
        let Some(first) = self.channels.as_ref().map(|channels| channels.geometry) else { return true };
        let Some(pair) = self.pair(to) else { return true };
        if matches!(pair.next, Next::Granted(_)) {
            return self.begin_next(to);
        }
        if pair.must_close {
            return self.close(to);
        }
        let wanted = match &pair.open {
            Some(written) => written.sender.wanted_bytes().map(|len| first.with_block(len)),
            None if pair.ask_in > 0 => None,
            None => Some(first),
        };
        self.drop_before(to);
        if let Some(geometry) = wanted {
            self.ask(to, geometry);
        }
        true
    }

    /// Says by the way there is that the channel granted last is the next, and goes over to it; false if that finds no
    /// room.
    fn begin_next(&mut self, to: PeerId) -> bool {
        let open = wire::control(Message::Open);
        let said = match self.push_by_channel(to, open.record, 0, |_| ()) {
            Ok(pushed) => pushed,
            Err(fill) => self.post_with_credit(to, open.record, 0, fill),
        };
        let Some(pair) = self.pair(to).filter(|_| said) else { return false };
        if let Next::Granted(written) = std::mem::take(&mut pair.next) {
            let copy_bytes = written.copy_bytes;
            pair.before = pair.open.replace(written);
            pair.outward_count += 1;
            pair.idleness = Idleness::default();
            match pair.before {
                Some(_) => self.counters.blocks_resized += 1,
                None => self.counters.channels_opened += 1,
            }
            self.counters.channel_bytes += copy_bytes;
        }
        true
    }

    /// Says by the queue pair that what comes next does not come through the channel; false if that finds no room.
    fn close(&mut self, to: PeerId) -> bool {
        let close = wire::control(Message::Close);
        if !self.post_with_credit(to, close.record, 0, |_| ()) {
            return false;
        }
        if let Some(pair) = self.pair(to) {
            // Where it was too short, the record that needs more goes first.
            pair.ask_in = if pair.must_close { RECORDS_PER_REQUEST } else { 0 };
            pair.must_close = false;
            pair.before = pair.open.take();
            let copy_bytes = pair.before.as_ref().map_or(0, |written| written.copy_bytes);
            self.counters.channels_closed += 1;
            self.counters.channel_bytes -= copy_bytes;
        }
        true
    }

    /// Looks after the channel to a peer, which is given up if it has not been used for `looks_max` looks.
    pub(crate) fn close_idle(&mut self, to: PeerId, looks_max: u32) {
        if self.has_left || self.leaves(to) {
            return;
        }
        self.drop_before(to);
        let Some(pair) = self.pair(to) else { return };
        let produced = pair.open.as_ref().map_or(0, |written| written.sender.produced());
        if !pair.idleness.look(produced, looks_max) {
            return;
        }
        match pair.next {
            // Its receiver keeps memory for it, too: it is used, and given up next time.
            Next::Granted(_) => self.begin_next(to),
            Next::Nothing if pair.open.is_some() && pair.before.is_none() => self.close(to),
            Next::Nothing | Next::Asked(_) => false,
        };
    }

    /// Asks a peer for a channel, unless it may still write to where it showed the one before. Without memory or a credit
    /// for that, later.
    fn ask(&mut self, to: PeerId, geometry: Geometry) {
        let Some(Some(connection)) = self.connections.get(to as usize) else { return };
        let is_free = connection.channels.as_ref().is_some_and(|pair| pair.before.is_none());
        if !is_free || connection.credits.available() == 0 {
            return;
        }
        let len = geometry.copy_bytes().max(CONTROL_BYTES);
        let Ok((local, memory)) = self.context.allocate(self.domain, len, Access::REMOTE_WRITE) else {
            return self.declined(to);
        };
        let want = wire::control(Message::Want { geometry: geometry.number(), control: local.remote(0) });
        let payload = want.payload();
        if self.post_with_credit(to, want.record, payload.len(), |space| space.copy_from_slice(payload)) {
            if let Some(pair) = self.pair(to) {
                pair.next = Next::Asked(Box::new(Asked { geometry, local, memory }));
            }
        } else {
            // It was allocated a moment ago.
            let _ = self.context.deregister(local);
        }
    }

    /// There is no channel such as was asked for.
    fn declined(&mut self, to: PeerId) {
        let Some(pair) = self.pair(to) else { return };
        match &mut pair.open {
            Some(written) => pair.must_close = written.sender.declined(),
            None => pair.ask_in = RECORDS_PER_REQUEST,
        }
    }

    /// What a peer answered to our request; false if there was none.
    pub(crate) fn granted(&mut self, from: PeerId, memory: Option<RemoteMemory>) -> bool {
        let Some(last_word_last) = self.channels.as_ref().map(|channels| channels.last_word_last) else { return false };
        let Some(pair) = self.pair(from) else { return false };
        let asked = match std::mem::take(&mut pair.next) {
            Next::Asked(asked) => asked,
            other => {
                pair.next = other;
                return false;
            }
        };
        let Asked { geometry, local, memory: ours } = *asked;
        let Some(remote) = memory else {
            // It was allocated for this.
            let _ = self.context.deregister(local);
            self.declined(from);
            return true;
        };
        let target = match geometry.copy_bytes() {
            0 => Carried::by_slots(ours, last_word_last),
            _ => Carried::by_copy(ours, last_word_last),
        };
        let sender = geometry.by_rdma_to(target, pair.open.as_ref().map(|open| &open.sender));
        let copy_bytes = geometry.channel_bytes().1 as u64;
        pair.next = Next::Granted(Box::new(Written {
            sender,
            local,
            remote,
            copy_bytes,
            announced: 0,
            is_full: false,
            is_over: false,
        }));
        true
    }

    /// The receiver of the channel before shows nothing there any more; false if there is none.
    pub(crate) fn closed(&mut self, from: PeerId) -> bool {
        let Some(before) = self.pair(from).and_then(|pair| pair.before.as_mut()) else { return false };
        before.is_over = true;
        self.drop_before(from);
        true
    }

    /// Gives back our memory of the channel before, if the peer is through with it and no write from there is under way.
    fn drop_before(&mut self, to: PeerId) {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return };
        let in_flight = connection.in_flight;
        let Some(pair) = connection.channels.as_deref_mut() else { return };
        let is_over = |before: &mut Box<Written>| before.is_over && (before.copy_bytes == 0 || in_flight == 0);
        if let Some(before) = pair.before.take_if(is_over) {
            // It was allocated for this.
            let _ = self.context.deregister(before.local);
        }
    }

    /// True if a peer writes into a channel here, or may begin to.
    pub(crate) fn has_inward(&self, peer: PeerId) -> bool {
        self.pair_of(peer).is_some_and(|pair| pair.inward.is_some() || pair.inward_next.is_some())
    }

    /// A peer asks for a channel: where it is, if it gets one.
    pub(crate) fn grant(&mut self, to: PeerId, number: u64, control: RemoteMemory) -> Option<RemoteMemory> {
        let channels = self.channels.as_ref()?;
        let connection = self.connections.get_mut(to as usize)?.as_deref_mut()?;
        if matches!(connection.stage, Stage::Lost { .. }) {
            // It had asked before, and nothing comes through it any more.
            return None;
        }
        let pair = connection.channels.get_or_insert_default();
        if pair.inward_next.is_some() {
            return None;
        }
        let inward = channels.make_inward(self.context.as_mut(), self.domain, number, control)?;
        let remote = inward.region.remote(0);
        pair.inward_next = Some(inward);
        Some(remote)
    }

    /// A peer's records come through the channel granted last from now on, and nothing into the one before, of which it is
    /// told; false if none was granted.
    pub(crate) fn open_inward(&mut self, peer: PeerId) -> bool {
        let Some(pair) = self.pair(peer) else { return false };
        let Ok(before) = pair.follow() else { return false };
        let Some(channels) = &mut self.channels else { return false };
        match before {
            Some(before) => {
                channels.drop_inward(self.context.as_mut(), &before);
                self.answer_closed(peer);
            }
            None => channels.inward_count += 1,
        }
        true
    }

    /// Nothing comes through channels from a peer any more, of which it is told; false if there was none.
    pub(crate) fn close_inward(&mut self, peer: PeerId) -> bool {
        let Some(pair) = self.pair(peer) else { return false };
        pair.credits = None;
        let (inward, next) = (pair.inward.take(), pair.inward_next.take());
        let Some(channels) = &mut self.channels else { return false };
        channels.inward_count -= u32::from(inward.is_some());
        let closed = inward.is_some() || next.is_some();
        inward.iter().chain(&next).for_each(|inward| channels.drop_inward(self.context.as_mut(), inward));
        if closed {
            self.answer_closed(peer);
        }
        closed
    }

    /// A peer is lost: our memory of the channels to it is given back.
    pub(super) fn forget_outward(&mut self, peer: PeerId) {
        let Some(pair) = self.pair(peer) else { return };
        let copy_bytes = pair.open.as_ref().map_or(0, |written| written.copy_bytes);
        let regions = pair.take_local();
        self.counters.channel_bytes -= copy_bytes;
        for region in regions {
            // It was allocated for this. What is still posted from there goes nowhere.
            let _ = self.context.deregister(region);
        }
    }

    /// The receiving end of the channel from a peer, if there is one, which grows as far as `allowance` goes.
    pub(crate) fn receiver(&self, from: PeerId, allowance: &Allowance) -> Option<Receiver> {
        let inward = self.pair_of(from)?.inward.as_ref()?;
        inward.geometry.receiver(inward.memory.clone(), allowance)
    }

    /// Writes a record into the channel to a peer, if there is one that is open; `Err` gives what was to be written back.
    pub(super) fn push_by_channel<F: FnOnce(&mut [u8])>(
        &mut self,
        to: PeerId,
        record: Record,
        len_bytes: usize,
        fill: F,
    ) -> Result<bool, F> {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return Err(fill) };
        let open = connection.channels.as_deref_mut().and_then(|pair| pair.open.as_deref_mut());
        let Some(written) = open else { return Err(fill) };
        if connection.in_flight as usize + carried::WRITES_MAX > SEND_DEPTH as usize {
            return Ok(false);
        }
        if written.sender.carried().needs_slot() {
            let Some(slot) = self.pool.take(self.context.as_mut()) else { return Ok(false) };
            self.pool.lend_to(written.sender.carried(), slot);
        }
        let pushed = written.sender.push(record, len_bytes, fill);
        let (slot, writes) = written.sender.carried().take_writes();
        written.is_full = !pushed;
        if !pushed {
            slot.into_iter().for_each(|slot| self.pool.give_back(slot));
            self.counters.credit_stalls += 1;
            return Ok(false);
        }
        let (local, remote) = (written.local, written.remote);
        let mut lists: SmallVec<[_; carried::WRITES_MAX]> = SmallVec::new();
        for write in &writes {
            let part = match &slot {
                Some(slot) => self.pool.part_at(slot, write.from, write.len_bytes as u32),
                None => local.part(write.from as u64, write.len_bytes as u32),
            };
            lists.push([part]);
        }
        let number = slot.map(|slot| self.pool.lend(slot));
        let (last, hurry) = (writes.len() - 1, connection.in_flight >= HURRIED_FROM);
        let requests: SmallVec<[SendRequest<'_>; carried::WRITES_MAX]> = writes
            .iter()
            .zip(&lists)
            .enumerate()
            .map(|(index, (write, list))| {
                let address = remote.address.wrapping_add(write.at as u64);
                let work = match number {
                    _ if index < last => Work::Word(to),
                    Some(number) => Work::Send(number),
                    None => Work::Record(to),
                };
                let operation = Operation::RdmaWrite(RemoteMemory { address, rkey: remote.rkey });
                SendRequest::new(work.id(), operation, Payload::Memory(list)).with_hurry(hurry)
            })
            .collect();
        let Some(qp) = connection.qp else { return Ok(false) };
        match self.context.post_send(qp, &requests) {
            Ok(count) if count == requests.len() => {}
            // There was room in the queue: whatever this is, half a record is of no use.
            outcome => {
                let why = outcome.map_or_else(|error| error.to_string(), |_| "its queue is full".to_owned());
                self.lose(to, why);
                return Ok(false);
            }
        }
        connection.in_flight += requests.len() as u32;
        self.in_flight += 1;
        self.counters.written_sent += 1;
        if let Some(number) = number {
            self.note_send(number, to, true);
        }
        self.look_whether_cold(to);
        Ok(true)
    }

    /// True if credits of the channel from a peer can go along with the next record to it: none wait for that.
    pub(crate) fn can_carry(&self, peer: PeerId) -> bool {
        let connection =
            self.connections.get(peer as usize).and_then(Option::as_ref).filter(|one| one.stage == Stage::Open);
        connection.and_then(|one| one.channels.as_deref()).is_some_and(|pair| pair.credits.is_none())
    }

    /// Credits to go along with the next record; with `None`, those that have not gone are shown.
    pub(crate) fn carry(&mut self, peer: PeerId, consumed: Option<u64>) {
        if let Some(pair) = self.pair(peer) {
            pair.credits = consumed.map(|consumed| CreditsOf { channel: pair.inward_count, consumed });
        }
        if consumed.is_none() {
            self.show(peer);
            self.settle_channels();
        }
    }

    /// A record has left.
    pub(super) fn note_pushed(&mut self, to: PeerId) {
        self.pair(to).into_iter().for_each(Pair::note_pushed);
    }

    /// Takes credits to go along with a record that has room for them.
    pub(super) fn take_credits(&mut self, to: PeerId, len_bytes: usize) -> Option<CreditsOf> {
        let has_room = len_bytes + wire::CREDITS_BYTES <= self.payload_max_bytes;
        self.pair(to).filter(|_| has_room)?.credits.take()
    }

    /// Credits that did not go.
    pub(super) fn keep_credits(&mut self, to: PeerId, credits: Option<CreditsOf>) {
        if let Some(pair) = self.pair(to)
            && pair.credits.is_none()
        {
            pair.credits = credits;
        }
    }

    /// Credits that a peer sent along with a record.
    pub(crate) fn credit(&mut self, peer: PeerId, word: u64) {
        let Some(pair) = self.pair(peer) else { return };
        if let (Some(written), Some(consumed)) = (&mut pair.open, CreditsOf::parse(word, pair.outward_count)) {
            written.sender.credit(consumed);
        }
    }
}
