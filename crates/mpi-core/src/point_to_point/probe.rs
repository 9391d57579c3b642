//! Looking at messages before receiving them, and taking them out of the matching.
//!
//! MPI: §3.8

use std::sync::Arc;

use datatype::RecvBuf;
use engine::{Envelope, MessageId};

use super::receive::finish_receive;
use super::{source_pattern, tag_pattern};
use crate::communicator::Comm;
use crate::error::Result;
use crate::request::{Direction, Finish, InFlight, Request};
use crate::status::Status;
use crate::world::{World, engine_error};

/// A message that was matched and not yet received; nobody else can receive it.
///
/// MPI: §3.8.2
pub struct Message {
    /// `None` for the message of nobody (`MPI_MESSAGE_NO_PROC`).
    matched: Option<(MessageId, Arc<Comm>, i32)>,
}

impl Message {
    /// The message of nobody, as `PROC_NULL` sends it.
    pub const NO_PROC: Message = Message { matched: None };

    /// True for the message of nobody.
    pub fn is_no_proc(&self) -> bool {
        self.matched.is_none()
    }

    /// The communicator it came on.
    pub fn comm(&self) -> Option<&Arc<Comm>> {
        self.matched.as_ref().map(|(_, comm, _)| comm)
    }
}

impl World {
    /// Waits for a message and says what it is, without receiving it.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.8.1 `MPI_Probe`
    pub fn probe(&self, comm: &Comm, source: i32, tag: i32) -> Result<Status> {
        let tag = tag_pattern(tag)?;
        let Some(from) = source_pattern(comm, source)? else { return Ok(Status::PROC_NULL) };
        let context = comm.point_to_point();
        let envelope = self.wait_until(|world| world.engine.borrow_mut().probe(from, context, tag));
        Ok(found(comm, envelope))
    }

    /// Says what message could be received now, if any.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.8.1 `MPI_Iprobe`
    pub fn iprobe(&self, comm: &Comm, source: i32, tag: i32) -> Result<Option<Status>> {
        match self.iprobe_at_once(comm, source, tag)? {
            Some(found) => Ok(found),
            None => self.look_for_message(comm, source, tag),
        }
    }

    /// As [`World::iprobe`], but `None` if a poll has found something after no message was: then it is to be looked once
    /// more, which this does not, as the poll may have let go of `comm`.
    ///
    /// # Errors
    /// As [`World::iprobe`].
    #[inline(always)]
    pub fn iprobe_at_once(&self, comm: &Comm, source: i32, tag: i32) -> Result<Option<Option<Status>>> {
        match self.look_for_message(comm, source, tag)? {
            None if self.progress_in_passing() => Ok(None),
            found => Ok(Some(found)),
        }
    }

    /// What message could be received now, if any, of those that have been taken in.
    #[inline(always)]
    fn look_for_message(&self, comm: &Comm, source: i32, tag: i32) -> Result<Option<Status>> {
        let tag = tag_pattern(tag)?;
        let Some(from) = source_pattern(comm, source)? else { return Ok(Some(Status::PROC_NULL)) };
        let envelope = self.engine.borrow_mut().probe(from, comm.point_to_point(), tag);
        Ok(envelope.map(|envelope| found(comm, envelope)))
    }

    /// Waits for a message and takes it out of the matching.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.8.2 `MPI_Mprobe`
    pub fn mprobe(&self, comm: &Arc<Comm>, source: i32, tag: i32) -> Result<(Message, Status)> {
        let tag = tag_pattern(tag)?;
        let Some(from) = source_pattern(comm, source)? else {
            return Ok((Message::NO_PROC, Status::PROC_NULL));
        };
        let context = comm.point_to_point();
        let matched = self.wait_until(|world| world.engine.borrow_mut().matched_probe(from, context, tag));
        Ok(taken_out(comm, matched))
    }

    /// Takes the message that could be received now out of the matching, if there is one.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.8.2 `MPI_Improbe`
    pub fn improbe(&self, comm: &Arc<Comm>, source: i32, tag: i32) -> Result<Option<(Message, Status)>> {
        let tag = tag_pattern(tag)?;
        let Some(from) = source_pattern(comm, source)? else {
            return Ok(Some((Message::NO_PROC, Status::PROC_NULL)));
        };
        let context = comm.point_to_point();
        let matched = self.poll_twice(|world| world.engine.borrow_mut().matched_probe(from, context, tag));
        Ok(matched.map(|matched| taken_out(comm, matched)))
    }

    /// Receives a message taken out of the matching.
    ///
    /// # Errors
    /// `Truncate` when the message is longer than the buffer, `Other` when it cannot be delivered.
    ///
    /// MPI: §3.8.3 `MPI_Mrecv`
    pub fn mrecv(&self, message: Message, buf: RecvBuf) -> Finish {
        let Some((id, comm, source)) = message.matched else { return Ok(Status::PROC_NULL) };
        let id = self.engine.borrow_mut().matched_recv(id, buf).map_err(engine_error)?;
        let completion = self.wait_for(id);
        finish_receive(&comm, source, &completion, "MPI_Mrecv")
    }

    /// Starts receiving a message taken out of the matching.
    ///
    /// # Errors
    /// `Intern` when the engine does not know the message.
    ///
    /// MPI: §3.8.3 `MPI_Imrecv`
    pub fn imrecv(&self, message: Message, buf: RecvBuf) -> Result<Request> {
        let Some((id, comm, from)) = message.matched else {
            return Ok(Request::finished(Status::PROC_NULL, "MPI_Imrecv"));
        };
        let id = self.engine.borrow_mut().matched_recv(id, buf).map_err(engine_error)?;
        let direction = Direction::Receive { from };
        Ok(Request::message(InFlight { id, comm, direction }, "MPI_Imrecv"))
    }
}

fn found(comm: &Comm, envelope: Envelope) -> Status {
    Status::of_message(comm.source_of(envelope.peer), envelope.tag, envelope.len_bytes)
}

fn taken_out(comm: &Arc<Comm>, (id, envelope): (MessageId, Envelope)) -> (Message, Status) {
    let status = found(comm, envelope);
    (Message { matched: Some((id, Arc::clone(comm), status.source())) }, status)
}
