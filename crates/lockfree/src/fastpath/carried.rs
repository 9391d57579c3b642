//! A receiver's memory that an adapter writes: a record is one RDMA write from memory of its sender.
//!
//! ```text
//!   sender                                              receiver
//!   staging   │ … record flag │ ── write, last word last ──▶ │ control │      block      │
//!   control   ◀──────────────── write of the control line ── │ control │
//! ```
//! The staging is a slot that is free again when the write is complete, or, for designs whose sender must know what it
//! wrote before, a copy of the whole channel that stays (Paper: veloblock §4.3). Whoever pushes a record posts the writes
//! that [`Carried::take_writes`] then tells of, in order. On a device that does not see to it that the last word of a
//! write lands last, the flag is a second write, which the queue pair keeps behind the first.
//!
//! The receiver writes its control line into the sender's memory by the same means.

use base::sync::Ordering;
use smallvec::SmallVec;

use super::target::{Image, Target};
use super::{CONTROL_BYTES, SHOWN_BYTES};
use crate::{CACHE_LINE_BYTES, SharedMemory, Slot, SlotStore};

/// In the control line of a copy, behind what the receiver writes there: a word that stays 0, and the one that sends the
/// reader to the start, which no flag is equal to.
const ZERO: usize = SHOWN_BYTES;
const MARK: usize = SHOWN_BYTES + 8;
/// Bytes at the start of a slot for words that are written beside a record.
const WORDS_BYTES: usize = CACHE_LINE_BYTES;
/// Bytes of a slot beyond the longest payload of the records it stages: words, header, a line that is not full, and the
/// word before it.
pub const STAGING_EXTRA_BYTES: usize = WORDS_BYTES + 2 * CACHE_LINE_BYTES;
/// Writes that one push asks for, at most: a word at the start of the block, one at its end, the record, its flag.
pub const WRITES_MAX: usize = 4;

/// One write to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where it begins in the slot or the copy.
    pub from: usize,
    /// Where it goes in the channel.
    pub at: usize,
    /// How long it is, in bytes.
    pub len_bytes: usize,
}

enum Staging {
    /// A copy of the channel, at the same places.
    Copy(SharedMemory),
    /// A piece of memory for one record, while there is one.
    Slot(Option<(Slot, SharedMemory)>),
}

/// Memory of a receiver that an adapter writes.
pub struct Carried {
    control: SharedMemory,
    staging: Staging,
    /// The device sees to it that the last word of a write lands last.
    last_word_last: bool,
    writes: SmallVec<[Write; WRITES_MAX]>,
    /// Bytes of the slot's words that are taken.
    words_bytes: usize,
}

impl Carried {
    /// A target whose records are staged in slots; its receiver writes to `control`, which is zero.
    pub fn by_slots(control: SharedMemory, last_word_last: bool) -> Self {
        Self::over(control, Staging::Slot(None), last_word_last)
    }

    /// A target whose records are staged in `copy`, zero and as long as the channel, at whose start the receiver writes
    /// its control line.
    pub fn by_copy(copy: SharedMemory, last_word_last: bool) -> Self {
        Self::over(copy.clone(), Staging::Copy(copy), last_word_last)
    }

    fn over(control: SharedMemory, staging: Staging, last_word_last: bool) -> Self {
        assert!(control.len_bytes() >= CONTROL_BYTES, "the control line fits its memory");
        Self { control, staging, last_word_last, writes: SmallVec::new(), words_bytes: 0 }
    }

    /// True if a slot must be lent before each record.
    pub fn needs_slot(&self) -> bool {
        matches!(self.staging, Staging::Slot(None))
    }

    /// Lends a slot of `store` for the next record.
    pub fn lend(&mut self, store: &SlotStore, slot: Slot) {
        let memory = store.space(&slot);
        if let Staging::Slot(lent) = &mut self.staging {
            *lent = Some((slot, memory));
        }
        self.words_bytes = 0;
    }

    /// The writes that what was pushed asks for, in order, and the slot from which; none if nothing was pushed. Until they
    /// are complete the slot must be left alone.
    pub fn take_writes(&mut self) -> (Option<Slot>, SmallVec<[Write; WRITES_MAX]>) {
        let slot = match &mut self.staging {
            Staging::Slot(lent) => lent.take().map(|(slot, _)| slot),
            Staging::Copy(_) => None,
        };
        (slot, std::mem::take(&mut self.writes))
    }

    /// The staging memory, and where in it what goes to `start` of the channel is put.
    fn place(&self, start: usize) -> (&SharedMemory, usize) {
        match &self.staging {
            Staging::Copy(copy) => (copy, start),
            Staging::Slot(lent) => {
                let (_, memory) = lent.as_ref().expect("a slot is lent before each record");
                (memory, WORDS_BYTES)
            }
        }
    }
}

impl Target for Carried {
    fn write(&mut self, image: &Image<'_>, fill: impl FnOnce(&mut [u8])) {
        let (memory, base) = self.place(image.start);
        let near = |at: usize| base + (at - image.start);
        // SAFETY: a slot is this sender's alone while it is lent. In a copy, the receiver has given the place back (the
        // caller looked), so no write from there is under way.
        unsafe { memory.write(near(image.payload_at), image.len_bytes, fill) };
        for (at, word) in image.words {
            memory.word(near(*at)).store(*word, Ordering::Relaxed);
        }
        memory.word(near(image.flag_at)).store(image.flag, Ordering::Relaxed);
        let (from, flag_from) = (near(image.start), near(image.flag_at));
        let body_bytes = image.flag_at - image.start;
        if self.last_word_last {
            self.writes.push(Write { from, at: image.start, len_bytes: body_bytes + 8 });
        } else {
            self.writes.push(Write { from, at: image.start, len_bytes: body_bytes });
            self.writes.push(Write { from: flag_from, at: image.flag_at, len_bytes: 8 });
        }
    }

    fn write_word(&mut self, at: usize, value: u64) {
        let from = match &self.staging {
            // Not by way of its place in the copy: the write of the record before it, of which that place is the last but
            // one word, may be read so late that it would bring this one, too soon.
            Staging::Copy(copy) if value == 0 => {
                copy.word(at).store(0, Ordering::Relaxed);
                ZERO
            }
            Staging::Copy(copy) => {
                copy.word(MARK).store(value, Ordering::Relaxed);
                MARK
            }
            Staging::Slot(lent) => {
                let (_, memory) = lent.as_ref().expect("a slot is lent before each record");
                memory.word(self.words_bytes).store(value, Ordering::Relaxed);
                self.words_bytes += 8;
                self.words_bytes - 8
            }
        };
        self.writes.push(Write { from, at, len_bytes: 8 });
    }

    fn previous(&self, at: usize) -> u64 {
        match &self.staging {
            Staging::Copy(copy) => copy.word(at).load(Ordering::Relaxed),
            Staging::Slot(_) => 0,
        }
    }

    fn control(&self, at: usize) -> u64 {
        debug_assert!(at < CONTROL_BYTES);
        // Acquire: what was given back is not read any more. The device that wrote this did so after those reads.
        self.control.word(at).load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::super::{
        CONSUMED, Fill, FixedReceiver, FixedSender, RecordReceiver, RecordSender, VariableBottomSender,
        VariableTopReceiver, VariableTopSender, fixed, variable_top,
    };
    use super::*;
    use crate::{BlockReceiver, BlockSender, Bounds, Record};

    trait CarriedSender {
        fn carried(&mut self) -> &mut Carried;
    }

    impl CarriedSender for FixedSender<Carried> {
        fn carried(&mut self) -> &mut Carried {
            self.target()
        }
    }

    impl CarriedSender for VariableTopSender<Carried> {
        fn carried(&mut self) -> &mut Carried {
            self.target()
        }
    }

    impl CarriedSender for VariableBottomSender<Carried> {
        fn carried(&mut self) -> &mut Carried {
            self.target()
        }
    }

    struct Random(u64);
    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % limit
        }
    }

    /// An adapter that moves a word at a time, read when it moves: those of one write in any order, but for the last if
    /// it says so, and writes one after the other.
    struct Adapter {
        last_word_last: bool,
        staging: Option<SharedMemory>,
        slots: SlotStore,
        remote: SharedMemory,
        under_way: VecDeque<Step>,
    }

    enum Step {
        /// From an offset of the copy, or of a slot's bytes as they were filled.
        Word(usize, usize),
        FromSlot(usize, u64),
        /// A record has landed, and its slot is free.
        Over(Option<Slot>),
    }

    impl Adapter {
        fn new(remote: &SharedMemory, copy: Option<SharedMemory>, payload_max: usize, last_word_last: bool) -> Self {
            let slot_bytes = (payload_max + 24 + STAGING_EXTRA_BYTES).next_multiple_of(64);
            let mut slots = SlotStore::new(slot_bytes, 4);
            slots.add(SharedMemory::private(4 * slot_bytes));
            Self { last_word_last, staging: copy, slots, remote: remote.clone(), under_way: VecDeque::new() }
        }

        fn post(&mut self, slot: Option<Slot>, writes: &[Write], random: &mut Random) {
            for write in writes {
                assert!(
                    write.from.is_multiple_of(8) && write.at.is_multiple_of(8) && write.len_bytes.is_multiple_of(8)
                );
                let mut words: Vec<usize> = (0..write.len_bytes).step_by(8).collect();
                let free = if self.last_word_last { words.len() - 1 } else { words.len() };
                for index in (1..free).rev() {
                    words.swap(index, random.below(index + 1));
                }
                for offset in words {
                    let (from, at) = (write.from + offset, write.at + offset);
                    self.under_way.push_back(match &slot {
                        None => Step::Word(from, at),
                        // A slot stays as it is until it is given back, so it does not matter when it is read.
                        Some(slot) => Step::FromSlot(at, self.slots.space(slot).word(from).load(Ordering::Relaxed)),
                    });
                }
            }
            self.under_way.push_back(Step::Over(slot));
        }

        /// Moves one word; true if a record has landed with it.
        fn step(&mut self) -> bool {
            let (at, value) = match self.under_way.pop_front() {
                None => return false,
                Some(Step::Over(slot)) => {
                    slot.into_iter().for_each(|slot| self.slots.give_back(slot));
                    return false;
                }
                Some(Step::FromSlot(at, value)) => (at, value),
                Some(Step::Word(from, at)) => {
                    let staging = self.staging.as_ref().expect("a copy");
                    (at, staging.word(from).load(Ordering::Relaxed))
                }
            };
            self.remote.word(at).store(value, Ordering::Release);
            matches!(self.under_way.front(), Some(Step::Over(_)))
        }
    }

    /// A design against a queue of the records that have landed: one that has not is never seen.
    fn against_a_queue<S>(seed: u64, mut adapter: Adapter, mut sender: S, mut receiver: impl RecordReceiver)
    where
        S: RecordSender + CarriedSender,
    {
        let mut random = Random(seed);
        let (mut sent, mut landed, mut number) = (VecDeque::new(), VecDeque::new(), 0u32);
        let (remote, mut refused) = (adapter.remote.clone(), 0);
        let eager = 1 + random.below(4);
        for _ in 0..6000 {
            match random.below(4 + eager) {
                0 => {
                    let words = 1 + random.below(200);
                    for _ in 0..words {
                        if adapter.step() {
                            landed.extend(sent.pop_front());
                        }
                    }
                }
                1 => {
                    let mut got = None;
                    receiver.pop(|record: Record, payload| got = Some((record, payload.to_vec())));
                    assert_eq!(got, landed.pop_front(), "seed {seed}, record {number}");
                }
                2 => {
                    if receiver.credits_due() {
                        match receiver.return_credits(random.below(2) > 0) {
                            Some(credits) => sender.credit(credits),
                            None => {
                                let consumed = remote.word(CONSUMED).load(Ordering::Relaxed);
                                sender.carried().control.word(CONSUMED).store(consumed, Ordering::Relaxed);
                            }
                        }
                    }
                }
                _ => {
                    let max = sender.payload_max_bytes() + 1;
                    let short = random.below(3) > 0;
                    let len = random.below(if short { 60.min(max) } else { max });
                    let payload = vec![if number.is_multiple_of(2) { 0xff } else { number as u8 }; len];
                    let record = Record {
                        kind: 1 + (number % 200) as u8,
                        short: number & 0xff_ffff,
                        long: u128::from(number) << 60 | 7,
                        ..Record::default()
                    };
                    if sender.carried().needs_slot() {
                        let Some(slot) = adapter.slots.take() else { continue };
                        sender.carried().lend(&adapter.slots, slot);
                    }
                    let pushed = sender.push(record, len, |space| space.copy_from_slice(&payload));
                    let (slot, writes) = sender.carried().take_writes();
                    assert_eq!(pushed, !writes.is_empty());
                    assert!(writes.len() <= WRITES_MAX);
                    if pushed {
                        adapter.post(slot, &writes, &mut random);
                        sent.push_back((record, payload));
                        number += 1;
                    } else {
                        slot.into_iter().for_each(|slot| adapter.slots.give_back(slot));
                        refused += 1;
                    }
                }
            }
        }
        assert!(number > 50 && refused > 0, "seed {seed}: {number} records, {refused} refused");
    }

    #[test]
    #[cfg_attr(miri, ignore = "this adapter moves thousands of single words, each an atomic")]
    fn adapters_carry_fixed_slots() {
        for (fill, slot_count) in [(Fill::Top, 1), (Fill::Top, 2), (Fill::Bottom, 1), (Fill::Bottom, 3)] {
            for seed in 0..20 {
                let last_word_last = seed % 2 == 0;
                let len = fixed::footprint(slot_count);
                let remote = SharedMemory::private(len);
                let copy = (fill == Fill::Top).then(|| SharedMemory::private(len));
                let target = match &copy {
                    Some(copy) => Carried::by_copy(copy.clone(), last_word_last),
                    None => Carried::by_slots(SharedMemory::private(CONTROL_BYTES), last_word_last),
                };
                let adapter = Adapter::new(&remote, copy, fixed::PAYLOAD_MAX_BYTES, last_word_last);
                let sender = FixedSender::new(target, fill, slot_count);
                against_a_queue(seed, adapter, sender, FixedReceiver::new(remote, fill, slot_count));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "this adapter moves thousands of single words, each an atomic")]
    fn adapters_carry_blocks_filled_from_either_end() {
        for block_bytes in [1024, 4096, 16 << 10] {
            for seed in 0..40 {
                let last_word_last = seed % 2 == 0;
                let remote = SharedMemory::private(variable_top::footprint(block_bytes));
                let copy = SharedMemory::private(remote.len_bytes());
                let target = Carried::by_copy(copy.clone(), last_word_last);
                let sender = VariableTopSender::new(target, block_bytes);
                let adapter = Adapter::new(&remote, Some(copy), sender.payload_max_bytes(), last_word_last);
                against_a_queue(seed, adapter, sender, VariableTopReceiver::new(remote, block_bytes));

                let remote = SharedMemory::private(BlockSender::footprint(block_bytes));
                let target = Carried::by_slots(SharedMemory::private(CONTROL_BYTES), last_word_last);
                let bounds = Bounds { min_bytes: block_bytes, max_bytes: block_bytes, ..Bounds::default() };
                let sender = VariableBottomSender::new(target, block_bytes, bounds);
                let adapter = Adapter::new(&remote, None, sender.payload_max_bytes(), last_word_last);
                against_a_queue(seed, adapter, sender, BlockReceiver::new(remote, block_bytes));
            }
        }
    }
}
