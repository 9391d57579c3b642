//! Progress: everything that can be done now, without waiting.

use std::ops::{Range, RangeInclusive};

use base::SlabKey;
use datatype::SendBuf;
use fabric::{DirectCopy, DirectCopyError, PeerIndex};
use lockfree::{Aboard, CACHE_LINE_BYTES, ClaimCell, Record, Stores};
use protocol::rendezvous::{Chunks, Reach};
use protocol::wire::{self, Message};
use protocol::{Link, Outgoing};
use smallvec::SmallVec;

use crate::core::{Core, Engine, pack_all, write_all};
use crate::request::{Completion, Fault, IncomingWay, Outcome, PeerId, Request, State};
use crate::scattered::{Local, Place};
use crate::shuttles::{PATIENCE, Ride};
use crate::tuples::Side;
use crate::watch::EventKind;

/// Of so many looks after channels that are not polled, or should not be, one is for channels of ours that we do not use.
const LOOKS_PER_SWEEP: u32 = 16;

/// Bytes of a piece of a staged message, a quarter of it within these bounds: the receiver copies one piece while the next is
/// written, and each begins with lines that nobody has asked for yet. Nothing is written any more while it copies the last,
/// so those at the end are shorter.
pub(crate) const PIECE_BYTES: RangeInclusive<u64> = 8 << 10..=32 << 10;
/// Bytes of one message that leave before this side takes in what has arrived: where both send at once, each reads what
/// the other wrote while it is near.
pub(crate) const BURST_BYTES: u64 = 128 << 10;

/// A message that leaves through the channel piece by piece.
pub(crate) struct Stream {
    pub(crate) to: PeerId,
    pub(crate) send: SlabKey,
    pub(crate) receive: u64,
    pub(crate) next: u64,
    pub(crate) end: u64,
    /// Pieces do not cross multiples of this; the receiver is told of the last of each such part.
    pub(crate) chunk_bytes: u64,
    /// It carries the whole message, not one chunk of it.
    pub(crate) whole: bool,
    /// A message came the same way from its receiver meanwhile.
    pub(crate) crosses: bool,
    /// Turns that its next piece still waits for a shuttle, see [`Core::waits_for_shuttle`].
    pub(crate) patience: u32,
}

impl Stream {
    /// These bytes of a message, which are the last of it.
    pub(crate) fn of(to: PeerId, send: SlabKey, receive: u64, bytes: Range<u64>) -> Self {
        Self { whole: true, ..Self::of_chunks(to, send, receive, bytes.clone(), bytes.end) }
    }

    /// These bytes of a message that consists of chunks, whose receiver is told of each that is there.
    pub(crate) fn of_chunks(to: PeerId, send: SlabKey, receive: u64, bytes: Range<u64>, chunk_bytes: u64) -> Self {
        let Range { start: next, end } = bytes;
        Self { to, send, receive, next, end, chunk_bytes, whole: false, crosses: false, patience: PATIENCE }
    }
}

/// A message of ours that its receiver lets us copy along.
pub(crate) struct Helping {
    pub(crate) to: PeerId,
    pub(crate) send: SlabKey,
    pub(crate) receive: u64,
    pub(crate) target: Place,
    pub(crate) cell: ClaimCell,
    pub(crate) generation: u32,
    pub(crate) chunks: Chunks,
    /// The receiver copies nothing itself.
    pub(crate) alone: bool,
}

impl Engine {
    /// Takes in what has arrived, sends what has room now, copies what is to be copied; true if anything moved.
    pub fn progress(&mut self) -> bool {
        let mut moved = self.inbound.take_in(&mut self.core);
        let has_tuples = self.core.tuples.are_in_use();
        if has_tuples || self.inbox.is_some() {
            moved = self.take_in_further(has_tuples, moved);
        }
        if self.core.has_errands() {
            moved |= self.core.run_errands();
        }
        if self.core.unexpected_bytes > self.core.unexpected_max_bytes / 2 || self.core.holding_back {
            self.hold_back_senders();
        }
        if let Some(peer) = self.core.readying {
            self.core.ready_channel(peer, !moved);
        }
        self.core.is_patient = self.core.thresholds.is_crowded;
        self.turns_left -= 1;
        if self.turns_left == 0 {
            self.look_around();
        }
        moved
    }

    /// Takes in what comes neither through channels nor through the mailbox. A function of its own, as is what follows: most
    /// polls do none of it, and would only make room for it.
    #[inline(never)]
    fn take_in_further(&mut self, has_tuples: bool, mut moved: bool) -> bool {
        if has_tuples {
            moved |= self.core.poll_tuples_on(Side::Near);
        }
        if let Some(inbox) = &mut self.inbox
            && inbox.is_due(&self.core, moved)
        {
            moved |= inbox.take_in(&mut self.inbound, &mut self.core);
            // A device that works while it is polled has filled channels by that, and nothing else tells of it.
            if !moved && self.core.port.as_ref().is_some_and(|port| port.has_granted()) {
                moved = self.inbound.take_in(&mut self.core);
            }
            if has_tuples {
                moved |= self.core.poll_tuples_on(Side::Far);
            }
        }
        moved
    }

    /// Now and then, looks after channels that are not used.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self) {
        self.turns_left = self.core.look_turns;
        self.looks = self.looks.wrapping_add(1);
        self.inbound.look_around(&mut self.core);
        self.core.end_closing();
        if let Some(inbox) = &mut self.inbox {
            inbox.tend_buffers(&mut self.core);
        }
        if self.looks.is_multiple_of(LOOKS_PER_SWEEP) {
            self.core.close_idle();
        }
    }

    /// Asks senders to keep their data while the store of unexpected messages is full, and takes that back.
    #[inline(never)]
    fn hold_back_senders(&mut self) {
        let core = &mut self.core;
        let full = core.unexpected_bytes > core.unexpected_max_bytes;
        let relaxed = core.unexpected_bytes <= core.unexpected_max_bytes / 2;
        let hold = full || (core.holding_back && !relaxed);
        if hold == core.holding_back {
            return;
        }
        core.holding_back = hold;
        core.stats.held_back += u64::from(hold);
        if let Some(watch) = core.watch.as_mut().filter(|_| hold) {
            watch.note(EventKind::SendersHeldBack, None, core.unexpected_bytes as u64);
        }
        self.inbound.hold_back(hold);
        if let Some(port) = &mut core.port {
            port.hold_back(hold);
        }
    }
}

impl Core {
    /// True if there is anything to do but take in what arrives; most polls find nothing.
    #[inline]
    fn has_errands(&self) -> bool {
        !(self.crowded.is_empty() && self.streams.is_empty() && self.helping.is_empty() && self.copying.is_empty())
    }

    /// Sends and copies what can be now; true if anything moved.
    #[inline(never)]
    fn run_errands(&mut self) -> bool {
        let mut moved = self.flush_crowded();
        moved |= self.push_streams();
        let copies = self.advance_copying();
        moved | copies | self.help_copying(copies)
    }

    /// Readies the channel to `peer` a little further.
    #[inline(never)]
    fn ready_channel(&mut self, peer: PeerId, is_time: bool) {
        let block = match self.peers.get_mut(peer as usize) {
            Some(Some(peer)) => peer.link.hot(),
            _ => None,
        };
        if !block.is_some_and(|block| block.ready(is_time)) {
            self.readying = None;
        }
    }

    /// Sends what waited for room.
    fn flush_crowded(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.crowded.len() {
            let Some(to) = self.crowded.pop_front() else { break };
            moved |= self.flush_peer(to);
            let Some(Some(peer)) = self.peers.get_mut(to as usize) else { continue };
            if peer.link.is_clear() {
                peer.listed = false;
            } else {
                self.crowded.push_back(to);
            }
        }
        moved
    }

    fn flush_peer(&mut self, to: PeerId) -> bool {
        let mut moved = false;
        loop {
            let Some(Some(peer)) = self.peers.get_mut(to as usize) else { return moved };
            let pushed = match peer.link.first_waiting() {
                None => return moved,
                Some(Outgoing::Control(control)) => {
                    let payload = control.payload();
                    self.push(to, control.record, payload.len(), true, |space| space.copy_from_slice(payload))
                }
                Some(Outgoing::Clear(request)) => {
                    let pushed = self.push_clear_blocks(to, SlabKey::from_bits(request), true);
                    if let Some(Some(peer)) = self.peers.get_mut(to as usize)
                        && pushed
                    {
                        peer.link.skip_first();
                    }
                    pushed
                }
                Some(Outgoing::Eager(request)) => {
                    let id = SlabKey::from_bits(request);
                    if self.requests.get(id).is_none() {
                        peer.link.skip_first();
                        continue;
                    }
                    self.push_eager_request(to, id, true)
                }
            };
            if !pushed {
                self.announce_refused(to);
                return moved;
            }
            moved = true;
        }
    }

    /// A record found no room in a channel. If that is because the sender asked for another length of it, nobody has told
    /// the receiver yet: it may not poll the channel, or sleep.
    fn announce_refused(&mut self, to: PeerId) {
        if let Some(Some(peer)) = self.peers.get(to as usize)
            && !peer.link.is_port()
        {
            self.announce_record(to);
        }
    }

    /// Pushes pieces of long messages while there is room.
    fn push_streams(&mut self) -> bool {
        let mut moved = false;
        // Whose shuttle is waited for: what is behind waits, too.
        let mut awaited = None;
        for _ in 0..self.streams.len() {
            let Some(mut stream) = self.streams.pop_front() else { break };
            if stream.whole && (awaited == Some(stream.to) || self.waits_for_shuttle(&mut stream)) {
                awaited = Some(stream.to);
                self.streams.push_back(stream);
                continue;
            }
            moved |= self.push_stream(&mut stream);
            if stream.next < stream.end {
                self.streams.push_back(stream);
                continue;
            }
            if !stream.whole {
                continue;
            }
            self.note_crossing(&stream);
            if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(stream.send) {
                let envelope = send.envelope;
                self.finish_send(stream.send, Completion { envelope, outcome: Outcome::Done });
            }
        }
        moved
    }

    /// Sends the first part of a message whose request has just left: while the receiver finds its receive and answers,
    /// it is copied. Not if the receiver was not ready for the last one, or other sends are under way: those fill that
    /// time, and what cannot be taken yet is not to fill the channel. Not either if the request, or this, waits for room.
    pub(crate) fn push_ahead(&mut self, to: PeerId, id: SlabKey) {
        if self.unfinished_sends > 1 {
            return;
        }
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return };
        let Some(Some(peer)) = self.peers.get(to as usize) else { return };
        if !peer.takes_ahead || peer.link.is_port() || peer.link.is_slow() {
            return;
        }
        let (len_bytes, ahead_bytes) = (send.envelope.len_bytes, self.thresholds.ahead_bytes);
        let piece = next_piece_bytes(&peer.link, len_bytes, len_bytes);
        // Whole pieces, unless there is none: stores are compared by copies of one length.
        let is_whole = len_bytes <= ahead_bytes || ahead_bytes < piece;
        let end = if is_whole { len_bytes.min(ahead_bytes) } else { ahead_bytes / piece * piece };
        let mut sent = send.ahead_bytes;
        while sent < end {
            let Some(Some(peer)) = self.peers.get(to as usize) else { return };
            let len = next_piece_bytes(&peer.link, len_bytes, len_bytes - sent).min(end - sent);
            if !peer.link.is_clear() || !self.push_piece_of(id, wire::ahead(id.to_bits(), sent), sent, len) {
                break;
            }
            sent += len;
        }
        if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get_mut(id) {
            send.ahead_bytes = sent;
        }
        if let Some(Some(peer)) = self.peers.get_mut(to as usize) {
            peer.takes_ahead &= sent == 0;
        }
        if sent > 0 {
            self.stats.ahead_sent += 1;
            self.announce_record(to);
        }
        if sent < end {
            self.announce_refused(to);
        }
    }

    fn push_stream(&mut self, stream: &mut Stream) -> bool {
        let mut moved = false;
        let burst_end = stream.end.min(stream.next.saturating_add(BURST_BYTES));
        while stream.next < burst_end {
            let Some(Some(peer)) = self.peers.get_mut(stream.to as usize) else { break };
            let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(stream.send) else {
                stream.next = stream.end;
                break;
            };
            let len_bytes = send.envelope.len_bytes;
            let left = len_bytes.saturating_sub(stream.next);
            let len = next_piece_bytes(&peer.link, len_bytes, left).min(stream.end - stream.next);
            let chunk_left = stream.chunk_bytes - stream.next % stream.chunk_bytes;
            let len = len.min(chunk_left);
            let last = stream.next + len == stream.end || len == chunk_left;
            let record = wire::data(stream.receive, stream.next, last);
            let is_port = peer.link.is_port();
            let pushed = match self.port.as_mut().filter(|_| is_port) {
                Some(port) => {
                    peer.link.is_clear()
                        && port.push(stream.to, record, len as usize, |space| pack_all(&send.buf, stream.next, space))
                }
                None if stream.whole => self.push_piece_of(stream.send, record, stream.next, len),
                None => push_piece(&mut peer.link, record, &send.buf, (stream.next, len), None),
            };
            if !pushed {
                self.announce_refused(stream.to);
                break;
            }
            stream.next += len;
            moved = true;
            if !is_port {
                self.announce_record(stream.to);
            }
        }
        moved
    }

    /// Copies a chunk of each message that a receiver shares with us. Who `copies` for itself helps only those who copy
    /// nothing: where everybody sends to everybody, all would do each other's work.
    fn help_copying(&mut self, copies: bool) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.helping.len() {
            let helping = &self.helping[index];
            if copies && !helping.alone {
                index += 1;
                continue;
            }
            let claimed = helping.cell.claim(helping.generation, helping.chunks.count());
            let (to, send) = (helping.to, helping.send);
            let Some(chunk) = claimed else {
                self.helping.swap_remove(index);
                continue;
            };
            moved = true;
            let (offset, len) = helping.chunks.range(chunk);
            let (target, total) = (helping.target.clone(), helping.chunks.len_bytes());
            let buf = match self.requests.get(send) {
                Some(Request { state: State::Outgoing(send), .. }) => Some(send.buf.clone()),
                _ => None,
            };
            let outcome = buf.map(|buf| self.copy_part(to, Local::Source(&buf), &target, offset, len));
            let helping = &self.helping[index];
            if outcome == Some(Ok(())) {
                helping.cell.finish();
                self.stats.chunks_written += 1;
                self.context.notify(PeerIndex(to));
                index += 1;
            } else {
                // We may not write there: the chunk goes through the channel, and the rest is the receiver's.
                let (receive, chunk_bytes) = (helping.receive, helping.chunks.chunk_bytes());
                let end = if helping.alone { total } else { offset + len };
                self.helping.swap_remove(index);
                self.streams.push_back(Stream::of_chunks(to, send, receive, offset..end, chunk_bytes));
            }
        }
        moved
    }

    /// Goes on with the receives that this side copies, each by a step: those of one buffer find it in the cache.
    fn advance_copying(&mut self) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.copying.len() {
            let key = self.copying[index];
            let step = self.copy_step(key);
            moved |= step != Step::Waiting;
            match step {
                Step::Over => {
                    self.copying.swap_remove(index);
                }
                Step::Moved | Step::Waiting => index += 1,
            }
        }
        moved
    }

    /// One step of a receive that this side copies.
    fn copy_step(&mut self, key: SlabKey) -> Step {
        let step_bytes = self.thresholds.read_step_bytes as u64;
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else {
            return Step::Over;
        };
        let (peer, total) = (incoming.envelope.peer, incoming.envelope.len_bytes);
        let (remote, offset, len) = match &incoming.way {
            IncomingWay::Read { remote, next } => (remote.clone(), *next, step_bytes.min(total - *next)),
            IncomingWay::Shared { remote, cell, generation, chunks, .. } => {
                let (remote, cell, generation, chunks) = (remote.clone(), *cell, *generation, *chunks);
                let Some(cell) = self.claim_cell(self.me, cell) else { return Step::Over };
                let Some(remote) = remote else { return self.watch_sender(key, &cell, chunks) };
                match cell.claim(generation, chunks.count()) {
                    Some(chunk) => {
                        let (offset, len) = chunks.range(chunk);
                        (remote, offset, len)
                    }
                    None if cell.done() >= chunks.count().into() => {
                        self.stats.shared_received += 1;
                        self.finish_copying(key, Outcome::Done);
                        return Step::Over;
                    }
                    None => return Step::Waiting,
                }
            }
            _ => return Step::Over,
        };
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else {
            return Step::Over;
        };
        let mut buf = incoming.buf.slice(0, total);
        let outcome = self.copy_part(peer, Local::Target(&mut buf), &remote, offset, len);
        self.after_read(key, peer, len, outcome)
    }

    /// One look at a message that its sender copies alone: what is there is unpacked if it is a packed form.
    fn watch_sender(&mut self, key: SlabKey, cell: &ClaimCell, chunks: Chunks) -> Step {
        let done = cell.done();
        if done >= chunks.count().into() {
            self.stats.shared_received += 1;
            self.finish_copying(key, Outcome::Done);
            return Step::Over;
        }
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else {
            return Step::Over;
        };
        let done_bytes = done.saturating_mul(chunks.chunk_bytes()).min(chunks.len_bytes());
        if Self::unpack_arrived(incoming, done_bytes) { Step::Moved } else { Step::Waiting }
    }

    fn after_read(&mut self, key: SlabKey, peer: PeerId, len: u64, outcome: Result<(), DirectCopyError>) -> Step {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else {
            return Step::Over;
        };
        let total = incoming.envelope.len_bytes;
        let send = incoming.send;
        match (outcome, &mut incoming.way) {
            (Ok(()), IncomingWay::Read { next, .. }) => {
                *next += len;
                if *next < total {
                    return Step::Moved;
                }
                self.stats.read_received += 1;
                self.finish_copying(key, Outcome::Done);
                Step::Over
            }
            (Ok(()), IncomingWay::Shared { cell, .. }) => {
                let cell = *cell;
                if let Some(cell) = self.claim_cell(self.me, cell) {
                    cell.finish();
                }
                Step::Moved
            }
            (Err(DirectCopyError::Refused), way @ IncomingWay::Read { next: 0, .. }) => {
                *way = IncomingWay::Staged { received: 0 };
                self.send_control(peer, Message::Clear { send, receive: key.to_bits(), took_ahead: false, whole: 0 });
                Step::Over
            }
            (Ok(()), _) => Step::Over,
            (Err(error), _) => {
                let why = format!("reading the message from its sender failed: {error}");
                let fault = match error {
                    DirectCopyError::PeerGone => Fault::loss(peer, why),
                    DirectCopyError::Refused | DirectCopyError::AccessError => Fault::new(why),
                };
                self.finish_copying(key, Outcome::Failed(fault));
                Step::Over
            }
        }
    }

    /// Ends a receive that this side copied: the sender may have its memory back.
    fn finish_copying(&mut self, key: SlabKey, outcome: Outcome) {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else { return };
        let (peer, send) = (incoming.envelope.peer, incoming.send);
        if outcome == Outcome::Done {
            Self::unpack_arrived(incoming, incoming.envelope.len_bytes);
            incoming.buf.written_by_others(incoming.envelope.len_bytes);
        }
        if let IncomingWay::Shared { region, cell, .. } = &incoming.way {
            let (region, cell) = (*region, *cell);
            self.release(region);
            self.free_cells.push(cell);
        }
        self.send_control(peer, Message::Finished { send });
        self.finish_incoming(key, outcome);
    }

    /// Copies between this process and the peer, and remembers whether the system lets us.
    pub(crate) fn copy(&mut self, peer: PeerId, copy: DirectCopy) -> Result<(), DirectCopyError> {
        self.peer(peer).map_err(|_| DirectCopyError::PeerGone)?;
        let outcome = self.context.copy(PeerIndex(peer), &copy);
        self.note_reach(peer, outcome);
        outcome
    }

    /// Remembers whether the system lets us copy.
    pub(crate) fn note_reach(&mut self, peer: PeerId, outcome: Result<(), DirectCopyError>) {
        if let Some(Some(entry)) = self.peers.get_mut(peer as usize) {
            match outcome {
                Ok(()) => entry.reach = Reach::Works,
                Err(DirectCopyError::Refused) => entry.reach = Reach::Refused,
                Err(_) => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Moved,
    Waiting,
    Over,
}

/// Bytes of the next piece of a message of `len_bytes`, of which so many are left, on this way: of whole lines, if there is
/// room for one.
fn next_piece_bytes(link: &Link, len_bytes: u64, left_bytes: u64) -> u64 {
    const LINE: u64 = CACHE_LINE_BYTES as u64;
    let most = link.payload_max_bytes() as u64;
    if link.is_port() || most < LINE {
        return most;
    }
    staged_piece_bytes(len_bytes, left_bytes).next_multiple_of(LINE).min(most / LINE * LINE)
}

/// Offset and length of each piece of a message of `len_bytes` that goes at once. Nobody copies anything while the first is
/// written: it is shorter.
pub(crate) fn pieces_of(link: &Link, len_bytes: u64) -> SmallVec<[(u64, u64); 16]> {
    let mut offset = 0;
    std::iter::from_fn(|| {
        let left = len_bytes - offset;
        let len = next_piece_bytes(link, len_bytes, left).min(left);
        let len = if offset == 0 { first_piece_bytes(len) } else { len };
        let piece = (left > 0).then_some((offset, len));
        offset += len;
        piece
    })
    .collect()
}

/// Bytes of the next piece of a message of which so many are left: a quarter of all, or half of the rest.
fn staged_piece_bytes(len_bytes: u64, left_bytes: u64) -> u64 {
    let (least, most) = (*PIECE_BYTES.start(), *PIECE_BYTES.end());
    let quarter = len_bytes.div_ceil(4).clamp(least, most);
    if left_bytes < 2 * least { quarter.max(left_bytes) } else { quarter.min((left_bytes / 2).max(least)) }
}

/// Bytes of the first piece, if others of the message have so many.
fn first_piece_bytes(others_bytes: u64) -> u64 {
    (others_bytes / 4 * 3).next_multiple_of(CACHE_LINE_BYTES as u64).max(*PIECE_BYTES.start()).min(others_bytes)
}

/// Pushes `len` bytes of the message in `buf` from `offset` on to a mapped peer, if there is room: aboard a shuttle, if they
/// `ride`.
pub(crate) fn push_piece(
    link: &mut Link,
    record: Record,
    buf: &SendBuf,
    (offset, len): (u64, u64),
    ride: Option<Ride>,
) -> bool {
    let len_bytes = len as usize;
    let Some(ride) = ride else {
        return link.try_push(record, len_bytes, |space, stores| write_all(buf, offset, space, stores));
    };
    let Ride { shuttle, from, until } = ride;
    let aboard = Aboard { shuttle, offset: (offset - from) as usize, is_last: offset + len >= until };
    link.try_push_aboard(record, len_bytes, aboard, |space| write_all(buf, offset, space, Stores::Ordinary))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces of a message of so many bytes.
    fn pieces(len_bytes: u64) -> Vec<u64> {
        let mut left = len_bytes;
        std::iter::from_fn(|| {
            let piece = staged_piece_bytes(len_bytes, left).min(left);
            left -= piece;
            (piece > 0).then_some(piece)
        })
        .collect()
    }

    #[test]
    fn a_first_piece_is_shorter_unless_all_are_short() {
        assert_eq!(
            [100, 8 << 10, 9 << 10, 16 << 10, 32 << 10].map(first_piece_bytes),
            [100, 8 << 10, 8 << 10, 12 << 10, 24 << 10]
        );
    }

    #[test]
    fn pieces_become_shorter_at_the_end_and_none_is_very_short() {
        let kib = |pieces: &[u64]| pieces.iter().map(|piece| piece << 10).collect::<Vec<_>>();
        assert_eq!(pieces(64 << 10), kib(&[16, 16, 16, 8, 8]));
        assert_eq!(pieces(128 << 10), kib(&[32, 32, 32, 16, 8, 8]));
        assert_eq!(pieces(9 << 10), kib(&[9]));
        for len_bytes in (1..300_000).step_by(997) {
            let pieces = pieces(len_bytes);
            assert_eq!(pieces.iter().sum::<u64>(), len_bytes);
            assert!(
                pieces.iter().all(|piece| *piece >= len_bytes.min(*PIECE_BYTES.start())),
                "{len_bytes}: {pieces:?}"
            );
            assert!(pieces.is_sorted_by(|a, b| a >= b || *b < 2 * PIECE_BYTES.start()), "{len_bytes}: {pieces:?}");
        }
    }
}
