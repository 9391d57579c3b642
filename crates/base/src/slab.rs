//! A slab whose keys carry a generation, so that a stale key is noticed instead of
//! naming whatever moved in later.

/// Names one entry of a [`Slab`]; 64 bits, never reused while the generation counter of its slot
/// (32 bits) has not wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SlabKey {
    index: u32,
    generation: u32,
}

impl SlabKey {
    /// The key as one number, for a header or a handle.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }

    /// The inverse of [`SlabKey::to_bits`]; any number is accepted and simply finds nothing if it names nothing.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// Slot number, dense from 0.
    #[inline]
    pub const fn index(self) -> u32 {
        self.index
    }
}

#[derive(Debug)]
enum Slot<T> {
    Vacant { generation: u32, next_free: Option<u32> },
    Occupied { generation: u32, value: T },
}

/// Entries with stable keys; insertion and removal in constant time, slots reused last-in first-out.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    first_free: Option<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab; no memory is taken until the first entry.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), first_free: None, len: 0 }
    }

    /// Number of live entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no entry is live.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores `value` and returns the key that finds it.
    ///
    /// # Panics
    /// When 2³² slots are live at once.
    #[inline]
    pub fn insert(&mut self, value: T) -> SlabKey {
        self.insert_with(|_| value)
    }

    /// Stores what `make` makes of the key that will find it.
    ///
    /// # Panics
    /// As [`Slab::insert`].
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce(SlabKey) -> T) -> SlabKey {
        let key = match self.first_free {
            Some(index) => self.reuse_slot(index),
            None => self.new_slot(),
        };
        self.slots[key.index as usize] = Slot::Occupied { generation: key.generation, value: make(key) };
        self.len += 1;
        key
    }

    #[inline]
    fn reuse_slot(&mut self, index: u32) -> SlabKey {
        let Slot::Vacant { generation, next_free } = self.slots[index as usize] else {
            unreachable!("the free list holds vacant slots only")
        };
        self.first_free = next_free;
        SlabKey { index, generation }
    }

    #[cold]
    fn new_slot(&mut self) -> SlabKey {
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 live entries");
        self.slots.push(Slot::Vacant { generation: 1, next_free: None });
        SlabKey { index, generation: 1 }
    }

    /// The entry of `key`, or `None` if it was removed.
    #[inline]
    pub fn get(&self, key: SlabKey) -> Option<&T> {
        match self.slots.get(key.index as usize) {
            Some(Slot::Occupied { generation, value }) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The entry of `key` to change, or `None` if it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        match self.slots.get_mut(key.index as usize) {
            Some(Slot::Occupied { generation, value }) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// Takes the entry out; its key finds nothing from now on.
    #[inline]
    pub fn remove(&mut self, key: SlabKey) -> Option<T> {
        self.get(key)?;
        let vacant = self.vacant_after(key);
        match std::mem::replace(&mut self.slots[key.index as usize], vacant) {
            Slot::Occupied { value, .. } => Some(value),
            Slot::Vacant { .. } => unreachable!("checked above"),
        }
    }

    /// All live entries with their keys, to change, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlabKey, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| match slot {
            Slot::Occupied { generation, value } => {
                Some((SlabKey { index: index as u32, generation: *generation }, value))
            }
            Slot::Vacant { .. } => None,
        })
    }

    /// Drops the entry if `look` gets something out of it, and returns that.
    #[inline]
    pub fn take_with<R>(&mut self, key: SlabKey, look: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        let found = look(self.get(key)?)?;
        self.slots[key.index as usize] = self.vacant_after(key);
        Some(found)
    }

    /// What a slot becomes when its entry goes; it is the first to be used again.
    #[inline]
    fn vacant_after(&mut self, key: SlabKey) -> Slot<T> {
        self.len -= 1;
        let next_free = self.first_free.replace(key.index);
        Slot::Vacant { generation: key.generation.wrapping_add(1).max(1), next_free }
    }

    /// The key of the entry in slot `index`, if there is one.
    pub fn key_at(&self, index: u32) -> Option<SlabKey> {
        match self.slots.get(index as usize)? {
            Slot::Occupied { generation, .. } => Some(SlabKey { index, generation: *generation }),
            Slot::Vacant { .. } => None,
        }
    }

    /// All live entries with their keys, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match slot {
            Slot::Occupied { generation, value } => {
                Some((SlabKey { index: index as u32, generation: *generation }, value))
            }
            Slot::Vacant { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_after_its_slot_is_reused() {
        let mut slab = Slab::new();
        let first = slab.insert(1);
        assert_eq!(slab.remove(first), Some(1));
        let second = slab.insert(2);
        assert_eq!(first.index(), second.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&2));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn keys_survive_the_trip_through_bits() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..100).map(|n| slab.insert(n)).collect();
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(slab.get(SlabKey::from_bits(key.to_bits())), Some(&n));
        }
        assert_eq!(slab.get(SlabKey::from_bits(0)), None);
        assert_eq!(slab.get(SlabKey::from_bits(u64::MAX)), None);
        assert_eq!(slab.iter().count(), 100);
        slab.iter_mut().for_each(|(_, n)| *n += 1);
        assert!(keys.iter().enumerate().all(|(n, key)| slab.get(*key) == Some(&(n + 1))));
    }
}
