//! Holds on communicators that messages have let go of, kept for the next ones.
//!
//! A request holds its communicator, and counting who does is a locked instruction each time: at the beginning and at
//! the end of every message that is not waited for at once. Most follow one another on one communicator.
//!
//! **Invariants**
//! - All that are kept are of one communicator.
//! - A communicator that nobody else holds is not kept, as far as this is told of it: by the last message of it, by
//!   the call that frees it, or by messages of another one.

use std::cell::RefCell;
use std::sync::Arc;

use crate::communicator::Comm;

/// No more are kept: windows of requests are seldom longer.
const KEPT_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct SpareHolds(RefCell<Vec<Arc<Comm>>>);

impl SpareHolds {
    /// One more hold on `comm`.
    #[inline]
    pub fn hold(&self, comm: &Arc<Comm>) -> Arc<Comm> {
        let kept = self.0.borrow_mut().pop();
        match kept {
            Some(kept) if Arc::ptr_eq(&kept, comm) => kept,
            other => another(comm, other),
        }
    }

    /// Takes a hold back.
    #[inline]
    pub fn let_go(&self, comm: Arc<Comm>) {
        let mut kept = self.0.borrow_mut();
        if kept.last().is_some_and(|last| !Arc::ptr_eq(last, &comm)) {
            return;
        }
        if Arc::strong_count(&comm) == kept.len() + 1 {
            kept.clear();
        } else if kept.len() < KEPT_MAX {
            kept.push(comm);
        }
    }

    /// Keeps none any longer.
    pub fn clear(&self) {
        self.0.take();
    }
}

#[cold]
fn another(comm: &Arc<Comm>, other: Option<Arc<Comm>>) -> Arc<Comm> {
    drop(other);
    Arc::clone(comm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::Commons;

    fn world_of_one() -> Arc<Comm> {
        Comm::predefined_self(0, &Arc::new(Commons::new(0, 1, collectives::Selection::default())))
    }

    #[test]
    fn a_hold_is_used_again() {
        let (holds, comm) = (SpareHolds::default(), world_of_one());
        let windows: Vec<_> = (0..2 * KEPT_MAX).map(|_| holds.hold(&comm)).collect();
        assert_eq!(Arc::strong_count(&comm), 2 * KEPT_MAX + 1);
        windows.into_iter().for_each(|hold| holds.let_go(hold));
        assert_eq!(Arc::strong_count(&comm), KEPT_MAX + 1, "no more are kept");
        let again: Vec<_> = (0..KEPT_MAX).map(|_| holds.hold(&comm)).collect();
        assert_eq!(Arc::strong_count(&comm), KEPT_MAX + 1, "none is counted anew");
        drop(again);
    }

    #[test]
    fn what_is_freed_goes_with_its_last_message() {
        let (holds, comm) = (SpareHolds::default(), world_of_one());
        let gone = Arc::downgrade(&comm);
        let messages = [holds.hold(&comm), holds.hold(&comm), holds.hold(&comm)];
        drop(comm);
        for message in messages {
            assert!(gone.upgrade().is_some());
            holds.let_go(message);
        }
        assert!(gone.upgrade().is_none());
    }

    #[test]
    fn the_end_of_another_communicators_message_changes_nothing() {
        let (holds, comm, other) = (SpareHolds::default(), world_of_one(), world_of_one());
        let of_other = holds.hold(&other);
        let messages = [holds.hold(&comm), holds.hold(&comm), holds.hold(&comm)];
        messages.into_iter().for_each(|hold| holds.let_go(hold));
        holds.let_go(of_other);
        assert_eq!((Arc::strong_count(&comm), Arc::strong_count(&other)), (4, 1));
    }

    #[test]
    fn messages_of_another_communicator_push_holds_out() {
        let (holds, comm, other) = (SpareHolds::default(), world_of_one(), world_of_one());
        let messages = [holds.hold(&comm), holds.hold(&comm)];
        messages.into_iter().for_each(|hold| holds.let_go(hold));
        let gone = Arc::downgrade(&comm);
        drop(comm);
        for _ in 0..2 {
            let hold = holds.hold(&other);
            holds.let_go(hold);
        }
        assert!(gone.upgrade().is_none());
        assert_eq!(Arc::strong_count(&other), 2, "its own are kept now");
        holds.clear();
        assert_eq!(Arc::strong_count(&other), 1);
    }
}
