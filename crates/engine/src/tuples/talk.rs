//! What peers say about tuples, and cancellation, which is said to them.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use base::SlabKey;
use datatype::RecvBuf;
use fabric::SrqNumber;
use lockfree::Record;
use protocol::tupleq::{self, Announced, TupleMessage};
use protocol::wire::Message;

use super::{MESSAGE_MAX_BYTES, Side, at_work};
use crate::core::Core;
use crate::deliver::{Unexpected, split};
use crate::matching::Pattern;
use crate::request::{Completion, Envelope, Fault, Outcome, PeerId, Request, Source, State, TagPattern};

impl Core {
    /// Takes a receive out of its queue, cancelled; nothing if a message has taken it.
    pub(crate) fn cancel_in_queue(&mut self, id: SlabKey) {
        let Some(Request { state: State::InQueue(in_queue), .. }) = self.requests.get_mut(id) else { return };
        let peer = in_queue.tuple.0;
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else { return };
        if !in_queue.is_met && tuples.withdraw(device, id, in_queue) {
            let envelope = Envelope { peer: self.me, tag: 0, len_bytes: 0 };
            self.complete(id, Completion { envelope, outcome: Outcome::Cancelled });
        }
    }

    /// Cancels a send that is held back or on the device; false if it is neither.
    pub(crate) fn cancel_tuple_send(&mut self, id: SlabKey) -> bool {
        self.cancel_held(id) || self.cancel_flight(id)
    }

    fn cancel_flight(&mut self, id: SlabKey) -> bool {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return false };
        let (to, key) = (send.envelope.peer, send.key);
        let Some(tuples) = self.tuples.of(self.port.as_deref(), to).filter(|tuples| tuples.is_in_flight(id)) else {
            return false;
        };
        // Who was asked may have answered already, and says nothing more.
        if let Entry::Vacant(asked) = tuples.cancelling.entry(id) {
            asked.insert(None);
            self.say(to, TupleMessage::Cancel { key, send: id.to_bits() });
        }
        true
    }

    fn arrive_cancel(&mut self, peer: PeerId, key: u64, send: u64) {
        self.poll_tuples_of(peer);
        let (context, tag) = split(key);
        let pattern = Pattern::new(context, Source::Peer(peer), TagPattern::Exact(tag));
        if self.unexpected.peek(pattern).is_some_and(|message| message.is_announced_by(send)) {
            if let Some(message) = self.unexpected.take(pattern) {
                self.fetch_in_vain(message.envelope, key);
            }
            self.send_control(peer, Message::Withdrawn { send });
        } else if self.unexpected.any(context, peer, tag, |message| message.is_announced_by(send)) {
            self.say(peer, TupleMessage::Kept { key, send });
        } else {
            self.send_control(peer, Message::Finished { send });
        }
    }

    fn arrive_kept(&mut self, peer: PeerId, send: u64) -> bool {
        let id = SlabKey::from_bits(send);
        let Some(tuples) = self.tuples_of(peer) else { return false };
        if tuples.cancelling.remove(&id).is_none() {
            return false;
        }
        let is_over = !tuples.is_in_flight(id);
        if let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id)
            && is_over
            && send.envelope.peer == peer
        {
            let envelope = send.envelope;
            self.finish_send(id, Completion { envelope, outcome: Outcome::Done });
        }
        true
    }

    /// The receiver of a send that is being cancelled says how it ends; false if the device still has it, and it ends so
    /// when that is over.
    pub(crate) fn ends_now(&mut self, id: SlabKey, outcome: &Outcome) -> bool {
        let mut all = self.tuples.each_mut();
        match all.find(|tuples| tuples.cancelling.contains_key(&id) && tuples.is_in_flight(id)) {
            Some(tuples) => {
                tuples.cancelling.insert(id, Some(outcome.clone()));
                false
            }
            None => true,
        }
    }

    fn cancel_held(&mut self, id: SlabKey) -> bool {
        let Some(Request { state: State::Outgoing(send), .. }) = self.requests.get(id) else { return false };
        let envelope = send.envelope;
        let tuples = self.tuples_of(envelope.peer);
        let Some(way) = tuples.and_then(|tuples| tuples.ways.get_mut(&envelope.peer)) else { return false };
        let Some(at) = way.held.iter().position(|held| *held == id) else { return false };
        way.held.remove(at);
        self.finish_send(id, Completion { envelope, outcome: Outcome::Cancelled });
        true
    }

    /// Ends the receives that stand in queues for messages of a peer that is lost. Its sends end with the others.
    pub(crate) fn end_tuples_of(&mut self, peer: PeerId, fault: &Fault) {
        let Some(tuples) = self.tuples_of(peer) else { return };
        if let Some(way) = tuples.ways.get_mut(&peer) {
            way.held.clear();
        }
        let in_queues = self.requests.iter().filter_map(|(id, request)| match &request.state {
            State::InQueue(in_queue) if in_queue.tuple.0 == peer => Some(id),
            _ => None,
        });
        for id in in_queues.collect::<Vec<_>>() {
            let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else {
                return;
            };
            let Some(Request { state: State::InQueue(in_queue), .. }) = self.requests.get_mut(id) else { continue };
            // What a message has taken ends with it.
            if in_queue.has_failed || tuples.withdraw(device, id, in_queue) {
                let len_bytes = in_queue.announced_bytes;
                let envelope = Envelope { peer, tag: split(in_queue.tuple.1).1, len_bytes };
                self.complete(id, Completion { envelope, outcome: Outcome::Failed(fault.clone()) });
            }
        }
        // Beside channels the device finds out by itself who is gone; and whoever is only given up may be in the middle of
        // taking a message.
        let flush = Side::of(self.port.as_deref(), peer) == Side::Far;
        if let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) {
            tuples.forget(device, peer, flush);
        }
    }

    /// Something ended that was under way in a queue of a peer: should that one be lost, the last gives its ways back.
    pub(super) fn drop_ways_if_lost(&mut self, peer: PeerId) {
        if self.has_lost(peer)
            && let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer)
        {
            tuples.drop_ways(device, peer);
        }
    }

    /// A record about tuples from `peer`; false if it makes no sense.
    pub(crate) fn arrive_about_tuples(&mut self, peer: PeerId, record: Record, payload: &[u8]) -> bool {
        if self.tuples_of(peer).is_none() {
            return false;
        }
        if self.has_lost(peer) {
            // It was under way for long: its queues are gone, and what lies in them can not be had.
            return true;
        }
        match tupleq::parse(record, payload) {
            Some(TupleMessage::Ask { key, endpoint }) => self.arrive_ask(peer, key, endpoint),
            Some(TupleMessage::Grant { key, queue, endpoint }) => {
                return self.arrive_answer(peer, key, Some((queue, endpoint)));
            }
            Some(TupleMessage::Enter { key }) => {
                if let Some(tuples) = self.tuples_of(peer) {
                    tuples.receiving.entered((peer, key));
                }
            }
            Some(TupleMessage::Deny { key }) => return self.arrive_answer(peer, key, None),
            Some(TupleMessage::Announce { key, send, len_bytes, number }) => {
                return self.arrive_announcement(peer, key, send, len_bytes, number);
            }
            Some(TupleMessage::Revoke { key, for_good }) => {
                let tuples = self.tuples_of(peer);
                if let Some(sent) = tuples.and_then(|tuples| tuples.sending.revoked((peer, key), for_good)) {
                    self.say(peer, TupleMessage::Left { key, sent });
                }
            }
            Some(TupleMessage::Left { key, sent }) => self.arrive_left(peer, key, sent),
            Some(TupleMessage::Cancel { key, send }) => self.arrive_cancel(peer, key, send),
            Some(TupleMessage::Kept { send, .. }) => return self.arrive_kept(peer, send),
            None => return false,
        }
        true
    }

    fn arrive_ask(&mut self, peer: PeerId, key: u64, endpoint: &[u8]) {
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else { return };
        let mut revoked = None;
        let mut granted = None;
        if tuples.receiving.may_open((peer, key)) {
            let here = tuples.target(device, peer, endpoint);
            granted = here.and_then(|here| Ok((tuples.open_queue(device, (peer, key))?, here))).ok();
        } else {
            revoked = tuples.receiving.idle();
        }
        if let Some((other, key)) = revoked {
            self.say(other, TupleMessage::Revoke { key, for_good: false });
        }
        let is_said = granted.is_some_and(|(queue, here)| {
            self.stats.tuple_queues += 1;
            self.say(peer, TupleMessage::Grant { key, queue, endpoint: &here })
        });
        if !is_said {
            self.say(peer, TupleMessage::Deny { key });
        }
    }

    fn arrive_answer(&mut self, peer: PeerId, key: u64, granted: Option<(SrqNumber, &[u8])>) -> bool {
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else {
            return false;
        };
        let queue = granted.and_then(|(queue, endpoint)| tuples.connect(device, peer, endpoint).ok().map(|()| queue));
        if !tuples.sending.answered((peer, key), queue) {
            return false;
        }
        match (granted, queue) {
            (Some(_), Some(_)) => _ = self.say(peer, TupleMessage::Enter { key }),
            (Some(_), None) => _ = self.say(peer, TupleMessage::Left { key, sent: 0 }),
            (None, _) => {}
        }
        true
    }

    fn arrive_announcement(&mut self, peer: PeerId, key: u64, send: u64, len_bytes: u64, number: u64) -> bool {
        // No sender of ours puts so long a one into a queue.
        if len_bytes > MESSAGE_MAX_BYTES {
            return false;
        }
        // What was fetched before this was read is known then.
        self.poll_tuples_of(peer);
        let (context, tag) = split(key);
        let envelope = Envelope { peer, tag, len_bytes };
        let Some(tuples) = self.tuples_of(peer) else { return false };
        match tuples.receiving.announced((peer, key), number) {
            None => return false,
            Some(Announced::Fetched) => self.stats.tuple_hits += 1,
            Some(Announced::Met(place)) => {
                self.stats.tuple_hits += 1;
                let in_queue = self.tuples_of(peer).map(|tuples| tuples.receiving.in_queue((peer, key)));
                if let Some(receive) = in_queue.and_then(|in_queue| in_queue.get(place).copied()) {
                    self.make_room(peer, key, len_bytes, place);
                    self.meets(SlabKey::from_bits(receive));
                }
            }
            Some(Announced::Unmatched) => match self.posted.arrive(context, peer, tag) {
                Some(receive) => {
                    self.stats.tuple_fallbacks += 1;
                    self.count_for(peer, |traffic| traffic.tuple_fallbacks += 1);
                    let retreats = self.tuples_of(peer).is_some_and(|tuples| tuples.receiving.fell_back((peer, key)));
                    if let Some(buf) = self.take_posted_buf(receive) {
                        self.fetch_announced(receive, buf, envelope, key);
                    }
                    if retreats {
                        self.say(peer, TupleMessage::Revoke { key, for_good: true });
                    }
                }
                None => self.store(context, Unexpected::announced(envelope, send, key)),
            },
        }
        true
    }

    /// The message for this receive is known, though it may not be there yet.
    fn meets(&mut self, receive: SlabKey) {
        if let Some(Request { state: State::InQueue(in_queue), .. }) = self.requests.get_mut(receive) {
            in_queue.is_met = true;
        }
    }

    /// A message comes to the receive at this place of its queue. If that is too short, it and those behind it are posted
    /// anew, the first with more room.
    fn make_room(&mut self, peer: PeerId, key: u64, len_bytes: u64, place: usize) {
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else { return };
        let tuple = (peer, key);
        let Some(queue) = tuples.receiving.queue(tuple) else { return };
        let behind = tuples.receiving.in_queue(tuple).split_off(place);
        let first = behind.first().and_then(|bits| self.requests.get(SlabKey::from_bits(*bits)));
        if !matches!(first, Some(Request { state: State::InQueue(it), .. }) if it.room_bytes < len_bytes) {
            return;
        }
        let mut taken = VecDeque::new();
        // The last first: none of them is next for any message meanwhile.
        for bits in behind.into_iter().rev() {
            let id = SlabKey::from_bits(bits);
            let Some(Request { state: State::InQueue(in_queue), .. }) = self.requests.get_mut(id) else { continue };
            if tuples.withdraw(device, id, in_queue) {
                taken.push_front((id, std::mem::replace(&mut in_queue.buf, RecvBuf::empty())));
            }
        }
        let mut needed = Some(len_bytes);
        for (id, buf) in taken {
            let len = needed.take().unwrap_or(0).max(buf.len_bytes());
            let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else {
                return;
            };
            match tuples.post(device, tuple, queue, id, buf, len) {
                Ok(in_queue) => self.set_state(id, State::InQueue(Box::new(in_queue))),
                Err(_) => {
                    let envelope = Envelope { peer, tag: split(key).1, len_bytes: 0 };
                    let outcome = Outcome::Failed(Fault::new("the queue of its tuple took no receive"));
                    self.complete(id, Completion { envelope, outcome });
                }
            }
        }
        self.poll_tuples_of(peer);
    }

    /// The sender has put `sent` messages into the queue, and comes by the channel from now on.
    fn arrive_left(&mut self, peer: PeerId, key: u64, sent: u64) {
        self.poll_tuples_of(peer);
        let (context, tag) = split(key);
        let Some((tuples, device)) = at_work(&mut self.tuples, &mut self.port, peer) else { return };
        let pattern = Pattern::new(context, Source::Peer(peer), TagPattern::Exact(tag));
        // They were posted before all others that its messages could match: back to the front, the last one first.
        for bits in tuples.receiving.sender_left((peer, key), sent).into_iter().rev() {
            let id = SlabKey::from_bits(bits);
            let Some(Request { state: State::InQueue(in_queue), .. }) = self.requests.get_mut(id) else { continue };
            if tuples.withdraw(device, id, in_queue) {
                let buf = std::mem::replace(&mut in_queue.buf, RecvBuf::empty());
                let links = self.posted.post_first(pattern, id);
                if let Some(request) = self.requests.get_mut(id) {
                    request.state = State::Posted { buf, links };
                }
            }
        }
        tuples.close_if_over(device, (peer, key));
    }
}
