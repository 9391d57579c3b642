//! Entering and leaving a call; what happens when it fails.
//!
//! A panic never crosses into the C program: entry points are `extern "C"`, so unwinding stops there
//! and ends the process, after the panic hook of [`announce_panics`] has said that it is our bug.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Once};

use base::GateGuard;
use mpi_core::environment::{Predefined, Subject, Verdict};
use mpi_core::{Comm, Error, ErrorClass, Result, World};

use super::handle::Handle;
use super::process::Process;

/// A call of the standard, as messages name it.
pub struct Call {
    /// Its C name.
    pub name: &'static str,
    /// The names of its parameters.
    pub parameters: &'static [&'static str],
    /// True if it is legal before initialisation and after finalisation.
    pub any_time: bool,
}

/// The object a call was given whose error handler is asked.
#[derive(Clone, Copy)]
pub(crate) enum Given {
    Nothing,
    Comm(usize),
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
}

/// A call in progress: what the chapter functions see of the face.
pub struct Face {
    process: &'static Process,
    world: Option<&'static World>,
    call: &'static Call,
    blamed: ManuallyDrop<RefCell<Option<Arc<Comm>>>>,
    gate: ManuallyDrop<Option<GateGuard<'static>>>,
    early: ManuallyDrop<Option<GateGuard<'static>>>,
    /// True if there is more to do at the end than to return.
    has_more_to_drop: Cell<bool>,
}

impl Face {
    /// Enters a call that needs the library to be running.
    ///
    /// # Errors
    /// The error code to return, if the error handler has not ended the process.
    #[inline(always)]
    pub(crate) fn enter(call: &'static Call) -> std::result::Result<Face, c_int> {
        let process = Process::this();
        let Some(world) = process.running() else { return Err(not_running(process, call)) };
        let face = Face {
            process,
            world: Some(world),
            call,
            blamed: ManuallyDrop::new(RefCell::new(None)),
            gate: ManuallyDrop::new(None),
            early: ManuallyDrop::new(None),
            has_more_to_drop: Cell::new(false),
        };
        if process.is_shared_by_threads() { Ok(face.locked(world)) } else { Ok(face) }
    }

    /// Takes the gate that keeps the threads of the process apart.
    #[inline(never)]
    fn locked(mut self, world: &'static World) -> Face {
        self.gate = ManuallyDrop::new(Some(world.enter()));
        self.has_more_to_drop.set(true);
        self
    }

    /// Enters a call that is legal at any time, from any thread.
    pub(crate) fn enter_any_time(call: &'static Call) -> Face {
        let process = Process::this();
        let early = process.early_gate.enter();
        let world = process.running();
        Face {
            process,
            world,
            call,
            blamed: ManuallyDrop::new(RefCell::new(None)),
            gate: ManuallyDrop::new(world.map(World::enter)),
            early: ManuallyDrop::new(Some(early)),
            has_more_to_drop: Cell::new(true),
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
        let Some(world) = self.world else { return without_world(&error, code) };
        let given = match given {
            Given::Comm(handle) => self.process.comms.hold(handle).ok().map(|comm| Arc::clone(&comm)),
            Given::Nothing => None,
        };
        let comm = self.blamed.take().or(given).unwrap_or_else(|| Arc::clone(world.comm_self()));
        let handler = comm.error_handler();
        match handler.judge(Subject::Comm(&comm), &error, code) {
            Verdict::Return => code,
            Verdict::AbortAll | Verdict::AbortMembers => {
                let name = match handler.as_predefined() {
                    Some(Predefined::Abort) => "MPI_ERRORS_ABORT",
                    _ => "MPI_ERRORS_ARE_FATAL",
                };
                world.abort(error.class as i32, &last_words(world, &error, &comm, name))
            }
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
    /// Leaves the gates, the inner one first.
    #[inline(never)]
    fn drop_the_rest(&mut self) {
        // SAFETY: called once, by `drop`; the field is not touched afterwards.
        unsafe { ManuallyDrop::drop(&mut self.blamed) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.gate) };
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut self.early) };
    }
}

/// What is said before a process ends because of an error.
fn last_words(world: &World, error: &Error, comm: &Arc<Comm>, handler: &str) -> String {
    let place = describe(comm);
    format!(
        "ferrovia: rank {} of MPI_COMM_WORLD (size {}) failed\n  \
           error:   {} ({})\n  \
           what:    {}\n  \
           where:   {}, process {}\n  \
           handler: {handler} of {place} ends the job; MPI_ERRORS_RETURN would let the call return",
        world.peer(),
        world.comm_world().size(),
        error.class.name(),
        error.class.text(),
        error.message,
        world.process_manager().processor_name(),
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
    let error = ErrorClass::Other.error(why).within(call.name);
    let code = process.registry.record(&error);
    without_world(&error, code)
}

/// Without a world there is no communicator whose handler could be asked: errors are fatal.
#[cold]
fn without_world(error: &Error, _code: c_int) -> c_int {
    eprintln!(
        "ferrovia: {}\n  error:   {} ({})\n  where:   process {}; MPI is not running, so the process ends",
        error.message,
        error.class.name(),
        error.class.text(),
        std::process::id()
    );
    std::process::exit(error.class as i32)
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
