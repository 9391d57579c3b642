//! Waiting for and testing one, any, all or some of a list of requests.
//!
//! Each call answers exactly as the standard says also for lists with null requests and inactive
//! persistent ones: those count as complete with an empty status, and a list of nothing else has
//! nothing to wait for.
//!
//! MPI: §3.7.3, §3.7.5, §3.7.6

use super::{Finish, Peeked, Request, State, Taken};
use crate::error::Result;
use crate::status::Status;
use crate::world::World;

/// A list of requests as a face keeps it, some of which may be null.
pub trait RequestSet {
    /// Number of requests, null ones included.
    fn len(&self) -> usize;

    /// True if request `index` is null.
    fn is_null(&self, index: usize) -> bool {
        self.with(index, |_| ()).is_none()
    }

    /// True if the list is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows request `index` to `look`, or gives `None` if it is null. `look` calls no user code.
    fn with<R>(&self, index: usize, look: impl FnOnce(&mut Request) -> R) -> Option<R>;

    /// Request `index` is spent: makes it null.
    fn remove(&self, index: usize);

    /// As [`RequestSet::with`]; where `look` also says that the request is spent by this, and has left nothing of it,
    /// makes it null. Not asked of requests that [`RequestSet::take_finished_send`] takes.
    #[inline]
    fn with_and_remove<R>(&self, index: usize, look: impl FnOnce(&mut Request) -> (R, bool)) -> Option<R> {
        let (result, is_spent) = self.with(index, look)?;
        if is_spent {
            self.remove(index);
        }
        Some(result)
    }

    /// If request `index` is [`Request::finished_send`] under a name that all such requests share, makes it null and
    /// says so. Sets that know no such name answer false.
    #[inline]
    fn take_finished_send(&self, _index: usize) -> bool {
        false
    }
}

/// What waiting for any request came to.
#[derive(Debug)]
pub enum AnyFinished {
    /// No request of the list was active.
    NoneActive,
    /// This one has finished.
    One(usize, Finish),
}

impl World {
    /// Waits for request 0 of `set`; an inactive or null one has the empty status.
    ///
    /// # Errors
    /// What the operation failed with.
    ///
    /// MPI: §3.7.3 `MPI_Wait`
    #[inline]
    pub fn wait(&self, set: &impl RequestSet) -> Finish {
        match self.try_message_at(set, 0) {
            Some(Some(finish)) => finish,
            _ => self.wait_at(set, 0),
        }
    }

    /// Fetches the result of request 0 of `set` if it is complete.
    ///
    /// # Errors
    /// What the operation failed with.
    ///
    /// MPI: §3.7.3 `MPI_Test`
    #[inline]
    pub fn test(&self, set: &impl RequestSet) -> Option<Finish> {
        match self.try_message_at(set, 0) {
            Some(Some(finish)) => Some(finish),
            Some(None) => self.progress_in_passing().then(|| self.try_at(set, 0)).flatten(),
            None => self.poll_twice(|world| world.try_at(set, 0)),
        }
    }

    /// Waits until one of the active requests has finished.
    ///
    /// MPI: §3.7.5 `MPI_Waitany`
    pub fn wait_any(&self, set: &impl RequestSet) -> AnyFinished {
        self.wait_until(|world| world.try_any(set))
    }

    /// Fetches the result of one active request if one is complete, or says that none is active.
    ///
    /// MPI: §3.7.5 `MPI_Testany`
    pub fn test_any(&self, set: &impl RequestSet) -> Option<AnyFinished> {
        self.poll_twice(|world| world.try_any(set))
    }

    /// Waits for all requests and reports each one's result, in order. True if all went well.
    ///
    /// MPI: §3.7.5 `MPI_Waitall`
    pub fn wait_all(&self, set: &impl RequestSet, mut report: impl FnMut(usize, Finish)) -> bool {
        let mut all_well = true;
        for index in 0..set.len() {
            if has_nothing_to_tell(set, index) {
                report(index, Ok(Status::EMPTY));
                continue;
            }
            let finish = match self.try_active_message_at(set, index) {
                Some(Some(finish)) => finish,
                _ => self.wait_at(set, index),
            };
            all_well &= finish.is_ok();
            report(index, finish);
        }
        all_well
    }

    /// If all requests are complete, reports each one's result and says whether all went well;
    /// otherwise changes nothing.
    ///
    /// MPI: §3.7.5 `MPI_Testall`
    pub fn test_all(&self, set: &impl RequestSet, report: impl FnMut(usize, Finish)) -> Option<bool> {
        let all_complete = |world: &World| {
            let complete = |index| set.with(index, |request| world.is_complete(request)).unwrap_or(true);
            (0..set.len()).all(complete).then_some(())
        };
        self.poll_twice(all_complete)?;
        Some(self.wait_all(set, report))
    }

    /// Waits until at least one active request has finished and reports all that have.
    /// `None` if none was active, otherwise whether all reported ones went well.
    ///
    /// MPI: §3.7.5 `MPI_Waitsome`
    pub fn wait_some(&self, set: &impl RequestSet, mut report: impl FnMut(usize, Finish)) -> Option<bool> {
        self.wait_until(|world| match world.try_some(set, &mut report) {
            Some(SomeFinished::Pending) => None,
            Some(SomeFinished::Reported { all_well }) => Some(Some(all_well)),
            None => Some(None),
        })
    }

    /// Reports all active requests that are complete, perhaps none. `None` if none was active,
    /// otherwise whether all reported ones went well.
    ///
    /// MPI: §3.7.5 `MPI_Testsome`
    pub fn test_some(&self, set: &impl RequestSet, mut report: impl FnMut(usize, Finish)) -> Option<bool> {
        self.progress_in_passing();
        match self.try_some(set, &mut report)? {
            SomeFinished::Pending => Some(true),
            SomeFinished::Reported { all_well } => Some(all_well),
        }
    }

    /// The status of request 0 of `set` without fetching it, or `None` while it is pending.
    ///
    /// # Errors
    /// What the query callback of a generalized request returns.
    ///
    /// MPI: §3.7.6 `MPI_Request_get_status`
    pub fn request_status(&self, set: &impl RequestSet) -> Result<Option<Status>> {
        let look = |world: &World| match set.with(0, |request| world.peek(request)) {
            None => Some(None),
            Some(None) => None,
            Some(Some(peeked)) => Some(Some(peeked)),
        };
        match self.poll_twice(look) {
            None => Ok(None),
            Some(None) => Ok(Some(Status::EMPTY)),
            Some(Some(peeked)) => peeked.status().map(Some),
        }
    }

    /// The status of one active request that is complete, without fetching it; see
    /// [`World::test_any`].
    ///
    /// # Errors
    /// What the query callback of a generalized request returns.
    ///
    /// MPI: §3.7.6 `MPI_Request_get_status_any`
    pub fn request_status_any(&self, set: &impl RequestSet) -> Result<Option<(Option<usize>, Status)>> {
        let look = |world: &World| {
            let mut any_active = false;
            for index in 0..set.len() {
                match world.peek_at(set, index) {
                    Some(Some(peeked)) => return Some(Some((index, peeked))),
                    Some(None) => any_active = true,
                    None => {}
                }
            }
            (!any_active).then_some(None)
        };
        match self.poll_twice(look) {
            None => Ok(None),
            Some(None) => Ok(Some((None, Status::EMPTY))),
            Some(Some((index, peeked))) => Ok(Some((Some(index), peeked.status()?))),
        }
    }

    /// If all requests are complete, reports their statuses without fetching them; true if so.
    ///
    /// # Errors
    /// What the query callback of a generalized request returns.
    ///
    /// MPI: §3.7.6 `MPI_Request_get_status_all`
    pub fn request_status_all(&self, set: &impl RequestSet, mut report: impl FnMut(usize, Status)) -> Result<bool> {
        let is_complete = |world: &World, index| !matches!(world.peek_at(set, index), Some(None));
        let all_complete = |world: &World| (0..set.len()).all(|index| is_complete(world, index)).then_some(());
        if self.poll_twice(all_complete).is_none() {
            return Ok(false);
        }
        for index in 0..set.len() {
            let status = match self.peek_at(set, index).flatten() {
                Some(peeked) => peeked.status()?,
                None => Status::EMPTY,
            };
            report(index, status);
        }
        Ok(true)
    }

    /// Reports the statuses of all active requests that are complete, perhaps none, without fetching
    /// them. False if no request is active.
    ///
    /// # Errors
    /// What the query callback of a generalized request returns.
    ///
    /// MPI: §3.7.6 `MPI_Request_get_status_some`
    pub fn request_status_some(&self, set: &impl RequestSet, mut report: impl FnMut(usize, Status)) -> Result<bool> {
        self.progress_in_passing();
        let mut any_active = false;
        for index in 0..set.len() {
            let Some(peeked) = self.peek_at(set, index) else { continue };
            any_active = true;
            if let Some(peeked) = peeked {
                report(index, peeked.status()?);
            }
        }
        Ok(any_active)
    }

    /// What an active request would give: `None` if it is not active, `Some(None)` while pending.
    fn peek_at(&self, set: &impl RequestSet, index: usize) -> Option<Option<Peeked>> {
        set.with(index, |request| request.is_active().then(|| self.peek(request))).flatten()
    }

    /// Asks for request 0 of `set` to be cancelled. Messages that nothing has matched yet are; the
    /// request still has to be completed.
    ///
    /// # Errors
    /// What the cancel callback of a generalized request returns; `Request` for what can not be cancelled, such as a
    /// collective operation under way, which goes on.
    ///
    /// MPI: §3.8.4 `MPI_Cancel`
    pub fn cancel(&self, set: &impl RequestSet) -> Result<()> {
        let generalized = set.with(0, |request| self.cancel_request(request)).transpose()?.flatten();
        self.wake_sleepers();
        generalized.map_or(Ok(()), |generalized| generalized.cancel())
    }

    #[inline(never)]
    fn wait_at(&self, set: &impl RequestSet, index: usize) -> Finish {
        let key = set.with(index, |request| request.operation_key()).flatten();
        if let Some(result) = key.and_then(|key| self.finish_closely(key)) {
            let comm = set.with_and_remove(index, |request| (request.spend_operation(), true)).flatten();
            return self.finish_of(result, comm);
        }
        self.wait_until(|world| world.try_at(set, index))
    }

    /// The common cases on their own: the result of a request that is a message, if it is complete, or of an operation that
    /// has ended well when it was started (else `None`). Results of other kinds go through memory as enums within enums;
    /// this one stays in registers.
    #[inline(always)]
    fn try_message_at(&self, set: &impl RequestSet, index: usize) -> Option<Option<Finish>> {
        if has_nothing_to_tell(set, index) {
            return Some(Some(Ok(Status::EMPTY)));
        }
        self.try_active_message_at(set, index)
    }

    /// As [`World::try_message_at`], of a request that has something to tell.
    #[inline(always)]
    fn try_active_message_at(&self, set: &impl RequestSet, index: usize) -> Option<Option<Finish>> {
        let look = |request: &mut Request| {
            let finish = match request.state {
                State::Message(_) => self.take_message(request),
                State::Operation { key, .. } if key.has_ended_well() => Some(self.take_ended(request)),
                _ => return (None, false),
            };
            let is_over = finish.is_some();
            (Some(finish), is_over)
        };
        set.with_and_remove(index, look).flatten()
    }

    /// The result of one request if it is complete, null or inactive.
    fn try_at(&self, set: &impl RequestSet, index: usize) -> Option<Finish> {
        match self.take_at(set, index) {
            Attempt::Taken(taken) => Some(taken.finish()),
            Attempt::NotActive => Some(Ok(Status::EMPTY)),
            Attempt::Pending => None,
        }
    }

    fn try_any(&self, set: &impl RequestSet) -> Option<AnyFinished> {
        let mut any_active = false;
        for index in 0..set.len() {
            match self.take_at(set, index) {
                Attempt::Taken(taken) => return Some(AnyFinished::One(index, taken.finish())),
                Attempt::Pending => any_active = true,
                Attempt::NotActive => {}
            }
        }
        (!any_active).then_some(AnyFinished::NoneActive)
    }

    fn try_some(&self, set: &impl RequestSet, report: &mut impl FnMut(usize, Finish)) -> Option<SomeFinished> {
        let (mut any_active, mut any_taken, mut all_well) = (false, false, true);
        for index in 0..set.len() {
            match self.take_at(set, index) {
                Attempt::Taken(taken) => {
                    let finish = taken.finish();
                    any_taken = true;
                    all_well &= finish.is_ok();
                    report(index, finish);
                }
                Attempt::Pending => any_active = true,
                Attempt::NotActive => {}
            }
        }
        match (any_taken, any_active) {
            (true, _) => Some(SomeFinished::Reported { all_well }),
            (false, true) => Some(SomeFinished::Pending),
            (false, false) => None,
        }
    }

    /// Fetches a result from the set if there is one, and removes a request that is spent by it.
    fn take_at(&self, set: &impl RequestSet, index: usize) -> Attempt {
        if set.take_finished_send(index) {
            return Attempt::Taken(Taken::Finish(Ok(Status::EMPTY)));
        }
        let look = |request: &mut Request| {
            if !request.is_active() {
                return (Attempt::NotActive, false);
            }
            match self.take(request) {
                Some(taken) => (Attempt::Taken(taken), !request.is_persistent()),
                None => (Attempt::Pending, false),
            }
        };
        set.with_and_remove(index, look).unwrap_or(Attempt::NotActive)
    }
}

/// True of a null request, and of one that was over when it was made, which becomes null by this.
#[inline(always)]
fn has_nothing_to_tell(set: &impl RequestSet, index: usize) -> bool {
    set.is_null(index) || set.take_finished_send(index)
}

enum Attempt {
    Taken(Taken),
    Pending,
    NotActive,
}

enum SomeFinished {
    Pending,
    Reported { all_well: bool },
}

/// Requests kept in a vector, for callers without a table of handles.
impl RequestSet for std::cell::RefCell<Vec<Option<Request>>> {
    fn len(&self) -> usize {
        self.borrow().len()
    }

    fn with<R>(&self, index: usize, look: impl FnOnce(&mut Request) -> R) -> Option<R> {
        self.borrow_mut().get_mut(index)?.as_mut().map(look)
    }

    fn remove(&self, index: usize) {
        self.borrow_mut()[index] = None;
    }
}
