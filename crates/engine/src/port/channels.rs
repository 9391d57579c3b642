//! Channels that are written by RDMA: made when a peer asks, granted up to a limit, shown credits by RDMA as well.
//!
//! ```text
//!   sender                                      receiver
//!   ── want (where to show credits) ──▶         memory for a channel, registered
//!   ◀── grant (where the channel is) ──
//!   ── open, the last record by the queue pair ▶ polls the channel from now on
//!   ══ records, by RDMA write ════════▶
//!   ◀══ control line, by RDMA write ═══         what was consumed, and whether the channel is polled
//! ```
//! From *open* on every record to the peer goes through the channel, so nothing is overtaken; what finds no room waits.
//! Credits come with the records of the other direction or, where there are none, in the control line.
//!
//! A write wakes nobody. A receiver that will sleep, or does not poll a channel any more, marks the control line *cold*
//! with a number; a sender that sees a new one, after a write was posted or when it is complete, sends an *announcement*,
//! a message that carries nothing. The receiver looks once more when its mark is at its place for certain: the write of it
//! completes, and that wakes it. What is left is a record that is under way longer than that and whose sender does not
//! look again; it is found when the receiver looks for itself, after a second at most.
//!
//! Paper: veloblock §4.1, §5.

use std::sync::atomic::{Ordering, fence};

use fabric::{Access, MemoryRegion, Operation, Payload, RemoteMemory, SendRequest, SharedMemory, WriteOrder};
use lockfree::fastpath::{self, CONTROL_BYTES, Carried, RecordSender, SHOWN_BYTES, carried};
use protocol::fastpath::{AnySender, COLD, Geometry};
use protocol::wire::{self, Message};
use smallvec::SmallVec;

use super::{Port, SEND_DEPTH, Stage, Work};
use crate::request::PeerId;

/// Records by the queue pair between two requests for a channel that was refused.
const RECORDS_PER_REQUEST: u32 = 64;

/// What all channels of a port have in common.
pub(super) struct Channels {
    geometry: Geometry,
    last_word_last: bool,
    granted_max: u32,
    granted: u32,
    /// Peers that are to be shown a control line, and those to be told that something lies in their channel.
    to_show: Vec<PeerId>,
    to_announce: Vec<PeerId>,
    /// Control lines under way.
    showing: u32,
}

/// The channels between this process and one peer.
#[derive(Default)]
pub(super) struct Pair {
    outward: Outward,
    inward: Option<Inward>,
    /// Records by the queue pair until a channel is asked for.
    ask_in: u32,
    /// Credits to go along with the next record.
    credits: Option<u64>,
    to_show: bool,
    to_announce: bool,
}

/// How far the channel to a peer is.
#[derive(Default)]
enum Outward {
    #[default]
    None,
    /// The peer has been asked; it shows credits here, at the start of the copy if there is one.
    Asked(MemoryRegion, SharedMemory),
    /// Granted; the peer has not been told that it is used.
    Granted(Box<Written>),
    Open(Box<Written>),
}

/// The sending end of a channel.
struct Written {
    sender: AnySender<Carried>,
    /// The copy, or only the control line.
    local: MemoryRegion,
    remote: RemoteMemory,
    /// The mark of the receiver for which it has been sent an announcement.
    announced: u64,
}

/// The receiving end of a channel, but for its design.
struct Inward {
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
    pub(super) fn new(geometry: Option<Geometry>, order: WriteOrder, granted_max: u32) -> Option<Self> {
        let geometry = geometry.filter(|_| order != WriteOrder::Unknown)?;
        Some(Self {
            geometry,
            last_word_last: order == WriteOrder::ByWord,
            granted_max,
            granted: 0,
            to_show: Vec::new(),
            to_announce: Vec::new(),
            showing: 0,
        })
    }

    pub(super) fn payload_max_bytes(&self) -> usize {
        self.geometry.payload_max_bytes().min(WriteOrder::BY_WORD_MAX_BYTES as usize / 2)
    }
}

impl Pair {
    /// The channel to the peer, if records go through it.
    fn open(&mut self) -> Option<&mut Written> {
        match &mut self.outward {
            Outward::Open(written) => Some(written),
            _ => None,
        }
    }
}

impl Port {
    /// The geometry of channels by RDMA, if there are any.
    pub(crate) fn geometry(&self) -> Option<Geometry> {
        self.channels.as_ref().map(|channels| channels.geometry)
    }

    /// True if records to a peer go through a channel.
    pub(crate) fn is_fast(&self, to: PeerId) -> bool {
        let pair = self.connections.get(to as usize).and_then(|one| one.as_ref()?.channels.as_ref());
        pair.is_some_and(|pair| matches!(pair.outward, Outward::Open(_)))
    }

    /// Peers that are to be told that something lies in their channel.
    pub(super) fn unannounced(&self) -> usize {
        self.channels.as_ref().map_or(0, |channels| channels.to_announce.len())
    }

    /// True if peers write into channels here.
    #[inline]
    pub(crate) fn has_granted(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| channels.granted > 0)
    }

    /// Bytes of the copy kept for the channel to a peer.
    pub(crate) fn copy_bytes_to(&self, to: PeerId) -> u64 {
        self.geometry().filter(|_| self.is_fast(to)).map_or(0, |geometry| geometry.channel_bytes().1 as u64)
    }

    fn pair(&mut self, peer: PeerId) -> Option<&mut Pair> {
        self.connections.get_mut(peer as usize)?.as_mut()?.channels.as_deref_mut()
    }

    /// Brings the way to a peer on before a record goes it: asks for a channel, or begins to use one; false if what goes
    /// by the queue pair must go first.
    pub(super) fn advance_way(&mut self, to: PeerId) -> bool {
        let Some(channels) = &self.channels else { return true };
        let geometry = channels.geometry;
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return true };
        let pair = connection.channels.get_or_insert_default();
        match &pair.outward {
            Outward::Open(_) | Outward::Asked(..) => true,
            Outward::None if pair.ask_in > 0 => {
                pair.ask_in -= 1;
                true
            }
            Outward::None => {
                self.ask(to, geometry);
                true
            }
            Outward::Granted(_) => {
                let open = wire::control(Message::Open);
                if !self.post_with_credit(to, open.record, 0, |_| ()) {
                    return false;
                }
                if let Some(pair) = self.pair(to)
                    && let Outward::Granted(written) = std::mem::take(&mut pair.outward)
                {
                    pair.outward = Outward::Open(written);
                    self.counters.channels_opened += 1;
                    self.counters.channel_bytes += geometry.channel_bytes().1 as u64;
                }
                true
            }
        }
    }

    /// Asks a peer for a channel. Without memory or a credit for that, later.
    fn ask(&mut self, to: PeerId, geometry: Geometry) {
        let len = geometry.copy_bytes().max(CONTROL_BYTES);
        let later = |port: &mut Self| {
            if let Some(pair) = port.pair(to) {
                pair.ask_in = RECORDS_PER_REQUEST;
            }
        };
        let Ok((region, memory)) = self.context.allocate(self.domain, len, Access::REMOTE_WRITE) else {
            return later(self);
        };
        let want = wire::control(Message::Want { geometry: geometry.number(), control: region.remote(0) });
        let payload = want.payload();
        if self.post_with_credit(to, want.record, payload.len(), |space| space.copy_from_slice(payload)) {
            if let Some(pair) = self.pair(to) {
                pair.outward = Outward::Asked(region, memory);
            }
        } else {
            // It was allocated a moment ago.
            let _ = self.context.deregister(region);
        }
    }

    /// A peer asks for a channel: where it is, if it gets one.
    pub(crate) fn grant(&mut self, to: PeerId, number: u64, control: RemoteMemory) -> Option<RemoteMemory> {
        let channels = self.channels.as_mut()?;
        let connection = self.connections.get_mut(to as usize)?.as_deref_mut()?;
        let pair = connection.channels.get_or_insert_default();
        let is_ours = channels.geometry.number() == number && pair.inward.is_none();
        if !is_ours || channels.granted >= channels.granted_max {
            return None;
        }
        let len = channels.geometry.footprint();
        let (region, memory) = self.context.allocate(self.domain, len, Access::REMOTE_WRITE).ok()?;
        channels.granted += 1;
        let (shown, remote) = (fastpath::shown(&memory), region.remote(0));
        pair.inward = Some(Inward { memory, control, shown, told_cold: false, marks: 0 });
        Some(remote)
    }

    /// What a peer answered to our request.
    pub(crate) fn granted(&mut self, from: PeerId, memory: Option<RemoteMemory>) {
        let Some(channels) = &self.channels else { return };
        let (geometry, last_word_last) = (channels.geometry, channels.last_word_last);
        let Some(pair) = self.pair(from) else { return };
        let Outward::Asked(local, ours) = std::mem::take(&mut pair.outward) else { return };
        let Some(remote) = memory else {
            pair.ask_in = RECORDS_PER_REQUEST;
            // It was allocated for this.
            let _ = self.context.deregister(local);
            return;
        };
        let target = match geometry.copy_bytes() {
            0 => Carried::by_slots(ours, last_word_last),
            _ => Carried::by_copy(ours, last_word_last),
        };
        let written = Written { sender: geometry.by_rdma_to(target), local, remote, announced: 0 };
        pair.outward = Outward::Granted(Box::new(written));
    }

    /// The memory of the channel from a peer, if it was granted one.
    pub(crate) fn channel_memory(&self, from: PeerId) -> Option<SharedMemory> {
        let pair = self.connections.get(from as usize)?.as_ref()?.channels.as_ref()?;
        Some(pair.inward.as_ref()?.memory.clone())
    }

    /// Writes a record into the channel to a peer, if there is one that is open; `Err` gives what was to be written back.
    pub(super) fn push_by_channel<F: FnOnce(&mut [u8])>(
        &mut self,
        to: PeerId,
        record: lockfree::Record,
        len_bytes: usize,
        fill: F,
    ) -> Result<bool, F> {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return Err(fill) };
        let Some(written) = connection.channels.as_deref_mut().and_then(Pair::open) else { return Err(fill) };
        if connection.in_flight as usize + carried::WRITES_MAX > SEND_DEPTH as usize {
            return Ok(false);
        }
        if written.sender.carried().needs_slot() {
            let Some(slot) = self.pool.take(self.context.as_mut()) else { return Ok(false) };
            self.pool.lend_to(written.sender.carried(), slot);
        }
        let pushed = written.sender.push(record, len_bytes, fill);
        let (slot, writes) = written.sender.carried().take_writes();
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
        let last = writes.len() - 1;
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
                SendRequest::new(work.id(), operation, Payload::Memory(list))
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

    /// After a write, and again when it is complete: announces it to a receiver that does not look.
    #[inline]
    pub(super) fn look_whether_cold(&mut self, to: PeerId) {
        // The receiver marks, then looks once more; this process writes, then looks for the mark.
        fence(Ordering::SeqCst);
        let Some(pair) = self.pair(to) else { return };
        let Some(hint) = pair.open().map(|written| written.sender.hint()) else { return };
        if hint & COLD != 0 {
            self.announce(to, hint);
        }
    }

    #[cold]
    fn announce(&mut self, to: PeerId, hint: u64) {
        let Some(pair) = self.pair(to) else { return };
        let Some(written) = pair.open() else { return };
        if std::mem::replace(&mut written.announced, hint) == hint {
            return;
        }
        if !std::mem::replace(&mut pair.to_announce, true)
            && let Some(channels) = &mut self.channels
        {
            channels.to_announce.push(to);
        }
        self.send_announcements();
    }

    /// Sends announcements as far as there are credits. Where there are none, messages are on their way, or have come, that
    /// wake the receiver; what it was to be told is said when it has returned them.
    fn send_announcements(&mut self) {
        let Some(channels) = &mut self.channels else { return };
        for to in std::mem::take(&mut channels.to_announce) {
            let may = matches!(&self.connections[to as usize], Some(one) if one.stage == Stage::Open);
            if may && !self.post_announcement(to) {
                self.channels.iter_mut().for_each(|channels| channels.to_announce.push(to));
            } else if let Some(pair) = self.pair(to) {
                pair.to_announce = false;
            }
        }
    }

    fn post_announcement(&mut self, to: PeerId) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(to as usize) else { return true };
        if connection.in_flight >= SEND_DEPTH || !connection.credits.spend() {
            return false;
        }
        let posted = self.post_message(to, None, true, 0, |_| {});
        if !posted && let Some(Some(connection)) = self.connections.get_mut(to as usize) {
            connection.credits.unspend();
        }
        posted
    }

    /// A peer has announced something, and its channel is polled from now on: it is told so.
    pub(crate) fn warmed(&mut self, peer: PeerId) {
        if let Some(inward) = self.pair(peer).and_then(|pair| pair.inward.as_mut()) {
            inward.told_cold = false;
            fastpath::hint_sender(&inward.memory, 0);
        }
        self.show(peer);
    }

    /// This process will sleep: whoever has a channel to it is told. When that has been done for certain, there is a
    /// completion, which wakes it to look once more.
    pub(super) fn mark_all_cold(&mut self) {
        if !self.has_granted() {
            return;
        }
        for peer in 0..self.connections.len() as PeerId {
            let Some(inward) = self.pair(peer).and_then(|pair| pair.inward.as_mut()) else { continue };
            if !std::mem::replace(&mut inward.told_cold, true) {
                self.show(peer);
            }
        }
        self.settle_channels();
        // The other half of the rule of `look_whether_cold`.
        fence(Ordering::SeqCst);
    }

    /// True while control lines are under way.
    pub(crate) fn is_showing(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| channels.showing > 0 || !channels.to_show.is_empty())
    }

    /// Puts a peer into the list of those that are shown a control line.
    pub(crate) fn show(&mut self, peer: PeerId) {
        let Some(pair) = self.pair(peer) else { return };
        if !std::mem::replace(&mut pair.to_show, true)
            && let Some(channels) = &mut self.channels
        {
            channels.to_show.push(peer);
        }
    }

    /// Shows every control line that has changed.
    pub(crate) fn show_changed(&mut self) {
        for peer in 0..self.connections.len() as PeerId {
            let inward = self.pair(peer).and_then(|pair| pair.inward.as_ref());
            if inward.is_some_and(|inward| fastpath::shown(&inward.memory) != inward.shown) {
                self.show(peer);
            }
        }
    }

    /// True if [`Port::settle_channels`] has something to do.
    #[inline]
    pub(super) fn has_to_show(&self) -> bool {
        self.channels.as_ref().is_some_and(|channels| !channels.to_show.is_empty() || !channels.to_announce.is_empty())
    }

    /// Writes control lines and sends announcements that wait, as far as there is room.
    pub(super) fn settle_channels(&mut self) {
        let Some(channels) = &mut self.channels else { return };
        for peer in std::mem::take(&mut channels.to_show) {
            let is_open = matches!(&self.connections[peer as usize], Some(one) if one.stage == Stage::Open);
            if is_open && !self.write_control(peer) {
                self.channels.iter_mut().for_each(|channels| channels.to_show.push(peer));
            } else if let Some(pair) = self.pair(peer) {
                pair.to_show = false;
            }
        }
        self.send_announcements();
    }

    /// Writes the control line of the channel from a peer into its memory; false if there is no room for that now.
    fn write_control(&mut self, peer: PeerId) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(peer as usize) else { return true };
        if connection.in_flight >= SEND_DEPTH {
            return false;
        }
        let Some(inward) = connection.channels.as_mut().and_then(|pair| pair.inward.as_mut()) else { return true };
        let Some(qp) = connection.qp else { return true };
        let Some(mut slot) = self.pool.take(self.context.as_mut()) else { return false };
        let mut shown = fastpath::shown(&inward.memory);
        let hint = &mut shown[fastpath::HINT / 8];
        *hint |= if inward.told_cold { COLD } else { 0 };
        if *hint & COLD != 0 {
            inward.marks += 1;
            *hint |= inward.marks << 8;
        }
        inward.shown = fastpath::shown(&inward.memory);
        self.pool.fill(&mut slot, SHOWN_BYTES, |space| {
            for (bytes, word) in space.chunks_exact_mut(8).zip(shown) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        });
        let list = [self.pool.part(&slot, SHOWN_BYTES as u32)];
        let request = SendRequest::new(
            Work::Show(slot.number()).id(),
            Operation::RdmaWrite(inward.control),
            Payload::Memory(&list),
        );
        let number = self.pool.lend(slot);
        match self.context.post_send(qp, &[request]) {
            Ok(1) => {
                connection.in_flight += 1;
                self.note_send(number, peer, false);
                self.channels.iter_mut().for_each(|channels| channels.showing += 1);
                true
            }
            outcome => {
                if let Some(slot) = self.pool.reclaim(number) {
                    self.pool.give_back(slot);
                }
                if let Err(error) = outcome {
                    self.lose(peer, error.to_string());
                }
                false
            }
        }
    }

    /// A control line has been written.
    pub(super) fn control_written(&mut self) {
        self.channels.iter_mut().for_each(|channels| channels.showing -= 1);
    }

    /// True if credits of the channel from a peer can go along with the next record to it.
    pub(crate) fn can_carry(&self, peer: PeerId) -> bool {
        let connection = self.connections.get(peer as usize).and_then(Option::as_ref);
        connection.is_some_and(|one| {
            one.stage == Stage::Open && one.channels.as_ref().is_some_and(|pair| pair.credits.is_none())
        })
    }

    /// Credits to go along with the next record; with `None`, those that have not gone are shown.
    pub(crate) fn carry(&mut self, peer: PeerId, consumed: Option<u64>) {
        if let Some(pair) = self.pair(peer) {
            pair.credits = consumed;
        }
        if consumed.is_none() {
            self.show(peer);
            self.settle_channels();
        }
    }

    /// Takes credits to go along with a record that has room for them.
    pub(super) fn take_credits(&mut self, to: PeerId, len_bytes: usize) -> Option<u64> {
        let has_room = len_bytes + wire::CREDITS_BYTES <= self.payload_max_bytes;
        self.pair(to).filter(|_| has_room)?.credits.take()
    }

    /// Credits that did not go.
    pub(super) fn keep_credits(&mut self, to: PeerId, credits: Option<u64>) {
        if let Some(pair) = self.pair(to)
            && pair.credits.is_none()
        {
            pair.credits = credits;
        }
    }

    /// Credits that a peer sent along with a record.
    pub(crate) fn credit(&mut self, peer: PeerId, consumed: u64) {
        if let Some(written) = self.pair(peer).and_then(Pair::open) {
            written.sender.credit(consumed);
        }
    }
}
