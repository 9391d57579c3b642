//! The channel over verbs: records as messages of a reliable connection, held back by credits.
//!
//! Paper: mpich2-ib §2.3.2, §2.3.3. Each process has one pool of registered buffers, posted to one shared receive queue.
//! A sender may fill as many of them as it has *credits* for, so a send never finds the queue empty:
//!
//! ```text
//!   sender                                    receiver
//!   credits = 4    ── record, starved? ──▶    buffer emptied and posted again: owes 1
//!   credits + n    ◀── any record, n ─────    owes nothing           piggybacked
//!   credits + n    ◀── credits alone, n ──    owes half of them      nothing to send that way
//! ```
//! The paper's scheme is static and asks for a dynamic one: a connection starts with few credits; a sender that had to
//! wait for some says so, and the receiver doubles them while its pool allows it ([`Credits::grant`]), once all it granted
//! before have been used. A record of credits alone costs no credit, for two processes without any could not speak. At most
//! three such records are on their way to a process that does not look: two return half of what was granted each, then no
//! more can come, and one brings what was granted on top. So each connection has [`RESERVED`] buffers beyond its credits.
//!
//! Credits that a sender does not need are taken back, since each is a buffer: at the end of a period in which less than
//! a quarter of them was used the receiver asks for the rest ([`Credits::surplus`]), and the sender gives credits back by
//! *using* them, for messages without a record whose buffers are not posted again. So no buffer has to be taken out of
//! the queue of a device, which cannot be done. Both kinds of message cost a credit.
//!
//! ```text
//!   header   kind:1 flags:1 credits:2 short:4 long:16                            24 bytes, native byte order
//!            without a record (kind 0) short is how many credits are asked for
//!   hello    magic "FH" version:1 flags:1 from:4 to:4 job:8 credits:4 endpoint   little endian
//! ```
//! Endpoints of the connections themselves travel in *hellos*, datagrams that may be lost and are repeated. Each side says
//! hello until it knows that the other is connected; only then records leave. Hellos are also how one side tells the other
//! that the connection has failed, of which that one may see nothing: *I have yours* means then that it failed there, too.

use fabric::{Endpoint, FabricError};
use lockfree::Record;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 24;
/// Buffers of a connection beyond its credits.
pub const RESERVED: u32 = 3;
/// Credits of one connection, at most.
pub const CREDITS_MAX: u32 = 256;
/// Bytes of the longest hello.
pub const HELLO_MAX_BYTES: usize = HELLO_HEAD_BYTES + 8 + Endpoint::ADDRESS_MAX_BYTES;

/// The kind of a record that carries nothing but credits and flags; no record of [`crate::wire`] has it.
const ALONE: u8 = 0;
const STARVED: u8 = 1;
const HOLDS_BACK: u8 = 2;
const LEAVES: u8 = 4;
const ANNOUNCES: u8 = 8;
const GIVES_BACK: u8 = 16;

const HELLO_MAGIC: [u8; 2] = *b"FH";
const HELLO_VERSION: u8 = 2;
const HELLO_HEAD_BYTES: usize = 24;
const HELLO_HAS_YOURS: u8 = 1;
const HELLO_FAILED: u8 = 2;

/// What stands before the payload of each message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The record; `None`: credits and flags alone.
    pub record: Option<Record>,
    /// Buffers that are free again for the one who gets this.
    pub credits: u16,
    /// The sender had to wait for credits since it said this last.
    pub starved: bool,
    /// The sender's store of unexpected messages is full: it asks for no eager data now.
    pub holds_back: bool,
    /// The sender ends; it asks for nothing more.
    pub leaves: bool,
    /// Something lies in the channel that the sender writes, which whoever gets this does not poll. Without a record this
    /// costs a credit, as one does.
    pub announces: bool,
    /// Without a record: so many credits are asked for, if not 0. This costs a credit as well.
    pub asks_back: u32,
    /// Without a record: the credit that this costs is given back; its buffer is not to be posted again.
    pub gives_back: bool,
}

impl Header {
    /// The bytes to send.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let record = self.record.unwrap_or(Record { short: self.asks_back, ..Record::default() });
        bytes[0] = self.record.map_or(ALONE, |record| record.kind);
        bytes[1] = if self.starved { STARVED } else { 0 }
            | if self.holds_back { HOLDS_BACK } else { 0 }
            | if self.leaves { LEAVES } else { 0 }
            | if self.announces { ANNOUNCES } else { 0 }
            | if self.gives_back { GIVES_BACK } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_ne_bytes());
        bytes[4..8].copy_from_slice(&record.short.to_ne_bytes());
        bytes[8..].copy_from_slice(&record.long.to_ne_bytes());
        bytes
    }

    /// Understands a message: header and payload; `None` if it is too short for one.
    #[inline]
    pub fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, payload) = message.split_first_chunk::<HEADER_BYTES>()?;
        let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        let short = u32::from_ne_bytes(head[4..8].try_into().expect("four of them"));
        let long = u128::from_ne_bytes(head[8..].try_into().expect("sixteen of them"));
        let record = (head[0] != ALONE).then_some(Record { kind: head[0], short, long, ..Record::default() });
        let flag = |which: u8| head[1] & which != 0;
        let header = Self {
            record,
            credits: half(2),
            starved: flag(STARVED),
            holds_back: flag(HOLDS_BACK),
            leaves: flag(LEAVES),
            announces: flag(ANNOUNCES),
            asks_back: if record.is_none() { short } else { 0 },
            gives_back: record.is_none() && flag(GIVES_BACK),
        };
        Some((header, payload))
    }
}

/// The credits of one connection, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credits {
    /// Records this side may still send.
    available: u32,
    /// What it began with, and never gives back.
    kept: u32,
    /// A record waited for a credit, and the peer has not been told.
    starved: bool,
    /// Buffers posted for the peer, beyond [`RESERVED`].
    granted: u32,
    /// Of those, free again and not told of.
    owed: u32,
    /// Records taken since more were granted.
    since_grant: u32,
    /// Records taken in this period.
    taken: u32,
    /// Credits were asked for, and neither a record nor one of them has come since.
    has_asked: bool,
    /// Requests for credits that were taken and whose buffers are not posted again.
    asks: u16,
}

impl Credits {
    /// A connection for whose peer `granted` buffers are posted, and which has none itself yet.
    pub fn new(granted: u32) -> Self {
        Self {
            available: 0,
            kept: 0,
            starved: false,
            granted,
            owed: 0,
            since_grant: 0,
            taken: 0,
            has_asked: false,
            asks: 0,
        }
    }

    /// The peer has posted `count` buffers for us to begin with.
    pub fn begin(&mut self, count: u32) {
        self.kept = count.min(CREDITS_MAX);
        self.returned(count);
    }

    /// What this side may still send.
    pub fn available(&self) -> u32 {
        self.available
    }

    /// Buffers posted for the peer, beyond [`RESERVED`].
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Of the buffers posted for the peer, those that are free again and not told of.
    pub fn owed(&self) -> u32 {
        self.owed
    }

    /// Takes a credit for a record; false, and remembered, if there is none.
    #[inline]
    pub fn spend(&mut self) -> bool {
        let may = self.may_spend();
        self.available -= u32::from(may);
        may
    }

    /// True if there is a credit; that there is none is remembered.
    #[inline]
    pub fn may_spend(&mut self) -> bool {
        self.starved |= self.available == 0;
        self.available > 0
    }

    /// Takes back a credit that was not used.
    pub fn unspend(&mut self) {
        self.available += 1;
    }

    /// The peer has posted `count` buffers for us. More than it may ever grant is not believed.
    #[inline]
    pub fn returned(&mut self, count: u32) {
        self.available = (self.available + count).min(CREDITS_MAX);
    }

    /// The buffer of a record that cost a credit is posted again.
    #[inline]
    pub fn freed(&mut self) {
        self.owed = (self.owed + 1).min(self.granted);
        self.since_grant = self.since_grant.saturating_add(1);
        if self.asks == 0 {
            self.taken = self.taken.saturating_add(1);
            self.has_asked = false;
        } else {
            // Two who ask each other would go on for ever if that were use.
            self.asks -= 1;
        }
    }

    /// The peer asks for credits; [`Credits::freed`] will be told of the buffer as of any.
    pub fn asked(&mut self) {
        self.asks += 1;
    }

    /// What goes into the next header: credits to return, and whether this side starved.
    #[inline]
    pub fn take_news(&mut self) -> (u16, bool) {
        let owed = std::mem::take(&mut self.owed);
        (owed as u16, std::mem::take(&mut self.starved))
    }

    /// What [`Credits::take_news`] gave did not leave after all.
    pub fn keep_news(&mut self, (credits, starved): (u16, bool)) {
        self.owed += u32::from(credits);
        self.starved |= starved;
    }

    /// True if the peer must be told even though there is nothing else to tell it.
    #[inline]
    pub fn must_tell(&self) -> bool {
        self.owed > 0 && 2 * self.owed >= self.granted
    }

    /// How many more buffers a peer that starves should get: as many again, within [`CREDITS_MAX`]; none while it has not
    /// used what it got last.
    pub fn growth(&self) -> u32 {
        if self.since_grant < self.granted { 0 } else { self.granted.min(CREDITS_MAX - self.granted) }
    }

    /// `count` more buffers are posted for the peer.
    pub fn grant(&mut self, count: u32) {
        self.granted += count;
        self.owed += count;
        self.since_grant = 0;
    }

    /// A period is over: how many of the credits granted to the peer it does not need, judged by what it sent. It keeps
    /// `least`, and twice what it used; less than half of what it has is not worth a message. Whoever did not answer the
    /// last time is not asked again.
    pub fn surplus(&mut self, least: u32) -> u32 {
        let taken = std::mem::take(&mut self.taken);
        let surplus = self.granted.saturating_sub(taken.saturating_mul(2).max(least));
        if self.has_asked || 2 * surplus < self.granted { 0 } else { surplus }
    }

    /// The peer has been asked for credits.
    pub fn note_asked(&mut self) {
        self.has_asked = true;
    }

    /// The peer asks for `count` credits back: how many it gets, which are not to be used otherwise. What this side began
    /// with stays, for the peer may have asked again before it had the answer.
    pub fn set_aside(&mut self, count: u32) -> u32 {
        let count = count.min(self.available.saturating_sub(self.kept));
        self.available -= count;
        count
    }

    /// The peer gives a credit back: whether it must be told of those that it is owed, which may be all that it has now,
    /// and nothing else may come that is answered. `None` if it had none to give.
    pub fn given_back(&mut self) -> Option<bool> {
        self.has_asked = false;
        self.granted = self.granted.checked_sub(1).filter(|left| *left >= self.owed)?;
        Some(self.must_tell())
    }
}

/// How one side of a connection makes itself known to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Who says it.
    pub from: u32,
    /// To whom.
    pub to: u32,
    /// Which job both belong to.
    pub job: u64,
    /// It has the other's hello and is connected.
    pub has_yours: bool,
    /// Its end has failed, for good.
    pub has_failed: bool,
    /// Buffers it has posted for the other.
    pub credits: u32,
    /// Its end of the connection.
    pub endpoint: Endpoint,
}

impl Hello {
    /// The bytes to send; at most [`HELLO_MAX_BYTES`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_MAX_BYTES);
        bytes.extend_from_slice(&HELLO_MAGIC);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.has_yours, HELLO_HAS_YOURS) | flag(self.has_failed, HELLO_FAILED);
        bytes.extend_from_slice(&[HELLO_VERSION, flags]);
        bytes.extend_from_slice(&self.from.to_le_bytes());
        bytes.extend_from_slice(&self.to.to_le_bytes());
        bytes.extend_from_slice(&self.job.to_le_bytes());
        bytes.extend_from_slice(&self.credits.to_le_bytes());
        bytes.extend_from_slice(&self.endpoint.to_bytes());
        bytes
    }

    /// What somebody sent.
    ///
    /// # Errors
    /// [`FabricError::BadEndpoint`] if it is no hello of this version.
    pub fn parse(bytes: &[u8]) -> Result<Self, FabricError> {
        let Some((head, endpoint)) = bytes.split_first_chunk::<HELLO_HEAD_BYTES>() else {
            return Err(FabricError::BadEndpoint("a hello that is too short"));
        };
        if head[..2] != HELLO_MAGIC || head[2] != HELLO_VERSION || head[3] > (HELLO_HAS_YOURS | HELLO_FAILED) {
            return Err(FabricError::BadEndpoint("not a hello"));
        }
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four of them"));
        Ok(Self {
            from: word(4),
            to: word(8),
            job: u64::from_le_bytes(head[12..20].try_into().expect("eight of them")),
            has_yours: head[3] & HELLO_HAS_YOURS != 0,
            has_failed: head[3] & HELLO_FAILED != 0,
            credits: word(20),
            endpoint: Endpoint::parse(endpoint)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use fabric::{DeviceKind, QpNumber};

    use super::*;

    #[test]
    fn headers_come_back_as_they_went() {
        let record = Record { kind: 7, short: 0x00ab_cdef, long: u128::MAX - 5, ..Record::default() };
        for bits in 0..128u8 {
            let has_record = bits & 8 != 0;
            let header = Header {
                record: has_record.then_some(record),
                credits: 0x1234,
                starved: bits & 1 != 0,
                holds_back: bits & 2 != 0,
                leaves: bits & 4 != 0,
                announces: bits & 16 != 0,
                asks_back: if bits & 32 != 0 && !has_record { 250 } else { 0 },
                gives_back: bits & 64 != 0 && !has_record,
            };
            let message = [&header.to_bytes()[..], b"payload"].concat();
            assert_eq!(Header::parse(&message), Some((header, &b"payload"[..])));
        }
        assert_eq!(Header::parse(&[1; HEADER_BYTES - 1]), None);
    }

    #[test]
    fn hellos_come_back_as_they_went_and_damaged_ones_are_refused() {
        let endpoint = Endpoint::new(DeviceKind::Tcp, QpNumber(9), &[5; Endpoint::ADDRESS_MAX_BYTES]);
        let hello = Hello { from: 1, to: 2, job: u64::MAX, has_yours: true, has_failed: false, credits: 4, endpoint };
        let bytes = hello.to_bytes();
        assert_eq!(bytes.len(), HELLO_MAX_BYTES);
        for (has_yours, has_failed) in [(false, false), (true, false), (false, true), (true, true)] {
            let hello = Hello { has_yours, has_failed, ..hello.clone() };
            assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        }
        for len in 0..HELLO_HEAD_BYTES + 8 {
            assert!(Hello::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        for at in 0..4 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            assert!(Hello::parse(&damaged).is_err(), "byte {at}");
        }
    }

    /// One side of a connection in a model without devices.
    struct Side {
        credits: Credits,
        /// Headers that wait for credit are only counted.
        waiting: u32,
        posted: u32,
        arriving: VecDeque<Header>,
    }

    impl Side {
        fn new(granted: u32) -> Self {
            Self { credits: Credits::new(granted), waiting: 0, posted: granted + RESERVED, arriving: VecDeque::new() }
        }
    }

    fn send(sides: &mut [Side; 2], from: usize) {
        while sides[from].waiting > 0 && sides[from].credits.spend() {
            sides[from].waiting -= 1;
            put(sides, from, Header { record: Some(Record { kind: 1, ..Record::default() }), ..Header::default() });
        }
    }

    fn put(sides: &mut [Side; 2], from: usize, header: Header) {
        let (credits, starved) = sides[from].credits.take_news();
        let to = &mut sides[1 - from];
        assert!(to.posted > 0, "a send never finds the queue empty");
        to.posted -= 1;
        to.arriving.push_back(Header { credits, starved, ..header });
    }

    /// Takes messages in one poll, as a port does: buffers are posted again and the other side is told when all have been
    /// taken. `answers`: each record is answered with one at once.
    fn receive(sides: &mut [Side; 2], at: usize, count: usize, answers: bool) {
        let (mut emptied, mut freed, mut giving_back, mut tells) = (0, 0, 0, false);
        for _ in 0..count {
            let side = &mut sides[at];
            let Some(header) = side.arriving.pop_front() else { break };
            side.credits.returned(header.credits.into());
            emptied += u32::from(!header.gives_back);
            if header.starved {
                let more = side.credits.growth();
                side.posted += more;
                side.credits.grant(more);
            }
            if header.record.is_some() {
                freed += 1;
            } else if header.asks_back > 0 {
                side.credits.asked();
                freed += 1;
                giving_back += side.credits.set_aside(header.asks_back);
            } else if header.gives_back {
                tells |= side.credits.given_back().expect("what is given back was granted");
            } else {
                tells |= side.credits.must_tell();
            }
            if answers && header.record.is_some() {
                sides[at].waiting += 1;
                send(sides, at);
            }
        }
        sides[at].posted += emptied;
        for _ in 0..freed {
            sides[at].credits.freed();
            tells |= sides[at].credits.must_tell();
        }
        (0..giving_back).for_each(|_| put(sides, at, Header { gives_back: true, ..Header::default() }));
        if tells && sides[at].credits.must_tell() {
            put(sides, at, Header::default());
        }
    }

    /// A period is over for one side, which keeps at least `least` buffers for the other.
    fn end_period(sides: &mut [Side; 2], at: usize, least: u32) {
        let asks_back = sides[at].credits.surplus(least);
        if asks_back > 0 && sides[at].credits.spend() {
            sides[at].credits.note_asked();
            put(sides, at, Header { asks_back, ..Header::default() });
        }
    }

    #[test]
    fn no_send_overruns_the_receiver_and_everything_arrives() {
        let mut shrunk = 0;
        for seed in 0..2000u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut below = |limit: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % limit
            };
            let granted = 1 + below(5) as u32;
            let mut sides = [Side::new(granted), Side::new(granted)];
            sides.iter_mut().for_each(|side| side.credits.begin(granted));
            for _ in 0..400 {
                let at = below(2) as usize;
                let before = sides[at].credits.granted();
                match below(10) {
                    0..3 => sides[at].waiting += below(40) as u32,
                    3..6 => send(&mut sides, at),
                    6 => end_period(&mut sides, at, granted),
                    7 => receive(&mut sides, at, below(80) as usize, below(2) == 0),
                    _ => receive(&mut sides, at, below(6) as usize, false),
                }
                shrunk += u32::from(sides[at].credits.granted() < before);
            }
            for _ in 0..100_000 {
                if sides.iter().all(|side| side.waiting == 0 && side.arriving.is_empty()) {
                    break;
                }
                for at in 0..2 {
                    send(&mut sides, at);
                    receive(&mut sides, at, 3, false);
                }
            }
            for side in &sides {
                assert_eq!((side.waiting, side.arriving.len()), (0, 0), "seed {seed}: credits were lost");
                assert_eq!(side.posted, side.credits.granted() + RESERVED, "seed {seed}: buffers were lost");
                assert!((granted..=CREDITS_MAX).contains(&side.credits.granted()), "seed {seed}");
            }
            // Periods of quiet: what is not needed goes, and then nobody says anything any more.
            for period in 0..12 {
                (0..2).for_each(|at| end_period(&mut sides, at, granted));
                let is_quiet = sides.iter().all(|side| side.arriving.is_empty());
                assert!(period < 11 || is_quiet, "seed {seed}: they ask each other for ever");
                (0..6).for_each(|turn| receive(&mut sides, turn % 2, 1000, false));
            }
            for side in &sides {
                assert!(side.credits.granted() < 2 * granted + 2, "seed {seed}: {} are kept", side.credits.granted());
                assert_eq!(side.posted, side.credits.granted() + RESERVED, "seed {seed}: buffers were lost");
            }
        }
        assert!(shrunk > 1000, "credits were given back {shrunk} times while others were used");
    }

    #[test]
    fn who_gives_all_but_a_few_credits_back_and_uses_those_gets_them_again() {
        let mut sides = [Side::new(8), Side::new(8)];
        sides.iter_mut().for_each(|side| side.credits.begin(8));
        while sides[0].credits.granted() < 64 {
            sides[1].waiting += 100;
            while sides[1].waiting > 0 || !sides[0].arriving.is_empty() {
                send(&mut sides, 1);
                receive(&mut sides, 0, 1000, false);
                receive(&mut sides, 1, 1000, false);
            }
        }
        // The period of the burst, and one of quiet.
        (0..2).for_each(|_| end_period(&mut sides, 0, 8));
        assert!(sides[1].arriving.iter().any(|header| header.asks_back >= 56), "it is asked for what it does not use");
        // Seven records, for the question took one of eight credits.
        sides[0].waiting += 7;
        send(&mut sides, 0);
        // In one poll it is asked, and uses all that it may keep: for answers, and for a record of its own.
        sides[1].waiting += 1;
        receive(&mut sides, 1, 1000, true);
        while !sides[0].arriving.is_empty() {
            receive(&mut sides, 0, 32, false);
        }
        assert_eq!(sides[0].credits.granted(), 8);
        sides[1].waiting += 1;
        receive(&mut sides, 1, 1000, false);
        send(&mut sides, 1);
        assert_eq!(sides[1].waiting, 0, "nothing else would ever tell it of its credits");
    }

    #[test]
    fn credits_beyond_what_anybody_may_grant_are_not_believed() {
        let mut credits = Credits::new(4);
        (0..10).for_each(|_| credits.returned(u16::MAX.into()));
        assert_eq!(credits.available(), CREDITS_MAX);
    }
}
