//! The sending end of a partitioned pair.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use datatype::{Scratch, SendBuf, UserMemory};
use engine::{Outcome, PeerId, RequestId, SendMode, Source, TagPattern};

use super::{Greeting, lock};
use crate::communicator::{Comm, Commons};
use crate::error::{ErrorClass, Result};
use crate::request::{Elements, class_of};
use crate::world::{Operation, World, engine_error};

/// One partitioned send, over all of its starts.
pub(crate) struct SendChannel {
    comm: Arc<Comm>,
    commons: Arc<Commons>,
    peer: PeerId,
    elements: Elements<UserMemory>,
    partitions: u32,
    piece_bytes: u64,
    answer: Answer,
    /// Which partitions of the current start are ready.
    is_ready: Vec<bool>,
    ready_count: u32,
    /// Ready partitions that wait for the answer.
    waiting: Vec<u32>,
    in_flight: Vec<RequestId>,
}

/// Where the receiver wants the pieces.
enum Answer {
    Awaited {
        request: RequestId,
        scratch: Scratch,
        tag: i32,
    },
    /// The tag of piece 0.
    Here {
        first_tag: i32,
    },
    /// It made no sense.
    Broken,
}

impl SendChannel {
    /// Greets the receiver and waits for its answer in the background.
    pub fn open(
        world: &World,
        comm: &Arc<Comm>,
        peer: PeerId,
        tag: i32,
        elements: Elements<UserMemory>,
        partitions: u32,
    ) -> Result<Arc<Mutex<SendChannel>>> {
        let commons = Arc::clone(&world.commons);
        let Some(answer_tag) = commons.partition_tags().take(1) else {
            return ErrorClass::NoMem.fail("there are too many partitioned requests: no tag is left");
        };
        let count = elements.count / u64::from(partitions.max(1));
        let piece_bytes = count * elements.datatype.size();
        let out_of_memory = |error: datatype::TypeError| ErrorClass::NoMem.error(error.to_string());
        let mut scratch = Scratch::new(4, comm.byte_type()).map_err(out_of_memory)?;
        let greeting = Greeting { pieces: partitions, piece_bytes, answer_tag };
        let mut engine = world.engine.borrow_mut();
        let (from, exactly) = (Source::Peer(peer), TagPattern::Exact(answer_tag));
        let request = engine.recv(from, comm.collective(), exactly, scratch.recv()).map_err(engine_error)?;
        let buf = SendBuf::from_owned(greeting.encode().into_boxed_slice());
        let greeting_tag = Comm::greeting_tag(tag);
        if !engine.try_send(peer, comm.collective(), greeting_tag, &buf) {
            let sent = engine.send(SendMode::Standard, peer, comm.collective(), greeting_tag, buf);
            engine.detach(sent.map_err(engine_error)?);
        }
        drop(engine);
        let channel = Arc::new(Mutex::new(SendChannel {
            comm: Arc::clone(comm),
            commons,
            peer,
            elements,
            partitions,
            piece_bytes,
            answer: Answer::Awaited { request, scratch, tag: answer_tag },
            is_ready: Vec::new(),
            ready_count: 0,
            waiting: Vec::new(),
            in_flight: Vec::new(),
        }));
        world.operations.start_unawaited(Box::new(Handshake(Arc::clone(&channel))));
        Ok(channel)
    }

    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The operation of one start.
    pub fn start(channel: &Arc<Mutex<SendChannel>>) -> Box<dyn Operation> {
        let mut this = lock(channel);
        this.is_ready.clear();
        let partitions = this.partitions as usize;
        this.is_ready.resize(partitions, false);
        this.ready_count = 0;
        Box::new(Sending(Arc::clone(channel)))
    }

    /// One more partition can be sent.
    pub fn ready(&mut self, world: &World, partition: u32) -> Result<()> {
        let slot = &mut self.is_ready[partition as usize];
        if std::mem::replace(slot, true) {
            return ErrorClass::Arg.fail(format!("partition {partition} was marked ready before in this start"));
        }
        self.ready_count += 1;
        match self.answer {
            Answer::Here { first_tag } => self.send_piece(world, first_tag, partition),
            Answer::Awaited { .. } | Answer::Broken => {
                self.waiting.push(partition);
                Ok(())
            }
        }
    }

    /// True if partitions are ready that cannot be sent yet.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn send_piece(&mut self, world: &World, first_tag: i32, partition: u32) -> Result<()> {
        let all = self.elements.memory.send(0, self.elements.count, &self.elements.datatype);
        let buf = all.slice(u64::from(partition) * self.piece_bytes, self.piece_bytes);
        let (context, tag) = (self.comm.collective(), first_tag + partition as i32);
        let mut engine = world.engine.borrow_mut();
        if !engine.try_send(self.peer, context, tag, &buf) {
            let sent = engine.send(SendMode::Standard, self.peer, context, tag, buf);
            self.in_flight.push(sent.map_err(engine_error)?);
        }
        Ok(())
    }

    /// Looks for the answer; sends what has waited for it.
    fn advance_answer(&mut self, world: &World) -> Result<()> {
        let Answer::Awaited { request, scratch, tag } = &self.answer else { return Ok(()) };
        let Some(completion) = world.engine.borrow_mut().take(*request) else { return Ok(()) };
        let buf = scratch.send();
        let bytes = buf.as_contiguous().unwrap_or_default();
        let first_tag = bytes.try_into().ok().map(i32::from_le_bytes);
        let first_tag = first_tag.filter(|_| completion.outcome == Outcome::Done && completion.envelope.len_bytes == 4);
        let last_tag = first_tag.and_then(|first| first.checked_add(self.partitions as i32));
        self.commons.partition_tags().give_back(*tag, 1);
        let Some((first_tag, _)) = first_tag.zip(last_tag).filter(|(first, _)| *first >= 0) else {
            self.answer = Answer::Broken;
            return Ok(());
        };
        self.answer = Answer::Here { first_tag };
        for partition in std::mem::take(&mut self.waiting) {
            self.send_piece(world, first_tag, partition)?;
        }
        Ok(())
    }
}

/// Waits for the answer, unless the request has been freed meanwhile.
struct Handshake(Arc<Mutex<SendChannel>>);

impl Operation for Handshake {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        let is_alone = Arc::strong_count(&self.0) == 1;
        let mut channel = lock(&self.0);
        channel.advance_answer(world)?;
        match &channel.answer {
            Answer::Awaited { request, .. } if is_alone => {
                // The answer may still come, so its tag is not used again.
                let mut engine = world.engine.borrow_mut();
                engine.cancel(*request);
                engine.detach(*request);
                Poll::Ready(Ok(()))
            }
            Answer::Awaited { .. } => Poll::Pending,
            Answer::Here { .. } | Answer::Broken => Poll::Ready(Ok(())),
        }
    }
}

/// One start, until every piece has left.
struct Sending(Arc<Mutex<SendChannel>>);

impl Operation for Sending {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        let mut channel = lock(&self.0);
        channel.advance_answer(world)?;
        if matches!(channel.answer, Answer::Broken) {
            let (comm, peer) = (&channel.comm, channel.peer);
            let receiver = comm.describe_peer(peer);
            return Poll::Ready(
                ErrorClass::Other.fail(format!("{receiver} answered a partitioned send on {comm} with nonsense")),
            );
        }
        let mut failed = None;
        let mut engine = world.engine.borrow_mut();
        channel.in_flight.retain(|id| match engine.take(*id) {
            None => true,
            Some(completion) => {
                if let Outcome::Failed(why) = completion.outcome {
                    failed = Some(why);
                }
                false
            }
        });
        if let Some(why) = failed {
            let receiver = channel.comm.describe_peer(channel.peer);
            return Poll::Ready(
                class_of(&why).fail(format!("a partition could not be sent to {receiver} on {}: {why}", channel.comm)),
            );
        }
        let all_ready = channel.ready_count == channel.partitions && channel.waiting.is_empty();
        if all_ready && channel.in_flight.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
