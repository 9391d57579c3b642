//! One-way channels that carry records: what all designs of a fast path have in common.
//!
//! Paper: veloblock §5.3. The designs differ in where a record goes and in how its arrival is seen:
//!
//! | design | room | arrival | sender's copy | module |
//! |---|---|---|---|---|
//! | fixed top-fill | equal slots | head flag, then an equal tail flag | yes | [`fixed`] |
//! | fixed bottom-fill | equal slots | tail flag | no | [`fixed`] |
//! | variable top-fill | a block | head flag, then an equal tail flag | yes | [`variable_top`] |
//! | variable bottom-fill | a block | tail flag | no | [`block`](crate::block) |
//!
//! A sender writes to a [`Target`]: memory that is mapped here ([`Mapped`]), or that an adapter writes ([`Carried`]). A
//! record is written so that its last word is seen last.
//!
//! Credits are counts of what the receiver has consumed, in units of the design: slots, lines or words. They come back
//! through the control line, or with a record that goes the other way; either may be late, and an older count changes
//! nothing. That is why counts never begin anew: a record that lay unread while its channel was resized, or given up and
//! made again, still says what is true.

use base::sync::Ordering;

use crate::{CACHE_LINE_BYTES, Record, SharedMemory};

pub mod carried;
pub mod fixed;
mod target;
mod variable_bottom;
pub mod variable_top;

pub use carried::Carried;
pub use fixed::{Fill, FixedReceiver, FixedSender};
pub use target::{Image, Mapped, Target};
pub use variable_bottom::VariableBottomSender;
pub use variable_top::{VariableTopReceiver, VariableTopSender};

/// Bytes before the slots or the block: the control line.
pub const CONTROL_BYTES: usize = CACHE_LINE_BYTES;
/// In the control line: what the receiver has consumed.
pub const CONSUMED: usize = 0;
/// In the control line: a word for the sender to see before it sends.
pub const HINT: usize = 8;
/// In the control line: how often the channel was retired, and whether the sender's shuttle came home with that. A word of
/// blocks stands before it.
const RETIRED: usize = 24;
const WITH_SHUTTLE: u64 = 1 << 63;

/// The sending end of a channel.
pub trait RecordSender {
    /// Appends a record of `len_bytes`, whose payload `fill` writes; false if there is no room now.
    ///
    /// # Panics
    /// If `len_bytes` exceeds [`RecordSender::payload_max_bytes`].
    fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool;

    /// Longest payload a record may have, in bytes.
    fn payload_max_bytes(&self) -> usize;

    /// What the receiver asked of this sender (see [`RecordReceiver::set_hint`]).
    fn hint(&self) -> u64;

    /// Credits that came with a record of the other direction: what the receiver had consumed.
    fn credit(&mut self, consumed: u64);

    /// What was sent so far, in units of the design; it changes whenever something is sent.
    fn produced(&self) -> u64;
}

/// The receiving end of a channel.
pub trait RecordReceiver {
    /// Takes the next record, if one has arrived, and shows it to `take`; its payload may still be changed by a
    /// hostile sender while `take` looks at it, so copy first and check the copy. True if anything moved: a block that
    /// was resized shows no record.
    fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool;

    /// The next record, if one has arrived, and the length of its payload in bytes, for those who may leave it where it is for
    /// now. A design that does not tell says `None`.
    fn peek(&self) -> Option<(Record, usize)> {
        None
    }

    /// True unless there are no shuttles, or they are read faster by loads than by the processor's own instruction for copying.
    fn may_read_by_instruction(&self) -> bool {
        false
    }

    /// True if so much was consumed that the sender should hear of it.
    fn credits_due(&self) -> bool;

    /// Returns credits that are due. With `offer` they may go along with a record of the caller's: then it gets them,
    /// and may offer again once they are under way. Otherwise they go to the control line now.
    fn return_credits(&mut self, offer: bool) -> Option<u64>;

    /// Leaves a word for the sender to see before it sends.
    fn set_hint(&self, hint: u64);

    /// What was consumed so far, in units of the design; it changes whenever something arrives.
    fn consumed(&self) -> u64;

    /// The offset from which on the channel's memory is not used any more, said once. Until the next record is popped,
    /// nobody writes there.
    fn take_spare(&mut self) -> Option<usize> {
        None
    }
}

/// Leaves a word for the sender of a channel that its receiver does not know yet; the sender does this itself.
pub fn hint_sender(memory: &SharedMemory, hint: u64) {
    memory.word(HINT).store(hint, Ordering::Relaxed);
}

/// What the receiver's end of a channel in `memory` has to show its sender, as it is to lie in the sender's memory.
pub fn shown(memory: &SharedMemory) -> [u64; SHOWN_BYTES / 8] {
    // Relaxed: the receiver's own words.
    std::array::from_fn(|index| memory.word(8 * index).load(Ordering::Relaxed))
}

/// A channel whose sender has sent the last record: it begins anew when its receiver has cleared it.
pub struct Retired {
    memory: SharedMemory,
    before: u64,
}

impl Retired {
    /// To be called before the last record is sent.
    pub fn expected(memory: SharedMemory) -> Self {
        let before = memory.word(RETIRED).load(Ordering::Relaxed);
        Self { memory, before }
    }

    /// True if the receiver is through with the channel and all of it is 0.
    pub fn is_over(&self) -> bool {
        // Acquire pairs with the store in `retire`.
        self.memory.word(RETIRED).load(Ordering::Acquire) != self.before
    }

    /// Once it is over: the shuttle in the sender's memory is the sender's again.
    pub fn brings_shuttle(&self) -> bool {
        self.memory.word(RETIRED).load(Ordering::Relaxed) & WITH_SHUTTLE != 0
    }
}

/// The receiver, having taken the last record of a channel and returned all credits, clears it; from `cleared_from` on it
/// is 0 already. The count of what was consumed stays: the next ends go on from there. A shuttle of the sender's that is here
/// may go home `with` that.
pub fn retire(memory: &SharedMemory, cleared_from: usize, with_shuttle: bool) {
    let stays = |at: usize| at == RETIRED || at == CONSUMED;
    for at in (0..cleared_from.min(memory.len_bytes()) & !7).step_by(8).filter(|at| !stays(*at)) {
        memory.word(at).store(0, Ordering::Relaxed);
    }
    let times = memory.word(RETIRED).load(Ordering::Relaxed);
    // Release: who sees this sees the channel as it was in the beginning. Pairs with the load in `Retired::is_over`.
    let shuttle = if with_shuttle { WITH_SHUTTLE } else { 0 };
    memory.word(RETIRED).store(times.wrapping_add(1) & !WITH_SHUTTLE | shuttle, Ordering::Release);
}

/// Bytes of the control line that a receiver shows its sender.
pub const SHOWN_BYTES: usize = 32;

/// Counts begin below this, whatever stands in the control line: there is no end to them in practice.
const BEGIN_MAX: u64 = 1 << 48;

/// Where the counts of a channel's ends begin: 0, or what was consumed before the channel was retired. Only the receiver
/// writes that word, and not before it has heard of the channel.
pub(crate) fn begun(consumed: u64) -> u64 {
    consumed % BEGIN_MAX
}

/// What a sender knows of the room in its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) capacity: u64,
    pub(crate) produced: u64,
    consumed: u64,
}

impl Room {
    /// Of a channel whose control line says `consumed`.
    pub(crate) fn new(capacity: usize, consumed: u64) -> Self {
        let begun = begun(consumed);
        Self { capacity: capacity as u64, produced: begun, consumed: begun }
    }

    /// True if `count` units after what was produced are free; asks for the receiver's count if they seem not to be.
    pub(crate) fn has(&mut self, count: usize, ask: impl FnOnce() -> u64) -> bool {
        let needed = self.produced + count as u64;
        if needed > self.consumed + self.capacity {
            self.consumed = newer(self.consumed, self.produced, ask());
        }
        needed <= self.consumed + self.capacity
    }

    pub(crate) fn credit(&mut self, consumed: u64) {
        self.consumed = newer(self.consumed, self.produced, consumed);
    }

    /// What is not consumed, where the receiver says that `consumed` is.
    pub(crate) fn outstanding(&mut self, consumed: u64) -> u64 {
        self.credit(consumed);
        self.produced - self.consumed
    }
}

/// The receiver's count, if it can be true: beyond what was sent, or gone back, it is damage or late.
#[inline]
pub(crate) fn newer(known: u64, produced: u64, said: u64) -> u64 {
    if said <= produced && said >= known { said } else { known }
}

/// What a receiver has consumed and when its sender should hear of that: after an eighth of the channel it is offered
/// to whoever sends the other way, after another it goes to the control line. A sender that waits for room thus lacks
/// less than a quarter of the channel, and the record that came last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returns {
    pub(crate) consumed: u64,
    due: u64,
    step: u64,
    /// What the sender has been told for sure, or will be by what is under way.
    shown: u64,
    offered: u64,
    /// There are so many units that a few can be missing.
    may_wait: bool,
}

impl Returns {
    /// Of a channel whose control line says `consumed`.
    pub(crate) fn new(capacity: usize, consumed: u64) -> Self {
        let step = (capacity as u64 / 8).max(1);
        let begun = begun(consumed);
        Self { consumed: begun, due: begun + step, step, shown: begun, offered: begun, may_wait: capacity >= 16 }
    }

    /// Credits are due before anything more is consumed: the sender waits for a word.
    pub(crate) fn at_once(capacity: usize, consumed: u64) -> Self {
        let returns = Self::new(capacity, consumed);
        Self { due: returns.consumed, ..returns }
    }

    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.consumed >= self.due
    }

    pub(crate) fn settle(&mut self, offer: bool, memory: &SharedMemory) -> Option<u64> {
        if offer {
            // What was offered before is under way.
            self.shown = self.offered;
            if self.may_wait && self.consumed > self.shown && self.consumed - self.shown < 2 * self.step {
                self.offered = self.consumed;
                self.due = self.shown + 2 * self.step;
                return Some(self.consumed);
            }
        }
        (self.shown, self.offered) = (self.consumed, self.consumed);
        self.due = self.consumed + self.step;
        // Release: our reads of what was consumed are over. Pairs with the sender's load of the count.
        memory.word(CONSUMED).store(self.consumed, Ordering::Release);
        None
    }
}

/// The flag word: kind, 24 bits for the protocol, a mark that tells flags apart, and the payload's length.
#[inline]
pub(crate) fn flag_word(record: Record, mark: u8, len_bytes: usize) -> u64 {
    debug_assert!(len_bytes < 1 << 24);
    u64::from(record.kind) << 56
        | u64::from(record.short & 0x00ff_ffff) << 32
        | u64::from(mark) << 24
        | len_bytes as u64
}

/// Length and, with the two words beside the flag, record of a flag word.
#[inline]
pub(crate) fn parse_flag(flag: u64, low: u64, high: u64) -> (Record, usize) {
    let record = Record {
        kind: (flag >> 56) as u8,
        short: (flag >> 32) as u32 & 0x00ff_ffff,
        long: u128::from(high) << 64 | u128::from(low),
        ..Record::default()
    };
    (record, flag as usize & 0x00ff_ffff)
}

/// A flag for `record` that differs from `previous`, whatever lies there.
pub(crate) fn flag_unlike(previous: u64, record: Record, len_bytes: usize) -> u64 {
    let flag = flag_word(record, 1, len_bytes);
    if flag == previous { flag_word(record, 2, len_bytes) } else { flag }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::{BlockReceiver, BlockSender, Bounds, times};

    /// A small generator of numbers; the seed is printed when something fails.
    struct Random(u64);
    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % limit
        }
    }

    /// Every design against one model, a queue of records: random lengths, laps, starved credits, credits that come
    /// late or in the wrong order.
    fn against_a_queue(seed: u64, mut sender: impl RecordSender, mut receiver: impl RecordReceiver) -> u32 {
        let mut random = Random(seed);
        let mut sent: VecDeque<(Record, Vec<u8>)> = VecDeque::new();
        let (mut pending, mut under_way) = (None, Vec::new());
        let may_carry = random.below(3) > 0;
        let (mut number, mut refused) = (0u32, 0);
        let eager = 1 + random.below(9);
        for _ in 0..times(3000, 60) {
            if random.below(10) < eager {
                let short = random.below(3) > 0;
                let len = random.below(if short {
                    60.min(sender.payload_max_bytes())
                } else {
                    sender.payload_max_bytes() + 1
                });
                // Payload that looks like flags, to catch a stale one being taken for an arrival.
                let payload: Vec<u8> = match number % 3 {
                    0 => vec![0xff; len],
                    1 => vec![number as u8; len],
                    _ => (0..len).map(|at| (at as u32 ^ number) as u8).collect(),
                };
                let record = Record {
                    kind: 1 + (number % 200) as u8,
                    short: number & 0xff_ffff,
                    long: u128::from(number) << 60,
                    ..Record::default()
                };
                if sender.push(record, len, |space| space.copy_from_slice(&payload)) {
                    sent.push_back((record, payload));
                    number += 1;
                } else {
                    refused += 1;
                }
            } else {
                let expected = sent.front().cloned();
                let mut got = None;
                receiver.pop(|record, payload| got = Some((record, payload.to_vec())));
                assert_eq!(got, expected, "seed {seed}, record {number}");
                sent.pop_front();
            }
            if receiver.credits_due() {
                pending = receiver.return_credits(may_carry && pending.is_none());
            }
            if random.below(3) == 0 {
                under_way.extend(pending.take());
            }
            // They stay under way: one may come again and again, and long after the block was resized.
            if !under_way.is_empty() && random.below(3) == 0 {
                sender.credit(under_way[random.below(under_way.len())]);
            }
            if sent.is_empty() && random.below(10) == 0 {
                // Whatever is not told yet: an empty channel has room for the longest record.
                under_way.iter().for_each(|count| sender.credit(*count));
                let len = sender.payload_max_bytes();
                let record = Record { kind: 250, ..Record::default() };
                let mut came = false;
                // A block may have to grow for it.
                for _ in 0..8 {
                    if sender.push(record, len, |_| ()) {
                        sent.push_back((record, Vec::new()));
                        break;
                    }
                    receiver.pop(|_, _| panic!("seed {seed}: nothing was sent"));
                    if receiver.credits_due() {
                        pending = receiver.return_credits(false);
                    }
                }
                assert!(!sent.is_empty(), "seed {seed}: no room in an empty channel, record {number}");
                while !came {
                    receiver.pop(|record, payload| came = (record.kind, payload.len()) == (250, len));
                }
                sent.clear();
            }
        }
        while let Some(expected) = sent.pop_front() {
            let mut got = None;
            while got.is_none() {
                assert!(receiver.pop(|record, payload| got = Some((record, payload.to_vec()))), "seed {seed}");
            }
            assert_eq!(got, Some(expected), "seed {seed}");
        }
        assert!(u64::from(number) > times(100, 3), "seed {seed}: the channel moved on, {number} records");
        receiver.pop(|_, _| panic!("seed {seed}: nothing more was sent"));
        refused
    }

    fn each_seed(count: u64, run: impl Fn(u64) -> u32) {
        let refused: u32 = (0..times(count, 1)).map(run).sum();
        assert!(refused > 0 || cfg!(miri), "no seed ran into the end of the room");
    }

    #[test]
    fn fixed_slots_pass_records_as_a_queue_does() {
        for fill in [Fill::Top, Fill::Bottom] {
            for slot_count in [1, 2, 32] {
                each_seed(40, |seed| {
                    let memory = SharedMemory::private(fixed::footprint(slot_count));
                    let sender = FixedSender::mapped(memory.clone(), fill, slot_count);
                    against_a_queue(seed, sender, FixedReceiver::new(memory, fill, slot_count))
                });
            }
        }
    }

    #[test]
    fn variable_top_passes_records_as_a_queue_does() {
        for block_bytes in [1024, 4096, 32 << 10] {
            each_seed(80, |seed| {
                let memory = SharedMemory::private(variable_top::footprint(block_bytes));
                let sender = VariableTopSender::mapped(memory.clone(), block_bytes);
                against_a_queue(seed, sender, VariableTopReceiver::new(memory, block_bytes))
            });
        }
    }

    #[test]
    fn variable_bottom_passes_records_as_a_queue_does_whatever_its_length() {
        for (block_bytes, min_bytes, max_bytes) in
            [(1024, 1024, 1024), (4096, 1024, 16 << 10), (16 << 10, 2048, 64 << 10)]
        {
            each_seed(80, |seed| {
                let memory = SharedMemory::private(BlockSender::footprint(max_bytes));
                let bounds = Bounds { min_bytes, max_bytes, ..Bounds::default() };
                let sender = BlockSender::resizable(memory.clone(), block_bytes, bounds);
                against_a_queue(seed, sender, BlockReceiver::new(memory, block_bytes))
            });
        }
    }

    #[test]
    fn a_retired_channel_begins_anew() {
        for cleared_from in [CONTROL_BYTES, 4096, usize::MAX].into_iter().take(times(3, 1) as usize) {
            let memory = SharedMemory::private(fixed::footprint(2));
            for round in 0..times(3, 2) {
                let mut sender = FixedSender::mapped(memory.clone(), Fill::Top, 2);
                let mut receiver = FixedReceiver::new(memory.clone(), Fill::Top, 2);
                receiver.set_hint(7);
                let retired = Retired::expected(memory.clone());
                assert!(sender.push(Record { kind: 1, ..Record::default() }, 5000, |space| space.fill(0xff)));
                assert!(receiver.pop(|_, _| ()) && !retired.is_over(), "round {round}");
                receiver.return_credits(false);
                // Stands for memory that the system has taken back.
                for at in (cleared_from.min(memory.len_bytes())..memory.len_bytes()).step_by(8) {
                    memory.word(at).store(0, Ordering::Relaxed);
                }
                let with_shuttle = round != 1;
                retire(&memory, cleared_from, with_shuttle);
                assert_eq!((retired.is_over(), retired.brings_shuttle()), (true, with_shuttle));
                assert!(
                    (0..memory.len_bytes()).step_by(8).all(|at| {
                        [RETIRED, CONSUMED].contains(&at) || memory.word(at).load(Ordering::Relaxed) == 0
                    })
                );
            }
        }
    }

    #[test]
    fn credits_from_before_a_channel_was_retired_make_no_room() {
        let memory = SharedMemory::private(BlockSender::footprint(4096));
        let (record, mut late) = (Record { kind: 1, ..Record::default() }, Vec::new());
        for round in 0..3 {
            let mut sender = BlockSender::new(memory.clone(), 4096);
            let mut receiver = BlockReceiver::new(memory.clone(), 4096);
            let mut sent = 0;
            while sender.push(record, 8, |_| ()) {
                sent += 1;
                late.iter().for_each(|credits| sender.credit(*credits));
            }
            assert_eq!(sent, 4096 / 64 - 1, "round {round}: all but the line of the next arrival");
            while receiver.pop(|_, _| ()) {
                if receiver.credits_due() {
                    late.extend(receiver.return_credits(true));
                }
            }
            receiver.return_credits(false);
            retire(&memory, usize::MAX, false);
        }
        assert!(late.len() > 3);
    }

    #[test]
    fn counts_that_come_late_change_nothing() {
        assert_eq!((newer(5, 9, 7), newer(5, 9, 10), newer(5, 9, 4)), (7, 5, 5));
    }

    #[test]
    fn a_flag_never_equals_what_lies_there() {
        let record = Record { kind: 3, short: 9, long: 0, ..Record::default() };
        let flag = flag_unlike(0, record, 40);
        assert_ne!(flag, flag_unlike(flag, record, 40));
        assert_eq!(parse_flag(flag_unlike(flag, record, 40), 0, 0), (record, 40));
    }
}
