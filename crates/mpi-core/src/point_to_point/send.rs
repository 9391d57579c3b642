//! Sending, blocking and not.
//!
//! MPI: §3.2.1, §3.4, §3.7.2

use std::sync::Arc;

use datatype::SendBuf;
use engine::{ContextId, Outcome, PeerId, RequestId, SendMode};

use super::send_tag;
use crate::communicator::Comm;
use crate::error::Result;
use crate::request::{Direction, InFlight, Request, blame};
use crate::status::Status;
use crate::world::{World, engine_error};

/// When a send is complete.
///
/// MPI: §3.4
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When the buffer may be reused.
    Standard,
    /// When the receiver has begun to receive.
    Synchronous,
    /// As standard; the user promises that the receive is posted.
    Ready,
    /// At once, from a copy in the attached buffer.
    Buffered,
}

/// Where a message goes.
#[derive(Clone, Copy)]
pub struct Destination {
    peer: PeerId,
    context: ContextId,
    tag: i32,
}

impl Comm {
    /// Where a message to rank `dest` with this tag goes; `None` for `PROC_NULL`.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    #[inline(always)]
    pub fn destination(&self, dest: i32, tag: i32) -> Result<Option<Destination>> {
        let tag = send_tag(tag)?;
        let Some(peer) = self.peer_argument(dest)? else { return Ok(None) };
        Ok(Some(Destination { peer, context: self.point_to_point(), tag }))
    }
}

impl World {
    /// Sends a message in standard mode and returns when its buffer may be reused.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments, `Other` when the message cannot be delivered.
    ///
    /// MPI: §3.2.1 `MPI_Send`
    #[inline]
    pub fn send(&self, comm: &Comm, dest: i32, tag: i32, buf: SendBuf) -> Result<()> {
        if self.try_send(comm, dest, tag, &buf)? { Ok(()) } else { self.send_by_request(comm, dest, tag, buf) }
    }

    /// As [`World::send`], after [`World::try_send`] has found that it can not be done at once.
    ///
    /// # Errors
    /// As [`World::send`].
    pub fn send_by_request(&self, comm: &Comm, dest: i32, tag: i32, buf: SendBuf) -> Result<()> {
        match comm.peer_argument(dest)? {
            Some(peer) => self.send_and_wait(SendMode::Standard, comm, peer, send_tag(tag)?, buf),
            None => Ok(()),
        }
    }

    /// Sends a message in standard mode if that can be done at once; false if it needs a request. What a blocking
    /// and a non-blocking send of a short message have in common: when it returns true, both are over.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    #[inline]
    pub fn try_send(&self, comm: &Comm, dest: i32, tag: i32, buf: &SendBuf) -> Result<bool> {
        match comm.destination(dest, tag)? {
            Some(destination) => Ok(self.try_send_to(destination, buf)),
            None => Ok(true),
        }
    }

    /// As [`World::try_send`], where it is known who is sent to.
    #[inline(always)]
    pub fn try_send_to(&self, destination: Destination, buf: &SendBuf) -> bool {
        let Destination { peer, context, tag } = destination;
        let is_gone = self.engine.borrow_mut().try_send(peer, context, tag, buf);
        if is_gone {
            self.wake_sleepers();
        }
        is_gone
    }

    /// Sends a message in the given mode and returns when it is complete.
    ///
    /// # Errors
    /// As [`World::send`]; `Buffer` when the attached buffer is too small in buffered mode.
    ///
    /// MPI: §3.4 `MPI_Ssend`, `MPI_Rsend`, `MPI_Bsend`
    pub fn send_in_mode(&self, mode: Mode, comm: &Arc<Comm>, dest: i32, tag: i32, buf: SendBuf) -> Result<()> {
        let mode = match mode {
            Mode::Standard => return self.send(comm, dest, tag, buf),
            Mode::Buffered => return self.buffered_send(comm, dest, tag, buf),
            Mode::Synchronous => SendMode::Synchronous,
            Mode::Ready => SendMode::Ready,
        };
        let tag = send_tag(tag)?;
        match comm.peer_argument(dest)? {
            Some(peer) => self.send_and_wait(mode, comm, peer, tag, buf),
            None => Ok(()),
        }
    }

    /// Starts a send.
    ///
    /// # Errors
    /// As [`World::send_in_mode`].
    ///
    /// MPI: §3.7.2 `MPI_Isend`, `MPI_Issend`, `MPI_Irsend`, `MPI_Ibsend`
    pub fn isend(&self, mode: Mode, comm: &Arc<Comm>, dest: i32, tag: i32, buf: SendBuf) -> Result<Request> {
        let call = match mode {
            Mode::Standard => "MPI_Isend",
            Mode::Synchronous => "MPI_Issend",
            Mode::Ready => "MPI_Irsend",
            Mode::Buffered => "MPI_Ibsend",
        };
        let tag = send_tag(tag)?;
        let Some(peer) = comm.peer_argument(dest)? else {
            return Ok(Request::finished(Status::EMPTY, call));
        };
        self.start_send(mode, comm, peer, dest as u32, tag, buf, call)
    }

    #[allow(clippy::too_many_arguments, reason = "what a send is made of")]
    pub(crate) fn start_send(
        &self,
        mode: Mode,
        comm: &Arc<Comm>,
        peer: PeerId,
        to: u32,
        tag: i32,
        buf: SendBuf,
        call: &'static str,
    ) -> Result<Request> {
        let mut engine = self.engine.borrow_mut();
        let context = comm.point_to_point();
        let mode = match mode {
            Mode::Standard | Mode::Ready if engine.try_send(peer, context, tag, &buf) => {
                drop(engine);
                self.wake_sleepers();
                return Ok(Request::finished(Status::EMPTY, call));
            }
            Mode::Standard => SendMode::Standard,
            Mode::Synchronous => SendMode::Synchronous,
            Mode::Ready => SendMode::Ready,
            Mode::Buffered => {
                drop(engine);
                self.start_buffered_send(comm, peer, to, tag, &buf)?;
                return Ok(Request::finished(Status::EMPTY, call));
            }
        };
        let id = engine.send(mode, peer, context, tag, buf).map_err(engine_error)?;
        engine.answer();
        drop(engine);
        self.wake_sleepers();
        let direction = Direction::Send { to, tag };
        Ok(Request::message(InFlight { id, comm: self.spare_holds.hold(comm), direction }, call))
    }

    #[inline(never)]
    fn send_and_wait(&self, mode: SendMode, comm: &Comm, peer: PeerId, tag: i32, buf: SendBuf) -> Result<()> {
        let id = self.engine.borrow_mut().send(mode, peer, comm.point_to_point(), tag, buf).map_err(engine_error)?;
        self.wake_sleepers();
        self.finish_send(comm, id, peer, tag)
    }

    /// Waits for a send of this call.
    pub(crate) fn finish_send(&self, comm: &Comm, id: RequestId, peer: PeerId, tag: i32) -> Result<()> {
        let completion = self.wait_for(id);
        match completion.outcome {
            Outcome::Done | Outcome::Cancelled => Ok(()),
            Outcome::Truncated { .. } | Outcome::Failed(_) => {
                let to = comm.rank_of(peer).unwrap_or(peer);
                Err(blame(comm, Direction::Send { to, tag }, &completion, "blocking send"))
            }
        }
    }
}
