//! What schedules run on: messages of the engine, memory of the user, temporaries of our own.

use std::sync::Arc;
use std::task::Poll;

use collectives::{BufferId, Execution, Host, Progress, Region, Schedule, Temp, TypeSlot};
use datatype::{Datatype, RecvBuf, Scratch, SendBuf};
use engine::{Outcome, PeerId, RequestId, SendMode, Source, TagPattern};
use smallvec::SmallVec;

use super::arguments::{Arguments, Reduction};
use crate::communicator::Comm;
use crate::error::{Error, ErrorClass, Result};
use crate::request::class_of;
use crate::world::{World, engine_error};

/// Why looking a symbol up cannot fail.
const BOUND: &str = "a schedule names only what its call has";

/// A message of a schedule, and how many bytes it has to bring, of one that is sent none; nothing if it was gone at once.
type Handle = Option<(RequestId, u64)>;

/// Temporary memory of one start.
type Temps = SmallVec<[Scratch; 2]>;

/// Temporary memory kept for the next start: small pieces, a few of them.
const SPARE_MAX: usize = 4;
const SPARE_MAX_BYTES: u64 = 16 << 10;

/// One start of a collective.
pub(crate) struct Running {
    execution: Execution<Handle>,
    temps: Temps,
    tag: i32,
    /// What was found wrong and does not keep the others from what they are waiting for.
    fault: Option<Error>,
}

impl Running {
    /// A start of `schedule` on `comm`, whose messages have `tag` and those behind it.
    #[inline]
    pub fn new(
        world: &World,
        comm: &Comm,
        schedule: Arc<Schedule>,
        arguments: &Arguments,
        tag: i32,
    ) -> Result<Running> {
        let temps = match schedule.temps() {
            [] => Temps::new(),
            temps => allocate(world, comm, temps, arguments)?,
        };
        Ok(Running { execution: Execution::new(schedule), temps, tag, fault: None })
    }

    /// Does what can be done now; `call` is named in errors.
    #[inline]
    pub fn advance(
        &mut self,
        world: &World,
        comm: &Comm,
        arguments: &Arguments,
        call: &'static str,
    ) -> Poll<Result<()>> {
        let mut stage =
            Stage { world, comm, arguments, temps: &self.temps, tag: self.tag, call, fault: &mut self.fault };
        match self.execution.advance(&mut stage) {
            Ok(Progress::Done) => {
                if !self.temps.is_empty() {
                    world.keep_temporaries(self.temps.drain(..));
                }
                Poll::Ready(self.fault.take().map_or(Ok(()), Err))
            }
            // Not only who waits for the lost member itself: those in between may have left the call by an error.
            Ok(Progress::Pending) => match world.lost_among(comm) {
                None => Poll::Pending,
                Some(error) => self.fail(world, error),
            },
            Err(error) => self.fail(world, error),
        }
    }

    /// Cancels what is under way. Buffers in flight keep their temporary memory.
    #[cold]
    fn fail(&mut self, world: &World, error: Error) -> Poll<Result<()>> {
        let mut engine = world.engine.borrow_mut();
        for (id, _) in self.execution.outstanding().iter().flatten() {
            engine.cancel(*id);
            engine.detach(*id);
        }
        Poll::Ready(Err(error))
    }
}

/// The host of one step of a schedule.
struct Stage<'a> {
    world: &'a World,
    comm: &'a Comm,
    arguments: &'a Arguments,
    temps: &'a [Scratch],
    tag: i32,
    call: &'static str,
    fault: &'a mut Option<Error>,
}

impl Host for Stage<'_> {
    type Handle = Handle;
    type Error = Error;

    fn start_send(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<Handle> {
        let (peer, context, tag) = self.address(peer, tag_offset);
        let buf = self.send_buf(region);
        let mut engine = self.world.engine.borrow_mut();
        if engine.try_send(peer, context, tag, &buf) {
            return Ok(None);
        }
        let id = engine.send(SendMode::Standard, peer, context, tag, buf).map_err(engine_error)?;
        Ok(Some((id, 0)))
    }

    fn start_recv(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<Handle> {
        let (peer, context, tag) = self.address(peer, tag_offset);
        let buf = self.recv_buf(region);
        let len_bytes = buf.len_bytes();
        let mut engine = self.world.engine.borrow_mut();
        let id = engine.recv(Source::Peer(peer), context, TagPattern::Exact(tag), buf).map_err(engine_error)?;
        Ok(Some((id, len_bytes)))
    }

    fn poll(&mut self, handle: Handle) -> Result<bool> {
        let Some((id, expected_bytes)) = handle else { return Ok(true) };
        let Some(completion) = self.world.engine.borrow_mut().take(id) else { return Ok(false) };
        let sent_bytes = completion.envelope.len_bytes;
        let outcome = match completion.outcome {
            // A receive would be content with less, but not who does the same as the others.
            Outcome::Done if sent_bytes < expected_bytes => {
                Outcome::Truncated { sent_bytes, capacity_bytes: expected_bytes }
            }
            outcome => outcome,
        };
        match outcome {
            Outcome::Done => Ok(true),
            outcome @ Outcome::Truncated { .. } => {
                // Others may wait for what this process passes on: they get what there is.
                let error = blame(self.comm, self.call, completion.envelope.peer, outcome);
                self.fault.get_or_insert(error);
                Ok(true)
            }
            outcome => Err(blame(self.comm, self.call, completion.envelope.peer, outcome)),
        }
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<()> {
        let from = self.send_buf(from);
        self.recv_buf(to).copy_from(&from);
        Ok(())
    }

    fn reduce(&mut self, from: Region, into: Region) -> Result<()> {
        let Reduction { op, datatype, .. } = self.arguments.reduction().expect(BOUND);
        let from = self.send_buf(from);
        let mut into = self.recv_buf(into);
        op.reduce(datatype, &from, &mut into).map_err(|error| ErrorClass::Op.error(format!("{}: {error}", self.call)))
    }
}

impl Stage<'_> {
    fn address(&self, rank: u32, tag_offset: u32) -> (PeerId, engine::ContextId, i32) {
        (self.comm.participant(rank), self.comm.collective(), self.tag + tag_offset as i32)
    }

    fn send_buf(&self, region: Region) -> SendBuf {
        let Region { buffer, datatype, offset_bytes, count } = region;
        if count == 0 {
            return SendBuf::empty();
        }
        self.with_type(datatype, |datatype| match buffer {
            BufferId::Send => self.arguments.send_memory().expect(BOUND).send(offset_bytes, count, datatype),
            BufferId::Recv => self.arguments.recv_memory().expect(BOUND).send(offset_bytes, count, datatype),
            BufferId::Temp(number) => self.temp(number).memory().send(offset_bytes, count, datatype),
        })
    }

    fn recv_buf(&self, region: Region) -> RecvBuf {
        let Region { buffer, datatype, offset_bytes, count } = region;
        if count == 0 {
            return RecvBuf::empty();
        }
        self.with_type(datatype, |datatype| match buffer {
            BufferId::Send => unreachable!("a schedule never writes to the send buffer"),
            BufferId::Recv => self.arguments.recv_memory().expect(BOUND).recv(offset_bytes, count, datatype),
            BufferId::Temp(number) => self.temp(number).memory().recv(offset_bytes, count, datatype),
        })
    }

    fn temp(&self, number: u16) -> &Scratch {
        &self.temps[usize::from(number)]
    }

    fn with_type<T>(&self, slot: TypeSlot, make: impl FnOnce(&Arc<Datatype>) -> T) -> T {
        match slot {
            TypeSlot::Send => make(self.arguments.send_type().expect(BOUND)),
            TypeSlot::Recv => make(self.arguments.recv_type().expect(BOUND)),
            TypeSlot::PerPeerSend(index) => make(&self.arguments.part_types().0[index as usize]),
            TypeSlot::PerPeerRecv(index) => make(&self.arguments.part_types().1[index as usize]),
            TypeSlot::Bytes => make(self.comm.byte_type()),
        }
    }
}

/// The error of a message between this process and `peer` that went wrong.
#[cold]
pub(super) fn blame(comm: &Comm, call: &'static str, peer: PeerId, outcome: Outcome) -> Error {
    let (me, other) = (comm.describe_self(), comm.describe_peer(peer));
    match outcome {
        Outcome::Truncated { sent_bytes, capacity_bytes } => ErrorClass::Truncate.error(format!(
            "{call} on {comm}: {other} sent {sent_bytes} bytes where {me} expects {capacity_bytes}; \
             do all ranks pass the same counts and types?"
        )),
        Outcome::Failed(why) => class_of(&why).error(format!("{call} on {comm}: between {me} and {other}: {why}")),
        Outcome::Done | Outcome::Cancelled => {
            ErrorClass::Intern.error(format!("{call} on {comm}: a message was cancelled"))
        }
    }
}

fn allocate(world: &World, comm: &Comm, temps: &[Temp], arguments: &Arguments) -> Result<Temps> {
    let one = |temp: &Temp| match *temp {
        Temp::Bytes { len_bytes } => world.temporary(len_bytes, comm.byte_type()),
        Temp::Elements { count } => world.temporary(count, arguments.recv_type().expect(BOUND)),
    };
    temps.iter().map(one).collect()
}

/// New temporary memory.
pub(super) fn scratch(count: u64, datatype: &Arc<Datatype>) -> Result<Scratch> {
    Scratch::new(count, datatype).map_err(|error| ErrorClass::NoMem.error(error.to_string()))
}

impl World {
    /// Temporary memory for `count` elements, perhaps some that was kept.
    pub(super) fn temporary(&self, count: u64, datatype: &Arc<Datatype>) -> Result<Scratch> {
        let fits = |spare: &Scratch| spare.count() == count && Arc::ptr_eq(spare.datatype(), datatype);
        let mut spare = self.spare_temps.borrow_mut();
        match spare.iter().position(fits) {
            Some(at) => Ok(spare.swap_remove(at)),
            None => {
                // Whatever is kept does not fit the program any more.
                spare.pop();
                scratch(count, datatype)
            }
        }
    }

    /// Keeps small temporaries for the next start.
    pub(super) fn keep_temporaries(&self, temps: impl Iterator<Item = Scratch>) {
        let mut spare = self.spare_temps.borrow_mut();
        let small = |temp: &Scratch| {
            let reach_bytes = temp.datatype().extent().unsigned_abs().max(temp.datatype().true_extent().unsigned_abs());
            temp.count().saturating_mul(reach_bytes) <= SPARE_MAX_BYTES
        };
        let room = SPARE_MAX.saturating_sub(spare.len());
        spare.extend(temps.filter(small).take(room));
    }
}
