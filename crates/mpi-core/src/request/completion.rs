//! Asking one request whether it is done, and fetching its result.

use std::sync::Arc;

use engine::{Completion, Fault, Outcome};

use super::{Direction, Generalized, InFlight, Request, State, Template};
use crate::communicator::Comm;
use crate::constants::ANY_SOURCE;
use crate::error::{Error, ErrorClass, Result};
use crate::status::Status;
use crate::world::World;

/// A failed operation and the communicator whose error handler decides.
#[derive(Debug)]
pub struct Failure {
    /// What happened.
    pub error: Error,
    /// Where; `None` for what belongs to no communicator, or to the one the call was given.
    pub comm: Option<Arc<Comm>>,
    /// What is known all the same: the source and tag of a truncated message.
    pub status: Status,
}

/// How an operation behind a request ended.
pub type Finish = std::result::Result<Status, Box<Failure>>;

impl Failure {
    pub(crate) fn boxed(error: Error, comm: Option<Arc<Comm>>) -> Box<Failure> {
        Box::new(Failure { error, comm, status: Status::EMPTY })
    }
}

impl From<Error> for Box<Failure> {
    fn from(error: Error) -> Self {
        Failure::boxed(error, None)
    }
}

impl From<Box<Failure>> for Error {
    fn from(failure: Box<Failure>) -> Error {
        failure.error
    }
}

/// A result fetched from a request, before the user's callbacks have had their say.
pub(crate) enum Taken {
    Finish(Finish),
    Generalized(Arc<Generalized>),
}

impl Taken {
    /// The result; runs callbacks of the user, so no request may be lent out.
    #[inline]
    pub fn finish(self) -> Finish {
        match self {
            Taken::Finish(finish) => finish,
            Taken::Generalized(generalized) => Ok(generalized.finish()?),
        }
    }
}

impl World {
    /// True if fetching the result would not have to wait; also for what is not active.
    pub(crate) fn is_complete(&self, request: &Request) -> bool {
        match &request.state {
            State::Finished(_) | State::Spent => true,
            State::Message(message) => self.engine.borrow().is_complete(message.id),
            State::Operation { key, .. } => self.operations.is_finished(*key),
            State::SendReceive(pair) => pair.iter().all(|one| self.is_complete(one)),
            State::Persistent(persistent) => persistent.active.as_ref().is_none_or(|active| self.is_complete(active)),
            State::Generalized(generalized) => generalized.is_complete(),
        }
    }

    /// Fetches the result of an active request that is complete. The request is spent by this, or
    /// inactive if it is persistent.
    pub(crate) fn take(&self, request: &mut Request) -> Option<Taken> {
        match request.state {
            State::Message(_) => self.take_message(request).map(Taken::Finish),
            _ => self.take_other(request),
        }
    }

    /// The result of a request that is a message, if that is over; nothing is left of both then.
    #[inline(always)]
    pub(crate) fn take_message(&self, request: &mut Request) -> Option<Finish> {
        let call = request.call;
        let State::Message(message) = &request.state else { return None };
        let look = |completion: &Completion| match completion.outcome {
            Outcome::Done | Outcome::Cancelled => Ok(status_of(message, completion)),
            Outcome::Truncated { .. } | Outcome::Failed(_) => Err(failure_of(message, completion, call)),
        };
        let finish = self.engine.borrow_mut().take_with(message.id, look)?;
        if let State::Message(message) = std::mem::replace(&mut request.state, State::Spent) {
            self.spare_holds.let_go(message.comm);
        }
        Some(finish)
    }

    /// The result of a request of an operation that has ended well when it was started; nothing is left of both then.
    #[inline(always)]
    pub(crate) fn take_ended(&self, request: &mut Request) -> Finish {
        self.finish_of(Ok(()), request.spend_operation())
    }

    /// How an operation of `comm` ended whose result that is.
    #[inline]
    pub(crate) fn finish_of(&self, result: Result<()>, comm: Option<Arc<Comm>>) -> Finish {
        match (result, comm) {
            (Ok(()), Some(comm)) => {
                self.spare_holds.let_go(comm);
                Ok(Status::EMPTY)
            }
            (Ok(()), None) => Ok(Status::EMPTY),
            (Err(error), comm) => Err(Failure::boxed(error, comm)),
        }
    }

    #[inline(never)]
    fn take_other(&self, request: &mut Request) -> Option<Taken> {
        if let State::Persistent(persistent) = &mut request.state {
            let taken = self.take(persistent.active.as_mut()?)?;
            persistent.active = None;
            return Some(match (&persistent.template, taken) {
                (Template::Partitioned(partitioned), Taken::Finish(Ok(_))) => Taken::Finish(Ok(partitioned.status())),
                (_, taken) => taken,
            });
        }
        if !self.is_complete(request) {
            return None;
        }
        Some(match std::mem::replace(&mut request.state, State::Spent) {
            State::Finished(finish) => Taken::Finish(finish),
            State::Operation { key, comm, .. } => {
                let result = self.operations.take(key)?;
                Taken::Finish(self.finish_of(result, Some(comm)))
            }
            State::SendReceive(pair) => {
                let [mut send, mut receive] = *pair;
                let sent = self.take(&mut send)?.finish();
                let received = self.take(&mut receive)?.finish();
                Taken::Finish(sent.and(received))
            }
            State::Generalized(generalized) => Taken::Generalized(generalized),
            State::Message(_) | State::Persistent(_) | State::Spent => return None,
        })
    }

    /// The status a complete request would give, without fetching it; `None` while it is pending.
    /// A generalized request is returned to be asked without a borrow.
    pub(crate) fn peek(&self, request: &Request) -> Option<Peeked> {
        match &request.state {
            State::Spent => Some(Peeked::Status(Status::EMPTY)),
            State::Finished(finish) => Some(Peeked::Status(finish.as_ref().map_or(Status::EMPTY, |s| *s))),
            State::Message(message) => {
                let engine = self.engine.borrow();
                let completion = engine.peek(message.id)?;
                Some(Peeked::Status(status_of(message, completion)))
            }
            State::Operation { key, .. } => self.operations.is_finished(*key).then_some(Peeked::Status(Status::EMPTY)),
            State::SendReceive(pair) => {
                self.peek(&pair[0])?;
                self.peek(&pair[1])
            }
            State::Persistent(persistent) => match &persistent.active {
                None => Some(Peeked::Status(Status::EMPTY)),
                Some(active) => match (&persistent.template, self.peek(active)?) {
                    (Template::Partitioned(partitioned), _) => Some(Peeked::Status(partitioned.status())),
                    (_, peeked) => Some(peeked),
                },
            },
            State::Generalized(generalized) => {
                generalized.is_complete().then(|| Peeked::Generalized(Arc::clone(generalized)))
            }
        }
    }
}

/// What [`World::peek`] saw.
pub(crate) enum Peeked {
    Status(Status),
    Generalized(Arc<Generalized>),
}

impl Peeked {
    /// The status; may run a callback of the user.
    pub fn status(self) -> Result<Status> {
        match self {
            Peeked::Status(status) => Ok(status),
            Peeked::Generalized(generalized) => generalized.query(),
        }
    }
}

#[cold]
fn failure_of(message: &InFlight, completion: &Completion, call: &'static str) -> Box<Failure> {
    let error = blame(&message.comm, message.direction, completion, call);
    Box::new(Failure { error, comm: Some(Arc::clone(&message.comm)), status: status_of(message, completion) })
}

#[inline]
fn status_of(message: &InFlight, completion: &Completion) -> Status {
    match message.direction {
        _ if matches!(completion.outcome, Outcome::Cancelled) => Status::CANCELLED,
        Direction::Send { .. } => Status::EMPTY,
        Direction::Receive { from } => received(&message.comm, from, completion),
    }
}

/// The status of a message that arrived from the rank asked for.
#[inline]
pub(crate) fn received(comm: &Comm, from: i32, completion: &Completion) -> Status {
    let envelope = &completion.envelope;
    let source = if from == ANY_SOURCE { comm.source_of(envelope.peer) } else { from };
    Status::of_message(source, envelope.tag, envelope.len_bytes)
}

/// The class of what the engine says of a message that failed.
pub(crate) fn class_of(fault: &Fault) -> ErrorClass {
    if fault.is_loss { ErrorClass::ProcAborted } else { ErrorClass::Other }
}

/// The error of a message that went wrong, naming everybody and everything involved.
#[cold]
pub(crate) fn blame(comm: &Comm, direction: Direction, completion: &Completion, call: &str) -> Error {
    let me = comm.describe_self();
    let envelope = &completion.envelope;
    match (&completion.outcome, direction) {
        (Outcome::Truncated { sent_bytes, capacity_bytes }, _) => {
            let sender = comm.describe_peer(envelope.peer);
            ErrorClass::Truncate.error(format!(
                "message truncated on {comm}: {sender} sent {sent_bytes} bytes with tag {}, but the receive of \
                 {me} ({call}) has room for {capacity_bytes}",
                envelope.tag
            ))
        }
        (Outcome::Failed(why), Direction::Send { to, tag }) => {
            let receiver = comm.describe_rank(to);
            class_of(why).error(format!("{me} could not send to {receiver} with tag {tag} on {comm} ({call}): {why}"))
        }
        (Outcome::Failed(why), Direction::Receive { .. }) => {
            let sender = comm.describe_peer(envelope.peer);
            class_of(why).error(format!(
                "{me} could not receive from {sender} with tag {} on {comm} ({call}): {why}",
                envelope.tag
            ))
        }
        (Outcome::Done | Outcome::Cancelled, _) => {
            ErrorClass::Intern.error(format!("{me} was told of an error on {comm} ({call}) that did not occur"))
        }
    }
}
