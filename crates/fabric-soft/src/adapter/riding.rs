//! Acknowledgements that wait a moment for a packet to ride with.
//!
//! Where a packet of its own is dear (a system call), the acknowledgement of a short request is held back while the peer
//! is usually answered at once with a request of ours, which then carries it: in its own header if both go through the
//! same queue pair and nothing else waits, as a packet in front of it otherwise. It goes alone when some polls have found
//! nothing, before its owner sleeps, when several are held, or when an answer that cannot wait follows. Whether it is
//! worth while is learnt from how soon the last ones were followed, so who computes between two calls holds up a peer
//! at most once, when it begins to: the completion of one short request then waits for the next call.
//!
//! Between two calls that find nothing, the one that was made last is not even a packet yet: it is kept fresh, and costs
//! next to nothing if it rides.
//!
//! That of a request which its sender marks as unhurried waits whatever was learnt, and longer, so that in a stream one
//! way one acknowledgement is for many requests.

use std::time::Duration;

use super::core::{Answer, Core, OWN};
use crate::link::{Link, LinkPeer};
use crate::wire::{Kind, Packet};

/// Requests that are acknowledged later carry no more than this, in bytes: what whoever sends it has to keep meanwhile.
const SHORT_MAX_BYTES: u64 = 80 << 10;
/// A request that follows within this is soon.
pub(super) const SOON: Duration = Duration::from_micros(50);
/// How often in a row one must have followed soon.
const SCORE_MIN: u8 = 4;
/// Polls in a row that find nothing until what is held goes: whoever polls several queues in turn has not ended when
/// the first of them is empty.
pub(super) const POLLS_HELD: u32 = 8;
/// The same for what nobody waits for.
pub(super) const POLLS_HELD_UNHURRIED: u32 = 64;
/// Requests whose acknowledgement waits, at most.
const HELD_MAX: u32 = 16;

/// How long an answer may wait for a packet to ride with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Patience {
    /// It goes at once.
    None,
    /// A moment, where it has been worth while.
    Moment,
    /// Longer: nobody waits for it.
    Longer,
}

impl Patience {
    /// That of the acknowledgement of a request.
    pub(super) fn of(packet: &Packet) -> Self {
        match packet.len_bytes <= SHORT_MAX_BYTES {
            false => Self::None,
            true if packet.unhurried => Self::Longer,
            true => Self::Moment,
        }
    }
}

/// What is known of one peer.
#[derive(Default)]
pub(super) struct Riding {
    /// How often in a row an acknowledgement was followed soon.
    score: u8,
    /// When the last acknowledgement that might wait was made, if nothing followed since.
    since: Option<Duration>,
    /// One was made since the clock was looked at.
    pub(super) is_new: bool,
    /// Requests whose acknowledgement waits.
    held: u32,
}

impl Riding {
    /// Whether an answer that has so much patience does well to wait.
    fn is_worth(&self, patience: Patience) -> bool {
        let may = self.score >= SCORE_MIN && patience > Patience::None || patience == Patience::Longer;
        may && self.held < HELD_MAX
    }

    /// A request follows now.
    fn followed(&mut self, now: Duration) {
        if let Some(since) = self.since.take() {
            self.score = if now.saturating_sub(since) <= SOON { (self.score + 1).min(SCORE_MIN) } else { 0 };
        }
    }
}

/// An acknowledgement that has just come to be owed and is worth waiting with: if the next thing said to its peer is a
/// request through the same queue pair, it never was a packet.
#[derive(Clone, Copy)]
pub(super) struct Fresh {
    peer: LinkPeer,
    /// Source and destination.
    through: (u32, u32),
    sequence: u32,
    patience: Patience,
}

impl Core {
    /// Remembers an acknowledgement instead of queueing it; false if it is to be queued.
    #[inline]
    pub(super) fn keeps_fresh(&mut self, peer: LinkPeer, through: (u32, u32), owed: (u32, Patience)) -> bool {
        if peer == OWN || !self.answers_ride {
            return false;
        }
        let (sequence, patience) = owed;
        let state = self.peer(peer);
        if !state.riding.is_worth(patience) || !state.answers.is_empty() || state.is_lost {
            return false;
        }
        let patience = match self.fresh {
            Some(fresh) if (fresh.peer, fresh.through) != (peer, through) => return false,
            Some(fresh) => patience.min(fresh.patience),
            None => patience,
        };
        self.fresh = Some(Fresh { peer, through, sequence, patience });
        true
    }

    /// What was kept fresh is queued.
    #[inline]
    pub(super) fn settle(&mut self) {
        if let Some(Fresh { peer, through: (source, destination), sequence, patience }) = self.fresh.take() {
            let packet = Packet::new(Kind::Acknowledge, source, destination, sequence);
            self.answer(peer, Answer { packet, bytes: None, patience });
        }
    }

    /// Nothing is owed to this peer any more.
    pub(super) fn forget_fresh(&mut self, peer: LinkPeer) {
        self.fresh = self.fresh.filter(|fresh| fresh.peer != peer);
    }

    /// How long what is to be answered to this peer waits for a packet to ride with.
    pub(super) fn holds_back(&mut self, link: &dyn Link, peer: LinkPeer) -> Patience {
        if peer == OWN || !self.answers_ride {
            return Patience::None;
        }
        let state = self.peer(peer);
        let patience = state.answers.iter().map(|answer| answer.patience).min().unwrap_or(Patience::None);
        if patience == Patience::None {
            return Patience::None;
        }
        let riding = &mut state.riding;
        if std::mem::take(&mut riding.is_new) {
            // It was made in the round in which the link found the request.
            riding.since.get_or_insert(link.found_at());
            riding.held += 1;
        }
        if riding.is_worth(patience) { patience } else { Patience::None }
    }

    /// What was held back for this peer goes alone.
    pub(super) fn goes_alone(&mut self, link: &dyn Link, peer: LinkPeer) {
        let riding = &mut self.peer(peer).riding;
        riding.held = 0;
        if riding.score > 0 && riding.since.is_some_and(|since| link.now().saturating_sub(since) > SOON) {
            riding.score = 0;
        }
    }

    /// A request to this peer is about to be sent, `through` this queue pair and to that one: what waits for one goes
    /// before it. An acknowledgement that can go inside it is returned, and stays in its queue until
    /// [`Core::has_ridden`].
    pub(super) fn ride(&mut self, link: &mut dyn Link, peer: LinkPeer, through: Option<(u32, u32)>) -> Option<u32> {
        if peer == OWN || !self.answers_ride {
            return None;
        }
        if let Some(fresh) = self.fresh {
            if fresh.peer == peer && Some(fresh.through) == through {
                self.peer(peer).riding.since.get_or_insert(link.found_at());
                return Some(fresh.sequence);
            }
            self.settle();
        }
        let state = self.peer(peer);
        let first = state.answers.front()?;
        state.riding.held = 0;
        state.riding.is_new = false;
        let is_alone = state.answers.len() == 1 && first.packet.kind == Kind::Acknowledge;
        if is_alone && through == Some((first.packet.source, first.packet.destination)) {
            return Some(first.packet.sequence);
        }
        // What there is no room for stays in its queue.
        if self.send_answers_to(link, peer, true) {
            self.answering.retain(|other| *other != peer);
        }
        None
    }

    /// A request to this peer is the link's: nobody waits for the clock to be read now.
    #[inline]
    pub(super) fn has_followed(&mut self, link: &dyn Link, peer: LinkPeer) {
        let riding = &mut self.peer(peer).riding;
        if riding.since.is_some() {
            riding.followed(link.now());
        }
    }

    /// The request that carries the acknowledgement, the only answer that waited for this peer, is the link's.
    pub(super) fn has_ridden(&mut self, peer: LinkPeer) {
        if self.fresh.take().is_some() {
            return;
        }
        let answers = &mut self.peer(peer).answers;
        let Some(source) = answers.front().map(|answer| answer.packet.source) else { return };
        let _ = answers.pop_front();
        self.answering.retain(|other| *other != peer);
        self.answer_is_sent(source);
    }

    /// True if an acknowledgement waits for a packet to ride with; not for what the link has no room for.
    pub(super) fn holds_answers(&self) -> bool {
        let is_held = |peer: &LinkPeer| self.peers.get(peer.0 as usize).is_some_and(|state| state.riding.held > 0);
        self.fresh.is_some() || self.answering.iter().any(is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SoftContext;
    use crate::link::Responder;
    use crate::quiet::{End, Quiet, adapters, connect, connect_others, teach};
    use fabric::Context;

    #[test]
    fn waiting_is_learnt_and_unlearnt() {
        let mut riding = Riding::default();
        let at = Duration::from_micros;
        for turn in 0..u64::from(SCORE_MIN) {
            assert!(riding.score < SCORE_MIN, "turn {turn}");
            riding.since = Some(at(turn * 100));
            riding.followed(at(turn * 100 + 10));
        }
        assert_eq!(riding.score, SCORE_MIN);
        riding.followed(at(9000));
        assert_eq!(riding.score, SCORE_MIN, "nothing was held, so nothing is learnt");
        riding.since = Some(at(9000));
        riding.followed(at(9100));
        assert_eq!(riding.score, 0);
    }

    #[test]
    fn a_peer_whose_answers_have_ridden_is_not_listed_any_more() {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(here, there);
        teach(&mut here, &mut there, 40);
        for end in [&here, &there] {
            assert!(end.context.core.answering.len() <= 1, "{:?}", end.context.core.answering);
        }
    }

    /// The last message of a conversation has come, and is answered by nobody yet.
    fn owing() -> (End<SoftContext<Quiet>>, End<SoftContext<Quiet>>) {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(here, there);
        teach(&mut here, &mut there, 10);
        there.receive();
        here.send();
        there.poll_for(2);
        (here, there)
    }

    #[test]
    fn what_rides_with_the_next_request_never_was_a_packet() {
        let (mut here, mut there) = owing();
        assert!(there.context.core.fresh.is_some() && there.context.core.answering.is_empty());
        here.receive();
        there.send();
        assert!(there.context.core.fresh.is_none() && there.context.core.answering.is_empty());
        let begun = here.context.core.begun_packets;
        assert_eq!(complete(&mut here), 2, "what was sent, and what came");
        assert_eq!(here.context.core.begun_packets, begun + 1);
    }

    #[test]
    fn what_does_not_ride_at_once_waits_as_a_packet() {
        let (mut here, mut there) = owing();
        assert_eq!(there.poll(), []);
        assert!(there.context.core.fresh.is_none() && there.context.core.answering.len() == 1);
        here.receive();
        there.send();
        assert!(there.context.core.answering.is_empty());
        assert_eq!(complete(&mut here), 2);
    }

    #[test]
    fn a_request_through_another_queue_pair_takes_it_along_as_a_packet() {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(here, there);
        teach(&mut here, &mut there, 10);
        let others = connect_others(&mut here, &mut there);
        there.receive();
        here.send();
        there.poll_for(2);
        let begun = here.context.core.begun_packets;
        here.receive_at(others.0);
        there.send_at(others.1);
        assert_eq!(complete(&mut here), 2);
        assert_eq!(here.context.core.begun_packets, begun + 2);
    }

    #[test]
    fn nothing_is_owed_to_a_peer_that_is_lost() {
        let (here, mut there) = owing();
        let peer = there.context.core.fresh.expect("it is owed").peer;
        drop(here);
        there.context.core.lost(peer);
        assert!(there.context.core.fresh.is_none());
        there.context.send_held();
        assert!(there.context.core.answering.is_empty());
    }

    /// Sends a message, which is taken there at once, and tells how many are complete here then.
    fn complete_after(here: &mut End<impl Context>, there: &mut End<impl Context>, hurry: bool) -> usize {
        there.receive();
        here.send_with_hurry(hurry);
        there.poll_for(2);
        complete(here)
    }

    fn complete(end: &mut End<impl Context>) -> usize {
        std::iter::from_fn(|| Some(end.poll().len()).filter(|count| *count > 0)).sum()
    }

    #[test]
    fn one_acknowledgement_is_for_all_that_nobody_waits_for() {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(here, there);
        assert_eq!(complete_after(&mut here, &mut there, true), 1, "somebody waits, and nothing ever followed");
        for round in 0..3 {
            for sent in 1..HELD_MAX {
                assert_eq!(complete_after(&mut here, &mut there, false), 0, "round {round}, {sent}");
            }
            assert_eq!(complete_after(&mut here, &mut there, false), HELD_MAX as usize, "round {round}");
        }
        assert_eq!(complete_after(&mut here, &mut there, false), 0);
        assert_eq!(complete_after(&mut here, &mut there, true), 2, "one that is waited for takes the others along");
    }

    #[test]
    fn what_nobody_waits_for_is_acknowledged_in_the_end() {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(here, there);
        assert_eq!(complete_after(&mut here, &mut there, false), 0);
        let polls = (0..).take_while(|_| {
            there.poll();
            complete(&mut here) == 0
        });
        let polls = polls.count() as u32;
        assert!((POLLS_HELD..=POLLS_HELD_UNHURRIED).contains(&polls), "{polls} polls in vain");
        assert_eq!(complete_after(&mut here, &mut there, false), 0);
        there.context.send_held();
        assert_eq!(complete(&mut here), 1, "before its owner sleeps");
    }

    /// Whoever rests may never poll again.
    #[test]
    fn who_rests_owes_nobody_an_acknowledgement() {
        for hurry in [false, true] {
            let [here, there] = adapters();
            let (mut here, mut there) = connect(here, there);
            teach(&mut here, &mut there, 10);
            assert_eq!(complete_after(&mut here, &mut there, hurry), 0, "it waits for a packet to ride with");
            there.context.rest();
            assert_eq!(complete(&mut here), 1);
        }
    }

    #[test]
    fn what_rides_is_due_soon_until_it_is_sent() {
        let [here, there] = adapters();
        let (mut here, mut there) = connect(here, there);
        teach(&mut here, &mut there, 10);
        let now = here.context.link.now();
        assert_eq!(here.context.deadline(), Some(now + SOON));
        here.context.send_held();
        assert_eq!(here.context.deadline(), None, "who sleeps now is not woken for it");
    }
}
