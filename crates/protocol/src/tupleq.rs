//! A receive queue per matching tuple. Paper: tupleq §7.
//!
//! ```text
//!   sender                                        receiver
//!   a few messages of (context, source, tag) go the classic way
//!   ask (out of band) ──────────────────────────▶ a queue
//!   go on the classic way
//!            ◀────────────────────────────────── grant: its number               (or deny: ask again later)
//!   enter: from now on by the queue ────────────▶ receives of the tuple are posted to the queue
//!   send to the queue ───── the device ─────────▶
//!     found no receive: the device holds it, and
//!     announce (nobody waits for this) ─────────▶ an envelope like any other: probes and wildcards see it;
//!                                                 whoever it matches is posted to the queue, which fetches the data
//!   left ◀───────────────────────── revoke        wildcards are frequent, or the queue is wanted for another tuple
//!     ─────────────────────────────────────────▶  receives in the queue go back to the others; classic from now on
//! ```
//!
//! **Why MPI's order holds** (MPI: §3.5). Everything but the queues travels from a sender to a receiver in one order, the
//! channel's. *Messages of one tuple*: receives go to the queue only after *enter*, which comes behind the last classic
//! message, and only those for which no message has come yet; so a message in the queue overtakes none outside it. In the
//! queue the device keeps the order. After *left* the sender uses the channel again, and what was announced before stands
//! before what comes; receives that the number in *left* says are to be filled stay, the others go back. *Messages of
//! different tuples* meet only where a wildcard or a probe could
//! take either. A message that the device matched at once was matched by a receive of exactly its tuple, posted before any
//! wildcard that could take it (below). One that it could not match is announced in the channel at the place that is its
//! own in the sender's order. *Receives*: one goes to the queue only if no receive posted before it, and not there, could
//! take a message of the tuple, and if no message of it stands unmatched; so those in the queue are the earliest that can
//! match, in order. An announced message is fetched by posting the receive it matched to the queue: the message is the
//! first that the device holds there, since all before it were matched before. *Numbers*: the n-th message sent to the
//! queue meets the n-th receive posted to it; so an announcement with a number below the count of receives posted is of a
//! message that was fetched before the announcement was read, and is dropped.
//!
//! **Beside the paper.** The paper shuts down all connections to a receiver that posts a wildcard, lets the messages come
//! the classic way, and resumes after the match. Here a message that the device must hold makes itself known, which costs
//! one record that nobody waits for, and nothing is shut down: the wildcard is matched with it and takes the data from the
//! queue. What remains of the fallback is its second half: a tuple whose messages are often matched that way gains nothing
//! and goes back to the classic protocols for good ([`ReceiveTuples::fell_back`]).
//!
//! **Cancelling** a send asks its receiver, who alone knows whether it is matched: an announced message that is the first
//! of its tuple to be unmatched is fetched and thrown away. One behind others stays (the cancellation comes too late).
//!
//! Everything here is bookkeeping: no device, no clock, no data.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Display, Formatter};

use fabric::SrqNumber;
use lockfree::Record;
use rustc_hash::FxHashMap;

/// The record kind of all of these.
pub const KIND: u8 = 0x20;
/// Bytes behind the header of a record, at most.
pub const PAYLOAD_MAX_BYTES: usize = crate::wire::CONTROL_MAX_BYTES;

const ASK: u16 = 1;
const GRANT: u16 = 2;
const DENY: u16 = 3;
const ANNOUNCE: u16 = 4;
const REVOKE: u16 = 5;
const LEFT: u16 = 6;
const CANCEL: u16 = 7;
const KEPT: u16 = 8;
const ENTER: u16 = 9;

/// What sender and receiver of a tuple say to each other. A key is what messages of the tuple match by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TupleMessage<'a> {
    /// The sender wants a queue.
    Ask {
        /// The tuple.
        key: u64,
        /// Where the sender's queue pair for this receiver is.
        endpoint: &'a [u8],
    },
    /// It has one.
    Grant {
        /// The tuple.
        key: u64,
        /// Its queue.
        queue: SrqNumber,
        /// Where the receiver's queue pair for this sender is.
        endpoint: &'a [u8],
    },
    /// The sender uses the queue from now on.
    Enter {
        /// The tuple.
        key: u64,
    },
    /// Not now.
    Deny {
        /// The tuple.
        key: u64,
    },
    /// The device holds a message.
    Announce {
        /// The tuple.
        key: u64,
        /// The sender's request.
        send: u64,
        /// Its length.
        len_bytes: u64,
        /// How many were sent to the queue before it.
        number: u64,
    },
    /// The receiver wants the queue back.
    Revoke {
        /// The tuple.
        key: u64,
        /// The sender shall not ask again.
        for_good: bool,
    },
    /// The sender uses the queue no more.
    Left {
        /// The tuple.
        key: u64,
        /// How many it has sent there.
        sent: u64,
    },
    /// The sender cancels a message that it announced. Answered in any case: by the classic records for what was
    /// matched and what is gone, or by [`TupleMessage::Kept`].
    Cancel {
        /// The tuple.
        key: u64,
        /// The sender's request.
        send: u64,
    },
    /// It stays where it is.
    Kept {
        /// The tuple.
        key: u64,
        /// The sender's request.
        send: u64,
    },
}

impl TupleMessage<'_> {
    /// As a record; `None` if an endpoint is too long for one.
    pub fn encode(&self) -> Option<(Record, [u8; PAYLOAD_MAX_BYTES], usize)> {
        let mut payload = [0; PAYLOAD_MAX_BYTES];
        let (short, key, second, len) = match *self {
            Self::Ask { key, endpoint } => (ASK, key, 0, put(&mut payload, endpoint)?),
            Self::Grant { key, queue, endpoint } => (GRANT, key, queue.0.into(), put(&mut payload, endpoint)?),
            Self::Enter { key } => (ENTER, key, 0, 0),
            Self::Deny { key } => (DENY, key, 0, 0),
            Self::Announce { key, send, len_bytes, number } => {
                payload[..8].copy_from_slice(&len_bytes.to_ne_bytes());
                payload[8..16].copy_from_slice(&number.to_ne_bytes());
                (ANNOUNCE, key, send, 16)
            }
            Self::Revoke { key, for_good } => (REVOKE, key, for_good.into(), 0),
            Self::Left { key, sent } => (LEFT, key, sent, 0),
            Self::Cancel { key, send } => (CANCEL, key, send, 0),
            Self::Kept { key, send } => (KEPT, key, send, 0),
        };
        Some((
            Record {
                kind: KIND,
                short: short.into(),
                long: u128::from(second) << 64 | u128::from(key),
                ..Record::default()
            },
            payload,
            len,
        ))
    }
}

fn put(payload: &mut [u8; PAYLOAD_MAX_BYTES], endpoint: &[u8]) -> Option<usize> {
    payload.get_mut(..endpoint.len())?.copy_from_slice(endpoint);
    Some(endpoint.len())
}

/// Understands a record of [`KIND`], or refuses it.
pub fn parse(record: Record, payload: &[u8]) -> Option<TupleMessage<'_>> {
    let (key, second) = (record.long as u64, (record.long >> 64) as u64);
    let word = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    Some(match u16::try_from(record.short).ok()? {
        ASK => TupleMessage::Ask { key, endpoint: payload },
        GRANT => TupleMessage::Grant { key, queue: SrqNumber(u32::try_from(second).ok()?), endpoint: payload },
        ENTER => TupleMessage::Enter { key },
        DENY => TupleMessage::Deny { key },
        ANNOUNCE => TupleMessage::Announce { key, send: second, len_bytes: word(0)?, number: word(8)? },
        REVOKE => TupleMessage::Revoke { key, for_good: second != 0 },
        LEFT => TupleMessage::Left { key, sent: second },
        CANCEL => TupleMessage::Cancel { key, send: second },
        KEPT => TupleMessage::Kept { key, send: second },
        _ => return None,
    })
}

/// A tuple as both sides name it: the other process, and what the messages match by.
pub type Tuple = (u32, u64);

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// As without tuple queues.
    Classic,
    /// So, and then the sender asks for a queue.
    ClassicThenAsk,
    /// To this queue.
    Queue(SrqNumber),
}

#[derive(Clone, Copy, Debug)]
enum Sending {
    /// So many messages until the sender asks; `u32::MAX`: never.
    Classic {
        left: u32,
        next: u32,
    },
    Asked {
        next: u32,
    },
    Queue {
        queue: SrqNumber,
        sent: u64,
    },
}

/// Messages of a tuple before its sender asks for a queue.
const ASK_AFTER: u32 = 2;
/// And at most, after it was denied or revoked again and again.
const ASK_AFTER_MAX: u32 = 1 << 12;
/// Tuples that a sender remembers, at most; those without a queue are forgotten then, and may ask anew.
const TUPLES_MAX: usize = 1 << 16;
const NEVER: u32 = u32::MAX;
/// Receives that stand in the queues of one process on a device, at most: each may hold a region of the device, and
/// whoever fetches a message needs one, too.
const RECEIVES_MAX: usize = 1024;

/// The sender's tuples.
#[derive(Default)]
pub struct SendTuples {
    table: FxHashMap<Tuple, Sending>,
}

impl SendTuples {
    /// Decides about one message; what is not sent after all is not counted back.
    pub fn route(&mut self, tuple: Tuple) -> Route {
        if self.table.len() >= TUPLES_MAX {
            self.table.retain(|_, sending| !matches!(sending, Sending::Classic { .. }));
        }
        let fresh = Sending::Classic { left: ASK_AFTER, next: ASK_AFTER };
        match self.table.entry(tuple).or_insert(fresh) {
            Sending::Queue { queue, .. } => Route::Queue(*queue),
            Sending::Classic { left: NEVER, .. } | Sending::Asked { .. } => Route::Classic,
            Sending::Classic { left, .. } => {
                *left = left.saturating_sub(1);
                if *left == 0 { Route::ClassicThenAsk } else { Route::Classic }
            }
        }
    }

    /// The sender asks, or will not because there is no way to.
    pub fn asked(&mut self, tuple: Tuple, is_possible: bool) {
        if let Some(sending) = self.table.get_mut(&tuple)
            && let Sending::Classic { next, .. } = *sending
        {
            *sending = if is_possible { Sending::Asked { next } } else { Sending::Classic { left: NEVER, next } };
        }
    }

    /// The answer to a question; false if there was none.
    pub fn answered(&mut self, tuple: Tuple, queue: Option<SrqNumber>) -> bool {
        let Some(sending) = self.table.get_mut(&tuple) else { return false };
        let Sending::Asked { next } = *sending else { return false };
        let later = (next * 2).min(ASK_AFTER_MAX);
        *sending = match queue {
            Some(queue) => Sending::Queue { queue, sent: 0 },
            None => Sending::Classic { left: later, next: later },
        };
        true
    }

    /// A receiver is lost: nothing goes to its queues any more.
    pub fn forget(&mut self, peer: u32) {
        self.table.retain(|tuple, _| tuple.0 != peer);
    }

    /// Those of one receiver, for people to read.
    pub fn of(&self, peer: u32) -> impl Iterator<Item = (Tuple, impl Debug)> {
        self.table.iter().filter(move |(tuple, _)| tuple.0 == peer).map(|(tuple, sending)| (*tuple, *sending))
    }

    /// The number of the message that goes to the queue now.
    pub fn number(&mut self, tuple: Tuple) -> u64 {
        match self.table.get_mut(&tuple) {
            Some(Sending::Queue { sent, .. }) => {
                *sent += 1;
                *sent - 1
            }
            _ => 0,
        }
    }

    /// The queue is taken back: how many messages were sent there; `None` if there is no queue.
    pub fn revoked(&mut self, tuple: Tuple, for_good: bool) -> Option<u64> {
        let sending = self.table.get_mut(&tuple)?;
        let Sending::Queue { sent, .. } = *sending else { return None };
        *sending = Sending::Classic { left: if for_good { NEVER } else { ASK_AFTER_MAX }, next: ASK_AFTER_MAX };
        Some(sent)
    }
}

/// A tuple with a queue, at its receiver; `Q` names the queue.
struct Receiving<Q> {
    queue: Q,
    /// The sender uses it: no message comes by the channel any more.
    entered: bool,
    /// The sender was asked to leave it.
    revoked: bool,
    /// The sender has left it.
    left: bool,
    /// A message that was matched is still in it: whoever took from the queue would get that one.
    failed: bool,
    posted: u64,
    /// Receives in the queue, in order.
    in_queue: VecDeque<u64>,
    /// Announced and not matched.
    waiting: u32,
    /// Receives that a message came to, by whatever way they got there.
    filled: u32,
    fallbacks: u32,
}

impl<Q> Display for Receiving<Q> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let Self { entered, revoked, left, failed, posted, waiting, filled, fallbacks, .. } = self;
        write!(
            to,
            "{posted} receives posted, {filled} filled, {} there, {waiting} messages wait",
            self.in_queue.len()
        )?;
        write!(to, ", {fallbacks} fell back, entered {entered}, revoked {revoked}, left {left}, failed {failed}")
    }
}

/// The receiver's tuples.
pub struct ReceiveTuples<Q> {
    table: FxHashMap<Tuple, Receiving<Q>>,
    /// Receives in all queues.
    in_queues: usize,
    queues_max: usize,
    retreat_after: u32,
}

impl<Q: Copy> ReceiveTuples<Q> {
    /// At most `queues_max` queues; a tuple that fell back `retreat_after` times, and for more than half of the receives
    /// that were filled, retreats; 0: never.
    pub fn new(queues_max: usize, retreat_after: u32) -> Self {
        Self { table: FxHashMap::default(), in_queues: 0, queues_max, retreat_after }
    }

    /// Queues there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// True if the tuple can have a queue now: it has none, and there is room.
    pub fn may_open(&self, tuple: Tuple) -> bool {
        !self.table.contains_key(&tuple) && self.table.len() < self.queues_max
    }

    /// A tuple whose queue could serve another: nothing is in it. It is to be revoked.
    pub fn idle(&mut self) -> Option<Tuple> {
        let is_idle = |it: &Receiving<Q>| it.entered && it.in_queue.is_empty() && it.waiting == 0 && !it.revoked;
        let (tuple, receiving) =
            self.table.iter_mut().filter(|(_, receiving)| is_idle(receiving)).min_by_key(|(_, it)| it.posted)?;
        receiving.revoked = true;
        Some(*tuple)
    }

    /// The tuple has a queue from now on.
    pub fn open(&mut self, tuple: Tuple, queue: Q) {
        let receiving = Receiving {
            queue,
            entered: false,
            revoked: false,
            left: false,
            failed: false,
            posted: 0,
            in_queue: VecDeque::new(),
            waiting: 0,
            filled: 0,
            fallbacks: 0,
        };
        self.table.insert(tuple, receiving);
    }

    /// The sender uses the queue from now on.
    pub fn entered(&mut self, tuple: Tuple) {
        if let Some(it) = self.table.get_mut(&tuple) {
            it.entered = true;
        }
    }

    /// The queue for a receive of exactly this tuple that nothing has matched, if it may go there.
    pub fn queue_for_receive(&self, tuple: Tuple) -> Option<Q> {
        let has_room = self.in_queues < RECEIVES_MAX;
        let may = |it: &&Receiving<Q>| has_room && it.entered && !it.revoked && it.waiting == 0;
        self.table.get(&tuple).filter(may).map(|it| it.queue)
    }

    /// The queue that holds an announced message, if it can be fetched.
    pub fn queue(&self, tuple: Tuple) -> Option<Q> {
        self.table.get(&tuple).filter(|it| !it.failed).map(|it| it.queue)
    }

    /// A message that was matched can not be fetched, and none behind it; true if the tuple retreats now.
    pub fn failed(&mut self, tuple: Tuple) -> bool {
        let Some(it) = self.table.get_mut(&tuple) else { return false };
        it.failed = true;
        !std::mem::replace(&mut it.revoked, true)
    }

    /// Receive `receive` stands in the queue.
    pub fn posted(&mut self, tuple: Tuple, receive: u64) {
        if let Some(it) = self.table.get_mut(&tuple) {
            it.posted += 1;
            it.in_queue.push_back(receive);
            self.in_queues += 1;
        }
    }

    /// It was filled; true if its sender has left the queue, which may be over by that.
    pub fn filled(&mut self, tuple: Tuple, receive: u64) -> bool {
        let Some(it) = self.table.get_mut(&tuple) else { return false };
        if let Some(at) = it.in_queue.iter().position(|other| *other == receive) {
            it.in_queue.remove(at);
            self.in_queues -= 1;
            it.filled = it.filled.saturating_add(1);
        }
        it.left
    }

    /// It was taken back: the next message meets the receive behind it.
    pub fn withdrawn(&mut self, tuple: Tuple, receive: u64) {
        if let Some(it) = self.table.get_mut(&tuple)
            && let Some(at) = it.in_queue.iter().position(|other| *other == receive)
        {
            it.in_queue.remove(at);
            self.in_queues -= 1;
            it.posted -= 1;
        }
    }

    /// What an announcement means; `None`: there is no such queue.
    pub fn announced(&mut self, tuple: Tuple, number: u64) -> Option<Announced> {
        let it = self.table.get_mut(&tuple)?;
        if number >= it.posted {
            it.waiting += 1;
            return Some(Announced::Unmatched);
        }
        let behind = (it.posted - number) as usize;
        Some(it.in_queue.len().checked_sub(behind).map_or(Announced::Fetched, Announced::Met))
    }

    /// A sender is lost: nothing more is fetched from its queues. Those in which no receive is left, which make room for
    /// others; the rest follow as their receives end, see [`ReceiveTuples::close_if_over`].
    pub fn forget(&mut self, peer: u32) -> Vec<Q> {
        let mut over = Vec::new();
        self.table.retain(|tuple, it| {
            let stays = tuple.0 != peer || !it.in_queue.is_empty();
            if tuple.0 == peer {
                (it.revoked, it.left, it.failed, it.waiting) = (true, true, true, 0);
            }
            if !stays {
                over.push(it.queue);
            }
            stays
        });
        over
    }

    /// True if there are queues for messages of this sender.
    pub fn has(&self, peer: u32) -> bool {
        self.table.keys().any(|tuple| tuple.0 == peer)
    }

    /// Those of one sender, for people to read.
    pub fn of(&self, peer: u32) -> impl Iterator<Item = (Tuple, impl Display)> {
        self.table.iter().filter(move |(tuple, _)| tuple.0 == peer).map(|(tuple, receiving)| (*tuple, receiving))
    }

    /// Receives in the queue, in order.
    pub fn in_queue(&self, tuple: Tuple) -> Vec<u64> {
        self.table.get(&tuple).map_or_else(Vec::new, |it| it.in_queue.iter().copied().collect())
    }

    /// A message that was announced is matched.
    pub fn matched(&mut self, tuple: Tuple) {
        if let Some(it) = self.table.get_mut(&tuple) {
            it.waiting = it.waiting.saturating_sub(1);
        }
    }

    /// It was matched by a receive that could not go to the queue itself; true if the tuple retreats now.
    pub fn fell_back(&mut self, tuple: Tuple) -> bool {
        let Some(it) = self.table.get_mut(&tuple) else { return false };
        it.fallbacks = it.fallbacks.saturating_add(1);
        let retreats =
            self.retreat_after > 0 && !it.revoked && it.fallbacks >= self.retreat_after && it.fallbacks > it.filled / 2;
        it.revoked |= retreats;
        retreats
    }

    /// The sender has left the queue, to which it has sent so many: these receives are in it in vain. The others get what
    /// is on its way.
    pub fn sender_left(&mut self, tuple: Tuple, sent: u64) -> Vec<u64> {
        let Some(it) = self.table.get_mut(&tuple) else { return Vec::new() };
        (it.revoked, it.left) = (true, true);
        let excess = it.posted.saturating_sub(sent).min(it.in_queue.len() as u64);
        it.posted -= excess;
        self.in_queues -= excess as usize;
        it.in_queue.split_off(it.in_queue.len() - excess as usize).into()
    }

    /// The queue, if nothing is left in it and nobody uses it: the tuple has none any more.
    pub fn close_if_over(&mut self, tuple: Tuple) -> Option<Q> {
        self.table.get(&tuple).filter(|it| it.left && it.waiting == 0 && it.in_queue.is_empty())?;
        self.table.remove(&tuple).map(|it| it.queue)
    }
}

/// What an announcement means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// The message waits for its match.
    Unmatched,
    /// A receive has fetched it meanwhile.
    Fetched,
    /// It comes to the receive at this place of those in the queue, or is on its way there, unless that is too short.
    Met(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUPLE: Tuple = (3, 77);

    #[test]
    fn messages_come_back_as_they_went_and_others_are_refused() {
        for message in [
            TupleMessage::Ask { key: 1, endpoint: b"where" },
            TupleMessage::Grant { key: u64::MAX, queue: SrqNumber(9), endpoint: b"" },
            TupleMessage::Enter { key: 8 },
            TupleMessage::Deny { key: 2 },
            TupleMessage::Announce { key: 3, send: u64::MAX, len_bytes: 1 << 40, number: 7 },
            TupleMessage::Revoke { key: 4, for_good: true },
            TupleMessage::Left { key: 5, sent: 6 },
            TupleMessage::Cancel { key: 6, send: 8 },
            TupleMessage::Kept { key: 6, send: u64::MAX },
        ] {
            let (record, payload, len) = message.encode().expect("short enough");
            assert_eq!(parse(record, &payload[..len]), Some(message));
        }
        assert!(TupleMessage::Ask { key: 1, endpoint: &[0; PAYLOAD_MAX_BYTES + 1] }.encode().is_none());
        let strange = |short, long| Record { kind: KIND, short, long, ..Record::default() };
        assert_eq!(parse(strange(10, 0), &[]), None);
        assert_eq!(parse(strange(ANNOUNCE.into(), 0), &[0; 15]), None);
        assert_eq!(parse(strange(GRANT.into(), u128::MAX), &[]), None);
    }

    #[test]
    fn a_sender_asks_after_a_few_messages_and_less_often_each_time_it_is_denied() {
        let mut tuples = SendTuples::default();
        let mut asked_at = Vec::new();
        for message in 1..200 {
            match tuples.route(TUPLE) {
                Route::ClassicThenAsk => {
                    asked_at.push(message);
                    tuples.asked(TUPLE, true);
                    assert!(tuples.answered(TUPLE, None) && !tuples.answered(TUPLE, None));
                }
                route => assert_eq!(route, Route::Classic),
            }
        }
        assert_eq!(asked_at, [2, 6, 14, 30, 62, 126]);
    }

    #[test]
    fn a_granted_queue_is_used_until_it_is_revoked() {
        let mut tuples = SendTuples::default();
        assert_eq!(tuples.revoked(TUPLE, true), None);
        while tuples.route(TUPLE) != Route::ClassicThenAsk {}
        tuples.asked(TUPLE, true);
        assert!(tuples.answered(TUPLE, Some(SrqNumber(4))));
        for number in 0..3 {
            assert_eq!((tuples.route(TUPLE), tuples.number(TUPLE)), (Route::Queue(SrqNumber(4)), number));
        }
        assert_eq!(tuples.revoked(TUPLE, true), Some(3));
        assert!((0..10_000).all(|_| tuples.route(TUPLE) == Route::Classic), "for good");
    }

    #[test]
    fn tuples_without_a_queue_are_forgotten_at_the_limit_whatever_became_of_them() {
        let mut tuples = SendTuples::default();
        let most = TUPLES_MAX as u64;
        for key in 0..most {
            let tuple = (3, key);
            while tuples.route(tuple) != Route::ClassicThenAsk {}
            tuples.asked(tuple, key % 2 == 0);
            if key % 2 == 0 {
                tuples.answered(tuple, Some(SrqNumber(4)));
                tuples.revoked(tuple, key % 4 == 0);
            }
        }
        tuples.route((3, most));
        assert!(tuples.table.len() <= 2, "{}", tuples.table.len());
    }

    #[test]
    fn receives_in_queues_have_a_limit() {
        let mut tuples = ReceiveTuples::new(2, 0);
        let (one, other) = (TUPLE, (3, 78));
        tuples.open(one, 'a');
        tuples.open(other, 'b');
        assert_eq!(tuples.queue_for_receive(one), None, "its sender may still come by the channel");
        tuples.entered(one);
        tuples.entered(other);
        let most = RECEIVES_MAX as u64;
        for receive in 0..most {
            assert!(tuples.queue_for_receive(other).is_some());
            tuples.posted(if receive % 2 == 0 { one } else { other }, receive);
        }
        assert_eq!((tuples.queue_for_receive(one), tuples.queue(one)), (None, Some('a')), "what came is fetched");
        tuples.filled(one, 0);
        tuples.filled(one, 0);
        assert_eq!(tuples.queue_for_receive(one), Some('a'));
        tuples.posted(one, most);
        assert_eq!(tuples.queue_for_receive(one), None);
        tuples.withdrawn(one, most);
        tuples.withdrawn(one, most);
        assert_eq!(tuples.sender_left(other, 0).len(), RECEIVES_MAX / 2);
        assert_eq!(tuples.in_queues, RECEIVES_MAX / 2 - 1);
    }

    #[test]
    fn receives_whose_messages_are_on_their_way_stay_when_the_sender_leaves() {
        let mut tuples = ReceiveTuples::new(2, 0);
        tuples.open(TUPLE, 'a');
        (0..5).for_each(|receive| tuples.posted(TUPLE, receive));
        tuples.filled(TUPLE, 0);
        assert_eq!(tuples.sender_left(TUPLE, 3), [3, 4]);
        assert_eq!((tuples.in_queue(TUPLE), tuples.close_if_over(TUPLE)), (vec![1, 2], None));
        tuples.filled(TUPLE, 1);
        tuples.filled(TUPLE, 2);
        assert_eq!((tuples.close_if_over(TUPLE), tuples.in_queues), (Some('a'), 0));
    }

    #[test]
    fn nothing_is_fetched_from_a_queue_that_failed() {
        let mut tuples = ReceiveTuples::new(2, 0);
        tuples.open(TUPLE, 'a');
        assert!(tuples.failed(TUPLE) && !tuples.failed(TUPLE), "its sender is asked to leave once");
        assert_eq!((tuples.queue_for_receive(TUPLE), tuples.queue(TUPLE)), (None, None));
        tuples.sender_left(TUPLE, 0);
        assert_eq!(tuples.close_if_over(TUPLE), Some('a'));
    }

    #[test]
    fn queues_of_a_lost_sender_make_room_for_others_once_they_are_empty() {
        let mut tuples = ReceiveTuples::new(3, 0);
        let (idle, busy, other) = ((3, 1), (3, 2), (4, 1));
        for (tuple, queue) in [(idle, 'a'), (busy, 'b'), (other, 'c')] {
            tuples.open(tuple, queue);
            tuples.entered(tuple);
        }
        tuples.announced(idle, 0);
        tuples.posted(busy, 7);
        assert_eq!(tuples.forget(3), ['a'], "what is announced there is not fetched any more");
        assert_eq!((tuples.queue(busy), tuples.queue_for_receive(busy)), (None, None));
        assert!(tuples.has(3) && tuples.may_open((5, 1)), "the receive is being filled");
        tuples.filled(busy, 7);
        assert_eq!(tuples.close_if_over(busy), Some('b'));
        assert_eq!((tuples.has(3), tuples.has(4), tuples.len(), tuples.in_queues), (false, true, 1, 0));
        let mut sending = SendTuples::default();
        while sending.route(TUPLE) != Route::ClassicThenAsk {}
        sending.asked(TUPLE, true);
        sending.forget(TUPLE.0);
        assert!(!sending.answered(TUPLE, Some(SrqNumber(1))), "nobody asked");
    }

    #[test]
    fn announcements_of_what_was_fetched_are_told_from_those_that_wait() {
        let mut tuples = ReceiveTuples::new(4, 0);
        tuples.open(TUPLE, 'q');
        assert_eq!(tuples.announced((3, 78), 0), None);
        tuples.entered(TUPLE);
        tuples.posted(TUPLE, 100);
        tuples.filled(TUPLE, 100);
        assert_eq!(tuples.announced(TUPLE, 0), Some(Announced::Fetched));
        assert_eq!(tuples.announced(TUPLE, 1), Some(Announced::Unmatched));
        assert_eq!(tuples.queue_for_receive(TUPLE), None, "one waits");
        tuples.matched(TUPLE);
        tuples.posted(TUPLE, 101);
        tuples.filled(TUPLE, 101);
        tuples.posted(TUPLE, 102);
        tuples.posted(TUPLE, 103);
        assert_eq!(tuples.announced(TUPLE, 2), Some(Announced::Met(0)));
        assert_eq!(tuples.announced(TUPLE, 3), Some(Announced::Met(1)));
        tuples.withdrawn(TUPLE, 102);
        assert_eq!(tuples.announced(TUPLE, 3), Some(Announced::Unmatched));
    }

    #[test]
    fn queues_have_a_limit_and_idle_ones_are_found() {
        let mut tuples = ReceiveTuples::new(2, 0);
        for (key, queue) in [(1, 'a'), (2, 'b')] {
            assert!(tuples.may_open((0, key)));
            tuples.open((0, key), queue);
        }
        assert_eq!(tuples.idle(), None, "their senders have not heard of them");
        [1, 2].into_iter().for_each(|key| tuples.entered((0, key)));
        assert!(!tuples.may_open((0, 3)) && !tuples.may_open((0, 1)));
        tuples.posted((0, 1), 9);
        assert_eq!(tuples.idle(), Some((0, 2)));
        assert_eq!(tuples.idle(), None, "asked for already, and the other is in use");
        assert_eq!(tuples.close_if_over((0, 2)), None, "its sender has not left");
        assert!(tuples.sender_left((0, 2), 0).is_empty());
        assert_eq!(tuples.close_if_over((0, 2)), Some('b'));
        assert_eq!(tuples.sender_left((0, 1), 0), [9]);
        assert_eq!((tuples.close_if_over((0, 1)), tuples.len()), (Some('a'), 0));
    }

    #[test]
    fn a_tuple_that_falls_back_often_retreats_once() {
        let mut tuples = ReceiveTuples::new(2, 4);
        tuples.open(TUPLE, 'a');
        let retreats: Vec<_> = (0..6).map(|_| tuples.fell_back(TUPLE)).collect();
        assert_eq!(retreats, [false, false, false, true, false, false]);
        assert_eq!(tuples.queue_for_receive(TUPLE), None);
    }
}
