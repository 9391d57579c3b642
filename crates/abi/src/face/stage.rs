//! How far this process has come: who uses MPI in it, and when its engine starts and ends.
//!
//! ```text
//!   MPI_Session_init ──► connected ──── first call that needs other processes ──► running
//!   MPI_Init ───────────────────────────────────────────────────────────────────► running
//!   the last MPI_Session_finalize or MPI_Finalize ──► closed ── MPI_Session_init ──► running
//! ```
//! Opening a session is local: the launcher is greeted, and the other processes are met only when
//! something is to be done with them. An engine that has started stays for further sessions.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base::ending;
use boot::Job;
use mpi_core::{Error, ErrorClass, Result, ThreadLevel, World};

use super::process::Process;

/// The users of MPI in this process. Changed inside a gate; after a change of the phase, which may be that of
/// the gate in force, a call touches nothing that others share.
#[derive(Default)]
pub(super) struct Stage {
    /// The launcher was greeted and the other processes have not been met.
    job: Mutex<Option<Job>>,
    /// The process that says goodbye at its end: to a launcher that it greeted without meeting others, or to the others;
    /// 0 if none does.
    greeter: AtomicU32,
    sessions: Cell<u32>,
    in_world_model: Cell<bool>,
    /// A tool has threads that call at any time.
    tool_threads: Cell<bool>,
}

impl Stage {
    fn is_used(&self) -> bool {
        self.in_world_model.get() || self.sessions.get() > 0
    }

    /// A panic elsewhere leaves a job or none, so a poisoned lock is no obstacle.
    fn job(&self) -> std::sync::MutexGuard<'_, Option<Job>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a launcher hear of the end that was greeted for sessions which never met another process, and other processes
    /// of the end of one that has met them and closed.
    fn say_goodbye_at_exit(&self) {
        // Relaxed: read by this thread's own process at its end, long after.
        if self.greeter.swap(std::process::id(), Ordering::Relaxed) != 0 {
            return;
        }
        // SAFETY: the function lives as long as the library, which unregisters it when it is unloaded.
        let refused = unsafe { libc::atexit(goodbye) };
        debug_assert_eq!(refused, 0, "there is room for at least 32 such functions");
    }
}

impl Process {
    /// One more session, made by `make` from rank, number of processes and the thread level that can be had.
    ///
    /// # Errors
    /// `Other` when the launcher does not answer; what `make` returns.
    pub(crate) fn open_session(
        &'static self,
        wanted: ThreadLevel,
        make: impl FnOnce(u32, u32, ThreadLevel) -> Result<()>,
    ) -> Result<()> {
        let (rank, size, level) = match self.world_even_if_closed() {
            Some(world) => {
                world.reopen();
                (world.peer(), world.comm_world().size(), wanted.min(world.thread_level()))
            }
            None => {
                let mut job = self.stage.job();
                if job.is_none() {
                    *job = Some(boot::connect().map_err(boot_error)?);
                    self.stage.say_goodbye_at_exit();
                }
                let job = job.as_ref().expect("connected above");
                (job.rank(), job.size(), wanted)
            }
        };
        make(rank, size, level)?;
        self.stage.sessions.set(self.stage.sessions.get() + 1);
        self.show_phase();
        Ok(())
    }

    /// One session less; the last user of MPI completes all communication.
    ///
    /// # Errors
    /// `Other` when the launcher could not be told.
    pub(crate) fn close_session(&'static self) -> Result<()> {
        self.stage.sessions.set(self.stage.sessions.get() - 1);
        let Some(world) = self.world_even_if_closed().filter(|_| !self.stage.is_used()) else { return Ok(()) };
        let closed = world.close();
        self.stage.say_goodbye_at_exit();
        self.show_phase();
        closed
    }

    /// Starts the engine if that has not happened, and shows the predefined communicators.
    ///
    /// # Errors
    /// `Other` for a second initialisation, or with what kept the engine from starting.
    pub(crate) fn enter_world_model(&'static self, level: ThreadLevel) -> Result<()> {
        // A session, or a tool, was promised that threads may call at any time.
        let promised = self.stage.sessions.get() > 0 || self.stage.tool_threads.get();
        let least = if promised { ThreadLevel::Multiple } else { level };
        self.start(least)?;
        self.lifecycle.initialized(level)?;
        self.show_predefined_communicators(true);
        self.stage.in_world_model.set(true);
        self.show_phase();
        Ok(())
    }

    /// Waits for all processes to come here; the last user of MPI completes all communication.
    ///
    /// # Errors
    /// `Other` when the launcher could not be told; whatever the closing barrier meets.
    pub(crate) fn leave_world_model(&'static self, world: &World) -> Result<()> {
        if self.stage.sessions.get() > 0 {
            world.leave_world_model()?
        } else {
            world.finalize()?;
            self.stage.say_goodbye_at_exit();
        }
        self.lifecycle.finalized()?;
        self.show_predefined_communicators(false);
        self.stage.in_world_model.set(false);
        self.show_phase();
        Ok(())
    }

    /// Promises a tool that any thread may call at any time; false if it is too late for that.
    pub(crate) fn promise_threads_to_tool(&self) -> bool {
        match self.world_even_if_closed() {
            Some(world) => world.thread_level() == ThreadLevel::Multiple,
            None => {
                self.stage.tool_threads.set(true);
                true
            }
        }
    }

    /// True between `MPI_Init` and the end of `MPI_Finalize`.
    pub(crate) fn is_in_world_model(&self) -> bool {
        self.stage.in_world_model.get()
    }

    /// True if a session is open.
    pub(crate) fn has_sessions(&self) -> bool {
        self.stage.sessions.get() > 0
    }

    /// Has a process with an open session meet the others; false if no session is open.
    ///
    /// # Errors
    /// `Other` with what kept the engine from starting.
    pub(super) fn start_for_sessions(&'static self) -> Result<bool> {
        let _early = self.early_gate.enter();
        if self.stage.sessions.get() == 0 {
            return Ok(false);
        }
        self.start(ThreadLevel::Multiple)?;
        self.show_phase();
        Ok(true)
    }

    /// Ends the job.
    pub(super) fn abort(&'static self, code: i32, message: &str) -> ! {
        if let Some(world) = self.world_even_if_closed() {
            world.abort(code, message)
        }
        if let Some(job) = &*self.stage.job() {
            job.process_manager().abort(code, message)
        }
        ending::say(message);
        ending::exit(code)
    }

    fn start(&'static self, level: ThreadLevel) -> Result<()> {
        if self.world_even_if_closed().is_some() {
            return Ok(());
        }
        let known = self.stage.job().take();
        let job = known.map_or_else(boot::connect, Ok).map_err(boot_error)?;
        self.set_world(job.start(level, &self.tool.overrides()).map_err(boot_error)?);
        if let Some(world) = self.world_even_if_closed() {
            self.tool.world_begins(world);
        }
        Ok(())
    }

    fn show_phase(&'static self) {
        self.set_running(self.stage.is_used());
    }
}

fn boot_error(error: boot::BootError) -> Error {
    ErrorClass::Other.error(error.to_string())
}

extern "C" fn goodbye() {
    let process = Process::this();
    let stage = &process.stage;
    // A copy of the process must not speak in its name. Relaxed: as where it is stored.
    if stage.greeter.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    // A thread that starts the engine right now holds no lock, and has taken the job with it.
    if let Ok(mut job) = stage.job.try_lock()
        && let Some(job) = job.take()
    {
        // Nobody is left to be told that the launcher is gone.
        let _ = job.process_manager().finalize();
    }
    // Whoever opens a session right now is inside this gate, and goes on.
    if let Some(_early) = process.early_gate.enter_within(Duration::ZERO)
        && process.running().is_none()
        && let Some(world) = process.world_even_if_closed()
    {
        world.part();
    }
}
