//! What can go wrong: error classes, rich errors, and the numbers callers see.
//!
//! Every fallible call of this crate returns [`Result`]; its [`Error`] names a class of the
//! standard and says in a sentence what happened. A face turns it into a number with
//! [`ErrorRegistry::record`], and `MPI_Error_string` of that number gives the sentence back.
//!
//! **Invariants**
//! - Every number handed out for a predefined class is at most [`ERROR_LAST_CODE`]; numbers
//!   defined by the user are greater.
//! - The class of a number is found without looking at the recent errors, so it stays true
//!   after the sentence has been forgotten.
//!
//! MPI: §9.4, §9.5

mod class;
mod registry;

pub use class::ErrorClass;
pub use registry::{ERROR_LAST_CODE, ERROR_STRING_MAX_BYTES, ErrorRegistry};

use std::fmt;

/// The result of a call that can fail with an MPI error.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed call: the class of the error and a sentence that assigns blame.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The class in the sense of the standard; `Other` where the user defined the class.
    pub class: ErrorClass,
    /// What happened, to whom, with which values; without the class name.
    pub message: String,
    /// The number a user's callback returned, to be passed on as it is.
    pub code: Option<i32>,
}

impl Error {
    /// An error of a predefined class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Error { class, message: message.into(), code: None }
    }

    /// An error that carries a number chosen by a user's callback.
    ///
    /// The class is the one the number says if it is a predefined one, `Other` otherwise;
    /// [`ErrorRegistry::record`] passes a number that is no bare class on unchanged.
    pub fn from_code(code: i32, message: impl Into<String>) -> Self {
        Error {
            class: registry::predefined_class(code).unwrap_or(ErrorClass::Other),
            message: message.into(),
            code: Some(code),
        }
    }

    /// The same error with `context` and a colon before its message.
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl ErrorClass {
    /// An error of this class.
    pub fn error(self, message: impl Into<String>) -> Error {
        Error::new(self, message)
    }

    /// A failed result of this class.
    ///
    /// # Errors
    /// Always: that is its purpose.
    pub fn fail<T>(self, message: impl Into<String>) -> Result<T> {
        Err(Error::new(self, message))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.message)
    }
}

impl std::error::Error for Error {}

impl From<ErrorClass> for Error {
    fn from(class: ErrorClass) -> Self {
        Error::new(class, class.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_a_sentence() {
        let error = ErrorClass::Rank.error("rank 9 of 4");
        assert_eq!(error.to_string(), "MPI_ERR_RANK: rank 9 of 4");
        let error = error.within("MPI_Send");
        assert_eq!(error.to_string(), "MPI_ERR_RANK: MPI_Send: rank 9 of 4");
    }

    #[test]
    fn a_users_code_is_kept() {
        let error = Error::from_code(20_000, "delete callback");
        assert_eq!((error.class, error.code), (ErrorClass::Other, Some(20_000)));
        let error = Error::from_code(ErrorClass::Arg.value(), "copy callback");
        assert_eq!(error.class, ErrorClass::Arg);
    }
}
