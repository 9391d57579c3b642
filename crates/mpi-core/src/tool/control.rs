//! Control variables: the settings of the registry.
//!
//! MPI: §15.3.6

use base::SlabKey;
use base::config::{Kind as ValueKind, VARIABLES, Variable};

use super::handle::{Kind, decode, encode, no_such};
use super::{OBJECTS_MAX, Tool, Verbosity, full};
use crate::error::{ErrorClass, Result};
use crate::world::World;

/// Room for a setting that is text, the terminating zero included.
pub const TEXT_MAX_BYTES: usize = 1024;

/// `auto`, of a setting that is a number of bytes otherwise.
const AUTO_BYTES: u64 = u64::MAX;

/// Settings a running world takes over; the others are read when it begins.
const ADOPTED: &[&str] = &[
    "FERROVIA_EAGER_MAX",
    "FERROVIA_UNEXPECTED_MAX",
    "FERROVIA_LARGE_COPY",
    "FERROVIA_CROSS_MEMORY_MIN",
    "FERROVIA_STAGED_NEAR_MAX",
    "FERROVIA_SHARED_COPY_MIN",
];
/// Settings that have to be the same in all processes.
const EQUAL: &[&str] = &["FERROVIA_CHANNEL", "FERROVIA_COLLECTIVES", "FERROVIA_REPRODUCIBLE"];
/// Settings that every user may want to know.
const BASIC: &[&str] = &["FERROVIA_EAGER_MAX", "FERROVIA_COLLECTIVES", "FERROVIA_LOG", "FERROVIA_STATS"];

/// Which processes have to agree on a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// None.
    Local,
    /// All of them.
    AllEqual,
}

/// The words of a setting that takes one of several.
pub type Choices = Vec<&'static str>;

/// A setting as a control variable.
pub struct Control {
    /// Its name in the environment.
    pub name: &'static str,
    /// One sentence, and what may be written.
    pub help: String,
    /// What kind of value it has.
    pub kind: ValueKind,
    /// Which processes have to agree.
    pub scope: Scope,
    /// Who may want to know.
    pub verbosity: Verbosity,
}

/// The value of a setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlValue {
    /// Of a number of bytes.
    Bytes(u64),
    /// Of a number (−1: automatic) or a choice (its place among the words).
    Int(i32),
    /// Of text.
    Text(String),
}

impl Tool {
    /// Number of settings.
    ///
    /// # Errors
    /// `ToolNotInitialized`.
    pub fn control_count(&self) -> Result<usize> {
        self.check_initialized().map(|()| VARIABLES.len())
    }

    /// A setting by index.
    ///
    /// # Errors
    /// `ToolInvalidIndex`.
    ///
    /// MPI: §15.3.6 `MPI_T_cvar_get_info`
    pub fn control(&self, index: i32) -> Result<Control> {
        let variable = self.variable(index)?;
        let is_among = |list: &[&str]| list.contains(&variable.name);
        Ok(Control {
            name: variable.name,
            help: format!("{} Values: {}.", variable.help, variable.values),
            kind: variable.kind(),
            scope: if is_among(EQUAL) { Scope::AllEqual } else { Scope::Local },
            verbosity: if is_among(BASIC) { Verbosity::UserBasic } else { Verbosity::TunerDetail },
        })
    }

    /// The index of a setting.
    ///
    /// # Errors
    /// `ToolInvalidName`.
    ///
    /// MPI: §15.3.6 `MPI_T_cvar_get_index`
    pub fn control_index(&self, name: &str) -> Result<i32> {
        self.check_initialized()?;
        match VARIABLES.iter().position(|variable| variable.name == name) {
            Some(index) => Ok(index as i32),
            None => ErrorClass::ToolInvalidName.fail(format!("there is no control variable {name}")),
        }
    }

    /// The handle of the enumeration of a setting's choices.
    ///
    /// # Errors
    /// `ToolInvalidIndex`.
    pub fn enumeration(&self, index: i32) -> Result<Option<u64>> {
        let variable = self.variable(index)?;
        let key = SlabKey::from_bits(index as u64);
        Ok(matches!(variable.kind(), ValueKind::Choice(_)).then(|| encode(Kind::Enumeration, key)))
    }

    /// Name and words of an enumeration.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.5 `MPI_T_enum_get_info`
    pub fn enumeration_items(&self, handle: u64) -> Result<(&'static str, Choices)> {
        self.check_initialized()?;
        let key = decode(Kind::Enumeration, handle, ErrorClass::ToolInvalidHandle)?;
        let variable = VARIABLES.get(key.to_bits() as usize);
        match variable.map(|variable| (variable.name, variable.kind())) {
            Some((name, ValueKind::Choice(words))) => Ok((name, words)),
            _ => Err(no_such(handle, ErrorClass::ToolInvalidHandle)),
        }
    }

    /// A handle by which a setting is read and written.
    ///
    /// # Errors
    /// `ToolInvalidIndex`, `ToolOutOfHandles`.
    ///
    /// MPI: §15.3.6 `MPI_T_cvar_handle_alloc`
    pub fn allocate_control(&self, index: i32) -> Result<u64> {
        self.variable(index)?;
        let mut state = self.state.borrow_mut();
        if state.controls.len() >= OBJECTS_MAX {
            return Err(full("handles of control variables", ErrorClass::ToolOutOfHandles));
        }
        Ok(encode(Kind::Control, state.controls.insert(index as usize)))
    }

    /// Gives a handle back.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.6 `MPI_T_cvar_handle_free`
    pub fn free_control(&self, handle: u64) -> Result<()> {
        self.check_initialized()?;
        let key = decode(Kind::Control, handle, ErrorClass::ToolInvalidHandle)?;
        match self.state.borrow_mut().controls.remove(key) {
            Some(_) => Ok(()),
            None => Err(no_such(handle, ErrorClass::ToolInvalidHandle)),
        }
    }

    /// What kind of value the setting behind a handle has.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    pub fn control_kind(&self, handle: u64) -> Result<ValueKind> {
        self.controlled(handle).map(|index| VARIABLES[index].kind())
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// `ToolInvalidHandle`.
    ///
    /// MPI: §15.3.6 `MPI_T_cvar_read`
    pub fn read_control(&self, handle: u64) -> Result<ControlValue> {
        let variable = &VARIABLES[self.controlled(handle)?];
        let shown = variable.value(&self.state.borrow().settings);
        Ok(match variable.kind() {
            ValueKind::Bytes => ControlValue::Bytes(shown.parse().unwrap_or(AUTO_BYTES)),
            // Numbers greater than an int can say are as good as the greatest int.
            ValueKind::Number if shown == "auto" => ControlValue::Int(-1),
            ValueKind::Number => ControlValue::Int(shown.parse().unwrap_or(i32::MAX)),
            ValueKind::Choice(words) => {
                ControlValue::Int(words.iter().position(|word| *word == shown).map_or(-1, |at| at as i32))
            }
            ValueKind::Text => ControlValue::Text(shown),
        })
    }

    /// Changes a setting: of the running world, or of the next one.
    ///
    /// # Errors
    /// `ToolInvalidHandle`, `ToolInvalid` for a value that is not understood, `ToolCvarSetNotNow` for a
    /// setting that a running world does not take over.
    ///
    /// MPI: §15.3.6 `MPI_T_cvar_write`
    pub fn write_control(&self, handle: u64, value: ControlValue, world: Option<&World>) -> Result<()> {
        let index = self.controlled(handle)?;
        let variable = &VARIABLES[index];
        if world.is_some() && !ADOPTED.contains(&variable.name) {
            return ErrorClass::ToolCvarSetNotNow.fail(format!("{} is read when MPI is initialised", variable.name));
        }
        let text = text_of(variable, value)?;
        let mut state = self.state.borrow_mut();
        let mut settings = state.settings.clone();
        variable.assign(&mut settings, &text).map_err(|error| ErrorClass::ToolInvalid.error(error.to_string()))?;
        if let Some(world) = world {
            world.engine.borrow_mut().adopt(&settings);
        }
        state.settings = settings;
        state.overrides.insert(index, text);
        Ok(())
    }

    fn variable(&self, index: i32) -> Result<&'static Variable> {
        self.check_initialized()?;
        let variable = usize::try_from(index).ok().and_then(|index| VARIABLES.get(index));
        variable.ok_or_else(|| ErrorClass::ToolInvalidIndex.error(format!("there is no control variable {index}")))
    }

    fn controlled(&self, handle: u64) -> Result<usize> {
        self.check_initialized()?;
        let key = decode(Kind::Control, handle, ErrorClass::ToolInvalidHandle)?;
        let state = self.state.borrow();
        state.controls.get(key).copied().ok_or_else(|| no_such(handle, ErrorClass::ToolInvalidHandle))
    }
}

/// A value as it would stand in the environment.
fn text_of(variable: &Variable, value: ControlValue) -> Result<String> {
    match (variable.kind(), value) {
        (ValueKind::Bytes, ControlValue::Bytes(AUTO_BYTES)) => Ok("auto".to_owned()),
        (ValueKind::Bytes, ControlValue::Bytes(bytes)) => Ok(bytes.to_string()),
        (ValueKind::Number, ControlValue::Int(-1)) => Ok("auto".to_owned()),
        (ValueKind::Number, ControlValue::Int(number)) => Ok(number.to_string()),
        (ValueKind::Choice(words), ControlValue::Int(at)) => {
            let word = usize::try_from(at).ok().and_then(|at| words.get(at));
            let none = || ErrorClass::ToolInvalid.error(format!("{} has no choice {at}", variable.name));
            word.map(|word| (*word).to_owned()).ok_or_else(none)
        }
        (ValueKind::Text, ControlValue::Text(text)) => Ok(text),
        (kind, value) => ErrorClass::ToolInvalid.fail(format!("{value:?} is no value of {} ({kind:?})", variable.name)),
    }
}
