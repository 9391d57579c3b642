//! Error numbers: what a face returns, and what can be asked about such a number later.
//!
//! Layout of a number up to [`ERROR_LAST_CODE`] (14 bits), as two fields:
//!
//! ```text
//!   13            6 5           0
//!  +---------------+-------------+
//!  |     slot      |    class    |    slot 0: the bare class
//!  +---------------+-------------+    slot 15 with a class above 40: a class of the tool
//!                                     interface (1001..=1018), which has no slots
//! ```
//!
//! A slot remembers the sentence of one recent error. `MPI_ERR_IN_STATUS` is always returned as the bare class, for that is
//! what programs compare with; slot 0 remembers the last one's sentence. Numbers above are the user's classes and
//! codes, given out in ascending order and never twice.
//!
//! MPI: §9.4, §9.5

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Error, ErrorClass, Result};

/// `MPI_ERR_LASTCODE`: no predefined number is greater.
pub const ERROR_LAST_CODE: i32 = 16_383;
/// `MPI_MAX_ERROR_STRING` less the terminating zero.
pub const ERROR_STRING_MAX_BYTES: usize = 511;

const CLASS_BITS: u32 = 6;
const CLASS_MASK: i32 = (1 << CLASS_BITS) - 1;
const SLOT_COUNT: usize = 256;
/// The slot whose numbers are the classes of the tool interface.
const TOOL_SLOT: usize = 15;
const TOOL_CLASSES: std::ops::RangeInclusive<i32> = 1001..=1018;

/// The classes, codes and strings known to one process, and its recent errors.
///
/// It can be shared between threads and be used before initialization and after finalization.
///
/// ```
/// use mpi_core::error::{ErrorClass, ErrorRegistry};
/// let registry = ErrorRegistry::new();
/// let code = registry.record(&ErrorClass::Rank.error("rank 9 of 4"));
/// assert_eq!(registry.error_class(code).unwrap(), ErrorClass::Rank.value());
/// assert_eq!(registry.error_string(code).unwrap(), "MPI_ERR_RANK: rank 9 of 4");
/// ```
#[derive(Debug)]
pub struct ErrorRegistry {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    recent: Vec<Option<(ErrorClass, String)>>,
    last_slot: usize,
    last_used: i32,
    user: BTreeMap<i32, UserNumber>,
}

/// A class or a code of the user; a class is its own class.
#[derive(Debug)]
struct UserNumber {
    class: i32,
    text: Option<String>,
}

impl Default for ErrorRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl ErrorRegistry {
    /// A registry that knows the predefined classes only.
    pub fn new() -> Self {
        ErrorRegistry {
            state: Mutex::new(State {
                recent: vec![None; SLOT_COUNT],
                last_slot: 0,
                last_used: ERROR_LAST_CODE,
                user: BTreeMap::new(),
            }),
        }
    }

    /// Remembers an error and returns the number a caller of the C face sees.
    ///
    /// The sentence stays available until 254 different errors have followed.
    pub fn record(&self, error: &Error) -> i32 {
        let mut state = self.lock();
        match error.code {
            Some(code) if ErrorClass::from_value(code).is_none() => return code,
            _ => {}
        }
        let class = error.class;
        if TOOL_CLASSES.contains(&class.value()) {
            return class.value();
        }
        if class == ErrorClass::InStatus {
            state.recent[0] = Some((class, error.message.clone()));
            return class.value();
        }
        let same = |slot: &Option<(ErrorClass, String)>| {
            slot.as_ref().is_some_and(|(known, text)| *known == class && *text == error.message)
        };
        if !same(&state.recent[state.last_slot]) {
            state.last_slot = next_slot(state.last_slot);
            let at = state.last_slot;
            state.recent[at] = Some((class, error.message.clone()));
        }
        code_of(class, state.last_slot)
    }

    /// The class of a number: `MPI_Error_class`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if the number is neither predefined nor defined by the user.
    pub fn error_class(&self, code: i32) -> Result<i32> {
        if code == 0 {
            return Ok(0);
        }
        match predefined_class(code) {
            Some(class) => Ok(class.value()),
            None => self.lock().user(code).map(|number| number.class),
        }
    }

    /// The text of a number, at most [`ERROR_STRING_MAX_BYTES`] long: `MPI_Error_string`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if the number is neither predefined nor defined by the user.
    pub fn error_string(&self, code: i32) -> Result<String> {
        if code == 0 {
            return Ok("MPI_SUCCESS: no error".to_owned());
        }
        let state = self.lock();
        let Some(class) = predefined_class(code) else {
            return Ok(state.user(code)?.text.clone().unwrap_or_default());
        };
        let recent = state.recent.get(slot_of(code)).and_then(Option::as_ref);
        let text = match recent {
            Some((known, text)) if *known == class => text.as_str(),
            _ => class.text(),
        };
        Ok(shortened(format!("{}: {text}", class.name())))
    }

    /// Creates a new class: `MPI_Add_error_class`.
    ///
    /// # Errors
    /// `MPI_ERR_OTHER` once all numbers are used up.
    pub fn add_error_class(&self) -> Result<i32> {
        let mut state = self.lock();
        let class = state.next_number()?;
        state.user.insert(class, UserNumber { class, text: None });
        Ok(class)
    }

    /// Creates a new code in a predefined or user class: `MPI_Add_error_code`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if there is no such class.
    pub fn add_error_code(&self, class: i32) -> Result<i32> {
        let mut state = self.lock();
        let known = ErrorClass::from_value(class).is_some() || state.is_user_class(class);
        if !known {
            return ErrorClass::Arg.fail(format!("{class} is not an error class"));
        }
        let code = state.next_number()?;
        state.user.insert(code, UserNumber { class, text: None });
        Ok(code)
    }

    /// Gives a class or code of the user a text: `MPI_Add_error_string`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if the number is not defined by the user or the text is longer than
    /// [`ERROR_STRING_MAX_BYTES`].
    pub fn add_error_string(&self, code: i32, text: &str) -> Result<()> {
        if text.len() > ERROR_STRING_MAX_BYTES {
            return ErrorClass::Arg.fail(format!(
                "the string of error code {code} has {} bytes, the limit is \
                 {ERROR_STRING_MAX_BYTES}",
                text.len()
            ));
        }
        self.lock().user_mut(code)?.text = Some(text.to_owned());
        Ok(())
    }

    /// Removes a class of the user that has no codes left: `MPI_Remove_error_class`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if the number is not a class of the user, has a string or still has codes.
    pub fn remove_error_class(&self, class: i32) -> Result<()> {
        let mut state = self.lock();
        if !state.is_user_class(class) {
            return ErrorClass::Arg.fail(format!("{class} is not a user-defined error class"));
        }
        let codes = || state.user.iter().filter(|(_, number)| number.class == class);
        if codes().count() > 1 {
            return ErrorClass::Arg.fail(format!("error class {class} cannot be removed: error codes of it are left"));
        }
        state.remove(class, "class")
    }

    /// Removes a code of the user: `MPI_Remove_error_code`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if the number is not a code of the user or still has a string.
    pub fn remove_error_code(&self, code: i32) -> Result<()> {
        let mut state = self.lock();
        if state.user(code)?.class == code {
            return ErrorClass::Arg.fail(format!("{code} is an error class, not an error code"));
        }
        state.remove(code, "code")
    }

    /// Removes the text of a number of the user: `MPI_Remove_error_string`.
    ///
    /// # Errors
    /// `MPI_ERR_ARG` if the number is not defined by the user or has no text.
    pub fn remove_error_string(&self, code: i32) -> Result<()> {
        let mut state = self.lock();
        match state.user_mut(code)?.text.take() {
            Some(_) => Ok(()),
            None => ErrorClass::Arg.fail(format!("error code {code} has no string")),
        }
    }

    /// The greatest number in use so far: the attribute `MPI_LASTUSEDCODE`.
    pub fn last_used_code(&self) -> i32 {
        self.lock().last_used
    }

    /// A panic elsewhere cannot leave the state half changed, so a poisoned lock is no obstacle.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_number(&mut self) -> Result<i32> {
        let Some(next) = self.last_used.checked_add(1) else {
            return ErrorClass::Other.fail("all error codes are used up");
        };
        self.last_used = next;
        Ok(next)
    }

    fn is_user_class(&self, class: i32) -> bool {
        self.user.get(&class).is_some_and(|number| number.class == class)
    }

    fn user(&self, code: i32) -> Result<&UserNumber> {
        self.user.get(&code).ok_or_else(|| unknown(code))
    }

    fn user_mut(&mut self, code: i32) -> Result<&mut UserNumber> {
        self.user.get_mut(&code).ok_or_else(|| unknown(code))
    }

    fn remove(&mut self, code: i32, what: &str) -> Result<()> {
        if self.user(code)?.text.is_some() {
            return ErrorClass::Arg.fail(format!("error {what} {code} cannot be removed: its string is left"));
        }
        self.user.remove(&code);
        Ok(())
    }
}

fn unknown(code: i32) -> Error {
    ErrorClass::Arg.error(format!("{code} is not an error class or code that is in use"))
}

fn next_slot(slot: usize) -> usize {
    match (slot + 1) % SLOT_COUNT {
        0 => 1,
        TOOL_SLOT => TOOL_SLOT + 1,
        next => next,
    }
}

fn code_of(class: ErrorClass, slot: usize) -> i32 {
    class.value() | ((slot as i32) << CLASS_BITS)
}

fn slot_of(code: i32) -> usize {
    (code >> CLASS_BITS) as usize
}

/// The class written into a number up to [`ERROR_LAST_CODE`].
pub(super) fn predefined_class(code: i32) -> Option<ErrorClass> {
    match code {
        1..=ERROR_LAST_CODE if slot_of(code) == TOOL_SLOT => ErrorClass::from_value(code),
        1..=ERROR_LAST_CODE => ErrorClass::from_value(code & CLASS_MASK),
        _ => None,
    }
}

fn shortened(mut text: String) -> String {
    let mut end = text.len().min(ERROR_STRING_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_its_own_class_with_a_text() {
        let registry = ErrorRegistry::new();
        for class in ErrorClass::all() {
            let value = class.value();
            assert_eq!(registry.error_class(value).unwrap(), value);
            let expected = format!("{}: {}", class.name(), class.text());
            assert_eq!(registry.error_string(value).unwrap(), expected);
        }
        assert_eq!(registry.error_class(0).unwrap(), 0);
    }

    #[test]
    fn recorded_errors_keep_class_and_text() {
        let registry = ErrorRegistry::new();
        let mut codes = Vec::new();
        for class in ErrorClass::all() {
            let code = registry.record(&class.error(format!("number {}", class.value())));
            assert!((1..=ERROR_LAST_CODE).contains(&code));
            codes.push((class, code));
        }
        for (class, code) in codes {
            assert_eq!(registry.error_class(code).unwrap(), class.value());
            let text = registry.error_string(code).unwrap();
            if !TOOL_CLASSES.contains(&class.value()) {
                assert!(text.ends_with(&format!("number {}", class.value())));
            }
        }
    }

    #[test]
    fn what_is_in_a_status_is_said_by_the_class_itself() {
        let registry = ErrorRegistry::new();
        for text in ["first", "second"] {
            assert_eq!(registry.record(&ErrorClass::InStatus.error(text)), ErrorClass::InStatus.value());
            assert!(registry.error_string(ErrorClass::InStatus.value()).unwrap().ends_with(text));
        }
        assert_eq!(registry.error_string(ErrorClass::Rank.value()).unwrap(), "MPI_ERR_RANK: invalid rank");
    }

    #[test]
    fn the_ring_forgets_the_oldest_but_keeps_classes() {
        let registry = ErrorRegistry::new();
        let first = registry.record(&ErrorClass::Tag.error("first"));
        let mut codes = std::collections::HashSet::from([first]);
        for number in 0..253 {
            let code = registry.record(&ErrorClass::Tag.error(format!("{number}")));
            assert!(codes.insert(code), "{code} was given out twice");
        }
        assert!(registry.error_string(first).unwrap().ends_with("first"));
        registry.record(&ErrorClass::Rank.error("one more"));
        let text = registry.error_string(first).unwrap();
        assert_eq!(text, "MPI_ERR_TAG: invalid tag");
        assert_eq!(registry.error_class(first).unwrap(), ErrorClass::Tag.value());
    }

    #[test]
    fn the_same_error_again_has_the_same_number() {
        let registry = ErrorRegistry::new();
        let error = ErrorClass::Tag.error("tag -7");
        assert_eq!(registry.record(&error), registry.record(&error));
    }

    #[test]
    fn user_numbers_ascend_and_know_their_class() {
        let registry = ErrorRegistry::new();
        assert_eq!(registry.last_used_code(), ERROR_LAST_CODE);
        let class = registry.add_error_class().unwrap();
        let code = registry.add_error_code(class).unwrap();
        let other = registry.add_error_code(ErrorClass::Io.value()).unwrap();
        assert_eq!([class, code, other], [16_384, 16_385, 16_386]);
        assert_eq!(registry.last_used_code(), other);
        assert_eq!(registry.error_class(class).unwrap(), class);
        assert_eq!(registry.error_class(code).unwrap(), class);
        assert_eq!(registry.error_class(other).unwrap(), ErrorClass::Io.value());
        assert_eq!(registry.error_string(code).unwrap(), "");
        registry.add_error_string(code, "out of coffee").unwrap();
        assert_eq!(registry.error_string(code).unwrap(), "out of coffee");
        let passed_on = registry.record(&Error::from_code(code, "from a callback"));
        assert_eq!(passed_on, code);
    }

    #[test]
    fn a_number_from_here_passes_through_a_callback() {
        let registry = ErrorRegistry::new();
        let code = registry.record(&ErrorClass::Tag.error("tag -7"));
        let returned = Error::from_code(code, "from a callback");
        assert_eq!(returned.class, ErrorClass::Tag);
        assert_eq!(registry.record(&returned), code);
        let bare = Error::from_code(ErrorClass::Tag.value(), "from a callback");
        let text = registry.error_string(registry.record(&bare)).unwrap();
        assert_eq!(text, "MPI_ERR_TAG: from a callback");
    }

    #[test]
    fn removal_goes_from_string_to_code_to_class() {
        let registry = ErrorRegistry::new();
        let class = registry.add_error_class().unwrap();
        let code = registry.add_error_code(class).unwrap();
        registry.add_error_string(code, "text").unwrap();
        assert!(registry.remove_error_class(class).is_err());
        assert!(registry.remove_error_code(code).is_err());
        assert!(registry.remove_error_code(class).is_err());
        registry.remove_error_string(code).unwrap();
        assert!(registry.remove_error_string(code).is_err());
        registry.remove_error_code(code).unwrap();
        assert!(registry.remove_error_code(code).is_err());
        registry.remove_error_class(class).unwrap();
        assert!(registry.error_class(class).is_err());
        assert_eq!(registry.add_error_class().unwrap(), code + 1);
    }

    #[test]
    fn predefined_and_unknown_numbers_cannot_be_changed() {
        let registry = ErrorRegistry::new();
        for code in [-1, 0, 1, 63, 1000, ERROR_LAST_CODE, ERROR_LAST_CODE + 1, i32::MAX] {
            assert!(registry.add_error_string(code, "x").is_err(), "{code}");
            assert!(registry.remove_error_class(code).is_err(), "{code}");
            assert!(registry.remove_error_code(code).is_err(), "{code}");
            assert!(registry.remove_error_string(code).is_err(), "{code}");
        }
        assert!(registry.add_error_code(63).is_err());
        assert!(registry.error_string(63).is_err());
        assert!(registry.error_class(-5).is_err());
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let registry = ErrorRegistry::new();
        let code = registry.record(&ErrorClass::Io.error("ä".repeat(400)));
        let text = registry.error_string(code).unwrap();
        assert!((ERROR_STRING_MAX_BYTES - 1..=ERROR_STRING_MAX_BYTES).contains(&text.len()));
        let class = registry.add_error_class().unwrap();
        assert!(registry.add_error_string(class, &"x".repeat(512)).is_err());
        assert!(registry.add_error_string(class, &"x".repeat(511)).is_ok());
    }
}
