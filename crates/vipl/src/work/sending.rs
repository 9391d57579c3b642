//! What becomes of the descriptors in a send queue.

use super::{Outcome, Queues, Send, Surroundings};
use crate::channel::{Arrival, Nonsense, SERVICES_MAX, Service};
use crate::counters::{Counter, Counters};
use crate::descriptor::{Completion, DataSegment};
use crate::segments::Mapping;
use crate::shapes;
use crate::status::{ErrorCode, Operation, Status};

impl Queues {
    /// Carries out what can be of the sends, in order; an error ends the connection.
    pub(super) fn transfer(&mut self, around: &Surroundings<'_>, outcome: &mut Outcome) -> Result<(), ErrorCode> {
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

    pub(super) fn complete_send(&mut self, send: &Send, errors: Status, len_bytes: u32, outcome: &mut Outcome) {
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
