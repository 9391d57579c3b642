//! Which completion belongs to which request: the numbers that go to the adapter as `wr_id`.
//!
//! ```text
//!   63            32 31     24 23        0
//!   |  slot         |  epoch  |  queue    |
//! ```
//! A queue that is cleared or destroyed leaves its epoch, so that completions still on their way name nothing.

use base::SlabKey;
use fabric::CompletionOpcode;
use std::collections::VecDeque;

/// Queues of one context; what 24 bits number.
const QUEUES_MAX: usize = 1 << 24;

/// Sends posted to one queue pair and not yet known to be complete, oldest first.
///
/// The adapter says nothing of unsignalled sends. They are over when a later one completes; and so that one does, every
/// so many are signalled whether the caller asked or not.
pub(crate) struct SendQueue {
    pub(crate) depth: u32,
    entries: VecDeque<SendEntry>,
    /// Sequence number of the oldest entry.
    oldest: u32,
    /// Sends since the last one that the adapter will report.
    silent: u32,
}

/// One send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SendEntry {
    pub(crate) id: u64,
    pub(crate) opcode: CompletionOpcode,
    pub(crate) bytes: u64,
    pub(crate) signalled: bool,
}

impl SendQueue {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth, entries: VecDeque::new(), oldest: 0, silent: 0 }
    }

    pub(crate) fn room(&self) -> usize {
        self.depth as usize - self.entries.len()
    }

    /// The slot of the next send, and whether the adapter must report it.
    pub(crate) fn push(&mut self, entry: SendEntry) -> (u32, bool) {
        let slot = self.oldest.wrapping_add(self.entries.len() as u32);
        self.silent = if entry.signalled { 0 } else { self.silent + 1 };
        let report = entry.signalled || self.silent >= (self.depth / 2).max(1);
        if report {
            self.silent = 0;
        }
        self.entries.push_back(entry);
        (slot, report)
    }

    /// Takes the newest entries back: the provider refused them.
    pub(crate) fn take_back(&mut self, count: usize) {
        self.entries.truncate(self.entries.len() - count);
        // Whether the last report is among them is not known; the next send asks for one to be safe.
        self.silent = self.depth;
    }

    /// The entry in `slot`, and forgets it and all before it, which are over too.
    pub(crate) fn complete(&mut self, slot: u32) -> Option<SendEntry> {
        let place = slot.wrapping_sub(self.oldest) as usize;
        let entry = *self.entries.get(place)?;
        self.entries.drain(..=place);
        self.oldest = slot.wrapping_add(1);
        Some(entry)
    }
}

/// Receives posted to one queue and not yet complete, in any order.
pub(crate) struct ReceiveQueue {
    pub(crate) depth: u32,
    ids: Vec<u64>,
    free: Vec<u32>,
}

impl ReceiveQueue {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth, ids: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn room(&self) -> usize {
        self.depth as usize - self.posted()
    }

    pub(crate) fn posted(&self) -> usize {
        self.ids.len() - self.free.len()
    }

    /// The slot of the next receive.
    pub(crate) fn push(&mut self, id: u64) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.ids[slot as usize] = id;
                slot
            }
            None => {
                self.ids.push(id);
                self.ids.len() as u32 - 1
            }
        }
    }

    /// The id of the receive in `slot`, which is over.
    pub(crate) fn complete(&mut self, slot: u32) -> Option<u64> {
        let id = *self.ids.get(slot as usize)?;
        self.free.push(slot);
        Some(id)
    }
}

/// A queue of requests.
pub(crate) enum WorkQueue {
    /// Of this queue pair.
    Send(SlabKey, SendQueue),
    /// Of this queue pair.
    Receive(SlabKey, ReceiveQueue),
    /// Of a shared receive queue.
    Shared(ReceiveQueue),
    /// Of a lane of this queue pair; see [`crate::substitute`].
    Lane(SlabKey, SendQueue),
    /// The control messages of this queue pair; slots are places in its buffer.
    Control(SlabKey),
}

/// Names a queue in the numbers that travel: queue and epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueName(u32);

impl QueueName {
    /// The number for a request in `slot`.
    pub(crate) fn request(self, slot: u32) -> u64 {
        u64::from(slot) << 32 | u64::from(self.0)
    }
}

/// All queues of a context.
#[derive(Default)]
pub(crate) struct Registry {
    places: Vec<(u8, Option<WorkQueue>)>,
    free: Vec<u32>,
}

impl Registry {
    /// # Panics
    /// With more queues than 24 bits number; the limits of a context are far below.
    pub(crate) fn insert(&mut self, queue: WorkQueue) -> QueueName {
        let index = self.free.pop().unwrap_or_else(|| {
            assert!(self.places.len() < QUEUES_MAX, "limits keep the queues below 2^24");
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (epoch, place) = &mut self.places[index as usize];
        *place = Some(queue);
        QueueName(u32::from(*epoch) << 24 | index)
    }

    pub(crate) fn remove(&mut self, name: QueueName) -> Option<WorkQueue> {
        self.get_mut(name)?;
        let index = name.0 & 0xff_ffff;
        let (epoch, place) = &mut self.places[index as usize];
        *epoch = epoch.wrapping_add(1);
        self.free.push(index);
        place.take()
    }

    pub(crate) fn get_mut(&mut self, name: QueueName) -> Option<&mut WorkQueue> {
        let (epoch, place) = self.places.get_mut(name.0 as usize & 0xff_ffff)?;
        if u32::from(*epoch) == name.0 >> 24 { place.as_mut() } else { None }
    }

    /// The queue and slot of a request's number.
    pub(crate) fn find(&mut self, request: u64) -> Option<(&mut WorkQueue, u32)> {
        let queue = self.get_mut(QueueName(request as u32))?;
        Some((queue, (request >> 32) as u32))
    }

    pub(crate) fn send(&mut self, name: QueueName) -> &mut SendQueue {
        match self.get_mut(name) {
            Some(WorkQueue::Send(_, queue)) => queue,
            _ => unreachable!("a queue pair keeps the name of its send queue"),
        }
    }

    pub(crate) fn receive(&mut self, name: QueueName) -> &mut ReceiveQueue {
        match self.get_mut(name) {
            Some(WorkQueue::Receive(_, queue) | WorkQueue::Shared(queue)) => queue,
            _ => unreachable!("whoever receives keeps the name of the queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u64, signalled: bool) -> SendEntry {
        SendEntry { id, opcode: CompletionOpcode::Send, bytes: 0, signalled }
    }

    fn key(index: u64) -> SlabKey {
        SlabKey::from_bits(1 << 32 | index)
    }

    #[test]
    fn silent_sends_are_over_when_a_later_one_completes() {
        let mut queue = SendQueue::new(8);
        let slots: Vec<u32> = (0..4).map(|id| queue.push(entry(id, id == 2)).0).collect();
        assert_eq!((slots.as_slice(), queue.room()), (&[0, 1, 2, 3][..], 4));
        assert_eq!(queue.complete(slots[2]), Some(entry(2, true)));
        assert_eq!(queue.room(), 7);
        assert_eq!(queue.complete(slots[2]), None, "only once");
        assert_eq!(queue.complete(slots[3]).map(|entry| entry.id), Some(3));
        assert_eq!(queue.complete(17), None);
    }

    #[test]
    fn a_queue_full_of_silent_sends_is_reported_in_time() {
        for depth in 1..=9 {
            let mut queue = SendQueue::new(depth);
            let mut reported = None;
            for id in 0..1000 {
                if queue.room() == 0 {
                    let slot = reported.take().expect("a full queue holds one that is reported");
                    assert!(queue.complete(slot).is_some());
                }
                let (slot, report) = queue.push(entry(id, false));
                reported = if report { Some(slot) } else { reported };
            }
        }
    }

    #[test]
    fn what_the_provider_refused_was_never_there() {
        let mut queue = SendQueue::new(4);
        for id in 0..3 {
            queue.push(entry(id, true));
        }
        queue.take_back(2);
        assert_eq!((queue.room(), queue.push(entry(9, false))), (3, (1, true)));
        assert_eq!(queue.complete(0).map(|entry| entry.id), Some(0));
        assert_eq!(queue.complete(1).map(|entry| entry.id), Some(9));
    }

    #[test]
    fn receives_complete_in_any_order() {
        let mut queue = ReceiveQueue::new(2);
        let slots = [queue.push(10), queue.push(11)];
        assert_eq!(queue.room(), 0);
        assert_eq!(queue.complete(slots[1]), Some(11));
        assert_eq!((queue.room(), queue.push(12)), (1, slots[1]));
        assert_eq!((queue.complete(slots[0]), queue.complete(slots[1])), (Some(10), Some(12)));
        assert_eq!(queue.complete(7), None);
    }

    #[test]
    fn a_number_of_a_queue_that_is_gone_names_nothing() {
        let mut registry = Registry::default();
        let first = registry.insert(WorkQueue::Receive(key(1), ReceiveQueue::new(1)));
        let slot = registry.receive(first).push(5);
        let number = first.request(slot);
        assert!(registry.find(number).is_some());
        assert!(registry.remove(first).is_some());
        assert!(registry.remove(first).is_none());
        let second = registry.insert(WorkQueue::Send(key(2), SendQueue::new(1)));
        assert!(registry.find(number).is_none(), "the place is taken again, the epoch has changed");
        assert!(matches!(registry.find(second.request(3)), Some((WorkQueue::Send(..), 3))));
        assert!(registry.find(u64::MAX).is_none());
    }
}
