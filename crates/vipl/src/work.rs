//! The two work queues of a VI, and what happens to the descriptors in them. Paper: via2sisci §1.4.3.
//!
//! ```text
//!   send queue     posted ──▶ held (descriptors of the other side are wanted) ──▶ transferred ──▶ done
//!                                              asked (the other side's shadow) ──┘
//!   receive queue  posted ──▶ pushed to the other side ──▶ arrived ──▶ done
//! ```
//! The sender's processor does all of it: it has the receive descriptor, finds the segments, stores the bytes there and says
//! that they have arrived. Nothing waits here: what cannot go on stays where it is until somebody looks again.

mod sending;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};

use parking_lot::RwLock;

use crate::channel::{self, Arrival, DESCRIPTORS_MAX, Nonsense, SERVICES_MAX};
use crate::counters::{Counter, Counters};
use crate::descriptor::{Completion, DataSegment, Descriptor, StatusPlace};
use crate::link::Link;
use crate::memory::{Block, Registry};
use crate::status::{ErrorCode, Operation, State, Status};
use crate::vi::ViAttributes;

/// A descriptor of the send queue.
struct Send {
    descriptor: Descriptor,
    blocks: Vec<Block>,
    /// The operation; an error if it is not to be transferred at all.
    status: Status,
    /// The other side was asked for a copy.
    is_asked: bool,
}

/// A descriptor of the receive queue.
struct Receive {
    segments: Vec<DataSegment>,
    blocks: Vec<Block>,
    context: u64,
    place: StatusPlace,
    error: Option<Status>,
    is_pushed: bool,
}

/// What a look at a VI led to, for whoever looked to pass on without holding the VI.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Descriptors were completed.
    pub(crate) completed: bool,
    /// What the error handler is told.
    pub(crate) errors: Vec<ErrorCode>,
}

/// Completed descriptors of one work queue.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) list: VecDeque<Completion>,
    /// How many of them no completion queue has been told of.
    pub(crate) unannounced: usize,
}

impl Done {
    pub(crate) fn take(&mut self) -> Option<Completion> {
        let taken = self.list.pop_front();
        self.unannounced = self.unannounced.min(self.list.len());
        taken
    }

    fn push(&mut self, completion: Completion, place: &StatusPlace) {
        if let Some(address) = place.address() {
            write_status(address, &completion);
        }
        self.list.push_back(completion);
        self.unannounced += 1;
    }
}

/// What the queues need of their NIC.
pub(crate) struct Surroundings<'a> {
    pub(crate) registry: &'a RwLock<Registry>,
    pub(crate) counters: &'a Counters,
    /// Receive descriptors that are pushed at once, at most.
    pub(crate) push_max: usize,
}

/// A VI behind its lock.
pub(crate) struct Queues {
    pub(crate) state: State,
    pub(crate) attributes: ViAttributes,
    pub(crate) link: Option<Link>,
    /// How often a connection was begun.
    pub(crate) attempt: u64,
    sends: VecDeque<Send>,
    receives: VecDeque<Receive>,
    pushed: usize,
    pushed_words: u64,
    wanted_seen: u64,
    /// The send at the head has said that it wants descriptors; how many had been posted there.
    is_held: bool,
    /// Receive descriptors of the other side that were used, or given up.
    used: u64,
    asked: u64,
    list: Vec<DataSegment>,
    pub(crate) send_done: Done,
    pub(crate) receive_done: Done,
}

impl Queues {
    pub(crate) fn new(attributes: ViAttributes) -> Self {
        Self {
            state: State::Idle,
            attributes,
            link: None,
            attempt: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            pushed: 0,
            pushed_words: 0,
            wanted_seen: 0,
            is_held: false,
            used: 0,
            asked: 0,
            list: Vec::new(),
            send_done: Done::default(),
            receive_done: Done::default(),
        }
    }

    /// Descriptors in the send queue, and in the receive queue, complete or not.
    pub(crate) fn lengths(&self) -> [usize; 2] {
        [self.sends.len() + self.send_done.list.len(), self.receives.len() + self.receive_done.list.len()]
    }

    /// Whether receives are posted that are not complete.
    pub(crate) fn has_receives(&self) -> bool {
        !self.receives.is_empty()
    }

    /// The VI is connected from now on; receives that were posted before are told of.
    pub(crate) fn connected(&mut self, link: Link, around: &Surroundings<'_>) {
        self.link = Some(link);
        self.state = State::Connected;
        (self.pushed, self.pushed_words, self.wanted_seen, self.used, self.asked) = (0, 0, 0, 0, 0);
        self.is_held = false;
        if let Some(link) = &mut self.link {
            self.receives.iter().filter(|receive| receive.error.is_none()).for_each(|_| link.outbound.post());
        }
        self.push(around);
    }

    /// Takes a descriptor into the send queue; one that comes while nothing is connected is flushed.
    pub(crate) fn post_send(&mut self, descriptor: Descriptor, around: &Surroundings<'_>) -> Outcome {
        let (blocks, status) = match descriptor.status() {
            Ok(op) => match self.blocks(&descriptor, around) {
                Ok(blocks) => (blocks, op),
                Err(error) => (Vec::new(), op.and(error)),
            },
            Err(error) => (Vec::new(), error),
        };
        let mut outcome = Outcome::default();
        if status.is_error() {
            outcome.errors.push(ErrorCode::PostDescriptor);
        }
        self.sends.push_back(Send { descriptor, blocks, status, is_asked: false });
        match self.state {
            State::Connected => self.look_into(around, &mut outcome),
            _ => self.flush_sends(&mut outcome),
        }
        outcome
    }

    /// Takes a descriptor into the receive queue; after an error it is flushed.
    pub(crate) fn post_receive(&mut self, descriptor: Descriptor, around: &Surroundings<'_>) -> Outcome {
        let well_formed = descriptor.status().is_ok() && descriptor.operation == Operation::Send;
        let resolved = match well_formed {
            true => self.blocks(&descriptor, around),
            false => Err(Status::FORMAT_ERROR),
        };
        let mut outcome = Outcome::default();
        let (blocks, error) = match resolved {
            Ok(blocks) => (blocks, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if error.is_some() {
            outcome.errors.push(ErrorCode::PostDescriptor);
        }
        let Descriptor { segments, context, place, .. } = descriptor;
        self.receives.push_back(Receive { segments, blocks, context, place, error, is_pushed: false });
        if self.state == State::Error {
            self.flush_receives(&mut outcome);
            return outcome;
        }
        if let Some(link) = self.link.as_mut().filter(|_| error.is_none()) {
            link.outbound.post();
        }
        self.look_into(around, &mut outcome);
        outcome
    }

    /// Goes on with whatever can go on.
    pub(crate) fn look(&mut self, around: &Surroundings<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        self.look_into(around, &mut outcome);
        outcome
    }

    fn look_into(&mut self, around: &Surroundings<'_>, outcome: &mut Outcome) {
        self.settle_failed(outcome);
        let Some(link) = &self.link else { return };
        // Before the messages: what was sent before a farewell has arrived by then.
        let is_over = link.line.is_lost() || link.inbound.is_closed();
        let arrived = self.arrivals(around, outcome);
        match arrived.and_then(|()| if is_over { Ok(()) } else { self.transfer(around, outcome) }) {
            Err(code) => self.fail(code, outcome),
            Ok(()) if is_over => self.fail(ErrorCode::ConnectionLost, outcome),
            Ok(()) => self.push(around),
        }
    }

    /// Makes the copies that the other side asks for, which only the event manager does. Returns how many.
    pub(crate) fn serve(&mut self, around: &Surroundings<'_>) -> u64 {
        let ptag = self.attributes.ptag;
        let (may_write, may_read) = (self.attributes.rdma_write, self.attributes.rdma_read);
        let Some(link) = &mut self.link else { return 0 };
        let mut served = 0;
        // One that floods is answered as often as the ring is long, and then the others have their turn.
        while served < SERVICES_MAX
            && let Some(service) = link.inbound.service()
        {
            let made = (|| {
                // Kept through the copy: whoever deregisters the memory waits for it, rather than being told that it is used.
                let registry = around.registry.read();
                let block = registry.block(&service.place, ptag).ok()?;
                let attributes = block.region().attributes();
                match service.into_shadow {
                    true if attributes.rdma_read && may_read => block.copy_in(block.len_bytes(), around.counters),
                    false if attributes.rdma_write && may_write => block.copy_out(block.len_bytes(), around.counters),
                    _ => return None,
                }
                Some(())
            })();
            link.outbound.answer(made.is_some());
            around.counters.add(if made.is_some() { Counter::Served } else { Counter::Refused }, 1);
            served += 1;
        }
        if served > 0 {
            link.ring();
            link.ring_manager();
        }
        served
    }

    /// Ends the connection from this side; everything outstanding is flushed.
    pub(crate) fn disconnect(&mut self, around: &Surroundings<'_>) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(link) = &self.link {
            link.end_transfers();
            // What has arrived by now was reported as delivered. An error among it is of no connection any more.
            let _ = self.arrivals(around, &mut outcome);
        }
        self.say_farewell();
        self.flush_sends(&mut outcome);
        self.flush_receives(&mut outcome);
        self.state = State::Idle;
        outcome
    }

    fn say_farewell(&mut self) {
        if let Some(link) = self.link.take() {
            link.end_transfers();
            link.ring();
            link.ring_manager();
            // The other side may be asleep in the system as well.
            let _ = link.line.socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The connection is over; what is posted from now on is flushed until the VI is disconnected.
    fn fail(&mut self, code: ErrorCode, outcome: &mut Outcome) {
        self.say_farewell();
        self.state = State::Error;
        outcome.errors.push(code);
        self.flush_sends(outcome);
        self.flush_receives(outcome);
    }

    fn flush_sends(&mut self, outcome: &mut Outcome) {
        for send in std::mem::take(&mut self.sends) {
            let error = if send.status.is_error() { Status::default() } else { Status::FLUSHED_ERROR };
            self.complete_send(&send, error, 0, outcome);
        }
    }

    fn flush_receives(&mut self, outcome: &mut Outcome) {
        for receive in std::mem::take(&mut self.receives) {
            let error = receive.error.unwrap_or(Status::FLUSHED_ERROR);
            self.complete_receive(&receive, Arrival { status: error, len_bytes: 0, immediate: 0 }, outcome);
        }
        (self.pushed, self.pushed_words) = (0, 0);
    }

    fn blocks(&self, descriptor: &Descriptor, around: &Surroundings<'_>) -> Result<Vec<Block>, Status> {
        if descriptor.len_bytes() > self.attributes.transfer_max_bytes {
            return Err(Status::LENGTH_ERROR);
        }
        let registry = around.registry.read();
        descriptor.segments.iter().map(|segment| registry.block(segment, self.attributes.ptag)).collect()
    }

    // Receiving.

    /// Receives that could not be posted come out in their turn.
    fn settle_failed(&mut self, outcome: &mut Outcome) {
        while let Some(receive) = self.receives.pop_front_if(|receive| receive.error.is_some()) {
            let error = receive.error.unwrap_or_default();
            self.complete_receive(&receive, Arrival { status: error, len_bytes: 0, immediate: 0 }, outcome);
            if self.attributes.reliability.is_reliable() && self.link.is_some() {
                self.fail(ErrorCode::PostDescriptor, outcome);
            }
        }
    }

    fn arrivals(&mut self, around: &Surroundings<'_>, outcome: &mut Outcome) -> Result<(), ErrorCode> {
        while let Some(arrival) = self.link.as_mut().and_then(|link| link.inbound.arrival()) {
            // These two concern no receive.
            if arrival.status.has(Status::TRANSPORT_ERROR) {
                return Err(ErrorCode::ReceiveQueueEmpty);
            }
            if arrival.status.has(Status::RDMA_PROTECTION_ERROR) {
                return Err(ErrorCode::RdmaWriteProtection);
            }
            let most = self.receives.front().filter(|receive| receive.is_pushed).map(|receive| {
                let room = receive.blocks.iter().map(|block| block.len_bytes() as u64).sum();
                match arrival.status.bits() & Status::OP_MASK {
                    op if op == Status::OP_RECEIVE.bits() => Ok((room, false)),
                    op if op == Status::OP_REMOTE_RDMA_WRITE.bits() => Ok((self.attributes.transfer_max_bytes, true)),
                    _ => Err(Nonsense("a message of an operation that consumes no receive")),
                }
            });
            let checked =
                most.unwrap_or(Err(Nonsense("a message arrived where no receive was"))).and_then(|(most, write)| {
                    let fits = u64::from(arrival.len_bytes) <= most;
                    if fits { Ok(write) } else { Err(Nonsense("a message is longer than its receive")) }
                });
            // After nonsense the receive stays where it is, to be flushed.
            let is_write = checked.map_err(|nonsense| self.nonsense(around, nonsense))?;
            let Some(receive) = self.receives.pop_front() else { return Ok(()) };
            self.pushed -= 1;
            self.pushed_words -= channel::words_of(receive.segments.len());
            if !is_write {
                let mut left = arrival.len_bytes as usize;
                for block in &receive.blocks {
                    block.copy_out(left, around.counters);
                    left = left.saturating_sub(block.len_bytes());
                }
            }
            self.complete_receive(&receive, arrival, outcome);
            if arrival.status.is_error() && self.attributes.reliability.is_reliable() {
                return Err(ErrorCode::PostDescriptor);
            }
            self.settle_failed(outcome);
        }
        Ok(())
    }

    fn nonsense(&self, around: &Surroundings<'_>, _what: Nonsense) -> ErrorCode {
        around.counters.add(Counter::Refused, 1);
        ErrorCode::Transport
    }

    fn complete_receive(&mut self, receive: &Receive, arrival: Arrival, outcome: &mut Outcome) {
        let op = match arrival.status.bits() & Status::OP_MASK == Status::OP_REMOTE_RDMA_WRITE.bits() {
            true => Status::OP_REMOTE_RDMA_WRITE,
            false => Status::OP_RECEIVE,
        };
        let came = if arrival.status.has(Status::IMMEDIATE) { Status::IMMEDIATE } else { Status::default() };
        let status = Status::DONE.and(op).and(came).and(arrival.status.errors());
        let (len_bytes, immediate) = (arrival.len_bytes, arrival.immediate);
        let completion = Completion { context: receive.context, status, len_bytes, immediate };
        self.receive_done.push(completion, &receive.place);
        outcome.completed = true;
    }

    /// Tells the other side of receives, several at a time: of the first at once, and then of as many as it has already, or of
    /// what there is when it has run out. Paper: via2sisci §1.4.3.
    fn push(&mut self, around: &Surroundings<'_>) {
        let Some(link) = &mut self.link else { return };
        let wanted = link.inbound.wanted();
        let is_wanted = wanted != self.wanted_seen;
        let mut is_granted = false;
        let most = around.push_max.clamp(1, DESCRIPTORS_MAX);
        loop {
            // One that failed on posting keeps those behind it here until its turn has come.
            let fresh = || self.receives.range(self.pushed..).take_while(|receive| receive.error.is_none()).take(most);
            let (mut count, mut words) = (0, 0);
            for receive in fresh() {
                let more = channel::words_of(receive.segments.len());
                if !channel::has_room(self.pushed_words + words, more) || self.pushed + count == DESCRIPTORS_MAX {
                    break;
                }
                (count, words) = (count + 1, words + more);
            }
            if count == 0 || !(count >= self.pushed.clamp(1, most) || is_wanted) {
                break;
            }
            link.outbound.push(fresh().take(count).map(|receive| receive.segments.as_slice()));
            self.receives.range_mut(self.pushed..).take(count).for_each(|receive| receive.is_pushed = true);
            self.pushed += count;
            self.pushed_words += words;
            is_granted = true;
            around.counters.add(Counter::Pushes, 1);
            around.counters.add(Counter::DescriptorsPushed, count as u64);
        }
        // Even if nothing is left to be pushed: it may have been just before the other side said so. But where there is no
        // place to push to, the wish is kept until there is one.
        if is_wanted && (is_granted || self.pushed == self.receives.len()) {
            self.wanted_seen = wanted;
            link.ring();
            link.ring_manager();
        }
    }
}

/// Offsets of the length and of the status in a control segment.
const LENGTH_AT: usize = 24;
const STATUS_AT: usize = 28;
const IMMEDIATE_AT: usize = 20;

/// The status in the descriptor, stored last.
fn write_status(address: usize, completion: &Completion) {
    // SAFETY: whoever posted the descriptor through the C face has promised that it stays valid until it is taken back, is
    // aligned, and is looked at only until its status says that it is done.
    let word = |at: usize| unsafe { AtomicU32::from_ptr((address + at) as *mut u32) };
    word(LENGTH_AT).store(completion.len_bytes, Relaxed);
    if completion.status.has(Status::IMMEDIATE) {
        word(IMMEDIATE_AT).store(completion.immediate, Relaxed);
    }
    word(STATUS_AT).store(completion.status.bits(), Release);
}
