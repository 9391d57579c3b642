//! The two work queues of a VI, and what happens to the descriptors in them. Paper: via2sisci §1.4.3.
//!
//! ```text
//!   send queue     posted ──▶ held (descriptors of the other side are wanted) ──▶ transferred ──▶ done
//!                                              asked (the other side's shadow) ──┘
//!   receive queue  posted ──▶ pushed to the other side ──▶ arrived ──▶ done
//! ```
//! The sender's processor does all of it: it has the receive descriptor, finds the segments, stores the bytes there and says
//! that they have arrived. Nothing waits here: what cannot go on stays where it is until somebody looks again.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release};

use parking_lot::RwLock;

use crate::channel::{self, Arrival, DESCRIPTORS_MAX, Nonsense, SERVICES_MAX, Service};
use crate::counters::{Counter, Counters};
use crate::descriptor::{Completion, DataSegment, Descriptor, StatusPlace};
use crate::link::Link;
use crate::memory::{Block, Registry};
use crate::segments::Mapping;
use crate::shapes;
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

    // Sending.

    fn transfer(&mut self, around: &Surroundings<'_>, outcome: &mut Outcome) -> Result<(), ErrorCode> {
        while let Some(mut send) = self.sends.pop_front() {
            let stage = match send.status.is_error() {
                true => Stage::Over(send.status.errors(), 0),
                false => self.move_one(&mut send, around),
            };
            match stage {
                Stage::Waits => {
                    self.sends.push_front(send);
                    return Ok(());
                }
                Stage::Broken(nonsense) => {
                    self.sends.push_front(send);
                    return Err(self.nonsense(around, nonsense));
                }
                Stage::Over(errors, len_bytes) => {
                    self.is_held = false;
                    self.complete_send(&send, errors, len_bytes, outcome);
                    if errors.is_error() && self.attributes.reliability.is_reliable() {
                        return Err(ErrorCode::PostDescriptor);
                    }
                }
            }
        }
        Ok(())
    }

    /// As much of the send at the head as can be done now. The other side is told that its memory is being written to, and
    /// once it has said farewell nothing is.
    fn move_one(&mut self, send: &mut Send, around: &Surroundings<'_>) -> Stage {
        let Some(link) = &self.link else { return Stage::Waits };
        link.outbound.begin();
        let stage = match send.descriptor.operation {
            // Whoever looks next finds the farewell.
            _ if link.inbound.is_closed() => Stage::Waits,
            Operation::Send => self.send(send, around),
            Operation::RdmaWrite => self.rdma_write(send, around),
            Operation::RdmaRead => self.rdma_read(send, around),
        };
        if let Some(link) = &self.link {
            link.outbound.end();
        }
        stage
    }

    /// The next receive descriptor of the other side into `self.list`.
    fn next_descriptor(&mut self, around: &Surroundings<'_>) -> Supply {
        let Some(link) = &mut self.link else { return Supply::None };
        match link.inbound.descriptor(&mut self.list) {
            Err(nonsense) => Supply::Broken(nonsense),
            Ok(true) => {
                self.used += 1;
                Supply::Taken
            }
            Ok(false) if link.inbound.posted() > self.used => {
                if !self.is_held {
                    self.is_held = true;
                    link.outbound.want();
                    around.counters.add(Counter::SendsHeld, 1);
                    link.ring_manager();
                }
                Supply::Posted
            }
            Ok(false) => Supply::None,
        }
    }

    fn send(&mut self, send: &Send, around: &Surroundings<'_>) -> Stage {
        match self.next_descriptor(around) {
            Supply::Taken => {}
            Supply::Posted => return Stage::Waits,
            Supply::Broken(nonsense) => return Stage::Broken(nonsense),
            Supply::None => return self.no_receive(around),
        }
        let len_bytes = send.descriptor.len_bytes();
        let room: u64 = self.list.iter().map(|segment| u64::from(segment.len_bytes)).sum();
        if room < len_bytes {
            self.arrive(send, Status::LENGTH_ERROR, 0);
            return Stage::Over(Status::REMOTE_DESCRIPTOR_ERROR, 0);
        }
        let Some(link) = &mut self.link else { return Stage::Waits };
        let places: Result<Vec<_>, Status> = self.list.iter().map(|segment| link.receive_place(segment)).collect();
        let Ok(places) = places else {
            self.arrive(send, Status::PROTECTION_ERROR, 0);
            return Stage::Over(Status::REMOTE_DESCRIPTOR_ERROR, 0);
        };
        send.blocks.iter().for_each(|block| block.copy_in(block.len_bytes(), around.counters));
        let to: Vec<(&Mapping, usize, usize)> = std::iter::zip(&places, &self.list)
            .map(|((mapping, offset), segment)| (mapping, *offset, segment.len_bytes as usize))
            .collect();
        move_pieces(&sources(send), &to, around.counters);
        self.arrive(send, Status::default(), len_bytes as u32);
        Stage::Over(Status::default(), len_bytes as u32)
    }

    /// A send that comes before its receive: lost, or the end of the connection.
    fn no_receive(&mut self, around: &Surroundings<'_>) -> Stage {
        if !self.attributes.reliability.is_reliable() {
            around.counters.add(Counter::Dropped, 1);
            return Stage::Over(Status::default(), 0);
        }
        if let Some(link) = &mut self.link {
            link.outbound.arrive(Arrival { status: Status::TRANSPORT_ERROR, len_bytes: 0, immediate: 0 });
        }
        Stage::Over(Status::TRANSPORT_ERROR, 0)
    }

    /// Says that a message has arrived at the receive that was used last.
    fn arrive(&mut self, send: &Send, errors: Status, len_bytes: u32) {
        let Some(link) = &mut self.link else { return };
        let op = match send.descriptor.operation {
            Operation::RdmaWrite => Status::OP_REMOTE_RDMA_WRITE,
            _ => Status::OP_RECEIVE,
        };
        let came = if send.descriptor.immediate.is_some() { Status::IMMEDIATE } else { Status::default() };
        let status = Status::DONE.and(op).and(came).and(errors);
        link.outbound.arrive(Arrival { status, len_bytes, immediate: send.descriptor.immediate.unwrap_or(0) });
        link.ring();
    }

    fn rdma_write(&mut self, send: &mut Send, around: &Surroundings<'_>) -> Stage {
        let len_bytes = send.descriptor.len_bytes();
        let remote = send.descriptor.remote.unwrap_or_default();
        if !send.is_asked {
            let place = self.link.as_mut().map(|link| link.rdma_place(remote, len_bytes, true));
            let Some(Ok((mapping, offset, is_shadow))) = place else { return self.refused_write() };
            if is_shadow && self.asked == SERVICES_MAX {
                return Stage::Waits;
            }
            // Before the data: a write that must wait for a receive waits as a whole.
            if send.descriptor.immediate.is_some() {
                match self.next_descriptor(around) {
                    Supply::Taken => {}
                    Supply::Posted => return Stage::Waits,
                    Supply::Broken(nonsense) => return Stage::Broken(nonsense),
                    Supply::None => return self.no_receive(around),
                }
            }
            send.blocks.iter().for_each(|block| block.copy_in(block.len_bytes(), around.counters));
            move_pieces(&sources(send), &[(&mapping, offset, len_bytes as usize)], around.counters);
            if is_shadow && len_bytes > 0 {
                self.ask(send, false, len_bytes);
                return Stage::Waits;
            }
        } else {
            match self.link.as_mut().and_then(|link| link.inbound.answer()) {
                None => return Stage::Waits,
                Some(made) => {
                    self.asked -= 1;
                    if !made {
                        // The receive that it took is over as well, and the connection may not be.
                        if send.descriptor.immediate.is_some() && !self.attributes.reliability.is_reliable() {
                            self.arrive(send, Status::PARTIAL_ERROR, 0);
                        }
                        return self.refused_write();
                    }
                }
            }
        }
        if send.descriptor.immediate.is_some() {
            self.arrive(send, Status::default(), len_bytes as u32);
        }
        Stage::Over(Status::default(), len_bytes as u32)
    }

    fn refused_write(&mut self) -> Stage {
        if self.attributes.reliability.is_reliable()
            && let Some(link) = &mut self.link
        {
            link.outbound.arrive(Arrival { status: Status::RDMA_PROTECTION_ERROR, len_bytes: 0, immediate: 0 });
        }
        Stage::Over(Status::RDMA_PROTECTION_ERROR, 0)
    }

    fn rdma_read(&mut self, send: &mut Send, around: &Surroundings<'_>) -> Stage {
        let len_bytes = send.descriptor.len_bytes();
        let remote = send.descriptor.remote.unwrap_or_default();
        let place = self.link.as_mut().map(|link| link.rdma_place(remote, len_bytes, false));
        let Some(Ok((mapping, offset, is_shadow))) = place else {
            return Stage::Over(Status::RDMA_PROTECTION_ERROR, 0);
        };
        if is_shadow && len_bytes > 0 {
            if !send.is_asked {
                if self.asked < SERVICES_MAX {
                    self.ask(send, true, len_bytes);
                }
                return Stage::Waits;
            }
            match self.link.as_mut().and_then(|link| link.inbound.answer()) {
                None => return Stage::Waits,
                Some(made) => {
                    self.asked -= 1;
                    if !made {
                        return Stage::Over(Status::RDMA_PROTECTION_ERROR, 0);
                    }
                }
            }
        }
        move_pieces(&[(&mapping, offset, len_bytes as usize)], &sources(send), around.counters);
        send.blocks.iter().for_each(|block| block.copy_out(block.len_bytes(), around.counters));
        Stage::Over(Status::default(), len_bytes as u32)
    }

    fn ask(&mut self, send: &mut Send, into_shadow: bool, len_bytes: u64) {
        let Some(link) = &mut self.link else { return };
        let (address, handle) = send.descriptor.remote.unwrap_or_default();
        let place = DataSegment { address, handle, len_bytes: len_bytes as u32 };
        link.outbound.ask(Service { into_shadow, place });
        link.ring_manager();
        self.asked += 1;
        send.is_asked = true;
    }

    fn complete_send(&mut self, send: &Send, errors: Status, len_bytes: u32, outcome: &mut Outcome) {
        let status = Status::DONE.and(send.status).and(errors);
        let immediate = send.descriptor.immediate.unwrap_or(0);
        let completion = Completion { context: send.descriptor.context, status, len_bytes, immediate };
        self.send_done.push(completion, &send.descriptor.place);
        outcome.completed = true;
    }
}

/// What a look at the other side's receive descriptors led to.
enum Supply {
    Taken,
    /// There are some that were not pushed.
    Posted,
    None,
    Broken(Nonsense),
}

/// What became of the send at the head.
enum Stage {
    Waits,
    Broken(Nonsense),
    Over(Status, u32),
}

fn sources(send: &Send) -> Vec<(&Mapping, usize, usize)> {
    send.blocks.iter().map(|block| (block.region().mapping(), block.offset(0), block.len_bytes())).collect()
}

/// Moves bytes between lists of different shapes, each piece by a copy of its own. All of it is inside the segments.
fn move_pieces(from: &[(&Mapping, usize, usize)], to: &[(&Mapping, usize, usize)], counters: &Counters) {
    let (mut pieces, mut total) = (0, 0);
    for piece in shapes::pieces(from.iter().map(|part| part.2), to.iter().map(|part| part.2)) {
        let (source, target) = (from[piece.from.0], to[piece.to.0]);
        source
            .0
            .copy(source.1 + piece.from.1, target.0, target.1 + piece.to.1, piece.len_bytes)
            .expect("the lists were checked against their segments");
        (pieces, total) = (pieces + 1, total + piece.len_bytes as u64);
    }
    counters.add(Counter::Pieces, pieces);
    counters.add(Counter::TransferredBytes, total);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Relaxed, Release};
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use crate::channel::{Arrival, BUSY, DESCRIPTORS_MAX, FOOTPRINT, WANTED};
    use crate::counters::Counter;
    use crate::descriptor::Descriptor;
    use crate::memory::MemoryAttributes;
    use crate::nic::{Nic, SegmentMemory, Settings};
    use crate::status::{Error, Reliability, State, Status};
    use crate::vi::{Vi, ViAttributes, WorkQueue};
    use crate::{NetAddress, waiting::WaitPolicy};

    fn side(nic: &Nic) -> (Vi, SegmentMemory) {
        let ptag = nic.create_ptag().unwrap();
        let attributes = ViAttributes {
            reliability: Reliability::Delivery,
            transfer_max_bytes: 1 << 16,
            ptag,
            rdma_write: true,
            rdma_read: true,
        };
        let vi = nic.create_vi(&attributes, None, None).unwrap();
        (vi, nic.allocate(4096, MemoryAttributes { ptag, rdma_write: true, rdma_read: true }).unwrap())
    }

    /// Connects the two.
    fn connect(nic: &Nic, server: &Vi, client: &Vi) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let address = |name: &str| {
            let name = format!("{name}{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
            NetAddress::new(NetAddress::local_host(), name.as_bytes()).unwrap()
        };
        let (here, there) = (address("work-c"), address("work-s"));
        std::thread::scope(|scope| {
            let accepting = scope.spawn(|| nic.connect_wait(&there, None).unwrap().accept(server).unwrap());
            while let Err(Error::NoMatch(_)) = client.connect_request(&here, &there, None) {
                std::thread::sleep(Duration::from_micros(200));
            }
            accepting.join().unwrap();
        });
    }

    fn nic() -> Nic {
        let waiting = WaitPolicy { spin_count: 1, yield_count: 1 };
        Nic::open(Settings { waiting, ..Settings::default() }).unwrap()
    }

    fn long() -> Option<Duration> {
        Some(Duration::from_secs(20))
    }

    /// Whoever asks a completion queue may find that everything of the other work queue is over, where somebody sleeps.
    #[test]
    fn who_sleeps_at_one_work_queue_is_woken_by_what_a_look_at_the_other_completes() {
        let (nic, other) = (nic(), self::nic());
        let queue = nic.create_queue(4).unwrap();
        let ((plain, memory), (client, _)) = (side(&nic), side(&other));
        let server = nic.create_vi(&plain.query().attributes, Some(&queue), None).unwrap();
        server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], 1)).unwrap();
        connect(&nic, &server, &client);
        // A peer that was killed does not answer the farewell.
        let killed = client.core.queues.lock();
        let ticket = nic.core.bell.announce();
        server.core.queues.lock().link.as_ref().unwrap().line.lose();
        assert_eq!(queue.done(), None);
        assert!(nic.core.bell.rang(ticket), "the receive was flushed, and nobody was told");
        drop(killed);
        nic.core.bell.withdraw();
        assert!(server.done(WorkQueue::Receive).unwrap().status.has(Status::FLUSHED_ERROR));
    }

    /// The other side asks while there is no place to push to; what comes later is pushed all the same.
    #[test]
    fn a_wish_for_descriptors_is_kept_until_it_can_be_granted() {
        let nic = nic();
        let ((server, memory), (client, theirs)) = (side(&nic), side(&nic));
        let more = DESCRIPTORS_MAX as u64 + 1;
        (0..more).for_each(|i| server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], i)).unwrap());
        connect(&nic, &server, &client);
        let pushed = || nic.counts().of(Counter::DescriptorsPushed);
        assert_eq!(pushed(), DESCRIPTORS_MAX as u64);
        server.core.queues.lock().link.as_ref().unwrap().inbound.shared().word(WANTED).store(1, Relaxed);
        server.core.look();
        client.post_send(Descriptor::of(vec![theirs.segment(0, 8)], 1)).unwrap();
        server.core.look();
        assert_eq!(pushed(), more);
    }

    #[test]
    fn who_disconnects_waits_for_a_copy_that_the_other_side_has_begun() {
        let nic = nic();
        let ((server, memory), (client, _)) = (side(&nic), side(&nic));
        server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], 1)).unwrap();
        connect(&nic, &server, &client);
        let shared = server.core.queues.lock().link.as_ref().unwrap().inbound.shared();
        shared.word(BUSY).store(1, Relaxed);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ending = scope.spawn(|| {
                server.disconnect();
                assert!(is_over.load(Relaxed), "the receive came back while it was written to");
            });
            std::thread::sleep(Duration::from_millis(50));
            is_over.store(true, Relaxed);
            shared.word(BUSY).store(0, Release);
            ending.join().unwrap();
        });
    }

    /// What a peer says of the length is not believed beyond what there is room for.
    #[test]
    fn a_message_is_never_longer_than_its_receive_whatever_the_peer_says() {
        for operation in [0x0, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000, 0x70000] {
            let nic = nic();
            let ((server, memory), (client, _)) = (side(&nic), side(&nic));
            server.post_receive(Descriptor::of(vec![memory.segment(0, 64)], 1)).unwrap();
            connect(&nic, &server, &client);
            let arrival = Arrival { status: Status::of_bits(1 | operation), len_bytes: u32::MAX, immediate: 0 };
            client.core.queues.lock().link.as_mut().unwrap().outbound.arrive(arrival);
            let received = server.wait(WorkQueue::Receive, long()).unwrap();
            assert!(received.status.has(Status::FLUSHED_ERROR), "{operation:#x}: {received:?}");
            assert_eq!(received.len_bytes, 0);
        }
    }

    /// A write with immediate data whose right is withdrawn between the look at the directory and the copy.
    #[test]
    fn a_refused_write_that_took_a_receive_leaves_both_sides_in_step() {
        let nic = nic();
        let (ptag, caller) = (nic.create_ptag().unwrap(), |ptag| {
            let attributes = MemoryAttributes { ptag, rdma_write: true, rdma_read: true };
            nic.register_owned(16, attributes).unwrap()
        });
        let attributes = ViAttributes {
            reliability: Reliability::Unreliable,
            transfer_max_bytes: 1 << 16,
            ptag,
            rdma_write: true,
            rdma_read: false,
        };
        let [server, client] = [(); 2].map(|()| nic.create_vi(&attributes, None, None).unwrap());
        let (shadowed, mine) = (caller(ptag), caller(ptag));
        for i in 0..2 {
            server.post_receive(Descriptor::of(vec![shadowed.segment(8 * i, 8)], i as u64)).unwrap();
        }
        connect(&nic, &server, &client);
        let serving = server.core.queues.lock();
        let remote = (shadowed.address(), shadowed.handle());
        let write = Descriptor::rdma_write(vec![mine.segment(0, 8)], remote, 1).with_immediate(5);
        client.post_send(write).unwrap();
        let none = MemoryAttributes { ptag, rdma_write: false, rdma_read: false };
        nic.set_memory_attributes(shadowed.address(), shadowed.handle(), none).unwrap();
        drop(serving);
        let refused = client.wait(WorkQueue::Send, long()).unwrap();
        assert_eq!(refused.status.errors(), Status::RDMA_PROTECTION_ERROR);
        mine.store(0, 77);
        client.post_send(Descriptor::of(vec![mine.segment(0, 8)], 2)).unwrap();
        let first = server.wait(WorkQueue::Receive, long()).unwrap();
        assert_eq!((first.context, first.status.errors()), (0, Status::PARTIAL_ERROR));
        let second = server.wait(WorkQueue::Receive, long()).unwrap();
        assert_eq!((second.context, second.status.errors(), shadowed.load(1)), (1, Status::default(), 77));
    }

    #[test]
    fn memory_that_the_peer_has_given_back_does_not_stay_mapped() {
        let nic = nic();
        let ((server, kept), (client, theirs)) = (side(&nic), side(&nic));
        connect(&nic, &server, &client);
        let attributes = nic.query_memory(kept.address(), kept.handle()).unwrap();
        for round in 0..10 {
            let memory = nic.allocate(64, attributes).unwrap();
            server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], round)).unwrap();
            client.post_send(Descriptor::of(vec![theirs.segment(0, 8)], round)).unwrap();
            assert!(!server.wait(WorkQueue::Receive, long()).unwrap().status.is_error());
            nic.deregister(memory.address(), memory.handle()).unwrap();
        }
        let mapped = client.core.queues.lock().link.as_ref().unwrap().mapped_count();
        assert!(mapped <= 1, "{mapped} segments");
    }

    /// What lies here and was reported as delivered there is not flushed.
    #[test]
    fn messages_that_have_arrived_come_out_of_a_disconnect_as_messages() {
        let nic = nic();
        let ((server, memory), (client, theirs)) = (side(&nic), side(&nic));
        for i in 0..2 {
            server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], i)).unwrap();
        }
        connect(&nic, &server, &client);
        client.post_send(Descriptor::of(vec![theirs.segment(0, 8)], 1)).unwrap();
        server.disconnect();
        let [first, second] = [(); 2].map(|()| server.done(WorkQueue::Receive).unwrap().status.errors());
        assert_eq!((first, second), (Status::default(), Status::FLUSHED_ERROR));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// A peer that writes anything anywhere into what it shares with this side: descriptors come back, with or without
        /// an error, or wait; nothing panics, nothing outside of registered memory is touched, and the VI can be used again.
        #[test]
        fn whatever_a_connected_peer_writes_costs_it_the_connection_at_most(
            words in prop::collection::vec((0..FOOTPRINT / 8, prop_oneof![0..300u64, any::<u64>()]), 1..40),
            low in prop::collection::vec((0..40usize, 0..40u64), 0..20),
        ) {
            let waiting = WaitPolicy { spin_count: 1, yield_count: 1 };
            let nic = Nic::open(Settings { waiting, ..Settings::default() }).unwrap();
            let ((server, memory), (client, _)) = (side(&nic), side(&nic));
            for round in 0..4 {
                server.post_receive(Descriptor::of(vec![memory.segment(0, 64)], round)).unwrap();
            }
            connect(&nic, &server, &client);
            let shared = server.core.queues.lock().link.as_ref().map(|link| link.inbound.shared()).unwrap();
            for (at, value) in words.into_iter().chain(low) {
                shared.word(at * 8).store(value, Relaxed);
                server.core.look();
                server.core.serve();
                let remote = (memory.address(), memory.handle());
                let list = || vec![memory.segment(128, 64)];
                let _ = server.post_send(Descriptor::of(list(), 9));
                let _ = server.post_send(Descriptor::rdma_write(list(), remote, 10));
                let _ = server.post_receive(Descriptor::of(list(), 11));
            }
            server.disconnect();
            let deadline = Instant::now() + Duration::from_secs(20);
            while server.check_unused().is_err() && Instant::now() < deadline {
                while server.done(WorkQueue::Send).is_some() || server.done(WorkQueue::Receive).is_some() {}
            }
            prop_assert_eq!(server.check_unused(), Ok(()));
            client.disconnect();
            prop_assert_eq!(client.query().state, State::Idle);
            while client.done(WorkQueue::Receive).is_some() {}
            connect(&nic, &server, &client);
        }
    }
}
