//! Operations of the user's own that look like requests.
//!
//! MPI: §13.2

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Request, State};
use crate::error::Result;
use crate::status::Status;
use crate::world::World;

/// What the user supplies for a generalized request.
pub trait GeneralizedCallbacks: Send + Sync {
    /// Says how the operation went; called each time its status is asked for.
    ///
    /// # Errors
    /// Whatever the user reports.
    fn query(&self) -> Result<Status>;

    /// The request is gone; called once, after the last query.
    ///
    /// # Errors
    /// Whatever the user reports.
    fn free(&self) -> Result<()>;

    /// The request is to be cancelled; `is_complete` tells whether that comes too late.
    ///
    /// # Errors
    /// Whatever the user reports.
    fn cancel(&self, is_complete: bool) -> Result<()>;
}

/// A request that completes when the user says so.
pub struct Generalized {
    callbacks: Box<dyn GeneralizedCallbacks>,
    is_complete: AtomicBool,
    is_released: AtomicBool,
}

impl Generalized {
    fn new(callbacks: Box<dyn GeneralizedCallbacks>) -> Self {
        Generalized { callbacks, is_complete: AtomicBool::new(false), is_released: AtomicBool::new(false) }
    }

    /// True once the user has declared it complete.
    pub fn is_complete(&self) -> bool {
        // Acquire: pairs with the release in `complete`, so that what the user did before is seen.
        self.is_complete.load(Ordering::Acquire)
    }

    pub(crate) fn query(&self) -> Result<Status> {
        self.callbacks.query()
    }

    pub(crate) fn cancel(&self) -> Result<()> {
        self.callbacks.cancel(self.is_complete())
    }

    /// Fetches the status of a complete request for the last time and frees it.
    pub(crate) fn finish(&self) -> Result<Status> {
        let status = self.query();
        let freed = self.callbacks.free();
        let status = status?;
        freed.map(|()| status)
    }

    /// True if the user has let go of it before its completion.
    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }

    /// Frees it now if complete, otherwise at its completion.
    pub(crate) fn release(&self) -> Result<()> {
        self.is_released.store(true, Ordering::Relaxed);
        if self.is_complete() { self.callbacks.free() } else { Ok(()) }
    }
}

impl World {
    /// Makes a request that completes when the user says so.
    ///
    /// MPI: §13.2 `MPI_Grequest_start`
    pub fn start_generalized(&self, callbacks: Box<dyn GeneralizedCallbacks>) -> Request {
        let state = State::Generalized(Arc::new(Generalized::new(callbacks)));
        Request { state, call: "MPI_Grequest_start" }
    }

    /// Lets go of a generalized request that is still to be declared complete, which frees it.
    ///
    /// # Errors
    /// What the free callback returns, if it is complete already.
    ///
    /// MPI: §13.2, §3.7.3 `MPI_Request_free`
    pub fn release_generalized(&self, request: &Generalized) -> Result<()> {
        request.release()
    }

    /// Declares a generalized request complete.
    ///
    /// # Errors
    /// What the free callback returns, if the request was released before.
    ///
    /// MPI: §13.2 `MPI_Grequest_complete`
    pub fn complete_generalized(&self, request: &Generalized) -> Result<()> {
        // Release: pairs with the acquire in `is_complete`.
        request.is_complete.store(true, Ordering::Release);
        self.wake_sleepers();
        if request.is_released() { request.callbacks.free() } else { Ok(()) }
    }
}
