//! Keys: what happens to their attributes when an object is copied or freed.
//!
//! MPI: §7.7.2

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{ErrorClass, Result};

/// How many keys can exist at a time, freed ones with attributes included.
const KEYS_MAX: usize = 1 << 20;

/// What a user attaches: an address or a number. The library never looks behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value(pub usize);

/// A copy callback: gets the object copied from, the number of the key and the value; says which
/// value the copy has, or that it has none.
pub type CopyFunction<O> = dyn Fn(&Arc<O>, i32, Value) -> Result<Option<Value>> + Send + Sync;

/// A delete callback: gets the object, the number of the key and the value.
pub type DeleteFunction<O> = dyn Fn(&Arc<O>, i32, Value) -> Result<()> + Send + Sync;

/// What a copy of an object gets under a key.
pub enum CopyRule<O: ?Sized> {
    /// Nothing: `MPI_COMM_NULL_COPY_FN`.
    Never,
    /// The same value: `MPI_COMM_DUP_FN`.
    Duplicate,
    /// What a callback says.
    Call(Box<CopyFunction<O>>),
}

/// What happens when an attribute goes away.
pub enum DeleteRule<O: ?Sized> {
    /// Nothing: `MPI_COMM_NULL_DELETE_FN`.
    Nothing,
    /// A callback is told, and may refuse.
    Call(Box<DeleteFunction<O>>),
}

/// A key for attributes of objects of type `O`.
pub struct Key<O: ?Sized> {
    number: i32,
    copy: CopyRule<O>,
    delete: DeleteRule<O>,
}

impl<O: ?Sized> Key<O> {
    /// The number of the key, as the callbacks see it.
    pub fn number(&self) -> i32 {
        self.number
    }

    pub(super) fn copy(&self, original: &Arc<O>, value: Value) -> Result<Option<Value>> {
        match &self.copy {
            CopyRule::Never => Ok(None),
            CopyRule::Duplicate => Ok(Some(value)),
            CopyRule::Call(function) => function(original, self.number, value),
        }
    }

    pub(super) fn delete(&self, object: &Arc<O>, value: Value) -> Result<()> {
        match &self.delete {
            DeleteRule::Nothing => Ok(()),
            DeleteRule::Call(function) => function(object, self.number, value),
        }
    }
}

impl<O: ?Sized> fmt::Debug for Key<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.number)
    }
}

/// All keys for objects of one type, by number.
pub struct Keys<O: ?Sized> {
    state: Mutex<State<O>>,
}

struct State<O: ?Sized> {
    next: i32,
    /// The keys that were not freed.
    held: HashMap<i32, Arc<Key<O>>>,
    /// Freed keys, some of which attributes may still refer to.
    freed: HashMap<i32, Weak<Key<O>>>,
}

impl<O: ?Sized> Keys<O> {
    /// No keys so far; numbers ascend from `first` and are never given out twice.
    pub fn new(first: i32) -> Self {
        Keys { state: Mutex::new(State { next: first, held: HashMap::new(), freed: HashMap::new() }) }
    }

    /// Makes a key and returns its number.
    ///
    /// # Errors
    /// `NoMem` when there are too many keys or no number is left.
    ///
    /// MPI: §7.7.2 `MPI_Comm_create_keyval`
    pub fn create(&self, copy: CopyRule<O>, delete: DeleteRule<O>) -> Result<i32> {
        let mut state = self.lock();
        state.freed.retain(|_, key| key.strong_count() > 0);
        let (number, next) = (state.next, state.next.checked_add(1));
        let Some(next) = next.filter(|_| state.held.len() + state.freed.len() < KEYS_MAX) else {
            return ErrorClass::NoMem.fail("there is no room for another attribute key");
        };
        state.next = next;
        state.held.insert(number, Arc::new(Key { number, copy, delete }));
        Ok(number)
    }

    /// The key with this number; a freed key can be found as long as attributes refer to it.
    ///
    /// # Errors
    /// `Keyval` if there is none.
    pub fn find(&self, number: i32) -> Result<Arc<Key<O>>> {
        let state = self.lock();
        let held = state.held.get(&number).cloned();
        held.or_else(|| state.freed.get(&number)?.upgrade()).ok_or_else(|| {
            ErrorClass::Keyval.error(format!("{number} is not a key for attributes of this kind of object"))
        })
    }

    /// Frees a key. Its attributes stay and keep following its rules; as long as there are any, it may be freed again,
    /// as a delete callback that frees its own key does at every object.
    ///
    /// # Errors
    /// `Keyval` if there is none with this number, or it was freed before and nothing refers to it any more.
    ///
    /// MPI: §7.7.2 `MPI_Comm_free_keyval`
    pub fn free(&self, number: i32) -> Result<()> {
        let mut state = self.lock();
        if let Some(key) = state.held.remove(&number) {
            state.freed.insert(number, Arc::downgrade(&key));
            return Ok(());
        }
        match state.freed.get(&number) {
            Some(key) if key.strong_count() > 0 => Ok(()),
            _ => ErrorClass::Keyval.fail(format!("{number} is not a key that can be freed")),
        }
    }

    /// Nothing between taking the lock and releasing it can panic, so it is never poisoned.
    fn lock(&self) -> MutexGuard<'_, State<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
