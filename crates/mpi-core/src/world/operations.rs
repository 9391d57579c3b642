//! Operations of several steps that run while the user does something else: non-blocking
//! collectives, communicators being duplicated.
//!
//! **Invariants**
//! - An operation is out of the table while it advances, so that a user's reduction called by it
//!   may call the library again; such a nested poll passes it over.
//! - Operations advance in the order of their start. One that is waited for and needs no more than a look at memory is
//!   looked at before the others, on which it does not depend while that is so.

use std::cell::{Cell, RefCell};
use std::task::Poll;

use base::{Slab, SlabKey};

use super::World;
use crate::error::{Error, Result};

/// Something that is done in steps.
pub(crate) trait Operation: Send {
    /// Does whatever can be done without waiting.
    fn advance(&mut self, world: &World) -> Poll<Result<()>>;

    /// True if what it waits for is one look at memory: it may come any time without anything moving in the engine.
    fn waits_closely(&self) -> bool {
        false
    }
}

/// The key of an operation in flight, or of one that has ended well when it was started, of which nothing is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationKey(Option<SlabKey>);

impl OperationKey {
    /// True if nothing is kept of it.
    #[inline]
    pub fn has_ended_well(self) -> bool {
        self.0.is_none()
    }
}

/// Why an operation is found that was taken out.
const STAYS: &str = "an advancing operation stays in the table";

enum Slot {
    Waiting(Box<dyn Operation>),
    Advancing,
    Finished(Result<()>),
}

struct Entry {
    slot: Slot,
    /// Nobody will ask for the result.
    is_detached: bool,
    /// The world does not end before it has finished.
    is_awaited: bool,
}

/// The operations of one world.
#[derive(Default)]
pub(crate) struct Operations {
    table: RefCell<Slab<Entry>>,
    /// Unfinished operations in order of start.
    order: RefCell<Vec<SlabKey>>,
    unfinished: Cell<usize>,
    /// Those of them that the end of the world waits for.
    awaited: Cell<usize>,
    /// One of them came further, though not to its end.
    has_moved: Cell<bool>,
}

impl Operations {
    /// True if nothing is left to advance.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.unfinished.get() == 0
    }

    /// Number of operations under way.
    pub fn unfinished_count(&self) -> usize {
        self.unfinished.get()
    }

    /// True if nothing is left that the end of the world waits for.
    pub fn none_awaited(&self) -> bool {
        self.awaited.get() == 0
    }

    /// Takes an operation up; it advances whenever the world polls.
    pub fn start(&self, operation: Box<dyn Operation>) -> OperationKey {
        self.awaited.set(self.awaited.get() + 1);
        self.add(Entry { slot: Slot::Waiting(operation), is_detached: false, is_awaited: true })
    }

    /// The same for an operation whose result nobody asks for and whose end nobody needs.
    pub fn start_unawaited(&self, operation: Box<dyn Operation>) {
        self.add(Entry { slot: Slot::Waiting(operation), is_detached: true, is_awaited: false });
    }

    fn add(&self, entry: Entry) -> OperationKey {
        let key = self.table.borrow_mut().insert(entry);
        self.order.borrow_mut().push(key);
        self.unfinished.set(self.unfinished.get() + 1);
        OperationKey(Some(key))
    }

    /// The key of an operation that was over when it was started.
    #[inline]
    pub fn ended(&self, outcome: Result<()>) -> OperationKey {
        OperationKey(outcome.err().map(|error| self.keep_error(error)))
    }

    #[cold]
    fn keep_error(&self, error: Error) -> SlabKey {
        let slot = Slot::Finished(Err(error));
        self.table.borrow_mut().insert(Entry { slot, is_detached: false, is_awaited: false })
    }

    /// An operation that advances came further.
    pub fn note_movement(&self) {
        self.has_moved.set(true);
    }

    /// Advances every operation once; true if one of them finished, or said that it came further.
    pub fn advance_all(&self, world: &World) -> bool {
        let mut finished_any = false;
        let mut at = 0;
        loop {
            let Some(key) = self.order.borrow().get(at).copied() else { break };
            finished_any |= self.advance(world, key);
            at += 1;
        }
        if finished_any {
            let table = self.table.borrow();
            let unfinished =
                |key: &SlabKey| table.get(*key).is_some_and(|entry| !matches!(entry.slot, Slot::Finished(_)));
            self.order.borrow_mut().retain(unfinished);
        }
        finished_any | self.has_moved.take()
    }

    /// Advances one operation; true if it has finished now.
    fn advance(&self, world: &World, key: SlabKey) -> bool {
        match self.take_out(key) {
            Ok(mut operation) => {
                let step = operation.advance(world);
                self.put_back(key, operation, step)
            }
            Err(has_finished) => has_finished,
        }
    }

    /// Advances an operation that somebody waits for, up to `looks_max` times as long as that is no more than a look; its
    /// result, if it has finished by that, which is forgotten here.
    pub fn finish_closely(&self, world: &World, key: OperationKey, looks_max: u32) -> Option<Result<()>> {
        let key = key.0?;
        let mut operation = self.take_out(key).ok()?;
        let mut step = Poll::Pending;
        for _ in 0..looks_max {
            if !operation.waits_closely() {
                break;
            }
            step = operation.advance(world);
            if step.is_ready() {
                break;
            }
        }
        let Poll::Ready(result) = step else {
            self.put_back(key, operation, Poll::Pending);
            return None;
        };
        let entry = self.table.borrow_mut().remove(key).expect(STAYS);
        self.count_finished(&entry);
        let mut order = self.order.borrow_mut();
        let at = order.iter().position(|other| *other == key);
        at.map(|at| order.remove(at));
        debug_assert!(!self.is_empty() || order.is_empty(), "what has finished is left to be advanced");
        drop(order);
        // Dropping an operation may free a communicator, so it happens without a borrow.
        drop(operation);
        Some(result)
    }

    fn count_finished(&self, entry: &Entry) {
        self.unfinished.set(self.unfinished.get() - 1);
        self.awaited.set(self.awaited.get() - usize::from(entry.is_awaited));
    }

    /// Takes an operation out of the table to advance it, or else says whether it has finished.
    fn take_out(&self, key: SlabKey) -> std::result::Result<Box<dyn Operation>, bool> {
        let mut table = self.table.borrow_mut();
        let Some(entry) = table.get_mut(key) else { return Err(true) };
        match std::mem::replace(&mut entry.slot, Slot::Advancing) {
            Slot::Waiting(operation) => Ok(operation),
            // A nested poll met an operation that advances further up the stack.
            Slot::Advancing => Err(false),
            Slot::Finished(result) => {
                entry.slot = Slot::Finished(result);
                Err(true)
            }
        }
    }

    /// Puts an operation back that has been advanced, or its result; true if that is there.
    fn put_back(&self, key: SlabKey, operation: Box<dyn Operation>, step: Poll<Result<()>>) -> bool {
        let mut table = self.table.borrow_mut();
        let entry = table.get_mut(key).expect(STAYS);
        match step {
            Poll::Pending => {
                entry.slot = Slot::Waiting(operation);
                false
            }
            Poll::Ready(result) => {
                self.count_finished(entry);
                if entry.is_detached {
                    table.remove(key);
                } else {
                    entry.slot = Slot::Finished(result);
                }
                drop(table);
                // Dropping an operation may free a communicator, so it happens without a borrow.
                drop(operation);
                true
            }
        }
    }

    /// True if [`Operations::take`] would give a result.
    pub fn is_finished(&self, key: OperationKey) -> bool {
        let Some(key) = key.0 else { return true };
        matches!(self.table.borrow().get(key), Some(Entry { slot: Slot::Finished(_), .. }))
    }

    /// The result of a finished operation, which is forgotten by this.
    pub fn take(&self, key: OperationKey) -> Option<Result<()>> {
        let Some(slot) = key.0 else { return Some(Ok(())) };
        if !self.is_finished(key) {
            return None;
        }
        match self.table.borrow_mut().remove(slot)?.slot {
            Slot::Finished(result) => Some(result),
            Slot::Waiting(_) | Slot::Advancing => None,
        }
    }

    /// Nobody will ask for the result: forget it when it comes.
    pub fn detach(&self, key: OperationKey) {
        let Some(key) = key.0 else { return };
        let mut table = self.table.borrow_mut();
        match table.get_mut(key) {
            Some(Entry { slot: Slot::Finished(_), .. }) => drop(table.remove(key)),
            Some(entry) => entry.is_detached = true,
            None => {}
        }
    }
}
