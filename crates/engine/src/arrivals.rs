//! What comes through the port, and who is lost there or given up among mapped peers.
//!
//! A poll of a device between hosts is a system call. Where mapped peers stand beside it, a message between them would wait
//! for several of these; so while they talk the port is polled by the clock, and in every turn otherwise.

use std::time::Duration;

use base::SlabKey;
use fabric::{CompletionOpcode, PeerIndex, WcStatus, WorkCompletion};
use lockfree::SlotMemory;

use crate::EngineError;
use crate::core::{Core, Engine};
use crate::inbound::{Inbound, Turn};
use crate::port::{COMPLETIONS_MAX, Loss, Port, Work};
use crate::request::{Completion, Envelope, Fault, IncomingWay, Outcome, PeerId, Request, State};

/// Polls of the completion queue in one turn, while they find it full.
const POLLS_PER_TURN: u32 = 4;

/// Turns in which nothing came from mapped peers until the port is polled in each again: a few microseconds.
const QUIET_TURNS: u32 = 256;
/// While they talk, the port is polled so often.
const PERIOD: Duration = Duration::from_micros(10);

/// Takes completions and shows what they bring to the rest of the engine, where it lies.
pub(crate) struct Inbox {
    completions: [WorkCompletion; COMPLETIONS_MAX],
    /// The bytes of the pool, as they were in this version of it.
    memory: Option<SlotMemory>,
    version: u64,
    /// Turns until the port is polled in each; 0 for ever where nobody is mapped.
    turns_left: u32,
    /// Set where mapped peers stand beside the port: when it is polled while they talk.
    due: Option<Duration>,
}

impl Inbox {
    /// `is_beside`: there are mapped peers, too.
    pub(crate) fn new(is_beside: bool) -> Self {
        Self {
            completions: Default::default(),
            memory: None,
            version: 0,
            turns_left: 0,
            due: is_beside.then_some(Duration::ZERO),
        }
    }

    /// True if the port is to be polled in this turn; `moved`: mapped peers have brought something in it.
    #[inline]
    pub(crate) fn is_due(&mut self, core: &Core, moved: bool) -> bool {
        let (Some(due), Some(port)) = (&mut self.due, &core.port) else { return true };
        self.turns_left = if moved { QUIET_TURNS } else { self.turns_left.saturating_sub(1) };
        if self.turns_left == 0 || port.is_awaited() {
            return true;
        }
        let now = port.now();
        let is_due = *due <= now;
        if is_due {
            *due = now + PERIOD;
        }
        is_due
    }

    /// Takes in what has come; true if anything has. If somebody is about to sleep and nothing came, the device is told
    /// to wake it, and is looked at once more.
    pub(crate) fn take_in(&mut self, inbound: &mut Inbound, core: &mut Core) -> bool {
        let mut moved = self.take_turn(inbound, core);
        if !moved
            && let Some(port) = &mut core.port
            && port.wakeup_announced()
        {
            port.arm();
            self.let_go(port);
            core.tuples.arm(port);
            moved = self.take_turn(inbound, core);
        }
        moved
    }

    /// Gives back what the port does not need, and lets go of it here.
    pub(crate) fn tend_buffers(&mut self, core: &mut Core) {
        if let Some(port) = &mut core.port {
            port.tend_buffers();
            self.let_go(port);
        }
    }

    fn let_go(&mut self, port: &Port) {
        if let Some((memory, version)) = port.memory_unless(self.version) {
            (self.memory, self.version) = (Some(memory), version);
        }
    }

    fn take_turn(&mut self, inbound: &mut Inbound, core: &mut Core) -> bool {
        let mut moved = false;
        for _ in 0..POLLS_PER_TURN {
            let Some(port) = &mut core.port else { return moved };
            let count = port.poll(&mut self.completions);
            if count == 0 {
                if port.is_unsettled() {
                    port.settle();
                }
                port.take_events();
                break;
            }
            if let Some((memory, version)) = port.memory_unless(self.version) {
                (self.memory, self.version) = (Some(memory), version);
            }
            for completion in &self.completions[..count] {
                core.end_work(self.memory.as_ref(), completion);
                if !core.turned.is_empty() {
                    // What was written into a channel that is closed comes before what follows here.
                    inbound.turn(core);
                }
            }
            if let Some(port) = &mut core.port {
                port.settle();
            }
            if !core.posting.is_empty() {
                core.post_transfers();
            }
            moved = true;
            if count < COMPLETIONS_MAX {
                break;
            }
        }
        if !moved && !core.posting.is_empty() {
            moved = core.post_transfers();
        }
        moved | core.mourn(inbound)
    }
}

impl Engine {
    /// Hears which mapped peers those who slept have given up, and ends what was to be done with them; true if there are
    /// any. Asked after a sleep.
    pub fn hear_of_losses(&mut self) -> bool {
        self.core.give_up_mapped()
    }

    /// The processes that are lost without having said that they would leave, in the order in which that was found.
    pub fn losses(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.core.losses.iter().map(|(peer, _)| *peer)
    }

    /// Why a process is lost, if it is.
    pub fn lost(&self, peer: PeerId) -> Option<EngineError> {
        self.core.lost(peer)
    }
}

impl Core {
    /// That a process is lost, if it is.
    pub(crate) fn lost(&self, peer: PeerId) -> Option<EngineError> {
        let known = self.losses.iter().find(|(known, _)| *known == peer).map(|(_, why)| why.as_str());
        let why = known.or_else(|| self.port.as_ref()?.lost(peer))?.to_owned();
        Some(EngineError::PeerLost { peer, why })
    }

    /// True if a process is lost; costs next to nothing while none is known to be.
    pub(crate) fn has_lost(&self, peer: PeerId) -> bool {
        self.sources_end == 0 && self.lost(peer).is_some()
    }

    /// One work request has ended.
    #[inline]
    fn end_work(&mut self, memory: Option<&SlotMemory>, completion: &WorkCompletion) {
        let Some(port) = &mut self.port else { return };
        match Work::of_id(completion.id) {
            Some(Work::Receive(number)) => {
                let (Some(slot), Some(memory)) = (port.reclaim(number), memory) else { return self.refuse() };
                if completion.status != WcStatus::Success {
                } else if completion.opcode == CompletionOpcode::ReceiveRdmaWithImmediate {
                    match port.written(completion) {
                        Some((peer, number)) => self.arrive_written(peer, number),
                        None => self.refuse(),
                    }
                } else {
                    let bytes = usize::try_from(completion.bytes).unwrap_or(usize::MAX);
                    memory.read(&slot, bytes, |message| self.take_message(completion, message));
                }
                if let Some(port) = &mut self.port {
                    port.emptied(slot);
                }
            }
            Some(Work::Send(number)) => port.sent(number, completion),
            Some(Work::Transfer(number)) => self.end_batch(number, completion),
            Some(work @ (Work::Word(_) | Work::Record(_) | Work::Show(_))) => port.wrote(work, completion),
            Some(work @ (Work::ReceiveHello(_) | Work::SendHello(_))) => port.greeted(work, completion),
            None => self.refuse(),
        }
    }

    #[inline]
    fn take_message(&mut self, completion: &WorkCompletion, message: &[u8]) {
        let arrival = self.port.as_mut().and_then(|port| port.understand(completion, message));
        match arrival {
            None => self.refuse(),
            Some(arrival) => {
                if arrival.announces {
                    self.arrive_unpolled(arrival.peer);
                }
                if let Some(record) = arrival.record {
                    self.arrive(arrival.peer, record, arrival.payload);
                }
            }
        }
    }

    /// Ends what was to be done with peers that are lost; true if there are any.
    fn mourn(&mut self, inbound: &mut Inbound) -> bool {
        let mut any = false;
        while let Some(loss) = self.port.as_mut().and_then(|port| port.next_loss()) {
            // What it had written before is received.
            self.turned.push((loss.peer, Turn::Closed));
            inbound.turn(self);
            self.end_all_with(loss);
            any = true;
        }
        any
    }

    /// Ends what was to be done with mapped peers that whoever slept has given up; true if there are any.
    pub(crate) fn give_up_mapped(&mut self) -> bool {
        let mut any = false;
        while let Some((PeerIndex(peer), why)) = self.context.given_up() {
            self.end_all_with(Loss::now(peer, why));
            any = true;
        }
        any
    }

    fn end_all_with(&mut self, loss: Loss) {
        self.sources_end = 0;
        let peer = loss.peer;
        let fault = Fault::loss(peer, &*loss.why);
        if let Some(Some(entry)) = self.peers.get_mut(peer as usize) {
            entry.link.clear();
        }
        // Somebody who had said that it would leave is not missed by those who take messages from anybody.
        for receive in self.posted.take_all_of(peer, !loss.left) {
            let envelope = Envelope { peer, tag: 0, len_bytes: 0 };
            self.complete(receive, Completion { envelope, outcome: Outcome::Failed(fault.clone()) });
        }
        self.end_tuples_of(peer, &fault);
        let with_peer = |state: &State| match state {
            State::Outgoing(send) => send.envelope.peer == peer,
            State::Incoming(incoming) => incoming.envelope.peer == peer,
            State::InQueue(_) | State::Posted { .. } | State::Complete(_) => false,
        };
        let keys: Vec<_> =
            self.requests.iter().filter(|(_, request)| with_peer(&request.state)).map(|(key, _)| key).collect();
        for key in keys {
            let Some(Request { state, .. }) = self.requests.get(key) else { continue };
            let (envelope, outgoing) = match state {
                State::Outgoing(send) => (send.envelope, true),
                State::Incoming(incoming) => (incoming.envelope, false),
                State::InQueue(_) | State::Posted { .. } | State::Complete(_) => continue,
            };
            let completion = Completion { envelope, outcome: Outcome::Failed(fault.clone()) };
            self.release_incoming(key);
            self.close_shared(key);
            if outgoing { self.finish_send(key, completion) } else { self.complete(key, completion) }
        }
        if !loss.left {
            self.losses.push((peer, loss.why));
        }
    }

    /// A receive that its sender may be copying along has failed. Should the sender go on one day, it claims no more of it;
    /// but what it had claimed it copies, and reports to the cell, which is not used again therefore.
    fn close_shared(&mut self, key: SlabKey) {
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(key) else { return };
        let IncomingWay::Shared { region, cell, .. } = &incoming.way else { return };
        let (region, cell) = (*region, *cell);
        if let Some(cell) = self.claim_cell(self.me, cell) {
            cell.open();
        }
        self.release(region);
    }

    /// A receive has met a message whose sender may be lost since: if that one would have to bring it, it fails.
    pub(crate) fn fail_if_lost(&mut self, key: SlabKey, envelope: Envelope) {
        if self.sources_end > 0 {
            return;
        }
        let peer = envelope.peer;
        let Some(EngineError::PeerLost { why, .. }) = self.lost(peer) else { return };
        let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get(key) else { return };
        if matches!(&incoming.way, IncomingWay::Read { .. } | IncomingWay::Shared { remote: Some(_), .. }) {
            return;
        }
        self.release_incoming(key);
        self.close_shared(key);
        self.complete(key, Completion { envelope, outcome: Outcome::Failed(Fault::loss(peer, why)) });
    }
}
