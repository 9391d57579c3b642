//! Events: what happened, noted for tools that watch.
//!
//! Nothing is noted unless somebody watches; then a bounded queue holds what has not been fetched, and
//! what does not fit is counted.

use std::collections::VecDeque;

use crate::core::Engine;
use crate::request::{Envelope, PeerId, Tag};

/// Most events that wait to be fetched.
pub const EVENTS_MAX: usize = 1 << 12;

/// What can be watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum EventKind {
    /// A message came before its receive and was stored.
    MessageUnexpected,
    /// A request, send or receive, has completed.
    RequestCompleted,
    /// A message was too long to be sent eagerly and asks for its receive.
    RendezvousStarted,
    /// An eager message found no room in its channel.
    EagerWaited,
    /// Unexpected data is past its budget: senders are asked to keep theirs.
    SendersHeldBack,
    /// A record of a peer made no sense.
    RecordRefused,
}

impl EventKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [EventKind; 6] = [
        EventKind::MessageUnexpected,
        EventKind::RequestCompleted,
        EventKind::RendezvousStarted,
        EventKind::EagerWaited,
        EventKind::SendersHeldBack,
        EventKind::RecordRefused,
    ];
}

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// When, by the clock that the watcher gave.
    pub time_ns: u64,
    /// The other process, if there is one.
    pub peer: Option<PeerId>,
    /// The tag of the message, if it is about one.
    pub tag: Option<Tag>,
    /// Bytes of the message, or of all that is stored.
    pub len_bytes: u64,
}

impl Engine {
    /// Watches these kinds of events, timed by `clock`; none ends the watch.
    pub fn watch(&mut self, kinds: &[EventKind], clock: fn() -> u64) {
        match &mut self.core.watch {
            _ if kinds.is_empty() => self.core.watch = None,
            Some(watch) => watch.choose(kinds),
            None => self.core.watch = Some(Box::new(Watch::new(kinds, clock))),
        }
    }

    /// The earliest event that was not fetched.
    pub fn next_event(&mut self) -> Option<Event> {
        self.core.watch.as_mut()?.next()
    }

    /// How many events of a kind found no room since this was asked last.
    pub fn take_dropped_events(&mut self, kind: EventKind) -> u64 {
        self.core.watch.as_mut().map_or(0, |watch| watch.take_dropped(kind))
    }
}

/// What is watched, and what has not been fetched.
pub(crate) struct Watch {
    kinds: [bool; EventKind::ALL.len()],
    clock: fn() -> u64,
    queue: VecDeque<Event>,
    dropped: [u64; EventKind::ALL.len()],
}

impl Watch {
    pub(crate) fn new(kinds: &[EventKind], clock: fn() -> u64) -> Self {
        let mut watch = Self { kinds: Default::default(), clock, queue: VecDeque::new(), dropped: Default::default() };
        watch.choose(kinds);
        watch
    }

    /// From now on these kinds are watched and no others.
    pub(crate) fn choose(&mut self, kinds: &[EventKind]) {
        self.kinds = Default::default();
        kinds.iter().for_each(|kind| self.kinds[*kind as usize] = true);
    }

    pub(crate) fn note(&mut self, kind: EventKind, envelope: Option<Envelope>, len_bytes: u64) {
        if !self.kinds[kind as usize] {
            return;
        }
        if self.queue.len() >= EVENTS_MAX {
            self.dropped[kind as usize] += 1;
            return;
        }
        let (peer, tag) = (envelope.map(|envelope| envelope.peer), envelope.map(|envelope| envelope.tag));
        self.queue.push_back(Event { kind, time_ns: (self.clock)(), peer, tag, len_bytes });
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    /// How many of a kind were dropped since this was asked last.
    pub(crate) fn take_dropped(&mut self, kind: EventKind) -> u64 {
        std::mem::take(&mut self.dropped[kind as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_numbers() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }

    #[test]
    fn only_what_is_watched_is_noted_and_what_does_not_fit_is_counted() {
        let mut watch = Watch::new(&[EventKind::EagerWaited], || 7);
        let envelope = Envelope { peer: 2, tag: 3, len_bytes: 4 };
        watch.note(EventKind::RecordRefused, None, 0);
        assert_eq!(watch.next(), None);
        for _ in 0..EVENTS_MAX + 5 {
            watch.note(EventKind::EagerWaited, Some(envelope), 4);
        }
        let event = Event { kind: EventKind::EagerWaited, time_ns: 7, peer: Some(2), tag: Some(3), len_bytes: 4 };
        assert_eq!(watch.next(), Some(event));
        assert_eq!(std::iter::from_fn(|| watch.next()).count(), EVENTS_MAX - 1);
        assert_eq!((watch.take_dropped(EventKind::EagerWaited), watch.take_dropped(EventKind::EagerWaited)), (5, 0));
    }
}
