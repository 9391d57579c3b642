//! Fixed slots: every record takes a whole one, however short it is.
//!
//! Paper: veloblock §4 (top-fill, "Original") and §5.3 (bottom-fill).
//!
//! ```text
//!   top-fill     │ head flag │ long │ payload │ tail flag │        free            │
//!   bottom-fill  │       free                │ payload │ long │        tail flag │
//! ```
//! *Top-fill*: the receiver sees a head flag other than 0, computes from it where the tail flag will be, and waits
//! until that is equal. Stale bytes there must not be equal by chance, so the sender keeps a copy of all it wrote and
//! picks a flag that differs from them. The receiver sets the head to 0 when it is through.
//! *Bottom-fill*: there is one flag, at a place known beforehand, which the receiver sets to 0 when it is through.
//!
//! Cost of a short message: two transfers of cache lines (bottom-fill: one or two); the receiver writes one more.
//! Memory: the slots, and for top-fill as much again at the sender.

use base::sync::Ordering;

use super::{
    CONSUMED, CONTROL_BYTES, HINT, Image, Mapped, RecordReceiver, RecordSender, Returns, Room, Target, flag_unlike,
    flag_word, parse_flag,
};
use crate::{Record, SharedMemory};

/// Bytes of one slot. Paper: veloblock §4.2.
pub const SLOT_BYTES: usize = 8 << 10;
/// Head or tail flag, and the long word: what both fills have beside the payload.
const HEADER_BYTES: usize = 24;
/// Longest payload of a record, in bytes; top-fill needs a second flag.
pub const PAYLOAD_MAX_BYTES: usize = SLOT_BYTES - HEADER_BYTES - 8;

/// From which end a slot is filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// From its start; the sender keeps a copy.
    Top,
    /// To its end.
    Bottom,
}

/// The sending end.
pub struct FixedSender<T> {
    target: T,
    fill: Fill,
    slot_count: usize,
    next: usize,
    room: Room,
}

/// The receiving end.
pub struct FixedReceiver {
    memory: SharedMemory,
    fill: Fill,
    slot_count: usize,
    next: usize,
    returns: Returns,
}

/// Bytes of the receiver's memory for this many slots.
pub const fn footprint(slot_count: usize) -> usize {
    CONTROL_BYTES + slot_count * SLOT_BYTES
}

fn slot(index: usize) -> usize {
    CONTROL_BYTES + index * SLOT_BYTES
}

impl FixedSender<Mapped> {
    /// The sending end over zeroed, mapped `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than [`footprint`] says.
    pub fn mapped(memory: SharedMemory, fill: Fill, slot_count: usize) -> Self {
        let len = footprint(slot_count);
        assert!(memory.len_bytes() >= len, "the slots fit their memory");
        let target = match fill {
            Fill::Top => Mapped::mirrored(memory, len),
            Fill::Bottom => Mapped::new(memory),
        };
        Self::new(target, fill, slot_count)
    }
}

impl<T: Target> FixedSender<T> {
    /// The sending end over a target of [`footprint`] zero bytes; for top-fill one that keeps a copy.
    pub fn new(target: T, fill: Fill, slot_count: usize) -> Self {
        let room = Room::new(slot_count, target.control(CONSUMED));
        Self { target, fill, slot_count, next: 0, room }
    }

    /// What it writes to.
    pub fn target(&mut self) -> &mut T {
        &mut self.target
    }
}

impl<T: Target> RecordSender for FixedSender<T> {
    fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(len_bytes <= PAYLOAD_MAX_BYTES, "a record fits a slot");
        let Self { target, room, .. } = self;
        if !room.has(1, || target.control(CONSUMED)) {
            return false;
        }
        let base = slot(self.next);
        let (low, high) = (record.long as u64, (record.long >> 64) as u64);
        match self.fill {
            Fill::Top => {
                let flag_at = base + tail_offset(len_bytes);
                let flag = flag_unlike(target.previous(flag_at), record, len_bytes);
                let words = [(base + 8, low), (base + 16, high), (base, flag)];
                let payload_at = base + HEADER_BYTES;
                target.write(&Image { start: base, words: &words, payload_at, len_bytes, flag_at, flag }, fill);
            }
            Fill::Bottom => {
                let flag_at = base + SLOT_BYTES - 8;
                let payload_at = base + SLOT_BYTES - HEADER_BYTES - len_bytes.next_multiple_of(8);
                let words = [(flag_at - 16, low), (flag_at - 8, high)];
                let flag = flag_word(record, 1, len_bytes);
                target.write(&Image { start: payload_at, words: &words, payload_at, len_bytes, flag_at, flag }, fill);
            }
        }
        room.produced += 1;
        self.next = (self.next + 1) % self.slot_count;
        true
    }

    fn payload_max_bytes(&self) -> usize {
        PAYLOAD_MAX_BYTES
    }

    fn hint(&self) -> u64 {
        self.target.control(HINT)
    }

    fn credit(&mut self, consumed: u64) {
        self.room.credit(consumed);
    }

    fn produced(&self) -> u64 {
        self.room.produced
    }
}

/// Where in a slot the tail flag stands.
fn tail_offset(len_bytes: usize) -> usize {
    HEADER_BYTES + len_bytes.next_multiple_of(8)
}

impl FixedReceiver {
    /// The receiving end over zeroed `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than [`footprint`] says.
    pub fn new(memory: SharedMemory, fill: Fill, slot_count: usize) -> Self {
        assert!(memory.len_bytes() >= footprint(slot_count), "the slots fit their memory");
        let returns = Returns::new(slot_count, memory.word(CONSUMED).load(Ordering::Relaxed));
        Self { memory, fill, slot_count, next: 0, returns }
    }

    /// Bytes of all slots.
    pub fn channel_bytes(&self) -> usize {
        self.slot_count * SLOT_BYTES
    }

    /// The flag of the record in the next slot, and where its flag, long word and payload stand.
    fn arrived(&self) -> Option<(u64, [usize; 3])> {
        let base = slot(self.next);
        let known_at = match self.fill {
            Fill::Top => base,
            Fill::Bottom => base + SLOT_BYTES - 8,
        };
        // Acquire pairs with the release of the flag in `Target::write`.
        let flag = self.memory.word(known_at).load(Ordering::Acquire);
        let len_bytes = flag as usize & 0x00ff_ffff;
        if flag == 0 || len_bytes > PAYLOAD_MAX_BYTES {
            // Nothing, or not something our sender writes: the channel stays where it is.
            return None;
        }
        match self.fill {
            Fill::Top => {
                // Acquire as above: for a head, only the tail says that the rest is there.
                let tail = self.memory.word(base + tail_offset(len_bytes)).load(Ordering::Acquire);
                (tail == flag).then_some((flag, [base, base + 8, base + HEADER_BYTES]))
            }
            Fill::Bottom => {
                let payload_at = known_at - 16 - len_bytes.next_multiple_of(8);
                Some((flag, [known_at, known_at - 16, payload_at]))
            }
        }
    }
}

impl RecordReceiver for FixedReceiver {
    fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool {
        let Some((flag, [flag_at, long_at, payload_at])) = self.arrived() else { return false };
        let [low, high] = [long_at, long_at + 8].map(|at| self.memory.word(at).load(Ordering::Relaxed));
        let (record, len_bytes) = parse_flag(flag, low, high);
        // SAFETY: inside the slot, whose length was checked; the sender does not write it before it is given back.
        unsafe { self.memory.read(payload_at, len_bytes, |payload| take(record, payload)) };
        // The next lap finds no flag here. The sender hears that the slot is free after this (`Returns::settle`).
        self.memory.word(flag_at).store(0, Ordering::Relaxed);
        self.next = (self.next + 1) % self.slot_count;
        self.returns.consumed += 1;
        true
    }

    #[inline]
    fn credits_due(&self) -> bool {
        self.returns.are_due()
    }

    fn return_credits(&mut self, offer: bool) -> Option<u64> {
        self.returns.settle(offer, &self.memory)
    }

    fn set_hint(&self, hint: u64) {
        self.memory.word(HINT).store(hint, Ordering::Relaxed);
    }

    fn consumed(&self) -> u64 {
        self.returns.consumed
    }
}
