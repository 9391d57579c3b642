//! Events: what the engine notes while somebody watches, handed to callbacks of the user.
//!
//! ```text
//!   engine: note ──► bounded queue ──► end of a poll: for each registration of the kind,
//!                       │              the callback of the least demanding safety level
//!                       └ full: counted, told to the dropped handlers at the next delivery
//! ```
//! Callbacks run in a thread that is inside an MPI call anyway, without a borrow; they may call MPI.
//!
//! MPI: §15.3.8

use std::sync::Arc;

use base::SlabKey;
use engine::{Event, EventKind};
use rustix::time::{ClockId, clock_gettime};

use super::handle::{Kind, decode, encode, no_such};
use super::{OBJECTS_MAX, State, Tool, Verbosity, full};
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// Number of safety levels a callback can be registered for.
pub const SAFETIES: usize = 4;
/// Name of the one source of events.
pub const SOURCE_NAME: &str = "engine";
/// What it is.
pub const SOURCE_HELP: &str = "The engine of this process; its events come in the order in which they happened.";
/// Ticks of the clock of [`ticks`] in a second.
pub const TICKS_PER_SECOND: i64 = 1_000_000_000;

/// One number that an event carries.
pub struct Element {
    /// Where it stands in a copy of the event, in bytes.
    pub displacement_bytes: usize,
    /// True for an unsigned number of 64 bits, false for a signed one of 32.
    pub is_wide: bool,
}

/// What every event carries: length in bytes, process, tag; −1 where there is none.
pub const ELEMENTS: [Element; 3] = [
    Element { displacement_bytes: 0, is_wide: true },
    Element { displacement_bytes: 8, is_wide: false },
    Element { displacement_bytes: 12, is_wide: false },
];
/// Bytes of a copy of an event.
const EVENT_BYTES: usize = 16;

/// A kind of event.
pub struct EventInfo {
    /// Small letters and underscores.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Who may want to know.
    pub verbosity: Verbosity,
}

/// The kinds, in the order of [`EventKind::ALL`].
const EVENTS: [EventInfo; EventKind::ALL.len()] = [
    event("message_unexpected", "A message came before its receive. Bytes, sender, tag."),
    event("request_completed", "A request has completed. Bytes, other process, tag."),
    event("rendezvous_started", "A message too long for an eager send asks for its receive. Bytes, receiver, tag."),
    event("eager_waited", "An eager message found no room in its channel. Bytes, receiver, tag."),
    event("senders_held_back", "Unexpected data is past its budget. Bytes stored, no process, no tag."),
    event("record_refused", "A record of another process made no sense. No bytes, no process, no tag."),
];

const fn event(name: &'static str, help: &'static str) -> EventInfo {
    EventInfo { name, help, verbosity: Verbosity::TunerDetail }
}

/// Called with the handles of instance and registration, and what the tool gave with the callback.
pub type Callback = Arc<dyn Fn(u64, u64, usize) + Send + Sync>;
/// Called with the number of lost events, the handle of the registration, and what the tool gave with the
/// callback that missed them.
pub type Dropped = Arc<dyn Fn(u64, u64, usize) + Send + Sync>;

/// One kind of event as one tool watches it.
pub(super) struct Registration {
    kind: EventKind,
    /// By safety level, least demanding first.
    callbacks: [Option<(Callback, usize)>; SAFETIES],
    dropped: Option<Dropped>,
}

impl Registration {
    /// The callback of the least demanding level that has one.
    fn chosen(&self) -> Option<&(Callback, usize)> {
        self.callbacks.iter().flatten().next()
    }
}

/// An event while its callback runs.
pub(super) struct Instance(Event);

/// What the clock of events shows now, in ticks.
pub fn ticks() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec * TICKS_PER_SECOND + time.tv_nsec) as u64
}

impl Tool {
    /// Number of kinds of events.
    ///
    /// # Errors
    /// `ToolNotInitialized`.
    pub fn event_count(&self) -> Result<usize> {
        self.check_initialized().map(|()| EVENTS.len())
    }

    /// A kind of event by index.
    ///
    /// # Errors
    /// `ToolInvalidIndex`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_get_info`
    pub fn event(&self, index: i32) -> Result<&'static EventInfo> {
        self.check_initialized()?;
        let found = usize::try_from(index).ok().and_then(|index| EVENTS.get(index));
        found.ok_or_else(|| ErrorClass::ToolInvalidIndex.error(format!("there is no event type {index}")))
    }

    /// The index of a kind of event.
    ///
    /// # Errors
    /// `ToolInvalidName`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_get_index`
    pub fn event_index(&self, name: &str) -> Result<i32> {
        self.check_initialized()?;
        match EVENTS.iter().position(|event| event.name == name) {
            Some(index) => Ok(index as i32),
            None => ErrorClass::ToolInvalidName.fail(format!("there is no event type {name}")),
        }
    }

    /// # Errors
    /// `ToolInvalidIndex` unless `index` is that of the one source.
    pub fn check_source(&self, index: i32) -> Result<()> {
        self.check_initialized()?;
        match index {
            0 => Ok(()),
            _ => ErrorClass::ToolInvalidIndex.fail(format!("there is no event source {index}")),
        }
    }

    /// Registers for a kind of event, without a callback so far.
    ///
    /// # Errors
    /// `ToolInvalidIndex`, `ToolOutOfHandles`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_handle_alloc`
    pub fn register(&self, index: i32) -> Result<u64> {
        self.event(index)?;
        let registration =
            Registration { kind: EventKind::ALL[index as usize], callbacks: Default::default(), dropped: None };
        let mut state = self.state.borrow_mut();
        if state.registrations.len() >= OBJECTS_MAX {
            return Err(full("registrations", ErrorClass::ToolOutOfHandles));
        }
        Ok(encode(Kind::Registration, state.registrations.insert(registration)))
    }

    /// Sets or takes away the callback of a safety level, with a number to be handed back.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_register_callback`
    pub fn set_callback(
        &self,
        registration: u64,
        safety: usize,
        callback: Option<(Callback, usize)>,
        world: Option<&World>,
    ) -> Result<()> {
        let before =
            self.with_registration(registration, |entry| std::mem::replace(&mut entry.callbacks[safety], callback))?;
        drop(before);
        self.update_watch(world);
        Ok(())
    }

    /// Sets or takes away what is told of lost events.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_set_dropped_handler`
    pub fn set_dropped(&self, registration: u64, dropped: Option<Dropped>) -> Result<()> {
        let before = self.with_registration(registration, |entry| std::mem::replace(&mut entry.dropped, dropped))?;
        drop(before);
        Ok(())
    }

    /// # Errors
    /// `ToolInvalidHandle` if there is no such registration.
    pub fn check_registration(&self, registration: u64) -> Result<()> {
        self.with_registration(registration, |_| ())
    }

    /// Ends a registration; its callbacks are not called again.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_handle_free`
    pub fn unregister(&self, registration: u64, world: Option<&World>) -> Result<()> {
        self.check_initialized()?;
        let key = decode(Kind::Registration, registration, ErrorClass::ToolInvalidHandle)?;
        let gone = self.state.borrow_mut().registrations.remove(key);
        if gone.is_none() {
            return Err(no_such(registration, ErrorClass::ToolInvalidHandle));
        }
        drop(gone);
        self.update_watch(world);
        Ok(())
    }

    /// A copy of an event whose callback runs, laid out as [`ELEMENTS`] says.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_copy`
    pub fn copy_event(&self, instance: u64) -> Result<[u8; EVENT_BYTES]> {
        let event = self.instance(instance)?;
        let number = |number: Option<i64>| number.and_then(|number| i32::try_from(number).ok()).unwrap_or(-1);
        let mut bytes = [0; EVENT_BYTES];
        bytes[..8].copy_from_slice(&event.len_bytes.to_ne_bytes());
        bytes[8..12].copy_from_slice(&number(event.peer.map(i64::from)).to_ne_bytes());
        bytes[12..].copy_from_slice(&number(event.tag.map(i64::from)).to_ne_bytes());
        Ok(bytes)
    }

    /// When an event happened, in ticks.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.8 `MPI_T_event_get_timestamp`
    pub fn event_ticks(&self, instance: u64) -> Result<u64> {
        self.instance(instance).map(|event| event.time_ns)
    }

    /// Hands over what the engine of `world` has noted. Runs callbacks of the user.
    pub fn deliver(&self, world: &World) {
        {
            let mut state = self.state.borrow_mut();
            // A callback came back here through MPI: whoever called it goes on with what there is.
            if std::mem::replace(&mut state.is_delivering, true) {
                return;
            }
        }
        while let Some(event) = world.next_event() {
            for (registration, (callback, user_data)) in self.registered(event.kind, |entry| entry.chosen().cloned()) {
                // The callback before may have ended this registration.
                if self.check_registration(registration).is_err() {
                    continue;
                }
                let instance = self.state.borrow_mut().instances.insert(Instance(event));
                callback(encode(Kind::Instance, instance), registration, user_data);
                self.state.borrow_mut().instances.remove(instance);
            }
        }
        for kind in EventKind::ALL {
            let count = world.engine.borrow_mut().take_dropped_events(kind);
            if count > 0 {
                let of_entry =
                    |entry: &Registration| Some((entry.dropped.clone()?, entry.chosen().map_or(0, |(_, n)| *n)));
                for (registration, (dropped, user_data)) in self.registered(kind, of_entry) {
                    dropped(count, registration, user_data);
                }
            }
        }
        self.state.borrow_mut().is_delivering = false;
    }

    /// Something of each registration of a kind, in a list that lasts while callbacks change them.
    fn registered<T>(&self, kind: EventKind, what: impl Fn(&Registration) -> Option<T>) -> Vec<(u64, T)> {
        let state = self.state.borrow();
        let of_kind = state.registrations.iter().filter(|(_, entry)| entry.kind == kind);
        of_kind.filter_map(|(key, entry)| Some((encode(Kind::Registration, key), what(entry)?))).collect()
    }

    /// Has the engine note what somebody wants to know, and nothing else.
    pub(super) fn update_watch(&self, world: Option<&World>) {
        let Some(world) = world else { return };
        let kinds = watched(&self.state.borrow());
        world.watch(&kinds, ticks, self.sink);
    }

    fn with_registration<R>(&self, registration: u64, act: impl FnOnce(&mut Registration) -> R) -> Result<R> {
        self.check_initialized()?;
        let key = decode(Kind::Registration, registration, ErrorClass::ToolInvalidHandle)?;
        let mut state = self.state.borrow_mut();
        state.registrations.get_mut(key).map(act).ok_or_else(|| no_such(registration, ErrorClass::ToolInvalidHandle))
    }

    fn instance(&self, instance: u64) -> Result<Event> {
        self.check_initialized()?;
        let key: SlabKey = decode(Kind::Instance, instance, ErrorClass::ToolInvalidHandle)?;
        let state = self.state.borrow();
        let found = state.instances.get(key).map(|Instance(event)| *event);
        found.ok_or_else(|| no_such(instance, ErrorClass::ToolInvalidHandle))
    }
}

/// The kinds that have a callback.
fn watched(state: &State) -> Vec<EventKind> {
    let has_callback = |kind: &EventKind| {
        let mut of_kind = state.registrations.iter().filter(|(_, entry)| entry.kind == *kind);
        of_kind.any(|(_, entry)| entry.callbacks.iter().any(Option::is_some))
    };
    EventKind::ALL.into_iter().filter(has_callback).collect()
}
