//! Entering and leaving a call; what happens when it fails.
//!
//! A panic never crosses into the C program: entry points are `extern "C"`, so unwinding stops there
//! and ends the process, after the panic hook of [`announce_panics`] has said that it is our bug.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Once};
use std::time::Duration;

use base::config::InitialErrors;
use base::{GateGuard, ending};
use mpi_core::environment::{ErrorHandler, ObjectKind, Predefined, Subject, Verdict, processor_name};
use mpi_core::{Comm, Error, ErrorClass, Result, Session, World};

use super::handle::Handle;
use super::process::Process;
use crate::constants::MPI_SESSION_NULL;

/// A call of the standard, as messages name it.
pub struct Call {
    /// Its C name.
    pub name: &'static str,
    /// The names of its parameters.
    pub parameters: &'static [&'static str],
    /// True if it is legal before initialisation and after finalisation.
    pub any_time: bool,
}

/// What a call was given whose error handler is asked.
#[derive(Clone, Copy)]
pub(crate) enum Given {
    Nothing,
    /// The handle of a communicator.
    Comm(usize),
    /// The handle of a session.
    Session(usize),
    /// The handle of the error handler itself, for what is being made.
    Handler(usize),
}

impl Given {
    /// The communicator whose handle stands at `at`.
    ///
    /// # Safety
    /// `at` must be null or valid for reading.
    pub(crate) unsafe fn at(at: *const Handle<Comm>) -> Given {
        // SAFETY: promised by the caller.
        unsafe { at.as_ref() }.map_or(Given::Nothing, |handle| Given::Comm(handle.value))
    }

    /// The session whose handle stands at `at`.
    ///
    /// # Safety
    /// As [`Given::at`].
    pub(crate) unsafe fn session_at(at: *const Handle<Session>) -> Given {
        // SAFETY: promised by the caller.
        unsafe { at.as_ref() }.map_or(Given::Nothing, |handle| Given::Session(handle.value))
    }
}

/// A call in progress: what the chapter functions see of the face.
pub struct Face {
    process: &'static Process,
    world: Option<&'static World>,
    call: &'static Call,
    blamed: ManuallyDrop<RefCell<Option<Arc<Comm>>>>,
    /// That of the world, or else the early one: never both, since a callback that holds the one could wait for the
    /// other.
    gate: ManuallyDrop<Option<GateGuard<'static>>>,
    /// True if there is more to do at the end than to return.
    has_more_to_drop: Cell<bool>,
}

impl Face {
    /// Enters a call that needs the library to be running.
    ///
    /// What rare cases do comes back in registers: were a whole face handed back there, all would be made elsewhere
    /// and copied.
    ///
    /// # Errors
    /// The error code to return, if the error handler has not ended the process.
    #[inline(always)]
    pub(crate) fn enter(call: &'static Call) -> std::result::Result<Face, c_int> {
        if let Some(face) = Face::alone(call) {
            return Ok(face);
        }
        let process = Process::this();
        let world = match process.running() {
            Some(world) => world,
            None => Face::enter_first(process, call)?,
        };
        let gate = if process.is_shared_by_threads() { Some(Face::lock(world)) } else { None };
        Ok(Face::within(process, Some(world), call, gate))
    }

    /// Enters a call if the library is running and no thread but this one may call.
    #[inline(always)]
    fn alone(call: &'static Call) -> Option<Face> {
        Process::alone().map(|(process, world)| Face::within(process, Some(world), call, None))
    }

    /// As [`Face::alone`], for what is tried before the whole of a call. There is nothing to be done at its end: it holds no
    /// gate and blames nobody; and nothing keeps the compiler from never making it.
    #[inline(always)]
    pub(crate) fn for_attempt(call: &'static Call) -> Option<ManuallyDrop<Face>> {
        Face::alone(call).map(ManuallyDrop::new)
    }

    #[inline(always)]
    fn within(
        process: &'static Process,
        world: Option<&'static World>,
        call: &'static Call,
        gate: Option<GateGuard<'static>>,
    ) -> Face {
        let has_more_to_drop = Cell::new(gate.is_some());
        let (blamed, gate) = (ManuallyDrop::new(RefCell::new(None)), ManuallyDrop::new(gate));
        Face { process, world, call, blamed, gate, has_more_to_drop }
    }

    /// Starts the library for the first call of a process that needs others, if a session is open.
    #[cold]
    #[inline(never)]
    fn enter_first(process: &'static Process, call: &'static Call) -> std::result::Result<&'static World, c_int> {
        match process.start_for_sessions() {
            Ok(true) => process.running().ok_or_else(|| not_running(process, call)),
            Ok(false) => Err(not_running(process, call)),
            Err(error) => Err(Face::enter_any_time(call).fail(error, Given::Nothing)),
        }
    }

    /// Takes the gate that keeps the threads of the process apart.
    #[inline(never)]
    fn lock(world: &'static World) -> GateGuard<'static> {
        world.enter()
    }

    /// Enters a call that needs the library to be initialised, but no other process.
    ///
    /// # Errors
    /// As [`Face::enter`].
    #[inline(always)]
    pub(crate) fn enter_local(call: &'static Call) -> std::result::Result<Face, c_int> {
        if let Some(face) = Face::alone(call) {
            return Ok(face);
        }
        let process = Process::this();
        let (world, gate) = match process.running() {
            Some(world) if process.is_shared_by_threads() => (Some(world), Some(Face::lock(world))),
            Some(world) => (Some(world), None),
            None => {
                let gate = Face::enter_session(process, call)?;
                (process.running(), Some(gate))
            }
        };
        Ok(Face::within(process, world, call, gate))
    }

    /// Takes the gate of a process that has met no others yet, if a session is open.
    #[cold]
    #[inline(never)]
    fn enter_session(process: &'static Process, call: &'static Call) -> std::result::Result<GateGuard<'static>, c_int> {
        let gate = Face::lock_any(process);
        if process.running().is_some() || process.has_sessions() { Ok(gate) } else { Err(not_running(process, call)) }
    }

    /// Enters the call that ends the process. Handlers of signals make it, too: while the process is ending already, which is
    /// over then; and while their own thread is taking the gate, for which they would wait in vain.
    ///
    /// # Errors
    /// As [`Face::enter`].
    #[cold]
    pub(crate) fn enter_to_end(call: &'static Call) -> std::result::Result<Face, c_int> {
        /// As long as another thread may have the gate at a time, and much longer.
        const PATIENCE: Duration = Duration::from_secs(1);
        ending::go_on();
        let process = Process::this();
        let world = match process.running() {
            Some(world) => world,
            None => Face::enter_first(process, call)?,
        };
        let gate = if process.is_shared_by_threads() { world.enter_within(PATIENCE) } else { None };
        Ok(Face::within(process, Some(world), call, gate))
    }

    /// Enters a call that is legal at any time, from any thread.
    pub(crate) fn enter_any_time(call: &'static Call) -> Face {
        let process = Process::this();
        let gate = Face::lock_any(process);
        Face::within(process, process.running(), call, Some(gate))
    }

    /// Enters a call that is legal at any time and looks at nothing that threads must not look at together.
    #[inline(always)]
    pub(crate) fn enter_gateless(call: &'static Call) -> Face {
        Face::within(Process::this(), None, call, None)
    }

    /// Takes the gate that keeps threads apart now.
    #[inline(never)]
    fn lock_any(process: &'static Process) -> GateGuard<'static> {
        let guarding_world = || process.running().filter(|_| process.is_shared_by_threads());
        loop {
            let world = guarding_world();
            let gate = world.map_or_else(|| process.early_gate.enter(), World::enter);
            // While this thread waited, another may have started or ended the world.
            if world.is_some() == guarding_world().is_some() {
                return gate;
            }
        }
    }

    /// Ends a call of the tool interface: no error handler is asked, and only its own errors are returned.
    pub(crate) fn finish_tool(&self, result: Result<()>) -> c_int {
        match result {
            Ok(()) => 0,
            Err(error) if error.class >= ErrorClass::ToolCannotInit => error.class as c_int,
            Err(error) if error.class == ErrorClass::UnsupportedOperation => ErrorClass::ToolNotSupported as c_int,
            Err(error) if error.class == ErrorClass::NoMem => ErrorClass::ToolMemory as c_int,
            Err(_) => ErrorClass::ToolInvalid as c_int,
        }
    }

    /// The running world.
    ///
    /// # Panics
    /// If the library is not running, which only calls that are legal at any time can see.
    #[inline]
    pub fn world(&self) -> &'static World {
        self.world.expect("calls that are not legal at any time see a world")
    }

    /// The world, if it is running.
    pub fn world_if_running(&self) -> Option<&'static World> {
        self.world
    }

    /// What the process owns.
    #[inline]
    pub fn process(&self) -> &'static Process {
        self.process
    }

    /// The name of the call, `MPI_Send` for instance.
    pub fn call(&self) -> &'static str {
        self.call.name
    }

    /// The name of parameter `number`, counted from 1.
    pub(crate) fn parameter(&self, number: usize) -> &'static str {
        self.call.parameters.get(number - 1).copied().unwrap_or("?")
    }

    /// Has the error handler of `comm` asked if this call fails, whatever communicator it was given.
    pub fn blame(&self, comm: Option<&Arc<Comm>>) {
        self.blamed.replace(comm.cloned());
        self.has_more_to_drop.set(true);
    }

    /// The number of an error, for a status.
    pub fn code(&self, error: &Error) -> i32 {
        self.process.registry.record(error)
    }

    /// Ends a call that failed: asks the error handler and returns the number of the error.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&self, error: Error, given: Given) -> c_int {
        let error = error.within(self.call.name);
        let code = self.process.registry.record(&error);
        let blamed = self.blamed.take().map(Blamed::Comm).unwrap_or_else(|| self.blamed_by(given));
        let handler = match &blamed {
            Blamed::Comm(comm) => comm.error_handler(),
            Blamed::Session(session, _) => session.error_handler(),
            Blamed::Maker(handler) => Arc::clone(handler),
            Blamed::Nobody => return without_handler(self.process, &error),
        };
        let subject = match &blamed {
            Blamed::Comm(comm) => Subject::Comm(comm),
            Blamed::Session(_, handle) => Subject::Session(*handle),
            _ if handler.suits(ObjectKind::Comm) => Subject::NoComm,
            _ => Subject::Session(MPI_SESSION_NULL),
        };
        match handler.judge(subject, &error, code) {
            Verdict::Return => code,
            Verdict::AbortAll | Verdict::AbortMembers => {
                let name = match handler.as_predefined() {
                    Some(Predefined::Abort) => "MPI_ERRORS_ABORT",
                    _ => "MPI_ERRORS_ARE_FATAL",
                };
                let place = match &blamed {
                    Blamed::Comm(comm) => describe(comm),
                    Blamed::Session(..) => "a session".to_owned(),
                    Blamed::Maker(_) | Blamed::Nobody => "what was to be made".to_owned(),
                };
                self.process.abort(error.class as i32, &last_words(self.world, &error, &place, name))
            }
        }
    }

    /// Whose handler is asked: that of what the call was given, else that of [`World::comm_for_errors`].
    fn blamed_by(&self, given: Given) -> Blamed {
        let process = self.process;
        let found = match given {
            Given::Comm(handle) => process.comms.hold(handle).ok().map(|comm| Blamed::Comm(Arc::clone(&comm))),
            Given::Session(handle) => {
                process.sessions.hold(handle).ok().map(|session| Blamed::Session(Arc::clone(&session), handle))
            }
            Given::Handler(handle) => {
                process.error_handlers.hold(handle).ok().map(|handler| Blamed::Maker(Arc::clone(&handler)))
            }
            Given::Nothing => None,
        };
        match (found, self.world) {
            (Some(found), _) => found,
            (None, Some(world)) if process.is_in_world_model() => Blamed::Comm(Arc::clone(world.comm_for_errors())),
            (None, _) => Blamed::Nobody,
        }
    }

    /// Answers for a call that does not exist yet.
    #[cold]
    pub(crate) fn unsupported(&self) -> Error {
        ErrorClass::UnsupportedOperation.error(format!(
            "Ferrovia {} does not implement this call yet (`ferrovia info --coverage` lists what it does)",
            env!("CARGO_PKG_VERSION")
        ))
    }

    /// Shorthand for a call that ends here.
    #[inline(always)]
    pub(crate) fn finish(&self, result: Result<()>, given: Given) -> c_int {
        match result {
            Ok(()) => 0,
            Err(error) => self.fail(error, given),
        }
    }

    /// As [`Face::finish`], after [`Face::enter_gateless`]: what a failure looks at is behind the gate.
    #[inline(always)]
    pub(crate) fn finish_gateless(&self, result: Result<()>) -> c_int {
        match result {
            Ok(()) => 0,
            Err(error) => Face::enter_any_time(self.call).fail(error, Given::Nothing),
        }
    }
}

impl Drop for Face {
    #[inline(always)]
    fn drop(&mut self) {
        if self.has_more_to_drop.get() {
            self.drop_the_rest();
        }
    }
}

impl Face {
    /// Leaves the gate.
    #[inline(never)]
    fn drop_the_rest(&mut self) {
        // SAFETY: called once, by `drop`; the field is not touched afterwards.
        unsafe { ManuallyDrop::drop(&mut self.blamed) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.gate) };
    }
}

/// What the error of a call is about.
enum Blamed {
    Comm(Arc<Comm>),
    /// A session and its handle.
    Session(Arc<Session>, usize),
    /// What could not be made would have had this handler.
    Maker(Arc<ErrorHandler>),
    Nobody,
}

/// What is said before a process ends because of an error.
fn last_words(world: Option<&World>, error: &Error, place: &str, handler: &str) -> String {
    let (who, machine) = match world {
        Some(world) => (
            format!("rank {} of MPI_COMM_WORLD (size {})", world.peer(), world.comm_world().size()),
            world.process_manager().processor_name(),
        ),
        None => ("a process".to_owned(), processor_name()),
    };
    format!(
        "ferrovia: {who} failed\n  \
           error:   {} ({})\n  \
           what:    {}\n  \
           where:   {machine}, process {}\n  \
           handler: {handler} of {place} ends the job; MPI_ERRORS_RETURN would let the call return",
        error.class.name(),
        error.class.text(),
        error.message,
        std::process::id(),
    )
}

/// A communicator in a sentence.
pub(crate) fn describe(comm: &Comm) -> String {
    match comm.name() {
        name if name.is_empty() => "a communicator without a name".to_owned(),
        name => name,
    }
}

/// The call came too early or too late.
#[cold]
fn not_running(process: &'static Process, call: &'static Call) -> c_int {
    let why = match process.lifecycle.is_finalized() {
        true => "called after MPI_Finalize",
        false => "called before MPI_Init or MPI_Init_thread",
    };
    without_handler(process, &ErrorClass::Other.error(why).within(call.name))
}

/// Outside of the world model there may be no object whose handler could be asked: the initial one is.
#[cold]
fn without_handler(process: &'static Process, error: &Error) -> c_int {
    if boot::configuration().is_ok_and(|config| config.initial_errors == InitialErrors::Return) {
        return process.registry.record(error);
    }
    let why = match process.has_sessions() {
        true => "it belongs to no communicator and no session, so the process ends",
        false => "MPI is not running, so the process ends",
    };
    let message = format!(
        "ferrovia: {}\n  error:   {} ({})\n  where:   process {}; {why}",
        error.message,
        error.class.name(),
        error.class.text(),
        std::process::id()
    );
    process.abort(error.class as i32, &message)
}

/// Has panics say that they are our bug. Called by the initialising calls.
pub fn announce_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            eprintln!(
                "ferrovia: the line above is a bug in Ferrovia {}, not in your program",
                env!("CARGO_PKG_VERSION")
            );
        }));
    });
}
