//! Objects with 32-bit numbers that travel: keys and queue numbers. A number names one object and, for the next 65,535
//! uses of its place, never another.

use std::collections::VecDeque;

use base::SlabKey;
use fabric::FabricError;

/// A place rests until so many others are free, so that a number stays unused for long; it is used again then, before a new
/// one is, so that the table stays small and near.
const RESTING: usize = 256;

/// Numbers of which no more than 2¹⁶ are in use at once: `generation:16 | index:16`.
pub(crate) struct Numbered<T> {
    object: &'static str,
    max: u32,
    slots: Vec<Slot<T>>,
    /// First in, first out.
    free: VecDeque<u16>,
}

struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

impl<T> Numbered<T> {
    /// At most `max` of `object` (its name, in the plural); 65,536 is the most.
    pub(crate) const fn new(object: &'static str, max: u32) -> Self {
        assert!(max <= 1 << 16, "an index has 16 bits");
        Self { object, max, slots: Vec::new(), free: VecDeque::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Result<u32, FabricError> {
        if self.free.len() < RESTING && (self.slots.len() as u32) < self.max {
            self.slots.push(Slot { generation: 1, value: Some(value) });
            return Ok(number(1, self.slots.len() as u32 - 1));
        }
        let index = self.free.pop_front().ok_or(FabricError::Exhausted { object: self.object, max: self.max })?;
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.value = Some(value);
        Ok(number(slot.generation, index.into()))
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let slot = self.slots.get((number & 0xffff) as usize)?;
        if u32::from(slot.generation) == number >> 16 { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut((number & 0xffff) as usize)?;
        if u32::from(slot.generation) == number >> 16 { slot.value.as_mut() } else { None }
    }

    /// The number that the object at `index` has now.
    pub(crate) fn number_at(&self, index: u32) -> Option<u32> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.value.is_some())?;
        Some(number(slot.generation, index))
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut((number & 0xffff) as usize)?;
        if u32::from(slot.generation) != number >> 16 {
            return None;
        }
        let value = slot.value.take()?;
        self.free.push_back(number as u16);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| slot.value.as_ref().map(|value| (number(slot.generation, index as u32), value)))
    }
}

fn number(generation: u16, index: u32) -> u32 {
    u32::from(generation) << 16 | index
}

/// Index and generation of a number.
#[inline]
pub(crate) fn split(number: u32) -> (u32, u16) {
    (number & 0xffff, (number >> 16) as u16)
}

/// The handle of object `number`.
pub(crate) fn handle(number: u32) -> SlabKey {
    SlabKey::from_bits(number.into())
}

/// The number in a handle, which may be of another device.
pub(crate) fn number_of(key: SlabKey) -> u32 {
    u32::try_from(key.to_bits()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_number_finds_nothing_and_the_limit_holds() {
        let mut things = Numbered::new("things", 2);
        let first = things.insert('a').unwrap();
        let second = things.insert('b').unwrap();
        assert_eq!(things.insert('c'), Err(FabricError::Exhausted { object: "things", max: 2 }));
        assert_eq!(things.remove(first), Some('a'));
        assert_eq!(things.remove(first), None);
        let third = things.insert('c').unwrap();
        assert_eq!((third & 0xffff, things.get(first)), (first & 0xffff, None));
        assert_eq!((things.get(third), things.get(second)), (Some(&'c'), Some(&'b')));
        assert_eq!(things.get(0), None);
        assert_eq!(things.iter().count(), 2);
        assert_eq!(number_of(handle(third)), third);
    }

    #[test]
    fn places_rest_before_they_are_used_again_and_the_table_does_not_grow_meanwhile() {
        let mut things = Numbered::new("things", 1 << 16);
        let numbers: Vec<u32> = (0..10_000)
            .map(|at| {
                let number = things.insert(at).unwrap();
                things.remove(number);
                number
            })
            .collect();
        assert_eq!(things.slots.len(), RESTING);
        for window in numbers.chunks(RESTING) {
            let mut places: Vec<u32> = window.iter().map(|number| number & 0xffff).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), window.len());
        }
        assert_eq!(numbers.iter().collect::<std::collections::HashSet<_>>().len(), numbers.len());
    }

    #[test]
    fn a_handle_of_another_device_has_no_number() {
        assert_eq!(number_of(SlabKey::from_bits(u64::MAX)), 0);
    }
}
