//! Progress: everything that can be done now, without waiting.

use base::SlabKey;
use fabric::{DirectCopy, DirectCopyError, PeerIndex};
use lockfree::ClaimCell;
use protocol::Outgoing;
use protocol::rendezvous::{Chunks, Reach};
use protocol::wire::Message;

use crate::core::{Core, Engine};
use crate::request::{Fault, IncomingWay, Outcome, PeerId, Request, State};
use crate::scattered::{Local, Place};
use crate::streams::Stream;
use crate::tuples::Side;
use crate::watch::EventKind;

/// Of so many looks after channels that are not polled, or should not be, one is for channels of ours that we do not use.
const LOOKS_PER_SWEEP: u32 = 16;

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
        if !self.core.met_beside_work.is_empty() {
            self.core.begin_to_wait();
        }
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

    /// Takes in what peers ask and answer, for a caller who goes on to other work: long messages get under way meanwhile, but
    /// nothing is copied here.
    #[inline(never)]
    pub fn answer(&mut self) {
        if self.core.tuples.are_in_use() {
            return;
        }
        self.core.is_beside_work = true;
        self.inbound.take_in_talk(&mut self.core);
        self.core.is_beside_work = false;
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
    pub(crate) fn announce_refused(&mut self, to: PeerId) {
        if let Some(Some(peer)) = self.peers.get(to as usize)
            && !peer.link.is_port()
        {
            self.announce_record(to);
        }
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
                self.streams.push(Stream::of_chunks(to, send, receive, offset..end, chunk_bytes));
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
