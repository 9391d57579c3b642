//! What is known of the ways of long messages: what they took, noted by their receiver for those that come after them, and
//! which come and go through the channel at the same time.

use std::time::{Duration, Instant};

use base::SlabKey;
use protocol::experience::{CopyWay, Experience, Kind, Side};
use protocol::wire::OfferedChannel;

use crate::core::Core;
use crate::request::{PeerId, Request, State};

/// What is known of the ways of long messages from one peer.
#[derive(Default)]
pub(crate) struct Ways {
    experience: Experience,
    /// When the message before was there: what is under way together goes one after the other.
    last_end: Option<Instant>,
    /// The last receive of a message that comes through the channel, piece by piece.
    pub(crate) staged: Option<SlabKey>,
    /// Such a message came while the last one to the peer left so.
    pub(crate) crosses: bool,
    pub(crate) leave: Leave,
}

/// How many messages like one that goes through the channel may come whole, without a request, before the sender asks again:
/// what they take is not known, and the one that asks says whether the way is still the best. Twice as many each time, as
/// long as each finds its receive.
pub(crate) struct Leave {
    next: u8,
}

impl Leave {
    const FIRST: u8 = 7;
    /// Also at once where processes share processors: the lengths of messages alone say how they go there.
    pub(crate) const MOST: u8 = 63;

    /// For so many.
    fn give(&mut self) -> u8 {
        let more = (2 * self.next + 1).min(Self::MOST);
        std::mem::replace(&mut self.next, more)
    }
}

impl Default for Leave {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

/// A message whose way is judged by what it takes.
#[derive(Clone, Copy)]
pub(crate) struct Judged {
    kind: Kind,
    start: Instant,
    /// The way is the channel, and those like it may go the same.
    pub(crate) keeps_to_channel: bool,
}

impl Core {
    /// The way for a message of `len_bytes` from a peer; `channel` is what the sender says. Where there is more than one,
    /// what it takes is to be noted.
    pub(crate) fn choose_way(
        &mut self,
        peer: PeerId,
        kind: Kind,
        len_bytes: u64,
        channel: OfferedChannel,
    ) -> (CopyWay, Option<Judged>) {
        if let Some(way) = kind.only_way() {
            return (way, None);
        }
        // The sender waits for messages itself, or this process for what it sends.
        let crosses = channel.awaits || self.unfinished_sends > 0;
        let side = if self.me <= peer { Side::Leads } else { Side::Follows };
        let Some(Some(peer)) = self.peers.get_mut(peer as usize) else { return (CopyWay::Staged, None) };
        let experience = &mut peer.ways.get_or_insert_default().experience;
        let kind = if crosses { kind.crossing(side) } else { kind };
        let kind = if self.is_beside_work { kind.beside_work() } else { kind };
        let way = experience.choose(kind, len_bytes, channel.is_near);
        let keeps_to_channel = experience.keeps_to_channel(kind);
        (way, Some(Judged { kind, start: Instant::now(), keeps_to_channel }))
    }

    /// Somebody waits again. What messages take that met their receives beside other work is counted from now on: before, that
    /// took nobody's time.
    #[cold]
    pub(crate) fn begin_to_wait(&mut self) {
        let now = Instant::now();
        for receive in self.met_beside_work.drain(..) {
            if let Some(Request { state: State::Incoming(incoming), .. }) = self.requests.get_mut(receive)
                && let Some(judged) = &mut incoming.judged
            {
                judged.start = now;
            }
        }
    }

    /// The peer takes a message of ours of `len_bytes` through the channel (`stages`), or has taken it another way.
    pub(crate) fn other_takes(&mut self, peer: PeerId, len_bytes: u64, stages: bool) {
        if let Some(ways) = self.ways_of(peer) {
            ways.experience.other_takes(len_bytes, stages);
        }
    }

    /// A message of `len_bytes` that came this way is there, or has failed: notes what that took.
    pub(crate) fn note_way(&mut self, peer: PeerId, len_bytes: u64, way: CopyWay, judged: Judged, is_there: bool) {
        let Some(ways) = self.ways_of(peer) else { return };
        let now = Instant::now();
        let last_end = ways.last_end.replace(now).unwrap_or(judged.start);
        let pause = judged.start.checked_duration_since(last_end);
        let took = now.saturating_duration_since(last_end.max(judged.start));
        let ns = |duration: Duration| duration.as_nanos() as u64;
        ways.experience.end(judged.kind, len_bytes, way, pause.map(ns), is_there.then_some(took).map(ns));
    }

    /// Leave for messages like one that goes through the channel, to a receiver that is ready for them.
    pub(crate) fn give_leave(&mut self, peer: PeerId) -> u8 {
        match self.peers.get_mut(peer as usize) {
            Some(Some(peer)) => peer.ways.get_or_insert_default().leave.give(),
            _ => 0,
        }
    }

    /// A long message of `len_bytes` that came whole is there.
    #[cold]
    pub(crate) fn note_whole(&mut self, peer: PeerId, len_bytes: u64) {
        self.shuttles.note_came(peer, len_bytes);
        if let Some(ways) = self.ways_of(peer) {
            ways.last_end = Some(Instant::now());
        }
    }

    /// A long message that came whole was too early: there is no receive for it.
    #[cold]
    pub(crate) fn note_early(&mut self, peer: PeerId) {
        if let Some(ways) = self.ways_of(peer) {
            ways.leave = Leave::default();
        }
    }

    fn ways_of(&mut self, peer: PeerId) -> Option<&mut Ways> {
        self.peers.get_mut(peer as usize)?.as_mut()?.ways.as_deref_mut()
    }
}
