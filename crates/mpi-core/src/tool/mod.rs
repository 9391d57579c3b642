//! The tool information interface: settings, counters and events of the library, for programs that watch it.
//!
//! Control variables are the rows of the registry of settings; performance variables are the counters
//! of the engine and what the world knows of itself; events are what the engine notes while somebody
//! watches. All of it can be asked before a world runs and after it has ended.
//!
//! **Invariants**
//! - Nothing is counted for tools: a handle remembers where a counter stood, and differences are its
//!   value. Who does not watch pays for one look at a cell in each poll.
//! - Callbacks of the user run without a borrow, between two steps of the engine, and may call MPI.
//! - A handle that was freed, or of another kind, finds nothing.
//!
//! MPI: §15.3

mod category;
mod control;
mod event;
mod handle;
mod performance;

pub use category::{CATEGORIES, Category, Members};
pub use control::{Choices, Control, ControlValue, Scope, TEXT_MAX_BYTES};
pub use event::{
    Callback, Dropped, ELEMENTS, Element, EventInfo, SAFETIES, SOURCE_HELP, SOURCE_NAME, TICKS_PER_SECOND, ticks,
};
pub use performance::{PerformanceClass, PerformanceVariable};

use std::cell::RefCell;
use std::collections::BTreeMap;

use base::config::VARIABLES;
use base::{Config, Slab};

use crate::error::{ErrorClass, Result};
use crate::world::World;
use event::{Instance, Registration};
use performance::{PerformanceHandle, Session};

/// Most handles, sessions and registrations at a time.
const OBJECTS_MAX: usize = 1 << 20;

/// Who the information is for, least demanding first, in the terms of the standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verbosity {
    /// What every user may want to know.
    UserBasic,
    /// What helps to tune a program.
    TunerBasic,
    /// The same in detail.
    TunerDetail,
    /// What developers of the library ask for.
    DeveloperBasic,
}

/// The tool interface of one process.
///
/// ```
/// use mpi_core::tool::Tool;
/// let tool = Tool::new(|_| ());
/// assert!(tool.control_index("FERROVIA_EAGER_MAX").is_err(), "not initialised");
/// tool.initialize(base::Config::default()).unwrap();
/// let eager = tool.control_index("FERROVIA_EAGER_MAX").unwrap();
/// assert_eq!(tool.control(eager).unwrap().name, "FERROVIA_EAGER_MAX");
/// ```
pub struct Tool {
    state: RefCell<State>,
    performance: Vec<PerformanceVariable>,
    /// Called by a world in which watched events wait; it calls [`Tool::deliver`] of this value.
    sink: fn(&World),
}

#[derive(Default)]
struct State {
    /// How often the interface was initialised more than finalised.
    users: u32,
    /// The settings as they stand.
    settings: Config,
    /// Settings written before the world began: variable and value.
    overrides: BTreeMap<usize, String>,
    controls: Slab<usize>,
    sessions: Slab<Session>,
    handles: Slab<PerformanceHandle>,
    registrations: Slab<Registration>,
    instances: Slab<Instance>,
    is_delivering: bool,
}

impl Tool {
    /// An interface nobody uses yet. `sink` is handed to worlds whose events are watched, and has to
    /// call [`Tool::deliver`] of this value.
    pub fn new(sink: fn(&World)) -> Tool {
        Tool { state: RefCell::default(), performance: performance::variables(), sink }
    }

    /// One more user; `settings` are those of the environment.
    ///
    /// # Errors
    /// `ToolCannotInit` when there are too many.
    ///
    /// MPI: §15.3.4 `MPI_T_init_thread`
    pub fn initialize(&self, settings: Config) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let Some(users) = state.users.checked_add(1) else {
            return ErrorClass::ToolCannotInit.fail("the tool interface was initialised too often");
        };
        if state.users == 0 {
            state.settings = settings;
        }
        state.users = users;
        Ok(())
    }

    /// One user less; the last one takes all handles with it.
    ///
    /// # Errors
    /// `ToolNotInitialized`.
    ///
    /// MPI: §15.3.4 `MPI_T_finalize`
    pub fn finalize(&self, world: Option<&World>) -> Result<()> {
        self.check_initialized()?;
        let gone = {
            let mut state = self.state.borrow_mut();
            state.users -= 1;
            if state.users > 0 {
                return Ok(());
            }
            clear(&mut state.controls);
            clear(&mut state.sessions);
            clear(&mut state.handles);
            clear(&mut state.registrations)
        };
        drop(gone);
        self.update_watch(world);
        Ok(())
    }

    /// # Errors
    /// `ToolNotInitialized` if nobody uses the interface.
    pub fn check_initialized(&self) -> Result<()> {
        if self.state.borrow().users == 0 {
            return ErrorClass::ToolNotInitialized.fail("MPI_T_init_thread has not been called");
        }
        Ok(())
    }

    /// The settings that a world is to be started with in place of those of the environment: names and
    /// values.
    pub fn overrides(&self) -> Vec<(String, String)> {
        let state = self.state.borrow();
        state.overrides.iter().map(|(index, value)| (VARIABLES[*index].name.to_owned(), value.clone())).collect()
    }

    /// A world has begun: what is watched is watched in it.
    pub fn world_begins(&self, world: &World) {
        self.update_watch(Some(world));
    }
}

/// Takes everything out, so that old handles stay stale.
fn clear<T>(slab: &mut Slab<T>) -> Vec<T> {
    let keys: Vec<_> = slab.iter().map(|(key, _)| key).collect();
    keys.into_iter().filter_map(|key| slab.remove(key)).collect()
}

fn full(what: &str, class: ErrorClass) -> crate::Error {
    class.error(format!("there are {OBJECTS_MAX} {what} already"))
}
