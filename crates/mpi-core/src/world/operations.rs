//! Operations of several steps that run while the user does something else: non-blocking
//! collectives, communicators being duplicated.
//!
//! **Invariants**
//! - An operation is out of the table while it advances, so that a user's reduction called by it
//!   may call the library again; such a nested poll passes it over.
//! - Operations advance in the order of their start.

use std::cell::{Cell, RefCell};
use std::task::Poll;

use base::{Slab, SlabKey};

use super::World;
use crate::error::Result;

/// Something that is done in steps.
pub(crate) trait Operation: Send {
    /// Does whatever can be done without waiting.
    fn advance(&mut self, world: &World) -> Poll<Result<()>>;
}

/// The key of an operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationKey(SlabKey);

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
        OperationKey(key)
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
        let mut operation = {
            let mut table = self.table.borrow_mut();
            let Some(entry) = table.get_mut(key) else { return true };
            match std::mem::replace(&mut entry.slot, Slot::Advancing) {
                Slot::Waiting(operation) => operation,
                // A nested poll met an operation that advances further up the stack.
                Slot::Advancing => return false,
                Slot::Finished(result) => {
                    entry.slot = Slot::Finished(result);
                    return true;
                }
            }
        };
        let step = operation.advance(world);
        let mut table = self.table.borrow_mut();
        let entry = table.get_mut(key).expect("an advancing operation stays in the table");
        match step {
            Poll::Pending => {
                entry.slot = Slot::Waiting(operation);
                false
            }
            Poll::Ready(result) => {
                self.unfinished.set(self.unfinished.get() - 1);
                self.awaited.set(self.awaited.get() - usize::from(entry.is_awaited));
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
        matches!(self.table.borrow().get(key.0), Some(Entry { slot: Slot::Finished(_), .. }))
    }

    /// The result of a finished operation, which is forgotten by this.
    pub fn take(&self, key: OperationKey) -> Option<Result<()>> {
        if !self.is_finished(key) {
            return None;
        }
        match self.table.borrow_mut().remove(key.0)?.slot {
            Slot::Finished(result) => Some(result),
            Slot::Waiting(_) | Slot::Advancing => None,
        }
    }

    /// Nobody will ask for the result: forget it when it comes.
    pub fn detach(&self, key: OperationKey) {
        let mut table = self.table.borrow_mut();
        match table.get_mut(key.0) {
            Some(Entry { slot: Slot::Finished(_), .. }) => drop(table.remove(key.0)),
            Some(entry) => entry.is_detached = true,
            None => {}
        }
    }
}
