//! Whether the library is initialised, and by which thread.
//!
//! MPI: §11.2, §11.6

use std::sync::OnceLock;
use std::thread::ThreadId;

use crate::error::{ErrorClass, Result};
use crate::world::ThreadLevel;

/// How far a process has come between `MPI_Init` and `MPI_Finalize`; can be asked at any time by
/// any thread.
///
/// ```
/// use mpi_core::ThreadLevel;
/// use mpi_core::environment::Lifecycle;
/// let lifecycle = Lifecycle::new();
/// assert!(!lifecycle.is_initialized());
/// lifecycle.initialized(ThreadLevel::Single).unwrap();
/// assert!(lifecycle.is_main_thread());
/// lifecycle.finalized().unwrap();
/// assert!(lifecycle.is_finalized());
/// ```
#[derive(Debug, Default)]
pub struct Lifecycle {
    start: OnceLock<(ThreadLevel, ThreadId)>,
    end: OnceLock<()>,
}

impl Lifecycle {
    /// Before initialisation.
    pub const fn new() -> Self {
        Lifecycle { start: OnceLock::new(), end: OnceLock::new() }
    }

    /// Notes that this thread has initialised the library.
    ///
    /// # Errors
    /// `Other` when that has happened before.
    pub fn initialized(&self, level: ThreadLevel) -> Result<()> {
        match self.start.set((level, std::thread::current().id())) {
            Ok(()) => Ok(()),
            Err(_) => ErrorClass::Other.fail("MPI has been initialised before"),
        }
    }

    /// Notes that the library has been finalised.
    ///
    /// # Errors
    /// `Other` when that has happened before, or before initialisation.
    pub fn finalized(&self) -> Result<()> {
        if !self.is_initialized() {
            return ErrorClass::Other.fail("MPI has not been initialised");
        }
        match self.end.set(()) {
            Ok(()) => Ok(()),
            Err(()) => ErrorClass::Other.fail("MPI has been finalised before"),
        }
    }

    /// True from initialisation on, even after finalisation.
    ///
    /// MPI: §11.2.3 `MPI_Initialized`
    pub fn is_initialized(&self) -> bool {
        self.start.get().is_some()
    }

    /// True from finalisation on.
    ///
    /// MPI: §11.2.3 `MPI_Finalized`
    pub fn is_finalized(&self) -> bool {
        self.end.get().is_some()
    }

    /// What was granted at initialisation.
    ///
    /// MPI: §11.6.2 `MPI_Query_thread`
    pub fn thread_level(&self) -> Option<ThreadLevel> {
        self.start.get().map(|(level, _)| *level)
    }

    /// True for the thread that has initialised the library.
    ///
    /// MPI: §11.6.2 `MPI_Is_thread_main`
    pub fn is_main_thread(&self) -> bool {
        self.start.get().is_some_and(|(_, thread)| *thread == std::thread::current().id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_taken_once() {
        let lifecycle = Lifecycle::new();
        assert!(lifecycle.finalized().is_err());
        assert!(!lifecycle.is_main_thread() && lifecycle.thread_level().is_none());
        lifecycle.initialized(ThreadLevel::Multiple).unwrap();
        assert!(lifecycle.initialized(ThreadLevel::Single).is_err());
        assert_eq!(lifecycle.thread_level(), Some(ThreadLevel::Multiple));
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| lifecycle.is_main_thread()).join();
            assert!(!elsewhere.unwrap());
        });
        assert!(!lifecycle.is_finalized());
        lifecycle.finalized().unwrap();
        assert!(lifecycle.finalized().is_err());
        assert!(lifecycle.is_initialized() && lifecycle.is_finalized());
    }
}
