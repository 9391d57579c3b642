//! The variable top-fill block: records follow each other from the start of the block, each as long as it is.
//!
//! Paper: veloblock §5.3. Places are words of 8 bytes:
//!
//! ```text
//!   │ head n │ tail n-1 │ long │ payload … │ 0 = head n+1 │ tail n │
//! ```
//! The receiver sees head *n*, computes from its length where tail *n* will be, and waits until that is equal. The
//! place of the next head has to be 0 before tail *n* is seen, or stale bytes there look like a record. In the paper's
//! drawing the extra zero follows the tail, and would be seen after it; here the tail stands *behind* the zero, and the
//! record after it leaves that word as it is. So a record is one write, from its head to its tail, whose last word is
//! seen last: the sender has the copy from which to write tail *n-1* once more.
//!
//! Cost of a short message: one or two cache lines, since a record of 8 bytes takes 40 and shares its lines with
//! others. Memory: the block, and as much again at the sender.

use base::sync::Ordering;

use super::{
    CONSUMED, CONTROL_BYTES, HINT, Image, Mapped, RecordReceiver, RecordSender, Returns, Room, Target, flag_unlike,
    parse_flag,
};
use crate::{Record, SharedMemory};

const WORD_BYTES: usize = 8;
/// Words before the payload: head, the tail before it, long.
const HEADER_WORDS: usize = 4;
/// Words behind a record that its sender writes, too: the next head and the tail.
const BEHIND_WORDS: usize = 2;
/// The kind that sends the reader back to the start of the block.
const WRAP: u64 = 0xff << 56;

fn words_of(len_bytes: usize) -> usize {
    HEADER_WORDS + len_bytes.div_ceil(WORD_BYTES)
}

/// Words of the longest record; see [`crate::block`] for the bound.
const fn record_words_max(words: usize) -> usize {
    words / 8 * 3 - BEHIND_WORDS
}

/// Longest payload of a record in a block of `block_bytes`, in bytes.
pub const fn payload_max_bytes(block_bytes: usize) -> usize {
    (record_words_max(block_bytes / WORD_BYTES) - HEADER_WORDS) * WORD_BYTES
}

/// Bytes of the receiver's memory for a block of `block_bytes`.
pub const fn footprint(block_bytes: usize) -> usize {
    CONTROL_BYTES + block_bytes
}

fn offset(word: usize) -> usize {
    CONTROL_BYTES + word * WORD_BYTES
}

/// The sending end.
pub struct VariableTopSender<T> {
    target: T,
    words: usize,
    position: usize,
    room: Room,
}

/// The receiving end.
pub struct VariableTopReceiver {
    memory: SharedMemory,
    words: usize,
    position: usize,
    returns: Returns,
}

impl VariableTopSender<Mapped> {
    /// The sending end over zeroed, mapped `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than [`footprint`] says, or the block is shorter than 1 KiB.
    pub fn mapped(memory: SharedMemory, block_bytes: usize) -> Self {
        check_geometry(&memory, block_bytes);
        Self::new(Mapped::mirrored(memory, footprint(block_bytes)), block_bytes)
    }
}

impl<T: Target> VariableTopSender<T> {
    /// The sending end over a target of [`footprint`] zero bytes that keeps a copy.
    pub fn new(target: T, block_bytes: usize) -> Self {
        let words = block_bytes / WORD_BYTES;
        let room = Room::new(words, target.control(CONSUMED));
        Self { target, words, position: 0, room }
    }

    /// What it writes to.
    pub fn target(&mut self) -> &mut T {
        &mut self.target
    }

    fn has_room(&mut self, count: usize) -> bool {
        let Self { target, room, .. } = self;
        room.has(count, || target.control(CONSUMED))
    }
}

impl<T: Target> RecordSender for VariableTopSender<T> {
    fn push(&mut self, record: Record, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let count = words_of(len_bytes);
        assert!(count <= record_words_max(self.words), "a record takes at most three eighths of the block");
        if self.position + count + BEHIND_WORDS > self.words {
            let left = self.words - self.position;
            if !self.has_room(left + count + BEHIND_WORDS) {
                return false;
            }
            // The start is cleared before the reader is sent there.
            self.target.write_word(offset(0), 0);
            self.target.write_word(offset(self.position), WRAP);
            self.room.produced += left as u64;
            self.position = 0;
        } else if !self.has_room(count + BEHIND_WORDS) {
            return false;
        }
        let (head, next) = (offset(self.position), offset(self.position + count));
        let flag_at = next + WORD_BYTES;
        let flag = flag_unlike(self.target.previous(flag_at), record, len_bytes);
        let words = [(next, 0), (head + 16, record.long as u64), (head + 24, (record.long >> 64) as u64), (head, flag)];
        let payload_at = head + HEADER_WORDS * WORD_BYTES;
        self.target.write(&Image { start: head, words: &words, payload_at, len_bytes, flag_at, flag }, fill);
        self.position += count;
        self.room.produced += count as u64;
        true
    }

    fn payload_max_bytes(&self) -> usize {
        payload_max_bytes(self.words * WORD_BYTES)
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

impl VariableTopReceiver {
    /// The receiving end over zeroed `memory`.
    ///
    /// # Panics
    /// As [`VariableTopSender::mapped`].
    pub fn new(memory: SharedMemory, block_bytes: usize) -> Self {
        check_geometry(&memory, block_bytes);
        let words = block_bytes / WORD_BYTES;
        let returns = Returns::new(words, memory.word(CONSUMED).load(Ordering::Relaxed));
        Self { memory, words, position: 0, returns }
    }

    /// Bytes of the block.
    pub fn channel_bytes(&self) -> usize {
        self.words * WORD_BYTES
    }

    fn word(&self, position: usize) -> u64 {
        // Acquire pairs with the release of flags in `Target::write` and `Target::write_word`.
        self.memory.word(offset(position)).load(Ordering::Acquire)
    }
}

impl RecordReceiver for VariableTopReceiver {
    fn pop(&mut self, take: impl FnOnce(Record, &[u8])) -> bool {
        let mut head = self.word(self.position);
        if head == WRAP {
            self.returns.consumed += (self.words - self.position) as u64;
            self.position = 0;
            head = self.word(0);
        }
        let len_bytes = head as usize & 0x00ff_ffff;
        let count = words_of(len_bytes);
        if head == 0 || count > record_words_max(self.words) || self.position + count + BEHIND_WORDS > self.words {
            // Nothing, or not something our sender writes: the channel stays where it is.
            return false;
        }
        if self.word(self.position + count + 1) != head {
            return false;
        }
        let at = offset(self.position);
        let [low, high] = [at + 16, at + 24].map(|at| self.memory.word(at).load(Ordering::Relaxed));
        let (record, len_bytes) = parse_flag(head, low, high);
        // SAFETY: inside the block by the check above; the sender does not write it before it is given back.
        unsafe { self.memory.read(at + HEADER_WORDS * WORD_BYTES, len_bytes, |payload| take(record, payload)) };
        self.position += count;
        self.returns.consumed += count as u64;
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

fn check_geometry(memory: &SharedMemory, block_bytes: usize) {
    assert!(memory.len_bytes() >= footprint(block_bytes), "the block fits its memory");
    assert!(block_bytes >= 1024 && block_bytes.is_multiple_of(8 * WORD_BYTES));
}
