//! The lists of a queue, as whoever holds its latch changes them.

use base::sync::Ordering;

use super::{LATCH, LISTED, List, Meeting, NEXT, STATE_MASK, STEPS_MAX, SlotName};
use crate::SharedMemory;

/// The latch of a queue, held.
pub(super) struct Latch<'a> {
    pub(super) meeting: &'a Meeting,
    pub(super) part: &'a SharedMemory,
    pub(super) base: usize,
}

impl Drop for Latch<'_> {
    fn drop(&mut self) {
        // Release: the lists are whole. Pairs with the exchange in `latch`.
        self.word(LATCH).store(0, Ordering::Release);
    }
}

fn link(slot: Option<SlotName>) -> u64 {
    slot.map_or(0, |slot| u64::from(slot.process + 1) << 32 | u64::from(slot.index))
}

impl<'a> Latch<'a> {
    pub(super) fn word(&self, offset: usize) -> &'a base::sync::AtomicU64 {
        self.part.word(self.base + offset)
    }

    /// The slot behind a link, if there is such a slot.
    fn follow(&self, list: List, link: u64) -> Option<SlotName> {
        let process = ((link >> 32) as u32).checked_sub(1)?;
        let slot = SlotName { process, index: link as u32 };
        self.meeting.at(list, slot).map(|_| slot)
    }

    pub(super) fn head(&self, list: List) -> Option<SlotName> {
        self.follow(list, self.word(list.head).load(Ordering::Relaxed))
    }

    pub(super) fn next(&self, list: List, slot: SlotName) -> Option<SlotName> {
        let (part, at) = self.meeting.at(list, slot)?;
        self.follow(list, part.word(at + NEXT).load(Ordering::Relaxed))
    }

    fn set_next(&self, list: List, slot: SlotName, next: Option<SlotName>) {
        if let Some((part, at)) = self.meeting.at(list, slot) {
            part.word(at + NEXT).store(link(next), Ordering::Relaxed);
        }
    }

    pub(super) fn pop(&self, list: List) -> Option<SlotName> {
        let first = self.head(list)?;
        let next = self.next(list, first);
        self.word(list.head).store(link(next), Ordering::Relaxed);
        if next.is_none() {
            self.word(list.tail).store(0, Ordering::Relaxed);
        }
        Some(first)
    }

    pub(super) fn append(&self, list: List, slot: SlotName) {
        self.set_next(list, slot, None);
        match self.follow(list, self.word(list.tail).load(Ordering::Relaxed)) {
            Some(last) => self.set_next(list, last, Some(slot)),
            None => self.word(list.head).store(link(Some(slot)), Ordering::Relaxed),
        }
        self.word(list.tail).store(link(Some(slot)), Ordering::Relaxed);
    }

    pub(super) fn unlink(&self, list: List, slot: SlotName) {
        let mut before = None;
        let mut at = self.head(list);
        for _ in 0..STEPS_MAX {
            let Some(here) = at else { return };
            let next = self.next(list, here);
            if here == slot {
                match before {
                    Some(before) => self.set_next(list, before, next),
                    None => self.word(list.head).store(link(next), Ordering::Relaxed),
                }
                if next.is_none() {
                    self.word(list.tail).store(link(before), Ordering::Relaxed);
                }
                return;
            }
            (before, at) = (Some(here), next);
        }
    }

    /// Keeps what is listed, in its order, whatever a holder that died in the middle has left.
    pub(super) fn mend(&self, list: List) {
        let mut kept = Vec::new();
        let mut at = self.head(list);
        while let Some(here) = at.filter(|here| kept.len() < STEPS_MAX && !kept.contains(here)) {
            at = self.next(list, here);
            if self.meeting.state(list, here) & STATE_MASK == LISTED {
                kept.push(here);
            }
        }
        self.word(list.head).store(0, Ordering::Relaxed);
        self.word(list.tail).store(0, Ordering::Relaxed);
        kept.into_iter().for_each(|slot| self.append(list, slot));
    }
}
