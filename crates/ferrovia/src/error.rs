//! The one error of this crate.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mpi_core::ErrorClass;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed call: the class of the standard and a sentence that says who, what and with which values.
///
/// An error that is still alive when its [`Universe`](crate::Universe) is dropped is on its way out of the program,
/// usually by `?` in `main`. The job then ends with its message: the other ranks would wait for this one for ever.
#[derive(Clone)]
pub struct Error {
    class: ErrorClass,
    message: String,
    /// Held for its count only.
    _witness: Option<Arc<Witness>>,
}

impl Error {
    /// The class in the sense of the standard.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// What happened, to whom, with which values; without the name of the class.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// An error before there is a universe.
    pub(crate) fn at_start(message: String) -> Error {
        Error { class: ErrorClass::Other, message, _witness: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.message)
    }
}

/// As `Display`, because this is what a `main` that returns an error shows.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

/// Knows whether errors of its universe are alive, and what the latest one said.
#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<String>);

impl Witness {
    /// An error of this universe.
    #[cold]
    pub fn error(self: &Arc<Self>, call: &str, error: mpi_core::Error) -> Error {
        let message = format!("{call}: {}", error.message);
        let error = Error { class: error.class, message, _witness: Some(Arc::clone(self)) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
        error
    }

    /// The text of the latest error if any is alive.
    pub fn living(self: &Arc<Self>) -> Option<String> {
        let text = || self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (Arc::strong_count(self) > 1).then(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_witness_knows_living_errors() {
        let witness = Arc::new(Witness::default());
        assert_eq!(witness.living(), None);
        let error = witness.error("send", ErrorClass::Rank.error("rank 9 of 4"));
        assert_eq!(format!("{error:?}"), "MPI_ERR_RANK: send: rank 9 of 4");
        let copy = error.clone();
        drop(error);
        assert_eq!(witness.living(), Some(copy.to_string()));
        drop(copy);
        assert_eq!(witness.living(), None);
    }

    #[test]
    fn an_error_may_cross_threads() {
        fn check<T: Send + Sync + std::error::Error + 'static>() {}
        check::<Error>();
    }
}
