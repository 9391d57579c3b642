//! Which table holds the objects of which kind, and places for their handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datatype::{Datatype, Op};
use mpi_core::environment::{ErrorHandler, Predefined};
use mpi_core::group::Group;
use mpi_core::info::Info;
use mpi_core::point_to_point::Message;
use mpi_core::{Comm, ErrorClass, Request, Result, Session};

use super::check;
use super::entry::Face;
use super::handle::{FINISHED_SEND, Handle, Kind, PREDEFINED_MAX};
use super::process::Process;
use super::table::{Held, Table};
use crate::constants::*;

/// Windows: no objects yet.
pub enum Win {}
/// Files: no objects yet.
pub enum File {}

/// Something that C programs hold handles of.
pub trait Object: Sized + 'static {
    /// What the table keeps, and what calls get to see.
    type Value: 'static;
    /// Stands in the handle.
    const KIND: Kind;
    /// The null handle.
    const NULL: usize;
    /// The class of errors about handles of this kind.
    const CLASS: ErrorClass;

    /// Where the objects are kept.
    #[allow(private_interfaces, reason = "tables are the face's own")]
    fn table(process: &'static Process) -> &'static Table<Self::Value>;

    /// The predefined handle, if the object is predefined.
    fn predefined_handle(_value: &Self::Value) -> Option<usize> {
        None
    }

    /// False while the object is still being made.
    fn is_ready(_value: &Self::Value) -> bool {
        true
    }

    /// Where the object remembers its handle.
    fn cookie(_value: &Self::Value) -> Option<&AtomicUsize> {
        None
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Comm {
    type Value = Arc<Comm>;
    const KIND: Kind = Kind::Comm;
    const NULL: usize = MPI_COMM_NULL;
    const CLASS: ErrorClass = ErrorClass::Comm;

    #[inline]
    fn table(process: &'static Process) -> &'static Table<Arc<Comm>> {
        &process.comms
    }

    fn is_ready(comm: &Arc<Comm>) -> bool {
        comm.id().is_some()
    }

    fn cookie(comm: &Arc<Comm>) -> Option<&AtomicUsize> {
        Some(&comm.face_handle)
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Group {
    type Value = Arc<Group>;
    const KIND: Kind = Kind::Group;
    const NULL: usize = MPI_GROUP_NULL;
    const CLASS: ErrorClass = ErrorClass::Group;

    fn table(process: &'static Process) -> &'static Table<Arc<Group>> {
        &process.groups
    }

    fn predefined_handle(group: &Arc<Group>) -> Option<usize> {
        (group.size() == 0).then_some(MPI_GROUP_EMPTY)
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Datatype {
    type Value = Arc<Datatype>;
    const KIND: Kind = Kind::Datatype;
    const NULL: usize = MPI_DATATYPE_NULL;
    const CLASS: ErrorClass = ErrorClass::Type;

    #[inline]
    fn table(process: &'static Process) -> &'static Table<Arc<Datatype>> {
        &process.datatypes
    }

    fn predefined_handle(datatype: &Arc<Datatype>) -> Option<usize> {
        datatype.as_basic().map(|basic| basic.abi_handle())
    }

    fn cookie(datatype: &Arc<Datatype>) -> Option<&AtomicUsize> {
        Some(&datatype.face_handle)
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Op {
    type Value = Op;
    const KIND: Kind = Kind::Op;
    const NULL: usize = MPI_OP_NULL;
    const CLASS: ErrorClass = ErrorClass::Op;

    #[inline]
    fn table(process: &'static Process) -> &'static Table<Op> {
        &process.ops
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Info {
    type Value = Arc<Info>;
    const KIND: Kind = Kind::Info;
    const NULL: usize = MPI_INFO_NULL;
    const CLASS: ErrorClass = ErrorClass::Info;

    fn table(process: &'static Process) -> &'static Table<Arc<Info>> {
        &process.infos
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for ErrorHandler {
    type Value = Arc<ErrorHandler>;
    const KIND: Kind = Kind::Errhandler;
    const NULL: usize = MPI_ERRHANDLER_NULL;
    const CLASS: ErrorClass = ErrorClass::Errhandler;

    fn table(process: &'static Process) -> &'static Table<Arc<ErrorHandler>> {
        &process.error_handlers
    }

    fn predefined_handle(handler: &Arc<ErrorHandler>) -> Option<usize> {
        handler.as_predefined().map(|which| match which {
            Predefined::Fatal => MPI_ERRORS_ARE_FATAL,
            Predefined::Abort => MPI_ERRORS_ABORT,
            Predefined::Return => MPI_ERRORS_RETURN,
        })
    }

    fn cookie(handler: &Arc<ErrorHandler>) -> Option<&AtomicUsize> {
        Some(&handler.face_handle)
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Request {
    type Value = Request;
    const KIND: Kind = Kind::Request;
    const NULL: usize = MPI_REQUEST_NULL;
    const CLASS: ErrorClass = ErrorClass::Request;

    #[inline]
    fn table(process: &'static Process) -> &'static Table<Request> {
        &process.requests
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Message {
    type Value = Message;
    const KIND: Kind = Kind::Message;
    const NULL: usize = MPI_MESSAGE_NULL;
    const CLASS: ErrorClass = ErrorClass::Request;

    fn table(process: &'static Process) -> &'static Table<Message> {
        &process.messages
    }

    fn predefined_handle(message: &Message) -> Option<usize> {
        message.is_no_proc().then_some(MPI_MESSAGE_NO_PROC)
    }
}

#[allow(private_interfaces, reason = "tables are the face's own")]
impl Object for Session {
    type Value = Arc<Session>;
    const KIND: Kind = Kind::Session;
    const NULL: usize = MPI_SESSION_NULL;
    const CLASS: ErrorClass = ErrorClass::Session;

    fn table(process: &'static Process) -> &'static Table<Arc<Session>> {
        &process.sessions
    }

    fn cookie(session: &Arc<Session>) -> Option<&AtomicUsize> {
        Some(&session.face_handle)
    }
}

impl Process {
    /// The handle of an object: its own if it has one that is live, else a new one; to be released.
    ///
    /// # Errors
    /// `NoMem` if there are too many objects of the kind.
    #[inline]
    pub fn handle_for<K: Object>(&'static self, value: K::Value) -> Result<usize> {
        if let Some(predefined) = K::predefined_handle(&value) {
            return Ok(predefined);
        }
        let table = K::table(self);
        // Relaxed: read and written inside the gate only.
        let known = K::cookie(&value).map_or(0, |cookie| cookie.load(Ordering::Relaxed));
        if known != 0 && table.retain(known) {
            return Ok(known);
        }
        let remember = |value: &K::Value, handle| {
            if let Some(cookie) = K::cookie(value) {
                cookie.store(handle, Ordering::Relaxed);
            }
        };
        let handle =
            if K::is_ready(&value) { table.insert(value, remember) } else { table.insert_dormant(value, remember) };
        handle.ok_or_else(too_many::<K>)
    }

    /// Takes back a handle that a callback was shown.
    pub fn release_shown<K: Object>(&'static self, handle: usize) {
        if handle > PREDEFINED_MAX {
            K::table(self).release(handle).expect("it was retained for the callback");
        }
    }
}

#[cold]
fn too_many<K: Object>() -> mpi_core::Error {
    ErrorClass::NoMem.error(format!("there are too many objects of the kind {}", K::KIND.noun()))
}

impl Face {
    /// As [`Process::handle_for`].
    ///
    /// # Errors
    /// `NoMem` if there are too many objects of the kind.
    #[inline]
    pub fn handle_for<K: Object>(&self, value: K::Value) -> Result<usize> {
        self.process().handle_for::<K>(value)
    }

    /// The handle of an object as a callback of the user is shown it; no new reference to it. Null
    /// if the object has none.
    pub fn shown_handle<K: Object>(&self, value: &K::Value) -> Handle<K> {
        shown_handle(value)
    }
}

/// As [`Face::shown_handle`], for callbacks that were made long before they are called.
pub fn shown_handle<K: Object>(value: &K::Value) -> Handle<K> {
    let known = || K::cookie(value).map(|cookie| cookie.load(Ordering::Relaxed)).filter(|known| *known != 0);
    Handle::new(K::predefined_handle(value).or_else(known).unwrap_or(K::NULL))
}

/// Where the handle of a new object is to be written.
pub struct OutHandle<K>(*mut Handle<K>);

impl<K: Object> OutHandle<K> {
    /// # Safety
    /// `at` must be valid for writing for the length of the call.
    #[inline]
    pub(crate) unsafe fn new(at: *mut Handle<K>) -> Self {
        OutHandle(at)
    }

    /// Gives the program a handle of `value`.
    ///
    /// # Errors
    /// `NoMem` if there are too many objects of the kind.
    #[inline]
    pub fn set(&self, face: &Face, value: K::Value) -> Result<()> {
        self.write(face.handle_for::<K>(value)?);
        Ok(())
    }

    /// Gives the program the handle it has of `value` once more, without a new reference.
    pub fn show(&self, face: &Face, value: &K::Value) {
        self.write(face.shown_handle::<K>(value).value);
    }

    /// Writes the null handle.
    pub fn set_null(&self) {
        self.write(K::NULL);
    }

    /// One or the other.
    ///
    /// # Errors
    /// As [`OutHandle::set`].
    pub fn set_or_null(&self, face: &Face, value: Option<K::Value>) -> Result<()> {
        match value {
            Some(value) => self.set(face, value),
            None => {
                self.set_null();
                Ok(())
            }
        }
    }

    #[inline]
    fn write(&self, value: usize) {
        // SAFETY: valid for writing by the contract of `new`.
        unsafe { self.0.write(Handle::new(value)) }
    }
}

impl OutHandle<Request> {
    /// Gives the program the handle of a request that is made where it is kept.
    ///
    /// # Errors
    /// As [`OutHandle::set`].
    #[inline(always)]
    pub fn set_new(&self, face: &Face, make: impl FnOnce() -> Request) -> Result<()> {
        let handle = face.process().requests.insert_with(make, |_, _| ()).ok_or_else(too_many::<Request>)?;
        self.write(handle);
        Ok(())
    }

    /// Gives the program the handle of a send that is over.
    #[inline]
    pub fn set_finished_send(&self) {
        self.write(FINISHED_SEND);
    }
}

/// A handle that a call uses and may take away, as the freeing calls do.
pub struct InOutHandle<K: Object> {
    at: *mut Handle<K>,
    held: Held<K::Value>,
}

impl<K: Object> InOutHandle<K> {
    /// # Safety
    /// `at` must be valid for writing for the length of the call.
    pub(crate) unsafe fn new(at: *mut Handle<K>, held: Held<K::Value>) -> Self {
        InOutHandle { at, held }
    }

    /// The object.
    pub fn object(&self) -> &K::Value {
        &self.held
    }

    /// True if the standard made the handle.
    pub fn is_predefined(&self) -> bool {
        self.held.handle() <= PREDEFINED_MAX
    }

    /// Lets go of the handle and writes null; the object stays as long as something needs it.
    ///
    /// # Errors
    /// The kind's class if the object is predefined; error handlers and the empty group may be
    /// released all the same, because calls hand them out. As for any freed handle, if the call has run code of the user
    /// that freed it.
    pub fn release(self, face: &Face) -> Result<()> {
        if self.is_predefined() && !matches!(K::KIND, Kind::Errhandler | Kind::Group) {
            let name = check::handle_name(self.held.handle());
            return K::CLASS.fail(format!("{name} is predefined and cannot be freed"));
        }
        if !self.is_predefined() {
            let handle = self.held.handle();
            let released = K::table(face.process()).release(handle);
            released.map_err(|why| check::bad_object::<K>(handle, why))?;
        }
        // SAFETY: valid for writing by the contract of `new`.
        unsafe { self.at.write(Handle::new(K::NULL)) };
        Ok(())
    }
}

/// The handle of a message that a call will receive.
pub struct MessageInOut(*mut Handle<Message>);

impl MessageInOut {
    /// # Safety
    /// `at` must be valid for reading and writing for the length of the call.
    pub(crate) unsafe fn new(at: *mut Handle<Message>) -> Self {
        MessageInOut(at)
    }

    /// Takes the message and writes null.
    ///
    /// # Errors
    /// `Request` if there is none.
    pub fn take(&self, face: &Face) -> Result<Message> {
        // SAFETY: valid for reading by the contract of `new`.
        let handle = unsafe { self.0.read() };
        let message = match handle.value {
            MPI_MESSAGE_NO_PROC => Message::NO_PROC,
            value => face.process().messages.take(value).map_err(|why| check::bad_object::<Message>(value, why))?,
        };
        // SAFETY: valid for writing by the contract of `new`.
        unsafe { self.0.write(Handle::new(MPI_MESSAGE_NULL)) };
        Ok(message)
    }
}
