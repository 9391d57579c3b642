//! Messages whose bytes go aboard shuttles ([`lockfree::shuttle`]): each of two processes writes where it has read last.
//!
//! ```text
//!   message of 128 bytes or more ── a shuttle is here, and takes all of it ──▶ aboard, and with the last bytes the shuttle goes
//!                                └─ otherwise ─────────────────────────────▶ in the block
//! ```
//! Whoever answers writes into the shuttle that has come, of two into that with as much; of those who write at the same time
//! each begins with its own. What goes one way only does so through the block but for its first messages, and but for long ones
//! for which shuttles come back empty. Where lengths differ, a message goes aboard as far as suits the lines that each side has
//! read last ([`lockfree::shuttle`]), and the rest of it in the block.
//!
//! Of very long messages that cross, and of shorter ones where several wait, a part goes aboard at a time, and the next waits a
//! little for what the other side sends back:
//!
//! ```text
//!   A writes a part into a ── a ──▶ B reads a, and writes its next part there ── a ──▶ A reads a …
//!   B writes a part into b ── b ──▶ A reads b, and writes its next part there ── b ──▶ B reads b …
//! ```
//! Two parts are in use, however long the messages are, and stay in the caches next to the cores.
//!
//! Of long messages that go one way only no shuttle comes back with an answer. Where the processor's own instruction copies the
//! faster, it pays to send them back empty, for it need not have the lines near: a reader to whom several came in a row does so
//! with each, and with its own, and their sender, who went on in the block before, writes a part into one while the other is read.
//!
//! What a process's own shuttles take is channel memory: as much as the longest message that this process has written there
//! takes, to a power of two, and 256 KiB at least. The other writes no more into it, so nobody takes memory that is not counted.
//! What would take more than there is left goes through the block; the memory of a pair that has become idle is given back.
//! Who has nothing but the other's, and that too short for what it sends, sends it home: its owner's next long message makes it
//! longer, and brings it back.

use base::SlabKey;
use base::copy::BY_INSTRUCTION_MIN_BYTES;
use datatype::SendBuf;
use fabric::{MappedArea, PeerIndex};
use lockfree::{Aboard, Allowance, Brought, CACHE_LINE_BYTES, HeldShuttles, Load, Passage, Record, Shuttle, Shuttles};
use protocol::wire::{self, Message};

use crate::core::Core;
use crate::request::{Envelope, IncomingWay, PeerId, Request, State};
use crate::streams::{BURST_BYTES, Stream, push_piece};

/// Shortest message that goes aboard: a shorter one takes not many more lines than what announces it.
pub const ABOARD_MIN_BYTES: usize = 128;

/// What a shuttle takes at least: of two processes that send to each other at once each has that of the other, and neither can
/// write more there until the one comes home.
const MEMORY_MIN_BYTES: u64 = 256 << 10;

/// Bytes of a part of a message that crosses others, at most: all parts of one are about as long as a burst.
const PART_MAX_BYTES: u64 = BURST_BYTES / 2 * 3;

/// Shortest message of those that shuttles may come back empty for, in bytes: with a shorter one, what says so takes too long.
pub(crate) const STREAMED_MIN_BYTES: u64 = 48 << 10;

/// So many of them in a row go one way only, as far as is known.
const STREAMED_MIN: u8 = 2;

/// Bytes of a piece of a message that goes aboard part by part, at most.
const PIECE_MAX_BYTES: u64 = 64 << 10;

/// Turns of progress that bytes wait for a shuttle, at most: so long, about, as the other side takes to read one and to fill it.
pub(crate) const PATIENCE: u32 = 500;

/// Bytes of a message that go aboard a shuttle, which is its reader's with the last of them.
#[derive(Clone, Copy)]
pub(crate) struct Ride {
    pub(crate) shuttle: Shuttle,
    from: u64,
    /// The piece that reaches this is the last.
    until: u64,
    /// Of a message that crosses others, which rides part by part.
    is_part: bool,
}

impl Ride {
    /// All of a message of `len_bytes`, if there is a shuttle for it.
    pub(crate) fn of_all(shuttle: Option<Shuttle>, len_bytes: u64) -> Option<Self> {
        shuttle.map(|shuttle| Self { shuttle, from: 0, until: len_bytes, is_part: false })
    }

    /// Bytes of the piece of a part that begins at `offset`: pieces are as long, for the other side writes, too, meanwhile.
    /// `None` if it is no part.
    pub(crate) fn piece_of_part_bytes(&self, offset: u64) -> Option<u64> {
        let left_bytes = self.until - offset;
        self.is_part.then(|| about(left_bytes, left_bytes.div_ceil(PIECE_MAX_BYTES)))
    }

    /// Where `len` bytes of the message in `buf` from `offset` on go.
    pub(crate) fn aboard(&self, buf: &SendBuf, offset: u64, len: u64) -> Aboard {
        let is_last = self.ends_with(offset + len);
        Aboard { shuttle: self.shuttle, offset: (offset - self.from) as usize, lead: self.lead(buf), is_last }
    }

    /// How far into its lines the message in `buf` goes: as far as it lies there, unless it is short, for it may take one more.
    fn lead(&self, buf: &SendBuf) -> u8 {
        match buf.as_contiguous() {
            Some(bytes) if self.until - self.from >= BY_INSTRUCTION_MIN_BYTES as u64 => {
                ((bytes.as_ptr().addr() as u64 + self.from) % CACHE_LINE_BYTES as u64) as u8
            }
            _ => 0,
        }
    }

    /// True if bytes from `offset` on are among those that go aboard.
    pub(crate) fn has(&self, offset: u64) -> bool {
        (self.from..self.until).contains(&offset)
    }

    /// True if what reaches this is the last of it.
    pub(crate) fn ends_with(&self, end: u64) -> bool {
        end >= self.until
    }

    /// As many of these pieces of a message as may go aboard, each of an offset and a length, if any may.
    pub(crate) fn of_pieces(passage: Passage, pieces: &[(u64, u64)]) -> Option<Self> {
        let ends = pieces.iter().map(|(offset, len)| offset + len);
        let until = ends.take_while(|end| *end <= passage.len_bytes as u64).last()?;
        Some(Self { shuttle: passage.shuttle, from: 0, until, is_part: false })
    }
}

/// The shuttles between this process and one other, as far as this one has them.
#[derive(Clone, Copy, Default)]
struct Pair {
    held: HeldShuttles,
    /// Bytes of this process's own one that take memory, and of the other's.
    own_bytes: u64,
    foreign_bytes: u64,
    /// Long messages that went to the other since one came from there, and that came since one went.
    went: u8,
    came: u8,
    /// One came back empty, and none has been waited for in vain since.
    comes_empty: bool,
}

/// Bytes of the next part of a message that crosses others, of which so many are left: of several, all about as long, so that
/// each goes where as much has come.
fn part_bytes(left_bytes: u64) -> u64 {
    about(left_bytes, (left_bytes + BURST_BYTES / 2) / BURST_BYTES)
}

/// Bytes of one of so many parts of `len_bytes`, in whole lines if it is not all.
fn about(len_bytes: u64, parts: u64) -> u64 {
    len_bytes.div_ceil(parts.max(1)).next_multiple_of(CACHE_LINE_BYTES as u64).min(len_bytes)
}

/// Bytes of a shuttle of `most_bytes` that take memory where messages of this length are written.
fn taken_by(len_bytes: u64, most_bytes: u64) -> u64 {
    len_bytes.next_power_of_two().max(MEMORY_MIN_BYTES).min(most_bytes)
}

/// The shuttles between this process and all others.
pub(crate) struct ShuttleTable {
    pairs: Box<[Pair]>,
    /// Bytes of each.
    len_bytes: u64,
    allowance: Allowance,
    /// A shuttle, or the end of a long message, has come from somebody, and this has not been looked at.
    stirred: bool,
}

impl ShuttleTable {
    /// Of a process among `peer_count`, whose own shuttles, of `len_bytes` each, take memory from `allowance`.
    pub(crate) fn new(peer_count: u32, len_bytes: usize, allowance: Allowance) -> Self {
        let pairs = vec![Pair::default(); peer_count as usize].into_boxed_slice();
        Self { pairs, len_bytes: len_bytes as u64, allowance, stirred: false }
    }

    /// Takes one to write this `load` of a message of `len_bytes` to.
    fn take(&mut self, peer: PeerId, len_bytes: u64, load: Load) -> Option<Passage> {
        let most_bytes = self.len_bytes;
        let Pair { held, own_bytes, foreign_bytes, .. } = self.pairs.get_mut(peer as usize)?;
        held.take(len_bytes as usize, load, |shuttle| match shuttle {
            Shuttle::There => len_bytes <= *foreign_bytes,
            Shuttle::Here if len_bytes <= *own_bytes => true,
            Shuttle::Here => {
                let wanted_bytes = taken_by(len_bytes, most_bytes);
                let is_granted = self.allowance.change_leaving_some(*own_bytes, wanted_bytes);
                if is_granted {
                    *own_bytes = wanted_bytes;
                }
                is_granted
            }
        })
    }

    /// Takes the one in the memory of a peer, if it is here and too short for `len_bytes`.
    fn take_too_short(&mut self, peer: PeerId, len_bytes: u64) -> Option<Shuttle> {
        let pair = self.pairs.get_mut(peer as usize).filter(|pair| pair.foreign_bytes < len_bytes)?;
        pair.held.take_this(Shuttle::There)
    }

    /// True if one is here; whether a message may be written there shows when it is taken.
    #[inline]
    fn has_some(&self, peer: PeerId) -> bool {
        self.pairs.get(peer as usize).is_some_and(|pair| pair.held.has_some())
    }

    /// One has come, with a message.
    #[inline]
    pub(crate) fn welcome(&mut self, peer: PeerId, brought: Brought) {
        let taken_bytes = taken_by(brought.len_bytes as u64, self.len_bytes);
        self.stirred = true;
        if let Some(pair) = self.pairs.get_mut(peer as usize) {
            pair.held.welcome(brought);
            pair.comes_empty |= brought.len_bytes == 0;
            if brought.shuttle == Shuttle::There {
                pair.foreign_bytes = pair.foreign_bytes.max(taken_bytes);
            }
        }
    }

    /// A message of `len_bytes` has gone to a peer.
    pub(crate) fn note_went(&mut self, peer: PeerId, len_bytes: u64) {
        if let Some(pair) = self.pairs.get_mut(peer as usize)
            && len_bytes >= STREAMED_MIN_BYTES
        {
            (pair.went, pair.came) = (pair.went.saturating_add(1), 0);
        }
    }

    /// A message of `len_bytes` has come from a peer.
    pub(crate) fn note_came(&mut self, peer: PeerId, len_bytes: u64) {
        if let Some(pair) = self.pairs.get_mut(peer as usize)
            && len_bytes >= STREAMED_MIN_BYTES
        {
            (pair.went, pair.came) = (0, pair.came.saturating_add(1));
            self.stirred = true;
        }
    }

    /// True if a shuttle, or the end of a long message, has come since this was asked last.
    #[inline]
    pub(crate) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
    }

    /// True if long messages go one way only, to this peer, who sends shuttles back empty.
    fn is_streamed_to(&self, peer: PeerId) -> bool {
        self.pairs.get(peer as usize).is_some_and(|pair| pair.went >= STREAMED_MIN && pair.comes_empty)
    }

    /// One was waited for in vain: whoever sends them back is at other work, or reads otherwise.
    fn expect_none_empty(&mut self, peer: PeerId) {
        if let Some(pair) = self.pairs.get_mut(peer as usize) {
            pair.comes_empty = false;
        }
    }

    /// True if long messages come one way only, from this peer.
    fn is_streamed_from(&self, peer: PeerId) -> bool {
        self.pairs.get(peer as usize).is_some_and(|pair| pair.came >= STREAMED_MIN)
    }

    /// Takes one to send it to a peer as it is. Into one that is this process's own the other writes what it takes at least.
    fn take_empty(&mut self, peer: PeerId) -> Option<Shuttle> {
        let least_bytes = taken_by(0, self.len_bytes);
        let pair = self.pairs.get_mut(peer as usize)?;
        if let Some(foreign) = pair.held.take_this(Shuttle::There) {
            return Some(foreign);
        }
        if pair.held.has(Shuttle::Here) && pair.own_bytes < least_bytes {
            let is_granted = self.allowance.change_leaving_some(pair.own_bytes, least_bytes);
            if !is_granted {
                return None;
            }
            pair.own_bytes = least_bytes;
        }
        pair.held.take_this(Shuttle::Here)
    }

    /// One was not used, or is here again.
    pub(crate) fn keep(&mut self, peer: PeerId, shuttle: Shuttle) {
        if let Some(pair) = self.pairs.get_mut(peer as usize) {
            pair.held.keep(shuttle);
        }
    }

    /// Takes the one in the memory of a peer, if it is here: it goes home when a channel is given up.
    pub(crate) fn take_foreign(&mut self, peer: PeerId) -> Option<Shuttle> {
        self.pairs.get_mut(peer as usize)?.held.take_this(Shuttle::There)
    }

    /// The memory of this process's own one is not needed any more, if it is here, and the other may do the same; true if it
    /// takes any.
    fn unmake(&mut self, peer: PeerId) -> bool {
        let Some(pair) = self.pairs.get_mut(peer as usize) else { return false };
        pair.foreign_bytes = 0;
        let is_given_back = pair.own_bytes > 0 && pair.held.has(Shuttle::Here);
        if is_given_back {
            self.allowance.change(std::mem::take(&mut pair.own_bytes), 0);
            pair.held.welcome(Brought { shuttle: Shuttle::Here, len_bytes: 0 });
        }
        is_given_back
    }

    /// Bytes that the one in this process's memory for a peer takes.
    pub(crate) fn held_bytes(&self, peer: PeerId) -> u64 {
        self.pairs.get(peer as usize).map_or(0, |pair| pair.own_bytes)
    }

    /// Bytes that all in this process's memory take.
    pub(crate) fn all_held_bytes(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.own_bytes).sum()
    }
}

impl Core {
    fn shuttle_area(owner: PeerId, with: PeerId) -> MappedArea {
        MappedArea::Shuttle { owner: PeerIndex(owner), with: PeerIndex(with) }
    }

    /// The memory of the shuttles between this process and a peer, if there are any.
    pub(crate) fn shuttles_with(&self, peer: PeerId) -> Option<Shuttles> {
        let here = self.context.mapped(Self::shuttle_area(self.me, peer))?;
        let there = self.context.mapped(Self::shuttle_area(peer, self.me))?;
        Some(Shuttles::new(here, there, self.shuttle_copy.by_instruction()))
    }

    /// A shuttle for a message of `len_bytes` to a peer, or a part of it, if one is here.
    pub(crate) fn take_shuttle(&mut self, to: PeerId, len_bytes: u64) -> Option<Passage> {
        self.take_shuttle_for(to, len_bytes, Load::Suiting)
    }

    fn take_shuttle_for(&mut self, to: PeerId, len_bytes: u64, load: Load) -> Option<Passage> {
        let Some(Some(peer)) = self.peers.get(to as usize) else { return None };
        let goes_aboard = (ABOARD_MIN_BYTES as u64..=peer.link.aboard_max_bytes() as u64).contains(&len_bytes);
        if !goes_aboard {
            return None;
        }
        let passage = self.shuttles.take(to, len_bytes, load);
        if passage.is_none() {
            self.send_home(to, len_bytes);
        }
        passage
    }

    /// The same, only for all of it.
    pub(crate) fn take_shuttle_for_all(&mut self, to: PeerId, len_bytes: u64) -> Option<Shuttle> {
        let Passage { shuttle, len_bytes: fitting_bytes } = self.take_shuttle(to, len_bytes)?;
        let takes_all = fitting_bytes as u64 == len_bytes;
        if !takes_all {
            self.shuttles.keep(to, shuttle);
        }
        takes_all.then_some(shuttle)
    }

    /// Sends the shuttle in a peer's memory home that is too short for a message of `len_bytes`, if it is here and there is room.
    #[cold]
    fn send_home(&mut self, to: PeerId, len_bytes: u64) {
        if let Some(shuttle) = self.shuttles.take_too_short(to, len_bytes) {
            self.send_empty(to, shuttle);
        }
    }

    /// Sends a shuttle as it is, if there is room; true if it is gone.
    fn send_empty(&mut self, to: PeerId, shuttle: Shuttle) -> bool {
        let record = wire::control(Message::Home).record;
        let aboard = Aboard { shuttle, offset: 0, lead: 0, is_last: true };
        let link = self.peers.get_mut(to as usize).and_then(Option::as_mut).map(|peer| &mut peer.link);
        let is_gone = link.is_some_and(|link| link.try_push_aboard(record, 0, aboard, |_, _| ()));
        if is_gone {
            self.stats.empty_sent += 1;
            self.announce_record(to);
        } else {
            self.shuttles.keep(to, shuttle);
        }
        is_gone
    }

    /// What came last from a peer was the end of a long message, or brought a shuttle: if such messages come one way only, the
    /// shuttles go back for the next ones.
    #[inline(never)]
    pub(crate) fn send_back_empty(&mut self, peer: PeerId) {
        while !self.thresholds.is_crowded
            && self.shuttles.is_streamed_from(peer)
            && self.streams.count_to(peer) == 0
            && let Some(shuttle) = self.shuttles.take_empty(peer)
            && self.send_empty(peer, shuttle)
        {}
    }

    /// True if a message of `len_bytes` to a peer is to wait for a shuttle rather than to go in the block: those are the faster
    /// way, but none is here.
    pub(crate) fn lacks_shuttle(&self, to: PeerId, len_bytes: u64) -> bool {
        let Some(Some(peer)) = self.peers.get(to as usize) else { return false };
        let crosses = peer.ways.as_ref().is_some_and(|ways| ways.crosses);
        len_bytes >= STREAMED_MIN_BYTES
            && !self.thresholds.is_crowded
            && !self.shuttles.has_some(to)
            && peer.link.writes_by_instruction()
            && (crosses || self.shuttles.is_streamed_to(to))
    }

    /// A message was to go aboard a shuttle, if one was taken for it: it is gone, and so is the shuttle, or neither is.
    pub(crate) fn end_aboard(&mut self, to: PeerId, shuttle: Option<Shuttle>, is_gone: bool) {
        match shuttle {
            Some(_) if is_gone => self.stats.aboard_sent += 1,
            Some(shuttle) => self.shuttles.keep(to, shuttle),
            None => {}
        }
    }

    /// Sends a message in one record aboard a shuttle, if there is one.
    #[inline]
    pub(crate) fn push_aboard(&mut self, to: PeerId, record: Record, buf: &SendBuf) -> bool {
        self.shuttles.has_some(to) && self.push_aboard_one(to, record, buf)
    }

    #[inline(never)]
    fn push_aboard_one(&mut self, to: PeerId, record: Record, buf: &SendBuf) -> bool {
        let shuttle = self.take_shuttle_for_all(to, buf.len_bytes());
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return false };
        let (len_bytes, ride) = (buf.len_bytes(), Ride::of_all(shuttle, buf.len_bytes()));
        let is_gone = ride.is_some() && push_piece(&mut peer.link, record, buf, (0, len_bytes), ride);
        self.end_aboard(to, shuttle, is_gone);
        is_gone
    }

    /// What the bytes of a send from `offset` on ride on, or begin to.
    pub(crate) fn ride_of(&mut self, id: SlabKey, offset: u64) -> Option<Ride> {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return None };
        let Envelope { peer: to, len_bytes, .. } = send.envelope;
        let ride = match send.ride {
            // What is asked for once more, because it came too early or by a peer that does not keep to the protocol, may lie
            // elsewhere.
            Some(ride) => ride.has(offset).then_some(ride)?,
            None => self.begin_ride(to, offset, len_bytes)?,
        };
        let link = self.peers.get_mut(to as usize).and_then(Option::as_mut).map(|peer| &mut peer.link);
        let is_given_up = link.is_none_or(|link| link.is_by_mailbox());
        if is_given_up {
            // As one that nobody used; the channel's reader is through with what went aboard.
            self.shuttles.keep(to, ride.shuttle);
        }
        let ride = (!is_given_up).then_some(ride);
        if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(id) {
            send.ride = ride;
        }
        ride
    }

    /// Pushes `len` bytes from `offset` on of the message of a send to a mapped peer, if there is room: aboard a shuttle, if they
    /// `ride`.
    pub(crate) fn push_piece_of(
        &mut self,
        id: SlabKey,
        record: Record,
        (offset, len): (u64, u64),
        ride: Option<Ride>,
    ) -> bool {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(id) else { return false };
        let Envelope { peer: to, len_bytes, .. } = send.envelope;
        let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return false };
        let pushed = push_piece(&mut peer.link, record, &send.buf, (offset, len), ride);
        if pushed && ride.is_some_and(|ride| ride.ends_with(offset + len)) {
            send.ride = None;
            self.stats.aboard_sent += u64::from(offset + len == len_bytes);
        }
        pushed
    }

    /// A ride for the bytes of a message from `offset` on. A very long one that crosses others, or one of many one way where
    /// shuttles come back empty, takes what is here for a part of it; any other rides to its end, and one that crosses none from its
    /// beginning, or not at all, for whoever reads it sends no shuttle back meanwhile.
    fn begin_ride(&mut self, to: PeerId, offset: u64, len_bytes: u64) -> Option<Ride> {
        let peer = self.peers.get(to as usize)?.as_ref()?;
        let is_apart = !self.thresholds.is_crowded;
        let by_instruction = peer.link.writes_by_instruction();
        let crosses = is_apart && peer.ways.as_ref().is_some_and(|ways| ways.crosses);
        let is_streamed = is_apart && by_instruction && self.shuttles.is_streamed_to(to);
        // Of several that wait for a shuttle none is to hold one up for long.
        let least_bytes = if by_instruction || self.streams.count_to(to) > 0 {
            STREAMED_MIN_BYTES
        } else {
            self.thresholds.whole_max_bytes() + 1
        };
        if (crosses || is_streamed) && len_bytes >= least_bytes {
            let part_bytes = part_bytes(len_bytes - offset);
            let Passage { shuttle, .. } = self.take_shuttle_for(to, part_bytes, Load::All)?;
            return Some(Ride { shuttle, from: offset, until: offset + part_bytes, is_part: true });
        }
        // What went before keeps its place there, so that as much comes as will go back.
        let shuttle = match offset {
            0 => self.take_shuttle_for_all(to, len_bytes),
            _ if crosses => self.take_shuttle_for(to, len_bytes, Load::AllSuiting).map(|passage| passage.shuttle),
            _ => None,
        };
        Ride::of_all(shuttle, len_bytes)
    }

    /// Whether the next bytes of a message wait for a shuttle, since none is here and the receiver, whose own message comes
    /// the same way, or is likely to, has those there are. Not for long, or where somebody waits for the processor.
    pub(crate) fn waits_for_shuttle(&mut self, stream: &mut Stream) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(stream.to as usize) else { return false };
        let coming = peer.ways.as_ref().and_then(|ways| self.requests.get(ways.staged?));
        let comes = matches!(coming, Some(Request { state: State::Incoming(its), .. })
            if its.envelope.peer == stream.to && matches!(its.way, IncomingWay::Staged { .. }));
        stream.crosses |= comes;
        let crosses = peer.ways.as_mut().is_some_and(|ways| {
            ways.crosses |= comes;
            ways.crosses
        });
        // Who exchanges messages one by one may be ahead of the other a little.
        let is_likely = crosses && self.unfinished_sends == 1;
        let comes_empty = peer.link.writes_by_instruction() && self.shuttles.is_streamed_to(stream.to);
        if !comes && !comes_empty {
            stream.patience = stream.patience.min(if is_likely { PATIENCE / 4 } else { 0 });
        }
        let may_ride = peer.link.aboard_max_bytes() as u64 >= PART_MAX_BYTES;
        if self.thresholds.is_crowded || stream.patience == 0 || !may_ride {
            return false;
        }
        let rides = match self.requests.get(stream.send) {
            Some(Request { state: State::Outgoing(send), .. }) => send.ride.is_some(),
            _ => true,
        };
        if rides || self.shuttles.has_some(stream.to) {
            stream.patience = PATIENCE;
            return false;
        }
        stream.patience -= 1;
        if stream.patience == 0 {
            self.shuttles.expect_none_empty(stream.to);
        }
        true
    }

    /// A message has left through the channel: the next is likely to cross others if this one did.
    pub(crate) fn note_crossing(&mut self, stream: &Stream) {
        if let Some(Some(peer)) = self.peers.get_mut(stream.to as usize)
            && let Some(ways) = &mut peer.ways
        {
            ways.crosses = stream.crosses;
        }
    }

    /// A channel between this process and a peer was given up: the memory of this one's shuttle is given back, if it is here.
    pub(crate) fn retire_shuttle(&mut self, peer: PeerId) {
        if self.shuttles.unmake(peer) {
            self.context.give_back(Self::shuttle_area(self.me, peer), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1000;
    const LONG: u64 = 600_000;
    const MIB: u64 = 1 << 20;

    fn table(process_count: u32, allowance: &Allowance) -> ShuttleTable {
        ShuttleTable::new(process_count, MIB as usize, allowance.clone())
    }

    fn take(table: &mut ShuttleTable, peer: PeerId, len_bytes: u64) -> Option<Shuttle> {
        table.take(peer, len_bytes, Load::All).map(|passage| passage.shuttle)
    }

    fn came(shuttle: Shuttle, len_bytes: u64) -> Brought {
        Brought { shuttle, len_bytes: len_bytes as usize }
    }

    /// The other side writes its next part where this one lay: a shorter one at the end would leave lines with it.
    #[test]
    fn parts_of_a_message_are_about_as_long_and_so_are_the_pieces_of_one() {
        for len_bytes in (256 * 1024 + 1..3 * MIB).step_by(9973).chain([MIB, MIB - 24 * 1024]) {
            let (mut from, mut parts) = (0, Vec::new());
            while from < len_bytes {
                let until = from + part_bytes(len_bytes - from);
                let ride = Ride { shuttle: Shuttle::Here, from, until, is_part: true };
                let mut pieces = Vec::new();
                while !ride.ends_with(from) {
                    pieces.push(ride.piece_of_part_bytes(from).expect("it is a part"));
                    from += pieces[pieces.len() - 1];
                }
                assert_eq!(from, until, "no piece reaches beyond its part");
                let [shortest, longest] = [pieces.iter().min(), pieces.iter().max()].map(|len| *len.expect("has some"));
                assert!(longest <= PIECE_MAX_BYTES && longest - shortest <= 256, "{len_bytes}: {pieces:?}");
                parts.push(pieces.iter().sum::<u64>());
            }
            let [shortest, longest] = [parts.iter().min(), parts.iter().max()].map(|len| *len.expect("has some"));
            assert!(longest <= PART_MAX_BYTES && shortest >= BURST_BYTES / 3 * 2, "{len_bytes}: {parts:?}");
            assert!(longest - shortest <= 64 * parts.len() as u64, "{len_bytes}: {parts:?}");
        }
    }

    #[test]
    fn the_shuttle_that_came_last_is_taken_first_and_none_twice() {
        let mut table = table(3, &Allowance::new(4 * MIB));
        assert_eq!([take(&mut table, 1, LEN), take(&mut table, 1, LEN)], [Some(Shuttle::Here), None]);
        for both in [[Shuttle::There, Shuttle::Here], [Shuttle::Here, Shuttle::There]] {
            both.iter().for_each(|shuttle| table.welcome(1, came(*shuttle, LEN)));
            assert_eq!([(); 3].map(|()| take(&mut table, 1, LEN)), [Some(both[1]), Some(both[0]), None]);
        }
        assert_eq!(take(&mut table, 2, LEN), Some(Shuttle::Here), "every pair has its own");
        assert_eq!(take(&mut table, 3, LEN), None, "there is no such process");
    }

    #[test]
    fn own_shuttles_take_channel_memory_for_what_they_have_carried_until_they_are_retired() {
        let allowance = Allowance::new(3 * MIB / 2);
        let mut table = table(3, &allowance);
        assert_eq!((table.all_held_bytes(), take(&mut table, 1, LEN)), (0, Some(Shuttle::Here)));
        assert_eq!((table.all_held_bytes(), allowance.left_bytes()), (MIB / 4, 5 * MIB / 4));
        table.keep(1, Shuttle::Here);
        assert_eq!(take(&mut table, 1, LONG), Some(Shuttle::Here));
        assert_eq!((table.held_bytes(1), allowance.left_bytes()), (MIB, MIB / 2), "to a power of two");
        assert_eq!(take(&mut table, 2, LONG), None, "there is no memory for another");
        assert_eq!(take(&mut table, 2, LEN), Some(Shuttle::Here), "but for a short one");
        assert!(!table.unmake(1), "it is with the other");
        table.keep(1, Shuttle::Here);
        assert!(table.unmake(1) && !table.unmake(1));
        assert_eq!((table.all_held_bytes(), allowance.left_bytes()), (MIB / 4, 5 * MIB / 4));
    }

    #[test]
    fn what_takes_more_memory_than_its_owner_has_counted_is_not_written_to_a_shuttle_of_somebody_else() {
        let mut table = table(2, &Allowance::new(0));
        table.welcome(1, came(Shuttle::There, LEN));
        assert_eq!((take(&mut table, 1, MIB / 4 + 1), take(&mut table, 1, MIB / 4)), (None, Some(Shuttle::There)));
        table.welcome(1, came(Shuttle::There, LONG));
        assert_eq!((take(&mut table, 1, MIB + 1), take(&mut table, 1, MIB)), (None, Some(Shuttle::There)));
        table.welcome(1, came(Shuttle::There, LEN));
        assert_eq!(take(&mut table, 1, LONG), Some(Shuttle::There), "it has been counted since");
        table.unmake(1);
        table.keep(1, Shuttle::There);
        assert_eq!(take(&mut table, 1, 1), None, "it may have been given back");
    }

    #[test]
    fn of_the_other_process_only_one_that_is_too_short_is_sent_home() {
        let mut table = table(2, &Allowance::new(4 * MIB));
        assert_eq!(table.take_too_short(1, LONG), None, "none has come");
        table.welcome(1, came(Shuttle::There, LEN));
        assert_eq!((table.take_too_short(1, LEN), table.take_too_short(1, LONG)), (None, Some(Shuttle::There)));
        table.welcome(1, came(Shuttle::There, LONG));
        assert_eq!(table.take_too_short(1, LONG), None, "it has become longer there");
    }

    #[test]
    fn messages_go_one_way_only_once_several_have_in_a_row() {
        let mut table = table(3, &Allowance::new(4 * MIB));
        let mut comes = |peer, len_bytes| {
            table.note_came(peer, len_bytes);
            assert_eq!(table.take_stirred(), len_bytes >= STREAMED_MIN_BYTES);
            table.is_streamed_from(peer)
        };
        assert_eq!([LONG, LEN, LONG].map(|len| comes(1, len)), [false, false, true]);
        assert!(!comes(2, LONG), "every pair has its own");
        table.note_went(1, LEN);
        assert!(table.is_streamed_from(1), "a short answer is none");
        table.note_went(1, LONG);
        assert!(!table.is_streamed_from(1) && !table.is_streamed_to(1));
        table.note_went(1, LONG);
        assert!(!table.is_streamed_to(1), "nothing has come back");
        table.welcome(1, came(Shuttle::There, 0));
        assert!(table.is_streamed_to(1));
        table.expect_none_empty(1);
        assert!(!table.is_streamed_to(1));
        table.welcome(1, came(Shuttle::Here, 0));
        (0..300).for_each(|_| table.note_went(1, LONG));
        assert!(table.is_streamed_to(1));
    }

    #[test]
    fn both_shuttles_go_to_the_other_process_empty_its_own_first() {
        let allowance = Allowance::new(MIB);
        let mut table = table(2, &allowance);
        table.welcome(1, came(Shuttle::There, LEN));
        assert_eq!([(); 3].map(|()| table.take_empty(1)), [Some(Shuttle::There), Some(Shuttle::Here), None]);
        assert_eq!((table.held_bytes(1), allowance.left_bytes()), (MIB / 4, MIB / 4 * 3), "what the other may write");
        table.keep(1, Shuttle::Here);
        assert_eq!((table.take_empty(1), table.held_bytes(1)), (Some(Shuttle::Here), MIB / 4), "it is counted");
        let mut poor = ShuttleTable::new(2, MIB as usize, Allowance::new(0));
        assert_eq!(poor.take_empty(1), None, "there is no memory for it");
    }

    #[test]
    fn where_the_one_that_came_last_is_too_short_the_other_is_taken() {
        let mut table = table(2, &Allowance::new(4 * MIB));
        table.welcome(1, came(Shuttle::There, LEN));
        assert_eq!((take(&mut table, 1, LONG), take(&mut table, 1, LEN)), (Some(Shuttle::Here), Some(Shuttle::There)));
    }
}
