//! Attributes: values a user hangs on communicators, datatypes and windows under keys of their own.
//!
//! **Invariants**
//! - No lock is held while a copy or delete callback runs; it may change the very list it is
//!   called from. What a callback removes or replaces meanwhile stays removed or replaced.
//! - A callback that fails leaves its attribute where it was, and the call fails with the error of
//!   the callback.
//! - A key that was freed lives on until its last attribute is gone.
//!
//! Copies are made in the order the attributes were set, deletions in the reverse order.
//!
//! MPI: §7.7
//!
//! ```
//! use std::sync::Arc;
//! use mpi_core::attribute::{Attributes, CopyRule, DeleteRule, Keys, Value};
//! let keys = Keys::<str>::new(1000);
//! let key = keys.create(CopyRule::Duplicate, DeleteRule::Nothing).unwrap();
//! let (object, attributes) = (Arc::from("object"), Attributes::default());
//! attributes.set(&object, &keys.find(key).unwrap(), Value(7)).unwrap();
//! assert_eq!(attributes.get(key), Some(Value(7)));
//! ```

mod key;
mod predefined;
mod table;

pub use key::{CopyFunction, CopyRule, DeleteFunction, DeleteRule, Key, Keys, Value};
pub use predefined::PredefinedAttribute;
pub use table::AttributeTable;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};

/// How many attributes one object can hold.
pub const ATTRIBUTES_MAX: usize = 1 << 16;

/// The attributes of one object of type `O`.
pub struct Attributes<O: ?Sized = Comm> {
    list: Mutex<List<O>>,
}

struct List<O: ?Sized> {
    /// In the order they were set.
    entries: Vec<Entry<O>>,
    /// Stamps tell one setting of a key from the next.
    next_stamp: u64,
}

struct Entry<O: ?Sized> {
    key: Arc<Key<O>>,
    value: Value,
    stamp: u64,
}

impl<O: ?Sized> Attributes<O> {
    /// The value under the key of this number, which is looked up nowhere else: that there is no value does not say that
    /// there is a key.
    ///
    /// MPI: §7.7.2 `MPI_Comm_get_attr`
    pub fn get(&self, number: i32) -> Option<Value> {
        self.lock().entries.iter().find(|entry| entry.key.number() == number).map(|entry| entry.value)
    }

    /// Sets the value under a key, after the delete rule was followed for the value it replaces.
    ///
    /// # Errors
    /// What the delete callback returns, the old value then stays; `NoMem` when there are
    /// [`ATTRIBUTES_MAX`] attributes.
    ///
    /// MPI: §7.7.2 `MPI_Comm_set_attr`
    pub fn set(&self, object: &Arc<O>, key: &Arc<Key<O>>, value: Value) -> Result<()> {
        let old = self.lock().find(key).cloned();
        if let Some(old) = old {
            self.delete_entry(object, &old)?;
        }
        self.lock().put(key, value)
    }

    /// Deletes the attribute under a key, if there is one.
    ///
    /// # Errors
    /// What the delete callback returns; the attribute then stays.
    ///
    /// MPI: §7.7.2 `MPI_Comm_delete_attr`
    pub fn delete(&self, object: &Arc<O>, key: &Key<O>) -> Result<()> {
        let entry = self.lock().find(key).cloned();
        match entry {
            Some(entry) => self.delete_entry(object, &entry),
            None => Ok(()),
        }
    }

    /// Deletes all attributes, last set first; those set by a callback meanwhile too.
    ///
    /// # Errors
    /// What a delete callback returns; its attribute and those set before it then stay.
    ///
    /// MPI: §7.7.2, §11.2.4
    pub fn delete_all(&self, object: &Arc<O>) -> Result<()> {
        loop {
            let last = self.lock().entries.last().cloned();
            match last {
                Some(entry) => self.delete_entry(object, &entry)?,
                None => return Ok(()),
            }
        }
    }

    /// Takes over the attributes of `original`, as the copy rules of their keys have it.
    ///
    /// # Errors
    /// What a copy callback returns; what was copied until then is forgotten.
    ///
    /// MPI: §7.7.2
    pub fn copy_from(&self, attributes: &Attributes<O>, original: &Arc<O>) -> Result<()> {
        let entries = attributes.lock().entries.clone();
        let is_there =
            |entry: &Entry<O>| attributes.lock().find(&entry.key).is_some_and(|now| now.stamp == entry.stamp);
        for entry in entries {
            if !is_there(&entry) {
                continue;
            }
            match entry.key.copy(original, entry.value) {
                Ok(Some(value)) => self.lock().put(&entry.key, value)?,
                Ok(None) => {}
                Err(error) => {
                    self.lock().entries.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// True if there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    fn delete_entry(&self, object: &Arc<O>, entry: &Entry<O>) -> Result<()> {
        entry.key.delete(object, entry.value)?;
        self.lock().entries.retain(|now| now.stamp != entry.stamp);
        Ok(())
    }

    /// A panic elsewhere cannot leave the list half changed, so a poisoned lock is no obstacle.
    fn lock(&self) -> MutexGuard<'_, List<O>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: ?Sized> List<O> {
    fn find(&self, key: &Key<O>) -> Option<&Entry<O>> {
        self.entries.iter().find(|entry| std::ptr::eq(&*entry.key, key))
    }

    /// Puts an attribute last, in place of one a callback may have set meanwhile.
    fn put(&mut self, key: &Arc<Key<O>>, value: Value) -> Result<()> {
        self.entries.retain(|entry| !Arc::ptr_eq(&entry.key, key));
        if self.entries.len() >= ATTRIBUTES_MAX {
            return ErrorClass::NoMem.fail(format!("the object has {ATTRIBUTES_MAX} attributes already"));
        }
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.entries.push(Entry { key: Arc::clone(key), value, stamp });
        Ok(())
    }
}

impl<O: ?Sized> Clone for Entry<O> {
    fn clone(&self) -> Self {
        Entry { key: Arc::clone(&self.key), value: self.value, stamp: self.stamp }
    }
}

impl<O: ?Sized> Default for Attributes<O> {
    fn default() -> Self {
        Attributes { list: Mutex::new(List { entries: Vec::new(), next_stamp: 0 }) }
    }
}

impl<O: ?Sized> fmt::Debug for Attributes<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.lock();
        f.debug_map().entries(list.entries.iter().map(|entry| (entry.key.number(), entry.value))).finish()
    }
}

#[cfg(test)]
mod tests;
