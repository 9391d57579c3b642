//! Sending and receiving in one call.
//!
//! MPI: §3.11

use std::sync::Arc;

use datatype::{RecvBuf, SendBuf};
use engine::SendMode;

use super::{Mode, send_tag, source_pattern, tag_pattern};
use crate::communicator::Comm;
use crate::error::Result;
use crate::request::{Finish, Request, State};
use crate::status::Status;
use crate::world::{World, engine_error};

/// One end of an exchange: with whom, and under which tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Rank to send to or to receive from.
    pub rank: i32,
    /// Tag of the message.
    pub tag: i32,
}

impl World {
    /// Sends one message while receiving another.
    ///
    /// # Errors
    /// As [`World::send`] and [`World::recv`]; both are over when this returns.
    ///
    /// MPI: §3.11 `MPI_Sendrecv`
    pub fn sendrecv(&self, comm: &Comm, to: End, outgoing: SendBuf, from: End, incoming: impl Into<RecvBuf>) -> Finish {
        let (tag, pattern) = (send_tag(to.tag)?, tag_pattern(from.tag)?);
        let (peer, source) = (comm.peer_argument(to.rank)?, source_pattern(comm, from.rank)?);
        let context = comm.point_to_point();
        let mut engine = self.engine.borrow_mut();
        let receive = match source {
            Some(source) => Some(engine.recv(source, context, pattern, incoming).map_err(engine_error)?),
            None => None,
        };
        let send = match peer {
            Some(peer) if !engine.try_send(peer, context, tag, &outgoing) => {
                let id = engine.send(SendMode::Standard, peer, context, tag, outgoing);
                Some((id.map_err(engine_error)?, peer))
            }
            _ => None,
        };
        drop(engine);
        self.wake_sleepers();
        let sent = send.map_or(Ok(()), |(id, peer)| self.finish_send(comm, id, peer, tag));
        let received = match receive {
            Some(id) => self.wait_for_receive(id, comm, from.rank, "MPI_Sendrecv"),
            None => Ok(Status::PROC_NULL),
        };
        sent?;
        received
    }

    /// Sends what lies in a buffer and receives into the same memory.
    ///
    /// `outgoing` is copied before anything is received.
    ///
    /// # Errors
    /// As [`World::sendrecv`].
    ///
    /// MPI: §3.11 `MPI_Sendrecv_replace`
    pub fn sendrecv_replace(&self, comm: &Comm, to: End, outgoing: SendBuf, from: End, incoming: RecvBuf) -> Finish {
        let copy = packed(&outgoing);
        drop(outgoing);
        self.sendrecv(comm, to, copy, from, incoming)
    }

    /// Starts an exchange; the request's status is that of the receive.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.11 `MPI_Isendrecv`
    pub fn isendrecv(
        &self,
        comm: &Arc<Comm>,
        to: End,
        outgoing: SendBuf,
        from: End,
        incoming: RecvBuf,
    ) -> Result<Request> {
        send_tag(to.tag)?;
        comm.peer_argument(to.rank)?;
        let receive = self.irecv(comm, from.rank, from.tag, incoming)?;
        let send = self.isend(Mode::Standard, comm, to.rank, to.tag, outgoing)?;
        Ok(Request { state: State::SendReceive(Box::new([send, receive])), call: "MPI_Isendrecv" })
    }

    /// Starts an exchange within one buffer, whose contents are copied first.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.11 `MPI_Isendrecv_replace`
    pub fn isendrecv_replace(
        &self,
        comm: &Arc<Comm>,
        to: End,
        outgoing: SendBuf,
        from: End,
        incoming: RecvBuf,
    ) -> Result<Request> {
        let copy = packed(&outgoing);
        drop(outgoing);
        self.isendrecv(comm, to, copy, from, incoming)
    }
}

/// A packed copy that owns its bytes.
pub(crate) fn packed(buf: &SendBuf) -> SendBuf {
    let mut bytes = vec![0; buf.len_bytes() as usize].into_boxed_slice();
    let len = buf.pack_at(0, &mut bytes);
    debug_assert_eq!(len, bytes.len());
    SendBuf::from_owned(bytes)
}
