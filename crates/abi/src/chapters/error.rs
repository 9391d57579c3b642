//! Error codes, classes and strings; error handlers.
//!
//! MPI: §9.3 to §9.5

use std::ffi::{CStr, c_int};
use std::sync::Arc;

use mpi_core::environment::{ErrorHandler, ObjectKind, Subject, Verdict};
use mpi_core::{Comm, Error, ErrorClass, Result, Session};

use crate::constants::MPI_COMM_NULL;
use crate::face::objects::shown_handle;
use crate::face::{Face, File, Handle, InOutHandle, Out, OutHandle, StringOut, Win};
use crate::types::{
    MPI_Comm_errhandler_function, MPI_File_errhandler_function, MPI_Session_errhandler_function,
    MPI_Win_errhandler_function,
};

pub(crate) fn error_class(face: &Face, errorcode: i32, errorclass: Out<i32>) -> Result<()> {
    errorclass.set(face.process().registry.error_class(errorcode)?);
    Ok(())
}

pub(crate) fn error_string(face: &Face, errorcode: i32, string: StringOut<'_>, resultlen: Out<i32>) -> Result<()> {
    let text = face.process().registry.error_string(errorcode)?;
    resultlen.set(string.set(&text));
    Ok(())
}

pub(crate) fn add_error_class(face: &Face, errorclass: Out<i32>) -> Result<()> {
    errorclass.set(face.process().registry.add_error_class()?);
    Ok(())
}

pub(crate) fn remove_error_class(face: &Face, errorclass: i32) -> Result<()> {
    face.process().registry.remove_error_class(errorclass)
}

pub(crate) fn add_error_code(face: &Face, errorclass: i32, errorcode: Out<i32>) -> Result<()> {
    errorcode.set(face.process().registry.add_error_code(errorclass)?);
    Ok(())
}

pub(crate) fn remove_error_code(face: &Face, errorcode: i32) -> Result<()> {
    face.process().registry.remove_error_code(errorcode)
}

pub(crate) fn add_error_string(face: &Face, errorcode: i32, string: &CStr) -> Result<()> {
    face.process().registry.add_error_string(errorcode, &string.to_string_lossy())
}

pub(crate) fn remove_error_string(face: &Face, errorcode: i32) -> Result<()> {
    face.process().registry.remove_error_string(errorcode)
}

pub(crate) fn comm_create_errhandler(
    face: &Face,
    comm_errhandler_fn: Option<MPI_Comm_errhandler_function>,
    errhandler: OutHandle<ErrorHandler>,
) -> Result<()> {
    let function = given(comm_errhandler_fn)?;
    let handler = ErrorHandler::user(
        ObjectKind::Comm,
        Box::new(move |subject, _, code| {
            let mut comm = match subject {
                Subject::Comm(comm) => shown_handle::<Comm>(comm),
                Subject::NoComm => Handle::new(MPI_COMM_NULL),
                _ => return,
            };
            let mut code: c_int = code;
            // SAFETY: the program's own function, called as the standard says.
            unsafe { function(&mut comm, &mut code) };
        }),
    );
    errhandler.set(face, handler)
}

pub(crate) fn win_create_errhandler(
    face: &Face,
    win_errhandler_fn: Option<MPI_Win_errhandler_function>,
    errhandler: OutHandle<ErrorHandler>,
) -> Result<()> {
    let function = given(win_errhandler_fn)?;
    let handler = ErrorHandler::user(
        ObjectKind::Window,
        Box::new(move |subject, _, code| {
            let Subject::Window(window) = subject else { return };
            let (mut window, mut code): (Handle<Win>, c_int) = (Handle::new(window), code);
            // SAFETY: the program's own function, called as the standard says.
            unsafe { function(&mut window, &mut code) };
        }),
    );
    errhandler.set(face, handler)
}

pub(crate) fn file_create_errhandler(
    face: &Face,
    file_errhandler_fn: Option<MPI_File_errhandler_function>,
    errhandler: OutHandle<ErrorHandler>,
) -> Result<()> {
    let function = given(file_errhandler_fn)?;
    let handler = ErrorHandler::user(
        ObjectKind::File,
        Box::new(move |subject, _, code| {
            let Subject::File(file) = subject else { return };
            let (mut file, mut code): (Handle<File>, c_int) = (Handle::new(file), code);
            // SAFETY: the program's own function, called as the standard says.
            unsafe { function(&mut file, &mut code) };
        }),
    );
    errhandler.set(face, handler)
}

pub(crate) fn session_create_errhandler(
    face: &Face,
    session_errhandler_fn: Option<MPI_Session_errhandler_function>,
    errhandler: OutHandle<ErrorHandler>,
) -> Result<()> {
    let function = given(session_errhandler_fn)?;
    let handler = ErrorHandler::user(
        ObjectKind::Session,
        Box::new(move |subject, _, code| {
            let Subject::Session(session) = subject else { return };
            let (mut session, mut code): (Handle<Session>, c_int) = (Handle::new(session), code);
            // SAFETY: the program's own function, called as the standard says.
            unsafe { function(&mut session, &mut code) };
        }),
    );
    errhandler.set(face, handler)
}

pub(crate) fn errhandler_free(face: &Face, errhandler: InOutHandle<ErrorHandler>) -> Result<()> {
    errhandler.release(face)
}

pub(crate) fn comm_set_errhandler(_face: &Face, comm: &Arc<Comm>, errhandler: &Arc<ErrorHandler>) -> Result<()> {
    if !errhandler.suits(ObjectKind::Comm) {
        return ErrorClass::Errhandler.fail("errhandler was not created for communicators");
    }
    comm.set_error_handler(Arc::clone(errhandler));
    Ok(())
}

pub(crate) fn comm_get_errhandler(face: &Face, comm: &Arc<Comm>, errhandler: OutHandle<ErrorHandler>) -> Result<()> {
    errhandler.set(face, comm.error_handler())
}

pub(crate) fn comm_call_errhandler(face: &Face, comm: &Arc<Comm>, errorcode: i32) -> Result<()> {
    call(face, &comm.error_handler(), Subject::Comm(comm), errorcode)
}

pub(crate) fn session_set_errhandler(
    _face: &Face,
    session: &Arc<Session>,
    errhandler: &Arc<ErrorHandler>,
) -> Result<()> {
    if !errhandler.suits(ObjectKind::Session) {
        return ErrorClass::Errhandler.fail("errhandler was not created for sessions");
    }
    session.set_error_handler(Arc::clone(errhandler));
    Ok(())
}

pub(crate) fn session_get_errhandler(
    face: &Face,
    session: &Arc<Session>,
    errhandler: OutHandle<ErrorHandler>,
) -> Result<()> {
    errhandler.set(face, session.error_handler())
}

pub(crate) fn session_call_errhandler(face: &Face, session: &Arc<Session>, errorcode: i32) -> Result<()> {
    call(face, &session.error_handler(), Subject::Session(shown_handle::<Session>(session).value), errorcode)
}

/// Calls a handler as if a call about `subject` had failed.
fn call(face: &Face, handler: &ErrorHandler, subject: Subject<'_>, errorcode: i32) -> Result<()> {
    let text = face.process().registry.error_string(errorcode)?;
    let error = Error::from_code(errorcode, text);
    match handler.judge(subject, &error, errorcode) {
        Verdict::Return => Ok(()),
        // The handler is asked again on the way out, and ends the process with this error.
        Verdict::AbortAll | Verdict::AbortMembers => Err(error),
    }
}

fn given<F>(function: Option<F>) -> Result<F> {
    function.ok_or_else(|| ErrorClass::Arg.error("the error handler function is null"))
}
