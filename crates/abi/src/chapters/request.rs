//! Requests: waiting, testing, starting, cancelling, and requests of the user's own.
//!
//! MPI: §3.7.3 to §3.9, §13.2

use std::ffi::c_void;

use mpi_core::constants::UNDEFINED;
use mpi_core::request::{AnyFinished, Failure, Finish, GeneralizedCallbacks};
use mpi_core::{Error, ErrorClass, Request, RequestSet, Result, Status};

use crate::face::{CStatus, Face, Out, OutArray, OutHandle, Requests, StatusOut, StatusesOut};
use crate::types::{MPI_Grequest_cancel_function, MPI_Grequest_free_function, MPI_Grequest_query_function};

#[inline]
pub(crate) fn wait(face: &Face, request: Requests<'_>, status: StatusOut) -> Result<()> {
    one(face, face.world().wait(&request), &status)
}

#[inline(always)]
pub(crate) fn test_at_once(_face: &Face, request: Requests<'_>, flag: Out<i32>, status: StatusOut) -> Option<()> {
    if !request.is_null(0) {
        return None;
    }
    flag.set_flag(true);
    status.set(&Status::EMPTY);
    Some(())
}

pub(crate) fn test(face: &Face, request: Requests<'_>, flag: Out<i32>, status: StatusOut) -> Result<()> {
    if test_at_once(face, request, flag, status).is_some() {
        return Ok(());
    }
    let finish = face.world().test(&request);
    flag.set_flag(finish.is_some());
    finish.map_or(Ok(()), |finish| one(face, finish, &status))
}

pub(crate) fn waitany(
    face: &Face,
    _count: i32,
    requests: Requests<'_>,
    index: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    any(face, face.world().wait_any(&requests), &index, &status)
}

pub(crate) fn testany(
    face: &Face,
    _count: i32,
    requests: Requests<'_>,
    index: Out<i32>,
    flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    let finished = face.world().test_any(&requests);
    flag.set_flag(finished.is_some());
    match finished {
        Some(finished) => any(face, finished, &index, &status),
        None => {
            index.set(UNDEFINED);
            Ok(())
        }
    }
}

/// All of the requests are null, as the checks of a first attempt have found.
#[inline(always)]
pub(crate) fn waitall_at_once(_face: &Face, _count: i32, requests: Requests<'_>, statuses: StatusesOut) -> Option<()> {
    if !statuses.is_ignored() {
        (0..requests.len()).for_each(|index| statuses.set(index, &Status::EMPTY));
    }
    Some(())
}

pub(crate) fn waitall(face: &Face, _count: i32, requests: Requests<'_>, statuses: StatusesOut) -> Result<()> {
    let mut many = Many::new(face, statuses);
    face.world().wait_all(&requests, |index, finish| many.put(index, finish));
    many.verdict()
}

pub(crate) fn testall(
    face: &Face,
    _count: i32,
    requests: Requests<'_>,
    flag: Out<i32>,
    statuses: StatusesOut,
) -> Result<()> {
    let mut many = Many::new(face, statuses);
    let outcome = face.world().test_all(&requests, |index, finish| many.put(index, finish));
    flag.set_flag(outcome.is_some());
    many.verdict()
}

pub(crate) fn waitsome(
    face: &Face,
    _incount: i32,
    requests: Requests<'_>,
    outcount: Out<i32>,
    indices: OutArray<i32>,
    statuses: StatusesOut,
) -> Result<()> {
    let mut many = Many::new(face, statuses);
    let outcome = face.world().wait_some(&requests, |index, finish| many.append(&indices, index, finish));
    outcount.set(if outcome.is_some() { many.reported as i32 } else { UNDEFINED });
    many.verdict()
}

pub(crate) fn testsome(
    face: &Face,
    _incount: i32,
    requests: Requests<'_>,
    outcount: Out<i32>,
    indices: OutArray<i32>,
    statuses: StatusesOut,
) -> Result<()> {
    let mut many = Many::new(face, statuses);
    let outcome = face.world().test_some(&requests, |index, finish| many.append(&indices, index, finish));
    outcount.set(if outcome.is_some() { many.reported as i32 } else { UNDEFINED });
    many.verdict()
}

pub(crate) fn start(face: &Face, request: Requests<'_>) -> Result<()> {
    face.world().start_all(&request)
}

pub(crate) fn startall(face: &Face, _count: i32, requests: Requests<'_>) -> Result<()> {
    face.world().start_all(&requests)
}

pub(crate) fn request_free(face: &Face, request: Requests<'_>) -> Result<()> {
    let generalized = request.with(0, |request| request.generalized().cloned()).flatten();
    if let Some(generalized) = generalized.filter(|generalized| !generalized.is_complete()) {
        // Whoever completes it has a copy of the handle.
        request.forget(0);
        return face.world().release_generalized(&generalized);
    }
    request.with(0, |request| request.check_may_be_freed()).transpose()?;
    match request.take(0) {
        Some(request) => face.world().free_request(request),
        None => ErrorClass::Request.fail("the request is MPI_REQUEST_NULL"),
    }
}

pub(crate) fn cancel(face: &Face, request: Requests<'_>) -> Result<()> {
    if request.with(0, |_| ()).is_none() {
        return ErrorClass::Request.fail("the request is MPI_REQUEST_NULL");
    }
    face.world().cancel(&request)
}

pub(crate) fn request_get_status(face: &Face, request: Requests<'_>, flag: Out<i32>, status: StatusOut) -> Result<()> {
    let found = face.world().request_status(&request)?;
    flag.set_flag(found.is_some());
    if let Some(found) = found {
        set_status(&status, &found);
    }
    Ok(())
}

pub(crate) fn request_get_status_any(
    face: &Face,
    _count: i32,
    requests: Requests<'_>,
    index: Out<i32>,
    flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    let found = face.world().request_status_any(&requests)?;
    flag.set_flag(found.is_some());
    index.set(found.and_then(|(index, _)| index).map_or(UNDEFINED, |index| index as i32));
    if let Some((_, found)) = found {
        set_status(&status, &found);
    }
    Ok(())
}

pub(crate) fn request_get_status_all(
    face: &Face,
    _count: i32,
    requests: Requests<'_>,
    flag: Out<i32>,
    statuses: StatusesOut,
) -> Result<()> {
    let all = face.world().request_status_all(&requests, |index, status| statuses.set(index, &status))?;
    flag.set_flag(all);
    Ok(())
}

pub(crate) fn request_get_status_some(
    face: &Face,
    _incount: i32,
    requests: Requests<'_>,
    outcount: Out<i32>,
    indices: OutArray<i32>,
    statuses: StatusesOut,
) -> Result<()> {
    let mut found = 0;
    let any_active = face.world().request_status_some(&requests, |index, status| {
        indices.set(found, index as i32);
        statuses.set(found, &status);
        found += 1;
    })?;
    outcount.set(if any_active { found as i32 } else { UNDEFINED });
    Ok(())
}

pub(crate) fn grequest_start(
    face: &Face,
    query: Option<MPI_Grequest_query_function>,
    free: Option<MPI_Grequest_free_function>,
    cancel: Option<MPI_Grequest_cancel_function>,
    extra_state: *mut c_void,
    request: OutHandle<Request>,
) -> Result<()> {
    let callbacks = Callbacks { query, free, cancel, extra_state: extra_state.expose_provenance() };
    request.set(face, face.world().start_generalized(Box::new(callbacks)))
}

pub(crate) fn grequest_complete(face: &Face, request: Requests<'_>) -> Result<()> {
    match request.with(0, |request| request.generalized().cloned()).flatten() {
        Some(generalized) => {
            if generalized.is_released() {
                drop(request.take(0));
            }
            face.world().complete_generalized(&generalized)
        }
        None => ErrorClass::Request.fail("the request was not made by MPI_Grequest_start"),
    }
}

/// The result of a single operation.
#[inline]
fn one(face: &Face, finish: Finish, status: &StatusOut) -> Result<()> {
    match finish {
        Ok(finished) => {
            set_status(status, &finished);
            Ok(())
        }
        Err(failure) => {
            status.set(&failure.status);
            Err(of_operation(face, *failure))
        }
    }
}

/// Writes a status; an empty one says success, otherwise the error field is left alone.
///
/// MPI: §3.7.3
#[inline]
fn set_status(to: &StatusOut, status: &Status) {
    to.set(status);
    if *status == Status::EMPTY {
        to.set_error(0);
    }
}

/// The result of one operation of several.
fn any(face: &Face, finished: AnyFinished, index: &Out<i32>, status: &StatusOut) -> Result<()> {
    match finished {
        AnyFinished::NoneActive => {
            index.set(UNDEFINED);
            set_status(status, &Status::EMPTY);
            Ok(())
        }
        AnyFinished::One(at, finish) => {
            index.set(at as i32);
            one(face, finish, status)
        }
    }
}

/// The error of an operation, to be judged by the handler of its communicator.
#[cold]
fn of_operation(face: &Face, failure: Failure) -> Error {
    face.blame(failure.comm.as_ref());
    failure.error
}

/// The results of several operations.
struct Many<'a> {
    face: &'a Face,
    statuses: StatusesOut,
    reported: usize,
    failures: usize,
    first: Option<Failure>,
}

impl<'a> Many<'a> {
    fn new(face: &'a Face, statuses: StatusesOut) -> Self {
        Many { face, statuses, reported: 0, failures: 0, first: None }
    }

    /// The next completed operation, with its index in the list of requests.
    fn append(&mut self, indices: &OutArray<i32>, index: usize, finish: Finish) {
        indices.set(self.reported, index as i32);
        self.put(self.reported, finish);
    }

    #[inline(always)]
    fn put(&mut self, place: usize, finish: Finish) {
        self.reported += 1;
        match finish {
            Ok(status) => self.statuses.set(place, &status),
            Err(failure) => self.put_failure(place, *failure),
        }
    }

    #[cold]
    fn put_failure(&mut self, place: usize, failure: Failure) {
        self.statuses.set_failed(place, &failure.status, self.face.code(&failure.error));
        self.failures += 1;
        self.first.get_or_insert(failure);
    }

    /// Success, or `MPI_ERR_IN_STATUS` with the first failure in words.
    fn verdict(self) -> Result<()> {
        let Some(first) = self.first else { return Ok(()) };
        let others = self.failures - 1;
        let mut error = of_operation(self.face, first);
        if others > 0 {
            error.message = format!("{}; and {others} more failed", error.message);
        }
        ErrorClass::InStatus.fail(error.to_string())
    }
}

/// The callbacks of a generalized request of a C program.
struct Callbacks {
    query: Option<MPI_Grequest_query_function>,
    free: Option<MPI_Grequest_free_function>,
    cancel: Option<MPI_Grequest_cancel_function>,
    /// The address of the user's state; an integer, so that the callbacks can be called by any thread.
    extra_state: usize,
}

impl Callbacks {
    fn extra_state(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.extra_state)
    }
}

impl GeneralizedCallbacks for Callbacks {
    fn query(&self) -> Result<Status> {
        let mut status = CStatus::new(&Status::EMPTY);
        match self.query {
            // SAFETY: the user's function, with the state and a status as the standard has it.
            Some(query) => callback("query", unsafe { query(self.extra_state(), &mut status) })?,
            None => return Ok(Status::EMPTY),
        }
        Ok(status.to_status())
    }

    fn free(&self) -> Result<()> {
        match self.free {
            // SAFETY: the user's function, with its state.
            Some(free) => callback("free", unsafe { free(self.extra_state()) }),
            None => Ok(()),
        }
    }

    fn cancel(&self, is_complete: bool) -> Result<()> {
        match self.cancel {
            // SAFETY: the user's function, with its state.
            Some(cancel) => callback("cancel", unsafe { cancel(self.extra_state(), i32::from(is_complete)) }),
            None => Ok(()),
        }
    }
}

fn callback(which: &str, code: i32) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::from_code(code, format!("the {which} callback of a generalized request returned {code}")))
}
