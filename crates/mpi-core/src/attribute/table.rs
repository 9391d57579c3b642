//! Attributes of objects that have no room for them themselves, such as datatypes.
//!
//! MPI: §7.7.4

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Attributes, Key, Value};
use crate::error::Result;

/// The attributes of any number of objects of type `O`, found by the identity of the object.
///
/// An object with attributes is kept alive until [`AttributeTable::delete_all`] is called for it.
/// The rules and errors of each call are those of [`Attributes`].
pub struct AttributeTable<O> {
    rows: Mutex<HashMap<usize, Row<O>>>,
    /// Whether any object has ever had a row: most programs give their datatypes no attributes, and each is asked for them
    /// when it is freed.
    was_used: AtomicBool,
}

struct Row<O> {
    attributes: Arc<Attributes<O>>,
    /// Keeps the address that is the name of the row from being used again.
    _object: Arc<O>,
}

impl<O> AttributeTable<O> {
    /// The value an object has under the key of this number.
    pub fn get(&self, object: &Arc<O>, number: i32) -> Option<Value> {
        self.row(object)?.get(number)
    }

    /// Sets the value under a key.
    ///
    /// # Errors
    /// As [`Attributes::set`].
    pub fn set(&self, object: &Arc<O>, key: &Arc<Key<O>>, value: Value) -> Result<()> {
        self.row_or_new(object).set(object, key, value)
    }

    /// Deletes the attribute under a key, if there is one.
    ///
    /// # Errors
    /// As [`Attributes::delete`].
    pub fn delete(&self, object: &Arc<O>, key: &Key<O>) -> Result<()> {
        match self.row(object) {
            Some(attributes) => attributes.delete(object, key),
            None => Ok(()),
        }
    }

    /// Gives `copy` the attributes of `original` that are to be copied.
    ///
    /// # Errors
    /// As [`Attributes::copy_from`].
    pub fn copy(&self, original: &Arc<O>, copy: &Arc<O>) -> Result<()> {
        match self.row(original) {
            Some(attributes) => {
                let copied = self.row_or_new(copy).copy_from(&attributes, original);
                if copied.is_err() {
                    self.lock().remove(&address(copy));
                }
                copied
            }
            None => Ok(()),
        }
    }

    /// Deletes all attributes of an object that is being freed.
    ///
    /// # Errors
    /// As [`Attributes::delete_all`].
    pub fn delete_all(&self, object: &Arc<O>) -> Result<()> {
        let Some(attributes) = self.row(object) else { return Ok(()) };
        attributes.delete_all(object)?;
        self.lock().remove(&address(object));
        Ok(())
    }

    fn row(&self, object: &Arc<O>) -> Option<Arc<Attributes<O>>> {
        // Acquire: whoever has an object that has a row has it from who made the row, or after; the lock orders the rest.
        if !self.was_used.load(Ordering::Acquire) {
            return None;
        }
        self.lock().get(&address(object)).map(|row| Arc::clone(&row.attributes))
    }

    fn row_or_new(&self, object: &Arc<O>) -> Arc<Attributes<O>> {
        // Release: partner of the load in `row`.
        self.was_used.store(true, Ordering::Release);
        let new = || Row { attributes: Arc::default(), _object: Arc::clone(object) };
        Arc::clone(&self.lock().entry(address(object)).or_insert_with(new).attributes)
    }

    /// A panic elsewhere cannot leave the map half changed, so a poisoned lock is no obstacle.
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Row<O>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn address<O>(object: &Arc<O>) -> usize {
    Arc::as_ptr(object).addr()
}

impl<O> Default for AttributeTable<O> {
    fn default() -> Self {
        AttributeTable { rows: Mutex::default(), was_used: AtomicBool::new(false) }
    }
}

impl<O> fmt::Debug for AttributeTable<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AttributeTable of {} objects", self.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute::{CopyRule, DeleteRule, Keys};

    #[test]
    fn objects_are_told_apart_by_identity() {
        let keys = Keys::<u8>::new(1);
        let key = keys.find(keys.create(CopyRule::Duplicate, DeleteRule::Nothing).unwrap()).unwrap();
        let table = AttributeTable::default();
        let (one, two) = (Arc::new(7), Arc::new(7));
        table.set(&one, &key, Value(1)).unwrap();
        assert_eq!((table.get(&one, key.number()), table.get(&two, key.number())), (Some(Value(1)), None));
        table.delete(&two, &key).unwrap();
        table.copy(&one, &two).unwrap();
        table.delete_all(&one).unwrap();
        assert_eq!((table.get(&one, key.number()), table.get(&two, key.number())), (None, Some(Value(1))));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (1, 2));
    }

    #[test]
    fn a_copy_that_is_refused_leaves_nothing() {
        let keys = Keys::<u8>::new(1);
        let refuse = CopyRule::Call(Box::new(|_, _, _| crate::error::ErrorClass::Other.fail("no")));
        let key = keys.find(keys.create(refuse, DeleteRule::Nothing).unwrap()).unwrap();
        let table = AttributeTable::default();
        let (one, two) = (Arc::new(7), Arc::new(7));
        table.set(&one, &key, Value(1)).unwrap();
        assert!(table.copy(&one, &two).is_err());
        assert_eq!(Arc::strong_count(&two), 1);
    }
}
