//! Requests: what a call that returns before its operation is done leaves behind.
//!
//! A [`Request`] is an owned value. A face keeps requests where it likes and shows them to the
//! waiting calls as a [`RequestSet`], because several of those calls may be inside the same table
//! at once, from different threads, while they pause.
//!
//! **Invariants**
//! - A request holds its communicator until it has completed.
//! - No request is lent out while a callback of the user runs.
//!
//! MPI: §3.7, §3.9, §13.2

mod completion;
mod generalized;
mod persistent;
mod set;

pub use completion::{Failure, Finish};
pub(crate) use completion::{Peeked, Taken, blame, class_of, received};
pub use generalized::{Generalized, GeneralizedCallbacks};
pub(crate) use persistent::{Elements, Template};
pub use set::{AnyFinished, RequestSet};

use std::sync::Arc;

use engine::RequestId;

use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::status::Status;
use crate::world::{OperationKey, World};

/// An operation that was started, or a persistent one that can be.
pub struct Request {
    pub(crate) state: State,
    /// The call that made it, for error messages.
    pub(crate) call: &'static str,
}

/// What stands behind a request.
pub(crate) enum State {
    /// Completed, result not yet fetched.
    Finished(Finish),
    /// A message the engine sends or receives.
    Message(InFlight),
    /// Something of several steps, for instance a collective.
    Operation { key: OperationKey, comm: Arc<Comm>, is_collective: bool },
    /// A send and a receive that count as one; the status is the receive's.
    SendReceive(Box<[Request; 2]>),
    /// Made once, started any number of times.
    Persistent(Box<Persistent>),
    /// Completed by the user.
    Generalized(Arc<Generalized>),
    /// Completed and fetched: nothing is left.
    Spent,
}

/// A message under way.
pub(crate) struct InFlight {
    pub id: RequestId,
    pub comm: Arc<Comm>,
    pub direction: Direction,
}

/// Which end of a message a request stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Send {
        to: u32,
        tag: i32,
    },
    /// The rank the user asked for, possibly `ANY_SOURCE`.
    Receive {
        from: i32,
    },
}

/// A persistent operation.
pub(crate) struct Persistent {
    pub template: Template,
    /// The request of the current start; `None` while inactive.
    pub active: Option<Request>,
    pub comm: Arc<Comm>,
}

impl Request {
    /// A request that has completed already.
    pub(crate) fn finished(status: Status, call: &'static str) -> Request {
        Request { state: State::Finished(Ok(status)), call }
    }

    /// The request of a send in standard mode that was over when it was started.
    pub fn finished_send() -> Request {
        Request::finished(Status::EMPTY, "MPI_Isend")
    }

    #[inline(always)]
    pub(crate) fn message(in_flight: InFlight, call: &'static str) -> Request {
        Request { state: State::Message(in_flight), call }
    }

    pub(crate) fn operation(key: OperationKey, comm: Arc<Comm>, call: &'static str) -> Request {
        Request { state: State::Operation { key, comm, is_collective: false }, call }
    }

    /// The same for what all processes of `comm` take part in.
    pub(crate) fn collective(key: OperationKey, comm: Arc<Comm>, call: &'static str) -> Request {
        Request { state: State::Operation { key, comm, is_collective: true }, call }
    }

    /// The operation that is waited for, if that is what stands behind it.
    pub(crate) fn operation_key(&self) -> Option<OperationKey> {
        match &self.state {
            State::Operation { key, .. } => Some(*key),
            _ => None,
        }
    }

    /// That operation is over, its result is known, and nothing is left of the request but the communicator.
    pub(crate) fn spend_operation(&mut self) -> Option<Arc<Comm>> {
        match std::mem::replace(&mut self.state, State::Spent) {
            State::Operation { comm, .. } => Some(comm),
            _ => None,
        }
    }

    /// The call that made the request, for instance `MPI_Irecv`.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// True if it can be started (again) and outlives its completion.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        matches!(self.state, State::Persistent(_))
    }

    /// True if there is something to wait for: not spent, and started if persistent.
    #[inline]
    pub fn is_active(&self) -> bool {
        match &self.state {
            State::Spent => false,
            State::Persistent(persistent) => persistent.active.is_some(),
            _ => true,
        }
    }

    /// The communicator it belongs to; completed sends may have let go of theirs.
    pub fn comm(&self) -> Option<&Arc<Comm>> {
        match &self.state {
            State::Message(message) => Some(&message.comm),
            State::Operation { comm, .. } => Some(comm),
            State::Persistent(persistent) => Some(&persistent.comm),
            State::SendReceive(pair) => pair[1].comm().or_else(|| pair[0].comm()),
            State::Finished(_) | State::Generalized(_) | State::Spent => None,
        }
    }

    /// The generalized request behind it, to be completed by the user.
    pub fn generalized(&self) -> Option<&Arc<Generalized>> {
        match &self.state {
            State::Generalized(generalized) => Some(generalized),
            _ => None,
        }
    }

    /// # Errors
    /// `Request` while a collective operation is under way.
    ///
    /// MPI: §6.12
    pub fn check_may_be_freed(&self) -> Result<()> {
        match &self.state {
            State::Operation { is_collective: true, .. } => {
                ErrorClass::Request.fail(format!("what {} has begun can not be freed; wait for it", self.call))
            }
            State::Persistent(persistent) => persistent.active.as_ref().map_or(Ok(()), Request::check_may_be_freed),
            _ => Ok(()),
        }
    }
}

impl World {
    /// Marks a request for release: its operation goes on, nobody will ask for its result.
    ///
    /// # Errors
    /// What the free callback of a completed generalized request returns.
    ///
    /// MPI: §3.7.3 `MPI_Request_free`
    pub fn free_request(&self, request: Request) -> Result<()> {
        match request.state {
            State::Finished(_) | State::Spent => Ok(()),
            State::Message(message) => {
                self.release_message(message);
                Ok(())
            }
            State::Operation { key, .. } => {
                self.operations.detach(key);
                Ok(())
            }
            State::SendReceive(pair) => pair.into_iter().try_for_each(|one| self.free_request(one)),
            State::Persistent(persistent) => persistent.active.map_or(Ok(()), |active| self.free_request(active)),
            State::Generalized(generalized) => generalized.release(),
        }
    }

    /// Cancels a message or both of a pair; gives back a generalized request, to be told without a borrow.
    ///
    /// # Errors
    /// `Request` for an operation of several processes or of partitions that is under way: it can not be cancelled.
    pub(crate) fn cancel_request(&self, request: &mut Request) -> Result<Option<Arc<Generalized>>> {
        match &mut request.state {
            State::Message(message) => self.engine.borrow_mut().cancel(message.id),
            State::SendReceive(pair) => {
                for one in pair.iter_mut() {
                    self.cancel_request(one)?;
                }
            }
            State::Persistent(persistent) => {
                return persistent.active.as_mut().map_or(Ok(None), |active| self.cancel_request(active));
            }
            State::Generalized(generalized) => return Ok(Some(Arc::clone(generalized))),
            State::Operation { .. } => {
                return ErrorClass::Request.fail(format!("what {} has begun can not be cancelled", request.call));
            }
            State::Finished(_) | State::Spent => {}
        }
        Ok(None)
    }

    /// Lets the engine finish a message alone.
    ///
    /// A receive holds its communicator until then. A send need not: whoever is to receive it does.
    fn release_message(&self, message: InFlight) {
        let mut engine = self.engine.borrow_mut();
        match message.direction {
            Direction::Send { .. } => engine.detach(message.id),
            Direction::Receive { .. } if engine.take(message.id).is_some() => {}
            Direction::Receive { .. } => self.orphans.borrow_mut().push(message),
        }
    }

    /// Forgets released receives that have completed.
    #[inline]
    pub(crate) fn reap_orphans(&self) {
        if !self.orphans.borrow().is_empty() {
            self.reap_some_orphans();
        }
    }

    #[cold]
    fn reap_some_orphans(&self) {
        let mut engine = self.engine.borrow_mut();
        for message in self.orphans.borrow_mut().extract_if(.., |message| engine.take(message.id).is_some()) {
            self.spare_holds.let_go(message.comm);
        }
    }
}
