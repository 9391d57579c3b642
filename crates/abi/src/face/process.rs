//! Everything this process owns, in the one static of the project.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use base::Gate;
use datatype::{Basic, Datatype, Op, PredefinedOp};
use mpi_core::attribute::{AttributeTable, Keys};
use mpi_core::environment::{ErrorHandler, Launch, Lifecycle, Predefined};
use mpi_core::error::ErrorRegistry;
use mpi_core::group::Group;
use mpi_core::info::Info;
use mpi_core::point_to_point::Message;
use mpi_core::tool::Tool;
use mpi_core::{Comm, Request, Session, ThreadLevel, World};

use super::handle::{FINISHED_SEND, Kind};
use super::stage::Stage;
use super::table::Table;
use crate::chapters::fortran::FortranBooleans;
use crate::constants::*;

/// User-defined attribute keys of communicators start here, above the predefined ones.
const FIRST_COMM_KEY: i32 = 1024;
/// Those of datatypes start far from there, so that a key of the wrong kind is noticed.
const FIRST_TYPE_KEY: i32 = 1 << 29;

/// What C programs share with us: tables, keys, error codes, and the world once there is one.
pub struct Process {
    /// Initialised, finalised, by which thread.
    pub lifecycle: Lifecycle,
    /// Numbers of errors.
    pub registry: ErrorRegistry,
    /// Attribute keys of communicators.
    pub comm_keys: Keys<Comm>,
    /// Attribute keys of datatypes.
    pub type_keys: Keys<Datatype>,
    /// Attributes of datatypes.
    pub type_attributes: AttributeTable<Datatype>,
    /// The tool interface.
    pub tool: Tool,
    /// The types of `MPI_Type_create_f90_…` by combiner and parameters.
    pub(crate) parametric_types: RefCell<HashMap<[i32; 3], Arc<Datatype>>>,
    /// What a Fortran program has told of its compiler.
    pub(crate) fortran_booleans: Cell<Option<FortranBooleans>>,
    /// Taken by calls that are legal at any time, from any thread, while the world's gate is no lock.
    pub(super) early_gate: Gate,
    pub(crate) comms: Table<Arc<Comm>>,
    pub(crate) groups: Table<Arc<Group>>,
    pub(crate) datatypes: Table<Arc<Datatype>>,
    pub(crate) ops: Table<Op>,
    pub(crate) infos: Table<Arc<Info>>,
    pub(crate) error_handlers: Table<Arc<ErrorHandler>>,
    pub(crate) requests: Table<Request>,
    pub(crate) messages: Table<Message>,
    pub(crate) sessions: Table<Arc<Session>>,
    pub(super) stage: Stage,
    world: OnceCell<World>,
}

/// Values of `Shared::phase`.
mod phase {
    pub const NOT_RUNNING: u8 = 0;
    pub const RUNNING: u8 = 1;
    pub const RUNNING_WITH_THREADS: u8 = 2;
}

struct Shared {
    /// How far the process has come. Beside the process, so that a call finds out with one look.
    phase: AtomicU8,
    /// The process while its phase is `RUNNING`, else null: most calls look at nothing else.
    alone: AtomicPtr<Process>,
    process: OnceLock<Process>,
}

// SAFETY: every use of the cells and tables happens inside a gate: that of the world once it runs (which
// is a lock if there is more than one thread that may call), the early gate for calls outside of that.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it is bound to the thread that made it.
unsafe impl Send for Shared {}

static SHARED: Shared = Shared {
    phase: AtomicU8::new(phase::NOT_RUNNING),
    alone: AtomicPtr::new(ptr::null_mut()),
    process: OnceLock::new(),
};

impl Process {
    /// This process.
    #[inline]
    pub fn this() -> &'static Process {
        SHARED.process.get_or_init(Process::new)
    }

    /// This process and its world, if somebody uses MPI and no thread but this one may call.
    #[inline(always)]
    pub(super) fn alone() -> Option<(&'static Process, &'static World)> {
        // Acquire, with the release in `set_running`.
        let process = SHARED.alone.load(Ordering::Acquire);
        // SAFETY: null, or the process, which stays: it is stored there by a method of its own.
        let process = unsafe { process.as_ref() }?;
        // SAFETY: `set_running` stores it once there is a world; worlds stay.
        Some((process, unsafe { process.world.get().unwrap_unchecked() }))
    }

    fn new() -> Self {
        let process = Process {
            lifecycle: Lifecycle::new(),
            registry: ErrorRegistry::new(),
            comm_keys: Keys::new(FIRST_COMM_KEY),
            type_keys: Keys::new(FIRST_TYPE_KEY),
            type_attributes: AttributeTable::default(),
            tool: Tool::new(|world| Process::this().tool.deliver(world)),
            parametric_types: RefCell::default(),
            fortran_booleans: Cell::new(None),
            early_gate: Gate::new(true),
            comms: Table::new(Kind::Comm, MPI_COMM_NULL, 3),
            groups: Table::new(Kind::Group, MPI_GROUP_NULL, 2),
            datatypes: Table::new(Kind::Datatype, MPI_DATATYPE_NULL, 0x200),
            ops: Table::new(Kind::Op, MPI_OP_NULL, 0x20),
            infos: Table::new(Kind::Info, MPI_INFO_NULL, 2),
            error_handlers: Table::new(Kind::Errhandler, MPI_ERRHANDLER_NULL, 4),
            requests: Table::new(Kind::Request, MPI_REQUEST_NULL, 1),
            messages: Table::new(Kind::Message, MPI_MESSAGE_NULL, 2),
            sessions: Table::new(Kind::Session, MPI_SESSION_NULL, 0),
            stage: Stage::default(),
            world: OnceCell::new(),
        };
        process.make_predefined();
        process
    }

    fn make_predefined(&self) {
        let first = self.requests.insert(Request::finished_send(), |_, _| ());
        assert_eq!(first, Some(FINISHED_SEND), "the first request of a table");
        self.groups.set_predefined(MPI_GROUP_EMPTY, Arc::new(Group::empty()));
        for basic in Basic::all() {
            let datatype = Datatype::predefined(basic);
            datatype.face_handle.store(basic.abi_handle(), Ordering::Relaxed);
            self.datatypes.set_predefined(basic.abi_handle(), datatype);
        }
        for handle in MPI_OP_NULL..MPI_OP_NULL + 0x20 {
            if let Some(op) = PredefinedOp::from_abi_handle(handle) {
                self.ops.set_predefined(handle, Op::predefined(op));
            }
        }
        let handlers = [
            (MPI_ERRORS_ARE_FATAL, Predefined::Fatal),
            (MPI_ERRORS_ABORT, Predefined::Abort),
            (MPI_ERRORS_RETURN, Predefined::Return),
        ];
        for (handle, which) in handlers {
            let handler = ErrorHandler::predefined(which);
            handler.face_handle.store(handle, Ordering::Relaxed);
            self.error_handlers.set_predefined(handle, handler);
        }
        self.infos.set_predefined(MPI_INFO_ENV, Arc::new(Launch::of_this_process(None).info()));
    }

    /// The world, while somebody uses MPI.
    #[inline(always)]
    pub fn running(&self) -> Option<&World> {
        // Acquire, with the release in `set_running`: whoever sees the phase sees the world.
        if SHARED.phase.load(Ordering::Acquire) == phase::NOT_RUNNING { None } else { self.world.get() }
    }

    /// True if any thread may call at any time, so that each call takes the gate.
    #[inline(always)]
    pub fn is_shared_by_threads(&self) -> bool {
        // Relaxed: asked after `running`.
        SHARED.phase.load(Ordering::Relaxed) == phase::RUNNING_WITH_THREADS
    }

    /// The world once it has started, also while nobody uses MPI.
    pub(crate) fn world_even_if_closed(&self) -> Option<&World> {
        self.world.get()
    }

    /// Makes the world known: `MPI_INFO_ENV` gets all of its keys. Called once.
    ///
    /// # Panics
    /// If there is a world.
    pub(super) fn set_world(&self, world: World) {
        let launch = Launch::of_this_process(None).within(&world);
        self.infos.set_predefined(MPI_INFO_ENV, Arc::new(launch.info()));
        assert!(self.world.set(world).is_ok(), "an engine starts once");
    }

    /// Makes the predefined communicators known under their handles, or no longer.
    pub(super) fn show_predefined_communicators(&self, shown: bool) {
        let Some(world) = self.world.get() else { return };
        for (handle, comm) in [(MPI_COMM_WORLD, world.comm_world()), (MPI_COMM_SELF, world.comm_self())] {
            comm.face_handle.store(handle, Ordering::Relaxed);
            if shown {
                self.comms.set_predefined(handle, Arc::clone(comm));
            } else {
                self.comms.unset_predefined(handle);
            }
        }
    }

    /// Lets the world, if there is one, take calls or no longer.
    pub(super) fn set_running(&'static self, takes_calls: bool) {
        let phase = match self.world.get() {
            Some(world) if takes_calls && world.thread_level() == ThreadLevel::Multiple => phase::RUNNING_WITH_THREADS,
            Some(_) if takes_calls => phase::RUNNING,
            _ => phase::NOT_RUNNING,
        };
        let alone = if phase == phase::RUNNING { ptr::from_ref(self).cast_mut() } else { ptr::null_mut() };
        // Release, with the acquire in `alone`.
        SHARED.alone.store(alone, Ordering::Release);
        // Release, with the acquire in `running`.
        SHARED.phase.store(phase, Ordering::Release);
    }

    /// The predefined datatype of a basic type.
    pub fn basic_datatype(&'static self, basic: Basic) -> super::Held<Arc<Datatype>> {
        self.datatypes.hold(basic.abi_handle()).expect("all basic types are made at the start")
    }
}
