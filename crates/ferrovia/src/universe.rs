//! The beginning and the end.

use std::sync::atomic::{AtomicBool, Ordering};

use mpi_core::{ThreadLevel, World};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::shared::Shared;

/// What the threads of this process will do.
///
/// Levels between `Single` and `Multiple` would change nothing: the types keep a communicator with its thread.
///
/// MPI: §11.6.1
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Threading {
    /// One thread communicates.
    #[default]
    Single,
    /// Any thread may: see [`SharedCommunicator`](crate::SharedCommunicator).
    Multiple,
}

/// Joins the job; for programs in which one thread communicates.
///
/// A process started by hand is a world of one.
///
/// # Errors
/// One line that says what is in the way; always if called twice.
///
/// MPI: §11.2.1 `MPI_Init`
pub fn initialize() -> Result<Universe> {
    initialize_with_threading(Threading::Single)
}

/// Joins the job.
///
/// # Errors
/// As [`initialize`].
///
/// MPI: §11.6.2 `MPI_Init_thread`
pub fn initialize_with_threading(threading: Threading) -> Result<Universe> {
    static WAS_CALLED: AtomicBool = AtomicBool::new(false);
    // Relaxed: only which call was first matters.
    if WAS_CALLED.swap(true, Ordering::Relaxed) {
        return Err(Error::at_start("this process has joined its job before; it can do so once".to_owned()));
    }
    let level = match threading {
        Threading::Single => ThreadLevel::Single,
        Threading::Multiple => ThreadLevel::Multiple,
    };
    let world = boot::start(level).map_err(|error| Error::at_start(error.to_string()))?;
    Ok(Universe::new(world))
}

/// This process's membership in its job; dropping it leaves the job in good order.
///
/// Dropping waits until all ranks have come to their end. If that will not do, because this thread panics or because an
/// error of this crate is on its way out of the program, it ends the whole job instead, with a line that says why.
///
/// Communicators borrow from the universe, so none is left when it ends:
///
/// ```compile_fail,E0505
/// # fn demo(universe: ferrovia::Universe) -> ferrovia::Result<()> {
/// let world = universe.world();
/// drop(universe);
/// world.barrier()
/// # }
/// ```
pub struct Universe {
    shared: Shared,
}

impl Universe {
    pub(crate) fn new(world: World) -> Self {
        Universe { shared: Shared::new(world) }
    }

    /// The communicator of all processes.
    pub fn world(&self) -> Communicator<'_> {
        Communicator::new(&self.shared, self.shared.predefined()[0].clone())
    }

    /// The communicator of this process alone.
    pub fn own(&self) -> Communicator<'_> {
        Communicator::new(&self.shared, self.shared.predefined()[1].clone())
    }

    /// What the threads of this process may do.
    pub fn threading(&self) -> Threading {
        if self.shared.is_threaded() { Threading::Multiple } else { Threading::Single }
    }

    /// The name of the machine.
    ///
    /// MPI: §9.1.2 `MPI_Get_processor_name`
    pub fn processor_name(&self) -> String {
        self.shared.enter(|world| world.process_manager().processor_name())
    }

    /// Ends all processes of the job with exit status `code`, after showing `message`.
    ///
    /// MPI: §9.7 `MPI_Abort`
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.shared.abort(code, message)
    }
}

impl Drop for Universe {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.die("panicked; the job is ended");
        }
        if let Some(text) = self.shared.living_error() {
            self.shared.die(&format!("the program ends with an error; the job is ended: {text}"));
        }
        if let Err(error) = self.shared.call("finalize", |world| world.finalize()) {
            self.shared.die(&error.to_string());
        }
    }
}
