//! Tables from handles to objects.
//!
//! **Invariants**
//! - A slot never moves and is never given back to the system: tables live as long as the process.
//! - An object is dropped once its handle has been released *and* nobody holds it ([`Held`]).
//! - An object that is still being made has a handle that leads nowhere until it is awoken.
//! - A handle is given out for one object: the next one in its slot has another generation, and the handle of one that
//!   has gone is stale.
//! - Everything here happens inside the gate: cells need no locks.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::ops::Deref;

use super::handle::{Kind, PREDEFINED_MAX, Parts, SLOT_BITS};

/// The first chunk has so many slots, each further one twice as many as the one before.
const FIRST_CHUNK_SLOTS: usize = 1 << FIRST_CHUNK_BITS;
const FIRST_CHUNK_BITS: u32 = 8;
/// As many as fit below the greatest index of a slot: half of all are in the last one.
const CHUNKS_MAX: usize = (SLOT_BITS - FIRST_CHUNK_BITS) as usize;
/// No predefined value and none of ours.
const NO_HANDLE: usize = 0;

/// All objects of one kind.
pub(crate) struct Table<T: 'static> {
    kind: Kind,
    /// Handle of the first predefined object.
    first_predefined: usize,
    predefined: &'static [Slot<T>],
    /// The first chunk, or nothing while there is none: most programs need no other, and no look-up has to compute which.
    first_chunk: Cell<&'static [Slot<T>]>,
    /// Those that exist come first.
    chunks: [OnceCell<&'static [Slot<T>]>; CHUNKS_MAX],
    first_free: Cell<Option<&'static Slot<T>>>,
}

/// Begins with a cache line, so that what a look-up reads lies in one, and an index becomes a place by a shift.
#[repr(align(64))]
pub(crate) struct Slot<T: 'static> {
    /// The handle of its object or, while it is free, of the next one.
    handle: Cell<usize>,
    /// The same while it leads to the object, else [`NO_HANDLE`]: the one thing that look-ups compare. While a handle
    /// stands here there is an object.
    live: Cell<usize>,
    /// How many handles were given out for the object; 0 once it is released.
    references: Cell<u32>,
    /// How many calls are looking at the object.
    holders: Cell<u32>,
    /// The object is still being made: no handle leads to it, and nobody has let go of one.
    dormant: Cell<bool>,
    value: RefCell<Option<T>>,
    /// While it is free.
    next_free: Cell<Option<&'static Slot<T>>>,
}

impl<T> Slot<T> {
    fn empty(handle: usize) -> Self {
        Slot {
            handle: Cell::new(handle),
            live: Cell::new(NO_HANDLE),
            references: Cell::new(0),
            holders: Cell::new(0),
            dormant: Cell::new(false),
            value: RefCell::new(None),
            next_free: Cell::new(None),
        }
    }

    /// So many handles lead to the object from now on; while there are any, it stays.
    #[inline(always)]
    fn refer(&self, count: u32) {
        debug_assert!(count == 0 || self.value.try_borrow().is_ok_and(|value| value.is_some()), "a handle of nothing");
        self.references.set(count);
        self.live.set(if count == 0 { NO_HANDLE } else { self.handle.get() });
    }
}

/// Why a handle does not lead to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// It was an object once.
    Freed,
    /// A predefined value that stands for no object of this kind (the null handle among them).
    NotPredefined,
    /// The handle of an object of another kind.
    OtherKind(Kind),
    /// The object is still being made.
    Dormant,
    /// Never given out.
    Unknown,
}

impl<T: 'static> Table<T> {
    /// A table without objects, with room for `predefined_count` predefined ones.
    pub fn new(kind: Kind, first_predefined: usize, predefined_count: usize) -> Self {
        assert!(first_predefined > NO_HANDLE, "look-ups take it for the handle of nothing");
        Table {
            kind,
            first_predefined,
            predefined: Box::leak((0..predefined_count).map(|at| Slot::empty(first_predefined + at)).collect()),
            first_chunk: Cell::new(&[]),
            chunks: [const { OnceCell::new() }; CHUNKS_MAX],
            first_free: Cell::new(None),
        }
    }

    /// Gives a predefined handle its object.
    pub fn set_predefined(&self, handle: usize, value: T) {
        let slot = &self.predefined[handle - self.first_predefined];
        slot.value.replace(Some(value));
        slot.refer(1);
    }

    /// A predefined handle stands for nothing any more. Calls that hold the object keep it.
    pub fn unset_predefined(&self, handle: usize) {
        self.predefined[handle - self.first_predefined].refer(0);
    }

    /// Keeps an object and returns its handle, or `None` if there are too many. `tell` is told the
    /// handle before.
    pub fn insert(&self, value: T, tell: impl FnOnce(&T, usize)) -> Option<usize> {
        self.insert_with(|| value, tell)
    }

    /// As [`Table::insert`], of what is made in its place.
    #[inline(always)]
    pub fn insert_with(&self, make: impl FnOnce() -> T, tell: impl FnOnce(&T, usize)) -> Option<usize> {
        let slot = match self.first_free.get() {
            Some(slot) => slot,
            None => self.grow()?,
        };
        self.first_free.set(slot.next_free.get());
        let handle = slot.handle.get();
        tell(slot.value.borrow_mut().get_or_insert_with(make), handle);
        slot.refer(1);
        Some(handle)
    }

    /// True if there is a place for another object as things are.
    #[inline(always)]
    pub fn has_place(&self) -> bool {
        self.first_free.get().is_some()
    }

    /// As [`Table::insert`], for an object that is not to be used before [`Table::wake`].
    pub fn insert_dormant(&self, value: T, tell: impl FnOnce(&T, usize)) -> Option<usize> {
        let handle = self.insert(value, tell)?;
        if let Ok(slot) = self.slot(handle) {
            slot.refer(0);
            slot.dormant.set(true);
        }
        Some(handle)
    }

    /// Makes a handle lead to its object if that is ready now; false if it is not.
    #[cold]
    pub fn wake(&self, handle: usize, is_ready: impl FnOnce(&T) -> bool) -> bool {
        let Some(slot) = self.dormant_slot(handle) else { return false };
        let is_ready = slot.value.borrow().as_ref().is_some_and(is_ready);
        if is_ready {
            slot.dormant.set(false);
            slot.refer(1);
        }
        is_ready
    }

    /// The object of a handle, held although it is still being made.
    #[cold]
    pub fn hold_dormant(&'static self, handle: usize) -> Result<Held<T>, Lookup> {
        let Some(slot) = self.dormant_slot(handle) else { return self.hold(handle) };
        slot.holders.set(slot.holders.get() + 1);
        Ok(Held { table: self, slot })
    }

    fn dormant_slot(&self, handle: usize) -> Option<&'static Slot<T>> {
        let slot = self.slot_at(handle).filter(|_| handle > PREDEFINED_MAX)?;
        (slot.handle.get() == handle && slot.dormant.get()).then_some(slot)
    }

    /// One more handle for an object that has one already; false if that one is not live.
    pub fn retain(&self, handle: usize) -> bool {
        match self.slot(handle) {
            Ok(slot) => {
                if handle > PREDEFINED_MAX {
                    slot.refer(slot.references.get() + 1);
                }
                true
            }
            Err(_) => false,
        }
    }

    /// The object of a handle, held until the result is dropped.
    #[inline(always)]
    pub fn hold(&'static self, handle: usize) -> Result<Held<T>, Lookup> {
        let slot = self.slot(handle)?;
        slot.holders.set(slot.holders.get() + 1);
        Ok(Held { table: self, slot })
    }

    /// The object of a handle, not held.
    ///
    /// # Safety
    /// While the result is used no handle of this table is released and no object taken out or changed.
    #[inline(always)]
    pub unsafe fn peek(&'static self, handle: usize) -> Option<&'static T> {
        let value = self.find(handle)?.value.as_ptr();
        // SAFETY: promised by the caller.
        let value = unsafe { &*value }.as_ref();
        // SAFETY: the slot was found, so it is live, and `Slot::refer` makes it so only once there is an object; whoever
        // takes that out makes the slot dead first.
        Some(unsafe { value.unwrap_unchecked() })
    }

    /// True if the handle leads to an object.
    #[inline]
    pub fn is_live(&self, handle: usize) -> bool {
        self.find(handle).is_some()
    }

    /// The object of a handle for the length of `look`, which must not come back to it.
    #[inline]
    pub fn with<R>(&self, handle: usize, look: impl FnOnce(&mut T) -> R) -> Result<R, Lookup> {
        let slot = self.slot(handle)?;
        let mut value = RefMut::filter_map(slot.value.borrow_mut(), Option::as_mut).map_err(|_| Lookup::Freed)?;
        Ok(look(&mut value))
    }

    /// As [`Table::with`]; where `look` says that nothing is left of the object, forgets it, too: to drop it would be a
    /// call. Only for kinds that are never held.
    #[inline(always)]
    pub fn with_and_forget<R>(
        &self,
        handle: usize,
        look: impl FnOnce(&mut T) -> (R, bool),
    ) -> Result<(R, bool), Lookup> {
        let slot = self.slot(handle)?;
        let mut value = slot.value.borrow_mut();
        let (result, is_over) = look(value.as_mut().ok_or(Lookup::Freed)?);
        if is_over {
            slot.refer(0);
            std::mem::forget(value.take());
            self.recycle(slot, handle);
        }
        Ok((result, is_over))
    }

    /// Takes the object out and makes its handles stale. Only for kinds that are never held.
    pub fn take(&self, handle: usize) -> Result<T, Lookup> {
        let slot = self.slot(handle)?;
        slot.refer(0);
        let value = slot.value.take().ok_or(Lookup::Freed)?;
        self.recycle(slot, handle);
        Ok(value)
    }

    /// The user lets go of a handle. The object goes when all of its handles and holders have.
    pub fn release(&self, handle: usize) -> Result<(), Lookup> {
        let slot = self.slot(handle)?;
        slot.refer(slot.references.get() - 1);
        if slot.references.get() == 0 && slot.holders.get() == 0 {
            let value = slot.value.take();
            self.recycle(slot, handle);
            drop(value);
        }
        Ok(())
    }

    /// The full handle whose low half is given: what a Fortran integer stands for.
    pub fn handle_of_int(&self, int: i32) -> Option<usize> {
        let low = int as u32 as usize;
        if low <= PREDEFINED_MAX {
            return Some(low);
        }
        let full = self.slot_at(low)?.handle.get();
        (full as u32 == low as u32).then_some(full)
    }

    /// Number of objects that were not released, predefined ones aside.
    #[cfg(test)]
    pub fn live_count(&self) -> usize {
        let chunks = self.chunks.iter().filter_map(OnceCell::get);
        chunks.flat_map(|chunk| chunk.iter()).filter(|slot| slot.references.get() > 0).count()
    }

    /// The slot of the object to which a handle leads.
    #[inline(always)]
    fn find(&self, handle: usize) -> Option<&'static Slot<T>> {
        let slot = if handle <= PREDEFINED_MAX {
            self.predefined.get(handle.wrapping_sub(self.first_predefined))
        } else {
            self.slot_at(handle)
        };
        slot.filter(|slot| slot.live.get() == handle)
    }

    #[inline(always)]
    fn slot(&self, handle: usize) -> Result<&'static Slot<T>, Lookup> {
        self.find(handle).ok_or_else(|| self.why_not(handle))
    }

    #[cold]
    fn why_not(&self, handle: usize) -> Lookup {
        if handle <= PREDEFINED_MAX {
            return Lookup::NotPredefined;
        }
        let parts = Parts::decode(handle);
        if parts.kind != self.kind as u8 {
            return parts.known_kind().map_or(Lookup::Unknown, Lookup::OtherKind);
        }
        match self.slot_at(handle) {
            Some(slot) if slot.handle.get() == handle && slot.dormant.get() => Lookup::Dormant,
            Some(slot) if parts.generation <= Parts::decode(slot.handle.get()).generation => Lookup::Freed,
            _ => Lookup::Unknown,
        }
    }

    /// The slot of which a handle speaks, whatever else it says.
    #[inline(always)]
    fn slot_at(&self, handle: usize) -> Option<&'static Slot<T>> {
        let slot = Parts::slot_of(handle);
        self.first_chunk.get().get(slot).or_else(|| self.slot_further_on(slot))
    }

    /// The slot of a number, in whichever chunk.
    #[inline(always)]
    fn slot_further_on(&self, slot: usize) -> Option<&'static Slot<T>> {
        let place = slot + FIRST_CHUNK_SLOTS;
        let chunk = (place.ilog2() - FIRST_CHUNK_BITS) as usize;
        self.chunks.get(chunk)?.get()?.get(place - (FIRST_CHUNK_SLOTS << chunk))
    }

    /// Makes another chunk of slots, and returns the first of them.
    #[cold]
    fn grow(&self) -> Option<&'static Slot<T>> {
        let chunk = self.chunks.iter().position(|chunk| chunk.get().is_none())?;
        let len = FIRST_CHUNK_SLOTS << chunk;
        let first = len - FIRST_CHUNK_SLOTS;
        let handle = |slot| Parts { kind: self.kind as u8, slot, generation: 0 }.encode();
        let slots: &'static [Slot<T>] = Box::leak((first..first + len).map(|at| Slot::empty(handle(at))).collect());
        for (slot, next) in slots.iter().zip(&slots[1..]) {
            slot.next_free.set(Some(next));
        }
        self.chunks[chunk].set(slots).ok()?;
        if chunk == 0 {
            self.first_chunk.set(slots);
        }
        slots.first()
    }

    /// A slot whose object has gone is used again, for another handle.
    #[inline]
    fn recycle(&self, slot: &'static Slot<T>, handle: usize) {
        if handle > PREDEFINED_MAX {
            slot.handle.set(Parts::next_generation(handle));
            slot.next_free.set(self.first_free.replace(Some(slot)));
        }
    }
}

/// An object held by a call: it stays, even if the program frees its handle meanwhile.
pub struct Held<T: 'static> {
    table: &'static Table<T>,
    slot: &'static Slot<T>,
}

impl<T> Held<T> {
    /// The handle by which it was found.
    pub(crate) fn handle(&self) -> usize {
        self.slot.handle.get()
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: while the slot has a holder its value is neither taken nor replaced, and held kinds
        // are never lent out mutably.
        let value = unsafe { &*self.slot.value.as_ptr() };
        value.as_ref().expect("a held slot has an object")
    }
}

impl<T> Drop for Held<T> {
    #[inline(always)]
    fn drop(&mut self) {
        let holders = self.slot.holders.get() - 1;
        self.slot.holders.set(holders);
        if holders == 0 && self.slot.references.get() == 0 {
            self.drop_object();
        }
    }
}

impl<T> Held<T> {
    /// The last holder of an object whose handles were released lets it go.
    #[cold]
    fn drop_object(&self) {
        if self.slot.dormant.get() {
            return;
        }
        let value = self.slot.value.take();
        self.table.recycle(self.slot, self.handle());
        drop(value);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn table() -> &'static Table<Rc<u32>> {
        Box::leak(Box::new(Table::new(Kind::Comm, 256, 3)))
    }

    #[test]
    fn predefined_and_made_objects_are_found() {
        let table = table();
        table.set_predefined(257, Rc::new(7));
        let made = table.insert(Rc::new(8), |_, _| ()).unwrap();
        assert_eq!(**table.hold(257).unwrap(), 7);
        assert_eq!(**table.hold(made).unwrap(), 8);
        assert_eq!(table.hold(256).err(), Some(Lookup::NotPredefined));
        assert_eq!(table.hold(4000).err(), Some(Lookup::NotPredefined));
        assert_eq!(table.live_count(), 1);
    }

    #[test]
    fn stale_and_foreign_handles_are_told_apart() {
        let table = table();
        let made = table.insert(Rc::new(8), |_, _| ()).unwrap();
        table.release(made).unwrap();
        assert_eq!(table.hold(made).err(), Some(Lookup::Freed));
        let again = table.insert(Rc::new(9), |_, _| ()).unwrap();
        assert_ne!(made, again, "another generation");
        assert_eq!(table.release(made), Err(Lookup::Freed));
        let foreign = Parts { kind: Kind::Group as u8, slot: 0, generation: 0 }.encode();
        assert_eq!(table.hold(foreign).err(), Some(Lookup::OtherKind(Kind::Group)));
        assert_eq!(table.hold(again + 1).err(), Some(Lookup::Unknown));
        assert_eq!(table.hold(usize::MAX).err(), Some(Lookup::Unknown));
        // SAFETY: nothing is released while the results are looked at.
        let found = |handle| unsafe { table.peek(handle) }.map(|object| **object);
        assert_eq!(
            [made, again, foreign, again + 1, usize::MAX, 256].map(found),
            [None, Some(9), None, None, None, None]
        );
    }

    #[test]
    fn only_live_handles_lead_to_what_is_not_held() {
        let table = table();
        // SAFETY: nothing is released while the results are looked at.
        let found = |handle| unsafe { table.peek(handle) }.map(|object| **object);
        assert_eq!(found(NO_HANDLE), None);
        assert_eq!(found(Parts { kind: Kind::Comm as u8, slot: 0, generation: 0 }.encode()), None, "no slot yet");
        assert_eq!(found(257), None);
        table.set_predefined(257, Rc::new(7));
        assert_eq!(found(257), Some(7));
        table.unset_predefined(257);
        assert_eq!(found(257), None);
        let dormant = table.insert_dormant(Rc::new(8), |_, _| ()).unwrap();
        assert_eq!(found(dormant), None);
        assert!(table.wake(dormant, |_| true));
        assert_eq!(found(dormant), Some(8));
        let taken = table.insert(Rc::new(9), |_, _| ()).unwrap();
        assert_eq!(found(taken), Some(9));
        assert_eq!(table.take(taken).as_deref(), Ok(&9));
        assert_eq!(found(taken), None);
        let forgotten = table.insert(Rc::new(10), |_, _| ()).unwrap();
        let look = |value: &mut Rc<u32>| (Rc::clone(value), true);
        let (last, _) = table.with_and_forget(forgotten, look).unwrap();
        assert_eq!((found(forgotten), table.hold(forgotten).err()), (None, Some(Lookup::Freed)));
        // One was forgotten with the value, as the function is for.
        assert_eq!(Rc::strong_count(&last), 2);
        let held_handle = table.insert(Rc::new(11), |_, _| ()).unwrap();
        let held = table.hold(held_handle).unwrap();
        table.release(held_handle).unwrap();
        assert_eq!((**held, found(held_handle)), (11, None), "released, and held by a call all the same");
    }

    #[test]
    fn an_object_outlives_its_handle_while_held() {
        let table = table();
        let object = Rc::new(8);
        let handle = table.insert(Rc::clone(&object), |_, _| ()).unwrap();
        let held = table.hold(handle).unwrap();
        table.release(handle).unwrap();
        assert!(!table.is_live(handle));
        assert_eq!((**held, Rc::strong_count(&object)), (8, 2));
        drop(held);
        assert_eq!(Rc::strong_count(&object), 1);
    }

    #[test]
    fn a_dormant_object_is_found_once_awake() {
        let table = table();
        let handle = table.insert_dormant(Rc::new(8), |_, _| ()).unwrap();
        assert_eq!(table.hold(handle).err(), Some(Lookup::Dormant));
        assert_eq!(table.release(handle), Err(Lookup::Dormant));
        assert!(!table.wake(handle, |_| false));
        assert_eq!(**table.hold_dormant(handle).unwrap(), 8, "and stays when it is let go");
        assert_eq!(table.hold(handle).err(), Some(Lookup::Dormant));
        assert!(table.wake(handle, |value| **value == 8));
        assert_eq!(**table.hold(handle).unwrap(), 8);
        assert!(!table.wake(handle, |_| true), "awake already");
        table.release(handle).unwrap();
        assert_eq!(table.hold(handle).err(), Some(Lookup::Freed));
        assert!(!table.wake(handle, |_| true), "gone");
    }

    #[test]
    fn as_many_releases_as_handles() {
        let table = table();
        let handle = table.insert(Rc::new(8), |_, _| ()).unwrap();
        assert!(table.retain(handle));
        table.release(handle).unwrap();
        assert!(table.is_live(handle));
        table.release(handle).unwrap();
        assert!(!table.retain(handle));
    }

    #[test]
    fn an_integer_leads_back_to_the_handle() {
        let table = table();
        for round in 0..100 {
            let handle = table.insert(Rc::new(round), |_, _| ()).unwrap();
            assert_eq!(table.handle_of_int(super::super::handle::to_int(handle)), Some(handle));
            table.release(handle).unwrap();
        }
        assert_eq!(table.handle_of_int(257), Some(257));
        assert_eq!(table.handle_of_int(-1), None);
    }

    #[test]
    fn many_objects_at_a_time() {
        let table = table();
        assert!(!table.has_place(), "there is no chunk yet");
        let handles: Vec<_> = (0..1000).map(|n| table.insert(Rc::new(n), |_, _| ()).unwrap()).collect();
        for (n, handle) in handles.iter().enumerate() {
            assert_eq!(**table.hold(*handle).unwrap(), n as u32);
            // SAFETY: nothing is released while the result is looked at.
            assert_eq!(unsafe { table.peek(*handle) }.map(|object| **object), Some(n as u32));
        }
        assert_eq!(table.take(handles[500]).map(|object| *object), Ok(500));
        assert_eq!(table.live_count(), 999);
        assert!(table.has_place(), "that of the one taken");
        let filled = (0..).take_while(|n| table.has_place() && table.insert(Rc::new(*n), |_, _| ()).is_some()).count();
        assert_eq!(filled, (1 + 2 + 4) * FIRST_CHUNK_SLOTS - 999, "three chunks");
    }
}
