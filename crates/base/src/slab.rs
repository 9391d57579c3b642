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
struct Slot<T> {
    /// Of its entry, or of the next one.
    generation: u32,
    /// While there is no entry: the slot to be used after this one, or [`NONE`].
    next_free: u32,
    value: Option<T>,
}

/// No slot.
const NONE: u32 = u32::MAX;

/// Entries with stable keys; insertion and removal in constant time, slots reused last-in first-out.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    first_free: u32,
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
        Self { slots: Vec::new(), first_free: NONE, len: 0 }
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
    /// When 2³² - 1 slots are live at once.
    #[inline]
    pub fn insert(&mut self, value: T) -> SlabKey {
        self.insert_with(|_| value)
    }

    /// Stores what `make` makes, in its place, of the key that will find it.
    ///
    /// # Panics
    /// As [`Slab::insert`].
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce(SlabKey) -> T) -> SlabKey {
        if self.first_free == NONE {
            self.add_slot();
        }
        let index = self.first_free;
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.value.is_none(), "slots on the list are free");
        let key = SlabKey { index, generation: slot.generation };
        let value = make(key);
        // Nothing that could drop the value comes between, nor a drop of what was there, which is nothing: the compiler
        // makes the value in its place.
        std::mem::forget(slot.value.replace(value));
        self.first_free = slot.next_free;
        self.len += 1;
        key
    }

    #[cold]
    fn add_slot(&mut self) {
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index != NONE);
        self.first_free = index.expect("fewer than 2^32 - 1 live entries");
        self.slots.push(Slot { generation: 1, next_free: NONE, value: None });
    }

    /// The entry of `key`, or `None` if it was removed.
    #[inline]
    pub fn get(&self, key: SlabKey) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    /// The entry of `key` to change, or `None` if it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: SlabKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// Takes the entry out; its key finds nothing from now on.
    #[inline]
    pub fn remove(&mut self, key: SlabKey) -> Option<T> {
        self.get(key)?;
        self.free(key).take()
    }

    /// All live entries with their keys, to change, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlabKey, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let key = SlabKey { index: index as u32, generation: slot.generation };
            slot.value.as_mut().map(|value| (key, value))
        })
    }

    /// Takes the entry out without dropping it; its key finds nothing from now on.
    #[inline]
    pub fn forget(&mut self, key: SlabKey) {
        if self.get(key).is_some() {
            std::mem::forget(self.free(key).take());
        }
    }

    /// Makes the slot of an entry that goes the first to be used again; what is in it is the caller's to take.
    #[inline]
    fn free(&mut self, key: SlabKey) -> &mut Option<T> {
        self.len -= 1;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = key.generation.wrapping_add(1).max(1);
        slot.next_free = std::mem::replace(&mut self.first_free, key.index);
        &mut slot.value
    }

    /// The key of the entry in slot `index`, if there is one.
    pub fn key_at(&self, index: u32) -> Option<SlabKey> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| SlabKey { index, generation: slot.generation })
    }

    /// All live entries with their keys, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (SlabKey, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = SlabKey { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (key, value))
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

    /// Keys and values held against a map, stale keys and vacant slots included.
    #[test]
    fn behaves_as_a_map_whose_keys_never_come_again() {
        let (mut slab, mut map, mut spent) = (Slab::new(), std::collections::BTreeMap::new(), Vec::new());
        let mut random = 1u64;
        let count = if cfg!(miri) { 150u32 } else { 4000 };
        for number in 0..count {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let chosen = map.keys().nth((random >> 33) as usize % map.len().max(1)).copied();
            match (random >> 60, chosen) {
                (0..8, _) | (_, None) => {
                    let key = slab.insert_with(|_| number);
                    assert!(!spent.contains(&key));
                    assert_eq!(map.insert(key, number), None);
                }
                (8..12, Some(key)) => {
                    assert_eq!(slab.remove(key), map.remove(&key));
                    spent.push(key);
                }
                (12..14, Some(key)) => {
                    slab.forget(key);
                    slab.forget(key);
                    map.remove(&key);
                    spent.push(key);
                }
                (_, Some(key)) => *slab.get_mut(key).expect("live") = *map.get_mut(&key).expect("live"),
            }
            assert_eq!(slab.len(), map.len());
            let (stale, index) = (spent.last().copied(), (random >> 40) as u32 % 64);
            assert!(stale.is_none_or(|key| slab.get(key).is_none()));
            // The key that the slot of a stale one will have next.
            let next = stale.map(|key| SlabKey { generation: key.generation + 1, ..key });
            assert!(next.is_none_or(|key| slab.get(key).copied() == map.get(&key).copied()));
            assert_eq!(slab.key_at(index), map.keys().find(|key| key.index() == index).copied());
        }
        assert!(slab.iter().all(|(key, value)| map.get(&key) == Some(value)) && slab.iter().count() == map.len());
    }
}
