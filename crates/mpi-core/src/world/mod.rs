//! One process's membership in a set of processes that can exchange messages.
//!
//! **Invariants**
//! - All methods take `&self`; what changes lies in cells. No borrow of a cell is held while a
//!   callback of the user runs, so a callback may call the library again.
//! - With threads (`ThreadLevel::Multiple`) every call from outside happens inside the gate
//!   ([`World::enter`]). The type is `Send` but not `Sync`: a face that shares it between threads
//!   answers for entering the gate first.

mod holds;
mod operations;
mod process_manager;
mod report;
mod waiting;

pub(crate) use operations::{Operation, OperationKey, Operations};
pub use process_manager::ProcessManager;
pub use report::RankReport;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use base::{Gate, GateGuard};
use collectives::Selection;
use datatype::Scratch;
use engine::{Completion, Engine, EngineError, Event, EventKind, Passing, PeerId, RequestId, Waiter};

use crate::communicator::{Comm, Commons};
use crate::environment::{ErrorHandler, Predefined};
use crate::error::{Error, ErrorClass};
use crate::point_to_point::{AttachedBuffer, BufferOwner};
use crate::request::InFlight;

/// What the threads of a process may do, least first.
///
/// MPI: §11.6.1
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ThreadLevel {
    /// There is one thread.
    Single,
    /// Only the thread that initialised calls.
    Funneled,
    /// One thread at a time calls.
    Serialized,
    /// Any thread calls at any time.
    Multiple,
}

impl ThreadLevel {
    const ALL: [ThreadLevel; 4] =
        [ThreadLevel::Single, ThreadLevel::Funneled, ThreadLevel::Serialized, ThreadLevel::Multiple];

    /// Its name in hints, `MPI_THREAD_SINGLE` for instance.
    pub fn name(self) -> &'static str {
        match self {
            ThreadLevel::Single => "MPI_THREAD_SINGLE",
            ThreadLevel::Funneled => "MPI_THREAD_FUNNELED",
            ThreadLevel::Serialized => "MPI_THREAD_SERIALIZED",
            ThreadLevel::Multiple => "MPI_THREAD_MULTIPLE",
        }
    }

    /// The level with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A process's engine, its predefined communicators and everything in flight.
///
/// ```no_run
/// # fn demo(world: &mpi_core::World) -> mpi_core::Result<()> {
/// use datatype::{RecvBuf, SendBuf};
/// let comm = world.comm_world();
/// println!("rank {} of {}", comm.rank(), comm.size());
/// world.send(comm, 0, 7, SendBuf::empty())?;
/// # Ok(())
/// # }
/// ```
pub struct World {
    pub(crate) engine: RefCell<Engine>,
    pub(crate) operations: Operations,
    pub(crate) commons: Arc<Commons>,
    pub(crate) attached: RefCell<AttachedBuffer>,
    /// Small temporaries of collectives, kept for the next ones.
    pub(crate) spare_temps: RefCell<Vec<Scratch>>,
    pub(crate) spare_holds: holds::SpareHolds,
    /// Receives the user has let go of.
    pub(crate) orphans: RefCell<Vec<InFlight>>,
    waiter: Arc<Waiter>,
    gate: Gate,
    /// Threads of this process that pause inside a wait. Changed inside the gate only.
    pausing: Cell<u32>,
    /// How long threads of this process have slept while they waited.
    asleep_ns: Cell<u64>,
    /// When calls that do not wait let others run.
    passing: Passing,
    /// Polls that found something since peers were looked after for that.
    busy_count: Cell<u32>,
    /// Called after polls while events of the engine are watched.
    watcher: Cell<Option<fn(&World)>>,
    thread_level: ThreadLevel,
    initial_errors: Cell<Predefined>,
    process: Box<dyn ProcessManager>,
    /// The counters have been shown.
    has_reported: Cell<bool>,
    comm_world: Arc<Comm>,
    comm_self: Arc<Comm>,
}

impl World {
    /// A world over a started engine, whose collectives choose their algorithms by `selection` (the
    /// same in all processes).
    pub fn new(
        engine: Engine,
        process: Box<dyn ProcessManager>,
        thread_level: ThreadLevel,
        selection: Selection,
    ) -> Self {
        let (rank, size) = (engine.rank(), engine.size());
        let commons = Arc::new(Commons::new(rank, size, selection));
        let (waiter, gate) = (engine.waiter(), Gate::new(thread_level == ThreadLevel::Multiple));
        World {
            passing: waiter.passing(gate.is_enabled()),
            waiter,
            engine: RefCell::new(engine),
            operations: Operations::default(),
            attached: RefCell::default(),
            spare_temps: RefCell::default(),
            spare_holds: holds::SpareHolds::default(),
            orphans: RefCell::default(),
            gate,
            pausing: Cell::new(0),
            asleep_ns: Cell::new(0),
            busy_count: Cell::new(0),
            watcher: Cell::new(None),
            thread_level,
            initial_errors: Cell::new(Predefined::Fatal),
            process,
            has_reported: Cell::new(false),
            comm_world: Comm::predefined_world(rank, size, &commons),
            comm_self: Comm::predefined_self(rank, &commons),
            commons,
        }
    }

    /// Enters the gate; a face holds the guard for the length of each call.
    #[inline]
    pub fn enter(&self) -> GateGuard<'_> {
        self.gate.enter()
    }

    /// As [`World::enter`], without waiting much longer than `patience`.
    pub fn enter_within(&self, patience: Duration) -> Option<GateGuard<'_>> {
        self.gate.enter_within(patience)
    }

    /// Chooses the error handler that the predefined communicators begin with.
    ///
    /// MPI: §11.8.4 `mpi_initial_errhandler`
    pub fn set_initial_error_handler(&self, which: Predefined) {
        self.initial_errors.set(which);
        for comm in [&self.comm_world, &self.comm_self] {
            comm.begin_with_error_handler(ErrorHandler::predefined(which));
        }
    }

    /// What the predefined communicators did with errors when they were made.
    pub(crate) fn initial_error_handler(&self) -> Predefined {
        self.initial_errors.get()
    }

    /// The communicator of all processes.
    #[inline]
    pub fn comm_world(&self) -> &Arc<Comm> {
        &self.comm_world
    }

    /// The communicator of this process alone.
    #[inline]
    pub fn comm_self(&self) -> &Arc<Comm> {
        &self.comm_self
    }

    /// The communicator whose error handler is asked about calls that were given none: `MPI_COMM_SELF`. Up to MPI 3.1
    /// it was `MPI_COMM_WORLD`, and programs written then set a handler there only: it is asked where
    /// `MPI_COMM_SELF` was left as it was.
    ///
    /// MPI: §9.3
    pub fn comm_for_errors(&self) -> &Arc<Comm> {
        if self.comm_self.has_chosen_error_handler() { &self.comm_self } else { &self.comm_world }
    }

    /// Number of communicators this process is a member of, freed ones with operations pending
    /// included.
    pub fn live_communicators(&self) -> usize {
        self.commons.ids.live_count()
    }

    /// Lowers the number of context ids of all processes together, for whom fewer will do; the same
    /// everywhere, and before the first communicator is made.
    pub fn limit_context_ids(&self, ids_max: u32) {
        self.commons.ids.limit(ids_max);
    }

    /// Index of this process among all.
    pub fn peer(&self) -> PeerId {
        self.comm_world.rank()
    }

    /// What the threads of this process may do.
    pub fn thread_level(&self) -> ThreadLevel {
        self.thread_level
    }

    /// Whoever started the processes.
    pub fn process_manager(&self) -> &dyn ProcessManager {
        &*self.process
    }

    /// Ends all processes of the job.
    ///
    /// MPI: §9.7 `MPI_Abort`
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.process.abort(code, message)
    }

    /// Completes all communication of this process and tells the process manager.
    ///
    /// Returns when every process has come here and nothing of this one's is on its way. The face
    /// runs the delete callbacks of `MPI_COMM_SELF` before.
    ///
    /// # Errors
    /// `Other` when the process manager could not be told, and whatever the closing barrier meets.
    ///
    /// MPI: §11.2.2 `MPI_Finalize`
    pub fn finalize(&self) -> crate::Result<()> {
        self.complete();
        self.leave_world_model()?;
        self.depart()
    }

    /// Returns when every process has come here; sessions go on.
    ///
    /// # Errors
    /// Whatever the barrier meets.
    ///
    /// MPI: §11.2.2 `MPI_Finalize`, while a session is open
    pub fn leave_world_model(&self) -> crate::Result<()> {
        self.meet_and_report()
    }

    /// Completes all communication of this process, without waiting for processes it has nothing to
    /// do with, and tells the process manager. May be called again after more communication.
    ///
    /// # Errors
    /// `Other` when the process manager could not be told.
    ///
    /// MPI: §11.3.1 `MPI_Session_finalize`, of the last session
    pub fn close(&self) -> crate::Result<()> {
        self.complete();
        self.depart()
    }

    /// After [`World::close`]: there will be more communication.
    pub fn reopen(&self) {
        self.engine.borrow_mut().come_back();
    }

    /// The process ends after [`World::close`] or [`World::finalize`]: those who look for it are told.
    pub fn part(&self) {
        // A signal's handler may end the process amid a call.
        if let Ok(mut engine) = self.engine.try_borrow_mut() {
            engine.part();
        }
    }

    fn complete(&self) {
        self.wait_until(|world| world.operations.none_awaited().then_some(()));
        self.detach_buffer(&BufferOwner::Process);
    }

    fn depart(&self) -> crate::Result<()> {
        self.engine.borrow_mut().say_farewell();
        self.wait_until(|world| (world.engine.borrow().pending_sends() == 0).then_some(()));
        self.engine.borrow_mut().leave();
        if let Some(watcher) = self.watcher.get() {
            watcher(self);
        }
        self.report_alone();
        self.process
            .finalize()
            .map_err(|why| ErrorClass::Other.error(format!("the process manager could not be told of the end: {why}")))
    }

    /// Has the engine note these kinds of events, and `watcher` called after polls to fetch them.
    pub(crate) fn watch(&self, kinds: &[EventKind], clock: fn() -> u64, watcher: fn(&World)) {
        self.engine.borrow_mut().watch(kinds, clock);
        self.watcher.set((!kinds.is_empty()).then_some(watcher));
    }

    /// The earliest event that was not fetched.
    pub(crate) fn next_event(&self) -> Option<Event> {
        self.engine.borrow_mut().next_event()
    }

    /// Waits for one request of the engine.
    #[inline]
    pub(crate) fn wait_for(&self, id: RequestId) -> Completion {
        self.wait_until(|world| world.engine.borrow_mut().take(id))
    }
}

/// An error of the engine as the user sees it.
#[cold]
pub(crate) fn engine_error(error: EngineError) -> Error {
    let class = match error {
        EngineError::PeerLost { .. } => ErrorClass::ProcAborted,
        _ => ErrorClass::Intern,
    };
    class.error(error.to_string())
}
