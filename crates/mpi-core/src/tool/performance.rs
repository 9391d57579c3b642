//! Performance variables: counters, levels and watermarks, seen through handles of sessions.
//!
//! A counter runs whether or not anybody looks. A handle that is running shows by how much it has grown
//! since the handle was started; several handles of one counter do not disturb each other.
//!
//! MPI: §15.3.7

use std::sync::{Arc, Weak};

use base::SlabKey;
use engine::{Counter, CounterKind, Stats};

use super::handle::{Kind, decode, encode, no_such};
use super::{OBJECTS_MAX, State, Tool, Verbosity, full};
use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// What a value means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerformanceClass {
    /// How much of something there is now.
    Level,
    /// The most there was.
    HighWatermark,
    /// The least there was.
    LowWatermark,
    /// How often something happened.
    Counter,
    /// How long something took, in nanoseconds.
    Timer,
}

impl PerformanceClass {
    /// Every class.
    pub const ALL: [PerformanceClass; 5] = [
        PerformanceClass::Level,
        PerformanceClass::HighWatermark,
        PerformanceClass::LowWatermark,
        PerformanceClass::Counter,
        PerformanceClass::Timer,
    ];
}

/// One variable; its values are 64-bit unsigned integers.
pub struct PerformanceVariable {
    /// Small letters and underscores.
    pub name: String,
    /// One sentence.
    pub help: &'static str,
    /// What a value means.
    pub class: PerformanceClass,
    /// Who may want to know.
    pub verbosity: Verbosity,
    source: Source,
}

#[derive(Clone, Copy)]
enum Source {
    /// A counter of the engine.
    Engine(&'static Counter),
    /// Something a world can be asked.
    World(fn(&World) -> u64),
    /// Something of a world that only grows.
    Total(fn(&World) -> u64),
    /// The most unexpected bytes since the handle was reset.
    UnexpectedWatermark,
    /// What that left of the budget for them.
    RoomWatermark,
    /// Something a communicator can be asked.
    Comm(fn(&Comm) -> u64),
}

impl PerformanceVariable {
    /// True if handles belong to a communicator.
    pub fn is_of_communicator(&self) -> bool {
        matches!(self.source, Source::Comm(_))
    }

    /// True if handles can be neither written nor reset.
    pub fn is_read_only(&self) -> bool {
        match self.source {
            Source::Engine(counter) => counter.kind != CounterKind::Total,
            Source::World(_) => true,
            Source::Total(_) | Source::UnexpectedWatermark | Source::RoomWatermark | Source::Comm(_) => false,
        }
    }

    /// True if handles run all the time: they can be neither started nor stopped.
    pub fn is_continuous(&self) -> bool {
        !matches!(self.class, PerformanceClass::Counter | PerformanceClass::Timer)
    }

    /// True if a handle remembers how high the unexpected bytes have been.
    fn is_watermark(&self) -> bool {
        matches!(self.source, Source::UnexpectedWatermark | Source::RoomWatermark)
    }
}

/// Every variable there is.
pub(super) fn variables() -> Vec<PerformanceVariable> {
    let of_engine = Stats::COUNTERS.iter().map(|counter| PerformanceVariable {
        name: identifier(counter.name),
        help: counter.help,
        class: match counter.kind {
            CounterKind::Total => PerformanceClass::Counter,
            CounterKind::Peak => PerformanceClass::HighWatermark,
            CounterKind::Level => PerformanceClass::Level,
        },
        verbosity: Verbosity::TunerBasic,
        source: Source::Engine(counter),
    });
    let level = |name: &str, help, value| PerformanceVariable {
        name: name.to_owned(),
        help,
        class: PerformanceClass::Level,
        verbosity: Verbosity::DeveloperBasic,
        source: Source::World(value),
    };
    let levels = [
        level("unexpected_messages_stored", "Messages that came before their receive and are stored now.", |world| {
            world.engine.borrow().unexpected_count() as u64
        }),
        level("unexpected_bytes_stored", "Bytes of unexpected data stored now.", |world| {
            world.engine.borrow().unexpected_bytes()
        }),
        level("sends_pending", "Sends that others still need data of.", |world| {
            world.engine.borrow().pending_sends() as u64
        }),
        level("communicators_live", "Communicators that this process is a member of.", |world| {
            world.live_communicators() as u64
        }),
        level("operations_pending", "Non-blocking collective and partitioned operations under way.", |world| {
            world.operations.unfinished_count() as u64
        }),
    ];
    let others = [
        PerformanceVariable {
            name: "unexpected_bytes_watermark".to_owned(),
            help: "Most bytes of unexpected data held at once since the handle was reset.",
            class: PerformanceClass::HighWatermark,
            verbosity: Verbosity::TunerBasic,
            source: Source::UnexpectedWatermark,
        },
        PerformanceVariable {
            name: "unexpected_room_watermark".to_owned(),
            help: "Least bytes of the budget for unexpected data that were free since the handle was reset.",
            class: PerformanceClass::LowWatermark,
            verbosity: Verbosity::TunerBasic,
            source: Source::RoomWatermark,
        },
        PerformanceVariable {
            name: "time_asleep".to_owned(),
            help: "Nanoseconds that threads of this process have slept while they waited for others.",
            class: PerformanceClass::Timer,
            verbosity: Verbosity::UserBasic,
            source: Source::Total(World::asleep_ns),
        },
        PerformanceVariable {
            name: "collectives_started".to_owned(),
            help: "Collective operations that this process has started on a communicator.",
            class: PerformanceClass::Counter,
            verbosity: Verbosity::UserBasic,
            source: Source::Comm(Comm::collectives_started),
        },
    ];
    of_engine.chain(levels).chain(others).collect()
}

/// `"unexpected bytes, peak"` as `unexpected_bytes_peak`.
fn identifier(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_").to_lowercase()
}

/// What keeps the handles of one tool apart from those of others.
pub(super) struct Session;

/// One look at a variable.
pub(super) struct PerformanceHandle {
    session: SlabKey,
    variable: usize,
    comm: Option<Weak<Comm>>,
    is_running: bool,
    /// What was counted until it was last started or stopped; of both watermarks, the most unexpected bytes.
    value: u64,
    /// Where the counter stood when it was started.
    begin: u64,
}

impl Tool {
    /// All performance variables.
    ///
    /// # Errors
    /// `ToolNotInitialized`.
    pub fn performance_variables(&self) -> Result<&[PerformanceVariable]> {
        self.check_initialized().map(|()| self.performance.as_slice())
    }

    /// A performance variable by index.
    ///
    /// # Errors
    /// `ToolInvalidIndex`.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_get_info`
    pub fn performance_variable(&self, index: i32) -> Result<&PerformanceVariable> {
        let all = self.performance_variables()?;
        let found = usize::try_from(index).ok().and_then(|index| all.get(index));
        found.ok_or_else(|| ErrorClass::ToolInvalidIndex.error(format!("there is no performance variable {index}")))
    }

    /// The index of a performance variable.
    ///
    /// # Errors
    /// `ToolInvalidName`, also if its class is another one.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_get_index`
    pub fn performance_index(&self, name: &str, class: Option<PerformanceClass>) -> Result<i32> {
        let all = self.performance_variables()?;
        let found = all.iter().position(|variable| variable.name == name && Some(variable.class) == class);
        let none =
            || ErrorClass::ToolInvalidName.error(format!("there is no performance variable {name} of {class:?}"));
        found.map(|index| index as i32).ok_or_else(none)
    }

    /// A new session.
    ///
    /// # Errors
    /// `ToolOutOfSessions`.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_session_create`
    pub fn create_session(&self) -> Result<u64> {
        self.check_initialized()?;
        let mut state = self.state.borrow_mut();
        if state.sessions.len() >= OBJECTS_MAX {
            return Err(full("sessions", ErrorClass::ToolOutOfSessions));
        }
        Ok(encode(Kind::Session, state.sessions.insert(Session)))
    }

    /// Ends a session; its handles go with it.
    ///
    /// # Errors
    /// `ToolInvalidSession`.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_session_free`
    pub fn free_session(&self, session: u64) -> Result<()> {
        let key = self.session(session)?;
        let mut state = self.state.borrow_mut();
        state.sessions.remove(key);
        for handle in handles_of(&state, key) {
            state.handles.remove(handle);
        }
        Ok(())
    }

    /// A handle of a variable; one that is continuous runs from now on, others stand at 0.
    ///
    /// # Errors
    /// `ToolInvalidSession`, `ToolInvalidIndex`, `ToolOutOfHandles`; `ToolInvalidHandle` if a variable
    /// of communicators is given none.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_handle_alloc`
    pub fn allocate_performance(
        &self,
        session: u64,
        index: i32,
        comm: Option<&Arc<Comm>>,
        world: Option<&World>,
    ) -> Result<u64> {
        let session = self.session(session)?;
        let variable = self.performance_variable(index)?;
        if variable.is_of_communicator() && comm.is_none() {
            return ErrorClass::ToolInvalidHandle.fail(format!("{} belongs to a communicator", variable.name));
        }
        let comm = comm.filter(|_| variable.is_of_communicator()).map(Arc::downgrade);
        let is_running = variable.is_continuous();
        let mut state = self.state.borrow_mut();
        if state.handles.len() >= OBJECTS_MAX {
            return Err(full("handles of performance variables", ErrorClass::ToolOutOfHandles));
        }
        let index = index as usize;
        let handle = PerformanceHandle { session, variable: index, comm, is_running, value: 0, begin: 0 };
        let key = state.handles.insert(handle);
        if variable.is_watermark() {
            self.restart_watermark(&mut state, key, world);
        }
        Ok(encode(Kind::Performance, key))
    }

    /// Gives a handle back.
    ///
    /// # Errors
    /// `ToolInvalidSession`, `ToolInvalidHandle` also for a handle of another session.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_handle_free`
    pub fn free_performance(&self, session: u64, handle: u64) -> Result<()> {
        let key = self.handle_in(session, handle)?;
        self.state.borrow_mut().handles.remove(key);
        Ok(())
    }

    /// Starts a handle, or with `None` all of the session that can be started.
    ///
    /// # Errors
    /// `ToolInvalidSession`, `ToolInvalidHandle`; `ToolPvarNoStartstop` for a continuous variable.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_start`
    pub fn start_performance(&self, session: u64, handle: Option<u64>, world: Option<&World>) -> Result<()> {
        self.set_running(session, handle, world, true)
    }

    /// Stops a handle, or with `None` all of the session that can be stopped.
    ///
    /// # Errors
    /// As [`Tool::start_performance`].
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_stop`
    pub fn stop_performance(&self, session: u64, handle: Option<u64>, world: Option<&World>) -> Result<()> {
        self.set_running(session, handle, world, false)
    }

    fn set_running(&self, session: u64, handle: Option<u64>, world: Option<&World>, running: bool) -> Result<()> {
        for key in self.handles_meant(session, handle)? {
            let mut state = self.state.borrow_mut();
            let now = self.source_value(&state, key, world)?;
            let Some(entry) = state.handles.get_mut(key) else { continue };
            let variable = &self.performance[entry.variable];
            if variable.is_continuous() {
                if handle.is_none() {
                    continue;
                }
                return ErrorClass::ToolPvarNoStartstop.fail(format!("{} runs all the time", variable.name));
            }
            if running && !entry.is_running {
                entry.begin = now;
            } else if !running && entry.is_running {
                entry.value = entry.value.wrapping_add(now.wrapping_sub(entry.begin));
            }
            entry.is_running = running;
        }
        Ok(())
    }

    /// The value of a handle.
    ///
    /// # Errors
    /// `ToolInvalidSession`; `ToolInvalidHandle` also if the communicator is gone.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_read`
    pub fn read_performance(&self, session: u64, handle: u64, world: Option<&World>) -> Result<u64> {
        let key = self.handle_in(session, handle)?;
        let mut state = self.state.borrow_mut();
        let now = self.source_value(&state, key, world)?;
        let variable = state.handles.get(key).map_or(0, |entry| entry.variable);
        match self.performance[variable].source {
            Source::UnexpectedWatermark | Source::RoomWatermark => self.fold_watermarks(&mut state, world),
            Source::World(_) => return Ok(now),
            Source::Engine(counter) if counter.kind != CounterKind::Total => return Ok(now),
            Source::Engine(_) | Source::Total(_) | Source::Comm(_) => {}
        }
        let Some(entry) = state.handles.get(key) else { return Err(no_such(handle, ErrorClass::ToolInvalidHandle)) };
        let variable = &self.performance[entry.variable];
        let is_counting = entry.is_running && !variable.is_continuous();
        Ok(match variable.source {
            Source::RoomWatermark => budget(&state).saturating_sub(entry.value),
            _ if is_counting => entry.value.wrapping_add(now.wrapping_sub(entry.begin)),
            _ => entry.value,
        })
    }

    /// Sets the value of a handle.
    ///
    /// # Errors
    /// `ToolInvalidSession`, `ToolInvalidHandle`, `ToolPvarNoWrite`.
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_write`
    pub fn write_performance(&self, session: u64, handle: u64, value: u64, world: Option<&World>) -> Result<()> {
        let key = self.handle_in(session, handle)?;
        self.check_writable(key)?;
        let mut state = self.state.borrow_mut();
        let now = self.source_value(&state, key, world)?;
        self.fold_watermarks(&mut state, world);
        let budget = budget(&state);
        if let Some(entry) = state.handles.get_mut(key) {
            let is_room = matches!(self.performance[entry.variable].source, Source::RoomWatermark);
            (entry.value, entry.begin) = (if is_room { budget.saturating_sub(value) } else { value }, now);
        }
        Ok(())
    }

    /// Sets a handle to where it starts, or with `None` all of the session that can be: counters to 0,
    /// watermarks to the level of now.
    ///
    /// # Errors
    /// As [`Tool::write_performance`].
    ///
    /// MPI: §15.3.7 `MPI_T_pvar_reset`
    pub fn reset_performance(&self, session: u64, handle: Option<u64>, world: Option<&World>) -> Result<()> {
        for key in self.handles_meant(session, handle)? {
            match self.check_writable(key) {
                Err(_) if handle.is_none() => continue,
                checked => checked?,
            }
            let mut state = self.state.borrow_mut();
            let now = self.source_value(&state, key, world)?;
            let Some(entry) = state.handles.get_mut(key) else { continue };
            (entry.value, entry.begin) = (0, now);
            if self.performance[entry.variable].is_watermark() {
                self.restart_watermark(&mut state, key, world);
            }
        }
        Ok(())
    }

    /// Where the source of a handle stands.
    fn source_value(&self, state: &State, key: SlabKey, world: Option<&World>) -> Result<u64> {
        let Some(entry) = state.handles.get(key) else { return Ok(0) };
        Ok(match self.performance[entry.variable].source {
            Source::Engine(counter) => world.map_or(0, |world| (counter.value)(&world.engine.borrow().stats())),
            Source::World(value) | Source::Total(value) => world.map_or(0, value),
            Source::UnexpectedWatermark | Source::RoomWatermark => 0,
            Source::Comm(value) => match entry.comm.as_ref().and_then(Weak::upgrade) {
                Some(comm) => value(&comm),
                None => return ErrorClass::ToolInvalidHandle.fail("the communicator of the handle has been freed"),
            },
        })
    }

    /// Lets every handle of a watermark know how high the level has been.
    fn fold_watermarks(&self, state: &mut State, world: Option<&World>) {
        let Some(world) = world else { return };
        let peak = world.engine.borrow_mut().take_unexpected_peak();
        for (_, entry) in state.handles.iter_mut() {
            if self.performance[entry.variable].is_watermark() {
                entry.value = entry.value.max(peak);
            }
        }
    }

    /// From now on a handle of a watermark knows the level of now only.
    fn restart_watermark(&self, state: &mut State, key: SlabKey, world: Option<&World>) {
        self.fold_watermarks(state, world);
        let level = world.map_or(0, |world| world.engine.borrow().unexpected_bytes());
        if let Some(entry) = state.handles.get_mut(key) {
            entry.value = level;
        }
    }

    fn check_writable(&self, key: SlabKey) -> Result<()> {
        let variable = self.state.borrow().handles.get(key).map_or(0, |entry| entry.variable);
        let variable = &self.performance[variable];
        if variable.is_read_only() {
            return ErrorClass::ToolPvarNoWrite.fail(format!("{} can be read only", variable.name));
        }
        Ok(())
    }

    fn session(&self, session: u64) -> Result<SlabKey> {
        self.check_initialized()?;
        let key = decode(Kind::Session, session, ErrorClass::ToolInvalidSession)?;
        match self.state.borrow().sessions.get(key) {
            Some(_) => Ok(key),
            None => Err(no_such(session, ErrorClass::ToolInvalidSession)),
        }
    }

    fn handle_in(&self, session: u64, handle: u64) -> Result<SlabKey> {
        let session = self.session(session)?;
        let key = decode(Kind::Performance, handle, ErrorClass::ToolInvalidHandle)?;
        match self.state.borrow().handles.get(key) {
            Some(entry) if entry.session == session => Ok(key),
            _ => Err(no_such(handle, ErrorClass::ToolInvalidHandle)),
        }
    }

    fn handles_meant(&self, session: u64, handle: Option<u64>) -> Result<Vec<SlabKey>> {
        match handle {
            Some(handle) => Ok(vec![self.handle_in(session, handle)?]),
            None => Ok(handles_of(&self.state.borrow(), self.session(session)?)),
        }
    }
}

/// How many unexpected bytes may be held, as the settings stand.
fn budget(state: &State) -> u64 {
    state.settings.unexpected_max_bytes as u64
}

fn handles_of(state: &State, session: SlabKey) -> Vec<SlabKey> {
    state.handles.iter().filter(|(_, entry)| entry.session == session).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers_and_differ() {
        let all = variables();
        for (index, variable) in all.iter().enumerate() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(variable.name.chars().all(plain) && variable.help.ends_with('.'), "{}", variable.name);
            assert!(all[..index].iter().all(|other| other.name != variable.name), "{}", variable.name);
        }
        assert_eq!(identifier("unexpected bytes, peak"), "unexpected_bytes_peak");
    }
}
