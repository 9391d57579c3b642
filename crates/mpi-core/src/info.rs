//! Info objects: hints as ordered pairs of key and value.
//!
//! MPI: §10
//!
//! ```
//! use mpi_core::info::Info;
//! let info = Info::new();
//! info.set("striping_factor", "4").unwrap();
//! assert_eq!(info.value("striping_factor").as_deref(), Some("4"));
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{ErrorClass, Result};

/// `MPI_MAX_INFO_KEY` less the terminating zero.
pub const INFO_KEY_MAX_BYTES: usize = 255;
/// `MPI_MAX_INFO_VAL` less the terminating zero.
pub const INFO_VALUE_MAX_BYTES: usize = 1023;
/// How many keys one object can hold.
pub const INFO_KEYS_MAX: usize = 1 << 12;

/// An ordered list of keys, each with one value.
#[derive(Debug, Default)]
pub struct Info {
    entries: Mutex<Vec<Entry>>,
    read_only: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Box<str>,
    value: Box<str>,
}

impl Info {
    /// An object without keys.
    ///
    /// MPI: §10 `MPI_Info_create`
    pub fn new() -> Self {
        Self::default()
    }

    /// An object with these pairs that cannot be changed; values too long are cut short.
    pub fn read_only<K: AsRef<str>>(pairs: impl IntoIterator<Item = (K, String)>) -> Self {
        let entries = pairs.into_iter().take(INFO_KEYS_MAX).map(|(key, value)| Entry {
            key: shortened(key.as_ref(), INFO_KEY_MAX_BYTES).into(),
            value: shortened(&value, INFO_VALUE_MAX_BYTES).into(),
        });
        Info { entries: Mutex::new(entries.collect()), read_only: true }
    }

    /// Sets the value of a key; a new key comes last.
    ///
    /// # Errors
    /// `InfoKey` for an empty or too long key, `InfoValue` for a too long value, `Info` for an
    /// object that cannot be changed, `NoMem` when it is full.
    ///
    /// MPI: §10 `MPI_Info_set`
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        valid_key(key)?;
        if value.len() > INFO_VALUE_MAX_BYTES {
            return ErrorClass::InfoValue.fail(format!(
                "the value of key '{key}' has {} bytes, the limit is {INFO_VALUE_MAX_BYTES}",
                value.len()
            ));
        }
        self.check_writable()?;
        let mut entries = self.lock();
        if let Some(entry) = entries.iter_mut().find(|entry| &*entry.key == key) {
            entry.value = value.into();
            return Ok(());
        }
        if entries.len() >= INFO_KEYS_MAX {
            return ErrorClass::NoMem.fail(format!("the info object has {INFO_KEYS_MAX} keys already"));
        }
        entries.push(Entry { key: key.into(), value: value.into() });
        Ok(())
    }

    /// Sets all that `other` has; other keys stay as they are.
    ///
    /// # Errors
    /// As [`Info::set`].
    pub fn update(&self, other: &Info) -> Result<()> {
        let pairs = other.lock().clone();
        pairs.iter().try_for_each(|Entry { key, value }| self.set(key, value))
    }

    /// Removes a key and its value.
    ///
    /// # Errors
    /// `InfoNokey` if there is no such key, otherwise as [`Info::set`].
    ///
    /// MPI: §10 `MPI_Info_delete`
    pub fn delete(&self, key: &str) -> Result<()> {
        valid_key(key)?;
        self.check_writable()?;
        let mut entries = self.lock();
        let Some(at) = entries.iter().position(|entry| &*entry.key == key) else {
            return ErrorClass::InfoNokey.fail(format!("the info object has no key '{key}'"));
        };
        entries.remove(at);
        Ok(())
    }

    /// The value of a key, if the key is there.
    ///
    /// MPI: §10 `MPI_Info_get_string`
    pub fn value(&self, key: &str) -> Option<String> {
        let entries = self.lock();
        entries.iter().find(|entry| &*entry.key == key).map(|entry| entry.value.to_string())
    }

    /// Number of keys.
    ///
    /// MPI: §10 `MPI_Info_get_nkeys`
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key number `n`, counted from 0 in the order they were first set.
    ///
    /// # Errors
    /// `Arg` if there are not as many.
    ///
    /// MPI: §10 `MPI_Info_get_nthkey`
    pub fn nth_key(&self, n: i32) -> Result<String> {
        let entries = self.lock();
        let entry = usize::try_from(n).ok().and_then(|n| entries.get(n));
        match entry {
            Some(entry) => Ok(entry.key.to_string()),
            None => ErrorClass::Arg.fail(format!("the info object has {} keys, not a key {n}", entries.len())),
        }
    }

    /// Another object with the same pairs, which can be changed.
    ///
    /// MPI: §10 `MPI_Info_dup`
    pub fn duplicate(&self) -> Info {
        Info { entries: Mutex::new(self.lock().clone()), read_only: false }
    }

    fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => ErrorClass::Info.fail("this info object cannot be changed"),
            false => Ok(()),
        }
    }

    /// A panic elsewhere cannot leave the list half changed, so a poisoned lock is no obstacle.
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the length of a key.
///
/// # Errors
/// `InfoKey` for an empty or too long key.
pub fn valid_key(key: &str) -> Result<()> {
    match key.len() {
        0 => ErrorClass::InfoKey.fail("the key is empty"),
        1..=INFO_KEY_MAX_BYTES => Ok(()),
        length => ErrorClass::InfoKey.fail(format!("the key has {length} bytes, the limit is {INFO_KEY_MAX_BYTES}")),
    }
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain list of pairs.
        #[test]
        fn keys_keep_their_order(calls in proptest::collection::vec((0..6_u8, any::<Option<u8>>()), 0..40)) {
            let info = Info::new();
            let mut oracle: Vec<(String, String)> = Vec::new();
            for (key, value) in calls {
                let key = format!("key{key}");
                let known = oracle.iter().position(|(name, _)| *name == key);
                match (value, known) {
                    (Some(value), Some(at)) => {
                        info.set(&key, &value.to_string()).unwrap();
                        oracle[at].1 = value.to_string();
                    }
                    (Some(value), None) => {
                        info.set(&key, &value.to_string()).unwrap();
                        oracle.push((key, value.to_string()));
                    }
                    (None, Some(at)) => {
                        info.delete(&key).unwrap();
                        oracle.remove(at);
                    }
                    (None, None) => prop_assert_eq!(info.delete(&key).unwrap_err().class, ErrorClass::InfoNokey),
                }
                prop_assert_eq!(info.len(), oracle.len());
                for (n, (key, value)) in oracle.iter().enumerate() {
                    prop_assert_eq!(&info.nth_key(n as i32).unwrap(), key);
                    prop_assert_eq!(info.value(key), Some(value.clone()));
                }
                prop_assert!(info.nth_key(oracle.len() as i32).is_err());
            }
        }
    }

    #[test]
    fn limits_are_those_of_the_standard() {
        let info = Info::new();
        let class = |result: Result<()>| result.unwrap_err().class;
        assert_eq!(class(info.set("", "x")), ErrorClass::InfoKey);
        assert_eq!(class(info.set(&"k".repeat(256), "x")), ErrorClass::InfoKey);
        assert_eq!(class(info.set("k", &"v".repeat(1024))), ErrorClass::InfoValue);
        info.set(&"k".repeat(255), &"v".repeat(1023)).unwrap();
        assert_eq!(info.nth_key(-1).unwrap_err().class, ErrorClass::Arg);
        for n in 1..INFO_KEYS_MAX {
            info.set(&n.to_string(), "").unwrap();
        }
        assert_eq!(class(info.set("one more", "")), ErrorClass::NoMem);
    }

    #[test]
    fn a_read_only_object_is_changed_through_its_duplicate() {
        let info = Info::read_only([("command", "ä".repeat(600))]);
        assert_eq!(info.value("command").unwrap().len(), 1022);
        assert_eq!(info.set("command", "x").unwrap_err().class, ErrorClass::Info);
        assert_eq!(info.delete("command").unwrap_err().class, ErrorClass::Info);
        let copy = info.duplicate();
        copy.set("command", "x").unwrap();
        assert_eq!(copy.value("command").as_deref(), Some("x"));
        assert_ne!(info.value("command").as_deref(), Some("x"));
    }
}
