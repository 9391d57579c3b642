//! Receiving, blocking and not.
//!
//! MPI: §3.2.4, §3.7.2

use std::sync::Arc;

use datatype::RecvBuf;
use engine::{Completion, Outcome, RequestId, Source, TagPattern};

use super::{source_pattern, tag_pattern};
use crate::communicator::Comm;
use crate::error::Result;
use crate::request::{Direction, Failure, Finish, InFlight, Request, blame, received};
use crate::status::Status;
use crate::world::{World, engine_error};

impl World {
    /// Receives a message.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments, `Truncate` when the message is longer than the buffer,
    /// `Other` when it cannot be delivered.
    /// The failure says what is known of the message.
    ///
    /// MPI: §3.2.4 `MPI_Recv`
    #[inline]
    pub fn recv(&self, comm: &Comm, source: i32, tag: i32, buf: impl Into<RecvBuf>) -> Finish {
        let tag = tag_pattern(tag)?;
        let Some(from) = source_pattern(comm, source)? else { return Ok(Status::PROC_NULL) };
        let posted = self.engine.borrow_mut().recv(from, comm.point_to_point(), tag, buf);
        self.wake_sleepers();
        let id = posted.map_err(engine_error)?;
        self.wait_for_receive(id, comm, source, "MPI_Recv")
    }

    /// Waits for a receive of this call.
    #[inline]
    pub(crate) fn wait_for_receive(&self, id: RequestId, comm: &Comm, source: i32, call: &'static str) -> Finish {
        // Results that go through the waiting loop go through memory, several times.
        self.wait_until(|world| world.engine.borrow().is_complete(id).then_some(()));
        let finish = |completion: &Completion| finish_receive(comm, source, completion, call);
        self.engine.borrow_mut().take_with(id, finish).expect("it is complete")
    }

    /// Starts a receive.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.7.2 `MPI_Irecv`
    #[inline]
    pub fn irecv(&self, comm: &Arc<Comm>, source: i32, tag: i32, buf: RecvBuf) -> Result<Request> {
        let id = self.post_receive(comm, source, tag, buf)?;
        Ok(self.receive_request(id, comm, source))
    }

    /// The request of a receive that [`World::post_receive`] has posted; `None` stands for one from `PROC_NULL`.
    #[inline(always)]
    pub fn receive_request(&self, id: Option<RequestId>, comm: &Arc<Comm>, source: i32) -> Request {
        match id {
            Some(id) => {
                let direction = Direction::Receive { from: source };
                Request::message(InFlight { id, comm: self.spare_holds.hold(comm), direction }, "MPI_Irecv")
            }
            None => Request::finished(Status::PROC_NULL, "MPI_Irecv"),
        }
    }

    /// As [`World::irecv`], but returns only what [`World::receive_request`] needs: for faces that have a place for the
    /// request and do not want it carried there.
    ///
    /// # Errors
    /// As [`World::irecv`].
    #[inline(always)]
    pub fn post_receive(
        &self,
        comm: &Comm,
        source: i32,
        tag: i32,
        buf: impl Into<RecvBuf>,
    ) -> Result<Option<RequestId>> {
        let tag = tag_pattern(tag)?;
        let Some(from) = source_pattern(comm, source)? else { return Ok(None) };
        let posted = self.engine.borrow_mut().recv_beside_work(from, comm.point_to_point(), tag, buf);
        self.wake_sleepers();
        posted.map(Some).map_err(engine_error)
    }

    pub(crate) fn start_receive(
        &self,
        comm: &Arc<Comm>,
        source: i32,
        from: Source,
        tag: TagPattern,
        buf: RecvBuf,
        call: &'static str,
    ) -> Result<Request> {
        let posted = self.engine.borrow_mut().recv_beside_work(from, comm.point_to_point(), tag, buf);
        self.wake_sleepers();
        let id = posted.map_err(engine_error)?;
        let direction = Direction::Receive { from: source };
        Ok(Request::message(InFlight { id, comm: self.spare_holds.hold(comm), direction }, call))
    }
}

/// The status of a receive that has completed, or its error.
#[inline]
pub(crate) fn finish_receive(comm: &Comm, source: i32, completion: &Completion, call: &'static str) -> Finish {
    match completion.outcome {
        Outcome::Done => Ok(received(comm, source, completion)),
        Outcome::Cancelled => Ok(Status::CANCELLED),
        Outcome::Truncated { .. } | Outcome::Failed(_) => {
            let error = blame(comm, Direction::Receive { from: source }, completion, call);
            Err(Box::new(Failure { error, comm: None, status: received(comm, source, completion) }))
        }
    }
}
