//! The receiving end of a partitioned pair.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use datatype::{RecvBuf, Scratch, SendBuf, UserMemoryMut};
use engine::{Outcome, PeerId, RequestId, SendMode, Source, TagPattern};

use super::{Greeting, lock};
use crate::communicator::{Comm, Commons};
use crate::error::{Error, ErrorClass, Result};
use crate::request::{Elements, class_of};
use crate::status::Status;
use crate::world::{Operation, World, engine_error};

/// One partitioned receive, over all of its starts.
pub(crate) struct ReceiveChannel {
    comm: Arc<Comm>,
    commons: Arc<Commons>,
    source: u32,
    peer: PeerId,
    tag: i32,
    elements: Elements<UserMemoryMut>,
    partitions: u32,
    sender: Sender,
    /// The pieces of the current start, once they are posted.
    pieces: Option<Vec<Piece>>,
    /// The numbers of those that are not here.
    missing: Vec<u32>,
    failure: Option<Error>,
}

/// What is known of the sender.
enum Sender {
    /// Its greeting has not come.
    Awaited {
        request: RequestId,
        scratch: Scratch,
    },
    Known {
        greeting: Greeting,
        first_tag: i32,
    },
    Broken(Error),
}

/// One message of the sender.
#[derive(Clone, Copy)]
enum Piece {
    UnderWay(RequestId),
    Here,
}

impl ReceiveChannel {
    /// Takes the sender's next greeting with this tag, in the background.
    pub fn open(
        world: &World,
        comm: &Arc<Comm>,
        (source, peer): (u32, PeerId),
        tag: i32,
        elements: Elements<UserMemoryMut>,
        partitions: u32,
    ) -> Result<Arc<Mutex<ReceiveChannel>>> {
        let out_of_memory = |error: datatype::TypeError| ErrorClass::NoMem.error(error.to_string());
        let mut scratch = Scratch::new(Greeting::BYTES as u64, comm.byte_type()).map_err(out_of_memory)?;
        let exactly = TagPattern::Exact(Comm::greeting_tag(tag));
        let received = world.engine.borrow_mut().recv(Source::Peer(peer), comm.collective(), exactly, scratch.recv());
        let request = received.map_err(engine_error)?;
        let channel = Arc::new(Mutex::new(ReceiveChannel {
            comm: Arc::clone(comm),
            commons: Arc::clone(&world.commons),
            source,
            peer,
            tag,
            elements,
            partitions,
            sender: Sender::Awaited { request, scratch },
            pieces: None,
            missing: Vec::new(),
            failure: None,
        }));
        world.operations.start_unawaited(Box::new(Handshake(Arc::clone(&channel))));
        Ok(channel)
    }

    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The operation of one start; what is known already is posted at once.
    pub fn start(channel: &Arc<Mutex<ReceiveChannel>>, world: &World) -> Box<dyn Operation> {
        let mut this = lock(channel);
        this.pieces = None;
        this.failure = None;
        this.post(world);
        Box::new(Receiving(Arc::clone(channel)))
    }

    /// True if all of a partition of the current start is here.
    pub fn has_arrived(&mut self, world: &World, partition: u32) -> bool {
        self.advance_greeting(world);
        self.post(world);
        let Sender::Known { greeting, .. } = &self.sender else { return false };
        let (own_bytes, piece_bytes) = (self.total_bytes() / u64::from(self.partitions.max(1)), greeting.piece_bytes);
        let begin = u64::from(partition) * own_bytes;
        let (first, end) = match piece_bytes {
            0 => (0, u64::from(greeting.pieces)),
            _ => (begin / piece_bytes, (begin + own_bytes).div_ceil(piece_bytes).min(greeting.pieces.into())),
        };
        let engine = world.engine.borrow();
        let Some(pieces) = &self.pieces else { return false };
        let is_here = |piece: &Piece| match piece {
            Piece::UnderWay(id) => engine.is_complete(*id),
            Piece::Here => true,
        };
        // What the sender never fills arrives with the last of it.
        let range = if first < end { first as usize..end as usize } else { 0..pieces.len() };
        pieces[range].iter().all(is_here)
    }

    /// The status of a start that went well.
    pub fn status(&self) -> Status {
        let len_bytes = match &self.sender {
            Sender::Known { greeting, .. } => u64::from(greeting.pieces) * greeting.piece_bytes,
            _ => 0,
        };
        Status::of_message(self.source as i32, self.tag, len_bytes)
    }

    fn total_bytes(&self) -> u64 {
        self.elements.count * self.elements.datatype.size()
    }

    /// Looks for the greeting, and answers it.
    fn advance_greeting(&mut self, world: &World) {
        let Sender::Awaited { request, scratch } = &self.sender else { return };
        let mut engine = world.engine.borrow_mut();
        let Some(completion) = engine.take(*request) else { return };
        let buf = scratch.send();
        let is_whole = completion.outcome == Outcome::Done && completion.envelope.len_bytes == Greeting::BYTES as u64;
        let greeting = buf.as_contiguous().filter(|_| is_whole).and_then(Greeting::decode);
        let sender = self.comm.describe_rank(self.source);
        let Some(greeting) = greeting else {
            let what = format!("{sender} opened a partitioned send on {} with nonsense", self.comm);
            self.sender = Sender::Broken(ErrorClass::Other.error(what));
            return;
        };
        let Some(first_tag) = self.commons.partition_tags().take(greeting.pieces) else {
            let what = format!("no {} tags are left for the partitions of {sender}", greeting.pieces);
            self.sender = Sender::Broken(ErrorClass::NoMem.error(what));
            return;
        };
        let buf = SendBuf::from_owned(Box::from(first_tag.to_le_bytes()));
        let context = self.comm.collective();
        if !engine.try_send(self.peer, context, greeting.answer_tag, &buf)
            && let Ok(sent) = engine.send(SendMode::Standard, self.peer, context, greeting.answer_tag, buf)
        {
            engine.detach(sent);
        }
        self.sender = Sender::Known { greeting, first_tag };
    }

    /// Posts a receive for every piece of the current start, if that has not been done.
    fn post(&mut self, world: &World) {
        let Sender::Known { greeting, first_tag } = &self.sender else { return };
        if self.pieces.is_some() {
            return;
        }
        let (total, piece_bytes) = (self.total_bytes(), greeting.piece_bytes);
        let mut all = self.elements.memory.recv(0, self.elements.count, &self.elements.datatype);
        let mut engine = world.engine.borrow_mut();
        let mut pieces = Vec::with_capacity(greeting.pieces as usize);
        for piece in 0..greeting.pieces {
            let begin = u64::from(piece) * piece_bytes;
            let room = total.saturating_sub(begin).min(piece_bytes);
            let buf = if room > 0 { all.slice(begin, room) } else { RecvBuf::empty() };
            let exactly = TagPattern::Exact(first_tag + piece as i32);
            match engine.recv(Source::Peer(self.peer), self.comm.collective(), exactly, buf) {
                Ok(id) => pieces.push(Piece::UnderWay(id)),
                Err(error) => {
                    self.failure = Some(engine_error(error));
                    pieces.push(Piece::Here);
                }
            }
        }
        self.missing = (0..greeting.pieces).collect();
        self.pieces = Some(pieces);
    }

    /// Collects the pieces that have come.
    fn collect(&mut self, world: &World) {
        let Some(pieces) = &mut self.pieces else { return };
        let mut engine = world.engine.borrow_mut();
        self.missing.retain(|index| {
            let piece = &mut pieces[*index as usize];
            let Piece::UnderWay(id) = *piece else { return false };
            let Some(completion) = engine.take(id) else { return true };
            *piece = Piece::Here;
            let (comm, sender) = (&self.comm, self.comm.describe_rank(self.source));
            let failure = match completion.outcome {
                Outcome::Done | Outcome::Cancelled => return false,
                Outcome::Truncated { sent_bytes, capacity_bytes } => ErrorClass::Truncate.error(format!(
                    "message truncated on {comm}: partition {index} of {sender} has {sent_bytes} bytes with tag {}, \
                     of which the partitioned receive has room for {capacity_bytes}",
                    self.tag
                )),
                Outcome::Failed(why) => {
                    class_of(&why).error(format!("partition {index} of {sender} did not arrive on {comm}: {why}"))
                }
            };
            self.failure.get_or_insert(failure);
            false
        });
    }
}

impl Drop for ReceiveChannel {
    fn drop(&mut self) {
        if let Sender::Known { greeting, first_tag } = &self.sender {
            self.commons.partition_tags().give_back(*first_tag, greeting.pieces);
        }
    }
}

/// Waits for the greeting, unless the request has been freed meanwhile.
struct Handshake(Arc<Mutex<ReceiveChannel>>);

impl Operation for Handshake {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        let is_alone = Arc::strong_count(&self.0) == 1;
        let mut channel = lock(&self.0);
        channel.advance_greeting(world);
        match &channel.sender {
            Sender::Awaited { request, .. } if is_alone => {
                let mut engine = world.engine.borrow_mut();
                engine.cancel(*request);
                engine.detach(*request);
                Poll::Ready(Ok(()))
            }
            Sender::Awaited { .. } => Poll::Pending,
            Sender::Known { .. } | Sender::Broken(_) => Poll::Ready(Ok(())),
        }
    }
}

/// One start, until every piece is here.
struct Receiving(Arc<Mutex<ReceiveChannel>>);

impl Operation for Receiving {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        let mut channel = lock(&self.0);
        channel.advance_greeting(world);
        channel.post(world);
        channel.collect(world);
        match &channel.sender {
            Sender::Broken(error) => Poll::Ready(Err(error.clone())),
            Sender::Awaited { .. } => Poll::Pending,
            Sender::Known { .. } if !channel.missing.is_empty() => Poll::Pending,
            Sender::Known { .. } => Poll::Ready(channel.failure.clone().map_or(Ok(()), Err)),
        }
    }
}
