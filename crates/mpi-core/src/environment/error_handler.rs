//! Error handlers: what happens when a call fails.
//!
//! A face that has an [`Error`] asks the handler of the object the call was about, and does what
//! the [`Verdict`] says. Handlers of the user run while nothing is borrowed and may call MPI.
//!
//! MPI: §9.3

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::communicator::Comm;
use crate::error::Error;

/// The kinds of object that have error handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// Communicators.
    Comm,
    /// Windows.
    Window,
    /// Files.
    File,
    /// Sessions.
    Session,
}

/// The object a failing call was about; numbers are what the face calls it.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A communicator.
    Comm(&'a Arc<Comm>),
    /// A communicator that could not be made.
    NoComm,
    /// A window.
    Window(usize),
    /// A file.
    File(usize),
    /// A session.
    Session(usize),
}

/// The predefined handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Predefined {
    /// `MPI_ERRORS_ARE_FATAL`: ends all connected processes.
    Fatal,
    /// `MPI_ERRORS_ABORT`: ends the processes of the communicator.
    Abort,
    /// `MPI_ERRORS_RETURN`: the call returns the error.
    Return,
}

impl Predefined {
    /// Its name as a value of `mpi_initial_errhandler`.
    pub fn key(self) -> &'static str {
        match self {
            Predefined::Fatal => "mpi_errors_are_fatal",
            Predefined::Abort => "mpi_errors_abort",
            Predefined::Return => "mpi_errors_return",
        }
    }
}

/// What a face does after a handler has been asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Return the error to the caller.
    Return,
    /// End the processes of the object the call was about.
    AbortMembers,
    /// End all processes.
    AbortAll,
}

/// A handler of the user: gets the object, the error and its number.
pub type HandlerFunction = dyn Fn(Subject<'_>, &Error, i32) + Send + Sync;

/// What happens when a call fails; shared as `Arc<ErrorHandler>` by everything it is set on.
///
/// ```
/// use mpi_core::environment::{ErrorHandler, Subject, Verdict};
/// use mpi_core::ErrorClass;
/// let handler = ErrorHandler::returning();
/// let error = ErrorClass::Rank.error("rank 9 of 4");
/// assert_eq!(handler.judge(Subject::Window(1), &error, 6), Verdict::Return);
/// ```
pub struct ErrorHandler {
    action: Action,
    /// A number the C face stores its handle in; 0 until then.
    pub face_handle: AtomicUsize,
}

enum Action {
    Predefined(Predefined),
    Call { kind: ObjectKind, function: Box<HandlerFunction> },
}

impl ErrorHandler {
    /// One of the predefined handlers.
    pub fn predefined(which: Predefined) -> Arc<Self> {
        Self::with(Action::Predefined(which))
    }

    /// `MPI_ERRORS_ARE_FATAL`.
    pub fn fatal() -> Arc<Self> {
        Self::predefined(Predefined::Fatal)
    }

    /// `MPI_ERRORS_RETURN`.
    pub fn returning() -> Arc<Self> {
        Self::predefined(Predefined::Return)
    }

    /// A handler of the user for one kind of object.
    ///
    /// MPI: §9.3.1 `MPI_Comm_create_errhandler`
    pub fn user(kind: ObjectKind, function: Box<HandlerFunction>) -> Arc<Self> {
        Self::with(Action::Call { kind, function })
    }

    fn with(action: Action) -> Arc<Self> {
        Arc::new(ErrorHandler { action, face_handle: AtomicUsize::new(0) })
    }

    /// Which predefined handler this is, if it is one.
    pub fn as_predefined(&self) -> Option<Predefined> {
        match self.action {
            Action::Predefined(which) => Some(which),
            Action::Call { .. } => None,
        }
    }

    /// True if the handler can be set on objects of this kind.
    pub fn suits(&self, wanted: ObjectKind) -> bool {
        match self.action {
            Action::Predefined(_) => true,
            Action::Call { kind, .. } => kind == wanted,
        }
    }

    /// Tells the handler of an error and says what is to be done now.
    pub fn judge(&self, subject: Subject<'_>, error: &Error, code: i32) -> Verdict {
        match &self.action {
            Action::Predefined(Predefined::Fatal) => Verdict::AbortAll,
            Action::Predefined(Predefined::Abort) => Verdict::AbortMembers,
            Action::Predefined(Predefined::Return) => Verdict::Return,
            Action::Call { function, .. } => {
                function(subject, error, code);
                Verdict::Return
            }
        }
    }
}

impl fmt::Debug for ErrorHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Predefined(which) => write!(f, "ErrorHandler({which:?})"),
            Action::Call { kind, .. } => write!(f, "ErrorHandler(user, {kind:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::error::ErrorClass;

    #[test]
    fn predefined_handlers_differ_in_their_verdict() {
        let error = ErrorClass::Rank.error("x");
        let check = |which, expected| {
            let handler = ErrorHandler::predefined(which);
            assert_eq!(handler.judge(Subject::File(1), &error, 6), expected);
            assert_eq!(handler.as_predefined(), Some(which));
            assert!(handler.suits(ObjectKind::Session));
        };
        check(Predefined::Fatal, Verdict::AbortAll);
        check(Predefined::Abort, Verdict::AbortMembers);
        check(Predefined::Return, Verdict::Return);
    }

    #[test]
    fn a_users_handler_sees_object_and_number_and_then_the_call_returns() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let handler = ErrorHandler::user(
            ObjectKind::Window,
            Box::new(move |subject, error, code| {
                let Subject::Window(window) = subject else { panic!("{subject:?}") };
                log.lock().unwrap().push((window, error.class, code));
            }),
        );
        let error = ErrorClass::Win.error("x");
        assert_eq!(handler.judge(Subject::Window(5), &error, 56), Verdict::Return);
        assert_eq!(*seen.lock().unwrap(), [(5, ErrorClass::Win, 56)]);
        assert!(handler.suits(ObjectKind::Window) && !handler.suits(ObjectKind::Comm));
        assert_eq!(handler.as_predefined(), None);
    }
}
